/* A child that is forked when its parent has as many descriptors as it may: what needs none works, and what needs one is EMFILE. */
#include "show.h"
#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>

static int last;

static void child(void) {
    struct stat s;
    char where[4096], text[8];
    SHOW(stat("f", &s)); printf("    size %ld\n", (long)s.st_size);
    printf("cwd: %s\n", getcwd(where, sizeof where) ? strrchr(where, '/') : strerror(errno));
    SHOW(access("f", R_OK)); SHOW(mkdir("made", 0700)); SHOW(rename("made", "moved")); SHOW(rmdir("moved"));
    SHOW(stat("none", &s)); SHOW(chmod("f", 0640)); SHOW(truncate("f", 3)); SHOW(symlink("f", "l")); SHOW(readlink("l", text, 8)); SHOW(unlink("l"));
    SHOW(pread(last, text, 8, 0)); SHOW(pwrite(last, "abc", 3, 0)); SHOW(fstat(last, &s)); printf("    size %ld\n", (long)s.st_size);
    SHOW(open("f", O_RDONLY)); SHOW(open("new", O_RDWR | O_CREAT, 0600)); SHOW(dup(last)); printf("opendir: %s\n", opendir(".") ? "works" : strerror(errno));
    SHOW(access("new", F_OK));
    SHOW(chdir("d")); SHOW(stat("inner", &s)); SHOW(chdir(".."));
    SHOW(close(last)); SHOW(open("f", O_RDWR) == last); SHOW(open("f", O_RDONLY)); SHOW(read(last, text, 8));
    SHOW(stat("f", &s)); printf("    size %ld\n", (long)s.st_size);
}

int main(int argc, char **argv) {
    begin(argv);
    put("f", "content");
    MUST(mkdir("d", 0700)); put("d/inner", "x");
    struct rlimit limit;
    MUST(getrlimit(RLIMIT_NOFILE, &limit));
    limit.rlim_cur = 100;
    MUST(setrlimit(RLIMIT_NOFILE, &limit));
    /* Those of the pool, and of the host, and both. */
    for (int kind = 0; kind < 3; kind++) {
        printf("kind %d\n", kind);
        put("f", "content");
        int first = -1, d;
        while ((d = open(kind == 1 || (kind == 2 && first >= 0 && last % 2) ? "/dev/null" : "f", O_RDWR)) >= 0) { if (first < 0) first = d; last = d; }
        SHOW(errno == EMFILE);
        if (kind == 1) { close(last); last = MUST(open("f", O_RDWR)); }
        fflush(stdout);
        pid_t one = MUST(fork());
        if (one == 0) { child(); fflush(stdout); _exit(0); }
        int status;
        MUST(waitpid(one, &status, 0));
        printf("ended %d\n", status);
        for (d = first; d <= last; d++) close(d);
    }
    return 0;
}
