/* Linked statically: executes what it is told, itself or in a child, with the environment that it has.
 * launcher WAY DIRECTORY PROGRAM [ARGUMENT...]; as a script's interpreter, launcher fork SCRIPT PROGRAM... */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int s;
    if (argc < 4) return 90;
    /* Nothing of the pool's is there for it: "." stays where it is. */
    if (argv[2][0] == '/' && chdir(argv[2])) return 91;
    if (!strcmp(argv[1], "close")) {
        /* Whatever it was not meant to know of: its own files have those numbers. */
        for (int f = 3; f < 1024; f++) close(f);
        for (int f = 3; f < 1000; f++) if (open("/dev/null", O_RDONLY) != f) return 92;
    }
    if (!strcmp(argv[1], "exec")) { execv(argv[3], argv + 3); return 93; }
    pid_t p = fork();
    if (!p) { execv(argv[3], argv + 3); _exit(94); }
    if (waitpid(p, &s, 0) != p) return 95;
    return WIFEXITED(s) ? WEXITSTATUS(s) : 96;
}
