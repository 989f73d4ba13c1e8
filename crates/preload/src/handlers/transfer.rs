//! Calls that move data between two descriptors inside the kernel: `copy_file_range`, `sendfile`,
//! `splice`. With a pool file at either end they copy through memory of this library, at explicit
//! positions, so that what was read and could not be written is not lost.
//!
//! Invariant: the checks come in the kernel's order, and offsets move by what was moved.

use super::{memory, memory_mut};
use crate::backend::{Failure, Handle, inside, minus};
use crate::descriptors::{self, Descriptor, is_pool, lookup, replacements};
use crate::memory as program;
use crate::raw::{self, Arguments, error, failed, syscall};
use crate::report;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The most bytes one call moves, as in the kernel.
const MOST: usize = 0x7fff_f000;
/// Bytes copied at a time.
const PIECE: usize = 128 * 1024;

fn value(result: Result<usize, Failure>) -> isize {
    match result {
        Ok(n) => n as isize,
        Err(Failure::Errno(errno)) => minus(errno),
        Err(Failure::Outside(_)) => error(libc::EIO),
    }
}

/// A handle that stays open until this is dropped, also if another thread closes the descriptor
/// or replaces it: what was taken out of a pipe has to go where it was sent.
struct Used(Handle);

impl Drop for Used {
    fn drop(&mut self) {
        descriptors::give_up(self.0);
    }
}

/// An open file of either side.
enum File {
    Pool(Used),
    Kernel(usize),
}

/// What the checks want to know of a file.
struct Known {
    device: u64,
    inode: u64,
    kind: u32,
    size: u64,
    flags: i32,
}

impl Known {
    fn readable(&self) -> bool {
        self.flags & libc::O_PATH == 0 && self.flags & libc::O_ACCMODE != libc::O_WRONLY
    }
    fn writable(&self) -> bool {
        self.flags & libc::O_PATH == 0 && self.flags & libc::O_ACCMODE != libc::O_RDONLY
    }
    fn is_regular(&self) -> bool {
        self.kind == libc::S_IFREG
    }
}

impl File {
    fn of(descriptor: usize) -> Result<File, isize> {
        match lookup(descriptor) {
            Descriptor::Pool(handle) => {
                descriptors::retain(handle)?;
                Ok(File::Pool(Used(handle)))
            }
            Descriptor::Kernel => Ok(File::Kernel(descriptor)),
            Descriptor::Error(error) => Err(error),
        }
    }

    fn known(&self) -> Result<Known, isize> {
        match self {
            File::Pool(held) => inside(|fs| {
                let stat = fs.stat_handle(held.0)?;
                Ok(Known {
                    device: 0,
                    inode: stat.inode,
                    kind: stat.mode & libc::S_IFMT,
                    size: stat.size,
                    flags: fs.flags(held.0)?,
                })
            })
            .map_err(|failure| value(Err(failure))),
            // SAFETY: a plain structure that the kernel fills; the program's descriptor.
            File::Kernel(descriptor) => unsafe {
                let before = replacements::count();
                let flags = syscall!(libc::SYS_fcntl, *descriptor, libc::F_GETFL);
                if failed(flags) {
                    return Err(flags);
                }
                let mut stat: libc::stat = std::mem::zeroed();
                let result = syscall!(libc::SYS_fstat, *descriptor, &raw mut stat);
                if failed(result) {
                    return Err(result);
                }
                let is_placeholder = flags as i32 & libc::O_ACCMODE == libc::O_ACCMODE;
                if is_placeholder || before.has_moved_over_kernels() {
                    // Something of the pool's was put there meanwhile.
                    return Err(error(libc::EBADF));
                }
                Ok(Known {
                    // No device has number 0.
                    device: stat.st_dev.max(1),
                    inode: stat.st_ino,
                    kind: stat.st_mode & libc::S_IFMT,
                    size: stat.st_size as u64,
                    flags: flags as i32,
                })
            },
        }
    }

    /// The offset of the description, or minus an error number.
    fn tell(&self) -> isize {
        self.seek(0, libc::SEEK_CUR)
    }

    fn seek(&self, offset: i64, whence: i32) -> isize {
        match self {
            File::Pool(held) => value(inside(|fs| Ok(fs.seek(held.0, offset, whence)? as usize))),
            // SAFETY: no pointers.
            File::Kernel(fd) => unsafe { syscall!(libc::SYS_lseek, *fd, offset, whence) },
        }
    }

