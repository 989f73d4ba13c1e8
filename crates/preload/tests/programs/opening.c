/* open's rarer flags: O_TMPFILE, O_PATH, openat2, the flags of preadv2 and pwritev2. */
#include "show.h"
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/statfs.h>
#include <sys/xattr.h>
#include <sys/wait.h>

/* Whether the kernel goes along the paths here: it says EAGAIN where something is renamed or mounted anywhere in the system while
 * it goes through "..", and the library never does. */
static int is_kernels(void) {
    int error = errno;
    struct statfs s;
    MUST(statfs(".", &s));
    errno = error;
    return s.f_type != 0x4b435241;
}
static long open2(int d, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve) {
    struct open_how how = {flags, mode, resolve};
    int before = errno;
    for (;;) {
        long r = syscall(SYS_openat2, d, path, &how, sizeof how);
        if (r >= 0 || errno != EAGAIN || !(resolve & (RESOLVE_BENEATH | RESOLVE_IN_ROOT)) || !is_kernels()) return r;
        errno = before;
    }
}
static void closing(long d) { if (d >= 0) close(d); }
static void show_open(int d) {
    struct stat s;
    if (fstat(d, &s)) { printf("fstat: %s\n", strerrorname_np(errno)); return; }
    printf("fd: mode %o links %ld size %ld flags %o\n", s.st_mode, (long)s.st_nlink, S_ISDIR(s.st_mode) ? 0 : (long)s.st_size, fcntl(d, F_GETFL));
}

