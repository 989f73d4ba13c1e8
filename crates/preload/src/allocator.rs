//! The memory allocator of everything linked into this library.
//!
//! The program's `malloc` cannot be used: a signal handler may call `write` on a pool file while
//! the interrupted code holds malloc's lock, and a program may bring an allocator that opens
//! files. So the LibFS allocates from here, and whoever holds a lock here counts as inside the
//! LibFS, where signals are put off (see `thread`): no lock is ever taken twice by one thread.
//!
//! The kernel gives chunks, of which every size class takes slabs as it needs them, small ones at first:
//! a small program has one chunk, and touches few of its pages for blocks of many sizes.
//!
//! Invariants:
//! * Each size class's free list and slab are changed only under the class's lock, what is left of the
//!   chunk only under its own; that is the last one taken.
//! * `fork` takes all locks first ([`lock_all`]), so a child finds every list whole.

use crate::{raw, thread};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

/// Smallest block: 16 bytes. Class k holds blocks of 16, 24, 32, 48, 64, 96, ... bytes.
const CLASSES: usize = 26;
/// Blocks above this come straight from the kernel.
const LARGEST: usize = class_size(CLASSES - 1);
/// Memory is taken from the kernel in pieces of this size.
const CHUNK: usize = 256 * 1024;
/// What a class first takes of a chunk, in bytes; then twice as much each time, up to the other. One block
/// at least.
const FIRST_SLAB: usize = 512;
const LARGEST_SLAB: usize = 64 * 1024;

const fn class_size(class: usize) -> usize {
    let power = 16usize << (class / 2);
    if class.is_multiple_of(2) {
        power
    } else {
        power + power / 2
    }
}

fn class_of(layout: &Layout) -> Option<usize> {
    // Blocks of a power of two are aligned to their size (up to a page), others to half of
    // their largest power of two; round up for large alignments.
    let size = if layout.align() > 8 {
        layout.size().max(layout.align()).next_power_of_two()
    } else {
        layout.size()
    };
    if size > LARGEST || layout.align() > 4096 {
        return None;
    }
    if size <= 16 {
        return Some(0);
    }
    let power = usize::BITS - 1 - (size - 1).leading_zeros();
    let below = 1usize << power;
    let class = 2 * (power as usize - 4);
    Some(if size <= below + below / 2 {
        class + 1
    } else {
        class + 2
    })
}

/// A lock of one word, held for some instructions.
struct Lock(AtomicBool);

