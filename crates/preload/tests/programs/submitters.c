// Who submits to rings of io_uring, and how they are set up and waited for: on files of the directory that is the second argument,
// with files of the first, which is the host's. Prints what is told, and what is in the files afterwards.
#include "ring.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>

enum { ROUNDS = 5000 };
static struct ring shared;
static volatile int all_told;

struct submitter {
    int file, most;
    long at;
};

static void *submits(void *given) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const struct submitter *self = given;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&lock);
        entry(&shared, IORING_OP_WRITE, self->file, "x", 1, self->at + 4 * i);
        pthread_mutex_unlock(&lock);
        while (own(SYS_io_uring_enter, shared.number, self->most, 0, 0, 0, 0) == -EBUSY)
            ;
    }
    // What a thread has submitted is cancelled when it ends.
    while (!all_told)
        usleep(1000);
    return NULL;
}

static void filled(const char *what, int file) {
    static char bytes[4 * ROUNDS];
    struct stat status;
    fstat(file, &status);
    long length = pread(file, bytes, sizeof bytes, 0), filled = 0;
    for (long i = 0; i < length; i++)
        filled += bytes[i] == 'x';
    printf("%s: %ld of %ld\n", what, filled, (long)status.st_size);
}

// Threads with a ring in common: some submit what is the host's, and some submit what others have filled in.
static void threads(const char *here, const char *host) {
    begin(&shared, 0);
    int files[] = {make(path(here, "threads"), ""), make(path(host, "threads"), "")};
    pthread_t threads[4];
    struct submitter submitters[4];
    for (int i = 0; i < 4; i++) {
        submitters[i] = (struct submitter){files[i & 1], i & 2 ? 8 : 1, i};
        pthread_create(&threads[i], NULL, submits, &submitters[i]);
    }
    int got = 0;
    while (got < 4 * ROUNDS) {
        struct told all[4 * ENTRIES];
        own(SYS_io_uring_enter, shared.number, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
        int some = take(&shared, all);
        for (int i = 0; i < some; i++)
            if (all[i].result != 1)
                said("wrong", all[i].result);
        got += some;
    }
    all_told = 1;
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    filled("threads", files[0]);
    filled("of the host's", files[1]);
    end(&shared);
    close(files[0]), close(files[1]);
}

static sigjmp_buf back;
static volatile sig_atomic_t submitting;

static void jumps(int signal) {
    (void)signal;
    if (submitting) {
        submitting = 0;
        siglongjmp(back, 1);
    }
}

struct jumping {
    struct ring ring;
    int entries, jumped, told, wrong;
};

static void drain(struct jumping *all) {
    while (all->told < all->entries) {
        struct told told[4 * ENTRIES];
        own(SYS_io_uring_enter, all->ring.number, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
        int some = take(&all->ring, told);
        for (int i = 0; i < some; i++)
            all->wrong += told[i].result != 8;
        all->told += some;
    }
}

// A handler that jumps out of a submission, which is made again then if the kernel has not taken it.
static void jumped(const char *here, const char *host) {
    enum { JUMPS = 200, FEWEST = 2000 };
    static struct jumping all;
    static char room[8];
    begin(&all.ring, 0);
    unsigned *head = at(&all.ring, all.ring.given.sq_off.head), *tail = at(&all.ring, all.ring.given.sq_off.tail);
    int files[] = {make(path(here, "jumped"), "0123456789"), make(path(host, "jumped"), "0123456789")};
    struct sigaction action = {.sa_handler = jumps};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 300}, {0, 300}}, never = {0};
    setitimer(ITIMER_REAL, &often, NULL);
    while (all.entries < FEWEST || all.jumped < JUMPS) {
        entry(&all.ring, IORING_OP_READ, files[all.entries++ & 1], room, 8, 0);
        if (sigsetjmp(back, 1))
            all.jumped++;
        while (__atomic_load_n(head, __ATOMIC_ACQUIRE) != *tail) {
            submitting = 1;
            own(SYS_io_uring_enter, all.ring.number, 1, 0, 0, 0, 0);
            submitting = 0;
        }
        if (all.entries % ENTRIES == 0)
            drain(&all);
    }
    setitimer(ITIMER_REAL, &never, NULL);
    drain(&all);
    printf("jumped: %d wrong, %d too many\n", all.wrong, all.told - all.entries);
    end(&all.ring);
    close(files[0]), close(files[1]);
}

