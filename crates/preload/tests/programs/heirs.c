/* Descriptors that another user's process is handed, run as root: by fork, by exec, in a message, and by
 * becoming somebody else. Whoever has one has that file in the mode in which it was opened, and nothing more;
 * and what he does with it leads nobody else to another file. */
#include "hands.h"
#include <dirent.h>
#include <sys/file.h>
#include <sys/mman.h>

static const char *kinds[] = {"read", "write", "both", "append", "path", "directory", "nameless", "unlinked"};
static const char *ways[] = {"fork", "exec", "message", "setuid"};
static const char *error(long r) { return r < 0 ? strerrorname_np(errno) : "ok"; }

static int open_kind(int kind) {
    int f;
    switch (kind) {
    case 0: return MUST(open("secret", O_RDONLY));
    case 1: return MUST(open("secret", O_WRONLY));
    case 2: return MUST(open("secret", O_RDWR));
    case 3: return MUST(open("secret", O_RDWR | O_APPEND));
    case 4: return MUST(open("secret", O_PATH));
    case 5: return MUST(open("closed", O_RDONLY | O_DIRECTORY));
    case 6: f = MUST(open(".", O_RDWR | O_TMPFILE, 0600)); break;
    default: f = MUST(open("gone", O_RDWR | O_CREAT, 0600)); MUST(unlink("gone"));
    }
    MUST(write(f, "0123456789", 10));
    return f;
}
static void use(const char *who, int f) {
    struct stat s;
    char text[8] = {0};
    printf("    %s: %s", who, error(fstat(f, &s)));
    printf(" %o of %d, %ld links, flags %o", s.st_mode, s.st_uid, S_ISDIR(s.st_mode) ? 0L : (long)s.st_nlink, fcntl(f, F_GETFL) & ~0100000);
    if (S_ISDIR(s.st_mode)) {
        DIR *d = fdopendir(dup(f));
        int n = 0;
        rewinddir(d);
        for (struct dirent *e; (e = readdir(d));) n += e->d_name[0] == 'i';
        closedir(d);
        printf(", lists %d", n);
        int g = openat(f, "inside", O_RDONLY); printf(", opens %s", error(g)); if (g >= 0) close(g);
    } else {
        printf(", %ld bytes, at %s", (long)s.st_size, error(lseek(f, 1, SEEK_SET)));
        long n = read(f, text, 3); printf(", reads %s %s", error(n), n > 0 ? text : "");
        printf(", at %ld", (long)lseek(f, 0, SEEK_CUR));
        n = write(f, "W", 1); printf(", writes %s", error(n)); printf(", at %ld", (long)lseek(f, 0, SEEK_CUR));
        n = pread(f, text, 3, 0); printf(", reads %s %s", error(n), n > 0 ? text : "");
        n = pwrite(f, "P", 1, 7); printf(", writes %s", error(n));
        printf(", cut %s", error(ftruncate(f, 9)));
    }
    printf(", changed %s\n", error(geteuid() ? fchmod(f, 0666) : 0));
    fflush(stdout);
}
static void use_all(const char *who, int f) {
    use(who, f);
    int g = dup(f);
    close(f);
    use("duplicate", g);
    close(g);
    /* It is that file, and no other; and no longer than it is open. */
    g = open("secret", O_RDONLY); printf("    by name: %s", error(g)); if (g >= 0) close(g);
    g = open("secret", O_WRONLY); printf(" %s", error(g)); if (g >= 0) close(g);
    g = open("closed/inside", O_RDONLY); printf(" %s", error(g)); if (g >= 0) close(g);
    printf(" %s\n", error(fcntl(f, F_GETFD))); fflush(stdout);
}
static void hand(int kind, int way, uid_t heir) {
    int s[2], f = -1;
    printf("  %s by %s to %d\n", kinds[kind], ways[way], heir); fflush(stdout);
    put("secret", "0123456789"); MUST(chmod("secret", 0600));
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, s));
    if (way != 2) f = open_kind(kind);
    pid_t p = fork();
    if (!p) {
        close(s[0]);
        become(heir);
        if (way == 2) f = take(s[1]);
        if (way == 1) { char n[12]; sprintf(n, "%d", f); fflush(stdout); execl(self, "child", "use", top, n, (char *)0); _exit(9); }
        use_all("heir", f); fflush(stdout); _exit(0);
    }
    close(s[1]);
    if (way == 2) { f = open_kind(kind); give(s[0], f); }
    /* What has no name is the heir's alone. */
    int keeps = kind < 6;
    if (!keeps) close(f);
    close(s[0]);
    printf("  ended %d", ended(p));
    if (keeps) { printf(", at %ld\n", kind < 4 ? (long)lseek(f, 0, SEEK_CUR) : 0L); fflush(stdout); use("giver", f); close(f); }
    printf("\n"); show_file("secret");
}
static void becomes(void) {
    int all[8];
    for (int i = 0; i < 8; i++) all[i] = open_kind(i);
    become(1234);
    for (int i = 0; i < 8; i++) { printf("  %s by %s\n", kinds[i], ways[3]); use_all("process", all[i]); }
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[1], "use")) { top = argv[2]; use_all("program", atoi(argv[3])); return 0; }
    begin(argv);
    MUST(chmod(".", 0755)); put("secret", "0123456789"); MUST(chmod("secret", 0600));
    MUST(mkdir("closed", 0700)); put("closed/inside", "inside"); put("closed/inner", "inner");
    for (int way = 0; way < 3; way++) for (int kind = 0; kind < 8; kind++) { hand(kind, way, 1234); if (kind < 3) hand(kind, way, 0); }
    put("secret", "0123456789");
    fflush(stdout);
    pid_t p = fork();
    if (!p) { becomes(); fflush(stdout); _exit(0); }
    printf("ended %d\n", ended(p)); show_file("secret");
    return 0;
}
