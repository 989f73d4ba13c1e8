/* Processes that close whatever they have: loops of close, close_range, closefrom, daemons; what is put on
 * 0, 1 and 2; numbers of what is opened next; names of descriptors. */
#include "told.h"
#include <dirent.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>

static int out, file, dir;
/* Where a child tells after it has closed everything: on a file that it opens again. */
static void again(const char *name) { int f = open(name, O_RDWR | O_CREAT | O_APPEND, 0644); if (f < 0) _exit(20 + errno % 100); dup2(f, 1); dup2(f, 2); if (f > 2) close(f); }
static void each(void) { for (int f = 0; f < 1024; f++) close(f); }
static void each_down(void) { for (int f = 1023; f >= 0; f--) close(f); }
static void to_the_limit(void) { struct rlimit l; getrlimit(RLIMIT_NOFILE, &l); for (rlim_t f = 0; f < l.rlim_cur && f < 70000; f++) close(f); }
static void range(void) { close_range(0, ~0u, 0); }
static void range_unshared(void) { close_range(0, ~0u, CLOSE_RANGE_UNSHARE); }
static void from(void) { closefrom(0); }
static void raw(void) { syscall(SYS_close_range, 0, ~0u, 0); }
static void listed(void) { DIR *d = opendir("/proc/self/fd"); int n[2000], c = 0; struct dirent *e; while ((e = readdir(d)) && c < 2000) if (e->d_name[0] != '.') n[c++] = atoi(e->d_name); for (int i = 0; i < c; i++) if (n[i] != dirfd(d)) close(n[i]); closedir(d); }
static void above(void) { close_range(3, ~0u, 0); }
static void halves(void) { close_range(0, 4, 0); close_range(5, 5, 0); close_range(6, 1000000, 0); }
static const struct { const char *name; void (*run)(void); } closers[] = {{"each", each}, {"each down", each_down}, {"to the limit", to_the_limit}, {"close_range", range}, {"close_range unshared", range_unshared}, {"closefrom", from}, {"raw", raw}, {"listed", listed}, {"above 2", above}, {"halves", halves}};

