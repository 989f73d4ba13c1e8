/* Directories read while they change, by positions, and in small pieces. Orders differ between file systems, so what is
   shown is what must hold: names that are there during a whole scan are seen exactly once, and nothing that never was. */
#include "show.h"
#include <pthread.h>
#include <sys/wait.h>

struct entry { uint64_t inode; int64_t next; uint16_t length; uint8_t kind; char name[]; };
struct old_entry { unsigned long inode, next; unsigned short length; char name[]; };

enum { STABLE = 300 };
static int seen[STABLE], dots, others, unknown;
static void forget(void) { memset(seen, 0, sizeof seen); dots = others = unknown = 0; }
static void note(const char *name) {
    int n;
    if (!strcmp(name, ".") || !strcmp(name, "..")) dots++;
    else if (sscanf(name, "stable%d", &n) == 1 && n >= 0 && n < STABLE) seen[n]++;
    else if (!strncmp(name, "comes", 5) || !strncmp(name, "moves", 5)) others++;
    else unknown++;
}
static int wrong(void) { int w = unknown + (dots != 2); for (int i = 0; i < STABLE; i++) w += seen[i] != 1; return w; }

/* A whole scan by getdents64 with a buffer of `room` bytes; the errors seen. */
static int scan(int d, int room) {
    char buffer[70000];
    forget();
    MUST(lseek(d, 0, SEEK_SET));
    for (;;) {
        long n = syscall(SYS_getdents64, d, buffer, room);
        if (n < 0) return -errno;
        if (n == 0) return wrong();
        for (long at = 0; at < n;) { struct entry *e = (void *)(buffer + at); note(e->name); if (e->length == 0 || e->length % 8 || at + e->length > n) return -9999; at += e->length; }
    }
}

static volatile int stop;
static void *change(void *argument) {
    long me = (long)argument;
    for (unsigned i = 0; !stop; i++) {
        char a[40], b[40];
        snprintf(a, 40, "big/comes%ld-%u", me, i % 50); snprintf(b, 40, "big/moves%ld-%u", me, i % 50);
        int d = open(a, O_CREAT | O_WRONLY, 0644); if (d >= 0) close(d);
        if (i % 3 == 0) rename(a, b); else unlink(a);
        if (i % 3 == 1) unlink(b);
    }
    return 0;
}

