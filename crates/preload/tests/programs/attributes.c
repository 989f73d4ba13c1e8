/* Calls that tell and change attributes, in all their forms, with every flag and every kind of file. */
#include "show.h"
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <sys/wait.h>

static const char *kinds[] = {"file", "dir", "link", "dirlink", "dangling", "loop", "pipe", "missing", "file/", "dir/", "link/", "dirlink/", "dangling/", "missing/", "file/x", "dir/x", "dir/.", "dir/..", "", ".", "..", "dir//", "./file", "file/.", "file/..", "link/.", "dirlink/.", "long"};
enum { KINDS = sizeof kinds / sizeof *kinds };
static char longer[300];
static const char *kind(int i) { return strcmp(kinds[i], "long") ? kinds[i] : longer; }

static void make(void) {
    MUST(mkdir("a", 0755)); MUST(chdir("a"));
    put("file", "content"); MUST(mkdir("dir", 0755)); MUST(symlink("file", "link")); MUST(symlink("dir", "dirlink")); MUST(symlink("nowhere", "dangling")); MUST(symlink("loop", "loop")); MUST(mkfifo("pipe", 0644));
}
static void show(const char *what, long r, int error) { printf("%s = %ld %s\n", what, r, r < 0 ? strerrorname_np(error) : ""); }
#define CALL(format, call, ...) do { char what_[600]; snprintf(what_, sizeof what_, format, __VA_ARGS__); errno = 0; long r_ = (long)(call); int e_ = errno; show(what_, r_, e_); } while (0)

static int accessed = 1;
/* Times as set, or whether they are of now. */
static void show_times(const char *name) {
    struct stat s; if (lstat(name, &s)) { printf("%s: %s\n", name, strerrorname_np(errno)); return; }
    struct timespec now; clock_gettime(CLOCK_REALTIME, &now);
    struct timespec *t[] = {&s.st_atim, &s.st_mtim, &s.st_ctim};
    printf("%s:", name);
    /* Looking at a link or reading moves the first time of tmpfs alone: it is shown where a call sets it. */
    for (int i = S_ISLNK(s.st_mode) || !accessed; i < 3; i++) if (t[i]->tv_sec > now.tv_sec - 1000 && t[i]->tv_sec < now.tv_sec + 10) printf(" now"); else printf(" %ld.%09ld", t[i]->tv_sec, t[i]->tv_nsec);
    printf("\n");
}
static void reset(void) { struct timespec t[2] = {{11, 22}, {33, 44}}; const char *n[] = {"file", "dir", "link", "dirlink", "pipe", "dangling"}; for (int i = 0; i < 6; i++) MUST(utimensat(AT_FDCWD, n[i], t, AT_SYMLINK_NOFOLLOW)); }
static void all_times(void) { const char *n[] = {"file", "dir", "link", "dirlink", "pipe"}; for (int i = 0; i < 5; i++) show_times(n[i]); }

