//! [`SharedBytes`]: a checked view of memory that other threads and processes
//! may write at any time.
//!
//! Invariants: every access lies inside the view and is aligned as it needs,
//! or is refused; nothing is handed out by reference but atomics; a value is
//! read once per call, so what the caller checks is what the caller uses.
//!
//! A view does not know whether its memory is mapped writable: storing through
//! a view of a read-only mapping kills the process (SIGSEGV), as does touching a
//! vacant part of an [`crate::AddressSpace`].

use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::copy::{self, Stores};
use crate::error::{Error, Fault, Result};
use crate::{control, flush, guarded, record};

/// A view of `len` bytes of shared memory, valid for `'a`. Copied freely.
///
/// The methods returning `Option` answer `None` when the range lies outside the
/// view or is misaligned; nothing has been accessed then.
#[derive(Clone, Copy)]
pub struct SharedBytes<'a> {
    base: NonNull<u8>,
    len: usize,
    memory: PhantomData<&'a [AtomicU8]>,
}

// SAFETY: the view only gives atomic or assembly access, which any number of
// threads may make at the same time.
unsafe impl Send for SharedBytes<'_> {}
// SAFETY: as above.
unsafe impl Sync for SharedBytes<'_> {}

impl std::fmt::Debug for SharedBytes<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("SharedBytes")
            .field("base", &self.base)
            .field("len", &self.len)
            .finish()
    }
}

macro_rules! atomic_access {
    ($atomic:ident, $type:ident, $get:ident, $load:ident, $store:ident, $exchange:ident, $add:ident) => {
        /// The word at byte `offset`. Stores made through it are not traced:
        /// for volatile words (locks, counters, mailboxes), not for persistent ones.
        #[inline(always)]
        pub fn $get(&self, offset: usize) -> Option<&'a $atomic> {
            let word = self.address_of(offset, size_of::<$type>())?.cast::<$type>();
            if !word.is_aligned() {
                return None;
            }
            // SAFETY: inside the view, aligned, valid for 'a, and everybody
            // accesses it atomically or by assembly.
            Some(unsafe { $atomic::from_ptr(word) })
        }

        /// Loads the word at byte `offset` (`order`: Relaxed, Acquire or SeqCst).
        #[inline(always)]
        pub fn $load(&self, offset: usize, order: Ordering) -> Option<$type> {
            self.$get(offset).map(|word| word.load(order))
        }

        /// Stores the word at byte `offset` (`order`: Relaxed, Release or SeqCst).
        #[inline(always)]
        #[track_caller]
        pub fn $store(&self, offset: usize, value: $type, order: Ordering) -> Option<()> {
            let word = self.$get(offset)?;
            if control::load().records() {
                record::atomic_store(word.as_ptr().cast(), || {
                    word.store(value, order);
                    ((), Some(value.to_ne_bytes()))
                });
            } else {
                word.store(value, order);
            }
            Some(())
        }

        /// Replaces `current` by `new` at byte `offset`; `Err` holds what was there
        /// instead. Acquire on both outcomes, release on success.
        #[inline]
        #[track_caller]
        pub fn $exchange(
            &self,
            offset: usize,
            current: $type,
            new: $type,
        ) -> Option<std::result::Result<(), $type>> {
            let word = self.$get(offset)?;
            let exchange = || {
                word.compare_exchange(current, new, Ordering::AcqRel, Ordering::Acquire)
                    .map(|_| ())
            };
            Some(if control::load().records() {
                record::atomic_store(word.as_ptr().cast(), || {
                    let outcome = exchange();
                    (outcome, outcome.is_ok().then(|| new.to_ne_bytes()))
                })
            } else {
                exchange()
            })
        }

        /// Adds to the word at byte `offset`, wrapping; returns the old value.
        /// Acquire and release.
        #[inline]
        #[track_caller]
        pub fn $add(&self, offset: usize, addend: $type) -> Option<$type> {
            let word = self.$get(offset)?;
            Some(if control::load().records() {
                record::atomic_store(word.as_ptr().cast(), || {
                    let old = word.fetch_add(addend, Ordering::AcqRel);
                    (old, Some(old.wrapping_add(addend).to_ne_bytes()))
                })
            } else {
                word.fetch_add(addend, Ordering::AcqRel)
            })
        }
    };
}

