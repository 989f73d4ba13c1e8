/* What the semantics programs share: every call is shown with its result and error. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/falloc.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utime.h>

#define SHOW(x) do { errno = 0; long r_ = (long)(x); printf("%d: %s = %ld%s%s\n", __LINE__, #x, r_, errno ? " " : "", errno ? strerrorname_np(errno) : ""); fflush(stdout); } while (0)
/* The call must succeed; its result. */
#define MUST(x) ({ errno = 0; long r_ = (long)(x); if (r_ < 0) { printf("%d: %s failed: %s\n", __LINE__, #x, strerrorname_np(errno)); fflush(stdout); } r_; })

static inline void put(const char *name, const char *content) {
    int d = MUST(open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644));
    MUST(write(d, content, strlen(content)));
    close(d);
}

/* A file's content, at most 60 bytes, dots for what cannot be printed. */
static inline void show_file(const char *name) {
    char buffer[61];
    int d = open(name, O_RDONLY);
    if (d < 0) { printf("%s: %s\n", name, strerrorname_np(errno)); return; }
    ssize_t n = read(d, buffer, 60);
    for (ssize_t i = 0; i < n; i++) if (buffer[i] < 32 || buffer[i] > 126) buffer[i] = '.';
    printf("%s: %zd \"%.*s\"\n", name, n, n < 0 ? 0 : (int)n, buffer);
    close(d);
}

static inline void show_stat(const char *name) {
    struct stat s;
    if (lstat(name, &s) != 0) { printf("%s: %s\n", name, strerrorname_np(errno)); return; }
    printf("%s: mode %o links %ld size %ld\n", name, s.st_mode, (long)s.st_nlink, S_ISDIR(s.st_mode) ? 0 : (long)s.st_size);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char **)a, *(char **)b); }

/* All names below a directory, with kinds and link counts, in order. */
static inline void show_tree(const char *path) {
    char *names[500];
    int count = 0;
    DIR *d = opendir(path);
    if (!d) { printf("%s: %s\n", path, strerrorname_np(errno)); return; }
    for (struct dirent *e; (e = readdir(d)) && count < 500;) if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) names[count++] = strdup(e->d_name);
    closedir(d);
    qsort(names, count, sizeof *names, by_name);
    for (int i = 0; i < count; i++) {
        char below[4096];
        struct stat s;
        snprintf(below, sizeof below, "%s/%s", path, names[i]);
        show_stat(below);
        if (lstat(below, &s) == 0 && S_ISDIR(s.st_mode)) show_tree(below);
        free(names[i]);
    }
}
/* Every program begins in a directory of its own below its argument. */
static inline void begin(char **argv) {
    setvbuf(stdout, 0, _IOLBF, 0);
    umask(022);
    MUST(chdir(argv[1]));
    MUST(mkdir("work", 0755));
    MUST(chdir("work"));
}
