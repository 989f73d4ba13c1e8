//! Repairs that are cut off: after each change of a file, by a process that is killed, and by a
//! machine that fails and keeps any part of what was not durable yet. The next repair makes of what is
//! left what the first would have made, and tells all that the first would have told.
//!
//! `ARCK_INTERRUPTIONS=100000 cargo test -p arck-check --test interrupted` for all of them.
//!
//! A recording is one for a process: this is a test of its own.

mod common;

use arck_check::{Options, Repaired};
use arck_core_state::PAGE_SIZE;
use arck_pm::record::{EventKind, FileChange, FileId, Recording};
use arck_testkit::Random;
use common::{Copy, made, segment_size};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::os::unix::fs::FileExt;
use std::path::Path;

type Damage = (&'static str, fn(&Copy));

const DAMAGES: &[Damage] = &[
    ("the superblock is damaged", |copy| {
        copy.write(&("superblock".into(), 40), b"damage");
    }),
    ("the superblock is gone", |copy| {
        std::fs::remove_file(copy.path().join("superblock")).unwrap();
    }),
    ("the superblock's copy is damaged", |copy| {
        copy.write(&("superblock.copy".into(), 40), b"damage");
    }),
    ("a segment of data, a table and a directory", |copy| {
        let (_, inode) = copy.inode("/d/big");
        let page = copy.word(&copy.page(inode.root.pointer(), 0));
        let (file, _) = copy.page(page, 0);
        let (_, directory) = copy.inode("/d/e");
        copy.write(
            &copy.page(directory.root.pointer(), 0),
            &[0; PAGE_SIZE as usize],
        );
        std::fs::remove_file(copy.path().join(file)).unwrap();
        copy.write(&("pages".into(), 0), &[0; 64]);
        let table = std::fs::OpenOptions::new()
            .write(true)
            .open(copy.path().join("session-table"));
        table.unwrap().set_len(4096).unwrap();
    }),
    ("two files with one page, and a header", |copy| {
        let (_, big) = copy.inode("/d/big");
        let (_, small) = copy.inode("/d/small");
        let first = copy.page(big.root.pointer(), 0);
        copy.set(&first, small.root.pointer());
        copy.set(&copy.header("/empty", 8), 12345);
        copy.set(&copy.header("/many", 40), 0x55);
    }),
];

/// What a repair has made: every path, and what does not depend on when that was.
fn outcome(pool: &Path) -> BTreeMap<String, String> {
    let report = arck_check::check(pool, &Options::default()).unwrap();
    assert!(report.is_clean(), "{:?}", report.findings);
    let paths = arck_check::paths(pool).unwrap();
    let told = paths.into_iter().map(|(path, (number, inode))| {
        let path = String::from_utf8(path).unwrap();
        let told = format!(
            "{number} {:o} {} {} {} {} {} {} {:?}",
            inode.mode,
            inode.links,
            inode.uid,
            inode.size,
            inode.pages,
            inode.entries,
            inode.parent,
            contents(pool, &inode),
        );
        (path, told)
    });
    told.collect()
}

/// A sum of the first pages of a file.
fn contents(pool: &Path, inode: &arck_core_state::Inode) -> Option<u64> {
    let is_file = inode.kind() == Some(arck_core_state::FileKind::File);
    let (root, height) = (inode.root.pointer(), inode.root.height());
    if !is_file || root == 0 || height > 1 {
        return None;
    }
    let read = |page: u64| {
        let (size, address) = (segment_size(), page * PAGE_SIZE);
        let name = format!("segments/{:08x}", address / size);
        let mut bytes = vec![0; PAGE_SIZE as usize];
        let file = std::fs::File::open(pool.join(name)).unwrap();
        file.read_exact_at(&mut bytes, address % size).unwrap();
        bytes
    };
    let mut sum = 0u64;
    let mut add = |bytes: &[u8]| {
        for &byte in bytes {
            sum = sum.wrapping_mul(0x100_0000_01b3).wrapping_add(byte.into());
        }
    };
    if height == 0 {
        add(&read(root));
    } else {
        let index = read(root);
        for pointer in index.as_chunks::<8>().0 {
            match u64::from_le_bytes(*pointer) {
                0 => add(b"hole"),
                page => add(&read(page)),
            }
        }
    }
    Some(sum)
}

/// A pool's files, and the changes that are made to them.
struct Replay {
    pool: Copy,
    names: HashMap<FileId, String>,
}

impl Replay {
    fn of(damaged: &Path) -> Replay {
        Replay {
            pool: Copy::of(damaged),
            names: HashMap::new(),
        }
    }

    fn file(&self, id: FileId) -> std::fs::File {
        let path = self.pool.path().join(&self.names[&id]);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create(true).truncate(false);
        options.open(path).unwrap()
    }

    /// Makes a change; of what is written only the first `kept` bytes.
    fn apply(&mut self, change: &FileChange, kept: usize) {
        match change {
            FileChange::Named { file, name } => {
                let before = self.names.insert(*file, name.clone());
                if let Some(before) = before.filter(|before| before != name) {
                    let pool = self.pool.path();
                    std::fs::rename(pool.join(before), pool.join(name)).unwrap();
                }
                self.file(*file);
            }
            FileChange::Length { file, len } => self.file(*file).set_len(*len).unwrap(),
            FileChange::Written {
                file,
                offset,
                bytes,
            } => {
                let bytes = &bytes[..kept.min(bytes.len())];
                self.file(*file).write_all_at(bytes, *offset).unwrap();
            }
            FileChange::Synced { .. } => {}
            other => panic!("a repair does not do this: {other:?}"),
        }
    }
}

/// All that a repair tells: of those before it too.
fn lines(done: &Repaired) -> BTreeSet<String> {
    let findings = done.before.findings.iter().map(ToString::to_string);
    let actions = done.actions.iter().map(|what| format!("repaired: {what}"));
    let earlier = done.earlier.iter().cloned();
    earlier.chain(findings).chain(actions).collect()
}

/// What a whole repair makes, and tells.
struct Wanted {
    outcome: BTreeMap<String, String>,
    lines: BTreeSet<String>,
}

/// Repairs what is left, and compares; whether there was anything left to do.
fn finish(replay: &Replay, wanted: &Wanted, told: &str) -> bool {
    let path = replay.pool.path();
    let untold = arck_check::has_untold_repair(&path);
    let done = arck_check::repair(&path, &Options::default())
        .unwrap_or_else(|error| panic!("{told}: {error}"));
    assert!(done.after.is_clean(), "{told}: {:?}", done.after.findings);
    let found = outcome(&path);
    for (path, is) in &found {
        assert_eq!(Some(is), wanted.outcome.get(path), "{told}: {path}");
    }
    assert_eq!(found.len(), wanted.outcome.len(), "{told}");
    let lines = lines(&done);
    let missing: Vec<_> = wanted.lines.difference(&lines).collect();
    assert!(missing.is_empty(), "{told}: nobody tells {missing:#?}");
    // It is told until somebody says that he was.
    assert!(untold || !done.before.is_clean(), "{told}");
    assert!(arck_check::has_untold_repair(&path), "{told}");
    let again = arck_check::repair(&path, &Options::default()).unwrap();
    assert!(again.before.is_clean(), "{told}");
    let again: BTreeSet<String> = again.earlier.into_iter().collect();
    assert!(wanted.lines.is_subset(&again), "{told}");
    arck_check::repair_was_told(&path).unwrap();
    let again = arck_check::repair(&path, &Options::default()).unwrap();
    assert!(again.earlier.is_empty(), "{told}");
    assert!(!arck_check::has_untold_repair(&path), "{told}");
    !done.before.is_clean()
}

#[test]
fn a_repair_that_was_cut_off_is_finished_by_the_next() {
    let most: usize = std::env::var("ARCK_INTERRUPTIONS").map_or(12, |text| text.parse().unwrap());
    let original = made();
    let (mut states, mut unfinished, mut all) = (0, 0, 0);
    for (what, damage) in DAMAGES {
        let damaged = Copy::of(&original.path());
        damage(&damaged);
        let whole = Copy::of(&damaged.path());
        let recording = Recording::start().unwrap();
        let done = arck_check::repair(&whole.path(), &Options::default()).unwrap();
        let events = recording.finish();
        assert!(!done.before.is_clean() && done.after.is_clean(), "{what}");
        let wanted = Wanted {
            outcome: outcome(&whole.path()),
            lines: lines(&done),
        };
        let changes: Vec<FileChange> = events
            .into_iter()
            .filter_map(|event| match event.kind {
                EventKind::File(change) => Some(change),
                _ => None,
            })
            .collect();
        all += changes.len();
        let mut random = Random::new(7);
        for turn in 0..most.min(changes.len()) {
            // The first and the last, and some between, or all of them.
            let until = match most >= changes.len() {
                true => turn,
                false if turn == 0 => 0,
                false if turn == 1 => changes.len() - 1,
                false => random.below(changes.len() as u64) as usize,
            };
            let told = format!("{what}, after {until} of {} changes", changes.len());
            let mut killed = Replay::of(&damaged.path());
            for change in &changes[..until] {
                killed.apply(change, usize::MAX);
            }
            unfinished += usize::from(finish(&killed, &wanted, &told));
            // The machine: of what is not durable yet some is lost, some in part.
            let synced = changes[..until]
                .iter()
                .rposition(|change| matches!(change, FileChange::Synced { .. }))
                .map_or(0, |at| at + 1);
            let mut failed = Replay::of(&damaged.path());
            for (at, change) in changes[..until].iter().enumerate() {
                let is_renamed = matches!(change, FileChange::Named { name, .. }
                    if name.starts_with("superblock") || name.starts_with("repair-report"));
                let kept = match random.below(3) {
                    _ if at < synced => usize::MAX,
                    0 => 0,
                    1 => random.below(PAGE_SIZE) as usize,
                    _ => usize::MAX,
                };
                // Names of files come before what is in them; a rename may be lost.
                let is_lost = kept == 0
                    && match change {
                        FileChange::Named { file, .. } => {
                            is_renamed && failed.names.contains_key(file)
                        }
                        _ => true,
                    };
                if !is_lost {
                    failed.apply(change, kept);
                }
            }
            finish(&failed, &wanted, &format!("{told}, the machine failed"));
            states += 2;
        }
    }
    println!("{states} states of {all} changes, {unfinished} of them with something left to do");
    assert!(unfinished > 0 && states > unfinished);
}
