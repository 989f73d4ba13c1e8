//! Stores: small files as values (KVFS).

use crate::boundary::{Bytes, Room, Text, Wishes};
use crate::forks;
use crate::handles::{self, arck_handle};
use crate::inside;
use crate::options::{For, Wish};
use crate::parts::{Changes, State};
use crate::roots::What;
use crate::trouble::{Trouble, answer};
use arck_kvfs::{Batch, Options, Store, VALUE_MAX};
use arckfs::Errno;
use std::ffi::c_int;

/// Bytes of the longest value of a store.
pub const ARCK_VALUE_MAX: usize = 32768;
/// Bytes of the longest key.
pub const ARCK_KEY_MAX: usize = 255;
/// Changes of a batch at most.
pub const ARCK_BATCH_MAX: usize = 256;

const _: () = assert!(ARCK_VALUE_MAX == VALUE_MAX && ARCK_BATCH_MAX == Batch::MAX);

/// A key that is not there; quietly, since it is usual.
const ABSENT: Errno = Errno::NOENT;

/// What of a path from the pool's root C may say with or without a slash.
pub fn from_root(directory: Text) -> Result<String, Trouble> {
    let directory = directory.get()?;
    let text = std::str::from_utf8(directory).map_err(|_| {
        Trouble::said(
            Errno::ILSEQ,
            "the directory of a store or a log has a name in UTF-8",
        )
    })?;
    Ok(text.trim_start_matches('/').to_owned())
}

/// Opens the store that a directory is, by its path from the pool's root; gives a handle. Its keys are names of files there, its
/// values what these hold. Symbolic links are not followed.
///
/// pool and options as of arck_connect: flags, mode and wait count. It has a session of its own. Blocks until the controller has
/// answered. ENOENT: no such directory, and no ARCK_MAKE; ENOTDIR, EACCES, and errors of arck_connect; EILSEQ: the path is not UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn arck_store_open(pool: Text, directory: Text, options: Wishes) -> arck_handle {
    answer(|| {
        let _inside = inside::enter(inside::NOTHING)?;
        let directory = from_root(directory)?;
        let wish = Wish::of(pool, options, For::Store)?;
        forks::watch();
        let options = Options {
            pool: wish.pool,
            make: wish.makes,
            mode: wish.mode,
            patience: wish.patience,
        };
        let store = Store::open(options, &directory)?;
        handles::add_root(What::Store(store))
    })
}

/// The value of a key; gives its length. Where size is 0 nothing is read, and value may be NULL.
///
/// A value is read as it was set: as a whole, never a mixture of two. Takes no lock, and does not block, but for another session
/// that has the store. ENOENT: the key has no value. ERANGE: there is no room for it, and nothing was read. EINVAL, ENAMETOOLONG: that cannot be a key. EFBIG: the
/// file is no value, but longer. EISDIR, ELOOP, ENXIO: it is no file. EACCES, EIO, EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn arck_store_get(
    store: arck_handle,
    key: Bytes,
    key_length: usize,
    value: Room,
    size: usize,
) -> isize {
    answer(|| {
        let (key, value) = (key.get(key_length)?, value.get(size)?);
        let (_inside, store, _) = handles::store(store)?;
        match store.get_if_fits(key, value)? {
            None => Err(ABSENT.into()),
            Some(length) if length > value.len() && size != 0 => Err(Errno::RANGE.into()),
            Some(length) => Ok(length.cast_signed()),
        }
    })
}

/// Whether a key has a value: 1 or 0. Errors as of arck_store_get.
#[unsafe(no_mangle)]
pub extern "C" fn arck_store_has(store: arck_handle, key: Bytes, key_length: usize) -> c_int {
    answer(|| {
        let key = key.get(key_length)?;
        let (_inside, store, _) = handles::store(store)?;
        Ok(store.get_if_fits(key, &mut [])?.is_some().into())
    })
}

/// Gives a key a value, of ARCK_VALUE_MAX bytes at most. Durable when it returns: after a crash there is the value before or this one.
///
/// Blocks for other threads that change the store, and for another session that has it. EFBIG: the value is too long. EINVAL,
/// ENAMETOOLONG: that cannot be a key. EISDIR and the like: it is no file. ENOSPC, EACCES, EPERM, EIO, EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn arck_store_set(
    store: arck_handle,
    key: Bytes,
    key_length: usize,
    value: Bytes,
    size: usize,
) -> c_int {
    answer(|| {
        let (key, value) = (key.get(key_length)?, value.get(size)?);
        let (_inside, store, _) = handles::store(store)?;
        store.set(key, value)?;
        Ok(0)
    })
}

