/* Descriptors sent through Unix sockets (SCM_RIGHTS): to oneself, to a process that was there before the
 * file was opened, to a program executed since, to one of another trust group, and on from there. */
#include "told.h"
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static int sent_errno;
static long send_some(int to, const char *text, const int *fds, int n) {
    char control[CMSG_SPACE(64 * sizeof(int))] = {0};
    struct iovec v = {(char *)text, strlen(text)};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1};
    if (n) {
        m.msg_control = control; m.msg_controllen = CMSG_SPACE(n * sizeof(int));
        struct cmsghdr *c = CMSG_FIRSTHDR(&m);
        c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(n * sizeof(int));
        memcpy(CMSG_DATA(c), fds, n * sizeof(int));
    }
    long r = sendmsg(to, &m, MSG_NOSIGNAL);
    sent_errno = r < 0 ? errno : 0;
    return r;
}
static int receive(int from, char *text, int *fds, int room, int flags, int *told) {
    char control[CMSG_SPACE(64 * sizeof(int))];
    struct iovec v = {text, 63};
    struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = room ? CMSG_SPACE(room * sizeof(int)) : 0};
    long r = recvmsg(from, &m, flags);
    if (r < 0) return -1;
    text[r] = 0;
    if (told) *told = m.msg_flags;
    int n = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(&m); c; c = CMSG_NXTHDR(&m, c)) if (c->cmsg_type == SCM_RIGHTS) { n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int); memcpy(fds, CMSG_DATA(c), n * sizeof(int)); }
    return n;
}
static int one(int to, const char *text, int f) { return send_some(to, text, &f, 1); }

/* What whoever received something does with it. */
static void use(const char *who, int f) {
    char text[16] = {0};
    struct stat s;
    printf("  %s: %s", who, fcntl(f, F_GETFD) & FD_CLOEXEC ? "x" : "");
    if (fstat(f, &s)) { printf(" %s\n", strerrorname_np(errno)); fflush(stdout); return; }
    printf(" %o %o %ld", s.st_mode, fcntl(f, F_GETFL) & ~0100000, (long)s.st_nlink);
    if (S_ISDIR(s.st_mode)) { int g = openat(f, "inside", O_RDWR | O_CREAT, 0600); printf(" openat %d wrote %ld", g >= 0, (long)write(g, "i", 1)); close(g); }
    else { printf(" at %ld", (long)lseek(f, 0, SEEK_CUR)); long n = read(f, text, 3); printf(" read %ld %s", n, n < 0 ? strerrorname_np(errno) : text); n = write(f, "W", 1); printf(" wrote %ld %s", n, n < 0 ? strerrorname_np(errno) : ""); printf(" then at %ld of %ld", (long)lseek(f, 0, SEEK_CUR), (long)(fstat(f, &s), s.st_size)); printf(" locked %d", flock(f, LOCK_EX | LOCK_NB)); flock(f, LOCK_UN); }
    printf("\n"); fflush(stdout);
}
/* The other side: takes what comes, uses it, and says so, until nothing comes. */
static int serve(int s, int on) {
    char text[64];
    for (;;) {
        int fds[64], told, n = receive(s, text, fds, 64, 0, &told);
        if (n < 0 || !text[0] || !strcmp(text, "end")) return 0;
        printf("  got %s with %d\n", text, n);
        for (int i = 0; i < n; i++) use("other", fds[i]);
        if (on >= 0 && n) { printf("  sends on %ld\n", one(on, "forwarded", fds[0])); int x[4]; receive(on, text, x, 0, 0, 0); }
        if (!strcmp(text, "keep")) for (int i = 0; i < n; i++) use("again", fds[i]);
        for (int i = 0; i < n; i++) close(fds[i]);
        send(s, "done", 4, 0);
    }
}
static void wait_for(int s) { char text[8]; recv(s, text, 8, 0); }

