// Queues: many requests in flight on an open file.

#include "queues.h"

#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

// The one of a request, among some.
static const struct arck_completion *of(int64_t request, const struct arck_completion *done, ssize_t count)
{
    static const struct arck_completion none = {0, 0, -1, EPROTO, 0, 0, 0, 0};
    for (ssize_t i = 0; i < count; i++)
        if (done[i].request == request)
            return &done[i];
    failed(__FILE__, __LINE__, "a completion", "is not there");
    return &none;
}

// Memory that is there as far as the page before its end.
static char *half_there(void)
{
    char *pages = (char *)mmap(NULL, 2 * BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED);
    memset(pages, 'h', 2 * BLOCK);
    CHECK(mprotect(pages + BLOCK, BLOCK, PROT_NONE) == 0);
    return pages;
}

// ---- honest use

static void each_operation(void)
{
    char room[16] = "", more[16] = "";
    struct arck_completion done[128];
    opened("each", 0, 0);

    int64_t written = submit(ARCK_WRITE, "hello", 5, 0, 7);
    struct arck_completion one = only(written);
    CHECK(written > 0 && one.result == 5 && one.error == 0 && one.user == 7);
    // The bytes are its own already, and whoever reads sees what was submitted before.
    char mine[5] = {'w', 'o', 'r', 'l', 'd'};
    int64_t second = submit(ARCK_WRITE, mine, sizeof mine, 0, UINT64_MAX);
    memset(mine, 'x', sizeof mine);
    int64_t read = submit(ARCK_READ, room, sizeof room, 0, 2);
    int64_t appended = submit(ARCK_APPEND, "!!", 2, 0, 3);
    int64_t synced = submit(ARCK_SYNC, NULL, 0, 0, 4);
    int64_t last = submit(ARCK_READ, more, 7, 0, 5);
    CHECK(written < second && second < read && read < appended && appended < synced && synced < last);
    GIVES(5, arck_wait(queue, done, 128, 5, -1));
    CHECK(of(second, done, 5)->result == 5 && of(second, done, 5)->user == UINT64_MAX);
    CHECK(of(read, done, 5)->result == 5 && memcmp(room, "world", 6) == 0);
    CHECK(of(appended, done, 5)->result == 2 && of(appended, done, 5)->end == 7);
    CHECK(of(synced, done, 5)->result == 0 && of(synced, done, 5)->error == 0);
    CHECK(of(last, done, 5)->result == 7 && memcmp(more, "world!!", 7) == 0);
    GIVES(7, arck_pread(file, room, sizeof room, 0));

    struct arck_request urgent = request_of(ARCK_SYNC, NULL, 0, 0);
    urgent.flags = ARCK_URGENT | ARCK_DATA_ONLY;
    CHECK(only(arck_submit(queue, &urgent)).result == 0);
    GIVES(0, outstanding());
    // Nothing is outstanding, so nothing is waited for.
    GIVES(0, arck_wait(queue, done, 128, 1, -1));
    GIVES(0, arck_reap(queue, done, 128));
    closed();
}

// What has no time to begin does not.
static void times_to_begin_by(void)
{
    char room[8];
    opened("times", 2, 0);
    struct arck_request late = request_of(ARCK_WRITE, (void *)"late", 4, 0);
    late.within = 1;
    struct arck_completion one = only(arck_submit(queue, &late));
    CHECK(one.result == -1 && one.error == ETIMEDOUT);
    GIVES(0, arck_pread(file, room, sizeof room, 0));
    late.within = UINT64_MAX;
    CHECK(only(arck_submit(queue, &late)).result == 4);
    GIVES(4, arck_pread(file, room, sizeof room, 0));
    closed();
}

static void a_full_queue(void)
{
    struct arck_completion done[4];
    size_t waiting = 0, completed = 0;
    opened("full", 1, 4);
    for (int i = 0; i < 4; i++)
        CHECK(submit(ARCK_WRITE, "full", 4, i * 4, i) > 0);
    // Whether they are done or not: they were not reaped.
    FAILS(EAGAIN, submit(ARCK_WRITE, "much", 4, 16, 4));
    FAILS(EINVAL, arck_wait(queue, done, 3, 1, 0));
    CHECK(says("room"));
    while (outstanding() != 0)
        usleep(1000);
    FAILS(EAGAIN, submit(ARCK_WRITE, "much", 4, 16, 4));
    GIVES(0, arck_queue_count(queue, &waiting, &completed));
    GIVES(4, completed);
    GIVES(1, arck_reap(queue, done, 1));
    CHECK(submit(ARCK_WRITE, "room", 4, 16, 4) > 0);
    FAILS(EAGAIN, submit(ARCK_WRITE, "much", 4, 20, 5));
    GIVES(4, arck_wait(queue, done, 4, 4, 60000));
    closed();
}

