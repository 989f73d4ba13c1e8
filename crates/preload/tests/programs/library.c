/* libc's own calls: stdio, directories, walks, patterns, temporary files, real paths. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utime.h>
#define SHOW(x) do { errno = 0; long r = (long)(x); printf("%s = %ld%s%s\n", #x, r, r < 0 && errno ? " " : "", r < 0 && errno ? strerrorname_np(errno) : ""); fflush(stdout); } while (0)
static int seen;
static int visit(const char *p, const struct stat *s, int t, struct FTW *f) { seen++; return 0; }
static int by_name(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }
int main(int argc, char **argv) {
    const char *d = argv[1];
    char path[PATH_MAX], other[PATH_MAX], *line = 0; size_t size = 0;
    SHOW(chdir(d)); SHOW(strcmp(getcwd(path, sizeof path), d)); char *c = get_current_dir_name(); SHOW(strcmp(c, d)); free(c);
    SHOW(getcwd(path, 3) == 0);
    FILE *f = fopen("stdio", "w+"); SHOW(f != 0); SHOW(fprintf(f, "one\ntwo\nthree\n")); rewind(f);
    SHOW(getline(&line, &size, f)); printf("%s", line); SHOW(fseek(f, 4, SEEK_SET)); SHOW(ftell(f)); SHOW(fgetc(f)); SHOW(fclose(f));
    f = freopen("stdio", "a", fopen("stdio", "r")); SHOW(fputs("four\n", f)); SHOW(fclose(f));
    struct stat s; SHOW(stat("stdio", &s)); SHOW(s.st_size); SHOW(S_ISREG(s.st_mode)); SHOW(s.st_mode & 07777);
    SHOW(mkdir("dir", 0755)); SHOW(mkdir("dir", 0755)); SHOW(mkdir("dir/sub", 0700)); SHOW(symlink("../stdio", "dir/link"));
    for (int i = 0; i < 300; i++) { snprintf(path, sizeof path, "dir/entry-%03d-with-a-long-name", i); close(creat(path, 0600)); }
    DIR *dir = opendir("dir"); int n = 0; struct dirent *e; char *names[400];
    while ((e = readdir(dir))) { names[n++] = strdup(e->d_name); if (!strcmp(e->d_name, "sub")) SHOW(e->d_type == DT_DIR); }
    qsort(names, n, sizeof *names, by_name); printf("%d %s %s\n", n, names[0], names[n - 1]);
    rewinddir(dir); int again = 0; while (readdir(dir)) again++; SHOW(again); SHOW(fstatat(dirfd(dir), "sub", &s, 0)); SHOW(closedir(dir));
    struct dirent **list; SHOW(scandir("dir", &list, 0, alphasort));
    glob_t g; SHOW(glob("dir/entry-00?-*", 0, 0, &g)); SHOW(g.gl_pathc); globfree(&g);
    SHOW(nftw("dir", visit, 10, FTW_PHYS)); SHOW(seen);
    SHOW(strcmp(realpath("dir/link", path), (snprintf(other, sizeof other, "%s/stdio", d), other)));
    SHOW(readlink("dir/link", path, sizeof path)); SHOW(lstat("dir/link", &s)); SHOW(S_ISLNK(s.st_mode));
    char template[] = "tmp-XXXXXX"; int t = mkstemp(template); SHOW(t >= 0); SHOW(unlink(template)); SHOW(fstat(t, &s)); SHOW(s.st_nlink); SHOW(write(t, "x", 1));
    char dtemplate[] = "tmpd-XXXXXX"; SHOW(mkdtemp(dtemplate) != 0); SHOW(rmdir(dtemplate));
    SHOW(rename("stdio", "dir/renamed")); SHOW(rename("nope", "x")); SHOW(renameat2(AT_FDCWD, "dir/renamed", AT_FDCWD, "dir/link", RENAME_NOREPLACE));
    SHOW(link("dir/renamed", "hard")); SHOW(stat("hard", &s)); SHOW(s.st_nlink); SHOW(remove("hard")); SHOW(remove("dir/sub")); SHOW(rmdir("dir"));
    SHOW(truncate("dir/renamed", 3)); SHOW(chmod("dir/renamed", 0640)); SHOW(stat("dir/renamed", &s)); SHOW(s.st_mode & 07777); SHOW(s.st_size);
    struct utimbuf u = {1000, 2000}; SHOW(utime("dir/renamed", &u)); struct timeval tv[2] = {{3, 4}, {5, 6}}; SHOW(stat("dir/renamed", &s)); SHOW(s.st_mtime);
    SHOW(utimes("dir/renamed", tv)); SHOW(stat("dir/renamed", &s)); SHOW(s.st_mtim.tv_nsec); struct timespec ts[2] = {{0, UTIME_OMIT}, {7, 8}};
    SHOW(utimensat(AT_FDCWD, "dir/renamed", ts, 0)); SHOW(stat("dir/renamed", &s)); SHOW(s.st_mtim.tv_sec); SHOW(s.st_atim.tv_sec);
    SHOW(access("dir/renamed", R_OK)); SHOW(faccessat(AT_FDCWD, "dir/renamed", W_OK, AT_EACCESS)); SHOW(euidaccess("dir/nope", R_OK)); SHOW(umask(077)); SHOW(open("masked", O_CREAT | O_WRONLY, 0666) >= 0); SHOW(stat("masked", &s)); SHOW(s.st_mode & 07777); SHOW(umask(022));
    struct statx x; SHOW(statx(AT_FDCWD, "masked", 0, STATX_ALL, &x)); SHOW(x.stx_mode & 07777);
    struct statvfs v; SHOW(statvfs(".", &v)); SHOW(v.f_bsize);
    SHOW(getxattr("masked", "user.x", path, 10) < 0);
    SHOW(mkfifo("fifo", 0600)); SHOW(stat("fifo", &s)); SHOW(S_ISFIFO(s.st_mode)); SHOW(posix_fallocate(t, 0, 100)); SHOW(fstat(t, &s)); SHOW(s.st_size); SHOW(lockf(t, F_TLOCK, 0));
    SHOW(chdir("dir")); snprintf(path, sizeof path, "%s/dir/../masked", d); SHOW(access(path, F_OK)); SHOW(access("../masked", F_OK)); snprintf(path, sizeof path, "/usr/../%s//dir/./renamed", d); SHOW(access(path, F_OK)); SHOW(access("../../../../../../../etc/passwd", F_OK));
    SHOW(chdir("..")); SHOW(strcmp(getcwd(path, sizeof path), d)); SHOW(chdir("/usr/lib")); puts(getcwd(path, sizeof path)); SHOW(chdir("/"));
    snprintf(path, sizeof path, "%s/dir/renamed", d + 1); SHOW(access(path, F_OK)); SHOW(access("dir/renamed", F_OK));
    return 0;
}