static void send_all(int s) {
    char text[64];
    int f = MUST(open("file", O_RDWR)), r = MUST(open("file", O_RDONLY)), w = MUST(open("file", O_WRONLY | O_APPEND | O_CLOEXEC)), p = MUST(open("file", O_PATH)), d = MUST(open("dir", O_RDONLY | O_DIRECTORY)), null = MUST(open("/dev/null", O_RDWR));
    one(s, "file", f); wait_for(s); printf("at %ld\n", (long)lseek(f, 0, SEEK_CUR)); SHOW(read(f, text, 2));
    lseek(f, 6, SEEK_SET); one(s, "file again", f); wait_for(s); printf("at %ld\n", (long)lseek(f, 0, SEEK_CUR));
    int all[] = {r, w, null, p, d, f}; long sent_all = send_some(s, "all", all, 6); wait_for(s); printf("all %ld\n", sent_all); show_open("sender");
    one(s, "nothing", 1); wait_for(s);
    int gone = MUST(open("gone", O_RDWR | O_CREAT, 0600)); MUST(write(gone, "abcdef", 6)); lseek(gone, 1, SEEK_SET); unlink("gone"); one(s, "gone", gone); close(gone); wait_for(s);
    gone = MUST(open(".", O_RDWR | O_TMPFILE, 0600)); MUST(write(gone, "abcdef", 6)); lseek(gone, 0, SEEK_SET); one(s, "nameless", gone); close(gone); wait_for(s);
    int moved = MUST(open("moved", O_RDWR | O_CREAT, 0600)); MUST(write(moved, "abcdef", 6)); lseek(moved, 0, SEEK_SET); rename("moved", "dir/moved"); one(s, "keep", moved); wait_for(s); close(moved);
    int locked = MUST(open("file", O_RDWR)); MUST(flock(locked, LOCK_EX)); one(s, "locked", locked); wait_for(s); SHOW(flock(f, LOCK_EX | LOCK_NB)); flock(f, LOCK_UN); close(locked);
    int dup_ = MUST(dup(f)), pair[] = {f, dup_}; send_some(s, "twice", pair, 2); wait_for(s); close(dup_);
    int wrong[] = {f, 39}; SHOW(send_some(s, "wrong", wrong, 2)); printf("%s\n", sent_errno ? strerrorname_np(sent_errno) : "sent"); wrong[1] = -1; SHOW(send_some(s, "wrong", wrong, 2)); wrong[0] = 39; SHOW(send_some(s, "wrong", wrong, 1)); wrong[0] = 990; SHOW(send_some(s, "ours", wrong, 1));
    int many[60]; for (int i = 0; i < 60; i++) many[i] = f; lseek(f, 0, SEEK_SET); long sent = send_some(s, "many", many, 60); wait_for(s); printf("many %ld\n", sent);
    close(f); close(r); close(w); close(p); close(d); close(null);
    send(s, "end", 3, 0);
}

