/* Pointers that lead nowhere, into every call: EFAULT, or a short count, and the program lives. */
#include "show.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#pragma GCC diagnostic ignored "-Wnonnull"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wstringop-overread"

static char *room;     /* Two pages, then nothing. */
static char *readonly; /* One page that cannot be written, then nothing. */
static char *nothing;

static int file(void) { return MUST(open("file", O_RDWR)); }
static unsigned sum(const char *p, size_t n) { unsigned s = 0; while (n--) s = s * 31 + (unsigned char)*p++; return s; }

static void paths(const char *p, const char *what) {
    printf("paths: %s\n", what);
    struct stat s; struct statx x; struct statfs f; char b[100]; struct timespec t[2] = {{1, 2}, {3, 4}}; struct timeval v[2] = {{1, 2}, {3, 4}}; struct utimbuf u = {1, 2};
    SHOW(open(p, O_RDONLY)); SHOW(open(p, O_CREAT | O_RDWR, 0644)); SHOW(openat(AT_FDCWD, p, O_RDONLY)); SHOW(creat(p, 0644));
    SHOW(stat(p, &s)); SHOW(lstat(p, &s)); SHOW(fstatat(AT_FDCWD, p, &s, 0)); SHOW(statx(AT_FDCWD, p, 0, STATX_ALL, &x)); SHOW(statfs(p, &f));
    SHOW(access(p, F_OK)); SHOW(faccessat(AT_FDCWD, p, R_OK, 0)); SHOW(syscall(SYS_faccessat2, AT_FDCWD, p, R_OK, AT_EACCESS));
    SHOW(mkdir(p, 0755)); SHOW(rmdir(p)); SHOW(unlink(p)); SHOW(unlinkat(AT_FDCWD, p, 0)); SHOW(mknod(p, S_IFREG | 0644, 0)); SHOW(mkfifo(p, 0644));
    SHOW(rename(p, "new")); SHOW(rename("file", p)); SHOW(link(p, "new")); SHOW(link("file", p)); SHOW(symlink(p, "new")); SHOW(symlink("file", p));
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "file", AT_FDCWD, p, RENAME_NOREPLACE));
    SHOW(readlink(p, b, sizeof b)); SHOW(chmod(p, 0600)); SHOW(chown(p, 0, 0)); SHOW(lchown(p, 0, 0)); SHOW(truncate(p, 0)); SHOW(chdir(p));
    SHOW(utimensat(AT_FDCWD, p, t, 0)); SHOW(syscall(SYS_utimes, p, v)); SHOW(syscall(SYS_utime, p, &u)); SHOW(fchmodat(AT_FDCWD, p, 0600, 0)); SHOW(fchownat(AT_FDCWD, p, 0, 0, 0));
    int d = MUST(open("dir", O_RDONLY | O_DIRECTORY));
    SHOW(openat(d, p, O_RDONLY)); SHOW(fstatat(d, p, &s, 0)); SHOW(unlinkat(d, p, 0)); SHOW(mkdirat(d, p, 0755)); SHOW(renameat(d, p, d, "x")); SHOW(readlinkat(d, p, b, 5));
    close(d);
}

static sigjmp_buf back;
static void on_fault(int signal, siginfo_t *info, void *context) { (void)info; (void)context; siglongjmp(back, signal); }

