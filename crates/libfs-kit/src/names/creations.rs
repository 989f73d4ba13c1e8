//! Creations: new inodes beside their first names.
//!
//! # Invariants
//! * A record with a creation becomes durable in one step with everything the new inode has: what
//!   it refers to (a symbolic link's target) is durable before.

use super::Context;
use crate::changing::{Confirmed, Expected};
use crate::delta::{Begun, Branch, Contents, Created, FRONT, Ready};
use crate::names::lookup::Found;
use crate::names::together::Said;
use crate::need::{Attempt, Need, Stop};
use crate::views::locks::Whole;
use crate::views::times::now;
use crate::views::{CachedInode, Directory, File, begun, flag, links};
use arck_core_state::branch::StoredBranch;
use arck_core_state::directory::Dentry;
use arck_core_state::record::{Record, RecordRef, effect};
use arck_core_state::{FileKind, IndexRoot, InodeNumber, PAGE_SIZE};
use arck_pm::{Durable, Flushed, order};
use rustix::io::Errno;
use std::cell::Cell;
use std::sync::atomic::Ordering;

/// What is to be created.
#[derive(Clone, Copy)]
pub struct Creation<'t> {
    pub kind: FileKind,
    /// Permission bits, already masked.
    pub mode: u32,
    /// Of a symbolic link.
    pub target: &'t [u8],
    /// Of a device: its number.
    pub device: u32,
    /// It is listed as open before anybody can find it: whoever takes the right to it away right after
    /// its creation leaves it to its maker.
    pub opens: bool,
    /// Who makes it: its user, and its group, unless the directory has one for what is made there.
    pub owner: (u32, u32),
    /// The further groups of who makes it: a file of none of these, in a directory that hands its group down, does
    /// not get the set-group-ID bit together with that for the group to execute it.
    pub groups: &'t [u32],
}

impl Creation<'_> {
    /// The mode with which it is made in a directory, whose group it has: as mode_strip_sgid of the kernel.
    fn mode_in_group(&self, gid: u32) -> u32 {
        let (user, group) = self.owner;
        let member = user == 0 || group == gid || self.groups.contains(&gid);
        let program = self.kind == FileKind::File && self.mode & 0o2010 == 0o2010;
        self.mode & if program && !member { !0o2000 } else { !0 }
    }
}

impl Creation<'static> {
    /// A file, of the user and group as which this process makes it.
    pub fn file(mode: u32) -> Creation<'static> {
        let (user, group) = (rustix::process::geteuid(), rustix::process::getegid());
        Creation {
            kind: FileKind::File,
            mode,
            target: b"",
            device: 0,
            opens: false,
            owner: (user.as_raw(), group.as_raw()),
            groups: &[],
        }
    }
}

/// What an inode is created with, which is durable.
pub(super) enum With {
    Contents(Durable<Contents>, Durable<Begun>),
    Number(Durable<Begun>),
}

impl With {
    fn created(&self) -> Created<'_> {
        match self {
            With::Contents(contents, branch) => Created::With(contents, branch),
            With::Number(branch) => Created::Numbered(branch),
        }
    }
}

