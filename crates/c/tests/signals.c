// Signals: no call ends by one, and a handler that has interrupted one comes into nothing.

#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static arck_handle pool, file;

static volatile sig_atomic_t handled;

static void on_signal(int number)
{
    (void)number;
    handled++;
}

static void signals_end_nothing(void)
{
    struct sigaction action;
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    struct arck_options make = usual();
    char room[4096] = "";
    make.flags = ARCK_MAKE;
    memset(&action, 0, sizeof action);
    // Without SA_RESTART.
    action.sa_handler = on_signal;
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    for (int i = 0; i < 20 || handled < 50; i++) {
        arck_handle here = connected();
        arck_handle log = arck_log_open(NULL, "signals", &make);
        arck_handle opened = arck_openat(here, "signals-file", O_CREAT | O_RDWR, 0644);
        GIVES(sizeof room, arck_write(opened, room, sizeof room));
        GIVES(0, arck_fsync(opened));
        /* However long it takes until there were so many signals, there is room. */
        for (int j = 0; j < (i < 20 ? 200 : 1); j++)
            GIVES(0, arck_log_append(log, room, sizeof room, NULL));
        arck_handle follower = arck_log_follow(log, 0);
        GIVES(sizeof room, arck_follower_next(follower, room, sizeof room, 10, NULL));
        GIVES(0, arck_close(log));
        GIVES(0, arck_close(here));
    }
    setitimer(ITIMER_PROF, &never, NULL);
}

static int inside_errno;
static long inside_count;

static void call_inside(int number)
{
    struct stat status;
    (void)number;
    int before = errno;
    if (arck_fstat(pool, &status) != 0) {
        inside_errno = errno;
        inside_count++;
    }
    errno = before;
}

static void handlers_come_into_nothing(void)
{
    struct sigaction action;
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    char room[4096];
    pool = connected();
    file = arck_openat(pool, "handlers", O_CREAT | O_RDWR, 0644);
    GIVES(sizeof room, arck_write(file, room, sizeof room));
    memset(&action, 0, sizeof action);
    action.sa_handler = call_inside;
    sigaction(SIGPROF, &action, NULL);
    setitimer(ITIMER_PROF, &often, NULL);
    for (int i = 0; i < 3000000 && inside_count < 20; i++)
        GIVES(sizeof room, arck_pread(file, room, sizeof room, 0));
    setitimer(ITIMER_PROF, &never, NULL);
    CHECK(inside_count > 0);
    GIVES(EDEADLK, inside_errno);
    GIVES(0, arck_close(pool));
}

// What takes locks, in a handler that comes at any moment: in these calls, between them, while the process forks, and while
// sessions are opened and ended.
static arck_handle names, batch;
static uint32_t done, refused, wrong, ends;

static void count(long long value)
{
    if (value >= 0)
        done++;
    else if (errno == EDEADLK && says("a handler of signals"))
        refused++;
    else if (errno != EBUSY)
        // One that reads by the same handle was interrupted as it let go of it.
        wrong++;
}

static void call_what_locks(int number)
{
    struct dirent dirent;
    (void)number;
    int before = errno;
    count(arck_readdir(names, &dirent));
    count(arck_batch_set(batch, "key", 3, "value", 5));
    arck_handle opened = arck_openat(pool, "handlers", O_RDONLY, 0);
    count(opened);
    if (opened > 0)
        count(arck_close(opened));
    errno = before;
}

static void *interrupt(void *thread)
{
    while (!__atomic_load_n(&ends, __ATOMIC_RELAXED)) {
        CHECK(pthread_kill(*(pthread_t *)thread, SIGUSR1) == 0);
        usleep(20);
    }
    return NULL;
}

static void nothing_at_all(void)
{
}

static void handlers_wait_for_no_lock(void)
{
    struct sigaction action, usual_one;
    struct arck_options make = usual();
    struct dirent dirent;
    pthread_t here = pthread_self(), thread;
    make.flags = ARCK_MAKE;
    pool = connected();
    GIVES(0, arck_close(arck_openat(pool, "handlers", O_CREAT | O_RDWR, 0644)));
    names = arck_opendirat(pool, ".");
    arck_handle store = arck_store_open(NULL, "handlers-store", &make);
    batch = arck_batch_begin(store);
    CHECK(names > 0 && batch > 0);
    memset(&action, 0, sizeof action);
    action.sa_handler = call_what_locks;
    action.sa_flags = SA_RESTART;
    CHECK(sigaction(SIGUSR1, &action, &usual_one) == 0);
    ends = 0;
    CHECK(pthread_create(&thread, NULL, interrupt, &here) == 0);
    for (int i = 0; i < 40000; i++) {
        arck_handle list = arck_opendirat(pool, ".");
        GIVES(1, arck_readdir(list, &dirent));
        GIVES(0, arck_close(list));
        arck_handle opened = arck_openat(pool, "handlers", O_RDONLY, 0);
        CHECK(opened > 0);
        GIVES(0, arck_close(opened));
        arck_handle other = arck_batch_begin(store);
        GIVES(0, arck_batch_set(other, "a", 1, "b", 1));
        GIVES(0, arck_close(other));
        if (i % 400 == 0)
            in_child(nothing_at_all);
        if (i % 2000 == 0) {
            arck_handle second = connected();
            GIVES(0, arck_close(second));
        }
    }
    __atomic_store_n(&ends, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK(sigaction(SIGUSR1, &usual_one, NULL) == 0);
    CHECK(done > 0);
    CHECK(refused > 0);
    GIVES(0, wrong);
    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
}

static const struct test tests[] = {
    {"signals_end_nothing", signals_end_nothing},
    {"handlers_come_into_nothing", handlers_come_into_nothing},
    {"handlers_wait_for_no_lock", handlers_wait_for_no_lock},
};

MAIN(tests)
