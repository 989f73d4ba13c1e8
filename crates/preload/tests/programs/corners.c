/* Corners of calls, each of which a suite that others wrote has found different once. */
#include "show.h"
#include <sys/wait.h>
#include <linux/fs.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/select.h>

static char room[8192];

/* What is closed is told as closed. */
static void waiting(void) {
    int d = MUST(open("waited", O_RDWR | O_CREAT, 0644)), e = MUST(open(".", O_RDONLY));
    struct pollfd p[2] = {{d, POLLIN | POLLOUT, 0}, {e, POLLIN, 0}};
    struct timespec none = {0, 0};
    struct timeval now = {0, 0};
    fd_set set, other;
    SHOW(poll(p, 2, 0)); SHOW(p[0].revents); SHOW(p[1].revents);
    close(d);
    SHOW(poll(p, 2, -1)); SHOW(p[0].revents); SHOW(p[1].revents);
    p[0].events = 0; SHOW(poll(p, 1, -1)); SHOW(p[0].revents); SHOW(ppoll(p, 2, &none, 0)); SHOW(p[0].revents);
    p[0].fd = -1; SHOW(poll(p, 2, 0)); SHOW(p[0].revents); SHOW(poll(0, 0, 0)); SHOW(poll((void *)8, 2, 0));
    FD_ZERO(&set); FD_SET(d, &set); SHOW(select(d + 1, &set, 0, 0, &now)); SHOW(select(d + 1, 0, &set, 0, 0)); SHOW(select(d, &set, 0, 0, &now)); FD_SET(d, &set); SHOW(pselect(d + 1, 0, 0, &set, 0, 0));
    FD_ZERO(&other); FD_SET(e, &other); SHOW(select(e + 1, &other, 0, 0, &now)); SHOW(select(0, 0, 0, 0, &now)); SHOW(select(-1, 0, 0, 0, &now));
    close(e);
}

/* How /proc writes what has no name, from the last slash on, but for the name itself. */
static void show_link(int d) {
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", d);
    ssize_t n = readlink(name, room, sizeof room - 1);
    room[n < 0 ? 0 : n] = 0;
    char *last = strrchr(room, '/'), *deleted = strstr(room, " (deleted)");
    printf("%s%s\n", n < 0 ? strerrorname_np(errno) : deleted ? "?" : last, deleted ? deleted : "");
}

static void names(void) {
    char name[64];
    int d = MUST(open("gone", O_RDWR | O_CREAT, 0644));
    MUST(write(d, "content", 7));
    show_link(d); MUST(unlink("gone")); show_link(d);
    /* It is still reached by its descriptor, as another description. */
    snprintf(name, sizeof name, "/proc/self/fd/%d", d);
    int e = MUST(open(name, O_RDONLY));
    SHOW(read(e, room, 3)); SHOW(lseek(d, 0, SEEK_CUR)); SHOW(lseek(e, 0, SEEK_CUR)); SHOW(write(e, "x", 1)); close(e);
    SHOW(truncate(name, 3)); SHOW(lseek(d, 0, SEEK_END)); SHOW(chmod(name, 0600)); SHOW(access(name, R_OK));
    struct stat s; SHOW(fstat(d, &s)); printf("%o %ld\n", s.st_mode, (long)s.st_nlink); SHOW(stat(name, &s)); printf("%o %ld\n", s.st_mode, (long)s.st_nlink);
    e = MUST(open(name, O_WRONLY | O_TRUNC)); SHOW(lseek(d, 0, SEEK_END)); close(e); close(d);
    d = MUST(open(".", O_TMPFILE | O_RDWR, 0600)); show_link(d); close(d);
    MUST(mkdir("left", 0755)); d = MUST(open("left", O_RDONLY)); show_link(d); MUST(rmdir("left")); show_link(d); close(d);
    MUST(mkdir("here", 0755)); MUST(chdir("here")); MUST(rmdir("../here"));
    ssize_t n = readlink("/proc/self/cwd", room, sizeof room - 1); room[n < 0 ? 0 : n] = 0; printf("%s\n", n < 0 ? strerrorname_np(errno) : strstr(room, " (deleted)"));
}

