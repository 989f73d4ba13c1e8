//! Files that users have mapped together: who may, and what is left to who may not any more.

use super::Case;
use super::world::{ANN, BOB, EVE, Session, World};
use arck_protocol::Request;
use arck_testkit::mapped::{BOTH, Mapped, map};
use arckfs::{At, Errno, Handle};

const SIZE: u64 = 64 << 20;
const LENGTH: usize = 3 * 4096;

pub const ALL: &[Case] = &[
    ("users_store_into_one_memory", users_store_into_one_memory),
    (
        "who_may_not_write_a_file_does_not_map_it_so",
        who_may_not_write_a_file_does_not_map_it_so,
    ),
    (
        "a_map_that_was_kept_shows_nothing_new",
        a_map_that_was_kept_shows_nothing_new,
    ),
    (
        "who_read_it_before_sees_nothing_that_comes_after",
        who_read_it_before_sees_nothing_that_comes_after,
    ),
    (
        "a_right_that_is_taken_away_goes_with_all_pages_of_a_large_file",
        a_right_that_is_taken_away_goes_with_all_pages_of_a_large_file,
    ),
    (
        "a_right_that_is_taken_away_goes_with_the_pages",
        a_right_that_is_taken_away_goes_with_the_pages,
    ),
];

fn both<'s>(session: &'s Session, path: &str) -> Mapped<'s> {
    both_of(session, path, LENGTH).expect("mapped")
}

/// A writable map of a file's first bytes.
fn both_of<'s>(session: &'s Session, path: &str, length: usize) -> Result<Mapped<'s>, Errno> {
    let opened = session.0.open(At::Root, path.as_bytes(), libc::O_RDWR, 0);
    map(&session.0, super::world::plain(opened)?, length, BOTH)
}

fn opened(session: &Session, path: &str) -> Handle {
    let opened = session.0.open(At::Root, path.as_bytes(), libc::O_RDWR, 0);
    opened.expect("open")
}

fn users_store_into_one_memory() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.put("/shared", &[b'a'; LENGTH], 0o666);
            let mapped = both(ann, "/shared");
            mapped.put(5000, b'1');
            turns.next();
            assert_eq!([mapped.byte(5000), mapped.byte(5001)], *b"12");
            assert_eq!(ann.get("/shared").expect("read")[5001], b'2');
            turns.next();
            drop(mapped);
        },
        BOB,
        |bob, turns| {
            let mapped = both(bob, "/shared");
            assert_eq!(mapped.byte(5000), b'1');
            mapped.put(5001, b'2');
            turns.next();
            drop(mapped);
            turns.pass();
        },
    );
    world.as_user(EVE, |eve| {
        let read = eve.get("/shared").expect("read");
        assert_eq!(read[4999..5002], *b"a12");
    });
    assert_eq!(world.violations(), "");
}

/// By no call and by no message.
fn who_may_not_write_a_file_does_not_map_it_so() {
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.put("/ours", &[b'a'; LENGTH], 0o664);
            assert_eq!(ann.try_chown("/ours", u32::MAX, ANN.1[1]), Ok(()));
            let mapped = both(ann, "/ours");
            turns.next();
            assert_eq!(mapped.byte(0), b'a');
            drop(mapped);
        },
        EVE,
        |eve, turns| {
            assert_eq!(both_of(eve, "/ours", LENGTH).err(), Some(Errno::ACCESS));
            let found = eve.stat("/ours").expect("there");
            let inode = found.inode as u32;
            let header = eve.0.session().header(inode).expect("a header");
            let generation = header.generation();
            for (first, count) in [(0, 1), (0, u64::MAX), (u64::MAX, 1), (7, 0)] {
                let request = Request::MapTogether {
                    inode,
                    generation,
                    first,
                    count,
                };
                let told = eve.0.session().request(&request).map(drop);
                assert_eq!(told, Err(Errno::ACCESS), "{request:?}");
            }
            let pages = eve.0.session().geometry().page_count();
            let written = (0..pages).step_by(64).filter(|&page| {
                let page = arck_core_state::PagePtr(page);
                eve.0.session().can_write_together(page)
            });
            // Of data segments of its own there are none.
            assert_eq!(written.count(), 0);
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}

/// Bob unmaps what he has mapped, and has a map of it left of which nobody knows, when Ann takes his right away: he sees
/// nothing that she writes then, and she nothing of his.
fn a_map_that_was_kept_shows_nothing_new() {
    for mode in [0o600, 0o644] {
        let world = World::new(SIZE);
        world.together(
            ANN,
            |ann, turns| {
                ann.put("/shared", &[b'a'; LENGTH], 0o666);
                let mapped = both(ann, "/shared");
                turns.next();
                // She alone has a map, as far as anybody says, and he could store to it still.
                assert_eq!(ann.try_chmod("/shared", mode), Err(Errno::TXTBSY));
                drop(mapped);
                ann.chmod("/shared", mode);
                let handle = opened(ann, "/shared");
                assert_eq!(ann.0.write(handle, b"hers", Some(4096)), Ok(4));
                turns.next();
                let now = ann.get("/shared").expect("read");
                assert_eq!(now[4096..4102], *b"hersaa");
                // Nor where she has written nothing since.
                let others = now[1..4096].iter().chain(&now[8192..]);
                assert!(
                    others.into_iter().all(|&byte| byte == b'a'),
                    "what is his is shown"
                );
                // And with a map of her own.
                let mapped = both(ann, "/shared");
                mapped.put(4100, b'!');
                turns.next();
                assert_eq!([mapped.byte(4096), mapped.byte(4100)], *b"h!");
                drop(mapped);
            },
            BOB,
            |bob, turns| {
                let mapped = both(bob, "/shared");
                let kept = mapped.hidden();
                kept.put(0, b'b');
                drop(mapped);
                turns.next();
                assert_eq!(kept.get(4096), b'a', "what is hers is shown");
                for at in (1..200).chain(4096..4200).chain(8192..8300) {
                    kept.put(at, b'X');
                }
                turns.next();
                assert_eq!(kept.get(4100), b'X', "what is hers is shown");
                kept.put(4096, b'Y');
                turns.pass();
            },
        );
        assert_eq!(world.violations(), "");
    }
}

