/* RLIMIT_FSIZE, as setrlimit(2) and the pages of each call have it: what is written up to the limit, EFBIG at it, and SIGXFSZ to the thread. */
#include "show.h"
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

static volatile sig_atomic_t caught;
static void on_limit(int s) { (void)s; caught++; }
static int d;
static char buffer[40000];

static void limit(rlim_t to) {
    struct rlimit l;
    MUST(getrlimit(RLIMIT_FSIZE, &l));
    l.rlim_cur = to;
    MUST(setrlimit(RLIMIT_FSIZE, &l));
}
static long size(const char *name) { struct stat s; return stat(name, &s) == 0 ? (long)s.st_size : -1; }
static void again(const char *content) {
    if (d > 0) close(d);
    limit(RLIM_INFINITY);
    put("f", content);
    d = MUST(open("f", O_RDWR));
    limit(10000);
}
/* A call, the signals that came with it, the file's size then and where the descriptor stands. */
#define CALL(x) do { caught = 0; SHOW(x); printf("    signals %d, size %ld, offset %ld\n", (int)caught, size("f"), (long)lseek(d, 0, SEEK_CUR)); } while (0)

/* In a child, how it ended. */
static void ends(const char *what, void (*body)(void)) {
    fflush(stdout);
    pid_t child = MUST(fork());
    if (child == 0) { body(); _exit(3); }
    int status = 0;
    MUST(waitpid(child, &status, 0));
    printf("%s: %s %d, size %ld\n", what, WIFSIGNALED(status) ? "signal" : "exit", WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), size("f"));
}
static void killed_by_write(void) { signal(SIGXFSZ, SIG_DFL); if (write(d, buffer, 20000) != 10000) _exit(1); write(d, buffer, 1); }
static void killed_by_truncate(void) { signal(SIGXFSZ, SIG_DFL); ftruncate(d, 10001); }
static void not_killed(void) { signal(SIGXFSZ, SIG_IGN); _exit(write(d, buffer, 1) == -1 && errno == EFBIG ? 0 : 1); }

