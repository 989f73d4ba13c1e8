// Queues whose writes are durable when they are queued: what outlives the program, and what is refused.

#include "queues.h"

#include <signal.h>

enum { SPOOL = 8 << 20, PLACES = 100, LINE = 8 };

static struct arck_replayed replayed;

static arck_handle spool_of(const char *path)
{
    memset(&replayed, 255, sizeof replayed);
    return arck_spool_open(pool, path, SPOOL, &replayed);
}

static arck_handle read_write(const char *path)
{
    arck_handle opened = arck_openat(pool, path, O_CREAT | O_RDWR, 0644);
    CHECK(opened > 0);
    return opened;
}

// Two files have requests queued, which the one worker is kept from doing, nearly always, and the program is killed.
static void queue_and_die(int turn)
{
    static char block[BLOCK];
    pool = connected();
    arck_handle spool = spool_of("killed.spool");
    CHECK(spool > 0 && replayed.requests == 0 && replayed.bytes == 0 && replayed.dropped == 0);
    queues = arck_queues(1);
    arck_handle files[2] = {read_write("killed-blocks"), read_write("killed-lines")};
    arck_handle blocks = arck_spooled_queue(queues, files[0], MANY, 0, spool, "killed-blocks");
    arck_handle lines = arck_spooled_queue(queues, files[1], MANY, 0, spool, "/killed-lines");
    CHECK(blocks > 0 && lines > 0);
    queue = arck_queue(queues, read_write("killed-long"), 0, 0);
    a_long_one();
    for (int number = 0; number < MANY; number++) {
        char line[32];
        // The same places again and again: the last one stays.
        memset(block, number % 251 ^ turn, sizeof block);
        queue = blocks;
        CHECK(submit(ARCK_WRITE, block, sizeof block, number % PLACES * BLOCK, 0) > 0);
        if (number % 10 != 0)
            continue;
        snprintf(line, sizeof line, "%d %5d\n", turn, number);
        queue = lines;
        CHECK(submit(ARCK_APPEND, line, LINE, 0, 0) > 0);
    }
    if (failures == 0)
        kill(getpid(), SIGKILL);
    _exit(1);
}

