/* Descriptors that one thread replaces or closes while another uses them, by every way of using them,
   and opens for which there is no number. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#define CHECK(x) do { if (!(x)) { printf("line %d: %s: %s\n", __LINE__, #x, strerror(errno)); exit(1); } } while (0)
#define ROUNDS 5000
#define SIGNALS 1000
static char one[4096], two[4096], three[4096];
static atomic_int done, wrong;
static int uses;
static int replaced;
static atomic_int shared;

static void on_alarm(int s) { (void)s; }
static int make(const char *path) { int f = open(path, O_RDWR | O_CREAT, 0644); CHECK(f >= 0 && write(f, "text", 4) == 4); return f; }
static ino_t number(int f) { struct stat s; return fstat(f, &s) == 0 ? s.st_ino : 0; }

static void *use_replaced(void *a) {
    char c;
    /* At least 1000 times, however fast the others are. */
    for (uses = 0; !done || uses < 1000; uses++) if (pread(replaced, &c, 1, 0) != 1 || number(replaced) == 0) wrong++;
    return a;
}
static void replace(const char *name, const char *first, const char *second) {
    pthread_t t;
    int a = open(first, O_RDONLY), b = open(second, O_RDONLY);
    CHECK(a >= 0 && b >= 0 && (replaced = open(first, O_RDONLY)) >= 0);
    done = wrong = 0;
    CHECK(pthread_create(&t, 0, use_replaced, 0) == 0);
    for (int i = 0; i < ROUNDS; i++) CHECK(dup2(b, replaced) == replaced && dup2(a, replaced) == replaced);
    done = 1;
    CHECK(pthread_join(t, 0) == 0);
    printf("dup2, %s: %d wrong\n", name, wrong);
    close(a); close(b); close(replaced);
}

static const char *names[2];
static int how;
static atomic_int replacements;
/* The next only after this one, and each time after another while: it stops the thread anywhere. */
static void again(void) { struct itimerval soon = {{0, 0}, {0, 20 + replacements * 37 % 71}}; setitimer(ITIMER_REAL, &soon, 0); }
static void replace_now(int s) {
    (void)s;
    /* What is opened here is closed for good by the next one. */
    int e = errno, f = open(names[(replacements + 1) % 2], how);
    if (f < 0 || dup2(f, replaced) != replaced || close(f)) wrong++;
    replacements++;
    again();
    errno = e;
}
/* What is done with a descriptor that is replaced meanwhile, each time as if it were not. */
static int other, ends[2];
static char text[8];
static int use_pread(void) { return pread(replaced, text, 1, 0) == 1; }
static int is_copy(int d) { int good = d >= 0 && pread(d, text, 1, 0) == 1; return d < 0 || close(d) ? 0 : good; }
static int use_dup(void) { return is_copy(dup(replaced)); }
static int use_dup2(void) { return is_copy(dup2(replaced, 90)); }
static int use_dupfd(void) { return is_copy(fcntl(replaced, F_DUPFD, 0)); }
static int use_dupfd_above(void) { return is_copy(fcntl(replaced, F_DUPFD_CLOEXEC, 40)); }
static int use_getfl(void) { int flags = fcntl(replaced, F_GETFL); return flags >= 0 && (flags & O_ACCMODE) == O_RDWR && fcntl(replaced, F_SETFL, 0) == 0; }
static int use_locks(void) {
    struct flock l = {.l_type = F_WRLCK, .l_len = 4}, g = l;
    int taken = fcntl(replaced, F_SETLK, &l);
    return taken == 0 && fcntl(replaced, F_GETLK, &g) == 0 && g.l_type == F_UNLCK && flock(replaced, LOCK_SH | LOCK_NB) == 0 && flock(replaced, LOCK_UN) == 0;
}
static int use_stat(void) { struct stat s; return fstat(replaced, &s) == 0 && s.st_size == 4 && lseek(replaced, 0, SEEK_END) == 4 && fstatat(replaced, "", &s, AT_EMPTY_PATH) == 0 && s.st_size == 4 && fsync(replaced) == 0; }
static int use_ioctl(void) { int waiting = -1; return lseek(replaced, 0, SEEK_SET) == 0 && ioctl(replaced, FIONREAD, &waiting) == 0 && waiting == 4; }
static int use_mmap(void) { char *m = mmap(0, 4, PROT_READ, MAP_SHARED, replaced, 0); int good = m != MAP_FAILED && *m == 't'; return m == MAP_FAILED || munmap(m, 4) ? 0 : good; }
static int use_sendfile(void) { off_t at = 0; return sendfile(other, replaced, &at, 4) == 4 && lseek(other, 0, SEEK_SET) == 0; }
static int use_copy(void) { off_t from = 0, to = 0; return (copy_file_range(replaced, &from, other, &to, 4, 0) == 4 || errno == EXDEV) && ((from = to = 0, copy_file_range(other, &from, replaced, &to, 4, 0) == 4) || errno == EXDEV); }
static int use_splice(void) {
    off_t from = 0, to = 0;
    if (splice(replaced, &from, ends[1], 0, 4, 0) != 4) return 0;
    if (splice(ends[0], 0, replaced, &to, 4, 0) == 4) return 1;
    (void)!read(ends[0], text, 4);
    return 0;
}
static int use_at(void) { struct stat s; int d = openat(replaced, "f", O_RDONLY); return is_copy(d) && fstatat(replaced, "f", &s, 0) == 0 && s.st_size == 4 && faccessat(replaced, "f", R_OK, 0) == 0 && readlinkat(replaced, "l", text, 8) == 1 && faccessat(replaced, "missing", F_OK, 0) == -1 && errno == ENOENT; }
static int use_names(void) {
    /* Where they are made changes all the time. */
    if (mkdirat(replaced, "d", 0755) && errno != EEXIST) return 0;
    if (unlinkat(replaced, "d", AT_REMOVEDIR) && errno != ENOENT) return 0;
    if (linkat(replaced, "f", replaced, "g", 0) && errno != EEXIST && errno != EXDEV) return 0;
    if (renameat(replaced, "g", replaced, "h") && errno != ENOENT && errno != EXDEV) return 0;
    return fchmodat(replaced, "f", 0644, 0) == 0 && utimensat(replaced, "f", 0, 0) == 0;
}
static int use_itself(void) { struct stat s; return fstat(replaced, &s) == 0 && S_ISDIR(s.st_mode) && fchdir(replaced) == 0 && chdir("/") == 0; }
static const struct { const char *name; int (*use)(void); } uses_of_files[] = {{"pread", use_pread}, {"dup", use_dup}, {"dup2", use_dup2}, {"F_DUPFD", use_dupfd}, {"F_DUPFD above", use_dupfd_above}, {"F_GETFL", use_getfl}, {"locks", use_locks}, {"fstat", use_stat}, {"ioctl", use_ioctl}, {"mmap", use_mmap}, {"sendfile", use_sendfile}, {"copy_file_range", use_copy}, {"splice", use_splice}, {0, 0}}, uses_of_directories[] = {{"at", use_at}, {"names", use_names}, {"itself", use_itself}, {0, 0}};

