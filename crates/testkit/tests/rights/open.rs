//! Descriptors that were open when a right went away, and files whose names are in directories of
//! different classes: what the kernel does on a directory of the host, the pool does.

use super::Case;
use super::beside_host::{Both, big, both, make_host};
use super::world::{ANN, BOB, EVE, ROOT, Session, World, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno};

pub const ALL: &[Case] = &[
    ("descriptors_outlive_rights", descriptors_outlive_rights),
    ("descriptors_write_on", descriptors_write_on),
    ("descriptors_cut_on", descriptors_cut_on),
    ("directories_list_on", directories_list_on),
    (
        "names_that_stay_are_listed_while_others_change",
        names_that_stay_are_listed_while_others_change,
    ),
    (
        "rights_outlive_the_controller",
        rights_outlive_the_controller,
    ),
    ("written_and_not_read", written_and_not_read),
    (
        "a_descriptor_s_right_ends_with_it",
        a_descriptors_right_ends_with_it,
    ),
    (
        "what_was_closed_while_it_was_open_is_read_again",
        what_was_closed_while_it_was_open_is_read_again,
    ),
    (
        "links_in_two_closed_directories",
        links_in_two_closed_directories,
    ),
];

/// Files that are closed each in its way, read on by who has them open: also what is written later.
fn descriptors_outlive_rights(seed: u64) {
    const WAYS: [&str; 6] = ["mode", "above", "moved", "name", "last", "never-read"];
    let world = World::new(128 << 20);
    let host = make_host(&world);
    let path = |way: &str| format!("/{way}/within/file");
    world.together(
        ANN,
        |ann, turns| {
            let ann = both(ann, &host);
            ann.mkdir("/closed", 0o700);
            for (at, way) in WAYS.into_iter().enumerate() {
                ann.mkdir(&format!("/{way}"), 0o755);
                ann.mkdir(&format!("/{way}/within"), 0o755);
                ann.put(&path(way), &big(at as u8), 0o644);
            }
            ann.link(&path("name"), "/closed/name");
            turns.next();
            ann.chmod(&path("mode"), 0);
            ann.chmod(&path("never-read"), 0o600);
            ann.chmod("/above", 0o700);
            ann.rename("/moved/within", "/closed/moved");
            ann.unlink(&path("name"));
            ann.unlink(&path("last"));
            turns.next();
            // What is written now is read too: the descriptor is to the file, not to what was in it.
            ann.chmod(&path("mode"), 0o600);
            for path in [
                &path("mode"),
                &path("above"),
                "/closed/moved/file",
                "/closed/name",
            ] {
                ann.write(path, b"written later", 4090);
                ann.write(path, &big(99), 60_000);
            }
            ann.chmod(&path("mode"), 0);
            turns.next();
            turns.pass();
        },
        EVE,
        |eve, turns| {
            let eve = both(eve, &host);
            let open: Vec<_> = WAYS
                .map(|way| (way, eve.open(&path(way)).expect("open")))
                .into();
            for (way, open) in &open {
                if *way != "never-read" {
                    open.compare(seed, way);
                }
            }
            turns.next();
            for (way, open) in &open {
                open.compare(seed + 1, way);
                if *way != "last" {
                    assert!(eve.open(&path(way)).is_err(), "{way}");
                }
            }
            turns.next();
            for (way, open) in &open {
                open.compare(seed + 2, way);
            }
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}

/// What is open for writing is written on, in place and at the end, whatever becomes of the right to
/// it; its owner writes in turn, and reads it.
fn descriptors_write_on(seed: u64) {
    const WAYS: [&str; 5] = ["mode", "above", "moved", "name", "last"];
    let world = World::new(128 << 20);
    let host = make_host(&world);
    let path = |way: &str| format!("/{way}/within/file");
    let now = |way: &str| match way {
        "moved" => "/closed/moved/file".to_owned(),
        "name" => "/closed/name".to_owned(),
        way => path(way),
    };
    let of_owner = |ann: &Both<'_>, random: &mut Random| {
        for way in WAYS.iter().filter(|way| **way != "last") {
            assert!(ann.get(&now(way)).is_ok(), "{way}");
            ann.write(&now(way), &random.bytes(5000), random.below(70_000));
        }
    };
    world.together(
        ANN,
        |ann, turns| {
            let ann = both(ann, &host);
            let mut random = Random::new(seed);
            ann.mkdir("/closed", 0o700);
            for (at, way) in WAYS.into_iter().enumerate() {
                ann.mkdir(&format!("/{way}"), 0o755);
                ann.mkdir(&format!("/{way}/within"), 0o755);
                ann.put(&path(way), &big(at as u8), 0o666);
            }
            ann.link(&path("name"), "/closed/name");
            turns.next();
            ann.chmod(&path("mode"), 0o600);
            ann.chmod("/above", 0o700);
            ann.rename("/moved/within", "/closed/moved");
            ann.unlink(&path("name"));
            ann.unlink(&path("last"));
            for _ in 0..4 {
                turns.next();
                of_owner(&ann, &mut random);
            }
            turns.pass();
        },
        EVE,
        |eve, turns| {
            let eve = both(eve, &host);
            let mut random = Random::new(seed + 1);
            let open = |flags| {
                let open = |way| (way, eve.open_as(&path(way), flags).expect("open"));
                Vec::from(WAYS.map(open))
            };
            let (all, at_end) = (open(libc::O_RDWR), open(libc::O_RDWR | libc::O_APPEND));
            // Of some a part is the session's own when the right goes.
            for (way, file) in &all[..3] {
                file.write(&mut random, way);
            }
            for round in 0..4 {
                turns.next();
                for (way, file) in all.iter().chain(&at_end) {
                    file.write(&mut random, way);
                    file.compare(seed + round, way);
                }
            }
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}

/// As it is written on, it is cut and made longer.
fn descriptors_cut_on(seed: u64) {
    const WAYS: [&str; 3] = ["mode", "above", "last"];
    let world = World::new(128 << 20);
    let host = make_host(&world);
    let path = |way: &str| format!("/{way}/file");
    world.together(
        ANN,
        |ann, turns| {
            let ann = both(ann, &host);
            for (at, way) in WAYS.into_iter().enumerate() {
                ann.mkdir(&format!("/{way}"), 0o755);
                ann.put(&path(way), &big(at as u8), 0o666);
            }
            turns.next();
            ann.chmod(&path("mode"), 0o600);
            ann.chmod("/above", 0o700);
            ann.unlink(&path("last"));
            for round in 0..6 {
                turns.next();
                for way in &WAYS[..2] {
                    assert!(ann.get(&path(way)).is_ok(), "{way}");
                    ann.write(&path(way), &big(round), u64::from(round) * 7000);
                }
            }
            turns.pass();
        },
        EVE,
        |eve, turns| {
            let eve = both(eve, &host);
            let mut random = Random::new(seed);
            let open = |way| (way, eve.open_as(&path(way), libc::O_RDWR).expect("open"));
            let all = WAYS.map(open);
            // One that was not opened for it.
            let read_only = eve.open(&path("mode")).expect("open");
            for round in 0..6 {
                turns.next();
                for (way, file) in &all {
                    file.cut(&mut random, way);
                    file.compare(seed + round, way);
                    file.cut(&mut random, way);
                    file.write(&mut random, way);
                    file.compare(seed + round, way);
                }
                let cut = eve.session.0.truncate_handle(read_only.pool, 0);
                assert_eq!(cut, Err(Errno::INVAL));
                let denied = eve.session.0.truncate(At::Root, b"/mode/file", 0);
                assert_eq!(plain(denied), Err(Errno::ACCESS));
            }
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}

/// Names come and go in directories that are open and closed to who lists them.
fn directories_list_on(_seed: u64) {
    const WAYS: [&str; 3] = ["mode", "above", "moved"];
    let world = World::new(128 << 20);
    let host = make_host(&world);
    let path = |way: &str| format!("/{way}/within");
    let now = |way: &str| match way {
        "moved" => "/closed/moved".to_owned(),
        way => path(way),
    };
    // Some of them as long as a name can be, so that a bucket takes several messages.
    let name = |at: usize| match at % 5 {
        0 => format!("{at:0200}"),
        _ => format!("name {at}"),
    };
    world.together(
        ANN,
        |ann, turns| {
            let ann = both(ann, &host);
            ann.mkdir("/closed", 0o700);
            for way in WAYS {
                ann.mkdir(&format!("/{way}"), 0o755);
                ann.mkdir(&path(way), 0o755);
                for at in 0..300 {
                    ann.put(&format!("{}/{}", path(way), name(at)), b"", 0o644);
                }
            }
            turns.next();
            ann.chmod(&path("mode"), 0o700);
            ann.chmod("/above", 0o700);
            ann.rename("/moved/within", "/closed/moved");
            for round in 0..3 {
                turns.next();
                for way in WAYS {
                    for at in (round..300).step_by(7) {
                        let old = format!("{}/{}", now(way), name(at));
                        let there = ann.session.stat(&old).is_ok();
                        if there {
                            ann.session.unlink(&old).expect("removed");
                            std::fs::remove_file(ann.at(&old)).expect("removed");
                        }
                        let new = format!("{}/{}", now(way), name(1000 * (round + 1) + at));
                        ann.session.put(&new, b"", 0o644);
                        std::fs::write(ann.at(&new), b"").expect("written");
                    }
                }
            }
            turns.pass();
        },
        EVE,
        |eve, turns| {
            let eve = both(eve, &host);
            let open = |way| {
                (
                    way,
                    eve.open_as(&path(way), libc::O_DIRECTORY).expect("open"),
                )
            };
            let all = WAYS.map(open);
            for (way, open) in &all {
                assert_eq!(open.list(way), 300);
            }
            for _ in 0..4 {
                turns.next();
                for (way, open) in &all {
                    assert!(open.list(way) > 200);
                    assert!(eve.open_as(&path(way), libc::O_DIRECTORY).is_err(), "{way}");
                }
            }
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}

/// What is there all the time is in each listing, once, however its buckets are split meanwhile.
fn names_that_stay_are_listed_while_others_change(_seed: u64) {
    let world = World::new(128 << 20);
    let stays = |at: usize| match at % 3 {
        0 => format!("stays {at:0100}"),
        _ => format!("stays {at}"),
    };
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/directory", 0o755);
            for at in 0..300 {
                ann.put(&format!("/directory/{}", stays(at)), b"", 0o644);
            }
            ann.fold();
            turns.next();
            ann.chmod("/directory", 0o700);
            ann.fold();
            turns.pass();
            let mut names = Vec::new();
            for at in 0..6000 {
                let name = format!("/directory/goes {at}");
                ann.put(&name, b"", 0o644);
                names.push(name);
                // It grows in the main, bucket by bucket.
                if at % 3 == 0 {
                    ann.unlink(&names.swap_remove(at % names.len()))
                        .expect("removed");
                }
                if at % 4 == 0 {
                    ann.fold();
                }
            }
        },
        EVE,
        |eve, turns| {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY;
            let open = plain(eve.0.open_at_root("/directory", flags)).expect("open");
            turns.next();
            let mut others = Vec::new();
            let began = std::time::Instant::now();
            while others.last() < Some(&3900) && began.elapsed().as_secs() < 60 {
                let names = eve.0.names_of(open).expect("a listing");
                let count = names.len();
                let mut set: std::collections::BTreeSet<String> = names.into_iter().collect();
                assert_eq!(set.len(), count, "names twice");
                let missing: Vec<_> = (0..300).filter(|&at| !set.remove(&stays(at))).collect();
                assert!(missing.is_empty(), "{missing:?} of {count}");
                others.push(set.len());
            }
            println!(
                "{} listings of up to {:?} others",
                others.len(),
                others.last()
            );
            assert!(others.len() > 10);
        },
    );
    assert_eq!(world.violations(), "");
}

/// A controller that is killed and started again knows them; and not those that have ended before.
fn rights_outlive_the_controller(seed: u64) {
    let mut world = World::new(128 << 20);
    let host = make_host(&world);
    world.as_user(ANN, |ann| {
        let ann = both(ann, &host);
        ann.put("/kept", &big(1), 0o666);
        ann.put("/closed", &big(2), 0o666);
        ann.mkdir("/directory", 0o755);
        ann.put("/directory/name", b"", 0o644);
    });
    let of_eve = host.clone();
    let (child, mut turns) = world.beside(EVE, move |eve, turns| {
        let eve = both(eve, &of_eve);
        let mut random = Random::new(seed);
        let open = |path| eve.open_as(path, libc::O_RDWR).expect("open");
        let (kept, closed) = (open("/kept"), open("/closed"));
        let directory = eve.open_as("/directory", libc::O_DIRECTORY);
        let directory = directory.expect("open");
        turns.next();
        for round in 0..3 {
            for file in [&kept, &closed] {
                file.compare(seed + round, "restarted");
                file.write(&mut random, "restarted");
                file.cut(&mut random, "restarted");
                file.compare(seed + round, "restarted");
            }
            assert_eq!(directory.list("restarted"), 1);
            assert!(eve.open("/kept").is_err());
            turns.next();
        }
        // One ends; the controller looks at that once a second.
        let (inode, generation) = closed.identity();
        eve.session.0.close(closed.pool);
        for _ in 0..30 {
            std::thread::sleep(std::time::Duration::from_millis(100));
            kept.compare(seed, "the other");
        }
        turns.next();
        // Past the library: listed as open once more.
        let session = eve.session.0.session();
        let table = &session.control().open;
        let entry = arck_protocol::control::open_entry(inode, generation);
        let free =
            |at: &std::sync::atomic::AtomicU64| at.load(std::sync::atomic::Ordering::SeqCst) == 0;
        let free = table.iter().position(free).expect("room");
        table[free].store(entry, std::sync::atomic::Ordering::SeqCst);
        let asked = session.request(&arck_protocol::Request::Read {
            inode,
            generation,
            position: 0,
            length: 10,
        });
        assert_eq!(asked, Err(Errno::ACCESS));
        kept.compare(seed, "the other, once more");
        turns.pass();
    });
    turns.wait();
    world.as_user(ANN, |ann| {
        let ann = both(ann, &host);
        ann.chmod("/kept", 0o600);
        ann.chmod("/closed", 0o600);
        ann.chmod("/directory", 0o700);
    });
    for _ in 0..4 {
        world.crash();
        world.serve();
        turns.next();
    }
    world.crash();
    world.serve();
    turns.next();
    child.ended("eve");
    assert_eq!(world.violations(), "");
}

/// Who may write a file and not read it writes parts of pages as anything else.
fn written_and_not_read(seed: u64) {
    let world = World::new(128 << 20);
    let host = make_host(&world);
    world.as_user(ANN, |ann| both(ann, &host).put("/drop", &big(3), 0o622));
    world.as_user(EVE, |eve| {
        let eve = both(eve, &host);
        let mut random = Random::new(seed);
        assert_eq!(eve.get("/drop"), Err(Errno::ACCESS));
        for flags in [libc::O_WRONLY, libc::O_WRONLY | libc::O_APPEND] {
            let file = eve.open_as("/drop", flags).expect("open");
            for _ in 0..20 {
                file.write(&mut random, "unseen");
                file.cut(&mut random, "unseen");
            }
            let size = random.below(90_000);
            let cut = eve.session.0.truncate(At::Root, b"/drop", size);
            assert_eq!(plain(cut), Ok(()));
            file.host.set_len(size).expect("cut");
            eve.session.0.close(file.pool);
        }
    });
    world.as_user(ANN, |ann| {
        assert!(both(ann, &host).get("/drop").is_ok());
    });
    assert_eq!(world.violations(), "");
}

/// Whoever closes it has lost it; and nobody has it who had not opened it.
fn a_descriptors_right_ends_with_it(_seed: u64) {
    let world = World::new(128 << 20);
    let ask = |session: &Session, (inode, generation): (u32, u32)| {
        let request = arck_protocol::Request::Read {
            inode,
            generation,
            position: 0,
            length: 10,
        };
        session.0.session().request(&request)
    };
    let secret = b"for those who may read it";
    world.as_user(ANN, |ann| {
        ann.put("/file", &big(1), 0o644);
        ann.put("/other", secret, 0o600);
    });
    world.together(
        EVE,
        |eve, turns| {
            let inode = |path| u32::try_from(eve.stat(path).expect("there").inode).expect("one");
            let generation = |number| eve.0.session().header(number).expect("one").generation();
            let file = inode("/file");
            let file = (file, generation(file));
            let other = inode("/other");
            let other = (other, generation(other));
            let open = plain(eve.0.open_at_root("/file", libc::O_RDONLY)).expect("open");
            // Past the library: what it may not open is not told, listed as open or not.
            assert_eq!(ask(eve, other), Err(Errno::ACCESS));
            let table = &eve.0.session().control().open;
            let entry = arck_protocol::control::open_entry(other.0, other.1);
            let free = table
                .iter()
                .position(|at| at.load(std::sync::atomic::Ordering::SeqCst) == 0);
            table[free.expect("room")].store(entry, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(ask(eve, other), Err(Errno::ACCESS));
            turns.next();
            assert!(ask(eve, file).is_ok());
            assert_eq!(ask(eve, other), Err(Errno::ACCESS));
            eve.0.close(open);
            assert_eq!(ask(eve, file), Err(Errno::ACCESS));
            assert_eq!(eve.get("/file"), Err(Errno::ACCESS));
            turns.pass();
        },
        ANN,
        |ann, turns| {
            ann.chmod("/file", 0o600);
            ann.chmod("/other", 0o400);
            ann.fold();
            turns.next();
        },
    );
    // Bob never had it.
    world.as_user(BOB, |bob| {
        let stat = bob.stat("/file").expect("its attributes");
        let number = u32::try_from(stat.inode).expect("one");
        let generation = bob.0.session().header(number).expect("one").generation();
        assert_eq!(ask(bob, (number, generation)), Err(Errno::ACCESS));
    });
    assert_eq!(world.violations(), "");
}

/// # Regression
/// Who had a file open when the directory above it was closed was told of it by message, and went on with what
/// he knew: when the directory had been opened again and the descriptor closed, `stat` and `open` succeeded by
/// that, nobody asked the controller the way, and each read was told EACCES for as long as the session lived.
fn what_was_closed_while_it_was_open_is_read_again(_seed: u64) {
    let world = World::new(128 << 20);
    world.as_user(ANN, |ann| {
        ann.mkdir("/common", 0o777);
        ann.mkdir("/closed", 0o700);
    });
    world.together(
        BOB,
        |bob, turns| {
            bob.put("/common/file", &[7; 3000], 0o644);
            bob.fold();
            // Read by others, so that it does not lie where only its writer looks.
            turns.next();
            let open = bob.0.open_at_root("/common/file", libc::O_RDWR);
            let handle = plain(open).expect("mine");
            // So that bob owns it, and its contents stay where they are.
            bob.chmod("/common/file", 0o666);
            // Closed.
            turns.next();
            let mut byte = [0];
            assert_eq!(bob.0.read(handle, &mut byte, Some(0)), Ok(1));
            assert_eq!(bob.get("/common/file"), Err(Errno::NOENT));
            bob.0.close(handle);
            // Open again; the right that the descriptor kept is forgotten within a second or so.
            turns.next();
            std::thread::sleep(std::time::Duration::from_secs(3));
            // The directories on the way are asked for by another call.
            assert_eq!(bob.stat("/common/none").err(), Some(Errno::NOENT));
            assert_eq!(bob.stat("/common/file").map(|stat| stat.size), Ok(3000));
            assert_eq!(bob.get("/common/file"), Ok(vec![7; 3000]));
            turns.pass();
        },
        ANN,
        |ann, turns| {
            assert_eq!(ann.get("/common/file").map(|bytes| bytes.len()), Ok(3000));
            turns.next();
            ann.rename("/common", "/closed/common").expect("moved");
            turns.next();
            ann.rename("/closed/common", "/common").expect("moved back");
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}

/// Each reads it by the name that he can reach, in turns, also while another has it open.
fn links_in_two_closed_directories(seed: u64) {
    let world = World::new(128 << 20);
    let host = make_host(&world);
    world.as_user(ROOT, |root| {
        let root = both(root, &host);
        root.mkdir("/ann-and-bob", 0o750);
        root.mkdir("/eve", 0o700);
        root.put("/ann-and-bob/file", &big(1), 0o644);
        root.link("/ann-and-bob/file", "/eve/file");
        root.chown("/ann-and-bob", 1001, 2000);
        root.chown("/eve", 1003, 1003);
    });
    world.together(
        BOB,
        |bob, turns| {
            let bob = both(bob, &host);
            let open = bob.open("/ann-and-bob/file").expect("open");
            for round in 0..5 {
                assert_eq!(bob.get("/ann-and-bob/file"), Ok(big(1)));
                assert_eq!(bob.get("/eve/file"), Err(Errno::ACCESS));
                open.compare(seed + round, "bob's");
                turns.next();
                open.compare(seed + round, "bob's");
            }
            turns.pass();
        },
        EVE,
        |eve, turns| {
            let eve = both(eve, &host);
            let open = eve.open("/eve/file").expect("open");
            for round in 0..5 {
                assert_eq!(eve.get("/eve/file"), Ok(big(1)));
                assert_eq!(eve.get("/ann-and-bob/file"), Err(Errno::ACCESS));
                open.compare(seed + round, "eve's");
                turns.next();
                open.compare(seed + round, "eve's");
            }
        },
    );
    assert_eq!(world.violations(), "");
}
