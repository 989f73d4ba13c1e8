//! The order of persistence, in types.
//!
//! A range that was stored is a [`Dirty`]; flushing makes it a [`Flushed`];
//! one [`fence`] turns any number of those [`Durable`]; and [`publish`], the
//! 8-byte store that makes a record valid, takes nothing but `Durable`. So
//! publishing what was not flushed and fenced does not compile:
//!
//! ```
//! # use std::sync::atomic::AtomicU64;
//! # use arck_pm::{SharedBytes, order};
//! # let memory: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
//! # let page = SharedBytes::from_words(&memory);
//! # (|| {
//! let name = page.write(64, b"a name")?.flush();
//! let inode = page.stream(128, &[7; 128])?;
//! let durable = order::fence((name, inode));
//! let published = page.publish(0, 1, durable)?;
//! let _: order::Durable = order::fence(published.flush());
//! # Some(()) })().unwrap();
//! ```
//!
//! All tokens but `Dirty` and `Published` have no size, and all of it inlines to
//! the stores, flushes and fences themselves.
//!
//! Invariants:
//!
//! * Only this module constructs tokens; none can be cloned.
//! * A fence consumes the tokens it makes durable, so it comes after their
//!   flushes; tokens are cleaned together by one fence, never by an earlier one.
//! * The processor fences only what the *same thread* has flushed, so `Flushed`
//!   is neither `Send` nor `Sync`.
//!
//! What the types cannot see: which record a proof is about (give it a subject
//! with [`Dirty::describing`] and let commit functions ask for
//! `Durable<Subject>`), and stores made to a range after its token was flushed.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::flush::{CACHE_LINE, flush_range};
use crate::shared::SharedBytes;
use crate::{control, copy, record};

/// A range as it was just stored: in the cache, perhaps nowhere else. `T` is
/// what it holds, for commit functions that insist; it need not be a real type.
#[must_use = "what is stored is not durable until it is flushed and fenced"]
pub struct Dirty<'a, T = ()> {
    range: SharedBytes<'a>,
    subject: PhantomData<fn() -> T>,
}

/// Flushed or streamed by this thread, durable after its next fence.
#[must_use = "what is flushed is not durable until it is fenced"]
pub struct Flushed<T = ()> {
    subject: PhantomData<fn() -> T>,
    /// No bytes, but neither `Send` nor `Sync`; never read.
    _this_thread: [*const (); 0],
}

/// Durable: would survive a crash now.
#[must_use = "a proof of durability is there to be published"]
pub struct Durable<T = ()> {
    subject: PhantomData<fn() -> T>,
}

/// The word that was just published: visible to everybody, not yet durable.
#[must_use = "what is published may still be lost until it is flushed and fenced"]
pub struct Published<'a> {
    word: Dirty<'a>,
}

mod seal {
    /// Only this module's parent can name it, so only it can call or implement
    /// the methods that take one.
    pub struct Seal(pub(super) ());
}
use seal::Seal;

impl<T> Flushed<T> {
    #[inline(always)]
    fn new() -> Flushed<T> {
        Flushed {
            subject: PhantomData,
            _this_thread: [],
        }
    }

    /// What other threads have made durable: as good as what this one has flushed, and fenced once more with that.
    #[inline(always)]
    pub(crate) fn by_others() -> Flushed<T> {
        Flushed::new()
    }

    /// One token for two of the same subject; to gather in loops.
    #[inline(always)]
    pub fn join(self, _other: Flushed<T>) -> Flushed<T> {
        self
    }

    /// As [`join`](Self::join), with one that there may be.
    #[inline(always)]
    pub fn join_all(self, others: impl IntoIterator<Item = Flushed<T>>) -> Flushed<T> {
        others.into_iter().fold(self, Flushed::join)
    }
}

impl Flushed {
    /// Says what the bytes hold; once.
    #[inline(always)]
    pub fn describing<U>(self) -> Flushed<U> {
        Flushed::new()
    }