int main(int argc, char **argv) {
    begin(argv);
    memset(buffer, 'b', sizeof buffer);
    signal(SIGXFSZ, on_limit);
    struct iovec parts[3] = {{buffer, 6000}, {buffer, 4000}, {buffer, 3000}}, few[2] = {{buffer, 20}, {buffer, 30}};

    again("");
    CALL(write(d, buffer, 9990)); CALL(write(d, buffer, 100)); CALL(write(d, buffer, 1)); CALL(write(d, buffer, 0));
    CALL(pwrite(d, buffer, 100, 9999)); CALL(pwrite(d, buffer, 100, 10000)); CALL(pwrite(d, buffer, 100, 20000)); CALL(pwrite(d, buffer, 0, 20000));
    again(""); CALL(writev(d, parts, 3)); CALL(writev(d, parts, 3));
    again(""); MUST(lseek(d, 9960, SEEK_SET)); CALL(writev(d, few, 2)); CALL(writev(d, few, 2));
    again(""); CALL(pwritev(d, parts, 3, 500)); CALL(pwritev(d, parts, 3, 10000)); CALL(pwritev2(d, parts, 3, 9000, 0)); CALL(pwritev2(d, parts, 1, -1, RWF_APPEND)); CALL(pwritev2(d, parts, 1, -1, RWF_APPEND));

    /* O_APPEND, and a file that is longer than the limit already. */
    again(""); close(d); d = MUST(open("f", O_RDWR | O_APPEND));
    CALL(write(d, buffer, 9999)); CALL(write(d, buffer, 9999)); CALL(write(d, buffer, 9999));
    limit(RLIM_INFINITY); MUST(ftruncate(d, 30000)); limit(10000);
    CALL(write(d, buffer, 10)); close(d); d = MUST(open("f", O_RDWR));
    CALL(pwrite(d, buffer, 100, 5000)); CALL(pwrite(d, buffer, 100, 9950)); CALL(pwrite(d, buffer, 100, 20000)); CALL(ftruncate(d, 30000)); CALL(ftruncate(d, 20000)); CALL(ftruncate(d, 20001)); CALL(truncate("f", 15000)); CALL(truncate("f", 15001)); CALL(truncate("f", 100)); CALL(truncate("f", 10000)); CALL(truncate("f", 10001)); CALL(ftruncate(d, 1l << 62));

    again("begun");
    CALL(fallocate(d, 0, 0, 10000)); CALL(fallocate(d, 0, 0, 10001)); CALL(fallocate(d, 0, 20000, 1)); CALL(fallocate(d, FALLOC_FL_KEEP_SIZE, 0, 20000)); CALL(fallocate(d, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 20000)); CALL(posix_fallocate(d, 0, 30000));

    again(""); limit(RLIM_INFINITY); int from = MUST(open("from", O_RDWR | O_CREAT, 0644)); MUST(write(from, buffer, 40000)); limit(10000);
    loff_t at = 0, to = 3000;
    CALL(copy_file_range(from, &at, d, &to, 20000, 0)); printf("%ld %ld\n", (long)at, (long)to); to = 10000; CALL(copy_file_range(from, &at, d, &to, 20000, 0)); to = 12000; CALL(copy_file_range(from, &at, d, &to, 20000, 0));
    again(""); off_t sent = 0; MUST(lseek(d, 10000, SEEK_SET)); CALL(sendfile(d, from, &sent, 100)); printf("%ld\n", (long)sent);
    MUST(lseek(d, 9000, SEEK_SET)); sent = 0; CALL(sendfile(d, from, &sent, 1000)); printf("%ld\n", (long)sent);
    int ends_of[2]; MUST(pipe(ends_of)); MUST(write(ends_of[1], buffer, 3000));
    again(""); to = 8000; CALL(splice(ends_of[0], 0, d, &to, 2000, 0)); to = 10000; CALL(splice(ends_of[0], 0, d, &to, 1000, 0));

    /* What is made anew, by name, and by libc's own functions. */
    again(""); close(d); d = MUST(open("g", O_RDWR | O_CREAT | O_TRUNC, 0644)); CALL(write(d, buffer, 20000)); printf("g %ld\n", size("g"));
    FILE *f = fopen("h", "w"); caught = 0; size_t all = 0; for (int i = 0; i < 30; i++) all += fwrite(buffer, 1, 1000, f); int closed = fclose(f);
    printf("stdio: %d %d %s, size %ld\n", all >= 10000, closed, caught > 0 ? "signalled" : "not signalled", size("h"));

    /* The limit moves. */
    again(""); MUST(lseek(d, 10000, SEEK_SET)); CALL(write(d, buffer, 10)); limit(10005); CALL(write(d, buffer, 10)); CALL(write(d, buffer, 10)); limit(RLIM_INFINITY); CALL(write(d, buffer, 10));
    struct rlimit l = {5000, RLIM_INFINITY}, old;
    SHOW(prlimit(0, RLIMIT_FSIZE, &l, &old)); CALL(pwrite(d, buffer, 10, 4995)); CALL(pwrite(d, buffer, 10, 5000));
    l.rlim_cur = 6000; SHOW(prlimit(getpid(), RLIMIT_FSIZE, &l, &old)); printf("%ld\n", (long)old.rlim_cur); CALL(pwrite(d, buffer, 10, 5995));
    l.rlim_cur = 7000; SHOW(syscall(SYS_setrlimit, RLIMIT_FSIZE, &l)); CALL(pwrite(d, buffer, 10, 6995));
    l.rlim_cur = RLIM_INFINITY; SHOW(syscall(SYS_prlimit64, 0, RLIMIT_FSIZE, &l, 0)); CALL(pwrite(d, buffer, 10, 7995));
    SHOW(setrlimit(RLIMIT_FSIZE, (void *)8)); SHOW(prlimit(0, RLIMIT_FSIZE, 0, &old)); SHOW(setrlimit(RLIMIT_FSIZE, &old)); SHOW(setrlimit(99, &old));

    /* What it does by itself, in children that have it from their parent. */
    again(""); ends("written", killed_by_write);
    again(""); ends("truncated", killed_by_truncate);
    again(""); MUST(lseek(d, 10000, SEEK_SET)); ends("ignored", not_killed);
    return 0;
}
