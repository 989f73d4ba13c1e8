/* Descriptors duplicated, working directories that move and go, special files, slashes at the end of every call, paths that lead out and in again. */
#include "show.h"
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

static char root[4096]; static size_t root_length;
static void where(void) { char b[4096], c[4096]; errno = 0; long r = syscall(SYS_getcwd, b, sizeof b); if (r < 0) printf("getcwd: %s\n", strerrorname_np(errno)); else printf("getcwd: %s %ld\n", strncmp(b, root, root_length) ? b : b + root_length, strncmp(b, root, root_length) ? r : r - (long)root_length); char *p = getcwd(c, sizeof c); printf("libc: %s\n", p ? strncmp(p, root, root_length) ? p : p + root_length : strerrorname_np(errno)); }

static void duplicates(void) {
    put("f", "content"); int d = MUST(open("f", O_RDWR)); struct rlimit limit; getrlimit(RLIMIT_NOFILE, &limit); char b[20];
    SHOW(dup3(d, d, 0)); SHOW(dup3(d, d, O_CLOEXEC)); SHOW(dup3(d, 20, 0)); SHOW(fcntl(20, F_GETFD)); SHOW(dup3(d, 20, O_CLOEXEC)); SHOW(fcntl(20, F_GETFD)); SHOW(dup3(d, 20, 1)); SHOW(dup3(d, 20, O_NONBLOCK)); SHOW(dup3(d, -1, 0)); SHOW(dup3(77, 20, 0)); SHOW(fcntl(20, F_GETFD)); SHOW(dup3(77, 77, 0)); SHOW(dup3(d, 1 << 30, 0)); SHOW(dup2(d, d)); SHOW(dup2(77, 77)); SHOW(dup2(d, -1)); SHOW(dup2(-1, d)); SHOW(dup2(77, d)); SHOW(read(d, b, 3)); SHOW(read(20, b, 10)); SHOW(close(20)); SHOW(dup(77)); SHOW(dup(-1)); int e = dup(d); SHOW(e - d); SHOW(close(e));
    SHOW(fcntl(d, F_DUPFD, 30)); SHOW(fcntl(d, F_DUPFD, 30)); SHOW(fcntl(d, F_DUPFD_CLOEXEC, 30)); SHOW(fcntl(30, F_GETFD)); SHOW(fcntl(32, F_GETFD)); SHOW(fcntl(d, F_DUPFD, -1)); SHOW(fcntl(d, F_DUPFD, 1 << 30)); SHOW(fcntl(77, F_DUPFD, 0)); close(30); close(31); close(32);
    SHOW(fcntl(d, F_GETFD)); SHOW(fcntl(d, F_SETFD, 0xff)); SHOW(fcntl(d, F_GETFD)); SHOW(fcntl(d, F_SETFD, 2)); SHOW(fcntl(d, F_GETFD)); SHOW(fcntl(d, F_GETFL)); SHOW(fcntl(d, F_SETFL, O_APPEND)); SHOW(fcntl(d, F_GETFL)); SHOW(fcntl(d, F_SETFL, O_NONBLOCK | O_SYNC | O_CREAT | O_TRUNC | O_WRONLY)); SHOW(fcntl(d, F_GETFL)); SHOW(fcntl(d, F_SETFL, O_NOATIME)); SHOW(fcntl(d, F_GETFL)); SHOW(fcntl(d, F_SETFL, 0)); SHOW(fcntl(d, F_GETFL)); SHOW(fcntl(d, F_SETFL, -1 & ~O_ASYNC)); SHOW(fcntl(d, F_GETFL)); SHOW(fcntl(d, F_SETFL, 0));
    SHOW(fcntl(d, F_GETPIPE_SZ)); SHOW(fcntl(d, F_SETPIPE_SZ, 4096)); SHOW(fcntl(d, F_GETLEASE)); SHOW(fcntl(d, F_GETOWN)); SHOW(fcntl(d, F_GETSIG)); SHOW(fcntl(d, 9999)); SHOW(fcntl(d, -1)); SHOW(fcntl(77, F_GETFL)); SHOW(fcntl(77, 9999)); SHOW(fcntl(-1, F_GETFD));
    SHOW(lseek(d, 0, SEEK_CUR)); SHOW(lseek(d, -1, SEEK_SET)); SHOW(lseek(d, -100, SEEK_CUR)); SHOW(lseek(d, 5, SEEK_END)); SHOW(lseek(d, -8, SEEK_END)); SHOW(lseek(d, 0, 5)); SHOW(lseek(d, 0, -1)); SHOW(lseek(77, 0, SEEK_SET)); SHOW(lseek(d, 0, SEEK_DATA)); SHOW(lseek(d, 0, SEEK_HOLE)); SHOW(lseek(d, 7, SEEK_DATA)); SHOW(lseek(d, 7, SEEK_HOLE)); SHOW(lseek(d, -1, SEEK_HOLE)); SHOW(lseek(d, 0, SEEK_SET));
    SHOW(close(d)); SHOW(close(d)); SHOW(close(-1)); SHOW(close_range(50, 40, 0)); SHOW(close_range(100, 200, 0)); SHOW(close_range(100, 200, 64)); d = MUST(open("f", O_RDONLY)); dup2(d, 100); dup2(d, 101); SHOW(close_range(100, 100, 0)); SHOW(fcntl(100, F_GETFD)); SHOW(close_range(101, 200, CLOSE_RANGE_CLOEXEC)); SHOW(fcntl(101, F_GETFD)); close(101); close(d);
}

