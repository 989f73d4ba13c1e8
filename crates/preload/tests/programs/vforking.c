/* What vfork(2), clone(2) with CLONE_VM and CLONE_VFORK and posix_spawn(3) say of a child that may run in its
 * parent's memory, but for what it writes there (docs/differences.md). `vforking GROUP DIRECTORY` runs one group of cases and prints what becomes of each;
 * `vforking told DIRECTORY NAME` is the program that children execute, and prints what it was handed. */
#include "told.h"
#pragma GCC diagnostic ignored "-Wmisleading-indentation"
#include <poll.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <grp.h>
#include <pthread.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <termios.h>

typedef void (*Child)(void);
/* A program on the host, and on the directory of the test by two names. */
static char absolute[4200];
static const char *program;
static void say(const char *format, ...) { va_list l; va_start(l, format); vprintf(format, l); va_end(l); fflush(stdout); }
static const char *name_of(int error) { return error ? strerrorname_np(error) : "0"; }
/* The child of vfork does this, and exits with 99 if it goes on. */
__attribute__((noinline)) static pid_t child_that(Child does) {
    pid_t p = vfork();
    if (p == 0) { does(); _exit(99); }
    return p;
}
/* In a child: another program, which tells what it has. */
static void execute_as(const char *name) { execl(program, "vforking", "told", top, name, (char *)0); _exit(errno == ENOENT ? 97 : 98); }
static void execute(void) { execute_as("told"); }
/* In a child: something that is not the kernel's alone. */
static void open_and_close(void) { close(open("file", O_RDONLY)); }
static void sleep_for(long ms) { struct timespec t = {ms / 1000, ms % 1000 * 1000000}; while (nanosleep(&t, &t) && errno == EINTR) {} }
/* Calls that are made often are made in another way. None of these changes anything. */
static void make_often(void) {
    struct rlimit limit;
    struct itimerval none = {0};
    for (int i = 0; i < 8; i++) {
        getpid(); getppid(); getpgrp(); getpgid(0); getsid(0); syscall(SYS_gettid); kill(getpid(), 0); raise(0); setpgid(0, 0); setsid();
        alarm(0); setitimer(ITIMER_PROF, &none, 0); getrlimit(RLIMIT_CORE, &limit); setrlimit(RLIMIT_CORE, &limit);
        nice(0); setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0)); prctl(PR_GET_DUMPABLE, 0, 0, 0, 0); sleep_for(0); usleep(0);
    }
}

/* --- What an executed program has. */
static int told(int argc, char **argv) {
    char *end = 0;
    top = argv[2];
    struct rlimit limit;
    struct itimerval timer[3];
    sigset_t blocked, pending, ignored, handled;
    char text[64] = "";
    gid_t groups[64];
    int death = 0, subreaper = 0;
    sigprocmask(SIG_SETMASK, 0, &blocked);
    sigpending(&pending);
    sigemptyset(&ignored); sigemptyset(&handled);
    for (int s = 1; s < 32; s++) {
        struct sigaction a;
        if (sigaction(s, 0, &a)) continue;
        if (a.sa_handler == SIG_IGN) sigaddset(&ignored, s); else if (a.sa_handler != SIG_DFL) sigaddset(&handled, s);
    }
    for (int i = 0; i < 3; i++) getitimer(i, &timer[i]);
    prctl(PR_GET_PDEATHSIG, &death); prctl(PR_GET_CHILD_SUBREAPER, &subreaper);
    getrlimit(RLIMIT_CORE, &limit);
    long many = getgroups(64, groups);
    say("  told %s: group %s session %s blocked %lx ignored %lx handled %lx pending %lx\n", argc > 3 ? argv[3] : "", getpgrp() == getpid() ? "own" : "parent's", getsid(0) == getpid() ? "own" : "parent's",
        blocked.__val[0] & 0x3fffffff, ignored.__val[0] & 0x3fffffff, handled.__val[0], pending.__val[0]);
    say("    timers %d %d %d death %d subreaper %d nice %d core %ld no new privileges %d slack %d keeps %d groups %ld of %d ids %d %d policy %d variable %s\n", timer[0].it_value.tv_sec > 0, timer[1].it_value.tv_sec > 0, timer[2].it_value.tv_sec > 0,
        death, subreaper, getpriority(PRIO_PROCESS, 0), (long)limit.rlim_cur, prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0),
        many, many > 0 ? (int)groups[0] : -1, geteuid(), getegid(), sched_getscheduler(0), getenv("VARIABLE") ? getenv("VARIABLE") : "none");
    show_open("   ");
    for (int f = 3; f < 46; f++) {
        struct stat s;
        if (fcntl(f, F_GETFD) < 0 || fstat(f, &s)) continue;
        int flags = fcntl(f, F_GETFL) & O_ACCMODE;
        if (S_ISREG(s.st_mode)) { long n = flags == O_WRONLY ? -1 : read(f, text, 2); say("    %d: %.*s%s\n", f, n < 0 ? 0 : (int)n, text, flags == O_RDONLY ? "" : write(f, "w", 1) == 1 ? " wrote" : " did not write"); }
    }
    if (argc > 4) { long wanted = strtol(argv[4], &end, 10); char c; say("    number told %s\n", wanted == getpid() ? "is ours" : "is not ours"); if (argc > 5) say("    waited for %ld\n", (long)read(atoi(argv[5]), &c, 1)); }
    return 5;
}
static void to_each(void (*cases)(void)) {
    const char *programs[] = {self, "./here", absolute};
    static const char *names[] = {"host", "here by relative path", "here by absolute path"};
    for (int i = 0; i < 3; i++) { program = programs[i]; say("--- %s\n", names[i]); cases(); }
    program = self;
}

