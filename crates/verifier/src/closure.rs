//! What must come along: the inodes that have to be folded in the same atomic step.

use crate::copy::CopiedDelta;
use crate::effects::Effects;
use crate::state::VerifiedState;
use arck_core_state::FileKind;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use foldhash::HashMap;
use std::collections::BTreeSet;

/// The inodes beyond `deltas` that must be in the fold set too, ascending, each once:
///
/// * partners that a branch names, and the source directories of records. Partners of a
///   directory are the other ends of moves; partners of anything else are the directories in
///   whose deltas it gained names by link;
/// * the directory in which an uncommitted inode is created;
/// * directories that lose their name: whether they are empty is told by their deltas;
/// * other inodes that lose their last verified name: their branches tell (by partners) where
///   they have new names, without which they would die in this fold.
///
/// Only inodes that `session` owns now are named. Inodes that have no branch are named again at
/// every call: the controller is done when all that is named is in its set already.
pub fn closure(
    deltas: &[CopiedDelta],
    state: &impl VerifiedState,
    session: SessionNumber,
) -> Vec<InodeNumber> {
    let mut wanted = BTreeSet::new();
    for delta in deltas {
        wanted.extend(delta.branch.partners);
        if delta.header.kind == HeaderKind::Granted {
            wanted.insert(delta.branch.parent);
        }
    }
    let effects = Effects::gather(deltas);
    // Verified names that go, less names that come.
    let mut lost: HashMap<InodeNumber, i64> = HashMap::default();
    for placed in &effects.records {
        if placed.reaches_elsewhere() {
            wanted.insert(placed.source_directory());
        }
        for (directory, name) in placed.removals() {
            if let Some(dentry) = state.lookup(directory, name) {
                *lost.entry(dentry.inode).or_default() += 1;
            }
        }
    }
    for placed in effects.adds() {
        if let Some(count) = lost.get_mut(&placed.record.inode) {
            *count -= 1;
        }
    }
    wanted.extend(lost.into_iter().filter_map(|(number, count)| {
        let inode = state.inode(number)?;
        let names = match inode.kind() {
            Some(FileKind::Directory) => 1,
            _ => i64::from(inode.links),
        };
        (count >= names).then_some(number)
    }));
    for delta in deltas {
        wanted.remove(&delta.inode);
    }
    wanted.retain(|&number| {
        number != 0
            && state
                .header(number)
                .is_some_and(|header| header.ownership.session() == session)
    });
    wanted.into_iter().collect()
}
