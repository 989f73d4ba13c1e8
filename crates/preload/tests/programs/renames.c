/* rename, renameat2, link, unlink, rmdir: every error of the manual pages, and what moves. */
#include "show.h"

static void make(void) {
    MUST(mkdir("d", 0755)); MUST(mkdir("d/e", 0755)); MUST(mkdir("d/e/g", 0755)); MUST(mkdir("empty", 0755)); MUST(mkdir("full", 0755));
    put("full/x", "x"); put("f", "f"); put("g", "gg"); put("d/h", "hhh");
    MUST(link("f", "same")); MUST(symlink("f", "l")); MUST(symlink("d", "ld")); MUST(symlink("nowhere", "dangling")); MUST(symlink("loop", "loop"));
}
static long move(const char *a, const char *b, unsigned flags) { return syscall(SYS_renameat2, AT_FDCWD, a, AT_FDCWD, b, flags); }

int main(int argc, char **argv) {
    begin(argv);
    const char *names[] = {"f", "f/", "g", "same", "l", "ld", "ld/", "dangling", "dangling/", "loop", "d", "d/", "d/e", "d/e/g", "d/e/g/new", "d/h", "empty", "empty/", "full", "new", "new/", "missing/new", "f/new", ".", "..", "d/.", "d/..", "ld/e", "ld/h", "loop/x", ""};
    int count = sizeof names / sizeof *names;
    MUST(mkdir("../old", 0755));
    char longer[300]; memset(longer, 'n', 256); longer[256] = 0;
    unsigned flags[] = {0, RENAME_NOREPLACE, RENAME_EXCHANGE};
    /* Each pair of names from the same tree. */
    for (int k = 0; k < 3; k++) for (int i = 0; i < count; i++) for (int j = 0; j < count; j++) {
        char work[64];
        snprintf(work, sizeof work, "w%d", k);
        MUST(mkdir(work, 0755)); MUST(chdir(work));
        make();
        errno = 0;
        long r = move(names[i], names[j], flags[k]);
        printf("%u \"%s\" \"%s\" = %ld %s\n", flags[k], names[i], names[j], r, errno ? strerrorname_np(errno) : "");
        if (r == 0) show_tree(".");
        MUST(chdir(".."));
        char command[128];
        snprintf(command, sizeof command, "../old/%d-%d-%d", k, i, j);
        MUST(rename(work, command));
    }
    make();
    SHOW(move("f", "g", RENAME_WHITEOUT | RENAME_EXCHANGE));
    SHOW(move("f", "g", RENAME_NOREPLACE | RENAME_EXCHANGE));
    SHOW(move("f", "g", 8)); SHOW(move("f", "g", 1u << 31));
    SHOW(move("f", longer, 0)); SHOW(move(longer, "f", 0)); SHOW(move("f", longer, RENAME_EXCHANGE));
    SHOW(rename("f", (char *)8)); SHOW(rename((char *)8, "f"));
    SHOW(renameat(77, "f", AT_FDCWD, "g")); SHOW(renameat(AT_FDCWD, "f", 77, "g"));
    int d = MUST(open("d", O_RDONLY)), f = MUST(open("f", O_RDONLY));
    SHOW(renameat(f, "f", d, "new")); SHOW(renameat(AT_FDCWD, "f", f, "new"));
    SHOW(renameat(AT_FDCWD, "f", d, "in")); SHOW(renameat(d, "in", AT_FDCWD, "f"));
    SHOW(syscall(SYS_renameat2, d, "h", AT_FDCWD, "f", RENAME_EXCHANGE)); show_file("d/h"); show_file("f");
    SHOW(move("d/e", "g", RENAME_EXCHANGE)); show_tree(".");
    SHOW(move("empty", "full", RENAME_EXCHANGE)); show_tree(".");
    /* A directory that is the working directory moves. */
    MUST(chdir("d")); SHOW(rename("../full", "sub")); SHOW(rename("../d", "../dd")); SHOW(rename(".", "x")); SHOW(access("../dd/sub", F_OK)); MUST(chdir(".."));
    SHOW(rename("/", "x")); SHOW(rmdir("/"));
    /* Open files follow their inode. */
    struct stat s; char b[8];
    put("o1", "one"); put("o2", "two");
    int o = MUST(open("o2", O_RDONLY));
    SHOW(rename("o1", "o2")); SHOW(read(o, b, 8)); SHOW(fstat(o, &s)); SHOW(s.st_nlink); close(o);
    /* link */
    show_tree(".");
    SHOW(link("dd", "hard")); SHOW(link("missing", "hard")); SHOW(link("l", "l2")); show_stat("l2");
    SHOW(linkat(AT_FDCWD, "l", AT_FDCWD, "l3", AT_SYMLINK_FOLLOW)); show_stat("l3");
    SHOW(linkat(AT_FDCWD, "dangling", AT_FDCWD, "l4", AT_SYMLINK_FOLLOW)); SHOW(linkat(AT_FDCWD, "loop", AT_FDCWD, "l5", AT_SYMLINK_FOLLOW));
    SHOW(link("f", "l")); SHOW(link("f", "dangling")); SHOW(link("f", "new/")); SHOW(link("f/", "new")); SHOW(link("f", "")); SHOW(link("", "x")); SHOW(link("f", longer)); SHOW(link("f", "missing/x")); SHOW(link("f", "f/x")); SHOW(link("f", "dd")); SHOW(link("f", "dd/"));
    SHOW(linkat(AT_FDCWD, "f", AT_FDCWD, "bad", 0x8000)); SHOW(linkat(77, "f", AT_FDCWD, "bad", 0)); SHOW(linkat(d, "h", d, "h2", 0)); SHOW(linkat(f, "h", d, "h3", 0));
    SHOW(linkat(f, "", AT_FDCWD, "byfd", AT_EMPTY_PATH)); show_stat("byfd"); SHOW(linkat(d, "", AT_FDCWD, "bydir", AT_EMPTY_PATH)); SHOW(linkat(77, "", AT_FDCWD, "x", AT_EMPTY_PATH));
    SHOW(link("/dev/null", "device"));
    /* unlink, rmdir */
    const char *victims[] = {"dd", "dd/", "f/", "missing", "missing/", "missing/x", "f/x", "l/", "ld/", "dangling/", "loop/", "", ".", "..", "dd/.", "dd/..", "loop/x"};
    for (unsigned i = 0; i < sizeof victims / sizeof *victims; i++) {
        errno = 0; long r = unlink(victims[i]); printf("unlink \"%s\" %ld %s\n", victims[i], r, strerrorname_np(errno));
        if (strcmp(victims[i], "dd/..") == 0) continue;
        errno = 0; r = rmdir(victims[i]); printf("rmdir \"%s\" %ld %s\n", victims[i], r, strerrorname_np(errno));
    }
    SHOW(unlink(longer)); SHOW(rmdir(longer)); SHOW(unlinkat(AT_FDCWD, "f", 0x1000)); SHOW(unlinkat(AT_FDCWD, "f", AT_REMOVEDIR)); SHOW(unlinkat(AT_FDCWD, "full", AT_REMOVEDIR)); SHOW(unlinkat(d, "h2", 0)); SHOW(unlinkat(f, "h2", 0)); SHOW(unlinkat(77, "x", 0)); SHOW(unlink((char *)8)); SHOW(rmdir((char *)8));
    SHOW(unlink("l")); SHOW(unlink("loop")); SHOW(unlink("dangling")); SHOW(unlink("ld")); SHOW(unlink("byfd"));
    /* A removed directory that is still open. */
    MUST(mkdir("gone", 0755)); int gone = MUST(open("gone", O_RDONLY)); SHOW(rmdir("gone"));
    SHOW(openat(gone, "x", O_CREAT | O_WRONLY, 0600)); SHOW(mkdirat(gone, "x", 0700)); SHOW(fstat(gone, &s)); SHOW(s.st_nlink); SHOW(openat(gone, ".", O_RDONLY) >= 0); SHOW(renameat(AT_FDCWD, "f", gone, "f")); SHOW(linkat(AT_FDCWD, "f", gone, "f", 0)); SHOW(symlinkat("x", gone, "f")); SHOW(unlinkat(gone, "x", 0)); SHOW(openat(gone, "..", O_RDONLY) >= 0); SHOW(fchdir(gone)); SHOW(getcwd(b, 1) == 0); char cwd[4096]; SHOW(getcwd(cwd, sizeof cwd) == 0); SHOW(mkdir("y", 0700)); SHOW(open("y", O_CREAT | O_WRONLY, 0600)); SHOW(access(".", F_OK)); SHOW(access("..", F_OK)); SHOW(chdir(".."));
    show_tree(".");
    return 0;
}
