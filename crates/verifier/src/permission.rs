//! I4: what the session's user may do, judged by the shadow inodes.
//!
//! Rights are those of the verified state. A directory's or file's owner counts as allowed to
//! write, whatever the mode says: it may give itself the right, and keeps what it had opened.

use crate::change::Creation;
use crate::copy::CopiedDelta;
use crate::fold_set::FoldSet;
use crate::names::Names;
use crate::rule::{Rule, Violation};
use crate::state::{Credentials, VerifiedState, is_directory, may_touch, may_write};
use arck_core_state::branch::{UNCHANGED_MODE, UNCHANGED_TIME, offset};
use arck_core_state::cast;
use arck_core_state::{FileKind, Inode, InodeNumber};
use foldhash::HashSet;

const STICKY: u32 = 0o1000;
const SET_GROUP_ID: u32 = 0o2000;
const SET_USER_ID: u32 = 0o4000;
const GROUP_EXECUTE: u32 = 0o010;

/// Checks all names that change.
pub(crate) fn check_names<S: VerifiedState>(
    set: &FoldSet<'_, S>,
    names: &Names,
) -> Result<(), Violation> {
    for change in names.changes() {
        let number = change.directory;
        let (inode, at) = change.first;
        if names.creation(number).is_some() {
            continue;
        }
        let Some(directory) = set.state.inode(number).filter(is_directory) else {
            let detail = format!("inode {number} is no directory");
            return Err(Violation::new(Rule::InDirectory, inode, at, detail));
        };
        if !set.owns(number) {
            let detail = format!("directory {number} is not owned");
            return Err(Violation::new(Rule::Owned, inode, at, detail));
        }
        if !may_write(set.who, &directory) {
            let detail = format!("user {} may not change names of {number}", set.who.uid);
            return Err(Violation::new(Rule::DirectoryPermission, inode, at, detail));
        }
    }
    // Of the directory of the last removal, whether it lets only owners remove names.
    let mut looked_at = None;
    for removal in &names.removals {
        let uid_of = |number: InodeNumber| set.state.inode(number).map(|inode| inode.uid);
        let uid = set.who.uid;
        let is_sticky = match looked_at {
            Some((directory, is_sticky)) if directory == removal.directory => is_sticky,
            _ => set.state.inode(removal.directory).is_some_and(|directory| {
                directory.mode & STICKY != 0 && !set.who.is_root() && directory.uid != uid
            }),
        };
        looked_at = Some((removal.directory, is_sticky));
        if is_sticky && uid_of(removal.victim) != Some(uid) {
            let (inode, at) = removal.first;
            let detail = format!("user {uid} removes a name of inode {}", removal.victim);
            return Err(Violation::new(Rule::Sticky, inode, at, detail));
        }
    }
    check_creations(set, names)
}

fn check_creations<S: VerifiedState>(set: &FoldSet<'_, S>, names: &Names) -> Result<(), Violation> {
    if set.who.is_root() {
        return Ok(());
    }
    // Groups that a set-group-id directory of the set hands down: an inode may have been created
    // in one and moved on since.
    let mut handed_down = HashSet::default();
    for change in names.changes() {
        if let Some(directory) = set.state.inode(change.directory)
            && effective_mode(set, &directory) & SET_GROUP_ID != 0
        {
            handed_down.insert(directory.gid);
        }
    }
    for (creation, at) in &names.creations {
        let refuse = |rule, detail: String| Err(Violation::new(rule, creation.parent, *at, detail));
        let Creation { uid, gid, .. } = *creation;
        if creation.kind == FileKind::BlockDevice {
            return refuse(Rule::Device, format!("user {} makes a device", set.who.uid));
        }
        if uid != set.who.uid {
            return refuse(Rule::CreationUser, format!("user {uid} for a new inode"));
        }
        let member = set.who.in_group(gid);
        if !member && !handed_down.contains(&gid) {
            return refuse(Rule::CreationGroup, format!("group {gid} for a new inode"));
        }
        // As the kernel makes it: without a bit for its group to execute it, set-group-ID gives nobody anything.
        let program = creation.mode & SET_GROUP_ID != 0 && creation.mode & GROUP_EXECUTE != 0;
        if program && !member && creation.kind != FileKind::Directory {
            return refuse(Rule::SetGroupId, format!("group {gid} for a new inode"));
        }
    }
    Ok(())
}

/// Old bits and new ones: a directory whose owner gave it the bit has it before the fold.
fn effective_mode<S: VerifiedState>(set: &FoldSet<'_, S>, inode: &Inode) -> u32 {
    let changed = set
        .delta(inode.number)
        .filter(|delta| delta.branch.mode != UNCHANGED_MODE)
        .map_or(0, |delta| cast::low(delta.branch.mode));
    inode.mode | changed
}

