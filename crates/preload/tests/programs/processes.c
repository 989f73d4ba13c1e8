/* Descriptors, offsets and the working directory across fork, exec and spawn. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
#define SHOW(x) do { errno = 0; long r = (long)(x); printf("%s = %ld%s%s\n", #x, r, r < 0 && errno ? " " : "", r < 0 && errno ? strerrorname_np(errno) : ""); fflush(stdout); } while (0)
static int ended(pid_t p) { int s; if (waitpid(p, &s, 0) != p) return -1; return WIFEXITED(s) ? WEXITSTATUS(s) : 1000 + s; }
int main(int argc, char **argv) {
    char buffer[256] = {0};
    SHOW(chdir(argv[1]));
    int fd = open("f", O_RDWR | O_CREAT | O_TRUNC, 0644);
    SHOW(write(fd, "0123456789abcdef", 16));
    SHOW(lseek(fd, 0, SEEK_SET));
    fflush(stdout);
    pid_t p = fork();
    if (!p) { _exit(read(fd, buffer, 4) == 4 && !memcmp(buffer, "0123", 4) ? 7 : 8); }
    SHOW(ended(p)); SHOW(lseek(fd, 0, SEEK_CUR));
    p = vfork();
    if (!p) { execl("/bin/sh", "sh", "-c", "dd bs=1 count=3 2>/dev/null <&3; exit 5", (char *)0); _exit(1); }
    SHOW(ended(p)); SHOW(lseek(fd, 0, SEEK_CUR));
    SHOW(fcntl(fd, F_SETFD, FD_CLOEXEC));
    SHOW(WEXITSTATUS(system("{ cat <&3; } 2>/dev/null")) != 0);
    SHOW(fcntl(fd, F_SETFD, 0));
    SHOW(system("cat <&3; pwd | grep -c /; echo made > by-system"));
    fflush(stdout);
    FILE *g = popen("cat by-system", "r"); fgets(buffer, sizeof buffer, g); printf("popen %s", buffer); SHOW(pclose(g));
    char *list[] = {"sh", "-c", "echo spawned > by-spawn", 0};
    posix_spawn_file_actions_t actions; posix_spawn_file_actions_init(&actions);
    SHOW(posix_spawn(&p, "/bin/sh", &actions, 0, list, environ)); SHOW(ended(p));
    SHOW(access("by-spawn", F_OK));
    SHOW(posix_spawn(&p, "/no/such", 0, 0, list, environ) == ENOENT);
    SHOW(posix_spawnp(&p, "no-such-program", 0, 0, list, environ) == ENOENT);
    char *echo[] = {"echo", "into a file", 0};
    posix_spawn_file_actions_addopen(&actions, 1, "spawn-out", O_WRONLY | O_CREAT, 0644);
    SHOW(posix_spawnp(&p, "echo", &actions, 0, echo, environ)); SHOW(ended(p));
    SHOW(system("cat spawn-out"));
    char *none[] = {0};
    fflush(stdout);
    p = fork();
    if (!p) { char *cat[] = {"cat", "by-system", 0}; execve("/bin/cat", cat, none); _exit(9); }
    SHOW(ended(p));
    SHOW(execl("/no/such/program", "x", (char *)0));
    int script = open("script", O_WRONLY | O_CREAT, 0755);
    SHOW(write(script, "#!/bin/sh -e\necho $#: $1 $2\n", 28)); SHOW(close(script));
    fflush(stdout);
    p = fork(); if (!p) { execl("./script", "script", "one", "two", (char *)0); _exit(9); } SHOW(ended(p));
    script = open("plain", O_WRONLY | O_CREAT, 0755);
    SHOW(write(script, "echo no line\n", 13)); SHOW(close(script));
    p = fork(); if (!p) { execlp("./plain", "plain", (char *)0); _exit(9); } SHOW(ended(p));
    SHOW(execl("./f", "f", (char *)0));
    SHOW(WEXITSTATUS(system("cp /bin/echo e && ./e binary")));
    int dev = open("/dev/fd/3", O_RDONLY); SHOW(read(dev, buffer, 4)); printf("%.4s\n", buffer);
    fflush(stdout);
    /* A grandchild through two forks shares the offset still. */
    lseek(fd, 0, SEEK_SET);
    p = fork();
    if (!p) { if (!(p = fork())) { read(fd, buffer, 5); _exit(0); } ended(p); read(fd, buffer, 2); _exit(0); }
    SHOW(ended(p)); SHOW(lseek(fd, 0, SEEK_CUR));
    p = fork();
    if (!p) { chdir("/"); close(fd); int other = open("/dev/null", O_RDONLY); _exit(other); }
    SHOW(ended(p)); SHOW(access("f", F_OK));
    for (int i = 0; i < 20; i++) { p = fork(); if (!p) { FILE *f = fopen("many", "a"); fputs("x", f); exit(0); } ended(p); }
    int many = open("many", O_RDONLY); SHOW(lseek(many, 0, SEEK_END));
    return 0;
}
