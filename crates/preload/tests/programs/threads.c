/* Threads, signals that arrive inside operations, masks, and handlers that use files. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#define CHECK(x) do { if (!(x)) { printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } } while (0)
static const char *directory;
static int log_file;
static volatile sig_atomic_t handled;
static void on_alarm(int s) { int e = errno; CHECK(write(log_file, "x", 1) == 1); handled++; errno = e; }
static void on_info(int s, siginfo_t *i, void *u) { CHECK(i->si_value.sival_int == 42 && s == SIGUSR1); CHECK(write(log_file, "y", 1) == 1); }
static sigjmp_buf back;
static void on_jump(int s) { siglongjmp(back, 1); }
static void *work(void *argument) {
    char name[4096], buffer[100];
    long id = (long)argument;
    for (int i = 0; i < 200; i++) {
        snprintf(name, sizeof name, "%s/%ld-%d", directory, id, i % 5);
        FILE *f = fopen(name, "w");
        CHECK(f); fprintf(f, "%ld %d\n", id, i); CHECK(fclose(f) == 0);
        f = fopen(name, "r"); CHECK(f); CHECK(fgets(buffer, sizeof buffer, f)); fclose(f);
        CHECK(atoi(buffer) == id);
        CHECK(unlink(name) == 0);
    }
    return argument;
}
static int work_c11(void *argument) { work(argument); return 3; }
static int pipe_ends[2];
static void *wait_in_read(void *a) { char c; return read(pipe_ends[0], &c, 1) == 1 ? a : 0; }
static void *wait_in_stdio(void *a) { FILE *f = fdopen(pipe_ends[0], "r"); return fgetc(f) == 'x' ? a : 0; }
/* Waits in a call inside libc, after so many that its site is rewritten; locks and clean-ups are libc's. */
static FILE *full;
static int cleaned;
static void count(void *a) { cleaned++; }
static void *wait_in_fputs(void *a) {
    pthread_cleanup_push(count, 0);
    for (;;) { fputs("xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", full); fflush(full); }
    pthread_cleanup_pop(0);
    return a;
}
static void *wait_in_pause(void *a) { pause(); return a; }
static void *busy(void *a) { for (;;) { work(a); pthread_testcancel(); } }
static void cancel(void *(*start)(void *)) {
    pthread_t t; void *r;
    CHECK(pipe(pipe_ends) == 0 && pthread_create(&t, 0, start, (void *)600) == 0);
    usleep(20000);
    CHECK(pthread_cancel(t) == 0 && pthread_join(t, &r) == 0 && r == PTHREAD_CANCELED);
    close(pipe_ends[1]);
}
int main(int argc, char **argv) {
    char name[4096];
    directory = argv[1];
    snprintf(name, sizeof name, "%s/log", directory);
    log_file = open(name, O_WRONLY | O_CREAT | O_APPEND, 0644); CHECK(log_file >= 0);
    struct sigaction a = {.sa_handler = on_alarm, .sa_flags = SA_RESTART}, old;
    CHECK(sigaction(SIGALRM, &a, 0) == 0);
    CHECK(sigaction(SIGALRM, 0, &old) == 0 && old.sa_handler == on_alarm && (old.sa_flags & SA_RESTART) && !(old.sa_flags & SA_SIGINFO));
    struct itimerval t = {{0, 500}, {0, 500}};
    CHECK(setitimer(ITIMER_REAL, &t, 0) == 0);
    pthread_t threads[8];
    for (long i = 0; i < 8; i++) CHECK(pthread_create(&threads[i], 0, work, (void *)i) == 0);
    work((void *)100);
    for (long i = 0; i < 8; i++) { void *r; CHECK(pthread_join(threads[i], &r) == 0 && r == (void *)i); }
    thrd_t c11; int result; CHECK(thrd_create(&c11, work_c11, (void *)200) == thrd_success && thrd_join(c11, &result) == thrd_success && result == 3);
    memset(&t, 0, sizeof t); setitimer(ITIMER_REAL, &t, 0);
    while (handled < 20) { raise(SIGALRM); }
    puts("threads and alarms");
    /* Everything blocked: libc's own calls must still be served. */
    sigset_t all, before, now; sigfillset(&all);
    CHECK(sigprocmask(SIG_SETMASK, &all, &before) == 0);
    work((void *)300);
    CHECK(sigprocmask(SIG_SETMASK, 0, &now) == 0 && sigismember(&now, SIGALRM) && !sigismember(&before, SIGALRM));
    raise(SIGALRM); sig_atomic_t n = handled; CHECK(sigpending(&now) == 0 && sigismember(&now, SIGALRM));
    CHECK(sigprocmask(SIG_SETMASK, &before, 0) == 0); CHECK(handled == n + 1);
    CHECK(pthread_sigmask(SIG_BLOCK, &all, 0) == 0); work((void *)400); CHECK(pthread_sigmask(SIG_SETMASK, &before, 0) == 0);
    puts("masks");
    memset(&a, 0, sizeof a); a.sa_sigaction = on_info; a.sa_flags = SA_SIGINFO;
    CHECK(sigaction(SIGUSR1, &a, 0) == 0);
    for (int i = 0; i < 10; i++) CHECK(sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 42}) == 0);
    if (!sigsetjmp(back, 1)) { CHECK(signal(SIGUSR2, on_jump) != SIG_ERR); raise(SIGUSR2); CHECK(0); }
    work((void *)500);
    a.sa_handler = on_alarm; a.sa_flags = SA_RESETHAND | SA_NODEFER;
    CHECK(sigaction(SIGUSR2, &a, 0) == 0); raise(SIGUSR2); CHECK(sigaction(SIGUSR2, 0, &old) == 0 && old.sa_handler == SIG_DFL);
    CHECK(signal(SIGSYS, on_jump) == SIG_DFL && signal(SIGSYS, SIG_DFL) == on_jump);
    puts("actions");
    /* An alternate stack, and a signal that interrupts a blocking call. */
    stack_t s = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16}, got; CHECK(sigaltstack(&s, 0) == 0 && sigaltstack(0, &got) == 0 && got.ss_sp == s.ss_sp);
    a.sa_handler = on_alarm; a.sa_flags = SA_ONSTACK; CHECK(sigaction(SIGALRM, &a, 0) == 0);
    int pipes[2]; CHECK(pipe(pipes) == 0); alarm(1); char c; CHECK(read(pipes[0], &c, 1) == -1 && errno == EINTR);
    alarm(1); sigset_t none; sigemptyset(&none); CHECK(sigsuspend(&none) == -1 && errno == EINTR);
    FILE *f = fdopen(pipes[0], "r"); alarm(1); errno = 0; CHECK(fgetc(f) == EOF && errno == EINTR);
    puts("interrupted");
    cancel(wait_in_read); cancel(wait_in_stdio); cancel(wait_in_pause);
    int ends[2]; CHECK(pipe(ends) == 0 && (full = fdopen(ends[1], "w")));
    cancel(wait_in_fputs); CHECK(cleaned == 1);
    /* Nobody holds the stream's lock any more. */
    CHECK(ftrylockfile(full) == 0); funlockfile(full); fcntl(ends[1], F_SETFL, O_NONBLOCK);
    for (int i = 0; i < 20; i++) cancel(busy);
    work((void *)700);
    puts("cancelled");
    return 0;
}
