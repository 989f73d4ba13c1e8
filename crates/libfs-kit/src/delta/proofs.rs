//! What proofs of durability are about: each store that commits asks for that of what it refers to.
//!
//! # Invariants
//! * Who leaves out a fence, or passes the proof of something else, does not compile.
//! * A [`Ready`] is made here alone, and only with the proofs that its kind of record asks for.

use super::{Beginning, fence_two};
use arck_core_state::FileKind;
use arck_core_state::record::Record;
use arck_pm::order::FlushedSet;
use arck_pm::{Durable, Flushed};
use rustix::io::Errno;

/// The beginning of a branch: that it exists.
pub enum Begun {}
/// Fields of a branch that refer to nothing: times, a mode, limits.
pub enum InBranch {}
/// The name of a directory, in the branch of an inode that a record in that directory's delta speaks of.
pub enum Partner {}
/// Bytes in data pages.
pub enum Contents {}
/// Entries of a delta's index.
pub enum Entries {}
/// The store that commits an operation.
pub enum Commit {}

/// What a file's size reaches when it grows.
pub enum Reached {
    /// Nothing that was stored.
    Hole,
    /// Bytes in pages to which entries lead already, or that the branch names in the line of the size.
    Contents(Durable<Contents>),
    /// Bytes, and the entries that lead to them.
    Entries(Durable<Contents>, Durable<Entries>),
}

/// What an entry of a delta's index is to be.
pub enum Entry<'p> {
    /// It leads to this page.
    Page(u64, &'p Durable<Contents>),
    /// There is a hole in the place of a verified page.
    Hole,
}

/// That the branch of another inode of an operation durably names the directory in whose delta its record
/// stands, so that no fold takes the one without the other.
pub struct Named(());

impl Named {
    /// Of an inode that was never committed, and loses its only name: nobody else knows of it.
    pub(crate) fn of_uncommitted() -> Named {
        Named(())
    }

    /// Makes it durable that a branch names its partner.
    #[track_caller]
    pub fn by(branch: &mut Beginning, partner: Flushed<Partner>) -> Named {
        Named::proven(branch.fence(partner))
    }

    /// As [`Named::by`], of two branches that name each other, and makes `others` durable with that.
    #[track_caller]
    pub fn by_both<S: FlushedSet>(
        one: (&mut Beginning, Flushed<Partner>),
        two: (&mut Beginning, Flushed<Partner>),
        others: S,
    ) -> (Named, S::Durable) {
        let partners = one.1.join(two.1);
        let (partners, others) = fence_two(one.0, two.0, (partners, others));
        (Named::proven(partners), others)
    }

    fn proven(_partner: Durable<Partner>) -> Named {
        Named(())
    }
}

/// What a new inode has when it is created.
pub enum Created<'p> {
    Empty,
    /// Contents, a symbolic link's target among them, and a branch that leads to them.
    With(&'p Durable<Contents>, &'p Durable<Begun>),
    /// A device's number, in its branch.
    Numbered(&'p Durable<Begun>),
}

/// What is replaced by a name that moves.
pub enum Replaces<'p> {
    /// Nothing, or a name of a file.
    Link,
    /// A directory, whose branch names the one that holds it.
    Directory(&'p Named),
}

