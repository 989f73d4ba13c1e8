//! References inside the region: offsets from its beginning, the same in every process.
//!
//! Invariant: a type that implements [`Shared`] is made of atomics only, so memory that every
//! member may write at any time can be looked at through `&T`, and no bit pattern, however it got
//! there, makes such a reference invalid.

use super::lock::Lock;
use super::read_write_lock::ReadWriteLock;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// Types that may live in the region.
///
/// Use [`shared!`](crate::region_shared) to define a struct of such fields without unsafe code.
///
/// # Safety
///
/// The type is valid for every bit pattern, has no padding, holds no pointer and no value that
/// means something in one process only, consists of atomics (or types that do), and needs no drop.
pub unsafe trait Shared: Send + Sync + 'static {}

// SAFETY: a standard atomic integer; any bits are valid, no padding.
unsafe impl Shared for AtomicU8 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU16 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU32 {}
// SAFETY: as above.
unsafe impl Shared for AtomicU64 {}
// SAFETY: transparent around an atomic. Under Shuttle the atomic is another type, and there no
// region can be made (`Region::create` and `open` refuse).
unsafe impl Shared for Lock {}
// SAFETY: as for `Lock`.
unsafe impl Shared for ReadWriteLock {}
// SAFETY: an array of a type that keeps the contract, without padding between its elements.
unsafe impl<T: Shared, const N: usize> Shared for [T; N] {}
// SAFETY: transparent around an atomic; the offset means the same to every process.
unsafe impl<T: 'static> Shared for AtomicOffset<T> {}

/// Defines structs that may live in the region: each field is itself [`Shared`](crate::region::Shared),
/// and the compiler checks that no padding lies between them.
///
/// ```
/// use std::sync::atomic::{AtomicU32, AtomicU64};
/// arck_libfs_kit::region_shared! {
///     /// One cached inode.
///     pub struct CachedInode {
///         pub size: AtomicU64,
///         pub mode: AtomicU32,
///         pub links: AtomicU32,
///     }
/// }
/// ```
#[macro_export]
macro_rules! region_shared {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$field_meta:meta])* $field_vis:vis $field:ident : $type:ty),* $(,)?
    })*) => {$(
        $(#[$meta])*
        #[repr(C)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }
        const _: () = {
            const fn field_is_shared<T: $crate::region::Shared>() -> usize {
                ::core::mem::size_of::<T>()
            }
            // Under Shuttle the locks have another size; no region exists there.
            assert!(
                cfg!(shuttle) || ::core::mem::size_of::<$name>() == 0 $(+ field_is_shared::<$type>())*,
                "a struct in the region must not have padding"
            );
        };
        // SAFETY: every field is `Shared` (checked above by the bound), there is no padding
        // (checked above by the sizes), and the layout is that of C.
        unsafe impl $crate::region::Shared for $name {}
    )*};
}

/// A typed reference into the region: a number of bytes from its beginning; 0 is null.
#[repr(transparent)]
pub struct Offset<T> {
    raw: u64,
    target: PhantomData<fn() -> T>,
}

impl<T> Offset<T> {
    /// The reference to nothing.
    pub const NULL: Self = Self::from_raw(0);

    /// From a number of bytes. Any number is harmless: what is no valid place in the region is
    /// noticed when it is followed.
    pub const fn from_raw(raw: u64) -> Self {
        Self {
            raw,
            target: PhantomData,
        }
    }

    /// Bytes from the beginning of the region.
    pub const fn raw(self) -> u64 {
        self.raw
    }

    /// Whether this refers to nothing.
    pub const fn is_null(self) -> bool {
        self.raw == 0
    }

    /// `None` for null.
    pub fn non_null(self) -> Option<Self> {
        (!self.is_null()).then_some(self)
    }

    /// The same place, taken for another type.
    pub const fn cast<U>(self) -> Offset<U> {
        Offset::from_raw(self.raw)
    }
}

impl<T> Clone for Offset<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Offset<T> {}

impl<T> PartialEq for Offset<T> {
    fn eq(&self, other: &Self) -> bool {
        self.raw == other.raw
    }
}

impl<T> Eq for Offset<T> {}

impl<T> Default for Offset<T> {
    fn default() -> Self {
        Self::NULL
    }
}

impl<T> fmt::Debug for Offset<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Offset({:#x})", self.raw)
    }
}

/// An [`Offset`] that is itself in the region.
#[repr(transparent)]
pub struct AtomicOffset<T> {
    raw: AtomicU64,
    target: PhantomData<fn() -> T>,
}

impl<T> AtomicOffset<T> {
    /// Holds `offset`.
    pub const fn new(offset: Offset<T>) -> Self {
        Self {
            raw: AtomicU64::new(offset.raw()),
            target: PhantomData,
        }
    }

    /// Reads the reference.
    pub fn load(&self, order: Ordering) -> Offset<T> {
        Offset::from_raw(self.raw.load(order))
    }

    /// Replaces the reference.
    pub fn store(&self, offset: Offset<T>, order: Ordering) {
        self.raw.store(offset.raw(), order);
    }

    /// Replaces the reference and returns the one before.
    pub fn swap(&self, offset: Offset<T>, order: Ordering) -> Offset<T> {
        Offset::from_raw(self.raw.swap(offset.raw(), order))
    }

    /// Replaces the reference if it is `current`; `Err` holds what it was instead.
    pub fn compare_exchange(
        &self,
        current: Offset<T>,
        new: Offset<T>,
        success: Ordering,
        failure: Ordering,
    ) -> Result<Offset<T>, Offset<T>> {
        self.raw
            .compare_exchange(current.raw(), new.raw(), success, failure)
            .map(Offset::from_raw)
            .map_err(Offset::from_raw)
    }
}

impl<T> Default for AtomicOffset<T> {
    fn default() -> Self {
        Self::new(Offset::NULL)
    }
}

impl<T> fmt::Debug for AtomicOffset<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.load(Ordering::Relaxed).fmt(formatter)
    }
}
