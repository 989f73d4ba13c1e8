/* Which numbers a program gets, and what is done with them. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#define SHOW(x) do { errno = 0; long r = (long)(x); printf("%s = %ld%s%s\n", #x, r, errno ? " " : "", errno ? strerrorname_np(errno) : ""); fflush(stdout); } while (0)
static char name[4096];
static const char *at(const char *d, const char *n) { snprintf(name, sizeof name, "%s/%s", d, n); return name; }
int main(int argc, char **argv) {
    const char *d = argv[1];
    int a, b;
    char buffer[64] = {0};
    SHOW(a = open(at(d, "a"), O_RDWR | O_CREAT, 0644));
    SHOW(b = open(at(d, "b"), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    SHOW(close(a));
    SHOW(open(at(d, "c"), O_RDWR | O_CREAT, 0644));
    SHOW(open(at(d, "d"), O_RDWR | O_CREAT, 0644));
    SHOW(close(0));
    SHOW(open(at(d, "a"), O_RDONLY));
    SHOW(close(0));
    SHOW(open("/dev/null", O_RDONLY));
    SHOW(close(0));
    SHOW(dup(b));
    SHOW(close(0));
    SHOW(open(at(d, "a"), O_RDONLY));
    SHOW(fcntl(b, F_GETFD));
    SHOW(fcntl(b, F_SETFD, 0));
    SHOW(fcntl(b, F_GETFD));
    SHOW(fcntl(b, F_DUPFD, 10));
    SHOW(fcntl(b, F_DUPFD_CLOEXEC, 10));
    SHOW(fcntl(11, F_GETFD));
    SHOW(dup2(b, 30));
    SHOW(dup2(b, b));
    SHOW(dup2(99, b));
    SHOW(dup3(b, 31, O_CLOEXEC));
    SHOW(dup3(b, b, 0));
    SHOW(fcntl(31, F_GETFD));
    SHOW(write(b, "0123456789", 10));
    SHOW(lseek(30, 0, SEEK_CUR));
    SHOW(pread(31, buffer, 4, 3)); puts(buffer);
    SHOW(close(b));
    SHOW(lseek(30, 2, SEEK_SET));
    SHOW(read(31, buffer, 3)); puts(buffer);
    SHOW(read(b, buffer, 3));
    SHOW(dup2(1, 30));
    SHOW(close(30));
    SHOW(close(30));
    SHOW(fcntl(31, F_GETFL) & (O_ACCMODE | O_APPEND));
    SHOW(fcntl(31, F_SETFL, O_APPEND));
    SHOW(fcntl(31, F_GETFL) & (O_ACCMODE | O_APPEND));
    struct iovec v[3] = {{"ab", 2}, {"", 0}, {"cd", 2}};
    SHOW(writev(31, v, 3));
    SHOW(lseek(31, 0, SEEK_END));
    struct pollfd p = {31, POLLIN | POLLOUT, 0};
    SHOW(poll(&p, 1, 0)); SHOW(p.revents);
    int n = -1;
    SHOW(lseek(31, 4, SEEK_SET));
    SHOW(ioctl(31, FIONREAD, &n)); SHOW(n);
    SHOW(isatty(31));
    int pipes[2]; SHOW(pipe(pipes));
    SHOW(sendfile(pipes[1], 31, 0, 100)); SHOW(read(pipes[0], buffer, 64)); printf("%.10s\n", buffer);
    off_t off = 1;
    SHOW(sendfile(pipes[1], 31, &off, 3)); SHOW(off); SHOW(read(pipes[0], buffer, 64)); printf("%.3s\n", buffer);
    char *m = mmap(0, 4096, PROT_READ, MAP_PRIVATE, 31, 0);
    printf("%.14s\n", m);
    SHOW(munmap(m, 4096));
    SHOW(mmap(0, 4096, PROT_READ, MAP_PRIVATE, 31, 1) == MAP_FAILED);
    SHOW(ftruncate(31, 5)); struct stat s; SHOW(fstat(31, &s)); SHOW(s.st_size);
    SHOW(syscall(SYS_read, 31, buffer, 3));
    SHOW(syscall(SYS_close, 31));
    SHOW(open(at(d, "x/y"), O_RDONLY)); SHOW(open(at(d, "a/y"), O_RDONLY));
    SHOW(open(at(d, "a"), O_CREAT | O_EXCL, 0600)); SHOW(open(d, O_WRONLY)); SHOW(open("", O_RDONLY));
    SHOW(open((char *)0, O_RDONLY));
    SHOW(openat(77, "x", O_RDONLY));
    SHOW(close_range(3, 1000, 0));
    SHOW(open(at(d, "a"), O_RDONLY));
    SHOW(open(d, O_RDONLY | O_DIRECTORY));
    SHOW(openat(4, "b", O_RDWR));
    SHOW(fchdir(4));
    SHOW(access("b", R_OK)); SHOW(access("nope", R_OK));
    SHOW(write(4, "x", 1)); SHOW(read(4, buffer, 1)); SHOW(write(3, "x", 1));
    SHOW(fcntl(5, F_GETFD)); SHOW(fcntl(6, F_GETFD)); SHOW(fcntl(7, F_GETFD)); SHOW(fcntl(8, F_GETFD));
    for (int i = 3; i < 1024; i++) close(i);
    SHOW(open(at(d, "a"), O_RDONLY));
    SHOW(open("/dev/null", O_RDONLY));
    return 0;
}
