// Queues, and what goes on around them: threads, signals, forks, and the ends of programs.

#include "queues.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

// ---- threads

enum { THREADS = 4, TURNS = 300 };

// Each thread has a range and a buffer of its own; completions come to whoever reaps.
static uint8_t completed_by[THREADS * TURNS];

static void *use_one_queue(void *number)
{
    long me = (long)number;
    struct arck_completion done[128];
    for (int i = 0; i < TURNS;) {
        char bytes[64];
        memset(bytes, 'a' + i % 26, sizeof bytes);
        int64_t given = submit(ARCK_WRITE, bytes, sizeof bytes, me * 64, me * TURNS + i);
        CHECK(given > 0 || errno == EAGAIN);
        i += given > 0;
        ssize_t count = i % 2 ? arck_reap(queue, done, 3) : arck_wait(queue, done, 128, 1, 1);
        CHECK(count >= 0);
        for (ssize_t j = 0; j < count; j++) {
            CHECK(done[j].result == 64 && done[j].user < THREADS * TURNS);
            __atomic_add_fetch(&completed_by[done[j].user], 1, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static void with_threads(void *(*work)(void *))
{
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void threads_on_one_queue(void)
{
    struct arck_completion done[128];
    char room[THREADS * 64];
    memset(completed_by, 0, sizeof completed_by);
    opened("threads", 2, 0);
    with_threads(use_one_queue);
    GIVES(0, arck_queue_end(queue, ARCK_FINISH));
    ssize_t count = arck_reap(queue, done, 128);
    for (ssize_t j = 0; j < count; j++)
        completed_by[done[j].user]++;
    for (int i = 0; i < THREADS * TURNS; i++)
        GIVES(1, completed_by[i]);
    GIVES(sizeof room, arck_pread(file, room, sizeof room, 0));
    for (size_t i = 0; i < sizeof room; i++)
        CHECK(room[i] == 'a' + (TURNS - 1) % 26);
    closed();
}

static uint32_t begun, ended;

static void *until_closed(void *number)
{
    struct arck_completion done[128];
    char room[64];
    bool reads = (long)number % 2;
    for (;;) {
        int64_t given = submit(reads ? ARCK_READ : ARCK_WRITE, room, sizeof room, 0, 0);
        if (given < 0 && errno != EAGAIN)
            break;
        if (arck_wait(queue, done, 128, 1, reads ? -1 : 100) < 0)
            break;
        __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);
    }
    CHECK(errno == EBADF);
    __atomic_add_fetch(&ended, 1, __ATOMIC_RELAXED);
    return NULL;
}

static void closing_while_used(void)
{
    for (int round = 0; round < 30; round++) {
        pthread_t threads[THREADS];
        begun = ended = 0;
        opened("closing", 2, 0);
        for (long i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, until_closed, (void *)i) == 0);
        while (__atomic_load_n(&begun, __ATOMIC_RELAXED) < 50 && failures == 0)
            usleep(100);
        GIVES(0, arck_close(round % 3 == 0 ? queue : round % 3 == 1 ? queues : pool));
        for (long i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
        GIVES(THREADS, ended);
        FAILS(EBADF, arck_close(queue));
        if (round % 3 != 1)
            GIVES(0, arck_close(queues));
        if (round % 3 != 2)
            GIVES(0, arck_close(pool));
    }
}

enum { LONG_ONES = 4 };

// As many as there is room for, most of which wait for the one thread.
static void submit_many(void)
{
    static char block[BLOCK];
    // Elsewhere in the file, so that the others wait for the one thread.
    for (int i = 0; i < LONG_ONES; i++)
        CHECK(submit(ARCK_WRITE, large, sizeof large, (int64_t)(i + 1) * LARGE, 0) > 0);
    // Nothing of these overlaps, and each is whole or not there.
    for (int i = LONG_ONES; i < MANY; i++) {
        memset(block, 1 + i % 250, sizeof block);
        CHECK(submit(ARCK_WRITE, block, sizeof block, (int64_t)i * BLOCK, 0) > 0);
    }
}

// What has not begun when a connection is closed is not done, and nothing goes on behind it.
static void closing_with_many_queued(void)
{
    for (int round = 0; round < 3; round++) {
        static char before[MANY * BLOCK], after[MANY * BLOCK];
        opened("left", 1, MANY);
        int descriptor = arck_queue_readiness(queue);
        submit_many();
        GIVES(0, arck_close(pool));
        // It is closed, and not forgotten.
        CHECK(fcntl(descriptor, F_GETFD) == -1);
        FAILS(EBADF, submit(ARCK_SYNC, NULL, 0, 0, 0));
        FAILS(EBADF, arck_close(queue));
        pool = connected();
        file = arck_openat(pool, "left", O_RDWR, 0);
        memset(before, 0, sizeof before);
        memset(after, 0, sizeof after);
        CHECK(arck_pread(file, before, sizeof before, 0) >= 0);
        usleep(100000);
        CHECK(arck_pread(file, after, sizeof after, 0) >= 0);
        CHECK(memcmp(before, after, sizeof before) == 0);
        // The threads are there for others.
        queue = arck_queue(queues, file, 0, 0);
        GIVES(2, only(submit(ARCK_WRITE, "on", 2, 0, 0)).result);
        closed();
    }
}

// ---- signals

static volatile sig_atomic_t handled;
static uint32_t went, refused, wrong;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

// The threads that do requests run none of the program's handlers.
static void signals_are_for_the_programs_threads(void)
{
    struct sigaction action, usual_one;
    sigset_t one, before, waiting;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &action, &usual_one) == 0);
    opened("signals", 3, 0);
    for (int i = 0; i < 20; i++)
        CHECK(only(submit(ARCK_WRITE, "x", 1, i, 0)).result == 1);
    sigemptyset(&one);
    sigaddset(&one, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &one, &before) == 0);
    handled = 0;
    CHECK(kill(getpid(), SIGUSR1) == 0);
    for (int i = 0; i < 100; i++)
        CHECK(only(submit(ARCK_WRITE, "x", 1, i, 0)).result == 1);
    usleep(50000);
    GIVES(0, handled);
    CHECK(sigpending(&waiting) == 0 && sigismember(&waiting, SIGUSR1) == 1);
    // The thread's own signals are as it has set them.
    CHECK(pthread_sigmask(SIG_SETMASK, &before, &waiting) == 0);
    CHECK(sigismember(&waiting, SIGUSR1) == 1 && sigismember(&waiting, SIGUSR2) == 0);
    GIVES(1, handled);
    closed();
    CHECK(sigaction(SIGUSR1, &usual_one, NULL) == 0);
}

static void call_inside(int number)
{
    struct arck_completion done[128];
    char byte = 'h';
    int before = errno;
    (void)number;
    int64_t given = submit(ARCK_WRITE, &byte, 1, 0, 1);
    if (given > 0)
        went++;
    else if (errno == EDEADLK)
        refused++;
    else if (errno != EAGAIN)
        wrong++;
    if (arck_reap(queue, done, 128) < 0 && errno != EDEADLK)
        wrong++;
    errno = before;
}

static void handlers_wait_for_no_lock(void)
{
    struct sigaction action, usual_one;
    struct itimerval often = {{0, 500}, {0, 500}}, never = {{0, 0}, {0, 0}};
    struct arck_completion done[128];
    opened("handlers", 2, 0);
    went = refused = wrong = 0;
    memset(&action, 0, sizeof action);
    action.sa_handler = call_inside;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGPROF, &action, &usual_one) == 0);
    setitimer(ITIMER_PROF, &often, NULL);
    for (int i = 0; i < 2000000 && (went < 20 || refused < 20); i++) {
        int64_t given = submit(ARCK_WRITE, "m", 1, 1, 0);
        CHECK(given > 0 || errno == EAGAIN);
        CHECK(arck_wait(queue, done, 128, 1, -1) >= 0);
    }
    setitimer(ITIMER_PROF, &never, NULL);
    CHECK(sigaction(SIGPROF, &usual_one, NULL) == 0);
    CHECK(went > 0 && refused > 0);
    GIVES(0, wrong);
    closed();
}