impl Context<'_> {
    /// Makes `name` in `directory`, which must not be there. Under the directory's lock, inside
    /// an operation, with `found` looked up under that lock.
    pub fn give_creation(
        &self,
        directory: Directory,
        expected: &Expected,
        name: &[u8],
        found: &Found,
        creation: Creation<'_>,
    ) -> Attempt<&'static CachedInode> {
        let number = self.take_number()?;
        if self.header(number)?.ownership().session() != self.session.number() {
            // No longer granted to us: left for good.
            return Err(Need::Again.into());
        }
        let uncommitted = Cell::new(true);
        let outcome = self.try_creation(
            directory,
            expected,
            name,
            found,
            creation,
            number,
            &uncommitted,
        );
        if outcome.is_err() && uncommitted.get() {
            self.give_number_back(number);
        }
        outcome
    }

    /// `uncommitted`: set to false as soon as the number may be somebody's, whatever comes of it.
    #[allow(clippy::too_many_arguments)]
    fn try_creation(
        &self,
        directory: Directory,
        expected: &Expected,
        name: &[u8],
        found: &Found,
        creation: Creation<'_>,
        number: InodeNumber,
        uncommitted: &Cell<bool>,
    ) -> Attempt<&'static CachedInode> {
        let time = now();
        let prepared = self.prepare_overlay(directory, name, found, true)?;
        let (inode, with, _locked) = self.conceive(directory, creation, number, time)?;
        let mode = inode.mode.load(Ordering::Relaxed) & 0o7777;
        let gid = inode.gid.load(Ordering::Relaxed);
        let record = Record {
            state: effect::ADD,
            sequence: 0,
            kind: creation.kind,
            inode: number,
            generation: inode.generation(),
            source_directory: 0,
            mode,
            uid: creation.owner.0,
            gid,
            created: time,
            changed: None,
            kills: [RecordRef::default(); 2],
            name,
            source: b"",
        };
        let created = with.as_ref().map_or(Created::Empty, With::created);
        let record = Ready::creation(record, created)?;
        let involved = [(directory.inode(), *expected)];
        if creation.opens {
            self.list_open(inode)?;
        }
        let committed = self.commit_record(directory, expected, record, &involved, time);
        let (reference, confirmed) = match committed {
            Ok(committed) => committed,
            Err(stop) => {
                if creation.opens {
                    self.close_again(inode);
                }
                // What stops an attempt takes its record back, or comes before it; what fails it
                // leaves open whether the record is there.
                let ended = inode.branch.load(Ordering::Relaxed) == begun::NOT
                    || matches!(stop, Stop::Need(_)) && self.end_branch(inode).is_ok();
                uncommitted.set(matches!(stop, Stop::Need(_)) && ended);
                if ended {
                    self.discard_delta(inode);
                }
                return Err(stop);
            }
        };
        uncommitted.set(false);
        if confirmed == Confirmed::Standing {
            let dentry = Dentry {
                inode: number,
                generation: inode.generation(),
                kind: creation.kind,
            };
            if creation.kind != FileKind::Directory {
                // Nobody finds it before it is in the overlay.
                inode.link_delta.store(links(1), Ordering::Relaxed);
            }
            self.set_overlay(directory, name, found, Some((dentry, reference)), prepared);
            self.count_names(directory, 1);
            if creation.kind == FileKind::Directory {
                directory.add_links(1);
            }
        }
        Ok(inode)
    }

    /// Makes the view of a number about to be created, as a name in `directory` would have it.
    /// Locked; nothing leads to it yet.
    pub(super) fn conceive(
        &self,
        directory: Directory,
        creation: Creation<'_>,
        number: InodeNumber,
        time: i64,
    ) -> Attempt<(&'static CachedInode, Option<With>, Whole)> {
        let header = self.header(number)?;
        let inode = self.cached(number)?;
        let own = Expected {
            ownership: header.ownership().bare(),
            fold: header.fold(),
        };
        let parent_mode = directory.mode.load(Ordering::Relaxed);
        let setgid = parent_mode & 0o2000 != 0;
        let gid = if setgid {
            directory.gid.load(Ordering::Relaxed)
        } else {
            creation.owner.1
        };
        let inherited = if setgid && creation.kind == FileKind::Directory {
            0o2000
        } else {
            0
        };
        let mode = creation.mode_in_group(gid) & 0o7777 | inherited;
        // Others may be tidying up what an earlier life of the number left in its view.
        let locked = self.lock_now(inode)?;
        if !self.has_no_delta(inode) {
            self.discard_delta(inode);
        }
        prepare_uncommitted(inode, header.generation(), &own, directory);
        let relaxed = Ordering::Relaxed;
        inode.mode.store(creation.kind.mode_bits() | mode, relaxed);
        inode.uid.store(creation.owner.0, relaxed);
        inode.gid.store(gid, relaxed);
        for field in [
            &inode.accessed,
            &inode.modified,
            &inode.changed,
            &inode.created,
        ] {
            field.store(time as u64, relaxed);
        }
        let directory_links = if creation.kind == FileKind::Directory {
            2
        } else {
            0
        };
        inode.base_links.store(directory_links, relaxed);
        let with = match creation.kind {
            FileKind::Link => Some(self.store_target(inode, &own, creation.target, time)?),
            FileKind::CharacterDevice | FileKind::BlockDevice => {
                Some(self.store_number(inode, &own, creation.device, time)?)
            }
            _ => None,
        };
        inode
            .sequence
            .store(header.sequence.load(Ordering::Acquire), Ordering::Release);
        Ok((inode, with, locked))
    }

    /// Makes a file without a name (O_TMPFILE), as if in `directory`, and lists it as open: it
    /// is of this session alone and ends when it is closed, unless a link is made to it.
    pub fn give_nameless_creation(
        &self,
        directory: Directory,
        creation: Creation<'_>,
        linkable: bool,
    ) -> Attempt<&'static CachedInode> {
        let number = self.take_number()?;
        let attempt = || -> Attempt<&'static CachedInode> {
            if self.header(number)?.ownership().session() != self.session.number() {
                return Err(Need::Again.into());
            }
            let (inode, _, _locked) = self.conceive(directory, creation, number, now())?;
            self.list_open(inode)?;
            inode.set(flag::LINKABLE, linkable);
            inode.set(flag::UNLINKED, true);
            Ok(inode)
        };
        let outcome = attempt();
        if outcome.is_err() {
            self.give_number_back(number);
        }
        outcome
    }

    /// Stores the target of a symbolic link about to be created, durably.
    fn store_target(
        &self,
        inode: &'static CachedInode,
        own: &Expected,
        target: &[u8],
        time: i64,
    ) -> Attempt<With> {
        let session = self.session;
        let stock = session.state();
        let page = stock.data.take(session, self.slot())?;
        let contents = Said {
            root: IndexRoot::new(page.0, 0),
            size: target.len() as u64,
            pages: 1,
        };
        let stored = || -> Attempt<With> {
            let bytes = session.page_bytes(page).ok_or(Errno::IO)?;
            let mut whole = [0u8; PAGE_SIZE as usize];
            let place = whole.get_mut(..target.len());
            place.ok_or(Errno::NAMETOOLONG)?.copy_from_slice(target);
            // In one piece: the line in which the target ends would be flushed twice.
            let data = bytes.try_stream(0, &whole).map_err(|error| error.errno())?;
            // Nobody looks at page or branch before the inode is created, so one fence does for both.
            let branch = self.begin_with(inode, own, contents, time)?;
            let (contents, branch) = order::fence((data.describing(), branch));
            Ok(With::Contents(contents, branch))
        };
        let with = stored().inspect_err(|_| stock.data.release(session, page))?;
        self.has_from_creation(File::of(inode)?, contents);
        Ok(with)
    }

    /// Stores the number of a device about to be created, durably: in its branch, as other inodes' size.
    fn store_number(
        &self,
        inode: &'static CachedInode,
        own: &Expected,
        device: u32,
        time: i64,
    ) -> Attempt<With> {
        let number = Said {
            root: IndexRoot::EMPTY,
            size: u64::from(device),
            pages: 0,
        };
        let branch = self.begin_with(inode, own, number, time)?;
        let branch = order::fence(branch);
        self.has_from_creation(File::of(inode)?, number);
        Ok(With::Number(branch))
    }

    /// Begins the branch of an inode about to be created with contents, which are stored. To be fenced before
    /// anything leads to it.
    pub(super) fn begin_with(
        &self,
        inode: &'static CachedInode,
        own: &Expected,
        contents: Said,
        time: i64,
    ) -> Attempt<Flushed<Begun>> {
        let session = self.session;
        let header = self.header(inode.number())?;
        let Some(slot) = own.branch_slot(header) else {
            return Err(match header.ownership().is_refused() {
                true => Errno::IO.into(),
                false => Need::Wait(inode.number()).into(),
            });
        };
        session.state().arena.expect_branch(slot)?;
        let mut content = StoredBranch::unchanged(
            inode.number(),
            inode.generation(),
            own.ownership.epoch(),
            own.fold,
        );
        content.root = contents.root;
        content.size = contents.size;
        content.modified = time;
        content.changed = time;
        content.parent = inode.holder.load(Ordering::Relaxed);
        let branch = Branch::at(session, slot)?;
        session.bring_arena_near(branch.offset_of(0));
        Ok(branch.begin(&content)?)
    }

    /// The view of an inode that was [begun with](Self::begin_with) contents, durably by now.
    pub(super) fn has_from_creation(&self, file: File, contents: Said) {
        file.branch.store(begun::DURABLE, Ordering::Release);
        self.note_dirty(&file);
        file.set_delta_root(contents.root, u64::MAX);
        if contents.root.height() == 1 && contents.pages <= FRONT as u64 {
            file.set(flag::FRONT, true);
        }
        file.size.store(contents.size, Ordering::Relaxed);
        file.part().pages.store(contents.pages, Ordering::Relaxed);
    }
}

/// Makes a cached inode the view of a number about to be created.
fn prepare_uncommitted(inode: &CachedInode, generation: u32, own: &Expected, parent: Directory) {
    inode.generation.store(generation, Ordering::Release);
    // Whatever gives it a name is a directory's delta. Known before anybody finds the view, by a plain store.
    let flags = flag::UNCOMMITTED | flag::COUNTED;
    inode.flags.store(flags, Ordering::Release);
    inode.link_delta.store(0, Ordering::Relaxed);
    for field in [&inode.size, &inode.base_root, &inode.base_size] {
        field.store(0, Ordering::Relaxed);
    }
    inode.branch.store(begun::NOT, Ordering::Relaxed);
    inode.attributes.store(0, Ordering::Relaxed);
    inode.parts_begin_again();
    inode.holder.store(parent.number(), Ordering::Relaxed);
    inode.lies_in(parent.inode());
    inode.expect(*own);
}
