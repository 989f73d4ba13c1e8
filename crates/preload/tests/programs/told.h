/* What the programs about processes print: results with errors, and all that a process has open. */
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wunused-function"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
#define SHOW(x) do { errno = 0; long r_ = (long)(x); printf("%s = %ld%s%s\n", #x, r_, r_ < 0 && errno ? " " : "", r_ < 0 && errno ? strerrorname_np(errno) : ""); fflush(stdout); } while (0)
#define MUST(x) ({ long r_ = (long)(x); if (r_ < 0) { printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(9); } r_; })

/* How a child ended: its exit status, or 1000 and the signal. */
static int ended(pid_t p) {
    int s;
    if (waitpid(p, &s, 0) != p) return -1;
    return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + WTERMSIG(s);
}
static void put(const char *name, const char *text) {
    int f = MUST(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    MUST(write(f, text, strlen(text)));
    close(f);
}
static void show_file(const char *name) {
    char text[4096];
    int f = open(name, O_RDONLY);
    long n = f < 0 ? -1 : read(f, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = 0;
    printf("%s: %s\n", name, n < 0 ? strerrorname_np(errno) : text);
    if (f >= 0) close(f);
    fflush(stdout);
}
/* Everything below 40 that is open, and the working directory, without the directory of the test. */
static const char *top = "";
static const char *cut(const char *path) { return strncmp(path, top, strlen(top)) ? path : path + strlen(top); }
static void show_open(const char *who) {
    char path[4096], link[64];
    printf("%s:", who);
    for (int f = 0; f < 40; f++) {
        struct stat s;
        int flags = fcntl(f, F_GETFD);
        if (flags < 0) continue;
        printf(" %d%s", f, flags & FD_CLOEXEC ? "x" : "");
        if (fstat(f, &s)) printf("?%s", strerrorname_np(errno));
        else if (S_ISREG(s.st_mode) || S_ISDIR(s.st_mode)) {
            snprintf(link, sizeof link, "/proc/self/fd/%d", f);
            long n = readlink(link, path, sizeof path - 1);
            path[n < 0 ? 0 : n] = 0;
            int ours = !strncmp(path, top, strlen(top));
            if ((f && f < 3) || !ours) { printf("(%s)", ours ? cut(path) : "output"); continue; }
            long at = S_ISREG(s.st_mode) ? (long)lseek(f, 0, SEEK_CUR) : 0;
            printf("(%s %o %ld/%ld)", cut(path), fcntl(f, F_GETFL) & ~0100000, at, S_ISREG(s.st_mode) ? (long)s.st_size : 0);
        } else printf("(%s)", f && f < 3 ? "output" : S_ISCHR(s.st_mode) ? "device" : S_ISFIFO(s.st_mode) ? "pipe" : S_ISSOCK(s.st_mode) ? "socket" : "other");
    }
    printf(" in %s umask %o\n", getcwd(path, sizeof path) ? cut(path) : strerrorname_np(errno), umask(022));
    fflush(stdout);
}
/* The program itself, by a path of the host's and on the directory of the test. */
static char self[4096];
static void begin(char **argv) {
    umask(022);
    MUST(syscall(SYS_readlink, "/proc/self/exe", self, sizeof self));
    top = argv[1];
    int null = MUST(open("/dev/null", O_RDWR));
    dup2(null, 0);
    if (null) close(null);
    /* What the runner of the tests left open. */
    for (int f = 3; f < 40; f++) close(f);
    MUST(chdir(argv[1]));
}
static void copy_self(const char *name) {
    char block[65536];
    int from = MUST(open(self, O_RDONLY)), to = MUST(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0755));
    for (long n; (n = read(from, block, sizeof block)) > 0;) MUST(write(to, block, n));
    close(from);
    close(to);
}
