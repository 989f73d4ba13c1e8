/* Named pipes, as fifo(7), pipe(7) and open(2) have them: who waits for whom, what is told where nobody is there,
 * signals, names that change, descriptors that are handed on. */
#include "show.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/wait.h>

static const char *letters(int events) {
    static char text[32];
    snprintf(text, sizeof text, "%s%s%s%s", events & POLLIN ? "in " : "", events & POLLOUT ? "out " : "", events & POLLHUP ? "hup " : "", events & POLLERR ? "err " : "");
    return text;
}
static void ready(const char *what, int fd) {
    struct pollfd p = {fd, POLLIN | POLLOUT, 0};
    int n = poll(&p, 1, 0);
    printf("%s: %d %s\n", what, n, letters(p.revents));
    fflush(stdout);
}
static void rest(int milliseconds) { usleep(milliseconds * 1000); }
static int ended(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}
/* Opens in a child, which ends with 0, or the error. */
static pid_t opener(const char *name, int flags) {
    fflush(stdout);
    pid_t child = fork();
    if (child) return child;
    signal(SIGALRM, SIG_DFL);
    alarm(30);
    int fd = open(name, flags);
    int error = errno;
    if (fd < 0) _exit(error);
    char byte = 'w';
    if ((flags & O_ACCMODE) == O_RDONLY) _exit(read(fd, &byte, 1) == 1 ? 0 : 200);
    _exit(write(fd, &byte, 1) == 1 ? 0 : 201);
}
/* However long it takes until others wait. */
static int patiently(const char *name, int flags) {
    int fd;
    for (int i = 0; (fd = open(name, flags)) < 0 && errno == ENXIO && i < 2000; i++) rest(10);
    if (fd < 0) printf("%s: %s\n", name, strerrorname_np(errno));
    return fd;
}
static volatile sig_atomic_t caught;
static void catch(int signal) { (void)signal; caught++; }
static int helper = -1;
static void bring(int signal) { (void)signal; caught++; if (helper < 0) helper = open("waited", O_RDWR | O_NONBLOCK); }
static void let_go(void) { close(helper); helper = -1; }
static void handle(int number, void (*handler)(int), int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigaction(number, &action, 0);
}

static void names(void) {
    puts("names");
    SHOW(mkfifo("a", 0666));
    SHOW(mkfifo("a", 0666));
    SHOW(mknod("b", S_IFIFO | 0640, 0));
    SHOW(mkfifo("missing/a", 0666));
    show_stat("a"); show_stat("b");
    SHOW(chmod("b", 0600)); show_stat("b");
    SHOW(link("a", "c")); show_stat("c");
    SHOW(symlink("a", "l"));
    SHOW(access("a", R_OK | W_OK));
    SHOW(truncate("a", 0));
    SHOW(open("a", O_RDONLY | O_NONBLOCK | O_DIRECTORY));
    SHOW(open("a/", O_RDONLY | O_NONBLOCK));
    SHOW(open("a", O_RDWR | O_CREAT | O_EXCL, 0644));
    SHOW(open("l", O_RDWR | O_NOFOLLOW));
    SHOW(open("a", O_ACCMODE | O_NONBLOCK));
    SHOW(open("a", O_ACCMODE));
    int fd;
    int flags[] = {O_RDWR, O_RDWR | O_CREAT, O_RDWR | O_TRUNC, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, O_RDWR | O_NONBLOCK | O_APPEND, O_RDONLY | O_NONBLOCK, O_PATH};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        fd = MUST(open("l", flags[i], 0644));
        printf("%zu: number %d flags %o cloexec %d\n", i, fd, fcntl(fd, F_GETFL), fcntl(fd, F_GETFD));
        close(fd);
    }
    struct open_how how = {.flags = O_RDWR | O_NONBLOCK, .resolve = RESOLVE_NO_SYMLINKS};
    SHOW(syscall(SYS_openat2, AT_FDCWD, "l", &how, sizeof how));
    fd = MUST(syscall(SYS_openat2, AT_FDCWD, "a", &how, sizeof how));
    close(fd);
    fd = MUST(open("a", O_PATH));
    SHOW(read(fd, &how, 1));
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    int again = MUST(open(path, O_RDWR | O_NONBLOCK));
    SHOW(write(again, "x", 1));
    SHOW(read(again, &how, 1));
    close(again); close(fd);
    FILE *stream = fopen("a", "r+");
    SHOW(stream != 0);
    if (stream) { fputs("line\n", stream); fflush(stream); fclose(stream); }
}

