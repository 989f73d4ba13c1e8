//! What the allocator and the reclamation of memory keep in a region: the heap's pages and spans, the caches
//! of thread slots, retired memory. What may be done with each, and under which lock, its own module says:
//! [`allocator`](super::allocator), [`epoch`](super::epoch), [`build`](super::build).

use super::lock::Lock;
use super::sizes::CLASSES;
use crate::region_shared;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Objects that a magazine can hold at most.
pub(super) const MAGAZINE: usize = 32;
/// Entries of a bag.
pub(super) const BAG_ENTRIES: usize = 125;
/// Bins by length of run: exact up to 7 pages, then four per power of two.
pub(super) const BINS: usize = 128;
/// Values of the mark: nothing is believed, nor allocated; another build is under way.
pub(super) const DAMAGED: u32 = 1;
pub(super) const BUILDING: u32 = 2;

region_shared! {
    pub(super) struct Magazine {
        /// Entries below this are free objects. Written only by the slot's thread.
        pub(super) count: AtomicU32,
        pub(super) reserved: AtomicU32,
        pub(super) entries: [AtomicU64; MAGAZINE],
    }

    /// What a thread slot keeps in the auxiliary part: changed by its thread alone.
    pub(super) struct SlotCache {
        pub(super) magazines: [Magazine; CLASSES],
        /// The bag being filled with retired memory; see the epoch module.
        pub(super) bag: AtomicU64,
        /// Sealed bags, oldest first.
        pub(super) oldest: AtomicU64,
        pub(super) newest: AtomicU64,
        pub(super) line: [AtomicU64; 3],
        /// For when no other bag can be allocated; in use while its count is not 0.
        pub(super) emergency: Bag,
    }

    /// Retired memory: 1024 bytes.
    pub(super) struct Bag {
        pub(super) next: AtomicU64,
        /// The stamp; meaningless until the bag is sealed.
        pub(super) epoch: AtomicU64,
        pub(super) count: AtomicU64,
        pub(super) entries: [AtomicU64; BAG_ENTRIES],
    }

    /// Numbers of pages.
    pub(super) struct Builds {
        /// Pages below it are for good; 0 = the region is not ready yet.
        pub(super) permanent: AtomicU32,
        /// The first page of this build.
        pub(super) begin: AtomicU32,
        /// Where the frontier ends.
        pub(super) limit: AtomicU32,
        /// The pages of the build before.
        pub(super) kept_begin: AtomicU32,
        pub(super) kept_end: AtomicU32,
        /// The first page of the build that is being built.
        pub(super) building: AtomicU32,
        /// Pages of each half from here on have never had memory, or were given back.
        pub(super) high: [AtomicU32; 2],
    }

    /// What is known of one page of the heap; see the two modules for who may change what.
    pub(super) struct PageDescriptor {
        pub(super) state: AtomicU32,
        /// At the first page of a run: its length in pages.
        pub(super) length: AtomicU32,
        /// Neighbours in a bin, or in the list of spans with free objects.
        pub(super) next: AtomicU32,
        pub(super) previous: AtomicU32,
        /// The first page of the run: at the last page of a free run, at all pages of a span.
        pub(super) start: AtomicU32,
        /// In a span: number of the first free object, from 1; 0 for none.
        pub(super) free: AtomicU32,
        /// In a span: objects in magazines and in use. In a free run: dirty pages.
        pub(super) used: AtomicU32,
        /// In a span: objects from this one on were never handed out.
        pub(super) fresh: AtomicU32,
    }

    pub(super) struct PagePool {
        pub(super) lock: Lock,
        /// The first page that this build has not used.
        pub(super) frontier: AtomicU32,
        pub(super) builds: Builds,
        pub(super) in_use: AtomicU64,
        pub(super) large: AtomicU64,
        pub(super) dirty: AtomicU64,
        /// One bit per bin that is not empty.
        pub(super) occupied: [AtomicU64; BINS / 64],
        pub(super) bins: [AtomicU32; BINS],
    }

    /// The spans of one size class, on a line of its own.
    pub(super) struct CentralList {
        pub(super) lock: Lock,
        /// The first span with free objects, by its first page; 0 for none.
        pub(super) partial: AtomicU32,
        /// Objects in magazines and in use.
        pub(super) out: AtomicU64,
        pub(super) line: [AtomicU64; 6],
    }
}