/* --- Who a child is: by itself, by vfork, by wait; and what it does to itself by that number. */
static int ends_of_pipe[2];
static void tells(void) { pid_t me = getpid(); MUST(write(ends_of_pipe[1], &me, sizeof me)); _exit(3); }
static void tells_late(void) { pid_t me = getpid(); open_and_close(); MUST(write(ends_of_pipe[1], &me, sizeof me)); _exit(3); }
static void tells_thread(void) { pid_t me = syscall(SYS_gettid); open_and_close(); MUST(write(ends_of_pipe[1], &me, sizeof me)); _exit(3); }
static void tells_group(void) { setpgid(0, 0); pid_t me = getpgrp(); open_and_close(); MUST(write(ends_of_pipe[1], &me, sizeof me)); _exit(3); }
static void tells_session(void) { pid_t me = setsid(); open_and_close(); MUST(write(ends_of_pipe[1], &me, sizeof me)); _exit(3); }
static void tells_next(void) { static char number[24]; snprintf(number, sizeof number, "%d", (int)getpid()); execl(program, "vforking", "told", top, "number", number, (char *)0); _exit(98); }
static void tells_next_of_group(void) { static char number[24]; setpgid(0, 0); snprintf(number, sizeof number, "%d", (int)getpgrp()); execl(program, "vforking", "told", top, "group", number, (char *)0); _exit(98); }
static void kills_itself(void) { kill(getpid(), SIGKILL); }
static void kills_itself_later(void) { pid_t me = getpid(); open_and_close(); kill(me, SIGKILL); sleep_for(50); }
static void terminates_itself(void) { kill(getpid(), SIGTERM); }
static void raises(void) { raise(SIGUSR2); }
static void aborts(void) { abort(); }
static void traps(void) { __builtin_trap(); }
static void kills_group(void) { setpgid(0, 0); kill(0, SIGTERM); }
static void knows_parent(void) { pid_t p = getppid(); open_and_close(); _exit(p == getppid() ? 3 : 4); }
static void waits_for_signal(void) { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0); kill(getpid(), SIGUSR1); int got; sigwait(&s, &got); _exit(got == SIGUSR1 ? 3 : 4); }
static void leaves_pending(void) { sigset_t s; sigemptyset(&s); sigaddset(&s, SIGUSR1); sigprocmask(SIG_BLOCK, &s, 0); kill(getpid(), SIGUSR1); execute(); }
static void who_tells(const char *name, Child does) {
    pid_t said = 0, waited;
    int status = -1;
    MUST(pipe(ends_of_pipe));
    pid_t p = child_that(does);
    close(ends_of_pipe[1]);
    long n = read(ends_of_pipe[0], &said, sizeof said);
    waited = waitpid(-1, &status, 0);
    say("%s: told %ld, vfork's %s, wait's %s, status %x, another %s\n", name, n, said == p ? "is it" : "is another", waited == p ? "is it" : "is another", status, waitpid(-1, 0, WNOHANG) < 0 ? name_of(errno) : "there");
    close(ends_of_pipe[0]);
}
static void who(void) {
    static const struct { const char *name; Child does; } table[] = {{"tells", tells}, {"tells late", tells_late}, {"tells its thread", tells_thread}, {"tells its group", tells_group}, {"tells its session", tells_session}};
    static const struct { const char *name; Child does; } ends[] = {{"kills itself", kills_itself}, {"kills itself later", kills_itself_later}, {"terminates itself", terminates_itself}, {"raises", raises}, {"aborts", aborts}, {"traps", traps}, {"kills its group", kills_group}, {"knows its parent", knows_parent}, {"waits for a signal", waits_for_signal}};
    for (int often = 0; often < 2; often++) {
        say("--- %s\n", often ? "made often" : "at first");
        if (often) make_often();
        for (size_t i = 0; i < sizeof table / sizeof *table; i++) who_tells(table[i].name, table[i].does);
        for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) say("%s: %d\n", ends[i].name, ended(child_that(ends[i].does)));
        const char *programs[] = {self, "./here"};
        for (int i = 0; i < 2; i++) { program = programs[i]; say("next: %d\n", ended(child_that(tells_next))); say("next of group: %d\n", ended(child_that(tells_next_of_group))); say("pending: %d\n", ended(child_that(leaves_pending))); }
    }
}
/* A shell's job: its own group, in the foreground of the terminal. */
static int terminal_of_job;
static void is_job(void) { pid_t me = getpid(); setpgid(0, me); tcsetpgrp(terminal_of_job, me); _exit(tcgetpgrp(terminal_of_job) == getpgrp() ? 3 : 4); }
static void is_job_and_executes(void) { pid_t me = getpid(); setpgid(0, me); tcsetpgrp(terminal_of_job, me); execl(program, "vforking", "foreground", top, (char *)0); _exit(98); }
static void jobs(void) {
    int master = MUST(posix_openpt(O_RDWR | O_NOCTTY));
    grantpt(master); unlockpt(master);
    if (fork() == 0) {
        MUST(setsid());
        terminal_of_job = MUST(open(ptsname(master), O_RDWR));
        signal(SIGTTOU, SIG_IGN);
        for (int often = 0; often < 2; often++) {
            if (often) make_often();
            const char *programs[] = {self, "./here"};
            say("job: %d\n", ended(child_that(is_job)));
            for (int i = 0; i < 2; i++) { program = programs[i]; say("job executes: %d\n", ended(child_that(is_job_and_executes))); }
            for (int i = 0; i < 4; i++) say("foreground is given back: %d\n", tcsetpgrp(terminal_of_job, getpgrp()));
        }
        _exit(0);
    }
    say("jobs: %d\n", ended(-1) >= -1);
    int status; wait(&status);
}

/* --- How it ends. */
static int wanted;
static void exits(void) { _exit(wanted); }
static void exits_apart(void) { open_and_close(); _exit(wanted); }
static void kills(void) { kill(getpid(), wanted); }
static void kills_apart(void) { open_and_close(); kill(getpid(), wanted); }
static void ends(void) {
    for (wanted = 0; wanted < 256; wanted++) { int a = ended(child_that(exits)), b = ended(child_that(exits_apart)); if (a != wanted || b != wanted) say("status %d: %d %d\n", wanted, a, b); }
    static const int signals[] = {SIGHUP, SIGINT, SIGQUIT, SIGILL, SIGABRT, SIGFPE, SIGKILL, SIGSEGV, SIGBUS, SIGPIPE, SIGALRM, SIGTERM, SIGUSR1, SIGSYS, SIGXCPU, SIGCHLD, SIGURG};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) { wanted = signals[i]; int a = ended(child_that(kills)), b = ended(child_that(kills_apart)); say("signal %d: %d %d\n", wanted, a, b); }
}

/* --- What is executed. */
static const char *path;
static int how;
static void executes_path(void) {
    char *arguments[] = {(char *)"name", (char *)"told", (char *)top, (char *)"path", 0}, *none[] = {0};
    switch (how) {
    case 0: execv(path, arguments); break;
    case 1: execvp(path, arguments); break;
    case 2: execve(path, arguments, environ); break;
    case 3: execvpe(path, arguments, none); break;
    case 4: execlp(path, "name", "told", top, "path", (char *)0); break;
    case 5: { int f = open(path, O_RDONLY | O_CLOEXEC); if (f >= 0) fexecve(f, arguments, environ); break; }
    case 6: syscall(SYS_execve, path, arguments, environ); break;
    case 7: syscall(SYS_execveat, AT_FDCWD, path, arguments, environ, 0); break;
    }
    _exit(errno);
}
static void executions(void) {
    static const char *paths[] = {"/no/such", "missing", "./missing", "/dev/null", "/", "./file", "dir", "./dir", "file/x", "", "here", "./here", "dir/../here", "link", "./link", "script", "./script", "plain", "./plain", "of-here", "./of-here", "/bin/true", "true", "/usr/../bin/true", "//bin/true", "/dev/fd/9", "/proc/self/exe", "circle", "far", "busy", "dir/here-too"};
    static const char *places[] = {"", "/", "/dev", "dir"};
    static const char *searches[] = {"/bin:/usr/bin", "", "/no/such:/bin", 0, ".:/bin", "/bin:."};
    char search[9000];
    for (int p = 0; p < 4; p++) {
        MUST(chdir(top)); if (*places[p]) MUST(chdir(places[p]));
        for (how = 0; how < 8; how++) for (int s = 0; s < 6; s++) {
            if (s && (how == 0 || how == 2 || how > 4)) continue;
            if (p && s > 3) continue;
            if (searches[s]) strcpy(search, searches[s]); else snprintf(search, sizeof search, "%s/dir:%s:/bin", top, top);
            setenv("PATH", search, 1);
            for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
                path = paths[i];
                int status = ended(child_that(executes_path));
                say("%d %d %d %s: %s\n", p, how, s, path, status == 5 ? "told" : status ? name_of(status) : "0");
            }
        }
    }
}

