//! The superblock: the first 4096 bytes of the file `superblock` in a pool's directory.
//!
//! # Invariant
//! Written whole by `mkfs`; afterwards only the controller changes `clean`, `boot` and `durability`
//! and then the checksum, by replacing the file atomically. All else is in the copy too, which
//! nobody touches as long as it is whole.

use crate::geometry::Geometry;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// "ARCKPOOL".
pub const MAGIC: u64 = u64::from_le_bytes(*b"ARCKPOOL");
/// Version of the format, apart from the program's version. Raised by every incompatible change.
pub const FORMAT_VERSION: u32 = 4;
/// Oldest version that is read: what such a pool holds means the same today.
pub const FORMAT_VERSION_OLDEST: u32 = 1;
/// Bytes of a stored superblock.
pub const SUPERBLOCK_SIZE: usize = 4096;

/// How what is stored becomes durable (DESIGN section 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Durability {
    /// Stores are durable once flushed and fenced (MAP_SYNC works).
    Dax = 1,
    /// Memory that lives as long as the machine (tmpfs, hugetlbfs).
    Volatile = 2,
    /// The kernel writes pages back; only `fsync` makes durable.
    Paged = 3,
}

impl Durability {
    pub fn from_u32(value: u32) -> Option<Durability> {
        match value {
            1 => Some(Durability::Dax),
            2 => Some(Durability::Volatile),
            3 => Some(Durability::Paged),
            _ => None,
        }
    }
}

/// As stored.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StoredSuperblock {
    pub magic: u64,
    pub format_version: u32,
    /// CRC32C of the whole block with this field zero.
    pub checksum: u32,
    pub uuid: [u8; 16],
    /// Bytes.
    pub segment_size: u64,
    pub segment_count: u32,
    pub inode_count: u32,
    /// [`Durability`] found at `mkfs`.
    pub durability: u32,
    /// 1 after a clean shutdown.
    pub clean: u32,
    /// Nanoseconds since the epoch.
    pub created: i64,
    /// Seed of the name hash (XXH3-64).
    pub hash_seed: u64,
    /// The machine's boot id when the pool was last opened (paged mode needs it).
    pub boot: [u8; 16],
    /// User who owns the pool and may run its controller.
    pub uid: u32,
    pub reserved0: u32,
    pub reserved: [u8; 4000],
}
const _: () = assert!(size_of::<StoredSuperblock>() == SUPERBLOCK_SIZE);

/// Decoded and checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Superblock {
    pub uuid: [u8; 16],
    pub geometry: Geometry,
    pub durability: Durability,
    pub clean: bool,
    pub created: i64,
    pub hash_seed: u64,
    pub boot: [u8; 16],
    pub uid: u32,
}

/// Why a superblock was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SuperblockError {
    #[error("it is not an Arck pool (no superblock)")]
    NotAPool,
    #[error(
        "its format is version {found}, this program knows versions {FORMAT_VERSION_OLDEST} to {FORMAT_VERSION}; use the program that made it"
    )]
    OtherVersion { found: u32 },
    #[error("its superblock is damaged (checksum or geometry)")]
    Damaged,
}

impl Superblock {
    /// As the copy has it: not closed, of no boot of the machine.
    pub fn lasting(&self) -> Superblock {
        Superblock {
            clean: false,
            boot: [0; 16],
            ..self.clone()
        }
    }

    /// Whether `copy` is one of this. The durability is found anew whenever a pool is opened.
    pub fn is_copied_by(&self, copy: &Superblock) -> bool {
        let same = Superblock {
            durability: self.durability,
            ..copy.clone()
        };
        same == self.lasting()
    }

