//! The order of a commit, in types: what an entry refers to is durable before the entry, and the entry before what
//! it says is put in place.
//!
//! # Invariants
//! * A [`Prepared`] is made by a fence alone, behind everything that the journal was told of.
//! * A [`Standing`] is made of a durable entry alone, or of one that was found when the pool was opened.
//! * A fence is for what its own thread has flushed: [`Unfenced`] says whose that is.
//!
//! A change is committed so:
//!
//! ```
//! use arck_controller::journal::{self, Beforehand, Journal, Pool};
//! use arck_controller_state::journal::Redo;
//! use arck_pm::Flushed;
//! use rustix::io::Errno;
//! # #[allow(dead_code)]
//! fn commit(
//!     journal: &mut Journal,
//!     pool: &Pool,
//!     redo: &Redo,
//!     fresh: Flushed<Beforehand>,
//! ) -> Result<(), Errno> {
//!     journal.await_fence(fresh);
//!     let prepared = journal.prepare();
//!     let standing = journal.write(redo, pool, true, prepared)?;
//!     journal::store(redo, pool, &standing, || {});
//!     let applied = journal::flush(redo, pool, |_| {});
//!     journal.has_applied(standing, applied);
//!     Ok(())
//! }
//! ```
//!
//! Without the fence before the entry that does not compile, whatever was flushed:
//!
//! ```compile_fail,E0308
//! # use arck_controller::journal::{self, Beforehand, Journal, Pool};
//! # use arck_controller_state::journal::Redo;
//! # use arck_pm::Flushed;
//! # use rustix::io::Errno;
//! fn commit(
//!     journal: &mut Journal,
//!     pool: &Pool,
//!     redo: &Redo,
//!     fresh: Flushed<Beforehand>,
//! ) -> Result<(), Errno> {
//!     let standing = journal.write(redo, pool, true, fresh)?;
//!     journal.has_applied(standing, None);
//!     Ok(())
//! }
//! ```
//!
//! nor does a fence of something else do, whose thread may have flushed nothing of it:
//!
//! ```compile_fail,E0308
//! # use arck_controller::journal::{self, Beforehand, Journal, Pool};
//! # use arck_controller_state::journal::Redo;
//! # use arck_pm::{Flushed, order};
//! # use rustix::io::Errno;
//! fn commit(
//!     journal: &mut Journal,
//!     pool: &Pool,
//!     redo: &Redo,
//!     fresh: Flushed<Beforehand>,
//! ) -> Result<(), Errno> {
//!     let standing = journal.write(redo, pool, true, order::fence(fresh))?;
//!     journal.has_applied(standing, None);
//!     Ok(())
//! }
//! ```
//!
//! One entry is prepared for once:
//!
//! ```compile_fail,E0382
//! # use arck_controller::journal::{self, Journal, Pool};
//! # use arck_controller_state::journal::Redo;
//! # use rustix::io::Errno;
//! fn commit(journal: &mut Journal, pool: &Pool, redo: &Redo) -> Result<(), Errno> {
//!     let prepared = journal.prepare();
//!     for _ in 0..2 {
//!         let standing = journal.write(redo, pool, true, prepared)?;
//!         journal.has_applied(standing, None);
//!     }
//!     Ok(())
//! }
//! ```
//!
//! and nothing is put in place before the entry is durable:
//!
//! ```compile_fail,E0308
//! # use arck_controller::journal::{self, Journal, Pool};
//! # use arck_controller_state::journal::Redo;
//! fn apply(journal: &mut Journal, pool: &Pool, redo: &Redo) {
//!     let prepared = journal.prepare();
//!     journal::store(redo, pool, &prepared, || {});
//! }
//! ```

use arck_pm::{Durable, Flushed, order};
use std::cell::Cell;
use std::thread::ThreadId;

/// What is flushed before an entry: new pages and inodes in their places, copies of what moves, entries of
/// sessions.
pub enum Beforehand {}
/// An entry of the journal.
pub enum Entry {}
/// What an entry says, in place.
pub enum Applied {}

/// All that the next entry refers to is durable, and all that the last one said.
#[must_use = "what is prepared is there for an entry"]
pub struct Prepared(());

/// An entry is durable: what it says may be put in place, and has to be before there is another one.
#[must_use = "an entry that stands is to be applied"]
pub struct Standing(());

impl Standing {
    pub(super) fn by(_entry: Durable<Entry>) -> Standing {
        Standing(())
    }

    /// Of the entry that was found when the pool was opened: it has outlived its writer.
    pub(super) fn found() -> Standing {
        Standing(())
    }
}

/// What was flushed, and no fence has made durable yet. Tokens are of a thread; this goes with the journal to
/// another one only when it is empty.
#[derive(Default)]
pub struct Unfenced {
    by: Cell<Option<ThreadId>>,
}

impl Unfenced {
    pub(super) fn add<T>(&self, _flushed: Flushed<T>) {
        self.expect_own();
        self.by.set(Some(std::thread::current().id()));
    }

    #[track_caller]
    pub(super) fn fence(&self) {
        self.expect_own();
        order::drain(None::<Flushed>);
        self.by.set(None);
    }

    #[track_caller]
    pub(super) fn prepared(&self) -> Prepared {
        self.fence();
        Prepared(())
    }

    fn expect_own(&self) {
        debug_assert!(
            self.by
                .get()
                .is_none_or(|by| by == std::thread::current().id()),
            "what another thread has flushed is for that to fence"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_pm::SharedBytes;
    use std::sync::atomic::AtomicU64;

    #[test]
    #[cfg_attr(
        not(debug_assertions),
        ignore = "looks at an assertion of debug builds"
    )]
    fn another_thread_does_not_fence_what_this_one_has_flushed() {
        let memory: Vec<AtomicU64> = (0..8).map(|_| AtomicU64::new(0)).collect();
        let bytes = SharedBytes::from_words(&memory);
        let unfenced = Unfenced::default();
        unfenced.add(bytes.write(0, &[1; 8]).unwrap().flush());
        let unfenced = std::thread::spawn(move || {
            let fence = std::panic::AssertUnwindSafe(|| unfenced.fence());
            std::panic::catch_unwind(fence).expect_err("it was not this thread's");
        })
        .join();
        unfenced.unwrap();
        let unfenced = Unfenced::default();
        unfenced.add(bytes.write(0, &[2; 8]).unwrap().flush());
        unfenced.fence();
        let elsewhere = std::thread::spawn(move || unfenced.fence());
        elsewhere.join().unwrap();
    }
}