    /// Says what two things the bytes hold, each with a token of its own; once.
    #[inline(always)]
    pub fn describing_both<U, V>(self) -> (Flushed<U>, Flushed<V>) {
        (Flushed::new(), Flushed::new())
    }
}

impl<'a> Dirty<'a> {
    /// Says what the bytes hold; once.
    #[inline(always)]
    pub fn describing<U>(self) -> Dirty<'a, U> {
        Dirty::new(self.range)
    }
}

impl<T> Durable<T> {
    #[inline(always)]
    fn new() -> Durable<T> {
        Durable {
            subject: PhantomData,
        }
    }

    /// One proof for two of the same subject.
    #[inline(always)]
    pub fn join(self, _other: Durable<T>) -> Durable<T> {
        self
    }

    /// One proof for many; `None` if there are none.
    #[inline(always)]
    pub fn all(many: impl IntoIterator<Item = Durable<T>>) -> Option<Durable<T>> {
        many.into_iter().reduce(Durable::join)
    }
}

impl<'a, T> Dirty<'a, T> {
    #[inline(always)]
    fn new(range: SharedBytes<'a>) -> Dirty<'a, T> {
        Dirty {
            range,
            subject: PhantomData,
        }
    }

    /// Starts writing the range back. Does not wait.
    #[inline(always)]
    #[track_caller]
    pub fn flush(self) -> Flushed<T> {
        // SAFETY: a view's range is mapped.
        unsafe { flush_range(self.range.as_ptr(), self.range.len()) };
        Flushed::new()
    }

    /// One token for two ranges that together fill a run of cache lines without
    /// a gap, so that a line they share is flushed once.
    ///
    /// # Errors
    /// Both tokens, if lines lie between the ranges.
    #[inline]
    pub fn merge(self, other: Dirty<'a, T>) -> Result<Dirty<'a, T>, (Dirty<'a, T>, Dirty<'a, T>)> {
        let (first, second) = if self.range.as_ptr() <= other.range.as_ptr() {
            (&self.range, &other.range)
        } else {
            (&other.range, &self.range)
        };
        let start = first.as_ptr() as usize;
        let first_end = start + first.len();
        let second_start = second.as_ptr() as usize;
        if second_start & !(CACHE_LINE - 1) > first_end.next_multiple_of(CACHE_LINE) {
            return Err((self, other));
        }
        let end = first_end.max(second_start + second.len());
        let Some(base) = std::ptr::NonNull::new(first.as_ptr()) else {
            return Err((self, other));
        };
        // SAFETY: every byte lies in a line of one of the two ranges, so it is
        // mapped like them; the view serves only to flush.
        Ok(Dirty::new(unsafe {
            SharedBytes::from_raw(base, end - start)
        }))
    }
}

impl<'a> Published<'a> {
    /// Starts writing the published word back.
    #[inline(always)]
    #[track_caller]
    pub fn flush(self) -> Flushed {
        self.word.flush()
    }

    /// The word as a dirty range, to flush it together with others.
    #[inline(always)]
    pub fn into_dirty(self) -> Dirty<'a> {
        self.word
    }
}

/// Tokens that one fence makes durable together: a [`Flushed`], or a tuple, array,
/// `Option` or `Vec` of such sets.
pub trait FlushedSet {
    /// The same set, durable.
    type Durable;
    #[doc(hidden)]
    fn fenced(self, seal: Seal) -> Self::Durable;
}

/// Proof that everything a record needs is durable: a [`Durable`], or a tuple or
/// array of such proofs. Not an `Option` or `Vec`: those may be empty, and nothing
/// is no proof ([`Durable::join`] and [`Durable::all`] make one token of many).
pub trait DurableSet {
    #[doc(hidden)]
    fn proven(&self, seal: Seal);
}

impl<T> FlushedSet for Flushed<T> {
    type Durable = Durable<T>;
    #[inline(always)]
    fn fenced(self, _: Seal) -> Durable<T> {
        Durable::new()
    }
}

impl<T> DurableSet for Durable<T> {
    #[inline(always)]
    fn proven(&self, _: Seal) {}
}

impl<S: FlushedSet, const N: usize> FlushedSet for [S; N] {
    type Durable = [S::Durable; N];
    #[inline(always)]
    fn fenced(self, _: Seal) -> Self::Durable {
        self.map(|set| set.fenced(Seal(())))
    }
}

/// One proof serves for many stores that refer to the same thing.
impl<S: DurableSet> DurableSet for &S {
    #[inline(always)]
    fn proven(&self, _: Seal) {}
}

impl<S: DurableSet, const N: usize> DurableSet for [S; N] {
    #[inline(always)]
    fn proven(&self, _: Seal) {
        const { assert!(N > 0, "an empty array proves nothing") }
    }
}

impl<S: FlushedSet> FlushedSet for Option<S> {
    type Durable = Option<S::Durable>;
    #[inline(always)]
    fn fenced(self, _: Seal) -> Self::Durable {
        self.map(|set| set.fenced(Seal(())))
    }
}

impl<S: FlushedSet> FlushedSet for Vec<S> {
    type Durable = Vec<S::Durable>;
    #[inline(always)]
    fn fenced(self, _: Seal) -> Self::Durable {
        self.into_iter().map(|set| set.fenced(Seal(()))).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),+))*) => {$(
        impl<$($name: FlushedSet),+> FlushedSet for ($($name,)+) {
            type Durable = ($($name::Durable,)+);
            #[inline(always)]
            fn fenced(self, _: Seal) -> Self::Durable {
                ($(self.$index.fenced(Seal(())),)+)
            }
        }

        impl<$($name: DurableSet),+> DurableSet for ($($name,)+) {
            #[inline(always)]
            fn proven(&self, _: Seal) {}
        }
    )*};
}
tuples! {
    (A 0)
    (A 0, B 1)
    (A 0, B 1, C 2)
    (A 0, B 1, C 2, D 3)
    (A 0, B 1, C 2, D 3, E 4)
    (A 0, B 1, C 2, D 3, E 4, F 5)
}

