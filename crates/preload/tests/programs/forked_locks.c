/* Forks while another thread takes its first locks of what it has just opened: no child has a descriptor more than
 * what the program has open, and none keeps a lock that its parent has given up. */
#include "show.h"
#include <pthread.h>
#include <sys/file.h>
#include <sys/wait.h>

static volatile int over;
static int refused;
static int open_here(void) { int n = 0; for (int i = 0; i < 200; i++) n += fcntl(i, F_GETFD) >= 0; return n; }
static void *locks(void *unused) {
    (void)unused;
    while (!over) {
        int f = MUST(open("f", O_RDWR | O_CLOEXEC));
        refused += flock(f, LOCK_EX | LOCK_NB) != 0; flock(f, LOCK_UN); close(f);
    }
    return 0;
}
int main(int argc, char **argv) {
    begin(argv); put("f", "x");
    int before = open_here(), more = 0, gate[2]; MUST(pipe(gate)); before += 2;
    pthread_t t; pthread_create(&t, 0, locks, 0);
    /* They live on for a while, with all that they have. */
    for (int i = 0; i < 400; i++) { pid_t c = fork(); if (!c) { char byte; int n = open_here() > before + 1; close(gate[1]); read(gate[0], &byte, 1); _exit(n); } if (i % 40 == 39) { close(gate[1]); close(gate[0]); int s; while (waitpid(-1, &s, 0) > 0) more += s != 0; printf("%d: %d refused, %d have more\n", i, refused, more); MUST(pipe(gate)); } }
    over = 1; pthread_join(t, 0);
    printf("in the end: %d, %d\n", refused, more);
    return 0;
}