int main(int argc, char **argv) {
    begin(argv);
    MUST(mkdir("big", 0755));
    for (int i = 0; i < STABLE; i++) { char n[200]; snprintf(n, 200, "big/stable%d%s", i, i % 7 == 0 ? "-with-a-longer-name-than-the-others-so-that-records-differ-in-length" : ""); put(n, ""); }
    /* Small buffers. */
    int d = MUST(open("big", O_RDONLY | O_DIRECTORY));
    for (int room = 0; room < 400; room += 8) { errno = 0; int r = scan(d, room); printf("room %d: %s\n", room, r == 0 ? "each once" : room < 96 && r == -EINVAL ? "EINVAL" : r < 0 ? strerrorname_np(-r) : "wrong"); }
    for (int room = 400; room < 70000; room = room * 3 / 2 + 1) printf("room %d: %d\n", room, scan(d, room));
    /* One that is too small changes nothing. */
    MUST(lseek(d, 0, SEEK_SET)); char b[70000]; SHOW(syscall(SYS_getdents64, d, b, 24) > 0); SHOW(syscall(SYS_getdents64, d, b, 10)); SHOW(syscall(SYS_getdents64, d, b, 24) > 0); SHOW(syscall(SYS_getdents64, d, b, 0)); SHOW(syscall(SYS_getdents64, d, b, 70000) > 5000); SHOW(syscall(SYS_getdents64, d, b, 70000)); SHOW(syscall(SYS_getdents64, d, b, 1)); SHOW(syscall(SYS_getdents64, d, b, 0));
    SHOW(read(d, b, 10)); SHOW(pread(d, b, 10, 0)); SHOW(write(d, b, 1)); SHOW(lseek(d, -1, SEEK_SET)); SHOW(lseek(d, 0, SEEK_END) < 0); SHOW(lseek(d, 0, SEEK_DATA) < 0); SHOW(lseek(d, 0, SEEK_HOLE) < 0); SHOW(lseek(d, 0, 77)); SHOW(lseek(d, 0, SEEK_SET)); SHOW(lseek(d, 0, SEEK_CUR));
    /* The older call. */
    forget(); MUST(lseek(d, 0, SEEK_SET)); int kinds = 0;
    for (long n; (n = syscall(SYS_getdents, d, b, 500)) != 0;) { if (n < 0) { printf("getdents: %s\n", strerrorname_np(errno)); break; } for (long at = 0; at < n;) { struct old_entry *e = (void *)(b + at); note(e->name); kinds += b[at + e->length - 1] == DT_REG; at += e->length; } }
    printf("getdents: %d wrong, %d files\n", wrong(), kinds); SHOW(syscall(SYS_getdents, d, (void *)8, 500)); MUST(lseek(d, 0, SEEK_SET)); SHOW(syscall(SYS_getdents, d, (void *)8, 500)); SHOW(syscall(SYS_getdents, d, b, 10));
    /* Anywhere at all: whole names or nothing. */
    int strange = 0; for (long at = 0; at < 40000; at += 13) { if (lseek(d, at, SEEK_SET) != at) strange++; forget(); for (long n; (n = syscall(SYS_getdents64, d, b, 1000)) > 0;) for (long p = 0; p < n;) { struct entry *e = (void *)(b + p); note(e->name); p += e->length; } strange += unknown; for (int i = 0; i < STABLE; i++) strange += seen[i] > 1; if (at > 1000) at += 999; }
    SHOW(strange); SHOW(lseek(d, 1l << 40, SEEK_SET) == 1l << 40); SHOW(lseek(d, 0, SEEK_SET));
    /* telldir, seekdir, rewinddir. */
    DIR *s = opendir("big"); static long places[STABLE + 10]; static char names[STABLE + 10][300]; int count = 0;
    for (;;) { places[count] = telldir(s); struct dirent *e = readdir(s); if (!e) break; strcpy(names[count++], e->d_name); }
    SHOW(count); int differ = 0; unsigned random = 12345;
    for (int i = 0; i < 1000; i++) { random = random * 1103515245 + 12345; int k = (random >> 8) % count; seekdir(s, places[k]); differ += telldir(s) != places[k]; for (int j = k; j < count && j < k + 3; j++) { struct dirent *e = readdir(s); differ += !e || strcmp(e->d_name, names[j]); } }
    SHOW(differ); seekdir(s, places[count]); SHOW(readdir(s) == 0); for (int i = 0; i < count; i++) for (int j = 0; j < i; j++) differ += places[i] == places[j]; SHOW(differ);
    rewinddir(s); differ = 0; for (int i = 0; i < count; i++) { struct dirent *e = readdir(s); differ += !e || strcmp(e->d_name, names[i]); } SHOW(differ); SHOW(readdir(s) == 0); SHOW(readdir(s) == 0);
    /* What comes after the end is seen by rewinding; what went is not. */
    put("big/comes-late", ""); MUST(unlink("big/stable5")); rewinddir(s); forget(); for (struct dirent *e; (e = readdir(s));) note(e->d_name); printf("%d %d %d %d\n", seen[5], others, unknown, dots); put("big/stable5", ""); MUST(unlink("big/comes-late"));
    /* A place told before is one to go back to while names go. */
    rewinddir(s); for (int i = 0; i < 100; i++) readdir(s); long place = telldir(s); struct dirent *e = readdir(s); char next[300]; strcpy(next, e->d_name); int gone = 0;
    for (int i = 0; i < 50; i++) { char n[330]; snprintf(n, 330, "big/%s", names[i]); if (names[i][0] != '.') gone += unlink(n) == 0; }
    seekdir(s, place); e = readdir(s); SHOW(gone > 40); printf("%d\n", e && !strcmp(e->d_name, next));
    for (int i = 0; i < 50; i++) { char n[330]; snprintf(n, 330, "big/%s", names[i]); if (names[i][0] != '.') put(n, ""); }
    closedir(s);
    /* Two descriptors of one description, and two of their own. */
    int two = dup(d); MUST(lseek(d, 0, SEEK_SET)); forget(); for (int turn = 0;; turn++) { long n = syscall(SYS_getdents64, turn % 2 ? d : two, b, 300); if (n <= 0) break; for (long p = 0; p < n;) { struct entry *x = (void *)(b + p); note(x->name); p += x->length; } } SHOW(wrong()); SHOW(lseek(d, 0, SEEK_CUR) == lseek(two, 0, SEEK_CUR)); close(two);
    two = MUST(open("big", O_RDONLY)); MUST(lseek(d, 0, SEEK_SET)); SHOW(syscall(SYS_getdents64, d, b, 3000) > 0); SHOW(scan(two, 1000)); SHOW(lseek(two, 0, SEEK_CUR) != 0); close(two);
    /* All is removed as it is read: each name once, and the directory empty at the end. */
    MUST(mkdir("rm", 0755)); for (int i = 0; i < 1000; i++) { char n[40]; snprintf(n, 40, "rm/f%d", i); put(n, ""); }
    s = opendir("rm"); count = 0; int failed = 0; while ((e = readdir(s))) if (e->d_name[0] != '.') { count++; failed += unlinkat(dirfd(s), e->d_name, 0) != 0; } closedir(s); SHOW(count); SHOW(failed); SHOW(rmdir("rm"));
    /* While others create, remove and rename. */
    pthread_t threads[2]; for (long i = 0; i < 2; i++) pthread_create(&threads[i], 0, change, (void *)i);
    int bad = 0; for (int i = 0; i < 150; i++) bad += scan(d, i % 3 == 0 ? 128 : i % 3 == 1 ? 1000 : 60000) != 0;
    for (int i = 0; i < 50; i++) { s = opendir("big"); forget(); while ((e = readdir(s))) note(e->d_name); closedir(s); bad += wrong() != 0; }
    stop = 1; for (int i = 0; i < 2; i++) pthread_join(threads[i], 0);
    SHOW(bad); SHOW(scan(d, 1000));
    /* And while another process does. */
    int child = fork(); if (child == 0) { for (int i = 0; i < 3000; i++) { char n[40]; snprintf(n, 40, "big/comes9-%d", i % 20); int f = open(n, O_CREAT | O_WRONLY, 0644); if (f >= 0) close(f); unlink(n); } _exit(0); }
    bad = 0; for (int i = 0, status; waitpid(child, &status, WNOHANG) == 0 && i < 100000; i++) bad += scan(d, 500) != 0; SHOW(bad); SHOW(scan(d, 500));
    /* Removed beneath. */
    MUST(mkdir("gone", 0755)); int g = MUST(open("gone", O_RDONLY)); SHOW(syscall(SYS_getdents64, g, b, 24) > 0); MUST(rmdir("gone")); SHOW(syscall(SYS_getdents64, g, b, 1000)); MUST(lseek(g, 0, SEEK_SET)); SHOW(syscall(SYS_getdents64, g, b, 1000)); close(g);
    MUST(mkdir("gone", 0755)); MUST(mkdir("gone/x", 0755)); put("gone/y", ""); s = opendir("gone"); readdir(s); MUST(rmdir("gone/x")); MUST(unlink("gone/y")); MUST(rmdir("gone")); rewinddir(s); errno = 0; e = readdir(s); printf("%d %s\n", e != 0, errno ? strerrorname_np(errno) : ""); closedir(s);
    int f = MUST(open("big/stable1", O_RDONLY)); SHOW(syscall(SYS_getdents64, f, b, 100)); close(f); SHOW(syscall(SYS_getdents64, 77, b, 100)); SHOW((long)opendir("big/stable1")); SHOW((long)opendir("missing")); SHOW((long)opendir("")); SHOW((long)fdopendir(77));
    /* Kinds and inode numbers are stat's. */
    MUST(symlink("x", "big/comes-link")); MUST(mkfifo("big/comes-pipe", 0644)); MUST(mkdir("big/comes-dir", 0755)); s = opendir("big"); differ = 0; while ((e = readdir(s))) { struct stat st; fstatat(dirfd(s), e->d_name, &st, AT_SYMLINK_NOFOLLOW); differ += e->d_ino != st.st_ino && strcmp(e->d_name, ".."); differ += e->d_type != DT_UNKNOWN && e->d_type != IFTODT(st.st_mode); } SHOW(differ); closedir(s);
    return 0;
}
