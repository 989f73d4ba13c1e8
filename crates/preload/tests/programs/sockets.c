/* Unix sockets with names, as unix(7), bind(2), connect(2) and their kin have them: kinds of sockets, names that are told,
 * names that change, who is there and who is not, credentials, descriptors that are sent. */
#include "show.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct sockaddr_un address(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strnlen(path, sizeof a.sun_path));
    return a;
}
static socklen_t size(const char *path) { return offsetof(struct sockaddr_un, sun_path) + strlen(path) + 1; }
static int bind_to(int fd, const char *path) { struct sockaddr_un a = address(path); return bind(fd, (void *)&a, sizeof a); }
static int connect_to(int fd, const char *path) { struct sockaddr_un a = address(path); return connect(fd, (void *)&a, sizeof a); }
static int make(int kind) { return MUST(socket(AF_UNIX, kind, 0)); }
static int listening(const char *path, int kind) { int fd = make(kind); MUST(bind_to(fd, path)); MUST(listen(fd, 5)); return fd; }

static const char *top;
/* A name as it is told, its place being DIRECTORY. */
static void named(const char *what, const struct sockaddr_un *a, socklen_t length) {
    int path = (int)length - (int)offsetof(struct sockaddr_un, sun_path);
    char text[sizeof a->sun_path + 1] = {0};
    if (path > 0) memcpy(text, a->sun_path, path > (int)sizeof a->sun_path ? (int)sizeof a->sun_path : path);
    size_t begin = strlen(top);
    int within = !strncmp(text, top, begin);
    printf("%s: family %d length %d \"%s%s\"\n", what, length >= 2 ? a->sun_family : -1, (int)length - (within ? (int)begin : 0), within ? "TOP" : "", text + (within ? begin : 0));
    fflush(stdout);
}
static void names_of(const char *what, int fd) {
    struct sockaddr_un a = {0};
    socklen_t length = sizeof a;
    if (getsockname(fd, (void *)&a, &length) == 0) named(what, &a, length); else perror(what);
    memset(&a, 0, sizeof a); length = sizeof a;
    if (getpeername(fd, (void *)&a, &length) == 0) named("  peer", &a, length); else printf("  peer: %s\n", strerrorname_np(errno));
}

