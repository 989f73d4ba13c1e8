//! Which inodes an operation stamps: what it moves of modification and change is what tmpfs moves, at
//! once, for other sessions, after a fold and after a crash.
//!
//! A rename and an unlink left the time of change of what they moved, replaced and took a name from as it
//! was; incremental backups, which look for it, missed files that were replaced so.

use arck_testkit::differential::{ArckSide, Base, HostSide, Operation, Place, Side, Subject, tree};
use arck_testkit::{Shorthand, TestPool};
use std::collections::BTreeMap;
use std::time::Duration;

/// More than a tick of the clock that stamps files.
const LONGER_THAN_A_TICK: Duration = Duration::from_millis(12);

fn place(path: &str) -> Place {
    Place {
        base: Base::Root,
        path: path.into(),
    }
}

fn mkdir(path: &str) -> Operation {
    Operation::MakeDirectory {
        place: place(path),
        mode: 0o755,
    }
}

/// Makes it, open in a slot.
fn open(slot: usize, path: &str) -> Operation {
    Operation::Open {
        slot,
        place: place(path),
        flags: libc::O_CREAT | libc::O_RDWR,
        mode: 0o644,
    }
}

fn create(path: &str) -> [Operation; 2] {
    [open(0, path), Operation::Close { slot: 0 }]
}

fn written(path: &str) -> [Operation; 3] {
    let write = Operation::Write {
        slot: 0,
        length: 10,
        position: None,
        seed: 1,
    };
    [open(0, path), write, Operation::Close { slot: 0 }]
}

fn link(from: &str, to: &str) -> Operation {
    Operation::Link {
        from: place(from),
        to: place(to),
        flags: 0,
    }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename {
        from: place(from),
        to: place(to),
        flags: 0,
    }
}

fn exchange(one: &str, other: &str) -> Operation {
    Operation::Rename {
        from: place(one),
        to: place(other),
        flags: libc::RENAME_EXCHANGE,
    }
}

fn unlink(path: &str) -> Operation {
    Operation::Unlink { place: place(path) }
}

fn rmdir(path: &str) -> Operation {
    Operation::RemoveDirectory { place: place(path) }
}

fn chmod(path: &str) -> Operation {
    Operation::ChangeMode {
        place: place(path),
        mode: 0o600,
    }
}

