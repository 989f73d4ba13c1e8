// What is asked wrongly: handles that are none, null pointers, lengths, options.

#include "check.h"

#include <limits.h>
#include <sys/xattr.h>

// Of queues.
static arck_handle set;

// What each call says to a handle that is none of its kind.
static void refuse(arck_handle handle, bool is_file, bool is_directory, bool is_names, bool is_store, bool is_log)
{
    char room[64];
    struct stat status;
    struct statvfs statistics;
    struct dirent dirent;
    struct iovec vector = {room, sizeof room};
    struct arck_request request = {ARCK_READ, 0, room, sizeof room, 0, 0, 0, {0, 0}};
    struct arck_completion completion;
    uint64_t position;

    if (!is_directory) {
        FAILS(EBADF, arck_openat(handle, "a", O_RDONLY, 0));
        FAILS(EBADF, arck_mkdirat(handle, "a", 0755));
        FAILS(EBADF, arck_unlinkat(handle, "a", 0));
        FAILS(EBADF, arck_renameat2(handle, "a", handle, "b", 0));
        FAILS(EBADF, arck_linkat(handle, "a", handle, "b", 0));
        FAILS(EBADF, arck_symlinkat("a", handle, "b"));
        FAILS(EBADF, arck_readlinkat(handle, "a", room, sizeof room));
        FAILS(EBADF, arck_fchmodat(handle, "a", 0644, 0));
        FAILS(EBADF, arck_fchownat(handle, "a", -1, -1, 0));
        FAILS(EBADF, arck_utimensat(handle, "a", NULL, 0));
        FAILS(EBADF, arck_faccessat(handle, "a", R_OK, 0));
        FAILS(EBADF, arck_mknodat(handle, "a", S_IFIFO | 0644, 0));
        FAILS(EBADF, arck_truncateat(handle, "a", 0));
        FAILS(EBADF, arck_opendirat(handle, "."));
        FAILS(EBADF, arck_fstatat(handle, "a", &status, 0));
        FAILS(EBADF, arck_getxattrat(handle, "a", 0, "user.a", room, sizeof room));
        FAILS(EBADF, arck_setxattrat(handle, "a", 0, "user.a", room, 1, 0));
        FAILS(EBADF, arck_listxattrat(handle, "a", 0, room, sizeof room));
        FAILS(EBADF, arck_removexattrat(handle, "a", 0, "user.a"));
        FAILS(EBADF, arck_fstat(handle, &status));
        FAILS(EBADF, arck_fstatvfs(handle, &statistics));
        FAILS(EBADF, arck_umask(handle, 022));
    }
    if (!is_file) {
        FAILS(EBADF, arck_read(handle, room, sizeof room));
        FAILS(EBADF, arck_write(handle, room, sizeof room));
        FAILS(EBADF, arck_pread(handle, room, sizeof room, 0));
        FAILS(EBADF, arck_pwrite(handle, room, sizeof room, 0));
        FAILS(EBADF, arck_readv(handle, &vector, 1));
        FAILS(EBADF, arck_writev(handle, &vector, 1));
        FAILS(EBADF, arck_lseek(handle, 0, SEEK_SET));
        FAILS(EBADF, arck_ftruncate(handle, 0));
        FAILS(EBADF, arck_fallocate(handle, 0, 0, 1));
        FAILS(EBADF, arck_fsync(handle));
        FAILS(EBADF, arck_fdatasync(handle));
        FAILS(EBADF, arck_fchmod(handle, 0644));
        FAILS(EBADF, arck_futimens(handle, NULL));
        FAILS(EBADF, arck_getfl(handle));
        FAILS(EBADF, arck_setfl(handle, 0));
        FAILS(EBADF, arck_dup(handle));
    }
    if (!is_names) {
        FAILS(EBADF, arck_readdir(handle, &dirent));
        FAILS(EBADF, arck_rewinddir(handle));
    }
    if (!is_store) {
        FAILS(EBADF, arck_store_get(handle, "a", 1, room, sizeof room));
        FAILS(EBADF, arck_store_has(handle, "a", 1));
        FAILS(EBADF, arck_store_set(handle, "a", 1, "b", 1));
        FAILS(EBADF, arck_store_remove(handle, "a", 1));
        FAILS(EBADF, arck_store_keys(handle));
        FAILS(EBADF, arck_batch_begin(handle));
    }
    FAILS(EBADF, arck_keys_next(handle, room, sizeof room));
    FAILS(EBADF, arck_batch_set(handle, "a", 1, "b", 1));
    FAILS(EBADF, arck_batch_remove(handle, "a", 1));
    FAILS(EBADF, arck_batch_commit(handle));
    if (!is_log) {
        FAILS(EBADF, arck_log_append(handle, "a", 1, NULL));
        FAILS(EBADF, arck_log_appendv(handle, &vector, 1, NULL));
        FAILS(EBADF, arck_log_enqueue(handle, "a", 1, NULL));
        FAILS(EBADF, arck_log_begin(handle, &position));
        FAILS(EBADF, arck_log_end(handle, &position));
        FAILS(EBADF, arck_log_read(handle, 0, room, sizeof room));
        FAILS(EBADF, arck_log_cut(handle, 0));
        FAILS(EBADF, arck_log_follow(handle, 0));
    }
    if (!is_file)
        FAILS(EBADF, arck_queue(set, handle, 0, 0));
    FAILS(EBADF, arck_queue(handle, handle, 0, 0));
    FAILS(EBADF, arck_submit(handle, &request));
    FAILS(EBADF, arck_reap(handle, &completion, 1));
    FAILS(EBADF, arck_wait(handle, &completion, 1, 1, 0));
    FAILS(EBADF, arck_cancel(handle, 1));
    FAILS(EBADF, arck_queue_end(handle, ARCK_FINISH));
    FAILS(EBADF, arck_queue_count(handle, NULL, NULL));
    FAILS(EBADF, arck_queue_readiness(handle));
    FAILS(EBADF, arck_log_commit(handle, NULL));
    FAILS(EBADF, arck_follower_next(handle, room, sizeof room, 0, NULL));
}