static void binding(void) {
    char path[300], long_path[200];
    puts("binding");
    int kinds[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET};
    for (int i = 0; i < 3; i++) {
        int fd = make(kinds[i]);
        names_of("before", fd);
        SHOW(bind_to(fd, "s"));
        names_of("after", fd);
        show_stat("s");
        SHOW(bind_to(fd, "other"));
        show_stat("other");
        SHOW(bind_to(make(kinds[i]), "s"));
        close(fd);
        SHOW(bind_to(make(kinds[i]), "s"));
        SHOW(unlink("s"));
    }
    int fd = make(SOCK_STREAM);
    SHOW(bind_to(fd, "missing/s"));
    put("file", "x");
    SHOW(bind_to(fd, "file"));
    SHOW(bind_to(fd, "file/s"));
    SHOW(bind_to(fd, "."));
    SHOW(bind_to(fd, "dangling/"));
    MUST(symlink("nowhere", "dangling"));
    SHOW(bind_to(fd, "dangling"));
    show_stat("nowhere");
    MUST(mkdir("dir", 0755));
    snprintf(path, sizeof path, "%s/work/dir/s", top);
    SHOW(bind_to(fd, path));
    names_of("absolute", fd);
    show_stat("dir/s");
    /* The longest that there is, with and without a NUL byte at its end. */
    for (size_t length = 105; length <= 108; length++) {
        memset(long_path, 'x', sizeof long_path);
        memcpy(long_path, "dir/", 4);
        long_path[length] = 0;
        int another = make(SOCK_STREAM);
        struct sockaddr_un a = address(long_path);
        SHOW(bind(another, (void *)&a, offsetof(struct sockaddr_un, sun_path) + length));
        names_of("long", another);
        listen(another, 1);
        int client = make(SOCK_STREAM);
        SHOW(connect(client, (void *)&a, offsetof(struct sockaddr_un, sun_path) + length));
        names_of("client", client);
        close(client); close(another); unlink(long_path);
    }
    /* Too small a room for the name. */
    char small[offsetof(struct sockaddr_un, sun_path) + 4];
    memset(small, 'z', sizeof small);
    socklen_t room = sizeof small;
    int relative = make(SOCK_STREAM);
    SHOW(bind_to(relative, "dir/relative"));
    SHOW(getsockname(relative, (void *)small, &room));
    printf("%.4s %d\n", small + offsetof(struct sockaddr_un, sun_path), (int)room);
    /* The mode is that of the socket, less the umask. */
    fd = make(SOCK_STREAM);
    SHOW(fchmod(fd, 0600));
    SHOW(bind_to(fd, "private")); show_stat("private");
    umask(0077);
    SHOW(bind_to(make(SOCK_STREAM), "masked")); show_stat("masked");
    umask(022);
    SHOW(chmod("masked", 0712)); show_stat("masked");
    /* No sockets, or of other families. */
    struct sockaddr_un a = address("none");
    SHOW(bind(0, (void *)&a, sizeof a));
    SHOW(bind(-1, (void *)&a, sizeof a));
    int file = open("file", O_RDONLY);
    SHOW(bind(file, (void *)&a, sizeof a));
    SHOW(connect(file, (void *)&a, sizeof a));
    int inet = MUST(socket(AF_INET, SOCK_STREAM, 0));
    SHOW(bind(inet, (void *)&a, sizeof a) < 0);
    SHOW(connect(inet, (void *)&a, sizeof a) < 0);
    show_stat("none");
    SHOW(open("private", O_RDONLY));
    SHOW(open("private", O_RDWR | O_NONBLOCK));
    SHOW(close(open("private", O_PATH)));
    SHOW(mknod("node", S_IFSOCK | 0640, 0)); show_stat("node");
    SHOW(connect_to(make(SOCK_STREAM), "node"));
    /* Unnamed and abstract ones are the kernel's. */
    fd = make(SOCK_STREAM);
    struct sockaddr_un abstract = {.sun_family = AF_UNIX};
    snprintf(abstract.sun_path + 1, 50, "arck-test-%d", getpid());
    SHOW(bind(fd, (void *)&abstract, offsetof(struct sockaddr_un, sun_path) + 20));
    fd = make(SOCK_DGRAM);
    SHOW(bind(fd, (void *)&abstract, sizeof abstract.sun_family));
    show_tree(".");
}

