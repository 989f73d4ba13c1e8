/* madvise(2) with MADV_REMOVE: holes in files, made through their maps. */
#include "show.h"
#include <sys/wait.h>

enum { PAGE = 4096 };
static char *at;
static int d;

static void fill(int pages) {
    char page[PAGE];
    if (d > 0) close(d);
    d = MUST(open("f", O_RDWR | O_CREAT | O_TRUNC, 0644));
    for (int i = 0; i < pages; i++) { memset(page, 'a' + i, PAGE); MUST(write(d, page, PAGE)); }
    MUST(write(d, "tail", 4));
}
/* The first byte of each page by the map and by the file. */
static void look(int pages, int mapped) {
    char byte;
    struct stat s;
    MUST(fstat(d, &s));
    printf("    size %ld:", (long)s.st_size);
    for (int i = 0; i < pages; i++) {
        ssize_t n = pread(d, &byte, 1, i * PAGE);
        printf(" %c%c", mapped ? (at[i * PAGE] ? at[i * PAGE] : '.') : '-', n == 1 ? (byte ? byte : '.') : '_');
    }
    printf("\n");
}
#define MAP(length, protection, kind, file, offset) ((char *)MUST(mmap(NULL, length, protection, kind, file, offset)))
#define BOTH (PROT_READ | PROT_WRITE)

int main(int argc, char **argv) {
    begin(argv);
    fill(8);
    at = MAP(9 * PAGE, BOTH, MAP_SHARED, d, 0);
    SHOW(madvise(at + 2 * PAGE, 2 * PAGE, MADV_REMOVE)); look(9, 1);
    SHOW(madvise(at + 2 * PAGE, 2 * PAGE, MADV_REMOVE)); look(9, 1);
    at[3 * PAGE] = 'X'; look(9, 1);
    SHOW(madvise(at + 5 * PAGE, 100, MADV_REMOVE)); look(9, 1);
    SHOW(madvise(at, 0, MADV_REMOVE)); SHOW(madvise(at + 1, PAGE, MADV_REMOVE)); SHOW(madvise(at, -PAGE, MADV_REMOVE)); SHOW(madvise(at, -1, MADV_REMOVE)); look(9, 1);
    /* The end of the file, and behind it. */
    SHOW(madvise(at + 8 * PAGE, PAGE, MADV_REMOVE)); look(9, 1);
    munmap(at, 9 * PAGE);
    at = MAP(16 * PAGE, BOTH, MAP_SHARED, d, 0);
    SHOW(madvise(at + 7 * PAGE, 9 * PAGE, MADV_REMOVE)); look(9, 1);
    /* Locked. */
    SHOW(mlock(at, PAGE)); SHOW(madvise(at, PAGE, MADV_REMOVE)); SHOW(munlock(at, PAGE)); SHOW(madvise(at, PAGE, MADV_REMOVE)); look(9, 1);
    /* A part that is not mapped, between. */
    fill(8); munmap(at, 16 * PAGE); at = MAP(9 * PAGE, BOTH, MAP_SHARED, d, 0);
    munmap(at + 4 * PAGE, PAGE); SHOW(madvise(at + 3 * PAGE, 3 * PAGE, MADV_REMOVE)); for (int i = 0; i < 9; i++) { char byte; MUST(pread(d, &byte, 1, i * PAGE)); printf(" %c", byte ? byte : '.'); } puts("");
    munmap(at, 9 * PAGE);
    /* By other rights, and kinds. */
    fill(4); at = MAP(5 * PAGE, PROT_READ, MAP_SHARED, d, 0); SHOW(madvise(at, PAGE, MADV_REMOVE)); look(5, 1); munmap(at, 5 * PAGE);
    at = MAP(5 * PAGE, PROT_NONE, MAP_SHARED, d, 0); SHOW(madvise(at, 3 * PAGE, MADV_REMOVE)); look(5, 0); munmap(at, 5 * PAGE);
    int other = MUST(open("f", O_RDONLY));
    at = MAP(5 * PAGE, PROT_READ, MAP_SHARED, other, 0); SHOW(madvise(at, PAGE, MADV_REMOVE)); munmap(at, 5 * PAGE);
    at = MAP(5 * PAGE, PROT_READ, MAP_PRIVATE, d, 0); SHOW(madvise(at, PAGE, MADV_REMOVE)); munmap(at, 5 * PAGE);
    at = MAP(5 * PAGE, BOTH, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); SHOW(madvise(at, PAGE, MADV_REMOVE)); munmap(at, 5 * PAGE);
    /* The file is gone from its directory, or its descriptor is closed; another offset. */
    fill(6); at = MAP(4 * PAGE, BOTH, MAP_SHARED, d, 2 * PAGE); MUST(unlink("f"));
    SHOW(madvise(at + PAGE, PAGE, MADV_REMOVE)); look(4, 1);
    int kept = MUST(dup(d)); close(d); SHOW(madvise(at, PAGE, MADV_REMOVE)); d = kept; look(4, 1);
    munmap(at, 4 * PAGE);
    /* A child's, and its parent's. */
    fill(6); at = MAP(6 * PAGE, BOTH, MAP_SHARED, d, 0);
    fflush(stdout);
    pid_t child = MUST(fork());
    if (child == 0) { SHOW(madvise(at + PAGE, 2 * PAGE, MADV_REMOVE)); fflush(stdout); _exit(0); }
    MUST(waitpid(child, NULL, 0)); look(6, 1);
    /* Times and bits. */
    struct stat after; struct timespec old[2] = {{1, 0}, {1, 0}};
    MUST(fchmod(d, 06755)); MUST(futimens(d, old)); SHOW(madvise(at, PAGE, MADV_REMOVE)); MUST(fstat(d, &after));
    printf("mode %o, mtime moved %d\n", after.st_mode, after.st_mtim.tv_sec != 1);
    return 0;
}
