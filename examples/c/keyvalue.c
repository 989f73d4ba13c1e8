// Small values of a pool, by their keys.
//
//     cc -o keyvalue examples/c/keyvalue.c $(pkg-config --cflags --libs arck)
//     ARCK_POOL=/dev/shm/my-pool ./keyvalue

#include <arck.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static arck_handle checked(arck_handle value, const char *what)
{
    if (value < 0) {
        fprintf(stderr, "keyvalue: %s: %s\n", what, arck_message());
        exit(1);
    }
    return value;
}

int main(void)
{
    char key[ARCK_KEY_MAX], value[ARCK_VALUE_MAX];
    struct arck_options options;
    ssize_t length;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = ARCK_MAKE;
    arck_handle store = checked(arck_store_open(NULL, "sessions-c", &options), "opening");

    checked(arck_store_set(store, "anna", 4, "language=no", 11), "anna");
    checked(arck_store_set(store, "bert", 4, "language=de", 11), "bert");

    // All of it, or nothing: also if the machine stops in the middle.
    arck_handle batch = checked(arck_batch_begin(store), "a batch");
    checked(arck_batch_remove(batch, "bert", 4), "bert");
    checked(arck_batch_set(batch, "carl", 4, "language=fr", 11), "carl");
    checked(arck_batch_commit(batch), "the batch");

    arck_handle keys = checked(arck_store_keys(store), "keys");
    while ((length = checked(arck_keys_next(keys, key, sizeof key), "keys")) > 0) {
        ssize_t size = checked(arck_store_get(store, key, (size_t)length, value, sizeof value), "a value");
        printf("%.*s %.*s\n", (int)length, key, (int)size, value);
    }

    // A key that is not there is no trouble.
    if (arck_store_get(store, "bert", 4, value, sizeof value) < 0 && errno == ENOENT)
        puts("bert is gone");
    checked(arck_close(store), "closing");
    return 0;
}