static void alone(void) {
    char buffer[8192];
    puts("alone");
    SHOW(open("a", O_WRONLY | O_NONBLOCK));
    int reader = MUST(open("a", O_RDONLY | O_NONBLOCK));
    ready("no writer yet", reader);
    SHOW(read(reader, buffer, 1));
    int second = MUST(open("a", O_RDONLY | O_NONBLOCK));
    int writer = MUST(open("a", O_WRONLY | O_NONBLOCK));
    ready("a writer", reader); ready("writer", writer);
    SHOW(read(reader, buffer, 1));
    SHOW(write(writer, "12345", 5));
    ready("written", reader);
    int count;
    SHOW(ioctl(reader, FIONREAD, &count)); printf("%d\n", count);
    SHOW(read(second, buffer, 2));
    close(second);
    close(writer);
    ready("writer gone", reader);
    SHOW(read(reader, buffer, 10));
    ready("and emptied", reader);
    SHOW(read(reader, buffer, 10));
    writer = MUST(open("a", O_WRONLY | O_NONBLOCK));
    ready("another writer", reader);
    SHOW(read(reader, buffer, 1));
    close(reader);
    ready("reader gone", writer);
    handle(SIGPIPE, catch, 0);
    caught = 0;
    SHOW(write(writer, "x", 1)); printf("%d\n", caught);
    close(writer);
    SHOW(open("a", O_WRONLY | O_NONBLOCK));
    /* What nobody has open is empty. */
    int both = MUST(open("a", O_RDWR | O_NONBLOCK));
    SHOW(read(both, buffer, 1));
    memset(buffer, 'x', sizeof buffer);
    long all = 0;
    for (long n; (n = write(both, buffer, 4096)) > 0;) all += n;
    printf("%ld %s\n", all, strerrorname_np(errno));
    SHOW(fcntl(both, F_GETPIPE_SZ));
    SHOW(fcntl(both, F_SETPIPE_SZ, 1 << 17));
    SHOW(lseek(both, 0, SEEK_SET));
    SHOW(pread(both, buffer, 1, 0));
    SHOW(pwrite(both, buffer, 1, 0));
    SHOW(ftruncate(both, 0));
    SHOW(fsync(both));
    SHOW(fallocate(both, 0, 0, 1));
    SHOW(mmap(0, 4096, PROT_READ, MAP_SHARED, both, 0) == MAP_FAILED);
    SHOW(flock(both, LOCK_EX | LOCK_NB));
    int other = MUST(open("a", O_RDONLY | O_NONBLOCK));
    SHOW(flock(other, LOCK_EX | LOCK_NB));
    SHOW(fcntl(other, F_SETFL, 0)); printf("%o\n", fcntl(other, F_GETFL));
    SHOW(isatty(other));
    close(other);
    int copy = dup(both);
    close(both);
    SHOW(read(copy, buffer, 3));
    close(copy);
    int at_work = open(".", O_RDONLY | O_DIRECTORY);
    both = MUST(openat(at_work, "a", O_RDWR));
    fd_set set; FD_ZERO(&set); FD_SET(both, &set);
    struct timeval now = {0, 0};
    SHOW(select(both + 1, &set, 0, 0, &now));
    MUST(write(both, "y", 1));
    FD_SET(both, &set);
    SHOW(select(both + 1, &set, 0, 0, &now));
    int set_of = epoll_create1(0);
    struct epoll_event event = {EPOLLIN, {.u64 = 7}};
    SHOW(epoll_ctl(set_of, EPOLL_CTL_ADD, both, &event));
    SHOW(epoll_wait(set_of, &event, 1, 0));
    close(set_of); close(both); close(at_work);
}

