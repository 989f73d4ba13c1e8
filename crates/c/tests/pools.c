// Pools that nobody serves yet, or any more. $ARCK is the command.

#include "check.h"

#include <pthread.h>
#include <signal.h>

static char folder[] = "/dev/shm/arck-c-pools-XXXXXX";
static char pool[64];

static void command(const char *arguments)
{
    char line[512];
    snprintf(line, sizeof line, "\"$ARCK\" %s >/dev/null 2>&1", arguments);
    CHECK(system(line) == 0);
}

static pid_t serve(void)
{
    pid_t child = fork();
    if (child == 0) {
        const char *arck = getenv("ARCK");
        if (!freopen("/dev/null", "w", stderr))
            _exit(98);
        execl(arck, arck, "serve", pool, (char *)NULL);
        _exit(99);
    }
    CHECK(child > 0);
    return child;
}

static void end(pid_t server, int how)
{
    CHECK(kill(server, how) == 0 && waitpid(server, NULL, 0) == server);
}

static void begin(void)
{
    char line[128];
    strcpy(folder + strlen(folder) - 6, "XXXXXX");
    CHECK(mkdtemp(folder) != NULL);
    snprintf(pool, sizeof pool, "%s/pool", folder);
    snprintf(line, sizeof line, "mkfs %s --size 64M", pool);
    command(line);
}

static void remove_all(void)
{
    char line[128];
    snprintf(line, sizeof line, "violations %s | grep -q '^nothing was refused'", pool);
    command(line);
    snprintf(line, sizeof line, "rm -rf %s", folder);
    CHECK(system(line) == 0);
}

static struct arck_options patient(int milliseconds)
{
    struct arck_options options = usual();
    options.wait = milliseconds;
    return options;
}

static pid_t served_later;

static void *serve_later(void *nothing)
{
    usleep(300000);
    served_later = serve();
    return nothing;
}

static void who_waits_gets_in(void)
{
    pthread_t thread;
    begin();
    FAILS(ECONNREFUSED, arck_connect(pool, NULL));
    CHECK(says("arck serve"));
    FAILS(ECONNREFUSED, arck_store_open(pool, "a", NULL));
    FAILS(ECONNREFUSED, arck_log_open(pool, "a", NULL));
    struct arck_options options = patient(200);
    FAILS(ECONNREFUSED, arck_connect(pool, &options));
    options = patient(ARCK_WAIT_USUAL);
    CHECK(pthread_create(&thread, NULL, serve_later, NULL) == 0);
    arck_handle here = arck_connect(pool, &options);
    CHECK(here > 0);
    pthread_join(thread, NULL);
    GIVES(0, arck_close(here));
    end(served_later, SIGTERM);
    CHECK(pthread_create(&thread, NULL, serve_later, NULL) == 0);
    options.flags = ARCK_MAKE;
    arck_handle store = arck_store_open(pool, "a", &options);
    CHECK(store > 0);
    pthread_join(thread, NULL);
    GIVES(0, arck_close(store));
    end(served_later, SIGTERM);
    remove_all();
}

// It is killed under a program, and started again.
static void a_controller_that_comes_back(void)
{
    char room[16];
    struct arck_options options = patient(10000);
    begin();
    pid_t server = serve();
    arck_handle here = arck_connect(pool, &options);
    options.flags = ARCK_MAKE;
    arck_handle store = arck_store_open(pool, "store", &options);
    arck_handle log = arck_log_open(pool, "log", &options);
    arck_handle file = arck_openat(here, "file", O_CREAT | O_RDWR, 0644);
    CHECK(here > 0 && store > 0 && log > 0 && file > 0);
    for (int i = 0; i < 3; i++) {
        GIVES(6, arck_write(file, "before", 6));
        GIVES(0, arck_store_set(store, "key", 3, "before", 6));
        GIVES(0, arck_log_append(log, "before", 6, NULL));
        end(server, SIGKILL);
        // What is owned needs nobody.
        GIVES(5, arck_write(file, "alone", 5));
        GIVES(0, arck_store_set(store, "key", 3, "alone", 5));
        GIVES(0, arck_log_append(log, "alone", 5, NULL));
        GIVES(5, arck_store_get(store, "key", 3, room, sizeof room));
        server = serve();
        struct statvfs statistics;
        GIVES(0, arck_fstatvfs(here, &statistics));
    }
    GIVES(0, arck_close(here));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(log));
    here = arck_connect(pool, NULL);
    struct stat status;
    GIVES(0, arck_fstatat(here, "file", &status, 0));
    GIVES(33, status.st_size);
    GIVES(0, arck_fstatat(here, "log/00000000000000000000", &status, 0));
    GIVES(33, status.st_size);
    GIVES(0, arck_close(here));
    end(server, SIGTERM);
    remove_all();
}

