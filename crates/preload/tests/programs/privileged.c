// Linked with the preload library itself, so that it is loaded also where the loader ignores LD_PRELOAD.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

int main(int count, char **arguments) {
    int made = mkdir(count > 1 ? arguments[1] : "", 0700);
    printf("%s: %s\n", getauxval(AT_SECURE) ? "privileged" : "plain", made ? strerror(errno) : "made");
    return 0;
}