/* --- Descriptors: what becomes of them on the way. 3 pipe's, 4 its other end, 5 null, 6 file, 7 other (closed on exec), 8 directory, 9 nameless; 10 and 11 were closed just before. */
static void nothing(void) {}
static void dup_to(int a, int b) { if (dup2(a, b) != b) _exit(90); }
static void dup_pipe_to_standard(void) { dup_to(5, 0); dup_to(1, 2); }
static void dup_file_to_standard(void) { dup_to(6, 0); }
static void dup_onto_pool(void) { dup_to(5, 6); dup_to(3, 7); dup_to(4, 8); }
static void dup_pool_onto_kernels(void) { dup_to(6, 5); dup_to(9, 3); dup_to(7, 4); }
static void dup_onto_closed(void) { dup_to(5, 10); dup_to(6, 11); dup_to(3, 12); }
static void dup_lowest(void) { if (dup(5) != 10 || dup(6) != 11 || fcntl(5, F_DUPFD, 0) != 12 || fcntl(7, F_DUPFD_CLOEXEC, 13) != 13) _exit(91); }
static void dup_onto_itself(void) { dup_to(5, 5); dup_to(6, 6); if (dup3(5, 5, 0) >= 0 || errno != EINVAL) _exit(92); }
static void dup_wrong(void) { if (dup2(30, 31) >= 0 || errno != EBADF || dup2(5, -1) >= 0 || errno != EBADF || dup2(-1, 5) >= 0) _exit(93); }
static void close_kernels(void) { close(3); close(5); }
static void close_pools(void) { close(6); close(45); }
static void close_wrong(void) { if (close(30) >= 0 || errno != EBADF || close(10) >= 0 || errno != EBADF || close(-1) >= 0) _exit(94); }
static void close_all(void) { for (int f = 3; f < 600; f++) close(f); }
static void close_rest(void) { closefrom(5); }
static void mark(void) { fcntl(5, F_SETFD, FD_CLOEXEC); fcntl(3, F_SETFD, FD_CLOEXEC); fcntl(7, F_SETFD, 0); fcntl(6, F_SETFD, FD_CLOEXEC); if (fcntl(30, F_SETFD, 0) >= 0) _exit(95); }
static void mark_kernels(void) { fcntl(5, F_SETFD, FD_CLOEXEC); fcntl(3, F_SETFD, FD_CLOEXEC); if (fcntl(5, F_GETFD) != 1) _exit(95); fcntl(3, F_SETFD, 0); }
static void mark_by_ioctl(void) { ioctl(5, FIOCLEX); ioctl(6, FIOCLEX); ioctl(7, FIONCLEX); }
static void opens_lowest(void) { if (open("/dev/null", O_RDONLY) != 10 || open("other", O_RDONLY) != 11 || open("dir", O_RDONLY) != 12) _exit(96); }
static void opens_where_closed(void) { close(5); close(6); if (open("other", O_RDONLY) != 5 || open("/dev/null", O_RDONLY) != 6) _exit(96); }
static void opens_where_closed_of_kernels(void) { close(5); close(3); if (open("other", O_RDONLY) != 3 || open("/dev/zero", O_RDONLY) != 5) _exit(96); }
static void opens_pipe_where_closed(void) { int e[2]; close(3); close(5); if (pipe(e) || e[0] != 3 || e[1] != 5) _exit(96); }
static void opens_after_moving(void) { dup_to(5, 10); close(5); if (open("other", O_RDONLY) != 5 || open("file", O_RDONLY) != 11) _exit(96); }
static void reads(void) { char c[3]; if (read(6, c, 3) != 3 || write(6, "WW", 2) != 2 || read(45, c, 1) != 1) _exit(96); }
static void reads_host(void) { char c; if (read(5, &c, 1) != 0 || write(4, "x", 1) != 1 || read(3, &c, 1) != 1) _exit(96); }
static void seeks(void) { lseek(6, 9, SEEK_SET); lseek(9, 2, SEEK_SET); lseek(45, 2, SEEK_SET); }
static void makes(void) { int f = open("made", O_RDWR | O_CREAT | O_TRUNC, 0666); if (write(f, "by child", 8) != 8) _exit(96); lseek(f, 3, SEEK_SET); }
static void makes_nameless(void) { int f = open("gone", O_RDWR | O_CREAT | O_TRUNC, 0666); unlink("gone"); if (write(f, "nameless", 8) != 8) _exit(96); lseek(f, 1, SEEK_SET); dup_to(f, 44); close(f); }
static void makes_temporary(void) { int f = open(".", O_RDWR | O_TMPFILE, 0666); if (write(f, "temporary", 9) != 9) _exit(96); lseek(f, 2, SEEK_SET); dup_to(f, 43); close(f); }
static void unlinks(void) { unlink("made"); unlink("plain"); }
static void changes_flags(void) { fcntl(6, F_SETFL, O_APPEND); fcntl(3, F_SETFL, O_NONBLOCK); }
static const struct { const char *name; Child does; } on_descriptors[] = {
    {"nothing", nothing}, {"dup onto standard", dup_pipe_to_standard}, {"dup file onto standard", dup_file_to_standard}, {"dup onto pool's", dup_onto_pool}, {"dup pool's onto kernel's", dup_pool_onto_kernels}, {"dup onto closed", dup_onto_closed},
    {"dup lowest", dup_lowest}, {"dup onto itself", dup_onto_itself}, {"dup wrong", dup_wrong}, {"close kernel's", close_kernels}, {"close pool's", close_pools}, {"close wrong", close_wrong}, {"close all", close_all}, {"close rest", close_rest}, {"mark", mark}, {"mark kernel's", mark_kernels}, {"mark by ioctl", mark_by_ioctl},
    {"open lowest", opens_lowest}, {"open where closed", opens_where_closed}, {"open where closed of kernel's", opens_where_closed_of_kernels}, {"pipe where closed", opens_pipe_where_closed}, {"open after moving", opens_after_moving}, {"read", reads}, {"read host's", reads_host}, {"seek", seeks}, {"make", makes},
    {"make nameless", makes_nameless}, {"make temporary", makes_temporary}, {"unlink", unlinks}, {"flags", changes_flags},
};
static Child acts;
static void acts_and_executes(void) { acts(); execute(); }
static void acts_and_exits(void) { acts(); _exit(7); }
static void opens_all(void) {
    for (int f = 3; f < 40; f++) close(f);
    int e[2];
    MUST(chdir(top));
    put("file", "0123456789abcdef"); put("other", "ABCDEF"); put("nameless", "without a name");
    MUST(pipe(e)); MUST(open("/dev/null", O_RDWR)); MUST(open("file", O_RDWR)); MUST(open("other", O_RDONLY | O_CLOEXEC)); MUST(open("dir", O_RDONLY | O_DIRECTORY)); MUST(open("nameless", O_RDWR));
    /* Its name in /proc is another one on a pool, so that is not shown. */
    MUST(dup2(9, 45)); close(9); unlink("nameless"); put("second", "another one"); MUST(open("second", O_RDWR));
    MUST(open("file", O_RDONLY)); MUST(open("/dev/null", O_RDONLY)); MUST(open("file", O_RDONLY)); MUST(open("other", O_RDONLY));
    for (int f = 10; f < 14; f++) close(f);
    lseek(6, 2, SEEK_SET);
}
static void in_parent(const char *name, pid_t p) {
    int status = ended(p);
    say("%s: %d\n", name, status);
    show_open("  parent");
    show_file("file"); show_file("made"); unlink("made");
}
static void descriptors_of_children(void) {
    for (size_t i = 0; i < sizeof on_descriptors / sizeof *on_descriptors; i++) {
        acts = on_descriptors[i].does;
        opens_all(); in_parent(on_descriptors[i].name, child_that(acts_and_executes));
        opens_all(); in_parent(on_descriptors[i].name, child_that(acts_and_exits));
        /* What is the lowest number afterwards. */
        int a = open("/dev/null", O_RDONLY), b = open("file", O_RDONLY); say("  parent opens %d %d\n", a, b);
    }
}
static void descriptors_each(void) { to_each(descriptors_of_children); }