impl Lock {
    const fn new() -> Self {
        Lock(AtomicBool::new(false))
    }
    fn lock(&self) {
        let mut spins = 0u32;
        while self.0.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins.is_multiple_of(64) {
                // SAFETY: no arguments.
                unsafe { raw::syscall!(libc::SYS_sched_yield) };
            }
            std::hint::spin_loop();
        }
    }
    fn unlock(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Where slabs come from.
struct Source {
    lock: Lock,
    /// The unused rest of the current chunk.
    fresh: AtomicPtr<u8>,
    rest: AtomicUsize,
}

impl Source {
    const fn new() -> Self {
        Source {
            lock: Lock::new(),
            fresh: AtomicPtr::new(std::ptr::null_mut()),
            rest: AtomicUsize::new(0),
        }
    }
    /// A slab for blocks of `size`, aligned as those are (see [`class_of`]): where it is and how long, a
    /// multiple of `size`, at most `wish`, which is one too. `None` if the kernel has no memory.
    fn take(&self, size: usize, wish: usize) -> Option<(*mut u8, usize)> {
        self.lock.lock();
        let slab = self.take_locked(size, wish);
        self.lock.unlock();
        slab
    }
    fn take_locked(&self, size: usize, wish: usize) -> Option<(*mut u8, usize)> {
        let align = (1 << size.trailing_zeros()).min(4096);
        let mut fresh = self.fresh.load(Ordering::Relaxed);
        let mut rest = self.rest.load(Ordering::Relaxed);
        let mut skip = fresh.align_offset(align);
        if rest < skip + size {
            // What was left of the old chunk stays unused.
            fresh = raw::map_anonymous(CHUNK)?;
            (rest, skip) = (CHUNK, 0);
        }
        let usable = rest - skip;
        let length = wish.min(usable - usable % size);
        let slab = fresh.wrapping_add(skip);
        self.fresh
            .store(slab.wrapping_add(length), Ordering::Relaxed);
        self.rest.store(usable - length, Ordering::Relaxed);
        Some((slab, length))
    }
}

static SOURCE: Source = Source::new();

struct Class {
    lock: Lock,
    /// First free block; each free block's first word points to the next.
    free: AtomicPtr<u8>,
    /// Unused rest of the current slab.
    fresh: AtomicPtr<u8>,
    fresh_end: AtomicPtr<u8>,
    /// Bytes that were wished for the current slab.
    slab: AtomicUsize,
}

impl Class {
    const fn new() -> Self {
        Class {
            lock: Lock::new(),
            free: AtomicPtr::new(std::ptr::null_mut()),
            fresh: AtomicPtr::new(std::ptr::null_mut()),
            fresh_end: AtomicPtr::new(std::ptr::null_mut()),
            slab: AtomicUsize::new(0),
        }
    }
    /// A block, and whether nobody has had it yet, so that it is all zeroes; null if there is no memory.
    fn take(&self, size: usize, source: &Source) -> (*mut u8, bool) {
        let _inside = thread::enter();
        self.lock.lock();
        let mut block = self.free.load(Ordering::Relaxed);
        let is_fresh = block.is_null();
        if !is_fresh {
            // SAFETY: blocks on the list are free, at least 16 bytes, and hold the next pointer.
            self.free
                .store(unsafe { block.cast::<*mut u8>().read() }, Ordering::Relaxed);
        } else {
            block = self.fresh.load(Ordering::Relaxed);
            if block == self.fresh_end.load(Ordering::Relaxed) {
                block = self.begin_slab(size, source);
            }
            if !block.is_null() {
                self.fresh
                    .store(block.wrapping_add(size), Ordering::Relaxed);
            }
        }
        self.lock.unlock();
        (block, is_fresh)
    }
    /// The first block of a new slab; null if there is no memory.
    #[cold]
    fn begin_slab(&self, size: usize, source: &Source) -> *mut u8 {
        let wish = 2 * self.slab.load(Ordering::Relaxed);
        let wish = wish.clamp(FIRST_SLAB, LARGEST_SLAB).max(size);
        let Some((slab, length)) = source.take(size, wish - wish % size) else {
            return std::ptr::null_mut();
        };
        self.slab.store(wish, Ordering::Relaxed);
        self.fresh_end
            .store(slab.wrapping_add(length), Ordering::Relaxed);
        slab
    }
    /// # Safety
    /// `block` was taken from this class and is not used any more.
    unsafe fn give(&self, block: *mut u8) {
        let _inside = thread::enter();
        self.lock.lock();
        // SAFETY: the block is free and at least 16 bytes long.
        unsafe {
            block
                .cast::<*mut u8>()
                .write(self.free.load(Ordering::Relaxed))
        };
        self.free.store(block, Ordering::Relaxed);
        self.lock.unlock();
    }
}

static ALL: [Class; CLASSES] = [const { Class::new() }; CLASSES];

/// The allocator; zero-sized, all state is static.
pub struct Allocator;

// SAFETY: blocks are disjoint pieces of chunks, large enough and aligned for the
// layout (see `class_of`), and owned by the caller until given back.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(&layout) {
            Some(class) => ALL[class].take(class_size(class), &SOURCE).0,
            None => map_large(&layout),
        }
    }

    /// What the kernel has just given is all zeroes, and not touched for that.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(class) = class_of(&layout) else {
            return map_large(&layout);
        };
        let (block, is_fresh) = ALL[class].take(class_size(class), &SOURCE);
        if !is_fresh {
            // SAFETY: a block of at least this size, nobody else's; it is not null, for it is an old one.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match class_of(&layout) {
            // SAFETY: the same layout led to the same class in `alloc`.
            Some(class) => unsafe { ALL[class].give(block) },
            // SAFETY: `alloc` mapped exactly this length at this address.
            None => unsafe { raw::unmap(block, large_length(&layout)) },
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps size and alignment valid (GlobalAlloc's contract).
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let (from, to) = (class_of(&layout), class_of(&new));
        if from.is_some() && from == to {
            return block;
        }
        if from.is_none() && to.is_none() && layout.align() <= 4096 {
            // SAFETY: the mapping is ours; the kernel may move it, and the caller forgets the
            // old address.
            let moved = unsafe {
                raw::syscall!(
                    libc::SYS_mremap,
                    block,
                    large_length(&layout),
                    large_length(&new),
                    libc::MREMAP_MAYMOVE
                )
            };
            return if raw::failed(moved) {
                std::ptr::null_mut()
            } else {
                moved as *mut u8
            };
        }
        // SAFETY: fresh block, disjoint from the old one; the smaller size is copied.
        unsafe {
            let fresh = self.alloc(new);
            if !fresh.is_null() {
                std::ptr::copy_nonoverlapping(block, fresh, layout.size().min(size));
                self.dealloc(block, layout);
            }
            fresh
        }
    }
}

fn large_length(layout: &Layout) -> usize {
    layout.size().next_multiple_of(4096)
}

fn map_large(layout: &Layout) -> *mut u8 {
    let length = large_length(layout);
    if layout.align() <= 4096 {
        return raw::map_anonymous(length).unwrap_or(std::ptr::null_mut());
    }
    let Some(start) = raw::map_anonymous(length + layout.align()) else {
        return std::ptr::null_mut();
    };
    let before = start.align_offset(layout.align());
    // SAFETY: cutting off what lies before and after the aligned block, all of it ours.
    unsafe {
        if before > 0 {
            raw::unmap(start, before);
        }
        if layout.align() > before {
            raw::unmap(start.add(before + length), layout.align() - before);
        }
        start.add(before)
    }
}

