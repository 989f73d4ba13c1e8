//! Mediated directories and users: who may change names by messages, of whom what is made is, and who can still read what has lost a
//! name.

use super::Case;
use super::world::{ANN, BOB, EVE, Session, World};
use arck_core_state::FileKind;
use arck_protocol::message::{allocation, which};
use arck_protocol::{Request, Response};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, Mediation, SetTime, Timestamp};

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
    (
        "who_lost_his_right_gives_space_to_what_he_has_open",
        who_lost_his_right_gives_space_to_what_he_has_open,
    ),
    (
        "a_right_that_the_owner_takes_away_meanwhile_is_none",
        a_right_that_the_owner_takes_away_meanwhile_is_none,
    ),
    (
        "attributes_are_set_by_who_may",
        attributes_are_set_by_who_may,
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

/// `fallocate` by a descriptor whose file its user may not open any more, beside a model of what is in it.
fn who_lost_his_right_gives_space_to_what_he_has_open() {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
    for (closed, mode) in [("/open", 0o700), ("/open/file", 0o600)] {
        let world = World::new(SIZE);
        world.together(
            ANN,
            |ann, turns| {
                ann.mkdir("/open", 0o755);
                ann.put("/open/file", &[b'a'; 10_000], 0o666);
                turns.next();
                ann.chmod(closed, mode);
                ann.0.fold(true).expect("folded");
                // It is hers again, and where he cannot look.
                let handle = ann
                    .0
                    .open_at_root("/open/file", libc::O_RDWR)
                    .expect("opened");
                assert_eq!(ann.0.write(handle, b"hers", Some(0)), Ok(4));
                ann.0.fold(true).expect("folded");
                turns.next();
                let status = ann.0.stat(At::Root, b"/open/file", 0).expect("there");
                assert!(
                    status.size > 3 << 20 && status.blocks > 2 << 11,
                    "{status:?}"
                );
            },
            BOB,
            |bob, turns| {
                let bob = &bob.0;
                let handle = bob
                    .open_at_root("/open/file", libc::O_RDWR)
                    .expect("opened");
                turns.next();
                let mut random = Random::new(7);
                let mut content = [&b"hers"[..], &[b'a'; 9_996]].concat();
                for turn in 0..150 {
                    let (at, length) = (random.below(60_000), 1 + random.below(20_000));
                    let how = [0, KEEP, ZERO, ZERO | KEEP, PUNCH | KEEP][random.below(5) as usize];
                    let (from, end) = (at as usize, (at + length) as usize);
                    if random.below(3) == 0 {
                        let bytes = random.bytes(900);
                        assert_eq!(bob.write(handle, &bytes, Some(at)), Ok(900));
                        content.resize(content.len().max(from + 900), 0);
                        content[from..from + 900].copy_from_slice(&bytes);
                    }
                    let done = bob.allocate(handle, how, at, length);
                    assert_eq!(done, Ok(()), "turn {turn}: {how} at {at}, {length}");
                    if how & KEEP == 0 {
                        content.resize(content.len().max(end), 0);
                    }
                    let last = end.min(content.len());
                    if how & !KEEP != 0 && from < last {
                        content[from..last].fill(0);
                    }
                    let mut read = vec![1; content.len() + 1];
                    assert_eq!(bob.read(handle, &mut read, Some(0)), Ok(content.len()));
                    let differs = content
                        .iter()
                        .zip(&read)
                        .position(|(one, other)| one != other);
                    assert_eq!(differs, None, "turn {turn}: {how} at {at}, {length}");
                }
                // What one message does not do.
                assert_eq!(bob.allocate(handle, 0, 100, 3 << 20), Ok(()));
                let size = || bob.stat_handle(handle).expect("there").size;
                assert_eq!(size(), 100 + (3 << 20));
                assert_eq!(bob.allocate(handle, ZERO, 5, 4 << 20), Ok(()));
                assert_eq!(size(), 5 + (4 << 20));
                assert_eq!(bob.allocate(handle, 0, 0, 1 << 30), Err(Errno::NOSPC));
                assert_eq!(size(), 5 + (4 << 20));
                assert_eq!(bob.allocate(handle, 0, u64::MAX - 4, 4), Err(Errno::FBIG));
                // It is only found when there is none left: what pages there are may be in the range.
                let more = bob.allocate(handle, 0, size(), 20 << 20);
                assert_eq!(more, Ok(()));
                let before = size();
                assert_eq!(bob.allocate(handle, 0, before, 50 << 20), Err(Errno::NOSPC));
                assert_eq!(size(), before);
                assert_eq!(bob.allocate(handle, PUNCH | KEEP, 0, 1 << 46), Ok(()));
                assert_eq!(
                    (size(), bob.stat_handle(handle).expect("there").blocks),
                    (before, 0)
                );
                assert_eq!(bob.allocate(handle, 0, 0, 4 << 20), Ok(()));
                bob.truncate_handle(handle, 5 + (4 << 20)).expect("cut");
                assert_eq!(bob.allocate(handle, 0x40, 0, 1), Err(Errno::OPNOTSUPP));
                turns.pass();
            },
        );
        assert_eq!(world.violations(), "");
    }
}

/// Modes and times of what is mediated, by messages: as anywhere.
fn attributes_are_set_by_who_may() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.mkdir("/shared", 0o777);
        mediate(ann, "/shared");
        ann.put("/shared/hers", b"hers", 0o664);
        ann.put("/shared/all", b"all", 0o666);
        ann.put("/shared/none", b"none", 0o644);
        for path in ["/shared/hers", "/shared/all", "/shared/none"] {
            mediate(ann, path);
        }
    });
    let at = |seconds| {
        SetTime::At(Timestamp {
            seconds,
            nanoseconds: 1,
        })
    };
    world.as_user(BOB, |bob| {
        let touch = |path: &str, time| {
            super::world::plain(bob.0.set_times(At::Root, path.as_bytes(), time, time, 0))
        };
        assert_eq!(touch("/shared/all", SetTime::Now), Ok(()));
        assert_eq!(touch("/shared/all", at(5)), Err(Errno::PERM));
        assert_eq!(touch("/shared/none", SetTime::Now), Err(Errno::ACCESS));
        assert_eq!(touch("/shared", SetTime::Now), Ok(()));
        for path in ["/shared/all", "/shared/none", "/shared"] {
            let refused = bob.try_chmod(path, 0o777);
            assert_eq!(refused, Err(Errno::PERM), "{path}");
            // And by no message that his LibFS does not send.
            let (inode, generation) = identity(bob, path);
            let told = bob.0.session().request(&Request::SetAttributes {
                inode,
                generation,
                which: which::MODE,
                mode: 0o777,
                accessed: 0,
                modified: 0,
            });
            assert_eq!(told, Err(Errno::PERM), "{path}");
        }
    });
    world.as_user(ANN, |ann| {
        let path = b"/shared/hers";
        let set = ann.0.set_times(At::Root, path, at(5), at(6), 0);
        set.expect("her own");
        // A right that she takes away is gone when this returns.
        ann.chmod("/shared/hers", 0o600);
        let told = ann.0.stat(At::Root, path, 0).expect("there");
        assert_eq!((told.mode & 0o777, told.modified.seconds), (0o600, 6));
        assert!(!ann.0.owns(At::Root, path).expect("there"));
    });
    world.as_user(BOB, |bob| {
        assert_eq!(bob.get("/shared/hers").map(|_| ()), Err(Errno::ACCESS));
        assert_eq!(bob.get("/shared/all"), Ok(b"all".to_vec()));
        let mode = bob.0.stat(At::Root, b"/shared/hers", 0).expect("seen").mode;
        assert_eq!(mode & 0o777, 0o600);
    });
    assert_eq!(world.violations(), "");
}

