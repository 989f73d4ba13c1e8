// A test is a function, and a program a table of these. What does not hold is printed and counted, and the test goes on.
//
// All is C11 and C++ at once. The programs run on a pool that is served already: $ARCK_POOL.

#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <arck.h>

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct test {
    const char *name;
    void (*run)(void);
};

static int failures;

static void failed(const char *file, int line, const char *what, const char *more)
{
    __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, what, more);
}

// Something holds.
#define CHECK(what) ((what) ? (void)0 : failed(__FILE__, __LINE__, #what, arck_message()))

// A call gives a number.
#define GIVES(number, call) gives(__FILE__, __LINE__, #call, (long long)(number), (long long)(call))

// A call fails so.
#define FAILS(number, call) (errno = 0, fails(__FILE__, __LINE__, #call, number, (long long)(call)))

static void gives(const char *file, int line, const char *call, long long wanted, long long given)
{
    char more[512];
    int number = errno;
    if (wanted == given)
        return;
    snprintf(more, sizeof more, "%lld, not %lld (%s; %s)", given, wanted, strerror(number), arck_message());
    failed(file, line, call, more);
}

static inline void fails(const char *file, int line, const char *call, int wanted, long long given)
{
    char more[512];
    int number = errno;
    if (given == -1 && number == wanted)
        return;
    snprintf(more, sizeof more, "%lld, %s, not -1, %s (%s)", given, strerror(number), strerror(wanted), arck_message());
    failed(file, line, call, more);
}

// Options that say nothing yet.
static inline struct arck_options usual(void)
{
    struct arck_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    return options;
}

// A connection, for a test that needs nothing of it to fail: of the group $ARCK_TEST_GROUP, if there is one.
static inline arck_handle connected(void)
{
    struct arck_options options = usual();
    options.group = getenv("ARCK_TEST_GROUP");
    arck_handle pool = arck_connect(NULL, &options);
    CHECK(pool > 0);
    return pool;
}

static inline bool says(const char *part)
{
    return strstr(arck_message(), part) != NULL;
}

// Runs something in a forked child, and waits for its end; what it found wrong counts here.
static inline void in_child(void (*run)(void))
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        alarm(60);
        run();
        _exit(failures != 0);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    if (WIFSIGNALED(status))
        fprintf(stderr, "a child was ended by signal %d\n", WTERMSIG(status));
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// Runs all tests whose names have the first argument in them; the last line is as cargo's.
static int run_tests(const struct test *tests, size_t count, int arguments, char **argument)
{
    int passed = 0, broken = 0;
    alarm(300);
    for (size_t i = 0; i < count; i++) {
        if (arguments > 1 && !strstr(tests[i].name, argument[1]))
            continue;
        failures = 0;
        tests[i].run();
        if (failures == 0)
            passed++;
        else
            broken++;
        printf("test %s ... %s\n", tests[i].name, failures ? "FAILED" : "ok");
        fflush(stdout);
    }
    printf("test result: %s. %d passed; %d failed;\n", broken ? "FAILED" : "ok", passed, broken);
    return broken != 0;
}

#define MAIN(tests)                                                         \
    int main(int arguments, char **argument)                                \
    {                                                                       \
        return run_tests(tests, sizeof tests / sizeof tests[0], arguments, argument); \
    }

#endif
