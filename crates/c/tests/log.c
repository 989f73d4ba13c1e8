// Logs: appending, reading, following, cutting.

#include "check.h"

#include <pthread.h>
#include <time.h>

static arck_handle opened(const char *directory, uint64_t section)
{
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    make.section = section;
    arck_handle log = arck_log_open(NULL, directory, &make);
    CHECK(log > 0);
    return log;
}

static void appending(void)
{
    char room[64];
    uint64_t position = 77, end = 0;
    arck_handle log = opened("appending", 0);
    GIVES(0, arck_log_append(log, "one\n", 4, &position));
    GIVES(0, position);
    struct iovec records[3] = {{(void *)"two\n", 4}, {(void *)"", 0}, {(void *)"three\n", 6}};
    GIVES(0, arck_log_appendv(log, records, 3, &position));
    GIVES(4, position);
    FAILS(EINVAL, arck_log_appendv(log, records, 0, NULL));
    GIVES(0, arck_log_append(log, "four\n", 5, NULL));
    GIVES(0, arck_log_end(log, &end));
    GIVES(19, end);
    GIVES(19, arck_log_read(log, 0, room, sizeof room));
    CHECK(memcmp(room, "one\ntwo\nthree\nfour\n", 19) == 0);
    GIVES(5, arck_log_read(log, 14, room, sizeof room));
    GIVES(0, arck_log_read(log, 19, room, sizeof room));
    FAILS(EINVAL, arck_log_read(log, 20, room, sizeof room));
    FAILS(EINVAL, arck_log_append(log, "", 0, NULL));

    char *large = (char *)malloc(ARCK_RECORD_MAX + 1);
    memset(large, 'x', ARCK_RECORD_MAX + 1);
    FAILS(EMSGSIZE, arck_log_append(log, large, ARCK_RECORD_MAX + 1, NULL));
    CHECK(says("1 to 1048576"));
    GIVES(0, arck_log_append(log, large, ARCK_RECORD_MAX, &position));
    GIVES(19, position);
    free(large);
    GIVES(0, arck_close(log));
}

static void enqueueing(void)
{
    arck_handle enqueued[3];
    uint64_t position = 0, end = 0;
    arck_handle log = opened("enqueueing", 0);
    for (int i = 0; i < 3; i++)
        GIVES(0, arck_log_enqueue(log, "abcd", 4, &enqueued[i]));
    GIVES(0, arck_log_enqueue(log, "ef", 2, NULL));
    GIVES(0, arck_log_commit(enqueued[1], &position));
    GIVES(4, position);
    FAILS(EBADF, arck_log_commit(enqueued[1], &position));
    GIVES(0, arck_log_commit(enqueued[0], NULL));
    // Given up, and there all the same.
    GIVES(0, arck_close(enqueued[2]));
    GIVES(0, arck_log_append(log, "g", 1, &position));
    GIVES(14, position);
    GIVES(0, arck_log_enqueue(log, "left", 4, NULL));
    GIVES(0, arck_close(log));
    log = opened("enqueueing", 0);
    GIVES(0, arck_log_end(log, &end));
    GIVES(19, end);
    GIVES(0, arck_close(log));
}

static arck_handle followed;

static double milliseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}

static void *append_later(void *nothing)
{
    usleep(150000);
    GIVES(0, arck_log_append(followed, "late\n", 5, NULL));
    return nothing;
}

