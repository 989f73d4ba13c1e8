//! Handing open descriptions to forked children and executed programs.
//!
//! Before a fork or an exec every pool descriptor that the other side may use gets an *external*
//! placeholder: a memory file of one page that holds an `ExternalDescription` (which file,
//! flags, offset), mapped by every process that uses it. The other side finds it by number
//! (fork) or by looking through `/proc/self/fd` at start-up (exec), and adopts it at first use.
//!
//! Invariants:
//! * The file is sealed against change of size before anybody maps it, so a mapping never
//!   faults.
//! * All descriptors of one description share one page.
//! * Behind the description the page holds the path that the file had when it was handed over:
//!   looking it up makes a session that has never seen the file learn of it.
//! * A page stays mapped while a descriptor of this process refers to it, and for the next 64
//!   pages retired after that (a thread may be in the middle of a `read`).

use crate::backend::{At, Errno, ExternalDescription, Failure, Handle, inside};
use crate::descriptors::{self, CLOSE_ON_EXEC, EXTERNAL, INHERITED, TABLE_SIZE};
use crate::{raw, reserved, thread};
use std::num::NonZeroU64;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

const PAGE_SIZE: usize = 4096;
const NAME: &std::ffi::CStr = c"arck-description";
const LINK: &[u8] = b"/memfd:arck-description (deleted)";

/// A new placeholder file of `size` bytes (0 or one page): its descriptor, which can neither be
/// read nor written, close-on-exec, and the address of its page if it has one.
pub fn make_placeholder(size: usize) -> Result<(isize, usize), isize> {
    // SAFETY: constant name; descriptors made here are ours; a shared mapping of a fresh file.
    unsafe {
        let file = raw::syscall!(
            libc::SYS_memfd_create,
            NAME.as_ptr(),
            libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING
        );
        if raw::failed(file) {
            return Err(file);
        }
        let mut page = 0;
        let mut result = 0;
        if size > 0 {
            result = raw::syscall!(libc::SYS_ftruncate, file, size);
            if !raw::failed(result) {
                result = map_page(file);
                page = result as usize;
            }
        }
        if !raw::failed(result) {
            result = raw::syscall!(
                libc::SYS_fcntl,
                file,
                libc::F_ADD_SEALS,
                libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL
            );
        }
        if !raw::failed(result) {
            // Access mode 3: for neither reading nor writing.
            result = raw::syscall!(
                libc::SYS_openat,
                libc::AT_FDCWD,
                raw::descriptor_path(file as usize).pointer(),
                libc::O_ACCMODE | libc::O_CLOEXEC
            );
        }
        raw::close(file);
        if raw::failed(result) {
            Err(result)
        } else {
            Ok((result, page))
        }
    }
}

/// # Safety
/// `file` is a placeholder file of at least one page.
unsafe fn map_page(file: isize) -> isize {
    // SAFETY: the kernel chooses the address.
    unsafe {
        raw::syscall!(
            libc::SYS_mmap,
            0,
            PAGE_SIZE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file,
            0
        )
    }
}

/// Makes external every pool descriptor that `wanted` says the other side will see.
pub fn externalize(wanted: impl Fn(usize) -> bool) {
    for descriptor in descriptors::pool_descriptors() {
        if descriptors::notes(descriptor) & EXTERNAL != 0 || !wanted(descriptor) {
            continue;
        }
        let value = descriptors::entry(descriptor).load(Ordering::Acquire);
        let Some(handle) = NonZeroU64::new(value).filter(|v| v.get() < descriptors::RESERVED)
        else {
            continue;
        };
        externalize_one(Handle(handle));
    }
}

fn externalize_one(handle: Handle) {
    let Ok((file, page)) = make_placeholder(PAGE_SIZE) else {
        return;
    };
    let done = inside(|fs| {
        // SAFETY: open until the end of this function.
        let file = unsafe { BorrowedFd::borrow_raw(file as i32) };
        // SAFETY: the page stays mapped while a descriptor refers to it (module invariant).
        unsafe { fs.externalize(handle, page as *const ExternalDescription, file) };
        if let Ok(path) = fs.path_of(handle) {
            write_path(page, &path);
        }
        Ok(())
    });
    if done.is_ok() {
        for descriptor in descriptors::pool_descriptors() {
            if descriptors::entry(descriptor).load(Ordering::Acquire) != handle.0.get()
                || descriptors::notes(descriptor) & EXTERNAL != 0
            {
                continue;
            }
            let close_on_exec = descriptors::notes(descriptor) & CLOSE_ON_EXEC;
            let flags = if close_on_exec != 0 {
                libc::O_CLOEXEC
            } else {
                0
            };
            // SAFETY: replaces a plain placeholder by the external one, both ours.
            let result = unsafe { raw::syscall!(libc::SYS_dup3, file, descriptor, flags) };
            if !raw::failed(result) {
                descriptors::put(
                    descriptor,
                    handle.0.get(),
                    close_on_exec | EXTERNAL | page as u64,
                );
            }
        }
    }
    raw::close(file);
}

