//! What programs do all the time with modes costs nothing: no fold, and nothing moves.

use super::cases::big;
use super::world::{ANN, EVE, Session, World};
use arck_libfs_kit::session::connect_socket;
use arck_protocol::Status;
use arck_protocol::measure::HandOvers;
use arck_protocol::socket::{self, Answer, Call};
use arck_testkit::harness::Case;
use arckfs::Errno;
use std::path::Path;

const SIZE: u64 = 128 << 20;
const FILES: u32 = 100;

pub const ALL: &[Case] = &[
    ("common_patterns_cost_no_fold", common_patterns_cost_no_fold),
    (
        "a_home_that_is_closed_keeps_its_data",
        a_home_that_is_closed_keeps_its_data,
    ),
];

fn ask(pool: &Path, call: &Call) -> Answer {
    let socket = connect_socket(pool).expect("a controller");
    socket::call(&socket, call).expect("an answer").0
}

pub fn status(pool: &Path) -> Status {
    match ask(pool, &Call::Status) {
        Answer::Status(status) => status,
        other => panic!("{other:?}"),
    }
}

/// What has been folded since this was asked last.
fn measured(pool: &Path) -> HandOvers {
    match ask(pool, &Call::Measure { on: true }) {
        Answer::Measured(measured) => measured,
        other => panic!("{other:?}"),
    }
}

/// mkstemp, then fchmod; and renamed over what was there.
fn replaced(ann: &Session, file: u32) {
    let (temporary, path) = (format!("/home/.tmp-{file}"), format!("/home/file-{file}"));
    ann.put(&temporary, &big(1), 0o600);
    ann.chmod(&temporary, 0o644);
    ann.rename(&temporary, &path).expect("renamed");
}

/// As tar and cp -a make a tree: closed while it is filled, and opened then.
fn copied(ann: &Session, directory: u32) {
    let within = format!("/home/tree-{directory}");
    ann.mkdir(&within, 0o700);
    for file in 0..10 {
        let path = format!("{within}/{file}");
        ann.put(&path, &big(2), 0o600);
        ann.try_chown(&path, u32::MAX, u32::MAX).expect("its own");
        ann.chmod(&path, 0o644);
    }
    ann.chmod(&within, 0o755);
}

/// As git stores an object: written, made read-only, and given its name.
fn stored(ann: &Session, object: u32) {
    let temporary = format!("/home/tmp_obj_{object}");
    ann.put(&temporary, &big(3), 0o600);
    ann.chmod(&temporary, 0o444);
    ann.link(&temporary, &format!("/home/object-{object}"))
        .expect("a second name");
    ann.unlink(&temporary).expect("the first");
}

/// As a program makes a home private that others have not looked into.
fn closed(ann: &Session, _: u32) {
    ann.chmod("/home", 0o700);
}

type Pattern = (&'static str, fn(&Session, u32), u32);
const NOTHING: &[Pattern] = &[
    ("mkstemp and fchmod", replaced, FILES),
    ("cp -a and tar", copied, 10),
    ("git's objects", stored, FILES),
];
const HOME: &[Pattern] = &[("chmod 700 of a home", closed, 1)];

/// Somebody makes and folds each of the patterns; `moved` is told how many inodes moved for it.
fn each_costs_no_fold(patterns: &[Pattern], moved: impl Fn(&str, u64), ends: impl Fn(&World)) {
    let world = World::new(SIZE);
    let pool = world.pool();
    // Somebody from whom things would have to be kept.
    let (eve, mut eves) = world.beside(EVE, |_, turns| turns.next());
    eves.wait();
    let (ann, mut turns) = world.beside(ANN, |ann, turns| {
        ann.mkdir("/home", 0o755);
        for file in 0..FILES {
            ann.put(&format!("/home/file-{file}"), &big(0), 0o644);
        }
        ann.fold();
        turns.next();
        for (_, pattern, times) in patterns {
            (0..*times).for_each(|time| pattern(ann, time));
            turns.next();
            ann.fold();
            turns.next();
        }
    });
    turns.wait();
    for (name, ..) in patterns {
        let before = status(&pool);
        let _ = measured(&pool);
        turns.next();
        assert_eq!(measured(&pool).folds, 0, "{name}: folds");
        turns.next();
        assert_ne!(measured(&pool).folds, 0, "{name}: was there anything?");
        let after = status(&pool);
        assert_eq!((after.closings, after.waiting), (0, 0), "{name}");
        moved(name, after.moved - before.moved);
    }
    ends(&world);
    turns.pass();
    ann.ended("ann");
    eves.pass();
    eve.ended("eve");
}

fn common_patterns_cost_no_fold() {
    each_costs_no_fold(
        NOTHING,
        |name, moved| assert_eq!(moved, 0, "{name}: inodes moved"),
        |world| {
            world.as_user(EVE, |eve| {
                for path in ["/home/file-7", "/home/tree-3/5", "/home/object-9"] {
                    assert!(eve.get(path).is_ok(), "{path}");
                }
                assert_eq!(eve.try_write("/home/object-9", b"x"), Err(Errno::ACCESS));
            });
        },
    );
}

/// Inodes and names were for everybody, and go elsewhere, once, when it is folded.
fn a_home_that_is_closed_keeps_its_data() {
    each_costs_no_fold(
        HOME,
        |name, moved| {
            assert!(
                moved <= u64::from(FILES) + 1,
                "{name}: {moved} inodes moved"
            )
        },
        |world| {
            world.as_user(EVE, |eve| {
                assert_eq!(eve.get("/home/file-7"), Err(Errno::ACCESS));
            });
        },
    );
}
