/* After a first round, open, stat, read, write, seek and close make no system call: a filter
 * kills the process at any that is not write to descriptor 2 or exit. With a second argument that is not empty a report is
 * written at the end, around which signals are blocked. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static void rounds(const char *path, int n) {
    char buffer[4096];
    struct stat s;
    for (int i = 0; i < n; i++) {
        int a = open(path, O_RDWR | O_CREAT, 0644), b = open(path, O_RDONLY | O_CLOEXEC);
        int c = dup(a);
        pwrite(a, buffer, sizeof buffer, 0); write(a, buffer, 100); lseek(a, 0, SEEK_SET);
        read(b, buffer, sizeof buffer); pread(c, buffer, 100, 50); fstat(b, &s); stat(path, &s); access(path, R_OK);
        fcntl(a, F_GETFL); fcntl(b, F_SETFD, 0);
        close(a); close(c); close(b);
    }
}
int main(int argc, char **argv) {
    char path[4096];
    snprintf(path, sizeof path, "%s/file", argv[1]);
    rounds(path, 10);
    const int reports = argc > 2 && *argv[2];
    const unsigned none = -1, blocks = reports ? SYS_rt_sigprocmask : none, asks = reports ? SYS_rt_sigpending : none;
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 8, 0),
        /* The way back from the call that sets this filter, and the report's line. */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 7, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getpid, 6, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, blocks, 5, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, asks, 4, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_write, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 2, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof program / sizeof *program, program};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 2;
    rounds(path, 1000);
    syscall(SYS_exit_group, 0);
}
