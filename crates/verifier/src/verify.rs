//! The whole check, in the order of the rules' groups.

use crate::change::{Changes, Creation, InodeChange};
use crate::copy::CopiedDelta;
use crate::effects::Effects;
use crate::file;
use crate::fold_set::{FoldSet, SetMember};
use crate::names::Names;
use crate::page_set::PageSet;
use crate::permission;
use crate::places::Places;
use crate::rule::{Rule, Violation};
use crate::state::{Credentials, VerifiedState};
use arck_core_state::branch::{UNCHANGED_MODE, UNCHANGED_TIME, offset};
use arck_core_state::cast;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode, InodeNumber};
use zerocopy::FromZeros;

/// Checks the deltas of one fold set against the verified state.
///
/// * `who`: the session that made them.
/// * `set`: all inodes of the fold, each once, with the headers as they were marked. Those
///   without a branch are needed where other inodes' records change them.
/// * `deltas`: the copies made with one [`PageBudget`](crate::copy::PageBudget), at most one
///   for each member, each a member's.
///
/// On success all of the changes are to be applied in one atomic step. Takes time and memory in
/// proportion to the deltas.
pub fn verify<'a>(
    state: &impl VerifiedState,
    who: &Credentials,
    set: &[SetMember],
    deltas: &'a [CopiedDelta],
) -> Result<Changes<'a>, Violation> {
    verify_with(state, who, set, deltas, &Places::default())
}

/// As [`verify`]; `places` are those that [`closure_with`](crate::closure_with) has found of these deltas.
pub fn verify_with<'a>(
    state: &impl VerifiedState,
    who: &Credentials,
    set: &[SetMember],
    deltas: &'a [CopiedDelta],
    places: &Places,
) -> Result<Changes<'a>, Violation> {
    let fold_set = FoldSet::new(state, who, set, deltas, places)?;
    let effects = Effects::gather(deltas);
    effects.check_fields()?;
    let mut names = Names::check(&fold_set, &effects)?;
    permission::check_names(&fold_set, &names)?;

    let mut changes = Changes::default();
    let mut used = PageSet::default();
    for member in set {
        let delta = fold_set.delta(member.number);
        if member.header.kind == HeaderKind::Granted && names.creation(member.number).is_none() {
            // Its records may have been killed by others of the set, or have changed others.
            if delta.is_some_and(|delta| delta.branch.tails.iter().any(|&page| page != 0)) {
                changes.discarded.push(member.number);
            } else {
                changes.skipped.push(member.number);
            }
            continue;
        }
        let mut change = match delta {
            Some(delta) => inode_change(&fold_set, &names, delta, &mut used)?,
            None => unchanged(member.number),
        };
        let named = names.take_change(member.number);
        let has_names = named.is_some();
        if let Some(named) = named {
            change.names_removed = named.removed;
            change.names_added = named.added;
        }
        if delta.is_some() || has_names {
            changes.inodes.push(change);
        }
    }
    // In the memory in which they are.
    let creations = names.creations.into_iter();
    changes.creations = creations.map(|(creation, _)| creation).collect();
    changes.links = names.links;
    changes.times = names.times;
    changes.removed_directories = names.removed_directories;
    Ok(changes)
}

fn unchanged<'a>(inode: InodeNumber) -> InodeChange<'a> {
    InodeChange {
        inode,
        mode: None,
        modified: None,
        changed: None,
        accessed: None,
        size: None,
        limit: None,
        pages: Vec::new(),
        attributes: None,
        names_removed: Vec::new(),
        names_added: Vec::new(),
    }
}

/// Attributes and data of one inode.
fn inode_change<'a, S: VerifiedState>(
    set: &FoldSet<'_, S>,
    names: &Names<'_>,
    delta: &CopiedDelta,
    used: &mut PageSet,
) -> Result<InodeChange<'a>, Violation> {
    let created = names.creation(delta.inode).map(as_created);
    let Some(inode) = created.or_else(|| set.state.inode(delta.inode)) else {
        let at = delta.field(offset::IDENTITY);
        let detail = "not alive";
        return Err(Violation::new(Rule::NumberGranted, delta.inode, at, detail));
    };
    permission::check_attributes(set.who, delta, &inode, names.concern(delta.inode))?;
    let file = file::check(set, delta, &inode, used)?;
    let branch = &delta.branch;
    let time = |time| (time != UNCHANGED_TIME).then_some(time);
    let mut change = InodeChange {
        // Checked to be permission bits.
        mode: (branch.mode != UNCHANGED_MODE).then_some(cast::low(branch.mode)),
        modified: time(branch.modified),
        changed: time(branch.changed),
        accessed: time(branch.accessed),
        ..unchanged(delta.inode)
    };
    let is_device = inode.kind().is_some_and(FileKind::is_device);
    // The number of a device is no contents.
    if !file.is_nothing() && !is_device {
        permission::check_write(set.who, delta, &inode)?;
        change.mode = change
            .mode
            .or_else(|| permission::mode_after_write(set.who, &inode));
    }
    change.attributes = file::check_attributes(set, delta, &inode, used)?;
    if change.attributes.is_some() {
        permission::check_extended(set.who, delta, &inode)?;
    }
    change.size = file.size;
    change.limit = file.limit;
    change.pages = file.pages;
    Ok(change)
}

/// A created inode as the rules see it: empty.
fn as_created(creation: &Creation) -> Inode {
    let mut inode = Inode::new_zeroed();
    inode.number = creation.inode;
    inode.generation = creation.generation;
    inode.mode = creation.kind.mode_bits() | creation.mode;
    inode.uid = creation.uid;
    inode.gid = creation.gid;
    inode
}
