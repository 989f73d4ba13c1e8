//! Orphans that are being freed, and those that stay at the expense of a user: see [`crate::freeing::orphans`].

use crate::space::number_set::NumberSet;
use arck_core_state::InodeNumber;
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::time::Instant;

/// Orphans that nobody keeps, and that nobody can open again: what is left of them is freed between other
/// things. They stay orphans until all of it is, so that a controller that is started again goes on.
#[derive(Default)]
pub struct Doomed {
    pub numbers: NumberSet,
    /// The orphans before this one have been looked at in this turn.
    pub looked_to: InodeNumber,
}

/// An orphan that a user keeps, and could keep too many of.
#[derive(Clone, Copy, Debug)]
pub struct Charge {
    pub user: u32,
    /// He could not open what it is, or has pages of.
    pub is_stranger: bool,
    /// With its inode.
    pub pages: u64,
}

/// What a user so keeps, or may.
#[derive(Clone, Copy, Debug, Default)]
pub struct Budget {
    pub inodes: u64,
    pub pages: u64,
}

impl Budget {
    /// In a pool of so many pages. For a stranger: a few files whose descriptors he was passed. For
    /// whoever has maps: what others rewrite of some large files.
    pub fn of(is_stranger: bool, page_count: u64) -> Budget {
        match is_stranger {
            true => Budget {
                inodes: 256,
                pages: page_count / 64,
            },
            false => Budget {
                inodes: 1 << 16,
                pages: page_count / 8,
            },
        }
    }
}

/// All charges, and what they come to for each user.
#[derive(Default)]
pub struct Charges {
    pub of: BTreeMap<InodeNumber, Charge>,
    pub totals: HashMap<(u32, bool), Budget>,
}

impl Charges {
    pub fn remove(&mut self, number: InodeNumber) {
        let Some(charge) = self.of.remove(&number) else {
            return;
        };
        let key = (charge.user, charge.is_stranger);
        if let Some(total) = self.totals.get_mut(&key) {
            total.inodes -= 1;
            total.pages -= charge.pages;
            if total.inodes == 0 {
                self.totals.remove(&key);
            }
        }
    }

    /// Charges an orphan that is charged to nobody, if that is within the budget.
    pub fn try_add(&mut self, number: InodeNumber, charge: Charge, budget: Budget) -> bool {
        let key = (charge.user, charge.is_stranger);
        let mut total = self.totals.get(&key).copied().unwrap_or_default();
        total.inodes += 1;
        total.pages += charge.pages;
        let fits = total.inodes <= budget.inodes && total.pages <= budget.pages;
        if fits {
            self.totals.insert(key, total);
            self.of.insert(number, charge);
        }
        fits
    }
}

/// Places of open tables that are looked at whenever an inode loses its last name: eight tables that are
/// full, which is more than programs have open.
pub const LISTINGS_AT_ONCE: usize = 1 << 20;

/// More than that are looked at for no more than one part in so many of the time.
pub const SHARE: u32 = 20;

/// When open tables that are very long, all together, are looked at again. Whoever makes them long
/// delays the freeing of what others delete, and not what others ask.
#[derive(Default)]
pub struct Pace {
    again: Option<Instant>,
}

impl Pace {
    /// Whether so many places may be looked at now.
    pub fn may_look(&self, places: usize, now: Instant) -> bool {
        places <= LISTINGS_AT_ONCE || self.again.is_none_or(|again| again <= now)
    }

    /// So many were looked at, from when to when.
    pub fn looked(&mut self, places: usize, began: Instant, now: Instant) {
        if places > LISTINGS_AT_ONCE {
            self.again = Some(now + now.saturating_duration_since(began) * SHARE);
        }
    }
}
