//! What must come along: the inodes that have to be folded in the same atomic step.

use crate::by_number::ByNumber;
use crate::copy::CopiedDelta;
use crate::effects::{Effects, placed_records};
use crate::order::{Placed, bucket_by_bucket};
use crate::places::{self, NamePlace, Places};
use crate::state::VerifiedState;
use arck_core_state::FileKind;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_core_state::in_order::Sought;
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
/// every call: the controller is done when all that is named is in its set already, or is a file whose delta names nothing.
pub fn closure(
    deltas: &[CopiedDelta],
    state: &impl VerifiedState,
    session: SessionNumber,
) -> Vec<InodeNumber> {
    closure_with(deltas, state, session, &mut Places::default(), |_| true)
}

/// As [`closure`]; `places` are those of the names that it has looked up, and `comes` says which of those that lose their
/// last verified name have to: directories, and what may have another one.
pub fn closure_with(
    deltas: &[CopiedDelta],
    state: &impl VerifiedState,
    session: SessionNumber,
    places: &mut Places,
    comes: impl Fn(InodeNumber) -> bool,
) -> Vec<InodeNumber> {
    let mut wanted: Vec<InodeNumber> = Vec::new();
    for delta in deltas {
        wanted.extend(delta.branch.partners);
        if delta.header.kind == HeaderKind::Granted {
            wanted.push(delta.branch.parent);
        }
    }
    let last = lose_their_last_name(deltas, state, &mut wanted, places);
    wanted.extend(last.into_iter().filter(|&number| comes(number)));
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
    lose_their_last_name(deltas, state, &mut Vec::new(), &mut Places::default())
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
    places: &mut Places,
) -> Vec<InodeNumber> {
    let about = deltas.iter().map(CopiedDelta::records_about).sum();
    let mut come = Vec::new();
    let mut going: Vec<Going<'_>> = Vec::with_capacity(about);
    let mut moved: Vec<Going<'_>> = Vec::new();
    let mut has_kills = false;
    // Records without effects change nothing.
    let live = deltas.iter().flat_map(placed_records);
    for placed in live.filter(|placed| placed.record.state != 0) {
        if placed.reaches_elsewhere() && wanted.last() != Some(&placed.source_directory()) {
            wanted.push(placed.source_directory());
        }
        has_kills |= placed.has(effect::KILL_SOURCE | effect::KILL_TARGET);
        let is_move = placed.has(effect::REMOVE_SOURCE) && placed.has(effect::ADD);
        for (is_source, directory, name) in placed.removals() {
            let goes = Going {
                directory,
                hash: 0,
                name,
                key: places::key(&placed, is_source),
            };
            match is_move && is_source {
                true => moved.push(goes),
                false => going.push(goes),
            }
        }
        if placed.has(effect::ADD) && !is_move {
            come.push(placed.record.inode);
        }
    }
    if has_kills {
        // Some of those that move do not come.
        going.append(&mut moved);
    }
    for goes in &mut going {
        goes.hash = state.hash(goes.name);
    }
    let mut lost = look_up(going, state, places);
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

/// A verified name that goes.
struct Going<'a> {
    directory: InodeNumber,
    hash: u64,
    name: &'a [u8],
    /// Of its place.
    key: u64,
}

impl Placed for Going<'_> {
    fn directory(&self) -> InodeNumber {
        self.directory
    }
    fn hash(&self) -> u64 {
        self.hash
    }
    fn name(&self) -> &[u8] {
        self.name
    }
}

/// How many of these names lead to each inode.
fn look_up(
    going: Vec<Going<'_>>,
    state: &impl VerifiedState,
    places: &mut Places,
) -> ByNumber<(InodeNumber, i64)> {
    let mut lost: ByNumber<(InodeNumber, i64)> = ByNumber::default();
    let mut known = Vec::with_capacity(going.len());
    let order = bucket_by_bucket(&going);
    for run in order.chunk_by(|&one, &next| going[one].directory == going[next].directory) {
        let sought: Vec<Sought<'_>> = run
            .iter()
            .map(|&at| Sought {
                hash: going[at].hash,
                name: going[at].name,
            })
            .collect();
        state.lookup_all(going[run[0]].directory, &sought, &mut |at, found| {
            let Some((dentry, place)) = found else {
                return;
            };
            let lost = lost.get_or_insert_with(dentry.inode, || (dentry.inode, 0));
            lost.1 += 1;
            let Going { key, hash, .. } = going[run[at]];
            let found = NamePlace {
                hash,
                dentry,
                place,
            };
            known.push((key, found));
        });
    }
    places.note(state.revision(), known);
    lost
}
