//! A controller that dies at every point of closing what others have read.

use super::cases::{big, places_of};
use super::check::check;
use super::world::{ANN, Child, EVE, ROOT, Session, World};
use arck_testkit::{Shorthand, connect};
use arckfs::{At, Errno};
use std::time::Duration;

const OPEN: &[u8] = b"text-that-everybody-may-read";
const NEEDLES: [&[u8]; 5] = [
    b"text-that-became-a-secret",
    b"text-below-what-was-closed",
    b"name-below-what-was-closed",
    b"target-below-what-was-closed",
    b"text-of-many-pages",
];

/// More than is moved in one step.
fn many_pages() -> Vec<u8> {
    NEEDLES[4].repeat(80_000)
}

fn fill(ann: &Session) {
    ann.put("/open", OPEN, 0o644);
    ann.put("/became", NEEDLES[0], 0o644);
    ann.mkdir("/closed", 0o755);
    ann.mkdir("/closed/below", 0o755);
    ann.put("/closed/below/file", NEEDLES[1], 0o644);
    ann.put("/closed/below/name-below-what-was-closed", b"", 0o644);
    ann.0
        .symlink(NEEDLES[3], At::Root, b"/closed/below/link")
        .expect("a link");
    ann.put("/closed/big", &many_pages(), 0o644);
    ann.fold();
}

fn read_all(who: &Session) {
    for path in ["/open", "/became", "/closed/below/file", "/closed/big"] {
        who.get(path).expect("a file that everybody may read");
    }
    who.names("/closed/below").expect("names");
    let target = who
        .0
        .read_link(At::Root, b"/closed/below/link", &mut [0; 64]);
    target.expect("a link");
}

fn sees_nothing(who: &Session, when: &str) {
    for needle in NEEDLES {
        let seen = places_of(who, needle);
        assert_eq!(seen, [0; 0], "{} {when}", needle.escape_ascii());
    }
}

/// Closes a file and a tree, with a controller that dies at the point `at`. False: it did not come
/// to that point.
fn close(world: &mut World, at: u32) -> bool {
    let (pool, fuse) = (world.pool(), world.fuse());
    let through = fuse.with_file_name("through");
    let closing = Child::start(ANN, || {
        let ann = Session(connect(&pool));
        ann.chmod("/became", 0o600);
        ann.chmod("/closed", 0o700);
        std::fs::write(&fuse, at.to_string()).expect("a fuse");
        if ann.0.fold(false).is_ok() {
            std::fs::write(&through, b"").expect("a note");
        }
    });
    // Who waits for a controller that is gone does so for long.
    let is_through = loop {
        match (through.exists(), world.has_died()) {
            (true, _) => break true,
            (false, true) => break through.exists(),
            (false, false) => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    closing.kill();
    std::fs::remove_file(&fuse).expect("a fuse");
    !is_through
}

/// Wherever a controller dies that closes what others have read: once the pool is opened again,
/// they see nothing of it any more, by what they have kept or by what they are sent.
pub fn moves_that_are_cut_off() {
    let mut at = 0;
    loop {
        let mut world = World::new(32 << 20);
        world.as_user(ANN, fill);
        let (eve, mut turns) = world.beside(EVE, |eve, turns| {
            read_all(eve);
            for needle in NEEDLES {
                assert_ne!(places_of(eve, needle), [0; 0], "{}", needle.escape_ascii());
            }
            turns.next();
            assert_ne!(places_of(eve, OPEN), [0; 0], "what was mapped is gone");
            sees_nothing(eve, "by a mapping that was kept");
        });
        turns.wait();
        let died = close(&mut world, at);
        world.crash();
        world.serve();
        turns.pass();
        eve.ended(&format!("eve, before the crash at point {at}"));
        world.as_user(EVE, |eve| {
            assert_eq!(eve.get("/open"), Ok(OPEN.to_vec()));
            assert_eq!(eve.get("/became"), Err(Errno::ACCESS));
            assert_eq!(eve.names("/closed"), Err(Errno::ACCESS));
            sees_nothing(eve, "after the crash");
        });
        world.as_user(ANN, |ann| {
            assert_eq!(ann.get("/became"), Ok(NEEDLES[0].to_vec()));
            assert_eq!(ann.get("/closed/big"), Ok(many_pages()));
            ann.put("/closed/new", &big(3), 0o644);
        });
        world.as_user(ROOT, |root| {
            assert_eq!(root.get("/closed/below/file"), Ok(NEEDLES[1].to_vec()));
        });
        assert_eq!(world.violations(), "");
        world.stop();
        // Every page that nothing refers to is free.
        check(&world.pool());
        if !died {
            break;
        }
        at += 1;
    }
    // Each commit has four points; the fold is one, and what moves takes two for each of seven, and of
    // what is large for each part, and one for its place.
    assert!(at >= 44, "only {at} points");
    println!("a crash at each of {at} points");
}