/* A symbolic link by its descriptor is itself. */
static void links(void) {
    char name[64];
    struct stat s;
    put("target", "content"); MUST(symlink("target", "link"));
    int d = MUST(open("link", O_PATH | O_NOFOLLOW));
    snprintf(name, sizeof name, "/proc/self/fd/%d", d);
    SHOW(chmod(name, 0700)); show_stat("target"); show_stat("link"); SHOW(chown(name, 3, 4)); MUST(lstat("link", &s)); printf("%d %d\n", s.st_uid, s.st_gid); MUST(stat("target", &s)); printf("%d %d\n", s.st_uid, s.st_gid);
    SHOW(stat(name, &s)); printf("%o\n", s.st_mode); SHOW(open(name, O_RDONLY)); SHOW(truncate(name, 0)); SHOW(access(name, R_OK)); show_file("target");
    close(d); MUST(unlink("link")); MUST(unlink("target"));
}

/* An offset that cannot be written. */
static void offsets(void) {
    put("source", "0123456789");
    int d = MUST(open("source", O_RDONLY)), o = MUST(open("moved", O_RDWR | O_CREAT, 0644)), p[2], waiting;
    off_t *at = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *at = 2; MUST(mprotect(at, 4096, PROT_READ)); MUST(pipe(p));
    SHOW(sendfile(o, d, at, 4)); SHOW(lseek(o, 0, SEEK_CUR)); show_file("moved"); SHOW(sendfile(o, d, at, 0)); SHOW(sendfile(o, d, (void *)8, 4)); SHOW(copy_file_range(d, at, o, 0, 4, 0)); SHOW(lseek(o, 0, SEEK_CUR)); show_file("moved");
    SHOW(sendfile(p[1], d, at, 4)); SHOW(splice(d, at, p[1], 0, 4, 0)); MUST(ioctl(p[0], FIONREAD, &waiting)); SHOW(waiting); SHOW(copy_file_range(d, 0, o, at, 4, 0)); show_file("moved");
    close(d); close(o); close(p[0]); close(p[1]); MUST(munmap(at, 4096));
}

static void maps(void) {
    int d = MUST(open("map", O_RDWR | O_CREAT, 0644));
    MUST(ftruncate(d, 8192));
    int extra[] = {0, MAP_SYNC, MAP_FIXED_NOREPLACE, MAP_POPULATE, MAP_LOCKED, MAP_NORESERVE, 0x1000000, 0x4000000, MAP_HUGETLB, MAP_GROWSDOWN, MAP_NONBLOCK, MAP_STACK, MAP_DENYWRITE, MAP_EXECUTABLE, 0x8000000, 0x10000000, 0x40000000, (int)0x80000000, 0x80, 0x200, 0x400000};
    int types[] = {MAP_SHARED, MAP_SHARED_VALIDATE, MAP_PRIVATE, 0, 4, 5, 15};
    for (unsigned t = 0; t < sizeof types / sizeof *types; t++) for (unsigned i = 0; i < sizeof extra / sizeof *extra; i++) {
        errno = 0;
        void *at = mmap(extra[i] == MAP_FIXED_NOREPLACE ? (void *)0x100000000 : 0, 4096, PROT_READ, types[t] | extra[i], d, 0);
        printf("mmap %x %x %s\n", types[t], extra[i], at == MAP_FAILED ? strerrorname_np(errno) : "");
        if (at != MAP_FAILED) MUST(munmap(at, 4096));
    }
    close(d);
}