static void following(void)
{
    char room[64];
    uint64_t position = 0;
    pthread_t thread;
    arck_handle log = followed = opened("following", 0);
    GIVES(0, arck_log_append(log, "first\n", 6, NULL));
    arck_handle follower = arck_log_follow(log, 0);
    CHECK(follower > 0);
    GIVES(6, arck_follower_next(follower, room, sizeof room, 0, &position));
    GIVES(6, position);
    GIVES(0, arck_follower_next(follower, room, sizeof room, 0, NULL));
    double began = milliseconds();
    GIVES(0, arck_follower_next(follower, room, sizeof room, 120, &position));
    double took = milliseconds() - began;
    CHECK(took >= 119 && took < 2000);
    CHECK(pthread_create(&thread, NULL, append_later, NULL) == 0);
    GIVES(5, arck_follower_next(follower, room, sizeof room, -1, &position));
    CHECK(memcmp(room, "late\n", 5) == 0 && position == 11);
    pthread_join(thread, NULL);
    GIVES(0, arck_close(follower));
    FAILS(EBADF, arck_follower_next(follower, room, sizeof room, -1, NULL));
    GIVES(0, arck_close(log));
}

static void *wait_for_ever(void *follower)
{
    char room[8];
    ssize_t value;
    // The other one may look whether this one waits just as it begins to.
    do
        value = arck_follower_next(*(arck_handle *)follower, room, sizeof room, -1, NULL);
    while (value == -1 && errno == EBUSY);
    CHECK(value == -1 && errno == EBADF);
    return NULL;
}

static void closing_while_followed(void)
{
    for (int closes_log = 0; closes_log < 2; closes_log++) {
        pthread_t thread;
        char room[8];
        arck_handle log = opened("closing", 0);
        uint64_t end = 0;
        GIVES(0, arck_log_end(log, &end));
        arck_handle follower = arck_log_follow(log, end);
        CHECK(pthread_create(&thread, NULL, wait_for_ever, &follower) == 0);
        while (arck_follower_next(follower, room, sizeof room, 0, NULL) == 0 && failures == 0)
            usleep(1000);
        // Who waits keeps it for all of the wait, and is not told that another one has it.
        for (double end = milliseconds() + 300; milliseconds() < end && failures == 0;)
            FAILS(EBUSY, arck_follower_next(follower, room, sizeof room, 0, NULL));
        GIVES(0, arck_close(closes_log ? log : follower));
        pthread_join(thread, NULL);
        if (!closes_log)
            GIVES(0, arck_close(log));
    }
}

static void cutting(void)
{
    char room[64];
    uint64_t begin = 0, end = 0;
    arck_handle log = opened("cutting", 16);
    arck_handle follower = arck_log_follow(log, 0);
    for (int i = 0; i < 10; i++)
        GIVES(0, arck_log_append(log, "0123456789", 10, NULL));
    GIVES(0, arck_log_cut(log, 45));
    GIVES(0, arck_log_begin(log, &begin));
    GIVES(40, begin);
    GIVES(0, arck_log_end(log, &end));
    GIVES(100, end);
    FAILS(ENODATA, arck_log_read(log, 0, room, sizeof room));
    CHECK(says("begins at 40"));
    FAILS(ENODATA, arck_log_follow(log, 39));
    FAILS(ENODATA, arck_follower_next(follower, room, sizeof room, 0, NULL));
    FAILS(EINVAL, arck_log_cut(log, 101));
    GIVES(60, arck_log_read(log, 40, room, sizeof room));
    GIVES(0, arck_close(log));
}

// Members of a group, and a session apart.
static void two_sessions(void)
{
    char room[64];
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    make.group = "loggers";
    arck_handle log = arck_log_open(NULL, "two-sessions", &make);
    arck_handle other = opened("two-sessions", 0);
    arck_handle follower = arck_log_follow(other, 0);
    CHECK(log > 0 && other > 0 && follower > 0);
    for (int i = 0; i < 3; i++) {
        GIVES(0, arck_log_append(log, "abc", 3, NULL));
        GIVES(3, arck_follower_next(follower, room, sizeof room, 5000, NULL));
    }
    GIVES(0, arck_close(log));
    GIVES(0, arck_close(other));
}

static const struct test tests[] = {
    {"appending", appending},
    {"enqueueing", enqueueing},
    {"following", following},
    {"closing_while_followed", closing_while_followed},
    {"cutting", cutting},
    {"two_sessions", two_sessions},
};

MAIN(tests)
