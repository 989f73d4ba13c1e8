/* Forked children that use nothing of the pool end in every way that there is, beside threads and processes
 * that go on using it: what these read is what they wrote. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROUNDS 60

static char directory[4000];
static int is_over;

/* What goes on meanwhile: one name, written, read, moved, listed. */
static int works(int number, int rounds) {
    char path[4200], other[4200], text[64], got[64];
    int wrong = 0;
    snprintf(path, sizeof path, "%s/w%d", directory, number);
    snprintf(other, sizeof other, "%s/moved%d", directory, number);
    for (int n = 0; rounds ? n < rounds : !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); n++) {
        int length = snprintf(text, sizeof text, "%d of %d", n, number);
        int f = open(path, O_RDWR | O_CREAT | O_TRUNC, 0644);
        if (f < 0) { fprintf(stderr, "worker %d, %d: open: %m\n", number, n); wrong++; continue; }
        if (write(f, text, length) != length) { fprintf(stderr, "worker %d, %d: write: %m\n", number, n); wrong++; }
        if (pread(f, got, sizeof got, 0) != length || memcmp(got, text, length)) { fprintf(stderr, "worker %d, %d: read: %m\n", number, n); wrong++; }
        if (close(f)) { fprintf(stderr, "worker %d, %d: close: %m\n", number, n); wrong++; }
        if (rename(path, other)) { fprintf(stderr, "worker %d, %d: rename: %m\n", number, n); wrong++; }
    }
    return wrong;
}
static void *thread(void *number) { return (void *)(long)works((int)(long)number, 0); }

static pthread_key_t key;
static void destroyed(void *value) { (void)value; }

static void by_exit(void) { exit(7); }
static void by_quick_exit(void) { quick_exit(7); }
static void by_thread_exit(void) { pthread_setspecific(key, &key); pthread_exit(0); }
static void *and_exit(void *unused) { pthread_setspecific(key, &key); exit(7); return unused; }
static void by_another_thread(void) { pthread_t t; pthread_create(&t, 0, and_exit, 0); pthread_join(t, 0); }
static void by_underscore(void) { _exit(7); }
static void by_abort(void) { signal(SIGABRT, SIG_DFL); abort(); }
static void by_signal(void) { raise(SIGKILL); }
static void by_grandchild(void) { int s; pid_t p = fork(); if (!p) exit(9); waitpid(p, &s, 0); exit(WEXITSTATUS(s) - 2); }
static void by_program(void) { execl("/bin/true", "true", NULL); }
static int returns;
static void by_return(void) { returns = 1; }

static const struct { const char *name; void (*end)(void); } ways[] = {
    {"exit", by_exit}, {"quick_exit", by_quick_exit}, {"pthread_exit", by_thread_exit}, {"exit of another thread", by_another_thread},
    {"_exit", by_underscore}, {"abort", by_abort}, {"SIGKILL", by_signal}, {"a child of its own", by_grandchild},
    {"another program", by_program}, {"return from main", by_return},
};
#define WAYS (int)(sizeof ways / sizeof *ways)

static pid_t makes(int how) {
    switch (how) {
    case 0: return fork();
    case 1: return syscall(SYS_fork);
    case 2: return syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    default: return _Fork();
    }
}

int main(int count, char **arguments) {
    (void)count;
    setvbuf(stdout, 0, _IONBF, 0);
    snprintf(directory, sizeof directory, "%s/unused", arguments[1]);
    mkdir(directory, 0755);
    pthread_key_create(&key, destroyed);
    pid_t others[2];
    for (int n = 0; n < 2; n++)
        if (!(others[n] = fork())) { int wrong = works(10 + n, 4000); _exit(wrong != 0); }
    pthread_t threads[2];
    for (long n = 0; n < 2; n++) pthread_create(&threads[n], 0, thread, (void *)(20 + n));
    for (int how = 0; how < 4; how++)
        for (int way = 0; way < WAYS; way++) {
            int statuses = 0, wrong = 0;
            for (int n = 0; n < ROUNDS / 4; n++) {
                /* The parent's own thread has its place in use before and after. */
                wrong += works(way, 1);
                pid_t p = makes(how);
                if (!p) { ways[way].end(); if (returns) return 7; _exit(99); }
                int s = 0;
                waitpid(p, &s, 0);
                statuses = s;
                wrong += works(way, 2);
            }
            printf("%d, %s: %x, %d wrong\n", how, ways[way].name, statuses, wrong);
        }
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    for (int n = 0; n < 2; n++) { void *wrong; pthread_join(threads[n], &wrong); printf("thread %d: %ld wrong\n", n, (long)wrong); }
    for (int n = 0; n < 2; n++) { int s; waitpid(others[n], &s, 0); printf("others: %x\n", s); }
    return 0;
}
