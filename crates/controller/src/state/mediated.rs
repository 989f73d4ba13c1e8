//! How many inodes are mediated, and how many files are mapped by several sessions together, for whoever asks how the pool is.
//!
//! Invariant: it equals what the shadow inodes say, since each of them that changes is noted here.

use arck_core_state::{Inode, Mediation};

/// Inodes, by what is said of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mediated {
    /// By who may say so.
    pub said: u64,
    /// By the controller itself.
    pub found: u64,
    /// Files that several sessions may have writable maps of.
    pub together: u64,
}

impl Mediated {
    /// A shadow inode changes.
    pub fn note(&mut self, old: Option<&Inode>, new: Option<&Inode>) {
        let stored = |inode: Option<&Inode>| inode.map_or(0, |inode| inode.mediation);
        if stored(old) == stored(new) {
            return;
        }
        for (inode, counts) in [(old, false), (new, true)] {
            let Some(inode) = inode else { continue };
            let count = |count: &mut u64, is_one: bool| match (is_one, counts) {
                (false, _) => {}
                (true, true) => *count += 1,
                (true, false) => *count = count.saturating_sub(1),
            };
            count(&mut self.said, inode.mediation() == Mediation::On);
            count(&mut self.found, inode.mediation() == Mediation::Found);
            count(&mut self.together, inode.is_together());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::TOGETHER;
    use zerocopy::FromZeros;

    #[test]
    fn what_comes_and_goes_is_counted() {
        let file = |mediation: u32| Inode {
            mode: libc::S_IFREG,
            mediation,
            ..Inode::new_zeroed()
        };
        let (on, found) = (Mediation::On as u32, Mediation::Found as u32);
        let plain = [Mediation::Auto as u32, Mediation::Off as u32];
        let mut mediated = Mediated::default();
        let mut is = None;
        for (to, expected) in [
            (Some(on), [1, 0, 0]),
            (Some(found), [0, 1, 0]),
            (Some(found | TOGETHER), [0, 1, 1]),
            (Some(plain[1] | TOGETHER), [0, 0, 1]),
            (Some(plain[0]), [0, 0, 0]),
            (Some(on | TOGETHER), [1, 0, 1]),
            (None, [0, 0, 0]),
            (Some(plain[1]), [0, 0, 0]),
        ] {
            let new = to.map(file);
            mediated.note(is.as_ref(), new.as_ref());
            let Mediated {
                said,
                found,
                together,
            } = mediated;
            assert_eq!([said, found, together], expected, "{to:?}");
            is = new;
        }
    }
}