static void pairs(int *s) { MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s)); }
/* Here, where both ends are. */
static void to_oneself(void) {
    int s[2], fds[64], told, f, n; char text[64]; pairs(s);
    f = MUST(open("file", O_RDWR));
    one(s[0], "one", f); n = receive(s[1], text, fds, 64, 0, &told); printf("%d %x\n", n, told); use("oneself", fds[0]); use("first", f); lseek(fds[0], 1, SEEK_SET); printf("at %ld\n", (long)lseek(f, 0, SEEK_CUR)); close(fds[0]);
    one(s[0], "closing", f); receive(s[1], text, fds, 64, MSG_CMSG_CLOEXEC, &told); use("oneself", fds[0]); close(fds[0]);
    one(s[0], "peeked", f); receive(s[1], text, fds, 64, MSG_PEEK, &told); use("peeked", fds[0]); receive(s[1], text, fds + 1, 64, 0, &told); use("received", fds[1]); close(fds[0]); close(fds[1]);
    int three[] = {f, s[0], f}; send_some(s[0], "cut off", three, 3); n = receive(s[1], text, fds, 1, 0, &told); printf("%d %x\n", n, told & MSG_CTRUNC); use("first of them", fds[0]); close(fds[0]);
    one(s[0], "no room", f); n = receive(s[1], text, fds, 0, 0, &told); printf("%d %x\n", n, told & MSG_CTRUNC);
    one(s[0], "read", f); printf("%ld\n", (long)read(s[1], text, 63)); one(s[0], "recv", f); printf("%ld\n", (long)recv(s[1], text, 63, 0));
    /* Several messages at once, the second with a descriptor. */
    char control[2][CMSG_SPACE(sizeof(int))]; struct iovec v[2] = {{"ab", 2}, {"cd", 2}}; struct mmsghdr m[2]; memset(m, 0, sizeof m); memset(control, 0, sizeof control);
    for (int i = 0; i < 2; i++) { m[i].msg_hdr.msg_iov = v + i; m[i].msg_hdr.msg_iovlen = 1; } m[1].msg_hdr.msg_control = control[1]; m[1].msg_hdr.msg_controllen = sizeof control[1]; struct cmsghdr *c = CMSG_FIRSTHDR(&m[1].msg_hdr); c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof(int)); memcpy(CMSG_DATA(c), &f, sizeof f);
    SHOW(sendmmsg(s[0], m, 2, 0)); char in[2][8]; for (int i = 0; i < 2; i++) { v[i].iov_base = in[i]; v[i].iov_len = 8; m[i].msg_hdr.msg_control = control[i]; m[i].msg_hdr.msg_controllen = sizeof control[i]; } SHOW(recvmmsg(s[1], m, 2, 0, 0)); c = CMSG_FIRSTHDR(&m[1].msg_hdr); memcpy(fds, CMSG_DATA(c), sizeof(int)); use("of several", fds[0]); close(fds[0]);
    SHOW(sendmsg(f, &m[0].msg_hdr, 0)); SHOW(recvmsg(f, &m[0].msg_hdr, 0)); SHOW(sendmsg(s[0], (void *)8, 0)); SHOW(syscall(SYS_recvmsg, s[1], 8, MSG_DONTWAIT)); SHOW(recvmsg(s[1], &m[0].msg_hdr, MSG_DONTWAIT));
    /* What nobody received. */
    one(s[0], "lost", f); close(f); close(s[0]); close(s[1]); show_open("to oneself");
}
static void to_another(const char *name, const char *group, int executes, int forwards) {
    int s[2], on[2]; pairs(s); pairs(on);
    printf("--- %s\n", name); fflush(stdout);
    pid_t p = fork(), q = 0;
    if (!p) {
        close(s[0]); close(on[0]);
        if (group) setenv("ARCK_GROUP", group, 1);
        if (executes) { fcntl(s[1], F_SETFD, 0); fcntl(on[1], F_SETFD, 0); char a[12], b[12]; sprintf(a, "%d", s[1]); sprintf(b, "%d", forwards ? on[1] : -1); execl(self, "child", "serve", top, a, b, (char *)0); _exit(9); }
        _exit(serve(s[1], forwards ? on[1] : -1));
    }
    if (forwards && !(q = fork())) { close(s[0]); close(s[1]); close(on[1]); _exit(serve(on[0], -1)); }
    close(s[1]); close(on[1]); close(on[0]);
    send_all(s[0]);
    close(s[0]);
    printf("ended %d %d\n", ended(p), q ? ended(q) : 0);
    show_file("file"); show_file("dir/moved"); put("file", "0123456789"); unlink("dir/inside"); unlink("dir/moved");
}

/* Files without a name, kept by a child alone, whose parent has closed them, or ended, and by a program
 * that was executed. */
static int unnamed(int how) {
    int f = how ? MUST(open(".", O_RDWR | O_TMPFILE, 0600)) : MUST(open("unlinked", O_RDWR | O_CREAT, 0600));
    MUST(write(f, "abcdef", 6)); if (!how) unlink("unlinked"); lseek(f, 2, SEEK_SET);
    return f;
}
static void execute(int f) { char n[12]; sprintf(n, "%d", f); fflush(stdout); execl(self, "child", "use", top, n, (char *)0); _exit(9); }
static void kept_by_a_child(void) {
    for (int how = 0; how < 2; how++) for (int ends = 0; ends < 4; ends++) {
        printf("unnamed %d %d\n", how, ends); fflush(stdout);
        int gate[2], done[2]; MUST(pipe(gate)); MUST(pipe(done));
        pid_t parent = fork();
        if (!parent) {
            int f = unnamed(how); struct stat s; char c; MUST(stat("file", &s));
            pid_t p = ends == 3 ? 0 : fork();
            if (!p) { close(gate[1]); if (ends < 3) read(gate[0], &c, 1); if (ends == 1 || ends == 3) execute(f); use("child", f); fflush(stdout); _exit(0); }
            close(gate[0]); if (ends == 2) _exit(0); /* the gate opens as it ends */
            close(f); put("another", "another"); unlink("another"); close(gate[1]); _exit(ended(p));
        }
        close(gate[0]); close(gate[1]); close(done[1]); int status = ended(parent);
        char c; read(done[0], &c, 1); close(done[0]); /* when the last of them has gone */
        printf("ended %d\n", status); fflush(stdout);
    }
}

/* And by a program that was executed by one that was executed, which has looked at what it was handed, or
 * at nothing. */
