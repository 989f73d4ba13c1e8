//! What users see and may do of each other's files.

use super::Case;
use super::world::{ANN, BOB, EVE, ROOT, Session, World};
use arck_core_state::PagePtr;
use arck_protocol::Request;
use arck_testkit::Shorthand;
use arckfs::{At, Errno};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 128 * MIB;

pub const ALL: &[Case] = &[
    ("what_is_private_stays_so", what_is_private_stays_so),
    ("what_is_everybodys_is_read", what_is_everybodys_is_read),
    ("a_home_hides_what_is_in_it", a_home_hides_what_is_in_it),
    ("groups_share", groups_share),
    ("search_without_read", search_without_read),
    ("sticky_and_set_group_id", sticky_and_set_group_id),
    ("root_may_everything", root_may_everything),
    ("rights_that_change", rights_that_change),
    (
        "rights_that_change_after_a_crash",
        rights_that_change_after_a_crash,
    ),
    ("writers_of_one_file", writers_of_one_file),
    ("nothing_else_can_be_mapped", nothing_else_can_be_mapped),
    ("a_full_pool", a_full_pool),
    (
        "a_full_pool_is_closed_all_the_same",
        a_full_pool_is_closed_all_the_same,
    ),
    ("what_has_no_name", what_has_no_name),
    ("names_that_are_removed", names_that_are_removed),
];

pub fn big(byte: u8) -> Vec<u8> {
    (0..50_000u32).map(|i| byte ^ (i / 7) as u8).collect()
}

fn what_is_private_stays_so() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.put("/secret", &big(1), 0o600);
        ann.mkdir("/closed", 0o700);
        ann.put("/closed/inside", b"inside", 0o666);
    });
    world.as_user(EVE, |eve| {
        assert_eq!(eve.get("/secret"), Err(Errno::ACCESS));
        assert_eq!(eve.try_write("/secret", b"x"), Err(Errno::ACCESS));
        assert_eq!(
            eve.stat("/secret").map(|s| (s.uid, s.mode & 0o777)),
            Ok((1001, 0o600))
        );
        assert_eq!(eve.names("/closed"), Err(Errno::ACCESS));
        assert_eq!(eve.get("/closed/inside"), Err(Errno::ACCESS));
        assert_eq!(eve.stat("/closed/inside").err(), Some(Errno::ACCESS));
        assert_eq!(eve.unlink("/secret"), Err(Errno::PERM));
        assert_eq!(eve.rename("/secret", "/mine"), Err(Errno::PERM));
        assert_eq!(eve.try_chmod("/secret", 0o666), Err(Errno::PERM));
        assert_eq!(eve.try_chown("/secret", 1003, 1003), Err(Errno::PERM));
    });
    world.as_user(ANN, |ann| {
        assert_eq!(ann.get("/secret"), Ok(big(1)));
        assert_eq!(ann.get("/closed/inside"), Ok(b"inside".to_vec()));
    });
    assert_eq!(world.violations(), "");
}

fn what_is_everybodys_is_read() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/open", 0o755);
            for i in 0..200 {
                ann.put(&format!("/open/file{i}"), format!("{i}").as_bytes(), 0o644);
            }
            ann.put("/open/big", &big(2), 0o644);
            turns.next();
            // Written again, in place and longer.
            ann.try_write("/open/big", b"changed").unwrap();
            ann.put("/open/new", &big(3), 0o644);
            turns.next();
            assert_eq!(ann.get("/open/big").unwrap()[..7], *b"changed");
            turns.pass();
        },
        BOB,
        |bob, turns| {
            assert_eq!(bob.names("/open").unwrap().len(), 201);
            for i in 0..200 {
                assert_eq!(
                    bob.get(&format!("/open/file{i}")).unwrap(),
                    format!("{i}").as_bytes()
                );
            }
            assert_eq!(bob.get("/open/big"), Ok(big(2)));
            assert_eq!(bob.try_write("/open/big", b"x"), Err(Errno::ACCESS));
            assert_eq!(bob.try_put("/open/mine", b"x"), Err(Errno::ACCESS));
            assert_eq!(bob.unlink("/open/big"), Err(Errno::ACCESS));
            turns.next();
            assert_eq!(bob.get("/open/big").unwrap()[..7], *b"changed");
            assert_eq!(bob.get("/open/new"), Ok(big(3)));
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}

