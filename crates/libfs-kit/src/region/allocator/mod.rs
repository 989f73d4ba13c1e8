//! Memory inside the region.
//!
//! Three levels. Each thread slot has a small *magazine* of free objects per size class, touched
//! by its thread alone: the usual allocation takes no lock and writes no line that others read.
//! Magazines are filled from and emptied to *spans*, runs of pages cut into objects of one class
//! ([`spans`]). Spans, and objects above a page, come from the *page pool* ([`pages`]), to which
//! empty spans return, so that memory serves another class later.
//!
//! Invariants: an object is in exactly one place: a magazine, its span's free list, or its user's
//! hands. A magazine is consistent at every instruction, so that a thread may die at any point:
//! an object may be lost by that, but is never handed out twice.

mod builds;
pub(super) mod pages;
pub(super) mod spans;

use super::epoch::ThreadSlot;
use super::holder::Holder;
use super::layout::THREAD_SLOTS;
use super::lock::{Lock, LockGuard};
use super::mapping::begin_word;
use super::sizes::{CLASSES, PAGE_SIZE, SIZES, SizeClass};
use super::structures::{Bag, DAMAGED, MAGAZINE, Magazine, SlotCache};
use super::{Offset, OutOfMemory, Region, Shared};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const fn capacity(class: usize) -> u32 {
    match 8192 / SIZES[class] {
        0..4 => 4,
        some @ 4..32 => some,
        _ => MAGAZINE as u32,
    }
}

/// How full a region is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Bytes allocated and not freed, rounded up to size classes; includes what is retired.
    pub bytes_in_use: u64,
    /// Bytes free in the caches of thread slots.
    pub bytes_cached: u64,
    /// Pages held by spans and large allocations.
    pub pages_in_use: u64,
    /// Free pages that still have memory behind them.
    pub pages_dirty: u64,
    /// Pages of the heap that have memory behind them, at most: in use or dirty.
    pub pages_mapped: u64,
    /// Pages that what is allocated now can have: once the region is ready, half of the heap.
    pub pages_total: u64,
    /// Invalid references followed in release builds. Anything but 0 is a bug.
    pub stray_references: u64,
    /// Bytes that were leaked because there was no memory to remember their retirement.
    pub bytes_leaked: u64,
}

impl Region {
    /// Puts `value` into the region. It is aligned as its type demands and visible to nobody
    /// until the offset is published with release ordering.
    #[inline]
    pub fn allocate<T: Shared>(
        &self,
        slot: &ThreadSlot<'_>,
        value: T,
    ) -> Result<Offset<T>, OutOfMemory> {
        // Objects of a class are aligned to the largest power of two in its size, and a type's
        // size is a multiple of its alignment, but its class may be larger than the type.
        const {
            assert!(
                align_of::<T>() <= 16
                    || (size_of::<T>().is_power_of_two() && align_of::<T>() <= 4096),
                "over-aligned types in the region have a power of two as their size"
            )
        };
        let offset = self.allocate_raw(slot, size_of::<T>())?;
        self.mapping.write(offset, value);
        Ok(Offset::from_raw(offset))
    }

    /// `length` bytes, aligned to 16, all zero.
    pub fn allocate_bytes(
        &self,
        slot: &ThreadSlot<'_>,
        length: usize,
    ) -> Result<Offset<AtomicU8>, OutOfMemory> {
        let offset = match SizeClass::of(length).ok_or(OutOfMemory)? {
            SizeClass::Class(_) => self.allocate_raw(slot, length)?,
            SizeClass::Pages(pages) => {
                let pages = self.take_pages(slot.holder(), pages)?;
                if pages.is_zero {
                    return Ok(Offset::from_raw(pages.offset));
                }
                pages.offset
            }
        };
        // The class leaves room for whole words.
        let words = self
            .mapping
            .get_slice::<AtomicU64>(offset, length.div_ceil(8));
        let words = words.unwrap_or_default();
        if let Some(first) = words.first() {
            // Where another process had the page a load has the kernel map those around it too, which a
            // store would not.
            std::hint::black_box(first.load(Ordering::Relaxed));
        }
        for word in words {
            begin_word(word, 0);
        }
        Ok(Offset::from_raw(offset))
    }

