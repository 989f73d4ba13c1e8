// What runtimes do that bring stacks and threads' storage of their own, as Go's does. First argument: which.
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static long direct(long number, long a, long b, long c, long d) {
    long result;
    register long r10 __asm__("r10") = d;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}

static char name[4096], text[16];
static long results[6];

static void on_small_stack(void) {
    long fd = direct(SYS_openat, AT_FDCWD, (long)name, O_RDWR | O_CREAT, 0600);
    results[0] = fd >= 0;
    results[1] = direct(SYS_write, fd, (long)"small", 5, 0);
    results[2] = direct(SYS_lseek, fd, 0, SEEK_SET, 0);
    results[3] = direct(SYS_read, fd, (long)text, 5, 0);
    results[4] = direct(SYS_close, fd, 0, 0, 0);
    results[5] = direct(SYS_unlink, (long)name, 0, 0, 0);
}

// A stack of 1 KiB, and what lies below it.
static _Alignas(64) unsigned char stack[64 << 10];
enum { SMALL = 1 << 10 };

static int goroutine(void) {
    // As for each of its threads: by its own instruction.
    stack_t alternate = {.ss_sp = malloc(32 << 10), .ss_size = 32 << 10};
    if (direct(SYS_sigaltstack, (long)&alternate, 0, 0, 0))
        return 1;
    memset(stack, 0x5a, sizeof stack);
    unsigned char *top = stack + sizeof stack;
    __asm__ volatile("mov %%rsp, %%rbx\n"
                     "mov %0, %%rsp\n"
                     "call *%1\n"
                     "mov %%rbx, %%rsp\n"
                     :
                     : "r"(top), "r"(on_small_stack)
                     : "rbx", "rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11", "memory");
    for (int i = 0; i < 6; i++)
        printf("%ld ", results[i]);
    unsigned char *at = stack;
    while (*at == 0x5a)
        at++;
    printf("%s %s\n", text, top - at <= SMALL ? "within" : "beyond");
    return 0;
}

static char storage[4096];

static int own_storage(void) {
    unsigned long before = 0;
    direct(SYS_arch_prctl, 0x1003, (long)&before, 0, 0);
    *(void **)(storage + 2048) = storage + 2048;
    long set = direct(SYS_arch_prctl, 0x1002, (long)(storage + 2048), 0, 0);
    // Nothing of libc's until the old one is back.
    long fd = direct(SYS_openat, AT_FDCWD, (long)name, O_RDWR | O_CREAT, 0600);
    direct(SYS_write, 1, (long)"by itself\n", 10, 0);
    direct(SYS_arch_prctl, 0x1002, before, 0, 0);
    printf("%ld %s\n", set, fd >= 0 ? "sees it" : "does not see it");
    return 0;
}

int main(int count, char **arguments) {
    setvbuf(stdout, NULL, _IONBF, 0);
    if (count < 3)
        return 2;
    snprintf(name, sizeof name, "%s/file", arguments[2]);
    return strcmp(arguments[1], "goroutine") ? own_storage() : goroutine();
}
