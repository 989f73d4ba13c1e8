/* The calls of extended attributes, in all their forms: every error of the manual pages, on every kind of file. */
#include "show.h"
#include <sys/xattr.h>

static char buffer[70000];
/* Addresses where nothing is. */
static void *volatile bad = (void *)8, *volatile null;

/* Of a value or list: how long, and its beginning. */
static void show_bytes(const char *what, long n) {
    printf("  %s = %ld%s%s", what, n, n < 0 ? " " : "", n < 0 ? strerrorname_np(errno) : "");
    for (long i = 0; i < n && i < 40; i++) printf("%c", buffer[i] < 32 || buffer[i] > 126 ? '.' : buffer[i]);
    printf("\n");
}

/* Names in order, from a list with a NUL behind each. */
static void show_names(long n) {
    char *names[100];
    int count = 0;
    if (n < 0) { printf("  %s\n", strerrorname_np(errno)); return; }
    for (char *at = buffer; at < buffer + n; at += strlen(at) + 1) names[count++] = at;
    qsort(names, count, sizeof *names, by_name);
    printf("  %ld:", n);
    for (int i = 0; i < count; i++) printf(" %.20s", names[i]);
    printf("\n");
}

/* Everything that can be done with a name, on a path, on what a link itself is, and on a descriptor. */
static void all(const char *path, int descriptor, const char *name) {
    for (int how = 0; how < 3; how++) {
        if ((how == 2) != (path == 0)) continue;
        printf("%s %d \"%.20s\" (%zu) how %d\n", path ? path : "-", descriptor >= 0, name, strlen(name), how);
#define DO(what, ...) (how == 0 ? what(path, ##__VA_ARGS__) : how == 1 ? l##what(path, ##__VA_ARGS__) : f##what(descriptor, ##__VA_ARGS__))
        SHOW(DO(removexattr, name)); SHOW(DO(setxattr, name, "replaced", 8, XATTR_REPLACE));
        SHOW(DO(setxattr, name, "created", 7, XATTR_CREATE)); SHOW(DO(setxattr, name, "again", 5, XATTR_CREATE));
        SHOW(DO(setxattr, name, "both", 4, XATTR_CREATE | XATTR_REPLACE)); SHOW(DO(setxattr, name, "bad", 3, 4));
        show_bytes("got", DO(getxattr, name, buffer, sizeof buffer)); show_bytes("short", DO(getxattr, name, buffer, 3)); SHOW(DO(getxattr, name, 0, 0));
        SHOW(DO(setxattr, name, "replaced", 8, XATTR_REPLACE)); show_bytes("got", DO(getxattr, name, buffer, 8));
        SHOW(DO(setxattr, name, 0, 0, 0)); SHOW(DO(getxattr, name, buffer, 8));
#undef DO
#define DO(...) (how == 0 ? listxattr(path, __VA_ARGS__) : how == 1 ? llistxattr(path, __VA_ARGS__) : flistxattr(descriptor, __VA_ARGS__))
        show_names(DO(buffer, sizeof buffer)); SHOW(DO(buffer, 3)); SHOW(DO(0, 0));
#undef DO
    }
}

struct value { uint64_t address; uint32_t size, flags; uint64_t more[4]; };
#define SETXATTRAT 463
#define GETXATTRAT 464
#define LISTXATTRAT 465
#define REMOVEXATTRAT 466

