// A program that knows nothing of delegation: it writes and reads a file in pieces, and counts its own threads of a name.
//
//   delegating FILE THREAD
//                writes and reads little; in a handler of a signal, which has interrupted whatever it has; much, in the same thread; then
//                a child does, and then the program itself, executed once more, with "again" behind
//
// Each line is "WHAT BYTES THREADS": bytes that were not read as they had been written, and threads of that name.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MUCH (3 << 20)
#define LITTLE 200

static const char *file, *thread;
static unsigned char written[MUCH], found[MUCH];
static int turn;
static int lost;

// Threads of that name, when all but the first have it: a thread names itself when it comes to run.
static int threads(void) {
    for (int look = 0; look < 10000; look++) {
        int count = 0, all = 0;
        DIR *tasks = opendir("/proc/self/task");
        for (struct dirent *task; tasks && (task = readdir(tasks));) {
            if (task->d_name[0] == '.')
                continue;
            char path[300], name[32] = "";
            snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
            FILE *of = fopen(path, "r");
            if (!of)
                continue;
            if (fgets(name, sizeof name, of))
                name[strcspn(name, "\n")] = 0;
            fclose(of);
            all++;
            count += strcmp(name, thread) == 0;
        }
        if (tasks)
            closedir(tasks);
        if (count == all - 1)
            return count;
        usleep(1000);
    }
    return -1;
}

// Writes so many bytes behind a few others, and reads them; how many are not the same.
static int differing(size_t length) {
    turn++;
    for (size_t i = 0; i < length; i++)
        written[i] = (unsigned char)(i * 7 + i / 251 + turn);
    memset(found, 0, length);
    int number = open(file, O_RDWR | O_CREAT, 0600);
    if (number < 0 || pwrite(number, written, length, 777) != (ssize_t)length ||
        pread(number, found, length, 777) != (ssize_t)length || close(number) != 0)
        return -1;
    int differ = 0;
    for (size_t i = 0; i < length; i++)
        differ += found[i] != written[i];
    return differ;
}

static void tell(const char *what, int differ) {
    printf("%s %d %d\n", what, differ, threads());
    fflush(stdout);
}

static void handle(int signal) {
    (void)signal;
    lost = differing(MUCH);
}

int main(int count, char **arguments) {
    file = arguments[1];
    thread = arguments[2];
    if (count > 3) {
        tell("again", differing(MUCH));
        return 0;
    }
    tell("little", differing(LITTLE));
    signal(SIGUSR1, handle);
    raise(SIGUSR1);
    tell("handler", lost);
    tell("much", differing(MUCH));
    pid_t child = fork();
    if (child == 0) {
        tell("child-little", differing(LITTLE));
        tell("child", differing(MUCH));
        return 0;
    }
    int status;
    if (waitpid(child, &status, 0) != child || status != 0)
        return 1;
    tell("parent", differing(MUCH));
    execl("/proc/self/exe", arguments[0], file, thread, "again", (char *)NULL);
    return 1;
}
