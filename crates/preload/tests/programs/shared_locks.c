/* Locks of descriptions that several processes have open: flock and open-file-description locks across fork and exec, what ends them; and who would wait in a circle. */
#include "show.h"
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

static int kind;
static const char *kinds[] = {"flock", "OFD"};
/* Takes (LOCK_SH, LOCK_EX) or drops (LOCK_UN) a lock of the kind that is looked at, without waiting. */
static int lock(int d, int how) {
    if (kind == 0) return flock(d, how | LOCK_NB);
    struct flock l = {.l_type = how == LOCK_SH ? F_RDLCK : how == LOCK_EX ? F_WRLCK : F_UNLCK, .l_len = 10};
    return fcntl(d, F_OFD_SETLK, &l);
}
/* How the file is locked, as somebody who opens it anew finds it. */
static const char *state(void) {
    int d = MUST(open("f", O_RDWR));
    const char *s = "shared";
    if (lock(d, LOCK_EX) == 0) s = "free"; else if (lock(d, LOCK_SH)) s = "exclusive";
    close(d);
    return s;
}
static int line(int n) { printf("%d: %s: %s\n", n, kinds[kind], state()); fflush(stdout); return 0; }
#define STATE() line(__LINE__)
/* What a child does, to the end. */
#define CHILD(...) do { fflush(stdout); int c_ = fork(); if (c_ == 0) { __VA_ARGS__; fflush(stdout); _exit(0); } int s_; waitpid(c_, &s_, 0); if (s_) printf("%d: child %x\n", __LINE__, s_); } while (0)
/* A child that waits for a byte before it goes on. */
static int go[2], ready[2];
static void told(void) { char c; MUST(read(go[0], &c, 1)); }
static void tell(void) { MUST(write(go[1], "x", 1)); }
static void here(void) { MUST(write(ready[1], "x", 1)); }
static void both(void) { char c; MUST(read(ready[0], &c, 1)); }
static int waiting(int what) { fflush(stdout); int c = fork(); if (c == 0) { switch (what) { case 1: here(); told(); _exit(0); case 2: here(); pause(); _exit(0); } } both(); return c; }

