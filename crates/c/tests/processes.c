// Forks, threads, and the ends of programs. $ARCK is the command.

#include "check.h"

#include <pthread.h>
#include <signal.h>

enum { THREADS = 8, TURNS = 4000 };

// ---- threads

static arck_handle pool, file, store, logged;
static uint32_t closed, served;

static void *use_one_file(void *number)
{
    char own[64], room[64];
    long me = (long)number;
    for (int i = 0; i < TURNS; i++) {
        memset(own, 'a' + (int)me, sizeof own);
        GIVES(sizeof own, arck_pwrite(file, own, sizeof own, me * 64));
        GIVES(sizeof room, arck_pread(file, room, sizeof room, me * 64));
        CHECK(memcmp(own, room, sizeof own) == 0);
        if (i % 8 == 0) {
            char name[32];
            snprintf(name, sizeof name, "threads-%ld-%d", me, i % 64);
            arck_handle opened = arck_openat(pool, name, O_CREAT | O_RDWR, 0644);
            CHECK(opened > 0);
            GIVES(1, arck_write(opened, own, 1));
            GIVES(0, arck_close(opened));
        }
    }
    return NULL;
}

static void *use_one_store(void *number)
{
    char own[32], room[32];
    long me = (long)number;
    for (int i = 0; i < TURNS; i++) {
        int length = snprintf(own, sizeof own, "value %ld of %d", me, i);
        GIVES(0, arck_store_set(store, own, 7, own, length));
        GIVES(length, arck_store_get(store, own, 7, room, sizeof room));
        CHECK(memcmp(own, room, length) == 0);
    }
    return NULL;
}

static void *use_one_log(void *nothing)
{
    for (int i = 0; i < TURNS / 4; i++)
        GIVES(0, arck_log_append(logged, "0123456789", 10, NULL));
    return nothing;
}

static void with_threads(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void threads_on_one_handle(void)
{
    struct arck_options make = usual();
    uint64_t end = 0;
    make.flags = ARCK_MAKE;
    pool = connected();
    file = arck_openat(pool, "threads", O_CREAT | O_RDWR, 0644);
    store = arck_store_open(NULL, "threads-store", &make);
    logged = arck_log_open(NULL, "threads-log", &make);
    with_threads(use_one_file);
    with_threads(use_one_store);
    with_threads(use_one_log);
    GIVES(0, arck_log_end(logged, &end));
    GIVES(10 * THREADS * (TURNS / 4), end);
    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(logged));
}

// What is done until it is closed: all of it, or EBADF.
static void *until_closed(void *number)
{
    char room[256];
    long me = (long)number;
    for (;;) {
        long long value;
        errno = 0;
        switch (me % 4) {
        case 0:
            value = arck_pread(file, room, sizeof room, 0);
            break;
        case 1:
            value = arck_store_get(store, "key", 3, room, sizeof room);
            break;
        case 2:
            value = arck_store_set(store, "key", 3, room, sizeof room);
            break;
        default:
            value = arck_pwrite(file, room, sizeof room, 0);
        }
        if (value < 0) {
            CHECK(errno == EBADF);
            __atomic_add_fetch(&closed, 1, __ATOMIC_RELAXED);
            return NULL;
        }
        CHECK(value == (me % 4 == 2 ? 0 : 256));
        __atomic_add_fetch(&served, 1, __ATOMIC_RELAXED);
    }
}

static void closing_while_used(void)
{
    static const char value[256] = "value";
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    for (int round = 0; round < 30; round++) {
        pthread_t threads[THREADS];
        closed = served = 0;
        pool = connected();
        file = arck_openat(pool, "closing", O_CREAT | O_RDWR, 0644);
        store = arck_store_open(NULL, "closing-store", &make);
        GIVES(sizeof value, arck_pwrite(file, value, sizeof value, 0));
        GIVES(0, arck_store_set(store, "key", 3, value, sizeof value));
        for (long i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, until_closed, (void *)i) == 0);
        while (__atomic_load_n(&served, __ATOMIC_RELAXED) < 100 && failures == 0)
            usleep(100);
        GIVES(0, arck_close(store));
        GIVES(0, arck_close(round % 2 ? pool : file));
        for (long i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        GIVES(THREADS, closed);
        if (round % 2 == 0)
            GIVES(0, arck_close(pool));
    }
}

// Handles in one place, opened and closed by all.
static void *open_and_close(void *number)
{
    for (int i = 0; i < TURNS; i++) {
        arck_handle opened = arck_openat(pool, "churn", O_CREAT | O_RDWR, 0644);
        CHECK(opened > 0);
        arck_handle before = __atomic_exchange_n(&file, opened, __ATOMIC_RELAXED);
        struct stat status;
        if (arck_fstat(opened, &status) != 0)
            CHECK(errno == EBADF);
        if (before > 0 && (i + (long)number) % 2)
            GIVES(0, arck_close(before));
        else if (before > 0 && arck_close(before) != 0)
            CHECK(errno == EBADF);
    }
    return NULL;
}

