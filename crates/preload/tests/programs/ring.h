// A ring of io_uring by system calls of the program's own: what is submitted, and what each completion says.
#define _GNU_SOURCE
#pragma GCC diagnostic ignored "-Wunused-function"
#include "results.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENTRIES = 32 };

static long own(long number, long a, long b, long c, long d, long e, long f) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result = number;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

struct ring {
    int number;
    unsigned char *counters;
    size_t counters_size, entries_size;
    struct io_uring_sqe *entries;
    struct io_uring_params given;
    unsigned filled;
};

static unsigned *at(struct ring *ring, unsigned offset) { return (unsigned *)(ring->counters + offset); }

static long begin(struct ring *ring, unsigned flags) {
    memset(ring, 0, sizeof *ring);
    ring->given.flags = flags;
    long number = own(SYS_io_uring_setup, ENTRIES, (long)&ring->given, 0, 0, 0, 0);
    if (number < 0)
        return number;
    ring->number = number;
    ring->counters_size = ring->given.cq_off.cqes + ring->given.cq_entries * sizeof(struct io_uring_cqe);
    size_t other = ring->given.sq_off.array + ENTRIES * sizeof(unsigned);
    if (other > ring->counters_size)
        ring->counters_size = other;
    ring->entries_size = ENTRIES * sizeof(struct io_uring_sqe);
    ring->counters = mmap(NULL, ring->counters_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, number, 0);
    ring->entries = mmap(NULL, ring->entries_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, number,
                         IORING_OFF_SQES);
    return number;
}

static void end(struct ring *ring) {
    munmap(ring->counters, ring->counters_size);
    munmap(ring->entries, ring->entries_size);
    close(ring->number);
}

// The next entry, at a place of its own.
static struct io_uring_sqe *entry(struct ring *ring, int operation, int file, const void *address, unsigned length,
                                  uint64_t offset) {
    unsigned tail = *at(ring, ring->given.sq_off.tail);
    unsigned place = tail & (ENTRIES - 1);
    struct io_uring_sqe *entry = &ring->entries[place];
    memset(entry, 0, sizeof *entry);
    entry->opcode = operation;
    entry->fd = file;
    entry->addr = (uintptr_t)address;
    entry->len = length;
    entry->off = offset;
    entry->user_data = ++ring->filled;
    at(ring, ring->given.sq_off.array)[place] = place;
    __atomic_store_n(at(ring, ring->given.sq_off.tail), tail + 1, __ATOMIC_RELEASE);
    return entry;
}

struct told {
    uint64_t data;
    int result;
    unsigned flags;
};

static int by_data(const void *a, const void *b) {
    uint64_t one = ((const struct told *)a)->data, other = ((const struct told *)b)->data;
    return one < other ? -1 : one > other;
}

// Takes what has been told, in the order of submission.
static int take(struct ring *ring, struct told *told) {
    unsigned *head = at(ring, ring->given.cq_off.head);
    unsigned tail = __atomic_load_n(at(ring, ring->given.cq_off.tail), __ATOMIC_ACQUIRE);
    struct io_uring_cqe *all = (void *)(ring->counters + ring->given.cq_off.cqes);
    int count = 0;
    for (unsigned i = *head; i != tail; i++) {
        struct io_uring_cqe *one = &all[i & *at(ring, ring->given.cq_off.ring_mask)];
        told[count++] = (struct told){one->user_data, one->res, one->flags};
    }
    __atomic_store_n(head, tail, __ATOMIC_RELEASE);
    qsort(told, count, sizeof *told, by_data);
    return count;
}

// Submits what was filled in, waits for so many, and prints them.
static void submit(const char *what, struct ring *ring, int expected) {
    unsigned from = ring->filled;
    unsigned count = *at(ring, ring->given.sq_off.tail) - *at(ring, ring->given.sq_off.head);
    long sent = own(SYS_io_uring_enter, ring->number, count, expected, IORING_ENTER_GETEVENTS, 0, 0);
    printf("%s: submitted %s;", what, of(sent));
    struct told told[4 * ENTRIES];
    int got = 0;
    for (int tries = 0; tries < 50 && got < expected; tries++) {
        got += take(ring, told + got);
        if (got < expected)
            own(SYS_io_uring_enter, ring->number, 0, expected - got, IORING_ENTER_GETEVENTS, 0, 0);
    }
    got += take(ring, told + got);
    qsort(told, got, sizeof *told, by_data);
    for (int i = 0; i < got; i++)
        printf(" %lld=%s", (long long)(told[i].data - (from - count)), of(told[i].result));
    printf("\n");
}

static char *path(const char *directory, const char *name) {
    static char room[8][4096];
    static int turn;
    char *text = room[turn++ % 8];
    snprintf(text, sizeof room[0], "%s/%s", directory, name);
    return text;
}

static void contents(const char *what, const char *name) {
    char bytes[256] = {0};
    int file = open(name, O_RDONLY);
    long got = file < 0 ? -errno : read(file, bytes, sizeof bytes - 1);
    for (int i = 0; i < got; i++)
        if (!bytes[i])
            bytes[i] = '.';
    printf("%s: %s \"%s\"\n", what, of(got), bytes);
    close(file);
}

static int make(const char *name, const char *text) {
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || write(file, text, strlen(text)) != (long)strlen(text))
        perror(name);
    return file;
}
