// Every kind of call on a tree that lies in a pool, each told with what came of it: by a process that may
// have little more of something than it has, or by one that looks at what the other has left.
//
//   lacking make TREE       makes the tree
//   lacking little MEMORY FILES FREE TREE
//                           tries every call; the process may have MEMORY KiB of addresses more than it has
//                           when it begins, and FILES descriptors (0: no limit of its own), of which all but
//                           FREE are taken when it has come to the tree (-1: none)
//   lacking look TREE       says of every call that changes something whether it has been done
//
// A line of `little` is "CALL RESULT": "right", "wrong: WHAT", or the name of an error. A line of `look` is
// "CALL done", "CALL undone", or "CALL mixed: WHAT".
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define PAGE 4096
// Of the large file: more than a segment.
#define PAGES 3000
#define NAMES 700

static const char *call;

static void tell(const char *result) {
    printf("%s %s\n", call, result);
}

static void expect(int is_right, const char *what) {
    if (is_right) {
        tell("right");
    } else {
        printf("%s wrong: %s\n", call, what);
    }
}

// What a call that has failed says.
static void failed(void) {
    tell(strerrorname_np(errno));
}

#define TRY(name, made)                                                                                      \
    call = name;                                                                                             \
    if ((made) == -1) {                                                                                      \
        failed();                                                                                            \
    } else

static void must(long made, const char *what) {
    if (made == -1) {
        perror(what);
        exit(3);
    }
}

// What page `index` of a file is full of.
static char filling(int index) {
    return (char)('a' + index % 26);
}

static void fill(const char *name, int pages, mode_t mode) {
    int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, mode);
    must(file, name);
    char page[PAGE];
    for (int i = 0; i < pages; i++) {
        memset(page, filling(i), PAGE);
        must(write(file, page, PAGE), name);
    }
    close(file);
}

static void text(const char *name, const char *bytes) {
    int file = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    must(file, name);
    must(write(file, bytes, strlen(bytes)), name);
    close(file);
}

static int make(void) {
    char name[64];
    must(mkdir("names", 0755), "names");
    for (int i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "names/%d", i);
        text(name, "");
    }
    must(mkdir("closed", 0700), "closed");
    text("closed/file", "secret\n");
    must(mkdir("deep", 0755), "deep");
    must(mkdir("deep/deeper", 0755), "deeper");
    text("deep/deeper/file", "deep\n");
    must(mkdir("full", 0755), "full");
    text("full/one", "one\n");
    must(mkdir("empty", 0755), "empty");
    text("file", "hello\n");
    must(symlink("deep/deeper/file", "link"), "link");
    must(setxattr("file", "user.key", "value", 5, 0), "setxattr");
    fill("large", PAGES, 0644);
    fill("changed", PAGES, 0600);
    fill("cut", PAGES, 0644);
    fill("grown", 3, 0644);
    int file = open("sparse", O_CREAT | O_WRONLY, 0644);
    must(file, "sparse");
    must(pwrite(file, "x", 1, 2000 * PAGE), "sparse");
    close(file);
    const char *others[] = {"unlinked", "renamed", "replaced", "replacing", "linked",
                            "moded",    "timed",   "keyed",    "appended"};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) {
        text(others[i], "as it was\n");
    }
    return 0;
}

static void read_all(const char *as, const char *name, const char *expected) {
    char bytes[64] = "";
    call = as;
    int file = open(name, O_RDONLY);
    if (file == -1) {
        failed();
        return;
    }
    ssize_t read_bytes = read(file, bytes, sizeof bytes - 1);
    if (read_bytes == -1) {
        failed();
    } else {
        expect(strcmp(bytes, expected) == 0, bytes);
    }
    close(file);
}

static void read_large(void) {
    call = "read-large";
    int file = open("large", O_RDONLY);
    if (file == -1) {
        failed();
        return;
    }
    static char pages[64 * PAGE];
    for (int first = 0; first < PAGES; first += 600) {
        ssize_t bytes = pread(file, pages, sizeof pages, (off_t)first * PAGE);
        if (bytes == -1) {
            failed();
            close(file);
            return;
        }
        for (ssize_t i = 0; i < bytes; i++) {
            if (pages[i] != filling(first + (int)(i / PAGE))) {
                expect(0, "other bytes");
                close(file);
                return;
            }
        }
    }
    tell("right");
    close(file);
}

static void list(void) {
    call = "list";
    DIR *names = opendir("names");
    if (!names) {
        failed();
        return;
    }
    int count = 0;
    errno = 0;
    while (readdir(names)) {
        count++;
    }
    char found[32];
    snprintf(found, sizeof found, "%d names", count);
    if (errno != 0) {
        failed();
    } else {
        expect(count == NAMES + 2, found);
    }
    closedir(names);
}

