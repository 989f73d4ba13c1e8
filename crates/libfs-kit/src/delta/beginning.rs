//! The beginning of a branch, which is durable before anything is published in the branch.
//!
//! # Invariants
//! * What the view says of the branch ([`begun`]) is no more than is so: `DURABLE` is stored behind a fence that
//!   came after the flush, here alone.
//! * A [`BegunBranch`] is made here alone, when the beginning is durable.

use super::*;
use arck_pm::order::FlushedSet;
use std::sync::atomic::AtomicU32;

/// What a view says of its branch.
pub mod begun {
    /// There is no branch.
    pub const NOT: u32 = 0;
    /// It is there, but not certain to be durable: who goes on with it makes it so first.
    pub const STORED: u32 = 1;
    /// It is durable.
    pub const DURABLE: u32 = 2;
}

/// A branch that an operation has begun, or that another one has: whether its beginning is durable is only
/// known behind a fence. One that is dropped is begun all the same: the next operation makes it durable.
///
/// ```
/// use arck_libfs_kit::delta::{Beginning, Commit, Contents, Reached};
/// use arck_pm::{Durable, Flushed, order};
/// use rustix::io::Errno;
/// # #[allow(dead_code)]
/// fn grow(branch: &mut Beginning, filled: Flushed<Contents>) -> Result<Durable<Commit>, Errno> {
///     let (branch, filled) = branch.begun_with(filled);
///     let line = branch.line_0();
///     let (stored, _line) = branch.set_size(line, 4096, Reached::Contents(filled))?;
///     Ok(order::fence(stored))
/// }
/// ```
///
/// Nothing is published in a branch whose beginning has not been fenced:
///
/// ```compile_fail,E0599
/// # use arck_libfs_kit::delta::{Beginning, Commit, Contents, Reached};
/// # use arck_pm::{Durable, Flushed, order};
/// # use rustix::io::Errno;
/// fn grow(branch: &mut Beginning, filled: Durable<Contents>) -> Result<Durable<Commit>, Errno> {
///     let line = branch.line_0();
///     let (stored, _line) = branch.set_size(line, 4096, Reached::Contents(filled))?;
///     Ok(order::fence(stored))
/// }
/// ```
///
/// nor does a size reach bytes that have not:
///
/// ```compile_fail,E0308
/// # use arck_libfs_kit::delta::{Beginning, Commit, Contents, Reached};
/// # use arck_pm::{Durable, Flushed, order};
/// # use rustix::io::Errno;
/// fn grow(branch: &mut Beginning, filled: Flushed<Contents>) -> Result<Durable<Commit>, Errno> {
///     let branch = branch.durable();
///     let line = branch.line_0();
///     let (stored, _line) = branch.set_size(line, 4096, Reached::Contents(filled))?;
///     Ok(order::fence(stored))
/// }
/// ```
#[must_use = "a branch that is begun is not durable until it is fenced"]
pub struct Beginning {
    branch: Branch<'static>,
    /// What the view says of it.
    said: &'static AtomicU32,
    stored: Option<Flushed<Begun>>,
}

impl std::ops::Deref for Beginning {
    type Target = Branch<'static>;
    #[inline(always)]
    fn deref(&self) -> &Branch<'static> {
        &self.branch
    }
}

