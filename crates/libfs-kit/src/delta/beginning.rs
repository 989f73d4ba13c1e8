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
