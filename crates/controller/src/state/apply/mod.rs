//! Applies the changes of a verified fold to the verified state, within one [`Change`].
//!
//! # Invariants
//! * The verifier has checked that the changes keep I1 to I4; what is computed here (entries,
//!   link counts of directories, sizes of directories, pages allocated) follows from them.
//! * An inode without a name is an orphan first, and freed in a change of its own.
//! * Times and modes are those that the delta says; a directory whose names change without
//!   times in its branch keeps its times. A time of change does not go back: a fold may bring an
//!   inode's own changes behind those of its names, or another session's, that were made later.

pub mod directory;
pub mod file;
pub mod many;

use crate::pool::clock::now;
use crate::state::change::Change;
use arck_core_state::header::HeaderKind;
use arck_core_state::inode::FileKind;
use arck_core_state::{IndexRoot, Inode, InodeNumber, PAGE_SIZE, PagePtr, cast};
use arck_verifier::{ChangedName, Changes, Creation, InodeChange};
use foldhash::HashMap;
use rustix::io::Errno;

/// Applies all of a fold's changes. Inodes that lose their last name become orphans; whether
/// they can be freed is looked at afterwards, when every session can see that they are
/// orphans. Gives those. ENOSPC; EIO if the verified state is damaged.
pub fn apply(change: &mut Change<'_>, changes: &Changes<'_>) -> Result<Vec<InodeNumber>, Errno> {
    let now = now();
    change.note_fold(changes);
    let numbers = changes.links.len().max(changes.times.len());
    change.reserve_numbers(changes.creations.len() + numbers);
    for inode in &changes.inodes {
        if let Some(mode) = inode.mode {
            change.set_final_mode(inode.inode, mode);
        }
    }
    for creation in parents_first(&changes.creations) {
        created(change, creation)?;
    }
    for inode in &changes.inodes {
        remove_names(change, inode)?;
    }
    for inode in &changes.inodes {
        add_names(change, inode)?;
        attributes_and_data(change, inode, now)?;
    }
    for &(number, time) in &changes.times {
        // It may be an inode that the session could not stamp otherwise.
        change.change_inode(number, |inode| {
            inode.changed = later(inode.changed, time.min(now), now);
        })?;
    }
    let mut dying = Vec::new();
    for &(number, by) in &changes.links {
        change_links(change, number, by, &mut dying)?;
    }
    for &number in &changes.removed_directories {
        orphan(change, number)?;
        dying.push(number);
    }
    Ok(dying)
}

/// Changes the link count of what is no directory; without links it becomes an orphan, and with the first
/// one it is none any more.
pub fn change_links(
    change: &mut Change<'_>,
    number: InodeNumber,
    by: i64,
    dying: &mut Vec<InodeNumber>,
) -> Result<(), Errno> {
    let mut links = Err(Errno::IO);
    change.change_inode(number, |inode| {
        links = u32::try_from(i64::from(inode.links) + by).map_err(|_| Errno::IO);
        inode.links = links.unwrap_or(inode.links);
    })?;
    if links? == 0 {
        orphan(change, number)?;
        dying.push(number);
    } else if let header = change.header(number)?
        && header.kind == HeaderKind::Orphan
    {
        header.kind = HeaderKind::Alive;
    }
    Ok(())
}

/// The later of two times of change, of which `old` counts for nothing where it has not come yet: the
/// clock was wrong then.
fn later(old: i64, new: i64, now: i64) -> i64 {
    if old > now { new } else { old.max(new) }
}

/// Takes an inode out of the tree.
pub fn orphan(change: &mut Change<'_>, number: InodeNumber) -> Result<(), Errno> {
    change.change_inode(number, |inode| inode.links = 0)?;
    change.header(number)?.kind = HeaderKind::Orphan;
    Ok(())
}

/// Frees an inode with all of its pages.
pub fn free(change: &mut Change<'_>, number: InodeNumber) -> Result<(), Errno> {
    if let Some(inode) = change.inode(number) {
        match inode.kind() {
            Some(FileKind::Directory) => directory::free_all(change, &inode)?,
            Some(FileKind::File | FileKind::Link) => {
                file::truncate(change, number, inode.root, 0)?;
            }
            _ => {}
        }
        if !inode.attributes.is_null() {
            change.set_data_page_used(inode.attributes, false);
        }
    }
    change.free_inode(number)
}

/// Creations, those of directories before what is created in them: the class of a place follows from the
/// directories above it, and where one is missing it is nobody's.
fn parents_first(creations: &[Creation]) -> Vec<&Creation> {
    let directories = creations.iter().filter(|of| of.kind == FileKind::Directory);
    let mut waiting: HashMap<InodeNumber, &Creation> = directories
        .map(|creation| (creation.inode, creation))
        .collect();
    let mut ordered = Vec::with_capacity(creations.len());
    for creation in creations {
        let first = ordered.len();
        let mut next = match creation.kind {
            FileKind::Directory => waiting.remove(&creation.inode),
            _ => Some(creation),
        };
        while let Some(found) = next {
            ordered.push(found);
            next = waiting.remove(&found.parent);
        }
        ordered[first..].reverse();
    }
    ordered
}

