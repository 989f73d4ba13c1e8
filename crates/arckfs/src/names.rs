//! Removing, renaming and linking names.
//!
//! # Invariants
//! * An operation commits by one store: a record that becomes valid, or an effect of a record
//!   taken back. What a rename replaces and removes is said in its one record.
//! * Before a rename across two directories commits, each of the two branches durably names the
//!   other (DESIGN section 4), so that a fold of one takes the other along.
//! * Locks of several directories, or buckets of them, are taken in the order of
//!   [`locks`](arck_libfs_kit::views::locks).

use crate::credentials::Capability;
use crate::engine::{Attempt, Confirmed, Context, Need, Published, Stop};
use crate::interface::Errno;
use arck_core_state::branch::offset;
use arck_core_state::directory::Dentry;
use arck_core_state::geometry::LINKS_MAX;
use arck_core_state::record::{Record, effect};
use arck_core_state::{FileKind, InodeNumber, ROOT_INODE};
use arck_libfs_kit::delta::{self, Branch};
use arck_libfs_kit::names::overlay::{Before, Found};
use arck_libfs_kit::views::locks::Want;
use arck_libfs_kit::views::stamps::now;
use arck_libfs_kit::views::{Bucket, CachedInode, flag};
use arck_pm::order;
use arck_protocol::operation::Expected;
use std::sync::atomic::Ordering;

/// RENAME_NOREPLACE.
pub const NOREPLACE: u32 = 1;
/// RENAME_EXCHANGE.
pub const EXCHANGE: u32 = 2;

/// What rename has to leave to the controller.
pub enum Renamed {
    Done,
    /// Both are names of one inode: nothing is to be done.
    Nothing,
    /// A directory changes its parent, or two names are exchanged.
    ByController {
        from: InodeNumber,
        to: InodeNumber,
    },
}

/// Leaves a rename to the controller, once it knows both directories.
fn by_controller(from: &CachedInode, to: &CachedInode) -> Attempt<Renamed> {
    for directory in [from, to] {
        if directory.has(flag::UNBORN) {
            let parent = directory.parent.load(Ordering::Relaxed);
            return Err(Need::Commit([parent, 0]).into());
        }
    }
    Ok(Renamed::ByController {
        from: from.number(),
        to: to.number(),
    })
}

impl<'a> Context<'a> {
    /// Directory rights for adding and removing names; ENOENT if it was removed itself.
    pub fn may_change_names(&self, directory: &CachedInode) -> Attempt<()> {
        if directory.has(flag::UNLINKED) {
            return Err(Errno::NOENT.into());
        }
        Ok(self.credentials.check(directory, 3)?)
    }

    /// Sticky directories: only the owner of the name's inode or of the directory removes it.
    fn may_remove(&self, directory: &CachedInode, victim: &CachedInode) -> Attempt<()> {
        let uid = self.credentials.uid;
        let sticky = directory.mode.load(Ordering::Relaxed) & 0o1000 != 0;
        if sticky
            && !self.credentials.may(Capability::Fowner)
            && uid != directory.uid.load(Ordering::Relaxed)
            && uid != victim.uid.load(Ordering::Relaxed)
        {
            return Err(Errno::PERM.into());
        }
        Ok(())
    }

    /// Looks a name up before its directory is locked.
    #[inline(always)]
    fn look(&self, directory: &'static CachedInode, name: &[u8]) -> Attempt<(Before, Found)> {
        let before = Before::of(self, directory, self.hash(name));
        Ok((before, self.lookup(directory, name)?))
    }

    /// Under the name's lock: how it stands, which leads to what it led to when it
    /// was looked up, or to nothing as then.
    #[inline(always)]
    fn still_there(
        &self,
        directory: &'static CachedInode,
        name: &[u8],
        (before, seen): &(Before, Found),
    ) -> Attempt<Found> {
        if *before == Before::of(self, directory, seen.hash) {
            return Ok(*seen);
        }
        let found = self.lookup(directory, name)?;
        let inode = |found: &Found| found.dentry.map(|dentry| (dentry.inode, dentry.generation));
        if inode(&found) == inode(seen) {
            Ok(found)
        } else {
            Err(Need::Again.into())
        }
    }

