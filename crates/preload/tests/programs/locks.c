/* flock, POSIX and open-file-description locks in one session: every form, what conflicts, what closing does. */
#include "show.h"
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

static long set(int d, int command, int type, int whence, long start, long length) { struct flock l = {.l_type = type, .l_whence = whence, .l_start = start, .l_len = length}; return fcntl(d, command, &l); }
static void get(int d, int command, int type, int whence, long start, long length) {
    struct flock l = {.l_type = type, .l_whence = whence, .l_start = start, .l_len = length, .l_pid = 0};
    errno = 0; long r = fcntl(d, command, &l);
    printf("get %d %d %ld %ld: %ld %s -> %d %d %ld %ld %s\n", type, whence, start, length, r, errno ? strerrorname_np(errno) : "", l.l_type, l.l_whence, (long)l.l_start, (long)l.l_len, r ? "" : l.l_type == F_UNLCK ? "none" : l.l_pid == -1 ? "-1" : l.l_pid == getpid() ? "self" : l.l_pid == getppid() ? "parent" : "other");
}
/* What another process finds. */
static void probe(const char *name) {
    fflush(stdout);
    if (fork() == 0) {
        int d = open(name, O_RDWR);
        for (long at = 0; at < 120; at += 10) { struct flock l = {.l_type = F_WRLCK, .l_start = at, .l_len = 10}; if (fcntl(d, F_GETLK, &l)) printf("?"); printf("%c", l.l_type == F_UNLCK ? '.' : l.l_type == F_RDLCK ? 'r' : 'w'); }
        printf(" flock %d %d\n", flock(d, LOCK_SH | LOCK_NB), flock(d, LOCK_EX | LOCK_NB));
        fflush(stdout); _exit(0);
    }
    wait(0);
}

