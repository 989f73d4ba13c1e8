/* Locks of descriptions that are sent (SCM_RIGHTS): who receives one locks by the same description, and what is
 * locked stays so until the last descriptor of it is closed, wherever that is, or on its way. */
#include "show.h"
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>

static int ranges(int d, int type, long start) { struct flock l = {.l_type = type, .l_start = start, .l_len = 10}; return fcntl(d, F_OFD_SETLK, &l); }
static void send_one(int to, int f) {
    char control[CMSG_SPACE(sizeof(int))] = {0}; struct iovec v = {"f", 1};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    struct cmsghdr *c = CMSG_FIRSTHDR(&m); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof(int)); memcpy(CMSG_DATA(c), &f, sizeof f);
    MUST(sendmsg(to, &m, 0));
}
static int receive_one(int from, int flags) {
    char control[CMSG_SPACE(sizeof(int))], byte; struct iovec v = {&byte, 1}; int f = -1;
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    MUST(recvmsg(from, &m, flags)); struct cmsghdr *c = CMSG_FIRSTHDR(&m); if (c) memcpy(&f, CMSG_DATA(c), sizeof f); return f;
}
/* What somebody finds who has opened the file himself. */
static void state_(int line) {
    int d = MUST(open("f", O_RDWR));
    printf("%d: flock %s,", line, flock(d, LOCK_EX | LOCK_NB) ? "taken" : "free"); printf(" range %s\n", ranges(d, F_WRLCK, 0) ? "taken" : "free"); fflush(stdout); close(d);
}
#define STATE() state_(__LINE__)

/* Another process, which was there before anything was opened: does what it is told, one letter at a time. */
struct other { int to, in; pid_t pid; };
static int answers;
static void obey(int in) {
    int f[2] = {-1, -1}, n = 0; char what;
    while (recv(in, &what, 1, 0) == 1) {
        int *l = &f[n ? n - 1 : 0];
        switch (what) {
            case 'r': f[n++] = receive_one(in, 0); break;
            case 'p': f[n++] = receive_one(in, MSG_PEEK); break;
            case 'x': SHOW(flock(*l, LOCK_EX | LOCK_NB)); SHOW(ranges(*l, F_WRLCK, 0)); break;
            case 's': SHOW(flock(*l, LOCK_SH | LOCK_NB)); SHOW(ranges(*l, F_RDLCK, 0)); break;
            case 'u': SHOW(flock(*l, LOCK_UN)); SHOW(ranges(*l, F_UNLCK, 0)); break;
            case 'o': n = 1; f[0] = MUST(open("f", O_RDWR)); break;
            case 'c': close(*l); n--; break;
            case 'f': fflush(stdout); { pid_t c = fork(); if (!c) { SHOW(flock(*l, LOCK_EX | LOCK_NB)); _exit(0); } waitpid(c, 0, 0); } break;
            case 'e': fflush(stdout); { char text[80]; fcntl(*l, F_SETFD, 0); sprintf(text, "flock -n %d && echo executed locks; flock -u %d", *l, *l); pid_t c = fork(); if (!c) { execl("/bin/sh", "sh", "-c", text, (char *)0); _exit(9); } waitpid(c, 0, 0); } break;
            case 'b': send_one(in, *l); break;
        }
        fflush(stdout); send(in, "", 1, 0);
    }
    _exit(0);
}
static struct other start(void) {
    int s[2]; MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s)); fflush(stdout);
    struct other o = {s[0], s[1], fork()}; if (!o.pid) { close(s[0]); obey(s[1]); }
    close(s[1]); return o;
}
static void tell(struct other *o, const char *what) { for (; *what; what++) { char c; MUST(send(o->to, what, 1, 0)); MUST(recv(o->to, &c, 1, 0)); answers++; } }
/* The letter first, so that it waits for the message. */
static void give(struct other *o, int f) { char c; MUST(send(o->to, "r", 1, 0)); send_one(o->to, f); MUST(recv(o->to, &c, 1, 0)); }
static void end(struct other *o) { close(o->to); waitpid(o->pid, 0, 0); }