/// Where the page says that the file has no name (1): it is gone when nobody has it open any more.
const NAMELESS_AT: usize = PATH_AT - 8;
const _: () = assert!(size_of::<ExternalDescription>() <= NAMELESS_AT);

fn nameless(page: usize) -> &'static AtomicUsize {
    // SAFETY: within the page, aligned, and atomic, as other processes may write it.
    unsafe { &*((page + NAMELESS_AT) as *const AtomicUsize) }
}

/// Notes of all external descriptors that are `wanted` whether their files have a name. Whether any has
/// none.
pub fn mark_nameless(wanted: impl Fn(usize) -> bool) -> bool {
    let mut any = false;
    for descriptor in descriptors::pool_descriptors().filter(|descriptor| wanted(*descriptor)) {
        let page = descriptors::page(descriptor);
        if descriptors::notes(descriptor) & EXTERNAL == 0 || page == 0 {
            continue;
        }
        let value = descriptors::entry(descriptor).load(Ordering::Acquire);
        if let Some(handle) = NonZeroU64::new(value).filter(|v| v.get() < descriptors::RESERVED) {
            let links = inside(|fs| Ok(fs.stat_handle(Handle(handle))?.links));
            nameless(page).store(usize::from(links == Ok(0)), Ordering::Release);
        }
        any |= nameless(page).load(Ordering::Acquire) != 0;
    }
    any
}

/// Whether any of the external descriptors that are `wanted` was noted to have none.
pub fn any_nameless(wanted: impl Fn(usize) -> bool) -> bool {
    descriptors::pool_descriptors()
        .filter(|descriptor| wanted(*descriptor))
        .map(descriptors::page)
        .any(|page| page != 0 && nameless(page).load(Ordering::Acquire) != 0)
}

/// Opens in this process's session what was handed over and has no name, before those who handed it
/// over close it.
pub fn adopt_nameless() {
    for descriptor in descriptors::pool_descriptors() {
        let page = descriptors::page(descriptor);
        if descriptors::entry(descriptor).load(Ordering::Acquire) == INHERITED
            && page != 0
            && nameless(page).load(Ordering::Acquire) != 0
        {
            // Where it fails, so does its first use.
            let _ = adopt(descriptor);
        }
    }
}

/// Handles with a reference each, of what was handed over last.
static KEPT: [AtomicU64; 64] = [const { AtomicU64::new(0) }; 64];

/// Before a fork: what has no name stays open here for a while ([`keep_open`]).
pub fn keep_nameless() {
    for descriptor in descriptors::pool_descriptors() {
        let page = descriptors::page(descriptor);
        let value = descriptors::entry(descriptor).load(Ordering::Acquire);
        if page != 0
            && nameless(page).load(Ordering::Acquire) != 0
            && let Some(handle) = NonZeroU64::new(value).filter(|v| v.get() < descriptors::RESERVED)
            && KEPT
                .iter()
                .all(|kept| kept.load(Ordering::Relaxed) != value)
        {
            keep_open(Handle(handle));
        }
    }
}

/// Keeps something open in this process, whatever the program closes, until so many others were handed
/// over that whoever it was for has most likely opened it.
pub fn keep_open(handle: Handle) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    if descriptors::retain(handle).is_err() {
        return;
    }
    let place = NEXT.fetch_add(1, Ordering::Relaxed) % KEPT.len();
    let oldest = KEPT[place].swap(handle.0.get(), Ordering::AcqRel);
    if let Some(oldest) = NonZeroU64::new(oldest) {
        descriptors::give_up(Handle(oldest));
    }
}

/// Where the session is another's from now on.
pub fn forget_kept() {
    for place in &KEPT {
        place.store(0, Ordering::Release);
    }
}