impl<'a> SharedBytes<'a> {
    /// A view of `len` bytes at `base`.
    ///
    /// # Safety
    /// For all of `'a` the range stays mapped (or reserved without access), and
    /// nobody accesses it in this process but through views, atomics or
    /// assembly.
    #[inline(always)]
    pub unsafe fn from_raw(base: NonNull<u8>, len: usize) -> SharedBytes<'a> {
        SharedBytes {
            base,
            len,
            memory: PhantomData,
        }
    }

    /// A view of ordinary memory of this process.
    pub fn from_words(words: &'a [AtomicU64]) -> SharedBytes<'a> {
        // SAFETY: the slice lives for 'a and holds nothing but atomics.
        unsafe { SharedBytes::from_raw(NonNull::from(words).cast(), size_of_val(words)) }
    }

    /// As [`from_words`](Self::from_words), of any length and alignment.
    pub fn from_bytes(bytes: &'a [AtomicU8]) -> SharedBytes<'a> {
        // SAFETY: as in `from_words`.
        unsafe { SharedBytes::from_raw(NonNull::from(bytes).cast(), bytes.len()) }
    }

    /// Bytes in the view.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view has no bytes.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first byte.
    #[inline(always)]
    pub fn as_ptr(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// The address of a range inside the view.
    #[inline(always)]
    pub(crate) fn address_of(&self, offset: usize, len: usize) -> Option<*mut u8> {
        if offset <= self.len && len <= self.len - offset {
            // SAFETY: inside the view.
            Some(unsafe { self.base.as_ptr().add(offset) })
        } else {
            None
        }
    }

    fn checked(&self, offset: usize, len: usize) -> Result<*mut u8> {
        self.address_of(offset, len).ok_or(Error::OutOfBounds {
            offset,
            len,
            size: self.len,
        })
    }

    /// The part of the view from byte `offset` on, of `len` bytes.
    #[inline(always)]
    pub fn slice(&self, offset: usize, len: usize) -> Option<SharedBytes<'a>> {
        let base = NonNull::new(self.address_of(offset, len)?)?;
        // SAFETY: part of this view, for the same lifetime.
        Some(unsafe { SharedBytes::from_raw(base, len) })
    }

    atomic_access!(
        AtomicU64,
        u64,
        atomic_u64,
        load_u64,
        store_u64,
        compare_exchange_u64,
        fetch_add_u64
    );
    atomic_access!(
        AtomicU32,
        u32,
        atomic_u32,
        load_u32,
        store_u32,
        compare_exchange_u32,
        fetch_add_u32
    );

    /// The `N` words from byte `offset` on, as [`atomic_u64`](Self::atomic_u64) gives one.
    #[inline]
    pub fn atomic_words<const N: usize>(&self, offset: usize) -> Option<&'a [AtomicU64; N]> {
        let words = self
            .address_of(offset, size_of::<[AtomicU64; N]>())?
            .cast::<[AtomicU64; N]>();
        if !words.is_aligned() {
            return None;
        }
        // SAFETY: inside the view, aligned, valid for 'a, nothing but atomics, and everybody
        // accesses them atomically or by assembly.
        Some(unsafe { &*words })
    }

    /// Copies out of the view.
    #[inline]
    pub fn copy_to(&self, offset: usize, destination: &mut [u8]) -> Option<()> {
        let source = self.address_of(offset, destination.len())?;
        // SAFETY: the source is inside the view; a `&mut` cannot overlap it,
        // since the view's memory is accessed through views only.
        unsafe { copy::copy_out(destination.as_mut_ptr(), source, destination.len()) };
        Some(())
    }

    /// Copies out of the view to an address that need not be initialised.
    ///
    /// # Safety
    /// `destination` is writable for `len` bytes and does not overlap the view.
    #[inline]
    pub unsafe fn copy_to_ptr(
        &self,
        offset: usize,
        destination: *mut u8,
        len: usize,
    ) -> Option<()> {
        let source = self.address_of(offset, len)?;
        // SAFETY: the source is inside the view, the destination as promised.
        unsafe { copy::copy_out(destination, source, len) };
        Some(())
    }

    /// Copies into the view with ordinary stores; not flushed.
    #[inline]
    #[track_caller]
    pub fn copy_from(&self, offset: usize, source: &[u8]) -> Option<()> {
        // SAFETY: a slice is readable; it cannot overlap the view (see `copy_to`).
        unsafe { self.copy_from_ptr(offset, source.as_ptr(), source.len()) }
    }

    /// As [`copy_from`](Self::copy_from), from any address.
    ///
    /// # Safety
    /// `source` is readable for `len` bytes and does not overlap the view.
    #[inline]
    #[track_caller]
    pub unsafe fn copy_from_ptr(&self, offset: usize, source: *const u8, len: usize) -> Option<()> {
        let destination = self.address_of(offset, len)?;
        // SAFETY: the destination is inside the view, the source as promised.
        unsafe { copy::copy(destination, source, len) };
        Some(())
    }

    /// Copies into the view past the cache ([`copy::stream`]); durable after
    /// the next fence of this thread.
    #[inline]
    #[track_caller]
    pub fn stream_from(&self, offset: usize, source: &[u8]) -> Option<()> {
        // SAFETY: as in `copy_from`.
        unsafe { self.stream_from_ptr(offset, source.as_ptr(), source.len()) }
    }

    /// As [`stream_from`](Self::stream_from), from any address.
    ///
    /// # Safety
    /// As [`copy_from_ptr`](Self::copy_from_ptr).
    #[inline]
    #[track_caller]
    pub unsafe fn stream_from_ptr(
        &self,
        offset: usize,
        source: *const u8,
        len: usize,
    ) -> Option<()> {
        let destination = self.address_of(offset, len)?;
        // SAFETY: the destination is inside the view, the source as promised.
        unsafe { copy::stream(destination, source, len) };
        Some(())
    }

    /// Streams whatever the policy says, and fences ([`copy::stream_and_fence`]).
    #[track_caller]
    pub fn stream_and_fence_from(&self, offset: usize, source: &[u8]) -> Option<()> {
        let destination = self.address_of(offset, source.len())?;
        // SAFETY: as in `copy_from`.
        unsafe { copy::stream_and_fence(destination, source.as_ptr(), source.len()) };
        Some(())
    }

    /// Streams one aligned word ([`copy::stream_u64`]).
    #[inline]
    #[track_caller]
    pub fn stream_u64(&self, offset: usize, value: u64) -> Option<()> {
        let word = self.atomic_u64(offset)?;
        // SAFETY: inside the view and aligned.
        unsafe { copy::stream_u64(word.as_ptr(), value) };
        Some(())
    }

    /// Copies `len` bytes from another view, which must not overlap this range
    /// (`None` if it does).
    #[track_caller]
    pub fn copy_from_shared(&self, offset: usize, source: SharedBytes<'_>) -> Option<()> {
        let destination = self.address_of(offset, source.len)?;
        let (to, from) = (destination as usize, source.as_ptr() as usize);
        if to < from + source.len && from < to + source.len {
            return None;
        }
        // SAFETY: both inside their views, and they do not overlap.
        unsafe { copy::copy(destination, source.as_ptr(), source.len) };
        Some(())
    }

    /// Fills a range with zeroes, with ordinary stores; not flushed.
    #[track_caller]
    pub fn fill_zero(&self, offset: usize, len: usize) -> Option<()> {
        let destination = self.address_of(offset, len)?;
        // SAFETY: inside the view.
        unsafe { copy::zero(destination, len) };
        Some(())
    }

    /// Fills a range with zeroes past the cache; durable after the next fence.
    #[track_caller]
    pub fn stream_zero(&self, offset: usize, len: usize) -> Option<()> {
        let destination = self.address_of(offset, len)?;
        // SAFETY: inside the view.
        unsafe { copy::stream_zero(destination, len) };
        Some(())
    }

    /// Starts writing back the lines of a range; durable after the next fence.
    #[inline]
    #[track_caller]
    pub fn flush(&self, offset: usize, len: usize) -> Option<()> {
        let address = self.address_of(offset, len)?;
        // SAFETY: inside the view, hence mapped.
        unsafe { flush::flush_range(address, len) };
        Some(())
    }

    /// As [`copy_to`](Self::copy_to), for a file that its owner may truncate.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], or [`Error::Fault`] if the file has no page there.
    #[inline]
    pub fn try_copy_to(&self, offset: usize, destination: &mut [u8]) -> Result<()> {
        // SAFETY: a `&mut` is writable and cannot overlap the view.
        unsafe { self.try_copy_to_ptr(offset, destination.as_mut_ptr(), destination.len()) }
    }

    /// As [`try_copy_to`](Self::try_copy_to), to any address.
    ///
    /// # Errors
    /// As [`try_copy_to`](Self::try_copy_to).
    ///
    /// # Safety
    /// As [`copy_to_ptr`](Self::copy_to_ptr).
    #[inline]
    pub unsafe fn try_copy_to_ptr(
        &self,
        offset: usize,
        destination: *mut u8,
        len: usize,
    ) -> Result<()> {
        let source = self.checked(offset, len)?;
        // SAFETY: the source is inside the view, the destination as promised.
        unsafe { copy::guarded_copy_out(destination, source, len) }
            .map_err(|fault| located(fault, source, len))
    }

    /// As [`copy_from_ptr`](Self::copy_from_ptr) or, with [`Stores::Streaming`],
    /// [`stream_from_ptr`](Self::stream_from_ptr), where the file may have been
    /// truncated or the file system may be out of pages.
    ///
    /// # Errors
    /// As [`try_copy_to`](Self::try_copy_to).
    ///
    /// # Safety
    /// As [`copy_from_ptr`](Self::copy_from_ptr).
    #[inline]
    #[track_caller]
    pub unsafe fn try_copy_from_ptr(
        &self,
        offset: usize,
        source: *const u8,
        len: usize,
        stores: Stores,
    ) -> Result<()> {
        let destination = self.checked(offset, len)?;
        // SAFETY: the destination is inside the view, the source as promised.
        unsafe { copy::guarded_store(destination, source, len, stores) }
            .map_err(|fault| located(fault, destination, len))
    }

    /// As [`try_copy_from_ptr`](Self::try_copy_from_ptr), from a slice.
    ///
    /// # Errors
    /// As [`try_copy_to`](Self::try_copy_to).
    #[track_caller]
    pub fn try_copy_from(&self, offset: usize, source: &[u8], stores: Stores) -> Result<()> {
        // SAFETY: a slice is readable and cannot overlap the view.
        unsafe { self.try_copy_from_ptr(offset, source.as_ptr(), source.len(), stores) }
    }

    /// Loads an aligned word of a file that its owner may truncate; acquire.
    ///
    /// # Errors
    /// As [`try_copy_to`](Self::try_copy_to).
    #[inline]
    pub fn try_load_u64(&self, offset: usize) -> Result<u64> {
        let word: *mut u64 = self.checked(offset, 8)?.cast();
        if !word.is_aligned() {
            return Err(Error::OutOfBounds {
                offset,
                len: 8,
                size: self.len,
            });
        }
        // SAFETY: inside the view and aligned.
        Ok(unsafe { guarded::guarded_load_u64(word) }?)
    }
}

/// Which side of a copy faulted, if one side was these bytes of the view.
#[cold]
fn located(fault: Fault, start: *mut u8, len: usize) -> Error {
    // The processor tells the byte, but a flush or an access of many bytes may begin before.
    let line = flush::CACHE_LINE;
    let start = start as usize & !(line - 1);
    let end = (start + len).next_multiple_of(line) + line;
    if (start..end).contains(&fault.address) {
        Error::Fault(fault)
    } else {
        Error::BadAddress(fault)
    }
}

#[cfg(test)]
#[path = "shared_tests.rs"]
mod tests;