static void numbers_that_are_no_handles(void)
{
    const arck_handle none[] = {
        0, -1, 1, 3, INT_MAX, INT64_MAX, INT64_MIN, (arck_handle)1 << 60, ((arck_handle)1 << 60) + 4095,
        ((arck_handle)1 << 60) + 4096, (arck_handle)2 << 60, ((arck_handle)2 << 60) + (1 << 22),
        ((arck_handle)3 << 60) + 77777, (arck_handle)4 << 60, (arck_handle)7 << 60,
    };
    // Some before there is anything, which the first of them would be.
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        if (none[i] == (arck_handle)1 << 60)
            continue;
        refuse(none[i], false, false, false, false, false);
        FAILS(EBADF, arck_close(none[i]));
    }
    // One of queues is none of the others.
    set = arck_queues(0);
    CHECK(set > 0);
    refuse(set, false, false, false, false, false);
    srand(7);
    for (int i = 0; i < 20000; i++) {
        arck_handle handle = (arck_handle)((uint64_t)rand() << 42 ^ (uint64_t)rand() << 20 ^ (uint64_t)rand());
        FAILS(EBADF, arck_fsync(handle));
        FAILS(EBADF, arck_batch_commit(handle));
    }
}

static void handles_of_another_kind_and_closed_ones(void)
{
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    arck_handle pool = connected();
    arck_handle file = arck_openat(pool, "kinds", O_CREAT | O_RDWR, 0644);
    arck_handle directory = arck_openat(pool, ".", O_RDONLY | O_DIRECTORY, 0);
    arck_handle names = arck_opendirat(pool, ".");
    arck_handle store = arck_store_open(NULL, "kinds-store", &make);
    arck_handle log = arck_log_open(NULL, "/kinds-log", &make);
    arck_handle batch = arck_batch_begin(store);
    CHECK(file > 0 && directory > 0 && names > 0 && store > 0 && log > 0 && batch > 0);

    refuse(pool, false, true, false, false, false);
    refuse(names, false, false, true, false, false);
    refuse(store, false, false, false, true, false);
    refuse(log, false, false, false, false, true);
    FAILS(EBADF, arck_umask(file, 022));
    FAILS(ENOTDIR, arck_openat(file, "a", O_RDONLY, 0));
    FAILS(EISDIR, arck_read(directory, make.size ? &make : NULL, 1));
    FAILS(EBADF, arck_write(directory, "a", 1));

    GIVES(0, arck_close(batch));
    FAILS(EBADF, arck_batch_commit(batch));
    FAILS(EBADF, arck_close(batch));
    GIVES(0, arck_close(file));
    refuse(file, false, false, false, false, false);
    FAILS(EBADF, arck_close(file));
    // Its place is used again, and the old number means nothing all the same.
    arck_handle other = arck_openat(pool, "kinds", O_RDWR, 0);
    CHECK(other > 0 && other != file);
    refuse(file, false, false, false, false, false);

    batch = arck_batch_begin(store);
    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(log));
    const arck_handle closed[] = {pool, other, directory, names, store, batch, log};
    for (size_t i = 0; i < sizeof closed / sizeof closed[0]; i++) {
        refuse(closed[i], false, false, false, false, false);
        FAILS(EBADF, arck_close(closed[i]));
    }
    CHECK(says("closed"));
}