fn a_home_hides_what_is_in_it() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.mkdir("/home", 0o755);
        ann.mkdir("/home/a", 0o755);
        ann.mkdir("/home/a/b", 0o755);
        ann.put("/home/a/b/file", &big(4), 0o644);
    });
    world.as_user(EVE, |eve| {
        assert_eq!(eve.get("/home/a/b/file"), Ok(big(4)));
    });
    world.together(
        ANN,
        |ann, turns| {
            ann.chmod("/home", 0o700);
            ann.put("/home/a/b/later", &big(5), 0o644);
            turns.next();
            ann.chmod("/home", 0o755);
            turns.next();
        },
        EVE,
        |eve, turns| {
            for path in ["/home/a/b/file", "/home/a/b/later"] {
                assert_eq!(eve.get(path), Err(Errno::ACCESS), "{path}");
            }
            turns.next();
            assert_eq!(eve.get("/home/a/b/file"), Ok(big(4)));
            assert_eq!(eve.get("/home/a/b/later"), Ok(big(5)));
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}

fn groups_share() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.mkdir("/team", 0o770);
        ann.try_chown("/team", u32::MAX, 2000).unwrap();
        ann.put("/team/plan", &big(6), 0o660);
        ann.try_chown("/team/plan", u32::MAX, 2000).unwrap();
        assert_eq!(
            ann.try_chown("/team/plan", u32::MAX, 1002),
            Err(Errno::PERM)
        );
    });
    world.as_user(BOB, |bob| {
        assert_eq!(bob.get("/team/plan"), Ok(big(6)));
        bob.try_write("/team/plan", b"bob").unwrap();
        bob.put("/team/bobs", &big(7), 0o644);
        assert_eq!(bob.try_chmod("/team/plan", 0o600), Err(Errno::PERM));
    });
    world.as_user(EVE, |eve| {
        assert_eq!(eve.names("/team"), Err(Errno::ACCESS));
        assert_eq!(eve.get("/team/plan"), Err(Errno::ACCESS));
        assert_eq!(eve.get("/team/bobs"), Err(Errno::ACCESS));
    });
    world.as_user(ANN, |ann| {
        let mut plan = big(6);
        plan[..3].copy_from_slice(b"bob");
        assert_eq!(ann.get("/team/plan"), Ok(plan));
        assert_eq!(ann.get("/team/bobs"), Ok(big(7)));
        assert_eq!(ann.stat("/team/bobs").unwrap().uid, 1002);
    });
    assert_eq!(world.violations(), "");
}

fn search_without_read() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.mkdir("/x", 0o711);
        ann.mkdir("/x/y", 0o711);
        ann.put("/x/y/known", &big(8), 0o644);
        ann.put("/x/y/other", b"other", 0o600);
        // A drop box: others may put, and not look.
        ann.mkdir("/box", 0o733);
    });
    world.as_user(BOB, |bob| {
        assert_eq!(bob.names("/x"), Err(Errno::ACCESS));
        assert_eq!(bob.get("/x/y/known"), Ok(big(8)));
        assert_eq!(bob.get("/x/y/other"), Err(Errno::ACCESS));
        assert_eq!(bob.get("/x/y/none"), Err(Errno::NOENT));
        bob.put("/box/from-bob", &big(9), 0o600);
        assert_eq!(bob.get("/box/from-bob"), Ok(big(9)));
        assert_eq!(bob.names("/box"), Err(Errno::ACCESS));
    });
    world.as_user(ANN, |ann| {
        assert_eq!(ann.names("/box").unwrap(), ["from-bob"]);
        assert_eq!(ann.get("/box/from-bob"), Err(Errno::ACCESS));
        ann.unlink("/box/from-bob").unwrap();
    });
    assert_eq!(world.violations(), "");
}