static void shared(void) {
    /* The parent closes its descriptor: the child still has it. */
    int d = MUST(open("f", O_RDWR)); SHOW(lock(d, LOCK_EX)); int c = waiting(1); STATE(); close(d); STATE(); tell(); waitpid(c, 0, 0); STATE();
    /* A child that nobody ends but a signal. */
    d = MUST(open("f", O_RDWR)); SHOW(lock(d, LOCK_SH)); c = waiting(2); close(d); STATE(); kill(c, SIGKILL); waitpid(c, 0, 0); STATE();
    /* What the child does with it is done to both. */
    d = MUST(open("f", O_RDWR)); CHILD(SHOW(lock(d, LOCK_EX))); STATE(); CHILD(SHOW(lock(d, LOCK_SH))); STATE(); CHILD(SHOW(lock(d, LOCK_UN))); STATE(); SHOW(lock(d, LOCK_EX)); CHILD(STATE(); SHOW(lock(d, LOCK_EX)); close(d); STATE()); STATE(); CHILD(SHOW(lock(d, LOCK_UN)); STATE(); SHOW(lock(d, LOCK_SH))); STATE(); SHOW(lock(d, LOCK_UN)); STATE(); close(d);
    /* Only the last of all descriptors counts, whoever has it. */
    d = MUST(open("f", O_RDWR)); SHOW(lock(d, LOCK_EX)); int e = dup(d), g = MUST(fcntl(d, F_DUPFD, 20)); c = waiting(1); close(d); close(g); STATE(); close(e); STATE(); tell(); waitpid(c, 0, 0); STATE();
    d = MUST(open("f", O_RDWR)); SHOW(lock(d, LOCK_EX)); c = waiting(1); e = MUST(open("other", O_RDWR | O_CREAT, 0644)); dup2(e, d); STATE(); tell(); waitpid(c, 0, 0); STATE(); close(d); close(e);
    d = MUST(open("f", O_RDWR)); CHILD(int h = dup(d); close(d); SHOW(lock(h, LOCK_EX)); STATE(); close(h); STATE()); STATE(); close(d); STATE();
    /* Children of children. */
    d = MUST(open("f", O_RDWR)); SHOW(lock(d, LOCK_EX)); fflush(stdout); if ((c = fork()) == 0) { if (fork() == 0) { here(); told(); _exit(0); } _exit(0); } waitpid(c, 0, 0); both(); close(d); STATE(); tell(); for (int i = 0; i < 3000 && strcmp(state(), "free"); i++) usleep(10000); STATE();
    /* Two descriptions of one file, one of them shared. */
    d = MUST(open("f", O_RDWR)); e = MUST(open("f", O_RDWR)); SHOW(lock(d, LOCK_SH)); c = waiting(1); SHOW(lock(e, LOCK_SH)); close(d); SHOW(lock(e, LOCK_EX)); tell(); waitpid(c, 0, 0); SHOW(lock(e, LOCK_EX)); STATE(); close(e); STATE();
    /* Parts of a file; not by flock. */
    d = MUST(open("f", O_RDWR)); struct flock l = {.l_type = F_WRLCK, .l_start = 100, .l_len = 100}, a = {.l_type = F_WRLCK, .l_start = 150, .l_len = 1}; SHOW(fcntl(d, F_OFD_SETLK, &l)); CHILD(struct flock u = {.l_type = F_UNLCK, .l_start = 120, .l_len = 10}; SHOW(fcntl(d, F_OFD_SETLK, &u))); e = MUST(open("f", O_RDWR)); SHOW(fcntl(e, F_OFD_GETLK, &a)); printf("%d %ld %ld %d\n", a.l_type, (long)a.l_start, (long)a.l_len, a.l_pid); a = (struct flock){.l_type = F_WRLCK, .l_start = 125, .l_len = 1}; SHOW(fcntl(e, F_OFD_SETLK, &a)); CHILD(struct flock o = {.l_type = F_RDLCK, .l_start = 0, .l_len = 0}; SHOW(fcntl(d, F_OFD_GETLK, &o)); printf("%d %ld %ld\n", o.l_type, (long)o.l_start, (long)o.l_len)); close(d); close(e);
}

static void executed(void) {
    /* A program that has it open holds the lock, one that does not does not. */
    int d = MUST(open("f", O_RDWR)), c; SHOW(lock(d, LOCK_EX)); fflush(stdout);
    if ((c = fork()) == 0) { dup2(go[0], 0); dup2(ready[1], 1); execl("/bin/sh", "sh", "-c", "echo; read line", (char *)0); _exit(9); } both(); close(d); STATE(); MUST(write(go[1], "\n", 1)); waitpid(c, 0, 0); STATE();
    d = MUST(open("f", O_RDWR | O_CLOEXEC)); SHOW(lock(d, LOCK_EX)); fflush(stdout);
    if ((c = fork()) == 0) { dup2(go[0], 0); dup2(ready[1], 1); execl("/bin/sh", "sh", "-c", "echo; read line", (char *)0); _exit(9); } both(); close(d); STATE(); MUST(write(go[1], "\n", 1)); waitpid(c, 0, 0); STATE();
    /* One that knows nothing of us. */
    d = MUST(open("f", O_RDWR)); SHOW(lock(d, LOCK_EX)); fflush(stdout);
    if ((c = fork()) == 0) { dup2(go[0], 0); dup2(ready[1], 1); execle("/bin/sh", "sh", "-c", "echo; read line", (char *)0, (char *[]){0}); _exit(9); } both(); close(d); STATE(); MUST(write(go[1], "\n", 1)); waitpid(c, 0, 0); STATE();
    /* The program itself goes on as another. */
    fflush(stdout); if ((c = fork()) == 0) { d = MUST(open("f", O_RDWR)); lock(d, LOCK_EX); dup2(go[0], 0); dup2(ready[1], 1); execl("/bin/sh", "sh", "-c", "echo; read line", (char *)0); _exit(9); } both(); STATE(); MUST(write(go[1], "\n", 1)); waitpid(c, 0, 0); STATE();
    /* As shell scripts do it. */
    fflush(stdout); system("exec 9> f; flock 9 && flock -n f true; echo $?; (flock -n 9; echo $?; flock -u 9); flock -n f true; echo $?; flock -n 9; exec 9>&-; flock -n f echo yes; ( flock -n 8 || echo no; flock -n f echo not ) 8> f; flock -n f echo yes");
    system("perl -e 'use Fcntl \":flock\"; open my $f, \">\", \"f\"; flock($f, LOCK_EX) or die; if (!fork) { open my $g, \">\", \"f\"; print flock($g, LOCK_EX | LOCK_NB) ? \"free\" : \"locked\", \"\\n\"; exit } wait; close $f; open my $g, \">\", \"f\"; print flock($g, LOCK_EX | LOCK_NB) ? \"free\" : \"locked\", \"\\n\"'");
}

