//! Names of a directory, one after the other.

use crate::boundary::{DirentRoom, Text, Zeroable};
use crate::face::paths::reach;
use crate::handles::{self, arck_handle};
use crate::parts::{Names, Part, State};
use crate::roots::{Connection, What};
use crate::trouble::{Trouble, answer};
use arckfs::{Errno, FileSystem};
use std::ffi::c_int;
use std::sync::Arc;

/// Bytes that are read at once.
const AT_ONCE: usize = 32 << 10;
/// Where in a record of the kernel's form is what: inode number, position, length, type, name.
const POSITION: usize = 8;
const LENGTH: usize = 16;
const TYPE: usize = 18;
const NAME: usize = 19;

/// Opens a directory to list its names, as opendir(3); gives a handle for arck_readdir and arck_rewinddir, which no other call
/// takes. directory and path as of arck_openat; "." is the directory itself. Errors as there.
#[unsafe(no_mangle)]
pub extern "C" fn arck_opendirat(directory: arck_handle, path: Text) -> arck_handle {
    answer(|| {
        let reached = reach(directory, path, 0)?;
        let files = reached.files();
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
        let names = Names {
            handle: files.open(reached.at, reached.path, flags, 0)?,
            of: files.session(),
            records: vec![0; AT_ONCE],
            filled: 0,
            told: 0,
        };
        Ok(handles::add_part(reached.place.root, State::Names(names)))
    })
}

/// The next record, and how much is told with it; `None` at the end.
fn next(names: &mut Names, files: &FileSystem) -> Result<Option<libc::dirent>, Trouble> {
    if names.told == names.filled {
        names.told = 0;
        names.filled = 0;
        names.filled = files.read_directory(names.handle, &mut names.records)?;
        if names.filled == 0 {
            return Ok(None);
        }
    }
    let record = &names.records[names.told..names.filled];
    let (dirent, length) = dirent_of(record).ok_or(Errno::IO)?;
    names.told += length;
    Ok(Some(dirent))
}

fn dirent_of(record: &[u8]) -> Option<(libc::dirent, usize)> {
    let length = usize::from(u16::from_ne_bytes(*record.get(LENGTH..)?.first_chunk()?));
    let record = record.get(..length)?;
    let mut dirent = libc::dirent::zero();
    dirent.d_ino = u64::from_ne_bytes(*record.first_chunk()?);
    dirent.d_off = i64::from_ne_bytes(*record.get(POSITION..)?.first_chunk()?);
    dirent.d_reclen = size_of::<libc::dirent>() as u16;
    dirent.d_type = *record.get(TYPE)?;
    let name = record.get(NAME..)?.split(|&byte| byte == 0).next()?;
    // One zero byte stays.
    let room = dirent.d_name.len() - 1;
    for (target, &byte) in dirent.d_name[..room].iter_mut().zip(name) {
        *target = byte.cast_signed();
    }
    Some((dirent, length))
}

/// The connection of names that are listed. ESTALE: another one's, before a fork.
fn connection(
    names: &Names,
    what: &'static What,
) -> Result<(&'static Connection, &'static FileSystem), Trouble> {
    let What::Connection(connection) = what else {
        return Err(Trouble::no_handle());
    };
    match names.of.has_ended() {
        true => Err(Trouble::of_parent()),
        false => Ok((connection, connection.files()?)),
    }
}

fn on_names<T>(
    (part, what): (&Arc<Part>, &'static What),
    work: impl FnOnce(&mut Names, &FileSystem) -> Result<T, Trouble>,
) -> Result<T, Trouble> {
    let mut state = part.use_alone()?;
    let State::Names(names) = &mut *state else {
        return Err(Trouble::no_handle());
    };
    let (_, files) = connection(names, what)?;
    work(names, files)
}

/// The next name of a directory, "." and ".." among them: 1 if there is one, 0 at the end.
///
/// Names that are made or removed meanwhile may be told or not; each other one is told once. Blocks for another session that has the
/// directory. EBADF, EFAULT; ENOENT: the directory was removed; EBUSY: another thread is reading by this handle; ESTALE: opened before
/// a fork.
#[unsafe(no_mangle)]
pub extern "C" fn arck_readdir(names: arck_handle, dirent: DirentRoom) -> c_int {
    answer(|| {
        dirent.expected()?;
        let (_inside, part, what) = handles::part(names)?;
        on_names((&part, what), |names, files| match next(names, files)? {
            None => Ok(0),
            Some(found) => dirent.put(found).map(|()| 1),
        })
    })
}

/// Begins anew, with the names that there are now, as rewinddir(3). EBADF, EBUSY, ESTALE.
#[unsafe(no_mangle)]
pub extern "C" fn arck_rewinddir(names: arck_handle) -> c_int {
    answer(|| {
        let (_inside, part, what) = handles::part(names)?;
        on_names((&part, what), |names, files| {
            files.seek(names.handle, 0, libc::SEEK_SET)?;
            (names.filled, names.told) = (0, 0);
            Ok(0)
        })
    })
}
