// io_uring by system calls of the program's own, on files of the directory that is the second argument, with files of the
// first, which is the host's, in the same rings. Prints what each completion says, and what is in the files afterwards. With one
// argument: what differs there.
#include "ring.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>

// Reading and writing, by both sides, at once and at offsets of the description.
static void data(struct ring *ring, const char *here, const char *host) {
    char a[64] = {0}, b[64] = {0}, c[64] = {0};
    char *name = path(here, "data");
    int file = make(name, "0123456789"), other = make(path(host, "beside"), "host");
    entry(ring, IORING_OP_READ, file, a, 4, 2);
    entry(ring, IORING_OP_READ, other, b, 64, 0);
    submit("read", ring, 2);
    printf("%s %s\n", a, b);
    entry(ring, IORING_OP_WRITE, file, "abc", 3, 1);
    entry(ring, IORING_OP_WRITE, other, "HO", 2, 0);
    submit("write", ring, 2);
    contents("by read", name);
    contents("by read", path(host, "beside"));
    pwrite(file, "XY", 2, 8);
    entry(ring, IORING_OP_READ, file, c, 64, 0);
    submit("after pwrite", ring, 1);
    printf("%s\n", c);
    struct iovec parts[] = {{a, 3}, {b, 5}, {c, 64}}, texts[] = {{"one", 3}, {"", 0}, {" two", 4}};
    entry(ring, IORING_OP_WRITEV, file, texts, 3, 20);
    submit("writev", ring, 1);
    memset(a, 0, sizeof a), memset(b, 0, sizeof b), memset(c, 0, sizeof c);
    entry(ring, IORING_OP_READV, file, parts, 3, 0);
    submit("readv", ring, 1);
    printf("%.3s %.5s %.10s\n", a, b, c);
    // The description's own offset, which all move.
    lseek(file, 5, SEEK_SET);
    entry(ring, IORING_OP_READ, file, a, 3, -1);
    submit("read at its offset", ring, 1);
    printf("%.3s %ld\n", a, (long)lseek(file, 0, SEEK_CUR));
    entry(ring, IORING_OP_WRITE, file, "##", 2, -1);
    submit("write at its offset", ring, 1);
    printf("%ld\n", (long)lseek(file, 0, SEEK_CUR));
    write(file, "!", 1);
    contents("by read", name);
    int appends = open(name, O_WRONLY | O_APPEND);
    entry(ring, IORING_OP_WRITE, appends, "end", 3, 0);
    submit("append", ring, 1);
    contents("appended", name);
    close(appends);
    int reads = open(name, O_RDONLY);
    entry(ring, IORING_OP_WRITE, reads, "x", 1, 0);
    entry(ring, IORING_OP_READ, open(name, O_WRONLY), a, 1, 0);
    entry(ring, IORING_OP_READ, open(here, O_RDONLY | O_DIRECTORY), a, 1, 0);
    entry(ring, IORING_OP_READ, open(name, O_PATH), a, 1, 0);
    entry(ring, IORING_OP_READ, file, (void *)8, 1, 0);
    entry(ring, IORING_OP_READ, file, a, 1, -2);
    entry(ring, IORING_OP_READ, 1 << 16, a, 1, 0);
    entry(ring, IORING_OP_READ, file, a, 64, 1000);
    entry(ring, IORING_OP_READV, file, parts, 5000, 0);
    submit("mistakes", ring, 9);
    entry(ring, IORING_OP_FSYNC, file, 0, 0, 0);
    entry(ring, IORING_OP_FSYNC, file, 0, 0, 0)->fsync_flags = IORING_FSYNC_DATASYNC;
    entry(ring, IORING_OP_SYNC_FILE_RANGE, file, 0, 100, 0)->sync_range_flags = 2;
    entry(ring, IORING_OP_FALLOCATE, file, (void *)200, 0, 50);
    entry(ring, IORING_OP_FADVISE, file, 0, 0, 0)->fadvise_advice = 3;
    entry(ring, 55, file, 0, 0, 12);
    entry(ring, IORING_OP_FSYNC, file, 0, 0, 0)->fsync_flags = 8;
    entry(ring, IORING_OP_READ, file, a, 1, 0);
    submit("sizes", ring, 7);
    submit("behind one that is refused", ring, 1);
    contents("cut", name);
    // Of what has lost its name.
    unlink(name);
    entry(ring, IORING_OP_WRITE, file, "gone", 4, 0);
    submit("without a name", ring, 1);
    entry(ring, IORING_OP_READ, file, b, 4, 0);
    submit("without a name", ring, 1);
    printf("%.4s\n", b);
    close(file), close(reads), close(other);
}

