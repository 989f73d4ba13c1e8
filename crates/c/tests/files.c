// Files: what Arck says beside what the host's file system says, and what is Arck's own.

#include "check.h"

#include <limits.h>
#include <sys/xattr.h>

// ---- the same calls on both, one after the other

struct side {
    bool is_arck;
    arck_handle root;
    arck_handle files[4];
    char said[4096];
};

static void say(struct side *side, const char *call, long long value, const void *bytes, size_t length)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < length; i++)
        sum = sum * 31 + ((const unsigned char *)bytes)[i];
    snprintf(side->said, sizeof side->said, "%s %lld %s %u", call, value, value < 0 ? strerror(errno) : "", sum);
}

static long long opens(struct side *side, int place, const char *path, int flags)
{
    arck_handle opened = side->is_arck ? arck_openat(side->root, path, flags, 0664)
                                       : openat((int)side->root, path, flags, 0664);
    int number = errno;
    if (opened < 0)
        return -1;
    if (side->files[place] >= 0)
        side->is_arck ? arck_close(side->files[place]) : close((int)side->files[place]);
    side->files[place] = opened;
    errno = number;
    return 0;
}

#define ON(side, call, ...) ((side)->is_arck ? arck_##call((side)->root, __VA_ARGS__) : call((int)(side)->root, __VA_ARGS__))
#define ON_FILE(side, call, ...) \
    ((side)->is_arck ? arck_##call((side)->files[place], __VA_ARGS__) : call((int)(side)->files[place], __VA_ARGS__))

static const char *const names[] = {"a", "b", "c", "d", "d/a", "d/b", "e", "d/e/a", "a/x", "d/", "none/a", "l", "d/l", "", "d/..", "."};
enum { NAMES = sizeof names / sizeof names[0] };

static void status_of(struct side *side, const char *call, int value, const struct stat *status)
{
    uint64_t facts[6] = {0};
    if (value == 0) {
        facts[0] = status->st_mode;
        facts[1] = status->st_nlink;
        facts[2] = status->st_uid;
        facts[3] = S_ISDIR(status->st_mode) ? 0 : (uint64_t)status->st_size;
    }
    say(side, call, value, facts, sizeof facts);
}

// One call, chosen by numbers that are the same for both.
static void step(struct side *side, const unsigned *n)
{
    static char bytes[20000];
    const char *one = names[n[1] % NAMES], *other = names[n[2] % NAMES];
    int place = n[3] % 4;
    size_t length = n[4] % sizeof bytes;
    off_t at = n[5] % 50000;
    struct stat status;
    struct timespec times[2] = {{n[5], (long)(n[4] % 1000000000)}, {0, n[3] % 2 ? UTIME_OMIT : 5}};
    char target[64];
    ssize_t value;

    memset(&status, 0, sizeof status);
    switch (n[0] % 24) {
    case 0:
    case 1: {
        const int flags[] = {O_RDONLY, O_RDWR | O_CREAT, O_WRONLY | O_CREAT | O_EXCL, O_RDWR | O_TRUNC | O_CREAT,
                             O_WRONLY | O_APPEND | O_CREAT, O_RDONLY | O_DIRECTORY, O_RDWR | O_NOFOLLOW, O_PATH};
        say(side, "open", opens(side, place, one, flags[n[2] % 8]), NULL, 0);
        break;
    }
    case 2:
    case 3:
        memset(bytes, (int)n[5], length);
        say(side, "write", ON_FILE(side, write, bytes, length), NULL, 0);
        break;
    case 4:
        memset(bytes, (int)n[5], length);
        say(side, "pwrite", ON_FILE(side, pwrite, bytes, length, at), NULL, 0);
        break;
    case 5:
    case 6:
        value = ON_FILE(side, read, bytes, length);
        say(side, "read", value, bytes, value > 0 ? value : 0);
        break;
    case 7:
        value = ON_FILE(side, pread, bytes, length, at);
        say(side, "pread", value, bytes, value > 0 ? value : 0);
        break;
    case 8: {
        const int whence[] = {SEEK_SET, SEEK_CUR, SEEK_END, 99};
        say(side, "lseek", ON_FILE(side, lseek, at - 25000, whence[n[1] % 4]), NULL, 0);
        break;
    }
    case 9:
        say(side, "ftruncate", ON_FILE(side, ftruncate, at), NULL, 0);
        break;
    case 10:
        say(side, "mkdir", ON(side, mkdirat, one, 0770), NULL, 0);
        break;
    case 11:
        say(side, "unlink", ON(side, unlinkat, one, n[2] % 3 ? 0 : AT_REMOVEDIR), NULL, 0);
        break;
    case 12: {
        unsigned how = n[3] % 4 == 1 ? RENAME_NOREPLACE : n[3] % 4 == 2 ? RENAME_EXCHANGE : 0;
        int renamed = side->is_arck ? arck_renameat2(side->root, one, side->root, other, how)
                                    : renameat2((int)side->root, one, (int)side->root, other, how);
        say(side, "rename", renamed, NULL, 0);
        break;
    }
    case 13: {
        int linked = side->is_arck ? arck_linkat(side->root, one, side->root, other, 0)
                                   : linkat((int)side->root, one, (int)side->root, other, 0);
        say(side, "link", linked, NULL, 0);
        break;
    }
    case 14: {
        int linked = side->is_arck ? arck_symlinkat(names[n[2] % 8], side->root, one)
                                   : symlinkat(names[n[2] % 8], (int)side->root, one);
        say(side, "symlink", linked, NULL, 0);
        break;
    }
    case 15:
        value = ON(side, readlinkat, one, target, 1 + n[3] % sizeof target);
        say(side, "readlink", value, target, value > 0 ? value : 0);
        break;
    case 16:
    case 17: {
        int found = ON(side, fstatat, one, &status, n[2] % 2 ? AT_SYMLINK_NOFOLLOW : 0);
        status_of(side, "fstatat", found, &status);
        break;
    }
    case 18: {
        int found = side->is_arck ? arck_fstat(side->files[place], &status) : fstat((int)side->files[place], &status);
        status_of(side, "fstat", found, &status);
        break;
    }
    case 19:
        say(side, "access", ON(side, faccessat, one, n[2] % 8, 0), NULL, 0);
        break;
    case 20:
        say(side, "chmod", ON(side, fchmodat, one, 0600 + n[2] % 0100, 0), NULL, 0);
        break;
    case 21: {
        int set = ON(side, utimensat, one, times, n[2] % 2 ? AT_SYMLINK_NOFOLLOW : 0);
        say(side, "utimens", set, NULL, 0);
        break;
    }
    case 22:
        say(side, "fallocate", ON_FILE(side, fallocate, n[1] % 2 ? FALLOC_FL_KEEP_SIZE : 0, at, (off_t)length), NULL, 0);
        break;
    case 23: {
        struct iovec vectors[3] = {{bytes, length / 3}, {NULL, 0}, {bytes + length / 3, length / 2}};
        memset(bytes, (int)n[5], length);
        if (n[1] % 2) {
            say(side, "writev", ON_FILE(side, writev, vectors, 3), NULL, 0);
        } else {
            value = ON_FILE(side, readv, vectors, 3);
            say(side, "readv", value, bytes, value > 0 ? value : 0);
        }
        break;
    }
    }
}

static unsigned random_of(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33);
}