static void null_pointers_and_lengths(void)
{
    struct arck_options make = usual();
    make.flags = ARCK_MAKE;
    char room[64] = "abc";
    struct iovec vectors[2] = {{room, sizeof room}, {NULL, 3}};
    struct stat status;
    struct timespec times[2] = {{0, 1000000000}, {0, 0}};
    const size_t huge = (size_t)SSIZE_MAX + 1;
    char name[5000];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = 0;

    arck_handle pool = connected();
    arck_handle file = arck_openat(pool, "lengths", O_CREAT | O_RDWR | O_TRUNC, 0644);
    arck_handle store = arck_store_open(NULL, "lengths-store", &make);
    arck_handle log = arck_log_open(NULL, "lengths-log", &make);
    arck_handle batch = arck_batch_begin(store);
    CHECK(file > 0 && store > 0 && log > 0 && batch > 0);

    FAILS(EFAULT, arck_openat(pool, NULL, O_RDONLY, 0));
    FAILS(ENOENT, arck_openat(pool, "", O_RDONLY, 0));
    FAILS(ENAMETOOLONG, arck_openat(pool, name, O_RDONLY, 0));
    FAILS(EFAULT, arck_mkdirat(pool, NULL, 0755));
    FAILS(EFAULT, arck_unlinkat(pool, NULL, 0));
    FAILS(EINVAL, arck_unlinkat(pool, "lengths", 77));
    FAILS(EFAULT, arck_renameat2(pool, "lengths", pool, NULL, 0));
    FAILS(EFAULT, arck_renameat2(pool, NULL, pool, "a", 0));
    FAILS(EINVAL, arck_renameat2(pool, "lengths", pool, "a", 99));
    FAILS(EFAULT, arck_linkat(pool, NULL, pool, "a", 0));
    FAILS(EINVAL, arck_linkat(pool, "lengths", pool, "a", 1));
    FAILS(EFAULT, arck_symlinkat(NULL, pool, "a"));
    FAILS(EFAULT, arck_symlinkat("a", pool, NULL));
    FAILS(EFAULT, arck_readlinkat(pool, "lengths", NULL, 5));
    FAILS(EINVAL, arck_readlinkat(pool, "lengths", room, 0));
    FAILS(EFAULT, arck_fstat(file, NULL));
    FAILS(EFAULT, arck_fstatat(pool, "lengths", NULL, 0));
    FAILS(EINVAL, arck_fstatat(pool, "lengths", &status, 0x10000));
    FAILS(ENOENT, arck_fstatat(pool, "", &status, 0));
    GIVES(0, arck_fstatat(pool, "", &status, AT_EMPTY_PATH));
    CHECK(S_ISDIR(status.st_mode));
    FAILS(EFAULT, arck_fstatvfs(pool, NULL));
    FAILS(EINVAL, arck_futimens(file, times));
    FAILS(EINVAL, arck_utimensat(pool, "lengths", times, 0));
    FAILS(EINVAL, arck_faccessat(pool, "lengths", 8, 0));
    FAILS(EINVAL, arck_umask(pool, 01000));
    FAILS(EINVAL, arck_umask(pool, -2));

    FAILS(EFAULT, arck_read(file, NULL, 1));
    FAILS(EFAULT, arck_write(file, NULL, 1));
    FAILS(EFAULT, arck_pread(file, NULL, 1, 0));
    FAILS(EFAULT, arck_pwrite(file, NULL, 1, 0));
    GIVES(0, arck_read(file, NULL, 0));
    GIVES(0, arck_write(file, NULL, 0));
    FAILS(EINVAL, arck_read(file, room, huge));
    FAILS(EINVAL, arck_write(file, room, huge));
    FAILS(EINVAL, arck_read(file, room, SIZE_MAX));
    FAILS(EINVAL, arck_pread(file, room, 1, -1));
    FAILS(EINVAL, arck_pwrite(file, room, 1, -1));
    FAILS(EFAULT, arck_writev(file, vectors, 2));
    FAILS(EFAULT, arck_readv(file, NULL, 1));
    FAILS(EINVAL, arck_readv(file, vectors, -1));
    FAILS(EINVAL, arck_writev(file, vectors, 1025));
    GIVES(0, arck_readv(file, NULL, 0));
    vectors[1].iov_base = room;
    vectors[1].iov_len = SSIZE_MAX;
    FAILS(EINVAL, arck_readv(file, vectors, 2));
    FAILS(EINVAL, arck_lseek(file, -1, SEEK_SET));
    FAILS(EINVAL, arck_lseek(file, 0, 77));
    FAILS(EINVAL, arck_ftruncate(file, -1));
    FAILS(EINVAL, arck_truncateat(pool, "lengths", -1));
    FAILS(EINVAL, arck_fallocate(file, 0, -1, 1));
    FAILS(EINVAL, arck_fallocate(file, 0, 0, 0));
    FAILS(EFAULT, arck_getxattrat(pool, "lengths", 0, NULL, room, 1));
    FAILS(EFAULT, arck_getxattrat(pool, "lengths", 0, "user.a", NULL, 1));
    FAILS(EINVAL, arck_getxattrat(pool, "lengths", 0, "user.a", room, huge));
    FAILS(EFAULT, arck_setxattrat(pool, "lengths", 0, "user.a", NULL, 1, 0));
    FAILS(EFAULT, arck_listxattrat(pool, "lengths", 0, NULL, 1));
    FAILS(EFAULT, arck_opendirat(pool, NULL));
    FAILS(ENOTDIR, arck_opendirat(pool, "lengths"));

    FAILS(EFAULT, arck_store_get(store, NULL, 1, room, 1));
    FAILS(EINVAL, arck_store_get(store, NULL, 0, room, 1));
    FAILS(EFAULT, arck_store_get(store, "a", 1, NULL, 1));
    FAILS(EINVAL, arck_store_get(store, "a", huge, room, 1));
    FAILS(EINVAL, arck_store_get(store, "a", 1, room, huge));
    FAILS(ENAMETOOLONG, arck_store_get(store, name, 256, room, 1));
    FAILS(EFAULT, arck_store_set(store, NULL, 1, room, 1));
    FAILS(EFAULT, arck_store_set(store, "a", 1, NULL, 1));
    FAILS(EINVAL, arck_store_set(store, "a/b", 3, room, 1));
    FAILS(EINVAL, arck_store_set(store, "..", 2, room, 1));
    FAILS(EINVAL, arck_store_set(store, "a\0b", 3, room, 1));
    FAILS(EFAULT, arck_batch_set(batch, NULL, 1, room, 1));
    FAILS(EFAULT, arck_batch_set(batch, "a", 1, NULL, 1));
    FAILS(EINVAL, arck_batch_set(batch, "a", 1, room, huge));
    FAILS(ENAMETOOLONG, arck_batch_set(batch, name, 256, room, 1));
    FAILS(EFAULT, arck_store_open(NULL, NULL, NULL));
    FAILS(EILSEQ, arck_store_open(NULL, "\xff", NULL));

    FAILS(EFAULT, arck_log_append(log, NULL, 1, NULL));
    FAILS(EINVAL, arck_log_append(log, NULL, 0, NULL));
    FAILS(EINVAL, arck_log_append(log, room, huge, NULL));
    FAILS(EFAULT, arck_log_begin(log, NULL));
    FAILS(EFAULT, arck_log_end(log, NULL));
    FAILS(EFAULT, arck_log_read(log, 0, NULL, 1));
    FAILS(EINVAL, arck_log_read(log, 77, room, 1));
    FAILS(EINVAL, arck_log_follow(log, 77));
    FAILS(EINVAL, arck_log_cut(log, 77));
    FAILS(EFAULT, arck_log_open(NULL, NULL, NULL));
    arck_handle follower = arck_log_follow(log, 0);
    CHECK(follower > 0);
    FAILS(EINVAL, arck_follower_next(follower, NULL, 0, 0, NULL));
    FAILS(EFAULT, arck_follower_next(follower, NULL, 1, 0, NULL));
    FAILS(EINVAL, arck_follower_next(follower, room, 1, -2, NULL));

    GIVES(0, arck_close(pool));
    GIVES(0, arck_close(store));
    GIVES(0, arck_close(log));
}