/// A record that may be appended, since what it refers to is durable. A name that moves to another
/// directory needs both to be named in the branch of the other, durably:
///
/// ```
/// use arck_core_state::record::Record;
/// use arck_libfs_kit::delta::{Beginning, Named, Partner, Ready, Replaces};
/// use arck_pm::Flushed;
/// # #[allow(dead_code)]
/// fn ready<'n>(
///     record: Record<'n>,
///     one: (&mut Beginning, Flushed<Partner>),
///     other: (&mut Beginning, Flushed<Partner>),
/// ) -> Ready<'n> {
///     let (named, _) = Named::by_both(one, other, None::<Flushed>);
///     Ready::move_across(record, 7, &named, Replaces::Link)
/// }
/// ```
///
/// Without the fence in there that does not compile:
///
/// ```compile_fail,E0308
/// # use arck_core_state::record::Record;
/// # use arck_libfs_kit::delta::{Named, Partner, Ready, Replaces};
/// # use arck_pm::Flushed;
/// fn ready<'n>(record: Record<'n>, one: Flushed<Partner>, other: Flushed<Partner>) -> Ready<'n> {
///     Ready::move_across(record, 7, &one.join(other), Replaces::Link)
/// }
/// ```
///
/// nor with the proof of something else, as of a time that was set:
///
/// ```compile_fail,E0308
/// # use arck_core_state::record::Record;
/// # use arck_libfs_kit::delta::{Beginning, InBranch, Named, Ready, Replaces};
/// # use arck_pm::Flushed;
/// fn ready<'n>(record: Record<'n>, branch: &mut Beginning, time: Flushed<InBranch>) -> Ready<'n> {
///     Ready::move_across(record, 7, &Named::by(branch, time), Replaces::Link)
/// }
/// ```
///
/// A new inode that has contents is named when they are durable, and not as soon as they are flushed:
///
/// ```compile_fail,E0308
/// # use arck_core_state::record::Record;
/// # use arck_libfs_kit::delta::{Begun, Created, Contents, Ready};
/// # use arck_pm::Flushed;
/// # use rustix::io::Errno;
/// fn ready<'n>(
///     record: Record<'n>,
///     contents: &Flushed<Contents>,
///     branch: &Flushed<Begun>,
/// ) -> Result<Ready<'n>, Errno> {
///     Ready::creation(record, Created::With(contents, branch))
/// }
/// ```
///
/// and no record is ready by itself:
///
/// ```compile_fail,E0423
/// # use arck_core_state::record::Record;
/// # use arck_libfs_kit::delta::Ready;
/// fn ready<'n>(record: Record<'n>) -> Ready<'n> {
///     Ready(record)
/// }
/// ```
pub struct Ready<'n>(Record<'n>);

impl<'n> Ready<'n> {
    /// The first name of a new inode, in the place of a file's or of none. EIO: a symbolic link without a
    /// target, a device without a number, or contents of what has none.
    pub fn creation(record: Record<'n>, created: Created<'_>) -> Result<Ready<'n>, Errno> {
        match (record.kind, created) {
            (FileKind::Link, Created::Empty) | (FileKind::Directory, Created::With(..)) => {
                Err(Errno::IO)
            }
            (kind, created) if kind.is_device() != matches!(created, Created::Numbered(_)) => {
                Err(Errno::IO)
            }
            _ => Ok(Ready::within(record)),
        }
    }

    /// Takes the name of a file away.
    pub fn removal(record: Record<'n>) -> Ready<'n> {
        Ready::within(record)
    }

    /// Takes the name of a directory away, or adds one for an inode that has others: its branch names
    /// the directory.
    pub fn naming(record: Record<'n>, _named: &Named) -> Ready<'n> {
        Ready::within(record)
    }

    /// Moves a name within its directory.
    pub fn move_within(record: Record<'n>, _replaces: Replaces<'_>) -> Ready<'n> {
        Ready::within(record)
    }

    /// Moves a name from directory `from` to another: the branch of each names the other.
    pub fn move_across(
        record: Record<'n>,
        from: u32,
        _named: &Named,
        _replaces: Replaces<'_>,
    ) -> Ready<'n> {
        Ready(Record {
            source_directory: from,
            ..record
        })
    }

    /// Whatever the record says of another directory needs a proof.
    fn within(record: Record<'n>) -> Ready<'n> {
        Ready(Record {
            source_directory: 0,
            ..record
        })
    }

    pub(crate) fn record(&self) -> &Record<'n> {
        &self.0
    }

    /// Its place among the records of its tail.
    pub(crate) fn set_sequence(&mut self, sequence: u32) {
        self.0.sequence = sequence;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_core_state::record::{RecordRef, effect};

    fn record(kind: FileKind) -> Record<'static> {
        Record {
            state: effect::ADD,
            sequence: 0,
            kind,
            inode: 5,
            generation: 1,
            source_directory: 3,
            mode: 0o644,
            uid: 0,
            gid: 0,
            created: 0,
            changed: None,
            kills: [RecordRef::default(); 2],
            name: b"name",
            source: b"",
        }
    }

    #[test]
    fn nothing_is_born_without_what_it_is_by() {
        assert!(Ready::creation(record(FileKind::Link), Created::Empty).is_err());
        assert!(Ready::creation(record(FileKind::File), Created::Empty).is_ok());
        assert!(Ready::creation(record(FileKind::BlockDevice), Created::Empty).is_err());
    }

    #[test]
    fn only_a_move_speaks_of_another_directory() {
        let within = [
            Ready::removal(record(FileKind::File)),
            Ready::naming(record(FileKind::File), &Named(())),
            Ready::move_within(record(FileKind::File), Replaces::Link),
        ];
        for ready in within {
            assert_eq!(ready.record().source_directory, 0);
        }
        let across = Ready::move_across(record(FileKind::File), 9, &Named(()), Replaces::Link);
        assert_eq!(across.record().source_directory, 9);
    }
}
