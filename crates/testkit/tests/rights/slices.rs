//! What is large and is closed: part by part, while others work.
//!
//! A user may put as much as he likes into one file, and as many names as he likes into one directory.
//! Closing that was one step of the controller's, for which everybody waited.

use super::Case;
use super::board::Board;
use super::trees::status;
use super::world::{ANN, EVE, Session, World, plain};
use arck_core_state::PagePtr;
use arck_testkit::Shorthand;
use arckfs::Errno;
use std::time::{Duration, Instant};

pub const ALL: &[Case] = &[
    (
        "a_large_file_is_closed_while_others_work",
        a_large_file_is_closed_while_others_work,
    ),
    (
        "a_directory_of_many_names_is_closed_while_others_work",
        a_directory_of_many_names_is_closed_while_others_work,
    ),
];

const ASKED: usize = 0;
const CLOSED: usize = 1;
const LOOKED: usize = 2;

const PAGE: usize = 4096;
const PIECE: usize = 256;
const MARK: &[u8] = b"text-in-what-is-large";

/// Pages of a file from one on; each says which it is.
fn pages(first: usize) -> Vec<u8> {
    let mut bytes = vec![7; PIECE * PAGE];
    for (page, bytes) in (first..).zip(bytes.chunks_exact_mut(PAGE)) {
        bytes[..MARK.len()].copy_from_slice(MARK);
        bytes[PAGE - 8..].copy_from_slice(&page.to_le_bytes());
    }
    bytes
}

fn write(who: &Session, path: &str, count: usize) {
    who.put(path, b"", 0o644);
    let handle = plain(who.0.open_at_root(path, libc::O_WRONLY)).expect("open");
    for first in (0..count).step_by(PIECE) {
        let at = (first * PAGE) as u64;
        let written = who.0.write(handle, &pages(first), Some(at));
        assert_eq!(written, Ok(PIECE * PAGE));
    }
    who.0.close(handle);
}

fn read(who: &Session, path: &str, count: usize) {
    let handle = plain(who.0.open_at_root(path, libc::O_RDONLY)).expect("open");
    let mut bytes = vec![0; PIECE * PAGE];
    for first in (0..count).step_by(PIECE) {
        let at = (first * PAGE) as u64;
        let read = who.0.read(handle, &mut bytes, Some(at));
        assert_eq!(read, Ok(PIECE * PAGE));
        assert!(bytes == pages(first), "pages from {first} on are others");
    }
    who.0.close(handle);
}

/// In how many pages that a session can map there is something of this.
fn seen(session: &Session, is_it: impl Fn(&[u8]) -> bool) -> usize {
    let session = session.0.session();
    let geometry = session.geometry();
    let mut page = [0; PAGE];
    let mut count = 0;
    for segment in 0..geometry.segment_count {
        let first = geometry.first_page(segment).0;
        for number in first..first + geometry.pages_per_segment() {
            // Segments are sent whole, or not: of one that is not the controller is asked once.
            let Some(bytes) = session.page_bytes(PagePtr(number)) else {
                break;
            };
            count += usize::from(bytes.try_copy_to(0, &mut page).is_ok() && is_it(&page));
        }
    }
    count
}

/// Something is made by a user and looked at by another; then the first closes it. No step of the controller's does more
/// than a step may. Gives how many calls were answered meanwhile; how long they took is the machine's business, too, and is
/// only told.
fn close(
    size: u64,
    make: impl Fn(&Session),
    look: impl Fn(&Session),
    close: impl Fn(&Session),
    is_closed: impl Fn(&Session),
    is_whole: impl Fn(&Session),
) -> u32 {
    let world = World::new(size);
    world.as_user(ANN, make);
    let board = Board::new();
    let eve = board.start(&world, EVE, |eve| {
        look(eve);
        board.add(LOOKED);
        board.wait(CLOSED, 1);
        is_closed(eve);
    });
    let pool = world.pool();
    let ann = board.start(&world, ANN, |ann| {
        board.wait(LOOKED, 1);
        close(ann);
        board.add(ASKED);
        let began = Instant::now();
        ann.fold();
        println!("  closed after {:?}", began.elapsed());
        // Nothing is promised after a time but that it ends.
        while status(&pool).closings != 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        board.add(CLOSED);
        is_whole(ann);
    });
    board.wait(ASKED, 1);
    let (mut longest, mut under_way) = (Duration::ZERO, 0);
    while board.get(CLOSED) == 0 && !board.has_failed() {
        let asked = Instant::now();
        under_way += u32::from(status(&pool).closings != 0);
        longest = longest.max(asked.elapsed());
    }
    ann.ended("ann");
    eve.ended("eve");
    let status = status(&pool);
    println!("  {under_way} calls meanwhile, of at most {longest:?}; {status:?}");
    assert!(status.longest <= UNITS, "{status:?}");
    assert_eq!(world.violations(), "");
    under_way
}

/// Pages that are moved in one step, with what is left of a bucket, and a slice of inodes.
const UNITS: u64 = 512;

/// A call of another user waited for two seconds while 600 MiB were closed.
fn a_large_file_is_closed_while_others_work(_seed: u64) {
    let is_it = |page: &[u8]| page.starts_with(MARK);
    let closed = |count: usize, deep: bool| {
        println!("{} MiB", (count * PAGE) >> 20);
        close(
            (count * PAGE * 2 + (512 << 20)) as u64,
            |ann| {
                ann.mkdir("/home", 0o755);
                write(ann, "/home/large", count);
            },
            |eve| {
                read(eve, "/home/large", count);
                assert_ne!(seen(eve, is_it), 0);
            },
            |ann| match deep {
                true => ann.chmod("/home", 0o700),
                false => ann.chmod("/home/large", 0o600),
            },
            |eve| {
                assert_eq!(eve.get("/home/large"), Err(Errno::ACCESS));
                assert_eq!(seen(eve, is_it), 0, "pages that were read show it still");
            },
            |ann| read(ann, "/home/large", count),
        )
    };
    for deep in [false, true] {
        closed(PIECE * 16, deep);
        assert!(closed(PIECE * 600, deep) > 0, "nobody was served meanwhile");
    }
}

fn a_directory_of_many_names_is_closed_while_others_work(_seed: u64) {
    let name = |at: usize| format!("name-in-what-is-large-{at}");
    let is_it = |page: &[u8]| {
        page.windows(21)
            .any(|part| part == b"name-in-what-is-large")
    };
    let closed = |count: usize| {
        println!("{count} names");
        close(
            4 << 30,
            |ann| {
                ann.mkdir("/large", 0o755);
                for at in 0..count {
                    ann.try_put(&format!("/large/{}", name(at)), b"")
                        .expect("made");
                }
            },
            |eve| {
                assert_eq!(eve.names("/large").map(|names| names.len()), Ok(count));
                assert_ne!(seen(eve, is_it), 0);
            },
            // What is in it stays open: who knows a name may have it.
            |ann| ann.chmod("/large", 0o711),
            |eve| {
                assert_eq!(eve.names("/large"), Err(Errno::ACCESS));
                assert_eq!(seen(eve, is_it), 0, "pages that were read show names");
                let known = eve.stat(&format!("/large/{}", name(count / 2)));
                assert!(known.is_ok(), "{known:?}");
            },
            |ann| {
                let mut names = ann.names("/large").expect("its own");
                names.sort();
                let mut all: Vec<String> = (0..count).map(name).collect();
                all.sort();
                assert!(names == all, "{} names", names.len());
            },
        )
    };
    closed(10_000);
    assert!(closed(300_000) > 0, "nobody was served meanwhile");
}