static void directories(void) {
    MUST(mkdir("d", 0755)); MUST(mkdir("d/e", 0755)); MUST(mkdir("d/e/f", 0755)); MUST(symlink("d/e", "sl")); put("file", ""); struct stat s; char b[300]; char longer[300]; memset(longer, 'n', 256); longer[256] = 0;
    SHOW(chdir("missing")); SHOW(chdir("file")); SHOW(chdir("file/")); SHOW(chdir("")); SHOW(chdir(longer)); SHOW(chdir("d/missing")); SHOW(fchdir(77)); SHOW(fchdir(-1)); int f = MUST(open("file", O_RDONLY)); SHOW(fchdir(f)); close(f);
    SHOW(chdir("d/e/f")); where(); SHOW(chdir("..")); where(); SHOW(chdir("../../sl")); where(); SHOW(chdir("..")); where(); SHOW(chdir("e/./f/../../e/")); where(); SHOW(chdir("../..")); where();
    SHOW(syscall(SYS_getcwd, b, 1)); SHOW(syscall(SYS_getcwd, b, 0)); SHOW(syscall(SYS_getcwd, b, 3)); SHOW(getcwd(b, 2) == 0); SHOW(getcwd(b, 0) == 0); char *mine = getcwd(0, 0); SHOW(mine && strlen(mine) >= root_length); free(mine); SHOW(getcwd(0, 2) == 0);
    int top = MUST(open(".", O_RDONLY)), path_only = MUST(open("d/e", O_PATH)); SHOW(fchdir(path_only)); where(); SHOW(fchdir(top)); where(); SHOW(chdir("/")); where(); SHOW(stat("file", &s)); SHOW(fchdir(top)); SHOW(stat("file", &s));
    /* Moved while it is the working directory. */
    SHOW(chdir("d/e")); SHOW(rename("../../d", "../../moved")); where(); SHOW(stat("../../moved/e", &s)); SHOW(rename("../e", "../../e2")); where(); SHOW(stat("../e2/f", &s)); SHOW(chdir("f")); where(); SHOW(fchdir(top));
    /* Removed while it is. */
    MUST(mkdir("gone", 0755)); SHOW(chdir("gone")); SHOW(rmdir("../gone")); where(); SHOW(stat(".", &s)); SHOW(s.st_nlink); SHOW(stat("..", &s)); SHOW(open("x", O_CREAT | O_RDWR, 0644)); SHOW(open("x", O_RDONLY)); SHOW(mkdir("x", 0755)); SHOW(symlink("x", "y")); SHOW(link("../file", "y")); SHOW(rename("../file", "y")); SHOW(rename("x", "../y")); SHOW(unlink("x")); SHOW(rmdir("x")); SHOW(chdir(".")); where(); SHOW(opendir(".") != 0); SHOW(access(".", F_OK)); SHOW(access("x", F_OK)); SHOW(readlink("x", b, 10)); SHOW(chmod(".", 0700)); SHOW(utimes(".", 0)); SHOW(statfs(".", (struct statfs *)b)); SHOW(mkfifo("x", 0644)); SHOW(truncate("x", 0)); SHOW(rmdir(".")); int g = open(".", O_RDONLY); SHOW(g >= 0); SHOW(fstat(g, &s)); SHOW(openat(g, "x", O_CREAT | O_RDWR, 0644)); SHOW(fchdir(g)); close(g); SHOW(chdir("../")); SHOW(fchdir(top)); where();
    MUST(mkdir("gone", 0755)); MUST(mkdir("gone/in", 0755)); SHOW(chdir("gone/in")); SHOW(rmdir("../../gone/in")); SHOW(chdir("..")); where(); SHOW(fchdir(top)); SHOW(rmdir("gone"));
    MUST(mkdir("again", 0755)); SHOW(chdir("again")); MUST(rmdir("../again")); MUST(mkdir("../again", 0755)); SHOW(open("x", O_CREAT | O_RDWR, 0644)); where(); SHOW(stat("../again", &s)); SHOW(fchdir(top));
    /* A child begins where its parent is. */
    SHOW(chdir("e2")); fflush(stdout); if (fork() == 0) { where(); SHOW(chdir("f")); where(); fflush(stdout); _exit(0); } wait(0); where(); fflush(stdout); if (fork() == 0) { execl("/bin/sh", "sh", "-c", "test -d f && echo there; cd f && test -d ../f && echo up", (char *)0); _exit(9); } wait(0); SHOW(fchdir(top)); close(top); close(path_only);
    /* A long way down. */
    char name[101]; memset(name, 'x', 100); name[100] = 0; for (int i = 0; i < 45; i++) { MUST(mkdir(name, 0755)); if (chdir(name)) { printf("stopped at %d\n", i); break; } } char deep[8192]; errno = 0; SHOW(syscall(SYS_getcwd, deep, sizeof deep) < 0);
    SHOW(getcwd(deep, 100) == 0); SHOW(getcwd(deep, 4096) == 0); SHOW(getcwd(deep, 4500) == 0); SHOW(getcwd(deep, sizeof deep) == deep && strlen(deep) == root_length + 45 * 101 && !strncmp(deep, root, root_length));
    char *far = getcwd(0, 0); SHOW(far && !strcmp(far, deep)); free(far); SHOW(getcwd(0, 4097) == 0); far = get_current_dir_name(); SHOW(far && strlen(far) == strlen(deep)); free(far);
    for (int i = 0; i < 45; i++) MUST(chdir("..")); where(); SHOW(system("rm -rf x*"));
}