static void beside_the_host(void)
{
    static struct side arck, host;
    char folder[] = "/dev/shm/arck-c-host-XXXXXX", remove[64];
    arck_handle pool = connected();
    umask(022);
    CHECK(mkdtemp(folder) != NULL);
    CHECK(chmod(folder, 0755) == 0);
    GIVES(0, arck_mkdirat(pool, "beside", 0755));
    arck.is_arck = true;
    arck.root = arck_openat(pool, "beside", O_RDONLY | O_DIRECTORY, 0);
    host.root = open(folder, O_RDONLY | O_DIRECTORY);
    CHECK(arck.root > 0 && host.root >= 0);
    for (int place = 0; place < 4; place++)
        arck.files[place] = host.files[place] = -1;
    // Another one finds other sequences.
    uint64_t state = getenv("ARCK_TEST_SEED") ? strtoull(getenv("ARCK_TEST_SEED"), NULL, 10) : 4;
    for (int i = 0; i < 60000 && failures == 0; i++) {
        unsigned n[6];
        for (int j = 0; j < 6; j++)
            n[j] = random_of(&state);
        step(&arck, n);
        step(&host, n);
        if (strcmp(arck.said, host.said) != 0) {
            fprintf(stderr, "%d: %s %s: Arck: %s; the host: %s\n", i, names[n[1] % NAMES], names[n[2] % NAMES],
                    arck.said, host.said);
            failures++;
        }
    }
    snprintf(remove, sizeof remove, "rm -rf %s", folder);
    CHECK(system(remove) == 0);
    for (int place = 0; place < 4; place++)
        if (host.files[place] >= 0)
            close((int)host.files[place]);
    close((int)host.root);
    GIVES(0, arck_close(pool));
}

