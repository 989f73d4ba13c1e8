//! Changes of names: taking one away, adding one for an inode that is there, moving one.
//!
//! Who may do so, and what the names must be, is for the LibFS to say; here is what is stored, in which
//! order, and what the views show then.
//!
//! # Invariants
//! * An operation commits by one store: a record that becomes valid, or an effect of a record
//!   taken back. What a move replaces and removes is said in its one record.
//! * Before a record can be valid that speaks of a second branch, that branch durably names the first one's
//!   directory (DESIGN section 4), so that a fold of one takes the other along: [`Named`] proves that.
//! * What a view shows changes when the operation stands, not before.
//!
//! Locks: the caller has those of the names, and of directories that are removed or replaced, as a whole.

use super::Context;
use crate::changing::{Confirmed, Expected, Published};
use crate::delta::{self, Branch, InBranch, Named, Ready, Replaces};
use crate::names::lookup::Found;
use crate::need::{Attempt, Need};
use crate::views::overlay::Prepared;
use crate::views::times::now;
use crate::views::{CachedInode, Directory, Stripe, flag};
use arck_core_state::InodeNumber;
use arck_core_state::directory::Dentry;
use arck_core_state::record::{Record, RecordRef, effect};
use arck_pm::Durable;
use rustix::io::Errno;
use std::sync::atomic::{AtomicU32, Ordering};

/// A name in a directory that is being changed: locked, the first check made, and looked up since.
#[derive(Clone, Copy)]
pub struct Name<'n> {
    pub directory: Directory,
    /// Of the directory, by its first check.
    pub expected: Expected,
    pub bytes: &'n [u8],
    pub found: Found,
}

impl Name<'_> {
    fn involved(&self) -> (&'static CachedInode, Expected) {
        (self.directory.inode(), self.expected)
    }
}

/// What a move takes the place of.
#[derive(Clone, Copy)]
pub struct Replaced {
    pub inode: &'static CachedInode,
    /// Of a directory: what its first check has said.
    pub directory: Option<Expected>,
}

/// What is taken away with a name.
enum Removed<'p> {
    /// A link of a file.
    Link(&'static CachedInode),
    /// A directory, whose branch names the one that holds it.
    Directory(&'static CachedInode, &'p Named),
}

impl Removed<'_> {
    fn inode(&self) -> &'static CachedInode {
        match self {
            Removed::Link(inode) | Removed::Directory(inode, _) => inode,
        }
    }

    /// Whether its other names have to be told when it lost this one, for which a record has room.
    fn keeps_names(&self) -> bool {
        match self {
            Removed::Link(inode) => inode.links() > 1,
            Removed::Directory(..) => false,
        }
    }
}

/// A directory that a name leaves for another.
struct Left {
    /// Each names the other.
    named: Named,
    /// With what it was stamped, and that it was.
    time: i64,
    stamped: Option<Durable<InBranch>>,
}

/// A record that adds `name` for an inode; it carries the creation in case it is the first of
/// the inode's records to be folded.
fn added<'n>(inode: &CachedInode, name: &'n [u8], time: i64) -> Attempt<Record<'n>> {
    let uncommitted = inode.has(flag::UNCOMMITTED);
    let creation = |field: &AtomicU32| match uncommitted {
        true => field.load(Ordering::Relaxed),
        false => 0,
    };
    Ok(Record {
        state: effect::ADD,
        kind: inode.kind().ok_or(Errno::IO)?,
        inode: inode.number(),
        generation: inode.generation(),
        mode: creation(&inode.mode) & 0o7777,
        uid: creation(&inode.uid),
        gid: creation(&inode.gid),
        created: match uncommitted {
            true => inode.created.load(Ordering::Relaxed) as i64,
            false => 0,
        },
        changed: Some(time),
        name,
        ..Record::of_nothing()
    })
}

