/* Maps of files: shared and private, with truncation, growth, holes, forks; everything is printed. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE 4096L
static sigjmp_buf out;
static void bus(int signal) { siglongjmp(out, signal); }

/* A byte of a map, or the signal that touching it gives, negative. */
static int peek(volatile char *at) {
    int signal = sigsetjmp(out, 1);
    return signal ? -signal : *at;
}
static int poke(volatile char *at, char value) {
    int signal = sigsetjmp(out, 1);
    if (signal) return -signal;
    *at = value;
    return 0;
}
static const char *error(int failed) { return failed ? strerrorname_np(errno) : "fine"; }
static int byte(int fd, off_t at) {
    unsigned char c = 0;
    ssize_t n = pread(fd, &c, 1, at);
    return n == 1 ? c : (int)n - 1;
}
static int make(const char *name, long size) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    char block[1000];
    for (long at = 0; at < size; at += sizeof block) {
        memset(block, 'a' + at / 1000 % 26, sizeof block);
        long n = size - at < (long)sizeof block ? size - at : (long)sizeof block;
        if (pwrite(fd, block, n, at) != n) printf("short write\n");
    }
    return fd;
}
static char *map(int fd, long length, int protection, int flags, long offset) {
    return mmap(NULL, length, protection, flags, fd, offset);
}
static long sum(const char *from, long length) {
    long total = 0;
    for (long i = 0; i < length; i++) total = total * 31 + from[i];
    return total;
}

