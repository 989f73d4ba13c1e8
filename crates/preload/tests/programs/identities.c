/* Processes that change who they are, run as root: what they may do by paths and by what they had open
 * before, and again when they go back. */
#include "told.h"
#include <grp.h>
#include <linux/capability.h>
#include <pthread.h>
#include <sys/mman.h>

static int old[12], count;
static const char *names[] = {"secret", "public", "own", "groups", "closed/inside", "open/anybodys", "sticky/roots", "own-directory/file", "missing"};
#define NAMES 9
static const char *error(long r) { return r < 0 ? strerrorname_np(errno) : "ok"; }

static void try_paths(void) {
    char name[64];
    struct stat s;
    for (int i = 0; i < NAMES; i++) {
        const char *n = names[i];
        printf("    %s:", n);
        int f = open(n, O_RDONLY); printf(" %s", error(f)); if (f >= 0) { char c; printf(" %s", error(read(f, &c, 1))); close(f); }
        f = open(n, O_RDWR); printf(" %s", error(f)); if (f >= 0) { printf(" %s", error(write(f, "w", 1))); close(f); }
        printf(" %s", error(stat(n, &s))); if (errno == 0 || !stat(n, &s)) printf(" %o %d %d", s.st_mode, s.st_uid, s.st_gid);
        if (i != 4) printf(" %s", error(access(n, W_OK))); printf(" %s", error(faccessat(AT_FDCWD, n, R_OK, AT_EACCESS)));
        printf(" %s", error(chmod(n, s.st_mode & 07777))); printf(" %s", error(truncate(n, 3))); printf(" %s", error(utimensat(AT_FDCWD, n, 0, 0))); printf(" %s", error(chown(n, 1234, -1)));
        if (s.st_uid != 1234 && !stat(n, &s) && s.st_uid == 1234) { printf(" given"); chown(n, 0, -1); }
        snprintf(name, sizeof name, "%s.moved", n); long r = rename(n, name); printf(" %s", error(r)); if (!r) rename(name, n);
        printf("\n");
    }
    const char *in[] = {".", "closed", "open", "sticky", "own-directory", "set-group"};
    for (int i = 0; i < 6; i++) {
        snprintf(name, sizeof name, "%s/fresh", in[i]);
        int f = open(name, O_RDWR | O_CREAT | O_EXCL, 0640); printf("    in %s: %s", in[i], error(f));
        if (f >= 0) { fstat(f, &s); printf(" %o %d %d wrote %s", s.st_mode, s.st_uid, s.st_gid, error(write(f, "x", 1))); close(f); }
        snprintf(name, sizeof name, "%s/new", in[i]); printf(" %s", error(mkdir(name, 0755)));
        if (!stat(name, &s)) printf(" %d %d", s.st_uid, s.st_gid);
        printf(" %s", error(rmdir(name))); snprintf(name, sizeof name, "%s/fresh", in[i]); printf(" %s\n", error(unlink(name)));
    }
    fflush(stdout);
}
static void try_descriptors(void) {
    struct stat s;
    char c;
    for (int i = 0; i < count; i++) {
        printf("    %d: %s", i, error(pread(old[i], &c, 1, 0))); printf(" %s", error(pwrite(old[i], "o", 1, 0))); printf(" %s", error(read(old[i], &c, 1)));
        printf(" %s", error(fstat(old[i], &s))); printf(" %o %ld", s.st_mode, (long)s.st_size); printf(" %s", error(ftruncate(old[i], 3))); printf(" %s", error(fsync(old[i])));
        printf(" %s", error(fchmod(old[i], s.st_mode & 07777))); printf(" at %ld", (long)lseek(old[i], 0, SEEK_CUR)); lseek(old[i], 0, SEEK_SET);
        int f = openat(old[i], "inside", O_RDONLY); printf(" %s\n", error(f)); if (f >= 0) close(f);
    }
    fflush(stdout);
}
static void who(const char *name) {
    gid_t groups[20]; uid_t r, e, s; gid_t rg, eg, sg; int n = getgroups(20, groups);
    getresuid(&r, &e, &s); getresgid(&rg, &eg, &sg);
    printf("  %s: %d %d %d, %d %d %d,", name, r, e, s, rg, eg, sg);
    for (int i = 0; i < n; i++) printf(" %d", groups[i]);
    char here[4096]; printf(" in %s\n", getcwd(here, sizeof here) ? cut(here) : error(-1)); fflush(stdout);
}
static int descriptors_too;
static void try_all(const char *name) { who(name); if (descriptors_too) try_descriptors(); try_paths(); }

