//! Random histories of an honest owner fold as the program saw them; random damage to them
//! never panics, and what is accepted all the same leaves a file system.

use super::operations::fold;
use super::*;
use arck_core_state::record::effect;
use arck_core_state::record::{RECORD_UNIT, Record, UNITS_PER_PAGE, records};
use proptest::prelude::*;
use proptest::sample::Index;

#[derive(Clone, Debug)]
enum Step {
    Create(Index, Index, u8),
    Remove(Index, Index),
    Rename(Index, Index, Index, Index, u8),
    Link(Index, Index, Index, Index),
    Write(Index, u64),
    Truncate(Index, u64),
    /// Extended attributes, or none any more.
    Extended(Index, bool),
    Fold(Index),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let i = any::<Index>;
    let step = prop_oneof![
        6 => (i(), i(), 0u8..4).prop_map(|(d, n, k)| Step::Create(d, n, k)),
        4 => (i(), i()).prop_map(|(d, n)| Step::Remove(d, n)),
        6 => (i(), i(), i(), i(), 0u8..3).prop_map(|(d, n, e, m, t)| Step::Rename(d, n, e, m, t)),
        2 => (i(), i(), i(), i()).prop_map(|(d, n, e, m)| Step::Link(d, n, e, m)),
        3 => (i(), 0u64..1100).prop_map(|(f, p)| Step::Write(f, p)),
        1 => (i(), 0u64..10_000).prop_map(|(f, s)| Step::Truncate(f, s)),
        2 => (i(), any::<bool>()).prop_map(|(f, any)| Step::Extended(f, any)),
        1 => i().prop_map(Step::Fold),
    ];
    prop::collection::vec(step, 1..60)
}

const NAMES: [&[u8]; 8] = [
    b"a",
    b"b",
    b"c",
    b"old",
    b"second",
    b"shared",
    b"empty",
    &[b'x'; 255],
];

/// The session's living or granted inodes; the shared one is not owned.
fn owned(state: &MemoryState) -> Vec<InodeNumber> {
    let owned = |header: &arck_core_state::HeaderCopy| header.ownership.session() == SESSION;
    let headers = state.headers.iter();
    headers.filter(|(_, h)| owned(h)).map(|(&n, _)| n).collect()
}

/// Directories that a program can reach now.
fn directories(state: &MemoryState, owner: &Owner) -> Vec<InodeNumber> {
    let mut found = vec![HOME, WORK];
    let mut at = 0;
    while let Some(&directory) = found.get(at) {
        for dentry in owner.list(state, directory).values() {
            if dentry.kind == FileKind::Directory {
                found.push(dentry.inode);
            }
        }
        at += 1;
    }
    found
}

/// A name that is in the directory, or else any.
fn pick<'a>(names: &'a [Vec<u8>], index: &Index) -> &'a [u8] {
    names
        .get(index.index(names.len().max(1)))
        .map_or(b"a", |name| name)
}

fn run(state: &mut MemoryState, owner: &mut Owner, steps: &[Step], may_fold: bool) {
    let mut next = NEW;
    let mut page = PAGES + 2;
    for step in steps {
        let inside = directories(state, owner);
        let listed = |d: &Index| -> (InodeNumber, Vec<Vec<u8>>) {
            let directory = *d.get(&inside);
            (
                directory,
                owner.list(state, directory).into_keys().collect(),
            )
        };
        let files: Vec<_> = inside
            .iter()
            .flat_map(|&directory| owner.list(state, directory).into_values())
            .filter(|dentry| dentry.kind == FileKind::File && dentry.inode != SHARED)
            .map(|dentry| dentry.inode)
            .collect();
        match step {
            Step::Create(d, n, kind) if next < NEW + GRANTED => {
                let kind = match kind {
                    0 => FileKind::Directory,
                    1 => FileKind::Link,
                    _ => FileKind::File,
                };
                let name = n.get(&NAMES);
                if owner
                    .create(state, *d.get(&inside), name, next, kind, 0o755)
                    .is_ok()
                {
                    next += 1;
                }
            }
            Step::Remove(d, n) => {
                let (directory, names) = listed(d);
                let _ = owner.remove(state, directory, pick(&names, n));
            }
            Step::Rename(d, n, e, m, tidy) => {
                let (from, names) = listed(d);
                let to = (*e.get(&inside), *m.get(&NAMES));
                let _ = owner.rename(state, (from, pick(&names, n)), to, *tidy);
            }
            Step::Link(d, n, e, m) => {
                let (from, names) = listed(d);
                let name = pick(&names, n);
                let found = owner.lookup(state, from, name);
                if found.is_some_and(|found| found.dentry.inode != SHARED) {
                    let to = (*e.get(&inside), *m.get(&NAMES));
                    let _ = owner.link(state, (from, name), to);
                }
            }
            Step::Write(f, at) if !files.is_empty() => {
                owner.write(state, *f.get(&files), *at, PagePtr(page));
                page += 1;
            }
            Step::Truncate(f, size) if !files.is_empty() => {
                owner.truncate(state, *f.get(&files), *size, 1100);
            }
            Step::Extended(f, any) if !files.is_empty() => {
                owner.set_extended(state, *f.get(&files), any.then_some(PagePtr(page)));
                page += u64::from(*any);
            }
            Step::Fold(n) if may_fold => {
                let owned = owned(state);
                let first = *n.get(&owned);
                fold(state, owner, &[first]);
            }
            _ => {}
        }
    }
}