/* --- What else a process has, changed before or after it needs memory of its own. */
static void handler(int signal) {}
static void goes(void) { MUST(chdir("dir")); }
static void goes_far(void) { MUST(chdir("/")); MUST(chdir(top)); }
static void masks(void) { umask(027); }
static void new_session(void) { if (setsid() < 0) _exit(90); }
static void new_group(void) { if (setpgid(0, 0)) _exit(90); }
static void groups(void) { gid_t g[] = {5, 6}; setgroups(2, g); setgid(getgid()); setuid(getuid()); }
static void to_default(void) { signal(SIGUSR1, SIG_DFL); signal(SIGUSR2, SIG_DFL); signal(SIGSEGV, SIG_DFL); signal(SIGSYS, SIG_DFL); }
static void to_ignore(void) { signal(SIGUSR2, SIG_IGN); signal(SIGTERM, SIG_IGN); signal(SIGCHLD, SIG_IGN); }
static void to_ignore_faults(void) { signal(SIGSEGV, SIG_IGN); signal(SIGBUS, SIG_IGN); }
static void to_handler(void) { signal(SIGUSR1, handler); signal(SIGTERM, handler); signal(SIGSEGV, handler); }
static void every_default(void) { for (int s = 1; s < 65; s++) signal(s, SIG_DFL); }
static void every_ignored(void) { for (int s = 1; s < 32; s++) signal(s, SIG_IGN); }
static void blocks(void) { sigset_t s; sigfillset(&s); sigprocmask(SIG_BLOCK, &s, 0); }
static void unblocks(void) { sigset_t s; sigemptyset(&s); sigprocmask(SIG_SETMASK, &s, 0); }
static void alarms(void) { alarm(1000); }
static void other_timers(void) { struct itimerval t = {{0}, {1000, 0}}; setitimer(ITIMER_VIRTUAL, &t, 0); setitimer(ITIMER_PROF, &t, 0); }
static void dies_with_parent(void) { prctl(PR_SET_PDEATHSIG, SIGUSR1); }
static void reaps_others(void) { prctl(PR_SET_CHILD_SUBREAPER, 1); }
static void without_privileges(void) { prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); prctl(PR_SET_KEEPCAPS, 0); prctl(PR_SET_TIMERSLACK, 12345); }
static void is_nice(void) { nice(3); }
static void by_policy(void) { struct sched_param p = {0}; sched_setscheduler(0, SCHED_BATCH, &p); }
static void limits_core(void) { struct rlimit l = {4096, 8192}; setrlimit(RLIMIT_CORE, &l); }
static void sets_variable(void) { setenv("VARIABLE", "by child", 1); }
static const struct { const char *name; Child does; } states[] = {
    {"nothing", nothing}, {"chdir", goes}, {"chdir far", goes_far}, {"umask", masks}, {"setsid", new_session}, {"setpgid", new_group}, {"groups", groups}, {"default", to_default}, {"ignore", to_ignore}, {"ignore faults", to_ignore_faults}, {"handler", to_handler}, {"every default", every_default}, {"every ignored", every_ignored},
    {"block", blocks}, {"unblock", unblocks}, {"alarm", alarms}, {"other timers", other_timers}, {"death", dies_with_parent}, {"subreaper", reaps_others}, {"without privileges", without_privileges}, {"nice", is_nice}, {"policy", by_policy}, {"core", limits_core}, {"variable", sets_variable},
};
static void before_apart(void) { acts(); open_and_close(); execute(); }
static void after_apart(void) { open_and_close(); acts(); execute(); }
static void back(const char *name, const char *when, pid_t p) {
    sigset_t blocked;
    struct sigaction one, two;
    int status = ended(p);
    sigprocmask(SIG_SETMASK, 0, &blocked); sigaction(SIGUSR1, 0, &one); sigaction(SIGUSR2, 0, &two);
    char directory[4096];
    mode_t mask = umask(022);
    say("%s %s: %d; parent: blocked %lx, handler %d %d, alarm %u, umask %o in %s\n", name, when, status, blocked.__val[0], one.sa_handler == handler, two.sa_handler == SIG_IGN, alarm(0), mask, getcwd(directory, sizeof directory) ? cut(directory) : "none");
}
static void states_of_children(void) {
    sigset_t mask;
    for (int f = 3; f < 40; f++) close(f);
    signal(SIGUSR1, handler); signal(SIGUSR2, SIG_IGN);
    sigemptyset(&mask); sigaddset(&mask, SIGWINCH); sigprocmask(SIG_SETMASK, &mask, 0);
    unsetenv("VARIABLE");
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        acts = states[i].does;
        back(states[i].name, "alone", child_that(acts_and_executes));
        back(states[i].name, "before", child_that(before_apart));
        back(states[i].name, "after", child_that(after_apart));
        unsetenv("VARIABLE");
    }
    sigemptyset(&mask); sigprocmask(SIG_SETMASK, &mask, 0);
    signal(SIGUSR1, SIG_DFL); signal(SIGUSR2, SIG_DFL);
}
static void states_each(void) { to_each(states_of_children); say("--- made often\n"); make_often(); to_each(states_of_children); }

/* --- Children of children, and what else makes processes. */
static void exits_with_three(void) { _exit(3); }
static void vforks(void) { int s = ended(child_that(exits_with_three)); execute_as(s == 3 ? "vforked" : "wrong"); }
static void vforks_that_executes(void) { int s = ended(child_that(execute)); _exit(s + 1); }
static void vforks_deep(void) { if (++wanted == 6) execute(); int s = ended(child_that(vforks_deep)); _exit(s == 99 ? 99 : s + 1); }
static void forks(void) { pid_t p = fork(); if (!p) { show_file("file"); _exit(3); } int s = ended(p); execute_as(s == 3 ? "forked" : "wrong"); }
static void spawns(void) { pid_t p; char *list[] = {(char *)"name", (char *)"told", (char *)top, (char *)"spawned", 0}; int r = posix_spawn(&p, program, 0, 0, list, environ); _exit(r ? 90 : ended(p) + 2); }
static void runs_shell(void) { int s = system("exit 4"); _exit(WEXITSTATUS(s) + 10); }
static void *thread_of_child(void *result) { show_file("file"); *(int *)result = 6; return 0; }
static void threads(void) { pthread_t t; int result = 0; if (pthread_create(&t, 0, thread_of_child, &result)) _exit(90); pthread_join(t, 0); _exit(result); }
static void opens_stream(void) { char text[99] = ""; FILE *f = popen("echo from the shell", "r"); if (!fgets(text, 99, f)) _exit(90); say("  %s", text); _exit(pclose(f) ? 91 : 12); }
static void waits_for_none(void) { _exit(waitpid(-1, 0, 0) < 0 && errno == ECHILD ? 3 : 4); }
static void nested_of_children(void) {
    static const struct { const char *name; Child does; } table[] = {{"vfork", vforks}, {"vfork that executes", vforks_that_executes}, {"vfork deep", vforks_deep}, {"fork", forks}, {"spawn", spawns}, {"system", runs_shell}, {"thread", threads}, {"popen", opens_stream}, {"has no children", waits_for_none}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        wanted = 0;
        pid_t p = child_that(table[i].does);
        int s = ended(p), none = waitpid(-1, 0, WNOHANG);
        say("%s: %d, left %d %s\n", table[i].name, s, none, name_of(none < 0 ? errno : 0));
    }
}
static void nested(void) { to_each(nested_of_children); }