int main(int argc, char **argv) {
    begin(argv);
    put("f", "0123456789"); MUST(mkdir("dir", 0755)); MUST(truncate("f", 1000));
    int a = MUST(open("f", O_RDWR)), b = MUST(open("f", O_RDWR)), r = MUST(open("f", O_RDONLY)), w = MUST(open("f", O_WRONLY)), p = MUST(open("f", O_PATH)), d = MUST(open("dir", O_RDONLY));
    int fds[] = {a, r, w, p, d, 77, -1};
    /* Every operation on every descriptor. */
    int operations[] = {0, LOCK_SH, LOCK_EX, LOCK_UN, LOCK_SH | LOCK_NB, LOCK_EX | LOCK_NB, LOCK_UN | LOCK_NB, LOCK_NB, LOCK_SH | LOCK_EX, LOCK_SH | LOCK_UN, 16, 32, 64, -1};
    for (int i = 0; i < 7; i++) for (int o = 0; o < 14; o++) { errno = 0; int x = flock(fds[i], operations[o]); printf("flock %d %d: %d %s\n", i, operations[o], x, errno ? strerrorname_np(errno) : ""); if (i < 5) flock(fds[i], LOCK_UN); }
    int commands[] = {F_SETLK, F_SETLKW, F_GETLK, F_OFD_SETLK, F_OFD_SETLKW, F_OFD_GETLK}, types[] = {F_RDLCK, F_WRLCK, F_UNLCK, 7, -1};
    for (int i = 0; i < 7; i++) for (int c = 0; c < 6; c++) for (int t = 0; t < 5; t++) { struct flock l = {.l_type = types[t], .l_len = 10}; errno = 0; int x = fcntl(fds[i], commands[c], &l); printf("fcntl %d %d %d: %d %s %d\n", i, commands[c], types[t], x, errno ? strerrorname_np(errno) : "", l.l_type); if (i < 5) { set(fds[i], F_SETLK, F_UNLCK, 0, 0, 0); set(fds[i], F_OFD_SETLK, F_UNLCK, 0, 0, 0); } }
    for (int c = 0; c < 6; c++) { struct flock l = {.l_type = F_RDLCK, .l_pid = 5}; errno = 0; printf("pid given: %d %s\n", fcntl(a, commands[c], &l), errno ? strerrorname_np(errno) : ""); set(a, F_SETLK, F_UNLCK, 0, 0, 0); set(a, F_OFD_SETLK, F_UNLCK, 0, 0, 0); }
    /* Ranges. */
    MUST(lseek(a, 50, SEEK_SET));
    struct { int whence; long start, length; } ranges[] = {{SEEK_SET, 0, 0}, {SEEK_SET, 10, 10}, {SEEK_SET, 10, -5}, {SEEK_SET, 10, -10}, {SEEK_SET, 10, -11}, {SEEK_SET, 0, -1}, {SEEK_SET, -1, 5}, {SEEK_CUR, 0, 10}, {SEEK_CUR, -50, 10}, {SEEK_CUR, -51, 10}, {SEEK_CUR, 10, -20}, {SEEK_END, 0, 10}, {SEEK_END, -10, 0}, {SEEK_END, -1001, 5}, {SEEK_END, 5, -10}, {3, 0, 1}, {-1, 0, 1}, {SEEK_DATA, 0, 1}, {SEEK_SET, LONG_MAX, 0}, {SEEK_SET, LONG_MAX, 1}, {SEEK_SET, LONG_MAX, 2}, {SEEK_SET, LONG_MAX - 1, 1}, {SEEK_SET, LONG_MAX - 1, 2}, {SEEK_SET, 5, LONG_MAX}, {SEEK_SET, 0, LONG_MAX}, {SEEK_SET, 1, LONG_MAX}, {SEEK_END, LONG_MAX, 1}, {SEEK_CUR, LONG_MAX, 1}, {SEEK_SET, 1l << 30, 1}, {SEEK_SET, (1l << 30) + 1, 510}, {SEEK_SET, LONG_MIN, 1}, {SEEK_SET, 5, LONG_MIN}};
    for (unsigned i = 0; i < sizeof ranges / sizeof *ranges; i++) for (int kind = 0; kind < 2; kind++) {
        errno = 0; long x = set(a, kind ? F_OFD_SETLK : F_SETLK, F_WRLCK, ranges[i].whence, ranges[i].start, ranges[i].length); printf("range %u %d: %ld %s\n", i, kind, x, errno ? strerrorname_np(errno) : "");
        get(b, F_OFD_GETLK, F_RDLCK, SEEK_SET, 0, 0); get(b, F_GETLK, F_RDLCK, SEEK_SET, 0, 0); get(a, F_OFD_GETLK, F_RDLCK, ranges[i].whence, ranges[i].start, ranges[i].length);
        set(a, F_SETLK, F_UNLCK, SEEK_SET, 0, 0); set(a, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 0);
    }
    /* Splitting and joining. */
    SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 10, 80)); probe("f"); SHOW(set(a, F_SETLK, F_UNLCK, SEEK_SET, 30, 20)); probe("f"); SHOW(set(b, F_SETLK, F_RDLCK, SEEK_SET, 20, 40)); probe("f"); SHOW(set(a, F_SETLK, F_RDLCK, SEEK_SET, 0, 0)); probe("f"); SHOW(set(a, F_SETLK, F_UNLCK, SEEK_SET, 50, 0)); probe("f"); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 10, 10)); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 30, 10)); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 20, 10)); probe("f"); SHOW(set(a, F_SETLK, F_UNLCK, SEEK_SET, 0, 0)); probe("f");
    /* Of the process: no conflict within it; any close gives all up. */
    SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 50)); SHOW(set(b, F_SETLK, F_WRLCK, SEEK_SET, 0, 50)); get(b, F_GETLK, F_WRLCK, SEEK_SET, 0, 50); probe("f"); int c = MUST(open("f", O_RDONLY)); probe("f"); close(c); probe("f");
    SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 50)); c = dup(a); close(c); probe("f"); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 50)); c = MUST(open("f", O_PATH)); close(c); probe("f"); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 50)); dup2(r, 50); dup2(d, 50); probe("f"); close(50);
    SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 50)); MUST(link("f", "hard")); probe("hard"); c = MUST(open("hard", O_RDONLY)); close(c); probe("f"); MUST(unlink("hard"));
    /* Of the description: conflicts between descriptions, shared by duplicates, given up with the last. */
    SHOW(set(a, F_OFD_SETLK, F_WRLCK, SEEK_SET, 0, 50)); SHOW(set(b, F_OFD_SETLK, F_WRLCK, SEEK_SET, 0, 50)); SHOW(set(b, F_OFD_SETLK, F_RDLCK, SEEK_SET, 49, 5)); SHOW(set(b, F_OFD_SETLK, F_RDLCK, SEEK_SET, 50, 5)); SHOW(set(b, F_SETLK, F_WRLCK, SEEK_SET, 0, 1)); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 1)); get(b, F_GETLK, F_WRLCK, SEEK_SET, 0, 0); get(b, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 0); get(a, F_OFD_GETLK, F_WRLCK, SEEK_SET, 0, 0); probe("f");
    c = dup(a); SHOW(set(c, F_OFD_SETLK, F_WRLCK, SEEK_SET, 60, 10)); SHOW(set(c, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 10)); close(c); probe("f"); int e = MUST(open("f", O_RDONLY)); close(e); probe("f"); e = MUST(open("f", O_RDWR)); SHOW(set(e, F_OFD_SETLK, F_WRLCK, SEEK_SET, 80, 10)); probe("f"); c = dup(e); close(e); probe("f"); close(c); probe("f"); SHOW(set(a, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 0)); SHOW(set(b, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 0)); probe("f");
    /* flock: of the description too, apart from the others; converted, inherited. */
    SHOW(flock(a, LOCK_EX)); SHOW(flock(b, LOCK_SH | LOCK_NB)); SHOW(flock(a, LOCK_SH)); SHOW(flock(b, LOCK_SH | LOCK_NB)); SHOW(flock(a, LOCK_EX | LOCK_NB)); SHOW(flock(b, LOCK_UN)); SHOW(flock(a, LOCK_EX | LOCK_NB)); SHOW(set(b, F_SETLK, F_WRLCK, SEEK_SET, 0, 0)); SHOW(set(b, F_OFD_SETLK, F_WRLCK, SEEK_SET, 0, 0)); SHOW(set(b, F_SETLK, F_UNLCK, SEEK_SET, 0, 0)); probe("f"); c = dup(a); close(c); probe("f"); c = dup(a); SHOW(flock(c, LOCK_UN)); close(c); probe("f"); SHOW(flock(r, LOCK_EX | LOCK_NB)); SHOW(flock(w, LOCK_SH | LOCK_NB)); SHOW(flock(r, LOCK_UN)); e = MUST(open("f", O_RDONLY)); SHOW(flock(e, LOCK_EX)); close(e); probe("f"); SHOW(flock(d, LOCK_EX)); e = MUST(open("dir", O_RDONLY)); SHOW(flock(e, LOCK_SH | LOCK_NB)); close(e); SHOW(flock(d, LOCK_UN));
    /* A lock outlives the name. */
    put("gone", "x"); e = MUST(open("gone", O_RDWR)); SHOW(flock(e, LOCK_EX)); MUST(unlink("gone")); SHOW(set(e, F_SETLK, F_WRLCK, SEEK_SET, 0, 0)); put("gone", "y"); c = MUST(open("gone", O_RDWR)); SHOW(flock(c, LOCK_EX | LOCK_NB)); close(c); close(e);
    /* Children: locks of the process are not theirs, and an exit gives up what is. */
    SHOW(flock(a, LOCK_EX)); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 10)); fflush(stdout);
    if (fork() == 0) { SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 0, 10)); get(a, F_GETLK, F_WRLCK, SEEK_SET, 0, 10); SHOW(set(a, F_SETLK, F_WRLCK, SEEK_SET, 20, 10)); fflush(stdout); _exit(0); }
    wait(0); probe("f"); SHOW(set(a, F_OFD_SETLK, F_UNLCK, SEEK_SET, 0, 0)); SHOW(flock(a, LOCK_UN)); SHOW(set(a, F_SETLK, F_UNLCK, SEEK_SET, 0, 0)); probe("f");
    /* Waiting for another process, and giving up on a signal. */
    int pipes[2]; MUST(pipe(pipes)); fflush(stdout); char byte;
    int child = fork(); if (child == 0) { int x = open("f", O_RDWR); flock(x, LOCK_EX); set(x, F_SETLK, F_WRLCK, SEEK_SET, 0, 10); write(pipes[1], "x", 1); usleep(50000); _exit(0); }
    MUST(read(pipes[0], &byte, 1)); SHOW(flock(a, LOCK_EX | LOCK_NB)); SHOW(set(a, F_SETLK, F_RDLCK, SEEK_SET, 5, 1)); SHOW(flock(a, LOCK_EX)); SHOW(set(a, F_SETLKW, F_RDLCK, SEEK_SET, 5, 1)); wait(0); SHOW(flock(a, LOCK_UN)); SHOW(set(a, F_SETLK, F_UNLCK, SEEK_SET, 0, 0));
    child = fork(); if (child == 0) { int x = open("f", O_RDWR); set(x, F_SETLK, F_WRLCK, SEEK_SET, 0, 10); flock(x, LOCK_EX); write(pipes[1], "x", 1); pause(); _exit(0); }
    MUST(read(pipes[0], &byte, 1)); struct sigaction none = {.sa_handler = (void (*)(int))(void *)abs}; sigaction(SIGALRM, &none, 0); ualarm(30000, 30000); SHOW(set(a, F_SETLKW, F_WRLCK, SEEK_SET, 0, 10)); SHOW(flock(a, LOCK_EX)); ualarm(0, 0); kill(child, SIGKILL); SHOW(set(a, F_SETLKW, F_WRLCK, SEEK_SET, 0, 10)); SHOW(flock(a, LOCK_EX)); wait(0); probe("f");
    close(a); probe("f"); close(b); close(r); close(w); close(p); close(d);
    return 0;
}