static void times(void) {
    struct timespec forms[][2] = {{{5, 6}, {7, 8}}, {{0, UTIME_NOW}, {0, UTIME_NOW}}, {{0, UTIME_OMIT}, {0, UTIME_OMIT}}, {{9, UTIME_NOW}, {7, 8}}, {{5, 6}, {9, UTIME_NOW}}, {{0, UTIME_OMIT}, {7, 8}}, {{5, 6}, {0, UTIME_OMIT}}, {{0, UTIME_NOW}, {0, UTIME_OMIT}}, {{0, UTIME_OMIT}, {0, UTIME_NOW}}, {{5, -1}, {7, 8}}, {{5, 6}, {7, 1000000000}}, {{5, 999999999}, {7, 0}}, {{-5, 6}, {-7, 8}}, {{1l << 31, 0}, {1l << 32, 1}}, {{4102444800, 5}, {9000000000, 999999999}}, {{5, 1l << 32}, {7, 8}}, {{5, -2}, {0, UTIME_OMIT}}};
    for (unsigned f = 0; f < sizeof forms / sizeof *forms + 1; f++) {
        struct timespec *t = f < sizeof forms / sizeof *forms ? forms[f] : 0;
        for (int i = 0; i < KINDS; i++) for (int flag = 0; flag < 2; flag++) { if (f > 2 && i > 6) continue; reset(); CALL("utimensat %s %u %d", utimensat(AT_FDCWD, kind(i), t, flag ? AT_SYMLINK_NOFOLLOW : 0), kinds[i], f, flag); if (i < 4) all_times(); }
        reset(); int d = MUST(open("file", O_RDONLY)); CALL("futimens %u", futimens(d, t), f); show_times("file"); close(d);
        reset(); d = MUST(open("dir", O_RDONLY)); CALL("futimens dir %u", futimens(d, t), f); show_times("dir"); CALL("utimensat null %u", syscall(SYS_utimensat, d, 0, t, 0), f); CALL("utimensat null flags %u", syscall(SYS_utimensat, d, 0, t, AT_SYMLINK_NOFOLLOW), f); CALL("utimensat empty %u", syscall(SYS_utimensat, d, "", t, 0), f); CALL("utimensat empty path %u", syscall(SYS_utimensat, d, "", t, AT_EMPTY_PATH), f); show_times("dir"); close(d);
    }
    int bad[] = {1, 2, 0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000, 1 << 30};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) { CALL("utimensat flags %x", syscall(SYS_utimensat, AT_FDCWD, "file", forms[0], bad[i]), bad[i]); CALL("utimensat flags %x omit", syscall(SYS_utimensat, AT_FDCWD, "file", forms[2], bad[i]), bad[i]); CALL("utimensat flags %x missing", syscall(SYS_utimensat, AT_FDCWD, "missing", forms[0], bad[i]), bad[i]); }
    SHOW(utimensat(77, "file", forms[0], 0)); SHOW(futimens(77, forms[0])); SHOW(futimens(77, forms[2])); SHOW(syscall(SYS_utimensat, AT_FDCWD, 0, 0, 0)); SHOW(syscall(SYS_utimensat, AT_FDCWD, 0, forms[2], 0)); SHOW(syscall(SYS_utimensat, AT_FDCWD, "", 0, AT_EMPTY_PATH)); SHOW(utimensat(77, "missing", forms[2], 0)); SHOW(utimensat(AT_FDCWD, "missing", forms[2], 0)); SHOW(utimensat(AT_FDCWD, "missing", forms[9], 0)); SHOW(futimens(-1, forms[9]));
    struct timeval v[][2] = {{{5, 6}, {7, 8}}, {{5, -1}, {7, 8}}, {{5, 6}, {7, 1000000}}, {{5, 999999}, {-7, 0}}};
    for (int f = 0; f < 5; f++) { struct timeval *t = f < 4 ? v[f] : 0; for (int i = 0; i < 12; i++) { reset(); CALL("utimes %s %d", utimes(kind(i), t), kinds[i], f); if (i < 4) all_times(); reset(); CALL("lutimes %s %d", lutimes(kind(i), t), kinds[i], f); if (i < 4) all_times(); reset(); CALL("futimesat %s %d", syscall(SYS_futimesat, AT_FDCWD, kind(i), t), kinds[i], f); if (i < 4) all_times(); } int d = MUST(open("file", O_RDONLY)); reset(); CALL("futimes %d", futimes(d, t), f); show_times("file"); CALL("futimesat null %d", syscall(SYS_futimesat, d, 0, t), f); CALL("futimesat 77 %d", syscall(SYS_futimesat, 77, "x", t), f); close(d); }
    struct utimbuf u = {5, 7}; for (int f = 0; f < 2; f++) for (int i = 0; i < 12; i++) { reset(); CALL("utime %s %d", utime(kind(i), f ? 0 : &u), kinds[i], f); if (i < 4) all_times(); }
    /* Which calls move which times. */
    accessed = 0;
    char b[10]; int d;