/// Where the path is in the page: its length in bytes (0 = none), then the bytes.
const PATH_AT: usize = 1024;
pub const PATH_SIZE: usize = PAGE_SIZE - PATH_AT - 8;
const _: () = assert!(size_of::<ExternalDescription>() <= PATH_AT);

fn path_words(page: usize) -> (&'static AtomicUsize, *mut u8) {
    let start = (page + PATH_AT) as *mut AtomicUsize;
    // SAFETY: within the page, aligned, and atomic, as other processes may write it.
    unsafe { (&*start, start.add(1).cast()) }
}

fn write_path(page: usize, path: &[u8]) {
    let (length, bytes) = path_words(page);
    if path.len() <= PATH_SIZE {
        // SAFETY: within the page. The length is set only after the bytes.
        unsafe { std::ptr::copy_nonoverlapping(path.as_ptr(), bytes, path.len()) };
        length.store(path.len(), Ordering::Release);
    }
}

fn read_path(page: usize, path: &mut [u8; PATH_SIZE]) -> usize {
    let (length, bytes) = path_words(page);
    let length = length.load(Ordering::Acquire).min(PATH_SIZE);
    // SAFETY: within the page; a raw copy, checked afterwards, as the bytes may be anything.
    unsafe { std::ptr::copy_nonoverlapping(bytes, path.as_mut_ptr(), length) };
    length
}

/// Writes into `path` the path that an external descriptor's file had when it was handed over;
/// its length, 0 if it is not known.
pub fn recorded_path(descriptor: usize, path: &mut [u8; PATH_SIZE]) -> usize {
    match descriptors::page(descriptor) {
        0 => 0,
        page => read_path(page, path),
    }
}

/// Opens in this process's session what another process handed over under this number.
pub fn adopt(descriptor: usize) -> Result<Handle, Errno> {
    static ADOPTING: AtomicBool = AtomicBool::new(false);
    // Opening the session adopts too, and must not do so while the lock is held here.
    let _ = inside(|_| Ok(()));
    // Inside, so that no signal handler can come here while the lock is held.
    let _inside = thread::enter();
    while ADOPTING.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { raw::syscall!(libc::SYS_sched_yield) };
    }
    let result = adopt_locked(descriptor);
    ADOPTING.store(false, Ordering::Release);
    result
}

fn adopt_locked(descriptor: usize) -> Result<Handle, Errno> {
    let value = descriptors::entry(descriptor).load(Ordering::Acquire);
    if value != INHERITED {
        // Another thread was here first, or closed it.
        return NonZeroU64::new(value)
            .filter(|v| v.get() < descriptors::RESERVED)
            .map(Handle)
            .ok_or(Errno::BADF);
    }
    let page = descriptors::page(descriptor);
    if page == 0 {
        return Err(Errno::STALE);
    }
    let handle = inside(|fs| {
        // SAFETY: the page is mapped, shared, and stays so (module invariant).
        let adopt = || unsafe { fs.adopt(page as *const ExternalDescription) };
        let adopted = match adopt() {
            Err(Errno::STALE) => {
                let mut path = [0; PATH_SIZE];
                let length = read_path(page, &mut path);
                let relative = crate::path::below_mount(&path[..length]).ok_or(Errno::STALE)?;
                let _ = fs.stat(At::Root, relative, libc::AT_SYMLINK_NOFOLLOW);
                adopt()
            }
            other => other,
        };
        adopted.map_err(Failure::Errno)
    })
    .map_err(|failure| match failure {
        Failure::Errno(errno) => errno,
        Failure::Outside(_) => Errno::IO,
    })?;
    descriptors::adopted(descriptor, handle);
    Ok(handle)
}

/// At start-up: finds the descriptions that were handed over through exec.
pub fn find_inherited() {
    // Pages already mapped, by inode number of their file.
    let mut known: [(u64, usize); 32] = [(0, 0); 32];
    let mut count = 0;
    reserved::for_each_open(|descriptor| {
        if descriptor >= TABLE_SIZE || !is_placeholder(descriptor) {
            return;
        }
        let mut find = |inode: u64| known[..count].iter().find(|k| k.0 == inode).map(|k| k.1);
        match inherit(descriptor, false, &mut find) {
            // A plain placeholder that leaked through a foreign exec: nothing behind it.
            None if is_made_here(descriptor) => raw::close(descriptor as isize),
            // It only looks like one.
            None => {}
            Some((inode, page)) if find(inode).is_none() && count < known.len() => {
                known[count] = (inode, page);
                count += 1;
            }
            Some(_) => {}
        }
    });
}