    /// Takes a name away durably. Under the directory's lock, inside the operation.
    fn remove_name(
        &self,
        directory: &'static CachedInode,
        expected: &Expected,
        name: &[u8],
        found: &Found,
        involved: &[(&CachedInode, Expected)],
        victim: &CachedInode,
    ) -> Attempt<Confirmed> {
        let time = now();
        let has_record = found.record.unit != 0;
        // What keeps other names has to be told when it lost this one, for which a record has room.
        if has_record && (victim.is_directory() || victim.links() <= 1) {
            let (branch, begun) = self.branch(directory, expected)?;
            let place = found.record.unit as usize * 64;
            let load = || {
                self.session
                    .arena_at(place)
                    .load_u64(place, Ordering::Acquire)
            };
            let before = load().ok_or(Errno::IO)?;
            self.expect_reached()?;
            let cleared = delta::clear_effects(self.session, found.record, effect::ADD)?;
            let stamp = self.stamp(directory, &branch, time)?;
            let _durable = order::fence((cleared, stamp.stored, begun));
            directory.branch_is_durable();
            let word = load().ok_or(Errno::IO)?;
            let confirmed = self.confirm(
                involved,
                Published {
                    offset: place as u64,
                    word,
                    before,
                    length: 8,
                },
            )?;
            if let Some(time) = stamp.time {
                directory.stamped(time);
            }
            victim.changed_at(time);
            return Ok(confirmed);
        }
        let mut record = Record {
            changed: Some(time),
            ..Record::of_nothing()
        };
        if has_record {
            record.state = effect::KILL_SOURCE;
            record.kills[0] = found.record;
        } else {
            record.state = effect::REMOVE_SOURCE;
            record.source = name;
        }
        let (_, confirmed) = self.commit_record(directory, expected, record, involved, time)?;
        victim.changed_at(time);
        Ok(confirmed)
    }

    /// A name of a non-directory is gone, as was announced: its inode loses a link. Whoever calls
    /// this disposes of the inode once the locks are released, which marks one that has no more: a
    /// link may be about to be made to it, under its own lock.
    fn lost_link(&self, inode: &'static CachedInode) {
        inode.links_have_changed(-1);
    }

    /// unlink: EISDIR for a directory.
    pub fn unlink_name(&self, directory: &'static CachedInode, name: &[u8]) -> Attempt<()> {
        if directory.expected().ownership.session() != self.session.number() {
            // That it is not there comes before that the directory cannot be had.
            self.dentry(directory, name)?.ok_or(Errno::NOENT)?;
        }
        let locked = self.lock_names(directory, self.hash(name));
        let expected = self.begin_change(directory)?;
        let found = self.lookup(directory, name)?;
        let dentry = found.dentry.ok_or(Errno::NOENT)?;
        self.may_change_names(directory)?;
        let victim = self.view_of(directory, name, dentry)?;
        if dentry.kind == FileKind::Directory {
            return Err(Errno::ISDIR.into());
        }
        self.may_remove(directory, victim)?;
        let involved = [(directory, expected)];
        let prepared = self.prepare_overlay(name, &found, false)?;
        let removed = self.remove_name(directory, &expected, name, &found, &involved, victim)?;
        if removed == Confirmed::Standing {
            victim.links_will_change();
            self.set_overlay(directory, name, &found, None, prepared);
            self.count_names(directory, -1);
            self.lost_link(victim);
        }
        drop(locked);
        self.dispose(victim);
        Ok(())
    }

    /// rmdir: ENOTDIR, ENOTEMPTY.
    pub fn remove_directory(&self, directory: &'static CachedInode, name: &[u8]) -> Attempt<()> {
        let looked = self.look(directory, name)?;
        let seen = looked.1.dentry.ok_or(Errno::NOENT)?;
        if seen.kind != FileKind::Directory {
            return Err(Errno::NOTDIR.into());
        }
        let victim = self.view_of(directory, name, seen)?;
        let name_lock = self.want(directory, looked.1.hash);
        let _locked = self.lock_all([Some(name_lock), Some(Want::whole(victim))]);
        let expected = self.begin_change(directory)?;
        let found = self.still_there(directory, name, &looked)?;
        self.may_change_names(directory)?;
        self.may_remove(directory, victim)?;
        if self.entries(victim) != 0 {
            // Its emptiness is only certain in the newest state, which `view` has seen to.
            self.unmoved(victim)?;
            return Err(Errno::NOTEMPTY.into());
        }
        let victim_expected = self.begin_change(victim)?;
        let involved = [(directory, expected), (victim, victim_expected)];
        let prepared = self.prepare_overlay(name, &found, false)?;
        self.name_remover(victim, &victim_expected, directory)?;
        let removed = self.remove_name(directory, &expected, name, &found, &involved, victim)?;
        if removed == Confirmed::Standing {
            self.paths_change();
            self.set_overlay(directory, name, &found, None, prepared);
            self.paths_change();
            self.count_names(directory, -1);
            directory.add_links(-1);
            if !victim.has(flag::UNBORN) && !directory.has(flag::REMOVING) {
                directory.set(flag::REMOVING, true);
            }
            victim.base_links.store(0, Ordering::Relaxed);
            victim.forget_links();
            victim.set(flag::UNLINKED, true);
        }
        drop(_locked);
        self.dispose(victim);
        Ok(())
    }