int main(int argc, char **argv) {
    begin(argv); put("f", "0123456789");
    struct other a = start(), b = start();
    int f = MUST(open("f", O_RDWR));
    /* Locked before it is sent: still so when the sender has closed his, and until the other does. */
    MUST(flock(f, LOCK_EX)); MUST(ranges(f, F_WRLCK, 0)); give(&a, f); STATE(); tell(&a, "x"); close(f); STATE(); tell(&a, "s"); STATE(); tell(&a, "c"); STATE();
    /* Not locked before: whoever locks it does so for both. */
    f = MUST(open("f", O_RDWR)); give(&a, f); tell(&a, "x"); STATE(); SHOW(flock(f, LOCK_EX | LOCK_NB)); SHOW(ranges(f, F_WRLCK, 0)); SHOW(flock(f, LOCK_UN)); STATE(); SHOW(ranges(f, F_UNLCK, 0)); STATE();
    MUST(flock(f, LOCK_EX)); tell(&a, "u"); STATE(); tell(&a, "x"); close(f); STATE(); tell(&a, "c"); STATE();
    /* To two, and on from one to the other; a stranger stays one. */
    f = MUST(open("f", O_RDWR)); MUST(flock(f, LOCK_EX)); give(&a, f); give(&b, f); close(f); tell(&a, "x"); tell(&b, "x"); tell(&a, "c"); STATE(); tell(&b, "c"); STATE();
    f = MUST(open("f", O_RDWR)); MUST(flock(f, LOCK_EX)); tell(&b, "o"); tell(&b, "x"); tell(&b, "c"); give(&a, f); close(f); tell(&a, "f"); tell(&a, "e"); STATE(); tell(&a, "c"); STATE();
    /* Back to who has it already, and to oneself. */
    f = MUST(open("f", O_RDWR)); MUST(flock(f, LOCK_EX)); give(&a, f); MUST(send(a.to, "b", 1, 0)); int g = receive_one(a.to, 0); char c; MUST(recv(a.to, &c, 1, 0)); SHOW(flock(g, LOCK_SH | LOCK_NB)); tell(&a, "c"); close(f); STATE(); SHOW(flock(g, LOCK_EX | LOCK_NB)); close(g); STATE();
    int s[2]; MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s));
    f = MUST(open("f", O_RDWR)); MUST(flock(f, LOCK_EX)); send_one(s[0], f); close(f); STATE(); g = receive_one(s[1], MSG_PEEK); SHOW(flock(g, LOCK_EX | LOCK_NB)); int h = receive_one(s[1], 0); SHOW(flock(h, LOCK_EX | LOCK_NB)); close(g); STATE(); close(h); STATE();
    /* On its way, and lost there; and of who is killed. */
    f = MUST(open("f", O_RDWR)); MUST(flock(f, LOCK_EX)); send_one(s[0], f); close(f); STATE(); close(s[0]); close(s[1]); int left = 1; for (int i = 0; i < 500 && left; i++) { int x = open("f", O_RDWR); left = flock(x, LOCK_EX | LOCK_NB); close(x); if (left) usleep(10000); } printf("lost: %s\n", left ? "taken" : "free");
    f = MUST(open("f", O_RDWR)); give(&a, f); tell(&a, "x"); close(f); STATE(); kill(a.pid, SIGKILL); end(&a); STATE();
    /* Open for reading only; of what has no name. */
    f = MUST(open("f", O_RDONLY)); give(&b, f); tell(&b, "x"); SHOW(flock(f, LOCK_EX | LOCK_NB)); close(f); STATE(); tell(&b, "uc"); STATE();
    f = MUST(open(".", O_RDWR | O_TMPFILE, 0600)); MUST(flock(f, LOCK_EX)); give(&b, f); close(f); tell(&b, "xc");
    end(&b);
    return 0;
}
