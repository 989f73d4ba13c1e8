// Stores: keys, values, batches.

#include "check.h"

static arck_handle opened(const char *directory)
{
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    arck_handle store = arck_store_open(NULL, directory, &make);
    CHECK(store > 0);
    return store;
}

static int set(arck_handle store, const char *key, const char *value)
{
    return arck_store_set(store, key, strlen(key), value, strlen(value));
}

// Whether a key has just this value.
static bool has(arck_handle store, const char *key, const char *value)
{
    char room[64];
    ssize_t length = arck_store_get(store, key, strlen(key), room, sizeof room);
    return length == (ssize_t)strlen(value) && memcmp(room, value, length) == 0;
}

static void values(void)
{
    static char large[ARCK_VALUE_MAX + 1], room[ARCK_VALUE_MAX];
    arck_handle store = opened("values");
    FAILS(ENOENT, arck_store_get(store, "a", 1, room, sizeof room));
    GIVES(0, arck_store_has(store, "a", 1));
    GIVES(0, arck_store_remove(store, "a", 1));
    GIVES(0, set(store, "a", "one"));
    CHECK(has(store, "a", "one"));
    GIVES(1, arck_store_has(store, "a", 1));
    GIVES(0, set(store, "a", "two and more"));
    CHECK(has(store, "a", "two and more"));
    // How long it is, and room that is too little.
    GIVES(12, arck_store_get(store, "a", 1, NULL, 0));
    memset(room, '-', sizeof room);
    FAILS(ERANGE, arck_store_get(store, "a", 1, room, 11));
    CHECK(room[0] == '-' && room[11] == '-');
    GIVES(12, arck_store_get(store, "a", 1, room, 12));
    CHECK(room[11] == 'e' && room[12] == '-');
    // None at all, and as much as one can have.
    GIVES(0, arck_store_set(store, "empty", 5, NULL, 0));
    GIVES(0, arck_store_get(store, "empty", 5, room, sizeof room));
    GIVES(1, arck_store_has(store, "empty", 5));
    for (size_t i = 0; i < sizeof large; i++)
        large[i] = (char)(i * 31);
    GIVES(0, arck_store_set(store, "large", 5, large, ARCK_VALUE_MAX));
    GIVES(ARCK_VALUE_MAX, arck_store_get(store, "large", 5, room, sizeof room));
    CHECK(memcmp(room, large, ARCK_VALUE_MAX) == 0);
    GIVES(ARCK_VALUE_MAX, arck_store_get(store, "large", 5, NULL, 0));
    FAILS(ERANGE, arck_store_get(store, "large", 5, room, ARCK_VALUE_MAX - 1));
    FAILS(EFBIG, arck_store_set(store, "large", 5, large, ARCK_VALUE_MAX + 1));
    CHECK(says("32768 bytes at most"));
    GIVES(1, arck_store_remove(store, "a", 1));
    GIVES(0, arck_store_has(store, "a", 1));
    GIVES(0, arck_close(store));
}

static void keys(void)
{
    char name[32], key[ARCK_KEY_MAX];
    bool seen[300] = {false};
    ssize_t length;
    arck_handle store = opened("keys");
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "key-%d", i);
        GIVES(0, set(store, name, name));
    }
    arck_handle list = arck_store_keys(store);
    CHECK(list > 0);
    FAILS(ERANGE, arck_keys_next(list, key, 2));
    FAILS(ERANGE, arck_keys_next(list, NULL, 0));
    int count = 0;
    while ((length = arck_keys_next(list, key, sizeof key)) > 0) {
        CHECK(length > 4 && memcmp(key, "key-", 4) == 0);
        memcpy(name, key, length);
        name[length] = 0;
        int number = atoi(name + 4);
        CHECK(number >= 0 && number < 300 && !seen[number]);
        seen[number] = true;
        count++;
    }
    GIVES(0, length);
    GIVES(0, arck_keys_next(list, key, sizeof key));
    GIVES(300, count);
    GIVES(0, arck_close(list));
    FAILS(EBADF, arck_keys_next(list, key, sizeof key));
    // The longest key.
    memset(key, 'k', sizeof key);
    GIVES(0, arck_store_set(store, key, sizeof key, "v", 1));
    GIVES(1, arck_store_has(store, key, sizeof key));
    GIVES(0, arck_close(store));
}

static void batches(void)
{
    char name[32];
    arck_handle store = opened("batches");
    GIVES(0, set(store, "old", "1"));
    GIVES(0, set(store, "gone", "1"));
    arck_handle batch = arck_batch_begin(store);
    GIVES(0, arck_batch_set(batch, "old", 3, "2", 1));
    GIVES(0, arck_batch_set(batch, "new", 3, "zero", 4));
    GIVES(0, arck_batch_set(batch, "new", 3, "1", 1));
    GIVES(0, arck_batch_remove(batch, "gone", 4));
    GIVES(0, arck_batch_remove(batch, "never", 5));
    CHECK(has(store, "old", "1") && !has(store, "new", "1"));
    GIVES(2, arck_batch_commit(batch));
    FAILS(EBADF, arck_batch_commit(batch));
    CHECK(has(store, "old", "2") && has(store, "new", "1"));
    GIVES(0, arck_store_has(store, "gone", 4));

    // Given up.
    batch = arck_batch_begin(store);
    GIVES(0, arck_batch_set(batch, "old", 3, "3", 1));
    GIVES(0, arck_close(batch));
    CHECK(has(store, "old", "2"));

    // As many as there may be; what fails changes nothing, and can be mended.
    batch = arck_batch_begin(store);
    for (int i = 0; i < ARCK_BATCH_MAX; i++) {
        snprintf(name, sizeof name, i ? "many-%d" : "not/a key", i);
        GIVES(0, arck_batch_set(batch, name, strlen(name), "v", 1));
    }
    FAILS(E2BIG, arck_batch_set(batch, "one more", 8, "v", 1));
    GIVES(0, arck_batch_set(batch, "many-1", 6, "w", 1));
    FAILS(EINVAL, arck_batch_commit(batch));
    CHECK(says("slash"));
    GIVES(0, arck_store_has(store, "many-1", 6));
    GIVES(0, arck_close(batch));
    GIVES(0, arck_close(store));
}

// They are files to everybody else.
static void files_beside(void)
{
    char room[16];
    arck_handle store = opened("beside/deep");
    arck_handle pool = connected();
    GIVES(0, set(store, "a", "value"));
    arck_handle file = arck_openat(pool, "beside/deep/a", O_RDONLY, 0);
    GIVES(5, arck_read(file, room, sizeof room));
    GIVES(0, arck_close(file));
    file = arck_openat(pool, "beside/deep/b", O_CREAT | O_WRONLY, 0644);
    GIVES(4, arck_write(file, "file", 4));
    GIVES(0, arck_close(file));
    CHECK(has(store, "b", "file"));
    GIVES(0, arck_mkdirat(pool, "beside/deep/c", 0755));
    FAILS(EISDIR, arck_store_get(store, "c", 1, room, sizeof room));
    FAILS(EISDIR, arck_store_set(store, "c", 1, "v", 1));
    file = arck_openat(pool, "beside/deep/d", O_CREAT | O_WRONLY, 0644);
    GIVES(0, arck_ftruncate(file, 100000));
    FAILS(EFBIG, arck_store_get(store, "d", 1, room, sizeof room));
    FAILS(EFBIG, arck_store_get(store, "d", 1, NULL, 0));
    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
}

static const struct test tests[] = {
    {"values", values},
    {"keys", keys},
    {"batches", batches},
    {"files_beside", files_beside},
};

MAIN(tests)
