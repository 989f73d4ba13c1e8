// io_uring_enter by an instruction of the program's own, as liburing and fio have it, many times, on a file of the directory that is the
// argument; with registers in use across it that a function could change. The site has its place in an aligned word.
#include "ring.h"
#include <pthread.h>
#include <sched.h>

enum { TIMES = 2000, THREADS = 3 };

// The number's move begins at a multiple of eight, the call follows after an instruction as compilers put between them. Jumped to
// behind the move (a number in rax already), it is the same call.
__asm__(".text\n.p2align 4\n.globl enter_ring\n.type enter_ring,@function\nenter_ring:\n"
        "test %rdi, %rdi\n jnz 1f\n"
        "mov $426, %eax\n jmp 2f\n"
        "1: xor %r10d, %r10d\n mov %rcx, %r10\n xor %r9d, %r9d\n xor %r8d, %r8d\n"
        "pcmpeqd %xmm7, %xmm7\n movq %rsi, %xmm3\n stc\n"
        ".p2align 3\n.globl ring_site\nring_site: mov $426, %eax\n"
        "2: mov %esi, %esi\n syscall\n"
        "jnc 3f\n pcmpeqd %xmm6, %xmm6\n pcmpeqd %xmm7, %xmm6\n pmovmskb %xmm6, %ecx\n cmp $0xffff, %ecx\n jne 3f\n"
        "movq %xmm3, %rcx\n cmp %rsi, %rcx\n jne 3f\n ret\n"
        "3: mov $-9999, %rax\n ret\n.size enter_ring, . - enter_ring\n");
long enter_ring(long number, long submitted, long wanted, long flags);
extern const unsigned char ring_site[];

static const char *name;
static int failures;

static void *reads(void *argument) {
    (void)argument;
    struct ring ring;
    char bytes[8];
    int file = open(name, O_RDWR);
    if (begin(&ring, 0) < 0 || file < 0)
        exit(3);
    for (int i = 0; i < TIMES; i++) {
        memset(bytes, 0, sizeof bytes);
        entry(&ring, IORING_OP_READ, file, bytes, 4, i % 5);
        long done = enter_ring(ring.number, 1, 1, IORING_ENTER_GETEVENTS);
        unsigned *head = at(&ring, ring.given.cq_off.head);
        struct io_uring_cqe *told = (struct io_uring_cqe *)(ring.counters + ring.given.cq_off.cqes);
        int result = told[*head & (ring.given.cq_entries - 1)].res;
        __atomic_store_n(head, *head + 1, __ATOMIC_RELEASE);
        if (done != 1 || result != 4 || memcmp(bytes, &"0123456789"[i % 5], 4))
            __atomic_fetch_add(&failures, 1, __ATOMIC_RELAXED);
    }
    end(&ring);
    close(file);
    return NULL;
}

// A thread without storage of libc's, which ends at once.
static long bare_thread(void) {
    static char stack[16384] __attribute__((aligned(16)));
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM, result = SYS_clone;
    register long r10 __asm__("r10") = 0;
    register long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n test %%rax, %%rax\n jnz 1f\n mov $60, %%eax\n xor %%edi, %%edi\n syscall\n 1:"
                     : "+a"(result)
                     : "D"(flags), "S"(stack + sizeof stack), "d"(0L), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

int main(int count, char **arguments) {
    if (count != 2)
        return 2;
    name = path(arguments[1], "calls");
    close(make(name, "0123456789"));
    reads(NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, reads, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    // By another way to the same instruction, without a ring.
    said("no ring", enter_ring(0, 0, 0, 0) < 0);
    said("failures", failures);
    // A jump, or the move that was there.
    said("rewritten", *(const volatile unsigned char *)ring_site == 0xe9);
    // What has no block of the library's is not taken along: the stub begins with the move, then.
    said("a bare thread", bare_thread() > 0);
    const unsigned char *target = ring_site;
    if (*target == 0xe9)
        target += 5 + *(const int *)(target + 1);
    said("begins with the move", !memcmp(target, "\xb8\xaa\x01\x00\x00", 5));
    reads(NULL);
    said("failures", failures);
    return 0;
}