static void nameless(void) {
    char proc[64], b[100];
    MUST(mkdir("t", 0755)); MUST(mkdir("t/other", 0755)); put("t/file", "x"); MUST(symlink("t", "tl"));
    int flags[] = {0, O_RDONLY, O_WRONLY, O_RDWR, O_RDWR | O_EXCL, O_RDWR | O_CREAT, O_RDWR | O_NOFOLLOW, O_RDWR | O_APPEND, O_RDWR | O_TRUNC, O_RDWR | O_PATH, O_RDWR | O_SYNC};
    const char *places[] = {"t", "t/", "t/.", ".", "tl", "tl/", "t/file", "missing", "t/missing", "", "dangling"};
    for (unsigned i = 0; i < sizeof flags / sizeof *flags; i++) for (unsigned j = 0; j < sizeof places / sizeof *places; j++) {
        errno = 0;
        int d = open(places[j], O_TMPFILE | flags[i], 0666);
        printf("O_TMPFILE %o %s: %s\n", flags[i], places[j], errno ? strerrorname_np(errno) : "");
        if (d >= 0) { show_open(d); close(d); }
    }
    int d = MUST(open("t", O_RDONLY | O_DIRECTORY));
    SHOW(open("t", O_RDWR | (O_TMPFILE & ~O_DIRECTORY), 0644)); SHOW(openat(77, "t", O_TMPFILE | O_RDWR, 0644));
    int f = MUST(openat(d, ".", O_TMPFILE | O_RDWR, 0640));
    show_open(f); SHOW(write(f, "hello", 5)); SHOW(pread(f, b, 100, 0)); SHOW(ftruncate(f, 10000)); SHOW(pwrite(f, "end", 3, 9997)); show_open(f); SHOW(fchmod(f, 0604)); show_open(f);
    show_tree("t");
    SHOW(linkat(f, "", d, "named", 0)); SHOW(linkat(f, "", d, "file", AT_EMPTY_PATH)); SHOW(linkat(f, "", d, "named", AT_EMPTY_PATH));
    show_open(f); show_tree("t"); show_file("t/named");
    SHOW(pwrite(f, "HE", 2, 0)); show_file("t/named"); SHOW(linkat(f, "", AT_FDCWD, "t/other/second", AT_EMPTY_PATH)); show_open(f); show_tree("t");
    SHOW(unlink("t/named")); SHOW(unlink("t/other/second")); show_open(f); SHOW(linkat(f, "", d, "again", AT_EMPTY_PATH)); close(f);
    show_tree("t");
    /* By its descriptor's name. */
    f = MUST(open("t", O_TMPFILE | O_WRONLY, 0600)); SHOW(write(f, "by name", 7));
    snprintf(proc, sizeof proc, "/proc/self/fd/%d", f);
    SHOW(linkat(AT_FDCWD, proc, AT_FDCWD, "t/other/byname", AT_SYMLINK_FOLLOW)); show_open(f); show_file("t/other/byname"); close(f); show_file("t/other/byname"); show_stat("t/other/byname");
    /* In another directory than it was made in. */
    f = MUST(open("t", O_TMPFILE | O_RDWR, 0600)); SHOW(write(f, "elsewhere", 9)); SHOW(linkat(f, "", AT_FDCWD, "t/other/elsewhere", AT_EMPTY_PATH)); SHOW(linkat(f, "", AT_FDCWD, "t/elsewhere", AT_EMPTY_PATH)); SHOW(rename("t/other/elsewhere", "moved")); SHOW(unlink("t/elsewhere")); close(f); show_file("moved");
    /* Never linked, and not linkable. */
    f = MUST(open("t", O_TMPFILE | O_RDWR | O_EXCL, 0600)); SHOW(write(f, "x", 1)); SHOW(linkat(f, "", d, "excl", AT_EMPTY_PATH)); snprintf(proc, sizeof proc, "/proc/self/fd/%d", f); SHOW(linkat(AT_FDCWD, proc, AT_FDCWD, "t/excl", AT_SYMLINK_FOLLOW)); close(f);
    f = MUST(open("t", O_TMPFILE | O_RDWR, 0600)); int g = MUST(dup(f)); SHOW(write(f, "dup", 3)); close(f); SHOW(pread(g, b, 10, 0)); SHOW(linkat(g, "", d, "dup", AT_EMPTY_PATH)); close(g); show_file("t/dup");
    f = MUST(open("t/file", O_RDONLY)); SHOW(unlink("t/file")); SHOW(linkat(f, "", d, "back", AT_EMPTY_PATH)); close(f);
    /* Many at once, mapped, and with rename over. */
    int many[50]; for (int i = 0; i < 50; i++) { many[i] = MUST(open("t", O_TMPFILE | O_RDWR, 0644)); MUST(dprintf(many[i], "number %d", i)); }
    for (int i = 0; i < 50; i += 2) { char n[40]; snprintf(n, 40, "t/other/n%d", i); MUST(linkat(many[i], "", AT_FDCWD, n, AT_EMPTY_PATH)); }
    for (int i = 0; i < 50; i++) close(many[i]);
    show_tree("t"); show_file("t/other/n48");
    f = MUST(open("t", O_TMPFILE | O_RDWR, 0600)); MUST(ftruncate(f, 4096)); char *m = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0); strcpy(m, "through a map"); SHOW(pread(f, b, 13, 0)); SHOW(linkat(f, "", d, "mapped", AT_EMPTY_PATH)); strcpy(m, "THROUGH"); close(f); show_file("t/mapped"); munmap(m, 4096);
    SHOW(rmdir("t/other")); MUST(mkdir("gone", 0755)); g = MUST(open("gone", O_RDONLY)); MUST(rmdir("gone")); SHOW(linkat(d, "mapped", g, "x", 0)); f = MUST(open("t", O_TMPFILE | O_RDWR, 0600)); SHOW(linkat(f, "", g, "x", AT_EMPTY_PATH)); SHOW(linkat(f, "", d, "late", AT_EMPTY_PATH)); close(f); close(g);
    /* Inherited. */
    f = MUST(open("t", O_TMPFILE | O_RDWR, 0600));
    if (fork() == 0) { dprintf(f, "from the child"); _exit(0); }
    int status; MUST(wait(&status)); printf("%d ", status); SHOW(pread(f, b, 100, 0)); SHOW(lseek(f, 0, SEEK_CUR)); show_open(f); SHOW(pwrite(f, "FROM", 4, 0)); SHOW(pread(f, b, 100, 0)); close(f); show_tree("t");
    close(d);
    MUST(mkdir("sg", 0755)); MUST(chmod("sg", 02755)); f = MUST(open("sg", O_TMPFILE | O_RDWR, 0666)); show_open(f); close(f);
    mode_t old = umask(077); f = MUST(open("t", O_TMPFILE | O_RDWR, 0777)); show_open(f); close(f); umask(old);
}

