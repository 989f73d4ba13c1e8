//! Names in the order in which buckets lie.
//!
//! # Invariants
//! * Names stand by directory, in each bucket by bucket, however many buckets there are; equal ones follow each other, in
//!   the order in which their records stand.
//! * What a session writes cannot make that slow, as it could a table of hashes: names are dealt out by the first bits of
//!   their hashes, and each part is sorted.

use arck_core_state::directory::bucket_order;
use arck_core_state::{InodeNumber, cast};

/// Fewer names are sorted as they are.
const DEALT_OUT: usize = 64;

/// What a name is put in order by.
pub(crate) trait Placed {
    fn directory(&self) -> InodeNumber;
    fn hash(&self) -> u64;
    fn name(&self) -> &[u8];
}

/// The places of all names among them, in order.
pub(crate) fn bucket_by_bucket(names: &[impl Placed]) -> Vec<usize> {
    let keys = || {
        let numbered = (0..).zip(names);
        numbered.map(|(at, name)| (name.directory(), bucket_order(name.hash()), at))
    };
    let mut order: Vec<(InodeNumber, u64, u32)> = match names {
        [first, .., last]
            if names.len() >= DEALT_OUT
                && first.directory() == last.directory()
                && names
                    .iter()
                    .all(|name| name.directory() == first.directory()) =>
        {
            dealt_out(keys, names.len())
        }
        _ => {
            let mut order: Vec<_> = keys().collect();
            order.sort_unstable();
            order
        }
    };
    for same in order.chunk_by_mut(|one, next| (one.0, one.1) == (next.0, next.1)) {
        if same.len() > 1 {
            same.sort_unstable_by_key(|&(_, _, at)| (names[at as usize].name(), at));
        }
    }
    order.into_iter().map(|(_, _, at)| at as usize).collect()
}

/// Names of one directory: about as many parts as names, each of them sorted.
fn dealt_out<I: Iterator<Item = (InodeNumber, u64, u32)>>(
    keys: impl Fn() -> I,
    count: usize,
) -> Vec<(InodeNumber, u64, u32)> {
    let bits = count.ilog2();
    let part = |hash: u64| cast::index(hash >> (u64::BITS - bits));
    // Where each part begins, and then where its next one goes.
    let mut next = vec![0u32; (1 << bits) + 1];
    for (_, hash, _) in keys() {
        next[part(hash) + 1] += 1;
    }
    let mut begin = 0;
    for next in &mut next {
        begin += *next;
        *next = begin;
    }
    let mut order = vec![(0, 0, 0); count];
    for key in keys() {
        let place = &mut next[part(key.1)];
        order[*place as usize] = key;
        *place += 1;
    }
    for part in order.chunk_by_mut(|one, next| part(one.1) == part(next.1)) {
        if part.len() > 1 {
            part.sort_unstable();
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Placed for (InodeNumber, u64, Vec<u8>) {
        fn directory(&self) -> InodeNumber {
            self.0
        }
        fn hash(&self) -> u64 {
            self.1
        }
        fn name(&self) -> &[u8] {
            &self.2
        }
    }

    proptest! {
        #[test]
        fn names_stand_in_order(directories in 1u32..3, mask in prop_oneof![Just(3), Just(u64::MAX), Just(!0 << 60)],
            names in prop::collection::vec((any::<u32>(), any::<u64>(), prop::collection::vec(0u8..3, 0..3)), 0..300)) {
            let mut names = names;
            for name in &mut names {
                name.0 %= directories;
                name.1 &= mask;
            }
            let order = bucket_by_bucket(&names);
            let mut expected: Vec<usize> = (0..names.len()).collect();
            expected.sort_by_key(|&at| (names[at].0, names[at].1.reverse_bits(), &names[at].2, at));
            prop_assert_eq!(order, expected);
        }
    }
}
