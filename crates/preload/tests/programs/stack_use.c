/* How much of the program's stack each served call takes where there is little: what it has written over below its caller, in bytes. Fails beyond the limit that it is given. Not a comparison: a call takes as much on the host as the kernel's frame. */
#include "show.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/xattr.h>

#define SIZE 65536
static char *low;
static long limit, most, calls, wrong;
static const char *most_name;
#define PATTERN 0x5a
#define HERE ({ char *p_; __asm__ volatile("mov %%rsp, %0" : "=r"(p_)); p_; })

static void report(const char *name, long used, long allowed) {
    calls++;
    if (used > most && allowed == limit) { most = used; most_name = name; }
    if (used > allowed) { wrong++; printf("%s takes %ld of %ld\n", name, used, allowed); }
    if (getenv("STACK_USE")) printf("%6ld %s\n", used, name);
}
/* Twice, since the loader looks a function up at its first call, on the program's stack too. */
#define USE_OF(allowed, name, before, x, after) do { \
    long used_ = 0, r_ = 0; \
    for (int k_ = 0; k_ < 2; k_++) { \
        before; \
        char *top_ = HERE; \
        for (volatile char *p_ = low; p_ < top_ - 128; p_++) *p_ = PATTERN; \
        r_ = (long)(x); \
        volatile char *p_ = low; while (p_ < top_ && *p_ == PATTERN) p_++; \
        used_ = top_ - (char *)p_; \
        after; \
    } \
    (void)r_; report(name, used_, allowed); \
} while (0)
#define USE(x) USE_OF(limit, #x, , x, )
#define USE_WITH(before, x, after) USE_OF(limit, #x, before, x, after)
#define CALL(number, ...) USE(syscall(SYS_##number, __VA_ARGS__))

static int d, from, directory;
static char buffer[300000];
static struct stat s;