static void paths_only(void) {
    char b[200]; struct stat s; struct statfs fs; struct flock lock = {.l_type = F_RDLCK}; struct timespec t[2] = {{1, 0}, {2, 0}};
    MUST(mkdir("p", 0755)); put("p/file", "content"); MUST(symlink("file", "p/link")); MUST(mkfifo("p/pipe", 0644));
    const char *names[] = {"p/file", "p", "p/link", "p/pipe", "p/missing", "p/file/"};
    int flags[] = {0, O_NOFOLLOW, O_DIRECTORY, O_RDWR, O_CREAT, O_CREAT | O_EXCL, O_TRUNC, O_NOFOLLOW | O_DIRECTORY, O_TMPFILE, O_APPEND, O_CLOEXEC};
    for (int i = 0; i < 6; i++) for (unsigned j = 0; j < sizeof flags / sizeof *flags; j++) {
        errno = 0; int d = open(names[i], O_PATH | flags[j], 0644);
        printf("O_PATH %s %o: %s\n", names[i], flags[j], errno ? strerrorname_np(errno) : "");
        if (d < 0) continue;
        show_open(d); printf("%d\n", fcntl(d, F_GETFD));
        if (j > 1) { close(d); continue; }
        SHOW(read(d, b, 10)); SHOW(write(d, b, 10)); SHOW(pread(d, b, 10, 0)); SHOW(pwrite(d, b, 10, 0)); SHOW(readv(d, &(struct iovec){b, 1}, 1)); SHOW(lseek(d, 0, SEEK_CUR)); SHOW(lseek(d, 0, SEEK_END)); SHOW(ftruncate(d, 0)); SHOW(fallocate(d, 0, 0, 1)); SHOW(fsync(d)); SHOW(fdatasync(d)); SHOW(syncfs(d)); SHOW(sync_file_range(d, 0, 0, 0)); SHOW(posix_fadvise(d, 0, 0, 0)); SHOW(readahead(d, 0, 1));
        SHOW(fchmod(d, 0600)); SHOW(fchown(d, 0, 0)); SHOW(futimens(d, t)); SHOW(syscall(SYS_getdents64, d, b, 200)); SHOW(ioctl(d, FIONREAD, b)); SHOW(ioctl(d, FIOCLEX)); SHOW(flock(d, LOCK_SH)); SHOW(fcntl(d, F_SETLK, &lock)); SHOW(fcntl(d, F_OFD_SETLK, &lock)); SHOW(fcntl(d, F_GETLK, &lock)); lock.l_type = F_RDLCK; SHOW(fcntl(d, F_SETFL, O_APPEND)); SHOW(fcntl(d, F_GETFL)); SHOW(fcntl(d, F_GETPIPE_SZ)); SHOW(fcntl(d, F_SETPIPE_SZ, 4096)); SHOW(fcntl(d, F_GETLEASE)); SHOW(fcntl(d, F_GETOWN)); SHOW(fcntl(d, F_ADD_SEALS, 0)); SHOW(fcntl(d, 9999)); SHOW(fcntl(d, F_SETFD, FD_CLOEXEC)); SHOW(fcntl(d, F_GETFD));
        SHOW((long)mmap(0, 4096, PROT_READ, MAP_SHARED, d, 0)); SHOW((long)mmap(0, 4096, PROT_READ, MAP_PRIVATE, d, 0)); SHOW(sendfile(1, d, 0, 1)); SHOW(copy_file_range(d, 0, d, 0, 1, 0)); SHOW(splice(d, 0, 1, 0, 1, 0));
        SHOW(fstatfs(d, &fs)); SHOW(fstatat(d, "", &s, AT_EMPTY_PATH)); SHOW(faccessat(d, "", R_OK, AT_EMPTY_PATH)); SHOW(readlinkat(d, "", b, 100)); SHOW(utimensat(d, "", t, AT_EMPTY_PATH)); SHOW(fchownat(d, "", 0, 0, AT_EMPTY_PATH)); SHOW(syscall(452, d, "", 0640, AT_EMPTY_PATH)); SHOW(linkat(d, "", AT_FDCWD, "p/linked", AT_EMPTY_PATH)); SHOW(unlink("p/linked"));
        SHOW(openat(d, "file", O_RDONLY)); close(4); SHOW(fstatat(d, "file", &s, 0)); SHOW(mkdirat(d, "new", 0755)); SHOW(unlinkat(d, "new", AT_REMOVEDIR));
        int e = dup(d); show_open(e); SHOW(close(e)); e = fcntl(d, F_DUPFD, 20); printf("%d\n", e); SHOW(close(e)); SHOW(dup2(d, 30)); show_open(30); SHOW(close(30));
        char proc[40]; snprintf(proc, 40, "/proc/self/fd/%d", d); if (i < 2) { e = open(proc, O_RDONLY); show_open(e); if (i == 0) { SHOW(read(e, b, 10)); } closing(e); SHOW(chmod(proc, 0755)); SHOW(fstatat(d, "", &s, AT_EMPTY_PATH)); SHOW(s.st_mode); }
        SHOW(fchdir(d)); if (i == 1) { SHOW(chdir("..")); }
        SHOW(close(d)); SHOW(close(d));
    }
    show_tree("p");
}