/// A change of the arena that keeps checksums right: what a hostile LibFS would write.
#[derive(Clone, Debug)]
struct Forgery {
    record: Index,
    field: u8,
    value: u32,
    other: Index,
}

fn forgery() -> impl Strategy<Value = Forgery> {
    let value = prop_oneof![0u32..70, any::<u32>()];
    (any::<Index>(), 0u8..12, value, any::<Index>()).prop_map(|(record, field, value, other)| {
        Forgery {
            record,
            field,
            value,
            other,
        }
    })
}

type Found = (InodeNumber, u64, u32, Vec<u8>);

/// All records in the session's deltas: directory, fold number, unit, page.
fn all_records(state: &MemoryState, owner: &mut Owner) -> Vec<Found> {
    let mut found = vec![];
    let numbers = owned(state);
    let Ok((_, deltas)) = owner.copy(state, &numbers) else {
        return found;
    };
    for delta in &deltas {
        for (&page, bytes) in &delta.pages {
            let fold = delta.branch.fold;
            for (unit, _) in records(bytes, page, delta.inode, fold) {
                found.push((delta.inode, fold, unit, bytes.to_vec()));
            }
        }
    }
    found
}

fn decode<'a>((directory, fold, unit, page): &'a Found) -> Record<'a> {
    let seed = arck_core_state::record::Seed {
        directory: *directory,
        fold: *fold,
        unit: *unit,
    };
    let at = *unit as usize % UNITS_PER_PAGE * RECORD_UNIT;
    Record::decode(seed, &page[at..]).unwrap()
}

fn forge(state: &MemoryState, owner: &mut Owner, forgery: &Forgery) {
    let all = all_records(state, owner);
    if all.is_empty() {
        return;
    }
    let found = forgery.record.get(&all);
    let other = decode(forgery.other.get(&all));
    let mut record = decode(found);
    let value = forgery.value;
    match forgery.field {
        0 => record.state = value,
        1 => record.state |= 1 << (value % 5),
        2 => record.inode = value,
        3 => (record.inode, record.generation) = (other.inode, other.generation),
        4 => record.kind = other.kind,
        5 => record.source_directory = value,
        6 => record.kills = other.kills,
        7 => record.name = other.name,
        8 => record.source = other.name,
        9 => record.sequence = value,
        10 => {
            record.inode = other.inode;
            (record.generation, record.kind) = (other.generation, other.kind);
        }
        _ => record.state = record.state & !(1 << (value % 5)) | effect::ADD,
    }
    // Only where the record keeps its length: what follows it must stay valid.
    if record.units() == decode(found).units() {
        owner.arena.put(found.0, found.1, found.2, &record);
    }
}

/// Folds every inode on its own, so that one violation hides no other, and applies what passes.
fn fold_what_passes(state: &mut MemoryState, owner: &mut Owner) -> Result<u32, TestCaseError> {
    let mut passed = 0;
    for number in owned(state) {
        if let Ok((set, changes)) = owner.try_fold(state, &[number]) {
            state.apply(&set, &changes);
            prop_assert_eq!(state.check(), Ok(()));
            passed += 1;
        }
    }
    Ok(passed)
}

proptest! {
    #[test]
    fn honest_histories_fold(steps in steps()) {
        let (mut state, mut owner) = world();
        run(&mut state, &mut owner, &steps, true);
        let all = owned(&state);
        fold(&mut state, &mut owner, &all);
    }

    #[test]
    fn every_inode_folds_on_its_own(steps in steps(), order in any::<u64>()) {
        let (mut state, mut owner) = world();
        run(&mut state, &mut owner, &steps, false);
        let mut all = owned(&state);
        all.sort_by_key(|&number| u64::from(number).wrapping_mul(order | 1) >> 7);
        for number in all {
            fold(&mut state, &mut owner, &[number]);
        }
    }

    #[test]
    fn forged_records_do_no_harm(
        steps in steps(),
        forgeries in prop::collection::vec(forgery(), 1..4),
    ) {
        let (mut state, mut owner) = world();
        run(&mut state, &mut owner, &steps, false);
        for forgery in &forgeries {
            forge(&state, &mut owner, forgery);
        }
        fold_what_passes(&mut state, &mut owner)?;
    }

    #[test]
    fn damaged_bytes_do_no_harm(
        steps in steps(),
        damage in prop::collection::vec((any::<Index>(), 0u64..4096, any::<u8>()), 1..20),
        words in prop::collection::vec((any::<Index>(), 0u64..512, 0u64..20_000), 0..10),
    ) {
        let (mut state, mut owner) = world();
        run(&mut state, &mut owner, &steps, false);
        let pages = owner.arena.stored_pages();
        if !pages.is_empty() {
            for (page, at, byte) in damage {
                owner.arena.store(page.get(&pages) + at, &[byte]);
            }
            for (page, at, word) in words {
                owner.arena.store(page.get(&pages) + at * 8, &word.to_le_bytes());
            }
        }
        fold_what_passes(&mut state, &mut owner)?;
    }
}