/// Fences once and makes every token of the set durable.
#[inline(always)]
#[track_caller]
pub fn fence<S: FlushedSet>(set: S) -> S::Durable {
    crate::flush::fence();
    set.fenced(Seal(()))
}

/// As [`fence`], of what nothing refers to: nobody needs the proofs.
#[inline(always)]
#[track_caller]
pub fn drain<S: FlushedSet>(_set: S) {
    crate::flush::fence();
}

/// Publishes a record: one atomic 8-byte store (release) that becomes visible
/// only after everything in `proof` is durable. The word itself is durable once
/// the returned token is flushed and fenced.
#[inline(always)]
#[track_caller]
pub fn publish<P: DurableSet>(target: &AtomicU64, value: u64, proof: P) -> Published<'_> {
    proof.proven(Seal(()));
    if control::load().records() {
        record::atomic_store(target.as_ptr().cast(), || {
            target.store(value, Ordering::Release);
            ((), Some(value.to_ne_bytes()))
        });
    } else {
        target.store(value, Ordering::Release);
    }
    Published {
        word: word_token(target),
    }
}

/// As [`publish`], where others may publish in the same word.
///
/// # Errors
/// What was in the word instead of `current`, and the proof back.
#[inline(always)]
#[track_caller]
pub fn publish_exchange<P: DurableSet>(
    target: &AtomicU64,
    current: u64,
    value: u64,
    proof: P,
) -> Result<Published<'_>, (u64, P)> {
    proof.proven(Seal(()));
    let exchange = || target.compare_exchange(current, value, Ordering::AcqRel, Ordering::Acquire);
    let outcome = if control::load().records() {
        record::atomic_store(target.as_ptr().cast(), || {
            let outcome = exchange();
            (outcome, outcome.is_ok().then(|| value.to_ne_bytes()))
        })
    } else {
        exchange()
    };
    match outcome {
        Ok(_) => Ok(Published {
            word: word_token(target),
        }),
        Err(found) => Err((found, proof)),
    }
}

