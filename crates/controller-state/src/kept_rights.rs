//! Rights of what was open when they went away, as they are logged: each record says what is kept of an
//! inode for a user from now on.
//!
//! # Invariant
//! Nothing behind a record whose checksum does not hold counts.

use arck_core_state::InodeNumber;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of the file in the pool's directory.
pub const NAME: &str = "kept-rights";
/// While it is written anew.
pub const NEW_NAME: &str = "kept-rights.new";

/// A change.
#[derive(
    Clone, Copy, PartialEq, Eq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
#[repr(C)]
pub struct KeptRight {
    /// CRC32C of the rest.
    pub checksum: u32,
    pub inode: u32,
    pub generation: u32,
    pub user: u32,
    /// 4 = read, 2 = write; 0: nothing any more.
    pub rights: u32,
    pub reserved: u32,
}

/// Bytes of a change.
pub const KEPT_RIGHT_SIZE: usize = 24;
const _: () = assert!(size_of::<KeptRight>() == KEPT_RIGHT_SIZE);

impl KeptRight {
    pub fn new(inode: InodeNumber, generation: u32, user: u32, rights: u32) -> KeptRight {
        let mut record = KeptRight {
            inode,
            generation,
            user,
            rights,
            ..KeptRight::default()
        };
        record.checksum = record.sum();
        record
    }

    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[4..])
    }

    /// `None` if it is not whole.
    pub fn decode(bytes: [u8; KEPT_RIGHT_SIZE]) -> Option<KeptRight> {
        let record: KeptRight = zerocopy::transmute!(bytes);
        (record.checksum == record.sum()).then_some(record)
    }
}