static void controls(void) {
    put("controlled", "content");
    int d = MUST(open("controlled", O_RDWR)), r = MUST(open("controlled", O_RDONLY)), e = MUST(open(".", O_RDONLY)), copy = MUST(dup(d)), number = 0;
    SHOW(fcntl(d, F_GET_SEALS)); SHOW(fcntl(d, F_ADD_SEALS, F_SEAL_GROW)); SHOW(fcntl(e, F_GET_SEALS)); SHOW(fcntl(r, F_NOTIFY, DN_CREATE)); SHOW(fcntl(d, F_SETSIG, 100)); SHOW(fcntl(d, F_SETSIG, -1)); SHOW(fcntl(d, F_SETSIG, 10));
    if (fcntl(1, 1027, 1) == 1) { SHOW(fcntl(d, 1027, d)); SHOW(fcntl(d, 1027, copy)); SHOW(fcntl(d, 1027, r)); SHOW(fcntl(d, 1027, 1)); SHOW(fcntl(d, 1027, 77)); }
    /* F_CREATED_QUERY, where the kernel has it, by all who have the description. */
    int fresh = MUST(open("fresh", O_RDWR | O_CREAT, 0600));
    if (fcntl(1, 1028, 0) == 0) {
        int again = MUST(open("fresh", O_RDWR | O_CREAT, 0600)), only = MUST(open("only", O_WRONLY | O_CREAT | O_EXCL, 0600)), nameless = MUST(open(".", O_RDWR | O_TMPFILE, 0600)), path = MUST(open("fresh", O_PATH)), copy = MUST(dup(fresh)), directory = MUST(open(".", O_RDONLY));
        SHOW(fcntl(fresh, 1028, 0)); SHOW(fcntl(fresh, 1028, 5)); SHOW(fcntl(again, 1028, 0)); SHOW(fcntl(only, 1028, 0)); SHOW(fcntl(nameless, 1028, 0)); SHOW(fcntl(path, 1028, 0)); SHOW(fcntl(copy, 1028, 0)); SHOW(fcntl(directory, 1028, 0));
        SHOW(fcntl(fresh, F_GETFL)); SHOW(fcntl(only, F_GETFL)); SHOW(fcntl(fresh, F_SETFL, O_APPEND)); SHOW(fcntl(fresh, F_GETFL)); SHOW(fcntl(fresh, 1028, 0));
        fflush(stdout);
        pid_t child = MUST(fork());
        if (child == 0) { SHOW(fcntl(fresh, 1028, 0)); SHOW(fcntl(again, 1028, 0)); SHOW(fcntl(copy, F_GETFL)); fflush(stdout); _exit(0); }
        MUST(waitpid(child, NULL, 0));
        close(again); close(only); close(nameless); close(path); close(copy); close(directory); unlink("only");
    }
    close(fresh); unlink("fresh");
    int fds[] = {d, r, e};
    for (int i = 0; i < 3; i++) {
        int f = fds[i]; long size = 0; struct fsxattr x; memset(&x, 0x55, sizeof x);
        number = 7; SHOW(ioctl(f, FS_IOC_GETFLAGS, &number)); SHOW(number); number = 0; SHOW(ioctl(f, FS_IOC_SETFLAGS, &number)); SHOW(ioctl(f, FS_IOC_FSGETXATTR, &x)); SHOW(x.fsx_xflags); SHOW(ioctl(f, FS_IOC_FSSETXATTR, &x));
        SHOW(ioctl(f, FIGETBSZ, &number)); SHOW(number); SHOW(ioctl(f, FIOASYNC, &number)); SHOW(ioctl(f, FIOQSIZE, &size)); if (i < 2) SHOW(size); number = 0; SHOW(ioctl(f, FIONREAD, &number)); SHOW(number);
        SHOW(ioctl(f, FS_IOC_GETFLAGS, (void *)8)); SHOW(ioctl(f, FIGETBSZ, (void *)8)); SHOW(ioctl(f, FS_IOC_GETVERSION, &size)); SHOW(ioctl(f, 0x12345, 0)); SHOW(ioctl(f, 0x5401, room));
    }
    close(d); close(r); close(e); close(copy);
}

int main(int argc, char **argv) {
    begin(argv);
    waiting(); links(); offsets(); maps(); controls(); names();
    return 0;
}
