/*
 * The processor's cache before the persistent memory, for `make test-vm`: a plugin of qemu's. Of
 * what the machine's programs store into the NVDIMM (the *memory*: a file that the machine maps)
 * only what a power cut could not take any more is copied into a second file, the *medium*.
 *
 *   - A program's ordinary store reaches the medium when its line was flushed after it and a fence
 *     of the same processor has followed; so does a streaming store with its fence. Both with what
 *     the line held at the flush, or the streaming store, not at the fence.
 *   - What the kernel stores is in the medium at once: its own ordering is not what is tested, and
 *     it may flush what programs stored. An entry into the kernel counts as a fence: a thread may
 *     be moved to another processor there.
 *
 * Lines that were never flushed may have got to the medium by themselves: the host's side decides
 * that by lot after the cut, where memory and medium differ.
 *
 * Translated code shows a plugin which addresses are loaded from and stored to, but no flush: the
 * emulator makes nothing of clwb. So in the machine's copies of Arck's programs each clwb is replaced
 * by an instruction of the same length that loads from the line and changes nothing that a program
 * looks at, the comparison of the (unused) floating-point stack with it (`flushes.rs`).
 *
 * Arguments: memory=FILE, medium=FILE, figures=FILE. The NVDIMM lies at BASE in the machine.
 *
 * Invariant: a line of the medium never goes back behind what a later flush has put there.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is used of the emulator's interface. */
#define EXPORT __attribute__((visibility("default")))
struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_hwaddr;
typedef void translated(uint64_t id, struct qemu_plugin_tb *block);
typedef void executed(unsigned processor, void *data);
typedef void accessed(unsigned processor, uint32_t access, uint64_t address, void *data);
/* Loads and stores: which of them the callback looks at itself, as qemu 7.2 mixes them up. */
enum { BOTH = 3 };
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, translated *callback);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *, executed *, int, void *);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *, accessed *, int, int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *);
bool qemu_plugin_mem_is_store(uint32_t access);
unsigned qemu_plugin_mem_size_shift(uint32_t access);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(uint32_t access, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *);
#if INTERFACE == 1
const void *qemu_plugin_insn_data(const struct qemu_plugin_insn *);
#else
size_t qemu_plugin_insn_data(const struct qemu_plugin_insn *, void *, size_t);
#endif
EXPORT int qemu_plugin_version = INTERFACE;
EXPORT int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments);

#define LINE 64
#define PROCESSORS_MAX 16
/* Where the machine's NVDIMM begins: its first memory above 4 GiB (vm-init makes sure). */
#define BASE 0x100000000ull
/* Where the kernel has all memory mapped (without randomisation, four levels of tables). */
#define DIRECT 0xffff888000000000ull
#define USER_END 0x800000000000ull

struct figures {
    _Atomic uint64_t flushes, streamed, fences, kernel;
};

/* A line that is on its way to the medium. */
struct pending {
    uint64_t line, moment;
    unsigned char held[LINE];
};

/* Of one processor; touched by its thread alone. */
struct processor {
    struct pending *pending;
    size_t count, room;
};

static unsigned char *memory, *medium;
static uint64_t size;
static struct figures *figures;
static struct processor processors[PROCESSORS_MAX];
/* What the emulator calls the address of the NVDIMM's first byte; learnt from a store of the
 * kernel's, of which both addresses are known. */
static _Atomic uint64_t emulated_base = UINT64_MAX;
static _Atomic uint64_t moment_last;
/* For each line, the moment of what the medium has of it. Guarded by the lock, as is the medium. */
static uint64_t *moments;
static pthread_mutex_t medium_lock = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what)
{
    perror(what);
    _exit(1);
}