/* --- Many in a row. */
static void goes_on(void) { exits_with_three(); }
static void runs_true(void) { execl("/bin/true", "true", (char *)0); _exit(98); }
static void runs_missing(void) { execl("/no/such", "true", (char *)0); _exit(3); }
static void runs_missing_here(void) { execl("./missing", "true", (char *)0); _exit(3); }
static void runs_script_here(void) { execlp("./short", "short", (char *)0); _exit(98); }
static void is_killed(void) { raise(SIGKILL); }
static long size_of_memory(void) { long pages = 0; FILE *f = fopen("/proc/self/statm", "r"); if (fscanf(f, "%ld", &pages) != 1) pages = -1; fclose(f); return pages; }
static int descriptors_open(void) { int n = 0; for (int f = 0; f < 2000; f++) n += fcntl(f, F_GETFD) >= 0; return n; }
static void spawn_of(const char *what, int times) { for (int i = 0; i < times; i++) { pid_t p; char *list[] = {(char *)what, 0}; if (!posix_spawn(&p, what, 0, 0, list, environ)) ended(p); } }
static void spawn_true(int times) { spawn_of("/bin/true", times); }
static void spawn_short(int times) { spawn_of("./short", times); }
static void spawn_missing(int times) { spawn_of("./missing", times); }
static void many(void) {
    static const struct { const char *name; Child does; void (*spawn)(int); int times, expected; } table[] = {{"exits", goes_on, 0, 2000, 3}, {"apart", exits_apart, 0, 1000, 3}, {"true", runs_true, 0, 300, 0}, {"missing", runs_missing, 0, 2000, 3}, {"missing here", runs_missing_here, 0, 500, 3}, {"script here", runs_script_here, 0, 60, 0}, {"killed", is_killed, 0, 500, 1009},
        {"spawn true", 0, spawn_true, 200, 0}, {"spawn here", 0, spawn_short, 60, 0}, {"spawn missing", 0, spawn_missing, 300, 0}};
    wanted = 3;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        int wrong = 0, numbers = 0;
        long before = 0;
        for (int n = -20; n < table[i].times; n++) {
            if (n == 0) { before = size_of_memory(); numbers = descriptors_open(); }
            if (table[i].spawn) table[i].spawn(1); else wrong += ended(child_that(table[i].does)) != table[i].expected;
        }
        long grown = size_of_memory() - before;
        say("%s: %d wrong, memory %s, %d descriptors more\n", table[i].name, wrong, grown < 8 ? "as before" : "has grown", descriptors_open() - numbers);
        if (grown >= 8) fprintf(stderr, "%s: %ld pages\n", table[i].name, grown);
    }
}

/* --- Children of posix_spawn, whose first process may be replaced by another: nobody hears of it. */
static volatile sig_atomic_t told_of; static volatile pid_t told_last;
static void is_told(int signal, siginfo_t *information, void *context) { told_of++; told_last = information->si_pid; }
static pid_t spawn_with(const char *what, int opens, int session) {
    pid_t p = -1; char *list[] = {(char *)"sh", (char *)"-c", (char *)"echo $$ >&9; ps -o sid= -p $$ >/dev/null 2>&1; exit 4", 0};
    posix_spawn_file_actions_t a; posix_spawnattr_t at;
    posix_spawn_file_actions_init(&a); posix_spawnattr_init(&at);
    if (opens) posix_spawn_file_actions_addopen(&a, 11, "file", O_RDONLY, 0);
    if (session) posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSID | POSIX_SPAWN_RESETIDS);
    int result = posix_spawn(&p, what, &a, &at, list, environ);
    posix_spawn_file_actions_destroy(&a); posix_spawnattr_destroy(&at);
    if (result) { say("  not spawned: %s\n", name_of(result)); return -1; }
    return p;
}
static void spawned_of_kind(int opens, int session) {
    struct sigaction handler = {.sa_sigaction = is_told, .sa_flags = SA_SIGINFO | SA_RESTART}; sigset_t chld, before;
    int pipes[2]; char text[32] = ""; MUST(pipe(pipes)); MUST(dup2(pipes[1], 9)); close(pipes[1]);
    sigemptyset(&chld); sigaddset(&chld, SIGCHLD);
    /* A handler runs once for each, and for the one that was told of. */
    sigaction(SIGCHLD, &handler, 0); told_of = 0;
    pid_t p = spawn_with("/bin/sh", opens, session); int status = ended(p);
    say("handler: %d, ran %d for %s, ", status, told_of, told_last == p ? "it" : "another");
    long n = read(pipes[0], text, 31); say("its own number is %s\n", n > 0 && atol(text) == p ? "told" : "another");
    /* Another one that has ended is not told of again, and one that ends meanwhile is. */
    pid_t old = fork(); if (!old) _exit(6); while (!told_of) {} sleep_for(20); told_of = 0;
    p = spawn_with("/bin/sh", opens, session); status = ended(p); say("beside an old one: %d, ran %d, old %d\n", status, told_of, ended(old)); if (read(pipes[0], text, 31) < 0) say("?\n");
    /* Blocked, it waits for who wants to know. */
    signal(SIGCHLD, SIG_DFL); sigprocmask(SIG_BLOCK, &chld, &before);
    p = spawn_with("/bin/sh", opens, session); siginfo_t i; struct timespec ten = {10, 0}, none = {0, 0};
    int got = sigtimedwait(&chld, &i, &ten); say("blocked: %d for %s, status %d, ", got == SIGCHLD, i.si_pid == p ? "it" : "another", i.si_status); status = ended(p); got = sigtimedwait(&chld, &i, &none); say("%d, then %s\n", status, got < 0 ? name_of(errno) : "another"); if (read(pipes[0], text, 31) < 0) say("?\n");
    sigprocmask(SIG_SETMASK, &before, 0);
    signal(SIGCHLD, SIG_IGN); p = spawn_with("/bin/sh", opens, session); say("ignored: %d %s\n", p > 0, waitpid(p, &status, 0) < 0 ? name_of(errno) : "waited"); if (read(pipes[0], text, 31) < 0) say("?\n");
    signal(SIGCHLD, SIG_DFL); say("no other child: %s\n", waitpid(-1, &status, WNOHANG) < 0 ? name_of(errno) : "there is");
    /* Its errors are its parent's. */
    spawn_with("./missing", opens, session); spawn_with("/no/such", opens, session); spawn_with("dir", opens, session); spawn_with("/etc/passwd", opens, session);
    say("no other child: %s\n", waitpid(-1, &status, WNOHANG) < 0 ? name_of(errno) : "there is");
    /* A handler of the program's is its parent's still, and what it asks. */
    signal(SIGUSR2, SIG_IGN); handler.sa_flags |= SA_RESETHAND; sigaction(SIGUSR1, &handler, 0); ended(spawn_with("/bin/sh", opens, session)); struct sigaction now; sigaction(SIGUSR1, 0, &now);
    say("handler kept %d %x\n", now.sa_sigaction == is_told, (unsigned)now.sa_flags & (SA_RESETHAND | SA_SIGINFO)); signal(SIGUSR1, SIG_DFL); signal(SIGUSR2, SIG_DFL);
    close(9); close(pipes[0]);
}
static int spawns_there(void) { pid_t p = spawn_with("/bin/true", 1, 0); return p > 0 ? ended(p) : 51; }
static int in_a_namespace(int executes) {
    pid_t p = fork(); if (p) return ended(p);
    if (unshare(CLONE_NEWPID)) _exit(50);
    if (executes) execl(self, "vforking", "there", ".", (char *)0);
    _exit(spawns_there());
}
/* Where the kernel makes no process beside another; with clone3 and without. */
static int spawns_refused(int old) {
    pid_t p = fork(); if (p) return ended(p);
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1), BPF_STMT(BPF_RET | BPF_K, old ? SECCOMP_RET_ERRNO | ENOSYS : SECCOMP_RET_ALLOW),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 3), BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_PARENT, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAGAIN), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program_of = {sizeof code / sizeof *code, code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program_of)) _exit(50);
    long before = 0; int wrong = 0;
    for (int i = -5; i < 20; i++) {
        if (i == 0) before = size_of_memory();
        /* The shell, and what is on the directory. */
        pid_t q = spawn_with(i % 2 ? "/bin/true" : "/bin/sh", 1, 0); int expected = i % 2 ? 0 : 4;
        wrong += q < 0 || ended(q) != expected;
    }
    long grown = size_of_memory() - before;
    _exit(wrong + (grown > 8 ? 30 : 0));
}
static void spawned(void) {
    for (int often = 0; often < 2; often++) {
        for (int k = 0; k < 4; k++) { say("--- opens %d, session %d\n", k & 1, k >> 1); spawned_of_kind(k & 1, k >> 1); }
        make_often();
    }
    say("in a namespace of processes: %d\n", in_a_namespace(0));
    say("refused: %d, %d\n", spawns_refused(0), spawns_refused(1));
    say("and after executing: %d\n", in_a_namespace(1));
    /* Nobody has to wait for these, and each is told of. */
    struct sigaction alone = {.sa_sigaction = is_told, .sa_flags = SA_SIGINFO | SA_RESTART | SA_NOCLDWAIT};
    sigaction(SIGCHLD, &alone, 0);
    told_of = 0;
    for (int i = 0; i < 100; i++) { int before = told_of; spawn_with("/bin/true", i & 1, i & 2); for (int n = 0; told_of == before && n < 500; n++) sleep_for(1); }
    say("told of %d\n", told_of);
    signal(SIGCHLD, SIG_DFL);
}