// Chains, in which what failed keeps the rest from being done, and which others of the kernel's are in.
static void chains(struct ring *ring, const char *here, const char *host) {
    char a[64] = {0}, b[64] = {0};
    char *name = path(here, "chain");
    int file = make(name, "0123456789");
    entry(ring, IORING_OP_WRITE, file, "ab", 2, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_FSYNC, file, 0, 0, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_READ, file, a, 4, 0);
    entry(ring, IORING_OP_READ, file, b, 4, 4);
    submit("linked", ring, 4);
    printf("%s %s\n", a, b);
    entry(ring, IORING_OP_READ, file, a, 40, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_NOP, 0, 0, 0, 0);
    entry(ring, IORING_OP_WRITE, file, "+", 1, 9);
    submit("short", ring, 4);
    entry(ring, IORING_OP_READ, file, a, 40, 0)->flags = IOSQE_IO_HARDLINK;
    entry(ring, IORING_OP_WRITE, file, "-", 1, 8);
    submit("short, linked hard", ring, 2);
    entry(ring, IORING_OP_READ, file, a, 4, -5)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0);
    submit("failed", ring, 3);
    contents("after chains", name);
    // What comes through a pipe is written when it has come.
    int ends[2];
    pipe(ends);
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, ends[0], a, 5, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_WRITE, file, a, 5, 3)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_READ, file, b, 8, 1);
    own(SYS_io_uring_enter, ring->number, 3, 0, 0, 0, 0);
    write(ends[1], "piped", 5);
    submit("behind a pipe", ring, 3);
    printf("%s %s\n", a, b);
    contents("behind a pipe", name);
    entry(ring, IORING_OP_READ, ends[0], a, 3, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_WRITE, file, a, 3, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_CLOSE, file, 0, 0, 0);
    own(SYS_io_uring_enter, ring->number, 3, 0, 0, 0, 0);
    write(ends[1], "end", 3);
    submit("closed behind a pipe", ring, 3);
    contents("closed behind a pipe", name);
    said("closed", fcntl(file, F_GETFD) < 0 ? -errno : 0);
    // Drained.
    file = open(name, O_RDWR);
    int other = make(path(host, "chain"), "host");
    entry(ring, IORING_OP_READ, other, a, 4, 0);
    entry(ring, IORING_OP_WRITE, file, "drained", 7, 2)->flags = IOSQE_IO_DRAIN;
    entry(ring, IORING_OP_FSYNC, file, 0, 0, 0)->flags = IOSQE_IO_DRAIN;
    submit("drained", ring, 3);
    contents("drained", name);
    pwrite(file, "=", 1, 0);
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, file, a, 12, 0);
    submit("after that", ring, 1);
    printf("%s\n", a);
    close(file), close(other), close(ends[0]), close(ends[1]);
}