static void handles_that_come_and_go(void)
{
    pool = connected();
    file = -1;
    with_threads(open_and_close);
    GIVES(0, arck_close(file));
    GIVES(0, arck_close(pool));
}

// ---- forks

static arck_handle listed, batch, follower, enqueued;

static void in_the_child(void)
{
    char room[16];
    struct dirent dirent;
    struct stat status;
    // Its parent's.
    FAILS(ESTALE, arck_read(file, room, sizeof room));
    CHECK(says("forked"));
    FAILS(ESTALE, arck_fstat(file, &status));
    FAILS(ESTALE, arck_dup(file));
    FAILS(ESTALE, arck_readdir(listed, &dirent));
    FAILS(ESTALE, arck_log_commit(enqueued, NULL));
    // Its own sessions.
    arck_handle own = arck_openat(pool, "forked", O_RDWR, 0);
    CHECK(own > 0);
    FAILS(ESTALE, arck_linkat(file, "", pool, "other", AT_EMPTY_PATH));
    GIVES(6, arck_read(own, room, sizeof room));
    GIVES(5, arck_pwrite(own, "child", 5, 0));
    GIVES(0, arck_store_set(store, "child", 5, "v", 1));
    GIVES(6, arck_store_get(store, "parent", 6, room, sizeof room));
    GIVES(0, arck_log_append(logged, "child\n", 6, NULL));
    GIVES(7, arck_follower_next(follower, room, 7, 5000, NULL));
    GIVES(0, arck_batch_set(batch, "too", 3, "v", 1));
    GIVES(0, arck_batch_commit(batch));
    // To close what is its parent's harms nobody.
    GIVES(0, arck_close(file));
    FAILS(EBADF, arck_close(file));
    GIVES(0, arck_close(listed));
    GIVES(0, arck_close(own));
    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(logged));
}

static void close_only(void)
{
    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(logged));
}

static void nothing_at_all(void)
{
}

static void forking(void)
{
    char room[16];
    struct dirent dirent;
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    pool = connected();
    file = arck_openat(pool, "forked", O_CREAT | O_RDWR, 0644);
    GIVES(6, arck_pwrite(file, "parent", 6, 0));
    listed = arck_opendirat(pool, ".");
    store = arck_store_open(NULL, "forked-store", &make);
    GIVES(0, arck_store_set(store, "parent", 6, "parent", 6));
    logged = arck_log_open(NULL, "forked-log", &make);
    GIVES(0, arck_log_append(logged, "parent\n", 7, NULL));
    follower = arck_log_follow(logged, 0);
    batch = arck_batch_begin(store);
    GIVES(0, arck_log_enqueue(logged, "later\n", 6, &enqueued));
    in_child(in_the_child);
    in_child(close_only);
    in_child(nothing_at_all);
    // The parent notices nothing.
    GIVES(6, arck_pread(file, room, sizeof room, 0));
    CHECK(memcmp(room, "childt", 6) == 0);
    GIVES(1, arck_readdir(listed, &dirent));
    GIVES(1, arck_store_get(store, "child", 5, room, sizeof room));
    GIVES(1, arck_store_has(store, "too", 3));
    GIVES(0, arck_log_commit(enqueued, NULL));
    GIVES(7, arck_follower_next(follower, room, 7, 5000, NULL));
    GIVES(0, arck_batch_commit(batch));
    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(logged));
}

#ifndef __SANITIZE_ADDRESS__
static uint32_t ends;

static void *busy(void *number)
{
    char room[64] = "", key[16];
    while (!__atomic_load_n(&ends, __ATOMIC_RELAXED)) {
        int length = snprintf(key, sizeof key, "key-%ld", (long)number);
        GIVES(0, arck_store_set(store, key, length, room, sizeof room));
        GIVES(sizeof room, arck_store_get(store, key, length, room, sizeof room));
        arck_handle opened = arck_openat(pool, key, O_CREAT | O_RDWR, 0644);
        CHECK(opened > 0);
        GIVES(0, arck_close(opened));
        arck_handle list = arck_store_keys(store);
        GIVES(0, arck_close(list));
    }
    return NULL;
}

static void short_use(void)
{
    char room[64];
    GIVES(64, arck_store_get(store, "key-0", 5, room, sizeof room));
    arck_handle opened = arck_openat(pool, "key-0", O_RDWR, 0);
    CHECK(opened > 0);
    GIVES(0, arck_close(opened));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(pool));
}

static void forking_while_threads_are_inside(void)
{
    pthread_t threads[4];
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    pool = connected();
    GIVES(0, arck_umask(pool, 022));
    store = arck_store_open(NULL, "busy-store", &make);
    ends = 0;
    for (long i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, busy, (void *)i) == 0);
    for (;;) {
        char room[64];
        arck_handle opened = arck_openat(pool, "key-0", O_RDONLY, 0);
        if (opened > 0 && arck_close(opened) == 0 && arck_store_get(store, "key-0", 5, room, sizeof room) == 64)
            break;
        usleep(1000);
    }
    for (int i = 0; i < 25; i++)
        in_child(short_use);
    ends = 1;
    for (long i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(pool));
}