    /// `count` consecutive objects with all bytes zero.
    pub fn allocate_zeroed<T: Shared>(
        &self,
        slot: &ThreadSlot<'_>,
        count: usize,
    ) -> Result<Offset<T>, OutOfMemory> {
        const { assert!(align_of::<T>() <= 16) };
        let length = size_of::<T>().checked_mul(count).ok_or(OutOfMemory)?;
        self.allocate_bytes(slot, length).map(Offset::cast)
    }

    /// Frees an object at once: for what no other thread can be looking at. Null is ignored.
    /// Freeing twice, or something else, corrupts the group's auxiliary state.
    #[inline]
    pub fn free<T: Shared>(&self, slot: &ThreadSlot<'_>, offset: Offset<T>) {
        self.free_raw(slot, offset.raw(), size_of::<T>());
    }

    /// Frees `length` bytes, the length they were allocated with, or an array of that many bytes.
    pub fn free_bytes(&self, slot: &ThreadSlot<'_>, offset: Offset<AtomicU8>, length: usize) {
        self.free_raw(slot, offset.raw(), length);
    }

    #[inline]
    fn allocate_raw(&self, slot: &ThreadSlot<'_>, length: usize) -> Result<u64, OutOfMemory> {
        match SizeClass::of(length).ok_or(OutOfMemory)? {
            SizeClass::Class(class) => {
                let magazine = self.magazine(slot.index(), class);
                match magazine.pop() {
                    Some(offset) => Ok(offset),
                    None => self.refill(slot, class),
                }
            }
            SizeClass::Pages(pages) => {
                let pages = self.take_pages(slot.holder(), pages)?;
                Ok(pages.offset)
            }
        }
    }

    #[inline]
    pub(super) fn free_raw(&self, slot: &ThreadSlot<'_>, offset: u64, length: usize) {
        if let Some(class) = SizeClass::of(length) {
            self.free_class(slot, offset, class);
        }
    }

    #[inline]
    pub(super) fn free_class(&self, slot: &ThreadSlot<'_>, offset: u64, class: SizeClass) {
        if offset == 0 {
            return;
        }
        match class {
            SizeClass::Class(class) => {
                let magazine = self.magazine(slot.index(), class);
                if !magazine.push(offset, capacity(usize::from(class))) {
                    self.empty_magazine(slot, slot.index(), class, capacity(class.into()) / 2);
                    magazine.push(offset, capacity(usize::from(class)));
                }
            }
            SizeClass::Pages(_) => self.give_pages(slot.holder(), offset),
        }
    }

    #[cold]
    fn refill(&self, slot: &ThreadSlot<'_>, class: u8) -> Result<u64, OutOfMemory> {
        let magazine = self.magazine(slot.index(), class);
        let wanted = capacity(class.into()) / 2;
        self.take_objects(slot.holder(), class, wanted, &mut |offset| {
            magazine.push(offset, MAGAZINE as u32);
        })?;
        magazine.pop().ok_or(OutOfMemory)
    }

    /// Returns objects from the magazine of slot `index` to their spans until `keep` are left.
    #[cold]
    fn empty_magazine(&self, slot: &ThreadSlot<'_>, index: u16, class: u8, keep: u32) {
        let magazine = self.magazine(index, class);
        self.give_objects(slot.holder(), class, &mut || {
            (magazine.count.load(Ordering::Relaxed) > keep)
                .then(|| magazine.pop())
                .flatten()
        });
    }

    /// Returns all objects cached by slot `index`, whose thread is the caller or gone.
    pub(super) fn empty_cache(&self, slot: &ThreadSlot<'_>, index: u16) {
        for class in 0..CLASSES as u8 {
            if self.magazine(index, class).count.load(Ordering::Relaxed) != 0 {
                self.empty_magazine(slot, index, class, 0);
            }
        }
    }