/// As [`publish`] by a streaming store, which saves the flush: the cheapest way
/// to make one word durable when nobody reads it from the cache soon.
///
/// It may become visible before earlier ordinary stores of this thread that no
/// fence has ordered; what `proof` stands for is fenced and never overtaken.
#[inline(always)]
#[track_caller]
pub fn publish_streaming<P: DurableSet>(target: &AtomicU64, value: u64, proof: P) -> Flushed {
    proof.proven(Seal(()));
    // SAFETY: a reference to an atomic is aligned and writable.
    unsafe { copy::stream_u64(target.as_ptr(), value) };
    Flushed::new()
}

#[inline(always)]
fn word_token(target: &AtomicU64) -> Dirty<'_> {
    Dirty::new(SharedBytes::from_words(std::slice::from_ref(target)))
}

/// The typed stores: as the untyped ones, but they return the token to go on with.
/// `None`: outside the view or misaligned; nothing was stored.
impl<'a> SharedBytes<'a> {
    /// Stores bytes with ordinary stores.
    #[inline(always)]
    #[track_caller]
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Option<Dirty<'a>> {
        let range = self.slice(offset, bytes.len())?;
        range.copy_from(0, bytes)?;
        Some(Dirty::new(range))
    }

    /// Stores one aligned word (release).
    #[inline(always)]
    #[track_caller]
    pub fn write_u64(&self, offset: usize, value: u64) -> Option<Dirty<'a>> {
        self.store_u64(offset, value, Ordering::Release)?;
        Some(Dirty::new(self.slice(offset, 8)?))
    }

    /// Zeroes a range with ordinary stores.
    #[inline]
    #[track_caller]
    pub fn write_zero(&self, offset: usize, len: usize) -> Option<Dirty<'a>> {
        self.fill_zero(offset, len)?;
        Some(Dirty::new(self.slice(offset, len)?))
    }

    /// Stores bytes past the cache: flushed already.
    #[inline(always)]
    #[track_caller]
    pub fn stream(&self, offset: usize, bytes: &[u8]) -> Option<Flushed> {
        self.stream_from(offset, bytes)?;
        Some(Flushed::new())
    }

    /// As [`stream`](Self::stream), where the file may have been truncated or the file system
    /// may be out of pages.
    ///
    /// # Errors
    /// As [`SharedBytes::try_copy_from`].
    #[inline]
    #[track_caller]
    pub fn try_stream(&self, offset: usize, bytes: &[u8]) -> crate::Result<Flushed> {
        self.try_copy_from(offset, bytes, copy::Stores::Streaming)?;
        Ok(Flushed::new())
    }

    /// Streams zeroes.
    #[inline]
    #[track_caller]
    pub fn stream_zeroes(&self, offset: usize, len: usize) -> Option<Flushed> {
        self.stream_zero(offset, len)?;
        Some(Flushed::new())
    }

    /// Stores one aligned word past the cache: flushed already.
    #[inline(always)]
    #[track_caller]
    pub fn stream_word(&self, offset: usize, value: u64) -> Option<Flushed> {
        self.stream_u64(offset, value)?;
        Some(Flushed::new())
    }

    /// The token of a range stored by other means (an atomic of
    /// [`atomic_u64`](SharedBytes::atomic_u64), the kernel, several untyped calls).
    #[inline(always)]
    pub fn dirty(&self, offset: usize, len: usize) -> Option<Dirty<'a>> {
        Some(Dirty::new(self.slice(offset, len)?))
    }

    /// [`publish`] in the word at byte `offset`.
    #[inline(always)]
    #[track_caller]
    pub fn publish<P: DurableSet>(
        &self,
        offset: usize,
        value: u64,
        proof: P,
    ) -> Option<Published<'a>> {
        Some(publish(self.atomic_u64(offset)?, value, proof))
    }
}