/* Replaced while the thread that uses it is stopped, also where it has looked up the number and not
   yet used what it found. */
static void replace_by_signals(const char *name, const char *first, const char *second) {
    struct stat s;
    struct sigaction action = {.sa_handler = replace_now, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    CHECK(stat(first, &s) == 0);
    how = S_ISDIR(s.st_mode) ? O_RDONLY : O_RDWR;
    for (int i = 0; (S_ISDIR(s.st_mode) ? uses_of_directories : uses_of_files)[i].use; i++) {
        int (*use)(void) = (S_ISDIR(s.st_mode) ? uses_of_directories : uses_of_files)[i].use;
        names[0] = first; names[1] = second;
        CHECK((replaced = open(first, how)) >= 0);
        wrong = replacements = 0;
        again();
        while (replacements < SIGNALS) if (!use()) wrong++;
        struct itimerval never = {0};
        CHECK(setitimer(ITIMER_REAL, &never, 0) == 0);
        printf("dup2 by signals, %s, %s: %d wrong\n", name, (S_ISDIR(s.st_mode) ? uses_of_directories : uses_of_files)[i].name, wrong);
        close(replaced);
    }
}

static void *duplicate_shared(void *a) {
    ino_t numbers[2] = {0, 0};
    struct stat s;
    CHECK(stat(one, &s) == 0); numbers[0] = s.st_ino;
    CHECK(stat(two, &s) == 0); numbers[1] = s.st_ino;
    while (!done) {
        int f = shared, d = f < 0 ? -1 : dup(f);
        if (d >= 0) {
            ino_t n = number(d);
            if ((n != numbers[0] && n != numbers[1]) || close(d)) wrong++;
        }
        int other = open(two, O_RDONLY);
        if (other < 0 || number(other) != numbers[1] || close(other)) wrong++;
    }
    return a;
}

int main(int argc, char **argv) {
    struct stat s;
    snprintf(one, sizeof one, "%s/one", argv[1]);
    snprintf(two, sizeof two, "%s/two", argv[1]);
    snprintf(three, sizeof three, "%s/three", argv[1]);
    close(make(one)); close(make(two));
    replace("pool by pool", one, two);
    replace("kernel by pool", "/proc/self/exe", two);
    char host[] = "/dev/shm/arck-races-XXXXXX", hosts_file[64], hosts_directory[64], first[4200], second[4200];
    CHECK(mkdtemp(host) && chdir(host) == 0);
    close(make("file")); CHECK(mkdir("directory", 0755) == 0);
    snprintf(hosts_file, sizeof hosts_file, "%s/file", host); snprintf(hosts_directory, sizeof hosts_directory, "%s/directory", host);
    snprintf(first, sizeof first, "%s/first", argv[1]); snprintf(second, sizeof second, "%s/second", argv[1]);
    CHECK(mkdir(first, 0755) == 0 && mkdir(second, 0755) == 0);
    for (int i = 0; i < 3; i++) { CHECK(chdir(i == 0 ? hosts_directory : i == 1 ? first : second) == 0); close(make("f")); CHECK(symlink("f", "l") == 0); }
    CHECK(chdir("/") == 0);
    CHECK((other = make(three)) >= 0 && pipe(ends) == 0);
    replace_by_signals("pool by pool", one, two);
    replace_by_signals("kernel by pool", hosts_file, two);
    replace_by_signals("directories, pool by pool", first, second);
    replace_by_signals("directories, kernel by pool", hosts_directory, second);
    close(other); close(ends[0]); close(ends[1]); CHECK(unlink(three) == 0);
    char command[100]; snprintf(command, sizeof command, "rm -r %s", host); CHECK(system(command) == 0);

    pthread_t t;
    done = wrong = 0; shared = -1;
    CHECK(pthread_create(&t, 0, duplicate_shared, 0) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        int f = open(one, O_RDONLY);
        CHECK(f >= 0);
        shared = f;
        sched_yield();
        shared = -1;
        if (close(f)) wrong++;
    }
    done = 1;
    CHECK(pthread_join(t, 0) == 0);
    printf("dup and close: %d wrong\n", wrong);

    struct rlimit limit, before;
    CHECK(getrlimit(RLIMIT_NOFILE, &before) == 0);
    limit = before; limit.rlim_cur = 64;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int last = 0, f;
    while ((f = open(one, O_RDONLY)) >= 0) last = f;
    printf("last %d, then %s\n", last, strerror(errno));
    printf("O_TRUNC: %d", open(one, O_WRONLY | O_TRUNC)); printf(" %s\n", strerror(errno));
    CHECK(stat(one, &s) == 0);
    printf("size %ld\n", (long)s.st_size);
    printf("O_CREAT: %d", open(three, O_WRONLY | O_CREAT, 0644)); printf(" %s\n", strerror(errno));
    printf("made: %s\n", stat(three, &s) ? strerror(errno) : "yes");
    printf("missing: %d", open(three, O_RDONLY)); printf(" %s\n", strerror(errno));
    printf("no directory: %d", open(argv[1], O_WRONLY)); printf(" %s\n", strerror(errno));
    printf("empty: %d", open("", O_RDONLY)); printf(" %s\n", strerror(errno));
    while (last > 2) close(last--);
    printf("missing: %d", open(three, O_RDONLY)); printf(" %s\n", strerror(errno));
    CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);

    int a = open(one, O_RDWR), b = open(one, O_RDWR), d;
    CHECK(a >= 0 && b >= 0);
    CHECK(flock(a, LOCK_EX | LOCK_NB) == 0);
    printf("flock: %d", flock(b, LOCK_EX | LOCK_NB)); printf(" %s\n", strerror(errno));
    struct sigaction action = {.sa_handler = on_alarm};
    CHECK(sigaction(SIGALRM, &action, 0) == 0);
    int interrupted = 0;
    for (int i = 0; i < 50; i++) {
        struct itimerval soon = {{0, 0}, {0, 2000 + i * 137}};
        CHECK(setitimer(ITIMER_REAL, &soon, 0) == 0);
        interrupted += flock(b, LOCK_EX) == -1 && errno == EINTR;
    }
    printf("interrupted: %d\n", interrupted);
    CHECK((d = dup(a)) >= 0 && close(a) == 0);
    printf("with a duplicate: %d\n", flock(b, LOCK_EX | LOCK_NB));
    CHECK(close(d) == 0);
    printf("closed: %d\n", flock(b, LOCK_EX | LOCK_NB));
    return 0;
}
