/* Processes of several users, each in a session of its own, who wait for each other's locks: run as root. Who would
 * close a circle is told so; a signal ends a wait; a death gives what was held to who waits. */
#include "show.h"
#include <grp.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/wait.h>

static const uid_t users[] = {0, 1234, 1235};
static int to[3][2], from[3][2];
static const char *names[] = {"a", "b", "c"};
static const char *error(long r) { return r ? strerrorname_np(errno) : "ok"; }
static void interrupted(int s) { (void)s; }
static long set(int f, int command, int type) { struct flock l = {.l_type = type}; return fcntl(f, command, &l); }

/* One of them: locks its own file, and does what it is told with the next one's. */
static void one(int own) {
    if (users[own] && (setgroups(0, 0) || setgid(users[own]) || setuid(users[own]))) _exit(8);
    struct sigaction action = {.sa_handler = interrupted}; sigaction(SIGUSR1, &action, 0);
    int f[3]; for (int i = 0; i < 3; i++) f[i] = MUST(open(names[i], O_RDWR));
    for (char what; read(to[own][0], &what, 1) == 1;) {
        int next = (own + 1) % 3; const char *said = 0;
        switch (what) {
            case 'l': said = error(set(f[own], F_SETLK, F_WRLCK)); break;
            case 'u': said = error(set(f[own], F_SETLK, F_UNLCK)); break;
            case 'w': said = error(set(f[next], F_SETLKW, F_WRLCK)); break;
            case 'r': said = error(set(f[next], F_SETLKW, F_RDLCK)); break;
            case 'W': said = error(flock(f[next], LOCK_EX)); break;
            case 'L': said = error(flock(f[own], LOCK_EX)); break;
            case 'U': said = error(flock(f[own], LOCK_UN)); break;
            case 'o': said = error(set(f[next], F_OFD_SETLKW, F_WRLCK)); break;
            case 'n': said = error(set(f[next], F_SETLK, F_UNLCK) || set(f[next], F_OFD_SETLK, F_UNLCK) || flock(f[next], LOCK_UN)); break;
            default: _exit(7);
        }
        char line[40]; int n = sprintf(line, "%s", said); MUST(write(from[own][1], line, n));
    }
    _exit(0);
}
static pid_t start(int which) { MUST(pipe2(to[which], O_CLOEXEC)); MUST(pipe2(from[which], O_CLOEXEC)); fflush(stdout); pid_t p = fork(); if (!p) { for (int i = 0; i < 3; i++) if (i != which && to[i][1]) close(to[i][1]); close(to[which][1]); one(which); } return p; }
static void begins(int which, char what) { MUST(write(to[which][1], &what, 1)); }
static void said(int line, int which) { char text[40] = {0}; MUST(read(from[which][0], text, 39)); printf("%d: %d says %s\n", line, which, text); }
#define TELL(which, what) (begins(which, what), said(__LINE__, which))
#define SAID(which) said(__LINE__, which)
/* Until it waits for a lock, as the kernel tells of whoever may be asked. */
static void waits(pid_t p) { char path[40], state[32]; for (int i = 0; i < 1000; i++) { sprintf(path, "/proc/%d/syscall", p); int f = open(path, O_RDONLY), n = f < 0 ? 0 : read(f, state, 31); close(f); state[n > 0 ? n : 0] = 0; int number = atoi(state); if (number == SYS_fcntl || number == SYS_flock) return; usleep(10000); } printf("%d does not wait: %s\n", p, state); }

int main(int argc, char **argv) {
    begin(argv); MUST(chmod(".", 0777)); for (int i = 0; i < 3; i++) { put(names[i], "x"); MUST(chmod(names[i], 0666)); }
    pid_t p[3]; for (int i = 0; i < 3; i++) p[i] = start(i);
    for (int first = 0; first < 3; first++) {
        int second = (first + 1) % 3, third = (first + 2) % 3;
        for (int i = 0; i < 3; i++) TELL(i, 'l');
        /* The third would close the circle; what it gives up lets the others go on, one after the other. */
        begins(first, 'w'); waits(p[first]); begins(second, 'w'); waits(p[second]); TELL(third, 'w'); TELL(third, 'r'); TELL(third, 'u'); SAID(second); TELL(second, 'n'); TELL(second, 'u'); SAID(first); TELL(first, 'n'); TELL(first, 'u');
        /* Locks of descriptions know of no circle, and a signal ends a wait for each kind. */
        const char kinds[] = "woW"; for (int k = 0; k < 3; k++) { TELL(second, kinds[k] == 'W' ? 'L' : 'l'); begins(first, kinds[k]); waits(p[first]); MUST(kill(p[first], SIGUSR1)); SAID(first); TELL(second, 'u'); TELL(second, 'U'); TELL(first, kinds[k]); TELL(first, 'n'); }
    }
    /* Who is killed, holds nothing more. */
    for (int which = 0; which < 3; which++) for (int kind = 0; kind < 2; kind++) {
        int before = (which + 2) % 3; TELL(which, kind ? 'L' : 'l'); begins(before, kind ? 'W' : 'w'); waits(p[before]); MUST(kill(p[which], SIGKILL)); MUST(waitpid(p[which], 0, 0)); SAID(before); TELL(before, 'n');
        close(to[which][1]); close(to[which][0]); close(from[which][0]); close(from[which][1]); p[which] = start(which);
    }
    for (int i = 0; i < 3; i++) { close(to[i][1]); int s; waitpid(p[i], &s, 0); printf("%x\n", s); }
    return 0;
}
