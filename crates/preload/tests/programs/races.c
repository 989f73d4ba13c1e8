/* Descriptors that one thread replaces or closes while another uses them, and opens for which there
   is no number. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#define CHECK(x) do { if (!(x)) { printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } } while (0)
#define ROUNDS 5000
static char one[4096], two[4096], three[4096];
static atomic_int done, wrong;
static int uses;
static int replaced;
static atomic_int shared;

static void on_alarm(int s) { (void)s; }
static int make(const char *path) { int f = open(path, O_RDWR | O_CREAT, 0644); CHECK(f >= 0 && write(f, "text", 4) == 4); return f; }
static ino_t number(int f) { struct stat s; return fstat(f, &s) == 0 ? s.st_ino : 0; }

static void *use_replaced(void *a) {
    char c;
    /* At least 1000 times, however fast the others are. */
    for (uses = 0; !done || uses < 1000; uses++) if (pread(replaced, &c, 1, 0) != 1 || number(replaced) == 0) wrong++;
    return a;
}
static void replace(const char *name, const char *first, const char *second) {
    pthread_t t;
    int a = open(first, O_RDONLY), b = open(second, O_RDONLY);
    CHECK(a >= 0 && b >= 0 && (replaced = open(first, O_RDONLY)) >= 0);
    done = wrong = 0;
    CHECK(pthread_create(&t, 0, use_replaced, 0) == 0);
    for (int i = 0; i < ROUNDS; i++) CHECK(dup2(b, replaced) == replaced && dup2(a, replaced) == replaced);
    done = 1;
    CHECK(pthread_join(t, 0) == 0);
    printf("dup2, %s: %d wrong\n", name, wrong);
    close(a); close(b); close(replaced);
}

static const char *names[2];
static atomic_int replacements;
static void replace_now(int s) {
    (void)s;
    /* What is opened here is closed for good by the next one. */
    int e = errno, f = open(names[(replacements + 1) % 2], O_RDONLY);
    if (f < 0 || dup2(f, replaced) != replaced || close(f)) wrong++;
    replacements++;
    errno = e;
}
static void *send_signals(void *thread) {
    /* The next only after the last one has come: each stops the other thread somewhere else. */
    for (int sent = 1; sent <= ROUNDS; sent++) { pthread_kill(*(pthread_t *)thread, SIGUSR1); while (replacements < sent) sched_yield(); }
    done = 1;
    return 0;
}
/* Replaced while the thread that uses it is stopped, also where it has looked up the number and not
   yet used what it found. */
static void replace_by_signals(const char *name, const char *first, const char *second) {
    pthread_t t, self = pthread_self();
    char c;
    struct sigaction action = {.sa_handler = replace_now};
    CHECK(sigaction(SIGUSR1, &action, 0) == 0);
    names[0] = first; names[1] = second;
    CHECK((replaced = open(first, O_RDONLY)) >= 0);
    done = wrong = replacements = 0;
    CHECK(pthread_create(&t, 0, send_signals, &self) == 0);
    while (!done) { int d; if (pread(replaced, &c, 1, 0) != 1) wrong++; if ((d = dup(replaced)) < 0 || close(d)) wrong++; }
    CHECK(pthread_join(t, 0) == 0);
    printf("dup2 by signals, %s: %d wrong\n", name, wrong);
    close(replaced);
}

static void *duplicate_shared(void *a) {
    ino_t numbers[2] = {0, 0};
    struct stat s;
    CHECK(stat(one, &s) == 0); numbers[0] = s.st_ino;
    CHECK(stat(two, &s) == 0); numbers[1] = s.st_ino;
    while (!done) {
        int f = shared, d = f < 0 ? -1 : dup(f);
        if (d >= 0) {
            ino_t n = number(d);
            if ((n != numbers[0] && n != numbers[1]) || close(d)) wrong++;
        }
        int other = open(two, O_RDONLY);
        if (other < 0 || number(other) != numbers[1] || close(other)) wrong++;
    }
    return a;
}

int main(int argc, char **argv) {
    struct stat s;
    snprintf(one, sizeof one, "%s/one", argv[1]);
    snprintf(two, sizeof two, "%s/two", argv[1]);
    snprintf(three, sizeof three, "%s/three", argv[1]);
    close(make(one)); close(make(two));
    replace("pool by pool", one, two);
    replace("kernel by pool", "/proc/self/exe", two);
    replace_by_signals("pool by pool", one, two);
    replace_by_signals("kernel by pool", "/proc/self/exe", two);

    pthread_t t;
    done = wrong = 0; shared = -1;
    CHECK(pthread_create(&t, 0, duplicate_shared, 0) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        int f = open(one, O_RDONLY);
        CHECK(f >= 0);
        shared = f;
        sched_yield();
        shared = -1;
        if (close(f)) wrong++;
    }
    done = 1;
    CHECK(pthread_join(t, 0) == 0);
    printf("dup and close: %d wrong\n", wrong);

    struct rlimit limit, before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before; limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = 0, f;
    while ((f = open(one, O_RDONLY)) >= 0) last = f;
    printf("last %d, then %s\n", last, strerror(errno));
    printf("O_TRUNC: %d", open(one, O_WRONLY | O_TRUNC)); printf(" %s\n", strerror(errno));
    CHECK(stat(one, &s) == 0);
    printf("size %ld\n", (long)s.st_size);
    printf("O_CREAT: %d", open(three, O_WRONLY | O_CREAT, 0644)); printf(" %s\n", strerror(errno));
    printf("made: %s\n", stat(three, &s) ? strerror(errno) : "yes");
    printf("missing: %d", open(three, O_RDONLY)); printf(" %s\n", strerror(errno));
    printf("no directory: %d", open(argv[1], O_WRONLY)); printf(" %s\n", strerror(errno));
    printf("empty: %d", open("", O_RDONLY)); printf(" %s\n", strerror(errno));
    while (last > 2) close(last--);
    printf("missing: %d", open(three, O_RDONLY)); printf(" %s\n", strerror(errno));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);

    int a = open(one, O_RDWR), b = open(one, O_RDWR), d;
    CHECK(a >= 0 && b >= 0);
    CHECK(flock(a, LOCK_EX | LOCK_NB) == 0);
    printf("flock: %d", flock(b, LOCK_EX | LOCK_NB)); printf(" %s\n", strerror(errno));
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    int interrupted = 0;
    for (int i = 0; i < 50; i++) {
        struct itimerval soon = {{0, 0}, {0, 2000 + i * 137}};
        CHECK(setitimer(ITIMER_REAL, &soon, 0) == 0);
        interrupted += flock(b, LOCK_EX) == -1 && errno == EINTR;
    }
    printf("interrupted: %d\n", interrupted);
    CHECK((d = dup(a)) >= 0 && close(a) == 0);
    printf("with a duplicate: %d\n", flock(b, LOCK_EX | LOCK_NB));
    CHECK(close(d) == 0);
    printf("closed: %d\n", flock(b, LOCK_EX | LOCK_NB));
    return 0;
}
