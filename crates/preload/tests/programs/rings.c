// What sets up io_uring, in all ways that programs have, and what they fall back to. Prints what each says.
#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// By the program's own instruction.
static long own(long number, long a, long b, long c, long d) {
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = 0;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

static void said(const char *what, long result) {
    printf("%s: %s\n", what, result == -ENOSYS ? "ENOSYS" : result < 0 ? strerror(-result) : "there");
}

static long by_libc(long number, long a, void *b) {
    long result = syscall(number, a, b, 0, 0, 0, 0);
    return result < 0 ? -errno : result;
}

int main(int count, char **arguments) {
    (void)count;
    struct io_uring_params parameters = {0};
    struct io_uring ring;
    said("syscall(io_uring_setup)", by_libc(SYS_io_uring_setup, 4, &parameters));
    said("syscall(io_uring_enter)", by_libc(SYS_io_uring_enter, -1, 0));
    said("syscall(io_uring_register)", by_libc(SYS_io_uring_register, -1, 0));
    memset(&parameters, 0, sizeof parameters);
    said("own io_uring_setup", own(SYS_io_uring_setup, 4, (long)&parameters, 0, 0));
    memset(&parameters, 0, sizeof parameters);
    said("io_uring_queue_init", io_uring_queue_init(4, &ring, 0));
    said("io_uring_queue_init_params", io_uring_queue_init_params(4, &ring, &parameters));
    printf("io_uring_get_probe: %s\n", io_uring_get_probe() ? "there" : "none");

    // What programs have instead: libc's threads.
    char path[4096], bytes[] = "asynchronous";
    snprintf(path, sizeof path, "%s/file", arguments[1]);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct aiocb request = {.aio_fildes = fd, .aio_buf = bytes, .aio_nbytes = sizeof bytes};
    const struct aiocb *list[] = {&request};
    printf("aio_write: %d", aio_write(&request));
    while (aio_error(&request) == EINPROGRESS)
        aio_suspend(list, 1, NULL);
    printf(" %zd", aio_return(&request));
    char back[sizeof bytes] = "";
    printf(" %zd %s\n", pread(fd, back, sizeof back, 0), back);
    return 0;
}
