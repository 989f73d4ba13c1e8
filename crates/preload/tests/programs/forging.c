/* A memory file that looks in all like what stands for a pool's file, sent by a process of another user, run
 * as root: to who receives it, it is the memory file that it is. */
#include "hands.h"
#include <sys/mman.h>

/* What stands in the page: the file's description, and from 1024 on the length of its path, and that. */
static int forge(const struct stat *of, const char *path) {
    unsigned long page[512] = {0}, length = strlen(path);
    memcpy(page, "ARCKDESC", 8);
    page[3] = of->st_ino; page[4] = 1; page[5] = O_RDWR; page[8] = 1;
    page[128] = length; memcpy(page + 129, path, length);
    int f = MUST(memfd_create("arck-description", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    MUST(write(f, page, sizeof page)); MUST(fcntl(f, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
    lseek(f, 0, SEEK_SET);
    return f;
}
/* As what the controller makes: a name that says which file it stands for, an empty file that is sealed and closed
 * to all, opened for nothing. */
static int forge_name(const struct stat *of) {
    char path[64], name[256];
    snprintf(name, sizeof name, "arck-description:00000000000000000000000000000000:%lu:1:2:0:0000000000000001", (unsigned long)of->st_ino);
    int f = MUST(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    MUST(fcntl(f, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_WRITE | F_SEAL_SEAL));
    snprintf(path, sizeof path, "/proc/self/fd/%d", f);
    int g = MUST(open(path, O_ACCMODE)); MUST(fchmod(f, 0)); close(f);
    return g;
}
/* What it is to whoever has it. */
static void look(const char *who, int f) {
    struct stat s; char text[9] = {0};
    printf("  %s:", who); if (fstat(f, &s)) printf(" %s", strerrorname_np(errno)); else printf(" %o of %d, %ld bytes, %ld links", s.st_mode, s.st_uid, (long)s.st_size, (long)s.st_nlink);
    long n = pread(f, text, 8, 0); printf(", reads %ld %s", n, n < 0 ? strerrorname_np(errno) : text);
    n = pwrite(f, "changed!", 8, 0); printf(", writes %ld %s", n, n < 0 ? strerrorname_np(errno) : "");
    n = pread(f, text, 8, 0); printf(", reads %ld %s", n, n < 0 ? strerrorname_np(errno) : text);
    n = ftruncate(f, 0); printf(", is cut %ld %s", n, n < 0 ? strerrorname_np(errno) : "");
    n = fchmod(f, 0640); printf(", is changed %ld %s\n", n, n < 0 ? strerrorname_np(errno) : ""); fflush(stdout);
}
static void between(uid_t sender, uid_t receiver, int executes, int by_name) {
    int s[2]; MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, s));
    printf("of %d to %d%s%s\n", sender, receiver, executes ? ", who executes a program" : "", by_name ? ", by its name" : ""); fflush(stdout);
    pid_t p = fork();
    if (!p) {
        struct stat of; char path[4200]; close(s[1]); snprintf(path, sizeof path, "%s/secret", top);
        become(sender); MUST(stat("secret", &of)); give(s[0], by_name ? forge_name(&of) : forge(&of, path)); fflush(stdout); _exit(0);
    }
    pid_t q = fork();
    if (!q) {
        close(s[0]); become(receiver);
        int known = open("secret", O_RDWR); printf("  secret: %s\n", known < 0 ? strerrorname_np(errno) : "its own");
        int f = take(s[1]);
        if (executes) { char n[12]; sprintf(n, "%d", f); fflush(stdout); execl(self, "child", "look", n, (char *)0); _exit(9); }
        look("receiver", f); fflush(stdout); _exit(0);
    }
    close(s[0]); close(s[1]);
    printf("  ended %d %d\n", ended(p), ended(q)); fflush(stdout);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "look")) { look("program", atoi(argv[2])); return 0; }
    begin(argv);
    MUST(chmod(".", 0755)); put("secret", "the secret"); MUST(chown("secret", 5678, 5678)); MUST(chmod("secret", 0600));
    for (int by_name = 0; by_name < 2; by_name++) for (int executes = 0; executes < 2; executes++) { between(1234, 5678, executes, by_name); between(1234, 4321, executes, by_name); between(1234, 0, executes, by_name); }
    show_file("secret");
    return 0;
}
