// What calls and completions say, printed.
#include <stdio.h>
#include <string.h>

static const char *of(long result) {
    static char text[8][64];
    static int turn;
    char *room = text[turn++ % 8];
    if (result < 0)
        snprintf(room, sizeof text[0], "%s", strerrorname_np(-result));
    else
        snprintf(room, sizeof text[0], "%ld", result);
    return room;
}

static void said(const char *what, long result) { printf("%s: %s\n", what, of(result)); }