#endif

// ---- ends

static const char *how_to_end;

static void *end_inside(void *nothing)
{
    char room[16];
    // For ever, while the process ends.
    arck_follower_next(follower, room, sizeof room, -1, NULL);
    return nothing;
}

static void end(void)
{
    struct arck_options make = usual();
    pthread_t thread;
    make.flags = ARCK_MAKE;
    arck_handle own = connected();
    arck_handle opened = arck_openat(own, how_to_end, O_CREAT | O_RDWR | O_TRUNC, 0644);
    arck_handle values = arck_store_open(NULL, "ends-store", &make);
    arck_handle log = arck_log_open(NULL, "ends-log", &make);
    uint64_t at = 0;
    GIVES(5, arck_write(opened, "there", 5));
    GIVES(0, arck_store_set(values, how_to_end, strlen(how_to_end), "there", 5));
    GIVES(0, arck_log_append(log, "there", 5, NULL));
    GIVES(0, arck_log_end(log, &at));
    CHECK(arck_opendirat(own, ".") > 0 && arck_batch_begin(values) > 0);
    follower = arck_log_follow(log, at);
    CHECK(pthread_create(&thread, NULL, end_inside, NULL) == 0);
    if (failures)
        _exit(99);
    usleep(20000);
    if (strcmp(how_to_end, "exit") == 0)
        exit(7);
    if (strcmp(how_to_end, "_exit") == 0)
        _exit(7);
    if (strcmp(how_to_end, "SIGKILL") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how_to_end, "abort") == 0) {
        signal(SIGABRT, SIG_DFL);
        abort();
    }
    if (strcmp(how_to_end, "exec") == 0)
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)NULL);
    _exit(98);
}

static void ending_with_open_handles(void)
{
    static const struct {
        const char *name;
        int status;
    } ways[] = {{"exit", 7 << 8}, {"_exit", 7 << 8}, {"exec", 7 << 8}, {"SIGKILL", SIGKILL}, {"abort", SIGABRT}};
    char room[16];
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        int status = 0;
        how_to_end = ways[i].name;
        pid_t child = fork();
        if (child == 0) {
            alarm(60);
            end();
        }
        CHECK(waitpid(child, &status, 0) == child);
        GIVES(ways[i].status, status & 0xff7f);
        arck_handle own = connected();
        arck_handle opened = arck_openat(own, how_to_end, O_RDONLY, 0);
        GIVES(5, arck_read(opened, room, sizeof room));
        CHECK(memcmp(room, "there", 5) == 0);
        arck_handle values = arck_store_open(NULL, "ends-store", NULL);
        GIVES(5, arck_store_get(values, how_to_end, strlen(how_to_end), room, sizeof room));
        GIVES(0, arck_close(values));
        GIVES(0, arck_close(own));
    }
    arck_handle log = arck_log_open(NULL, "ends-log", NULL);
    uint64_t at = 0;
    GIVES(0, arck_log_end(log, &at));
    GIVES(25, at);
    GIVES(0, arck_close(log));
}

// A thread that ends has nothing open, and another one gets on.
static void *one_call(void *nothing)
{
    struct stat status;
    GIVES(0, arck_fstat(pool, &status));
    FAILS(ENOENT, arck_openat(pool, "no such", O_RDONLY, 0));
    CHECK(says("No such file"));
    return nothing;
}

static void threads_that_end(void)
{
    pool = connected();
    for (int i = 0; i < 50; i++)
        with_threads(one_call);
    GIVES(0, arck_close(pool));
}

// A message is its thread's, and stays.
static void messages(void)
{
    FAILS(ENOENT, arck_connect("/nowhere", NULL));
    char *kept = strdup(arck_message());
    pool = connected();
    with_threads(one_call);
    CHECK(strcmp(kept, arck_message()) == 0);
    GIVES(0, arck_close(pool));
    FAILS(EBADF, arck_close(pool));
    CHECK(says("closed"));
    free(kept);
}

static const struct test tests[] = {
    {"threads_on_one_handle", threads_on_one_handle},
    {"closing_while_used", closing_while_used},
    {"handles_that_come_and_go", handles_that_come_and_go},
    {"forking", forking},
#ifndef __SANITIZE_ADDRESS__
    // AddressSanitizer's allocator (of GCC 12) does not let go of its locks in a child that is forked while another thread
    // allocates: the child's first malloc waits for ever. The plain build runs this one.
    {"forking_while_threads_are_inside", forking_while_threads_are_inside},
#endif
    {"ending_with_open_handles", ending_with_open_handles},
    {"threads_that_end", threads_that_end},
    {"messages", messages},
};

MAIN(tests)