/// Takes every lock, so that no other thread is inside the allocator. Call [`unlock_all`] next,
/// in the parent and in the child of a fork.
pub fn lock_all() {
    for class in &ALL {
        class.lock.lock();
    }
    SOURCE.lock.lock();
}

pub fn unlock_all() {
    SOURCE.lock.unlock();
    for class in &ALL {
        class.lock.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_fit_and_grow() {
        for size in 1..=LARGEST {
            let layout = Layout::from_size_align(size, 8).unwrap();
            let class = class_of(&layout).unwrap();
            assert!(class_size(class) >= size, "{size}");
            assert!(class == 0 || class_size(class - 1) < size, "{size}");
        }
        assert_eq!(
            class_of(&Layout::from_size_align(LARGEST + 1, 8).unwrap()),
            None
        );
    }

    #[test]
    fn blocks_are_aligned_and_disjoint() {
        for align in [1usize, 8, 16, 64, 512, 4096, 8192] {
            let mut blocks = Vec::new();
            for size in [1usize, 24, 40, 100, 1000, 5000, 70_000, 300_000] {
                let layout = Layout::from_size_align(size, align).unwrap();
                // SAFETY: non-zero size; the blocks are given back below with the same layout.
                let block = unsafe { Allocator.alloc(layout) };
                assert!(
                    !block.is_null() && (block as usize).is_multiple_of(align),
                    "{size} {align}"
                );
                // SAFETY: the block has `size` bytes.
                unsafe { block.write_bytes(size as u8, size) };
                blocks.push((block, layout));
            }
            for (block, layout) in blocks {
                // SAFETY: written above, `size` bytes long.
                unsafe {
                    assert_eq!(*block, layout.size() as u8);
                    assert_eq!(*block.add(layout.size() - 1), layout.size() as u8);
                    Allocator.dealloc(block, layout);
                }
            }
        }
    }

    /// Of a source of its own: one block of every size that a page holds, then many of one size.
    #[test]
    fn sizes_share_pages_and_slabs_grow() {
        let source = Source::new();
        let classes = [const { Class::new() }; CLASSES];
        let pages: std::collections::BTreeSet<usize> = (0..CLASSES)
            .filter(|class| class_size(*class) <= 512)
            .map(|class| classes[class].take(class_size(class), &source).0 as usize / 4096)
            .collect();
        assert!(pages.len() <= 2, "{pages:x?}");
        let blocks: Vec<usize> = (0..20_000)
            .map(|_| classes[0].take(16, &source).0 as usize)
            .collect();
        assert_eq!(classes[0].slab.load(Ordering::Relaxed), LARGEST_SLAB);
        assert_eq!(classes[1].slab.load(Ordering::Relaxed), FIRST_SLAB);
        assert!(blocks.iter().all(|block| block % 16 == 0));
        let distinct: std::collections::BTreeSet<_> = blocks.iter().collect();
        assert_eq!(distinct.len(), blocks.len());
    }

    /// Blocks of all sizes in turn, over several chunks: none reaches into another.
    #[test]
    fn slabs_do_not_overlap() {
        let source = Source::new();
        let classes = [const { Class::new() }; CLASSES];
        let mut blocks: Vec<(usize, usize)> = (0..200)
            .map(|turn| turn * 7 % CLASSES)
            .map(|class| {
                let size = class_size(class);
                let block = classes[class].take(size, &source).0 as usize;
                assert!(block != 0 && block.is_multiple_of((1 << size.trailing_zeros()).min(4096)));
                (block, size)
            })
            .collect();
        blocks.sort_unstable();
        for pair in blocks.windows(2) {
            assert!(pair[0].0 + pair[0].1 <= pair[1].0, "{pair:x?}");
        }
    }

    #[test]
    fn zeroed_memory_is_zero_whoever_had_it() {
        for size in [16, 1000, 5000, 200_000] {
            let layout = Layout::from_size_align(size, 8).unwrap();
            for _ in 0..50 {
                // SAFETY: non-zero size, within the block, given back with the same layout.
                unsafe {
                    let block = Allocator.alloc_zeroed(layout);
                    let bytes = std::slice::from_raw_parts(block, size);
                    assert!(bytes.iter().all(|byte| *byte == 0), "{size}");
                    block.write_bytes(0xff, size);
                    Allocator.dealloc(block, layout);
                }
            }
        }
    }

    #[test]
    fn growing_keeps_contents() {
        let mut all = Vec::new();
        for i in 0..1_000_000u32 {
            all.push(i);
        }
        assert!(all.iter().enumerate().all(|(i, v)| i as u32 == *v));
    }
}