// What is submitted again without being filled in anew, and what a fork has of it.
static void others(const char *here) {
    struct ring ring;
    char a[64] = {0};
    char *name = path(here, "others");
    int file = make(name, "0123456789");
    begin(&ring, 0);
    struct io_uring_sqe *again = entry(&ring, IORING_OP_READ, file, a, 3, 0);
    submit("first", &ring, 1);
    printf("%s %d %d\n", a, again->opcode, again->fd == file);
    pwrite(file, "abc", 3, 0);
    unsigned *tail = at(&ring, ring.given.sq_off.tail);
    at(&ring, ring.given.sq_off.array)[*tail & (ENTRIES - 1)] = again - ring.entries;
    __atomic_store_n(tail, *tail + 1, __ATOMIC_RELEASE);
    own(SYS_io_uring_enter, ring.number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    struct told told[4];
    said("again", take(&ring, told));
    printf("%s\n", a);
    // Fewer are taken than there are: one that cannot be begun ends the call, and the rest follows.
    entry(&ring, IORING_OP_READ, file, a, 3, 0);
    entry(&ring, 200, file, a, 3, 0);
    entry(&ring, IORING_OP_WRITE, file, "once", 4, -1);
    lseek(file, 6, SEEK_SET);
    submit("one that is none", &ring, 2);
    submit("the rest", &ring, 1);
    said("offset", lseek(file, 0, SEEK_CUR));
    contents("once", name);
    // Its memory taken away.
    munmap(ring.entries, ring.entries_size);
    own(SYS_io_uring_enter, ring.number, 0, 0, 0, 0, 0);
    munmap(ring.counters, ring.counters_size);
    close(ring.number);
    // Each process has its own.
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        begin(&ring, 0);
        entry(&ring, IORING_OP_WRITE, file, "child", 5, 0);
        submit("a child", &ring, 1);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    memset(a, 0, sizeof a);
    pread(file, a, 5, 0);
    printf("%s\n", a);
    close(file);
}

// A ring that loses the number that it was given, and the next ones, to nobody, to another ring and to a file.
static void renumbered(const char *here) {
    struct ring ring, second;
    char *name = path(here, "renumbered");
    int file = make(name, "0123456789");
    begin(&ring, 0);
    said("register", own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)&file, 1, 0, 0));
    int given = ring.number;
    ring.number = fcntl(given, F_DUPFD, 100);
    close(given);
    entry(&ring, IORING_OP_WRITE, file, "a", 1, 0);
    submit("another number", &ring, 1);
    begin(&second, 0);
    said("the number is given again", second.number - given);
    entry(&ring, IORING_OP_WRITE, 0, "b", 1, 1)->flags = IOSQE_FIXED_FILE;
    entry(&second, IORING_OP_WRITE, file, "c", 1, 2);
    submit("another number", &ring, 1);
    submit("the second", &second, 1);
    int next = dup(ring.number);
    dup2(file, ring.number);
    close(ring.number);
    ring.number = next;
    entry(&ring, IORING_OP_WRITE, file, "d", 1, 3);
    submit("replaced", &ring, 1);
    next = fcntl(ring.number, F_DUPFD, 200);
    close_range(ring.number, ring.number, 0);
    ring.number = next;
    entry(&ring, IORING_OP_WRITE, file, "e", 1, 4);
    submit("closed in a range", &ring, 1);
    contents("renumbered", name);
    end(&ring), end(&second);
    close(file);
}

static volatile int heard;
static void hears(int signal) {
    heard = signal;
    // A call that is answered by the library.
    close(open("/dev/null", O_RDONLY));
}

