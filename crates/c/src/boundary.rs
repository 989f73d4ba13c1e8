//! What C passes: texts, bytes, rooms to put something in. Each is a pointer to C, and to the rest of this crate something
//! that can be asked for.
//!
//! # Invariants
//! * All unsafe code that follows a pointer of C's is here. A null pointer is EFAULT, a length beyond SSIZE_MAX EINVAL.
//! * Whether any other pointer leads to memory of that length nobody can know here: the caller answers for that, as for
//!   every function of libc (`arck.h` says so). What stands below as "C's promise" is this.
//! * Arck moves the bytes of a buffer by the routines that it moves those of unmodified programs by: what other
//!   threads change meanwhile may come out mixed, and does no harm.

use crate::requests::{Completion, Replayed, Request};
use crate::trouble::Trouble;
use arckfs::Errno;
use std::ffi::{CStr, c_char, c_int, c_void};

/// Bytes of the longest buffer.
const LENGTH_MAX: usize = isize::MAX as usize;
/// Buffers of one call at most, as the kernel has it.
const VECTORS_MAX: usize = 1024;

/// A text that ends with a zero byte, to be read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

/// Bytes to be read.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Bytes(*const c_void);

/// Room for bytes.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Room(*mut c_void);

/// Room for a text.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct TextRoom(*mut c_char);

/// Buffers, an array of them.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Vectors(*const libc::iovec);

/// Two times, or none.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Times(*const libc::timespec);

/// Room for a status.
#[repr(transparent)]
pub struct StatusRoom(*mut libc::stat);

/// Room for facts of a file system.
#[repr(transparent)]
pub struct StatisticsRoom(*mut libc::statvfs);

/// Room for a name in a directory.
#[repr(transparent)]
pub struct DirentRoom(*mut libc::dirent);

/// Room for a position.
#[repr(transparent)]
pub struct PositionRoom(*mut u64);

/// Room for a handle.
#[repr(transparent)]
pub struct HandleRoom(*mut i64);

/// Room for a count.
#[repr(transparent)]
pub struct CountRoom(*mut usize);

/// A request.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct RequestAt(*const Request);

/// Room for completions, an array of them.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct CompletionsRoom(*mut Completion);

/// Room for what a replay has done.
#[repr(transparent)]
pub struct ReplayedRoom(*mut Replayed);

/// Wishes, or none.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Wishes(*const c_void);

fn checked(length: usize, is_null: bool) -> Result<usize, Trouble> {
    match length {
        0 => Ok(0),
        _ if length > LENGTH_MAX => Err(Errno::INVAL.into()),
        _ if is_null => Err(Errno::FAULT.into()),
        _ => Ok(length),
    }
}

impl Text {
    /// Without the zero byte. EFAULT.
    #[inline]
    pub fn get<'c>(self) -> Result<&'c [u8], Trouble> {
        self.if_any().ok_or(Errno::FAULT.into())
    }

    #[inline]
    pub fn if_any<'c>(self) -> Option<&'c [u8]> {
        // SAFETY: C's promise that there is a zero byte, and that nobody changes the text during the call.
        (!self.0.is_null()).then(|| unsafe { CStr::from_ptr(self.0) }.to_bytes())
    }

    /// What stands in a structure of C's.
    pub fn at(pointer: *const c_char) -> Text {
        Text(pointer)
    }
}

impl Bytes {
    /// So many of them. EFAULT, EINVAL.
    #[inline]
    pub fn get<'c>(self, length: usize) -> Result<&'c [u8], Trouble> {
        match checked(length, self.0.is_null())? {
            0 => Ok(&[]),
            // SAFETY: C's promise of so many bytes for as long as the call takes; a length that a slice may have.
            length => Ok(unsafe { std::slice::from_raw_parts(self.0.cast(), length) }),
        }
    }
}

impl Room {
    /// For so many bytes. EFAULT, EINVAL.
    #[inline]
    pub fn get<'c>(self, length: usize) -> Result<&'c mut [u8], Trouble> {
        match checked(length, self.0.is_null())? {
            0 => Ok(&mut []),
            // SAFETY: C's promise of so many bytes that may be written for as long as the call takes; a length that a
            // slice may have. What is in them is not looked at before it is written.
            length => Ok(unsafe { std::slice::from_raw_parts_mut(self.0.cast(), length) }),
        }
    }
}

impl TextRoom {
    /// As [`Room::get`].
    #[inline]
    pub fn get<'c>(self, length: usize) -> Result<&'c mut [u8], Trouble> {
        Room(self.0.cast()).get(length)
    }
}

impl Vectors {
    /// So many buffers, whose lengths are good together. EFAULT, EINVAL.
    fn all<'c>(self, count: c_int) -> Result<&'c [libc::iovec], Trouble> {
        let count = usize::try_from(count).map_err(|_| Errno::INVAL)?;
        if count > VECTORS_MAX {
            return Err(Errno::INVAL.into());
        }
        if checked(count, self.0.is_null())? == 0 {
            return Ok(&[]);
        }
        // SAFETY: C's promise of an array of so many, which is small enough for a slice.
        let all = unsafe { std::slice::from_raw_parts(self.0, count) };
        let mut sum = 0_usize;
        for one in all {
            let length = checked(one.iov_len, one.iov_base.is_null())?;
            sum = sum.saturating_add(length);
        }
        checked(sum, false)?;
        Ok(all)
    }

