/* Calls where there is little stack: handlers on small alternate stacks, threads of 16 and 20 KiB, coroutines. Below each stack lies a page that cannot be touched. */
#include "show.h"
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/xattr.h>
#include <ucontext.h>

static int log_file;
static volatile int failed;
#define CHECK(x) do { errno = 0; if (!(x)) { failed = 1; char t_[200]; int n_ = snprintf(t_, sizeof t_, "line %d: %s: %d\n", __LINE__, #x, errno); syscall(SYS_write, 1, t_, n_); } } while (0)

/* So many bytes with a guard on both sides; `above` of them for the kernel's frame. */
static char *guarded(size_t length) {
    size_t room = (length + 4095) & ~4095ul;
    char *map = mmap(0, room + 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    mprotect(map, 4096, PROT_NONE); mprotect(map + 4096 + room, 4096, PROT_NONE);
    return map + 4096 + room - length;
}

/* The common calls, by libc's names and by number. */
static void calls(const char *tag) {
    char name[40], other[40], b[16];
    struct stat s;
    snprintf(name, sizeof name, "c-%s", tag); snprintf(other, sizeof other, "o-%s", tag);
    int d = open(name, O_RDWR | O_CREAT, 0644);
    CHECK(d >= 0); CHECK(write(d, "content", 7) == 7); CHECK(pwrite(d, "C", 1, 0) == 1);
    struct iovec parts[3] = {{"one", 3}, {"two", 3}, {"three", 5}};
    CHECK(writev(d, parts, 3) == 11); CHECK(pread(d, b, 4, 5) == 4 && !memcmp(b, "nton", 4));
    struct iovec back[2] = {{b, 2}, {b + 2, 2}};
    CHECK(preadv(d, back, 2, 0) == 4 && !memcmp(b, "Cont", 4));
    CHECK(lseek(d, 0, SEEK_SET) == 0 && read(d, b, 3) == 3); CHECK(fstat(d, &s) == 0 && s.st_size == 18); CHECK(ftruncate(d, 10) == 0); CHECK(fsync(d) == 0);
    CHECK(syscall(SYS_pwrite64, d, "x", 1, 9) == 1); CHECK(fsetxattr(d, "user.a", "b", 1, 0) == 0);
    CHECK(close(d) == 0);
    CHECK(rename(name, other) == 0); CHECK(stat(name, &s) == -1 && errno == ENOENT); CHECK(stat(other, &s) == 0 && s.st_size == 10); CHECK(access(other, R_OK) == 0); CHECK(chmod(other, 0600) == 0);
    CHECK(mkdir(name, 0755) == 0); CHECK(rmdir(name) == 0); CHECK(symlink(other, name) == 0); CHECK(readlink(name, b, sizeof b) > 0); CHECK(unlink(name) == 0); CHECK(link(other, name) == 0); CHECK(unlink(name) == 0);
    d = open(".", O_RDONLY | O_DIRECTORY);
    char entries[256]; CHECK(syscall(SYS_getdents64, d, entries, sizeof entries) > 0); CHECK(close(d) == 0); CHECK(unlink(other) == 0);
}

/* ---- alternate stacks */
static volatile int ran;
static void on_write(int s) {
    (void)s;
    volatile char mark[64]; for (int i = 0; i < 64; i++) mark[i] = i;
    for (int i = 0; i < 20; i++) CHECK(write(log_file, "handled\n", 8) == 8);
    struct stat st; CHECK(fstat(log_file, &st) == 0); char b[8]; CHECK(pread(log_file, b, 8, 0) == 8);
    for (int i = 0; i < 64; i++) CHECK(mark[i] == i);
    ran++;
}
static void on_all(int s) { (void)s; calls("alternate"); ran++; }
static void alternate(size_t length, void (*handler)(int)) {
    stack_t new = {.ss_sp = guarded(length), .ss_size = length}, none = {.ss_flags = SS_DISABLE};
    struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&new, 0)); MUST(sigaction(SIGUSR1, &a, 0));
    ran = 0;
    for (int i = 0; i < 3; i++) raise(SIGUSR1);
    stack_t after; MUST(sigaltstack(0, &after));
    printf("alternate stack of %zu: %d times, %s\n", length, ran, after.ss_sp == new.ss_sp && after.ss_size == new.ss_size && after.ss_flags == 0 ? "still there" : "gone");
    MUST(sigaltstack(&none, 0));
}
/* Signals of a clock, with the same alternate stack, in the middle of calls that a handler makes there. */
static volatile long ticks;
static void on_tick(int s) { (void)s; volatile char room[256]; memset((void *)room, 0xee, sizeof room); ticks++; }
static void on_long(int s) {
    (void)s;
    volatile unsigned char mark[512]; for (int i = 0; i < 512; i++) mark[i] = i * 7;
    for (int i = 0; i < 20000 || (ticks < 50 && i < 4000000); i++) { CHECK(pwrite(log_file, "t", 1, i % 100) == 1); for (int k = 0; k < 512; k += 37) if (mark[k] != (unsigned char)(k * 7)) { failed = 1; } }
    for (int i = 0; i < 512; i++) CHECK(mark[i] == (unsigned char)(i * 7));
    ran++;
}
static void storm(void) {
    stack_t new = {.ss_sp = guarded(32768), .ss_size = 32768}, none = {.ss_flags = SS_DISABLE};
    struct sigaction a = {.sa_handler = on_long, .sa_flags = SA_ONSTACK}, t = {.sa_handler = on_tick, .sa_flags = SA_ONSTACK | SA_RESTART};
    MUST(sigaltstack(&new, 0)); MUST(sigaction(SIGUSR1, &a, 0)); MUST(sigaction(SIGALRM, &t, 0));
    struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    ran = 0; MUST(setitimer(ITIMER_REAL, &every, 0)); raise(SIGUSR1); MUST(setitimer(ITIMER_REAL, &never, 0));
    printf("storm: %d, %s\n", ran, ticks >= 50 ? "many ticks" : "few ticks");
    MUST(sigaltstack(&none, 0));
}
/* A stack that overflows, told of in a file from the alternate one, and left by a jump. */
static sigjmp_buf back;
static void on_overflow(int s) { (void)s; write(log_file, "overflow\n", 9); siglongjmp(back, 1); }
static int deeper(int n) { volatile char room[4096]; room[0] = n; return n > 100000000 ? 0 : deeper(n + 1) + room[0]; }
static void *overflows(void *a) {
    stack_t new = {.ss_sp = guarded(8192), .ss_size = 8192};
    struct sigaction action = {.sa_handler = on_overflow, .sa_flags = SA_ONSTACK | SA_NODEFER};
    MUST(sigaltstack(&new, 0)); MUST(sigaction(SIGSEGV, &action, 0));
    volatile int times = 0;
    while (sigsetjmp(back, 1) == 0 || ++times < 3) deeper(0);
    printf("overflowed %d times\n", times);
    calls("after");
    signal(SIGSEGV, SIG_DFL);
    return a;
}
/* ---- threads */
static void *threaded(void *a) { calls(a); return a; }
static void thread(size_t length, const char *tag, void *(*start)(void *)) {
    pthread_attr_t a; pthread_t t; void *r = 0;
    pthread_attr_init(&a);
    SHOW(pthread_attr_setstacksize(&a, length)); MUST(pthread_create(&t, &a, start, (void *)tag)); SHOW(pthread_join(t, &r));
    printf("thread of %zu: %s\n", length, r == tag ? "done" : "not done");
}
/* ---- coroutines */
static ucontext_t here, there;
static void coroutine(void) { calls("coroutine"); ran = 1; }