static void data(void) {
    struct iovec parts[100];
    for (int i = 0; i < 100; i++) parts[i] = (struct iovec){buffer + i * 100, 100};
    loff_t at = 0, to = 0; off_t sent = 0; int ends[2]; MUST(pipe(ends));
    USE(read(d, buffer, 100)); USE(read(d, buffer, sizeof buffer)); USE(write(d, buffer, 100)); USE(write(d, buffer, sizeof buffer)); USE(pread(d, buffer, 100, 0)); USE(pwrite(d, buffer, 100, 0)); USE(pwrite(d, buffer, 100, 10000000));
    USE(readv(d, parts, 1)); USE(readv(d, parts, 100)); USE(writev(d, parts, 2)); USE(writev(d, parts, 100)); USE(preadv(d, parts, 100, 0)); USE(pwritev(d, parts, 100, 0)); USE(preadv2(d, parts, 100, 0, 0)); USE(pwritev2(d, parts, 100, 0, RWF_APPEND)); USE(pwritev2(d, parts, 3, 0, 0));
    USE(lseek(d, 0, SEEK_SET)); USE(lseek(d, 0, SEEK_END)); USE(lseek(d, 0, SEEK_HOLE)); USE(ftruncate(d, 5000)); USE(ftruncate(d, 5000000)); USE(truncate("f", 100)); USE(fsync(d)); USE(fdatasync(d)); USE(syncfs(d)); USE((sync(), 0)); USE(sync_file_range(d, 0, 0, 0));
    USE(fallocate(d, 0, 0, 2000000)); USE(fallocate(d, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 10, 1000000)); USE(fallocate(d, FALLOC_FL_ZERO_RANGE, 10, 1000000)); USE(posix_fallocate(d, 0, 100)); USE(posix_fadvise(d, 0, 0, 0)); USE(readahead(d, 0, 100));
    USE_WITH(at = 0; to = 0, copy_file_range(from, &at, d, &to, 200000, 0), ); USE_WITH(sent = 0, sendfile(d, from, &sent, 200000), ); USE_WITH(sent = 0, sendfile(ends[1], d, &sent, 100), ); USE_WITH(to = 0, splice(ends[0], 0, d, &to, 100, 0), ); USE_WITH(to = 0, splice(d, &to, ends[1], 0, 100, 0), );
    CALL(getdents64, directory, buffer, 4096); CALL(getdents, directory, buffer, 4096);
    void *m = 0;
    USE_WITH(, m = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, d, 0), ); USE(msync(m, 8192, MS_SYNC)); USE(madvise(m, 4096, MADV_NORMAL)); USE(mprotect(m, 4096, PROT_READ)); USE_WITH(, m = mremap(m, 8192, 4096, MREMAP_MAYMOVE), ); USE(munmap(m, 4096));
    USE_WITH(m = mmap(0, 8192, PROT_READ, MAP_PRIVATE, d, 0), munmap(m, 8192), );
    close(ends[0]); close(ends[1]);
}
static void descriptors(void) {
    int n = 0; struct flock l = {.l_type = F_WRLCK, .l_len = 10}; int value = 0;
    USE_WITH(, n = open("f", O_RDWR), close(n)); USE_WITH(, n = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644), close(n)); USE_WITH(unlink("made"), n = open("made", O_RDWR | O_CREAT | O_EXCL, 0644), close(n)); USE_WITH(, n = openat(directory, "f", O_RDONLY), close(n)); USE_WITH(, n = creat("f", 0644), close(n)); USE(open("missing", O_RDONLY));
    USE_WITH(, n = open(".", O_RDWR | O_TMPFILE, 0600), close(n)); struct open_how how = {.flags = O_RDONLY, .resolve = RESOLVE_BENEATH}; USE_WITH(, n = syscall(SYS_openat2, directory, "f", &how, sizeof how), close(n));
    USE_WITH(n = open("f", O_RDONLY), close(n), ); USE_WITH(, n = dup(d), close(n)); USE_WITH(, dup2(d, 100), close(100)); USE_WITH(, dup3(d, 100, O_CLOEXEC), close(100)); USE_WITH(dup2(d, 100), close_range(100, 110, 0), );
    USE(fcntl(d, F_GETFL)); USE(fcntl(d, F_SETFL, O_APPEND)); USE(fcntl(d, F_SETFL, 0)); USE(fcntl(d, F_GETFD)); USE(fcntl(d, F_SETFD, FD_CLOEXEC)); USE_WITH(, n = fcntl(d, F_DUPFD, 50), close(n)); USE(fcntl(d, F_SETLK, &l)); USE(fcntl(d, F_GETLK, &l)); USE(fcntl(d, F_OFD_SETLK, &l)); USE(lockf(d, F_TEST, 10)); USE(flock(d, LOCK_EX)); USE(flock(d, LOCK_UN)); USE(ioctl(d, FIONREAD, &value)); USE(ioctl(d, TCGETS, buffer)); USE(umask(022));
}
static void names(void) {
    struct timespec times[2] = {{1, 2}, {3, 4}}; struct statx x; struct statfs fs; struct statvfs vfs;
    USE_WITH(, mkdir("new", 0755), rmdir("new")); USE_WITH(mkdir("new", 0755), rmdir("new"), ); USE_WITH(mkdir("new", 0755), unlinkat(AT_FDCWD, "new", AT_REMOVEDIR), ); USE_WITH(put("new", "x"), unlink("new"), ); USE_WITH(put("new", "x"), remove("new"), ); USE_WITH(put("new", "x"), rename("new", "newer"), unlink("newer")); USE_WITH(put("new", "x"), rename("new", "in/newer"), unlink("in/newer")); USE_WITH(put("new", "x"); put("newer", "y"), rename("new", "newer"), unlink("newer"));
    USE_WITH(mkdir("new", 0755), rename("new", "in/new"), rmdir("in/new")); USE_WITH(put("new", "x"), renameat2(AT_FDCWD, "new", AT_FDCWD, "f", RENAME_EXCHANGE), renameat2(AT_FDCWD, "new", AT_FDCWD, "f", RENAME_EXCHANGE)); unlink("new");
    USE_WITH(, link("f", "new"), unlink("new")); USE_WITH(, symlink("f", "new"), unlink("new")); USE_WITH(, symlinkat("f", directory, "new"), unlink("new")); USE(readlink("l", buffer, 100)); USE(readlinkat(directory, "l", buffer, 100)); USE_WITH(, mknod("new", S_IFIFO | 0600, 0), unlink("new"));
    USE_WITH(, chdir("in"), chdir("..")); USE(fchdir(directory)); USE_WITH(, chdir("/"), chdir("/arck/work")); USE_WITH(chdir("/tmp"), chdir("/arck/work"), ); char *none[] = {0}; /* What another program begins with is made on the stack. */ USE_OF(2 * limit, "execve", , execve("f", none, none), ); USE_OF(2 * limit, "execve of a directory", , execve("in", none, none), );
    USE(access("f", R_OK)); USE(faccessat(directory, "f", R_OK, AT_EACCESS)); USE(euidaccess("f", R_OK)); USE(chmod("f", 0600)); USE(fchmod(d, 0644)); USE(fchmodat(directory, "f", 0644, 0)); USE(chown("f", -1, -1)); USE(lchown("l", -1, -1)); USE(fchown(d, -1, -1)); USE(chown("f", geteuid(), getegid()));
    USE(utimensat(AT_FDCWD, "f", times, 0)); USE(futimens(d, times)); USE(utimes("f", 0)); USE(stat("f", &s)); USE(lstat("l", &s)); USE(fstat(d, &s)); USE(fstatat(directory, "f", &s, 0)); USE(statx(AT_FDCWD, "f", 0, STATX_ALL, &x)); USE(statfs("f", &fs)); USE(fstatfs(d, &fs)); USE(statvfs("f", &vfs));
    USE(setxattr("f", "user.a", "b", 1, 0)); USE(getxattr("f", "user.a", buffer, 100)); USE(listxattr("f", buffer, 100)); USE(fsetxattr(d, "user.b", "b", 1, 0)); USE(fgetxattr(d, "user.b", buffer, 100)); USE(flistxattr(d, buffer, 100)); USE(removexattr("f", "user.a")); USE(fremovexattr(d, "user.b"));
    USE(inotify_add_watch(0, "f", IN_MODIFY)); USE(name_to_handle_at(AT_FDCWD, "f", (void *)buffer, (void *)buffer, 0));
    /* Paths that are not used as they are given. */
    char path[4096]; snprintf(path, sizeof path, "/proc/self/fd/%d", d); USE(stat(path, &s)); USE(readlink(path, buffer, 4096)); snprintf(path, sizeof path, "/proc/self/fd/%d/f", directory); USE(stat(path, &s));
    USE(stat("/tmp/..//arck/./", &s)); USE(stat("../work/in/../f", &s)); USE(stat("/arck/../etc/passwd", &s)); USE(open("/dev/fd/9999", O_RDONLY));
    char longest[4000]; memset(longest, '/', sizeof longest); strcpy(longest + sizeof longest - 3, "f"); longest[0] = '.'; USE(stat(longest, &s));
    /* From above the pool, by the kernel's directory. */
    USE_WITH(chdir("/"), stat("arck/work/f", &s), ); USE_WITH(chdir("/"), stat("../arck/work/f", &s), ); chdir("/arck/work");
}
static void passed(void) {
    int pair[2]; MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
    char room[CMSG_SPACE(sizeof(int))] = {0}, byte = 0; struct iovec part = {&byte, 1};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m); *c = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}; memcpy(CMSG_DATA(c), &d, sizeof d);
    USE(sendmsg(pair[0], &m, 0)); m.msg_controllen = sizeof room; USE(recvmsg(pair[1], &m, 0));
    struct sockaddr_un a = {.sun_family = AF_UNIX, .sun_path = "/arck/work/socket"}; USE(bind(pair[0], (void *)&a, sizeof a)); USE(connect(pair[0], (void *)&a, sizeof a));
    struct rlimit l; USE_WITH(getrlimit(RLIMIT_FSIZE, &l), setrlimit(RLIMIT_FSIZE, &l), );
    close(pair[0]); close(pair[1]);
}
/* Calls that libc makes itself: the kernel's frame of SIGSYS comes on top, until their places are rewritten. */
static void inside_libc(void) {
    FILE *f = fopen("stream", "w+"); setvbuf(f, 0, _IONBF, 0);
    long frame = getauxval(AT_MINSIGSTKSZ);
    USE_OF(limit + frame, "fputc, unbuffered", , fputc('x', f), );
    USE_OF(limit + frame, "getcwd", , getcwd(buffer, 4096), );
    USE_OF(limit + frame, "fgetc", , (rewind(f), fgetc(f)), );
    fclose(f);
}
static void *measure(void *a) {
    d = MUST(open("f", O_RDWR | O_CREAT, 0644)); from = MUST(open("from", O_RDWR | O_CREAT, 0644)); directory = MUST(open(".", O_RDONLY | O_DIRECTORY));
    MUST(mkdir("in", 0755)); MUST(symlink("f", "l")); MUST(write(from, buffer, sizeof buffer));
    data(); descriptors(); names(); passed(); inside_libc();
    return a;
}
int main(int argc, char **argv) {
    begin(argv);
    limit = atol(argv[2]);
    low = mmap(0, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t a; pthread_t t;
    pthread_attr_init(&a); pthread_attr_setstack(&a, low, SIZE);
    MUST(pthread_create(&t, &a, measure, 0)); pthread_join(t, 0);
    printf("%ld calls, most %ld by %s\n", calls, most, most_name);
    return wrong != 0;
}