static void map(void) {
    call = "map";
    int file = open("large", O_RDONLY);
    if (file == -1) {
        failed();
        return;
    }
    char *pages = mmap(NULL, 16 * PAGE, PROT_READ, MAP_SHARED, file, 2000 * PAGE);
    if (pages == MAP_FAILED) {
        failed();
    } else {
        expect(pages[0] == filling(2000) && pages[15 * PAGE] == filling(2015), "other bytes");
        munmap(pages, 16 * PAGE);
    }
    close(file);
}

static void seek(void) {
    call = "seek";
    int file = open("sparse", O_RDONLY);
    if (file == -1) {
        failed();
        return;
    }
    off_t at = lseek(file, 0, SEEK_DATA);
    if (at == -1) {
        failed();
    } else {
        expect(at == 2000 * PAGE, "elsewhere");
    }
    close(file);
}

static void absent(const char *as, int made) {
    call = as;
    if (made != -1) {
        tell("wrong: there");
    } else if (errno == ENOENT) {
        tell("right");
    } else {
        failed();
    }
}

static void write_at(const char *as, const char *name, int flags, char with, off_t at, size_t length) {
    static char bytes[40 * PAGE];
    memset(bytes, with, sizeof bytes);
    call = as;
    int file = open(name, O_WRONLY | flags, 0644);
    if (file == -1) {
        failed();
        return;
    }
    ssize_t written = pwrite(file, bytes, length, at);
    if (written == -1) {
        failed();
    } else if ((size_t)written != length) {
        tell("short");
    } else {
        tell("right");
    }
    close(file);
}

