/* posix_spawn with each file action and attribute, of programs on the host and on the directory of
 * the test; system and popen. The child is this program, which tells what it has. */
#include "told.h"
#include <spawn.h>
#include <sys/ioctl.h>
#include <termios.h>

typedef posix_spawn_file_actions_t Actions;
static int file, other, directory, null;
static int child(int argc, char **argv) {
    sigset_t mask, ignored;
    top = argv[1];
    sigemptyset(&ignored);
    sigprocmask(SIG_SETMASK, 0, &mask);
    for (int s = 1; s < 32; s++) { struct sigaction a; if (!sigaction(s, 0, &a) && a.sa_handler == SIG_IGN) sigaddset(&ignored, s); }
    show_open(argv[2]);
    printf("  group %s session %s policy %d blocked %lx ignored %lx ids %d %d\n", getpgrp() == getpid() ? "own" : "parent's",
           getsid(0) == getpid() ? "own" : "parent's", sched_getscheduler(0), mask.__val[0] & 0x7ffffffful, ignored.__val[0], geteuid(), getegid());
    /* What it was given can be used. */
    char c;
    for (int f = 3; f < 12; f++) if (fcntl(f, F_GETFD) >= 0) { struct stat s; if (!fstat(f, &s) && S_ISREG(s.st_mode)) printf("  %d: read %ld write %ld\n", f, (long)read(f, &c, 1), (long)write(f, "w", 1)); }
    printf("  made %d\n", open("by-child", O_WRONLY | O_CREAT | O_TRUNC, 0644) >= 0);
    /* Nobody else looks for it there. */
    char root[2];
    if (getcwd(root, sizeof root)) printf("  in the root, taken away %d\n", unlink("by-child"));
    return 5;
}

static void nothing(Actions *a) {}
static void opens(Actions *a) { posix_spawn_file_actions_addopen(a, 7, "new", O_RDWR | O_CREAT | O_TRUNC, 0640); posix_spawn_file_actions_addopen(a, 8, "other", O_WRONLY | O_APPEND, 0); posix_spawn_file_actions_addopen(a, 9, "dir", O_RDONLY | O_DIRECTORY, 0); }
static void opens_over(Actions *a) { posix_spawn_file_actions_addopen(a, file, "new", O_RDWR, 0); posix_spawn_file_actions_addopen(a, other, "/dev/null", O_RDWR, 0); posix_spawn_file_actions_addopen(a, null, "other", O_RDONLY, 0); }
static void opens_standard(Actions *a) { posix_spawn_file_actions_addopen(a, 0, "file", O_RDONLY, 0); posix_spawn_file_actions_addopen(a, 1, "output", O_WRONLY | O_CREAT | O_TRUNC, 0644); posix_spawn_file_actions_adddup2(a, 1, 2); }
static void opens_missing(Actions *a) { posix_spawn_file_actions_addopen(a, 7, "missing", O_RDONLY, 0); }
static void opens_exclusively(Actions *a) { posix_spawn_file_actions_addopen(a, 7, "file", O_RDWR | O_CREAT | O_EXCL, 0644); }
static void closes(Actions *a) { posix_spawn_file_actions_addclose(a, file); posix_spawn_file_actions_addclose(a, null); posix_spawn_file_actions_addclose(a, 33); }
static void closes_all(Actions *a) { posix_spawn_file_actions_addclosefrom_np(a, 3); }
static void closes_some(Actions *a) { posix_spawn_file_actions_addclosefrom_np(a, directory); posix_spawn_file_actions_addopen(a, 30, "other", O_RDONLY, 0); }
static void duplicates(Actions *a) { posix_spawn_file_actions_adddup2(a, file, 10); posix_spawn_file_actions_adddup2(a, 10, 11); posix_spawn_file_actions_adddup2(a, null, file); posix_spawn_file_actions_adddup2(a, other, null); }
static void duplicates_onto_itself(Actions *a) { posix_spawn_file_actions_adddup2(a, other, other); }
static void duplicates_standard(Actions *a) { posix_spawn_file_actions_adddup2(a, file, 0); }
static void duplicates_closed(Actions *a) { posix_spawn_file_actions_adddup2(a, 35, 10); }
static void changes_directory(Actions *a) { posix_spawn_file_actions_addchdir_np(a, "dir"); posix_spawn_file_actions_addopen(a, 7, "inside", O_RDWR | O_CREAT, 0600); posix_spawn_file_actions_addopen(a, 8, "../file", O_RDONLY, 0); }
static void leaves_directory(Actions *a) { posix_spawn_file_actions_addchdir_np(a, "/"); posix_spawn_file_actions_addopen(a, 7, "dev/null", O_RDONLY, 0); }
static void comes_back(Actions *a) { posix_spawn_file_actions_addchdir_np(a, "/usr"); posix_spawn_file_actions_addchdir_np(a, top); posix_spawn_file_actions_addchdir_np(a, "dir/.."); }
static void changes_to_missing(Actions *a) { posix_spawn_file_actions_addchdir_np(a, "missing"); }
static void changes_by_descriptor(Actions *a) { posix_spawn_file_actions_addfchdir_np(a, directory); posix_spawn_file_actions_addclose(a, directory); posix_spawn_file_actions_addopen(a, 7, "inside", O_RDWR | O_CREAT, 0600); }
static void changes_by_file(Actions *a) { posix_spawn_file_actions_addfchdir_np(a, file); }
static const struct { const char *name; void (*add)(Actions *); } actions[] = {
    {"nothing", nothing}, {"opens", opens}, {"opens over", opens_over}, {"opens standard", opens_standard}, {"opens missing", opens_missing}, {"opens exclusively", opens_exclusively}, {"closes", closes}, {"closes all", closes_all}, {"closes some", closes_some}, {"duplicates", duplicates},
    {"duplicates onto itself", duplicates_onto_itself}, {"duplicates standard", duplicates_standard}, {"duplicates closed", duplicates_closed}, {"changes directory", changes_directory}, {"leaves directory", leaves_directory}, {"comes back", comes_back}, {"changes to missing", changes_to_missing}, {"changes by descriptor", changes_by_descriptor}, {"changes by file", changes_by_file},
};