static void capabilities(unsigned long long kept) {
    struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct d[2];
    MUST(syscall(SYS_capget, &h, d));
    d[0].effective &= kept; d[1].effective &= kept >> 32; if (!kept) memset(d, 0, sizeof d);
    MUST(syscall(SYS_capset, &h, d));
}
static void nobody(void) { MUST(setuid(1000)); try_all("setuid"); printf("  back %s %s\n", error(setuid(0)), error(seteuid(0))); try_all("still"); }
static void daemon_like(void) { gid_t g[] = {2000, 2001}; MUST(setgroups(2, g)); MUST(setgid(1000)); MUST(setuid(1000)); try_all("all three"); }
static void groups_alone(void) { gid_t g[] = {2000}; MUST(setgroups(1, g)); MUST(setegid(1000)); MUST(seteuid(1001)); try_all("another in the group"); MUST(seteuid(0)); MUST(setgroups(0, 0)); MUST(seteuid(1001)); try_all("not any more"); MUST(seteuid(0)); MUST(setegid(2000)); MUST(seteuid(1001)); try_all("by the group itself"); }
static void there_and_back(void) { MUST(seteuid(1000)); try_all("seteuid"); MUST(seteuid(0)); try_all("back"); MUST(seteuid(1000)); try_all("again"); }
static void saved(void) { MUST(setresuid(1000, 1000, 0)); try_all("saved 0"); MUST(setresuid(-1, 0, -1)); try_all("effective 0"); MUST(setresuid(1000, 1000, 1000)); try_all("for good"); printf("  back %s\n", error(setresuid(-1, 0, -1))); }
static void real_alone(void) { MUST(setreuid(1000, -1)); try_all("real 1000"); MUST(setreuid(-1, 1000)); try_all("effective too"); }
static void group_alone(void) { MUST(setresgid(2000, 2000, 0)); try_all("root of another group"); MUST(setgid(0)); MUST(setregid(-1, 2001)); who("setregid"); }
static void initialized(void) { MUST(initgroups("root", 2000)); MUST(setuid(1001)); try_all("initgroups"); }
static void then_forks(void) { MUST(setuid(1000)); pid_t p = fork(); if (!p) { try_all("child"); fflush(stdout); _exit(3); } printf("  %d\n", ended(p)); int s = system("cat public own; cat secret; id -u; echo x >by-shell || echo no"); printf("  system %d\n", WEXITSTATUS(s)); }
static void raw_call(void) { MUST(syscall(SYS_setuid, 1000)); try_all("raw"); }
static void fails(void) { MUST(seteuid(1000)); printf("  %s", error(setuid(1001))); printf(" %s", error(setgid(2000))); printf(" %s", error(setgroups(0, 0))); printf(" %s\n", error(setresuid(1001, -1, -1))); try_all("failed"); }
static void *works(void *go_on) { while (!__atomic_load_n((int *)go_on, __ATOMIC_ACQUIRE)) { struct stat s; stat("public", &s); int f = open("public", O_RDONLY); char c; read(f, &c, 1); close(f); } int f = open("secret", O_RDONLY); printf("  thread: %d %s\n", geteuid(), error(f)); fflush(stdout); if (f >= 0) close(f); return 0; }
static void threads(void) { int go_on = 0; pthread_t t[3]; for (int i = 0; i < 3; i++) pthread_create(&t[i], 0, works, &go_on); usleep(20000); MUST(setuid(1000)); who("with threads"); printf("  %s\n", error(open("secret", O_RDONLY))); fflush(stdout); __atomic_store_n(&go_on, 1, __ATOMIC_RELEASE); for (int i = 0; i < 3; i++) pthread_join(t[i], 0); }
static void no_capabilities(void) { capabilities(0); try_all("root without capabilities"); }

static const struct { const char *name; void (*run)(void); } cases[] = {{"nobody", nobody}, {"daemon", daemon_like}, {"groups", groups_alone}, {"there and back", there_and_back}, {"saved", saved}, {"real", real_alone}, {"group", group_alone}, {"initialized", initialized}, {"forks", then_forks}, {"raw", raw_call}, {"fails", fails}, {"threads", threads}, {"no capabilities", no_capabilities}};

static void file(const char *n, int mode, int uid, int gid) { put(n, "abc"); MUST(chown(n, uid, gid)); MUST(chmod(n, mode)); }
static void directory(const char *n, int mode, int uid, int gid) { MUST(mkdir(n, 0700)); MUST(chown(n, uid, gid)); MUST(chmod(n, mode)); }

int main(int argc, char **argv) {
    begin(argv);
    MUST(chmod(".", 0755));
    descriptors_too = argc > 2 && !strcmp(argv[2], "descriptors");
    gid_t none[1]; MUST(setgroups(0, none));
    directory("closed", 0700, 0, 0); directory("open", 0777, 0, 0); directory("sticky", 01777, 0, 0); directory("own-directory", 0755, 1000, 1000); directory("set-group", 02777, 0, 2001);
    file("secret", 0600, 0, 0); file("public", 0644, 0, 0); file("own", 0600, 1000, 1000); file("groups", 0660, 0, 2000); file("closed/inside", 0644, 0, 0); file("open/anybodys", 0666, 0, 0); file("sticky/roots", 0666, 0, 0); file("own-directory/file", 0644, 0, 0);
    for (int i = 0; i < 5; i++) old[count++] = MUST(open(names[i], i % 2 ? O_RDONLY : O_RDWR));
    old[count++] = MUST(open("closed", O_RDONLY | O_DIRECTORY)); old[count++] = MUST(open("secret", O_WRONLY | O_APPEND)); old[count++] = MUST(open("open/unlinked", O_RDWR | O_CREAT, 0600)); MUST(write(old[count - 1], "abc", 3)); MUST(unlink("open/unlinked"));
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (argc > 3 && strcmp(argv[3], cases[i].name)) continue;
        printf("%s\n", cases[i].name); fflush(stdout);
        pid_t p = fork();
        if (!p) { struct stat s; fstat(old[0], &s); MUST(stat("public", &s)); cases[i].run(); fflush(stdout); _exit(7); }
        printf("  ended %d\n", ended(p)); fflush(stdout);
    }
    return 0;
}
