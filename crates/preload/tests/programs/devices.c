/* Device nodes: who makes them, what they are called, what is told of them, and that they stay what they are. What
   opening gives is not compared: on the pool ENXIO, as if there were no driver. */
#include "show.h"
#include <grp.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <sys/wait.h>

static void show_device(const char *name) {
    struct stat s; struct statx x;
    if (lstat(name, &s)) { printf("%s: %s\n", name, strerrorname_np(errno)); return; }
    printf("%s: %o %d:%d %lx links %ld size %ld blocks %ld\n", name, s.st_mode, major(s.st_rdev), minor(s.st_rdev), (unsigned long)s.st_rdev, (long)s.st_nlink, (long)s.st_size, (long)s.st_blocks);
    memset(&x, 0, sizeof x);
    SHOW(statx(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS, &x));
    printf("%o %u:%u %ld\n", x.stx_mode, x.stx_rdev_major, x.stx_rdev_minor, (long)x.stx_size);
}

/* Kinds as directories list them. */
static void list(const char *path) {
    char *lines[100]; int count = 0; DIR *d = opendir(path);
    for (struct dirent *e; d && (e = readdir(d)) && count < 100;) if (e->d_name[0] != '.') { lines[count] = malloc(300); snprintf(lines[count++], 300, "%s %d", e->d_name, e->d_type); }
    if (d) closedir(d);
    qsort(lines, count, sizeof *lines, by_name);
    for (int i = 0; i < count; i++) { printf("%s\n", lines[i]); free(lines[i]); }
}

static void numbers(void) {
    unsigned kinds[] = {S_IFCHR, S_IFBLK};
    dev_t devices[] = {0, makedev(1, 3), makedev(8, 1), makedev(0, 255), makedev(0, 256), makedev(255, 0), makedev(4095, 0), makedev(4095, 0xfffff), makedev(7, 0xabcde), makedev(4096, 0), makedev(0, 0x100000), (dev_t)1 << 32, ~(dev_t)0};
    for (int k = 0; k < 2; k++) for (unsigned i = 0; i < sizeof devices / sizeof *devices; i++) {
        char name[40]; snprintf(name, sizeof name, "%c%u", "cb"[k], i);
        SHOW(mknod(name, kinds[k] | 0640, devices[i])); show_device(name);
        snprintf(name, sizeof name, "at-%c%u", "cb"[k], i);
        SHOW(mknodat(AT_FDCWD, name, kinds[k] | 0640, devices[i])); show_device(name);
        /* The system call has 32 bits. */
        snprintf(name, sizeof name, "raw-%c%u", "cb"[k], i);
        SHOW(syscall(SYS_mknod, name, kinds[k] | 0640, devices[i])); show_device(name);
    }
    list(".");
}

/* Names of one come and go, its attributes change, and it keeps its number. */
static void life(void) {
    struct timespec t[2] = {{1, 0}, {2, 0}}; char b[20];
    MUST(mkdir("d", 0755)); umask(022);
    SHOW(mknod("null", S_IFCHR | 0666, makedev(1, 3))); show_device("null");
    SHOW(mknod("null", S_IFCHR | 0666, makedev(1, 3))); SHOW(mknod("null", S_IFREG | 0666, 0)); SHOW(mknod("null/", S_IFCHR | 0666, 1)); SHOW(mknod("new/", S_IFCHR | 0666, 1)); SHOW(mknod("missing/new", S_IFCHR | 0666, 1)); SHOW(mknod("null/new", S_IFCHR | 0666, 1)); SHOW(mknod("", S_IFBLK, 1)); SHOW(mknod(".", S_IFBLK, 1));
    SHOW(link("null", "d/null")); SHOW(rename("null", "zero")); SHOW(rename("zero", "d/zero")); SHOW(chmod("d/zero", 0600)); SHOW(chown("d/null", 7, 8)); SHOW(utimensat(AT_FDCWD, "d/null", t, 0)); show_device("d/null"); show_device("d/zero");
    SHOW(mknod("over", S_IFBLK | 06755, makedev(8, 1))); show_device("over"); put("file", "x"); SHOW(rename("file", "over")); show_device("over"); SHOW(rename("d/null", "over")); show_device("over");
    SHOW(syscall(SYS_renameat2, AT_FDCWD, "over", AT_FDCWD, "d", RENAME_EXCHANGE)); show_device("d"); SHOW(syscall(SYS_renameat2, AT_FDCWD, "over", AT_FDCWD, "d", RENAME_EXCHANGE));
    SHOW(truncate("over", 0)); SHOW(readlink("over", b, 10)); SHOW(rmdir("over")); SHOW(chdir("over")); SHOW(access("over", F_OK)); SHOW(open("over", O_RDONLY | O_DIRECTORY)); SHOW(open("over", O_CREAT | O_EXCL | O_RDWR, 0644)); SHOW(setxattr("over", "user.x", "1", 1, 0));
    int p = MUST(open("over", O_PATH)); struct stat s; SHOW(fstat(p, &s)); printf("%o %lx\n", s.st_mode, (unsigned long)s.st_rdev); SHOW(fchmod(p, 0)); SHOW(unlink("over")); SHOW(fstat(p, &s)); printf("%o %lx %d\n", s.st_mode, (unsigned long)s.st_rdev, (int)s.st_nlink); close(p);
    SHOW(unlink("d/zero")); list("d");
}

/* Programs that know them. */
static void programs(void) {
    MUST(mkdir("t", 0755)); MUST(mknod("t/null", S_IFCHR | 0666, makedev(1, 3))); MUST(mknod("t/disk", S_IFBLK | 0660, makedev(259, 70000))); MUST(link("t/null", "t/again"));
    fflush(stdout);
    system("export LC_ALL=C; cp -a t u && stat -c '%n %F %t %T %a %h' u/*; tar -cf t.tar t && mkdir v && tar -xf t.tar -C v && stat -c '%n %F %t %T %a %h' v/t/*; test -c t/null && test -b t/disk && echo tested; mknod -m 600 by-hand c 5 1 && stat -c '%F %t %T %a' by-hand; mv t/disk moved && stat -c '%F %t %T' moved; rm -rf t u v && ls");
}

/* Another user makes none but the one that stands for nothing. */
static void others(void) {
    MUST(mkdir("all", 0777)); MUST(chmod("all", 0777)); MUST(mknod("all/roots", S_IFCHR | 0666, makedev(1, 3)));
    fflush(stdout);
    if (fork() == 0) {
        MUST(setgroups(0, 0)); MUST(setresgid(1234, 1234, 1234)); MUST(setresuid(1234, 1234, 1234));
        SHOW(chdir("all")); unsigned kinds[] = {S_IFCHR, S_IFBLK};
        for (int k = 0; k < 2; k++) for (int i = 0; i < 3; i++) { dev_t d[] = {0, 1, makedev(1, 3)}; char name[20]; snprintf(name, sizeof name, "n%d%d", k, i); SHOW(mknod(name, kinds[k] | 0644, d[i])); show_device(name); }
        SHOW(mknod("roots", S_IFCHR, 1)); SHOW(mknod("missing/x", S_IFCHR, 1)); SHOW(mknod("../x", S_IFCHR | 0600, 1)); SHOW(chmod("roots", 0600)); SHOW(rename("roots", "theirs")); show_device("theirs"); SHOW(unlink("theirs"));
        list("."); fflush(stdout); _exit(0);
    }
    wait(0); list("all");
}

int main(int argc, char **argv) {
    (void)argc;
    begin(argv);
    MUST(chmod(".", 0755)); umask(0);
    numbers(); life(); programs(); others();
    return 0;
}