static int chain(const char *f, const char *looks, int depth) {
    char next[12]; sprintf(next, "%d", depth - 1);
    if (!depth) { use("executed in the end", atoi(f)); return 0; }
    if (*looks == 'f') { struct stat s; printf("  %d: %d\n", depth, stat("file", &s)); fflush(stdout); }
    if (*looks == 'd') use("executed", atoi(f));
    execl(self, "child", "chain", top, f, looks, next, (char *)0); return 9;
}
static void through_programs(void) {
    const char *looks[] = {"nothing", "file", "descriptor"};
    for (int how = 0; how < 2; how++) for (int i = 0; i < 3; i++) for (int depth = 1; depth < 4; depth++) {
        printf("unnamed %d, %d programs, looks at %s\n", how, depth + 1, looks[i]); fflush(stdout);
        pid_t p = fork();
        if (!p) { char n[12]; sprintf(n, "%d", unnamed(how)); _exit(chain(n, looks[i], depth)); }
        printf("ended %d\n", ended(p)); fflush(stdout);
    }
}

/* More than this library keeps open for those whom it has sent something, while the process has a lock of the
 * file (fcntl): that stays, whoever has sent them, until the program closes one. */
#define MANY 65
static void locked_by(const char *who) {
    pid_t p = fork();
    if (!p) { struct flock l = {.l_type = F_WRLCK}; int f = open("file", O_RDWR), r = fcntl(f, F_SETLK, &l); printf("  %s: %s\n", who, r ? strerrorname_np(errno) : "free"); fflush(stdout); _exit(0); }
    ended(p);
}
static void many_under_a_lock(int per_message, int from_another) {
    int s[2], got[MANY + 64], count = 0; char text[64]; pairs(s);
    printf("%d in messages of %d, %s\n", MANY, per_message, from_another ? "of another" : "to oneself"); fflush(stdout);
    int f = MUST(open("file", O_RDWR)); struct flock l = {.l_type = F_WRLCK}; MUST(fcntl(f, F_SETLK, &l));
    locked_by("at first");
    pid_t p = from_another ? fork() : 0;
    int own = from_another && !p ? MUST(open("file", O_RDWR)) : f, all[64];
    for (int i = 0; i < 64; i++) all[i] = own;
    for (int sent = 0; sent < MANY; sent += per_message) {
        if (!from_another || !p) MUST(send_some(s[0], "x", all, per_message));
        if (!from_another || p) count += MUST(receive(s[1], text, got + count, 64, 0, 0));
    }
    if (from_another && !p) _exit(0);
    if (p) ended(p);
    printf("  got %d\n", count); fflush(stdout);
    locked_by("with all");
    MUST(read(got[count - 1], text, 2));
    locked_by("after reading");
    close(got[count - 1]);
    locked_by("after closing one");
    while (--count) close(got[count - 1]);
    close(f); close(s[0]); close(s[1]);
}

/* A memory file that looks like what stands for a pool's file, and is none: whoever sends it must not be believed. */
static void a_forgery(void) {
    int s[2], got[1]; char text[16]; pairs(s);
    int f = memfd_create("arck-description", 0); char page[4096] = "ordinary bytes";
    MUST(f); MUST(pwrite(f, page, sizeof page, 0));
    MUST(one(s[0], "f", f)); MUST(receive(s[1], text, got, 1, 0, 0));
    memset(page, 0, sizeof page);
    printf("a forgery: %zd", pread(got[0], page, 14, 0)); printf(" %.14s, ftruncate %d\n", page, ftruncate(got[0], 0));
    close(f); close(got[0]); close(s[0]); close(s[1]);
}
int main(int argc, char **argv) {
    if (argc > 4 && !strcmp(argv[1], "serve")) { top = argv[2]; return serve(atoi(argv[3]), atoi(argv[4])); }
    if (argc > 3 && !strcmp(argv[1], "use")) { top = argv[2]; use("executed", atoi(argv[3])); return 0; }
    if (argc > 5 && !strcmp(argv[1], "chain")) { top = argv[2]; syscall(SYS_readlink, "/proc/self/exe", self, sizeof self); return chain(argv[3], argv[4], atoi(argv[5])); }
    begin(argv);
    put("file", "0123456789"); MUST(mkdir("dir", 0755));
    to_oneself(); a_forgery();
    put("file", "0123456789");
    to_another("a child", 0, 0, 0); to_another("a program", 0, 1, 0); to_another("another group's program", "another", 1, 0); to_another("and on", 0, 0, 1); to_another("another group's, and on", "another", 1, 1);
    kept_by_a_child();
    through_programs();
    for (int another = 0; another < 2; another++) { many_under_a_lock(1, another); many_under_a_lock(5, another); many_under_a_lock(13, another); }
    return 0;
}
