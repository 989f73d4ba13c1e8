/* Locks of files that are opened, locked and closed again and again: what one description had, no other has after it. */
#include "show.h"
#include <pthread.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>

static int set(int d, int command, int type, long start, long length) { struct flock l = {.l_type = type, .l_start = start, .l_len = length}; return fcntl(d, command, &l); }
/* Another process, forked before anything is open, so that what is locked here is nobody else's: it tells what it finds. */
static int ask[2], answer[2];
static void other(void) {
    char c, name[8];
    for (; read(ask[0], &c, 1) == 1;) {
        MUST(read(ask[0], name, 8)); int d = MUST(open(name, O_RDWR)); struct flock l = {.l_type = F_WRLCK}; char state[64] = ""; static int kept;
        if (c == 'k') { kept = d; MUST(flock(kept, LOCK_EX)); strcpy(state, "it has it"); }
        else if (c == 'r') { close(kept); close(d); strcpy(state, "it has let go"); }
        else {
            fcntl(d, F_GETLK, &l); strcpy(state, l.l_type == F_UNLCK ? "range: free" : l.l_pid == -1 ? "range: a description's" : l.l_pid == getppid() ? "range: the parent's" : "range: another's");
            strcat(state, flock(d, LOCK_SH | LOCK_NB) == 0 ? flock(d, LOCK_EX | LOCK_NB) == 0 ? ", flock: free" : ", flock: shared" : ", flock: exclusive"); close(d);
        }
        MUST(write(answer[1], state, 64));
    }
    _exit(0);
}
static void tell(int line, char what, const char *name) { char question[9] = {what}, state[64]; strcpy(question + 1, name); MUST(write(ask[1], question, 9)); MUST(read(answer[0], state, 64)); printf("%d: %s: %s\n", line, name, state); fflush(stdout); }
#define STATE(name) tell(__LINE__, 's', name)

static int take(int d, int kind, int mode) {
    int type = mode == O_RDONLY ? F_RDLCK : F_WRLCK, r = 0;
    if (kind & 1) r |= flock(d, LOCK_EX); if (kind & 2) r |= set(d, F_OFD_SETLK, type, 3, 4); if (kind & 4) r |= set(d, F_SETLK, type, 10, 2); if (kind & 8) r |= flock(d, LOCK_SH);
    return r;
}

static long inside, most, total;
static void *again(void *modes) {
    for (int i = 0; i < 2000; i++) {
        int d = MUST(open("t", ((int *)modes)[i % 3])); MUST(flock(d, LOCK_EX));
        long n = __atomic_add_fetch(&inside, 1, __ATOMIC_SEQ_CST); if (n > most) most = n;
        total++; __atomic_sub_fetch(&inside, 1, __ATOMIC_SEQ_CST); close(d);
    }
    return 0;
}
/* Adds to a number in a file, under a lock of the kind. */
static void add(int kind) {
    for (int i = 0; i < 1000; i++) {
        int d = MUST(open("n", O_RDWR)); long n = 0; while ((kind == 1 ? flock(d, LOCK_EX) : set(d, kind == 2 ? F_OFD_SETLKW : F_SETLKW, F_WRLCK, 0, 0)) != 0) ;
        MUST(pread(d, &n, 8, 0)); n++; MUST(pwrite(d, &n, 8, 0)); close(d);
    }
}