/// Ann owns files, for what no message does, and has closed them in what nobody has folded: what Bob sends then, who could write them
/// before, is refused; what he has open he writes.
fn a_right_that_the_owner_takes_away_meanwhile_is_none() {
    const FILES: u32 = 4;
    let path = |number: u32| format!("/file-{number}");
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            for number in 0..=FILES {
                ann.put(&path(number), &[b'a'; 10_000], 0o666);
                mediate(ann, &path(number));
            }
            turns.next();
            for number in 0..=FILES {
                let name = path(number);
                let handle = ann.0.open_at_root(&name, libc::O_RDWR).expect("opened");
                assert_eq!(ann.0.write(handle, &[b'A'; 100_000], Some(0)), Ok(100_000));
                assert!(ann.0.owns(At::Root, name.as_bytes()).expect("there"));
                ann.chmod(&name, 0o600);
                assert!(ann.0.owns(At::Root, name.as_bytes()).expect("there"));
            }
            turns.next();
            for number in 0..FILES {
                assert_eq!(ann.get(&path(number)), Ok(vec![b'A'; 100_000]), "{number}");
            }
        },
        BOB,
        |bob, turns| {
            let known: Vec<(u32, u32)> = (0..FILES).map(|n| identity(bob, &path(n))).collect();
            let open = bob.0.open_at_root(&path(FILES), libc::O_RDWR);
            let open = open.expect("opened");
            turns.next();
            for ((inode, generation), number) in known.into_iter().zip(0..) {
                let request = match number {
                    0 => Request::Write {
                        inode,
                        generation,
                        position: 0,
                        append: false,
                        bytes: b"his".to_vec(),
                    },
                    1 => Request::Resize {
                        inode,
                        generation,
                        size: 5,
                    },
                    2 => Request::Allocate {
                        inode,
                        generation,
                        position: 0,
                        length: 5000,
                        how: allocation::ZERO,
                    },
                    _ => Request::SetAttributes {
                        inode,
                        generation,
                        which: which::MODIFIED,
                        mode: 0,
                        accessed: 0,
                        modified: 1,
                    },
                };
                let told = bob.0.session().request(&request);
                assert_eq!(told, Err(Errno::ACCESS), "{request:?}");
            }
            assert_eq!(bob.0.write(open, b"his", Some(0)), Ok(3));
            assert_eq!(bob.0.truncate_handle(open, 3), Ok(()));
            turns.pass();
        },
    );
    world.as_user(ANN, |ann| {
        assert_eq!(ann.get(&path(FILES)), Ok(b"his".to_vec()))
    });
    assert_eq!(world.violations(), "");
}