/* Offset in the NVDIMM of an access of the running instruction, or UINT64_MAX. */
static uint64_t offset_of(uint32_t access, uint64_t address)
{
    struct qemu_plugin_hwaddr *found = qemu_plugin_get_hwaddr(access, address);
    uint64_t base = atomic_load(&emulated_base);
    if (!found || base == UINT64_MAX || qemu_plugin_hwaddr_is_io(found))
        return UINT64_MAX;
    uint64_t offset = qemu_plugin_hwaddr_phys_addr(found) - base;
    return offset < size ? offset : UINT64_MAX;
}

static void fence(struct processor *processor)
{
    if (processor->count == 0)
        return;
    pthread_mutex_lock(&medium_lock);
    for (size_t i = 0; i < processor->count; i++) {
        struct pending *one = &processor->pending[i];
        if (moments[one->line] > one->moment)
            continue;
        moments[one->line] = one->moment;
        memcpy(medium + one->line * LINE, one->held, LINE);
    }
    pthread_mutex_unlock(&medium_lock);
    processor->count = 0;
}

static void send(struct processor *processor, uint64_t line)
{
    struct pending *one = processor->count ? &processor->pending[processor->count - 1] : NULL;
    /* Of a line that is streamed word by word the last state is enough. */
    if (!one || one->line != line) {
        if (processor->count == processor->room) {
            processor->room = processor->room ? 2 * processor->room : 1024;
            processor->pending =
                realloc(processor->pending, processor->room * sizeof *processor->pending);
            if (!processor->pending)
                fail("cache: no memory");
        }
        one = &processor->pending[processor->count++];
        one->line = line;
    }
    one->moment = atomic_fetch_add(&moment_last, 1) + 1;
    memcpy(one->held, memory + line * LINE, LINE);
}

static void on_fence(unsigned number, void *data)
{
    (void)data;
    atomic_fetch_add_explicit(&figures->fences, 1, memory_order_relaxed);
    fence(&processors[number]);
}

static void on_flush(unsigned number, uint32_t access, uint64_t address, void *data)
{
    (void)data;
    uint64_t offset = offset_of(access, address);
    if (offset == UINT64_MAX)
        return;
    atomic_fetch_add_explicit(&figures->flushes, 1, memory_order_relaxed);
    send(&processors[number], offset / LINE);
}

static void on_streaming_store(unsigned number, uint32_t access, uint64_t address, void *data)
{
    (void)data;
    uint64_t offset = qemu_plugin_mem_is_store(access) ? offset_of(access, address) : UINT64_MAX;
    if (offset == UINT64_MAX)
        return;
    atomic_fetch_add_explicit(&figures->streamed, 1, memory_order_relaxed);
    /* Aligned to its size, so it lies in one line. */
    send(&processors[number], offset / LINE);
}

static void on_kernel_store(unsigned number, uint32_t access, uint64_t address, void *data)
{
    (void)data;
    if (!qemu_plugin_mem_is_store(access))
        return;
    fence(&processors[number]);
    uint64_t offset = address - DIRECT - BASE;
    if (offset < size) {
        if (atomic_load_explicit(&emulated_base, memory_order_relaxed) == UINT64_MAX) {
            struct qemu_plugin_hwaddr *found = qemu_plugin_get_hwaddr(access, address);
            if (found && !qemu_plugin_hwaddr_is_io(found))
                atomic_store(&emulated_base, qemu_plugin_hwaddr_phys_addr(found) - offset);
        }
    } else if (address < USER_END) {
        offset = offset_of(access, address);
    }
    if (offset >= size)
        return;
    atomic_fetch_add_explicit(&figures->kernel, 1, memory_order_relaxed);
    uint64_t length = 1ull << qemu_plugin_mem_size_shift(access);
    if (length > size - offset)
        length = size - offset;
    pthread_mutex_lock(&medium_lock);
    memcpy(medium + offset, memory + offset, length);
    pthread_mutex_unlock(&medium_lock);
}

enum kind { OTHER, FENCE, FLUSH, STREAM };