static void a_program_is_killed_with_requests_queued_durably(void)
{
    uint64_t found = 0;
    // The worker may have come to all of it.
    for (int turn = 0; turn < 40 && (turn < 3 || found == 0); turn++) {
        int status = 0;
        pid_t child = fork();
        if (child == 0) {
            failures = 0;
            alarm(60);
            queue_and_die(turn);
        }
        CHECK(child > 0 && waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        pool = connected();
        arck_handle spool = spool_of("killed.spool");
        CHECK(spool > 0 && replayed.dropped == 0 && replayed.requests <= MANY + MANY / 10);
        found += replayed.requests;
        arck_handle blocks = read_write("killed-blocks"), lines = read_write("killed-lines");
        for (int place = 0; place < PLACES; place++) {
            char block[BLOCK], expected[BLOCK];
            memset(expected, (MANY - PLACES + place) % 251 ^ turn, sizeof expected);
            GIVES(BLOCK, arck_pread(blocks, block, BLOCK, place * BLOCK));
            CHECK(memcmp(block, expected, BLOCK) == 0);
        }
        int all = (turn + 1) * MANY / 10;
        for (int number = 0; number < all; number++) {
            char line[LINE], expected[32];
            snprintf(expected, sizeof expected, "%d %5d\n", number / (MANY / 10), number % (MANY / 10) * 10);
            GIVES(LINE, arck_pread(lines, line, LINE, number * LINE));
            CHECK(memcmp(line, expected, LINE) == 0);
        }
        struct stat status_of;
        GIVES(0, arck_fstat(lines, &status_of));
        GIVES(all * LINE, status_of.st_size);
        // What was done is not done again.
        GIVES(0, arck_close(spool));
        spool = spool_of("killed.spool");
        CHECK(spool > 0 && replayed.requests == 0);
        GIVES(0, arck_close(pool));
    }
    CHECK(found > 0);
}

static void what_is_no_spool_of_ours(void)
{
    opened("f", 1, 0);
    arck_handle text = arck_openat(pool, "text", O_CREAT | O_RDWR, 0600);
    GIVES(4, arck_pwrite(text, "text", 4, 0));
    FAILS(EBADMSG, spool_of("text"));
    CHECK(arck_openat(pool, "shared", O_CREAT | O_RDWR, 0644) > 0);
    GIVES(0, arck_fchmodat(pool, "shared", 0622, 0));
    FAILS(EPERM, spool_of("shared"));
    CHECK(says("remove it"));
    FAILS(EINVAL, arck_spool_open(pool, "small", 1, NULL));
    // One that does not come about leaves nothing.
    FAILS(ENOENT, arck_openat(pool, "small", O_RDWR, 0));
    FAILS(EFAULT, arck_spool_open(pool, NULL, SPOOL, NULL));
    FAILS(ENOENT, arck_spool_open(pool, "", SPOOL, NULL));
    FAILS(EBADF, arck_spool_open(queue, "spool", SPOOL, NULL));
    closed();
}

static void one_that_is_open(void)
{
    opened("f", 1, 0);
    arck_handle spool = arck_spool_open(pool, "spool", SPOOL, NULL);
    CHECK(spool > 0);
    FAILS(EBUSY, spool_of("spool"));
    arck_handle kept = arck_spooled_queue(queues, file, 0, 0, spool, "f");
    CHECK(kept > 0);
    // Queues keep it.
    GIVES(0, arck_close(spool));
    FAILS(EBADF, arck_close(spool));
    FAILS(EBUSY, spool_of("spool"));
    FAILS(EBADF, arck_spooled_queue(queues, file, 0, 0, spool, "f"));
    struct arck_request request = request_of(ARCK_APPEND, (void *)"done", 4, 0);
    CHECK(arck_submit(kept, &request) > 0);
    GIVES(0, arck_close(kept));
    char bytes[8];
    GIVES(4, arck_pread(file, bytes, sizeof bytes, 0));
    spool = spool_of("spool");
    CHECK(spool > 0 && replayed.requests == 0);
    // A connection takes its spools along.
    GIVES(0, arck_close(queue));
    GIVES(0, arck_close(pool));
    pool = connected();
    CHECK(spool_of("spool") > 0);
    GIVES(0, arck_close(queues));
    GIVES(0, arck_close(pool));
}

static void other_files_and_what_is_promised(void)
{
    opened("f", 1, 0);
    arck_handle spool = spool_of("spool");
    CHECK(arck_openat(pool, "other", O_CREAT | O_RDWR, 0644) > 0);
    FAILS(EINVAL, arck_spooled_queue(queues, file, 0, 0, spool, "other"));
    FAILS(ENOENT, arck_spooled_queue(queues, file, 0, 0, spool, "none"));
    FAILS(ENOENT, arck_spooled_queue(queues, file, 0, 0, spool, ""));
    FAILS(EFAULT, arck_spooled_queue(queues, file, 0, 0, spool, NULL));
    FAILS(EBADF, arck_spooled_queue(queues, file, 0, 0, queue, "f"));
    FAILS(EBADF, arck_spooled_queue(queues, file, 0, 0, file, "f"));
    FAILS(EINVAL, arck_spooled_queue(queues, read_write("spool"), 0, 0, spool, "spool"));
    arck_handle other = connected();
    arck_handle of_other = arck_openat(other, "f", O_RDWR, 0);
    FAILS(EXDEV, arck_spooled_queue(queues, of_other, 0, 0, spool, "f"));
    GIVES(0, arck_close(other));

    GIVES(0, arck_close(queue));
    queue = arck_spooled_queue(queues, file, 0, 0, spool, "//f");
    CHECK(queue > 0);
    struct arck_request late = request_of(ARCK_WRITE, (void *)"late", 4, 0);
    late.within = 1000000000;
    FAILS(EINVAL, arck_submit(queue, &late));
    FAILS(EMSGSIZE, submit(ARCK_WRITE, large, SPOOL, 0, 0));
    arck_handle busy = queue;
    queue = arck_queue(queues, read_write("long"), 0, 0);
    a_long_one();
    arck_handle keeps = queue;
    queue = busy;
    int64_t number = submit(ARCK_WRITE, large, 1 << 20, 0, 0);
    FAILS(EALREADY, arck_cancel(queue, number));
    GIVES(1 << 20, only(number).result);
    GIVES(0, arck_close(keeps));
    closed();
}

static arck_handle of_parent;

static void child_of_who_has_one(void)
{
    arck_handle own = arck_queues(1);
    FAILS(ESTALE, arck_spooled_queue(own, read_write("f"), 0, 0, of_parent, "f"));
    FAILS(EBUSY, spool_of("spool"));
    GIVES(0, arck_close(of_parent));
    FAILS(EBUSY, spool_of("spool"));
}

static void forks(void)
{
    opened("f", 1, 0);
    of_parent = spool_of("spool");
    CHECK(of_parent > 0);
    in_child(child_of_who_has_one);
    FAILS(EBUSY, spool_of("spool"));
    GIVES(0, arck_close(queue));
    queue = arck_spooled_queue(queues, file, 0, 0, of_parent, "f");
    int64_t number = submit(ARCK_APPEND, "parent", 6, 0, 0);
    GIVES(6, only(number).result);
    closed();
}

static const struct test tests[] = {
    {"a_program_is_killed_with_requests_queued_durably", a_program_is_killed_with_requests_queued_durably},
    {"what_is_no_spool_of_ours", what_is_no_spool_of_ours},
    {"one_that_is_open", one_that_is_open},
    {"other_files_and_what_is_promised", other_files_and_what_is_promised},
    {"forks", forks},
};

MAIN(tests)