#define MOVES(call) do { reset(); SHOW(call); all_times(); } while (0)
    d = MUST(open("file", O_RDWR)); MOVES(read(d, b, 3)); MOVES(write(d, "x", 1)); MOVES(write(d, "", 0)); MOVES(ftruncate(d, 7)); MOVES(ftruncate(d, 8)); MOVES(ftruncate(d, 7)); MOVES(fchmod(d, 0644)); MOVES(fchown(d, -1, -1)); MOVES(fchown(d, 0, 0)); MOVES(fallocate(d, 0, 0, 100)); MOVES(fallocate(d, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 10)); MOVES(fsync(d)); close(d);
    MOVES(truncate("file", 5)); MOVES(chmod("dir", 0755)); MOVES(rename("file", "file2")); MOVES(rename("file2", "file")); MOVES(link("file", "hard")); MOVES(unlink("hard")); MOVES(open("file", O_RDONLY)); MOVES(close(3)); MOVES(open("file", O_RDONLY | O_TRUNC)); MOVES(close(3)); MOVES(mkdir("dir/sub", 0755)); MOVES(rmdir("dir/sub")); MOVES(symlink("x", "dir/s")); MOVES(unlink("dir/s")); MOVES(mkfifo("dir/p", 0644)); MOVES(rename("dir/p", "dir/q")); MOVES(unlink("dir/q")); MOVES(rename("file", "file")); MOVES(chown("file", -1, 0)); MOVES(lchown("link", 0, 0)); MOVES(open("dir/new", O_CREAT | O_RDWR, 0644)); MOVES(close(3)); MOVES(unlink("dir/new")); MOVES(readlink("link", b, 10)); MOVES(access("file", R_OK));
    put("file", "content");
}

static void statx_forms(void) {
    unsigned masks[] = {0, STATX_BASIC_STATS, STATX_ALL, STATX_TYPE, STATX_SIZE | STATX_MODE, STATX_BTIME, STATX_MNT_ID, STATX__RESERVED, 0x1000, 0xffffffff & ~STATX__RESERVED};
    int flags[] = {0, AT_SYMLINK_NOFOLLOW, AT_NO_AUTOMOUNT, AT_EMPTY_PATH, AT_STATX_FORCE_SYNC, AT_STATX_DONT_SYNC, AT_STATX_SYNC_TYPE, 1, 2, AT_REMOVEDIR, AT_SYMLINK_FOLLOW, 0x8000, 0x10000, 1 << 30};
    struct statx x;
    for (unsigned m = 0; m < sizeof masks / sizeof *masks; m++) { memset(&x, 0x55, sizeof x); CALL("statx mask %x", statx(AT_FDCWD, "file", 0, masks[m], &x), masks[m]); printf("%x %o %ld %ld %d\n", x.stx_mask & STATX_BASIC_STATS, x.stx_mode, (long)x.stx_size, (long)x.stx_nlink, x.stx_blksize); }
    for (unsigned f = 0; f < sizeof flags / sizeof *flags; f++) for (int i = 0; i < KINDS; i++) { memset(&x, 0, sizeof x); CALL("statx %s flags %x", statx(AT_FDCWD, kind(i), flags[f], STATX_BASIC_STATS, &x), kinds[i], flags[f]); printf("%o\n", x.stx_mode); struct stat s; memset(&s, 0, sizeof s); CALL("fstatat %s flags %x", syscall(SYS_newfstatat, AT_FDCWD, kind(i), &s, flags[f]), kinds[i], flags[f]); printf("%o %ld %d\n", s.st_mode, S_ISREG(s.st_mode) ? (long)s.st_size : 0, (int)s.st_blksize); }
    for (int i = 0; i < KINDS; i++) { struct stat s; memset(&s, 0, sizeof s); CALL("stat %s", stat(kind(i), &s), kinds[i]); printf("%o\n", s.st_mode); memset(&s, 0, sizeof s); CALL("lstat %s", lstat(kind(i), &s), kinds[i]); printf("%o\n", s.st_mode); struct statfs f; CALL("statfs %s", statfs(kind(i), &f), kinds[i]); struct statvfs v; CALL("statvfs %s", statvfs(kind(i), &v), kinds[i]); }
    struct stat s; int d = MUST(open("file", O_RDONLY)), e = MUST(open("dir", O_RDONLY)), p = MUST(open("link", O_PATH | O_NOFOLLOW));
    SHOW(statx(d, "", AT_EMPTY_PATH, STATX_ALL, &x)); SHOW(x.stx_size); SHOW(statx(d, "", 0, STATX_ALL, &x)); SHOW(statx(e, "", AT_EMPTY_PATH, 0, &x)); SHOW(statx(p, "", AT_EMPTY_PATH, STATX_ALL, &x)); printf("%o\n", x.stx_mode); SHOW(statx(AT_FDCWD, "", AT_EMPTY_PATH, STATX_ALL, &x)); printf("%o\n", x.stx_mode); SHOW(statx(77, "", AT_EMPTY_PATH, STATX_ALL, &x)); SHOW(statx(-1, "", AT_EMPTY_PATH, STATX_ALL, &x)); SHOW(statx(77, "file", 0, STATX_ALL, &x)); SHOW(statx(d, "file", 0, STATX_ALL, &x)); SHOW(statx(e, "../file", 0, STATX_ALL, &x)); SHOW(syscall(SYS_statx, d, 0, AT_EMPTY_PATH, STATX_ALL, &x)); SHOW(syscall(SYS_statx, AT_FDCWD, 0, AT_EMPTY_PATH, STATX_ALL, &x)); SHOW(syscall(SYS_statx, d, 0, 0, STATX_ALL, &x));
    SHOW(fstatat(d, "", &s, AT_EMPTY_PATH)); SHOW(fstatat(d, "", &s, 0)); SHOW(fstatat(AT_FDCWD, "", &s, AT_EMPTY_PATH)); printf("%o\n", s.st_mode); SHOW(fstatat(77, "", &s, AT_EMPTY_PATH)); SHOW(fstatat(77, "x", &s, 0)); SHOW(fstatat(d, "x", &s, 0)); SHOW(fstat(77, &s)); SHOW(fstat(-1, &s)); SHOW(syscall(SYS_newfstatat, d, 0, &s, AT_EMPTY_PATH)); SHOW(syscall(SYS_newfstatat, d, 0, &s, 0));
    struct stat t; MUST(stat("file", &s)); MUST(statx(AT_FDCWD, "file", 0, STATX_ALL, &x)); MUST(fstat(d, &t)); SHOW(s.st_ino == x.stx_ino && s.st_dev == makedev(x.stx_dev_major, x.stx_dev_minor) && t.st_ino == s.st_ino && t.st_dev == s.st_dev && s.st_mtim.tv_nsec == x.stx_mtime.tv_nsec && s.st_blocks == (long)x.stx_blocks && s.st_rdev == 0);
    close(d); close(e); close(p);
}

