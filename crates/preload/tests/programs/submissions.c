// io_uring by system calls of the program's own, on files of the directory that is the second argument, with files of the
// first, which is the host's, in the same ring. Prints what each completion says, and what is in the files afterwards.
#include "ring.h"
#include <sys/stat.h>
#include <sys/uio.h>
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
    submit("sizes", ring, 5);
    // Not together with those: the kernel's threads do them in whatever order.
    entry(ring, 55, file, 0, 0, 12);
    entry(ring, IORING_OP_FSYNC, file, 0, 0, 0)->fsync_flags = 8;
    entry(ring, IORING_OP_READ, file, a, 1, 0);
    submit("cut", ring, 2);
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

// What does not tell that it succeeds: less than was asked for is told, and what is behind it in its chain is not.
static void silent(struct ring *ring, const char *here) {
    char a[64];
    char *name = path(here, "silent");
    int file = make(name, "0123456789");
    const int skip = IOSQE_CQE_SKIP_SUCCESS, link = IOSQE_IO_LINK, hard = IOSQE_IO_HARDLINK;
    entry(ring, IORING_OP_READ, file, a, 4, 0)->flags = skip;
    entry(ring, IORING_OP_READ, file, a, 40, 0)->flags = skip;
    entry(ring, IORING_OP_WRITE, file, "a", 1, 0)->flags = skip;
    entry(ring, IORING_OP_NOP, 0, 0, 0, 0);
    submit("silent, short", ring, 2);
    entry(ring, IORING_OP_READ, file, a, 40, 0)->flags = skip | link;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0)->flags = link;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0);
    entry(ring, IORING_OP_WRITE, file, "b", 1, 1);
    submit("silent, short, linked", ring, 2);
    entry(ring, IORING_OP_READ, file, a, 4, 0)->flags = skip | link;
    entry(ring, IORING_OP_READ, file, a, 40, 0)->flags = link;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0)->flags = skip;
    entry(ring, IORING_OP_NOP, 0, 0, 0, 0);
    submit("short behind a silent one", ring, 3);
    entry(ring, IORING_OP_READ, file, a, 40, 0)->flags = skip | hard;
    entry(ring, IORING_OP_WRITE, file, "c", 1, 2)->flags = skip | link;
    entry(ring, IORING_OP_WRITE, file, "d", 1, 3);
    submit("silent, short, linked hard", ring, 2);
    entry(ring, IORING_OP_READ, file, a, 4, -5)->flags = skip | link;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0)->flags = link;
    entry(ring, IORING_OP_WRITE, file, "NO", 2, 0);
    entry(ring, IORING_OP_NOP, 0, 0, 0, 0);
    submit("silent, failed", ring, 2);
    contents("silent", name);
    close(file);
}

// What the kernel refuses as a whole is not done.
static void refused(struct ring *ring, const char *here) {
    char *name = path(here, "refused");
    int file = make(name, "0123456789");
    entry(ring, IORING_OP_CLOSE, file, 0, 0, 5);
    submit("close with an offset", ring, 1);
    said("still open", fcntl(file, F_GETFD) < 0 ? -errno : 0);
    entry(ring, IORING_OP_WRITE, file, "by ring", 7, 0);
    for (int bit = 8; bit < 32; bit += 23)
        said("flags of the call", own(SYS_io_uring_enter, ring->number, 1, 0, IORING_ENTER_GETEVENTS | 1u << bit, 0, 0));
    contents("not written", name);
    submit("without them", ring, 1);
    contents("written", name);
    close(file);
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
    // At the current place, of what loses its name before it is registered, and after that.
    for (int before = 0; before < 2; before++) {
        int moving = make(path(here, "moving"), ""), beside = other;
        if (before)
            unlink(path(here, "moving"));
        said("register", own(SYS_io_uring_register, ring->number, IORING_REGISTER_FILES, (long)(int[]){moving, -1}, 2, 0, 0));
        if (!before)
            unlink(path(here, "moving"));
        entry(ring, IORING_OP_WRITE, 0, "first", 5, -1)->flags = IOSQE_FIXED_FILE | IOSQE_ASYNC;
        submit("at its place", ring, 1);
        // Where the kernel chooses the place, what is in others stays.
        entry(ring, IORING_OP_FILES_UPDATE, -1, &beside, 1, IORING_FILE_INDEX_ALLOC);
        submit("beside it", ring, 1);
        entry(ring, IORING_OP_WRITE, 0, "second", 6, -1)->flags = IOSQE_FIXED_FILE | IOSQE_ASYNC;
        entry(ring, IORING_OP_FSYNC, 0, 0, 0, 0)->flags = IOSQE_FIXED_FILE;
        submit("at its place", ring, 2);
        memset(a, 0, sizeof a);
        said("in it", pread(moving, a, 63, 0));
        printf("moving: %s %ld\n", a, (long)lseek(moving, 0, SEEK_CUR));
        said("unregister", own(SYS_io_uring_register, ring->number, IORING_UNREGISTER_FILES, 0, 0, 0, 0));
        close(moving);
    }
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

int main(int count, char **words) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    (void)count;
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
    silent(&ring, here);
    refused(&ring, here);
    end(&ring);
    return 0;
}