int main(int argc, char **argv) {
    begin(argv);
    room = mmap(0, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(mprotect(room + 2 * 4096, 4096, PROT_NONE));
    readonly = room + 3 * 4096;
    memset(readonly, 'r', 4096);
    MUST(mprotect(readonly, 4096, PROT_READ));
    MUST(mprotect(readonly + 4096, 4096, PROT_NONE));
    nothing = room + 2 * 4096;
    char *end = nothing;
    static char big[40000];
    for (int i = 0; i < 40000; i++) big[i] = (char)(i * 7 + i / 256);
    int d = MUST(open("file", O_RDWR | O_CREAT, 0644));
    MUST(write(d, big, sizeof big)); close(d);
    d = MUST(open("holes", O_RDWR | O_CREAT, 0644));
    MUST(ftruncate(d, 40000)); MUST(pwrite(d, "x", 1, 20000)); close(d);
    MUST(mkdir("dir", 0755)); MUST(symlink("a target of some length", "link"));
    for (int i = 0; i < 20; i++) { char n[30]; snprintf(n, 30, "dir/name%d", i); put(n, "x"); }

    char *bad[] = {0, (char *)1, (char *)8, (char *)4095, nothing, nothing + 4095, (char *)-1, (char *)-4096, (char *)(1ull << 63), (char *)(1ull << 47), (char *)0x123456789abcdef0};
    const char *names[] = {"null", "1", "8", "4095", "nothing", "nothing + 4095", "-1", "-4096", "1 << 63", "1 << 47", "not canonical"};
    int count = sizeof bad / sizeof *bad;
    for (int i = 0; i < count; i++) if (i) paths(bad[i], names[i]);
    /* A path that runs into nothing; one that just does not. */
    memcpy(end - 4, "file", 4); paths(end - 4, "runs out");
    memset(room, 'x', 8192); paths(room, "8192 bytes, then nothing");
    memcpy(room + 4090, "./././file", 11); struct stat s; SHOW(stat(room + 4090, &s)); SHOW(stat(room + 4096, &s));
    memcpy(end - 5, "file", 5); SHOW(stat(end - 5, &s)); SHOW(open(end - 5, O_RDONLY)); close(3); close(4);
    for (int i = 1; i < 200; i++) { char *p = end - i; memset(p, '/', i - 1); if (i > 6) memcpy(p, "file", 4); p[i - 1] = 0; errno = 0; long r = access(p, F_OK); printf("%d %ld %d\n", i, r, errno); }

    /* Buffers of every kind. */
    for (int i = 0; i < count; i++) {
        char *p = bad[i];
        printf("buffers: %s\n", names[i]);
        d = file(); int e = MUST(open("dir", O_RDONLY)), h = MUST(open("holes", O_RDWR));
        SHOW(read(d, p, 100)); SHOW(read(d, p, 0)); SHOW(write(d, p, 100)); SHOW(write(d, p, 0)); SHOW(pread(d, p, 100, 50)); SHOW(pwrite(d, p, 100, 50));
        SHOW(pread(d, p, 100, 100000)); SHOW(pread(d, p, 9000, 0)); SHOW(pwrite(d, p, 9000, 3)); SHOW(pread(h, p, 100, 0)); SHOW(pread(d, p, 1ul << 40, 0)); SHOW(pread(d, p, 100, -1));
        SHOW(lseek(d, 0, SEEK_CUR));
        struct iovec v[3] = {{big, 10}, {p, 10}, {big, 10}};
        SHOW(readv(d, v, 3)); SHOW(lseek(d, 0, SEEK_CUR)); SHOW(preadv(d, v + 1, 2, 3)); SHOW(preadv2(d, v, 3, 3, 0));
        SHOW(readv(d, (struct iovec *)p, 1)); SHOW(writev(d, (struct iovec *)p, 1)); SHOW(readv(d, (struct iovec *)p, 0)); SHOW(readv(d, (struct iovec *)p, -1)); SHOW(readv(d, (struct iovec *)p, 1025));
        v[0].iov_base = "0123456789";
        SHOW(pwritev(d, v, 3, 7)); SHOW(pwritev(d, v + 1, 1, 3));
        SHOW(fstat(d, (struct stat *)p)); SHOW(stat("file", (struct stat *)p)); SHOW(syscall(SYS_newfstatat, AT_FDCWD, "file", p, 0)); SHOW(statx(AT_FDCWD, "file", 0, STATX_ALL, (struct statx *)p)); SHOW(syscall(SYS_fstatfs, d, p)); SHOW(syscall(SYS_statfs, "file", p));
        SHOW(syscall(SYS_getdents64, e, p, 1000)); SHOW(lseek(e, 0, SEEK_CUR)); SHOW(syscall(SYS_getdents64, e, p, 5)); SHOW(syscall(SYS_getdents64, d, p, 1000));
        SHOW(readlink("link", p, 10)); SHOW(readlink("link", p, 0)); SHOW(readlink("file", p, 10));
        if (p) { SHOW(syscall(SYS_utimensat, AT_FDCWD, "file", p, 0)); SHOW(syscall(SYS_utimensat, d, 0, p, 0)); SHOW(syscall(SYS_utimes, "file", p)); SHOW(syscall(SYS_utime, "file", p)); SHOW(syscall(SYS_futimesat, AT_FDCWD, "file", p)); }
        SHOW(fcntl(d, F_SETLK, p)); SHOW(fcntl(d, F_GETLK, p)); SHOW(ioctl(d, 0x541B, p));
        MUST(chdir("dir"));
        if (p) SHOW(syscall(SYS_getcwd, p, 4096));
        MUST(chdir(".."));
        if (p) { SHOW(sendfile(1, d, (off_t *)p, 1)); off_t at = 0; SHOW(copy_file_range(d, (off_t *)p, h, &at, 1, 0)); SHOW(copy_file_range(d, &at, h, (off_t *)p, 1, 0)); }
        SHOW(syscall(SYS_openat2, AT_FDCWD, "file", p, sizeof(struct open_how)));
        SHOW(syscall(SYS_rt_sigaction, SIGUSR1, p, 0, 8)); if (p) SHOW(syscall(SYS_rt_sigprocmask, SIG_BLOCK, p, 0, 8));
        close(d); close(e); close(h);
    }

    /* Reads and writes that run out of memory on the way, at many distances. */
    const int distances[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 767, 768, 769, 1000, 4095, 4096, 4097, 5000, 8191, 8192};
    const int lengths[] = {10, 100, 1000, 4096, 5000, 20000};
    const int places[] = {0, 1, 100, 4090, 4096, 8000};
    for (unsigned i = 0; i < sizeof distances / sizeof *distances; i++) for (unsigned j = 0; j < sizeof lengths / sizeof *lengths; j++) for (unsigned k = 0; k < sizeof places / sizeof *places; k++) {
        int n = distances[i], length = lengths[j], at = places[k];
        d = file(); int h = MUST(open("holes", O_RDWR));
        for (int which = 0; which < 2; which++) {
            int f = which ? h : d;
            memset(room, '.', 8192); errno = 0;
            long r = pread(f, end - n, length, at);
            printf("pread %d+%d of %d at %d: %ld %s %u\n", which, length, n, at, r, errno ? strerrorname_np(errno) : "", r < 0 ? 0 : sum(end - n, r < n ? r : n));
            lseek(f, at, SEEK_SET); errno = 0;
            r = read(f, end - n, length);
            printf("read: %ld %s %ld\n", r, errno ? strerrorname_np(errno) : "", (long)lseek(f, 0, SEEK_CUR));
        }
        /* A new file, an old one, in the middle, at the end. */
        for (int kind = 0; kind < 4; kind++) {
            for (int b = 0; b < 8192; b++) room[b] = (char)(b * 3 + kind);
            unlink("written"); put("written", "");
            int w = MUST(open("written", O_RDWR | (kind == 3 ? O_APPEND : 0)));
            if (kind >= 1) MUST(write(w, big, 6000));
            if (kind == 2) MUST(fallocate(w, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 4096, 1904));
            lseek(w, at, SEEK_SET); errno = 0;
            long r = write(w, end - n, length);
            int error = errno;
            long now = lseek(w, 0, SEEK_CUR);
            struct stat s; fstat(w, &s);
            static char all[40000];
            long got = pread(w, all, sizeof all, 0);
            printf("write %d %d of %d at %d: %ld %s %ld %ld %ld %u\n", kind, length, n, at, r, error ? strerrorname_np(error) : "", now, (long)s.st_size, got, sum(all, got));
            close(w);
        }
        close(d); close(h);
    }

    /* What can be read and not written. */
    d = file();
    SHOW(read(d, readonly, 100)); SHOW(read(d, readonly, 4096)); SHOW(read(d, readonly - 4, 100)); SHOW(pwrite(d, readonly, 4096, 0)); SHOW(pwrite(d, readonly, 5000, 0)); SHOW(fstat(d, (struct stat *)readonly)); SHOW(fstat(d, (struct stat *)(end - 20)));
    int h = MUST(open("holes", O_RDWR)); SHOW(pread(h, readonly, 100, 0)); close(h);
    SHOW(readlink("link", end - 5, 100)); SHOW(readlink("link", end - 23, 100)); SHOW(readlink("link", readonly, 10));
    int e = MUST(open("dir", O_RDONLY));
    SHOW(syscall(SYS_getdents64, e, readonly, 1000)); SHOW(syscall(SYS_getdents64, e, end - 10, 1000)); SHOW(syscall(SYS_getdents64, e, end - 4096, 4096) > 0); SHOW(syscall(SYS_getdents64, e, end - 4096, 4096)); close(e);
    struct iovec v[40]; for (int i = 0; i < 40; i++) v[i] = (struct iovec){big + i, 100};
    v[20].iov_base = end - 50; SHOW(preadv(d, v, 40, 0)); SHOW(pwritev(d, v, 40, 0)); v[20].iov_base = (void *)-1; SHOW(preadv(d, v, 40, 0)); SHOW(pwritev(d, v, 40, 0)); v[20].iov_len = -1; SHOW(preadv(d, v, 40, 0)); v[20].iov_base = big; v[20].iov_len = 0; SHOW(preadv(d, v, 40, 0)); v[20].iov_len = 1ul << 62; SHOW(pwritev(d, v, 40, 1ul << 20));
    memcpy(end - 32, v, 32); SHOW(preadv(d, (struct iovec *)(end - 32), 2, 0)); SHOW(preadv(d, (struct iovec *)(end - 32), 3, 0)); SHOW(pwritev(d, (struct iovec *)(end - 32), 3, 0));
    /* A mapped file that was cut off. */
    put("cut", "some bytes"); int c = MUST(open("cut", O_RDWR)); MUST(ftruncate(c, 8192));
    char *map = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, c, 0); MUST(ftruncate(c, 4096));
    SHOW(pread(d, map + 4096, 10, 0)); SHOW(pwrite(d, map + 4096, 10, 0)); SHOW(pread(d, map + 4090, 100, 0)); SHOW(pwrite(d, map + 4090, 100, 0)); SHOW(open(map + 4096, O_RDONLY)); SHOW(fstat(d, (struct stat *)(map + 4096)));
    SHOW(execve("/bin/true", (char **)nothing, 0)); SHOW(execve("/bin/true", (char **)(char *[]){"true", nothing, 0}, 0)); SHOW(execve(nothing, 0, 0));

    /* The program's own handlers still see what is the program's own fault, and only that. */
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, before;
    SHOW(sigaction(SIGSEGV, 0, &before)); SHOW(before.sa_handler == SIG_DFL); SHOW(before.sa_flags);
    SHOW(sigaction(SIGSEGV, &action, &before)); SHOW(before.sa_handler == SIG_DFL); SHOW(sigaction(SIGBUS, &action, 0));
    SHOW(read(d, nothing, 10)); SHOW(open(nothing, O_RDONLY)); SHOW(fstat(d, (void *)nothing));
    for (int i = 0; i < 3; i++) { int r = sigsetjmp(back, 1); if (r) printf("caught %d\n", r); else { *(volatile char *)nothing = 1; printf("not reached\n"); } SHOW(read(d, nothing, 10)); }
    int r = sigsetjmp(back, 1); if (r) printf("caught %d\n", r); else { *(volatile char *)(map + 4096) = 1; printf("not reached\n"); }
    SHOW(pread(d, map + 4096, 10, 0)); SHOW(sigaction(SIGSEGV, 0, &before)); SHOW(before.sa_sigaction == on_fault); SHOW(before.sa_flags);
    r = sigsetjmp(back, 1); if (r) printf("caught %d\n", r); else raise(SIGSEGV);
    signal(SIGSEGV, SIG_IGN); raise(SIGSEGV); SHOW(read(d, nothing, 10)); SHOW(sigaction(SIGSEGV, 0, &before)); SHOW(before.sa_handler == SIG_IGN);
    if (fork() == 0) { execl("/bin/sh", "sh", "-c", "grep SigIgn /proc/self/status", (char *)0); }
    wait(0);
    signal(SIGSEGV, SIG_DFL); SHOW(read(d, nothing, 10)); SHOW(write(d, nothing, 10));
    int status;
    if (fork() == 0) { *(volatile char *)nothing = 1; _exit(0); }
    wait(&status); printf("%s %d\n", WIFSIGNALED(status) ? "killed" : "alive", WIFSIGNALED(status) ? WTERMSIG(status) : status);
    if (fork() == 0) { raise(SIGSEGV); _exit(0); }
    wait(&status); printf("%s %d\n", WIFSIGNALED(status) ? "killed" : "alive", WIFSIGNALED(status) ? WTERMSIG(status) : status);
    if (fork() == 0) { signal(SIGBUS, SIG_IGN); *(volatile char *)(map + 4096) = 1; _exit(0); }
    wait(&status); printf("%s %d\n", WIFSIGNALED(status) ? "killed" : "alive", WIFSIGNALED(status) ? WTERMSIG(status) : status);
    show_tree(".");
    return 0;
}