// Two queues of one file have one order.
static void two_queues_of_a_file(void)
{
    static char large[LARGE];
    struct arck_completion done[128];
    char room[4] = "";
    opened("two", 4, 0);
    arck_handle first = queue, other = arck_queue(queues, arck_openat(pool, "two", O_RDWR, 0), 0, 1000);
    CHECK(other > 0);
    for (int turn = 0; turn < 20; turn++) {
        queue = first;
        memset(large, 'a' + turn, sizeof large);
        CHECK(submit(ARCK_WRITE, large, sizeof large, 0, 0) > 0);
        queue = other;
        CHECK(submit(ARCK_WRITE, "new", 3, sizeof large - 3, 0) > 0);
        CHECK(submit(ARCK_READ, room, 4, sizeof large - 4, 0) > 0);
        GIVES(2, arck_wait(other, done, 128, 2, -1));
        CHECK(room[0] == 'a' + turn && memcmp(room + 1, "new", 3) == 0);
        GIVES(1, arck_wait(first, done, 128, 1, -1));
    }
    GIVES(0, arck_close(other));
    queue = first;
    closed();
}

static bool is_readable(int descriptor, int milliseconds)
{
    struct pollfd looked = {descriptor, POLLIN, 0};
    return poll(&looked, 1, milliseconds) == 1 && looked.revents == POLLIN;
}

static void a_loop_of_events(void)
{
    struct arck_completion done[2];
    opened("events", 1, 0);
    int descriptor = arck_queue_readiness(queue);
    CHECK(descriptor >= 0);
    GIVES(descriptor, arck_queue_readiness(queue));
    CHECK(!is_readable(descriptor, 0));
    for (int i = 0; i < 3; i++)
        CHECK(submit(ARCK_WRITE, "x", 1, i, 0) > 0);
    CHECK(is_readable(descriptor, 60000));
    while (outstanding() != 0)
        usleep(1000);
    GIVES(2, arck_reap(queue, done, 2));
    CHECK(is_readable(descriptor, 0));
    GIVES(1, arck_reap(queue, done, 2));
    CHECK(!is_readable(descriptor, 0));
    closed();
    CHECK(fcntl(descriptor, F_GETFD) == -1);
}

static void waiting_for_a_time(void)
{
    struct arck_completion done[128];
    opened("waiting", 1, 0);
    // One that is done is not enough, and it is given all the same when the time is over.
    CHECK(submit(ARCK_WRITE, "x", 1, 0, 0) > 0);
    GIVES(1, arck_wait(queue, done, 128, 128, 60000));
    FAILS(EINVAL, arck_wait(queue, done, 128, 1, -2));
    closed();
}

// ---- what goes wrong