/* --- SIGCHLD. */
static volatile sig_atomic_t reaped, signalled, strange;
static volatile pid_t expected;
static void reaps_all(int signal, siginfo_t *information, void *context) {
    int error = errno, status;
    signalled++;
    for (pid_t p; (p = waitpid(-1, &status, WNOHANG)) > 0;) reaped++;
    errno = error;
}
static void looks_at_sender(int signal, siginfo_t *information, void *context) { int error = errno; if (waitpid(information->si_pid, 0, 0) == information->si_pid) reaped++; else strange++; errno = error; }
static void waits_for_one(int signal) { int error = errno; signalled++; if (wait(0) > 0) reaped++; errno = error; }
static void reads_one(void) { char c; _exit(read(ends_of_pipe[0], &c, 1) == 1 ? 3 : 4); }
static void reads_one_there(void) { static char number[24]; snprintf(number, sizeof number, "%d", ends_of_pipe[0]); close(ends_of_pipe[1]); execl(program, "vforking", "waits", top, number, (char *)0); _exit(98); }
static void on_child(void (*informed)(int, siginfo_t *, void *)) { struct sigaction a = {.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_RESTART}; reaped = signalled = strange = 0; sigaction(SIGCHLD, &a, 0); }
static void wait_until_reaped(int count) { for (int i = 0; i < 4000 && reaped < count; i++) sleep_for(1); }
static void children_of_handlers(void) {
    sigset_t child;
    on_child(reaps_all); child_that(execute); wait_until_reaped(1); say("reaps all: %d\n", reaped);
    for (int i = 0; i < 20; i++) { child_that(before_apart); wait_until_reaped(i + 2); } say("reaps all: %d\n", reaped);
    signal(SIGCHLD, SIG_IGN); pid_t p = child_that(execute); int r = waitpid(p, 0, 0); say("ignored: %d %s\n", r, name_of(errno));
    p = child_that(exits_apart); r = waitpid(p, 0, 0); say("ignored: %d %s\n", r, name_of(errno));
    struct sigaction a = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT}; sigaction(SIGCHLD, &a, 0); p = child_that(exits_apart); r = waitpid(p, 0, 0); say("not waited for: %d %s\n", r, name_of(errno));
    signal(SIGCHLD, SIG_DFL);
    sigemptyset(&child); sigaddset(&child, SIGCHLD);
    p = child_that(execute); int turns = 0; struct rusage usage; int status;
    while ((r = wait4(p, &status, WNOHANG, &usage)) == 0 && turns++ < 5000) sleep_for(1);
    say("looked for: %d %x\n", r == p, status);
}
/* Each signal is of a child that there is, and comes when that has ended. */
static void signals_of_children(void) {
    sigset_t child, before;
    siginfo_t information;
    struct timespec soon = {3, 0};
    sigemptyset(&child); sigaddset(&child, SIGCHLD);
    static const struct { const char *name; Child does; } table[] = {{"exits", exits_with_three}, {"exits apart", exits_apart}, {"executes", execute}, {"executes apart", before_apart}};
    acts = nothing; wanted = 3;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        sigprocmask(SIG_BLOCK, &child, &before);
        pid_t p = child_that(table[i].does);
        int s = sigtimedwait(&child, &information, &soon);
        say("%s: signal %d of %s, status %d, code %d\n", table[i].name, s, information.si_pid == p ? "it" : "another", information.si_status, information.si_code);
        say("  waited %d\n", waitpid(p, 0, WNOHANG) == p);
        waitpid(p, 0, 0);
        struct timespec now = {0};
        say("  another %d\n", sigtimedwait(&child, &information, &now));
        sigprocmask(SIG_SETMASK, &before, 0);
        on_child(looks_at_sender);
        p = child_that(table[i].does); wait_until_reaped(1); say("  by its sender: reaped %d, strange %d\n", reaped, strange); waitpid(p, 0, 0);
        signal(SIGCHLD, waits_for_one); reaped = signalled = 0;
        p = child_that(table[i].does); wait_until_reaped(1); sleep_for(20); say("  one by one: reaped %d, signals %d\n", reaped, signalled);
        signal(SIGCHLD, SIG_DFL);
        waitpid(p, 0, 0);
    }
    /* Two at once: one signal is pending, of the first. The parent of one of vfork goes on before the signal is sent. */
    sigprocmask(SIG_BLOCK, &child, &before);
    siginfo_t ended;
    pid_t first = child_that(exits_with_three);
    MUST(waitid(P_PID, first, &ended, WEXITED | WNOWAIT));
    pid_t second = child_that(exits_apart);
    int s = sigtimedwait(&child, &information, &soon);
    say("two: signal %d of %s\n", s, information.si_pid == first ? "the first" : information.si_pid == second ? "the second" : "another");
    waitpid(first, 0, 0); waitpid(second, 0, 0);
    sigprocmask(SIG_SETMASK, &before, 0);
}
static void stops_waiting(int signal) { say("it hangs\n"); _exit(1); }
static void signals_each(void) {
    to_each(signals_of_children);
    /* A handler that waits for the child whose end it was told. */
    const char *programs[] = {self, "./here"};
    for (int i = 0; i < 2; i++) {
        program = programs[i];
        MUST(pipe2(ends_of_pipe, 0));
        signal(SIGALRM, stops_waiting); alarm(10);
        reaped = signalled = 0; signal(SIGCHLD, waits_for_one);
        child_that(reads_one_there);
        say("still there: %d\n", reaped == 0);
        MUST(write(ends_of_pipe[1], "x", 1));
        wait_until_reaped(1); say("reaped %d\n", reaped);
        close(ends_of_pipe[0]); close(ends_of_pipe[1]); alarm(0);
        signal(SIGCHLD, SIG_DFL);
    }
}
static void children_each(void) { acts = nothing; wanted = 3; to_each(children_of_handlers); }