static void access_forms(void) {
    int modes[] = {F_OK, R_OK, W_OK, X_OK, R_OK | W_OK | X_OK, 8, -1, 1 << 20}, flags[] = {0, AT_EACCESS, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_EACCESS | AT_SYMLINK_NOFOLLOW, 1, 0x400, 0x800, 1 << 30};
    MUST(chmod("file", 0644));
    for (unsigned m = 0; m < 8; m++) for (int i = 0; i < KINDS; i++) { CALL("access %s %d", access(kind(i), modes[m]), kinds[i], modes[m]); if (m > 4 && i > 3) continue; for (int f = 0; f < 9; f++) { CALL("faccessat2 %s %d %x", syscall(SYS_faccessat2, AT_FDCWD, kind(i), modes[m], flags[f]), kinds[i], modes[m], flags[f]); if (f < 6) CALL("faccessat %s %d %x", faccessat(AT_FDCWD, kind(i), modes[m], flags[f]), kinds[i], modes[m], flags[f]); } CALL("faccessat raw %s %d", syscall(SYS_faccessat, AT_FDCWD, kind(i), modes[m]), kinds[i], modes[m]); if (m < 5) CALL("euidaccess %s", euidaccess(kind(i), modes[m]), kinds[i]); }
    int d = MUST(open("file", O_RDONLY)); SHOW(faccessat(d, "", R_OK, AT_EMPTY_PATH)); SHOW(faccessat(d, "", X_OK, AT_EMPTY_PATH)); SHOW(faccessat(77, "", R_OK, AT_EMPTY_PATH)); SHOW(faccessat(d, "", R_OK, 0)); SHOW(faccessat(77, "file", R_OK, 0)); SHOW(faccessat(d, "file", R_OK, 0)); SHOW(faccessat(AT_FDCWD, "", R_OK, AT_EMPTY_PATH)); close(d);
    MUST(chmod("file", 0755)); SHOW(access("file", X_OK)); MUST(chmod("file", 0001)); SHOW(access("file", X_OK)); MUST(chmod("file", 0)); SHOW(access("file", X_OK)); SHOW(access("file", R_OK | W_OK)); MUST(chmod("dir", 0)); SHOW(access("dir", X_OK)); MUST(chmod("dir", 0755)); MUST(chmod("file", 0644));
}