static void how(void) {
    MUST(mkdir("h", 0755)); MUST(mkdir("h/in", 0755)); put("h/in/file", "in"); put("h/file", "file"); MUST(symlink("file", "h/rel")); MUST(symlink("in", "h/dl")); MUST(symlink("../h/file", "h/out")); MUST(symlink("/file", "h/abs")); MUST(symlink("/etc/passwd", "h/host")); MUST(symlink("..", "h/in/up")); MUST(symlink("../..", "h/in/upup")); MUST(symlink("nowhere", "h/dangling"));
    char cwd[1000]; MUST(syscall(SYS_getcwd, cwd, sizeof cwd)); char absolute[1100]; snprintf(absolute, sizeof absolute, "%s/h/file", cwd);
    MUST(symlink(absolute, "h/full"));
    int d = MUST(open("h", O_RDONLY | O_DIRECTORY)), p = MUST(open("h", O_PATH));
    const char *paths[] = {"file", "in/file", "in/../file", "../h/file", "..", ".", "", "/", "/file", "/in/file", "/..", "/../file", "rel", "dl/file", "dl/../file", "out", "abs", "host", "in/up", "in/up/file", "in/upup/file", "in/upup", "dangling", "full", "file/", "in/", "in/up/in/up/file", absolute, "missing", "../../../../../../../file", "../../../../../../../../etc/passwd"};
    uint64_t resolve[] = {0, RESOLVE_NO_XDEV, RESOLVE_NO_MAGICLINKS, RESOLVE_NO_SYMLINKS, RESOLVE_BENEATH, RESOLVE_IN_ROOT, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, RESOLVE_IN_ROOT | RESOLVE_NO_XDEV, RESOLVE_BENEATH | RESOLVE_IN_ROOT, 0x40, 1ull << 32};
    uint64_t flags[] = {O_RDONLY, O_PATH | O_NOFOLLOW, O_RDONLY | O_NOFOLLOW, O_CREAT | O_RDWR};
    for (unsigned k = 0; k < 4; k++) for (unsigned j = 0; j < sizeof resolve / sizeof *resolve; j++) for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++) {
        if (k == 3 && (strstr(paths[i], "missing") || strstr(paths[i], "dangling") || strstr(paths[i], "upup") || !strncmp(paths[i], "../../", 6))) continue;
        for (int w = 0; w < 2; w++) {
            /* Not to be made in the root of the machine. */
            if (k == 3 && !(resolve[j] & (RESOLVE_BENEATH | RESOLVE_IN_ROOT)) && (paths[i][0] == '/' || !strcmp(paths[i], "abs")) && strcmp(paths[i], absolute)) continue;
            errno = 0; long r = open2(w ? p : d, paths[i], flags[k], k == 3 ? 0644 : 0, resolve[j]);
            struct stat s;
            printf("openat2 %d %s %lo %lx: %s", w, strcmp(paths[i], absolute) ? paths[i] : "ABSOLUTE", (long)flags[k], (long)resolve[j], r < 0 ? strerrorname_np(errno) : "");
            if (r >= 0) { fstat(r, &s); printf(" %o %ld", s.st_mode, S_ISREG(s.st_mode) ? (long)s.st_size : 0); close(r); }
            printf("\n");
        }
    }
    for (unsigned j = 0; j < sizeof resolve / sizeof *resolve; j++) {
        long r; MUST(chdir("h"));
        errno = 0; r = open2(AT_FDCWD, "file", O_RDONLY, 0, resolve[j]); printf("cwd %s\n", errno ? strerrorname_np(errno) : ""); closing(r);
        errno = 0; r = open2(AT_FDCWD, "../h/file", O_RDONLY, 0, resolve[j]); printf("cwd .. %s\n", errno ? strerrorname_np(errno) : ""); closing(r);
        errno = 0; r = open2(AT_FDCWD, "/file", O_RDONLY, 0, resolve[j]); printf("cwd / %s\n", errno ? strerrorname_np(errno) : ""); closing(r);
        errno = 0; r = open2(AT_FDCWD, absolute, O_RDONLY, 0, resolve[j]); printf("cwd absolute %s\n", errno ? strerrorname_np(errno) : ""); closing(r);
        MUST(chdir(".."));
    }
    /* Flags and sizes. */
    for (int bit = 0; bit < 64; bit++) { errno = 0; long r = open2(d, "file", 1ull << bit, 0, 0); printf("flag %d: %s\n", bit, r < 0 ? strerrorname_np(errno) : "fine"); if (r >= 0) { show_open(r); close(r); } }
    for (int bit = 0; bit < 64; bit++) { errno = 0; long r = open2(d, "made", O_CREAT | O_RDWR, 1ull << bit, 0); printf("mode %d: %s\n", bit, r < 0 ? strerrorname_np(errno) : "fine"); if (r >= 0) { show_open(r); close(r); unlink("h/made"); } }
    /* What RESOLVE_CACHED finds is the cache's business; only what it refuses is not. */
    closing(open2(d, "file", O_RDONLY, 0644, 0)); SHOW(open2(d, "file", O_RDONLY, 0644, 0)); SHOW(open2(d, "in", O_CREAT | O_DIRECTORY, 0644, 0)); SHOW(open2(d, ".", O_TMPFILE | O_RDONLY, 0644, 0)); SHOW(open2(d, ".", (O_TMPFILE & ~O_DIRECTORY) | O_RDWR, 0644, 0)); SHOW(open2(d, "file", O_PATH | O_RDWR, 0, 0)); SHOW(open2(d, "file", O_PATH | O_TRUNC, 0, 0)); SHOW(open2(d, "file", O_RDWR | O_TRUNC, 0, RESOLVE_CACHED)); SHOW(open2(d, "missing", O_RDONLY, 0, RESOLVE_CACHED)); SHOW(open2(77, "file", O_RDONLY, 0, 0)); SHOW(open2(77, "file", O_RDONLY, 0, 0x40)); SHOW(open2(d, "file", O_RDWR | O_CREAT | O_EXCL, 0644, 0)); SHOW(open2(d, "new", O_RDWR | O_CREAT | O_EXCL, 0666, RESOLVE_BENEATH)); show_stat("h/new"); SHOW(close(5));
    long r = open2(d, ".", O_TMPFILE | O_RDWR, 0644, RESOLVE_BENEATH); show_open(r); closing(r);
    struct { struct open_how how; uint64_t more[600]; } big = {{O_RDONLY, 0, 0}, {0}};
    for (int size = 0; size < 4200; size += size < 40 ? 1 : 97) { errno = 0; long r = syscall(SYS_openat2, d, "file", &big, size); printf("size %d: %s\n", size, r < 0 ? strerrorname_np(errno) : "fine"); closing(r); }
    big.more[3] = 1; for (int size = 24; size < 80; size += 4) { errno = 0; long r = syscall(SYS_openat2, d, "file", &big, size); printf("size %d: %s\n", size, r < 0 ? strerrorname_np(errno) : "fine"); closing(r); }
    close(d); close(p);
}