// It is closed while nobody serves the pool: nothing is lost.
static void closing_without_a_controller(void)
{
    struct arck_options options = patient(10000);
    begin();
    pid_t server = serve();
    arck_handle here = arck_connect(pool, &options);
    arck_handle file = arck_openat(here, "file", O_CREAT | O_RDWR, 0644);
    GIVES(5, arck_write(file, "there", 5));
    end(server, SIGKILL);
    setenv("ARCK_WAIT", "0.2", 1);
    GIVES(0, arck_close(here));
    FAILS(ECONNREFUSED, arck_connect(pool, NULL));
    unsetenv("ARCK_WAIT");
    server = serve();
    here = arck_connect(pool, &options);
    struct stat status;
    GIVES(0, arck_fstatat(here, "file", &status, 0));
    GIVES(5, status.st_size);
    GIVES(0, arck_close(here));
    end(server, SIGTERM);
    remove_all();
}

// A pool that is full: an error, and going on.
static void full(void)
{
    static char large[1 << 20];
    struct arck_options options = patient(10000);
    begin();
    pid_t server = serve();
    arck_handle here = arck_connect(pool, &options);
    options.flags = ARCK_MAKE;
    arck_handle store = arck_store_open(pool, "store", &options);
    arck_handle log = arck_log_open(pool, "log", &options);
    arck_handle file = arck_openat(here, "file", O_CREAT | O_RDWR, 0644);
    GIVES(0, arck_store_set(store, "key", 3, "before", 6));
    ssize_t written = 0;
    for (int i = 0; i < 100 && written >= 0; i++) {
        errno = 0;
        written = arck_write(file, large, sizeof large);
    }
    GIVES(-1, written);
    GIVES(ENOSPC, errno);
    int appended = 0;
    for (int i = 0; i < 100 && appended == 0; i++) {
        errno = 0;
        appended = arck_log_append(log, large, sizeof large, NULL);
    }
    GIVES(-1, appended);
    GIVES(ENOSPC, errno);
    GIVES(0, arck_ftruncate(file, 0));
    GIVES(sizeof large, arck_pwrite(file, large, sizeof large, 0));
    GIVES(0, arck_close(here));
    GIVES(0, arck_store_set(store, "key", 3, "after", 5));
    GIVES(0, arck_log_append(log, large, sizeof large, NULL));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(log));
    end(server, SIGTERM);
    remove_all();
}

// A process may open a few thousand sessions; closed ones count.
static void as_many_sessions_as_there_are(void)
{
    long opened = 0;
    arck_handle here = 0;
    struct arck_options options = patient(10000);
    begin();
    pid_t server = serve();
    here = arck_connect(pool, &options);
    GIVES(0, arck_close(here));
    for (; opened < 5000; opened++) {
        here = arck_connect(pool, NULL);
        if (here < 0)
            break;
        if (arck_close(here) < 0)
            break;
    }
    CHECK(here == -1 && opened > 3000 && opened < 4500);
    FAILS(ENOMEM, arck_connect(pool, NULL));
    end(server, SIGTERM);
    remove_all();
}

static const struct test tests[] = {
    {"who_waits_gets_in", who_waits_gets_in},
    {"a_controller_that_comes_back", a_controller_that_comes_back},
    {"closing_without_a_controller", closing_without_a_controller},
    {"full", full},
    // Behind the others: it leaves nothing for them.
    {"as_many_sessions_as_there_are", as_many_sessions_as_there_are},
};

MAIN(tests)
