//! What is kept of the old build of the auxiliary state: of inodes without a name that the
//! controller has never known, their views; snapshots of listings; and where the process holds locks.
//!
//! A file that was opened without a name, or whose last name went before a fold, is in no delta that
//! folds. Its contents stand in its branch, which commits by single stores as all of the core state
//! does. What the branch does not say (what kind it is, whose, how old) is only in its view, in words
//! that do not change any more, or each by one store: the dead have left them whole.
//!
//! # Invariant
//! Goes on: an uncommitted inode that more have open than the departed. What is listed as open for no
//! description (its opener died between the two) goes on once, and is listed by nobody then.

use crate::engine::Engine;
use crate::interface::Errno;
use arck_libfs_kit::Session;
use arck_libfs_kit::carried::Carried;
use arck_libfs_kit::delta;
use arck_libfs_kit::engine::Attempt;
use arck_libfs_kit::engine::Expected;
use arck_libfs_kit::format::branch::{
    StoredBranch, UNCHANGED_MODE, UNCHANGED_SIZE, UNCHANGED_TIME,
};
use arck_libfs_kit::format::index::HOLE;
use arck_libfs_kit::format::{FileKind, InodeNumber};
use arck_libfs_kit::numbers::is_uncommitted;
use arck_libfs_kit::region::Offset;
use arck_libfs_kit::views::{CachedInode, File, Viewing, begun, flag};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// Words of `Region::auxiliary_root` that lead to the table of cached inodes of the generation that is
/// being replaced, and to the kit's list of segments; 0 unless one is.
pub(super) const OLD_INODES: usize = 2;

/// See the module's head.
#[derive(Default)]
pub(super) struct Old {
    pub nameless: Vec<Nameless>,
    /// By the index of the description.
    pub listings: HashMap<u32, Vec<u8>>,
}

/// The view of an uncommitted inode that is open.
pub(super) struct Nameless {
    number: InodeNumber,
    flags: u32,
    mode: u32,
    uid: u32,
    gid: u32,
    parent: InodeNumber,
    /// Accessed, modified, changed, created.
    times: [u64; 4],
}

impl Nameless {
    fn of(inode: &CachedInode) -> Nameless {
        let half = |field: &std::sync::atomic::AtomicU32| field.load(Ordering::Relaxed);
        let kept = flag::UNCOMMITTED | flag::UNLINKED | flag::LINKABLE;
        Nameless {
            number: inode.number(),
            flags: half(&inode.flags) & kept | flag::UNLINKED,
            mode: half(&inode.mode),
            uid: half(&inode.uid),
            gid: half(&inode.gid),
            parent: half(&inode.holder),
            times: times_of(inode).map(|time| time.load(Ordering::Relaxed)),
        }
    }

    /// Keeps what its delta uses; gives its branch, if it has one.
    pub fn carry(
        &self,
        session: &Session,
        carried: &mut Carried,
    ) -> Result<Option<StoredBranch>, Errno> {
        match FileKind::from_mode(self.mode) {
            Some(FileKind::Directory) => {
                // It is removed, and so empty: what its records said is folded, or has been undone.
                carried.keep_bare(session, self.number)?;
                Ok(None)
            }
            _ => Ok(carried.keep(session, self.number)),
        }
    }
}

fn times_of(inode: &CachedInode) -> [&AtomicU64; 4] {
    [
        &inode.accessed,
        &inode.modified,
        &inode.changed,
        &inode.created,
    ]
}

impl Engine {
    /// Before anything of the old build is given up: notes where it is, unless one who died over
    /// building has.
    pub(super) fn remember_old(&self) -> Result<(), Errno> {
        let old = self.old_inodes()?;
        if old.load(Ordering::Relaxed) == 0 {
            self.session.state().data.remember(self.session)?;
            let table = self.session.state().views.table();
            old.store(table.raw(), Ordering::Release);
        }
        Ok(())
    }

    /// The new build is whole.
    pub(super) fn forget_old(&self) -> Result<(), Errno> {
        self.old_inodes()?.store(0, Ordering::Release);
        Ok(())
    }