static void waiting(void) {
    puts("waiting");
    int lasts[] = {O_RDONLY, O_WRONLY, O_RDWR, O_RDONLY | O_NONBLOCK, O_WRONLY | O_NONBLOCK};
    for (int first = O_RDONLY; first <= O_WRONLY; first++)
        for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++) {
            if ((lasts[i] & O_ACCMODE) == first) continue;
            for (int many = 1; many <= 3; many += 2) {
                pid_t who[3];
                for (int n = 0; n < many; n++) who[n] = opener("a", first);
                rest(60);
                int fd = patiently("a", lasts[i]);
                printf("%d by %d with %o\n", many, first, lasts[i]); fflush(stdout);
                char bytes[3] = "abc";
                if (first == O_RDONLY) MUST(write(fd, bytes, many));
                else for (int got = 0, n; got < many;) { n = read(fd, bytes, 1); if (n == 1) got++; else if (n == 0 && !(lasts[i] & O_NONBLOCK)) { printf("the end\n"); break; } else if (n < 0 && errno != EAGAIN) { perror("read"); break; } else rest(1); }
                for (int n = 0; n < many; n++) printf(" ended %d\n", ended(who[n]));
                close(fd);
            }
        }
    /* One that waits and is killed is not there. */
    pid_t who = opener("a", O_RDONLY);
    rest(60);
    kill(who, SIGKILL);
    printf("killed %d\n", ended(who));
    SHOW(open("a", O_WRONLY | O_NONBLOCK));
    who = opener("a", O_WRONLY);
    rest(60);
    kill(who, SIGKILL);
    printf("killed %d\n", ended(who));
    int reader = MUST(open("a", O_RDONLY | O_NONBLOCK));
    char byte;
    SHOW(read(reader, &byte, 1));
    close(reader);
    /* Stopped and continued, it waits on. */
    who = opener("a", O_RDONLY);
    rest(60);
    kill(who, SIGSTOP); rest(20); kill(who, SIGCONT); rest(20);
    int writer = MUST(open("a", O_WRONLY));
    MUST(write(writer, "z", 1));
    printf("continued %d\n", ended(who));
    close(writer);
    /* Bytes are there, and whoever wrote them is gone: who reads waits all the same. */
    reader = MUST(open("a", O_RDONLY | O_NONBLOCK));
    writer = MUST(open("a", O_WRONLY));
    MUST(write(writer, "12", 2));
    who = opener("a", O_RDONLY);
    printf("a writer is there %d\n", ended(who));
    close(writer);
    who = opener("a", O_RDONLY);
    rest(100);
    int status;
    SHOW(waitpid(who, &status, WNOHANG));
    writer = MUST(open("a", O_WRONLY));
    printf("another %d\n", ended(who));
    close(writer);
    SHOW(read(reader, &byte, 1));
    close(reader);
    /* Many times, whoever is first. */
    int rounds = 300, good = 0;
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        for (int i = 0; i < rounds; i++) {
            int fd = open("a", O_WRONLY);
            if (fd < 0 || write(fd, &i, sizeof i) != sizeof i) _exit(9);
            close(fd);
            fd = open("b", O_RDONLY);
            int told;
            if (fd < 0 || read(fd, &told, sizeof told) != sizeof told || told != -i) _exit(8);
            close(fd);
        }
        _exit(0);
    }
    for (int i = 0; i < rounds; i++) {
        int fd = open("a", O_RDONLY), told = 0;
        if (read(fd, &told, sizeof told) == sizeof told && told == i) good++;
        close(fd);
        fd = open("b", O_WRONLY);
        told = -i;
        MUST(write(fd, &told, sizeof told));
        close(fd);
    }
    printf("%d of %d, %d\n", good, rounds, ended(child));
}

static void *open_for_reading(void *name) { return (void *)(long)open(name, O_RDONLY); }

