//! Large trees that are closed: in slices, while others work.

use super::Case;
use super::board::Board;
use super::world::{ANN, BOB, EVE, ROOT, Session, World};
use arck_core_state::PagePtr;
use arck_libfs_kit::session::connect_socket;
use arck_protocol::Status;
use arck_protocol::socket::{self, Answer, Call};
use arckfs::Errno;
use std::path::Path;
use std::time::{Duration, Instant};

pub const ALL: &[Case] = &[
    (
        "a_large_tree_is_closed_in_slices",
        a_large_tree_is_closed_in_slices,
    ),
    (
        "a_crash_while_a_tree_is_closed",
        a_crash_while_a_tree_is_closed,
    ),
    (
        "names_that_change_in_a_tree_that_is_closed",
        names_that_change_in_a_tree_that_is_closed,
    ),
];

const DIRECTORIES: u32 = 100;
const FILES: u32 = 100;

pub fn status(pool: &Path) -> Status {
    let socket = connect_socket(pool).expect("a controller");
    match socket::call(&socket, &Call::Status) {
        Ok((Answer::Status(status), _)) => status,
        other => panic!("{other:?}"),
    }
}

fn text(directory: u32, file: u32) -> Vec<u8> {
    format!("text-in-the-tree {directory} {file}").into_bytes()
}

/// A tree of some ten thousand inodes, whose names, attributes and texts somebody else has read.
fn plant(world: &World) {
    world.as_user(ANN, |ann| {
        ann.mkdir("/tree", 0o755);
        for directory in 0..DIRECTORIES {
            ann.mkdir(&format!("/tree/{directory}"), 0o755);
            for file in 0..FILES {
                let path = format!("/tree/{directory}/{file}");
                ann.try_put(&path, &text(directory, file)).expect("made");
            }
        }
    });
    world.as_user(EVE, |eve| {
        for directory in 0..DIRECTORIES {
            let names = eve.names(&format!("/tree/{directory}")).expect("names");
            assert_eq!(names.len(), FILES as usize);
            for file in (0..FILES).step_by(10) {
                let read = eve.get(&format!("/tree/{directory}/{file}"));
                assert_eq!(read, Ok(text(directory, file)));
            }
        }
    });
}

/// In how many pages that this session can map there is a text of the tree.
fn seen(session: &Session) -> usize {
    let session = session.0.session();
    let mut page = [0; 4096];
    let is_seen = |number: &u64| {
        session.page_bytes(PagePtr(*number)).is_some_and(|bytes| {
            bytes.try_copy_to(0, &mut page).is_ok() && page.starts_with(b"text-in-the-tree")
        })
    };
    (0..session.geometry().page_count()).filter(is_seen).count()
}

/// Who closes a tree is answered by then, whatever is left of it.
const ANSWERED_WITHIN: Duration = Duration::from_secs(20);

const ASKED: usize = 0;
const CLOSED: usize = 1;
const LOOKED: usize = 2;