static void connecting(void) {
    puts("connecting");
    char path[300], byte = 0;
    int server = listening("server", SOCK_STREAM);
    int client = make(SOCK_STREAM);
    SHOW(connect_to(client, "server"));
    names_of("client", client);
    struct sockaddr_un a;
    socklen_t length = sizeof a;
    memset(&a, 0, sizeof a);
    int served = MUST(accept(server, (void *)&a, &length));
    named("accepted", &a, length); names_of("served", served);
    SHOW(write(client, "x", 1)); SHOW(read(served, &byte, 1));
    SHOW(connect_to(client, "server"));
    struct ucred who; socklen_t of = sizeof who;
    MUST(getsockopt(client, SOL_SOCKET, SO_PEERCRED, &who, &of)); printf("%d %d %d\n", who.pid == getpid(), who.uid, who.gid);
    MUST(getsockopt(served, SOL_SOCKET, SO_PEERCRED, &who, &of)); printf("%d %d %d\n", who.pid == getpid(), who.uid, who.gid);
    close(client); close(served);
    /* A client that has a name, too. */
    snprintf(path, sizeof path, "%s/work/client", top);
    client = make(SOCK_STREAM);
    MUST(bind_to(client, path));
    snprintf(path, sizeof path, "%s/work/server", top);
    SHOW(connect_to(client, path));
    memset(&a, 0, sizeof a); length = sizeof a;
    served = MUST(accept4(server, (void *)&a, &length, SOCK_CLOEXEC));
    named("accepted", &a, length); names_of("served", served); names_of("client", client);
    close(client); close(served); MUST(unlink("client"));
    /* By links, other names, another directory. */
    MUST(symlink("server", "to"));
    MUST(link("server", "second"));
    MUST(rename("server", "renamed"));
    SHOW(connect_to(make(SOCK_STREAM), "to"));
    SHOW(connect_to(make(SOCK_STREAM), "second"));
    SHOW(connect_to(make(SOCK_STREAM), "renamed"));
    names_of("server", server);
    MUST(chdir("dir"));
    SHOW(connect_to(make(SOCK_STREAM), "../renamed"));
    MUST(chdir(".."));
    /* Of another kind, or nothing. */
    SHOW(connect_to(make(SOCK_DGRAM), "renamed"));
    SHOW(connect_to(make(SOCK_SEQPACKET), "renamed"));
    SHOW(connect_to(make(SOCK_STREAM), "file"));
    SHOW(connect_to(make(SOCK_STREAM), "dir"));
    SHOW(connect_to(make(SOCK_STREAM), "missing"));
    SHOW(connect_to(make(SOCK_STREAM), "missing/x"));
    SHOW(connect_to(make(SOCK_STREAM), "file/x"));
    SHOW(connect_to(make(SOCK_STREAM), "dangling"));
    SHOW(connect_to(make(SOCK_STREAM), "renamed/"));
    /* Bound, and nobody listens; then nobody is there. */
    int silent = make(SOCK_STREAM);
    MUST(bind_to(silent, "silent"));
    SHOW(connect_to(make(SOCK_STREAM), "silent"));
    MUST(listen(silent, 1));
    SHOW(connect_to(make(SOCK_STREAM), "silent"));
    close(silent);
    SHOW(connect_to(make(SOCK_STREAM), "silent"));
    SHOW(bind_to(make(SOCK_STREAM), "silent"));
    MUST(unlink("silent"));
    silent = listening("silent", SOCK_STREAM);
    SHOW(connect_to(make(SOCK_STREAM), "silent"));
    MUST(unlink("silent"));
    SHOW(connect_to(make(SOCK_STREAM), "silent"));
    names_of("unlinked", silent);
    /* Another one of that name. */
    int other = listening("silent", SOCK_STREAM);
    client = make(SOCK_STREAM);
    SHOW(connect_to(client, "silent"));
    struct pollfd p[2] = {{silent, POLLIN, 0}, {other, POLLIN, 0}};
    while (accept4(silent, 0, 0, 0) >= 0 && poll(p, 1, 0) == 1) {}
    SHOW(poll(p, 2, 100)); printf("%x %x\n", p[0].revents, p[1].revents);
    close(silent); close(other); close(server);
}