static void interrupted(void) {
    puts("interrupted");
    struct itimerval often = {{0, 40000}, {0, 60000}}, none = {{0, 0}, {0, 0}};
    MUST(mkfifo("waited", 0644));
    for (int flags = O_RDONLY; flags <= O_WRONLY; flags++) {
        handle(SIGALRM, catch, 0);
        caught = 0;
        setitimer(ITIMER_REAL, &often, 0);
        SHOW(open("waited", flags));
        setitimer(ITIMER_REAL, &none, 0);
        printf("caught %d\n", caught > 0);
        /* Its number is free again. */
        int next = open("/dev/null", O_RDONLY);
        printf("next %d\n", next);
        close(next);
        handle(SIGALRM, catch, SA_RESTART);
        caught = 0;
        setitimer(ITIMER_REAL, &often, 0);
        fflush(stdout);
        pid_t child = fork();
        if (!child) { setitimer(ITIMER_REAL, &none, 0); rest(250); int fd = open("waited", O_RDWR); rest(200); _exit(fd < 0); }
        int fd = MUST(open("waited", flags));
        setitimer(ITIMER_REAL, &none, 0);
        printf("goes on %d %d\n", fd, caught >= 2);
        printf("%d\n", ended(child));
        close(fd);
        /* The handler opens the other end. */
        handle(SIGALRM, bring, SA_RESTART);
        setitimer(ITIMER_REAL, &often, 0);
        fd = MUST(open("waited", flags));
        setitimer(ITIMER_REAL, &none, 0);
        printf("brought %d\n", fd > helper ? fd - helper : helper - fd);
        close(fd); let_go();
        handle(SIGALRM, bring, 0);
        setitimer(ITIMER_REAL, &often, 0);
        SHOW(open("waited", flags));
        setitimer(ITIMER_REAL, &none, 0);
        let_go();
    }
    SHOW(open("waited", O_WRONLY | O_NONBLOCK));
    /* A thread waits, and others open and close meanwhile; it is cancelled. */
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, open_for_reading, "waited");
    rest(300);
    int other = open("/dev/null", O_RDONLY);
    printf("other %d\n", other);
    close(other);
    fflush(stdout);
    pid_t child = fork();
    if (!child) { int fd = open("/dev/null", O_RDONLY); printf("in a child %d\n", fd); fflush(stdout); _exit(patiently("waited", O_WRONLY | O_NONBLOCK) < 0); }
    printf("it finds who waits: %d\n", ended(child));
    pthread_join(thread, &result);
    printf("joined %ld\n", (long)result);
    close((long)result);
    pthread_create(&thread, 0, open_for_reading, "waited");
    rest(300);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    SHOW(result == PTHREAD_CANCELED);
    SHOW(open("waited", O_WRONLY | O_NONBLOCK));
    other = open("/dev/null", O_RDONLY);
    printf("other %d\n", other);
    close(other);
}

static void changing_names(void) {
    char byte = 0;
    puts("changing names");
    MUST(mkfifo("old", 0644));
    int reader = MUST(open("old", O_RDONLY | O_NONBLOCK));
    SHOW(rename("old", "new"));
    int writer = MUST(open("new", O_WRONLY | O_NONBLOCK));
    SHOW(write(writer, "n", 1)); SHOW(read(reader, &byte, 1));
    SHOW(link("new", "second"));
    SHOW(unlink("new"));
    int third = MUST(open("second", O_WRONLY | O_NONBLOCK));
    SHOW(write(third, "s", 1)); SHOW(read(reader, &byte, 1));
    close(third);
    SHOW(unlink("second"));
    SHOW(write(writer, "u", 1)); SHOW(read(reader, &byte, 1));
    /* Another one of the same name meets none of the first. */
    MUST(mkfifo("old", 0644));
    SHOW(open("old", O_WRONLY | O_NONBLOCK));
    int one = MUST(open("old", O_RDWR | O_NONBLOCK));
    SHOW(write(one, "o", 1));
    SHOW(read(reader, &byte, 1));
    close(one); close(reader);
    SHOW(write(writer, "x", 1));
    close(writer);
    SHOW(unlink("old"));
    /* Directories that move. */
    MUST(mkdir("directory", 0755));
    MUST(mkfifo("directory/p", 0644));
    reader = MUST(open("directory/p", O_RDONLY | O_NONBLOCK));
    SHOW(rename("directory", "moved"));
    writer = MUST(open("moved/p", O_WRONLY | O_NONBLOCK));
    SHOW(write(writer, "d", 1)); SHOW(read(reader, &byte, 1));
    close(reader); close(writer);
    /* What takes its place by a rename. */
    put("file", "content");
    SHOW(rename("file", "moved/p"));
    show_file("moved/p");
}

