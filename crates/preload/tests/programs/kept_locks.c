/* Locks as the kernel keeps them: through exec, over deaths, under signals, and with threads that close and are cancelled. */
#include "show.h"
#include <pthread.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

static int set(int d, int command, int type, long start, long length) { struct flock l = {.l_type = type, .l_start = start, .l_len = length}; return fcntl(d, command, &l); }
static int go[2], ready[2];
static void told(void) { char c; MUST(read(go[0], &c, 1)); }
static void tell(void) { MUST(write(go[1], "\n", 1)); }
static void here(void) { MUST(write(ready[1], "x", 1)); }
static void both(void) { char c; MUST(read(ready[0], &c, 1)); }
/* What is locked, as another process finds it: by the child, or nobody. */
static void state_(int line, int child) {
    int d = MUST(open("f", O_RDWR)); struct flock l = {.l_type = F_WRLCK};
    MUST(fcntl(d, F_GETLK, &l));
    printf("%d: process's: %s", line, l.l_type == F_UNLCK ? "free" : l.l_pid == child ? "the child's" : l.l_pid == -1 ? "a description's" : "another's");
    int free = flock(d, LOCK_EX | LOCK_NB) == 0; printf(", flock: %s\n", free ? "free" : "locked"); fflush(stdout);
    close(d);
}
#define STATE(child) state_(__LINE__, child)

/* A child takes locks on descriptor 3, does what is said, and executes a shell that does what is said. */
static void executed(int line, void (*before)(void), const char *script) {
    fflush(stdout); int c = fork();
    if (c == 0) {
        int d = MUST(open("f", O_RDWR)); if (d != 3) { dup2(d, 3); close(d); }
        MUST(set(3, F_SETLK, F_WRLCK, 0, 10)); MUST(flock(3, LOCK_EX)); if (before) before();
        dup2(go[0], 0); dup2(ready[1], 1); execl("/bin/sh", "sh", "-c", script, (char *)0); _exit(9);
    }
    both(); state_(line, c); tell(); both(); state_(line, c); tell(); int s; waitpid(c, &s, 0); state_(line, c); printf("%d: %x\n", line, s);
}
#define EXECUTED(...) executed(__LINE__, __VA_ARGS__)
static void closes_it(void) { MUST(fcntl(3, F_SETFD, FD_CLOEXEC)); }
static void closes_another(void) { MUST(open("f", O_RDONLY | O_CLOEXEC)); }
static void closes_a_locked(void) { int d = MUST(open("f", O_RDWR | O_CLOEXEC)); MUST(set(d, F_OFD_SETLK, F_WRLCK, 50, 1)); }
static void closes_a_path(void) { MUST(open("f", O_PATH | O_CLOEXEC)); }
static void fails_first(void) { closes_another(); execl("/nowhere", "nowhere", (char *)0); }
static void fails_and_keeps(void) { int d = MUST(open("f", O_RDONLY | O_CLOEXEC)); execl("/nowhere", "nowhere", (char *)0); fcntl(d, F_SETFD, 0); }
static void through_exec(void) {
    const char *waits = "echo; read line; echo; read line", *closes = "echo; read line; exec 3>&-; echo; read line";
    EXECUTED(0, waits); EXECUTED(0, closes); EXECUTED(closes_it, waits); EXECUTED(closes_another, waits); EXECUTED(closes_a_locked, waits); EXECUTED(closes_a_path, waits); EXECUTED(fails_first, waits); EXECUTED(fails_and_keeps, waits);
    /* Another program executes another, and its children close what they got. */
    EXECUTED(0, "exec sh -c 'echo; read line; echo; read line'"); EXECUTED(0, "echo; read line; (exec 3>&-); sh -c 'exec 3>&-'; sh -c : 3>&-; echo; read line"); EXECUTED(0, "echo; read line; sh -c 'flock -u 3'; echo; read line"); EXECUTED(0, "flock -u 3; echo; read line; sh -c 'flock 3'; echo; read line");
}

