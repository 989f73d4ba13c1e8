//! Mediated directories and users: who may change names by messages, of whom what is made is, and who can still read what has lost a
//! name.

use super::Case;
use super::world::{ANN, BOB, EVE, Session, World};
use arck_core_state::FileKind;
use arck_protocol::{Request, Response};
use arck_testkit::Shorthand;
use arckfs::{At, Errno, Mediation};

const SIZE: u64 = 64 << 20;

pub const ALL: &[Case] = &[
    (
        "a_right_that_was_taken_away_before_is_none",
        a_right_that_was_taken_away_before_is_none,
    ),
    (
        "sticky_directories_keep_what_is_anothers",
        sticky_directories_keep_what_is_anothers,
    ),
    (
        "what_is_replaced_is_closed_where_its_other_name_is",
        what_is_replaced_is_closed_where_its_other_name_is,
    ),
];

fn mediate(session: &Session, path: &str) {
    let set = session
        .0
        .set_mediation(At::Root, path.as_bytes(), Mediation::On);
    set.expect("its owner may");
}

/// Number and generation.
fn identity(session: &Session, path: &str) -> (u32, u32) {
    let found = session.0.stat(At::Root, path.as_bytes(), 0);
    let number = found.expect("there").inode as u32;
    let header = session.0.session().header(number).expect("a header");
    (number, header.generation())
}

fn unlink(session: &Session, path: &str) -> Result<(), Errno> {
    super::world::plain(session.0.unlink(At::Root, path.as_bytes(), 0))
}

fn rename(session: &Session, from: &str, to: &str) -> Result<(), Errno> {
    let (from, to) = (from.as_bytes(), to.as_bytes());
    super::world::plain(session.0.rename(At::Root, from, At::Root, to, 0))
}

/// Ann closes her directory, which nobody has folded yet; what Bob sends then, who has looked before, is refused.
fn a_right_that_was_taken_away_before_is_none() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/open", 0o777);
            ann.put("/open/hers", b"hers", 0o666);
            mediate(ann, "/open");
            ann.0.fold(true).expect("folded");
            turns.next();
            ann.chmod("/open", 0o700);
            turns.next();
            assert_eq!(ann.0.names("/open").expect("names"), ["hers"]);
        },
        BOB,
        |bob, turns| {
            let (directory, generation) = identity(bob, "/open");
            turns.next();
            let made = Request::MakeName {
                directory,
                generation,
                name: b"his".to_vec(),
                kind: FileKind::File as u8,
                mode: 0o644,
                uid: BOB.0,
                gid: BOB.1[0],
            };
            let removed = Request::RemoveName {
                directory,
                generation,
                name: b"hers".to_vec(),
                is_directory: false,
            };
            let moved = Request::MoveDirectory {
                from: directory,
                from_name: b"hers".to_vec(),
                to: directory,
                to_name: b"his".to_vec(),
                flags: 0,
            };
            for request in [made, removed, moved] {
                let told = bob.0.session().request(&request);
                assert_eq!(told, Err(Errno::ACCESS), "{request:?}");
            }
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}

/// In a sticky directory that is mediated everybody makes files, which are his own, and nobody takes away another's.
fn sticky_directories_keep_what_is_anothers() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.mkdir("/sticky", 0o1777);
        ann.mkdir("/handing", 0o2777);
        mediate(ann, "/sticky");
        mediate(ann, "/handing");
    });
    for user in [BOB, EVE] {
        world.as_user(user, |session| {
            let own = format!("/sticky/{}", user.0);
            session.put(&own, b"own", 0o644);
            session.put(&format!("/handing/{}", user.0), b"own", 0o644);
            for (path, group) in [(own, user.1[0]), (format!("/handing/{}", user.0), ANN.1[0])] {
                let found = session.0.stat(At::Root, path.as_bytes(), 0).expect("there");
                assert_eq!((found.uid, found.gid), (user.0, group), "{path}");
            }
        });
    }
    world.as_user(EVE, |eve| {
        let (own, his) = ("/sticky/1003", "/sticky/1002");
        assert_eq!(unlink(eve, his), Err(Errno::PERM));
        assert_eq!(rename(eve, his, "/sticky/gone"), Err(Errno::PERM));
        assert_eq!(rename(eve, own, his), Err(Errno::PERM));
        assert_eq!(rename(eve, own, "/sticky/else"), Ok(()));
        assert_eq!(unlink(eve, "/sticky/else"), Ok(()));
        // Where it is not sticky all may.
        assert_eq!(unlink(eve, "/handing/1002"), Ok(()));
    });
    // Whose directory it is may.
    world.as_user(ANN, |ann| assert_eq!(unlink(ann, "/sticky/1002"), Ok(())));
    assert_eq!(world.violations(), "");
}

/// A file that all may reach by one of two names; when another file takes that, nobody reaches it any more.
fn what_is_replaced_is_closed_where_its_other_name_is() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/home", 0o700);
            ann.mkdir("/public", 0o777);
            mediate(ann, "/public");
            ann.put("/public/first", b"secret by now", 0o644);
            ann.put("/public/other", b"other", 0o644);
            let linked = ann
                .0
                .link(At::Root, b"/public/first", At::Root, b"/home/first", 0);
            linked.expect("linked");
            ann.0.fold(true).expect("folded");
            turns.next();
            rename(ann, "/public/other", "/public/first").expect("renamed");
            ann.0.fold(true).expect("folded");
            turns.next();
        },
        BOB,
        |bob, turns| {
            let (inode, generation) = identity(bob, "/public/first");
            let read = Request::Read {
                inode,
                generation,
                position: 0,
                length: 100,
            };
            let told = bob.0.session().request(&read);
            assert_eq!(told, Ok(Response::Bytes(b"secret by now".to_vec())));
            turns.next();
            let told = bob.0.session().request(&read);
            assert_eq!(told, Err(Errno::ACCESS));
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}