static void shared_and_written(void) {
    int fd = make("shared", 3 * PAGE + 100);
    char *m = map(fd, 3 * PAGE + 100, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    printf("shared %d %d\n", m[0], m[3 * PAGE + 99]);
    m[5] = 'X';
    m[2 * PAGE + 7] = 'Y';
    printf("stores are read: %d %d\n", byte(fd, 5), byte(fd, 2 * PAGE + 7));
    pwrite(fd, "written", 7, PAGE + 10);
    printf("writes are seen: %.7s\n", m + PAGE + 10);
    printf("behind the end: %d %d\n", m[3 * PAGE + 100], m[4 * PAGE - 1]);
    m[3 * PAGE + 200] = 'G';
    ftruncate(fd, 4 * PAGE);
    printf("garbage behind the end: %d\n", byte(fd, 3 * PAGE + 200));
    printf("msync %s", error(msync(m, 4 * PAGE, MS_SYNC)));
    printf(" %s", error(msync(m, PAGE, MS_ASYNC)));
    printf(" %s", error(msync(m + 1, PAGE, MS_SYNC)));
    printf(" %s\n", error(msync(m, PAGE, MS_SYNC | MS_ASYNC)));
    close(fd);
    m[9] = 'Z';
    fd = open("shared", O_RDONLY);
    printf("after close: %d\n", byte(fd, 9));
    unlink("shared");
    for (int i = 0; i < 20; i++) {
        char name[20];
        sprintf(name, "other%d", i);
        close(make(name, 10 * PAGE));
        unlink(name);
    }
    printf("after unlink: %ld\n", sum(m, 3 * PAGE));
    m[0] = 'Q';
    printf("and still shared: %d\n", byte(fd, 0));
    close(fd);
    printf("munmap %s\n", error(munmap(m, 3 * PAGE + 100)));
    printf("again %s\n", error(munmap(m, 3 * PAGE + 100)));
}

static void size_changes(void) {
    int fd = make("sizes", 5 * PAGE + 500);
    char *m = map(fd, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    char *r = map(fd, 16 * PAGE, PROT_READ, MAP_SHARED, 0);
    printf("past the end: %d %d %d\n", peek(m + 5 * PAGE), peek(m + 6 * PAGE), peek(r + 15 * PAGE));
    ftruncate(fd, 2 * PAGE + 300);
    printf("cut: %d %d %d %d\n", peek(m + 2 * PAGE + 299), peek(m + 2 * PAGE + 300),
        peek(m + 3 * PAGE), peek(r + 5 * PAGE));
    printf("store past the end: %d\n", poke(m + 4 * PAGE, 'x'));
    ftruncate(fd, 8 * PAGE);
    printf("grown: %d %d %d\n", peek(m + 3 * PAGE), peek(r + 7 * PAGE), peek(m + 8 * PAGE));
    poke(m + 6 * PAGE, 'n');
    printf("stored there: %d %d\n", byte(fd, 6 * PAGE), peek(r + 6 * PAGE));
    pwrite(fd, "end", 3, 12 * PAGE + 50);
    printf("written further: %d %d %d %d\n", peek(m + 12 * PAGE + 51), peek(r + 12 * PAGE + 52),
        peek(m + 10 * PAGE), peek(m + 13 * PAGE));
    poke(m + 10 * PAGE + 1, 'h');
    printf("hole filled: %d %d\n", byte(fd, 10 * PAGE + 1), peek(r + 10 * PAGE + 1));
    close(open("sizes", O_WRONLY | O_TRUNC));
    printf("emptied: %d %d\n", peek(m), peek(r + 12 * PAGE));
    pwrite(fd, "anew", 4, 0);
    printf("anew: %.4s %d\n", m, peek(m + PAGE));
    truncate("sizes", PAGE);
    printf("by name: %d %d\n", peek(m + PAGE - 1), poke(m + 5, '5'));
    int add = open("sizes", O_WRONLY | O_APPEND);
    char block[3000];
    memset(block, 'p', sizeof block);
    for (int i = 0; i < 9; i++) write(add, block, sizeof block);
    printf("appended: %d %d %d\n", peek(r + PAGE), peek(m + PAGE + 26999), peek(r + PAGE + 27000));
    close(add);
    munmap(m, 16 * PAGE);
    munmap(r, 16 * PAGE);
    close(fd);
}

static void holes(void) {
    int fd = open("holes", O_RDWR | O_CREAT | O_TRUNC, 0644);
    ftruncate(fd, 1 << 20);
    char *r = map(fd, 1 << 20, PROT_READ, MAP_SHARED, 0);
    printf("hole %d\n", r[500000]);
    pwrite(fd, "x", 1, 500000);
    printf("filled %d\n", r[500000]);
    char *m = map(fd, 1 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    m[700000] = 'm';
    printf("stored %d %d\n", byte(fd, 700000), r[700000]);
    memset(m, 'f', 1 << 20);
    printf("all %ld\n", sum(r, 1 << 20));
    posix_fallocate(fd, 1 << 20, 8 * PAGE);
    munmap(r, 1 << 20);
    r = map(fd, 2 * PAGE, PROT_READ, MAP_SHARED, (1 << 20) - PAGE);
    printf("at an offset %d %d\n", r[0], r[PAGE]);
    munmap(r, 2 * PAGE);
    munmap(m, 1 << 20);
    close(fd);
}

static void private_maps(void) {
    int fd = make("private", 4 * PAGE + 10);
    char *p = map(fd, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, 0);
    p[0] = '!';
    printf("private %d %d %d %d\n", byte(fd, 0), p[0], peek(p + 4 * PAGE + 10), peek(p + 5 * PAGE));
    char *r = map(fd, 4 * PAGE, PROT_READ, MAP_PRIVATE, 0);
    printf("read %d\n", r[PAGE]);
    printf("made writable %s\n", error(mprotect(r + PAGE, PAGE, PROT_READ | PROT_WRITE)));
    r[PAGE] = '?';
    printf("%d %d %d\n", r[PAGE], byte(fd, PAGE), r[2 * PAGE]);
    printf("executable %s\n", error(mprotect(r, 4 * PAGE, PROT_READ | PROT_EXEC)));
    printf("%d %d\n", r[PAGE], r[3 * PAGE]);
    unlink("private");
    close(fd);
    printf("still %d %ld\n", p[0], sum(p + PAGE, PAGE));
    munmap(p, 6 * PAGE);
    munmap(r, 4 * PAGE);
    /* mov eax, 42; ret */
    fd = open("code", O_RDWR | O_CREAT, 0755);
    write(fd, "\xb8\x2a\0\0\0\xc3", 6);
    int (*code)(void) = (int (*)(void))map(fd, 6, PROT_READ | PROT_EXEC, MAP_PRIVATE, 0);
    printf("code %d\n", code());
    close(fd);
}

static void errors(void) {
    int fd = make("errors", 2 * PAGE), reading = open("errors", O_RDONLY),
        writing = open("errors", O_WRONLY), path = open("errors", O_PATH), directory = open(".", O_RDONLY);
    int rw = PROT_READ | PROT_WRITE;
    struct { int fd, protection, flags; long length, offset; } cases[] = {
        {fd, rw, MAP_SHARED, 0, 0}, {fd, rw, MAP_SHARED, PAGE, 1}, {fd, rw, 0, PAGE, 0},
        {reading, rw, MAP_SHARED, PAGE, 0}, {reading, rw, MAP_PRIVATE, PAGE, 0},
        {writing, PROT_READ, MAP_SHARED, PAGE, 0}, {writing, PROT_WRITE, MAP_SHARED, PAGE, 0},
        {writing, PROT_READ, MAP_PRIVATE, PAGE, 0}, {path, PROT_READ, MAP_SHARED, PAGE, 0},
        {directory, PROT_READ, MAP_SHARED, PAGE, 0}, {directory, PROT_READ, MAP_PRIVATE, PAGE, 0},
        {999, PROT_READ, MAP_SHARED, PAGE, 0}, {fd, PROT_NONE, MAP_SHARED, PAGE, 0},
        {fd, PROT_READ, MAP_SHARED, 1L << 62, 0}, {fd, PROT_READ, MAP_SHARED, PAGE, ~(PAGE - 1)},
        {fd, PROT_READ, MAP_SHARED_VALIDATE, PAGE, 0}, {fd, PROT_READ, MAP_PRIVATE, PAGE, 8 * PAGE},
        {fd, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, PAGE, 0},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *m = map(cases[i].fd, cases[i].length, cases[i].protection, cases[i].flags, cases[i].offset);
        printf("%u %s\n", i, error(m == MAP_FAILED));
        if (m != MAP_FAILED) munmap(m, cases[i].length);
    }
    char *r = map(reading, 2 * PAGE, PROT_READ, MAP_SHARED, 0);
    printf("no upgrade: %s\n", error(mprotect(r, PAGE, rw)));
    char *u = map(fd, 2 * PAGE, PROT_READ, MAP_SHARED, 0);
    printf("upgrade: %s\n", error(mprotect(u, PAGE, rw)));
    u[0] = 'U';
    printf("%d %d %d\n", byte(fd, 0), r[0], poke(u + PAGE, 'x'));
    printf("back: %s\n", error(mprotect(u, 2 * PAGE, PROT_READ)));
    printf("%d\n", poke(u, 'x'));
    printf("none: %s\n", error(mprotect(u, PAGE, PROT_NONE)));
    printf("%d\n", peek(u));
    printf("unaligned: %s", error(munmap(u + 1, PAGE)));
    printf(" %s", error(mprotect(u + 1, PAGE, PROT_READ)));
    printf(" %s\n", error(munmap(u, 0)));
    printf("advice: %s %s\n", error(madvise(r, PAGE, MADV_DONTNEED)), error(madvise(r, PAGE, MADV_WILLNEED)));
    printf("%d\n", r[0]);
    munmap(r, 2 * PAGE);
    munmap(u, 2 * PAGE);
    close(fd), close(reading), close(writing), close(path), close(directory);
}

static void parts_and_moves(void) {
    int fd = make("parts", 8 * PAGE), rw = PROT_READ | PROT_WRITE;
    char *m = map(fd, 8 * PAGE, rw, MAP_SHARED, 0);
    printf("middle away %s\n", error(munmap(m + 3 * PAGE, 2 * PAGE)));
    printf("%d %d %d %d\n", peek(m + 2 * PAGE), peek(m + 3 * PAGE), peek(m + 4 * PAGE), peek(m + 5 * PAGE));
    char *other = mmap(m + 3 * PAGE, PAGE, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    other[0] = 'o';
    pwrite(fd, "new", 3, 3 * PAGE);
    pwrite(fd, "new", 3, 5 * PAGE);
    printf("not ours any more: %d %d\n", other[0], m[5 * PAGE]);
    char *fixed = mmap(m + 4 * PAGE, 3 * PAGE, rw, MAP_SHARED | MAP_FIXED, fd, PAGE);
    printf("fixed %d %d\n", fixed == m + 4 * PAGE, fixed[0] == m[PAGE]);
    fixed[0] = 'F';
    printf("same page %d\n", m[PAGE]);
    munmap(m, 8 * PAGE);

    m = map(fd, 4 * PAGE, rw, MAP_SHARED, 0);
    char *moved = mremap(m, 4 * PAGE, 8 * PAGE, MREMAP_MAYMOVE);
    printf("grown %d %d\n", moved[0], moved[7 * PAGE]);
    moved[7 * PAGE] = 'g';
    printf("%d\n", byte(fd, 7 * PAGE));
    printf("shrunk %d\n", mremap(moved, 8 * PAGE, 2 * PAGE, 0) == moved);
    printf("%d %d\n", peek(moved + PAGE), peek(moved + 2 * PAGE));
    char *twin = mremap(moved, 0, 2 * PAGE, MREMAP_MAYMOVE);
    twin[1] = 't';
    printf("twin %d\n", moved[1]);
    char *room = mmap(NULL, 4 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *there = mremap(moved, 2 * PAGE, 3 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, room);
    printf("moved %d %d %d\n", there == room, peek(there + 1), peek(there + 2 * PAGE));
    printf("left %s\n", error(mremap(moved, 2 * PAGE, 2 * PAGE, 0) == MAP_FAILED));
    printf("flags %s\n", error(mremap(there, PAGE, PAGE, MREMAP_FIXED, room + PAGE) == MAP_FAILED));
    pwrite(fd, "last", 4, 0);
    printf("%.4s %.4s\n", there, twin);
    munmap(there, 3 * PAGE);
    munmap(twin, 2 * PAGE);
    close(fd);
}

static void forks(void) {
    int fd = make("forks", 2 * PAGE);
    char *m = map(fd, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        m[0] = 'C';
        while (*(volatile char *)(m + PAGE) != 'P') usleep(100);
        int mine = open("forks", O_RDONLY);
        printf("child %d %d\n", byte(mine, 0), byte(fd, PAGE));
        m[1] = 'D';
        while (*(volatile char *)(m + PAGE + 2) != 'R') usleep(100);
        printf("child %d %d %ld\n", byte(fd, PAGE + 100), m[PAGE + 101], (long)lseek(fd, 0, SEEK_END));
        munmap(m, PAGE);
        printf("child %d\n", m[PAGE]);
        fflush(stdout);
        _exit(3);
    }
    while (*(volatile char *)m != 'C') usleep(100);
    m[PAGE] = 'P';
    while (*(volatile char *)(m + 1) != 'D') usleep(100);
    pwrite(fd, "again", 5, PAGE + 100);
    ftruncate(fd, 3 * PAGE);
    m[PAGE + 2] = 'R';
    int status;
    waitpid(child, &status, 0);
    printf("parent %d %d %d\n", WEXITSTATUS(status), m[0], byte(fd, 0));
    m[1] = 'p';
    printf("%d\n", byte(fd, 1));
    munmap(m, 2 * PAGE);
    close(fd);
}

static char *common;
static int common_fd;
static void *writer(void *argument) {
    long id = (long)argument;
    for (int round = 0; round < 300; round++)
        for (long page = id; page < 64; page += 4) {
            if (round & 1)
                common[page * PAGE + round] = (char)(id + 1);
            else {
                char c = (char)(id + 1);
                pwrite(common_fd, &c, 1, page * PAGE + round);
            }
        }
    return NULL;
}
static void threads(void) {
    common_fd = open("threads", O_RDWR | O_CREAT | O_TRUNC, 0644);
    ftruncate(common_fd, 64 * PAGE);
    common = map(common_fd, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, 0);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, writer, (void *)i);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    char *read = malloc(64 * PAGE);
    pread(common_fd, read, 64 * PAGE, 0);
    printf("threads %d %ld\n", memcmp(read, common, 64 * PAGE), sum(read, 64 * PAGE));
    munmap(common, 64 * PAGE);
    close(common_fd);
}

int main(int argc, char **argv) {
    if (argc < 2 || chdir(argv[1])) return 9;
    struct sigaction action = {.sa_handler = bus};
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGSEGV, &action, NULL);
    shared_and_written();
    size_changes();
    holes();
    private_maps();
    errors();
    parts_and_moves();
    forks();
    threads();
    return 0;
}
