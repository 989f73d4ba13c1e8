// What the tests of queues share: one queue of a file, which each opens anew.

#ifndef QUEUES_H
#define QUEUES_H

#include "check.h"

enum { BLOCK = 4096, LARGE = 32 << 20, MANY = 1000 };

static arck_handle pool, file, queues, queue;

static inline struct arck_request request_of(uint32_t operation, void *buffer, size_t size, int64_t position)
{
    struct arck_request request;
    memset(&request, 0, sizeof request);
    request.operation = operation;
    request.buffer = buffer;
    request.size = size;
    request.position = position;
    return request;
}

static inline int64_t submit(uint32_t operation, const void *buffer, size_t size, int64_t position, uint64_t user)
{
    struct arck_request request = request_of(operation, (void *)buffer, size, position);
    request.user = user;
    return arck_submit(queue, &request);
}

static inline void opened(const char *name, uint32_t workers, size_t depth)
{
    pool = connected();
    file = arck_openat(pool, name, O_CREAT | O_RDWR | O_TRUNC, 0644);
    queues = arck_queues(workers);
    queue = arck_queue(queues, file, depth, 0);
    CHECK(file > 0 && queues > 0 && queue > 0);
}

static inline void closed(void)
{
    GIVES(0, arck_close(queue));
    GIVES(0, arck_close(queues));
    GIVES(0, arck_close(pool));
}

// The completion of a request, which is the only one that there is.
static inline struct arck_completion only(int64_t request)
{
    struct arck_completion done[128];
    memset(done, 0, sizeof done);
    GIVES(1, arck_wait(queue, done, 128, 1, -1));
    GIVES(request, done[0].request);
    return done[0];
}

static inline size_t outstanding(void)
{
    size_t count = 0;
    GIVES(0, arck_queue_count(queue, &count, NULL));
    return count;
}

static char large[LARGE];

// Keeps requests of its range waiting for some milliseconds.
static inline int64_t a_long_one(void)
{
    int64_t number = submit(ARCK_WRITE, large, sizeof large, 0, 0);
    CHECK(number > 0);
    return number;
}

#endif