pub fn created(change: &mut Change<'_>, creation: &Creation) -> Result<(), Errno> {
    let is_directory = creation.kind == FileKind::Directory;
    let inode = Inode {
        number: creation.inode,
        generation: creation.generation,
        mode: creation.kind.mode_bits() | creation.mode & 0o7777,
        links: if is_directory { 2 } else { creation.names },
        uid: creation.uid,
        gid: creation.gid,
        size: if is_directory { PAGE_SIZE } else { 0 },
        root: IndexRoot::EMPTY,
        accessed: creation.created,
        modified: creation.created,
        changed: creation.created,
        created: creation.created,
        pages: 0,
        parent: if is_directory { creation.parent } else { 0 },
        entries: 0,
        mediation: 0,
        reserved0: 0,
        attributes: PagePtr::NULL,
        reserved: [0; 3],
    };
    if change.state.space.shared {
        // Its own mode has no part in it: who may search its directory may see its attributes.
        let class = change.search_class(creation.parent);
        let label = change.state.label(class.as_ref());
        change.allocate_for_class(label);
    }
    let address = change.place_inode(inode)?;
    let header = change.header(creation.inode)?;
    header.inode = address;
    header.kind = HeaderKind::Alive;
    header.file_kind = Some(creation.kind);
    Ok(())
}

/// How many of the names lead to directories.
fn count_directories(names: &[ChangedName<'_>]) -> u32 {
    let directories = names
        .iter()
        .filter(|name| name.dentry.kind == FileKind::Directory);
    cast::count(directories.count())
}

fn remove_names(change: &mut Change<'_>, wanted: &InodeChange<'_>) -> Result<(), Errno> {
    if wanted.names_removed.is_empty() {
        return Ok(());
    }
    let mut inode = change.inode(wanted.inode).ok_or(Errno::IO)?;
    many::remove_all(change, &mut inode, &wanted.names_removed)?;
    let links = count_directories(&wanted.names_removed);
    inode.links = inode.links.saturating_sub(links);
    change.set_inode(inode);
    Ok(())
}

fn add_names(change: &mut Change<'_>, wanted: &InodeChange<'_>) -> Result<(), Errno> {
    if wanted.names_added.is_empty() {
        return Ok(());
    }
    let mut inode = change.inode(wanted.inode).ok_or(Errno::IO)?;
    many::add_all(change, &mut inode, &wanted.names_added)?;
    let links = count_directories(&wanted.names_added);
    inode.links = inode.links.checked_add(links).ok_or(Errno::MLINK)?;
    change.set_inode(inode);
    Ok(())
}

fn attributes_and_data(
    change: &mut Change<'_>,
    wanted: &InodeChange<'_>,
    now: i64,
) -> Result<(), Errno> {
    let mut inode = change.inode(wanted.inode).ok_or(Errno::IO)?;
    if let Some(mode) = wanted.mode {
        inode.mode = inode.mode & !0o7777 | mode & 0o7777;
    }
    if let Some(modified) = wanted.modified {
        inode.modified = modified;
    }
    if let Some(changed) = wanted.changed {
        inode.changed = later(inode.changed, changed, now);
    }
    if let Some(accessed) = wanted.accessed {
        inode.accessed = accessed;
    }
    let has_data = matches!(inode.kind(), Some(FileKind::File | FileKind::Link));
    if has_data {
        change.allocate_for(&inode);
        if let Some(limit) = wanted.limit {
            let (root, dropped) = file::truncate(change, inode.number, inode.root, limit)?;
            inode.root = root;
            inode.pages = inode.pages.saturating_sub(dropped);
        }
        let mut setter = file::Setter::new(inode.root);
        let mut olds = Vec::new();
        for run in file::by_leaf(&wanted.pages) {
            setter.set_run(change, run, &mut olds)?;
            for (&(_, pointer), &old) in run.iter().zip(&olds) {
                if !old.is_null() && old != pointer {
                    change.drop_data_page(inode.number, old);
                }
                inode.pages =
                    inode.pages + u64::from(!pointer.is_null()) - u64::from(!old.is_null());
            }
        }
        // After the old ones: a page may have been dropped and set again.
        let set = wanted.pages.iter().filter(|(_, p)| !p.is_null());
        let mut before = None;
        for &(_, pointer) in set {
            change.set_data_page_used(pointer, true);
            let segment = change.segment_of(pointer);
            if std::mem::replace(&mut before, segment) != segment {
                change.note_user(pointer, inode.uid);
            }
        }
        inode.root = setter.root();
        if let Some(size) = wanted.size {
            inode.size = size;
        }
    }
    if let Some(number) = wanted.size
        && inode.kind().is_some_and(FileKind::is_device)
    {
        inode.size = number;
    }
    if let Some(page) = wanted.attributes {
        if !inode.attributes.is_null() {
            change.set_data_page_used(inode.attributes, false);
        }
        if !page.is_null() {
            change.set_data_page_used(page, true);
            change.note_user(page, inode.uid);
        }
        inode.attributes = page;
    }
    change.set_inode(inode);
    Ok(())
}
