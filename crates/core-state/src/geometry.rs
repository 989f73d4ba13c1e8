//! Units, pointers and the shape of a pool.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes in a page.
pub const PAGE_SIZE: u64 = 4096;
/// The same, of what is in memory.
pub const PAGE_BYTES: usize = 4096;
const _: () = assert!(PAGE_BYTES as u64 == PAGE_SIZE);
/// Bytes in a cache line: the unit of flushing.
pub const CACHE_LINE: u64 = 64;
/// Longest name, in bytes.
pub const NAME_MAX: usize = 255;
/// Longest path and symbolic-link target, in bytes without the terminator.
pub const PATH_MAX: usize = 4095;
/// Largest file, in bytes (an index of height 4 would reach further).
pub const FILE_SIZE_MAX: u64 = 1 << 47;
/// Most links an inode may have.
pub const LINKS_MAX: u32 = 1 << 31;

/// Number of an inode, an index into the header table. 0 is never used.
pub type InodeNumber = u32;
/// Number of a segment.
pub type SegmentNumber = u32;
/// Number of a session; 0 = nobody. Never reused in the lifetime of a pool.
pub type SessionNumber = u32;
/// The root directory.
pub const ROOT_INODE: InodeNumber = 1;

/// A page of the pool: its number, counted over all segments. 0 is null (page 0 of segment 0 is
/// never allocated).
#[derive(
    Clone,
    Copy,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    Debug,
    Default,
    FromBytes,
    IntoBytes,
    Immutable,
    KnownLayout,
)]
#[repr(transparent)]
pub struct PagePtr(pub u64);

impl PagePtr {
    pub const NULL: PagePtr = PagePtr(0);
    pub fn is_null(self) -> bool {
        self.0 == 0
    }
    /// Byte address in the pool's address space.
    pub fn address(self) -> u64 {
        self.0.wrapping_mul(PAGE_SIZE)
    }
    /// The page that holds byte address `address`.
    pub fn of_address(address: u64) -> PagePtr {
        PagePtr(address / PAGE_SIZE)
    }
}

/// The fixed shape of a pool, as the superblock tells it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Geometry {
    /// Bytes in a segment: a power of two from 256 KiB to 16 MiB.
    pub segment_size: u64,
    pub segment_count: u32,
    /// Entries in the header table, entry 0 included.
    pub inode_count: u32,
}

impl Geometry {
    /// Smallest pool, in bytes.
    pub const POOL_SIZE_MIN: u64 = 16 << 20;
    /// Largest pool, in bytes.
    pub const POOL_SIZE_MAX: u64 = 1 << 44;
    /// Smallest segment, in bytes: its pages fill a word of the page bitmap.
    pub const SEGMENT_SIZE_MIN: u64 = 64 * PAGE_SIZE;
    /// Largest segment, in bytes.
    pub const SEGMENT_SIZE_MAX: u64 = 16 << 20;

    /// The shape for a pool of `size` bytes: segments of 256 KiB below 32 MiB, 512 KiB below 64 MiB,
    /// 1 MiB below 128 MiB, 2 MiB below 1 GiB, 4 MiB below 16 GiB, 8 MiB below 64 GiB, else 16 MiB;
    /// one inode for each page. `None` outside the limits.
    ///
    /// Each user who writes takes segments of his own, and each read class another: even a small
    /// pool has enough for a few users. In a large one they are long, for short tables and few maps.
    pub fn for_pool_size(size: u64) -> Option<Geometry> {
        if !(Self::POOL_SIZE_MIN..=Self::POOL_SIZE_MAX).contains(&size) {
            return None;
        }
        let (mib, gib) = (1u64 << 20, 1u64 << 30);
        let segment_size = match size {
            s if s < 32 * mib => Self::SEGMENT_SIZE_MIN,
            s if s < 64 * mib => mib / 2,
            s if s < 128 * mib => mib,
            s if s < gib => 2 * mib,
            s if s < 16 * gib => 4 * mib,
            s if s < 64 * gib => 8 * mib,
            _ => Self::SEGMENT_SIZE_MAX,
        };
        let inodes = (size / PAGE_SIZE).clamp(4096, u64::from(u32::MAX) / 2);
        Some(Geometry {
            segment_size,
            segment_count: u32::try_from(size / segment_size).ok()?,
            inode_count: u32::try_from(inodes).ok()?,
        })
    }

    /// Whether the numbers are ones that [`Geometry::for_pool_size`] could have given: what is
    /// read from a superblock is checked by this before anything is computed from it.
    pub fn is_sane(&self) -> bool {
        self.segment_size.is_power_of_two()
            && (Self::SEGMENT_SIZE_MIN..=Self::SEGMENT_SIZE_MAX).contains(&self.segment_size)
            && self.segment_count >= 4
            && self.segment_size * u64::from(self.segment_count) <= Self::POOL_SIZE_MAX
            && (4096..=u32::MAX / 2).contains(&self.inode_count)
    }

    pub fn pages_per_segment(&self) -> u64 {
        self.segment_size / PAGE_SIZE
    }
    pub fn page_count(&self) -> u64 {
        self.pages_per_segment() * u64::from(self.segment_count)
    }
    /// Bytes of address space for all segments.
    pub fn span(&self) -> u64 {
        self.segment_size * u64::from(self.segment_count)
    }
    /// Non-null and inside the pool.
    pub fn contains(&self, page: PagePtr) -> bool {
        !page.is_null() && page.0 < self.page_count()
    }
    /// Segment of a page; meaningful for pages that the pool contains.
    pub fn segment_of(&self, page: PagePtr) -> SegmentNumber {
        // Bounded by `segment_count`, a u32, for contained pages.
        u32::try_from(page.0 / self.pages_per_segment()).unwrap_or(SegmentNumber::MAX)
    }
    pub fn first_page(&self, segment: SegmentNumber) -> PagePtr {
        PagePtr(u64::from(segment) * self.pages_per_segment())
    }
    /// Bytes of the header table.
    pub fn header_table_size(&self) -> u64 {
        (u64::from(self.inode_count) * 64).next_multiple_of(PAGE_SIZE)
    }
    /// Bytes of the page bitmap: one bit per page.
    pub fn page_bitmap_size(&self) -> u64 {
        self.page_count().div_ceil(8).next_multiple_of(PAGE_SIZE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All shapes are ones that a superblock may name, use all but the last segment's worth of the
    /// size, and have segments enough for several users.
    #[test]
    fn shapes_of_all_sizes() {
        let mut size = Geometry::POOL_SIZE_MIN;
        let mut last = 0;
        while size <= Geometry::POOL_SIZE_MAX {
            for size in [size, size + PAGE_SIZE, 2 * size - PAGE_SIZE] {
                let Some(shape) = Geometry::for_pool_size(size) else {
                    assert!(size > Geometry::POOL_SIZE_MAX);
                    continue;
                };
                assert!(shape.is_sane(), "{shape:?}");
                assert!(shape.pages_per_segment().is_multiple_of(64), "{shape:?}");
                assert!(shape.segment_count >= 64, "{shape:?}");
                assert!(shape.segment_size >= last, "{shape:?}");
                assert!((0..shape.segment_size).contains(&(size - shape.span())));
                last = shape.segment_size;
            }
            size *= 2;
        }
        assert_eq!(last, Geometry::SEGMENT_SIZE_MAX);
        assert_eq!(
            Geometry::for_pool_size(Geometry::POOL_SIZE_MIN - 1),
            None::<Geometry>
        );
    }
}