/* --- Parents with threads, in handlers, with maps, and spawning from two threads. */
static volatile int stopping;
static void *runs_on(void *unused) { while (!stopping) { int f = open("by-thread", O_RDWR | O_CREAT | O_CLOEXEC, 0644); MUST(write(f, "text", 4)); close(f); sleep_for(1); } return 0; }
static void in_handler(int signal) { pid_t p = child_that(execute); say("  handler's: %d\n", ended(p)); acts = nothing; p = child_that(before_apart); say("  handler's: %d\n", ended(p)); }
static char *mapped;
static void stores(void) { mapped[1] = 'S'; _exit(mapped[0]); }
static void stores_apart(void) { open_and_close(); mapped[2] = 'A'; _exit(mapped[1]); }
static pthread_barrier_t together;
static void *spawns_in_thread(void *number) {
    int n = *(int *)number, wrong = 0;
    char file[40], expected_text[40];
    pthread_barrier_wait(&together);
    for (int i = 0; i < 40; i++) {
        posix_spawn_file_actions_t a;
        posix_spawnattr_t at;
        sigset_t mask;
        pid_t p;
        snprintf(file, sizeof file, "by-%d-%d", n, i); snprintf(expected_text, sizeof expected_text, "%d-%d\n", n, i);
        char command[100]; snprintf(command, sizeof command, "echo %d-%d; cat <&7 >/dev/null; exit %d", n, i, n + i);
        char *list[] = {(char *)"sh", (char *)"-c", command, 0};
        posix_spawn_file_actions_init(&a); posix_spawnattr_init(&at);
        posix_spawn_file_actions_addopen(&a, 1, file, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        posix_spawn_file_actions_addopen(&a, 7, i % 2 ? "file" : "/dev/null", O_RDONLY, 0);
        if (i % 3 == 0) posix_spawn_file_actions_addchdir_np(&a, "dir");
        if (i % 4 == 0) posix_spawn_file_actions_addclosefrom_np(&a, 20);
        sigemptyset(&mask); sigaddset(&mask, SIGUSR1);
        posix_spawnattr_setsigmask(&at, &mask); posix_spawnattr_setsigdefault(&at, &mask);
        posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | (i % 5 == 0 ? POSIX_SPAWN_SETPGROUP : 0) | (i % 5 == 1 ? POSIX_SPAWN_SETSID : 0));
        int result = posix_spawn(&p, i % 7 == 6 ? "./missing" : "/bin/sh", &a, &at, list, environ);
        if (i % 7 == 6) wrong += result != ENOENT;
        else {
            char text[40] = "";
            if (result || ended(p) != n + i) wrong++;
            int f = open(file, O_RDONLY);
            if (f < 0 || read(f, text, 39) < 1 || strcmp(text, expected_text)) wrong++;
            close(f);
        }
        posix_spawn_file_actions_destroy(&a); posix_spawnattr_destroy(&at);
    }
    return (void *)(intptr_t)wrong;
}
static void parents_of_kinds(void) {
    pthread_t t, u[2];
    MUST(chdir(top));
    stopping = 0;
    pthread_create(&t, 0, runs_on, 0);
    acts = nothing; wanted = 9;
    for (int i = 0; i < 5; i++) say("threads: %d %d %d\n", ended(child_that(execute)), ended(child_that(before_apart)), ended(child_that(exits)));
    stopping = 1; pthread_join(t, 0);
    say("alone again: %d %d %d\n", ended(child_that(execute)), ended(child_that(before_apart)), ended(child_that(exits)));
    signal(SIGUSR1, in_handler); raise(SIGUSR1); kill(getpid(), SIGUSR1); signal(SIGUSR1, SIG_DFL);
    int f = MUST(open("mapped", O_RDWR | O_CREAT | O_TRUNC, 0644)); MUST(write(f, "mapped text", 11));
    mapped = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    mapped[0] = 'M';
    say("mapped: %d", ended(child_that(stores))); say(" %d", ended(child_that(stores_apart))); say(" %d\n", ended(child_that(execute)));
    say("in memory: %.11s\n", mapped); munmap(mapped, 4096); close(f); show_file("mapped");
    int numbers[2] = {10, 100}; void *wrong;
    pthread_barrier_init(&together, 0, 2);
    for (int i = 0; i < 2; i++) pthread_create(&u[i], 0, spawns_in_thread, &numbers[i]);
    for (int i = 0; i < 2; i++) { pthread_join(u[i], &wrong); say("spawned by a thread: %d wrong\n", (int)(intptr_t)wrong); }
}
static void kinds(void) { to_each(parents_of_kinds); }

/* --- Killed in between. */
static long waits_before;
static void sleeps_and_executes(void) { sleep_for(waits_before); execute(); }
static void sleeps_apart_and_executes(void) { open_and_close(); sleep_for(waits_before); execute(); }
static void sleeps_and_tells(void) { pid_t me = getpid(); MUST(write(ends_of_pipe[1], &me, sizeof me)); sleep_for(waits_before); execute(); }
static int children_of(pid_t parent, pid_t *list) {
    char name[80], text[400] = "";
    snprintf(name, sizeof name, "/proc/%d/task/%d/children", (int)parent, (int)parent);
    int f = open(name, O_RDONLY), n = 0;
    if (f < 0 || read(f, text, sizeof text - 1) < 0) return 0;
    close(f);
    for (char *at = text, *end; n < 20; at = end) { long p = strtol(at, &end, 10); if (end == at) break; list[n++] = p; }
    return n;
}
/* Kills all children of this process but itself, once they have been there for a while. */
static pid_t killer(pid_t parent, int signal) {
    pid_t p = fork();
    if (p) return p;
    pid_t list[20];
    for (int i = 0; i < 3000 && children_of(parent, list) < 2; i++) sleep_for(1);
    sleep_for(100);
    int n = children_of(parent, list);
    for (int i = 0; i < n; i++) if (list[i] != getpid()) kill(list[i], signal);
    _exit(n < 2);
}
static void killed_of_kinds(void) {
    static const struct { const char *name; Child does; } table[] = {{"before", sleeps_and_executes}, {"apart", sleeps_apart_and_executes}};
    waits_before = 3000;
    for (int i = 0; i < 2; i++) {
        pid_t k = killer(getpid(), SIGKILL), p = child_that(table[i].does);
        say("killed %s: %d, killer %d\n", table[i].name, ended(p), ended(k));
    }
    /* The one who told its number. */
    MUST(pipe(ends_of_pipe));
    pid_t k = fork();
    if (!k) { pid_t whom; close(ends_of_pipe[1]); if (read(ends_of_pipe[0], &whom, sizeof whom) != sizeof whom) _exit(9); sleep_for(50); _exit(kill(whom, SIGKILL)); }
    pid_t p = child_that(sleeps_and_tells);
    say("killed by its number: %d, killer %d\n", ended(p), ended(k));
    close(ends_of_pipe[0]); close(ends_of_pipe[1]);
}
static void killings(void) { to_each(killed_of_kinds); say("--- made often\n"); make_often(); to_each(killed_of_kinds); }