static void transfer_flags(void) {
    char b[40]; struct iovec v[2] = {{b, 5}, {b + 5, 5}};
    for (int open_flags = 0; open_flags < 2; open_flags++) for (int bit = -1; bit < 12; bit++) for (int second = -1; second < 7; second++) for (int position = -1; position < 8; position += 4) {
        int flags = (bit < 0 ? 0 : 1 << bit) | (second < 0 ? 0 : 1 << second);
        put("rw", "0123456789");
        int d = MUST(open("rw", O_RDWR | (open_flags ? O_APPEND : 0))); MUST(lseek(d, 2, SEEK_SET));
        memcpy(b, "abcdefghij", 10); errno = 0;
        long r = pwritev2(d, v, 2, position, flags); printf("pwritev2 %d %x at %d: %ld %s %ld ", open_flags, flags, position, r, errno ? strerrorname_np(errno) : "", (long)lseek(d, 0, SEEK_CUR)); show_file("rw");
        MUST(lseek(d, 2, SEEK_SET)); errno = 0; memset(b, '.', 10);
        r = preadv2(d, v, 2, position, flags); printf("preadv2 %x at %d: %ld %s %.10s %ld\n", flags, position, r, errno ? strerrorname_np(errno) : "", b, (long)lseek(d, 0, SEEK_CUR));
        close(d);
    }
    static char large[100000]; memset(large, 'L', sizeof large); struct iovec l[3] = {{large, 50000}, {large, 10}, {large, 40000}};
    int d = MUST(open("rw", O_RDWR)); SHOW(pwritev2(d, l, 3, 0, RWF_APPEND)); SHOW(lseek(d, 0, SEEK_END)); SHOW(pwritev2(d, l, 3, -1, RWF_APPEND)); SHOW(lseek(d, 0, SEEK_CUR)); SHOW(pwritev2(d, l, 0, 0, RWF_APPEND)); SHOW(pwritev2(d, l, 3, -2, 0)); SHOW(preadv2(d, l, 3, -2, 0)); SHOW(pwritev2(d, l, 3, -2, 0x1000)); close(d);
    d = MUST(open("rw", O_RDONLY)); SHOW(pwritev2(d, l, 1, 0, 0)); SHOW(pwritev2(d, l, 1, 0, 0x1000)); close(d); d = MUST(open("rw", O_WRONLY)); SHOW(preadv2(d, l, 1, 0, 0)); close(d); SHOW(preadv2(77, l, 1, 0, 0x1000));
    /* At the largest position. */
    off_t most = INT64_MAX;
    d = MUST(open("rw", O_RDONLY)); SHOW(pread(d, b, 0, most)); SHOW(pread(d, b, 1, most)); SHOW(pread(d, b, 10, most - 9)); SHOW(pread(d, b, 10, most - 10)); SHOW(preadv(d, v, 2, most)); SHOW(preadv(d, v, 2, most - 10)); SHOW(pwrite(d, b, 1, most)); SHOW(lseek(d, most, SEEK_SET)); SHOW(read(d, b, 0)); SHOW(read(d, b, 1)); SHOW(readv(d, v, 2)); close(d);
    d = MUST(open("rw", O_RDWR | O_APPEND)); SHOW(pwrite(d, b, 1, most)); SHOW(pwrite(d, b, 0, most)); SHOW(pwritev(d, v, 2, most)); close(d); d = MUST(open("rw", O_RDWR)); SHOW(pwrite(d, b, 1, most)); SHOW(pwritev(d, v, 2, most)); SHOW(lseek(d, most, SEEK_SET)); SHOW(write(d, b, 1)); close(d); d = MUST(open(".", O_RDONLY)); SHOW(pread(d, b, 1, most)); close(d); show_stat("rw");
    /* Direct, and neither to read nor to write. */
    d = open("rw", O_RDWR | O_DIRECT); SHOW(d >= 0); if (d >= 0) { show_open(d); SHOW(pread(d, b + 1, 7, 3)); SHOW(pwrite(d, "odd", 3, 5)); SHOW(pread(d, large, 4096, 4096)); SHOW(fcntl(d, F_SETFL, 0)); show_open(d); SHOW(fcntl(d, F_SETFL, O_DIRECT | O_APPEND | O_NONBLOCK | O_ASYNC | O_SYNC | O_NOATIME | O_CREAT | O_RDWR)); show_open(d); close(d); }
    d = open("rw", 3); SHOW(d >= 0); if (d >= 0) { show_open(d); SHOW(read(d, b, 1)); SHOW(write(d, b, 1)); SHOW(ftruncate(d, 1)); SHOW(fchmod(d, 0644)); SHOW(lseek(d, 1, SEEK_SET)); SHOW((long)mmap(0, 4096, PROT_READ, MAP_SHARED, d, 0)); SHOW(fsync(d)); SHOW(flock(d, LOCK_EX)); close(d); }
    SHOW(open("rw", 3 | O_CREAT | O_EXCL, 0644)); d = open("three", 3 | O_CREAT, 0644); SHOW(d >= 0); if (d >= 0) { show_open(d); close(d); } SHOW(open(".", 3)); d = open("rw", O_RDONLY | O_TRUNC); show_open(d); close(d); show_stat("rw");
    d = MUST(open("rw", O_RDONLY | O_NOATIME)); show_open(d); close(d); d = MUST(open("rw", O_RDWR | O_SYNC | O_DSYNC | O_NOCTTY | O_NONBLOCK | O_ASYNC | O_LARGEFILE)); show_open(d); close(d);
    d = MUST(open("rw", O_RDONLY)); SHOW(close(d)); SHOW(open("", O_RDONLY)); SHOW(open("", O_RDONLY | O_CREAT, 0644)); SHOW(open("rw", O_RDONLY | O_DIRECTORY)); SHOW(open("rw", O_CREAT | O_DIRECTORY, 0644)); SHOW(open(".", O_CREAT | O_RDONLY, 0644)); SHOW(open(".", O_RDWR)); SHOW(open(".", O_RDONLY | O_TRUNC)); SHOW(open("new/", O_CREAT | O_RDWR, 0644)); SHOW(open("rw/", O_RDONLY)); SHOW(open("rw/", O_CREAT | O_RDONLY, 0644)); SHOW(open("rw", O_CREAT | O_EXCL, 0644));
    struct file_handle *handle = calloc(1, 200); int id; handle->handle_bytes = 128; SHOW(name_to_handle_at(AT_FDCWD, "missing", handle, &id, 0)); SHOW(name_to_handle_at(77, "missing", handle, &id, 0)); SHOW(name_to_handle_at(AT_FDCWD, "missing/x", handle, &id, 0)); free(handle);
}

int main(int argc, char **argv) {
    begin(argv);
    MUST(symlink("nowhere", "dangling"));
    nameless(); paths_only(); how(); transfer_flags();
    return 0;
}
