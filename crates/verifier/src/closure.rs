//! What must come along: the inodes that have to be folded in the same atomic step.

use crate::copy::CopiedDelta;
use crate::effects::Effects;
use crate::state::VerifiedState;
use arck_core_state::FileKind;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use std::collections::{BTreeSet, HashSet};

/// The inodes beyond `deltas` that must be in the fold set too, ascending, each once:
///
/// * partners that a branch names (both ends of a move), and the source directories of records;
/// * the directory in which an unborn inode is born;
/// * directories that lose their name: whether they are empty is told by their deltas.
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
    let staying: HashSet<_> = effects
        .adds()
        .filter(|placed| placed.record.kind == FileKind::Directory)
        .map(|placed| (placed.directory, placed.record.inode))
        .collect();
    for placed in &effects.records {
        if placed.reaches_elsewhere() {
            wanted.insert(placed.source_directory());
        }
        for (directory, name) in placed.removals() {
            if let Some(dentry) = state.lookup(directory, name)
                && dentry.kind == FileKind::Directory
                && !staying.contains(&(directory, dentry.inode))
            {
                wanted.insert(dentry.inode);
            }
        }
    }
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