    fn read(&self, buffer: &mut [u8], at: u64) -> isize {
        match self {
            File::Pool(held) => value(inside(|fs| Ok(fs.read(held.0, buffer, Some(at))?))),
            // SAFETY: the buffer is valid for writing.
            File::Kernel(fd) => unsafe {
                syscall!(
                    libc::SYS_pread64,
                    *fd,
                    buffer.as_mut_ptr(),
                    buffer.len(),
                    at
                )
            },
        }
    }

    /// `None`: at the description's offset, which moves; for pipes and sockets.
    fn write(&self, buffer: &[u8], at: Option<u64>) -> isize {
        match (self, at) {
            (File::Pool(held), _) => value(inside(|fs| Ok(fs.write(held.0, buffer, at)?))),
            // SAFETY: the buffer is valid for reading.
            (File::Kernel(fd), None) => unsafe {
                syscall!(libc::SYS_write, *fd, buffer.as_ptr(), buffer.len())
            },
            // SAFETY: as above.
            (File::Kernel(fd), Some(at)) => unsafe {
                syscall!(libc::SYS_pwrite64, *fd, buffer.as_ptr(), buffer.len(), at)
            },
        }
    }
}

/// Where a call reads or writes: at an offset in the program's memory, or the description's.
struct Place {
    file: File,
    /// Address of the program's offset; 0 = the description's.
    offset: usize,
    /// The top bit set: negative.
    at: u64,
}

impl Place {
    /// # Safety
    /// `offset` is null or the address of the program's offset.
    unsafe fn new(file: File, offset: usize) -> Result<Place, isize> {
        let at = if offset == 0 {
            let at = file.tell();
            if failed(at) {
                return Err(at);
            }
            at as i64
        } else {
            // SAFETY: an integer.
            unsafe { program::copy_in::<i64>(offset) }.map_err(minus)?
        };
        Ok(Place {
            file,
            offset,
            at: at as u64,
        })
    }

    /// The offset is where the data now ends. EFAULT, as the kernel says it, though the data has been moved.
    ///
    /// # Safety
    /// As for [`Place::new`].
    unsafe fn finish(&self) -> Result<(), isize> {
        if self.offset == 0 {
            self.file.seek(self.at as i64, libc::SEEK_SET);
            return Ok(());
        }
        program::copy_out(self.offset, &(self.at as i64)).map_err(minus)
    }
}

/// Memory of [`PIECE`] bytes to copy through: the last one used is kept for the next call, since
/// mapping it and touching it anew costs more than copying a small file.
struct Buffer(usize);

/// Address of the room that is kept; 0 = none, or in use.
static KEPT: AtomicUsize = AtomicUsize::new(0);