// ---- forks, and ends

static void in_the_child(void)
{
    struct arck_completion done[128];
    char room[8];
    size_t count;
    FAILS(ESTALE, submit(ARCK_WRITE, "child", 5, 0, 0));
    CHECK(says("forked"));
    FAILS(ESTALE, arck_reap(queue, done, 128));
    FAILS(ESTALE, arck_wait(queue, done, 128, 1, -1));
    FAILS(ESTALE, arck_cancel(queue, 1));
    FAILS(ESTALE, arck_queue_end(queue, ARCK_FINISH));
    FAILS(ESTALE, arck_queue_count(queue, &count, &count));
    FAILS(ESTALE, arck_queue_readiness(queue));
    FAILS(ESTALE, arck_queue(queues, file, 0, 0));
    // Its own file needs a set of its own.
    file = arck_openat(pool, "forks", O_RDWR, 0);
    FAILS(ESTALE, arck_queue(queues, file, 0, 0));
    arck_handle parents = queues, parents_queue = queue;
    queues = arck_queues(4);
    queue = arck_queue(queues, file, 0, 0);
    GIVES(5, only(submit(ARCK_WRITE, "child", 5, 10, 0)).result);
    // Its threads are not the parent's, whatever of theirs they have: it is not they who end.
    GIVES(0, arck_close(parents_queue));
    GIVES(0, arck_close(parents));
    GIVES(5, only(submit(ARCK_READ, room, 5, 10, 0)).result);
    closed();
}

