//! Marking pages as in use or not: one by one, and 64 at once, as those of a large file lie side by side.
//!
//! # Invariant
//! * The counts (of all pages in use, of those in a segment, of free metadata pages, of unused pages of sessions)
//!   follow the bits.

use crate::space::pages::{NOBODY, Space};
use arck_controller_state::segments::SegmentKind;
use arck_core_state::{PagePtr, cast};

/// What is said of the 64 pages of a word of the bitmap, a bit each.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Said {
    /// Of which of them something is said.
    pub of: u64,
    /// Those of them that are in use.
    pub used: u64,
}

impl Space {
    /// Marks a page as in use or not, in private memory.
    pub fn set_used(&mut self, page: PagePtr, is: bool) {
        if !self.geometry.contains(page) || self.is_used(page) == is {
            return;
        }
        let segment = self.geometry.segment_of(page) as usize;
        let bit = 1u64 << (page.0 % 64);
        let entry = &self.segments[segment];
        let is_metadata = entry.kind() == SegmentKind::Metadata && entry.class == NOBODY;
        if is {
            self.used[(page.0 / 64) as usize] |= bit;
            self.used_count += 1;
            self.used_in[segment] += 1;
            self.metadata_free -= u64::from(is_metadata);
            self.granted.take(entry, 1);
        } else {
            self.used[(page.0 / 64) as usize] &= !bit;
            self.used_count -= 1;
            self.used_in[segment] -= 1;
            self.metadata_free += u64::from(is_metadata);
            self.granted.add(entry, 1);
            self.may_have_unused |= self.used_in[segment] == 0;
        }
    }

    /// Marks pages of a word of the bitmap as in use or not, in private memory.
    pub fn set_word(&mut self, index: u64, said: Said) {
        let differing = (self.word(index) ^ said.used) & said.of;
        if differing == 0 {
            return;
        }
        let first = differing.trailing_zeros();
        let last = u64::BITS - 1 - differing.leading_zeros();
        let page = |bit: u32| PagePtr(index * 64 + u64::from(bit));
        let segment_of = |bit| {
            let is_there = self.geometry.contains(page(bit));
            is_there.then(|| self.geometry.segment_of(page(bit)))
        };
        let segment = segment_of(first).filter(|&segment| segment_of(last) == Some(segment));
        let Some(segment) = segment else {
            // They are of several segments, or some of none.
            for bit in (0..u64::BITS).filter(|bit| differing & 1 << bit != 0) {
                self.set_used(page(bit), said.used & 1 << bit != 0);
            }
            return;
        };
        let (taken, left) = (differing & said.used, differing & !said.used);
        let count = |bits: u64| u64::from(bits.count_ones());
        let at = segment as usize;
        let entry = &self.segments[at];
        let is_metadata = entry.kind() == SegmentKind::Metadata && entry.class == NOBODY;
        self.used[cast::index(index)] ^= differing;
        self.used_count = self.used_count + count(taken) - count(left);
        self.used_in[at] = self.used_in[at] + taken.count_ones() - left.count_ones();
        if is_metadata {
            self.metadata_free = self.metadata_free + count(left) - count(taken);
        }
        if taken != 0 {
            self.granted.take(entry, count(taken));
        }
        if left != 0 {
            self.granted.add(entry, count(left));
        }
        self.may_have_unused |= left != 0 && self.used_in[at] == 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;
    use proptest::prelude::*;

    /// All that is counted.
    fn counts(space: &Space) -> (u64, Vec<u32>, u64, u64, bool) {
        let of_others = space.granted.of_others(0);
        let unused = space.may_have_unused;
        (
            space.used_count,
            space.used_in.clone(),
            space.metadata_free,
            of_others,
            unused,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Words do what the same pages do one by one.
        #[test]
        fn words_are_as_their_pages(words in proptest::collection::vec((0u64..70, any::<u64>(), any::<u64>()), 1..40)) {
            let (mut one, mut other) = (TestCore::new(), TestCore::new());
            for test in [&mut one, &mut other] {
                let ann = test.session(1001, &[1001]);
                test.core.grant_segment(ann, false).unwrap();
            }
            let (one, other) = (&mut one.core.sessions.state.space, &mut other.core.sessions.state.space);
            prop_assert_eq!(counts(one), counts(other));
            // The last ones are beyond the pool's end.
            for (index, of, used) in words {
                let said = Said { of, used: used & of };
                one.set_word(index, said);
                for bit in (0..64).filter(|bit| of & 1 << bit != 0) {
                    other.set_used(PagePtr(index * 64 + bit), used & 1 << bit != 0);
                }
                prop_assert_eq!(one.word(index), other.word(index));
                prop_assert_eq!(counts(one), counts(other));
            }
        }
    }
}
