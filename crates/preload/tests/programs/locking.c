/* mlockall and its kin: the program's own memory is locked, its maps of the files here included, and nothing
 * else. What is shown is of the program's own maps; of the whole process only that it is sane. */
#include "show.h"
#include <sys/wait.h>

#define LENGTH (256 << 10)

/* A field of /proc/self/status, in KiB. */
static long status(const char *field) {
    char line[200];
    long value = -1;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (!strncmp(line, field, strlen(field))) value = atol(line + strlen(field) + 1);
    if (f) fclose(f);
    return value;
}

/* How many KiB of a map are locked, as the kernel tells. */
static long locked(const void *map) {
    char line[400];
    unsigned long from, to, at = (unsigned long)map, end = at + LENGTH;
    long kib = 0, here = 0;
    FILE *f = fopen("/proc/self/smaps", "r");
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2 && strchr("0123456789abcdef", line[0]) && strchr(line, '-') < line + 20) {
            if (from < at) from = at;
            if (to > end) to = end;
            here = from < to ? (long)(to - from) >> 10 : 0;
        }
        if (!strncmp(line, "VmFlags:", 8) && strstr(line, " lo")) kib += here;
    }
    if (f) fclose(f);
    return kib;
}

static void sane(const char *when) {
    long lck = status("VmLck:"), rss = status("VmRSS:");
    printf("%s: locked %s, resident %s\n", when, lck == 0 ? "nothing" : lck < 300 << 10 ? "some" : "too much", rss < 400 << 10 ? "little" : "too much");
    fflush(stdout);
}

static void *map(const char *name, int flags) {
    int d = MUST(open(name, O_RDWR | O_CREAT, 0644));
    MUST(ftruncate(d, LENGTH));
    void *at = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, flags, d, 0);
    if (at == MAP_FAILED) printf("mmap: %s\n", strerrorname_np(errno));
    close(d);
    return at;
}

static void work(const char *prefix) {
    char name[60], block[4096];
    memset(block, 'x', sizeof block);
    for (int i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "%s%d", prefix, i);
        int d = MUST(open(name, O_RDWR | O_CREAT | O_TRUNC, 0644));
        for (int k = 0; k < 20; k++) MUST(write(d, block, sizeof block));
        MUST(pread(d, block, sizeof block, 4096));
        close(d);
        if (i % 3 == 0) MUST(unlink(name));
    }
}

int main(int argc, char **argv) {
    if (argc > 1) MUST(chdir(argv[1]));
    char *shared = map("shared", MAP_SHARED), *private = map("private", MAP_PRIVATE);
    char *own = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *closed = mmap(NULL, LENGTH, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(own, 1, LENGTH);
    printf("before: %ld %ld %ld %ld\n", locked(shared), locked(private), locked(own), locked(closed));
    sane("before");

    SHOW(mlockall(MCL_CURRENT));
    printf("now: %ld %ld %ld %ld\n", locked(shared), locked(private), locked(own), locked(closed));
    sane("now");
    shared[1] = 'a';
    work("first");
    char *later = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("later: %ld\n", locked(later));
    sane("after work");
    pid_t child = MUST(fork());
    if (child == 0) {
        sane("child");
        work("child");
        sane("child after work");
        _exit(0);
    }
    int result;
    waitpid(child, &result, 0);
    printf("child: %d\n", result);
    SHOW(munlockall());
    printf("unlocked: %ld %ld %ld %ld\n", locked(shared), locked(private), locked(own), locked(later));
    sane("unlocked");

    SHOW(mlockall(MCL_FUTURE));
    printf("future alone: %ld %ld\n", locked(shared), locked(own));
    char *future = map("future", MAP_SHARED), *copy = map("future", MAP_PRIVATE);
    char *anonymous = mmap(NULL, LENGTH, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    printf("mapped in future: %ld %ld %ld\n", locked(future), locked(copy), locked(anonymous));
    work("second");
    sane("after work in future");
    SHOW(mlockall(MCL_CURRENT));
    char *after = map("after", MAP_SHARED);
    printf("current alone: %ld %ld %ld, then %ld\n", locked(shared), locked(future), locked(own), locked(after));
    SHOW(munlockall());

    SHOW(mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT));
    char *fault = map("fault", MAP_SHARED);
    printf("on fault: %ld %ld %ld\n", locked(shared), locked(own), locked(fault));
    work("third");
    sane("after work on fault");
    SHOW(syscall(SYS_munlockall));
    SHOW(syscall(SYS_mlockall, MCL_CURRENT));
    printf("by its number: %ld %ld\n", locked(shared), locked(own));
    sane("by its number");
    SHOW(munlockall());

    char *asked = map("asked", MAP_SHARED | MAP_LOCKED);
    printf("MAP_LOCKED: %ld\n", locked(asked));
    SHOW(mlock2(shared, LENGTH, MLOCK_ONFAULT));
    printf("mlock2: %ld\n", locked(shared));
    SHOW(munlock(shared, LENGTH));
    SHOW(mlockall(0));
    SHOW(mlockall(MCL_ONFAULT));
    SHOW(mlockall(64));
    sane("at the end");
    printf("%d %d\n", shared[1], own[5]);
    return 0;
}