static void packets(void) {
    puts("packets");
    char buffer[50];
    struct sockaddr_un a;
    socklen_t length;
    int server = make(SOCK_DGRAM), client = make(SOCK_DGRAM);
    MUST(bind_to(server, "dir/packets"));
    MUST(bind_to(client, "dir/sender"));
    struct sockaddr_un to = address("dir/packets");
    SHOW(sendto(client, "one", 3, 0, (void *)&to, size("dir/packets")));
    memset(&a, 0, sizeof a); length = sizeof a;
    SHOW(recvfrom(server, buffer, sizeof buffer, 0, (void *)&a, &length)); named("from", &a, length);
    SHOW(sendto(server, "back", 4, 0, (void *)&a, length));
    struct iovec part = {buffer, sizeof buffer};
    memset(&a, 0, sizeof a);
    struct msghdr message = {.msg_name = &a, .msg_namelen = sizeof a, .msg_iov = &part, .msg_iovlen = 1};
    SHOW(recvmsg(client, &message, 0)); named("from", &a, message.msg_namelen);
    part.iov_len = 3;
    message = (struct msghdr){.msg_name = &to, .msg_namelen = size("dir/packets"), .msg_iov = &part, .msg_iovlen = 1};
    SHOW(sendmsg(client, &message, 0));
    struct mmsghdr many[3] = {{message, 0}, {message, 0}, {message, 0}};
    struct sockaddr_un nowhere = address("dir/nowhere");
    SHOW(sendmmsg(client, many, 3, 0)); printf("%d %d %d\n", many[0].msg_len, many[1].msg_len, many[2].msg_len);
    many[1].msg_hdr.msg_name = &nowhere;
    SHOW(sendmmsg(client, many, 3, 0));
    many[0].msg_hdr.msg_name = &nowhere;
    SHOW(sendmmsg(client, many, 3, 0));
    struct sockaddr_un froms[3];
    char rooms[3][20];
    struct iovec parts[3];
    for (int i = 0; i < 3; i++) { parts[i] = (struct iovec){rooms[i], 20}; many[i].msg_hdr = (struct msghdr){.msg_name = &froms[i], .msg_namelen = sizeof froms[i], .msg_iov = &parts[i], .msg_iovlen = 1}; }
    memset(froms, 0, sizeof froms);
    SHOW(recvmmsg(server, many, 3, MSG_DONTWAIT, 0));
    for (int i = 0; i < 3; i++) named("each", &froms[i], many[i].msg_hdr.msg_namelen);
    while (recv(server, buffer, sizeof buffer, MSG_DONTWAIT) > 0) {}
    SHOW(connect_to(client, "dir/packets"));
    SHOW(send(client, "sent", 4, 0)); SHOW(recv(server, buffer, sizeof buffer, 0));
    names_of("client", client);
    SHOW(sendto(client, "x", 1, 0, (void *)&nowhere, sizeof nowhere));
    struct sockaddr none = {.sa_family = AF_UNSPEC};
    SHOW(connect(client, &none, sizeof none));
    SHOW(sendto(make(SOCK_DGRAM), "from nobody", 11, 0, (void *)&to, size("dir/packets")));
    memset(&a, 0, sizeof a); length = sizeof a;
    SHOW(recvfrom(server, buffer, sizeof buffer, 0, (void *)&a, &length)); printf("%d\n", (int)length);
    close(server);
    SHOW(sendto(client, "x", 1, 0, (void *)&to, size("dir/packets")));
    close(client);
    MUST(unlink("dir/packets")); MUST(unlink("dir/sender"));
    /* Sequenced packets between processes, with a descriptor of a file in them. */
    server = listening("sequenced", SOCK_SEQPACKET);
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        int fd = make(SOCK_SEQPACKET);
        if (connect_to(fd, "sequenced") < 0) _exit(1);
        int file = open("file", O_RDONLY);
        char control[CMSG_SPACE(sizeof file)];
        struct iovec one = {"here", 4};
        struct msghdr with = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
        struct cmsghdr *c = CMSG_FIRSTHDR(&with);
        c->cmsg_level = SOL_SOCKET; c->cmsg_type = SCM_RIGHTS; c->cmsg_len = CMSG_LEN(sizeof file);
        memcpy(CMSG_DATA(c), &file, sizeof file);
        if (sendmsg(fd, &with, 0) != 4) _exit(2);
        _exit(read(fd, buffer, 10) == 2 ? 0 : 3);
    }
    int served = MUST(accept(server, 0, 0)), got = -1;
    char control[CMSG_SPACE(sizeof got)];
    part = (struct iovec){buffer, sizeof buffer};
    message = (struct msghdr){.msg_iov = &part, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
    SHOW(recvmsg(served, &message, 0));
    memcpy(&got, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof got);
    SHOW(read(got, buffer, 10)); printf("%c\n", buffer[0]);
    SHOW(write(served, "ok", 2));
    int status; waitpid(child, &status, 0); printf("%x\n", status);
    close(served); close(server);
}