fn sticky_and_set_group_id() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.put("/anns", b"ann", 0o666);
        ann.mkdir("/team", 0o770);
        ann.try_chown("/team", u32::MAX, 2000).unwrap();
        ann.chmod("/team", 0o2770);
    });
    world.as_user(BOB, |bob| {
        // The root is as /tmp.
        assert_eq!(bob.unlink("/anns"), Err(Errno::PERM));
        assert_eq!(bob.rename("/anns", "/bobs"), Err(Errno::PERM));
        bob.try_write("/anns", b"bob").unwrap();
        bob.put("/team/file", b"file", 0o640);
        bob.mkdir("/team/below", 0o2750);
        assert_eq!(bob.stat("/team/file").unwrap().gid, 2000);
        let below = bob.stat("/team/below").unwrap();
        assert_eq!((below.gid, below.mode & 0o7777), (2000, 0o2750));
    });
    world.as_user(ANN, |ann| {
        assert_eq!(ann.get("/anns").unwrap(), b"bob");
        assert_eq!(ann.get("/team/file").unwrap(), b"file");
        ann.unlink("/anns").unwrap();
    });
    assert_eq!(world.violations(), "");
}

fn root_may_everything() {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.mkdir("/home", 0o700);
        ann.put("/home/file", &big(10), 0o600);
    });
    world.as_user(ROOT, |root| {
        assert_eq!(root.get("/home/file"), Ok(big(10)));
        root.try_write("/home/file", b"root").unwrap();
        root.put("/home/roots", &big(11), 0o600);
        root.put("/home/given", &big(12), 0o600);
        root.try_chown("/home/given", 1001, 1001).unwrap();
        root.try_chown("/home/file", 1001, 2000).unwrap();
    });
    world.as_user(ANN, |ann| {
        assert_eq!(ann.get("/home/file").unwrap()[..4], *b"root");
        assert_eq!(ann.get("/home/roots"), Err(Errno::ACCESS));
        assert_eq!(ann.get("/home/given"), Ok(big(12)));
        assert_eq!(ann.stat("/home/roots").unwrap().uid, 0);
        ann.unlink("/home/roots").unwrap();
    });
    assert_eq!(world.violations(), "");
}

fn rights_that_change() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.put("/file", &big(13), 0o644);
            ann.mkdir("/to", 0o700);
            turns.next();
            ann.chmod("/file", 0o600);
            ann.try_write("/file", b"secret").unwrap();
            turns.next();
            ann.chmod("/file", 0o644);
            turns.next();
            ann.rename("/file", "/to/file").unwrap();
            turns.next();
            ann.link("/to/file", "/again").unwrap();
            turns.next();
            ann.unlink("/again").unwrap();
            turns.pass();
        },
        EVE,
        |eve, turns| {
            assert_eq!(eve.get("/file"), Ok(big(13)));
            turns.next();
            assert_eq!(eve.get("/file"), Err(Errno::ACCESS));
            turns.next();
            assert_eq!(eve.get("/file").unwrap()[..6], *b"secret");
            turns.next();
            assert_eq!(eve.get("/to/file"), Err(Errno::ACCESS));
            assert_eq!(eve.get("/file"), Err(Errno::NOENT));
            turns.next();
            assert_eq!(eve.get("/again").unwrap()[..6], *b"secret");
            turns.next();
            assert_eq!(eve.get("/again"), Err(Errno::NOENT));
        },
    );
    assert_eq!(world.violations(), "");
}