    fn old_inodes(&self) -> Result<&'static AtomicU64, Errno> {
        let region = self.session.region();
        region.auxiliary_root(OLD_INODES).ok_or(Errno::IO)
    }

    pub(super) fn look_at_old(&self, gone: &[u16]) -> Result<Old, Errno> {
        let region = self.session.region();
        let mut old = Old::default();
        let table = Offset::from_raw(self.old_inodes()?.load(Ordering::Acquire));
        let cached = |number| arck_libfs_kit::views::refresh::known_in(self.session, table, number);
        // How many of the departed have an inode open.
        let mut departed: HashMap<InodeNumber, u32> = HashMap::new();
        for index in 0..self.state.description_end.load(Ordering::Acquire) {
            let Some(description) = self.description_at(index) else {
                continue;
            };
            if description.references.load(Ordering::Acquire) as u32 == 0 {
                continue;
            }
            let number = description.inode.load(Ordering::Relaxed);
            if gone.contains(&description.member()) {
                *departed.entry(number).or_default() += 1;
                continue;
            }
            let listing = description.listing.load(Ordering::Acquire);
            if !listing.is_null() {
                let end = description.listing_end.load(Ordering::Relaxed);
                let mut bytes = vec![0; usize::try_from(end).map_err(|_| Errno::IO)?];
                if region.read_bytes(listing, &mut bytes) {
                    old.listings.insert(index, bytes);
                }
            }
        }
        for number in 1..self.session.geometry().inode_count {
            let Some(header) = self.session.header(number) else {
                break;
            };
            if is_uncommitted(self.session, header)
                && let Some(inode) = cached(number)
                && inode.generation() == header.generation()
                && inode.has(flag::UNCOMMITTED)
                && inode.openings() > departed.get(&number).copied().unwrap_or(0)
            {
                old.nameless.push(Nameless::of(inode));
            }
        }
        Ok(old)
    }
}

/// Makes the view of an inode that goes on; `stored`: what its branch says.
pub(super) fn go_on(
    viewing: &Viewing<'_>,
    one: &Nameless,
    stored: Option<&StoredBranch>,
) -> Attempt<()> {
    let header = viewing.header(one.number)?;
    let inode = viewing.cached(one.number)?;
    let relaxed = Ordering::Relaxed;
    inode.mode.store(one.mode, relaxed);
    inode.uid.store(one.uid, relaxed);
    inode.gid.store(one.gid, relaxed);
    inode.holder.store(one.parent, relaxed);
    for (field, time) in times_of(inode).into_iter().zip(one.times) {
        field.store(time, relaxed);
    }
    if FileKind::from_mode(one.mode) == Some(FileKind::Directory) {
        // As it was made: nobody counts those of what is removed.
        inode.base_links.store(2, relaxed);
    }
    if let Some(stored) = stored {
        follow(viewing, File::of(inode)?, stored);
    }
    inode.flags.store(one.flags, Ordering::Release);
    inode.expect(Expected {
        ownership: header.ownership().bare(),
        fold: header.fold(),
    });
    let sequence = header.sequence.load(Ordering::Acquire);
    inode.sequence.store(sequence, Ordering::Release);
    Ok(())
}

/// Makes a view say what the branch does.
fn follow(viewing: &Viewing<'_>, file: File, stored: &StoredBranch) {
    let relaxed = Ordering::Relaxed;
    if stored.size != UNCHANGED_SIZE {
        file.size.store(stored.size, relaxed);
    }
    if stored.mode != UNCHANGED_MODE {
        let kind = file.mode.load(relaxed) & !0o7777;
        file.mode.store(kind | stored.mode as u32 & 0o7777, relaxed);
    }
    let times = [stored.accessed, stored.modified, stored.changed];
    for (field, time) in times_of(&file).into_iter().zip(times) {
        if time != UNCHANGED_TIME {
            field.store(time as u64, relaxed);
        }
    }
    let mut pages = 0;
    delta::for_each_entry(
        viewing.session,
        stored.root,
        &mut |_, entry| pages += u64::from(entry != HOLE),
        &mut |_| {},
    );
    file.part().pages.store(pages, relaxed);
    file.set_delta_root(stored.root, u64::MAX);
    file.part().limit.store(stored.limit, relaxed);
    file.attributes.store(stored.attributes, relaxed);
    // Its beginning may not be durable: whoever goes on makes it so.
    file.branch.store(begun::STORED, Ordering::Release);
    viewing.note_dirty(&file);
}