    /// Takes a lock of the auxiliary part; `None` if what it protects is damaged.
    pub(super) fn enter<'a>(&self, lock: &'a Lock, holder: Holder) -> Option<LockGuard<'a>> {
        let guard = lock.lock(holder);
        let damaged = self.auxiliary().damaged.load(Ordering::Acquire);
        (damaged != DAMAGED).then_some(guard)
    }

    #[inline]
    pub(super) fn slot_cache(&self, index: u16) -> &SlotCache {
        let place = u64::from(index) * size_of::<SlotCache>() as u64;
        self.get(Offset::from_raw(self.layout.caches + place))
    }

    /// The bag that is part of slot `index`'s cache.
    pub(super) fn emergency_bag(&self, index: u16) -> Offset<Bag> {
        let place = u64::from(index) * size_of::<SlotCache>() as u64;
        let within = std::mem::offset_of!(SlotCache, emergency) as u64;
        Offset::from_raw(self.layout.caches + place + within)
    }

    #[inline]
    fn magazine(&self, index: u16, class: u8) -> &Magazine {
        &self.slot_cache(index).magazines[usize::from(class)]
    }

    /// How full the region is. The numbers are read one after the other, while others go on.
    pub fn statistics(&self) -> Statistics {
        let mut statistics = Statistics {
            pages_total: {
                let builds = &self.auxiliary().pool.builds;
                u64::from(builds.most(self.layout.middle, self.layout.heap_pages))
            },
            stray_references: self.header().stray.load(Ordering::Relaxed),
            bytes_leaked: self.header().leaked.load(Ordering::Relaxed),
            ..Statistics::default()
        };
        let slots = self.header().slots_used.load(Ordering::Relaxed);
        for index in 0..slots.min(THREAD_SLOTS as u64) as u16 {
            for (magazine, size) in self.slot_cache(index).magazines.iter().zip(SIZES) {
                let count = magazine.count.load(Ordering::Relaxed);
                statistics.bytes_cached += u64::from(count) * u64::from(size);
            }
        }
        let auxiliary = self.auxiliary();
        for (class, size) in auxiliary.classes.iter().zip(SIZES) {
            statistics.bytes_in_use += class.objects_out() * u64::from(size);
        }
        statistics.bytes_in_use = statistics
            .bytes_in_use
            .saturating_sub(statistics.bytes_cached)
            + auxiliary.pool.large_pages() * PAGE_SIZE;
        statistics.pages_in_use = auxiliary.pool.pages_in_use();
        statistics.pages_dirty = auxiliary.pool.pages_dirty();
        statistics.pages_mapped = statistics.pages_in_use + statistics.pages_dirty;
        statistics
    }
}

impl SlotCache {
    /// As it is in a new region.
    pub fn reset(&self) {
        for magazine in &self.magazines {
            magazine.count.store(0, Ordering::Relaxed);
        }
        for list in [&self.bag, &self.oldest, &self.newest] {
            list.store(0, Ordering::Relaxed);
        }
        self.emergency.reset();
    }
}

impl Magazine {
    #[inline]
    fn pop(&self) -> Option<u64> {
        let count = self.count.load(Ordering::Relaxed).min(MAGAZINE as u32);
        let last = count.checked_sub(1)?;
        let offset = self.entries[last as usize].load(Ordering::Relaxed);
        // After this store the object is the caller's: if the thread dies here, it is lost.
        self.count.store(last, Ordering::Release);
        Some(offset)
    }

    #[inline]
    fn push(&self, offset: u64, capacity: u32) -> bool {
        let count = self.count.load(Ordering::Relaxed);
        if count >= capacity {
            return false;
        }
        self.entries[count as usize].store(offset, Ordering::Relaxed);
        self.count.store(count + 1, Ordering::Release);
        true
    }
}