// ---- what is Arck's own

static void listing(void)
{
    struct dirent dirent;
    bool seen[500] = {false};
    int count = 0, more;
    char name[32];
    arck_handle pool = connected();
    GIVES(0, arck_mkdirat(pool, "listing", 0755));
    arck_handle folder = arck_openat(pool, "listing", O_RDONLY | O_DIRECTORY, 0);
    for (int i = 0; i < 500; i++) {
        snprintf(name, sizeof name, "file-%d", i);
        arck_handle file = arck_openat(folder, name, O_CREAT | O_WRONLY, 0644);
        CHECK(file > 0);
        GIVES(0, arck_close(file));
    }
    GIVES(0, arck_mkdirat(folder, "directory", 0755));
    arck_handle list = arck_opendirat(folder, ".");
    CHECK(list > 0);
    for (int round = 0; round < 2; round++) {
        int dots = 0, others = 0;
        memset(seen, 0, sizeof seen);
        while ((more = arck_readdir(list, &dirent)) == 1) {
            CHECK(dirent.d_ino != 0);
            if (strncmp(dirent.d_name, "file-", 5) == 0) {
                int number = atoi(dirent.d_name + 5);
                CHECK(number >= 0 && number < 500 && !seen[number] && dirent.d_type == DT_REG);
                seen[number] = true;
                count++;
            } else if (dirent.d_name[0] == '.') {
                dots++;
            } else {
                CHECK(strcmp(dirent.d_name, "directory") == 0 && dirent.d_type == DT_DIR);
                others++;
            }
        }
        GIVES(0, more);
        CHECK(dots == 2 && others == 1);
        GIVES(0, arck_readdir(list, &dirent));
        GIVES(0, arck_rewinddir(list));
    }
    GIVES(1000, count);
    GIVES(0, arck_close(list));
    GIVES(0, arck_close(pool));
}

static void shared_offsets_and_flags(void)
{
    char room[16];
    arck_handle pool = connected();
    arck_handle file = arck_openat(pool, "/shared", O_CREAT | O_RDWR, 0644);
    arck_handle other = arck_dup(file);
    CHECK(other > 0 && other != file);
    GIVES(6, arck_write(file, "abcdef", 6));
    GIVES(6, arck_lseek(other, 0, SEEK_CUR));
    GIVES(2, arck_lseek(other, 2, SEEK_SET));
    GIVES(0, arck_close(file));
    GIVES(4, arck_read(other, room, sizeof room));
    CHECK(memcmp(room, "cdef", 4) == 0);
    GIVES(O_RDWR, arck_getfl(other) & (O_ACCMODE | O_APPEND));
    GIVES(0, arck_setfl(other, O_APPEND));
    GIVES(O_RDWR | O_APPEND, arck_getfl(other) & (O_ACCMODE | O_APPEND));
    GIVES(0, arck_lseek(other, 0, SEEK_SET));
    GIVES(1, arck_write(other, "g", 1));
    GIVES(7, arck_lseek(other, 0, SEEK_END));
    GIVES(0, arck_fsync(other));
    GIVES(0, arck_fdatasync(other));
    GIVES(0, arck_fchmod(other, 0600));
    GIVES(0, arck_futimens(other, NULL));
    GIVES(0, arck_truncateat(pool, "shared", 3));
    struct stat status;
    GIVES(0, arck_fstat(other, &status));
    CHECK(status.st_size == 3 && status.st_mode == (S_IFREG | 0600) && status.st_dev != 0);
    GIVES(0, arck_close(other));
    GIVES(0, arck_close(pool));
}