static void special(void) {
    unsigned kinds[] = {S_IFREG, 0, S_IFIFO, S_IFSOCK, S_IFDIR, S_IFLNK, S_IFMT, 0130000}; struct stat s; char b[20];
    MUST(mkdir("n", 0755)); MUST(chdir("n"));
    for (int i = 0; i < 8; i++) { char n[20]; snprintf(n, 20, "node%d", i); errno = 0; int r = mknod(n, kinds[i] | 0640, 0); printf("mknod %o: %d %s\n", kinds[i], r, errno ? strerrorname_np(errno) : ""); if (r == 0) { show_stat(n); MUST(lstat(n, &s)); printf("%lu %ld\n", (unsigned long)s.st_rdev, (long)s.st_blocks); errno = 0; int d = open(n, O_RDONLY | O_NONBLOCK); if (S_ISREG(s.st_mode)) { SHOW(d >= 0); close(d); } else if (d >= 0) close(d); SHOW(mknod(n, kinds[i] | 0600, 0)); SHOW(rename(n, "other")); SHOW(link("other", n)); SHOW(unlink("other")); SHOW(chmod(n, 0600)); SHOW(truncate(n, 0)); SHOW(readlink(n, b, 10)); SHOW(access(n, R_OK)); SHOW(rmdir(n)); SHOW(chdir(n)); SHOW(open(n, O_RDONLY | O_DIRECTORY)); SHOW(opendir(n) != 0); show_stat(n); } }
    SHOW(mkfifo("pipe", 0666)); show_stat("pipe"); SHOW(mkfifo("pipe", 0666)); SHOW(mkfifo("pipe/", 0666)); SHOW(mkfifo("new/", 0666)); SHOW(mkfifo("missing/pipe", 0666)); SHOW(mkfifo("", 0666)); SHOW(mkfifoat(77, "x", 0666)); SHOW(mknod("x", S_IFREG | 0644, 5)); SHOW(mknod("x", S_IFREG | 0644, 5)); SHOW(mknod("dangling", S_IFREG | 0644, 0)); MUST(unlink("dangling")); MUST(symlink("nowhere", "dangling")); SHOW(mknod("dangling", S_IFREG | 0644, 0)); SHOW(open("pipe", O_RDONLY | O_DIRECTORY)); SHOW(open("pipe", O_CREAT | O_EXCL | O_RDWR, 0644)); int p = MUST(open("pipe", O_PATH)); SHOW(fstat(p, &s)); printf("%o\n", s.st_mode); close(p); SHOW(unlink("pipe"));
    show_tree("."); MUST(chdir(".."));
}

