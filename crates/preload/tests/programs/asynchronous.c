// The kernel's asynchronous I/O by libaio, on files of the directory that is the second argument and, in the same contexts,
// of the first, which is the host's. Prints what each call and each completion says.
#define _GNU_SOURCE
#include "results.h"
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096 };

// Fetches so many, and prints them in the order of their data.
static int by_data(const void *a, const void *b) {
    uintptr_t one = (uintptr_t)((const struct io_event *)a)->data;
    uintptr_t other = (uintptr_t)((const struct io_event *)b)->data;
    return one < other ? -1 : one > other;
}

static void fetch(const char *what, io_context_t context, long count, struct iocb *first, size_t size) {
    struct io_event events[64];
    long got = io_getevents(context, count, 64, events, NULL);
    printf("%s: fetched %s", what, of(got));
    qsort(events, got > 0 ? got : 0, sizeof events[0], by_data);
    for (long i = 0; i < got; i++) {
        long place = first ? ((char *)events[i].obj - (char *)first) / (long)size : -1;
        printf(" (%ld of %ld: %s, %s)", (long)(uintptr_t)events[i].data, place, of((long)events[i].res),
               of((long)events[i].res2));
    }
    printf("\n");
}

static void one(const char *what, io_context_t context, struct iocb request) {
    struct iocb *list[] = {&request};
    request.data = (void *)7;
    int sent = io_submit(context, 1, list);
    said(what, sent);
    if (sent == 1)
        fetch(what, context, 1, &request, sizeof request);
}

static void *submits_later(void *context) {
    usleep(50000);
    static struct iocb request;
    struct iocb *list[] = {&request};
    io_prep_pread(&request, *(int *)((void **)context)[1], ((void **)context)[2], 10, 0);
    io_submit(((io_context_t *)context)[0], 1, list);
    return NULL;
}

// Two threads submit, of both sides, and two fetch, one of which waits without an end.
enum { EACH = 4000 };
struct shared {
    io_context_t context;
    int fd, host, fetched, wrong;
};

static void *submits(void *argument) {
    struct shared *shared = argument;
    static __thread struct iocb requests[EACH];
    char byte;
    for (int i = 0; i < EACH; i++) {
        struct iocb *list[] = {&requests[i]};
        io_prep_pread(&requests[i], i % 5 ? shared->fd : shared->host, &byte, 1, 0);
        requests[i].data = list[0];
        while (io_submit(shared->context, 1, list) != 1)
            sched_yield();
    }
    // Until all is fetched the requests have to stay.
    while (__atomic_load_n(&shared->fetched, __ATOMIC_SEQ_CST) < 2 * EACH)
        usleep(1000);
    return NULL;
}

