//! What is told of a call by a path, while the directory on the way moves to where nobody else can follow.

use super::Case;
use super::board::Board;
use super::world::{ANN, BOB, EVE, Session, World, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, SetTime, Subject, Timestamp};
use std::time::Duration;

pub const ALL: &[Case] = &[("what_has_failed_is_not_done", what_has_failed_is_not_done)];

const THREADS: usize = 2;
const CALLS: usize = 1000;
const ATTRIBUTE: &[u8] = b"user.own";

const FINISHED: usize = 0;

/// Size, mode, time of the last access, and an extended attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct File {
    size: u64,
    mode: u32,
    accessed: i64,
    attribute: Option<u64>,
}

/// Waits until the path leads to the file again.
fn seen(session: &Session, path: &str) -> File {
    loop {
        match look(session, path) {
            Ok(file) => return file,
            Err(Errno::NOENT) => std::thread::yield_now(),
            Err(errno) => panic!("looking at {path}: {errno}"),
        }
    }
}

fn look(session: &Session, path: &str) -> Result<File, Errno> {
    let mut value = [0; 8];
    let subject = Subject::Path(At::Root, path.as_bytes(), 0);
    let attribute = match plain(session.0.get_extended(subject, ATTRIBUTE, &mut value)) {
        Ok(_) => Some(u64::from_le_bytes(value)),
        Err(Errno::NODATA) => None,
        Err(errno) => return Err(errno),
    };
    let stat = session.stat(path)?;
    Ok(File {
        size: stat.size,
        mode: stat.mode & 0o7777,
        accessed: stat.accessed.seconds,
        attribute,
    })
}

/// Cuts and lengthens a file, and changes its attributes, by its path: what was told is what is so.
fn change(session: &Session, path: &str, random: &mut Random) {
    let mut known = seen(session, path);
    for call in 0..CALLS {
        let (fs, bytes) = (&session.0, path.as_bytes());
        let subject = Subject::Path(At::Root, bytes, 0);
        let mut new = known;
        let told = match random.below(10) {
            0..=3 => {
                new.size = random.below(9000);
                plain(fs.truncate(At::Root, bytes, new.size))
            }
            4..=5 => {
                new.mode = *random.pick(&[0o600, 0o640, 0o644, 0o666]);
                session.try_chmod(path, new.mode)
            }
            6..=7 => {
                new.size = 0;
                let opened = plain(fs.open_at_root(path, libc::O_WRONLY | libc::O_TRUNC));
                opened.map(|handle| fs.close(handle)).map(drop)
            }
            8 => {
                new.accessed = random.below(1 << 30) as i64;
                let time = SetTime::At(Timestamp {
                    seconds: new.accessed,
                    nanoseconds: 0,
                });
                plain(fs.set_times(At::Root, bytes, time, SetTime::Omit, 0))
            }
            _ => {
                let value = random.below(1 << 40);
                new.attribute = Some(value);
                plain(fs.set_extended(subject, ATTRIBUTE, &value.to_le_bytes(), 0))
            }
        };
        match told {
            Ok(()) => known = new,
            Err(Errno::NOENT) => {}
            Err(errno) => panic!("call {call} to {path}, {known:?} to be {new:?}: {errno}"),
        }
        let now = seen(session, path);
        assert_eq!(
            now, known,
            "{path} after call {call}, to be {new:?}: {told:?}"
        );
    }
}

fn what_has_failed_is_not_done(seed: u64) {
    let mut world = World::new(64 << 20);
    world.as_user(ANN, |ann| {
        ann.mkdir("/common", 0o777);
        ann.mkdir("/closed", 0o700);
        ann.mkdir("/common/d", 0o777);
    });
    let board = Board::new();
    let users = [BOB, EVE];
    let all = (users.len() * THREADS) as u64;
    let mut children = Vec::new();
    for (at, user) in users.into_iter().enumerate() {
        children.push(board.start(&world, user, move |session| {
            let run = |thread: usize| {
                let path = format!("/common/d/{at}-{thread}");
                // It may be away already.
                while session.try_put(&path, &[7; 5000]).is_err() {
                    std::thread::yield_now();
                }
                let seed = seed.wrapping_mul(100) + (at * THREADS + thread) as u64;
                change(session, &path, &mut Random::new(seed));
                board.add(FINISHED);
            };
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || board.guard(|| run(thread)));
                }
            });
        }));
    }
    children.push(board.start(&world, ANN, move |ann| {
        let mut random = Random::new(seed);
        let mut pause = || std::thread::sleep(Duration::from_micros(random.below(1500)));
        while board.get(FINISHED) < all && !board.has_failed() {
            ann.rename("/common/d", "/closed/d").expect("moved away");
            pause();
            ann.rename("/closed/d", "/common/d").expect("moved back");
            pause();
        }
    }));
    for child in children {
        child.ended("a session");
    }
    assert_eq!(world.violations(), "", "seed {seed}");
    world.stop();
}