/* --- Handlers that run in the child, and what its parent has of them. */
static volatile int ran;
static void counts_run(int signal) { ran++; }
static void raises_and_exits(void) { raise(SIGUSR1); _exit(ran); }
static void handlers_of_children(void) {
    for (int often = 0; often < 2; often++) {
        if (often) make_often();
        for (int flags = 0; flags < 4; flags++) {
            struct sigaction a = {.sa_handler = counts_run, .sa_flags = (flags & 1 ? SA_RESETHAND : 0) | (flags & 2 ? SA_NODEFER : 0)}, now;
            ran = 0;
            sigaction(SIGUSR1, &a, 0);
            int status = ended(child_that(raises_and_exits));
            sigaction(SIGUSR1, 0, &now);
            say("handler %d: child %d, parent has it: %d\n", flags, status, now.sa_handler == counts_run);
            /* In a process of its own, for which it may be the end. */
            ran = 0; pid_t p = fork(); if (!p) { raise(SIGUSR1); _exit(ran); } say("  parent: %d\n", ended(p));
            signal(SIGUSR1, SIG_DFL);
        }
    }
}
/* The stack that a child is given is as large as it needs, and what lies below it is not its own. */
static char below[1 << 16] __attribute__((aligned(4096)));
static int executes_on_little(void *unused) { execute(); return 98; }
static int exits_on_little(void *unused) { return 8; }
static void little_stacks(void) {
    const char *programs[] = {self, "./here"};
    static const int sizes[] = {4096, 8192, 16384, 32768};
    for (int k = 0; k < 2; k++) for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        program = programs[k];
        memset(below, 'b', sizeof below);
        pid_t p = clone(executes_on_little, below + sizeof below, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
        int status = ended(p), touched = 0;
        for (size_t n = 0; n < sizeof below - sizes[i]; n++) touched += below[n] != 'b';
        say("stack of %d: %d, %s below\n", sizes[i], status, touched ? "something changed" : "nothing changed");
        memset(below, 'b', sizeof below);
        p = clone(exits_on_little, below + sizeof below, CLONE_VM | CLONE_VFORK | SIGCHLD, 0);
        status = ended(p); touched = 0;
        for (size_t n = 0; n < sizeof below - sizes[i]; n++) touched += below[n] != 'b';
        say("  exits: %d, %s below\n", status, touched ? "something changed" : "nothing changed");
    }
}
/* A thread can be cancelled after it had such a child. */
static void gets_number(void) { getppid(); getpid(); syscall(SYS_getppid); sched_yield(); getuid(); geteuid(); getegid(); _exit(3); }
static void executes_by_libc(void) { getuid(); execl("/bin/true", "true", (char *)0); _exit(98); }
static void ends_by_libc(void) { quick_exit(5); }
static void *does_little(void *unused) { return 0; }
static pthread_t first_thread;
static void *cancels(void *unused) { sleep_for(100); pthread_cancel(first_thread); sleep_for(3000); say("was not cancelled\n"); _exit(4); }
static void was_cancelled(void *unused) { say("was cancelled\n"); _exit(5); }
static void cancelled_after(void) {
    static const struct { const char *name; Child does; } table[] = {{"exits", exits_with_three}, {"gets its number", gets_number}, {"executes", executes_by_libc}, {"ends by libc", ends_by_libc}, {"apart", exits_apart}, {"aborts", aborts}};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        pid_t p = fork();
        if (!p) {
            pthread_t t;
            char c;
            pthread_create(&t, 0, does_little, 0); pthread_join(t, 0);
            say("%s: %d\n", table[i].name, ended(child_that(table[i].does)));
            first_thread = pthread_self();
            MUST(pipe(ends_of_pipe));
            pthread_cleanup_push(was_cancelled, 0);
            pthread_create(&t, 0, cancels, 0);
            while (read(ends_of_pipe[0], &c, 1) < 0) {}
            pthread_cleanup_pop(0);
            _exit(6);
        }
        say("  ended %d\n", ended(p));
    }
}

static const struct { const char *name; void (*run)(void); } all[] = {{"spawned", spawned}, {"who", who}, {"jobs", jobs}, {"ends", ends}, {"executions", executions}, {"descriptors", descriptors_each}, {"states", states_each}, {"nested", nested}, {"many", many}, {"children", children_each}, {"signals", signals_each}, {"parents", kinds}, {"killed", killings}, {"handlers", handlers_of_children}, {"stacks", little_stacks}, {"cancelled", cancelled_after}};

/* What the report tells of: little, and nothing that is counted after the last child. */
static void runs_host_script(void) { execl(path, path, (char *)0); _exit(98); }
static int reported(const char *kind, const char *host) {
    char script[4200];
    wanted = 3;
    if (!strcmp(kind, "exits")) return ended(child_that(exits)) != 3;
    if (!strcmp(kind, "executes")) return ended(child_that(runs_true)) != 0;
    if (!strcmp(kind, "late")) return ended(child_that(runs_missing)) != 3;
    if (!strcmp(kind, "spawned") || !strcmp(kind, "spawned-library")) { spawn_true(3); return 0; }
    if (!strcmp(kind, "library")) return ended(child_that(runs_true)) != 0;
    copy_self("/arck/here");
    snprintf(script, sizeof script, "%s/script", host);
    put(script, "#!/arck/here told\n"); chmod(script, 0755);
    path = script;
    if (!strcmp(kind, "spawned-interpreter")) { spawn_of(script, 2); return 0; }
    return ended(child_that(runs_host_script)) != 5;
}

int main(int argc, char **argv) {
    if (argc > 4 && !strcmp(argv[1], "reported")) { syscall(SYS_readlink, "/proc/self/exe", self, sizeof self); return reported(argv[3], argv[4]); }
    if (argc > 2 && !strcmp(argv[1], "told")) return told(argc, argv);
    if (argc > 2 && !strcmp(argv[1], "foreground")) { int f = open("/dev/tty", O_RDWR); pid_t g = tcgetpgrp(f); say("  foreground is %s\n", g == getpgrp() ? "ours" : "another's"); return 3; }
    if (argc > 3 && !strcmp(argv[1], "waits")) { char c; return read(atoi(argv[3]), &c, 1) == 1 ? 3 : 4; }
    if (argc > 2 && !strcmp(argv[1], "there")) return spawns_there();
    if (argc < 3) return 2;
    begin(argv + 1);
    put("file", "0123456789abcdef"); put("other", "ABCDEF"); put("plain", "exit 3\n"); put("script", "#!/bin/sh\nexit 5\n"); put("of-here", "#!./here\n"); put("circle", "#!./circle\n"); put("far", "#!/no/such/interpreter\n"); put("short", "exit 0\n"); put("busy", "");
    for (const char *const *n = (const char *const[]){"plain", "script", "of-here", "circle", "far", "short", 0}; *n; n++) MUST(chmod(*n, 0755));
    MUST(mkdir("dir", 0755));
    copy_self("here");
    MUST(symlink("here", "link")); MUST(link("here", "dir/here-too"));
    snprintf(absolute, sizeof absolute, "%s/here", top);
    program = self;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) if (!strcmp(all[i].name, argv[1])) { all[i].run(); show_open("at last"); return 0; }
    return 2;
}
