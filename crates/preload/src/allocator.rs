//! The memory allocator of everything linked into this library.
//!
//! The program's `malloc` cannot be used: a signal handler may call `write` on a pool file while
//! the interrupted code holds malloc's lock, and a program may bring an allocator that opens
//! files. So the LibFS allocates from here, and whoever holds a lock here counts as inside the
//! LibFS, where signals are put off (see `thread`): no lock is ever taken twice by one thread.
//!
//! Invariant: each size class's free list is changed only under the class's lock word. `fork`
//! takes all locks first ([`lock_all`]), so a child finds every list whole.

use crate::{raw, thread};
use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// Smallest block: 16 bytes. Class k holds blocks of 16, 24, 32, 48, 64, 96, ... bytes.
const CLASSES: usize = 26;
/// Blocks above this come straight from the kernel.
const LARGEST: usize = class_size(CLASSES - 1);
/// Memory is taken from the kernel in pieces of this size.
const CHUNK: usize = 256 * 1024;

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

struct Class {
    locked: AtomicBool,
    /// First free block; each free block's first word points to the next.
    free: AtomicPtr<u8>,
    /// Unused rest of the current chunk.
    fresh: AtomicPtr<u8>,
    fresh_end: AtomicPtr<u8>,
}

impl Class {
    const fn new() -> Self {
        Class {
            locked: AtomicBool::new(false),
            free: AtomicPtr::new(std::ptr::null_mut()),
            fresh: AtomicPtr::new(std::ptr::null_mut()),
            fresh_end: AtomicPtr::new(std::ptr::null_mut()),
        }
    }
    fn lock(&self) {
        let mut spins = 0u32;
        while self.locked.swap(true, Ordering::Acquire) {
            spins += 1;
            if spins.is_multiple_of(64) {
                // SAFETY: no arguments.
                unsafe { raw::syscall!(libc::SYS_sched_yield) };
            }
            std::hint::spin_loop();
        }
    }
    fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }
    fn take(&self, size: usize) -> *mut u8 {
        let _inside = thread::enter();
        self.lock();
        let mut block = self.free.load(Ordering::Relaxed);
        if !block.is_null() {
            // SAFETY: blocks on the list are free, at least 16 bytes, and hold the next pointer.
            self.free
                .store(unsafe { block.cast::<*mut u8>().read() }, Ordering::Relaxed);
        } else {
            block = self.fresh.load(Ordering::Relaxed);
            let end = self.fresh_end.load(Ordering::Relaxed);
            if (end as usize).wrapping_sub(block as usize) < size || block.is_null() {
                match raw::map_anonymous(CHUNK) {
                    Some(chunk) => {
                        block = chunk;
                        self.fresh_end
                            .store(chunk.wrapping_add(CHUNK), Ordering::Relaxed);
                    }
                    None => {
                        self.unlock();
                        return std::ptr::null_mut();
                    }
                }
            }
            self.fresh
                .store(block.wrapping_add(size), Ordering::Relaxed);
        }
        self.unlock();
        block
    }
    /// # Safety
    /// `block` was taken from this class and is not used any more.
    unsafe fn give(&self, block: *mut u8) {
        let _inside = thread::enter();
        self.lock();
        // SAFETY: the block is free and at least 16 bytes long.
        unsafe {
            block
                .cast::<*mut u8>()
                .write(self.free.load(Ordering::Relaxed))
        };
        self.free.store(block, Ordering::Relaxed);
        self.unlock();
    }
}

static ALL: [Class; CLASSES] = [const { Class::new() }; CLASSES];

/// The allocator; zero-sized, all state is static.
pub struct Allocator;

// SAFETY: blocks are disjoint pieces of private mappings, large enough and aligned for the
// layout (see `class_of`), and owned by the caller until given back.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match class_of(&layout) {
            Some(class) => ALL[class].take(class_size(class)),
            None => map_large(&layout),
        }
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
        class.lock();
    }
}

pub fn unlock_all() {
    for class in &ALL {
        class.unlock();
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

    #[test]
    fn growing_keeps_contents() {
        let mut all = Vec::new();
        for i in 0..1_000_000u32 {
            all.push(i);
        }
        assert!(all.iter().enumerate().all(|(i, v)| i as u32 == *v));
    }
}