static const char *targets[] = {"file", "dir", "link", "dirlink", "dangling", "missing", "loop", "pipe"};
static void furnish(void) { put("file", "c"); MUST(mkdir("dir", 0755)); MUST(symlink("file", "link")); MUST(symlink("dir", "dirlink")); MUST(symlink("nowhere", "dangling")); MUST(symlink("loop", "loop")); MUST(mkfifo("pipe", 0644)); put("source", "s"); MUST(mkdir("sourcedir", 0755)); }
static void empty(void) { const char *n[] = {"file", "link", "dirlink", "dangling", "loop", "pipe", "source", "missing", "nowhere", "moved", "made", "dir/made"}; for (int i = 0; i < 12; i++) if (unlink(n[i])) rmdir(n[i]); const char *e[] = {"dir/sourcedir", "dir/source", "dir", "sourcedir", "missing", "moved", "made", "nowhere"}; for (int i = 0; i < 8; i++) { unlink(e[i]); rmdir(e[i]); } }
/* One of the calls that take a path, which is that of a pipe if `special`; its result. */
#define CALLS 34
static long called(int call, const char *n, int special) {
    struct stat s; char b[50]; struct timespec t[2] = {{1, 0}, {2, 0}}; struct statfs fs; struct statx x; long r = -2;
    errno = 0;
    switch (call) {
    case 0: r = open(n, O_RDONLY | O_NONBLOCK | (special ? O_PATH : 0)); break; case 1: r = open(n, O_CREAT | O_WRONLY | (special ? O_PATH : 0), 0644); break; case 2: r = open(n, O_CREAT | O_EXCL | O_WRONLY, 0644); break; case 3: r = open(n, O_RDONLY | O_DIRECTORY); break; case 4: r = open(n, O_PATH | O_NOFOLLOW); break; case 5: r = open(n, O_RDONLY | O_NOFOLLOW | (special ? O_PATH : 0)); break;
    case 6: r = stat(n, &s); break; case 7: r = lstat(n, &s); if (r == 0) r = s.st_mode & S_IFMT; break; case 8: r = access(n, F_OK); break; case 9: r = mkdir(n, 0755); break; case 10: r = rmdir(n); break; case 11: r = unlink(n); break; case 12: r = rename(n, "moved"); break; case 13: r = rename("source", n); break; case 14: r = rename("sourcedir", n); break; case 15: r = link(n, "made"); break; case 16: r = link("source", n); break; case 17: r = symlink("x", n); break; case 18: r = readlink(n, b, 50); break; case 19: r = mkfifo(n, 0644); break; case 20: r = mknod(n, S_IFREG | 0644, 0); break; case 21: r = chmod(n, 0755); break; case 22: r = chown(n, 0, 0); break; case 23: r = lchown(n, 0, 0); break; case 24: r = utimensat(AT_FDCWD, n, t, 0); break; case 25: r = utimensat(AT_FDCWD, n, t, AT_SYMLINK_NOFOLLOW); break; case 26: r = truncate(n, 0); break; case 27: r = statfs(n, &fs); break; case 28: r = statx(AT_FDCWD, n, AT_SYMLINK_NOFOLLOW, STATX_ALL, &x); break; case 29: r = linkat(AT_FDCWD, n, AT_FDCWD, "made", AT_SYMLINK_FOLLOW); break; case 30: r = syscall(SYS_renameat2, AT_FDCWD, "source", AT_FDCWD, n, RENAME_NOREPLACE); break; case 31: r = syscall(SYS_renameat2, AT_FDCWD, "source", AT_FDCWD, n, RENAME_EXCHANGE); break; case 32: r = open(n, O_TMPFILE | O_RDWR, 0600); break; case 33: { int old = open(".", O_RDONLY); r = chdir(n); int error = errno; fchdir(old); close(old); errno = error; break; }
    }
    int error = errno;
    if ((call < 6 || call == 32) && r >= 0) { close(r); r = 0; }
    errno = error;
    return r;
}
static void slashes(void) {
    MUST(mkdir("s", 0755)); MUST(chdir("s")); const char *ends[] = {"", "/", "//", "/.", "/./", "/..", "/../"};
    for (int i = 0; i < 8; i++) for (int e = 0; e < 7; e++) for (int call = 0; call < CALLS; call++) {
        char n[60]; snprintf(n, 60, "%s%s", targets[i], ends[e]); furnish();
        long r = called(call, n, i == 7); printf("%d %s: %ld %s\n", call, n, r, r < 0 ? strerrorname_np(errno) : ""); empty();
    }
    show_tree("."); MUST(chdir(".."));
}

