//! Sizes: pages, and the classes of what is allocated.

/// Bytes in a page of the region.
pub(super) const PAGE_SIZE: u64 = 4096;
/// Number of size classes for objects of at most a page.
pub(super) const CLASSES: usize = 14;
/// The largest size in bytes that is served from size classes; above it, whole pages.
pub const LARGEST_CLASS: usize = 4096;

pub(super) const SIZES: [u32; CLASSES] = [
    16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048, 4096,
];

/// Class by (size + 15) / 16, for sizes up to 1024.
const SMALL: [u8; 65] = {
    let mut table = [0; 65];
    let mut sixteenths = 0;
    let mut class = 0;
    while sixteenths < table.len() {
        if sixteenths * 16 > SIZES[class as usize] as usize {
            class += 1;
        }
        table[sixteenths] = class;
        sixteenths += 1;
    }
    table
};

/// Where an allocation of some size is served from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SizeClass {
    Class(u8),
    Pages(u32),
}

impl SizeClass {
    /// `None` if no region could hold that much.
    #[inline]
    pub fn of(length: usize) -> Option<Self> {
        if let Some(&class) = SMALL.get(length.div_ceil(16)) {
            Some(Self::Class(class))
        } else if length <= 2048 {
            Some(Self::Class(12))
        } else if length <= LARGEST_CLASS {
            Some(Self::Class(13))
        } else {
            let pages = length.div_ceil(PAGE_SIZE as usize);
            u32::try_from(pages).ok().map(Self::Pages)
        }
    }
}