    /// To be read from.
    pub fn full<'c>(self, count: c_int) -> Result<impl Iterator<Item = &'c [u8]>, Trouble> {
        let read = |one: &libc::iovec| Bytes(one.iov_base).get(one.iov_len).unwrap_or(&[]);
        Ok(self.all(count)?.iter().map(read))
    }

    /// To be filled. Where C has buffers overlap, what is in them afterwards is mixed.
    pub fn empty<'c>(self, count: c_int) -> Result<impl Iterator<Item = &'c mut [u8]>, Trouble> {
        let fill = |one: &libc::iovec| Room(one.iov_base).get(one.iov_len).unwrap_or(&mut []);
        Ok(self.all(count)?.iter().map(fill))
    }
}

impl Times {
    pub fn get(self) -> Option<[libc::timespec; 2]> {
        // SAFETY: C's promise of two of them.
        (!self.0.is_null())
            .then(|| unsafe { self.0.cast::<[libc::timespec; 2]>().read_unaligned() })
    }
}

impl RequestAt {
    /// EFAULT.
    pub fn get(self) -> Result<Request, Trouble> {
        match self.0.is_null() {
            true => Err(Errno::FAULT.into()),
            // SAFETY: C's promise of one; any bytes are good for it.
            false => Ok(unsafe { self.0.read_unaligned() }),
        }
    }
}

impl CompletionsRoom {
    /// That there is room for so many, before anything is taken. EFAULT, EINVAL.
    pub fn expected(self, count: usize) -> Result<(), Trouble> {
        let length = count.checked_mul(size_of::<Completion>());
        checked(length.ok_or(Errno::INVAL)?, self.0.is_null()).map(|_| ())
    }

    /// Puts them there, no more than were expected; gives how many.
    pub fn put(self, completions: &[Completion]) -> isize {
        for (index, one) in completions.iter().enumerate() {
            // SAFETY: C's promise of room for as many as were expected.
            unsafe { self.0.add(index).write_unaligned(*one) };
        }
        completions.len().cast_signed()
    }
}

impl Wishes {
    /// As many bytes of a structure of C's as `T` has, or as its first word says that there are, where that is less: the rest
    /// are zeroes. E2BIG: there are more, and not all of these are zeroes. EINVAL: there are fewer than `least`.
    pub fn get<T: Zeroable>(self, least: usize) -> Result<Option<T>, Trouble> {
        if self.0.is_null() {
            return Ok(None);
        }
        // SAFETY: C's promise that a size stands there.
        let size = unsafe { self.0.cast::<usize>().read_unaligned() };
        // More than a page is no structure of any version.
        if !(least..=4096).contains(&size) {
            return Err(Trouble::said(
                Errno::INVAL,
                "the size of the options is to be sizeof(struct arck_options)",
            ));
        }
        // SAFETY: C's promise that it is so long.
        let all = unsafe { std::slice::from_raw_parts(self.0.cast::<u8>(), size) };
        let known = size.min(size_of::<T>());
        if all[known..].iter().any(|&byte| byte != 0) {
            return Err(Trouble::said(
                Errno::TOOBIG,
                "the program was built for a later version of Arck, and asks for what this one has not",
            ));
        }
        let mut wishes = T::zero();
        // SAFETY: no more bytes than there are on either side, of different memory; any bytes are good for `T`.
        unsafe {
            let target = std::ptr::from_mut(&mut wishes).cast::<u8>();
            std::ptr::copy_nonoverlapping(all.as_ptr(), target, known);
        }
        Ok(Some(wishes))
    }
}

/// A structure of C's.
///
/// # Safety
/// Any bytes are good for it.
pub unsafe trait Zeroable: Sized {
    fn zero() -> Self {
        // SAFETY: any bytes are, so zeroes are.
        unsafe { std::mem::zeroed() }
    }
}

// SAFETY: integers, and arrays of such.
unsafe impl Zeroable for libc::stat {}
// SAFETY: as above.
unsafe impl Zeroable for libc::statvfs {}
// SAFETY: as above.
unsafe impl Zeroable for libc::dirent {}

macro_rules! filled {
    ($($room:ident: $what:ty),*) => { $(
        impl $room {
            /// Whether there is room at all.
            pub fn is_there(&self) -> bool {
                !self.0.is_null()
            }

            /// EFAULT, before anything is done.
            pub fn expected(&self) -> Result<(), Trouble> {
                match self.is_there() {
                    true => Ok(()),
                    false => Err(Errno::FAULT.into()),
                }
            }

            /// Puts it there. EFAULT.
            pub fn put(&self, what: $what) -> Result<(), Trouble> {
                self.expected()?;
                // SAFETY: C's promise of room for it.
                unsafe { self.0.write_unaligned(what) };
                Ok(())
            }
        }
    )* };
}

filled!(
    StatusRoom: libc::stat,
    StatisticsRoom: libc::statvfs,
    DirentRoom: libc::dirent,
    PositionRoom: u64,
    HandleRoom: i64,
    CountRoom: usize,
    ReplayedRoom: Replayed
);