impl Buffer {
    fn take() -> Option<Buffer> {
        match KEPT.swap(0, Ordering::Acquire) {
            0 => raw::map_anonymous(PIECE).map(|room| Buffer(room as usize)),
            kept => Some(Buffer(kept)),
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let kept = KEPT.compare_exchange(0, self.0, Ordering::Release, Ordering::Relaxed);
        if kept.is_err() {
            // SAFETY: mapped by `take`, of this length, and nobody uses it any more.
            unsafe { raw::unmap(self.0 as *mut u8, PIECE) };
        }
    }
}

/// Copies up to `count` bytes; the bytes moved, or an error if none were. `to_end`: the other
/// side has no positions.
fn copy(from: &mut Place, to: &mut Place, count: usize, to_end: bool) -> isize {
    if count == 0 {
        return 0;
    }
    let Some(room) = Buffer::take() else {
        return error(libc::ENOMEM);
    };
    let mut total = 0;
    let mut failure = 0;
    while total < count {
        let length = PIECE.min(count - total);
        // SAFETY: a mapping of PIECE bytes that only this call uses.
        let Ok(buffer) = (unsafe { memory_mut(room.0, length) }) else {
            break;
        };
        let got = from.file.read(buffer, from.at);
        if got <= 0 {
            failure = got;
            break;
        }
        // SAFETY: as above; `got` bytes of it were filled.
        let Ok(filled) = (unsafe { memory(room.0, got as usize) }) else {
            break;
        };
        let written = to.file.write(filled, (!to_end).then_some(to.at));
        if written <= 0 {
            failure = written;
            break;
        }
        total += written as usize;
        from.at += written as u64;
        to.at += written as u64;
        if written < got {
            break;
        }
    }
    if total == 0 { failure } else { total as isize }
}

/// # Safety
/// As the system call's. The same holds for every handler below.
pub unsafe fn copy_file_range(a: &Arguments) -> isize {
    if !is_pool(a[0]) && !is_pool(a[2]) {
        // SAFETY: the program's arguments.
        return unsafe { raw::call(libc::SYS_copy_file_range as usize, a) };
    }
    report::served(libc::SYS_copy_file_range);
    // SAFETY: the program's offsets.
    match unsafe { try_copy_file_range(a) } {
        Ok(result) | Err(result) => result,
    }
}

unsafe fn try_copy_file_range(a: &Arguments) -> Result<isize, isize> {
    let (from, to) = (File::of(a[0])?, File::of(a[2])?);
    let (source, target) = (from.known()?, to.known()?);
    if (source.flags | target.flags) & libc::O_PATH != 0 {
        return Err(error(libc::EBADF));
    }
    if a[5] as u32 != 0 {
        return Err(error(libc::EINVAL));
    }
    if source.kind == libc::S_IFDIR || target.kind == libc::S_IFDIR {
        return Err(error(libc::EISDIR));
    }
    if !source.is_regular() || !target.is_regular() {
        return Err(error(libc::EINVAL));
    }
    if !source.readable() || !target.writable() || target.flags & libc::O_APPEND != 0 {
        return Err(error(libc::EBADF));
    }
    // SAFETY: the program's offsets.
    let (mut from, mut to) = unsafe { (Place::new(from, a[1])?, Place::new(to, a[3])?) };
    if [from.at, to.at]
        .iter()
        .any(|at| at.checked_add(a[4] as u64).is_none())
    {
        return Err(error(libc::EOVERFLOW));
    }
    if (from.at | to.at) >> 63 != 0 {
        return Err(error(libc::EINVAL));
    }
    let count = (a[4] as u64).min(source.size.saturating_sub(from.at));
    if (source.device, source.inode) == (target.device, target.inode)
        && to.at + count > from.at
        && to.at < from.at + count
    {
        return Err(error(libc::EINVAL));
    }
    let moved = copy(&mut from, &mut to, (count as usize).min(MOST), false);
    if moved > 0 {
        // SAFETY: the program's offsets.
        let moved = unsafe { (from.finish(), to.finish()) };
        moved.0.and(moved.1)?;
    }
    Ok(moved)
}

pub unsafe fn sendfile(a: &Arguments) -> isize {
    if !is_pool(a[0]) && !is_pool(a[1]) {
        // SAFETY: the program's arguments.
        return unsafe { syscall!(libc::SYS_sendfile, a[0], a[1], a[2], a[3]) };
    }
    report::served(libc::SYS_sendfile);
    // SAFETY: the program's offset.
    match unsafe { try_sendfile(a) } {
        Ok(result) | Err(result) => result,
    }
}

unsafe fn try_sendfile(a: &Arguments) -> Result<isize, isize> {
    let from = File::of(a[1])?;
    let source = from.known()?;
    if !source.readable() {
        return Err(error(libc::EBADF));
    }
    let seekable = source.is_regular() || source.kind == libc::S_IFBLK;
    let from = match seekable || a[2] != 0 {
        // SAFETY: the program's offset.
        true => Some(unsafe { Place::new(from, a[2])? }),
        false => None,
    };
    if from.as_ref().is_some_and(|from| from.at >> 63 != 0) {
        return Err(error(libc::EINVAL));
    }
    let to = File::of(a[0])?;
    let target = to.known()?;
    if !target.writable() {
        return Err(error(libc::EBADF));
    }
    let Some(mut from) = from.filter(|_| seekable && target.flags & libc::O_APPEND == 0) else {
        return Err(error(libc::EINVAL));
    };
    if (from.at + a[3].min(MOST) as u64) >> 63 != 0 {
        return Err(error(libc::EOVERFLOW));
    }
    let to_end = matches!(to, File::Kernel(_));
    let mut to = Place {
        at: if to_end { 0 } else { to.tell().max(0) as u64 },
        file: to,
        offset: 0,
    };
    let moved = copy(&mut from, &mut to, a[3].min(MOST), to_end);
    if moved > 0 && !to_end {
        // SAFETY: no offset of the program's.
        unsafe { to.finish()? };
    }
    if moved > 0 || a[2] != 0 {
        // SAFETY: the program's offset.
        unsafe { from.finish()? };
    }
    Ok(moved)
}

/// A memory file to splice through, closed when dropped.
struct Between(isize);

impl Between {
    fn new() -> Result<Between, isize> {
        let name = c"arck-splice";
        // SAFETY: a constant name.
        let file = unsafe { syscall!(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) };
        if failed(file) {
            Err(file)
        } else {
            Ok(Between(file))
        }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        raw::close(self.0);
    }
}

/// Bytes that one splice moves at most: what a pipe holds as a rule.
const SPLICE: usize = 64 * 1024;

/// `splice` between a pipe and a pool file: through a memory file, so that the pipe's end is the
/// kernel's own splice, with its blocking and its partial results.
pub unsafe fn splice(a: &Arguments) -> isize {
    if !is_pool(a[0]) && !is_pool(a[2]) {
        // SAFETY: the program's arguments.
        return unsafe { raw::blocking_call(libc::SYS_splice as usize, a) };
    }
    report::served(libc::SYS_splice);
    // SAFETY: the program's offsets.
    match unsafe { try_splice(a) } {
        Ok(result) | Err(result) => result,
    }
}

unsafe fn try_splice(a: &Arguments) -> Result<isize, isize> {
    const KNOWN: usize =
        (libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK | libc::SPLICE_F_MORE | 8) as usize;
    if a[4] == 0 {
        return Ok(0);
    }
    if a[5] as u32 as usize & !KNOWN != 0 {
        return Err(error(libc::EINVAL));
    }
    let (from, to) = (File::of(a[0])?, File::of(a[2])?);
    let (source, target) = (from.known()?, to.known()?);
    if (source.flags | target.flags) & libc::O_PATH != 0 || !source.readable() || !target.writable()
    {
        return Err(error(libc::EBADF));
    }
    let length = a[4].min(SPLICE);
    match (&from, &to) {
        (File::Pool(_), File::Kernel(pipe)) if target.kind == libc::S_IFIFO => {
            if a[3] != 0 {
                return Err(error(libc::ESPIPE));
            }
            if !source.is_regular() {
                return Err(error(libc::EINVAL));
            }
            let pipe = *pipe;
            // SAFETY: the program's offset.
            let mut from = unsafe { Place::new(from, a[1])? };
            if from.at >> 63 != 0 {
                return Err(error(libc::EINVAL));
            }
            let between = Between::new()?;
            let mut to = Place {
                file: File::Kernel(between.0 as usize),
                offset: 0,
                at: 0,
            };
            let start = from.at;
            let filled = copy(&mut from, &mut to, length, false);
            if filled <= 0 {
                return Ok(filled);
            }
            let mut at = 0u64;
            // SAFETY: our memory file and offset, the program's pipe.
            let moved = unsafe {
                raw::blocking_call(
                    libc::SYS_splice as usize,
                    &[
                        between.0 as usize,
                        (&raw mut at) as usize,
                        pipe,
                        0,
                        filled as usize,
                        a[5],
                    ],
                )
            };
            if moved > 0 {
                from.at = start + moved as u64;
                // SAFETY: the program's offset.
                unsafe { from.finish()? };
            }
            Ok(moved)
        }
        (File::Kernel(pipe), File::Pool(_)) if source.kind == libc::S_IFIFO => {
            if a[1] != 0 {
                return Err(error(libc::ESPIPE));
            }
            if !target.is_regular() || target.flags & libc::O_APPEND != 0 {
                return Err(error(libc::EINVAL));
            }
            let pipe = *pipe;
            // SAFETY: the program's offset.
            let mut to = unsafe { Place::new(to, a[3])? };
            if to.at >> 63 != 0 {
                return Err(error(libc::EINVAL));
            }
            let between = Between::new()?;
            let mut at = 0u64;
            // SAFETY: as above.
            let moved = unsafe {
                raw::blocking_call(
                    libc::SYS_splice as usize,
                    &[
                        pipe,
                        0,
                        between.0 as usize,
                        (&raw mut at) as usize,
                        length,
                        a[5],
                    ],
                )
            };
            if moved <= 0 {
                return Ok(moved);
            }
            let mut from = Place {
                file: File::Kernel(between.0 as usize),
                offset: 0,
                at: 0,
            };
            let moved = copy(&mut from, &mut to, moved as usize, false);
            if moved > 0 {
                // SAFETY: the program's offset.
                unsafe { to.finish()? };
            }
            Ok(moved)
        }
        // Nothing of the pool's any more.
        (File::Kernel(_), File::Kernel(_)) => Err(error(libc::EBADF)),
        _ => Err(error(libc::EINVAL)),
    }
}

/// `tee` knows pipes only, which pool files are not.
pub unsafe fn tee(a: &Arguments) -> isize {
    if is_pool(a[0]) || is_pool(a[1]) {
        report::served(libc::SYS_tee);
        return error(libc::EINVAL);
    }
    // SAFETY: the program's arguments.
    unsafe { raw::blocking_call(libc::SYS_tee as usize, a) }
}

/// The same for `vmsplice`.
pub unsafe fn vmsplice(a: &Arguments) -> isize {
    if is_pool(a[0]) {
        report::served(libc::SYS_vmsplice);
        return error(libc::EBADF);
    }
    // SAFETY: the program's arguments.
    unsafe { raw::blocking_call(libc::SYS_vmsplice as usize, a) }
}