/// Takes over a descriptor that another process has handed over: inode number of the placeholder's
/// file, and the address of its page. `known`: where the page of that file is mapped already.
/// `None`: it is none of those.
pub fn inherit(
    descriptor: usize,
    close_on_exec: bool,
    known: &mut dyn FnMut(u64) -> Option<usize>,
) -> Option<(u64, usize)> {
    if descriptor >= TABLE_SIZE || !is_placeholder(descriptor) {
        return None;
    }
    let path = raw::descriptor_path(descriptor);
    // SAFETY: `status` is filled by the kernel; the file is opened by its descriptor's path
    // and mapped only if it is one whole page.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        raw::syscall!(libc::SYS_fstat, descriptor, &raw mut status);
        let page = match known(status.st_ino) {
            Some(page) => page,
            // What stands in the page is believed, so whoever wrote it must be able to do all that this
            // process can.
            None if status.st_size == PAGE_SIZE as i64 && is_trusted(&status) => {
                let file = raw::syscall!(
                    libc::SYS_openat,
                    libc::AT_FDCWD,
                    path.pointer(),
                    libc::O_RDWR | libc::O_CLOEXEC
                );
                if raw::failed(file) {
                    return None;
                }
                if !is_sealed(file) {
                    raw::close(file);
                    return None;
                }
                let mapped = map_page(file);
                raw::close(file);
                if raw::failed(mapped) {
                    return None;
                }
                mapped as usize
            }
            None => return None,
        };
        let closes = if close_on_exec { CLOSE_ON_EXEC } else { 0 };
        let notes = EXTERNAL | page as u64 | closes;
        descriptors::put(descriptor, INHERITED, notes);
        Some((status.st_ino, page))
    }
}

/// Whether what looks like a placeholder was opened as this library does it ([`make_placeholder`]), by one
/// who is trusted.
fn is_made_here(descriptor: usize) -> bool {
    // SAFETY: questions about a descriptor; `status` is filled by the kernel, or all zeroes.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let failed = raw::failed(raw::syscall!(libc::SYS_fstat, descriptor, &raw mut status));
        let flags = raw::syscall!(libc::SYS_fcntl, descriptor, libc::F_GETFL);
        let is_closed_to_all = flags as i32 & libc::O_ACCMODE == libc::O_ACCMODE;
        !failed && !raw::failed(flags) && is_closed_to_all && is_trusted(&status)
    }
}

/// Whether a placeholder's file was made by a process of this one's user, or root's. A sender cannot give
/// its file another owner than itself.
fn is_trusted(status: &libc::stat) -> bool {
    // SAFETY: a number out.
    let own = unsafe { raw::syscall!(libc::SYS_geteuid) };
    status.st_uid == 0 || status.st_uid as isize == own
}

/// Whether nobody can change the file's size under a mapping.
fn is_sealed(file: isize) -> bool {
    let wanted = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: asks about a descriptor.
    let seals = unsafe { raw::syscall!(libc::SYS_fcntl, file, libc::F_GET_SEALS) };
    !raw::failed(seals) && seals as i32 & wanted == wanted
}

/// Whether it is one of this library's, of this process or another.
pub fn is_placeholder(descriptor: usize) -> bool {
    // Reading a link of `/proc` takes ten times as long as this, which most descriptors fail.
    // SAFETY: filled by the kernel, or all zeroes.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        raw::syscall!(libc::SYS_fstat, descriptor, &raw mut status);
        status
    };
    if status.st_mode & libc::S_IFMT != libc::S_IFREG || status.st_nlink != 0 {
        return false;
    }
    let mut link = [0u8; 64];
    // SAFETY: the kernel writes at most the buffer's length.
    let length = unsafe {
        raw::syscall!(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            raw::descriptor_path(descriptor).pointer(),
            link.as_mut_ptr(),
            link.len()
        )
    };
    length > 0 && &link[..length as usize] == LINK
}

/// A page that no descriptor of this process refers to any more.
pub fn retire_page(page: usize) {
    static RETIRED: [AtomicUsize; 64] = [const { AtomicUsize::new(0) }; 64];
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let slot = NEXT.fetch_add(1, Ordering::Relaxed) % RETIRED.len();
    let oldest = RETIRED[slot].swap(page, Ordering::AcqRel);
    if oldest != 0 {
        // SAFETY: mapped by this module, unused for 64 retirements.
        unsafe { raw::unmap(oldest as *mut u8, PAGE_SIZE) };
    }
}
