/* Children made by each way there is to make one, which share this or that with their parent. */
#include "told.h"
#include <linux/sched.h>
#include <pthread.h>
#include <sys/mman.h>

static int file, other;
/* What a child does with what it has; what its parent is told of it. */
static int work(void *unused) {
    char text[8] = {0};
    printf("  child: read %ld %s", (long)read(file, text, 3), text);
    printf(", at %ld", (long)lseek(other, 2, SEEK_CUR));
    int fresh = open("by-child", O_RDWR | O_CREAT, 0644);
    printf(", opened %d wrote %ld", fresh, (long)write(fresh, "made", 4));
    printf(", closed %d", close(other));
    printf(", moved %d", dup2(file, 20));
    printf(", went %d", chdir("dir"));
    umask(077);
    printf(", inside %d\n", close(open("inside", O_WRONLY | O_CREAT, 0666)));
    fflush(stdout);
    return 3;
}
static int work_and_exit(void *unused) { _exit(work(0)); }
static void say(const char *name, long p) {
    struct stat s;
    if (p < 0) printf("%s: %s\n", name, strerrorname_np(errno)); else printf("%s: %d\n", name, ended(p));
    show_open("  parent");
    printf("  made %d mode %o\n", unlink("by-child"), stat("dir/inside", &s) ? 0 : s.st_mode & 0777);
    unlink("dir/inside"); unlink("inside");
    fflush(stdout);
}
static void ready(void) { MUST(chdir(top)); umask(022); for (int f = 3; f < 40; f++) close(f); file = MUST(open("file", O_RDWR)); other = MUST(open("other", O_RDWR | O_CLOEXEC)); printf("--- "); fflush(stdout); }

static char *stack(void) { return (char *)mmap(0, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0) + (1 << 18); }
static long raw_clone(unsigned long flags) { return syscall(SYS_clone, flags, 0, 0, 0, 0); }
static long raw_clone3(struct clone_args a) { return syscall(SYS_clone3, &a, sizeof a); }
static void by_fork(void) { pid_t p = fork(); if (!p) _exit(work(0)); say("fork", p); }
static void by_vfork(void) { pid_t p = vfork(); if (!p) _exit(work(0)); say("vfork", p); }
static void by_raw_fork(void) { long p = syscall(SYS_fork); if (!p) _exit(work(0)); say("raw fork", p); }
static void by_raw_clone(const char *name, unsigned long flags) { ready(); long p = raw_clone(flags | SIGCHLD); if (!p) _exit(work(0)); say(name, p); }
static void by_raw_clone3(const char *name, struct clone_args a) { ready(); a.exit_signal = SIGCHLD; long p = raw_clone3(a); if (!p) _exit(work(0)); say(name, p); }
static void by_clone(const char *name, int flags) { ready(); say(name, clone(work, stack(), flags | SIGCHLD, 0)); }
static void by_clone_and_exit(const char *name, int flags) { ready(); say(name, clone(work_and_exit, stack(), flags | SIGCHLD, 0)); }
static int fails_to_execute(void *unused) { char *none[] = {0}; execve("/no/such", none, none); return errno == ENOENT ? 127 : 1; }
static int executes(void *unused) { execl("/bin/sh", "sh", "-c", "cat <&3 | wc -c; pwd | wc -l; echo x >by-child; exit 6", (char *)0); return 9; }

/* A thread and its process, which go apart. */
static int unshared;
static void *apart(void *unused) {
    int result = syscall(SYS_unshare, unshared);
    printf("  thread: unshare %d", result);
    printf(", went %d", chdir("dir")); umask(077);
    printf(", closed %d, opened %d\n", close(other), open("inside", O_RDWR | O_CREAT, 0666));
    fflush(stdout);
    return 0;
}
static void threads(const char *name, int flags) { ready(); unshared = flags; pthread_t t; if (pthread_create(&t, 0, apart, 0)) return; pthread_join(t, 0); struct stat s; printf("%s: %o\n", name, stat("dir/inside", &s) ? 0 : s.st_mode & 0777); show_open("  process"); MUST(chdir(top)); unlink("dir/inside"); unlink("inside"); umask(022); }