static void wrong_requests(void)
{
    char room[8] = "";
    const size_t huge = (size_t)SSIZE_MAX + 1;
    const struct {
        int number;
        uint32_t operation, flags;
        void *buffer;
        size_t size;
        int64_t position;
        uint64_t reserved;
    } wrong[] = {
        {EINVAL, 0, 0, NULL, 0, 0, 0},
        {EINVAL, 5, 0, room, 1, 0, 0},
        {EINVAL, ARCK_READ, 4, room, 1, 0, 0},
        {EINVAL, ARCK_READ, ARCK_DATA_ONLY, room, 1, 0, 0},
        {EINVAL, ARCK_WRITE, 0, room, 1, -1, 0},
        {EINVAL, ARCK_WRITE, 0, room, 8, INT64_MAX - 7, 0},
        {EINVAL, ARCK_READ, 0, room, huge, 0, 0},
        {EINVAL, ARCK_APPEND, 0, room, 1, 1, 0},
        {EINVAL, ARCK_SYNC, 0, room, 0, 0, 0},
        {EINVAL, ARCK_SYNC, 0, NULL, 1, 0, 0},
        {EINVAL, ARCK_SYNC, 0, NULL, 0, 1, 0},
        {EINVAL, ARCK_SYNC, 0, NULL, 0, 0, 1},
    };
    opened("wrong", 1, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct arck_request request =
            request_of(wrong[i].operation, wrong[i].buffer, wrong[i].size, wrong[i].position);
        request.flags = wrong[i].flags;
        request.reserved[i % 2] = wrong[i].reserved;
        FAILS(wrong[i].number, arck_submit(queue, &request));
    }
    FAILS(EFAULT, arck_submit(queue, NULL));
    FAILS(EFAULT, arck_reap(queue, NULL, 1));
    FAILS(EFAULT, arck_wait(queue, NULL, 128, 1, -1));
    FAILS(EINVAL, arck_queue_end(queue, 2));
    FAILS(EINVAL, arck_queues(1025));
    FAILS(EINVAL, arck_queue(queues, file, ARCK_DEPTH_MAX + 1, 0));
    FAILS(EINVAL, arck_queue(queues, file, 0, ARCK_WEIGHT_MAX + 1));
    FAILS(EBADF, arck_queue(queues, pool, 0, 0));
    GIVES(0, arck_queue_count(queue, NULL, NULL));
    GIVES(0, outstanding());

    // What the file was not opened for.
    arck_handle usual = queue, other = arck_openat(pool, "wrong", O_RDONLY, 0);
    queue = arck_queue(queues, other, 0, 0);
    FAILS(EBADF, submit(ARCK_WRITE, "x", 1, 0, 0));
    FAILS(EBADF, submit(ARCK_APPEND, "x", 1, 0, 0));
    FAILS(EBADF, submit(ARCK_WRITE, (void *)1, 1, 0, 0));
    GIVES(0, only(submit(ARCK_READ, room, 1, 0, 0)).result);
    GIVES(0, arck_close(queue));
    other = arck_openat(pool, "wrong", O_WRONLY | O_APPEND, 0);
    queue = arck_queue(queues, other, 0, 0);
    FAILS(EBADF, submit(ARCK_READ, room, 1, 0, 0));
    // Where it says, and not at the end.
    GIVES(4, only(submit(ARCK_WRITE, "abcd", 4, 0, 0)).result);
    GIVES(1, only(submit(ARCK_WRITE, "X", 1, 1, 0)).result);
    GIVES(4, arck_pread(file, room, sizeof room, 0));
    CHECK(memcmp(room, "aXcd", 4) == 0);
    GIVES(0, arck_close(queue));
    queue = usual;
    closed();
}