// Names.
static void names(struct ring *ring, const char *here, const char *host) {
    char a[64] = {0};
    char *name = path(here, "made"), *moved = path(here, "moved"), *folder = path(here, "folder");
    struct statx status = {0};
    entry(ring, IORING_OP_MKDIRAT, AT_FDCWD, folder, 0750, 0);
    submit("mkdirat", ring, 1);
    entry(ring, IORING_OP_OPENAT, AT_FDCWD, name, 0640, 0)->open_flags = O_RDWR | O_CREAT | O_EXCL;
    unsigned from = *at(ring, ring->given.cq_off.tail) & *at(ring, ring->given.cq_off.ring_mask);
    own(SYS_io_uring_enter, ring->number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    struct told told[4];
    (void)from;
    int got = take(ring, told), file = told[0].result;
    printf("openat: %d %s\n", got, file < 0 ? of(file) : "done");
    // It is a descriptor as any other.
    said("write", write(file, "written", 7));
    entry(ring, IORING_OP_WRITE, file, "by ring", 7, 7);
    submit("write", ring, 1);
    said("pread", pread(file, a, 63, 0));
    printf("%s\n", a);
    struct stat stat_;
    fstat(file, &stat_);
    printf("mode %o size %ld\n", stat_.st_mode, (long)stat_.st_size);
    said("mmap", mmap(0, 4096, PROT_READ, MAP_SHARED, file, 0) == MAP_FAILED ? -errno : 0);
    int twin = dup(file);
    entry(ring, IORING_OP_CLOSE, file, 0, 0, 0);
    submit("close", ring, 1);
    said("closed", fcntl(file, F_GETFD) < 0 ? -errno : 0);
    said("its twin", pread(twin, a, 3, 0));
    entry(ring, IORING_OP_CLOSE, file, 0, 0, 0);
    entry(ring, IORING_OP_CLOSE, twin, 0, 0, 0);
    submit("close", ring, 2);
    said("lowest", open(name, O_RDONLY) - file);
    close(file);
    // Numbers that a ring has closed are given again, whosever they were.
    int hosts = open(host, O_RDONLY | O_DIRECTORY), above = open(name, O_RDONLY);
    entry(ring, IORING_OP_CLOSE, hosts, 0, 0, 0);
    submit("close of the host's", ring, 1);
    int next = open(name, O_RDONLY);
    said("lowest", next - hosts);
    close(next), close(above);
    entry(ring, IORING_OP_STATX, AT_FDCWD, name, STATX_BASIC_STATS, (uintptr_t)&status);
    submit("statx", ring, 1);
    printf("mode %o size %ld\n", status.stx_mode, (long)status.stx_size);
    entry(ring, IORING_OP_RENAMEAT, AT_FDCWD, name, AT_FDCWD, (uintptr_t)moved);
    submit("renameat", ring, 1);
    entry(ring, IORING_OP_LINKAT, AT_FDCWD, moved, AT_FDCWD, (uintptr_t)name);
    submit("linkat", ring, 1);
    char *beside = path(host, "elsewhere");
    entry(ring, IORING_OP_RENAMEAT, AT_FDCWD, name, AT_FDCWD, (uintptr_t)path(here, "missing/x"));
    entry(ring, IORING_OP_SYMLINKAT, AT_FDCWD, "target", 0, (uintptr_t)path(here, "symbolic"));
    entry(ring, IORING_OP_OPENAT, AT_FDCWD, path(here, "nowhere"), 0, 0);
    entry(ring, IORING_OP_UNLINKAT, AT_FDCWD, folder, 0, 0);
    entry(ring, IORING_OP_UNLINKAT, AT_FDCWD, folder, 0, 0)->unlink_flags = AT_REMOVEDIR;
    submit("names", ring, 5);
    entry(ring, IORING_OP_OPENAT, AT_FDCWD, (void *)8, 0, 0);
    entry(ring, IORING_OP_UNLINKAT, AT_FDCWD, path(here, "nowhere"), 0, 0);
    submit("no name", ring, 1);
    submit("behind no name", ring, 1);
    (void)beside;
    // Beneath a directory that is open, and the working one.
    int directory = open(here, O_RDONLY | O_DIRECTORY);
    if (chdir(here))
        perror(here);
    entry(ring, IORING_OP_MKDIRAT, directory, "beneath", 0700, 0);
    submit("mkdirat", ring, 1);
    struct open_how {
        uint64_t flags, mode, resolve;
    } how = {O_RDWR | O_CREAT, 0600, 0};
    entry(ring, IORING_OP_OPENAT2, AT_FDCWD, "beneath/file", sizeof how, (uintptr_t)&how);
    own(SYS_io_uring_enter, ring->number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
    take(ring, told);
    file = told[0].result;
    printf("openat2: %s\n", file < 0 ? of(file) : "done");
    entry(ring, IORING_OP_WRITE, file, "beneath", 7, 0);
    submit("write", ring, 1);
    entry(ring, IORING_OP_FSETXATTR, file, "user.a", 3, (uintptr_t)"abc");
    submit("fsetxattr", ring, 1);
    struct io_uring_sqe *asks = entry(ring, IORING_OP_GETXATTR, 0, "user.a", 10, (uintptr_t)a);
    asks->addr3 = (uintptr_t) "beneath/file";
    submit("getxattr", ring, 1);
    said("fgetxattr", fgetxattr(file, "user.a", a, 10));
    contents("beneath/file", "beneath/file");
    // Behind a pipe: relative names are the kernel's then.
    int ends[2];
    pipe(ends);
    entry(ring, IORING_OP_READ, ends[0], a, 1, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_RENAMEAT, AT_FDCWD, "beneath/file", directory, (uintptr_t) "moved-up")->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_STATX, directory, "moved-up", STATX_BASIC_STATS, (uintptr_t)&status);
    own(SYS_io_uring_enter, ring->number, 3, 0, 0, 0, 0);
    write(ends[1], "x", 1);
    submit("names behind a pipe", ring, 3);
    printf("size %ld\n", (long)status.stx_size);
    contents("moved up", "moved-up");
    entry(ring, IORING_OP_READ, ends[0], a, 1, 0)->flags = IOSQE_IO_LINK;
    entry(ring, IORING_OP_OPENAT, directory, "moved-up", 0, 0)->open_flags = O_RDWR;
    own(SYS_io_uring_enter, ring->number, 2, 0, 0, 0, 0);
    write(ends[1], "x", 1);
    own(SYS_io_uring_enter, ring->number, 0, 2, IORING_ENTER_GETEVENTS, 0, 0);
    got = take(ring, told);
    int late = told[1].result;
    printf("opened behind a pipe: %s\n", late < 0 ? of(late) : "done");
    said("write", pwrite(late, "LATE", 4, 3));
    said("read", read(late, a, 7));
    printf("%.7s\n", a);
    contents("by both", "moved-up");
    said("close", close(late));
    close(file), close(directory), close(ends[0]), close(ends[1]);
    chdir("/");
}

// Files and buffers that are registered.
static void registered(struct ring *ring, const char *here, const char *host) {
    char a[64] = {0}, b[64] = {0};
    char name[4096];
    strcpy(name, path(here, "registered"));
    int file = make(name, "0123456789"), other = make(path(host, "registered"), "host"),
        third = make(path(here, "third"), "third");
    int files[] = {file, -1, other};
    said("register", own(SYS_io_uring_register, ring->number, IORING_REGISTER_FILES, (long)files, 3, 0, 0));
    entry(ring, IORING_OP_READ, 0, a, 4, 3)->flags = IOSQE_FIXED_FILE;
    entry(ring, IORING_OP_READ, 2, b, 4, 0)->flags = IOSQE_FIXED_FILE;
    entry(ring, IORING_OP_READ, 1, b, 4, 0)->flags = IOSQE_FIXED_FILE;
    submit("registered", ring, 3);
    printf("%s %s\n", a, b);
    entry(ring, IORING_OP_WRITE, 0, "fixed", 5, 2)->flags = IOSQE_FIXED_FILE;
    submit("registered", ring, 1);
    contents("by read", name);
    pwrite(file, "plain", 5, 0);
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, 0, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    submit("registered", ring, 1);
    printf("%s\n", a);
    // Both sides in turn, in the file and behind its end.
    int good = 0;
    for (int i = 0; i < 200; i++) {
        struct told told[4];
        char here_[16], there[16], back[16];
        snprintf(here_, sizeof here_, "library %06d", i), snprintf(there, sizeof there, "by ring %06d", i);
        pwrite(third, here_, 14, i % 7 * 5000);
        entry(ring, IORING_OP_READ, 1, back, 14, i % 7 * 5000)->flags = IOSQE_FIXED_FILE;
        if (!i)
            own(SYS_io_uring_register, ring->number, IORING_REGISTER_FILES_UPDATE,
                (long)&(struct io_uring_files_update){.offset = 1, .fds = (uintptr_t)&third}, 1, 0, 0);
        own(SYS_io_uring_enter, ring->number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        good += take(ring, told) == 1 && told[0].result == 14 && !memcmp(back, here_, 14);
        entry(ring, IORING_OP_WRITE, 1, there, 14, i % 5 * 3000 + i)->flags = IOSQE_FIXED_FILE;
        own(SYS_io_uring_enter, ring->number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        good += take(ring, told) == 1 && told[0].result == 14 && pread(third, back, 14, i % 5 * 3000 + i) == 14 &&
                !memcmp(back, there, 14);
        entry(ring, IORING_OP_READ, third, back, 14, i % 5 * 3000 + i);
        own(SYS_io_uring_enter, ring->number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        good += take(ring, told) == 1 && told[0].result == 14 && !memcmp(back, there, 14);
    }
    said("in turn", good);
    pwrite(third, "third", 5, 0);
    ftruncate(third, 5);
    struct io_uring_files_update update = {.offset = 1, .fds = (uintptr_t)&third};
    said("update", own(SYS_io_uring_register, ring->number, IORING_REGISTER_FILES_UPDATE, (long)&update, 1, 0, 0));
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, 1, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    submit("updated", ring, 1);
    printf("%s\n", a);
    int list[] = {-1, file};
    entry(ring, IORING_OP_FILES_UPDATE, -1, list, 2, 0);
    submit("updated by an entry", ring, 1);
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, 0, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    entry(ring, IORING_OP_READ, 1, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    submit("updated by an entry", ring, 2);
    printf("%s\n", a);
    // They stay when the program closes what it has registered.
    close(file);
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, 1, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    submit("closed", ring, 1);
    printf("%s\n", a);
    // What is replaced by the kernel is not the pool's any more.
    entry(ring, IORING_OP_OPENAT, AT_FDCWD, path(host, "registered"), 0, 0)->file_index = 2;
    submit("in its place", ring, 1);
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, 1, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    submit("in its place", ring, 1);
    printf("%s\n", a);
    entry(ring, IORING_OP_OPENAT, AT_FDCWD, name, 0, 0)->file_index = 2;
    submit("and of the pool's", ring, 1);
    memset(a, 0, sizeof a);
    entry(ring, IORING_OP_READ, 1, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    submit("and of the pool's", ring, 1);
    printf("%s\n", a);
    entry(ring, IORING_OP_CLOSE, 0, 0, 0, 0)->file_index = 2;
    submit("closed there", ring, 1);
    entry(ring, IORING_OP_READ, 1, a, 10, 0)->flags = IOSQE_FIXED_FILE;
    submit("closed there", ring, 1);
    said("unregister", own(SYS_io_uring_register, ring->number, IORING_UNREGISTER_FILES, 0, 0, 0, 0));
    int bad[] = {12345};
    said("register", own(SYS_io_uring_register, ring->number, IORING_REGISTER_FILES, (long)bad, 1, 0, 0));
    struct iovec buffer = {aligned_alloc(4096, 8192), 8192};
    memset(buffer.iov_base, 'b', 8192);
    said("buffers", own(SYS_io_uring_register, ring->number, IORING_REGISTER_BUFFERS, (long)&buffer, 1, 0, 0));
    file = open(name, O_RDWR);
    entry(ring, IORING_OP_WRITE_FIXED, file, buffer.iov_base, 6, 4);
    submit("from a registered buffer", ring, 1);
    contents("by read", name);
    pwrite(file, "BB", 2, 5);
    entry(ring, IORING_OP_READ_FIXED, file, (char *)buffer.iov_base + 100, 8, 0);
    submit("into a registered buffer", ring, 1);
    printf("%.9s\n", (char *)buffer.iov_base + 100);
    // What has come behind the end since.
    good = 0;
    for (int i = 0; i < 50; i++) {
        struct told told[4];
        pwrite(file, "!", 1, 100 * i + 50);
        entry(ring, IORING_OP_READ_FIXED, file, buffer.iov_base, 1, 100 * i + 50);
        own(SYS_io_uring_enter, ring->number, 1, 1, IORING_ENTER_GETEVENTS, 0, 0);
        good += take(ring, told) == 1 && told[0].result == 1 && *(char *)buffer.iov_base == '!';
    }
    said("behind the end", good);
    entry(ring, IORING_OP_READ_FIXED, file, a, 8, 0);
    entry(ring, IORING_OP_READ_FIXED, file, buffer.iov_base, 8, 0)->buf_index = 7;
    submit("not a registered buffer", ring, 2);
    said("no buffers", own(SYS_io_uring_register, ring->number, IORING_UNREGISTER_BUFFERS, 0, 0, 0, 0));
    free(buffer.iov_base);
    // Splices.
    int ends[2];
    pipe(ends);
    struct io_uring_sqe *splice = entry(ring, IORING_OP_SPLICE, ends[1], 0, 5, -1);
    splice->splice_fd_in = file;
    splice->splice_off_in = 2;
    submit("splice", ring, 1);
    memset(a, 0, sizeof a);
    said("read", read(ends[0], a, 10));
    printf("%s\n", a);
    close(file), close(other), close(third), close(ends[0]), close(ends[1]);
}

static struct ring shared;
static int shared_file;
static volatile int all_told;
static void *submits(void *offset) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 500; i++) {
        pthread_mutex_lock(&lock);
        entry(&shared, IORING_OP_WRITE, shared_file, "x", 1, (uintptr_t)offset + 4 * i);
        pthread_mutex_unlock(&lock);
        while (own(SYS_io_uring_enter, shared.number, 1, 0, 0, 0, 0) == -EBUSY)
            ;
    }
    // What a thread has submitted is cancelled when it ends.
    while (!all_told)
        usleep(1000);
    return NULL;
}

// What is submitted again without being filled in anew, by more threads than one, and what a fork has of it.
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
    begin(&shared, 0);
    shared_file = open(name, O_RDWR | O_TRUNC);
    pthread_t threads[4];
    for (long i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, submits, (void *)i);
    int got = 0;
    while (got < 2000) {
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
    struct stat status;
    fstat(shared_file, &status);
    static char bytes[4096];
    long length = pread(shared_file, bytes, sizeof bytes, 0), filled = 0;
    for (long i = 0; i < length; i++)
        filled += bytes[i] == 'x';
    printf("threads: %ld of %ld\n", filled, (long)status.st_size);
    end(&shared);
    // Each process has its own.
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        begin(&ring, 0);
        entry(&ring, IORING_OP_WRITE, shared_file, "child", 5, 0);
        submit("a child", &ring, 1);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    memset(bytes, 0, sizeof bytes);
    pread(shared_file, bytes, 5, 0);
    printf("%s\n", bytes);
    close(file), close(shared_file);
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
    close(make(name, "0123456789"));
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
}

// Whatever is submitted, and whatever becomes of the ring's memory meanwhile: the program lives.
static void random_entries(const char *here) {
    static const int operations[] = {1,  2,  3,  4,  5,  8,  17, 18, 19, 20, 21, 22, 23, 24, 28, 30, 33,
                                     35, 36, 37, 38, 39, 41, 42, 43, 44, 55, 58, 59, 0,  99, 255};
    static char memory[8192], given[4096];
    struct ring ring;
    srandom(7);
    char *name = path(here, "random");
    long told = 0;
    for (int round = 0; round < 40; round++) {
        // What is read into it is another name.
        strcpy(given, name);
        (void)!chdir(here);
        // What has been made in its place.
        if (unlink(name))
            rmdir(name);
        begin(&ring, round & 1 ? IORING_SETUP_SUBMIT_ALL : 0);
        // Of the round before something may still come: then there is none.
        int files[] = {open(name, O_RDWR | O_CREAT | O_TRUNC, 0644), open(here, O_RDONLY | O_DIRECTORY), AT_FDCWD, -1, 77, 1 << 20, 1 << 30};
        int *registered = files;
        if (round & 2)
            own(SYS_io_uring_register, ring.number, IORING_REGISTER_FILES, (long)registered, 1, 0, 0);
        const uint64_t addresses[] = {(uintptr_t)given, (uintptr_t)memory, 0, 8, 1ull << 63, (uintptr_t)"x", ~0ull};
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
        chdir("/");
    }
    printf("told: %s\n", told > 1000 ? "many" : of(told));
}

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count == 2) {
        alone(words[1]);
        random_entries(words[1]);
        return 0;
    }
    const char *host = words[1], *here = words[2];
    struct ring ring;
    long made = begin(&ring, 0);
    if (made < 0) {
        said("io_uring_setup", made);
        return 1;
    }
    data(&ring, here, host);
    names(&ring, here, host);
    registered(&ring, here, host);
    chains(&ring, here, host);
    end(&ring);
    others(here);
    rings(here);
    return 0;
}