static void modes_and_owners(void) {
    int flags[] = {0, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, 1, 0x200, 0x400, 0x800, 0x2000, 1 << 30};
    for (int i = 0; i < KINDS; i++) { if (strstr(kinds[i], "..")) continue; CALL("chmod %s", chmod(kind(i), 0754), kinds[i]); CALL("fchmodat %s", syscall(SYS_fchmodat, AT_FDCWD, kind(i), 0755), kinds[i]); for (int f = 0; f < 10; f++) { CALL("fchmodat2 %s %x", syscall(452, AT_FDCWD, kind(i), 0744, flags[f]), kinds[i], flags[f]); if (!(flags[f] & AT_EMPTY_PATH)) CALL("libc's fchmodat %s %x", fchmodat(AT_FDCWD, kind(i), 0745, flags[f]), kinds[i], flags[f]); CALL("fchownat %s %x", fchownat(AT_FDCWD, kind(i), 3, 4, flags[f]), kinds[i], flags[f]); } CALL("lchmod %s", lchmod(kind(i), 0711), kinds[i]); CALL("chown %s", chown(kind(i), 1, 2), kinds[i]); CALL("lchown %s", lchown(kind(i), 5, 6), kinds[i]); }
    show_tree("."); struct stat s; const char *n[] = {"file", "dir", "link", "dirlink", "pipe"}; for (int i = 0; i < 5; i++) { MUST(lstat(n[i], &s)); printf("%s %d %d\n", n[i], s.st_uid, s.st_gid); }
    unsigned bits[] = {0, 0777, 01777, 02777, 04777, 07777, 010000, 0100644, 0177777, 0xffffffff}; for (int i = 0; i < 10; i++) { CALL("chmod %o", chmod("file", bits[i]), bits[i]); show_stat("file"); int d = open("file", O_RDONLY); CALL("fchmod %o", fchmod(d, bits[i]), bits[i]); show_stat("file"); close(d); CALL("chmod dir %o", chmod("dir", bits[i]), bits[i]); show_stat("dir"); }
    MUST(chmod("dir", 0755));
    MUST(chmod("file", 06777)); SHOW(chown("file", 0, 0)); show_stat("file"); MUST(chmod("file", 06777)); SHOW(chown("file", -1, -1)); show_stat("file"); MUST(chmod("file", 06767)); SHOW(chown("file", 7, -1)); show_stat("file"); MUST(chmod("file", 06777)); int w = MUST(open("file", O_WRONLY)); SHOW(write(w, "x", 1)); show_stat("file"); SHOW(ftruncate(w, 3)); show_stat("file"); close(w); MUST(chmod("dir", 06777)); SHOW(chown("dir", 7, 7)); show_stat("dir"); MUST(chown("dir", 0, 0)); MUST(chown("file", 0, 0)); MUST(chmod("file", 0644)); MUST(chmod("dir", 0755));
    int d = MUST(open("file", O_RDONLY)), e = MUST(open("dir", O_RDONLY)), p = MUST(open("link", O_PATH | O_NOFOLLOW));
    SHOW(fchmodat(e, "../file", 0600, 0)); SHOW(fchmodat(77, "x", 0600, 0)); SHOW(fchmodat(d, "x", 0600, 0)); SHOW(fchmod(77, 0600)); SHOW(fchmod(-1, 0600)); SHOW(fchown(77, 0, 0)); SHOW(syscall(452, d, "", 0610, AT_EMPTY_PATH)); SHOW(syscall(452, p, "", 0610, AT_EMPTY_PATH)); SHOW(syscall(452, d, "", 0610, 0)); SHOW(fchownat(p, "", 9, 9, AT_EMPTY_PATH)); SHOW(fchownat(d, "", 9, 9, 0)); SHOW(fchownat(AT_FDCWD, "", 9, 9, AT_EMPTY_PATH)); SHOW(fchownat(77, "", 9, 9, AT_EMPTY_PATH)); MUST(stat(".", &s)); printf("%d %d\n", s.st_uid, s.st_gid); SHOW(syscall(452, AT_FDCWD, "", 0700, AT_EMPTY_PATH)); show_stat("."); MUST(chown(".", 0, 0)); SHOW(chmod(".", 0755)); MUST(chmod("file", 0644)); MUST(chown("file", 0, 0)); close(d); close(e); close(p);
    /* The umask, and what is made under it. */
    mode_t masks[] = {0, 022, 077, 0777, 01777, 07777, 0xffffffff};
    for (int m = 0; m < 7; m++) { printf("umask %o was %o\n", masks[m], umask(masks[m])); int f = open("made", O_CREAT | O_RDWR, 06777); close(f); mkdir("made-dir", 07777); mkfifo("made-pipe", 0777); mknod("made-node", S_IFREG | 07777, 0); symlink("x", "made-link"); creat("made-creat", 0666); close(3); show_stat("made"); show_stat("made-dir"); show_stat("made-pipe"); show_stat("made-node"); show_stat("made-link"); show_stat("made-creat"); unlink("made"); rmdir("made-dir"); unlink("made-pipe"); unlink("made-node"); unlink("made-link"); unlink("made-creat"); }
    umask(022); SHOW(umask(022)); if (fork() == 0) { SHOW(umask(0)); _exit(0); } wait(0); SHOW(umask(022));
}

