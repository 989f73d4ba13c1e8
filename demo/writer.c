/*
 * The program that the demo kills: makes, renames, appends to, shortens and removes small files,
 * and after each step that has returned appends one line to a log outside the pool. What step i
 * does is a function of i alone, so that the log's length says what must be there afterwards.
 *
 *     writer write DIRECTORY LOG     until killed; the process is in LOG.process
 *     writer check DIRECTORY LOG     status 0 if DIRECTORY holds exactly what LOG promises
 *
 * Steps come in groups of four, on two files, A (number 4g) and B (number 4g + 1):
 *     4g      create A and write it
 *     4g + 1  write B under another name and rename it
 *     4g + 2  append to A
 *     4g + 3  remove B in every fourth group, otherwise shorten it to half
 * The one step that was under way when the program was killed may have happened, or not, or,
 * where it writes data, in part.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LENGTH_MAX 9000
#define TEMPORARY "being-written"

static void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("writer: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(1);
}

static size_t length_of(long step)
{
    return (size_t)(step * 7919 % LENGTH_MAX);
}

static void content_of(long step, char *buffer, size_t length)
{
    for (size_t i = 0; i < length; i++)
        buffer[i] = (char)('a' + (i * 31 + (size_t)step * 17 + i / 97) % 26);
}

static void name_of(long number, char *name)
{
    sprintf(name, "file-%08ld", number);
}

static int removes(long group)
{
    return group % 4 == 3;
}

static void write_content(int file, long step, const char *name)
{
    char buffer[LENGTH_MAX];
    size_t length = length_of(step), done = 0;
    content_of(step, buffer, length);
    while (done < length) {
        ssize_t count = write(file, buffer + done, length - done);
        if (count <= 0)
            fail("write %s: %s", name, strerror(errno));
        done += (size_t)count;
    }
}

static void do_step(long step)
{
    char name[32];
    int file;
    name_of(step % 4 == 1 || step % 4 == 3 ? step / 4 * 4 + 1 : step / 4 * 4, name);
    switch (step % 4) {
    case 0:
    case 1:
        file = open(step % 4 == 0 ? name : TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC, 0644);
        if (file < 0)
            fail("create %s: %s", name, strerror(errno));
        write_content(file, step, name);
        if (close(file) != 0)
            fail("close %s: %s", name, strerror(errno));
        if (step % 4 == 1 && rename(TEMPORARY, name) != 0)
            fail("rename to %s: %s", name, strerror(errno));
        break;
    case 2:
        file = open(name, O_WRONLY | O_APPEND);
        if (file < 0)
            fail("open %s: %s", name, strerror(errno));
        write_content(file, step, name);
        if (close(file) != 0)
            fail("close %s: %s", name, strerror(errno));
        break;
    case 3:
        if (removes(step / 4) ? unlink(name) : truncate(name, (off_t)(length_of(step - 2) / 2)))
            fail("%s %s: %s", removes(step / 4) ? "unlink" : "truncate", name, strerror(errno));
        break;
    }
}

static void write_until_killed(int log)
{
    for (long step = 0;; step++) {
        char line[32];
        do_step(step);
        int length = sprintf(line, "%ld\n", step);
        if (write(log, line, (size_t)length) != length)
            fail("log: %s", strerror(errno));
    }
}

/* Reads a file; its length, or -1 if there is none. */
static ssize_t read_file(const char *name, char *buffer, size_t size)
{
    int file = open(name, O_RDONLY);
    if (file < 0) {
        if (errno == ENOENT)
            return -1;
        fail("open %s: %s", name, strerror(errno));
    }
    size_t done = 0;
    for (;;) {
        ssize_t count = read(file, buffer + done, size - done);
        if (count < 0)
            fail("read %s: %s", name, strerror(errno));
        if (count == 0 || done == size)
            break;
        done += (size_t)count;
    }
    struct stat status;
    if (fstat(file, &status) != 0)
        fail("fstat %s: %s", name, strerror(errno));
    if ((size_t)status.st_size != done)
        fail("%s: %zu bytes read, but its size is %lld", name, done, (long long)status.st_size);
    close(file);
    return (ssize_t)done;
}