// How rings are set up, waited for, and how many of them there can be.
static void rings(const char *here) {
    struct ring ring;
    char *name = path(here, "rings");
    int file = make(name, "0123456789");
    char a[64] = {0};
    for (unsigned i = 0; i < 3; i++) {
        unsigned flags[] = {1 << 16, IORING_SETUP_SQE128 | IORING_SETUP_CQE32,
                            IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN};
        long made = begin(&ring, flags[i]);
        printf("flags %x: %s\n", flags[i], made < 0 ? of(made) : "done");
        if (i == 0)
            entry(&ring, IORING_OP_READ, file, a, 4, i);
        if (i == 1) {
            // Each has the room of two, and so has what is told.
            close(ring.number);
            continue;
        }
        if (i == 2)
            entry(&ring, IORING_OP_READ, file, a, 4, i);
        submit("read", &ring, 1);
        printf("%s\n", a);
        end(&ring);
    }
    begin(&ring, IORING_SETUP_R_DISABLED);
    entry(&ring, IORING_OP_WRITE, file, "no", 2, 0);
    said("disabled", own(SYS_io_uring_enter, ring.number, 1, 0, 0, 0, 0));
    contents("not written", name);
    said("enabled", own(SYS_io_uring_register, ring.number, IORING_REGISTER_ENABLE_RINGS, 0, 0, 0, 0));
    submit("enabled", &ring, 1);
    contents("written", name);
    end(&ring);
    said("no memory", own(SYS_io_uring_setup, 8, 8, 0, 0, 0, 0));
    said("no ring", own(SYS_io_uring_enter, file, 1, 0, 0, 0, 0));
    said("no descriptor", own(SYS_io_uring_enter, 1 << 16, 1, 0, 0, 0, 0));
    // A signal while it waits, also with a mask of its own.
    begin(&ring, 0);
    struct sigaction action = {.sa_handler = hears};
    sigaction(SIGALRM, &action, NULL);
    sigset_t mask;
    sigfillset(&mask);
    sigdelset(&mask, SIGALRM);
    for (int i = 0; i < 2; i++) {
        heard = 0;
        ualarm(20000, 0);
        entry(&ring, IORING_OP_READ, file, a, 4, 0);
        long result = own(SYS_io_uring_enter, ring.number, 1, 2, IORING_ENTER_GETEVENTS, i ? (long)&mask : 0, 8);
        printf("waits: %s, heard %d, told %d\n", of(result), heard == SIGALRM, take(&ring, (struct told[4]){}));
    }
    heard = 0;
    ualarm(20000, 0);
    said("waits", own(SYS_io_uring_enter, ring.number, 0, 1, IORING_ENTER_GETEVENTS, 0, 0));
    said("heard", heard == SIGALRM);
    end(&ring);
    // Many, one after the other and at once.
    int good = 0;
    for (int i = 0; i < 1500; i++) {
        if (begin(&ring, 0) < 0)
            break;
        entry(&ring, IORING_OP_READ, file, a, 4, 0);
        struct told told[4];
        own(SYS_io_uring_enter, ring.number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        good += take(&ring, told) == 1 && told[0].result == 4;
        end(&ring);
    }
    said("one after the other", good);
    struct ring many[100];
    good = 0;
    for (int i = 0; i < 100; i++)
        begin(&many[i], 0);
    for (int i = 0; i < 100; i++) {
        entry(&many[i], IORING_OP_READ, file, a, 4, 0);
        struct told told[4];
        own(SYS_io_uring_enter, many[i].number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        good += take(&many[i], told) == 1 && told[0].result == 4;
        end(&many[i]);
    }
    said("at once", good);
    // Few descriptors: what the library needs for itself is not to be had by registered files.
    begin(&ring, 0);
    struct rlimit limit, before;
    getrlimit(RLIMIT_NOFILE, &before);
    int files[8];
    for (int i = 0; i < 8; i++)
        files[i] = open(name, O_RDWR);
    limit = before;
    limit.rlim_cur = 80;
    setrlimit(RLIMIT_NOFILE, &limit);
    long few = own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)files, 8, 0, 0);
    printf("few descriptors: %s\n", few == 0 || few == -EMFILE ? "good" : of(few));
    setrlimit(RLIMIT_NOFILE, &before);
    for (int i = 0; i < 8; i++)
        close(files[i]);
    end(&ring);
    close(file);
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    (void)count;
    const char *host = words[1], *here = words[2];
    others(here);
    threads(here, host);
    jumped(here, host);
    renumbered(here);
    rings(here);
    return 0;
}