int main(int argc, char **argv) {
    begin(argv);
    log_file = MUST(open("log", O_RDWR | O_CREAT | O_APPEND, 0644));
    calls("main");
    alternate(8192, on_write); alternate(12288, on_write); alternate(12288, on_all); alternate(65536, on_all);
    storm();
    thread(16384, "16", threaded); thread(20480, "20", threaded); thread(65536, "64", threaded); thread(1 << 20, "1M", threaded);
    thread(1 << 18, "overflow", overflows);
    ran = 0;
    MUST(getcontext(&there)); there.uc_stack.ss_sp = guarded(8192); there.uc_stack.ss_size = 8192; there.uc_link = &here;
    makecontext(&there, coroutine, 0); MUST(swapcontext(&here, &there)); printf("coroutine: %d\n", ran);
    /* An alternate stack within the thread's own. */
    char within[16384]; stack_t new = {.ss_sp = within, .ss_size = sizeof within}, none = {.ss_flags = SS_DISABLE};
    struct sigaction a = {.sa_handler = on_all, .sa_flags = SA_ONSTACK};
    char below[200000]; memset(below, 0x11, sizeof below);
    MUST(sigaltstack(&new, 0)); MUST(sigaction(SIGUSR1, &a, 0)); ran = 0; raise(SIGUSR1); printf("within: %d\n", ran); MUST(sigaltstack(&none, 0));
    struct stat s; MUST(fstat(log_file, &s)); printf("log %d, failed %d\n", s.st_size >= 180, failed);
    for (size_t i = 0; i < sizeof below; i++) if (below[i] != 0x11) { printf("overwritten\n"); break; }
    return failed;
}