/// Ann closes the directory while both have a map: his pages are the file's no more, and her map shows those that are; and so
/// where he has ended his session, and kept a map of which nobody knows.
fn a_right_that_is_taken_away_goes_with_the_pages() {
    for has_ended in [false, true] {
        let world = World::new(SIZE);
        closed_meanwhile(&world, has_ended);
        assert_eq!(world.violations(), "");
    }
}

fn closed_meanwhile(world: &World, has_ended: bool) {
    let pool = world.pool();
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/open", 0o777);
            ann.put("/open/shared", &[b'a'; LENGTH], 0o666);
            let mapped = both(ann, "/open/shared");
            turns.next();
            assert_eq!(mapped.byte(1), b'b');
            ann.chmod("/open", 0o700);
            ann.fold();
            let handle = opened(ann, "/open/shared");
            assert_eq!(ann.0.write(handle, b"w", Some(2)), Ok(1));
            turns.next();
            let mut now = [0; 4];
            assert_eq!(ann.0.read(handle, &mut now, Some(0)), Ok(4));
            assert_eq!(now, *b"abwa");
            mapped.put(3, b'm');
            assert_eq!(ann.0.read(handle, &mut now, Some(0)), Ok(4));
            assert_eq!(now, *b"abwm");
            assert_eq!(mapped.byte(2), b'w');
            drop(mapped);
        },
        BOB,
        |bob, turns| {
            let mut kept = None;
            let mut map_and_keep = |session: &Session| {
                let mapped = both(session, "/open/shared");
                mapped.put(1, b'b');
                kept = Some(mapped.hidden());
                if !has_ended {
                    // As long as the session lasts.
                    std::mem::forget(mapped);
                }
            };
            match has_ended {
                true => Session::run(&pool, map_and_keep),
                false => map_and_keep(bob),
            }
            turns.next();
            for at in 0..100 {
                kept.as_ref().expect("kept").put(at, b'X');
            }
            turns.pass();
        },
    );
}

/// Bob has a map to read of what everybody may read; Ann takes that right away, and maps the file to write it again.
fn who_read_it_before_sees_nothing_that_comes_after() {
    for how in ["mode", "directory"] {
        let world = World::new(SIZE);
        world.together(
            ANN,
            |ann, turns| {
                ann.mkdir("/open", 0o777);
                ann.put("/open/shared", &[b'a'; LENGTH], 0o666);
                drop(both(ann, "/open/shared"));
                turns.next();
                match how {
                    "mode" => ann.chmod("/open/shared", 0o600),
                    _ => ann.chmod("/open", 0o700),
                }
                ann.fold();
                let mapped = both(ann, "/open/shared");
                for at in 0..LENGTH {
                    mapped.put(at, b'S');
                }
                turns.next();
                drop(mapped);
            },
            BOB,
            |bob, turns| {
                assert_eq!(bob.get("/open/shared").expect("read"), [b'a'; LENGTH]);
                let session = bob.0.session();
                let pages = session.geometry().page_count();
                // All that he may look at is mapped before, and stays so.
                let shown = || {
                    let mut page = [0; 4096];
                    let seen = (0..pages).filter(|&number| {
                        let bytes = session.page_bytes(arck_core_state::PagePtr(number));
                        let copied = bytes.map(|bytes| bytes.try_copy_to(0, &mut page));
                        matches!(copied, Some(Ok(()))) && page == [b'S'; 4096]
                    });
                    seen.count()
                };
                assert_eq!(shown(), 0);
                turns.next();
                assert_eq!(shown(), 0, "{how}: what is hers is shown");
                turns.pass();
            },
        );
        assert_eq!(world.violations(), "");
    }
}

/// The same as below, where the closing takes more than one step; she makes no call that places her map anew.
fn a_right_that_is_taken_away_goes_with_all_pages_of_a_large_file() {
    const LARGE: usize = 700 * 4096;
    let world = World::new(SIZE);
    world.together(
        ANN,
        |ann, turns| {
            ann.mkdir("/open", 0o777);
            ann.put("/open/shared", &[b'a'; LARGE], 0o666);
            let mapped = both_of(ann, "/open/shared", LARGE).expect("mapped");
            turns.next();
            ann.chmod("/open", 0o700);
            ann.fold();
            turns.next();
            let now = ann.get("/open/shared").expect("read");
            assert!(now.iter().all(|&byte| byte == b'a'), "he has written it");
            drop(mapped);
        },
        BOB,
        |bob, turns| {
            let mapped = both_of(bob, "/open/shared", LARGE).expect("mapped");
            turns.next();
            for at in (0..LARGE).step_by(4096) {
                mapped.put(at, b'X');
            }
            turns.pass();
        },
    );
    assert_eq!(world.violations(), "");
}
