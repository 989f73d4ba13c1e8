// SPDX-License-Identifier: MIT OR Apache-2.0

#ifndef ARCK_H
#define ARCK_H

// Arck's pools in C: files, small values and logs, read and written by the calling process without
// system calls.
//
// Compile with `pkg-config --cflags --libs arck`. docs/c.md has examples, and says what all calls have in common:
//
// * A call that has failed gives -1 and sets errno; arck_message() is a line for people that says what to
//   do. errno means nothing after a call that has not failed. No call ends by a signal (EINTR).
// * Handles are numbers. One that is closed, of another kind or none at all is EBADF, and harms nothing.
// * A null pointer is EFAULT, unless it is said to be allowed. Any other pointer is to lead to as much
//   memory as is said, and texts end with a zero byte.
// * All threads may use all handles. What is closed while another thread uses it is done before, or
//   EBADF there. A handler of signals that has interrupted a call of Arck's makes none (EDEADLK).
// * In a forked child a connection, a store and a log open a session of the child's own at their first
//   need. Files, lists of names and queues that its parent had open are ESTALE there. The parent notices nothing.
//
// Made by cbindgen of crates/c. Who changes that makes it again:
// ARCK_HEADER=write scripts/cargo test -p arck-c --test header

#include <dirent.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>

// A store or a log, and the directories above it, are made where there is none.
#define ARCK_MAKE 1

// In the options: a controller is waited for as long as `$ARCK_WAIT` says (30 seconds, if it says
// nothing).
#define ARCK_WAIT_USUAL -1

// An operation: reads size bytes from position on into buffer.
#define ARCK_READ 1

// An operation: writes size bytes of buffer from position on, also in a file that was opened to
// append.
#define ARCK_WRITE 2

// An operation: writes size bytes of buffer at the file's end. A barrier: it waits for all earlier
// requests of the file, and all later ones wait for it.
#define ARCK_APPEND 3

// An operation: makes durable what was written, as arck_fsync. A barrier.
#define ARCK_SYNC 4

// A flag: it goes before what is not urgent; among urgent requests, reads go before others.
#define ARCK_URGENT 1

// A flag of ARCK_SYNC: as arck_fdatasync.
#define ARCK_DATA_ONLY 2

// How a queue ends: what is queued is done.
#define ARCK_FINISH 0

// How a queue ends: what has not begun is cancelled.
#define ARCK_CANCEL 1

// Bytes of the longest value of a store.
#define ARCK_VALUE_MAX 32768

// Bytes of the longest key.
#define ARCK_KEY_MAX 255

// Changes of a batch at most.
#define ARCK_BATCH_MAX 256

// Bytes of the longest record of a log, and of all that is appended together.
#define ARCK_RECORD_MAX 1048576

// Requests of a queue at most.
#define ARCK_DEPTH_MAX 65536

// The greatest weight of a queue.
#define ARCK_WEIGHT_MAX 1000

// What stands for something that is open: a number above 0 that means one thing in the life of a
// process, or -1. No descriptor of the kernel's is one. All threads may use all of them.
typedef int64_t arck_handle;

// How something is opened. All bytes are zero but for what is said; `size` is said always. What is
// zero is as usual. A later version of Arck may have more members, at the end.
struct arck_options {
    // sizeof(struct arck_options).
    size_t size;
    // Of stores and logs: 0 or ARCK_MAKE.
    uint32_t flags;
    // Of stores and logs: permission bits of what is made there, whatever the umask is. Those of
    // directories follow. 0: 0644.
    uint32_t mode;
    // Where nobody serves the pool: for how many milliseconds somebody is waited for. 0: not at
    // all. ARCK_WAIT_USUAL.
    int32_t wait;
    // 0.
    uint32_t reserved;
    // Of connections and logs: the trust group to be one of, whose programs share a session and
    // trust each other. At most 64 bytes. NULL: none.
    const char *group;
    // Of connections: which file system, "arckfs" or "fpfs". NULL: what $ARCK_FS says, else
    // "arckfs". A group has one.
    const char *fs;
    // Of logs: bytes of a section, where the log is made. 0: 64 MiB.
    uint64_t section;
};