/* What waits goes on waiting until the third: one may come before it waits. */
static int count, restarts; static void handler(int s) { (void)s; if (++count == 3 && restarts) tell(); }
static volatile int caller;
static void *call(void *what) { long w = (long)what; int d = w >> 8; caller = gettid(); int r = (w & 255) == 0 ? flock(d, LOCK_EX) : set(d, (w & 255) == 1 ? F_SETLKW : F_OFD_SETLKW, F_WRLCK, 0, 10); return (void *)(long)(r == 0 ? 0 : errno); }
static int holder(void) { fflush(stdout); int c = fork(); if (c == 0) { int d = MUST(open("f", O_RDWR)); MUST(set(d, F_SETLK, F_WRLCK, 0, 10)); MUST(flock(d, LOCK_EX)); here(); told(); _exit(0); } both(); return c; }
/* Until the thread waits for a lock. */
static void start(pthread_t *t, int d, int kind) {
    caller = 0; pthread_create(t, 0, call, (void *)((long)d << 8 | kind));
    for (int i = 0; i < 1000; i++, usleep(10000)) {
        char path[60], text[64]; sprintf(path, "/proc/self/task/%d/syscall", caller); int f = caller ? open(path, O_RDONLY) : -1; if (f < 0) continue;
        long n = read(f, text, 63), number = 0, command = 0; close(f); text[n > 0 ? n : 0] = 0; sscanf(text, "%ld %*s %li", &number, &command);
        if (number == SYS_flock || (number == SYS_fcntl && (command == F_SETLKW || command == F_OFD_SETLKW))) return;
    }
    printf("it does not wait\n");
}
static void every(int microseconds) { struct itimerval t = {{0, microseconds}, {0, microseconds}}; setitimer(ITIMER_REAL, &t, 0); }

