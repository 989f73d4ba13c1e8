# program: AddressSanitizer, ThreadSanitizer, UndefinedBehaviorSanitizer
# needs: gcc=gcc
# version: gcc -dumpfullversion
# compares: what programs that are compiled with them do to files, what they say of mistakes and how they end, beside the programs that they start
# forms: run alone mount
cd "$1"
cat >program.c <<'END'
#include <dirent.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <fcntl.h>
#include <unistd.h>

static int shared;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *append(void *name) {
    FILE *file = fopen(name, "a");
    fputs("thread\n", file);
    fclose(file);
    pthread_mutex_lock(&lock);
    shared++;
    pthread_mutex_unlock(&lock);
    return NULL;
}
static int forever(int n) { char place[64]; memset(place, n, 64); return forever(n + 1) + place[n & 63]; }

int main(int count, char **words) {
    const char *mistake = count > 1 ? words[1] : "";
    FILE *file = fopen("written", "w");
    for (int i = 0; i < 5000; i++) fprintf(file, "line %d\n", i);
    fclose(file);
    int map = open("written", O_RDWR);
    char *bytes = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, map, 0);
    bytes[0] = 'L';
    munmap(bytes, 4096);
    close(map);
    int names = 0;
    DIR *directory = opendir(".");
    while (readdir(directory)) names++;
    closedir(directory);
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, append, "threads");
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("%d names, %d\n", names > 4, shared);
    fflush(stdout);
    // What it starts is not to be told of the runtime.
    if (system("head -c 6 written; wc -l <threads; rm threads; env | grep -c asan; exit 3") != 3 << 8) return 9;
    char *block = malloc(10);
    file = fopen("written", "r");
    if (!strcmp(mistake, "overflow") && fread(block, 1, 11, file)) return 8;
    if (!strcmp(mistake, "freed")) { free(block); block[1] = 1; }
    if (!strcmp(mistake, "leak")) block = NULL;
    if (!strcmp(mistake, "null")) *(volatile int *)NULL = 1;
    if (!strcmp(mistake, "stack")) return forever(1);
    if (!strcmp(mistake, "large")) { volatile int n = INT_MAX; n++; }
    fclose(file);
    free(block);
    return 0;
}
END
for kind in address thread undefined; do gcc -g -O0 -w -fsanitize=$kind program.c -o $kind; done
gcc -g -O0 -w -fsanitize=address -static-libasan program.c -o static
# Of a report only what it is about: the rest is addresses and numbers.
try() {
    local status=0
    "$@" >"$SCRATCH/said" 2>"$SCRATCH/report" || status=$?
    printf '%s: status %s\n' "$*" "$status"
    cat "$SCRATCH/said"
    grep -aoE '(ERROR|WARNING|SUMMARY): [A-Za-z]*Sanitizer: [a-zA-Z-]+( race)?|runtime error: [a-z ]+' "$SCRATCH/report" | sort -u || true
}
cp address "$SCRATCH/elsewhere"
for program in ./address ./static "$SCRATCH/elsewhere"; do
    for mistake in none overflow freed leak null stack; do try "$program" $mistake; done
done 2>&1 | sed "s,$SCRATCH/,,"
try ./thread none
try ./undefined large
ls
