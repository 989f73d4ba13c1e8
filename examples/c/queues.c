// Queues: many requests in flight on one file, while the program does something else.
//
//     cc -o queues queues.c $(pkg-config --cflags --libs arck)
//     ARCK_POOL=/dev/shm/my-pool ./queues

#include <arck.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROW = 4096, ROWS = 256, DEPTH = 64 };

static void die(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, arck_message());
    exit(1);
}

// Takes what has completed; gives how many.
static int reap(arck_handle queue)
{
    struct arck_completion done[DEPTH];
    ssize_t count = arck_reap(queue, done, DEPTH);
    if (count < 0)
        die("reap");
    for (ssize_t i = 0; i < count; i++)
        if (done[i].result != ROW) {
            fprintf(stderr, "row %llu: %s\n", (unsigned long long)done[i].user, strerror(done[i].error));
            exit(1);
        }
    return (int)count;
}

int main(void)
{
    static char row[ROW], rows[ROWS][ROW];
    arck_handle pool = arck_connect(NULL, NULL);
    if (pool < 0)
        die("connect");
    arck_handle file = arck_openat(pool, "example-table", O_CREAT | O_RDWR | O_TRUNC, 0644);
    arck_handle queues = arck_queues(0);
    arck_handle queue = arck_queue(queues, file, DEPTH, 0);
    if (queue < 0)
        die("queue");

    // A loop of events waits for this, beside whatever else it waits for.
    struct pollfd events = {arck_queue_readiness(queue), POLLIN, 0};
    int submitted = 0, completed = 0;
    while (completed < ROWS) {
        while (submitted < ROWS && submitted - completed < DEPTH) {
            memset(row, submitted, sizeof row);
            struct arck_request request;
            memset(&request, 0, sizeof request);
            request.operation = ARCK_WRITE;
            // It is copied, and used again for the next one.
            request.buffer = row;
            request.size = sizeof row;
            request.position = (int64_t)submitted * ROW;
            request.user = (uint64_t)submitted;
            if (arck_submit(queue, &request) < 0)
                die("submit");
            submitted++;
        }
        if (poll(&events, 1, -1) == 1)
            completed += reap(queue);
    }

    // All rows are durable when this one is, and it is waited for.
    struct arck_request sync;
    struct arck_completion done[DEPTH];
    memset(&sync, 0, sizeof sync);
    sync.operation = ARCK_SYNC;
    if (arck_submit(queue, &sync) < 0 || arck_wait(queue, done, DEPTH, 1, -1) != 1 || done[0].result != 0)
        die("sync");

    // What is read is in its buffer when its completion has been reaped.
    int right = 0;
    for (int first = 0; first < ROWS; first += DEPTH) {
        for (int number = first; number < first + DEPTH; number++) {
            struct arck_request request;
            memset(&request, 0, sizeof request);
            request.operation = ARCK_READ;
            request.buffer = rows[number];
            request.size = ROW;
            request.position = (int64_t)number * ROW;
            if (arck_submit(queue, &request) < 0)
                die("submit");
        }
        if (arck_wait(queue, done, DEPTH, DEPTH, -1) != DEPTH)
            die("wait");
    }
    for (int number = 0; number < ROWS; number++)
        right += (unsigned char)rows[number][ROW - 1] == number;
    printf("%d of %d rows are right\n", right, ROWS);

    // With the pool the queue is closed; the threads are of no connection.
    if (arck_close(queues) < 0 || arck_close(pool) < 0)
        die("close");
    return right != ROWS;
}
