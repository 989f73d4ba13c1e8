// io_uring on files of the directory that is the argument, which has to be a pool's beneath the library: what differs from tmpfs
// there, and what becomes of the mount's descriptors.
#include "ring.h"
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

// Descriptors of a file, the library's own among them.
static int open_on(const char *name) {
    int count = 0;
    for (int i = 0; i < 2048; i++) {
        char link[64], target[4096];
        snprintf(link, sizeof link, "/proc/self/fd/%d", i);
        long length = readlink(link, target, sizeof target);
        count += length == (long)strlen(name) && !memcmp(target, name, length);
    }
    return count;
}

static int open_to_program(void) {
    int count = 0;
    for (int i = 0; i < 2048; i++)
        count += fcntl(i, F_GETFD) >= 0;
    return count;
}

// What differs from tmpfs, and what becomes of the mount's descriptors.
static void alone(const char *here) {
    struct ring ring;
    char a[64] = {0};
    said("a thread of the kernel's", begin(&ring, IORING_SETUP_SQPOLL));
    said("without a descriptor", begin(&ring, 1 << 15));
    begin(&ring, 0);
    struct io_uring_rsrc_update numbers = {.offset = 0, .data = ring.number};
    said("a number for the ring", own(SYS_io_uring_register, ring.number, 20, (long)&numbers, 1, 0, 0));
    int nameless = open(here, O_RDWR | O_TMPFILE, 0600);
    said("register what has no name", own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)&nameless, 1, 0, 0));
    int ends[2];
    pipe(ends);
    entry(&ring, IORING_OP_READ, ends[0], a, 3, 0)->flags = IOSQE_IO_LINK;
    entry(&ring, IORING_OP_WRITE, nameless, a, 3, 0);
    write(ends[1], "abc", 3);
    submit("behind a pipe without a name", &ring, 2);
    entry(&ring, IORING_OP_WRITE, nameless, "abc", 3, 0);
    submit("without a name", &ring, 1);
    char *name = path(here, "alone");
    int behind = make(name, "0123456789");
    entry(&ring, IORING_OP_READ, ends[0], a, 3, 0)->flags = IOSQE_IO_LINK;
    entry(&ring, IORING_OP_WRITE, behind, a, 3, -1);
    write(ends[1], "NO.", 3);
    submit("behind a pipe at its offset", &ring, 2);
    int none[] = {-1, -1};
    own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)none, 2, 0, 0);
    entry(&ring, IORING_OP_READ, ends[0], a, 3, 0)->flags = IOSQE_IO_LINK;
    entry(&ring, IORING_OP_FILES_UPDATE, -1, &behind, 1, 1);
    write(ends[1], "abc", 3);
    submit("registered behind a pipe", &ring, 2);
    own(SYS_io_uring_register, ring.number, IORING_UNREGISTER_FILES, 0, 0, 0, 0);
    contents("neither is done", name);
    close(behind);
    int files[20], seen = open_to_program();
    for (int i = 0; i < 20; i++)
        files[i] = open(name, i & 1 ? O_RDONLY : O_RDWR);
    said("register", own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)files, 20, 0, 0));
    printf("the program has %d more, of the file there are %d\n", open_to_program() - seen, open_on(name));
    for (int i = 3; i < 2048; i++)
        if (fcntl(i, F_GETFD) < 0)
            close(i);
    entry(&ring, IORING_OP_WRITE, 1, "no", 2, 0)->flags = IOSQE_FIXED_FILE;
    entry(&ring, IORING_OP_WRITE, 18, "by", 2, 0)->flags = IOSQE_FIXED_FILE;
    submit("only read, and written", &ring, 2);
    int twin = dup(files[4]);
    for (int i = 0; i < 20; i++)
        close(files[i]);
    printf("the program has %d more, of the file there are %d\n", open_to_program() - seen, open_on(name));
    close(twin);
    printf("the program has %d more, of the file there are %d\n", open_to_program() - seen, open_on(name));
    // A child has none of them.
    int file = open(name, O_RDWR);
    own(SYS_io_uring_register, ring.number, IORING_UNREGISTER_FILES, 0, 0, 0, 0);
    printf("unregistered: of the file there are %d\n", open_on(name));
    own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)&file, 1, 0, 0);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        struct ring second;
        begin(&second, 0);
        entry(&second, IORING_OP_READ, ends[0], a, 3, 0)->flags = IOSQE_IO_LINK;
        entry(&second, IORING_OP_WRITE, file, a, 3, 4);
        write(ends[1], "kid", 3);
        submit("a child", &second, 2);
        contents("a child", name);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    contents("its parent", name);
    close(file);
    printf("closed: of the file there are %d\n", open_on(name));
    end(&ring);
    printf("the ring too: of the file there are %d\n", open_on(name));
    // Nobody has the ring any more, whichever way its number is lost.
    for (int way = 0; way < 2; way++) {
        begin(&ring, 0);
        file = open(name, O_RDWR);
        own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)&file, 1, 0, 0);
        close(file);
        printf("of the file there are %d", open_on(name));
        if (way)
            close_range(ring.number, ring.number, 0);
        else
            dup2(ends[0], ring.number);
        printf(", and %d\n", open_on(name));
    }
}

