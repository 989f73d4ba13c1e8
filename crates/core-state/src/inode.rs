//! Inodes of the verified state: 128 bytes, in metadata segments of the class that may `stat`
//! them. Written by the controller alone.

use crate::geometry::PAGE_BYTES;
use crate::geometry::{PAGE_SIZE, PagePtr};
use crate::index::IndexRoot;
use crate::{PageWords, Pages};
use core::sync::atomic::Ordering;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of an inode; 32 of them fill a page.
pub const INODE_SIZE: usize = 128;

/// Type of a file, with the values of the upper four bits of `st_mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FileKind {
    Pipe = 1,
    CharacterDevice = 2,
    Directory = 4,
    BlockDevice = 6,
    File = 8,
    Link = 10,
    Socket = 12,
}

impl FileKind {
    pub fn from_u8(value: u8) -> Option<FileKind> {
        match value {
            1 => Some(FileKind::Pipe),
            2 => Some(FileKind::CharacterDevice),
            4 => Some(FileKind::Directory),
            6 => Some(FileKind::BlockDevice),
            8 => Some(FileKind::File),
            10 => Some(FileKind::Link),
            12 => Some(FileKind::Socket),
            _ => None,
        }
    }
    pub fn from_mode(mode: u32) -> Option<FileKind> {
        FileKind::from_u8((mode >> 12 & 0xf) as u8)
    }
    pub fn is_device(self) -> bool {
        matches!(self, FileKind::CharacterDevice | FileKind::BlockDevice)
    }
    /// The type bits of `st_mode`.
    pub fn mode_bits(self) -> u32 {
        u32::from(self as u8) << 12
    }
}

/// How sessions share a file that more than one of them writes (KucoFS, section 3): who writes it becomes its owner, or
/// sends what he writes to the controller, which applies it. Then it is *mediated*.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Mediation {
    /// By owners, until the controller finds that it would go back and forth between them.
    #[default]
    Auto = 0,
    /// By messages: nobody owns it for a write that fits in one.
    On = 1,
    /// By owners.
    Off = 2,
    /// By messages, until the controller finds that they are of no use any more.
    Found = 3,
}

impl Mediation {
    /// Of what is stored; a value that no version has stored is as none.
    pub fn from_stored(value: u32) -> Mediation {
        match value {
            1 => Mediation::On,
            2 => Mediation::Off,
            3 => Mediation::Found,
            _ => Mediation::Auto,
        }
    }

    /// Whether writes go by message.
    pub fn is_mediated(self) -> bool {
        matches!(self, Mediation::On | Mediation::Found)
    }
}

/// In [`Inode::mediation`] of a file, besides: its pages lie where every session that may write it can store to them, as
/// those have writable shared maps of it; what else writes it goes by message, in place.
pub const TOGETHER: u32 = 4;

/// The greatest number of a device: 12 bits of the kind of driver and 20 of the device, as Linux lays them out in
/// `mknod`'s argument and in `st_rdev`.
pub const DEVICE_MAX: u64 = u32::MAX as u64;

/// Nanoseconds since the epoch; reaches from the year 1677 to 2262.
pub type Nanoseconds = i64;

/// As stored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Inode {
    pub number: u32,
    pub generation: u32,
    /// Type and permission bits, as `st_mode`.
    pub mode: u32,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes. Of a directory: 4096 times the number of its buckets. Of a device: its number, as `mknod` takes
    /// it ([`DEVICE_MAX`]).
    pub size: u64,
    /// Root of the index of data pages, or of hash pages.
    pub root: IndexRoot,
    pub accessed: Nanoseconds,
    pub modified: Nanoseconds,
    pub changed: Nanoseconds,
    pub created: Nanoseconds,
    /// Data pages allocated.
    pub pages: u64,
    /// Of a directory: the directory that holds it (its own number for the root).
    pub parent: u32,
    /// Of a directory: names in it.
    pub entries: u32,
    /// How sessions share it that write it ([`Mediation`]); of a file, with [`TOGETHER`] or without.
    pub mediation: u32,
    pub reserved0: u32,
    /// Page of the extended attributes, of a file or directory; null = none.
    pub attributes: PagePtr,
    pub reserved: [u64; 3],
}
const _: () = assert!(size_of::<Inode>() == INODE_SIZE);
const _: () = assert!(PAGE_BYTES.is_multiple_of(INODE_SIZE));

impl Inode {
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    pub fn mediation(&self) -> Mediation {
        Mediation::from_stored(self.mediation & !TOGETHER)
    }

    /// The same is said, and all else of it stays.
    pub fn set_mediation(&mut self, mediation: Mediation) {
        self.mediation = self.mediation & TOGETHER | mediation as u32;
    }

    /// Whether several sessions may have writable shared maps of the file: see [`TOGETHER`].
    pub fn is_together(&self) -> bool {
        self.mediation & TOGETHER != 0 && self.kind() == Some(FileKind::File)
    }

    /// Whether what writes it goes by message: nobody owns it for that.
    pub fn goes_by_message(&self) -> bool {
        self.mediation().is_mediated() || self.is_together()
    }

    /// Copies the live inode at byte address `address`; to be validated by the sequence check.
    /// `None` if the address is outside the pool, crosses a page or is misaligned.
    pub fn read(pages: &impl Pages, address: u64) -> Option<Inode> {
        if !address.is_multiple_of(INODE_SIZE as u64) {
            return None;
        }
        let page: &PageWords = pages.page(PagePtr::of_address(address))?;
        let first = usize::try_from(address % PAGE_SIZE / 8).ok()?;
        let mut words = [0u64; INODE_SIZE / 8];
        for (word, live) in words.iter_mut().zip(page.get(first..)?) {
            *word = live.load(Ordering::Relaxed);
        }
        Some(zerocopy::transmute!(words))
    }
}
