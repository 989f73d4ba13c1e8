# program: programs under valgrind
# needs: valgrind=valgrind gcc=build-essential
# version: valgrind --version | sed 's/valgrind-//'
# compares: what memcheck says of a program that reads and writes files, of one that reads what it has freed and leaks, what cachegrind and helgrind leave
# volatile: made/cachegrind
# forms: run alone mount
cd "$1"
mkdir made
cat >good.c <<'END'
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void *work(void *name)
{
    FILE *file = fopen(name, "w");
    if (!file)
        return name;
    for (int line = 0; line < 500; line++)
        fprintf(file, "%s %d\n", (char *)name, line);
    return fclose(file) ? name : NULL;
}

int main(void)
{
    pthread_t threads[4];
    char names[4][16];
    void *failed = NULL;
    for (int n = 0; n < 4; n++) {
        snprintf(names[n], sizeof names[n], "made/thread%d", n);
        pthread_create(&threads[n], NULL, work, names[n]);
    }
    for (int n = 0; n < 4; n++) {
        void *result;
        pthread_join(threads[n], &result);
        if (result)
            failed = result;
    }
    int file = open("made/mapped", O_RDWR | O_CREAT, 0644);
    if (failed || file < 0 || ftruncate(file, 8192))
        return 1;
    char *map = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (map == MAP_FAILED)
        return 2;
    strcpy(map + 5000, "written through a map");
    char text[32];
    struct stat stat;
    if (pread(file, text, sizeof text, 5000) != sizeof text || fstat(file, &stat))
        return 3;
    munmap(map, 8192);
    close(file);
    rename("made/thread0", "made/renamed");
    printf("%s, %ld\n", text, (long)stat.st_size);
    return 0;
}
END
cat >bad.c <<'END'
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    int file = open("made/bad", O_RDWR | O_CREAT | O_TRUNC, 0644);
    char *text = malloc(64);
    memset(text, 'x', 32);
    if (write(file, text, 64) != 64)
        return 1;
    free(text);
    if (text[3] == 'y')
        puts("?");
    text = malloc(100);
    lseek(file, 0, SEEK_SET);
    printf("%d\n", (int)read(file, text, 100));
    text = NULL;
    return text != NULL;
}
END
gcc -g -O0 -pthread -o good good.c; gcc -g -O0 -o bad bad.c
said() { sed -nE 's/ \(suppressed.*//; s/^==[0-9]+== *//; /^(Invalid|Syscall param|ERROR SUMMARY|[^ ]* ?definitely lost|definitely lost|possibly lost|All heap)/p' "$1"; }
./good
valgrind --leak-check=full --error-exitcode=9 --log-file="$SCRATCH/good" ./good; said "$SCRATCH/good"
if valgrind --leak-check=full --error-exitcode=9 --log-file="$SCRATCH/bad" ./bad; then echo "nothing found"; else echo "status $?"; fi
said "$SCRATCH/bad"
valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=made/cachegrind --log-file="$SCRATCH/log" ./good
grep -c '^fn=main' made/cachegrind
valgrind --tool=helgrind --error-exitcode=9 --log-file="$SCRATCH/log" ./good; said "$SCRATCH/log"
# A program of the host's, the log on the pool.
valgrind --log-file=made/log -q cat good.c | cksum; [[ ! -s made/log ]] || cat made/log
rm made/log; cksum made/renamed made/thread? made/mapped