impl Beginning {
    /// The branch as the view says that it is, or as `begin` stores it; `begin` notes that it is stored.
    #[inline(always)]
    pub fn of(
        branch: Branch<'static>,
        said: &'static AtomicU32,
        begin: impl FnOnce(&Branch<'static>) -> Result<Flushed<Begun>, Errno>,
    ) -> Result<Beginning, Errno> {
        let stored = match said.load(Ordering::Acquire) {
            begun::DURABLE => None,
            begun::NOT => Some(begin(&branch)?),
            // Whoever began it may have stopped before it was durable.
            _ => Some(branch.flush()?),
        };
        Ok(Beginning {
            branch,
            said,
            stored,
        })
    }

    /// Whether nothing is left to be fenced.
    #[inline(always)]
    pub fn is_durable(&self) -> bool {
        self.stored.is_none()
    }

    /// Makes `others` durable, and the beginning with them, by one fence.
    #[inline(always)]
    #[track_caller]
    pub fn fence<S: FlushedSet>(&mut self, others: S) -> S::Durable {
        self.begun_with(others).1
    }

    /// As [`fence`](Self::fence), and gives the branch to publish in.
    #[inline(always)]
    #[track_caller]
    pub fn begun_with<S: FlushedSet>(&mut self, others: S) -> (BegunBranch<'static>, S::Durable) {
        let (begun, others) = order::fence((self.stored.take(), others));
        (self.begun(begun), others)
    }

    /// Makes the beginning durable if it is not; gives the branch to publish in.
    #[track_caller]
    pub fn durable(&mut self) -> BegunBranch<'static> {
        let begun = self.stored.take().map(order::fence);
        self.begun(begun)
    }

    /// `begun` is there unless the view says that the branch is durable.
    #[inline(always)]
    fn begun(&self, begun: Option<Durable<Begun>>) -> BegunBranch<'static> {
        if begun.is_some() && self.said.load(Ordering::Relaxed) == begun::STORED {
            self.said.store(begun::DURABLE, Ordering::Release);
        }
        BegunBranch(self.branch)
    }
}

/// Two branches by one fence, and `others` with them.
#[inline(always)]
#[track_caller]
pub(crate) fn fence_two<S: FlushedSet>(
    one: &mut Beginning,
    two: &mut Beginning,
    others: S,
) -> S::Durable {
    let (first, second, others) = order::fence((one.stored.take(), two.stored.take(), others));
    one.begun(first);
    two.begun(second);
    others
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::branch::BRANCH_SIZE;
    use std::sync::atomic::AtomicU64;

    fn branch() -> Branch<'static> {
        let words = (0..BRANCH_SIZE / 8).map(|_| AtomicU64::new(0));
        let words: &'static [AtomicU64] = Box::leak(words.collect());
        Branch {
            bytes: SharedBytes::from_words(words),
            offset: 0,
        }
    }

    /// What a view says of its branch is no more than is so, whoever stops where.
    #[test]
    fn a_view_says_that_its_branch_is_durable_behind_a_fence_alone() {
        let branch = branch();
        let said: &'static AtomicU32 = Box::leak(Box::new(AtomicU32::new(begun::NOT)));
        let begin = |branch: &Branch<'static>| {
            said.store(begun::STORED, Ordering::Release);
            branch.begin(&StoredBranch::unchanged(5, 1, 1, 1))
        };
        let again =
            |_: &Branch<'static>| -> Result<Flushed<Begun>, Errno> { panic!("it is begun") };
        let now = || said.load(Ordering::Relaxed);
        let proven = |_: Durable<InBranch>| ();
        // Who begins it stops before it is durable.
        drop(Beginning::of(branch, said, begin).unwrap());
        assert_eq!(now(), begun::STORED);
        // The next one goes on with it, and makes it durable.
        let mut next = Beginning::of(branch, said, again).unwrap();
        assert!(!next.is_durable());
        let time = next.put_accessed(7).unwrap();
        assert_eq!(now(), begun::STORED);
        proven(next.fence(time));
        assert!(next.is_durable());
        assert_eq!(now(), begun::DURABLE);
        // Then there is nothing left to be fenced.
        let mut last = Beginning::of(branch, said, again).unwrap();
        assert!(last.is_durable());
        last.durable();
        assert_eq!(now(), begun::DURABLE);
        // A fold has ended it meanwhile: a proof of before says nothing of the branch that is begun next.
        said.store(begun::NOT, Ordering::Relaxed);
        last.durable();
        assert_eq!(now(), begun::NOT);
    }
}