/* What an instruction is, by its bytes. */
static enum kind kind_of(const unsigned char *bytes, size_t length)
{
    size_t at = 0;
    while (at < length && (bytes[at] == 0x66 || bytes[at] == 0xf2 || bytes[at] == 0xf3))
        at++;
    if (at < length && (bytes[at] & 0xf0) == 0x40)
        at++;
    size_t left = length - at;
    const unsigned char *code = bytes + at;
    if (left >= 3 && code[0] == 0x0f && code[1] == 0xae && (code[2] == 0xf8 || code[2] == 0xf0))
        return FENCE;
    /* fcom m32: see above. */
    if (left >= 2 && code[0] == 0xd8 && (code[1] & 0x38) == 0x10 && code[1] < 0xc0)
        return FLUSH;
    unsigned char operation = 0;
    if (left >= 3 && code[0] == 0x0f)
        operation = code[1];
    else if (left >= 4 && code[0] == 0xc5)
        operation = code[2];
    else if (left >= 5 && code[0] == 0xc4 && (code[1] & 0x1f) == 1)
        operation = code[3];
    bool legacy = left >= 1 && code[0] == 0x0f;
    /* movntps and movntpd, movntdq and movntq, movnti */
    if (operation == 0x2b || operation == 0xe7 || (legacy && operation == 0xc3))
        return STREAM;
    return OTHER;
}

static void on_translation(uint64_t id, struct qemu_plugin_tb *block)
{
    (void)id;
    bool kernel = qemu_plugin_tb_vaddr(block) >= USER_END;
    size_t count = qemu_plugin_tb_n_insns(block);
    for (size_t i = 0; i < count; i++) {
        struct qemu_plugin_insn *instruction = qemu_plugin_tb_get_insn(block, i);
        if (kernel) {
            qemu_plugin_register_vcpu_mem_cb(instruction, on_kernel_store, 0, BOTH, NULL);
            continue;
        }
        size_t length = qemu_plugin_insn_size(instruction);
#if INTERFACE == 1
        const unsigned char *bytes = qemu_plugin_insn_data(instruction);
#else
        unsigned char bytes[16];
        length = qemu_plugin_insn_data(instruction, bytes, sizeof bytes);
#endif
        switch (kind_of(bytes, length)) {
        case FENCE:
            qemu_plugin_register_vcpu_insn_exec_cb(instruction, on_fence, 0, NULL);
            break;
        case FLUSH:
            qemu_plugin_register_vcpu_mem_cb(instruction, on_flush, 0, BOTH, NULL);
            break;
        case STREAM:
            qemu_plugin_register_vcpu_mem_cb(instruction, on_streaming_store, 0, BOTH, NULL);
            break;
        case OTHER:
            break;
        }
    }
}

static void *map(const char *path, uint64_t *length)
{
    struct stat status;
    int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0 || fstat(file, &status) < 0)
        fail(path);
    void *address = mmap(NULL, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (address == MAP_FAILED)
        fail(path);
    close(file);
    *length = status.st_size;
    return address;
}

int qemu_plugin_install(uint64_t id, const void *info, int count, char **arguments)
{
    (void)info;
    uint64_t medium_size = 0, figures_size = 0;
    for (int i = 0; i < count; i++) {
        if (strncmp(arguments[i], "memory=", 7) == 0)
            memory = map(arguments[i] + 7, &size);
        else if (strncmp(arguments[i], "medium=", 7) == 0)
            medium = map(arguments[i] + 7, &medium_size);
        else if (strncmp(arguments[i], "figures=", 8) == 0)
            figures = map(arguments[i] + 8, &figures_size);
    }
    moments = calloc(size / LINE + 1, sizeof *moments);
    if (!moments || size == 0 || medium_size != size || figures_size < sizeof *figures) {
        fprintf(stderr, "cache: memory, medium and figures have to be given\n");
        return 1;
    }
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translation);
    return 0;
}