enum { APART = 8192 };

// Memory behind which there is none.
static char *apart(void) {
    char *memory = mmap(NULL, 2 * APART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(memory + APART, APART, PROT_NONE);
    return memory;
}

// Whatever is submitted, and whatever becomes of the ring's memory meanwhile: the program lives.
static void random_entries(const char *here) {
    static const int operations[] = {1,  2,  3,  4,  5,  8,  17, 18, 19, 20, 21, 22, 23, 24, 28, 30, 33,
                                     35, 36, 37, 38, 39, 41, 42, 43, 44, 55, 58, 59, 0,  99, 255};
    // All that can come into a name, with nothing behind each.
    char *memory = apart(), *given = apart(), *letter = apart();
    *letter = 'x';
    mprotect(letter, APART, PROT_READ);
    struct ring ring;
    srandom(7);
    const char *name = "random";
    long told = 0;
    if (chdir(here))
        perror(here);
    for (int round = 0; round < 40; round++) {
        // What is read into it is another name.
        strcpy(given, name);
        // What has been made in its place.
        if (unlink(name))
            rmdir(name);
        begin(&ring, round & 1 ? IORING_SETUP_SUBMIT_ALL : 0);
        // Of the round before something may still come: then there is none.
        int files[] = {open(name, O_RDWR | O_CREAT | O_TRUNC, 0644), open(here, O_RDONLY | O_DIRECTORY), AT_FDCWD, -1, 77, 1 << 20, 1 << 30};
        int *registered = files;
        if (round & 2)
            own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)registered, 1, 0, 0);
        const uint64_t addresses[] = {(uintptr_t)given, (uintptr_t)memory, 0, 8, 1ull << 63, (uintptr_t)letter, ~0ull};
        for (int i = 0; i < 400; i++) {
            int some = 1 + random() % 6;
            for (int j = 0; j < some; j++) {
                struct io_uring_sqe *one =
                    entry(&ring, operations[random() % 32], files[random() % 7], (void *)addresses[random() % 7],
                          random() % 3 ? random() % 5000 : random() * 2, random() % 2 ? random() % 20 : addresses[random() % 7]);
                one->flags = random() % 3 ? 0 : random();
                one->rw_flags = random() % 3 ? 0 : random() % 5000;
                one->buf_index = random() % 8 ? 0 : random();
                one->personality = random() % 16 ? 0 : random();
                one->file_index = random() % 4 ? 0 : random() % 40;
                one->addr3 = addresses[random() % 7];
                if (one->opcode == IORING_OP_CLOSE)
                    one->fd = files[0];
                if (random() % 50 == 0)
                    at(&ring, ring.given.sq_off.array)[random() % ENTRIES] = random();
            }
            own(SYS_io_uring_enter, ring.number, some, 0, IORING_ENTER_GETEVENTS, 0, 0);
            struct told room[8 * ENTRIES];
            told += take(&ring, room);
            // What is left, since one before was refused.
            unsigned *head = at(&ring, ring.given.sq_off.head), *tail = at(&ring, ring.given.sq_off.tail);
            for (int k = 0; k < 8 && *head != *tail; k++)
                own(SYS_io_uring_enter, ring.number, *tail - *head, 0, 0, 0, 0);
            if (random() % 64 == 0)
                __atomic_store_n(tail, *head, __ATOMIC_RELEASE);
        }
        if (round % 8 == 7) {
            entry(&ring, IORING_OP_READ, files[0], memory, 5, 0);
            munmap(round & 8 ? (void *)ring.entries : (void *)ring.counters, 4096);
            own(SYS_io_uring_enter, ring.number, 1, 0, 0, 0, 0);
        }
        end(&ring);
        close(files[0]), close(files[1]);
    }
    printf("told: %s\n", told > 1000 ? "many" : of(told));
}

// What is read may become a name: nothing is made at the root but by mistake, and there it cannot be.
static void protect_root(void) {
    if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
        mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY, NULL)) {
        perror("a root that cannot be written");
        exit(1);
    }
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    (void)count;
    alone(words[1]);
    pid_t child = fork();
    if (!child) {
        protect_root();
        random_entries(words[1]);
        return 0;
    }
    int status;
    waitpid(child, &status, 0);
    return status != 0;
}