    pub fn encode(&self) -> [u8; SUPERBLOCK_SIZE] {
        let mut stored = StoredSuperblock::new_zeroed_block();
        stored.uuid = self.uuid;
        stored.segment_size = self.geometry.segment_size;
        stored.segment_count = self.geometry.segment_count;
        stored.inode_count = self.geometry.inode_count;
        stored.durability = self.durability as u32;
        stored.clean = u32::from(self.clean);
        stored.created = self.created;
        stored.hash_seed = self.hash_seed;
        stored.boot = self.boot;
        stored.uid = self.uid;
        stored.checksum = checksum(&stored);
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(stored.as_bytes());
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Result<Superblock, SuperblockError> {
        let (stored, _) =
            StoredSuperblock::read_from_prefix(bytes).map_err(|_| SuperblockError::NotAPool)?;
        if stored.magic != MAGIC {
            return Err(SuperblockError::NotAPool);
        }
        // The version is looked at before the checksum: another version may sum otherwise.
        if !(FORMAT_VERSION_OLDEST..=FORMAT_VERSION).contains(&stored.format_version) {
            return Err(SuperblockError::OtherVersion {
                found: stored.format_version,
            });
        }
        let geometry = Geometry {
            segment_size: stored.segment_size,
            segment_count: stored.segment_count,
            inode_count: stored.inode_count,
        };
        if stored.checksum != checksum(&stored) || !geometry.is_sane() {
            return Err(SuperblockError::Damaged);
        }
        Ok(Superblock {
            uuid: stored.uuid,
            geometry,
            durability: Durability::from_u32(stored.durability).ok_or(SuperblockError::Damaged)?,
            clean: stored.clean == 1,
            created: stored.created,
            hash_seed: stored.hash_seed,
            boot: stored.boot,
            uid: stored.uid,
        })
    }
}

impl StoredSuperblock {
    fn new_zeroed_block() -> StoredSuperblock {
        let mut stored: StoredSuperblock = zerocopy::FromZeros::new_zeroed();
        stored.magic = MAGIC;
        stored.format_version = FORMAT_VERSION;
        stored
    }
}

fn checksum(stored: &StoredSuperblock) -> u32 {
    let mut copy = *stored;
    copy.checksum = 0;
    crc32c::crc32c(copy.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Superblock {
        Superblock {
            uuid: [7; 16],
            geometry: Geometry::for_pool_size(64 << 20).unwrap(),
            durability: Durability::Volatile,
            clean: true,
            created: 1,
            hash_seed: 42,
            boot: [9; 16],
            uid: 1000,
        }
    }

    #[test]
    fn survives_a_round_trip() {
        assert_eq!(Superblock::decode(&sample().encode()), Ok(sample()));
    }

    #[test]
    fn every_damaged_byte_is_noticed() {
        let good = sample().encode();
        for at in 0..SUPERBLOCK_SIZE {
            let mut bad = good;
            bad[at] ^= 0x10;
            assert!(Superblock::decode(&bad).is_err(), "byte {at}");
        }
    }

    #[test]
    fn a_copy_is_known_by_what_never_changes() {
        let copy = Superblock::decode(&sample().lasting().encode()).unwrap();
        assert!(!copy.clean && copy.boot == [0; 16]);
        let moved = Superblock {
            durability: Durability::Paged,
            clean: false,
            boot: [3; 16],
            ..sample()
        };
        assert!(sample().is_copied_by(&copy) && moved.is_copied_by(&copy));
        assert!(!sample().is_copied_by(&sample()));
        let other = Superblock {
            hash_seed: 43,
            ..copy
        };
        assert!(!sample().is_copied_by(&other));
    }

    #[test]
    fn an_older_version_is_read_and_becomes_this_one() {
        let mut stored = StoredSuperblock::read_from_bytes(&sample().encode()).unwrap();
        stored.format_version = FORMAT_VERSION_OLDEST;
        stored.checksum = checksum(&stored);
        let found = Superblock::decode(stored.as_bytes()).unwrap();
        assert_eq!(found, sample());
        assert_eq!(u32::from(found.encode()[8]), FORMAT_VERSION);
    }

    #[test]
    fn another_version_is_named() {
        let mut other = sample().encode();
        other[8] = 9;
        assert_eq!(
            Superblock::decode(&other),
            Err(SuperblockError::OtherVersion { found: 9 })
        );
        assert_eq!(
            Superblock::decode(&other[..100]),
            Err(SuperblockError::NotAPool)
        );
    }
}
