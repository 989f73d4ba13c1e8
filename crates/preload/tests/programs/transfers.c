/* copy_file_range, sendfile and splice: between files of the directory, and to and from files of
   another file system. */
#include "show.h"
#include <sys/socket.h>

static long cfr(int in, off_t *oi, int out, off_t *oo, size_t n, unsigned f) { return syscall(SYS_copy_file_range, in, oi, out, oo, n, f); }
static void fill(int fd, size_t n) { char *b = malloc(n); for (size_t i = 0; i < n; i++) b[i] = 'a' + i % 23 + i / 4096 % 3; MUST(pwrite(fd, b, n, 0)); free(b); }
static void sum(int fd) {
    static unsigned char b[1 << 20];
    unsigned long h = 5381, total = 0; ssize_t n;
    while ((n = pread(fd, b, sizeof b, total)) > 0) { for (ssize_t i = 0; i < n; i++) h = h * 33 + b[i]; total += n; }
    printf("sum %lu of %lu at %ld\n", h, total, (long)lseek(fd, 0, SEEK_CUR));
}

int main(int argc, char **argv) {
    begin(argv);
    off_t o, p;
    int a = MUST(open("a", O_RDWR | O_CREAT, 0644)), b = MUST(open("b", O_RDWR | O_CREAT, 0644)), host = MUST(memfd_create("host", 0));
    int r = MUST(open("a", O_RDONLY)), w = MUST(open("b", O_WRONLY)), app = MUST(open("b", O_WRONLY | O_APPEND)), d = MUST(open(".", O_RDONLY)), path = MUST(open("a", O_PATH));
    fill(a, 700001);
    /* copy_file_range within the directory */
    SHOW(cfr(a, 0, b, 0, 1000, 0)); SHOW(lseek(a, 0, SEEK_CUR)); SHOW(lseek(b, 0, SEEK_CUR));
    o = 5; SHOW(cfr(a, &o, b, 0, 1000, 0)); SHOW(o); SHOW(lseek(a, 0, SEEK_CUR)); SHOW(lseek(b, 0, SEEK_CUR));
    p = 100; SHOW(cfr(a, 0, b, &p, 50, 0)); SHOW(p); SHOW(lseek(a, 0, SEEK_CUR)); SHOW(lseek(b, 0, SEEK_CUR));
    o = 3; p = 5000; SHOW(cfr(a, &o, b, &p, 1 << 20, 0)); SHOW(o); SHOW(p); sum(b);
    o = 700001; SHOW(cfr(a, &o, b, 0, 10, 0)); o = 900000; SHOW(cfr(a, &o, b, 0, 10, 0)); o = 700000; SHOW(cfr(a, &o, b, 0, 10, 0)); SHOW(o);
    o = -1; SHOW(cfr(a, &o, b, 0, 10, 0)); o = 0; p = -1; SHOW(cfr(a, &o, b, &p, 10, 0)); SHOW(cfr(a, 0, b, 0, 0, 0));
    SHOW(cfr(a, 0, b, 0, 10, 2)); SHOW(cfr(a, 0, 77, 0, 10, 0)); SHOW(cfr(77, 0, b, 0, 10, 0)); SHOW(cfr(w, 0, a, 0, 10, 0)); SHOW(cfr(a, 0, r, 0, 10, 0)); SHOW(cfr(a, 0, app, 0, 10, 0)); SHOW(cfr(d, 0, b, 0, 10, 0)); SHOW(cfr(a, 0, d, 0, 10, 0)); SHOW(cfr(path, 0, b, 0, 10, 0));
    SHOW(cfr(a, (off_t *)8, b, 0, 10, 0));
    o = 0; p = 100; SHOW(cfr(a, &o, a, &p, 100, 0)); SHOW(o); SHOW(p); o = 0; p = 99; SHOW(cfr(a, &o, a, &p, 100, 0)); o = 99; p = 0; SHOW(cfr(a, &o, a, &p, 100, 0)); o = 100; p = 0; SHOW(cfr(r, &o, a, &p, 100, 0));
    o = 0; p = 0; SHOW(cfr(a, &o, a, &p, 1, 0)); o = 0; p = 700001; SHOW(cfr(a, &o, a, &p, 1 << 20, 0)); sum(a);
    o = INT64_MAX - 5; SHOW(cfr(a, &o, b, 0, 10, 0));
    o = 10; p = 3 << 20; SHOW(cfr(a, &o, b, &p, 10, 0)); sum(b);
    /* sendfile within, to and from another file system, pipes and sockets */
    lseek(a, 0, SEEK_SET); lseek(b, 0, SEEK_SET); MUST(ftruncate(b, 0));
    SHOW(sendfile(b, a, 0, 100)); SHOW(lseek(a, 0, SEEK_CUR)); SHOW(lseek(b, 0, SEEK_CUR));
    o = 50; SHOW(sendfile(b, a, &o, 200000)); SHOW(o); SHOW(lseek(a, 0, SEEK_CUR)); sum(b);
    o = 0; SHOW(sendfile(host, a, &o, 300000)); sum(host);
    o = 7; SHOW(sendfile(b, host, &o, 1 << 20)); SHOW(o); sum(b);
    o = -1; SHOW(sendfile(b, a, &o, 1)); SHOW(sendfile(b, 77, 0, 1)); SHOW(sendfile(77, a, 0, 1)); SHOW(sendfile(r, a, 0, 1)); SHOW(sendfile(b, w, 0, 1)); SHOW(sendfile(app, a, 0, 1)); SHOW(sendfile(b, d, 0, 1)); SHOW(sendfile(d, a, 0, 1)); SHOW(sendfile(b, path, 0, 1)); SHOW(sendfile(path, a, 0, 1)); SHOW(sendfile(b, a, (off_t *)8, 1));
    o = 1 << 30; SHOW(sendfile(b, a, &o, 1)); SHOW(o); SHOW(sendfile(b, a, 0, 0));
    int pipes[2]; MUST(pipe2(pipes, O_NONBLOCK)); static char buffer[1 << 20];
    o = 0; SHOW(sendfile(pipes[1], a, &o, 1 << 20)); SHOW(o); SHOW(read(pipes[0], buffer, sizeof buffer)); SHOW(sendfile(b, pipes[0], 0, 1)); SHOW(read(pipes[0], buffer, 1));
    int s[2]; MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s)); o = 4; SHOW(sendfile(s[0], a, &o, 5000)); SHOW(o); SHOW(recv(s[1], buffer, 5000, MSG_WAITALL)); printf("%.20s\n", buffer);
    /* splice */
    o = 0; SHOW(splice(a, &o, pipes[1], 0, 5000, 0)); SHOW(o); SHOW(read(pipes[0], buffer, sizeof buffer)); printf("%.20s\n", buffer);
    lseek(a, 10, SEEK_SET); SHOW(splice(a, 0, pipes[1], 0, 100, SPLICE_F_MOVE)); SHOW(lseek(a, 0, SEEK_CUR));
    MUST(ftruncate(b, 0)); lseek(b, 0, SEEK_SET); SHOW(splice(pipes[0], 0, b, 0, 60, 0)); SHOW(lseek(b, 0, SEEK_CUR)); o = 5; SHOW(splice(pipes[0], 0, b, &o, 1000, 0)); SHOW(o); SHOW(lseek(b, 0, SEEK_CUR)); sum(b);
    SHOW(splice(pipes[0], 0, b, 0, 60, SPLICE_F_NONBLOCK)); SHOW(splice(a, 0, b, 0, 10, 0)); SHOW(splice(a, 0, host, 0, 10, 0)); SHOW(splice(a, 0, pipes[1], &o, 10, 0)); SHOW(splice(pipes[0], &o, b, 0, 10, 0)); SHOW(splice(a, 0, pipes[1], 0, 10, 128)); SHOW(splice(a, 0, pipes[1], 0, 0, 0)); SHOW(splice(a, 0, 77, 0, 10, 0)); SHOW(splice(w, 0, pipes[1], 0, 10, 0)); SHOW(splice(path, 0, pipes[1], 0, 10, 0)); SHOW(splice(d, 0, pipes[1], 0, 10, 0)); MUST(write(pipes[1], "xyz", 3)); SHOW(splice(pipes[0], 0, r, 0, 10, 0)); SHOW(splice(pipes[0], 0, app, 0, 10, 0)); SHOW(splice(pipes[0], 0, d, 0, 10, 0)); SHOW(read(pipes[0], buffer, 10));
    lseek(a, 0, SEEK_SET); long total = 0, n; while ((n = splice(a, 0, pipes[1], 0, 1 << 20, SPLICE_F_NONBLOCK)) > 0) total += n; SHOW(n); SHOW(total); SHOW(lseek(a, 0, SEEK_CUR) == total);
    SHOW(tee(a, pipes[1], 10, 0)); SHOW(tee(pipes[0], a, 10, 0)); struct iovec v = {buffer, 10}; SHOW(vmsplice(a, &v, 1, 0));
    /* copy_file_range to and from a host file: tmpfs may refuse with EXDEV what a pool does. */
    char host_name[64]; snprintf(host_name, sizeof host_name, "/tmp/arck-transfers-%d", getpid());
    int h = MUST(open(host_name, O_RDWR | O_CREAT | O_EXCL, 0600)); MUST(unlink(host_name));
    o = 3; p = 9; long c = cfr(a, &o, h, &p, 200000, 0); if (c == 200000) { if (o != 200003 || p != 200009) puts("offsets"); } else if (c != -1 || errno != EXDEV) puts("error"); else { static char t[200000]; MUST(pread(a, t, sizeof t, 3)); MUST(pwrite(h, t, sizeof t, 9)); }
    sum(h);
    MUST(ftruncate(b, 0)); o = 3; p = 9; c = cfr(h, &o, b, &p, 1 << 20, 0); if (c == 200006) { if (o != 200009 || p != 200015) puts("offsets"); } else if (c != -1 || errno != EXDEV) puts("error"); else { static char t[200006]; MUST(pread(h, t, sizeof t, 3)); MUST(pwrite(b, t, sizeof t, 9)); }
    lseek(b, 0, SEEK_SET); sum(b);
    return 0;
}
