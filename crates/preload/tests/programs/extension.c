// A library with a system call of its own, as some extensions of node's and Python's have, loaded (compiled
// with -DLIBRARY) when the threads are there already that use it.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/syscall.h>

#ifdef LIBRARY
long resolve(const char *name) {
    long result;
    register long r10 __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(SYS_openat), "D"(AT_FDCWD), "S"(name), "d"(O_RDONLY), "r"(r10)
                     : "rcx", "r11", "memory");
    return result;
}
#else
static long (*resolve)(const char *);
static sem_t loaded;
static char name[4096];

static void *work(void *unused) {
    (void)unused;
    while (sem_wait(&loaded)) {
    }
    return (void *)(resolve(name) >= 0);
}

int main(int count, char **arguments) {
    if (count < 3)
        return 2;
    snprintf(name, sizeof name, "%s/file", arguments[2]);
    FILE *file = fopen(name, "w");
    pthread_t threads[3];
    sem_init(&loaded, 0, 0);
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, work, NULL);
    void *library = dlopen(arguments[1], RTLD_NOW);
    if (library)
        resolve = (long (*)(const char *))dlsym(library, "resolve");
    if (!file || !resolve)
        return 3;
    int seen = 0;
    for (int i = 0; i < 3; i++)
        sem_post(&loaded);
    for (int i = 0; i < 3; i++) {
        void *found;
        pthread_join(threads[i], &found);
        seen += found != NULL;
    }
    printf("seen by %d of 3\n", seen);
    return 0;
}
#endif