/// Takes a key away: 1, or 0 if it was not there. Durable when it returns. As arck_store_set.
#[unsafe(no_mangle)]
pub extern "C" fn arck_store_remove(store: arck_handle, key: Bytes, key_length: usize) -> c_int {
    answer(|| {
        let key = key.get(key_length)?;
        let (_inside, store, _) = handles::store(store)?;
        Ok(store.delete(key)?.into())
    })
}

/// Lists the keys that a store has now, in no order; gives a handle for arck_keys_next. EACCES, EIO, EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn arck_store_keys(store: arck_handle) -> arck_handle {
    answer(|| {
        let (_inside, store, root) = handles::store(store)?;
        let keys = store.list()?.into_iter();
        Ok(handles::add_part(root, State::Keys(keys)))
    })
}

/// The next key, without a zero byte; gives its length, 0 at the end. Room for ARCK_KEY_MAX bytes is always enough. ERANGE: there is
/// no room for it, and it is next still. EBADF, EFAULT; EBUSY: another thread is reading by this handle.
#[unsafe(no_mangle)]
pub extern "C" fn arck_keys_next(keys: arck_handle, key: Room, size: usize) -> isize {
    answer(|| {
        let key = key.get(size)?;
        let (_inside, part, _) = handles::part(keys)?;
        let mut state = part.use_alone()?;
        let State::Keys(keys) = &mut *state else {
            return Err(Trouble::no_handle());
        };
        let Some(next) = keys.as_slice().first() else {
            return Ok(0);
        };
        let room = key.get_mut(..next.len()).ok_or(Errno::RANGE)?;
        room.copy_from_slice(next);
        let length = next.len();
        keys.next();
        Ok(length.cast_signed())
    })
}

/// Begins a batch: changes of a store that are made together. Gives a handle; arck_close gives the batch up. EBADF.
#[unsafe(no_mangle)]
pub extern "C" fn arck_batch_begin(store: arck_handle) -> arck_handle {
    answer(|| {
        let (_inside, _, root) = handles::store(store)?;
        Ok(handles::add_part(root, State::Batch(Changes::new())))
    })
}

fn on_batch<T>(
    batch: i64,
    work: impl FnOnce(&mut Changes, &Store) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let (_inside, part, what) = handles::part(batch)?;
    let mut state = part.use_alone()?;
    match (&mut *state, what) {
        (State::Batch(changes), What::Store(store)) => work(changes, store),
        _ => Err(Trouble::no_handle()),
    }
}

fn note(batch: i64, key: &[u8], value: Option<&[u8]>) -> Result<c_int, Trouble> {
    if key.len() > ARCK_KEY_MAX {
        return Err(Errno::NAMETOOLONG.into());
    }
    if value.is_some_and(|value| value.len() > ARCK_VALUE_MAX) {
        return Err(Errno::FBIG.into());
    }
    on_batch(batch, |changes, _| {
        if changes.len() == ARCK_BATCH_MAX && !changes.contains_key(key) {
            return Err(Errno::TOOBIG.into());
        }
        changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        Ok(0)
    })
}

/// Adds to a batch that a key gets a value; both are copied. Of two changes of a key the later counts. E2BIG: it has ARCK_BATCH_MAX
/// changes. EFBIG, ENAMETOOLONG, EBADF, EFAULT; EBUSY: another thread is using the batch.
#[unsafe(no_mangle)]
pub extern "C" fn arck_batch_set(
    batch: arck_handle,
    key: Bytes,
    key_length: usize,
    value: Bytes,
    size: usize,
) -> c_int {
    answer(|| note(batch, key.get(key_length)?, Some(value.get(size)?)))
}

/// Adds to a batch that a key is taken away, if it is there. As arck_batch_set.
#[unsafe(no_mangle)]
pub extern "C" fn arck_batch_remove(batch: arck_handle, key: Bytes, key_length: usize) -> c_int {
    answer(|| note(batch, key.get(key_length)?, None))
}

/// Makes the changes of a batch; gives how many of its keys were there before. Durable when it returns: after a crash all of them
/// are there, or none is. The handle is none afterwards, unless this has failed: then nothing was changed, and it may be tried
/// again. Errors as of arck_store_set.
#[unsafe(no_mangle)]
pub extern "C" fn arck_batch_commit(batch: arck_handle) -> c_int {
    answer(|| {
        on_batch(batch, |changes, store| {
            let mut all = Batch::new();
            for (key, value) in changes.iter() {
                match value {
                    Some(value) => all.set(key, value),
                    None => all.delete(key),
                };
            }
            let there = store.apply(&all)?;
            handles::forget_part(batch)?;
            Ok(c_int::try_from(there).unwrap_or(c_int::MAX))
        })
    })
}
