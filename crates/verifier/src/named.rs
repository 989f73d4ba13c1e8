//! Names that records take away or add, and whether they are verified names.
//!
//! # Invariant
//! * A name is looked up once, with all others of its directory.

use crate::effects::PlacedRecord;
use crate::fold_set::FoldSet;
use crate::order::Placed;
use crate::state::VerifiedState;
use arck_core_state::InodeNumber;
use arck_core_state::directory::Dentry;
use arck_core_state::in_order::{self, Sought};

/// A name that a record takes away or adds.
pub(crate) struct Place<'e, 'a> {
    pub placed: &'e PlacedRecord<'a>,
    pub directory: InodeNumber,
    pub name: &'a [u8],
    pub hash: u64,
    /// What it leads to, as the record says.
    pub dentry: Dentry,
    /// What the verified name leads to, if it was looked up and is one.
    pub verified: Option<Dentry>,
    /// Where it stands, or stood when it was looked for last.
    pub known: Option<in_order::Place>,
}

impl<'a> Place<'_, 'a> {
    /// Of a name that goes, and was found.
    pub fn gone(&self) -> Dentry {
        self.verified.unwrap_or(self.dentry)
    }

    pub fn sought(&self) -> Sought<'a> {
        Sought {
            hash: self.hash,
            name: self.name,
        }
    }
}

impl Place<'_, '_> {
    /// Whether it is the same name. Names are not looked at whose hashes differ.
    pub fn is_as(&self, other: &Place<'_, '_>) -> bool {
        (self.hash, self.directory) == (other.hash, other.directory) && self.name == other.name
    }
}

impl Placed for Place<'_, '_> {
    fn directory(&self) -> InodeNumber {
        self.directory
    }
    fn hash(&self) -> u64 {
        self.hash
    }
    fn name(&self) -> &[u8] {
        self.name
    }
}

/// Looks up the verified names of which it is not known yet that they are there.
pub(crate) fn look_up<S: VerifiedState>(
    set: &FoldSet<'_, S>,
    places: &mut [Place<'_, '_>],
    order: &[usize],
) {
    let mut order = order;
    while let Some(directory) = order.first().map(|&at| places[at].directory) {
        let is_of = |&at: &usize| places[at].directory == directory;
        let (run, others) = order.split_at(order.partition_point(is_of));
        order = others;
        let unknown = run.iter().copied();
        let unknown: Vec<usize> = unknown
            .filter(|&at| places[at].verified.is_none())
            .collect();
        let sought: Vec<Sought<'_>> = unknown.iter().map(|&at| places[at].sought()).collect();
        let mut tell = |number: usize, found: Option<(Dentry, Option<in_order::Place>)>| {
            let place = &mut places[unknown[number]];
            place.verified = found.map(|(dentry, _)| dentry);
            place.known = found.and_then(|(_, known)| known);
        };
        set.state.lookup_all(directory, &sought, &mut tell);
    }
}
