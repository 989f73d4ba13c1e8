/* The same file opened in each way that a program has: which of them see the pool? */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
static long direct(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
    return result;
}
static void show(const char *way, int sees) { printf("%s: %s\n", way, sees ? "seen" : "not seen"); fflush(stdout); }
int main(int argc, char **argv) {
    char name[4096], text[10] = "";
    snprintf(name, sizeof name, "%s/file", argv[1]);
    int fd = open(name, O_RDWR | O_CREAT, 0600);
    show("open", fd >= 0 && write(fd, "written", 7) == 7);
    close(fd);
    fd = syscall(SYS_openat, AT_FDCWD, name, O_RDONLY);
    show("syscall", fd >= 0 && syscall(SYS_pread64, fd, text, 7, 0) == 7 && !strcmp(text, "written"));
    if (fd >= 0) close(fd);
    FILE *f = fopen(name, "r");
    show("fopen", f && fgets(text, sizeof text, f));
    if (f) fclose(f);
    fd = direct(SYS_openat, AT_FDCWD, (long)name, O_RDONLY, 0);
    show("instruction", fd >= 0 && direct(SYS_read, fd, (long)text, 7, 0) == 7);
    if (fd >= 0) direct(SYS_close, fd, 0, 0, 0);
    fd = open(name, O_RDONLY);
    /* A pool descriptor that gets past the library is refused, never wrong. */
    long result = direct(SYS_read, fd, (long)text, 7, 0);
    printf("its descriptor: %s\n", result == 7 ? "read" : result == -EBADF ? "EBADF" : "?");
    return 0;
}