int main(int argc, char **argv) {
    begin(argv); MUST(pipe2(go, O_CLOEXEC)); MUST(pipe2(ready, O_CLOEXEC)); for (int i = 0; i < 2; i++) { go[i] = fcntl(go[i], F_DUPFD_CLOEXEC, 20); ready[i] = fcntl(ready[i], F_DUPFD_CLOEXEC, 20); }
    for (int i = 3; i < 20; i++) close(i);
    put("f", "0123456789"); through_exec();
    /* Who has waited for a death finds nothing of the dead. */
    int d = MUST(open("f", O_RDWR)), late = 0;
    for (int i = 0; i < 100; i++) {
        int c = fork(); if (c == 0) { int x = open("f", O_RDWR); set(x, F_SETLK, F_WRLCK, 0, 10); flock(x, LOCK_EX); here(); pause(); _exit(0); }
        both(); late += set(d, F_SETLK, F_WRLCK, 0, 10) == 0 || flock(d, LOCK_EX | LOCK_NB) == 0; kill(c, SIGKILL); waitpid(c, 0, 0);
        late += set(d, F_SETLK, F_WRLCK, 0, 10) != 0; late += flock(d, LOCK_EX | LOCK_NB) != 0; set(d, F_SETLK, F_UNLCK, 0, 0); flock(d, LOCK_UN);
    }
    printf("late: %d\n", late);
    /* A child that closes what it has of its parent's takes nothing away, used or not, forked or spawned. */
    MUST(set(d, F_SETLK, F_WRLCK, 0, 10)); MUST(flock(d, LOCK_EX)); fflush(stdout);
    int c = fork(); if (c == 0) { close(d); _exit(0); } waitpid(c, 0, 0); c = fork(); if (c == 0) { lseek(d, 0, SEEK_END); int x = open("f", O_RDONLY); close(x); close(d); _exit(0); } waitpid(c, 0, 0); fflush(stdout); system("true"); system("exec 3>&- 4>&- 5>&-; cat f > /dev/null");
    fflush(stdout); if ((c = fork()) == 0) { STATE(getppid()); _exit(0); } waitpid(c, 0, 0);
    set(d, F_SETLK, F_UNLCK, 0, 0); flock(d, LOCK_UN); STATE(0);
    /* Signals with SA_RESTART and without, for every kind of lock. */
    for (int kind = 0; kind < 3; kind++) for (restarts = 0; restarts < 2; restarts++) {
        c = holder(); struct sigaction a = {.sa_handler = handler, .sa_flags = restarts ? SA_RESTART : 0}; sigaction(SIGALRM, &a, 0); count = 0; every(30000);
        long r = (long)call((void *)((long)d << 8 | kind)); every(0); printf("kind %d, restarts %d: %s, signals: %d\n", kind, restarts, r ? strerrorname_np(r) : "locked", count > 2 * restarts); if (!restarts) tell(); waitpid(c, 0, 0);
        set(d, F_SETLK, F_UNLCK, 0, 0); set(d, F_OFD_SETLK, F_UNLCK, 0, 0); flock(d, LOCK_UN); STATE(0);
    }
    /* A thread waits while another closes the descriptor, or cancels it. */
    for (int kind = 0; kind < 3; kind++) {
        c = holder(); int e = MUST(open("f", O_RDWR)); pthread_t t; void *r; start(&t, e, kind); close(e); tell(); pthread_join(t, &r); waitpid(c, 0, 0);
        printf("kind %d, closed: %s\n", kind, r ? strerrorname_np((long)r) : "locked"); STATE(0);
    }
    for (int kind = 1; kind < 3; kind++) {
        c = holder(); pthread_t t; void *r; start(&t, d, kind); pthread_cancel(t); pthread_join(t, &r); tell(); waitpid(c, 0, 0);
        printf("kind %d: %s\n", kind, r == PTHREAD_CANCELED ? "cancelled" : "not"); STATE(0);
    }
    /* Two descriptions of one file: the second's lock, and its end, leave the first's alone but for the process's. */
    int e = MUST(open("f", O_RDONLY)); SHOW(set(d, F_SETLK, F_WRLCK, 0, 10)); SHOW(flock(e, LOCK_SH)); fflush(stdout); if ((c = fork()) == 0) { STATE(getppid()); _exit(0); } waitpid(c, 0, 0);
    SHOW(set(e, F_SETLK, F_RDLCK, 0, 5)); SHOW(set(e, F_SETLK, F_WRLCK, 0, 5)); SHOW(flock(d, LOCK_EX | LOCK_NB)); fflush(stdout); if ((c = fork()) == 0) { STATE(getppid()); _exit(0); } waitpid(c, 0, 0); close(e); STATE(0); SHOW(flock(d, LOCK_EX | LOCK_NB));
    /* Of what has no name any more, and never had one. */
    int g = MUST(open("g", O_RDWR | O_CREAT, 0600)), h = MUST(open("g", O_RDWR)); MUST(unlink("g")); SHOW(flock(g, LOCK_EX)); SHOW(flock(h, LOCK_SH | LOCK_NB)); close(g); SHOW(flock(h, LOCK_SH | LOCK_NB)); close(h);
    g = MUST(open(".", O_RDWR | O_TMPFILE, 0600)); SHOW(flock(g, LOCK_EX)); SHOW(set(g, F_OFD_SETLK, F_WRLCK, 0, 0)); fflush(stdout); if ((c = fork()) == 0) { SHOW(flock(g, LOCK_SH)); SHOW(set(g, F_OFD_SETLK, F_RDLCK, 0, 0)); SHOW(set(g, F_SETLK, F_RDLCK, 0, 0)); _exit(0); } waitpid(c, 0, 0); SHOW(flock(g, LOCK_UN)); close(g);
    /* Many at once, of few descriptors. */
    struct rlimit few = {320, 320}; MUST(setrlimit(RLIMIT_NOFILE, &few)); int locked = 0, fds[100];
    for (int i = 0; i < 100; i++) { char name[20]; sprintf(name, "many%d", i); fds[i] = MUST(open(name, O_RDWR | O_CREAT, 0600)); locked += flock(fds[i], LOCK_EX) == 0 && set(fds[i], F_SETLK, F_WRLCK, 0, 0) == 0; }
    printf("%d locked\n", locked); fflush(stdout);
    if ((c = fork()) == 0) { int still = 0; for (int i = 0; i < 100; i++) { char name[20]; sprintf(name, "many%d", i); int x = open(name, O_RDWR); still += flock(x, LOCK_SH | LOCK_NB) != 0 && set(x, F_SETLK, F_RDLCK, 0, 0) != 0; close(x); } printf("%d still\n", still); fflush(stdout); _exit(0); }
    waitpid(c, 0, 0); for (int i = 0; i < 100; i++) close(fds[i]);
    return 0;
}
