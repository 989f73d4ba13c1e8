//! Read classes as they are stored: record *n* - 1 of their file is class *n*.
//!
//! # Invariant
//! A record counts only if its checksum holds and it says its own number: of what is damaged nobody is
//! sent anything.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Classes that a pool can have.
pub const CLASSES_MAX: usize = 4096;
/// Conditions that a class can have.
pub const CONDITIONS_MAX: usize = 20;

/// A permission check as it is stored: user, group, and who passes: 4 for the user, 2 for others of the
/// group, 1 for everybody else.
pub type StoredCondition = [u32; 3];

/// A read class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct StoredClass {
    /// CRC32C of the rest of the record.
    pub checksum: u32,
    pub number: u32,
    /// Conditions that count.
    pub count: u32,
    pub reserved: u32,
    pub conditions: [StoredCondition; CONDITIONS_MAX],
}

/// Bytes of a record.
pub const CLASS_SIZE: usize = 256;
const _: () = assert!(size_of::<StoredClass>() == CLASS_SIZE);

impl StoredClass {
    /// `None` if there are too many conditions.
    pub fn new(number: u32, conditions: &[StoredCondition]) -> Option<StoredClass> {
        let mut stored = StoredClass {
            checksum: 0,
            number,
            count: u32::try_from(conditions.len()).ok()?,
            reserved: 0,
            conditions: [StoredCondition::default(); CONDITIONS_MAX],
        };
        let places = stored.conditions.get_mut(..conditions.len())?;
        places.copy_from_slice(conditions);
        stored.checksum = stored.sum();
        Some(stored)
    }

    fn sum(&self) -> u32 {
        crc32c::crc32c(&self.as_bytes()[4..])
    }

    /// The conditions of class `number`; `None` if this is not whole, or another's.
    pub fn conditions(&self, number: u32) -> Option<&[StoredCondition]> {
        let count = usize::try_from(self.count).ok()?;
        let conditions = self.conditions.get(..count)?;
        (self.checksum == self.sum() && self.number == number).then_some(conditions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_damaged_or_elsewhere_is_no_class() {
        let conditions: Vec<_> = (1..=3).map(|uid| [uid, 7, 4]).collect();
        let class = StoredClass::new(5, &conditions).expect("few conditions");
        assert_eq!(class.conditions(5), Some(&conditions[..]));
        assert_eq!(class.conditions(6), None);
        for byte in 0..CLASS_SIZE {
            let mut bytes = [0; CLASS_SIZE];
            bytes.copy_from_slice(class.as_bytes());
            bytes[byte] ^= 1;
            let damaged: StoredClass = zerocopy::transmute!(bytes);
            assert_eq!(damaged.conditions(5), None, "byte {byte}");
        }
        let many = [StoredCondition::default(); CONDITIONS_MAX + 1];
        assert_eq!(StoredClass::new(1, &many), None);
    }
}