static void run(const char *name, const char *program, Actions *a, posix_spawnattr_t *attributes) {
    char *list[] = {(char *)program, "child", (char *)top, (char *)name, 0};
    pid_t p = 0;
    int result = posix_spawn(&p, program, a, attributes, list, environ);
    printf("%s: %s %d\n", name, result ? strerrorname_np(result) : "spawned", result ? 0 : ended(p));
    printf("  file at %ld, made %d %d\n", (long)lseek(file, 0, SEEK_CUR), unlink("by-child"), unlink("dir/by-child"));
    fflush(stdout);
    lseek(file, 4, SEEK_SET);
}

static void attributes(const char *program) {
    static const struct { const char *name; short flags; } table[] = {{"group", POSIX_SPAWN_SETPGROUP}, {"mask", POSIX_SPAWN_SETSIGMASK}, {"default", POSIX_SPAWN_SETSIGDEF}, {"scheduler", POSIX_SPAWN_SETSCHEDULER}, {"parameters", POSIX_SPAWN_SETSCHEDPARAM}, {"ids", POSIX_SPAWN_RESETIDS}, {"session", POSIX_SPAWN_SETSID}, {"vfork", POSIX_SPAWN_USEVFORK}, {"several", POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF}};
    signal(SIGUSR1, SIG_IGN);
    signal(SIGUSR2, SIG_IGN);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        posix_spawnattr_t a;
        sigset_t mask, reset;
        struct sched_param parameters = {0};
        posix_spawnattr_init(&a);
        sigemptyset(&mask); sigaddset(&mask, SIGTERM); sigaddset(&mask, SIGCHLD);
        sigemptyset(&reset); sigaddset(&reset, SIGUSR1); sigaddset(&reset, SIGINT);
        posix_spawnattr_setflags(&a, table[i].flags);
        posix_spawnattr_setpgroup(&a, 0);
        posix_spawnattr_setsigmask(&a, &mask);
        posix_spawnattr_setsigdefault(&a, &reset);
        posix_spawnattr_setschedpolicy(&a, SCHED_BATCH);
        posix_spawnattr_setschedparam(&a, &parameters);
        run(table[i].name, program, 0, &a);
    }
    signal(SIGUSR1, SIG_DFL);
    signal(SIGUSR2, SIG_DFL);
}

