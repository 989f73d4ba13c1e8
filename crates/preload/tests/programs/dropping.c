/* A privileged program that has a file of the pool open forks, and the child becomes somebody else without touching
 * the pool: what it finds of its parent's in its memory and among its descriptors, and what it may do then. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char home[4000], secret[4100];

/* What is mapped of the pool, by the names of its files, and of what a session is sent. */
static int maps(int shows) {
    char line[4400];
    int found = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    if (!f) { perror("maps"); return 99; }
    while (fgets(line, sizeof line, f))
        if (strstr(line, "/pool/") || strstr(line, "arck-control") || strstr(line, "arck-group")) { found++; if (shows) printf("  mapped: %s", line); }
    fclose(f);
    return found;
}
/* What is open of it, but for what locks are kept by: that goes with the open files themselves, which a child has as well. */
static int descriptors(int shows) {
    int found = 0;
    for (int n = 0; n < 4096; n++) {
        char path[64], link[4096];
        snprintf(path, sizeof path, "/proc/self/task/%ld/fd/%d", (long)syscall(SYS_gettid), n);
        /* As the kernel has it: by its usual name a file of the pool is opened for that. */
        long length = syscall(SYS_readlink, path, link, sizeof link - 1);
        if (length <= 0) continue;
        link[length] = 0;
        if (strstr(link, "/lock-files/")) continue;
        if (strstr(link, "/pool") || strstr(link, "arck-control") || strstr(link, "arck-group") || strstr(link, "socket:") || strstr(link, "eventfd")) { found++; if (shows) printf("  open: %d %s\n", n, link); }
    }
    return found;
}

static void becomes_somebody(void) {
    gid_t groups[] = {1234};
    if (setgroups(1, groups) || setgid(1234) || setuid(1234)) { perror("dropping"); _exit(9); }
}

static int looks(const char *how) {
    /* Before anything else, and as somebody else. */
    int before = maps(1) + descriptors(1);
    becomes_somebody();
    int after = maps(1) + descriptors(1);
    printf("%s: %d, %d", how, before, after);
    int f = open(secret, O_RDONLY);
    printf(", %s", f < 0 ? strerrorname_np(errno) : "opened");
    struct stat s;
    printf(", %s\n", stat(secret, &s) ? strerrorname_np(errno) : "seen");
    fflush(stdout);
    return 3;
}

static int is_over;
static void *maps_more(void *unused) {
    /* Segments that are mapped while others fork. */
    char path[4200];
    for (int n = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); n = (n + 1) % 40) {
        snprintf(path, sizeof path, "%s/more%d", home, n);
        int f = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
        static char block[1 << 20];
        if (f >= 0) { if (write(f, block, sizeof block) < 0) perror("write"); close(f); }
    }
    return unused;
}

static pid_t by_clone3(void) { struct clone_args a = {.exit_signal = SIGCHLD}; return syscall(SYS_clone3, &a, sizeof a); }

static void children(const char *when) {
    char how[64];
    for (int n = 0; n < 5; n++) {
        const char *names[] = {"fork", "SYS_fork", "SYS_clone", "SYS_clone3", "child of a child"};
        snprintf(how, sizeof how, "%s, %s", when, names[n]);
        fflush(stdout);
        pid_t p = n == 1 ? syscall(SYS_fork) : n == 2 ? syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0) : n == 3 ? by_clone3() : fork();
        if (!p && n == 4) { p = fork(); if (p) { int s; waitpid(p, &s, 0); _exit(WEXITSTATUS(s)); } }
        if (!p) _exit(looks(how));
        int s = 0;
        waitpid(p, &s, 0);
        if (s != 0x300) printf("%s: %x\n", how, s);
    }
}

int main(int count, char **arguments) {
    (void)count;
    snprintf(home, sizeof home, "%s/home", arguments[1]);
    snprintf(secret, sizeof secret, "%s/secret", home);
    mkdir(home, 0700);
    int f = open(secret, O_RDWR | O_CREAT, 0600);
    if (f < 0 || write(f, "a secret", 8) != 8) { perror("secret"); return 1; }
    printf("itself: %s\n", maps(0) && descriptors(0) ? "has a session" : "has none");
    children("one thread");
    pthread_t t[2];
    for (int n = 0; n < 2; n++) pthread_create(&t[n], 0, maps_more, 0);
    for (int n = 0; n < 10; n++) children("beside others");
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    for (int n = 0; n < 2; n++) pthread_join(t[n], 0);
    /* A map of the program's own its children have. */
    char *own = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
    pid_t p = fork();
    if (!p) { becomes_somebody(); printf("own map: %.8s, %d\n", own, descriptors(1)); memcpy(own, "b", 1); fflush(stdout); _exit(0); }
    int s = 0;
    waitpid(p, &s, 0);
    printf("own map: %x, %.8s\n", s, own);
    char text[16] = "";
    if (pread(f, text, 8, 0) != 8) perror("read");
    printf("itself: %s\n", text);
    return 0;
}