static void sizes(void) {
    long lengths[] = {0, 5, 7, 100, 4096, -1, LONG_MIN, LONG_MAX, 1l << 40};
    for (int i = 0; i < KINDS; i++) for (int l = 0; l < 9; l++) { if (l > 6 && i != 2 && i != 1 && i < 6) continue; if (lengths[l] == LONG_MAX) continue; CALL("truncate %s %ld", truncate(kind(i), lengths[l]), kinds[i], lengths[l]); }
    show_stat("file"); MUST(truncate("file", 0));
    MUST(truncate("file", 10));
    int r = MUST(open("file", O_RDONLY)), w = MUST(open("file", O_WRONLY)), b = MUST(open("file", O_RDWR)), d = MUST(open("dir", O_RDONLY)), p = MUST(open("file", O_PATH)), a = MUST(open("file", O_WRONLY | O_APPEND));
    int fds[] = {r, w, b, d, p, a, 77, -1}; for (int f = 0; f < 8; f++) for (int l = 0; l < 7; l++) { CALL("ftruncate %d %ld", ftruncate(fds[f], lengths[l]), f, lengths[l]); show_stat("file"); }
    for (int f = 0; f < 8; f++) for (int m = 0; m < 2; m++) { CALL("fallocate %d %d", fallocate(fds[f], m, 0, 10), f, m); CALL("fallocate %d %d zero", fallocate(fds[f], m, 0, 0), f, m); CALL("fallocate %d %d negative", fallocate(fds[f], m, -1, 10), f, m); CALL("fallocate %d %d far", fallocate(fds[f], m, LONG_MAX, 10), f, m); CALL("posix_fallocate %d", posix_fallocate(fds[f], 0, 10), f); CALL("fsync %d", fsync(fds[f]), f); CALL("fdatasync %d", fdatasync(fds[f]), f); CALL("syncfs %d", syncfs(fds[f]), f); CALL("sync_file_range %d", sync_file_range(fds[f], 0, 0, 2), f); CALL("sync_file_range %d bad", sync_file_range(fds[f], 0, 0, 0x80), f); CALL("sync_file_range %d negative", sync_file_range(fds[f], -1, 0, 2), f); CALL("fadvise %d", posix_fadvise(fds[f], 0, 0, 0), f); CALL("fadvise %d bad", posix_fadvise(fds[f], 0, 0, 77), f); CALL("readahead %d", readahead(fds[f], 0, 10), f); }
    close(r); close(w); close(b); close(d); close(p); close(a);
}

int main(int argc, char **argv) {
    begin(argv);
    memset(longer, 'n', 256); longer[256] = 0;
    make();
    times(); statx_forms(); access_forms(); sizes(); modes_and_owners();
    return 0;
}