/* The forms with a directory, of Linux 6.13. */
static void newest(void) {
    int here = MUST(open(".", O_RDONLY)), file = MUST(open("f", O_RDONLY)), path_only = MUST(open("f", O_PATH));
    struct value v = {(uint64_t)(uintptr_t)"newest", 6, 0, {0}};
    if (syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 16) != 0 && errno == ENOSYS) { printf("an older kernel\n"); return; }
    SHOW(syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 16)); SHOW(syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 15));
    SHOW(syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 24)); SHOW(syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 5000));
    v.more[0] = 1; SHOW(syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 24)); v.more[0] = 0;
    v.flags = XATTR_CREATE; SHOW(syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 16)); v.flags = 8; SHOW(syscall(SETXATTRAT, here, "f", 0, "user.n", &v, 16)); v.flags = 0;
    SHOW(syscall(SETXATTRAT, here, "f", 1, "user.n", &v, 16)); SHOW(syscall(SETXATTRAT, here, "l", AT_SYMLINK_NOFOLLOW, "user.n", &v, 16)); SHOW(syscall(SETXATTRAT, here, "l", 0, "user.through", &v, 16));
    SHOW(syscall(SETXATTRAT, file, "", AT_EMPTY_PATH, "user.empty", &v, 16)); SHOW(syscall(SETXATTRAT, file, "", 0, "user.empty", &v, 16)); SHOW(syscall(SETXATTRAT, file, 0, AT_EMPTY_PATH, "user.null", &v, 16));
    SHOW(syscall(SETXATTRAT, path_only, "", AT_EMPTY_PATH, "user.path", &v, 16)); SHOW(syscall(SETXATTRAT, 77, "f", 0, "user.n", &v, 16)); SHOW(syscall(SETXATTRAT, file, "f", 0, "user.n", &v, 16));
    struct value w = {(uint64_t)(uintptr_t)buffer, 100, 0, {0}};
    SHOW(syscall(GETXATTRAT, here, "f", 0, "user.n", &w, 16)); w.size = 3; SHOW(syscall(GETXATTRAT, here, "f", 0, "user.n", &w, 16)); w.flags = 1; SHOW(syscall(GETXATTRAT, here, "f", 0, "user.n", &w, 16));
    show_names(syscall(LISTXATTRAT, here, "f", 0, buffer, sizeof buffer)); show_names(syscall(LISTXATTRAT, file, "", AT_EMPTY_PATH, buffer, sizeof buffer)); SHOW(syscall(LISTXATTRAT, here, "f", 7, buffer, sizeof buffer));
    SHOW(syscall(REMOVEXATTRAT, here, "f", 0, "user.n")); SHOW(syscall(REMOVEXATTRAT, here, "f", 0, "user.n")); SHOW(syscall(REMOVEXATTRAT, here, "l", AT_SYMLINK_NOFOLLOW, "user.n"));
    show_names(listxattr("f", buffer, sizeof buffer));
}