/// Checks the attributes of a branch; `inode` as verified, or as created. `named`: it gains or
/// loses names, which changes its change time, whoever may write it.
pub(crate) fn check_attributes(
    who: &Credentials,
    delta: &CopiedDelta,
    inode: &Inode,
    named: bool,
) -> Result<(), Violation> {
    let branch = &delta.branch;
    let refuse = |rule, field, detail: String| {
        Err(Violation::new(
            rule,
            delta.inode,
            delta.field(field),
            detail,
        ))
    };
    let is_owner = who.is_root() || who.uid == inode.uid;
    if branch.mode != UNCHANGED_MODE {
        if branch.mode > 0o7777 {
            return refuse(Rule::Mode, offset::MODE, format!("mode {:#o}", branch.mode));
        }
        if !is_owner {
            let detail = format!("user {} changes the mode", who.uid);
            return refuse(Rule::ModePermission, offset::MODE, detail);
        }
        let inherited = is_directory(inode) && inode.mode & SET_GROUP_ID != 0;
        let new = cast::low(branch.mode) & SET_GROUP_ID != 0;
        if new && !inherited && !who.is_root() && !who.in_group(inode.gid) {
            let detail = format!("user {} is not in group {}", who.uid, inode.gid);
            return refuse(Rule::SetGroupId, offset::MODE, detail);
        }
    }
    let may_touch = may_touch(who, inode);
    // Of a directory the bit for search is not needed to set its extended attributes.
    let extended = branch.attributes != 0 && who.may(inode, 2);
    for (time, field, allowed) in [
        (branch.modified, offset::MODIFIED, may_touch),
        (
            branch.changed,
            offset::CHANGED,
            may_touch || named || extended,
        ),
        (branch.accessed, offset::ACCESSED, may_touch),
    ] {
        if time != UNCHANGED_TIME && !allowed {
            let detail = format!("user {} changes a time", who.uid);
            return refuse(Rule::TimePermission, field, detail);
        }
    }
    Ok(())
}

/// Checks a change of data or size. The target of a symbolic link is its owner's alone: the
/// mode of a link says nothing.
pub(crate) fn check_write(
    who: &Credentials,
    delta: &CopiedDelta,
    inode: &Inode,
) -> Result<(), Violation> {
    let allowed = match inode.kind() {
        Some(FileKind::Link) => who.is_root() || who.uid == inode.uid,
        _ => may_write(who, inode),
    };
    if allowed {
        return Ok(());
    }
    let detail = format!("user {} may not write", who.uid);
    let at = delta.field(offset::IDENTITY);
    Err(Violation::new(
        Rule::WritePermission,
        delta.inode,
        at,
        detail,
    ))
}

/// Checks a change of extended attributes: for who may write, of a sticky directory for its owner
/// alone.
pub(crate) fn check_extended(
    who: &Credentials,
    delta: &CopiedDelta,
    inode: &Inode,
) -> Result<(), Violation> {
    let Some(rule) = extended_refused(who, inode) else {
        return Ok(());
    };
    let detail = format!("user {} may not set extended attributes", who.uid);
    let at = delta.field(offset::PARENT) + 4;
    Err(Violation::new(rule, delta.inode, at, detail))
}

/// The rule that keeps a user from setting extended attributes of an inode, if one does.
pub fn extended_refused(who: &Credentials, inode: &Inode) -> Option<Rule> {
    let owner = who.is_root() || who.uid == inode.uid;
    if !owner && is_directory(inode) && inode.mode & STICKY != 0 {
        Some(Rule::Sticky)
    } else if !owner && !who.may(inode, 2) {
        Some(Rule::WritePermission)
    } else {
        None
    }
}

/// The mode after a write: who writes a file takes its set-id bits away, as on Linux, be it his own;
/// not root. `None` if that changes nothing.
pub fn mode_after_write(who: &Credentials, inode: &Inode) -> Option<u32> {
    let taken = match who.is_root() {
        true => 0,
        false => set_id_bits(who, inode),
    };
    (taken != 0).then_some(inode.mode & 0o7777 & !taken)
}

/// The set-id bits that a file has and loses when it is written, or chown is called.
pub fn set_id_bits(who: &Credentials, inode: &Inode) -> u32 {
    let mut taken = SET_USER_ID;
    let member = who.is_root() || who.in_group(inode.gid);
    if inode.mode & GROUP_EXECUTE != 0 || !member {
        taken |= SET_GROUP_ID;
    }
    inode.mode & taken
}
