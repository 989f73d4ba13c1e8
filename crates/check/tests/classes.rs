//! Read classes: a pool that was served to all users is in order; rights or labels that are changed
//! on the medium, so that somebody may be sent what he may not read, are told, and mended.

mod common;

use arck_check::{Options, Rule};
use arck_testkit::{Shorthand, TestPool};
use arckfs::At;
use common::Copy;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A closed pool with a directory for all and one for its owner.
fn shared() -> Arc<Copy> {
    // It goes with the last test that uses it.
    static MADE: Mutex<Weak<Copy>> = Mutex::new(Weak::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.upgrade().unwrap_or_else(|| {
        let options = arck_controller::Options {
            shared: true,
            ..arck_controller::Options::default()
        };
        let mut pool = TestPool::with_options(64 << 20, options);
        let fs = pool.session();
        for (directory, mode) in [("open", 0o755), ("closed", 0o700)] {
            fs.make_directory(At::Root, directory.as_bytes(), mode)
                .unwrap();
            for file in 0..20 {
                let path = format!("{directory}/file {file}");
                fs.put(&path, &[file; 10_000]).unwrap();
            }
            // So that the label is that of the directory as it is now.
            fs.fold(true).unwrap();
        }
        fs.link(At::Root, b"open/file 3", At::Root, b"closed/other", 0)
            .unwrap();
        fs.symlink(b"target", At::Root, b"closed/link").unwrap();
        fs.disconnect().unwrap();
        pool.stop();
        let copy = Arc::new(Copy::of(&pool.path()));
        *made = Arc::downgrade(&copy);
        copy
    })
}

/// The entry of the segment that an inode is in, and its label.
fn label(copy: &Copy, path: &str) -> ((String, u64), u32) {
    let segment = copy.segment(copy.word(&copy.header(path, 8)));
    let place = ("segment-table".to_owned(), 32 * segment);
    let label = (copy.word(&place) >> 32) as u32;
    (place, label)
}

/// What is changed is told by this rule alone, and mended without harm.
fn told_and_mended(what: &str, change: impl FnOnce(&Copy), says: &str) {
    let copy = Copy::of(&shared().path());
    change(&copy);
    let report = copy.check();
    let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
    assert_eq!(copy.rules(), [Rule::PageClass], "{what}: {lines:?}");
    assert!(
        lines.iter().any(|line| line.contains(says)),
        "{what}: {lines:?}"
    );
    let before = copy.paths();
    let repaired = arck_check::repair(&copy.path(), &Options::default()).unwrap();
    assert!(repaired.after.is_clean(), "{what}: {:?}", repaired.after);
    assert!(copy.check().is_clean(), "{what}");
    let names = |paths: std::collections::BTreeMap<String, (u32, _)>| {
        let names = paths.into_iter().map(|(path, (number, _))| (path, number));
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(copy.paths()), names(before), "{what}");
    // It can be served, to all, and is in order after that too.
    let options = arck_controller::Options {
        shared: true,
        ..arck_controller::Options::default()
    };
    let mut pool = TestPool::adopt_with(&copy.path(), options);
    let fs = pool.session();
    assert_eq!(fs.get("closed/file 7").unwrap(), vec![7; 10_000], "{what}");
    fs.put("open/file 1", b"new").unwrap();
    fs.disconnect().unwrap();
    pool.stop();
    let report = copy.check();
    assert!(report.is_clean(), "{what}: {:?}", report.findings);
}

#[test]
fn a_pool_that_all_users_were_served_is_in_order() {
    let copy = &*shared();
    let report = copy.check();
    assert!(report.is_clean(), "{:?}", report.findings);
    // There is something to look at: two classes.
    let (_, open) = label(copy, "/open/file 1");
    let (_, closed) = label(copy, "/closed/file 1");
    assert!(
        open != 0 && closed != 0 && open != closed,
        "{open} {closed}"
    );
}

#[test]
fn somebody_who_may_be_sent_what_he_may_not_read_is_told_of() {
    told_and_mended(
        "a directory that is closed on the medium",
        |copy| {
            let place = copy.field("/open", 8);
            copy.set(&place, copy.word(&place) & !0o77);
        },
        "/open",
    );
    told_and_mended(
        "a file that is closed on the medium",
        |copy| {
            let place = copy.field("/open/file 5", 8);
            copy.set(&place, copy.word(&place) & !0o77);
        },
        "who may not read it",
    );
    told_and_mended(
        "a label of those who may not",
        |copy| {
            let (place, _) = label(copy, "/closed/file 1");
            let (_, open) = label(copy, "/open/file 1");
            let word = copy.word(&place);
            copy.set(&place, word & 0xffff_ffff | u64::from(open) << 32);
        },
        "/closed",
    );
    told_and_mended(
        "a class that is not whole",
        |copy| {
            let (_, open) = label(copy, "/open/file 1");
            let place = ("classes".to_owned(), u64::from(open - 1) * 256 + 16);
            copy.set(&place, !copy.word(&place));
        },
        "is damaged",
    );
}

#[test]
fn a_pool_that_was_not_closed_may_be_about_to_close_something() {
    let copy = Copy::of(&shared().path());
    let place = copy.path().join("superblock");
    let bytes = std::fs::read(&place).unwrap();
    let mut superblock = arck_core_state::superblock::Superblock::decode(&bytes).unwrap();
    superblock.clean = false;
    std::fs::write(&place, superblock.encode()).unwrap();
    let place = copy.field("/open", 8);
    copy.set(&place, copy.word(&place) & !0o77);
    assert!(copy.check().is_clean());
}