// A buffer that is not there is EFAULT in its completion, and hurts nobody else.
static void buffers_that_are_not_there(void)
{
    char room[2 * BLOCK], good[16] = "";
    struct arck_completion done[128];
    char *half = half_there();
    char *fixed = (char *)mmap(NULL, BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *const not_readable[] = {NULL, (void *)1, half + BLOCK, half + 8, half + BLOCK - 1, (void *)-4096};
    void *const not_writable[] = {NULL, (void *)1, half + BLOCK, half + 8, half + BLOCK - 1, (void *)-4096, fixed};
    memset(room, 'o', sizeof room);

    opened("buffers", 2, 0);
    GIVES(sizeof room, arck_pwrite(file, room, sizeof room, 0));
    for (size_t i = 0; i < sizeof not_readable / sizeof not_readable[0]; i++) {
        int64_t before = submit(ARCK_WRITE, "good", 4, 0, 1);
        int64_t bad = submit(ARCK_WRITE, not_readable[i], BLOCK, 0, 2);
        int64_t end = submit(ARCK_APPEND, not_readable[i], BLOCK, 0, 3);
        int64_t behind = submit(ARCK_READ, good, 8, 0, 4);
        CHECK(before > 0 && bad > 0 && end > 0 && behind > 0);
        GIVES(4, arck_wait(queue, done, 128, 4, -1));
        CHECK(of(before, done, 4)->result == 4);
        CHECK(of(bad, done, 4)->result == -1 && of(bad, done, 4)->error == EFAULT && of(bad, done, 4)->user == 2);
        CHECK(of(end, done, 4)->result == -1 && of(end, done, 4)->error == EFAULT);
        CHECK(of(behind, done, 4)->result == 8 && memcmp(good, "goodoooo", 8) == 0);
    }
    for (size_t i = 0; i < sizeof not_writable / sizeof not_writable[0]; i++) {
        int64_t bad = submit(ARCK_READ, not_writable[i], BLOCK, 0, 2);
        int64_t behind = submit(ARCK_READ, good, 8, 0, 4);
        GIVES(2, arck_wait(queue, done, 128, 2, -1));
        CHECK(of(bad, done, 2)->result == -1 && of(bad, done, 2)->error == EFAULT);
        CHECK(of(behind, done, 2)->result == 8);
    }
    // Nothing of them is there, and what is read in part needs no more room.
    struct stat status;
    GIVES(0, arck_fstat(file, &status));
    GIVES(sizeof room, status.st_size);
    GIVES(4, only(submit(ARCK_READ, half + BLOCK - 4, BLOCK, sizeof room - 4, 0)).result);
    GIVES(BLOCK, only(submit(ARCK_WRITE, half, BLOCK, 0, 0)).result);
    GIVES(BLOCK, only(submit(ARCK_READ, half, BLOCK, BLOCK, 0)).result);
    CHECK(half[0] == 'o' && half[BLOCK - 1] == 'o');
    munmap(half, 2 * BLOCK);
    munmap(fixed, BLOCK);
    closed();
}

static void a_buffer_that_goes_away_while_queued(void)
{
    struct arck_completion done[128];
    char good[16] = "";
    opened("unmapped", 1, 0);
    for (int turn = 0; turn < 20; turn++) {
        char *from = half_there(), *to = half_there();
        int64_t written = submit(ARCK_WRITE, from, BLOCK, 0, 0);
        int64_t read = submit(ARCK_READ, to, BLOCK, 0, 0);
        int64_t other = submit(ARCK_READ, good, 1, 0, 0);
        CHECK(munmap(from, 2 * BLOCK) == 0 && munmap(to, 2 * BLOCK) == 0);
        GIVES(3, arck_wait(queue, done, 128, 3, -1));
        GIVES(BLOCK, of(written, done, 3)->result);
        CHECK(of(read, done, 3)->result == -1 && of(read, done, 3)->error == EFAULT);
        CHECK(of(other, done, 3)->result == 1 && good[0] == 'h');
        GIVES(0, arck_ftruncate(file, 0));
    }
    closed();
}

// Where the kernel does not copy for the library, honest requests are as ever.
static void where_the_kernel_does_not_copy(void)
{
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof steps / sizeof steps[0], steps};
    char room[8] = "";
    opened("forbidden", 1, 0);
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    CHECK(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0) == -1 && errno == EPERM);
    GIVES(5, only(submit(ARCK_WRITE, "plain", 5, 0, 0)).result);
    GIVES(5, only(submit(ARCK_READ, room, sizeof room, 0, 0)).result);
    CHECK(memcmp(room, "plain", 6) == 0);
    closed();
}

static void in_a_filtered_process(void)
{
    in_child(where_the_kernel_does_not_copy);
}

static void cancelling(void)
{
    static struct arck_completion done[128];
    int cancelled = 0, kept = 0;
    opened("cancelling", 1, 0);

    int64_t over = submit(ARCK_WRITE, "x", 1, 0, 0);
    while (outstanding() != 0)
        usleep(1000);
    // It is done, reaped or not; and one that never was.
    FAILS(ENOENT, arck_cancel(queue, over));
    CHECK(only(over).result == 1);
    FAILS(ENOENT, arck_cancel(queue, over));
    FAILS(ENOENT, arck_cancel(queue, 0));
    FAILS(ENOENT, arck_cancel(queue, INT64_MIN));

    for (int turn = 0; turn < 200 && (cancelled == 0 || kept == 0); turn++) {
        char room[1] = "";
        GIVES(1, arck_pwrite(file, "-", 1, sizeof large - 1));
        memset(large, 'l', sizeof large);
        int64_t before = a_long_one();
        int64_t late = submit(ARCK_WRITE, "c", 1, sizeof large - 1, 0);
        int said = arck_cancel(queue, late) == 0 ? 0 : errno;
        int first = arck_cancel(queue, before) == 0 ? 0 : errno;
        GIVES(2, arck_wait(queue, done, 128, 2, -1));
        GIVES(1, arck_pread(file, room, 1, sizeof large - 1));
        if (said == 0) {
            cancelled++;
            CHECK(of(late, done, 2)->result == -1 && of(late, done, 2)->error == ECANCELED);
            CHECK(room[0] == (first == 0 ? '-' : 'l'));
        } else {
            CHECK(said == ENOENT || said == EALREADY);
            CHECK(of(late, done, 2)->result == 1 && room[0] == 'c');
        }
        // What has begun is not cancelled.
        if (first == EALREADY) {
            kept++;
            GIVES(sizeof large, of(before, done, 2)->result);
        }
        usleep(turn % 5 * 1000);
    }
    CHECK(cancelled > 0);
    closed();
}