static void *fetches(void *argument) {
    struct shared *shared = argument;
    struct io_event events[16];
    while (__atomic_load_n(&shared->fetched, __ATOMIC_SEQ_CST) < 2 * EACH) {
        struct timespec soon = {.tv_nsec = 50000000};
        long got = io_getevents(shared->context, 1, 16, events, &soon);
        for (long i = 0; i < got; i++)
            if (events[i].data != events[i].obj || events[i].res != 1)
                __atomic_fetch_add(&shared->wrong, 1, __ATOMIC_SEQ_CST);
        if (got > 0)
            __atomic_fetch_add(&shared->fetched, (int)got, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static volatile sig_atomic_t handled;
static void handler(int number) { handled = number; }

int main(int count, char **arguments) {
    (void)count;
    setvbuf(stdout, NULL, _IONBF, 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/file", arguments[2]);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    int reads = open(path, O_RDONLY), writes = open(path, O_WRONLY), directory = open(arguments[2], O_RDONLY);
    snprintf(path, sizeof path, "%s/host", arguments[1]);
    int host = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    io_context_t context = (io_context_t)1, other = 0;
    said("a context that is one already", io_setup(8, &context));
    context = 0;
    said("for nothing", io_setup(0, &context));
    said("nowhere", io_setup(8, (io_context_t *)8));
    said("for 8", io_setup(8, &context));
    said("another", io_setup(128, &other));
    said("of its own", (long)(context != other && context != 0));

    char *buffer = aligned_alloc(PAGE, 4 * PAGE), *back = aligned_alloc(PAGE, 4 * PAGE);
    for (int i = 0; i < 4 * PAGE; i++)
        buffer[i] = (char)(i * 7);
    // Many at once, of both sides.
    struct iocb requests[6], *list[6];
    for (int i = 0; i < 6; i++) {
        list[i] = &requests[i];
        io_prep_pwrite(&requests[i], i % 2 ? host : fd, buffer + i * 100, 100, i * 100);
        requests[i].data = (void *)(uintptr_t)(i + 1);
    }
    said("six", io_submit(context, 6, list));
    fetch("six", context, 6, requests, sizeof requests[0]);
    struct timespec at_once = {0};
    struct io_event event;
    said("no more", io_getevents(context, 0, 1, &event, &at_once));
    struct timespec soon = {.tv_nsec = 20000000};
    said("none in time", io_getevents(context, 1, 1, &event, &soon));
    // libaio answers some by itself, where it finds the kernel's ring.
    said("more than at most", io_getevents(context, 2, 1, &event, &soon));
    said("fewer than none", io_getevents(context, -1, 1, &event, &soon));

    struct iocb request;
    io_prep_pread(&request, fd, back, 4 * PAGE, 0);
    one("to the end", context, request);
    int same = 1;
    for (int i = 0; i < 500; i++)
        same &= back[i] == (i / 100 % 2 ? 0 : buffer[i]);
    said("what was written", same);
    io_prep_pread(&request, fd, back, 10, 1 << 20);
    one("behind the end", context, request);
    struct iovec vector[3] = {{buffer, 10}, {buffer + 50, 0}, {buffer + 100, 20}};
    io_prep_pwritev(&request, fd, vector, 3, 2000);
    one("a vector", context, request);
    struct iovec into[2] = {{back, 5}, {back + 5, 25}};
    io_prep_preadv(&request, fd, into, 2, 2000);
    one("into a vector", context, request);
    said("the same", !memcmp(back, buffer, 10) && !memcmp(back + 10, buffer + 100, 20));
    io_prep_fsync(&request, fd);
    one("fsync", context, request);
    io_prep_fdsync(&request, fd);
    one("fdsync", context, request);

    // What is wrong.
    io_prep_pread(&request, writes, back, 10, 0);
    one("read of what is only written", context, request);
    io_prep_pwrite(&request, reads, back, 10, 0);
    one("write of what is only read", context, request);
    io_prep_pread(&request, directory, back, 10, 0);
    one("read of a directory", context, request);
    io_prep_pread(&request, 1000, back, 10, 0);
    one("no descriptor", context, request);
    io_prep_pread(&request, fd, back, 10, -5);
    one("before the beginning", context, request);
    io_prep_pread(&request, fd, back, -5, 0);
    one("less than nothing", context, request);
    io_prep_pread(&request, fd, NULL, 10, 0);
    one("into nothing", context, request);
    char *gone = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(gone, PAGE);
    io_prep_pwrite(&request, fd, gone, 10, 0);
    one("from nothing", context, request);
    io_prep_pread(&request, fd, back, 10, 0);
    request.aio_lio_opcode = 99;
    one("an operation that is none", context, request);
    request.aio_lio_opcode = IO_CMD_POLL;
    one("poll of a file", context, request);
    io_prep_fsync(&request, fd);
    request.u.c.nbytes = 1;
    one("fsync of something", context, request);
    io_prep_pread(&request, fd, back, 10, 0);
    request.aio_rw_flags = 1 << 20;
    one("flags that are none", context, request);
    request.aio_rw_flags = 1;
    one("with high priority", context, request);
    said("no requests", io_submit(context, 0, list));
    said("fewer than none", io_submit(context, -1, list));
    said("a list nowhere", io_submit(context, 1, (struct iocb **)8));
    struct iocb *nowhere[] = {(struct iocb *)8};
    said("a request nowhere", io_submit(context, 1, nowhere));
    // The first two go, the third is refused.
    io_prep_pread(&requests[2], 1000, back, 1, 0);
    said("two and a bad one", io_submit(context, 3, list));
    fetch("two and a bad one", context, 2, requests, sizeof requests[0]);

    // An eventfd is told of each.
    int told = eventfd(0, EFD_NONBLOCK);
    for (int i = 0; i < 4; i++) {
        io_prep_pread(&requests[i], i % 2 ? host : fd, back, 10, 0);
        io_set_eventfd(&requests[i], told);
    }
    said("with an eventfd", io_submit(context, 4, list));
    struct pollfd polled = {.fd = told, .events = POLLIN};
    poll(&polled, 1, 5000);
    fetch("with an eventfd", context, 4, NULL, 1);
    uint64_t number = 0;
    said("read of it", read(told, &number, sizeof number));
    said("told", (long)number);
    io_set_eventfd(&requests[0], fd);
    said("what is no eventfd", io_submit(context, 1, list));

    // Another thread submits while this one waits.
    void *what[] = {context, &fd, back};
    pthread_t thread;
    pthread_create(&thread, NULL, submits_later, what);
    fetch("by another thread", context, 1, NULL, 1);
    pthread_join(thread, NULL);

    // A signal that is let in while it waits.
    sigset_t blocked, none;
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGUSR1, handler);
    kill(getpid(), SIGUSR1);
    said("with a mask", io_pgetevents(context, 1, 1, &event, NULL, &none));
    said("handled", handled == SIGUSR1);

    struct io_event cancelled;
    said("what is done", io_cancel(context, &requests[0], &cancelled));
    // A child has none of these.
    pid_t child = fork();
    if (child == 0) {
        said("a child's", io_submit(context, 1, list));
        io_context_t own = 0;
        said("of its own", io_setup(4, &own));
        io_prep_pread(&request, fd, back, 10, 0);
        one("there", own, request);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    struct shared shared = {.context = other, .fd = fd, .host = host};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, i % 2 ? submits : fetches, &shared);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    printf("by four threads: %d fetched, %d wrong\n", shared.fetched, shared.wrong);
    // More than there is room for, without fetching.
    struct iocb many[512], *all[512];
    for (int i = 0; i < 512; i++) {
        all[i] = &many[i];
        io_prep_pread(&many[i], fd, back, 1, 0);
    }
    long sent = 0, last;
    while ((last = io_submit(other, 1, &all[sent])) == 1 && sent < 511)
        sent++;
    printf("at least 128: %d, then %s\n", sent >= 128, of(last));
    struct io_event events[512];
    said("all of them", io_getevents(other, sent, 512, events, NULL) == sent);
    said("one more", io_submit(other, 1, all));
    said("end", io_destroy(other));
    said("again", io_destroy(other));
    said("after its end", io_submit(other, 1, all));
    said("the first", io_destroy(context));
    // Again and again.
    int begun = 0;
    for (int i = 0; i < 60; i++) {
        io_context_t again = 0;
        begun += io_queue_init(1 + i % 32, &again) == 0;
        begun += io_queue_release(again) == 0;
    }
    said("begun and ended", begun);
    // Who waits is told also where there are no descriptors left.
    io_context_t last_one = 0;
    said("the last", io_setup(4, &last_one));
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 256;
    setrlimit(RLIMIT_NOFILE, &limit);
    while (dup(1) >= 0) {
    }
    said("no descriptor", -errno);
    void *with[] = {last_one, &fd, back};
    pthread_create(&thread, NULL, submits_later, with);
    fetch("without descriptors", last_one, 1, NULL, 1);
    pthread_join(thread, NULL);
    return 0;
}