/// Who closes it is answered when it is closed; others are served meanwhile, after a slice.
fn a_large_tree_is_closed_in_slices(_seed: u64) {
    let world = World::new(512 << 20);
    plant(&world);
    let board = Board::new();
    let pool = world.pool();
    let ann = board.start(&world, ANN, |ann| {
        board.wait(LOOKED, 1);
        ann.chmod("/tree", 0o700);
        board.add(ASKED);
        let began = Instant::now();
        ann.fold();
        if began.elapsed() >= ANSWERED_WITHIN {
            // The machine is busy: nothing is promised but that it ends.
            while status(&pool).closings != 0 {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        board.add(CLOSED);
        assert_eq!(ann.get("/tree/7/7"), Ok(text(7, 7)));
        board.wait(LOOKED, 2);
    });
    let eve = board.start(&world, EVE, |eve| {
        assert_ne!(seen(eve), 0);
        board.add(LOOKED);
        board.wait(CLOSED, 1);
        assert_eq!(seen(eve), 0, "pages that were read show what was in them");
        assert_eq!(eve.get("/tree/7/7"), Err(Errno::ACCESS));
        board.add(LOOKED);
    });
    let bob = board.start(&world, BOB, |bob| {
        bob.mkdir("/elsewhere", 0o755);
        board.wait(ASKED, 1);
        let mut served = 0;
        let mut count = 0;
        while board.get(CLOSED) == 0 && !board.has_failed() {
            bob.put(&format!("/elsewhere/{count}"), b"something", 0o644);
            bob.fold();
            count += 1;
            served += u32::from(board.get(CLOSED) == 0);
        }
        println!("  {served} creates and folds of another user meanwhile");
        assert!(served >= 10, "{served} creates meanwhile");
        for made in 0..count {
            let content = bob.get(&format!("/elsewhere/{made}"));
            assert_eq!(content, Ok(b"something".to_vec()));
        }
    });
    let mut under_way = 0;
    while board.get(CLOSED) == 0 && !board.has_failed() {
        under_way += u32::from(status(&pool).closings != 0);
    }
    for (child, name) in [(ann, "ann"), (eve, "eve"), (bob, "bob")] {
        child.ended(name);
    }
    let status = status(&pool);
    println!("  {status:?}, seen under way {under_way} times");
    assert!(under_way > 0, "progress was never seen");
    assert_eq!((status.closings, status.waiting), (0, 0));
    assert!(status.work >= u64::from(DIRECTORIES * FILES), "{status:?}");
    // What is done at once, and what is left of an inode: none here has more than a few pages.
    assert!(status.longest <= 320, "{status:?}");
    assert_eq!(world.violations(), "");
}

/// The controller is killed on the way; who looks then finds all of it closed.
fn a_crash_while_a_tree_is_closed(_seed: u64) {
    let mut world = World::new(512 << 20);
    plant(&world);
    let board = Board::new();
    let pool = world.pool();
    let ann = board.start(&world, ANN, |ann| {
        ann.chmod("/tree", 0o700);
        board.add(ASKED);
        // Ends with the controller.
        let _ = ann
            .0
            .session()
            .ask(&arck_protocol::Request::CommitAll { release: false });
    });
    board.wait(ASKED, 1);
    while status(&pool).work < 2000 {
        std::thread::yield_now();
    }
    world.crash();
    ann.kill();
    world.serve();
    assert_eq!(status(&pool).closings, 0);
    world.as_user(EVE, |eve| {
        assert_eq!(seen(eve), 0);
        assert_eq!(eve.get("/tree/7/7"), Err(Errno::ACCESS));
    });
    world.as_user(ANN, |ann| {
        for directory in 0..DIRECTORIES {
            let read = ann.get(&format!("/tree/{directory}/20"));
            assert_eq!(read, Ok(text(directory, 20)));
        }
    });
    world.stop();
    assert_eq!(world.violations(), "");
}

/// What moves, is made, or is taken away in a tree while it is closed is what it is afterwards, and
/// where it is then decides who reads it.
fn names_that_change_in_a_tree_that_is_closed(_seed: u64) {
    let world = World::new(512 << 20);
    plant(&world);
    world.as_user(ANN, |ann| {
        ann.mkdir("/open", 0o755);
        ann.mkdir("/tree/out", 0o777);
    });
    let board = Board::new();
    let closer = board.start(&world, ANN, |ann| {
        board.wait(LOOKED, 1);
        ann.chmod("/tree", 0o700);
        board.add(ASKED);
        ann.fold();
        board.add(CLOSED);
    });
    let mover = board.start(&world, ANN, |ann| {
        board.add(LOOKED);
        board.wait(ASKED, 1);
        for directory in (0..DIRECTORIES).rev() {
            let within = |file| format!("/tree/{directory}/{file}");
            ann.rename(&within(0), &format!("/open/{directory}"))
                .expect("moved out");
            ann.rename(&within(10), &within(1000)).expect("renamed");
            ann.unlink(&within(20)).expect("removed");
            ann.put(&within(2000), &text(directory, 2000), 0o644);
            ann.link(&within(30), &format!("/open/{directory}-link"))
                .expect("linked");
            if directory % 10 == 0 {
                let to = format!("/open/d{directory}");
                ann.rename(&format!("/tree/{directory}"), &to)
                    .expect("moved out");
            }
        }
        ann.fold();
    });
    closer.ended("the one who closes");
    mover.ended("the one who moves");
    while status(&world.pool()).closings != 0 {
        std::thread::yield_now();
    }
    for user in [EVE, ANN, ROOT] {
        world.as_user(user, |session| {
            let closed = user.0 == EVE.0;
            for directory in 0..DIRECTORIES {
                let moved = directory % 10 == 0;
                let at = |file: u32| match moved {
                    true => format!("/open/d{directory}/{file}"),
                    false => format!("/tree/{directory}/{file}"),
                };
                for (file, was, there) in [
                    (1, 1, true),
                    (1000, 10, true),
                    (2000, 2000, true),
                    (20, 20, false),
                ] {
                    let expected = match (closed && !moved, there) {
                        (true, _) => Err(Errno::ACCESS),
                        (_, false) => Err(Errno::NOENT),
                        _ => Ok(text(directory, was)),
                    };
                    assert_eq!(
                        session.get(&at(file)),
                        expected,
                        "{} as {}",
                        at(file),
                        user.0
                    );
                }
                let open = session.get(&format!("/open/{directory}"));
                assert_eq!(open, Ok(text(directory, 0)));
                let open = session.get(&format!("/open/{directory}-link"));
                assert_eq!(open, Ok(text(directory, 30)));
            }
        });
    }
    assert_eq!(world.violations(), "");
}