    /// Before a directory is removed: durably names the directory it is removed from in its
    /// branch, so that the controller, asked for the one, takes the other along, and does not
    /// think it idle. Of one that was never born only this session knows.
    fn name_remover(
        &self,
        victim: &'static CachedInode,
        expected: &Expected,
        directory: &'static CachedInode,
    ) -> Attempt<()> {
        if victim.has(flag::UNBORN) {
            return Ok(());
        }
        let (branch, begun) = self.branch(victim, expected)?;
        let partner = branch.add_partner(directory.number())?;
        let full = partner.is_none();
        let _named = order::fence((partner, begun));
        if full {
            return Err(Need::Commit([directory.number(), victim.number()]).into());
        }
        Ok(())
    }

    /// link: EPERM for a directory, EEXIST, EMLINK; ENOENT for what has no name any more.
    pub fn add_link(
        &self,
        target: &'static CachedInode,
        directory: &'static CachedInode,
        name: &[u8],
    ) -> Attempt<()> {
        if target.is_directory() {
            if self.lookup(directory, name)?.dentry.is_some() {
                return Err(Errno::EXIST.into());
            }
            return Err(Errno::PERM.into());
        }
        let name_lock = self.want(directory, self.hash(name));
        let _locked = self.lock_all([Some(name_lock), Some(Want::whole(target))]);
        let expected = self.begin_change(directory)?;
        let found = self.lookup(directory, name)?;
        if found.dentry.is_some() {
            return Err(Errno::EXIST.into());
        }
        self.may_change_names(directory)?;
        let nameless = target.has(flag::LINKABLE) && target.has(flag::UNBORN);
        let links = self.links(target)?;
        if !nameless && links == 0 {
            return Err(Errno::NOENT.into());
        }
        if nameless {
            // No directory tells of its birth yet: this one will.
            target.parent.store(directory.number(), Ordering::Relaxed);
        }
        if links >= LINKS_MAX {
            return Err(Errno::MLINK.into());
        }
        let birth_place = target.parent.load(Ordering::Relaxed);
        if target.has(flag::UNBORN) && birth_place != directory.number() {
            // Two directories would each tell of its birth, and a fold of the one leave the
            // other behind.
            return Err(Need::Commit([birth_place, 0]).into());
        }
        let target_expected = self.begin_change(target)?;
        let kind = target.kind().ok_or(Errno::IO)?;
        let time = now();
        let mut record = self.added(target, kind, name);
        record.changed = Some(time);
        self.expect_place(directory, &record)?;
        let prepared = self.prepare_overlay(name, &found, true)?;
        let (branch, begun) = self.branch(target, &target_expected)?;
        if nameless {
            let _ = branch.put(offset::PARENT, directory.number().into())?;
        }
        // Before the link can be valid: if the target's other names are folded away, the fold
        // has to know of this directory.
        let Some(partner) = branch.add_partner(directory.number())? else {
            let _begun = order::fence(begun);
            return Err(Need::Commit([directory.number(), target.number()]).into());
        };
        let _named = order::fence((begun, partner));
        let involved = [(directory, expected), (target, target_expected)];
        let (reference, confirmed) =
            self.commit_record(directory, &expected, record, &involved, time)?;
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
            self.set_overlay(directory, name, &found, Some((dentry, reference)), prepared);
            self.count_names(directory, 1);
            target.links_have_changed(1);
        }
        Ok(())
    }

    /// A record that adds `name` for an inode; it carries the birth in case it is the first of
    /// the inode's records to be folded.
    fn added<'n>(&self, inode: &CachedInode, kind: FileKind, name: &'n [u8]) -> Record<'n> {
        let unborn = inode.has(flag::UNBORN);
        let birth = |field: &std::sync::atomic::AtomicU32| {
            if unborn {
                field.load(Ordering::Relaxed)
            } else {
                0
            }
        };
        Record {
            state: effect::ADD,
            kind,
            inode: inode.number(),
            generation: inode.generation(),
            mode: birth(&inode.mode) & 0o7777,
            uid: birth(&inode.uid),
            gid: birth(&inode.gid),
            created: if unborn {
                inode.created.load(Ordering::Relaxed) as i64
            } else {
                0
            },
            name,
            ..Record::of_nothing()
        }
    }

    /// Whether the directory `number` is `directory` or holds it, at whatever depth.
    fn is_ancestor(&self, number: InodeNumber, directory: &'static CachedInode) -> Attempt<bool> {
        let mut at = directory;
        while at.number() != number {
            if at.number() == ROOT_INODE || at.has(flag::UNLINKED) {
                return Ok(false);
            }
            at = self.parent(at)?;
        }
        Ok(true)
    }

    /// rename, `flags` as renameat2's.
    pub fn rename_name(
        &self,
        from: (&'static CachedInode, &[u8], bool),
        to: (&'static CachedInode, &[u8], bool),
        flags: u32,
    ) -> Attempt<Renamed> {
        let source = self.look(from.0, from.1)?;
        source.1.dentry.ok_or(Errno::NOENT)?;
        let target = self.look(to.0, to.1)?;
        let renamed = self.rename_seen(from, to, flags, &source, &target);
        if let Err(Stop::Failure(_)) | Ok(Renamed::Nothing) = renamed {
            // Without locks the two were seen one after the other: what is wrong with them, or
            // that they are one, counts only if they were there at one time.
            let wanted = [(from.0, source.1.hash), (to.0, target.1.hash)];
            let _locked = self.lock_all(wanted.map(|(at, hash)| Some(self.want(at, hash))));
            self.still_there(from.0, from.1, &source)?;
            self.still_there(to.0, to.1, &target)?;
        }
        renamed
    }

    fn rename_seen(
        &self,
        from: (&'static CachedInode, &[u8], bool),
        to: (&'static CachedInode, &[u8], bool),
        flags: u32,
        looked_from: &(Before, Found),
        looked_to: &(Before, Found),
    ) -> Attempt<Renamed> {
        let ((from, from_name, from_slash), (to, to_name, to_slash)) = (from, to);
        let source = looked_from.1.dentry.ok_or(Errno::NOENT)?;
        let target = looked_to.1.dentry;
        let moves_directory = source.kind == FileKind::Directory;
        // In the order in which Linux looks.
        let exchange = flags & EXCHANGE != 0;
        if flags & NOREPLACE != 0 && target.is_some() {
            return Err(Errno::EXIST.into());
        }
        if exchange {
            let target = target.ok_or(Errno::NOENT)?;
            if to_slash && target.kind != FileKind::Directory {
                return Err(Errno::NOTDIR.into());
            }
        }
        if !moves_directory && (from_slash || (to_slash && !exchange)) {
            return Err(Errno::NOTDIR.into());
        }
        if from.number() != to.number() {
            if moves_directory && self.is_ancestor(source.inode, to)? {
                return Err(Errno::INVAL.into());
            }
            if let Some(target) = target
                && target.kind == FileKind::Directory
                && self.is_ancestor(target.inode, from)?
            {
                return Err(match exchange {
                    true => Errno::INVAL,
                    false => Errno::NOTEMPTY,
                }
                .into());
            }
        }
        self.may_change_names(from)?;
        self.may_change_names(to)?;
        if exchange {
            let target = target.ok_or(Errno::NOENT)?;
            if target.inode == source.inode {
                return Ok(Renamed::Nothing);
            }
            return by_controller(from, to);
        }
        if let Some(target) = target {
            if target.inode == source.inode {
                return Ok(Renamed::Nothing);
            }
            match (moves_directory, target.kind == FileKind::Directory) {
                (true, false) => return Err(Errno::NOTDIR.into()),
                (false, true) => return Err(Errno::ISDIR.into()),
                _ => {}
            }
        }
        if moves_directory && from.number() != to.number() {
            return by_controller(from, to);
        }
        let moved = self.view_of(from, from_name, source)?;
        let victim = match target {
            Some(target) => Some(self.view_of(to, to_name, target)?),
            None => None,
        };
        let locked_victim = victim.filter(|victim| victim.is_directory());
        let (source_hash, target_hash) = (looked_from.1.hash, looked_to.1.hash);
        let locked = self.lock_all([
            Some(self.want(from, source_hash)),
            Some(self.want(to, target_hash)),
            locked_victim.map(Want::whole),
        ]);
        let expected = self.begin_change(to)?;
        let from_expected = self.begin_change(from)?;
        let source = self.still_there(from, from_name, looked_from)?;
        let found = self.still_there(to, to_name, looked_to)?;
        // Either may have been removed before it was locked.
        self.may_change_names(from)?;
        self.may_change_names(to)?;
        self.may_remove(from, moved)?;
        if let Some(victim) = victim {
            self.may_remove(to, victim)?;
        }
        let mut involved = [(to, expected), (from, from_expected), (to, expected)];
        if let Some(victim) = locked_victim {
            if self.entries(victim) != 0 {
                return Err(Errno::NOTEMPTY.into());
            }
            let victim_expected = self.begin_change(victim)?;
            involved[2] = (victim, victim_expected);
            self.name_remover(victim, &victim_expected, to)?;
        }
        let time = now();
        let kind = source.dentry.ok_or(Errno::IO)?.kind;
        let mut record = self.added(moved, kind, to_name);
        record.changed = Some(time);
        if from.number() != to.number() {
            record.source_directory = from.number();
        }
        if source.record.unit != 0 {
            record.state |= effect::KILL_SOURCE;
            record.kills[0] = source.record;
        } else {
            record.state |= effect::REMOVE_SOURCE;
            record.source = from_name;
        }
        if found.record.unit != 0 {
            record.state |= effect::KILL_TARGET;
            record.kills[1] = found.record;
        } else if found.dentry.is_some() {
            record.state |= effect::REPLACE;
        }
        let from_prepared = self.prepare_overlay(from_name, &source, false)?;
        let to_prepared = self.prepare_overlay(to_name, &found, true)?;
        let mut left_at = None;
        if from.number() != to.number() {
            self.expect_place(to, &record)?;
            left_at = self.name_partners((from, &from_expected), (to, &expected), time)?;
        }
        let (reference, confirmed) = self.commit_record(to, &expected, record, &involved, time)?;
        for inode in [Some(moved), victim].into_iter().flatten() {
            inode.changed_at(time);
        }
        if confirmed == Confirmed::Standing {
            let dentry = Dentry {
                inode: moved.number(),
                generation: moved.generation(),
                kind,
            };
            if moves_directory {
                self.paths_change();
            } else {
                moved.is_counted();
            }
            if let Some(victim) = victim.filter(|victim| !victim.is_directory()) {
                victim.links_will_change();
            }
            let (left, reached) = (self.bucket(from, source_hash), self.bucket(to, target_hash));
            let ends = [
                Some(left),
                (!std::ptr::eq(left, reached)).then_some(reached),
            ];
            ends.into_iter().flatten().for_each(Bucket::moves);
            self.set_overlay(from, from_name, &source, None, from_prepared);
            let now = Some((dentry, reference));
            self.set_overlay(to, to_name, &found, now, to_prepared);
            ends.into_iter().flatten().for_each(Bucket::moves);
            if moves_directory {
                self.paths_change();
            }
            self.count_names(from, -1);
            if found.dentry.is_none() {
                self.count_names(to, 1);
            }
            if let Some(time) = left_at {
                from.stamped(time);
            }
            if moved.has(flag::UNBORN) && !moved.is_directory() {
                moved.parent.store(to.number(), Ordering::Relaxed);
            }
            if let Some(victim) = victim {
                if victim.is_directory() {
                    to.add_links(-1);
                    victim.base_links.store(0, Ordering::Relaxed);
                    victim.forget_links();
                    victim.set(flag::UNLINKED, true);
                } else {
                    self.lost_link(victim);
                }
            }
        }
        drop(locked);
        if let Some(victim) = victim {
            self.dispose(victim);
        }
        Ok(Renamed::Done)
    }

    /// Durably names each of two directories in the branch of the other, and stamps the source
    /// (the target is stamped with the record). Gives the time that the source's view does not say
    /// yet.
    fn name_partners(
        &self,
        from: (&'static CachedInode, &Expected),
        to: (&'static CachedInode, &Expected),
        time: i64,
    ) -> Attempt<Option<i64>> {
        let (from_branch, from_begun) = self.branch(from.0, from.1)?;
        let (to_branch, to_begun) = match self.branch(to.0, to.1) {
            Ok(branch) => branch,
            Err(stop) => {
                let _begun = order::fence(from_begun);
                return Err(stop);
            }
        };
        let add = |at: &'static CachedInode, branch: &Branch<'_>, partner: InodeNumber| {
            let _alone = self.lock_branch(at);
            branch.add_partner(partner)
        };
        let one = add(from.0, &from_branch, to.0.number())?;
        let other = add(to.0, &to_branch, from.0.number())?;
        let (Some(one), Some(other)) = (one, other) else {
            return Err(Need::Commit([from.0.number(), to.0.number()]).into());
        };
        let stamp = self.stamp(from.0, &from_branch, time)?;
        let _named = order::fence((one, other, from_begun, to_begun, stamp.stored));
        Ok(stamp.time)
    }
}