/* One file after `steps` finished steps, the step with that number perhaps in part. Returns
 * whether the file is there. */
static int check_file(long number, long steps)
{
    static char expected[2 * LENGTH_MAX], found[2 * LENGTH_MAX + 1];
    char name[32];
    int is_a = number % 4 == 0, loose = steps / 4 == number / 4;
    long under_way = loose ? steps % 4 : -1;
    size_t length = 0, least;
    int must, may;

    name_of(number, name);
    if (is_a) {
        int appended = steps > number + 2;
        must = steps > number;
        may = must || under_way == 0;
        content_of(number, expected, length_of(number));
        content_of(number + 2, expected + length_of(number), length_of(number + 2));
        least = length = length_of(number) + (appended ? length_of(number + 2) : 0);
        if (under_way == 0)
            least = 0;
        if (under_way == 2)
            length += length_of(number + 2);
    } else {
        int last_done = steps > number + 2, gone = removes(number / 4);
        must = steps > number && !(gone && (last_done || under_way == 3));
        may = (steps > number && !(gone && last_done)) || under_way == 1;
        content_of(number, expected, length_of(number));
        length = last_done && !gone ? length_of(number) / 2 : length_of(number);
        least = under_way == 3 && !gone ? length_of(number) / 2 : length;
    }
    ssize_t size = read_file(name, found, sizeof found);
    if (size < 0) {
        if (must)
            fail("%s is missing after %ld steps", name, steps);
        return 0;
    }
    if (!may)
        fail("%s is there after %ld steps", name, steps);
    if ((size_t)size < least || (size_t)size > length)
        fail("%s has %zd bytes after %ld steps, not %zu to %zu", name, size, steps, least, length);
    /* Data of the step under way need not be whole; everything else must be right. */
    if (memcmp(expected, found, least) != 0)
        fail("%s has wrong content after %ld steps", name, steps);
    if (!is_a && memcmp(expected, found, (size_t)size) != 0)
        fail("%s was renamed before it was written", name);
    return 1;
}

static void check(const char *log)
{
    FILE *lines = fopen(log, "r");
    long steps = 0, step, there = 0, listed = 0;
    struct dirent *entry;
    if (lines == NULL)
        fail("%s: %s", log, strerror(errno));
    while (fscanf(lines, "%ld", &step) == 1)
        if (step != steps++)
            fail("%s: line %ld says %ld", log, steps, step);
    fclose(lines);
    for (long group = 0; group <= steps / 4; group++)
        there += check_file(4 * group, steps) + check_file(4 * group + 1, steps);

    DIR *directory = opendir(".");
    if (directory == NULL)
        fail("opendir: %s", strerror(errno));
    for (errno = 0; (entry = readdir(directory)) != NULL; errno = 0) {
        if (entry->d_name[0] == '.')
            continue;
        if (strcmp(entry->d_name, TEMPORARY) == 0) {
            if (steps % 4 != 1)
                fail("%s is there after %ld steps", TEMPORARY, steps);
            continue;
        }
        listed++;
    }
    if (errno != 0)
        fail("readdir: %s", strerror(errno));
    closedir(directory);
    if (listed != there)
        fail("%ld names listed, %ld expected", listed, there);
    printf("%ld steps, %ld files\n", steps, there);
}

int main(int count, char **arguments)
{
    if (count != 4)
        fail("usage: writer write|check DIRECTORY LOG");
    if (chdir(arguments[2]) != 0)
        fail("chdir %s: %s", arguments[2], strerror(errno));
    if (strcmp(arguments[1], "check") == 0) {
        check(arguments[3]);
        return 0;
    }
    char path[4096];
    snprintf(path, sizeof path, "%s.process", arguments[3]);
    FILE *process = fopen(path, "w");
    if (process == NULL || fprintf(process, "%d\n", (int)getpid()) < 0 || fclose(process) != 0)
        fail("%s: %s", path, strerror(errno));
    int log = open(arguments[3], O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (log < 0)
        fail("%s: %s", arguments[3], strerror(errno));
    write_until_killed(log);
}
