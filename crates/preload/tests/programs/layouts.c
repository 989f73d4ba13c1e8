/* Two programs of different layout in one trust group, which do the same sequence of operations, drawn by
 * a number, each on what the other has just done, and check it; at last each tells where it found the
 * group's memory. Built twice: see tests/served/processes.rs. */
#include "told.h"
#include <sys/personality.h>
#include <time.h>

#ifdef BIG
char room[BIG];
#endif
static unsigned long state;
static unsigned draw(unsigned n) { state = state * 6364136223846793005ul + 1442695040888963407ul; return (state >> 33) % n; }

enum { NAMES = 24, BYTES = 40000 };
/* What there should be: both compute it, from the same numbers. */
static struct { int is_file, is_directory, link_of; long size; unsigned char bytes[BYTES]; } there[NAMES];
static int wrong, turn_of;
#define EXPECT(x) do { if (!(x)) { wrong++; if (wrong < 20) fprintf(stderr, "turn %d: %s: %s\n", turn_of, #x, strerror(errno)); } } while (0)
static const char *name(int n) { static char names[4][32]; static int next; char *s = names[next++ & 3]; snprintf(s, 32, n % 3 ? "entry-%d" : "below/entry-%d", n); return s; }
static int real(int n) { return there[n].link_of >= 0 ? there[n].link_of : n; }

/* Everything that there is, as it should be. */
static void check(int n) {
    static unsigned char bytes[BYTES];
    struct stat s;
    int r = lstat(name(n), &s);
    EXPECT(!r == (there[n].is_file || there[n].is_directory));
    if (r) return;
    EXPECT(S_ISDIR(s.st_mode) == there[n].is_directory);
    if (!there[n].is_file) return;
    EXPECT(s.st_size == there[n].size);
    int f = open(name(n), O_RDONLY);
    EXPECT(f >= 0);
    EXPECT(read(f, bytes, BYTES) == there[n].size && !memcmp(bytes, there[n].bytes, there[n].size));
    close(f);
}
/* One operation: `mine` does it, the other only notes what becomes of it. */
static void operate(int mine) {
    static int kept = -1, kept_of = -1;
    int n = draw(NAMES), m = draw(NAMES), what = draw(9), at = draw(BYTES - 5000), length = draw(5000);
    if (mine) check(n), check(m);
    switch (what) {
    case 0: case 1: case 2: { /* written, by a new descriptor or one that was kept */
        if (there[n].is_directory) break;
        if (mine) {
            static unsigned char bytes[5000]; for (int i = 0; i < length; i++) bytes[i] = at + i * 7 + n;
            int f = kept >= 0 && kept_of == n ? kept : open(name(n), O_RDWR | O_CREAT, 0644);
            EXPECT(pwrite(f, bytes, length, at) == length);
            if (f != kept) { if (kept >= 0) close(kept); kept = f; kept_of = n; }
        }
        there[n].is_file = 1;
        if (length) { if (there[n].size < at) memset(there[n].bytes + there[n].size, 0, at - there[n].size); for (int i = 0; i < length; i++) there[n].bytes[at + i] = at + i * 7 + n; if (there[n].size < at + length) there[n].size = at + length; }
        break; }
    case 3: if (!there[n].is_file && !there[n].is_directory) { if (mine) EXPECT(!mkdir(name(n), 0755)); there[n].is_directory = 1; } break;
    case 4: if (there[n].is_directory) { if (mine) EXPECT(!rmdir(name(n))); there[n].is_directory = 0; } break;
    case 5: if (there[n].is_file) { if (mine) { EXPECT(!unlink(name(n))); } if (kept_of == n) { if (kept >= 0) close(kept); kept = kept_of = -1; } there[n].is_file = 0; there[n].size = 0; } break;
    case 6: if (there[n].is_file && !there[m].is_directory && n != m) { if (mine) EXPECT(!rename(name(n), name(m))); if (kept >= 0) { close(kept); kept = -1; } kept_of = -1; there[m] = there[n]; there[n].is_file = 0; there[n].size = 0; } break;
    case 7: if (there[n].is_file) { if (mine) EXPECT(!truncate(name(n), at)); if (there[n].size < at) memset(there[n].bytes + there[n].size, 0, at - there[n].size); there[n].size = at; } break;
    case 8: if (mine) { char value[32], back[32]; snprintf(value, sizeof value, "%d", turn_of); EXPECT(!symlink(value, "link") || errno == EEXIST); long l = readlink("link", back, 31); EXPECT(l > 0); EXPECT(!unlink("link")); } break;
    }
}

/* Where the group's memory is, and the program: address, and which file it is. */
static void show_memory(void) {
    FILE *f = fopen("/proc/self/maps", "r");
    char line[5000];
    unsigned long begin, inode;
    int first = 1;
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%lx-%*s %*s %*s %*s %lu", &begin, &inode) != 2) continue;
        if (first) printf("program %lx\n", begin);
        first = 0;
        if (strstr(line, "arck-group")) { printf("group %lx %lu\n", begin, inode); break; }
    }
    fclose(f);
}

/* layouts WHO OTHER SEED TURNS fixed|random DIRECTORY */
int main(int argc, char **argv) {
    if (!strcmp(argv[5], "fixed") && !(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) { personality(ADDR_NO_RANDOMIZE); execv("/proc/self/exe", argv); return 8; }
#ifdef BIG
    for (size_t i = 0; i < sizeof room; i += 1 << 20) room[i] = 1;
#endif
    int who = atoi(argv[1]), turns = atoi(argv[4]);
    state = strtoul(argv[3], 0, 10);
    for (int i = 0; i < NAMES; i++) there[i].link_of = -1;
    MUST(chdir(argv[6]));
    mkdir("below", 0755);
    /* Whose turn it is stands in a file, which both read and write. */
    int turn = MUST(open("turn", O_RDWR | O_CREAT, 0644));
    struct timespec pause = {0, 20000};
    for (turn_of = 0; turn_of < turns; turn_of++) {
        int mine = turn_of % 2 == who, now = 0;
        for (long waited = 0; mine && (pread(turn, &now, sizeof now, 0) < 0 || now != turn_of); waited++) { if (waited > 1000000) { printf("waits for ever\n"); return 7; } if (waited > 100) nanosleep(&pause, 0); sched_yield(); }
        /* Several at each turn, so that as much lies in memory as on the way. */
        for (int i = 0; i < 5; i++) operate(mine);
        now = turn_of + 1;
        if (mine) EXPECT(pwrite(turn, &now, sizeof now, 0) == sizeof now);
    }
    for (int now = 0; pread(turn, &now, sizeof now, 0) > 0 && now != turns;) nanosleep(&pause, 0);
    for (int i = 0; i < NAMES; i++) check(i);
    show_memory();
    printf("%d wrong of %d turns\n", wrong, turns);
    return wrong != 0;
}