int main(int argc, char **argv) {
    begin(argv);
    put("file", "0123456789"); put("other", "abcdefghij"); MUST(mkdir("dir", 0755));
    ready(); by_fork(); ready(); by_vfork(); ready(); by_raw_fork();
    by_raw_clone("clone", 0); by_raw_clone("clone VFORK", CLONE_VFORK); by_raw_clone("clone PTRACE SYSVSEM", CLONE_PTRACE | CLONE_SYSVSEM); by_raw_clone("clone PARENT_SETTID", CLONE_CHILD_CLEARTID);
    by_raw_clone3("clone3", (struct clone_args){0}); by_raw_clone3("clone3 CLEAR_SIGHAND", (struct clone_args){.flags = CLONE_CLEAR_SIGHAND}); by_raw_clone3("clone3 VFORK", (struct clone_args){.flags = CLONE_VFORK});
    int pidfd = -1; by_raw_clone3("clone3 PIDFD", (struct clone_args){.flags = CLONE_PIDFD, .pidfd = (unsigned long)&pidfd}); SHOW(pidfd);
    by_clone("clone on a stack", 0); by_clone("clone on a stack VFORK", CLONE_VFORK); by_clone("clone on a stack VM VFORK", CLONE_VM | CLONE_VFORK); by_clone_and_exit("clone on a stack VM VFORK, exit", CLONE_VM | CLONE_VFORK);
    ready(); say("fails to execute", clone(fails_to_execute, stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, 0)); ready(); say("executes", clone(executes, stack(), CLONE_VM | CLONE_VFORK | SIGCHLD, 0)); ready(); say("executes VFORK", clone(executes, stack(), CLONE_VFORK | SIGCHLD, 0)); ready(); say("executes", clone(executes, stack(), SIGCHLD, 0));
    SHOW(raw_clone(CLONE_THREAD | SIGCHLD)); SHOW(raw_clone(CLONE_SIGHAND | SIGCHLD)); SHOW(raw_clone3((struct clone_args){.flags = CLONE_NEWNS | CLONE_FS})); SHOW(syscall(SYS_clone3, 0, 64)); SHOW(syscall(SYS_clone3, &pidfd, 8));
    /* Alone, what is shared with nobody is the process's own all the same. */
    ready(); SHOW(unshare(CLONE_FILES)); SHOW(unshare(CLONE_FS)); SHOW(unshare(CLONE_FILES | CLONE_FS)); SHOW(close_range(other, other, CLOSE_RANGE_UNSHARE)); SHOW(close_range(file, file, CLOSE_RANGE_UNSHARE | CLOSE_RANGE_CLOEXEC)); SHOW(close_range(3, 2, 0)); SHOW(close_range(3, 4, 16)); show_open("unshared");
    /* What a pool does not share: see differences.md. */
    if (argc > 2) {
        by_raw_clone("clone FS", CLONE_FS); by_raw_clone("clone FILES", CLONE_FILES); by_raw_clone3("clone3 FILES FS", (struct clone_args){.flags = CLONE_FILES | CLONE_FS});
        by_clone("clone on a stack FILES", CLONE_FILES); by_clone("clone VM VFORK FILES", CLONE_VM | CLONE_VFORK | CLONE_FILES); by_clone("clone VM VFORK FS", CLONE_VM | CLONE_VFORK | CLONE_FS);
        threads("unshares FILES", CLONE_FILES); threads("unshares FS", CLONE_FS); threads("unshares nothing", 0);
        SHOW(unshare(CLONE_FILES)); SHOW(unshare(CLONE_FS)); SHOW(close_range(other, other, CLOSE_RANGE_UNSHARE));
    }
    return 0;
}