fn rights_that_change_after_a_crash() {
    let mut world = World::new(SIZE);
    world.as_user(ANN, |ann| {
        ann.mkdir("/home", 0o755);
        ann.put("/home/file", &big(14), 0o644);
    });
    world.as_user(EVE, |eve| assert_eq!(eve.get("/home/file"), Ok(big(14))));
    world.as_user(ANN, |ann| {
        ann.chmod("/home", 0o700);
        ann.fold();
    });
    world.crash();
    world.serve();
    world.as_user(EVE, |eve| {
        assert_eq!(eve.get("/home/file"), Err(Errno::ACCESS));
    });
    world.as_user(ANN, |ann| assert_eq!(ann.get("/home/file"), Ok(big(14))));
    world.stop();
    world.serve();
    world.as_user(EVE, |eve| {
        assert_eq!(eve.stat("/home/file").err(), Some(Errno::ACCESS));
    });
    assert_eq!(world.violations(), "");
}

fn writers_of_one_file() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.put("/shared", &[0; 8192], 0o666);
            for round in 0..20u8 {
                turns.next();
                assert_eq!(ann.get("/shared").unwrap(), [round * 2 + 1; 8192]);
                ann.try_write("/shared", &[round * 2 + 2; 8192]).unwrap();
            }
            turns.pass();
        },
        BOB,
        |bob, turns| {
            for round in 0..20u8 {
                assert_eq!(bob.get("/shared").unwrap(), [round * 2; 8192]);
                bob.try_write("/shared", &[round * 2 + 1; 8192]).unwrap();
                turns.next();
            }
        },
    );
    assert_eq!(world.violations(), "");
}

/// Where in the pool this process can see `needle`: it maps whatever it is sent.
pub fn places_of(session: &Session, needle: &[u8]) -> Vec<u64> {
    let session = session.0.session();
    let mut found = Vec::new();
    let mut page = [0; 4096];
    let mut refused = None;
    for number in 0..session.geometry().page_count() {
        // Each question costs a message.
        let segment = session.geometry().segment_of(PagePtr(number));
        if refused == Some(segment) {
            continue;
        }
        let Some(bytes) = session.page_bytes(PagePtr(number)) else {
            refused = Some(segment);
            continue;
        };
        let seen = bytes.try_copy_to(0, &mut page).is_ok()
            && page != [0; 4096]
            && page.windows(needle.len()).any(|part| part == needle);
        if seen {
            found.push(number);
        }
    }
    found
}

/// Past the library's own checks: what other users' segments hold is not sent, and what was sent
/// while it could be read holds nothing any more of what may not.
fn nothing_else_can_be_mapped() {
    let world = World::new(SIZE);
    let now = [
        &b"text-in-a-secret"[..],
        b"text-below-a-closed-directory",
        b"name-in-a-closed-directory",
        b"target-in-a-closed-directory",
    ];
    let then = [
        &b"text-that-became-a-secret"[..],
        b"text-below-what-was-closed",
        b"name-below-what-was-closed",
        b"text-that-moved-where-it-is-closed",
        b"text-given-to-ann",
    ];
    world.together(
        ANN,
        |ann, turns| {
            ann.put("/secret", now[0], 0o600);
            ann.mkdir("/closed", 0o700);
            ann.mkdir("/closed/below", 0o755);
            ann.put("/closed/below/file", now[1], 0o644);
            ann.put("/closed/below/name-in-a-closed-directory", b"", 0o644);
            ann.0
                .symlink(now[3], At::Root, b"/closed/below/link")
                .unwrap();
            ann.put("/became", then[0], 0o644);
            ann.mkdir("/open", 0o755);
            ann.mkdir("/open/below", 0o755);
            ann.put("/open/below/file", then[1], 0o644);
            ann.put("/open/below/name-below-what-was-closed", b"", 0o644);
            ann.put("/moves", then[3], 0o644);
            ann.put("/given", then[4], 0o644);
            ann.fold();
            turns.next();
            ann.chmod("/became", 0o600);
            ann.chmod("/open", 0o700);
            ann.rename("/moves", "/closed/moved").unwrap();
            ann.chmod("/given", 0o640);
            ann.fold();
            for needle in now.iter().chain(&then) {
                assert_ne!(places_of(ann, needle), [0; 0], "{}", needle.escape_ascii());
            }
            turns.pass();
        },
        EVE,
        |eve, turns| {
            for path in ["/became", "/open/below/file", "/moves", "/given"] {
                eve.get(path).unwrap();
            }
            eve.names("/open/below").unwrap();
            for needle in now {
                assert_eq!(places_of(eve, needle), [0; 0], "{}", needle.escape_ascii());
            }
            for needle in then {
                assert_ne!(places_of(eve, needle), [0; 0], "{}", needle.escape_ascii());
            }
            turns.next();
            for needle in now.into_iter().chain(then) {
                assert_eq!(places_of(eve, needle), [0; 0], "{}", needle.escape_ascii());
            }
        },
    );
    // One who comes now.
    world.as_user(EVE, |eve| {
        for needle in now.into_iter().chain(then) {
            assert_eq!(places_of(eve, needle), [0; 0], "{}", needle.escape_ascii());
        }
    });
    assert_eq!(world.violations(), "");
}