impl Context<'_> {
    /// Takes the name of a file away. Whoever calls this [disposes](crate::views::Viewing::dispose) of the inode once
    /// the locks are released, which marks one that has no more: a link may be about to be made to it,
    /// under its own lock.
    pub fn unlink(&self, name: &Name<'_>, victim: &'static CachedInode) -> Attempt<()> {
        let prepared = self.prepare_overlay(name.directory, name.bytes, &name.found, false)?;
        let removed = self.take_away(name, &[name.involved()], &Removed::Link(victim))?;
        if removed == Confirmed::Standing {
            victim.links_will_change();
            self.show_gone(name, prepared);
            victim.links_have_changed(-1);
        }
        Ok(())
    }

    /// Takes the name of an empty directory away, which is locked as a whole; `expected` is its own, by
    /// its first check. To be disposed of as by [`Context::unlink`].
    pub fn unlink_directory(
        &self,
        name: &Name<'_>,
        victim: &'static CachedInode,
        expected: Expected,
    ) -> Attempt<()> {
        let prepared = self.prepare_overlay(name.directory, name.bytes, &name.found, false)?;
        let named = self.name_remover(victim, &expected, name.directory)?;
        let involved = [name.involved(), (victim, expected)];
        let removed = Removed::Directory(victim, &named);
        if self.take_away(name, &involved, &removed)? == Confirmed::Standing {
            self.dependents().tree_changes();
            self.show_gone(name, prepared);
            self.dependents().tree_changes();
            name.directory.add_links(-1);
            if !victim.has(flag::UNCOMMITTED) && !name.directory.has(flag::REMOVING) {
                name.directory.set(flag::REMOVING, true);
            }
            show_removed(victim);
        }
        Ok(())
    }

    fn show_gone(&self, name: &Name<'_>, prepared: Prepared) {
        self.set_overlay(name.directory, name.bytes, &name.found, None, prepared);
        self.count_names(name.directory, -1);
    }

    /// Takes a name away durably: takes back the effect of the record that made it, or appends one.
    fn take_away(
        &self,
        name: &Name<'_>,
        involved: &[(&CachedInode, Expected)],
        removed: &Removed<'_>,
    ) -> Attempt<Confirmed> {
        let time = now();
        let has_record = name.found.record.unit != 0;
        let confirmed = if has_record && !removed.keeps_names() {
            self.take_effect_back(name, involved, time)?
        } else {
            let mut record = Record {
                changed: Some(time),
                ..Record::of_nothing()
            };
            if has_record {
                record.state = effect::KILL_SOURCE;
                record.kills[0] = name.found.record;
            } else {
                record.state = effect::REMOVE_SOURCE;
                record.source = name.bytes;
            }
            let record = match removed {
                Removed::Link(_) => Ready::removal(record),
                Removed::Directory(_, named) => Ready::naming(record, named),
            };
            let (_, confirmed) =
                self.commit_record(name.directory, &name.expected, record, involved, time)?;
            confirmed
        };
        removed.inode().changed_at(time);
        Ok(confirmed)
    }

    /// Clears the effect of the record that made a name.
    fn take_effect_back(
        &self,
        name: &Name<'_>,
        involved: &[(&CachedInode, Expected)],
        time: i64,
    ) -> Attempt<Confirmed> {
        let directory = name.directory;
        let mut branch = self.branch(directory.inode(), &name.expected)?;
        let place = name.found.record.unit as usize * 64;
        let load = || {
            let arena = self.session.arena_at(place);
            arena.load_u64(place, Ordering::Acquire).ok_or(Errno::IO)
        };
        let before = load()?;
        self.expect_reached()?;
        let cleared = delta::clear_effects(self.session, name.found.record, effect::ADD)?;
        let stamp = self.stamp(directory.inode(), &branch, time)?;
        let (committed, stamped) = branch.fence((cleared, stamp.stored));
        let published = Published {
            offset: place as u64,
            word: load()?,
            before,
            length: 8,
        };
        let confirmed = self.confirm(involved, published, committed)?;
        directory.stamped(stamp.time, stamped);
        Ok(confirmed)
    }

    /// Before a directory is removed: durably names the directory it is removed from in its
    /// branch, so that the controller, asked for the one, takes the other along, and does not
    /// think it idle. Of one that was never committed only this session knows.
    fn name_remover(
        &self,
        victim: &'static CachedInode,
        expected: &Expected,
        directory: Directory,
    ) -> Attempt<Named> {
        if victim.has(flag::UNCOMMITTED) {
            return Ok(Named::of_uncommitted());
        }
        let mut branch = self.branch(victim, expected)?;
        let partner = branch.add_partner(directory.number())?;
        let full = || Need::Commit([directory.number(), victim.number()]);
        Ok(Named::by(&mut branch, partner.ok_or_else(full)?))
    }

    /// Adds a name, which is not there, for a file that has others, or is created without one (O_TMPFILE);
    /// its whole is locked, and `expected` is its own, by its first check.
    pub fn link(
        &self,
        name: &Name<'_>,
        target: &'static CachedInode,
        expected: Expected,
    ) -> Attempt<()> {
        let (directory, time) = (name.directory, now());
        let nameless = target.has(flag::LINKABLE) && target.has(flag::UNCOMMITTED);
        let record = added(target, name.bytes, time)?;
        self.expect_place(directory, &record)?;
        let kind = record.kind;
        let prepared = self.prepare_overlay(name.directory, name.bytes, &name.found, true)?;
        let named = self.name_linker(target, &expected, directory, nameless)?;
        let involved = [name.involved(), (target, expected)];
        let record = Ready::naming(record, &named);
        let (reference, confirmed) =
            self.commit_record(directory, &name.expected, record, &involved, time)?;
        if nameless {
            target.set(flag::LINKABLE, false);
            target.set(flag::UNLINKED, false);
        }
        target.changed_at(time);
        if confirmed == Confirmed::Standing {
            let dentry = Dentry {
                inode: target.number(),
                generation: target.generation(),
                kind,
            };
            target.links_will_change();
            let now = Some((dentry, reference));
            self.set_overlay(directory, name.bytes, &name.found, now, prepared);
            self.count_names(directory, 1);
            target.links_have_changed(1);
        }
        Ok(())
    }

    /// Before a link can be valid: if the target's other names are folded away, the fold
    /// has to know of this directory.
    fn name_linker(
        &self,
        target: &'static CachedInode,
        expected: &Expected,
        directory: Directory,
        nameless: bool,
    ) -> Attempt<Named> {
        let mut branch = self.branch(target, expected)?;
        if nameless {
            branch.put_parent(directory.number())?;
        }
        let partner = branch.add_partner(directory.number())?;
        let full = || Need::Commit([directory.number(), target.number()]);
        Ok(Named::by(&mut branch, partner.ok_or_else(full)?))
    }

    /// Moves a name, of a file or within one directory, to where there is none or `replaced`. That is to
    /// be disposed of as by [`Context::unlink`].
    pub fn move_name(
        &self,
        from: &Name<'_>,
        to: &Name<'_>,
        moved: &'static CachedInode,
        replaced: Option<Replaced>,
    ) -> Attempt<()> {
        let mut involved = [to.involved(), from.involved(), to.involved()];
        let mut remover = None;
        if let Some(Replaced {
            inode,
            directory: Some(expected),
        }) = replaced
        {
            involved[2] = (inode, expected);
            remover = Some(self.name_remover(inode, &expected, to.directory)?);
        }
        let time = now();
        let across = from.directory.number() != to.directory.number();
        let record = moved_record(from, to, moved, time)?;
        let from_prepared = self.prepare_overlay(from.directory, from.bytes, &from.found, false)?;
        let to_prepared = self.prepare_overlay(to.directory, to.bytes, &to.found, true)?;
        let mut partners = None;
        if across {
            self.expect_place(to.directory, &record)?;
            partners = Some(self.name_partners(from, to, time)?);
        }
        let replaces = remover.as_ref().map_or(Replaces::Link, Replaces::Directory);
        let record = match &partners {
            Some(left) => {
                Ready::move_across(record, from.directory.number(), &left.named, replaces)
            }
            None => Ready::move_within(record, replaces),
        };
        let (reference, confirmed) =
            self.commit_record(to.directory, &to.expected, record, &involved, time)?;
        let victim = replaced.map(|replaced| replaced.inode);
        for inode in [Some(moved), victim].into_iter().flatten() {
            inode.changed_at(time);
        }
        if confirmed == Confirmed::Standing {
            self.show_moved(
                from,
                to,
                moved,
                victim,
                reference,
                from_prepared,
                to_prepared,
            );
            if let Some(left) = partners {
                from.directory.stamped(left.time, left.stamped);
            }
        }
        Ok(())
    }

    /// Durably names each of two directories in the branch of the other, and stamps the source
    /// (the target is stamped with the record).
    fn name_partners(&self, from: &Name<'_>, to: &Name<'_>, time: i64) -> Attempt<Left> {
        let mut from_branch = self.branch(from.directory.inode(), &from.expected)?;
        let mut to_branch = self.branch(to.directory.inode(), &to.expected)?;
        let add = |at: &'static CachedInode, branch: &Branch<'_>, partner: InodeNumber| {
            let _alone = self.lock_branch(at);
            branch.add_partner(partner)
        };
        let one = add(from.directory.inode(), &from_branch, to.directory.number())?;
        let other = add(to.directory.inode(), &to_branch, from.directory.number())?;
        let (Some(one), Some(other)) = (one, other) else {
            let both = [from.directory.number(), to.directory.number()];
            return Err(Need::Commit(both).into());
        };
        let stamp = self.stamp(from.directory.inode(), &from_branch, time)?;
        let (named, stamped) = Named::by_both(
            (&mut from_branch, one),
            (&mut to_branch, other),
            stamp.stored,
        );
        Ok(Left {
            named,
            time: stamp.time,
            stamped,
        })
    }

    /// Brings the views up to a move that stands.
    #[allow(clippy::too_many_arguments)]
    fn show_moved(
        &self,
        from: &Name<'_>,
        to: &Name<'_>,
        moved: &'static CachedInode,
        victim: Option<&'static CachedInode>,
        reference: RecordRef,
        from_prepared: Prepared,
        to_prepared: Prepared,
    ) {
        let moves_directory = moved.is_directory();
        match moves_directory {
            true => self.dependents().tree_changes(),
            false => moved.is_counted(),
        }
        let lost_link = victim.filter(|victim| !victim.is_directory());
        if let Some(victim) = lost_link {
            victim.links_will_change();
        }
        let left = self.stripe(from.directory, from.found.hash);
        let reached = self.stripe(to.directory, to.found.hash);
        let ends = [
            Some(left),
            (!std::ptr::eq(left, reached)).then_some(reached),
        ];
        ends.into_iter().flatten().for_each(Stripe::moves);
        self.set_overlay(from.directory, from.bytes, &from.found, None, from_prepared);
        let dentry = moved.kind().map(|kind| Dentry {
            inode: moved.number(),
            generation: moved.generation(),
            kind,
        });
        let now = dentry.map(|dentry| (dentry, reference));
        self.set_overlay(to.directory, to.bytes, &to.found, now, to_prepared);
        ends.into_iter().flatten().for_each(Stripe::moves);
        if moves_directory {
            self.dependents().tree_changes();
        }
        self.count_names(from.directory, -1);
        if to.found.dentry.is_none() {
            self.count_names(to.directory, 1);
        }
        if moved.has(flag::UNCOMMITTED) && !moves_directory {
            let holder = to.directory.number();
            moved.holder.store(holder, Ordering::Relaxed);
        }
        if let Some(victim) = lost_link {
            victim.links_have_changed(-1);
        } else if let Some(victim) = victim {
            to.directory.add_links(-1);
            show_removed(victim);
        }
    }
}

/// The record of a move: it adds the one name, and takes away the other and what it replaces.
fn moved_record<'n>(
    from: &Name<'n>,
    to: &Name<'n>,
    moved: &CachedInode,
    time: i64,
) -> Attempt<Record<'n>> {
    let mut record = added(moved, to.bytes, time)?;
    if from.found.record.unit != 0 {
        record.state |= effect::KILL_SOURCE;
        record.kills[0] = from.found.record;
    } else {
        record.state |= effect::REMOVE_SOURCE;
        record.source = from.bytes;
    }
    if to.found.record.unit != 0 {
        record.state |= effect::KILL_TARGET;
        record.kills[1] = to.found.record;
    } else if to.found.dentry.is_some() {
        record.state |= effect::REPLACE;
    }
    Ok(record)
}

/// A directory that was removed has no links.
fn show_removed(victim: &CachedInode) {
    victim.base_links.store(0, Ordering::Relaxed);
    victim.forget_links();
    victim.set(flag::UNLINKED, true);
}
