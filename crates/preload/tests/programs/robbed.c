/* What a program of another user's, started by root's, can do to what root's goes on with: it moves the
 * offsets that they share, and no more. */
#include "told.h"
#include <grp.h>

int main(int argc, char **argv) {
    begin(argv);
    MUST(chmod(".", 0755)); put("log", "before\n"); MUST(chmod("log", 0600)); put("other", "the other file\n"); MUST(chmod("other", 0600));
    struct stat s; MUST(stat("other", &s));
    for (int round = 0; round < 3; round++) {
        printf("  round %d\n", round); fflush(stdout);
        int log = MUST(open("log", O_WRONLY | O_APPEND)), both = MUST(open("log", O_WRONLY));
        int nameless = MUST(open(".", O_RDWR | O_TMPFILE, 0600)), gone = MUST(open("gone", O_RDWR | O_CREAT, 0600)); MUST(unlink("gone"));
        MUST(write(nameless, "abcdef", 6)); MUST(write(gone, "ghijkl", 6));
        char text[16] = {0}, numbers[4][12], inode[24];
        int all[] = {log, both, nameless, gone};
        for (int i = 0; i < 4; i++) sprintf(numbers[i], "%d", all[i]);
        sprintf(inode, "%lu", (unsigned long)s.st_ino);
        pid_t p = fork();
        if (!p) {
            if (setgroups(0, 0) || setgid(1234) || setuid(1234)) _exit(8);
            if (round == 1) { pid_t q = fork(); if (q) _exit(ended(q)); }
            execl(getenv("ROBBER"), "robber", inode, numbers[0], numbers[1], numbers[2], numbers[3], (char *)0); _exit(9);
        }
        printf("  ended %d\n", ended(p));
        if (round == 2) { SHOW(write(log, "after\n", 6)); } else { SHOW(write(both, "W", 1)); }
        SHOW(lseek(both, 0, SEEK_CUR)); SHOW(fcntl(both, F_GETFL) & ~0100000);
        SHOW(read(nameless, text, 2)); printf("  %s\n", text); SHOW(read(gone, text, 2)); printf("  %s\n", text);
        close(log); close(both); close(nameless); close(gone);
        show_file("log"); show_file("other");
    }
    return 0;
}
