//! Every rule is broken in turn, and the check has to tell of it, and of nothing that is not so.

mod common;

use arck_check::Rule;
use arck_controller::Options;
use arck_testkit::{Shorthand, TestPool};
use common::{Copy, made};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// What is changed, and what has to be told of it.
type Case = (&'static str, fn(&Copy), &'static [Rule]);

/// A place in the entry of a segment of data.
fn data_entry(copy: &Copy, at: u64) -> (String, u64) {
    let is_data = |&segment: &u64| copy.word(&("segment-table".into(), 32 * segment)) as u32 == 2;
    let data = (0..90).find(is_data).expect("there is data");
    ("segment-table".into(), 32 * data + at)
}

const CASES: &[Case] = &[
    ("nothing", |_| {}, &[]),
    (
        "a table is cut off",
        |copy| {
            let path = copy.path().join("session-table");
            let file = std::fs::OpenOptions::new().write(true).open(path);
            file.unwrap().set_len(4096).unwrap();
        },
        &[Rule::Files],
    ),
    (
        "a segment is missing",
        |copy| {
            let (_, inode) = copy.inode("/d/big");
            let page = copy.word(&copy.page(inode.root.pointer(), 0));
            let file = copy.page(page, 0).0;
            std::fs::remove_file(copy.path().join(file)).unwrap();
        },
        &[Rule::Files],
    ),
    (
        "a segment of an unknown kind",
        |copy| copy.set(&("segment-table".into(), 32 * 80), 9),
        &[Rule::SegmentTable],
    ),
    (
        "a segment with an owner",
        |copy| {
            let place = data_entry(copy, 8);
            copy.set(&place, copy.word(&place) | 7);
        },
        &[Rule::SegmentTable],
    ),
    (
        "a segment of a file that is not mapped together",
        |copy| {
            let place = data_entry(copy, 16);
            copy.set(&place, copy.word(&place) | 5 << 32);
        },
        &[Rule::SegmentTable],
    ),
    (
        "a session",
        |copy| copy.set(&("session-table".into(), 4096), 77),
        &[Rule::SessionTable],
    ),
    (
        "a word of the journal's entry is another in its place",
        |copy| {
            // The first record behind the header.
            let journal = |at| copy.word(&("journal".into(), at));
            assert_eq!(journal(0), u64::from_le_bytes(*b"ARCKREDO"));
            let target = journal(64) as u32;
            let file = ["headers", "pages", "segment-table"][target as usize];
            let place = (file.to_owned(), journal(72));
            copy.set(&place, !copy.word(&place));
        },
        &[Rule::Journal],
    ),
    (
        "an owner",
        |copy| copy.set(&copy.header("/d/small", 24), 5 << 32),
        &[Rule::Header],
    ),
    (
        "an odd sequence",
        |copy| {
            let place = copy.header("/d/small", 0);
            copy.set(&place, copy.word(&place) | 1);
        },
        &[Rule::Header],
    ),
    (
        "an inode elsewhere",
        |copy| {
            let place = copy.header("/empty", 8);
            copy.set(&place, copy.word(&copy.header("/d/small", 8)));
        },
        &[Rule::Header],
    ),
    (
        "a type that is none",
        |copy| copy.set(&copy.field("/empty", 8), 0o070644 | 1 << 32),
        &[Rule::Inode],
    ),
    (
        "a size beyond all sizes",
        |copy| copy.set(&copy.field("/empty", 24), 1 << 60),
        &[Rule::Inode],
    ),
    (
        "a number that no device has",
        |copy| copy.set(&copy.field("/device", 24), 1 << 32),
        &[Rule::Inode],
    ),
    (
        "a device with pages",
        |copy| {
            let (_, big) = copy.inode("/d/big");
            copy.set(&copy.field("/device", 32), big.root.pointer());
        },
        &[Rule::Index],
    ),
    (
        "a size below its pages",
        |copy| copy.set(&copy.field("/d/big", 24), (1 << 20) - 4096),
        &[Rule::Index],
    ),
    (
        "an index out of the pool",
        |copy| {
            let (_, inode) = copy.inode("/d/big");
            copy.set(&copy.page(inode.root.pointer(), 8 * 3), 1 << 40);
        },
        &[Rule::Index, Rule::PageLeaked],
    ),
    (
        "an index of great height",
        |copy| {
            let (_, inode) = copy.inode("/d/big");
            let root = inode.root.pointer() | 9 << 56;
            copy.set(&copy.field("/d/big", 32), root);
        },
        &[Rule::Index, Rule::PageLeaked],
    ),
    (
        "an index in itself",
        |copy| {
            let (_, inode) = copy.inode("/d/big");
            let root = inode.root.pointer();
            copy.set(&copy.page(root, 8 * 3), root);
        },
        &[Rule::PageKind, Rule::PageLeaked],
    ),
    (
        "a number of pages",
        |copy| copy.set(&copy.field("/d/big", 72), 255),
        &[Rule::PageCount],
    ),
    (
        "a page in two files",
        |copy| {
            let (_, inode) = copy.inode("/d/small");
            let (_, big) = copy.inode("/d/big");
            let slot = copy.page(big.root.pointer(), 8 * 3);
            copy.set(&slot, inode.root.pointer());
        },
        &[Rule::PageOnce, Rule::PageLeaked],
    ),
    (
        "a data page among metadata",
        |copy| {
            let (_, big) = copy.inode("/d/big");
            // Twice, and of metadata: the index page itself.
            let slot = copy.field("/d/small", 32);
            copy.set(&slot, big.root.pointer());
        },
        &[Rule::PageKind, Rule::PageLeaked],
    ),
    (
        "a page that is free",
        |copy| {
            let (_, inode) = copy.inode("/d/small");
            let page = inode.root.pointer();
            let place = ("pages".to_owned(), page / 64 * 8);
            copy.set(&place, copy.word(&place) & !(1 << (page % 64)));
        },
        &[Rule::PageUsed],
    ),
    (
        "a page that nothing uses",
        |copy| {
            let place = ("pages".to_owned(), 5999 / 64 * 8);
            copy.set(&place, copy.word(&place) | 1 << (5999 % 64));
        },
        &[Rule::PageLeaked],
    ),
    (
        "a bucket of somebody else",
        |copy| {
            let (_, inode) = copy.inode("/d");
            let place = copy.page(inode.root.pointer(), 16);
            copy.set(&place, copy.word(&place) ^ 1);
        },
        &[Rule::Bucket],
    ),
    (
        "a unit that continues nothing",
        |copy| {
            let (_, inode) = copy.inode("/d/e/f");
            assert_eq!(inode.entries, 0);
            let (_, inode) = copy.inode("/d");
            copy.write(&copy.page(inode.root.pointer(), 128 + 100), &[1]);
        },
        &[Rule::Bucket],
    ),
    (
        "a chain in a circle",
        |copy| {
            let (_, inode) = copy.inode("/d");
            let page = inode.root.pointer();
            copy.set(&copy.page(page, 8), page);
        },
        &[Rule::PageOnce],
    ),
    (
        "a name of another hash",
        |copy| {
            let (_, inode) = copy.inode("/d/e");
            let place = copy.page(inode.root.pointer(), 256 + 16);
            copy.set(&place, copy.word(&place) ^ 0x20);
        },
        &[Rule::Name],
    ),
    (
        "a slash in a name",
        |copy| {
            let (_, inode) = copy.inode("/d/e");
            copy.write(&copy.page(inode.root.pointer(), 256 + 16), b"/");
        },
        &[Rule::Name],
    ),
    (
        "a name that goes on behind its end",
        |copy| {
            let (_, inode) = copy.inode("/d/e");
            copy.write(&copy.page(inode.root.pointer(), 256 + 16 + 15), b"x");
        },
        &[Rule::Name],
    ),
    (
        "a name that leads nowhere",
        |copy| {
            let (_, inode) = copy.inode("/d/e/f");
            let _ = inode;
            let (_, parent) = copy.inode("/d/e");
            let place = copy.page(parent.root.pointer(), 256);
            copy.set(&place, copy.word(&place) & !0xffff_ffff | 4000);
        },
        &[Rule::Target],
    ),
    (
        "a generation",
        |copy| {
            let (_, parent) = copy.inode("/d/e");
            let place = copy.page(parent.root.pointer(), 256);
            copy.set(&place, copy.word(&place) + (1 << 32));
        },
        &[Rule::Target],
    ),
    (
        "another parent",
        |copy| {
            let place = copy.field("/d/e/f", 80);
            copy.set(&place, u64::from(copy.inode("/d").0));
        },
        &[Rule::Parent],
    ),
    (
        "a number of entries",
        |copy| {
            let place = copy.field("/many", 80);
            copy.set(&place, copy.word(&place) + (1 << 32));
        },
        &[Rule::Entries],
    ),
    (
        "a number of links",
        |copy| {
            let place = copy.field("/d/small", 8);
            copy.set(&place, copy.word(&place) + (1 << 32));
        },
        &[Rule::Links],
    ),
    (
        "a number of subdirectories",
        |copy| {
            let place = copy.field("/d", 8);
            copy.set(&place, copy.word(&place) + (1 << 32));
        },
        &[Rule::Links],
    ),
    (
        "a directory in itself",
        |copy| {
            // `/d/e` leads to `/d/e` now, and its parent is itself.
            let (number, _) = copy.inode("/d/e");
            copy.set(&copy.field("/d/e", 80), u64::from(number) | 3 << 32);
            let (_, inode) = copy.inode("/d/e");
            let page = inode.root.pointer();
            let f = copy.inode("/d/e/f").0;
            for unit in 0..120 {
                let place = copy.page(page, 256 + 32 * unit);
                if copy.word(&place) as u32 == f {
                    copy.set(&place, u64::from(number) | 1 << 32);
                }
            }
        },
        &[Rule::Tree],
    ),
];