type Case = (&'static str, Vec<Operation>, Vec<Operation>);

/// What is there before, and what is done then, all but the last without a look.
fn cases() -> Vec<Case> {
    let mut base = vec![mkdir("a"), mkdir("b"), mkdir("a/d"), mkdir("b/d")];
    base.extend(create("a/f"));
    base.extend(written("a/g"));
    base.extend(written("b/f"));
    base.push(link("a/g", "a/g2"));
    base.push(link("a/g", "b/g3"));
    let with = |more: &[Operation]| [&base[..], more].concat();
    vec![
        ("link", base.clone(), vec![link("a/f", "a/new")]),
        ("link elsewhere", base.clone(), vec![link("a/f", "b/new")]),
        ("unlink, links left", base.clone(), vec![unlink("a/g2")]),
        ("unlink elsewhere", base.clone(), vec![unlink("b/g3")]),
        (
            "unlink twice",
            base.clone(),
            vec![unlink("a/g2"), unlink("b/g3")],
        ),
        ("unlink, open", with(&[open(1, "a/f")]), vec![unlink("a/f")]),
        (
            "link and unlink",
            base.clone(),
            vec![link("a/f", "a/new"), unlink("a/new")],
        ),
        (
            "link elsewhere and unlink",
            base.clone(),
            vec![link("a/f", "b/new"), unlink("a/f")],
        ),
        ("rename", base.clone(), vec![rename("a/f", "a/new")]),
        ("rename of data", base.clone(), vec![rename("a/g", "a/new")]),
        (
            "rename and back",
            base.clone(),
            vec![rename("a/g", "a/new"), rename("a/new", "a/g")],
        ),
        (
            "rename and unlink, links left",
            base.clone(),
            vec![rename("a/g", "a/new"), unlink("a/new")],
        ),
        (
            "rename elsewhere",
            base.clone(),
            vec![rename("a/g", "b/new")],
        ),
        (
            "rename over what keeps links",
            base.clone(),
            vec![rename("a/f", "a/g")],
        ),
        (
            "rename over what keeps links elsewhere",
            base.clone(),
            vec![rename("b/f", "a/g2")],
        ),
        (
            "rename over what is open",
            with(&[open(1, "a/f")]),
            vec![rename("a/g", "a/f")],
        ),
        (
            "rename and chmod",
            base.clone(),
            vec![rename("a/f", "a/new"), chmod("a/new")],
        ),
        (
            "chmod and rename",
            base.clone(),
            vec![chmod("a/f"), rename("a/f", "a/new")],
        ),
        (
            "rename of a directory",
            base.clone(),
            vec![rename("a/d", "a/new")],
        ),
        (
            "rename of a directory elsewhere",
            base.clone(),
            vec![rename("a/d", "b/new")],
        ),
        (
            "rename over a directory",
            with(&[mkdir("a/e")]),
            vec![rename("a/d", "a/e")],
        ),
        ("exchange", base.clone(), vec![exchange("a/f", "a/g")]),
        (
            "exchange elsewhere",
            base.clone(),
            vec![exchange("a/f", "b/d")],
        ),
        ("rmdir", base.clone(), vec![rmdir("a/d")]),
        (
            "rename to oneself",
            base.clone(),
            vec![rename("a/g", "a/g2")],
        ),
    ]
}

/// Its name, who does it, and who folds before, with or without release.
type State = (&'static str, usize, &'static [(usize, bool)]);

/// What has become of what was there before: who has it, in which delta.
const STATES: &[State] = &[
    ("as made", 0, &[]),
    ("folded", 0, &[(0, false)]),
    ("released", 0, &[(0, true)]),
    ("taken over", 1, &[]),
];

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Then {
    Fold,
    Kill,
}

/// All that is there, and slot 1.
fn watched(side: &mut HostSide) -> Vec<Subject> {
    let paths = tree(side, 0).expect("the host's tree");
    let subject = |path: Vec<u8>| {
        let base = Base::Root;
        Subject::Place(Place { base, path }, libc::AT_SYMLINK_NOFOLLOW)
    };
    let paths = paths.into_keys().map(subject);
    paths.chain([Subject::Slot(1)]).collect()
}

type Stamps = BTreeMap<String, [i64; 2]>;

fn stamps(side: &mut impl Side, actor: usize, of: &[Subject]) -> Stamps {
    let stamp = |subject| Some((format!("{subject:?}"), side.stamps(actor, subject)?));
    of.iter().filter_map(stamp).collect()
}

/// Which of the two times are not from before `mark`.
fn moved(stamps: &Stamps, mark: i64) -> BTreeMap<String, [bool; 2]> {
    let since = |(what, times): (&String, &[i64; 2])| (what.clone(), times.map(|at| at >= mark));
    stamps.iter().map(since).collect()
}

fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn check(
    name: &str,
    before: &[Operation],
    done: &[Operation],
    state: &State,
    then: Then,
) -> Result<(), String> {
    let &(state_name, actor, folds) = state;
    let mut arck = ArckSide::new(TestPool::new(64 << 20));
    let mut host = HostSide::new();
    let both = |arck: &mut ArckSide, host: &mut HostSide, actor, operation: &Operation| {
        let (ours, theirs) = (arck.apply(actor, operation), host.apply(actor, operation));
        assert_eq!(ours, theirs, "{name}: {operation:?}");
    };
    for operation in before {
        both(&mut arck, &mut host, 0, operation);
    }
    for &(actor, release) in folds {
        arck.session(actor).fold(release).expect("a fold");
    }
    let mut mark = 0;
    for operation in done {
        std::thread::sleep(LONGER_THAN_A_TICK);
        mark = now();
        both(&mut arck, &mut host, actor, operation);
    }
    let watched = watched(&mut host);
    let at_once = stamps(&mut arck, actor, &watched);
    let compare = |arck: &Stamps, host: &Stamps, when: &str| {
        let (ours, theirs) = (moved(arck, mark), moved(host, mark));
        let what: Vec<_> = theirs
            .iter()
            .filter(|(what, moved)| ours.get(*what) != Some(*moved))
            .map(|(what, moved)| format!("{what}: {:?}, tmpfs {moved:?}", ours.get(what)))
            .collect();
        match what.is_empty() {
            true => Ok(()),
            false => Err(format!("{name}, {state_name}, {when}: {}", what.join("; "))),
        }
    };
    compare(&at_once, &stamps(&mut host, actor, &watched), "at once")?;
    std::thread::sleep(LONGER_THAN_A_TICK);
    match then {
        Then::Fold => (0..2).for_each(|actor| arck.session(actor).fold(false).expect("a fold")),
        Then::Kill => arck.kill(),
    }
    for actor in 0..2 {
        for (what, later) in stamps(&mut arck, actor, &watched) {
            let first = at_once.get(&what);
            if first.is_some_and(|first| *first != later) {
                return Err(format!(
                    "{name}, {state_name}, {then:?}, session {actor}: {what} has {later:?}, had {first:?}"
                ));
            }
        }
    }
    match arck.pool.violations() {
        refused if refused.is_empty() => Ok(()),
        refused => Err(format!("{name}, {state_name}: {refused}")),
    }
}

#[test]
fn names_that_come_and_go_stamp_what_tmpfs_stamps() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    for (name, before, done) in cases() {
        for state in STATES {
            for then in [Then::Fold, Then::Kill] {
                checked += 1;
                wrong.extend(check(name, &before, &done, state, then).err());
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {checked}:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn a_name_that_another_session_takes_is_seen_by_whoever_has_the_file() {
    let mut arck = ArckSide::new(TestPool::new(64 << 20));
    for operation in create("f").iter().chain(&[link("f", "g")]) {
        arck.apply(0, operation);
    }
    arck.session(0).fold(true).expect("a fold");
    // The file is session 0's, with a change of its own; its directory is session 1's.
    arck.apply(0, &chmod("f"));
    std::thread::sleep(LONGER_THAN_A_TICK);
    let mark = now();
    arck.apply(1, &rename("g", "h"));
    arck.session(1).fold(false).expect("a fold");
    let subject = Subject::Place(place("f"), 0);
    let seen = |arck: &mut ArckSide| arck.stamps(0, &subject).expect("f")[1];
    assert!(seen(&mut arck) >= mark, "before the owner's fold");
    arck.session(0).fold(true).expect("a fold");
    assert!(seen(&mut arck) >= mark, "after it");
}
