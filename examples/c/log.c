// A log of a pool: events that are appended, and followed.
//
//     cc -o log examples/c/log.c $(pkg-config --cflags --libs arck)
//     ARCK_POOL=/dev/shm/my-pool ./log

#include <arck.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static arck_handle checked(arck_handle value, const char *what)
{
    if (value < 0) {
        fprintf(stderr, "log: %s: %s\n", what, arck_message());
        exit(1);
    }
    return value;
}

int main(void)
{
    char buffer[4096];
    struct arck_options options;
    uint64_t begin, last;
    ssize_t length;

    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.flags = ARCK_MAKE;
    arck_handle log = checked(arck_log_open(NULL, "events-c", &options), "opening");

    // By any thread. Durable when it returns; the position is for whoever looks for it.
    checked(arck_log_append(log, "started\n", 8, &begin), "appending");
    // Several that are durable together cost little more than one.
    checked(arck_log_enqueue(log, "one\n", 4, NULL), "appending");
    checked(arck_log_enqueue(log, "two\n", 4, NULL), "appending");
    checked(arck_log_append(log, "three\n", 6, &last), "appending");

    // Waits up to a second for what is not there yet.
    arck_handle follower = checked(arck_log_follow(log, begin), "following");
    length = checked(arck_follower_next(follower, buffer, sizeof buffer, 1000, NULL), "following");
    fwrite(buffer, 1, (size_t)length, stdout);

    // What is below is not needed any more: whole sections of that go.
    checked(arck_log_cut(log, last), "cutting");
    checked(arck_close(log), "closing");
    return 0;
}
