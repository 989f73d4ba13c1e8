// Files of a pool, by calls like those of POSIX.
//
//     cc -o files examples/c/files.c $(pkg-config --cflags --libs arck)
//     ARCK_POOL=/dev/shm/my-pool ./files

// For O_DIRECTORY.
#define _GNU_SOURCE

#include <arck.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// What has failed says why, and what to do.
static arck_handle checked(arck_handle value, const char *what)
{
    if (value < 0) {
        fprintf(stderr, "files: %s: %s\n", what, arck_message());
        exit(1);
    }
    return value;
}

int main(void)
{
    static const char text[] = "made by an example\n";
    char line[64];
    struct stat status;
    struct dirent dirent;

    // Without a path: $ARCK_POOL. The handle stands for the pool's root directory.
    arck_handle pool = checked(arck_connect(NULL, NULL), "connecting");
    if (arck_faccessat(pool, "example-c", F_OK, 0) < 0)
        checked(arck_mkdirat(pool, "example-c", 0755), "example-c");

    // Paths begin at a directory that is open, or at the root.
    arck_handle folder = checked(arck_openat(pool, "example-c", O_RDONLY | O_DIRECTORY, 0), "example-c");
    arck_handle file = checked(arck_openat(folder, "note.new", O_CREAT | O_TRUNC | O_RDWR, 0644), "note.new");
    checked(arck_write(file, text, strlen(text)), "writing");
    ssize_t length = checked(arck_pread(file, line, sizeof line, 8), "reading");
    printf("%.*s", (int)length, line);
    checked(arck_fstat(file, &status), "its status");
    printf("%lld bytes\n", (long long)status.st_size);
    // It is durable before it has its name.
    checked(arck_fsync(file), "fsync");
    checked(arck_renameat2(folder, "note.new", pool, "example-c/note.txt", 0), "renaming");

    arck_handle names = checked(arck_opendirat(folder, "."), "listing");
    while (checked(arck_readdir(names, &dirent), "listing") == 1)
        if (dirent.d_name[0] != '.')
            puts(dirent.d_name);

    // Closes the rest too. All is folded now.
    checked(arck_close(pool), "closing");
    return 0;
}