/* Each process of a circle has one byte and waits for the next: one is told, gives its up, and the others get theirs. */
static void circle(int processes) {
    int told_of = 0, had = 0, c[8], start[2]; MUST(pipe(start)); fflush(stdout);
    for (int i = 0; i < processes; i++) if ((c[i] = fork()) == 0) {
        close(start[1]); int d = MUST(open("f", O_RDWR)); struct flock own = {.l_type = F_WRLCK, .l_start = i, .l_len = 1}, next = {.l_type = F_WRLCK, .l_start = (i + 1) % processes, .l_len = 1};
        if (fcntl(d, F_SETLK, &own)) _exit(9);
        here(); char byte; (void)!read(start[0], &byte, 1);
        int r = fcntl(d, F_SETLKW, &next); _exit(r == 0 ? 1 : errno == EDEADLK ? 2 : 3);
    }
    for (int i = 0; i < processes; i++) both();
    close(start[0]); close(start[1]);
    for (int i = 0, s; i < processes; i++) { waitpid(c[i], &s, 0); had += WEXITSTATUS(s) == 1; told_of += WEXITSTATUS(s) == 2; }
    printf("circle of %d: %d told, %d had it\n", processes, told_of, had);
}
static void on_alarm(int s) { (void)s; }
static void circles(void) {
    circle(2); circle(3); circle(5);
    /* No circle: one waits that has nothing, or gave up waiting. */
    int d = MUST(open("f", O_RDWR)), c; struct flock first = {.l_type = F_WRLCK, .l_start = 0, .l_len = 1}, second = {.l_type = F_WRLCK, .l_start = 1, .l_len = 1}; SHOW(fcntl(d, F_SETLK, &first)); fflush(stdout);
    if ((c = fork()) == 0) { fcntl(d, F_SETLK, &second); struct sigaction a = {.sa_handler = on_alarm}; sigaction(SIGALRM, &a, 0); ualarm(20000, 20000); SHOW(fcntl(d, F_SETLKW, &first)); ualarm(0, 0); here(); told(); _exit(0); }
    both(); struct sigaction a = {.sa_handler = on_alarm}; sigaction(SIGALRM, &a, 0); ualarm(100000, 20000); SHOW(fcntl(d, F_SETLKW, &second)); ualarm(0, 0); tell(); waitpid(c, 0, 0); SHOW(fcntl(d, F_SETLKW, &second)); close(d);
}

int main(int argc, char **argv) {
    begin(argv); put("f", "0123456789"); MUST(truncate("f", 1000)); MUST(pipe2(go, O_CLOEXEC)); MUST(pipe2(ready, O_CLOEXEC));
    for (kind = 0; kind < 2; kind++) { shared(); executed(); }
    circles();
    return 0;
}