static int try(void) {
    struct stat status;
    char bytes[256];
    TRY("stat", stat("file", &status)) expect(status.st_size == 6, "another size");
    TRY("stat-deep", stat("deep/deeper/file", &status)) expect(status.st_size == 5, "another size");
    TRY("stat-closed", stat("closed/file", &status)) expect(status.st_size == 7, "another size");
    TRY("lstat", lstat("link", &status)) expect(S_ISLNK(status.st_mode), "no link");
    TRY("stat-link", stat("link", &status)) expect(S_ISREG(status.st_mode), "no file");
    TRY("access", access("full/one", R_OK)) tell("right");
    ssize_t length;
    TRY("readlink", length = readlink("link", bytes, sizeof bytes)) expect(length == 16, "another length");
    absent("absent", stat("names/none", &status));
    absent("absent-deep", stat("deep/none/file", &status));
    read_all("read", "file", "hello\n");
    read_all("read-closed", "closed/file", "secret\n");
    read_all("read-link", "link", "deep\n");
    read_large();
    list();
    map();
    seek();
    TRY("getxattr", length = getxattr("file", "user.key", bytes, sizeof bytes))
    expect(length == 5 && memcmp(bytes, "value", 5) == 0, "another value");
    TRY("listxattr", length = listxattr("file", bytes, sizeof bytes)) expect(length == 9, "other names");
    call = "full";
    if (rmdir("full") == 0) {
        tell("wrong: removed");
    } else if (errno == ENOTEMPTY) {
        tell("right");
    } else {
        failed();
    }
    // What changes something.
    write_at("create", "created", O_CREAT | O_EXCL, 'n', 0, 9);
    write_at("change", "changed", 0, 'Z', 1500 * PAGE + 17, 30 * PAGE);
    write_at("grow", "grown", 0, 'Z', 3 * PAGE - 5, 10);
    write_at("append", "appended", O_APPEND, 'Z', 0, 10);
    TRY("truncate", truncate("cut", 1000 * PAGE + 7)) tell("right");
    TRY("unlink", unlink("unlinked")) tell("right");
    TRY("rename", rename("renamed", "names/renamed")) tell("right");
    TRY("replace", rename("replacing", "replaced")) tell("right");
    TRY("link", link("linked", "deep/link")) tell("right");
    TRY("symlink", symlink("file", "symlink")) tell("right");
    TRY("mkdir", mkdir("made", 0755)) tell("right");
    TRY("rmdir", rmdir("empty")) tell("right");
    TRY("chmod", chmod("moded", 0600)) tell("right");
    struct timespec times[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
    TRY("utimens", utimensat(AT_FDCWD, "timed", times, 0)) tell("right");
    TRY("setxattr", setxattr("keyed", "user.key", "value", 5, 0)) tell("right");
    return 0;
}

// Whether a name is there.
static int there(const char *name) {
    struct stat status;
    return lstat(name, &status) == 0;
}

static void done(const char *as, int is_done, int is_undone) {
    printf("%s %s\n", as, is_done && !is_undone ? "done" : is_undone && !is_done ? "undone" : "mixed");
}

static void fault(const char *what, long number) {
    printf("kept mixed: %s %ld\n", what, number);
}

static char page_bytes[PAGE];

// Whether bytes `from` up to `end` of a file are `with`, and all others of its `length` as they were.
static void look_at_bytes(const char *as, const char *name, off_t old, off_t from, off_t end, char with) {
    struct stat status;
    must(stat(name, &status), name);
    int file = open(name, O_RDONLY);
    must(file, name);
    long changed = 0, kept = 0;
    for (off_t at = 0; at < status.st_size; at += PAGE) {
        ssize_t bytes = pread(file, page_bytes, PAGE, at);
        must(bytes, name);
        for (off_t i = at; i < at + bytes; i++) {
            char byte = page_bytes[i - at];
            if (i < from || i >= end) {
                if (byte != filling((int)(i / PAGE))) {
                    fault(name, (long)i);
                }
            } else if (byte == with) {
                changed++;
            } else if (i < old && byte == filling((int)(i / PAGE))) {
                kept++;
            } else {
                fault(name, (long)i);
            }
        }
    }
    close(file);
    done(as, changed == end - from, changed == 0);
}

static int look(void) {
    struct stat status, other;
    char bytes[64];
    done("create", there("created"), !there("created"));
    look_at_bytes("change", "changed", PAGES * PAGE, 1500 * PAGE + 17, 1530 * PAGE + 17, 'Z');
    look_at_bytes("grow", "grown", 3 * PAGE, 3 * PAGE - 5, 3 * PAGE + 5, 'Z');
    must(stat("appended", &status), "appended");
    done("append", status.st_size == 20, status.st_size == 10);
    must(stat("cut", &status), "cut");
    done("truncate", status.st_size == 1000 * PAGE + 7, status.st_size == PAGES * PAGE);
    done("unlink", !there("unlinked"), there("unlinked"));
    done("rename", there("names/renamed") && !there("renamed"), there("renamed") && !there("names/renamed"));
    done("replace", there("replaced") && !there("replacing"), there("replaced") && there("replacing"));
    must(stat("linked", &status), "linked");
    done("link", there("deep/link") && status.st_nlink == 2, !there("deep/link") && status.st_nlink == 1);
    done("symlink", there("symlink"), !there("symlink"));
    done("mkdir", there("made"), !there("made"));
    done("rmdir", !there("empty"), there("empty"));
    must(stat("moded", &status), "moded");
    done("chmod", (status.st_mode & 0777) == 0600, (status.st_mode & 0777) == 0644);
    must(stat("timed", &status), "timed");
    done("utimens", status.st_mtime == 2000 && status.st_atime == 1000, status.st_mtime > 2000);
    ssize_t length = getxattr("keyed", "user.key", bytes, sizeof bytes);
    done("setxattr", length == 5, length == -1 && errno == ENODATA);
    // What nobody was to change.
    must(stat("file", &status), "file");
    must(stat("deep/deeper/file", &other), "file");
    if (status.st_size != 6 || other.st_size != 5 || !there("full/one")) {
        fault("file", (long)status.st_size);
    }
    int names = 0;
    DIR *listed = opendir("names");
    must(listed ? 0 : -1, "names");
    while (readdir(listed)) {
        names++;
    }
    closedir(listed);
    if (names != NAMES + 2 + there("names/renamed")) {
        fault("names", names);
    }
    return 0;
}

// Addresses that the process has, in KiB.
static rlim_t addresses(void) {
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    unsigned long size = 0;
    while (fgets(line, sizeof line, status) && sscanf(line, "VmSize: %lu", &size) != 1) {
    }
    fclose(status);
    return size;
}

static void limit(int what, rlim_t most) {
    struct rlimit both = {most, most};
    must(setrlimit(what, &both), "setrlimit");
}

static void take_all_but(long left) {
    int last = 0, next;
    while ((next = dup(2)) != -1) {
        last = next;
    }
    for (; left > 0; left--) {
        close(last--);
    }
}

int main(int count, char **arguments) {
    static char output[1 << 16];
    setvbuf(stdout, output, _IOFBF, sizeof output);
    if (count == 6 && strcmp(arguments[1], "little") == 0) {
        long left = strtol(arguments[4], NULL, 10);
        rlim_t memory = strtoul(arguments[2], NULL, 10), files = strtoul(arguments[3], NULL, 10);
        if (memory != 0) {
            limit(RLIMIT_AS, (addresses() + memory) << 10);
        }
        if (files != 0) {
            limit(RLIMIT_NOFILE, files);
        }
        call = "chdir";
        if (chdir(arguments[5]) == -1) {
            failed();
            return 0;
        }
        if (left >= 0) {
            take_all_but(left);
        }
        return try();
    }
    if (count == 3 && chdir(arguments[2]) == 0) {
        return strcmp(arguments[1], "make") == 0 ? make() : look();
    }
    return 2;
}
