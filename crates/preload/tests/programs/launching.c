/* What a program is told of itself, and where it finds itself, that is executed by one which no library
 * can be loaded into: a static one, which hands on the environment that it was given. */
#include "told.h"
#include <sys/auxv.h>
#include <sys/prctl.h>

static int child(int argc, char **argv) {
    char path[4096];
    top = getenv("TOP");
    long n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    /* The host's programs lie in the directory of the test's binaries, the same in all cases. */
    printf("  exe %s", cut(path));
    prctl(PR_GET_NAME, path);
    printf(" comm %s execfn %s argument %s\n", path, cut((char *)getauxval(AT_EXECFN)), argc > 1 ? argv[1] : "none");
    char held[5] = "none";
    n = pread(3, held, 4, 0);
    printf("  in %s, open %s %s\n", getcwd(path, sizeof path) ? cut(path) : strerrorname_np(errno), n < 0 ? strerrorname_np(errno) : "", held);
    if (argc > 1 && !strcmp(argv[1], "count")) {
        int count = 0;
        for (int f = 3; f < 1000; f++) count += fcntl(f, F_GETFD) >= 0;
        printf("  %d of its own\n", count);
    }
    return 4;
}
#define RUN(name, ...) do { printf("%s:\n", name); fflush(stdout); pid_t p = fork(); if (!p) { execl(__VA_ARGS__, (char *)0); printf("  %s\n", strerrorname_np(errno)); fflush(stdout); _exit(1); } printf("  %d\n", ended(p)); fflush(stdout); } while (0)

static void all(const char *launcher) {
    const char *ways[] = {"fork", "exec"};
    for (int i = 0; i < 2; i++) {
        const char *way = ways[i];
        printf("-- %s, %s\n", cut(launcher), way);
        RUN("host", launcher, "launcher", way, ".", self, "a", NULL);
        RUN("elsewhere", launcher, "launcher", way, "/usr", self, "a", NULL);
        RUN("by another", launcher, "launcher", way, ".", getenv("LAUNCHER"), way, ".", self, "a", NULL);
    }
}

int main(int argc, char **argv) {
    if (getenv("TOP")) return child(argc, argv);
    begin(argv);
    const char *launcher = getenv("LAUNCHER");
    setenv("TOP", top, 1);
    char here[4200], text[8192];
    /* The launcher here. */
    snprintf(here, sizeof here, "%s/launcher", top);
    MUST(strcpy(text, self) != NULL);
    strcpy(self, launcher);
    copy_self("launcher");
    strcpy(self, text);
    all(launcher);
    all(here);
    /* A script here of such an interpreter. */
    snprintf(text, sizeof text, "#!%s fork\n", launcher);
    put("script", text);
    MUST(chmod("script", 0755));
    RUN("script", "./script", "script", self, "b", NULL);
    /* With an open file that has no name, and one that is the other's own under the same number. */
    int f = MUST(open("gone", O_RDWR | O_CREAT, 0600));
    MUST(unlink("gone"));
    MUST(write(f, "text", 4));
    all(here);
    RUN("closed", here, "launcher", "close", ".", self, "count", NULL);
    char held[5] = "none";
    SHOW(pread(f, held, 4, 0));
    return 0;
}