static void closing(void) {
    for (size_t i = 0; i < sizeof closers / sizeof *closers; i++) {
        printf("%s\n", closers[i].name); fflush(stdout);
        pid_t p = fork();
        if (!p) {
            closers[i].run();
            again("told"); show_open(closers[i].name);
            char c; printf("  %ld %s\n", (long)pread(file, &c, 1, 0), strerrorname_np(errno)); errno = 0;
            printf("  %d %d %d\n", open("file", O_RDONLY), open("/dev/null", O_RDONLY), open("dir", O_RDONLY));
            if (!fork()) { show_open("  grandchild"); _exit(system("ls dir; cat file; echo; readlink /proc/self/fd/9") != 0); }
            int s; wait(&s); printf("  %d\n", s); fflush(stdout); _exit(3);
        }
        printf("  %d\n", ended(p)); show_file("told"); unlink("told");
    }
    show_open("parent");
}
static void daemons(void) {
    for (int flags = 0; flags < 4; flags++) {
        int gate[2]; MUST(pipe(gate)); pid_t p = fork();
        if (!p) { close(gate[0]); char here[4096]; int r = daemon(flags & 1, flags & 2); char c; snprintf(here, sizeof here, "%s/daemon", top); if (!(flags & 2)) again(here); printf("daemon %d: %d leader %d read %ld\n", flags, r, getsid(0) == getpid(), (long)pread(file, &c, 1, 0)); show_open("  has"); fflush(stdout); _exit(0); }
        close(gate[1]); int status = ended(p); char c; read(gate[0], &c, 1); close(gate[0]); printf("started %d\n", status); show_file("daemon"); unlink("daemon");
    }
    /* As daemons did before: twice forked, with a session and a directory of its own. */
    int gate[2]; MUST(pipe(gate)); pid_t p = fork();
    if (!p) { close(gate[0]); setsid(); if (fork()) _exit(0); chdir("dir"); umask(0); int kept = dup2(gate[1], 30); for (int f = 0; f < 30; f++) close(f); open("/dev/null", O_RDWR); dup(0); dup(0); int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0666); dup2(log, 1); dup2(log, 2); close(log); printf("daemon\n"); show_open("  has"); fprintf(stderr, "error\n"); fflush(stdout); system("echo by the shell; pwd | wc -l; cat ../file >&2"); close(kept); _exit(0); }
    close(gate[1]); ended(p); char c; read(gate[0], &c, 1); close(gate[0]); show_file("dir/log"); unlink("dir/log");
}
static void standard(void) {
    static const char *flags[] = {"r", "r+", "w"};
    for (int n = 0; n < 3; n++) {
        printf("onto %d\n", n); fflush(stdout);
        pid_t p = fork();
        if (!p) {
            int f = open("standard", O_RDWR | O_CREAT, 0644); write(f, "abcdef\nghi\n", 11); lseek(f, 0, SEEK_SET);
            if (dup2(f, n) != n) _exit(1);
            close(f); show_open("  child");
            if (n == 0) { char line[20]; if (!fgets(line, 20, stdin)) _exit(2); printf("  %s", line); fflush(stdout); lseek(0, 7, SEEK_SET); _exit(WEXITSTATUS(system("cat; cat /dev/stdin | wc -c"))); }
            fprintf(n == 1 ? stdout : stderr, "printed\n"); fflush(stdout); _exit(WEXITSTATUS(system(n == 1 ? "echo by the shell; echo to it >/dev/stdout" : "echo by the shell >&2; ls missing; echo to it >>/dev/stderr")));
        }
        printf("  %d\n", ended(p)); show_file("standard"); unlink("standard");
    }
    pid_t p = fork(); if (!p) { for (int f = 0; f < 3; f++) close(f); int a = open("file", O_RDONLY), b = open("standard", O_RDWR | O_CREAT, 0644), c = dup(b); dprintf(b, "%d %d %d\n", a, b, c); execl("/bin/sh", "sh", "-c", "cat; echo; echo done; echo error >&2", (char *)0); } printf("closed: %d\n", ended(p)); show_file("standard"); unlink("standard"); (void)flags;
}
/* Every call that gives a number gives the lowest. */
static void numbers(void) {
    int a[8], two[2]; sigset_t m; sigemptyset(&m);
    #define LOWEST(call) do { for (int i = 0; i < 6; i++) a[i] = open("file", O_RDONLY); close(a[4]); close(a[1]); close(a[3]); int n = call; printf("%s: %d %d", #call, n, open("/dev/null", O_RDONLY)); printf(" %d\n", open("file", O_RDONLY)); for (int f = dir + 1; f < 40; f++) close(f); } while (0)
    LOWEST(open("/dev/null", O_RDONLY)); LOWEST(open("file", O_RDONLY)); LOWEST(dup(out)); LOWEST(dup(file)); LOWEST(fcntl(out, F_DUPFD, 0)); LOWEST(fcntl(out, F_DUPFD, 8)); LOWEST(fcntl(file, F_DUPFD, 8)); LOWEST(socket(AF_UNIX, SOCK_STREAM, 0)); LOWEST(epoll_create1(0)); LOWEST(eventfd(0, 0)); LOWEST(timerfd_create(CLOCK_MONOTONIC, 0)); LOWEST(signalfd(-1, &m, 0)); LOWEST(memfd_create("x", 0)); LOWEST((pipe(two), two[0] * 100 + two[1])); LOWEST((socketpair(AF_UNIX, SOCK_STREAM, 0, two), two[0] * 100 + two[1])); LOWEST(syscall(SYS_pidfd_open, getpid(), 0));
    LOWEST(({ FILE *f = fopen("file", "r"); int n = fileno(f); n; })); LOWEST(({ DIR *d = opendir("dir"); dirfd(d); })); LOWEST(({ char t[] = "tempXXXXXX"; int n = mkstemp(t); unlink(t); n; })); LOWEST(({ pid_t p = fork(); if (!p) { for (int i = 0; i < 3; i++) printf("%d ", open("/dev/null", O_RDONLY)); fflush(stdout); _exit(0); } ended(p); }));
}
static void names(void) {
    char n[4200], b[4096]; struct stat s; int d = MUST(open("dir", O_RDONLY | O_DIRECTORY)), gone = MUST(open("gone", O_RDWR | O_CREAT, 0600)); put("dir/below", "below"); MUST(write(gone, "gone", 4));
    const char *forms[] = {"/proc/self/fd/%d", "/dev/fd/%d", "/proc/thread-self/fd/%d", "/proc/self/fd/%d/", "/dev/fd/%d/below", "/proc/self/fd/%d/../dir/./below", "/proc/self/fd/%d/missing", "/dev/fd/%d/..", "/proc/self/fd//%d"};
    int fds[] = {file, d, gone, out, 39};
    for (int i = 0; i < 9; i++) for (int k = 0; k < 5; k++) {
        snprintf(n, sizeof n, forms[i], fds[k]); printf("%s %d:", forms[i], k);
        int f = open(n, O_RDONLY); printf(" %s", f < 0 ? strerrorname_np(errno) : "opened"); if (f >= 0) { if (k != 3) printf(" at %ld", (long)lseek(f, 0, SEEK_CUR)); close(f); }
        f = open(n, O_PATH | O_NOFOLLOW); printf(" %s", f < 0 ? strerrorname_np(errno) : "path"); if (f >= 0) close(f);
        int r = stat(n, &s); printf(" %s", r ? strerrorname_np(errno) : ""); if (!r && k != 3) printf("%o %ld", s.st_mode, S_ISREG(s.st_mode) ? (long)s.st_size : 0);
        printf(" %d", access(n, R_OK)); if (k == 0 && i < 3) printf(" %d %d", chmod(n, 0640), truncate(n, 10)); long l = readlink(n, b, sizeof b - 1); b[l < 0 ? 0 : l] = 0; printf(" %s\n", l < 0 ? strerrorname_np(errno) : k == 3 ? "output" : cut(b));
    }
    char *real = realpath("/dev/fd/4", b); printf("%s\n", real ? cut(real) : strerrorname_np(errno)); close(d); close(gone);
}

int main(int argc, char **argv) {
    begin(argv);
    put("file", "0123456789"); MUST(mkdir("dir", 0755)); put("dir/inside", "x");
    out = dup(1); file = MUST(open("file", O_RDWR)); dir = MUST(open("dir", O_RDONLY | O_DIRECTORY)); lseek(file, 4, SEEK_SET);
    closing(); daemons(); standard(); numbers(); names();
    return 0;
}