static void told(int fd, const char *name) {
    struct stat of, by;
    struct statx more;
    MUST(fstat(fd, &of)); MUST(lstat(name, &by));
    MUST(statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &more));
    printf("%s: mode %o same inode %d %d device %d owner %d %d links %d modified %ld\n", name, of.st_mode, of.st_ino == by.st_ino, more.stx_ino == by.st_ino,
        of.st_dev == by.st_dev, of.st_uid == by.st_uid, of.st_gid, (int)of.st_nlink, of.st_mtime == by.st_mtime ? 0L : 1L);
    fflush(stdout);
}
static void attributes(void) {
    puts("attributes");
    MUST(mkfifo("of", 0644));
    int reader = MUST(open("of", O_RDONLY | O_NONBLOCK));
    int writer = MUST(open("of", O_WRONLY));
    told(reader, "of"); told(writer, "of");
    SHOW(fchmod(reader, 0622)); told(writer, "of");
    SHOW(fchown(reader, -1, 12)); told(writer, "of");
    struct timespec times[2] = {{1000, 0}, {2000, 0}};
    SHOW(futimens(reader, times)); show_stat("of");
    struct stat status;
    MUST(lstat("of", &status)); printf("%ld %ld\n", (long)status.st_atime, (long)status.st_mtime);
    MUST(link("of", "of2")); told(reader, "of2");
    MUST(rename("of2", "of3")); told(reader, "of3");
    /* What is not the pool's is as it was. */
    int ends[2];
    MUST(pipe(ends));
    SHOW(fchmod(ends[0], 0640)); MUST(fstat(ends[0], &status)); printf("%o\n", status.st_mode);
    close(ends[0]); close(ends[1]);
    /* Opened anew by its descriptor. */
    char path[64], byte;
    const char *places[] = {"/proc/self/fd/%d", "/dev/fd/%d"};
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, places[i], reader);
        int again = MUST(open(path, O_WRONLY));
        printf("%o %d\n", fcntl(again, F_GETFL), again);
        SHOW(write(again, "r", 1)); SHOW(read(reader, &byte, 1));
        close(again);
        SHOW(open(path, O_RDONLY | O_DIRECTORY));
    }
    close(writer);
    fflush(stdout);
    /* Who waits, and whoever opens by a descriptor, meet. */
    MUST(mkfifo("other", 0600));
    int path_only = MUST(open("other", O_PATH));
    pid_t who = opener("other", O_RDONLY);
    rest(60);
    snprintf(path, sizeof path, "/proc/self/fd/%d", path_only);
    writer = MUST(open(path, O_WRONLY));
    SHOW(write(writer, "p", 1));
    printf("%d\n", ended(who));
    close(writer); close(path_only); close(reader);
    SHOW(system("cat /dev/stdin < of & sleep 0.1; { echo named by a descriptor; sleep 0.3; } > of; wait"));
    SHOW(system("exec 4<>of; exec 5< /dev/fd/4; echo through >&4; exec 4>&-; cat <&5"));
}

/* FIFOs whose paths look like those of a pool's, and lead to one in another place. */
static void forged(void) {
    char top[] = "/tmp/forgedXXXXXX", path[100];
    puts("forged");
    MUST(mkdtemp(top) != 0);
    snprintf(path, sizeof path, "%s/named-pipes", top);
    MUST(mkdir(path, 0700));
    int good = 0;
    for (int inode = 1; inode < 60; inode++) {
        struct stat of, by;
        snprintf(path, sizeof path, "%s/named-pipes/%08x-00000001", top, inode);
        MUST(mkfifo(path, 0640));
        int fd = MUST(open(path, O_RDWR));
        MUST(fstat(fd, &of)); MUST(stat(path, &by));
        good += of.st_ino == by.st_ino && of.st_dev == by.st_dev && (of.st_mode & 0777) == (by.st_mode & 0777);
        MUST(fchmod(fd, 0600)); MUST(stat(path, &by)); good += (by.st_mode & 0777) == 0600;
        close(fd); unlink(path);
    }
    printf("%d\n", good);
    snprintf(path, sizeof path, "%s/named-pipes", top);
    rmdir(path); rmdir(top);
}

static void handed_on(void) {
    puts("handed on");
    fflush(stdout);
    SHOW(system("(echo by a shell > a &) ; cat a"));
    SHOW(system("exec 3<>a; echo both >&3; read line <&3; echo \"$line\""));
    SHOW(system("cat a & sleep 0.1; (echo one; echo two) > a; wait"));
    SHOW(system("cat < a & sleep 0.1; echo through standard input > a; wait"));
    SHOW(system("head -c 3000000 /dev/zero > a & wc -c < a; wait"));
    SHOW(system("(sleep 0.1; echo late > a) & if read line < a; then echo \"$line\"; fi; wait"));
    SHOW(system("test -p a && ls -l a | cut -c 1-10; rm -f gone; mkfifo -m 600 gone && stat -c '%F %a' gone; rm gone"));
    SHOW(system("echo x > b & cp --copy-contents b copied; wait; cat copied; tee copied < b > /dev/null & echo teed > b; wait; cat copied"));
}

int main(int argc, char **argv) {
    (void)argc;
    begin(argv);
    names();
    alone();
    waiting();
    interrupted();
    changing_names();
    attributes();
    forged();
    handed_on();
    show_tree(".");
    return 0;
}
