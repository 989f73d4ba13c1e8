/* Programs, scripts and libraries that lie on the directory of the test: by each call that executes
 * one, with interpreters of all sorts, and what the program is told of itself. */
#include "told.h"
#include <dlfcn.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
#include <sys/random.h>

static int child(int argc, char **argv) {
    char path[4096], *name = (char *)getauxval(AT_EXECFN);
    top = getenv("TOP");
    printf("  %d:", argc);
    for (int i = 0; i < argc; i++) printf(" [%s]", cut(argv[i]));
    long n = readlink("/proc/self/exe", path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    printf("\n  exe %s", cut(path));
    int f = open("/proc/self/exe", O_RDONLY);
    struct stat s, t;
    printf(" opens %d same %d", f >= 0, !fstat(f, &s) && !stat(path, &t) && s.st_ino == t.st_ino && s.st_dev == t.st_dev);
    if (f >= 0) close(f);
    prctl(PR_GET_NAME, path);
    printf("\n  name %s comm %s execfn %s", program_invocation_short_name, path, cut(name));
    printf(" HOME %s\n", getenv("HOME") ? getenv("HOME") : "none");
    show_open("  has");
    return 4;
}

static char *arguments[] = {"first", "one", "two words", 0};
static char *few[8], *volatile nowhere;
static void *volatile bad = (void *)8;
#define RUN(name, call) do { printf("%s:\n", name); fflush(stdout); pid_t p = fork(); if (!p) { call; printf("  %s\n", strerrorname_np(errno)); fflush(stdout); _exit(1); } printf("  %d\n", ended(p)); fflush(stdout); } while (0)
static void script(const char *name, const char *text) { put(name, text); MUST(chmod(name, 0755)); }

static void programs(void) {
    char absolute[4200], link[64];
    snprintf(absolute, sizeof absolute, "%s/dir/here", top);
    int dir = MUST(open("dir", O_RDONLY | O_DIRECTORY)), path_only = MUST(open("dir/here", O_PATH | O_CLOEXEC)), read_only = MUST(open("dir/here", O_RDONLY)), closing = MUST(open("dir/here", O_RDONLY | O_CLOEXEC));
    RUN("execve host", execve(self, arguments, environ)); RUN("execve relative", execve("dir/here", arguments, environ)); RUN("execve dot", execve("./dir/../dir/here", arguments, environ)); RUN("execve absolute", execve(absolute, arguments, environ));
    RUN("execve environment", execve("dir/here", arguments, few)); RUN("execve link", execve("link", arguments, environ)); RUN("execv", execv("dir/here", arguments)); RUN("execl", execl("dir/here", "l", "x", (char *)0)); RUN("execle", execle("dir/here", "le", (char *)0, few));
    setenv("PATH", "nowhere:dir", 1); RUN("execvp", execvp("here", arguments)); RUN("execlp", execlp("here", "lp", (char *)0)); RUN("execvpe", execvpe("here", arguments, few)); RUN("execvp missing", execvp("missing", arguments)); RUN("execvp denied", execvp("data", arguments)); setenv("PATH", "/bin:/usr/bin", 1);
    RUN("execveat directory", execveat(dir, "here", arguments, environ, 0)); RUN("execveat here", execveat(AT_FDCWD, "dir/here", arguments, environ, 0)); RUN("execveat absolute", execveat(dir, absolute, arguments, environ, 0)); RUN("execveat empty", execveat(read_only, "", arguments, environ, AT_EMPTY_PATH)); RUN("execveat path only", execveat(path_only, "", arguments, environ, AT_EMPTY_PATH)); RUN("execveat empty without flag", execveat(read_only, "", arguments, environ, 0)); RUN("execveat nofollow", execveat(AT_FDCWD, "link", arguments, environ, AT_SYMLINK_NOFOLLOW)); RUN("execveat nofollow program", execveat(dir, "here", arguments, environ, AT_SYMLINK_NOFOLLOW)); RUN("execveat flags", execveat(dir, "here", arguments, environ, 7)); RUN("execveat closed", execveat(33, "here", arguments, environ, 0)); RUN("execveat file", execveat(read_only, "here", arguments, environ, 0));
    RUN("fexecve", fexecve(read_only, arguments, environ)); RUN("fexecve close-on-exec", fexecve(closing, arguments, environ)); RUN("fexecve path only", fexecve(path_only, arguments, environ)); RUN("fexecve directory", fexecve(dir, arguments, environ)); RUN("fexecve closed", fexecve(33, arguments, environ));
    snprintf(link, sizeof link, "/proc/self/fd/%d", read_only); RUN("by descriptor's name", execv(link, arguments)); snprintf(link, sizeof link, "/dev/fd/%d", read_only); RUN("by descriptor's other name", execv(link, arguments)); RUN("relative to nothing", execveat(dir, "../dir/here", arguments, environ, 0));
    MUST(rename("dir/here", "dir/moved")); RUN("fexecve renamed", fexecve(read_only, arguments, environ)); MUST(linkat(AT_FDCWD, "dir/moved", AT_FDCWD, "dir/here", 0)); MUST(unlink("dir/moved"));
    RUN("missing", execv("missing", arguments)); RUN("below file", execv("data/x", arguments)); RUN("directory", execv("dir", arguments)); RUN("no program", execv("data", arguments)); RUN("denied", execv("denied", arguments)); RUN("empty", execv("", arguments)); RUN("null", execv(nowhere, arguments)); RUN("bad arguments", execve("dir/here", (char **)bad, environ)); RUN("empty file", execv("nothing", arguments)); RUN("dangling", execv("dangling", arguments)); RUN("loop", execv("loop", arguments)); RUN("zeroes", execv("zeroes", arguments)); RUN("cut short", execv("short", arguments));
    RUN("cat", execl("/bin/cat", "cat", "data", "/dev/fd/0", (char *)0));
    close(dir); close(path_only); close(read_only); close(closing);
    /* Without arguments at all: the kernel gives one. */
    char *none[] = {0}; RUN("no arguments", execve("dir/here", none, environ));
}

static void scripts(void) {
    char text[4300], longer[400];
    const char *forms[] = {"#!%s/dir/here\n", "#! %s/dir/here  \n", "#!%s/dir/here -x\n", "#!\t%s/dir/here  several words of it  \nmore\n", "#!%s/dir/here", "#!%s/dir/here x\r\n", "#!dir/here relative\n", "#!./dir/here\n", "#!%s/missing\n", "#!%s/denied\n", "#!%s/dir\n", "#!%s/data\n", "#!\n", "#!", "#! \t \n", "#!%s/nothing\n", "#!/bin/sh -e\necho \"$0\" \"$@\" | sed \"s,$TOP,,g\"; false; echo not\n", "#!/usr/bin/env sh\necho \"$1\"\n", "#!/bin/echo\n", "#!%s/link by link\n", "#!%s/script0 nested\n", "#!%s/script20 again\n", "#!%s/script21\n", "#!%s/script22\n", "#!%s/script23\n", "#!%s/script24\n", "#!%s/script25\n", "echo no line \"$1\"\n", "\n#!/bin/sh\n", "#!/bin/sh\nexec \"$0.2\" from \"$@\"\n"};
    int count = sizeof forms / sizeof *forms, dir = MUST(open(".", O_RDONLY | O_DIRECTORY));
    for (int i = 0; i < count; i++) { char name[32]; snprintf(name, sizeof name, "script%d", i); snprintf(text, sizeof text, forms[i], top); script(name, text); }
    snprintf(text, sizeof text, "#!%s/dir/here after\n", top); script("script29.2", text);
    memset(longer, 'y', sizeof longer); longer[sizeof longer - 1] = 0; snprintf(text, sizeof text, "#!dir/here %s\n", longer); script("long", text); snprintf(text, sizeof text, "#!./%s\n", longer); script("longer", text);
    for (int i = 0; i < count; i++) { char name[32], label[64]; snprintf(name, sizeof name, "script%d", i); snprintf(label, sizeof label, "%s %.12s", name, forms[i] + (forms[i][0] == '#' ? 2 : 0)); for (char *c = label; *c; c++) if (*c < 32) *c = '.'; RUN(label, execv(name, arguments)); if (i > 26) RUN("by the shell", execvp(i == 27 ? "./script27" : name, arguments)); }
    RUN("long", execv("long", arguments)); RUN("longer", execv("longer", arguments));
    RUN("script of no arguments", execve("script2", few + 7, environ)); RUN("script by directory", execveat(dir, "script2", arguments, environ, 0)); snprintf(text, sizeof text, "%s/script2", top); RUN("script by path", execv(text, arguments));
    int open_ = MUST(open("script7", O_RDONLY)), closing = MUST(open("script7", O_RDONLY | O_CLOEXEC)); RUN("script by descriptor", fexecve(open_, arguments, environ)); RUN("script by closing descriptor", fexecve(closing, arguments, environ)); RUN("script by directory that closes", (fcntl(dir, F_SETFD, FD_CLOEXEC), execveat(dir, "script2", arguments, environ, 0)));
    /* A script of the host with an interpreter here. */
    char host[] = "/tmp/arck-test-script-XXXXXX"; int h = MUST(mkstemp(host)); snprintf(text, sizeof text, "#!%s/dir/here of the host\n", top); MUST(write(h, text, strlen(text))); MUST(fchmod(h, 0755)); close(h);
    printf("of the host:\n"); fflush(stdout); pid_t p = fork(); if (!p) { dup2(MUST(open("host-output", O_RDWR | O_CREAT, 0644)), 1); execv(host, few + 2); _exit(1); } printf("  %d\n", ended(p)); unlink(host);
    SHOW(system("sed \"s,/tmp/.*script-......,HOST,; s,$TOP,,g\" host-output | grep -v comm"));
    close(dir); close(open_); close(closing);
}

static void libraries(void) {
    char path[4300]; snprintf(path, sizeof path, "%s/dir/lib.so", top);
    SHOW(system("echo 'int g(void);int f(void){return 40+g();}' >f.c; echo 'int g(void){return 2;}' >g.c; cc -shared -fPIC -Wl,-soname,libg.so -o dir/libg.so g.c && cc -shared -fPIC -o dir/lib.so f.c -Ldir -lg -Wl,-rpath,'$ORIGIN' && ln -s lib.so dir/alias.so && cc -shared -fPIC -o dir/alone.so g.c"));
    const char *names[] = {path, "./dir/lib.so", "dir/alias.so", "dir/alone.so", "./dir/none.so", "data", "lib.so"};
    void *handles[7];
    for (int i = 0; i < 7; i++) { handles[i] = dlopen(names[i], i % 2 ? RTLD_NOW : RTLD_LAZY); int (*f)(void) = handles[i] ? dlsym(handles[i], i == 3 ? "g" : "f") : 0; printf("%s: %d %d same %d\n", cut(names[i]), handles[i] != 0, f ? f() : -1, handles[i] == handles[0]); }
    SHOW(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == handles[0]); Dl_info told; void *f0 = dlsym(handles[0], "f"); SHOW(f0 && dladdr(f0, &told) && !strcmp(told.dli_fname, path)); if (handles[0]) dlclose(handles[0]); SHOW(dlopen("dir/none.so", RTLD_NOW | RTLD_NOLOAD) == 0); dlerror(); dlopen("./dir/none.so", RTLD_NOW); const char *e = dlerror(); SHOW(e && strstr(e, "none.so") && strstr(e, "No such file"));
    SHOW(system("rm dir/lib.so")); int (*f)(void) = handles[1] ? dlsym(handles[1], "f") : 0; SHOW(f ? f() : -1);
    /* Others under the same descriptor's number, and one after it was closed. */
    SHOW(system("for n in 1 2 3; do echo \"int n; int f(void){return $n+10*n++;}\" >f.c; cc -shared -fPIC -o dir/l$n.so f.c; done"));
    for (int i = 0; i < 9; i++) { char name[20]; sprintf(name, "dir/l%d.so", i % 3 + 1); void *l = dlopen(name, RTLD_NOW); int (*f)(void) = l ? dlsym(l, "f") : 0; printf("%s: %d\n", name, f ? f() : -1); if (l && i < 3) dlclose(l); }
    for (int i = 0; i < 7; i++) if (handles[i] && i) dlclose(handles[i]);
    show_open("after libraries");
}

int main(int argc, char **argv) {
    if (getenv("TOP")) return child(argc, argv);
    begin(argv);
    setenv("TOP", top, 1);
    snprintf(few[0] = malloc(4200), 4200, "TOP=%s", top); few[1] = "HOME=elsewhere"; few[2] = few[3] = 0;
    MUST(mkdir("dir", 0755)); copy_self("dir/here"); put("data", "no program\n"); MUST(chmod("data", 0644)); put("denied", "#!/bin/sh\n"); script("nothing", ""); MUST(symlink("dir/here", "link")); MUST(symlink("nowhere", "dangling")); MUST(symlink("loop", "loop"));
    script("zeroes", ""); MUST(truncate("zeroes", 5000)); script("short", "\177ELF\2\1\1");
    if (argc < 3 || !strcmp(argv[2], "programs")) programs();
    if (argc < 3 || !strcmp(argv[2], "scripts")) scripts();
    if (argc < 3 || !strcmp(argv[2], "libraries")) libraries();
    return 0;
}