static void options(void)
{
    struct arck_options options = usual();
    struct {
        struct arck_options known;
        uint64_t more;
    } later;
    char group[66];
    memset(group, 'g', sizeof group);
    group[65] = 0;

    options.size = 0;
    FAILS(EINVAL, arck_connect(NULL, &options));
    options.size = 1 << 20;
    FAILS(EINVAL, arck_connect(NULL, &options));
    memset(&later, 0, sizeof later);
    later.known.size = sizeof later;
    later.more = 1;
    FAILS(E2BIG, arck_connect(NULL, &later.known));
    later.more = 0;
    arck_handle pool = arck_connect(NULL, &later.known);
    CHECK(pool > 0);
    GIVES(0, arck_close(pool));

    options = usual();
    options.fs = "ext4";
    FAILS(EINVAL, arck_connect(NULL, &options));
    CHECK(says("ext4 is no file system; there are: arckfs, fpfs"));
    options.fs = "fpfs";
    pool = arck_connect(NULL, &options);
    CHECK(pool > 0);
    GIVES(0, arck_close(pool));
    FAILS(EINVAL, arck_store_open(NULL, "a", &options));
    FAILS(EINVAL, arck_log_open(NULL, "a", &options));
    options = usual();
    options.flags = ARCK_MAKE;
    FAILS(EINVAL, arck_connect(NULL, &options));
    CHECK(says("flags"));
    options.flags = 8;
    FAILS(EINVAL, arck_store_open(NULL, "a", &options));
    options = usual();
    options.group = group;
    FAILS(EINVAL, arck_connect(NULL, &options));
    CHECK(says("64 bytes"));
    FAILS(EINVAL, arck_store_open(NULL, "a", &options));
    options = usual();
    options.section = 1;
    FAILS(EINVAL, arck_connect(NULL, &options));
    options = usual();
    options.mode = 07777;
    FAILS(EINVAL, arck_store_open(NULL, "a", &options));
    options = usual();
    options.wait = -7;
    FAILS(EINVAL, arck_connect(NULL, &options));

    FAILS(ENOENT, arck_connect("/nowhere", NULL));
    CHECK(says("arck mkfs /nowhere"));
    FAILS(ENOENT, arck_connect("", NULL));
    FAILS(ENOENT, arck_store_open(NULL, "none-such", NULL));
    FAILS(ENOENT, arck_log_open(NULL, "none-such", NULL));
    char *named = strdup(getenv("ARCK_POOL"));
    unsetenv("ARCK_POOL");
    FAILS(EINVAL, arck_connect(NULL, NULL));
    CHECK(says("ARCK_POOL"));
    setenv("ARCK_POOL", named, 1);
    free(named);
}