static void modes_of_what_is_made(void)
{
    struct stat status;
    arck_handle pool = connected();
    umask(077);
    arck_handle file = arck_openat(pool, "masked", O_CREAT | O_RDWR, 0666);
    GIVES(0, arck_fstat(file, &status));
    GIVES(S_IFREG | 0600, status.st_mode);
    umask(022);
    GIVES(0, arck_mkdirat(pool, "masked-directory", 0777));
    GIVES(0, arck_fstatat(pool, "masked-directory", &status, 0));
    GIVES(S_IFDIR | 0755, status.st_mode);
    GIVES(0, arck_umask(pool, 0));
    GIVES(0, arck_mknodat(pool, "masked-pipe", S_IFIFO | 0666, 0));
    GIVES(0, arck_fstatat(pool, "masked-pipe", &status, 0));
    GIVES(S_IFIFO | 0666, status.st_mode);
    FAILS(ENXIO, arck_openat(pool, "masked-pipe", O_RDONLY, 0));
    GIVES(0, arck_umask(pool, -1));
    // A file without a name, which gets one.
    arck_handle nameless = arck_openat(pool, ".", O_TMPFILE | O_RDWR, 0666);
    GIVES(3, arck_write(nameless, "abc", 3));
    GIVES(0, arck_linkat(nameless, "", pool, "named", AT_EMPTY_PATH));
    GIVES(0, arck_fstatat(pool, "named", &status, 0));
    CHECK(status.st_size == 3 && status.st_mode == (S_IFREG | 0644) && status.st_nlink == 1);
    GIVES(0, arck_close(pool));
}

static void attributes(void)
{
    char room[64];
    struct statvfs statistics;
    arck_handle pool = connected();
    arck_handle file = arck_openat(pool, "extended", O_CREAT | O_RDWR, 0644);
    FAILS(ENODATA, arck_getxattrat(pool, "extended", 0, "user.a", room, sizeof room));
    GIVES(0, arck_setxattrat(pool, "extended", 0, "user.a", "value", 5, XATTR_CREATE));
    FAILS(EEXIST, arck_setxattrat(pool, "extended", 0, "user.a", "value", 5, XATTR_CREATE));
    GIVES(0, arck_setxattrat(file, "", AT_EMPTY_PATH, "user.b", NULL, 0, 0));
    GIVES(5, arck_getxattrat(file, "", AT_EMPTY_PATH, "user.a", NULL, 0));
    FAILS(ERANGE, arck_getxattrat(pool, "extended", 0, "user.a", room, 4));
    GIVES(5, arck_getxattrat(pool, "extended", AT_SYMLINK_NOFOLLOW, "user.a", room, sizeof room));
    GIVES(0, arck_getxattrat(pool, "extended", 0, "user.b", room, sizeof room));
    GIVES(14, arck_listxattrat(pool, "extended", 0, room, sizeof room));
    GIVES(0, arck_removexattrat(pool, "extended", 0, "user.a"));
    GIVES(7, arck_listxattrat(file, "", AT_EMPTY_PATH, NULL, 0));
    FAILS(EOPNOTSUPP, arck_setxattrat(pool, "extended", 0, "system.a", "v", 1, 0));
    GIVES(0, arck_fchownat(pool, "extended", geteuid(), -1, 0));
    GIVES(0, arck_fstatvfs(file, &statistics));
    CHECK(statistics.f_bsize == 4096 && statistics.f_blocks > 1000 && statistics.f_namemax == 255);
    CHECK(statistics.f_bfree > 0 && statistics.f_bfree < statistics.f_blocks);
    GIVES(0, arck_close(pool));
}

static const struct test tests[] = {
    {"beside_the_host", beside_the_host},
    {"listing", listing},
    {"shared_offsets_and_flags", shared_offsets_and_flags},
    {"modes_of_what_is_made", modes_of_what_is_made},
    {"attributes", attributes},
};

MAIN(tests)