/* Paths that lead out of the directory that was given, and into it again. */
static void around(const char *top) {
    char base[256], parent[4096], here[4096], n[9000]; struct stat s, t; snprintf(parent, sizeof parent, "%s", top); char *slash = strrchr(parent, '/'); snprintf(base, sizeof base, "%s", slash + 1); slash[slash == parent] = 0;
    MUST(mkdir("t", 0755)); MUST(chdir("t")); MUST(symlink("../../..", "up")); snprintf(n, sizeof n, "../../../%s/work/t", base); MUST(symlink(n, "relative")); snprintf(n, sizeof n, "%s/../%s/work/t", top, base); MUST(symlink(n, "absolute")); snprintf(n, sizeof n, "../../../%s/work/t/turn", base); MUST(symlink(n, "turn"));
    const char *forms[] = {"%1$s/../%2$s/work/t/", "%1$s//./..//./%2$s/./work/t/", "../../../%2$s/work/t/", "up/%2$s/work/t/", "relative/", "absolute/", "%1$s/work/../../%2$s/work/t/", "%1$s/../%2$s/../%2$s/work/t/", "../../../%2$s/../%2$s/../../../../../../../..%1$s/work/t/", "up/%2$s/work/t/up/%2$s/work/t/absolute/relative/", "turn/", "up/%2$s/work/missing/"};
    for (int f = 0; f < 12; f++) for (int i = 0; i < 8; i++) for (int call = 0; call < CALLS; call++) {
        furnish(); int l = snprintf(n, sizeof n, forms[f], top, base); strcpy(n + l, targets[i]);
        long r = called(call, n, i == 7); printf("%d %d %s: %ld %s\n", f, call, targets[i], r, r < 0 ? strerrorname_np(errno) : ""); empty();
    }
    /* Both of two paths, and what else takes one. */
    char m[9000]; furnish(); snprintf(n, sizeof n, "%s/../%s/work/t/file", top, base); snprintf(m, sizeof m, "../../../%s/work/t/new", base);
    SHOW(link(n, m)); SHOW(stat("new", &s)); SHOW(s.st_nlink); SHOW(rename(m, n)); SHOW(unlink(m)); SHOW(rename(n, m)); SHOW(lstat("new", &s)); SHOW(syscall(SYS_renameat2, AT_FDCWD, m, AT_FDCWD, "source", RENAME_EXCHANGE)); show_file("new"); show_file("source"); SHOW(symlink(n, m)); SHOW(unlink(m));
    put("script", "#!/bin/sh\necho \"$1\"\n"); MUST(chmod("script", 0755)); fflush(stdout); snprintf(n, sizeof n, "%s/../%s/work/t/script ran; cd %s/../%s/work/t && pwd -P && cat ../../../%s/work/t/source; echo; ls up/%s/work/t/dir/.. | tr '\\n' ' '", top, base, top, base, base, base); SHOW(system(n)); char *real = realpath("absolute/relative/up", 0); SHOW(real && !strcmp(real, parent)); free(real); snprintf(n, sizeof n, "up/%s/work/t/absolute", base); real = realpath(n, 0); SHOW(real && getcwd(here, sizeof here) && !strcmp(real, here)); free(real);
    /* To the directory above, and from there. */
    snprintf(n, sizeof n, "%s/..", top); snprintf(m, sizeof m, "%s/work/t/source", base); SHOW(stat(n, &s)); SHOW(stat(parent, &t)); SHOW(s.st_ino == t.st_ino && s.st_dev == t.st_dev); SHOW(stat("../../..", &s)); SHOW(s.st_ino == t.st_ino && s.st_dev == t.st_dev); int d = MUST(open(n, O_RDONLY | O_DIRECTORY)), e = MUST(openat(d, m, O_RDONLY)); SHOW(read(e, here, 10)); close(e); SHOW(faccessat(d, m, R_OK, 0)); close(d); d = MUST(open("up", O_PATH)); SHOW(fstatat(d, m, &s, 0)); int at = MUST(open(".", O_RDONLY));
    SHOW(chdir(n)); SHOW(getcwd(here, sizeof here) && !strcmp(here, parent)); SHOW(stat(m, &s)); SHOW(chdir(base)); SHOW(getcwd(here, sizeof here) && !strcmp(here, top)); SHOW(chdir("..")); SHOW(fchdir(at)); SHOW(chdir("up")); SHOW(getcwd(here, sizeof here) && !strcmp(here, parent)); SHOW(fchdir(d)); SHOW(access(m, R_OK)); SHOW(fchdir(at)); close(d);
    struct open_how how = {.flags = O_RDONLY}, beneath = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH}, in_root = {.flags = O_RDONLY, .resolve = RESOLVE_IN_ROOT}, no_links = {.flags = O_RDONLY, .resolve = RESOLVE_NO_SYMLINKS};
    snprintf(n, sizeof n, "up/%s/work/t/source", base); snprintf(m, sizeof m, "../../../%s/work/t/source", base); const char *both[] = {n, m};
    for (int i = 0; i < 2; i++) { SHOW((e = syscall(SYS_openat2, at, both[i], &how, sizeof how)) >= 0); close(e); SHOW((e = syscall(SYS_openat2, at, both[i], &beneath, sizeof how)) >= 0); SHOW((e = syscall(SYS_openat2, at, both[i], &in_root, sizeof how)) >= 0); SHOW((e = syscall(SYS_openat2, at, both[i], &no_links, sizeof how)) >= 0); close(e); }
    close(at); empty(); MUST(unlink("script")); MUST(chdir(".."));
}

/* Absolute paths about as long as paths may be, which end in a name that goes on where they end. */
static void lengths(void) {
    put("abc", "");
    const size_t longest[] = {4094, 4095, 4096, 4097, 4102, 9000};
    for (size_t i = 0; i < sizeof longest / sizeof *longest; i++) {
        static char path[10000];
        const char *names[] = {"abc", "abcdefghi"};
        for (int n = 0; n < 2; n++) {
            size_t name = strlen(names[n]);
            memset(path, '/', sizeof path);
            memcpy(path, root, root_length);
            strcpy(path + longest[i] - name, names[n]);
            printf("%zu %s\n", strlen(path), names[n]);
            SHOW(access(path, F_OK));
            SHOW(rename(path, "abc"));
            SHOW(unlink(path));
            put("abc", "");
        }
    }
    MUST(unlink("abc"));
}

int main(int argc, char **argv) {
    begin(argv);
    MUST(syscall(SYS_getcwd, root, sizeof root)); root_length = strlen(root);
    lengths(); duplicates(); directories(); special(); slashes(); around(argv[1]);
    return 0;
}
