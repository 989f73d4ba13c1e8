/* Who has taken all descriptors that the limit leaves, and forks: the child goes on with what it has inherited. */
#include "show.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char bytes[1 << 20];

/* In a child: reads, writes, appends to, cuts, maps what it has inherited, and finds the limit as it was. */
static void goes_on(int read_only, int both, int appends, int directory) {
    char text[64] = "";
    struct rlimit limit;
    struct stat status;
    SHOW(pread(read_only, text, 5, 0)); puts(text);
    SHOW(pwrite(both, "child", 5, 0));
    SHOW(write(appends, bytes, sizeof bytes));
    SHOW(ftruncate(both, 3000));
    SHOW(fstat(both, &status)); printf("%ld\n", (long)status.st_size);
    SHOW(mkdirat(directory, "made", 0755));
    SHOW(renameat(directory, "made", directory, "moved"));
    char *map = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, both, 0);
    SHOW(map == MAP_FAILED); map[0] = 'C'; SHOW(munmap(map, 4096));
    SHOW(openat(directory, "moved", O_RDONLY));
    SHOW(getrlimit(RLIMIT_NOFILE, &limit)); printf("%ld\n", (long)limit.rlim_cur);
    SHOW(close(read_only)); SHOW(openat(directory, "moved", O_RDONLY) == read_only);
    fflush(stdout);
}

/* A child that was forked with all taken, of a parent that has used files already, or has done nothing since it began. */
static void forked(int uses) {
    struct rlimit before, few;
    MUST(getrlimit(RLIMIT_NOFILE, &before)); few = before; few.rlim_cur = 128;
    memset(bytes, 'a', sizeof bytes);
    int read_only = MUST(open("read", O_RDONLY)), both = MUST(open("both", O_RDWR | O_CREAT | O_TRUNC, 0644));
    int appends = MUST(open("appends", O_WRONLY | O_CREAT | O_APPEND, 0644)), directory = MUST(open(".", O_RDONLY | O_DIRECTORY));
    if (uses) MUST(write(both, bytes, sizeof bytes));
    MUST(setrlimit(RLIMIT_NOFILE, &few));
    int taken[128], count = 0;
    while ((taken[count] = open("/dev/null", O_RDONLY)) >= 0) count++;
    SHOW(open("read", O_RDONLY));
    fflush(stdout);
    int child = fork(), state;
    if (child == 0) { goes_on(read_only, both, appends, directory); _exit(0); }
    MUST(waitpid(child, &state, 0)); printf("%x\n", state);
    SHOW(open("read", O_RDONLY));
    while (count > 0) close(taken[--count]);
    MUST(setrlimit(RLIMIT_NOFILE, &before));
    char text[6] = "";
    SHOW(pread(both, text, 5, 0)); puts(text);
    struct stat status; MUST(fstat(appends, &status)); printf("%ld\n", (long)status.st_size);
    SHOW(rmdir("moved")); SHOW(unlink("appends"));
    close(read_only); close(both); close(appends); close(directory);
}

int main(int count, char **words) {
    if (count < 2 || chdir(words[1])) return 2;
    int file = MUST(open("read", O_WRONLY | O_CREAT, 0644)); MUST(write(file, "content", 7)); MUST(close(file));
    forked(0);
    forked(1);
    return 0;
}