// A handle that is closed, and a file that is cut, while requests wait.
static void a_file_that_is_closed_or_cut(void)
{
    struct arck_completion done[128];
    char room[16] = "";
    opened("cut", 1, 0);
    int64_t before = a_long_one();
    int64_t small = submit(ARCK_WRITE, "abc", 3, 0, 0);
    GIVES(0, arck_close(file));
    FAILS(EBADF, arck_pread(file, room, 1, 0));
    int64_t read = submit(ARCK_READ, room, 4, 0, 0);
    GIVES(3, arck_wait(queue, done, 128, 3, -1));
    GIVES(sizeof large, of(before, done, 3)->result);
    GIVES(3, of(small, done, 3)->result);
    CHECK(of(read, done, 3)->result == 4 && memcmp(room, "abc", 3) == 0);

    file = arck_openat(pool, "cut", O_RDWR, 0);
    int shortened = 0;
    for (int turn = 0; turn < 200 && shortened == 0; turn++) {
        GIVES(0, arck_ftruncate(file, sizeof large));
        a_long_one();
        int64_t last = submit(ARCK_READ, room, sizeof room, sizeof large - 4, 0);
        GIVES(0, arck_ftruncate(file, 100));
        GIVES(2, arck_wait(queue, done, 128, 2, -1));
        // It is read before or after, and gives what there was: no more than that, and no error.
        ssize_t length = of(last, done, 2)->result;
        CHECK(length >= 0 && length <= 4);
        struct stat status;
        GIVES(0, arck_fstat(file, &status));
        CHECK(status.st_size == 100 || status.st_size == sizeof large);
        shortened += status.st_size == 100;
    }
    // The queue goes on.
    GIVES(2, only(submit(ARCK_WRITE, "ok", 2, 0, 0)).result);
    closed();
}

static void ending(void)
{
    static struct arck_completion done[MANY];
    for (int cancels = 0; cancels < 2; cancels++) {
        size_t completed = 0;
        int finished = 0;
        opened("ending", 1, MANY);
        a_long_one();
        for (int i = 1; i < MANY; i++)
            CHECK(submit(ARCK_WRITE, "x", 1, i, i) > 0);
        GIVES(0, arck_queue_end(queue, cancels ? ARCK_CANCEL : ARCK_FINISH));
        FAILS(EBADF, submit(ARCK_WRITE, "x", 1, 0, 0));
        GIVES(0, arck_queue_count(queue, NULL, &completed));
        GIVES(MANY, completed);
        GIVES(0, outstanding());
        GIVES(MANY, arck_reap(queue, done, MANY));
        for (int i = 0; i < MANY; i++) {
            finished += done[i].error == 0;
            CHECK(done[i].error == 0 || (cancels && done[i].error == ECANCELED));
        }
        CHECK(cancels ? finished < MANY : finished == MANY);
        closed();
    }
}

static const struct test tests[] = {
    {"each_operation", each_operation},
    {"times_to_begin_by", times_to_begin_by},
    {"a_full_queue", a_full_queue},
    {"two_queues_of_a_file", two_queues_of_a_file},
    {"a_loop_of_events", a_loop_of_events},
    {"waiting_for_a_time", waiting_for_a_time},
    {"wrong_requests", wrong_requests},
    {"buffers_that_are_not_there", buffers_that_are_not_there},
    {"a_buffer_that_goes_away_while_queued", a_buffer_that_goes_away_while_queued},
    {"in_a_filtered_process", in_a_filtered_process},
    {"cancelling", cancelling},
    {"a_file_that_is_closed_or_cut", a_file_that_is_closed_or_cut},
    {"ending", ending},
};

MAIN(tests)