// What arck_submit takes. What is of no use to an operation is 0.
struct arck_request {
    // ARCK_READ, ARCK_WRITE, ARCK_APPEND, ARCK_SYNC.
    uint32_t operation;
    // 0, or some of ARCK_URGENT, ARCK_DATA_ONLY.
    uint32_t flags;
    // Of a read: it stays until the completion is reaped, is filled then, and is not to be looked
    // at before. Of others: it is the caller's again when arck_submit returns.
    void *buffer;
    // Bytes of the buffer. More than 0x7ffff000 are read or written in part, as by read(2).
    size_t size;
    // From which byte on: 0 to 2^63 - 1.
    int64_t position;
    // Within how many nanoseconds from now on it has to begin; it completes with ETIMEDOUT
    // otherwise. 0: it has no such time.
    uint64_t within;
    // The caller's own; it comes back with the completion.
    uint64_t user;
    // 0.
    uint64_t reserved[2];
};

// What arck_spool_open has found in a spool.
struct arck_replayed {
    // Writes and appends that were queued and not done, and are done now.
    uint64_t requests;
    // Their bytes.
    uint64_t bytes;
    // Those that are dropped: their file is gone, or refuses them for ever (EFBIG and the like).
    uint64_t dropped;
};

// What arck_reap and arck_wait give: what came of a request.
struct arck_completion {
    // Which: what arck_submit gave.
    int64_t request;
    // What the request said.
    uint64_t user;
    // How many bytes were read or written, 0 for a sync; -1: see error.
    int64_t result;
    // 0, or a number of errno. ECANCELED: it was cancelled, and nothing of it was done. ETIMEDOUT:
    // it had not begun in time, and nothing of it was done. EFAULT: there is no such buffer; of a
    // write nothing was done. Otherwise as of arck_pread, arck_pwrite, arck_fsync.
    int32_t error;
    // 0.
    uint32_t reserved;
    // Of an append: the position behind its bytes.
    uint64_t end;
    // Of a read: the write that it was served from before that was done, or 0. If that write fails,
    // as its own completion says, the read has seen what never was in the file.
    int64_t served_by;
    // Of a write: the later one that was done in place of it and covers it, or 0.
    int64_t covered_by;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Opens a session on a pool.
//
// pool: its directory; NULL: what $ARCK_POOL says, which `arck run` sets. options: NULL for the
// usual ones. Gives a handle, which stands for the pool's root directory in all calls that take a
// directory.
//
// Blocks until the controller has answered. EINVAL: no pool is named, an option is wrong, or there
// is no file system of that name. ENOENT: no pool is there. ECONNREFUSED: nobody serves it, and
// `wait` is over. EACCES: its owner lets nobody in. EBUSY: the programs of the group have another
// file system, or are of another version. ENOMEM, EMFILE: the process has opened as many sessions
// as it can (some 3900, closed ones too). E2BIG: the program was built for a later version.
// arck_message says what to do.
arck_handle arck_connect(const char *pool, const struct arck_options *options);

// Closes whatever has a handle: a file, what lists names or keys, a batch or an enqueued record
// that is given up, a follower, a queue, a set of queues, a store, a log, a connection.
//
// With a connection, a store or a log all that was opened in it is closed. Its session ends then,
// and all that was done is folded when this returns. What other threads are doing there is done
// before. The handle is none afterwards, whatever this says but EDEADLK. Blocks for a connection, a
// store or a log, and for a queue or a set while what has begun there is done. EBADF: it is no
// handle, or closed already. EDEADLK: a handler of signals has interrupted a call. Another error
// (EIO, ENOSPC): not all was folded. In a forked child it does not touch what is its parent's.
int arck_close(arck_handle handle);

// What the last call that failed in this thread says, in one line for people: never NULL, and there
// until this is called again in this thread. Keeps errno.
const char *arck_message(void);

// Sets what is taken from the modes of what is made by a connection: 0 to 0777.
//
// Until this is said the process's umask is asked for each time, of the kernel, which takes some
// microseconds. -1: so it is again. EINVAL, EBADF.
int arck_umask(arck_handle connection, int mask);

// Opens a file or a directory, as openat(2); gives a handle.
//
// directory: of a connection (its root) or of an open directory. An absolute path begins at the
// pool's root: "a" and "/a" are the same there. flags: O_* as of openat(2), O_TMPFILE too;
// O_CLOEXEC is of no effect. mode counts where a file is made, without what the umask takes
// (arck_umask).
//
// A file that was made is durable when this returns. Does not block, but for another session that
// has the directory. Errors as of openat(2); EXDEV: the path leads out of the pool; ENXIO: it leads
// to a named pipe, a socket or a device, which are not opened here; ENFILE: too many files are
// open.
arck_handle arck_openat(arck_handle directory, const char *path, int flags, mode_t mode);

// Another handle of the same open file, as dup(2): offset and flags are common to both. EBADF,
// ESTALE, ENFILE.
arck_handle arck_dup(arck_handle file);

// Reads from the file's offset on, as read(2); 0 is its end.
//
// Does not block, but for another session that has the file. Takes no lock that a writer waits for.
// EBADF: not open, or not for reading. EISDIR. ESTALE: opened before a fork. EINVAL: size is more
// than SSIZE_MAX. EFAULT: buffer is NULL. EIO.
ssize_t arck_read(arck_handle file, void *buffer, size_t size);

// Reads from a position on, as pread(2). As arck_read; EINVAL for a negative offset.
ssize_t arck_pread(arck_handle file, void *buffer, size_t size, off_t offset);

// Reads into several buffers, as readv(2): at most 1024. As arck_read.
ssize_t arck_readv(arck_handle file, const struct iovec *buffers, int count);

// Writes at the file's offset, as write(2), or at its end with O_APPEND.
//
// Durable when it returns, in a pool on persistent memory; in a pool on an ordinary file system
// arck_fsync makes it so. Other threads and programs see all of it or nothing. Does not block, but
// for another session that has the file. Fewer bytes than were given are written where the pool is
// full. EBADF: not open, or not for writing. ESTALE: opened before a fork. ENOSPC, EFBIG, EIO;
// EINVAL: size is more than SSIZE_MAX. EFAULT: buffer is NULL.
ssize_t arck_write(arck_handle file, const void *buffer, size_t size);

// Writes at a position, as pwrite(2). As arck_write; EINVAL for a negative offset.
ssize_t arck_pwrite(arck_handle file, const void *buffer, size_t size, off_t offset);

// Writes several buffers as one, as writev(2): at most 1024. As arck_write.
ssize_t arck_writev(arck_handle file, const struct iovec *buffers, int count);

// Moves the file's offset, as lseek(2), SEEK_DATA and SEEK_HOLE too; gives the new one. EBADF,
// ESTALE, EINVAL, ENXIO.
off_t arck_lseek(arck_handle file, off_t offset, int whence);

// Cuts or lengthens an open file, as ftruncate(2). Durable when it returns. EBADF, ESTALE, EFBIG;
// EINVAL: a negative length, or not open for writing.
int arck_ftruncate(arck_handle file, off_t length);

// Cuts or lengthens a file, as truncate(2). Durable when it returns. Errors as there.
int arck_truncateat(arck_handle directory, const char *path, off_t length);

// Gives a file room, or takes it away, as fallocate(2), with all of its modes that Arck has (else
// EOPNOTSUPP). Blocks where room has to be asked for. Errors as there.
int arck_fallocate(arck_handle file, int mode, off_t offset, off_t length);

// Makes all that was written to a file durable, as fsync(2). What calls have written is already,
// but in a pool on an ordinary file system; there this blocks. EBADF, ESTALE, EIO.
int arck_fsync(arck_handle file);

// As arck_fsync.
int arck_fdatasync(arck_handle file);

// The flags of an open file, as F_GETFL of fcntl(2). EBADF, ESTALE.
int arck_getfl(arck_handle file);

// Sets O_APPEND, O_NONBLOCK, O_NOATIME and O_DIRECT of an open file, as F_SETFL of fcntl(2). EBADF,
// ESTALE.
int arck_setfl(arck_handle file, int flags);

// Whether a file may be read, written, executed or is there, as faccessat(2). flags: AT_EACCESS,
// AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. EACCES and others, as there.
int arck_faccessat(arck_handle directory, const char *path, int mode, int flags);

// Makes a directory, as mkdirat(2). Durable when it returns. Errors as there.
int arck_mkdirat(arck_handle directory, const char *path, mode_t mode);

// Removes a name, as unlinkat(2). flags: 0 or AT_REMOVEDIR. Durable when it returns. Errors as
// there.
int arck_unlinkat(arck_handle directory, const char *path, int flags);

// Renames, as renameat2(2), in one step, after a crash too. flags: 0, RENAME_NOREPLACE or
// RENAME_EXCHANGE. Durable when it returns. Blocks where a directory goes to another one that the
// session has not made. Errors as there; EXDEV: the directories are of different connections.
int arck_renameat2(arck_handle from_directory, const char *from, arck_handle to_directory, const
        char *to, unsigned int flags);

// Gives a file another name, as linkat(2). flags: AT_SYMLINK_FOLLOW, and AT_EMPTY_PATH for what the
// first handle has open. Durable when it returns. Errors as there; EXDEV as of arck_renameat2.
int arck_linkat(arck_handle from_directory, const char *from, arck_handle to_directory, const char
        *to, int flags);

// Makes a symbolic link, as symlinkat(2). Durable when it returns. Errors as there.
int arck_symlinkat(const char *target, arck_handle directory, const char *path);

// Where a symbolic link leads, as readlinkat(2): without a zero byte, and cut where there is no
// more room. Errors as there.
ssize_t arck_readlinkat(arck_handle directory, const char *path, char *target, size_t size);

// Makes a file, a named pipe, a socket's name or a device, as mknodat(2). Durable when it returns.
// Errors as there.
int arck_mknodat(arck_handle directory, const char *path, mode_t mode, dev_t device);

// The status of what a handle has open, as fstat(2); of a connection, that of the pool's root.
//
// st_dev is a number of the pool. Does not block, but for another session that has the file. EBADF,
// ESTALE, EFAULT.
int arck_fstat(arck_handle file, struct stat *status);

// The status of a file, as fstatat(2). flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH. As arck_fstat,
// and errors as there.
int arck_fstatat(arck_handle directory, const char *path, struct stat *status, int flags);

// How large the pool is and what is free, as fstatvfs(3). file: a connection, or anything that is
// open in it. What the session has changed is folded before: blocks for that. EBADF, ESTALE,
// EFAULT, EIO.
int arck_fstatvfs(arck_handle file, struct statvfs *statistics);

// Changes permission bits, as fchmod(2). Durable when it returns. Errors as there.
int arck_fchmod(arck_handle file, mode_t mode);

// Changes permission bits, as fchmodat(2). flags: AT_SYMLINK_NOFOLLOW (EOPNOTSUPP for a symbolic
// link), AT_EMPTY_PATH. Durable when it returns. Errors as there.
int arck_fchmodat(arck_handle directory, const char *path, mode_t mode, int flags);

// Changes owner and group, as fchownat(2); -1 leaves one as it is. flags: AT_SYMLINK_NOFOLLOW,
// AT_EMPTY_PATH. Blocks: the controller does it. Errors as there.
int arck_fchownat(arck_handle directory, const char *path, uid_t owner, gid_t group, int flags);

// Sets the times of access and of change, as futimens(3): times is an array of two, or NULL for
// now; UTIME_NOW and UTIME_OMIT count. Durable when it returns. Errors as there.
int arck_futimens(arck_handle file, const struct timespec *times);

// The same by a path, as utimensat(2). flags: AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH.
int arck_utimensat(arck_handle directory, const char *path, const struct timespec *times, int
        flags);

// The value of an extended attribute, as getxattr(2) and fgetxattr(2); gives its length, which
// alone is told where size is 0.
//
// flags: AT_SYMLINK_NOFOLLOW; AT_EMPTY_PATH with "" for what the handle has open. Names begin with
// "user." ENODATA: there is none; ERANGE: no room for it; EOPNOTSUPP; and errors of fstatat(2).
ssize_t arck_getxattrat(arck_handle directory, const char *path, int flags, const char *name, void
        *value, size_t size);

// Sets an extended attribute, as setxattr(2). flags as of arck_getxattrat; how: 0, XATTR_CREATE or
// XATTR_REPLACE. Durable when it returns. ENOSPC: all attributes of a file have 4 KiB together.
// Errors as there.
int arck_setxattrat(arck_handle directory, const char *path, int flags, const char *name, const void
        *value, size_t size, int how);

// The names of extended attributes, each with a zero byte, as listxattr(2); gives their length
// together, which alone is told where size is 0. As arck_getxattrat.
ssize_t arck_listxattrat(arck_handle directory, const char *path, int flags, char *names, size_t
        size);

// Takes an extended attribute away, as removexattr(2). Durable when it returns. As arck_getxattrat.
int arck_removexattrat(arck_handle directory, const char *path, int flags, const char *name);

// Opens a directory to list its names, as opendir(3); gives a handle for arck_readdir and
// arck_rewinddir, which no other call takes. directory and path as of arck_openat; "." is the
// directory itself. Errors as there.
arck_handle arck_opendirat(arck_handle directory, const char *path);

// The next name of a directory, "." and ".." among them: 1 if there is one, 0 at the end.
//
// Names that are made or removed meanwhile may be told or not; each other one is told once. Blocks
// for another session that has the directory. EBADF, EFAULT; ENOENT: the directory was removed;
// EBUSY: another thread is reading by this handle; ESTALE: opened before a fork.
int arck_readdir(arck_handle names, struct dirent *dirent);

// Begins anew, with the names that there are now, as rewinddir(3). EBADF, EBUSY, ESTALE.
int arck_rewinddir(arck_handle names);

// Opens the store that a directory is, by its path from the pool's root; gives a handle. Its keys
// are names of files there, its values what these hold. Symbolic links are not followed.
//
// pool and options as of arck_connect: flags, mode and wait count. It has a session of its own.
// Blocks until the controller has answered. ENOENT: no such directory, and no ARCK_MAKE; ENOTDIR,
// EACCES, and errors of arck_connect; EILSEQ: the path is not UTF-8.
arck_handle arck_store_open(const char *pool, const char *directory, const struct arck_options
        *options);

// The value of a key; gives its length. Where size is 0 nothing is read, and value may be NULL.
//
// A value is read as it was set: as a whole, never a mixture of two. Takes no lock, and does not
// block, but for another session that has the store. ENOENT: the key has no value. ERANGE: there is
// no room for it, and nothing was read. EINVAL, ENAMETOOLONG: that cannot be a key. EFBIG: the file
// is no value, but longer. EISDIR, ELOOP, ENXIO: it is no file. EACCES, EIO, EBADF.
ssize_t arck_store_get(arck_handle store, const void *key, size_t key_length, void *value, size_t
        size);

// Whether a key has a value: 1 or 0. Errors as of arck_store_get.
int arck_store_has(arck_handle store, const void *key, size_t key_length);

// Gives a key a value, of ARCK_VALUE_MAX bytes at most. Durable when it returns: after a crash
// there is the value before or this one.
//
// Blocks for other threads that change the store, and for another session that has it. EFBIG: the
// value is too long. EINVAL, ENAMETOOLONG: that cannot be a key. EISDIR and the like: it is no
// file. ENOSPC, EACCES, EPERM, EIO, EBADF.
int arck_store_set(arck_handle store, const void *key, size_t key_length, const void *value, size_t
        size);

// Takes a key away: 1, or 0 if it was not there. Durable when it returns. As arck_store_set.
int arck_store_remove(arck_handle store, const void *key, size_t key_length);

// Lists the keys that a store has now, in no order; gives a handle for arck_keys_next. EACCES, EIO,
// EBADF.
arck_handle arck_store_keys(arck_handle store);

// The next key, without a zero byte; gives its length, 0 at the end. Room for ARCK_KEY_MAX bytes is
// always enough. ERANGE: there is no room for it, and it is next still. EBADF, EFAULT; EBUSY:
// another thread is reading by this handle.
ssize_t arck_keys_next(arck_handle keys, void *key, size_t size);

// Begins a batch: changes of a store that are made together. Gives a handle; arck_close gives the
// batch up. EBADF.
arck_handle arck_batch_begin(arck_handle store);

// Adds to a batch that a key gets a value; both are copied. Of two changes of a key the later
// counts. E2BIG: it has ARCK_BATCH_MAX changes. EFBIG, ENAMETOOLONG, EBADF, EFAULT; EBUSY: another
// thread is using the batch.
int arck_batch_set(arck_handle batch, const void *key, size_t key_length, const void *value, size_t
        size);

// Adds to a batch that a key is taken away, if it is there. As arck_batch_set.
int arck_batch_remove(arck_handle batch, const void *key, size_t key_length);

// Makes the changes of a batch; gives how many of its keys were there before. Durable when it
// returns: after a crash all of them are there, or none is. The handle is none afterwards, unless
// this has failed: then nothing was changed, and it may be tried again. Errors as of
// arck_store_set.
int arck_batch_commit(arck_handle batch);

// Opens the log that a directory is, by its path from the pool's root; gives a handle. Symbolic
// links are not followed.
//
// pool and options as of arck_connect: flags, mode, wait, group and section count. Members of a
// group follow each other without messages; its programs have logs alone. Blocks until the
// controller has answered. ENOENT: no such directory, and no ARCK_MAKE; EBADMSG: what is there is
// no log; and errors of arck_connect.
arck_handle arck_log_open(const char *pool, const char *directory, const struct arck_options
        *options);

// Appends a record of 1 to ARCK_RECORD_MAX bytes; position, unless it is NULL, gets where it
// begins.
//
// It is durable when this returns, with all that was enqueued before. Blocks for other threads that
// append, and for another session that has the log. Threads that append at once are committed
// together. EINVAL: no bytes. EMSGSIZE: too many. ENOSPC, EACCES, EIO: neither this record is there
// nor those that were to be committed with it. EBADF, EFAULT.
int arck_log_append(arck_handle log, const void *record, size_t size, uint64_t *position);

// Appends several records as one, of ARCK_RECORD_MAX bytes together and at most 1024: after a crash
// all are there, one behind the other, or none is. As arck_log_append.
int arck_log_appendv(arck_handle log, const struct iovec *records, int count, uint64_t *position);

// Appends a record and does not wait. It is durable when arck_log_commit of it says so, or
// arck_log_append of any later one by this process; arck_close of the log commits what is left.
//
// enqueued, unless it is NULL, gets a handle for arck_log_commit, which ends it; arck_close gives
// it up, and not the record. Blocks only where ARCK_RECORD_MAX bytes wait already. Errors as of
// arck_log_append.
int arck_log_enqueue(arck_handle log, const void *record, size_t size, arck_handle *enqueued);

// Waits until an enqueued record is durable, with all that were enqueued before it; position,
// unless it is NULL, gets where it begins. The handle is none afterwards. ESTALE: it was enqueued
// before a fork. As arck_log_append.
int arck_log_commit(arck_handle enqueued, uint64_t *position);

// The first position that has not been cut off. EBADF, EFAULT, EACCES, EIO.
int arck_log_begin(arck_handle log, uint64_t *position);

// The position behind all that has been appended. EBADF, EFAULT, EACCES, EIO.
int arck_log_end(arck_handle log, uint64_t *position);

// Reads from a position on until the buffer is full or the log ends; gives how many bytes it was, 0
// at its end. Takes no lock. ENODATA: that was cut off. EINVAL: the log ends before, or size is
// more than SSIZE_MAX. EBADMSG: the log is damaged. EBADF, EFAULT, EACCES, EIO.
ssize_t arck_log_read(arck_handle log, uint64_t position, void *buffer, size_t size);

// Takes away what lies before a position, by whole sections, but never the last one. Durable when
// it returns. Who reads or follows what is cut off is told so (ENODATA). EINVAL: the log ends
// before. EACCES, EPERM, EIO, EBADF.
int arck_log_cut(arck_handle log, uint64_t position);

// Follows a log from a position on, which may be its end; gives a handle for arck_follower_next.
// ENODATA: that was cut off. EINVAL: the log ends before. EBADF, EACCES, EIO.
arck_handle arck_log_follow(arck_handle log, uint64_t position);

// What follows: as much of it as there is and the buffer has room for; records may be cut where the
// buffer ends. Where there is nothing it waits until there is, at most so many milliseconds, -1:
// for ever. Gives how many bytes it was, 0 if the time is over.
//
// position, unless it is NULL, gets where the next bytes come from. Signals do not end the wait,
// but to close the follower or the log does (EBADF). EINVAL: no room, or a wait below -1. ENODATA:
// what follows was cut off. EBUSY: another thread is reading by this handle. EBADMSG, EFAULT,
// EACCES, EIO.
ssize_t arck_follower_next(arck_handle follower, void *buffer, size_t size, int wait, uint64_t
        *position);

// Opens a set of queues, which has the threads that do their requests; gives a handle. One is
// enough for a program, and for files of all connections.
//
// workers: how many threads, 1024 at most; 0: as many as there are processors. They start with the
// first request, have all signals blocked but those of faults, and end when the set is closed.
// Closing it closes its queues. In a forked child a set is its parent's. Does not block. EINVAL.
arck_handle arck_queues(uint32_t workers);

// Opens a queue of requests on an open file; gives a handle. The file stays open until the queue is
// closed, also if its own handle is closed before.
//
// depth: how many requests may be outstanding or completed and not reaped, ARCK_DEPTH_MAX at most;
// 0: 128. weight: its share beside other queues of the set, in bytes, ARCK_WEIGHT_MAX at most; 0:
// 100. A file may have several queues. All threads may use them.
//
// Requests of a file that overlap, of which one writes, are done in the order of their submission,
// whatever queue they are in; all others at the same time, or in any order. Closing the queue
// cancels what has not begun, waits for what has, and forgets what was not reaped. EBADF, EINVAL,
// EIO; ESTALE: the file or the set was opened before a fork.
arck_handle arck_queue(arck_handle queues, arck_handle file, size_t depth, uint32_t weight);

// Opens a spool, for arck_spooled_queue, and does what was queued there and is not done, since the
// program was killed or the machine failed, in the order of submission; gives a handle. replayed,
// unless it is NULL, gets what that was.
//
// connection and path as directory and path of arck_openat. If there is no such file, or it has no
// bytes, it is made, mode 0600, for size bytes that are queued at once: 65536 to 2^32, and at least
// twice the longest. Blocks until all is done. It is open until its handle and those of its queues
// are closed. EBUSY: it is open, here or in another process. EPERM: others can write the file, and
// could have anything done in the caller's name. EBADMSG: it is no spool. EXDEV: it was filled in
// another pool. EINVAL: a size that there is not. And errors of arck_openat and arck_pwrite, also
// of the files for which something was queued: then it is still there, and opening the spool again
// goes on.
arck_handle arck_spool_open(arck_handle connection, const char *path, uint64_t size, struct
        arck_replayed *replayed);

// Opens a queue as arck_queue does, whose writes and appends are durable when arck_submit returns:
// they are in the spool then, and are done, in their order, when that is opened after a crash.
//
// path: where the file is found then, from the pool's root. What is queued so cannot be cancelled
// (EALREADY) and has no within (EINVAL); closing waits for it. arck_submit says EAGAIN where the
// spool is full, EMSGSIZE of more than half of it. Errors as of arck_queue. EINVAL: the path leads
// to another file, or the file is the spool. EXDEV: the spool is of another connection. ENOENT,
// ENAMETOOLONG, EFAULT; ESTALE: the spool was opened before a fork.
arck_handle arck_spooled_queue(arck_handle queues, arck_handle file, size_t depth, uint32_t weight,
        arck_handle spool, const char *path);

// Submits a request; gives its number, which is above 0, means one request in the life of a set,
// and is its place in the order.
//
// The bytes of a write or an append are copied before this returns; those of a read are put into
// its buffer when its completion is reaped. Does not wait for requests. Durable is what has
// completed, as by the plain call; what is queued ends with the process.
//
// EAGAIN: the queue is full, until something is reaped; or no thread can be started. EINVAL: a
// wrong request, or its range ends behind 2^63 - 1. EBADF: the queue was ended, or the file was not
// opened for that. ESTALE: the queue was opened before a fork. ENOMEM; EFAULT: request is NULL. A
// buffer that is not there is EFAULT in the completion.
int64_t arck_submit(arck_handle queue, const struct arck_request *request);

// Takes what has completed, in the order of completion, most of them at most; gives how many. Never
// blocks. EBADF, ESTALE; EFAULT: completions is NULL; then nothing is taken.
ssize_t arck_reap(arck_handle queue, struct arck_completion *completions, size_t most);

// Waits until at_least requests have completed, or none is outstanding, or the time is over: so
// many milliseconds, -1: it has no end. Takes all that have completed; gives how many, which may be
// 0.
//
// most: for how many completions there is room, which is the queue's depth at least. Without a
// time-out the thread does requests of this queue itself meanwhile. Signals do not end the wait;
// closing the queue does. EINVAL: too little room, or a time-out below -1. As arck_reap.
ssize_t arck_wait(arck_handle queue, struct arck_completion *completions, size_t most, size_t
        at_least, int timeout);

// Cancels a request: it completes with ECANCELED, and nothing of it is done. Does not block.
// EALREADY: it has begun, or a read was served from it; it completes as ever. ENOENT: it has
// completed, or is none of this queue. EBADF, ESTALE.
int arck_cancel(arck_handle queue, int64_t request);

// Has a queue take no more requests (EBADF), and blocks until nothing is outstanding. how:
// ARCK_FINISH or ARCK_CANCEL. What has completed can be reaped afterwards; the handle stays until
// arck_close. EINVAL, EBADF, ESTALE.
int arck_queue_end(arck_handle queue, int how);

// How many requests of a queue are outstanding, and how many completions can be reaped. Each may be
// NULL. EBADF, ESTALE.
int arck_queue_count(arck_handle queue, size_t *outstanding, size_t *completed);

// A descriptor of the kernel's that is readable as long as something can be reaped, for poll(2),
// epoll(7) and what is built on them. It is made when it is asked for first, is the same each time,
// and stays the queue's, with which it is closed: it is not to be read, written or closed. EMFILE,
// ENFILE, ENOMEM, EBADF, ESTALE.
int arck_queue_readiness(arck_handle queue);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ARCK_H */


