//! Connections, closing, and what went wrong.

use crate::boundary::{Text, Wishes};
use crate::forks;
use crate::handles::{self, arck_handle};
use crate::inside;
use crate::options::{For, Wish};
use crate::roots::{Connection, UMASK_OF_PROCESS, What};
use crate::trouble::{Trouble, answer, last_line};
use arckfs::{ConnectOptions, Errno};
use std::ffi::{c_char, c_int};
use std::os::unix::ffi::OsStringExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Pauses between attempts while nobody serves a pool.
const PAUSE: Duration = Duration::from_millis(20);

/// What ArckFS calls that nobody serves a pool.
const NOBODY: i32 = libc::ECONNREFUSED;

/// Opens a session on a pool.
///
/// pool: its directory; NULL: what $ARCK_POOL says, which `arck run` sets. options: NULL for the usual ones.
/// Gives a handle, which stands for the pool's root directory in all calls that take a directory.
///
/// Blocks until the controller has answered. EINVAL: no pool is named, an option is wrong, or there is no file system of
/// that name. ENOENT: no pool is there. ECONNREFUSED: nobody serves it, and `wait` is over. EACCES: its owner lets nobody in. EBUSY: the
/// programs of the group have another file system, or are of another version. ENOMEM, EMFILE: the process has opened as many sessions as it can (some 3900,
/// closed ones too). E2BIG: the program was built for a later version. arck_message says what to do.
#[unsafe(no_mangle)]
pub extern "C" fn arck_connect(pool: Text, options: Wishes) -> arck_handle {
    answer(|| {
        let _inside = inside::enter(inside::NOTHING)?;
        let wish = Wish::of(pool, options, For::Connection)?;
        forks::watch();
        // Where `arck run` shows a pool: absolute symbolic links below that stay inside.
        let mount = std::env::var_os("ARCK_MOUNT").unwrap_or_else(|| "/arck".into());
        let options = ConnectOptions {
            pool: wish.pool,
            mount: mount.into_vec(),
            group: wish.group,
            resolver: wish.resolver,
        };
        let began = Instant::now();
        let connection = loop {
            match Connection::open(options.clone()) {
                Err(trouble) if trouble.is(NOBODY) && began.elapsed() < wish.patience => {
                    std::thread::sleep(PAUSE);
                }
                opened => break opened.map_err(|trouble| trouble.in_group(&options.group))?,
            }
        };
        handles::add_root(What::Connection(connection))
    })
}

/// Closes whatever has a handle: a file, what lists names or keys, a batch or an enqueued record that is given up, a follower, a
/// queue, a set of queues, a store, a log, a connection.
///
/// With a connection, a store or a log all that was opened in it is closed. Its session ends then, and all that was done
/// is folded when this returns. What other threads are doing there is done before.
/// The handle is none afterwards, whatever this says but EDEADLK. Blocks for a connection, a store or a log, and for a queue or a set while what has begun there is done. EBADF: it is no handle, or
/// closed already. EDEADLK: a handler of signals has interrupted a call. Another error (EIO, ENOSPC): not all was folded. In a forked child it does not touch what is its parent's.
#[unsafe(no_mangle)]
pub extern "C" fn arck_close(handle: arck_handle) -> c_int {
    answer(|| handles::close(handle).map(|()| 0))
}

/// What the last call that failed in this thread says, in one line for people: never NULL, and there until this is called again in
/// this thread. Keeps errno.
#[unsafe(no_mangle)]
pub extern "C" fn arck_message() -> *const c_char {
    last_line()
}

/// Sets what is taken from the modes of what is made by a connection: 0 to 0777.
///
/// Until this is said the process's umask is asked for each time, of the kernel, which takes some microseconds. -1: so it is
/// again. EINVAL, EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn arck_umask(connection: arck_handle, mask: c_int) -> c_int {
    answer(|| {
        let place = handles::place(connection)?;
        if place.file().is_ok() {
            return Err(Trouble::no_handle());
        }
        let mask = match mask {
            -1 => UMASK_OF_PROCESS,
            0..=0o777 => mask.cast_unsigned(),
            _ => return Err(Errno::INVAL.into()),
        };
        place.connection.umask.store(mask, Ordering::Relaxed);
        Ok(0)
    })
}
