//! What must come along: the inodes that have to be folded in the same atomic step.

use crate::by_number::ByNumber;
use crate::copy::CopiedDelta;
use crate::effects::{Effects, PlacedRecord, placed_records};
use crate::state::VerifiedState;
use arck_core_state::FileKind;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::record::effect;

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
    let mut wanted: Vec<InodeNumber> = Vec::new();
    for delta in deltas {
        wanted.extend(delta.branch.partners);
        if delta.header.kind == HeaderKind::Granted {
            wanted.push(delta.branch.parent);
        }
    }
    let last = lose_their_last_name(deltas, state, &mut wanted);
    wanted.extend(last);
    wanted.sort_unstable();
    wanted.dedup();
    let mut known: Vec<InodeNumber> = deltas.iter().map(|delta| delta.inode).collect();
    known.sort_unstable();
    wanted.retain(|&number| {
        number != 0
            && known.binary_search(&number).is_err()
            && state
                .header(number)
                .is_some_and(|header| header.ownership.session() == session)
    });
    wanted
}

/// The inodes that lose their last name by these deltas.
pub fn removed_last(deltas: &[CopiedDelta], state: &impl VerifiedState) -> Vec<InodeNumber> {
    lose_their_last_name(deltas, state, &mut Vec::new())
}

/// Inodes of which more verified names go than are left or come. Source directories of records are added to
/// `wanted` on the way.
///
/// A record that moves a name says which inode it is that loses the one and gets the other: it is not looked up. Who
/// says another one there lets an inode die that he could have removed.
fn lose_their_last_name(
    deltas: &[CopiedDelta],
    state: &impl VerifiedState,
    wanted: &mut Vec<InodeNumber>,
) -> Vec<InodeNumber> {
    // Verified names that go, less names that come.
    let mut lost: ByNumber<(InodeNumber, i64)> = ByNumber::default();
    let mut loses = |directory, name: &[u8]| {
        if let Some(dentry) = state.lookup(directory, name) {
            let lost = lost.get_or_insert_with(dentry.inode, || (dentry.inode, 0));
            lost.1 += 1;
        }
    };
    // Records without effects change nothing.
    let live = || deltas.iter().flat_map(placed_records);
    let has_kills = live().any(|placed| placed.has(effect::KILL_SOURCE | effect::KILL_TARGET));
    let moves = |placed: &PlacedRecord<'_>| {
        !has_kills && placed.has(effect::REMOVE_SOURCE) && placed.has(effect::ADD)
    };
    let mut come = Vec::new();
    for placed in live().filter(|placed| placed.record.state != 0) {
        if placed.reaches_elsewhere() && wanted.last() != Some(&placed.source_directory()) {
            wanted.push(placed.source_directory());
        }
        let removals = placed.removals();
        removals
            .skip(usize::from(moves(&placed)))
            .for_each(|(directory, name)| loses(directory, name));
        if placed.has(effect::ADD) && !moves(&placed) {
            come.push(placed.record.inode);
        }
    }
    if lost.is_empty() {
        return Vec::new();
    }
    if has_kills {
        // Some of those do not come.
        let effects = Effects::gather(deltas);
        come = effects.adds().map(|placed| placed.record.inode).collect();
    }
    for number in come {
        if let Some(lost) = lost.get_mut(number) {
            lost.1 -= 1;
        }
    }
    let lost = lost.into_entries().into_iter();
    let gone = lost.filter_map(|(number, count)| {
        let inode = state.inode(number)?;
        let names = match inode.kind() {
            Some(FileKind::Directory) => 1,
            _ => i64::from(inode.links),
        };
        (count >= names).then_some(number)
    });
    gone.collect()
}