/* A terminal's foreground group, which a session's leader hands to what it spawns. */
static void terminal(const char *program) {
    pid_t p = fork();
    if (p) { printf("terminal: %d\n", ended(p)); fflush(stdout); return; }
    int master = MUST(posix_openpt(O_RDWR | O_NOCTTY));
    grantpt(master); unlockpt(master);
    MUST(setsid());
    int slave = MUST(open(ptsname(master), O_RDWR));
    signal(SIGTTOU, SIG_IGN);
    posix_spawn_file_actions_t a;
    posix_spawnattr_t at;
    posix_spawn_file_actions_init(&a); posix_spawnattr_init(&at);
    posix_spawnattr_setflags(&at, POSIX_SPAWN_SETPGROUP);
    posix_spawn_file_actions_addtcsetpgrp_np(&a, slave);
    posix_spawn_file_actions_addclose(&a, master);
    posix_spawn_file_actions_adddup2(&a, file, 12);
    run("terminal's", program, &a, &at);
    printf("foreground %s\n", tcgetpgrp(slave) == getpgrp() ? "ours" : "not ours");
    posix_spawn_file_actions_destroy(&a); posix_spawn_file_actions_init(&a);
    posix_spawn_file_actions_addtcsetpgrp_np(&a, file);
    run("of no terminal", program, &a, &at);
    fflush(stdout);
    _exit(3);
}

int main(int argc, char **argv) {
    if (argc > 3 && !strcmp(argv[1], "child")) return child(argc - 1, argv + 1);
    begin(argv);
    put("file", "0123456789");
    put("other", "abcdef");
    MUST(mkdir("dir", 0755));
    file = MUST(open("file", O_RDWR));
    other = MUST(open("other", O_RDONLY | O_CLOEXEC));
    directory = MUST(open("dir", O_RDONLY | O_DIRECTORY));
    null = MUST(open("/dev/null", O_RDWR));
    lseek(file, 4, SEEK_SET);
    copy_self("here");
    char absolute[4200];
    snprintf(absolute, sizeof absolute, "%s/here", top);
    const char *programs[] = {self, "./here", absolute};
    for (int i = 0; i < 3; i++) {
        printf("--- %d\n", i);
        for (size_t n = 0; n < sizeof actions / sizeof *actions; n++) {
            Actions a;
            posix_spawn_file_actions_init(&a);
            actions[n].add(&a);
            run(actions[n].name, programs[i], &a, 0);
            posix_spawn_file_actions_destroy(&a);
        }
        attributes(programs[i]);
        terminal(programs[i]);
        show_open("parent");
    }
    show_file("output"); show_file("file"); show_file("other"); show_file("dir/inside");
    /* By name, of what is none, and what is no program. */
    setenv("PATH", top, 1);
    char *list[] = {"here", "child", (char *)top, "by name", 0}, *none[] = {0};
    pid_t p;
    int by_name = posix_spawnp(&p, "here", 0, 0, list, environ), status = ended(p); printf("by name %d %d\n", by_name, status); fflush(stdout);
    SHOW(posix_spawnp(&p, "nowhere", 0, 0, list, environ)); SHOW(posix_spawn(&p, "file", 0, 0, list, environ)); SHOW(posix_spawn(&p, "dir", 0, 0, list, environ)); SHOW(posix_spawn(&p, "file/x", 0, 0, list, environ)); SHOW(posix_spawn(&p, "", 0, 0, list, environ));
    by_name = posix_spawn(&p, "here", 0, 0, list, none); status = ended(p); printf("without environment %d %d\n", by_name, status); fflush(stdout);
    setenv("PATH", "/bin:/usr/bin", 1);
    /* The shell's. */
    char text[200];
    SHOW(WEXITSTATUS(system("cat <&3 >from-system; pwd >>from-system; exec 9<dir; echo /proc/self/fd/9 | wc -l; exit 4")));
    show_file("from-system");
    lseek(file, 0, SEEK_SET);
    FILE *r = popen("cat <&3; echo; cat /dev/fd/3 | wc -c; echo from popen", "r");
    while (fgets(text, sizeof text, r)) fputs(text, stdout);
    SHOW(pclose(r));
    FILE *w = popen("cat >written; cat /proc/self/fd/3 >>written", "we");
    fputs("to popen ", w); SHOW(pclose(w)); show_file("written");
    SHOW(popen("true", "x") == 0);
    show_open("at last");
    return 0;
}