// Who is in the group already, until told to go.
static pid_t member(const char *fs, bool has_log, int *go)
{
    int ready[2], end[2];
    CHECK(pipe(ready) == 0 && pipe(end) == 0);
    pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        struct arck_options options = usual();
        options.group = "taken";
        options.fs = fs;
        options.flags = has_log ? ARCK_MAKE : 0;
        arck_handle handle = has_log ? arck_log_open(NULL, "group-log", &options) : arck_connect(NULL, &options);
        byte = handle > 0;
        close(end[1]);
        if (write(ready[1], &byte, 1) != 1 || read(end[0], &byte, 1) != 0)
            _exit(2);
        _exit(arck_close(handle) != 0);
    }
    char byte = 0;
    close(end[0]);
    CHECK(read(ready[0], &byte, 1) == 1 && byte == 1);
    close(ready[0]);
    close(ready[1]);
    *go = end[1];
    return child;
}

static void groups_with_another_file_system(void)
{
    struct arck_options options = usual();
    int go, status;
    options.group = "taken";

    pid_t child = member("fpfs", false, &go);
    options.fs = "arckfs";
    FAILS(EBUSY, arck_connect(NULL, &options));
    CHECK(says("fpfs") && says("--own-group"));
    close(go);
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    child = member(NULL, true, &go);
    FAILS(EBUSY, arck_connect(NULL, &options));
    CHECK(says("group"));
    close(go);
    CHECK(waitpid(child, &status, 0) == child && status == 0);

    child = member("arckfs", false, &go);
    options.fs = NULL;
    options.flags = ARCK_MAKE;
    FAILS(EBUSY, arck_log_open(NULL, "group-log", &options));
    CHECK(says("group"));
    close(go);
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void two_connections(void)
{
    arck_handle one = connected(), two = connected();
    arck_handle file = arck_openat(one, "two", O_CREAT | O_RDWR, 0644);
    arck_handle directory = arck_openat(two, ".", O_RDONLY | O_DIRECTORY, 0);
    CHECK(file > 0 && directory > 0);
    FAILS(EXDEV, arck_renameat2(one, "two", two, "other", 0));
    FAILS(EXDEV, arck_linkat(one, "two", directory, "other", 0));
    FAILS(EBADF, arck_renameat2(one, "two", 0, "other", 0));
    GIVES(0, arck_close(two));
    FAILS(EBADF, arck_renameat2(one, "two", two, "other", 0));
    FAILS(EBADF, arck_renameat2(one, "two", directory, "other", 0));
    GIVES(0, arck_renameat2(one, "two", one, "other", 0));
    FAILS(EXDEV, arck_openat(one, "../x", O_RDONLY, 0));
    CHECK(says("out of the pool"));
    GIVES(0, arck_unlinkat(one, "other", 0));
    GIVES(0, arck_close(one));
}

static const struct test tests[] = {
    {"numbers_that_are_no_handles", numbers_that_are_no_handles},
    {"handles_of_another_kind_and_closed_ones", handles_of_another_kind_and_closed_ones},
    {"null_pointers_and_lengths", null_pointers_and_lengths},
    {"options", options},
    {"groups_with_another_file_system", groups_with_another_file_system},
    {"two_connections", two_connections},
};

MAIN(tests)
