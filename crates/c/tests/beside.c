// Beside the library that `arck run` loads: both ways to one pool in one process, which it has to be started by.

#include "check.h"

#include <pthread.h>

// The same file by both ways, with either session.
static void to_and_fro(arck_handle pool)
{
    char room[64];
    for (int i = 0; i < 200; i++) {
        char text[32];
        int length = snprintf(text, sizeof text, "turn %d", i);
        int host = open("/arck/beside-file", O_CREAT | O_RDWR | O_TRUNC, 0644);
        CHECK(host >= 0 && write(host, text, length) == length);
        arck_handle file = arck_openat(pool, "beside-file", O_RDWR, 0);
        GIVES(length, arck_read(file, room, sizeof room));
        CHECK(memcmp(room, text, length) == 0);
        GIVES(2, arck_pwrite(file, "ok", 2, 0));
        CHECK(pread(host, room, 2, 0) == 2 && memcmp(room, "ok", 2) == 0);
        // No number of the one is one of the other.
        FAILS(EBADF, arck_read(host, room, sizeof room));
        GIVES(0, arck_close(file));
        CHECK(close(host) == 0);
    }
    CHECK(mkdir("/arck/beside-folder", 0755) == 0);
    GIVES(0, arck_unlinkat(pool, "beside-folder", AT_REMOVEDIR));
    CHECK(access("/arck/beside-folder", F_OK) == -1 && errno == ENOENT);
}

static void a_session_of_its_own(void)
{
    arck_handle pool = connected();
    to_and_fro(pool);
    GIVES(0, arck_close(pool));
    CHECK(access("/arck/beside-file", F_OK) == 0);
}

static void in_the_group(void)
{
    struct arck_options options = usual();
    options.group = getenv("ARCK_GROUP");
    CHECK(options.group && *options.group);
    arck_handle pool = arck_connect(NULL, &options);
    CHECK(pool > 0);
    if (pool > 0)
        to_and_fro(pool);
    GIVES(0, arck_close(pool));
    CHECK(access("/arck/beside-file", F_OK) == 0);
}

static arck_handle shared;

static void child(void)
{
    char room[8];
    int host = open("/arck/beside-file", O_RDONLY);
    CHECK(host >= 0 && read(host, room, 2) == 2);
    arck_handle file = arck_openat(shared, "beside-file", O_RDONLY, 0);
    GIVES(2, arck_read(file, room, 2));
    GIVES(0, arck_close(shared));
}

static void forking(void)
{
    shared = connected();
    for (int i = 0; i < 5; i++)
        in_child(child);
    arck_handle file = arck_openat(shared, "beside-file", O_RDONLY, 0);
    CHECK(file > 0);
    GIVES(0, arck_close(shared));
}

static void *by_the_host(void *nothing)
{
    for (int i = 0; i < 2000; i++) {
        int host = open("/arck/beside-many", O_CREAT | O_RDWR, 0644);
        CHECK(host >= 0 && pwrite(host, "host", 4, 0) == 4);
        CHECK(close(host) == 0);
    }
    return nothing;
}

static void at_once(void)
{
    pthread_t thread;
    char room[4];
    arck_handle pool = connected();
    CHECK(pthread_create(&thread, NULL, by_the_host, NULL) == 0);
    for (int i = 0; i < 2000; i++) {
        arck_handle file = arck_openat(pool, "beside-many", O_CREAT | O_RDWR, 0644);
        CHECK(file > 0);
        GIVES(4, arck_pwrite(file, "arck", 4, 0));
        GIVES(4, arck_pread(file, room, 4, 0));
        CHECK(memcmp(room, "arck", 4) == 0 || memcmp(room, "host", 4) == 0);
        GIVES(0, arck_close(file));
    }
    pthread_join(thread, NULL);
    GIVES(0, arck_close(pool));
}

static const struct test tests[] = {
    {"a_session_of_its_own", a_session_of_its_own},
    {"in_the_group", in_the_group},
    {"forking", forking},
    {"at_once", at_once},
};

MAIN(tests)
