//! Mediated directories and users: who may change names by messages, of whom what is made is, and who can still read what has lost a
//! name.

use super::Case;
use super::world::{ANN, BOB, EVE, Session, World, plain};
use arck_core_state::FileKind;
use arck_protocol::control::{NO_OPEN_PLACE, open_entry, open_reserved};
use arck_protocol::message::{Named, allocation, extended, which};
use arck_protocol::{Request, Response};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, Mediation, SetTime, Subject, Timestamp};
use std::sync::atomic::Ordering;

const SIZE: u64 = 64 << 20;

pub const ALL: &[Case] = &[
    (
        "a_right_that_was_taken_away_before_is_none",
        a_right_that_was_taken_away_before_is_none,
    ),
    (
        "what_is_made_to_be_opened_is_open_from_then_on",
        what_is_made_to_be_opened_is_open_from_then_on,
    ),
    (
        "what_has_been_out_of_reach_gets_names",
        what_has_been_out_of_reach_gets_names,
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
        "attributes_are_set_as_the_mode_is_now",
        attributes_are_set_as_the_mode_is_now,
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
                size: 0,
                open: NO_OPEN_PLACE,
                mark: 0,
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

/// Bob has files made, each to be opened. Then one is removed and the other moved to where he may not look; he is told what both are, and
/// reads what he could read, as open(2) is done when it makes the name. Without a place of the open table he is not.
fn what_is_made_to_be_opened_is_open_from_then_on() {
    const PLACES: [u32; 5] = [77, 78, 79, NO_OPEN_PLACE, u32::MAX - 1];
    for mode in [0o600, 0o000] {
        let world = World::new(SIZE);
        world.together(
            ANN,
            |ann, turns| {
                ann.mkdir("/open", 0o777);
                ann.mkdir("/closed", 0o700);
                mediate(ann, "/open");
                ann.0.fold(true).expect("folded");
                turns.next();
                for at in [0, 2, 3] {
                    unlink(ann, &format!("/open/{at}")).expect("removed");
                }
                rename(ann, "/open", "/closed/open").expect("moved");
                ann.0.fold(true).expect("folded");
                turns.next();
            },
            BOB,
            |bob, turns| {
                let (directory, generation) = identity(bob, "/open");
                let control = bob.0.session().control();
                let opens = &control.header.opens;
                opens.fetch_max(PLACES[2] + 1, Ordering::SeqCst);
                let made = PLACES.into_iter().enumerate().map(|(at, open)| {
                    if let Some(place) = control.open.get(open as usize) {
                        place.store(open_reserved(7), Ordering::SeqCst);
                    }
                    let made = Request::MakeName {
                        directory,
                        generation,
                        name: at.to_string().into(),
                        kind: FileKind::File as u8,
                        mode,
                        uid: BOB.0,
                        gid: BOB.1[0],
                        size: 0,
                        open,
                        // Of the third, which has a place, it is not the mark.
                        mark: if at == 2 { 8 } else { 7 },
                    };
                    match bob.0.session().request(&made) {
                        Ok(Response::Bytes(named)) => Named::decode(&named).expect("a name"),
                        told => panic!("{told:?}"),
                    }
                });
                let made: Vec<_> = made.collect();
                turns.next();
                for (at, made) in made.iter().enumerate() {
                    let (inode, generation) = (made.inode, made.generation);
                    // What nobody has open is freed now.
                    let freed = bob.0.session().request(&Request::Forget { inode });
                    assert!(freed.is_ok(), "{freed:?}");
                    let what = Request::Inspect { inode };
                    let told = bob.0.session().request(&what);
                    let is_there = matches!(told, Ok(Response::Bytes(_)));
                    assert_eq!(is_there, at < 2, "{at} of mode {mode:o}: {told:?}");
                    if is_there {
                        let told = bob.0.session().request(&Request::Read {
                            inode,
                            generation,
                            position: 0,
                            length: 1,
                        });
                        let expected = match mode {
                            0 => Err(Errno::ACCESS),
                            _ => Ok(Response::Bytes(Vec::new())),
                        };
                        assert_eq!(told, expected, "{at} of mode {mode:o}");
                    }
                    let place = PLACES.get(at).and_then(|&at| control.open.get(at as usize));
                    let listed = place.map(|place| place.load(Ordering::SeqCst));
                    let entry = match at {
                        0 | 1 => Some(open_entry(inode, generation)),
                        2 => Some(open_reserved(7)),
                        _ => None,
                    };
                    assert_eq!(listed, entry, "{at}");
                }
                turns.pass();
            },
        );
        assert_eq!(world.violations(), "");
    }
}

/// Bob's files are moved to where he cannot look, and back; then he gives them other names, in a mediated directory.
fn what_has_been_out_of_reach_gets_names() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/common", 0o777);
            ann.mkdir("/common/from", 0o777);
            ann.mkdir("/common/to", 0o777);
            ann.mkdir("/closed", 0o700);
            mediate(ann, "/common/to");
            ann.0.fold(true).expect("folded");
            turns.next();
            for path in ["/closed/from", "/closed/again"] {
                rename(ann, "/common/from", path).expect("moved");
                ann.0.fold(true).expect("folded");
                turns.next();
                rename(ann, path, "/common/from").expect("moved back");
                ann.0.fold(true).expect("folded");
                turns.next();
            }
        },
        BOB,
        |bob, turns| {
            let files = ["plain", "open", "written", "looked-at"];
            for name in files {
                bob.put(&format!("/common/from/{name}"), b"his", 0o600);
            }
            bob.0.fold(true).expect("folded");
            let open = |name: &str| {
                let path = format!("/common/from/{name}");
                bob.0.open_at_root(&path, libc::O_RDWR)
            };
            let kept = ["open", "written"].map(|name| plain(open(name)).expect("opened"));
            for turn in 0..2 {
                // It is away.
                turns.next();
                assert_eq!(bob.0.write(kept[1], b"written", Some(0)), Ok(7));
                assert!(bob.0.stat_handle(kept[0]).is_ok());
                assert_eq!(plain(open("plain")).err(), Some(Errno::NOENT));
                // It is back.
                turns.next();
                let looked = bob.0.stat(At::Root, b"/common/from/looked-at", 0);
                assert!(looked.is_ok());
                for name in files {
                    let (from, to) = (
                        format!("/common/from/{name}"),
                        format!("/common/to/{name}{turn}"),
                    );
                    let linked = bob
                        .0
                        .link(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0);
                    assert_eq!(plain(linked), Ok(()), "{name}, turn {turn}");
                }
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

/// The same of a file and a directory that are not mediated: what Ann has done to them, which nobody has folded, counts when Bob sets attributes.
fn attributes_are_set_as_the_mode_is_now() {
    const PATHS: [(&str, u32); 3] = [("/file", 0o600), ("/directory", 0o700), ("/sticky", 0o1777)];
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.put(PATHS[0].0, b"hers", 0o622);
            ann.mkdir(PATHS[1].0, 0o733);
            ann.mkdir(PATHS[2].0, 0o777);
            turns.next();
            for (path, mode) in PATHS {
                ann.chmod(path, mode);
            }
            turns.next();
        },
        BOB,
        |bob, turns| {
            let known = PATHS.map(|(path, _)| identity(bob, path));
            turns.next();
            for (((inode, generation), (path, mode)), how) in
                known
                    .into_iter()
                    .zip(PATHS)
                    .zip([0, extended::UNSEEN, extended::UNSEEN])
            {
                let request = Request::SetExtended {
                    inode,
                    generation,
                    name: b"user.his".to_vec(),
                    how,
                    length: 0,
                };
                let expected = match mode {
                    0o1777 => Errno::PERM,
                    _ => Errno::ACCESS,
                };
                assert_eq!(bob.0.session().request(&request), Err(expected), "{path}");
            }
            turns.pass();
        },
    );
    world.as_user(ANN, |ann| {
        for (path, _) in PATHS {
            let subject = Subject::Path(At::Root, path.as_bytes(), 0);
            assert_eq!(ann.0.list_extended(subject, &mut [0; 100]), Ok(0), "{path}");
        }
    });
    assert_eq!(world.violations(), "");
}

/// Ann owns files, for what no message does, and has closed them in what nobody has folded: what Bob sends then, who could write them
/// before, is refused; what he has open he writes.
fn a_right_that_the_owner_takes_away_meanwhile_is_none() {
    const FILES: u32 = 5;
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
                    3 => Request::SetExtended {
                        inode,
                        generation,
                        name: b"user.his".to_vec(),
                        how: extended::UNSEEN,
                        length: 0,
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