static void close_only(void)
{
    GIVES(0, arck_close(pool));
}

static void forking(void)
{
    static struct arck_completion done[MANY];
    char room[8];
    opened("forks", 2, MANY);
    for (int turn = 0; turn < 10; turn++) {
        for (int i = 0; i < 100; i++)
            CHECK(submit(ARCK_WRITE, "parent", 6, 100 + i, 0) > 0);
        in_child(turn % 2 ? in_the_child : close_only);
        // The parent notices nothing.
        GIVES(100, arck_wait(queue, done, MANY, 100, -1));
        for (int i = 0; i < 100; i++)
            GIVES(6, done[i].result);
    }
    GIVES(5, arck_pread(file, room, 5, 10));
    CHECK(memcmp(room, "child", 5) == 0);
    closed();
}

enum { TOO_LATE = 98 };

static const char *how_to_end;

static void end_with_many_queued(void)
{
    opened(how_to_end, 1, MANY);
    submit_many();
    if (failures)
        _exit(99);
    if (outstanding() < MANY / 2)
        _exit(TOO_LATE);
    if (strcmp(how_to_end, "killed") == 0)
        kill(getpid(), SIGKILL);
    if (strcmp(how_to_end, "exited") == 0)
        exit(7);
    _exit(7);
}

static void ends_with_many_queued(void)
{
    static const struct {
        const char *name;
        int status;
    } ways[] = {{"killed", SIGKILL}, {"exited", 7 << 8}, {"left", 7 << 8}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char block[BLOCK];
        int status = TOO_LATE << 8;
        how_to_end = ways[i].name;
        // Where the machine had the thread be faster than who submits there is nothing to see.
        for (int turn = 0; turn < 100 && status == TOO_LATE << 8; turn++) {
            pid_t child = fork();
            if (child == 0) {
                alarm(60);
                end_with_many_queued();
            }
            CHECK(waitpid(child, &status, 0) == child);
        }
        GIVES(ways[i].status, status & 0xff7f);
        pool = connected();
        file = arck_openat(pool, how_to_end, O_RDONLY, 0);
        for (int at = LONG_ONES; at < MANY; at++) {
            ssize_t length = arck_pread(file, block, sizeof block, (off_t)at * BLOCK);
            CHECK(length == 0 || length == BLOCK);
            if (length == 0)
                continue;
            CHECK(block[0] == 0 || (unsigned char)block[0] == 1 + at % 250);
            for (int byte = 1; byte < BLOCK; byte++)
                CHECK(block[byte] == block[0]);
        }
        GIVES(0, arck_close(pool));
    }
}

static const struct test tests[] = {
    {"threads_on_one_queue", threads_on_one_queue},
    {"closing_while_used", closing_while_used},
    {"closing_with_many_queued", closing_with_many_queued},
    {"signals_are_for_the_programs_threads", signals_are_for_the_programs_threads},
    {"handlers_wait_for_no_lock", handlers_wait_for_no_lock},
    {"forking", forking},
    {"ends_with_many_queued", ends_with_many_queued},
};

MAIN(tests)