int main(int argc, char **argv) {
    begin(argv);
    put("f", "content"); MUST(mkdir("d", 0755)); MUST(mkdir("sticky", 01777)); MUST(chmod("sticky", 01777)); MUST(mkfifo("fifo", 0644));
    MUST(symlink("f", "l")); MUST(symlink("d", "ld")); MUST(symlink("nowhere", "dangling")); MUST(symlink("loop", "loop"));
    char longest[256] = "user.", longer[300] = "user.";
    memset(longest + 5, 'n', 250); memset(longer + 5, 'n', 251);
    const char *paths[] = {"f", "d", "d/", "sticky", "fifo", "l", "ld", "ld/", "dangling", "loop", "missing", "missing/f", "f/f", ".", "d/..", ""};
    const char *names[] = {"user.a", longest, longer, "", "user.", "user", "user.\xc3\xa9", "system.a", "system.", "other.a", "a"};
    for (size_t p = 0; p < sizeof paths / sizeof *paths; p++) for (size_t n = 0; n < sizeof names / sizeof *names; n++) all(paths[p], -1, names[n]);
    /* None of these is there; access control lists are another matter. */
    const char *empty[] = {"security.a", "security.capability", "trusted.a", "security.", "trusted."};
    for (size_t n = 0; n < sizeof empty / sizeof *empty; n++) { SHOW(getxattr("f", empty[n], buffer, 10)); SHOW(removexattr("f", empty[n])); SHOW(lgetxattr("l", empty[n], buffer, 10)); }
    int flags[] = {O_RDONLY, O_WRONLY, O_RDWR, O_PATH};
    for (int i = 0; i < 4; i++) for (size_t n = 0; n < sizeof names / sizeof *names; n++) all(0, MUST(open("f", flags[i])), names[n]);
    all(0, 9999, "user.a"); all(0, MUST(open("d", O_RDONLY)), "user.a"); all(0, MUST(open("l", O_PATH | O_NOFOLLOW)), "user.a");
    /* Sizes. */
    char *big = calloc(1, 70000);
    volatile size_t huge = (size_t)1 << 40;
    memset(big, 'v', 70000);
    int sizes[] = {0, 1, 255, 256, 1000, 2500, 65537, 70000};
    for (int i = 0; i < 8; i++) { SHOW(setxattr("f", "user.size", big, sizes[i], 0)); SHOW(getxattr("f", "user.size", 0, 0)); show_bytes("value", getxattr("f", "user.size", buffer, sizeof buffer)); }
    SHOW(getxattr("f", "user.size", buffer, huge)); SHOW(listxattr("f", buffer, huge)); SHOW(setxattr("f", "user.size", big, huge, 0));
    SHOW(setxattr("missing", "", big, 70000, 9)); SHOW(setxattr("missing", "", big, 70000, 0)); SHOW(setxattr("missing", "user.a", big, 70000, 0));
    /* Bad addresses. */
    SHOW(setxattr("f", "user.size", null, 3, 0)); SHOW(setxattr("f", "user.size", bad, 3, 0)); SHOW(setxattr("f", bad, "v", 1, 0)); SHOW(getxattr("f", bad, buffer, 1)); SHOW(removexattr("f", bad)); SHOW(setxattr(bad, "user.a", "v", 1, 0));
    SHOW(getxattr("f", "user.size", bad, 3000)); SHOW(listxattr("f", bad, 3000)); SHOW(getxattr("f", "user.size", bad, 3)); SHOW(getxattr("f", "user.none", bad, 3000)); SHOW(getxattr("f", "user.size", bad, 0));
    /* Without the C library. */
    SHOW(syscall(SYS_setxattr, "f", "user.raw", "raw", 3, 0)); SHOW(syscall(SYS_lgetxattr, "f", "user.raw", buffer, 3)); SHOW(syscall(SYS_listxattr, "f", 0, 0)); SHOW(syscall(SYS_lremovexattr, "f", "user.raw"));
    newest();
    /* They go with the inode. */
    SHOW(setxattr("f", "user.stays", "stays", 5, 0)); SHOW(link("f", "hard")); show_bytes("hard", getxattr("hard", "user.stays", buffer, 10));
    SHOW(rename("f", "d/moved")); show_bytes("moved", getxattr("d/moved", "user.stays", buffer, 10)); SHOW(truncate("hard", 0)); SHOW(chmod("hard", 0444)); show_bytes("hard", getxattr("hard", "user.stays", buffer, 10));
    int open_file = MUST(open("hard", O_RDONLY));
    SHOW(unlink("hard")); SHOW(unlink("d/moved")); show_bytes("open", fgetxattr(open_file, "user.stays", buffer, 10)); SHOW(fsetxattr(open_file, "user.late", "late", 4, 0)); show_bytes("open", fgetxattr(open_file, "user.late", buffer, 10));
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", MUST(open("d", O_RDONLY)));
    SHOW(setxattr(link, "user.proc", "proc", 4, 0)); show_names(listxattr("d", buffer, sizeof buffer));
    /* Times: only that of the change. */
    struct stat before, after;
    put("t", "t"); MUST(stat("t", &before)); usleep(20000); SHOW(setxattr("t", "user.a", "a", 1, 0)); MUST(stat("t", &after));
    SHOW(before.st_mtim.tv_nsec == after.st_mtim.tv_nsec); SHOW(before.st_ctim.tv_sec != after.st_ctim.tv_sec || before.st_ctim.tv_nsec != after.st_ctim.tv_nsec);
    /* The host's files are the kernel's. */
    SHOW(getxattr("/proc/self/status", "user.a", buffer, 10)); SHOW(setxattr("/nowhere at all", "user.a", "a", 1, 0)); SHOW(flistxattr(0, buffer, 10) >= -1);
    return 0;
}