int main(int argc, char **argv) {
    begin(argv); int modes[] = {O_RDONLY, O_WRONLY, O_RDWR}; MUST(pipe(ask)); MUST(pipe(answer)); put("f", "0123456789"); put("g", "0123456789"); put("t", ""); fflush(stdout);
    if (fork() == 0) { close(ask[1]); other(); } close(ask[0]);
    for (int round = 0; round < 3; round++) for (int m = 0; m < 3; m++) for (int kind = 0; kind < 16; kind++) {
        int d = MUST(open("f", modes[m])); printf("%d %d %d: %d\n", round, m, kind, take(d, kind, modes[m])); STATE("f"); close(d); STATE("f");
    }
    /* Two of one file, and one by two numbers. */
    for (int round = 0; round < 3; round++) {
        int a = MUST(open("f", O_RDWR)), b = MUST(open("f", O_RDWR)); SHOW(flock(a, LOCK_EX)); SHOW(flock(b, LOCK_SH | LOCK_NB)); SHOW(set(b, F_OFD_SETLK, F_WRLCK, 0, 1)); SHOW(set(a, F_OFD_SETLK, F_WRLCK, 0, 2));
        close(a); STATE("f"); SHOW(flock(b, LOCK_EX | LOCK_NB)); int c = MUST(open("f", O_RDWR)); SHOW(flock(c, LOCK_EX | LOCK_NB)); close(c); STATE("f"); int e = dup(b); close(b); STATE("f"); close(e); STATE("f");
    }
    /* The process's locks go with any descriptor of the file, and with nothing else. */
    for (int round = 0; round < 3; round++) {
        int a = MUST(open("f", O_RDWR)), b = MUST(open("f", O_RDONLY)), c = MUST(open("g", O_RDWR)); flock(b, LOCK_SH); flock(c, LOCK_EX); close(b); close(c);
        SHOW(set(a, F_SETLK, F_WRLCK, 5, 5)); STATE("f"); b = MUST(open("g", O_RDWR)); SHOW(flock(b, LOCK_EX)); close(b); STATE("f"); STATE("g"); b = MUST(open("f", O_RDONLY)); STATE("f"); SHOW(flock(b, LOCK_SH)); close(b); STATE("f");
        SHOW(set(a, F_SETLK, F_WRLCK, 5, 5)); STATE("f"); close(a); STATE("f");
    }
    /* Somebody else has it meanwhile. */
    int d = MUST(open("f", O_RDWR)); flock(d, LOCK_EX); close(d); tell(__LINE__, 'k', "f"); for (int i = 0; i < 3; i++) { d = MUST(open("f", O_RDWR)); SHOW(flock(d, LOCK_EX | LOCK_NB)); close(d); } tell(__LINE__, 'r', "f"); d = MUST(open("f", O_RDWR)); SHOW(flock(d, LOCK_EX | LOCK_NB)); STATE("f");
    /* One that is there under another name, and another under its name. */
    close(d); MUST(rename("f", "h")); put("f", "new"); d = MUST(open("f", O_RDWR)); SHOW(flock(d, LOCK_EX)); STATE("f"); STATE("h"); close(d); MUST(unlink("h")); put("h", "newer"); d = MUST(open("h", O_RDWR)); SHOW(flock(d, LOCK_EX)); STATE("f"); STATE("h"); close(d);
    /* A child has nothing of what its parent's were locked by, and takes nothing away. */
    d = MUST(open("f", O_RDWR)); flock(d, LOCK_EX); close(d); int kept = MUST(open("g", O_RDWR)); flock(kept, LOCK_EX); set(kept, F_SETLK, F_WRLCK, 0, 1); fflush(stdout);
    int c = fork(); if (c == 0) { for (int i = 0; i < 3; i++) { int x = MUST(open("f", O_RDWR)); SHOW(flock(x, LOCK_EX | LOCK_NB)); close(x); } _exit(0); } waitpid(c, 0, 0); STATE("f"); STATE("g");
    /* Through exec: what was locked by another description before goes, what this one has stays. */
    int x = MUST(open("f", O_RDONLY)); flock(x, LOCK_SH); close(x); fflush(stdout); int go[2], ready[2]; MUST(pipe(go)); MUST(pipe(ready));
    if ((c = fork()) == 0) {
        int y = MUST(open("f", O_RDONLY)); flock(y, LOCK_SH); close(y); y = MUST(open("f", O_RDWR)); MUST(set(y, F_SETLK, F_WRLCK, 1, 1)); MUST(set(y, F_OFD_SETLK, F_WRLCK, 7, 1)); dup2(go[0], 0); dup2(ready[1], 1); execl("/bin/sh", "sh", "-c", "echo; read line", (char *)0); _exit(9);
    }
    char byte; read(ready[0], &byte, 1); d = MUST(open("f", O_RDWR)); SHOW(set(d, F_SETLK, F_WRLCK, 1, 1)); SHOW(set(d, F_SETLK, F_WRLCK, 7, 1)); MUST(write(go[1], "\n", 1)); waitpid(c, 0, 0); SHOW(set(d, F_SETLK, F_WRLCK, 1, 1)); SHOW(set(d, F_SETLK, F_WRLCK, 7, 1)); close(d); close(kept); STATE("f"); STATE("g");
    /* Threads and processes keep each other out. */
    pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, again, modes); for (int i = 0; i < 3; i++) pthread_join(t[i], 0); printf("%ld at once, %ld\n", most, total);
    for (int kind = 1; kind <= 3; kind++) { put("n", "\0"); fflush(stdout); for (int i = 0; i < 3; i++) if (fork() == 0) { add(kind); _exit(0); } for (int i = 0; i < 3; i++) wait(0); long n = 0; d = MUST(open("n", O_RDONLY)); read(d, &n, 8); close(d); printf("%d: %ld\n", kind, n); }
    /* Many files, under a limit of descriptors of which the program has what it had. */
    struct rlimit limit; getrlimit(RLIMIT_NOFILE, &limit); limit.rlim_cur = 300; MUST(setrlimit(RLIMIT_NOFILE, &limit)); char name[16];
    for (int i = 0; i < 100; i++) { sprintf(name, "m%d", i); put(name, ""); } int failed = 0;
    for (int i = 0; i < 300; i++) { sprintf(name, "m%d", i % 100); d = open(name, O_RDWR); failed += d < 0 || flock(d, LOCK_EX | LOCK_NB) != 0 || set(d, F_OFD_SETLK, F_WRLCK, 0, 1) != 0; close(d); } printf("failed: %d\n", failed);
    for (int host = 0; host < 2; host++) { int opened = 0, last; static int all[400]; while ((last = host ? open("/dev/null", O_RDONLY) : open("m0", O_RDONLY)) >= 0) all[opened++] = last; printf("%s, nearly all: %d\n", strerrorname_np(errno), opened >= 275); while (opened) close(all[--opened]); for (int i = 0; i < 40; i++) { sprintf(name, "m%d", i); d = MUST(open(name, O_RDWR)); MUST(flock(d, LOCK_EX)); close(d); } }
    return 0;
}