static volatile sig_atomic_t caught;
static void catch(int signal) { (void)signal; caught++; }
static void *accept_one(void *fd) { return (void *)(long)accept((int)(long)fd, 0, 0); }
static void waiting(void) {
    puts("waiting");
    /* A full queue: who does not wait is told, who does is interrupted, or waits on. */
    int server = make(SOCK_STREAM);
    MUST(bind_to(server, "full"));
    MUST(listen(server, 0));
    SHOW(connect_to(make(SOCK_STREAM), "full"));
    SHOW(connect_to(make(SOCK_STREAM | SOCK_NONBLOCK), "full"));
    struct sigaction action = {.sa_handler = catch};
    sigaction(SIGALRM, &action, 0);
    struct itimerval often = {{0, 40000}, {0, 60000}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &often, 0);
    SHOW(connect_to(make(SOCK_STREAM), "full"));
    setitimer(ITIMER_REAL, &none, 0);
    printf("%d\n", caught > 0);
    fflush(stdout);
    pid_t child = fork();
    if (!child) { usleep(200000); for (int i = 0; i < 2; i++) close(accept(server, 0, 0)); _exit(0); }
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, 0);
    caught = 0;
    setitimer(ITIMER_REAL, &often, 0);
    SHOW(connect_to(make(SOCK_STREAM), "full"));
    setitimer(ITIMER_REAL, &none, 0);
    printf("%d\n", caught > 0);
    int status; while (waitpid(child, &status, 0) < 0) {}
    close(server);
    server = listening("threads", SOCK_STREAM);
    pthread_t thread;
    void *result;
    pthread_create(&thread, 0, accept_one, (void *)(long)server);
    usleep(50000);
    SHOW(connect_to(make(SOCK_STREAM), "threads"));
    pthread_join(thread, &result);
    SHOW((long)result > 0);
    pthread_create(&thread, 0, accept_one, (void *)(long)server);
    usleep(50000);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    SHOW(result == PTHREAD_CANCELED);
    close(server);
    /* Many, one after another, each in a process of its own. */
    server = listening("many", SOCK_STREAM);
    int good = 0;
    for (int i = 0; i < 40; i++) {
        fflush(stdout);
        pid_t one = fork();
        if (!one) { int fd = make(SOCK_STREAM); _exit(connect_to(fd, "many") < 0 || write(fd, &i, sizeof i) != sizeof i); }
        int fd = accept(server, 0, 0), told = -1;
        good += read(fd, &told, sizeof told) == sizeof told && told == i;
        close(fd);
        waitpid(one, &status, 0);
        good += status == 0;
    }
    printf("%d\n", good);
    close(server);
}

static void others(void) {
    puts("others");
    int server = listening("inherited", SOCK_STREAM);
    fflush(stdout);
    pid_t child = fork();
    if (!child) { int fd = accept(server, 0, 0); dup2(fd, 1); names_of("child", fd); execlp("sh", "sh", "-c", "echo from a shell; cat file", NULL); _exit(9); }
    int client = make(SOCK_STREAM);
    MUST(connect_to(client, "inherited"));
    FILE *stream = fdopen(client, "r");
    char line[200];
    while (fgets(line, sizeof line, stream)) printf("told %s%s", line, strchr(line, '\n') ? "" : "\n");
    fclose(stream);
    int status; waitpid(child, &status, 0); printf("%x\n", status);
    close(server);
    MUST(rename("inherited", "dir/moved"));
    SHOW(connect_to(make(SOCK_STREAM), "dir/moved"));
    SHOW(rename("file", "dir/moved"));
    SHOW(connect_to(make(SOCK_STREAM), "dir/moved"));
    SHOW(unlink("dir/moved"));
    SHOW(bind_to(make(SOCK_STREAM), "dir/moved"));
}

int main(int argc, char **argv) {
    (void)argc;
    signal(SIGPIPE, SIG_IGN);
    top = argv[1];
    begin(argv);
    binding();
    connecting();
    packets();
    waiting();
    others();
    show_tree(".");
    return 0;
}