#[test]
fn each_rule_is_told_when_it_is_broken() {
    let pool = made();
    let mut wrong = Vec::new();
    for (what, damage, wanted) in CASES {
        let copy = Copy::of(&pool.path());
        if !wanted.contains(&Rule::Journal) {
            // It would be laid over what is damaged.
            copy.set(&("journal".into(), 0), 0);
        }
        damage(&copy);
        let report = copy.check();
        let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        let rules: Vec<Rule> = report.findings.iter().map(|f| f.rule).collect();
        let told = wanted.iter().all(|rule| rules.contains(rule));
        let quiet = wanted.is_empty() == report.is_clean() && rules.len() <= 4;
        if !told || !quiet {
            wrong.push(format!("{what}: {wanted:?}\n{}", lines.join("\n")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

#[test]
fn findings_name_inode_path_and_place() {
    let pool = made();
    let copy = Copy::of(&pool.path());
    copy.set(&("journal".into(), 0), 0);
    let place = copy.field("/d/small", 8);
    copy.set(&place, copy.word(&place) + (1 << 32));
    let report = copy.check();
    assert_eq!(report.findings.len(), 1);
    let number = copy.inode("/d/small").0;
    let line = report.findings[0].to_string();
    let one = format!("links: inode {number} /d/small: 3 links, and 2 names");
    let other = format!("links: inode {number} /d/e/other: 3 links, and 2 names");
    assert!(line.starts_with(&one) || line.starts_with(&other), "{line}");
    let at = format!("({}+{:#x})", place.0, place.1 + 4);
    assert!(line.ends_with(&at), "{line} {at}");
    assert_eq!(report.names, 2000 + 10);
    assert!(report.closed);
}

#[test]
fn what_the_journal_holds_counts() {
    // Copied in the middle of a commit: the files are half changed, the journal has the whole.
    let from: Arc<OnceLock<PathBuf>> = Arc::default();
    let armed = Arc::new(AtomicBool::new(false));
    let taken: Arc<Mutex<Vec<(&'static str, Copy)>>> = Arc::default();
    let (path, switch, list) = (from.clone(), armed.clone(), taken.clone());
    let hook = move |point: &'static str| {
        if switch.load(Ordering::SeqCst)
            && let Some(path) = path.get()
        {
            list.lock().unwrap().push((point, Copy::of(path)));
        }
    };
    let options = Options {
        crash_hook: Some(Arc::new(hook)),
        ..Options::default()
    };
    let mut pool = TestPool::with_options(16 << 20, options);
    from.set(pool.path()).unwrap();
    let fs = pool.session();
    fs.put("before", b"text").unwrap();
    fs.fold(true).unwrap();
    fs.put("during", b"text").unwrap();
    armed.store(true, Ordering::SeqCst);
    fs.fold(true).unwrap();
    armed.store(false, Ordering::SeqCst);
    fs.disconnect().unwrap();
    pool.stop();
    let taken = taken.lock().unwrap();
    assert!(taken.len() >= 4);
    let mut there = Vec::new();
    for (point, copy) in taken.iter() {
        let report = copy.check();
        let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(report.is_clean(), "{point}: {}", lines.join("\n"));
        assert!(!report.closed && report.unfolded == 1);
        let is_there = copy.paths().contains_key("/during");
        if ["journal written", "half applied", "applied"].contains(point) {
            there.push(is_there);
        }
    }
    // From one of the journal's entries on, whatever of it has been applied.
    assert!(there.contains(&true));
    assert!(there.is_sorted(), "{there:?}");
}