/// Asks for an inode by its number, past the library's checks.
fn ask_for(session: &Session, inode: u32) -> Result<(), Errno> {
    let asked = session.0.session().request(&Request::Admit {
        inode,
        contents: true,
    });
    asked.map(|_| ())
}

/// What is written into a file when its last name is gone is for those who had it open; where its
/// inode lies still says that everybody may read it.
fn what_has_no_name() {
    let world = World::new(SIZE);
    let secret = b"text-written-without-a-name";
    world.together(
        ANN,
        |ann, turns| {
            ann.put("/gone", &big(1), 0o644);
            ann.put("/kept", &big(2), 0o644);
            ann.fold();
            let gone = ann.0.open_at_root("/gone", libc::O_RDWR).unwrap();
            let kept = ann.0.open_at_root("/kept", libc::O_RDWR).unwrap();
            turns.next();
            ann.unlink("/gone").unwrap();
            ann.unlink("/kept").unwrap();
            ann.fold();
            ann.0.write(gone, secret, Some(0)).unwrap();
            ann.0.write(kept, b"for-who-has-it-open", Some(0)).unwrap();
            ann.fold();
            turns.next();
            let mut text = [0; 27];
            ann.0.read(gone, &mut text, Some(0)).unwrap();
            assert_eq!(text, *secret);
            turns.pass();
        },
        EVE,
        |eve, turns| {
            assert_eq!(eve.get("/gone"), Ok(big(1)));
            let gone = u32::try_from(eve.stat("/gone").unwrap().inode).unwrap();
            let kept = eve.0.open_at_root("/kept", libc::O_RDONLY).unwrap();
            turns.next();
            assert_eq!(ask_for(eve, gone), Err(Errno::ACCESS));
            assert_eq!(places_of(eve, secret), [0; 0]);
            let mut text = [0; 19];
            eve.0.read(kept, &mut text, Some(0)).unwrap();
            assert_eq!(text, *b"for-who-has-it-open");
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}

/// Who could read a file by a name that is gone cannot by others that he may not reach; who can
/// still reach one goes on.
fn names_that_are_removed() {
    let world = World::new(SIZE);
    let secret = b"text-below-the-name-that-is-left";
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/open", 0o755);
            ann.mkdir("/closed", 0o700);
            ann.put("/open/one", &big(1), 0o644);
            ann.put("/open/two", &big(2), 0o644);
            ann.link("/open/one", "/closed/one").unwrap();
            ann.link("/open/two", "/open/three").unwrap();
            ann.fold();
            turns.next();
            ann.unlink("/open/one").unwrap();
            ann.unlink("/open/two").unwrap();
            ann.fold();
            ann.try_write("/closed/one", secret).unwrap();
            ann.try_write("/open/three", b"changed").unwrap();
            ann.fold();
            turns.next();
            assert_eq!(ann.get("/closed/one").unwrap()[..secret.len()], *secret);
            turns.pass();
        },
        EVE,
        |eve, turns| {
            // By the name in the open directory, which moves it to where everybody reads it.
            assert_eq!(eve.get("/open/one"), Ok(big(1)));
            assert_eq!(eve.get("/open/two"), Ok(big(2)));
            let one = u32::try_from(eve.stat("/open/one").unwrap().inode).unwrap();
            turns.next();
            assert_eq!(ask_for(eve, one), Err(Errno::ACCESS));
            assert_eq!(places_of(eve, secret), [0; 0]);
            assert_eq!(eve.get("/open/three").unwrap()[..7], *b"changed");
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}

/// Where there is no room to move the data of what is closed, names and attributes move all the
/// same, and nobody is sent the data any more.
fn a_full_pool_is_closed_all_the_same() {
    let world = World::new(32 * MIB);
    let (name, text) = (
        "name-where-there-is-no-room",
        b"text-where-there-is-no-room",
    );
    let path = format!("/open/{name}");
    world.as_user(ANN, |ann| {
        ann.mkdir("/open", 0o755);
        ann.put(&path, text, 0o644);
    });
    world.as_user(EVE, |eve| {
        assert_eq!(eve.get(&path), Ok(text.to_vec()));
        assert_ne!(places_of(eve, name.as_bytes()), [0; 0]);
        assert_ne!(places_of(eve, text), [0; 0]);
    });
    world.as_user(ANN, |ann| {
        let mut count = 0;
        while ann.try_put(&format!("/full{count}"), &big(7)).is_ok() {
            count += 1;
        }
        ann.chmod("/open", 0o700);
        ann.fold();
    });
    // Later there is room again.
    world.as_user(ANN, |ann| {
        for full in ann.names("/").unwrap() {
            if full.starts_with("full") {
                ann.unlink(&format!("/{full}")).unwrap();
            }
        }
        ann.fold();
    });
    world.as_user(EVE, |eve| {
        assert_eq!(eve.get(&path), Err(Errno::ACCESS));
        for inode in 2..200 {
            let _ = ask_for(eve, inode);
        }
        assert_eq!(places_of(eve, name.as_bytes()), [0; 0]);
        assert_eq!(places_of(eve, text), [0; 0]);
    });
    world.as_user(ROOT, |root| assert_eq!(root.get(&path), Ok(text.to_vec())));
    assert_eq!(world.violations(), "");
}

/// Where there is no space for classes, nothing is lost, and nobody sees what he may not.
fn a_full_pool() {
    let world = World::new(16 * MIB);
    let content = |i: u32| vec![i as u8; 40_000];
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/open", 0o755);
            ann.mkdir("/closed", 0o700);
            let mut files = 0;
            let full = loop {
                let folder = if files % 2 == 0 { "open" } else { "closed" };
                match ann.try_put(&format!("/{folder}/{files}"), &content(files)) {
                    Ok(()) => files += 1,
                    Err(errno) => break errno,
                }
            };
            assert_eq!(full, Errno::NOSPC, "after {files} files");
            assert!(files > 20, "{files} files");
            turns.next();
            for i in 0..files {
                let folder = if i % 2 == 0 { "open" } else { "closed" };
                assert_eq!(ann.get(&format!("/{folder}/{i}")), Ok(content(i)), "{i}");
                ann.unlink(&format!("/{folder}/{i}")).unwrap();
            }
            turns.pass();
        },
        BOB,
        |bob, turns| {
            for i in 0..20 {
                let open = bob.get(&format!("/open/{i}"));
                let there = i % 2 == 0;
                assert!(
                    open == Ok(content(i)) && there || open == Err(Errno::NOENT) && !there,
                    "{i}: {:?}",
                    open.map(|content| content.len())
                );
                assert_eq!(bob.get(&format!("/closed/{i}")), Err(Errno::ACCESS));
            }
            turns.next();
        },
    );
    assert_eq!(world.violations(), "");
}
