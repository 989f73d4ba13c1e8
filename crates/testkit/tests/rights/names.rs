//! Directories and files that one session removes, replaces or links while another has unfolded
//! work in them.

use super::Case;
use super::board::Board;
use super::world::{ANN, BOB, EVE, ROOT, Session, Turns, User, World, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno};
use std::time::Duration;

const SIZE: u64 = 128 << 20;

pub const ALL: &[Case] = &[
    (
        "directory_with_unfolded_creates",
        directory_with_unfolded_creates,
    ),
    (
        "directory_with_unfolded_removes",
        directory_with_unfolded_removes,
    ),
    (
        "directory_removed_at_the_same_time",
        directory_removed_at_the_same_time,
    ),
    ("links_to_what_is_removed", links_to_what_is_removed),
    ("renames_over_what_is_written", renames_over_what_is_written),
];

/// Who works, and who takes away: the same user twice, others, and root.
const PAIRS: [(User, User); 5] = [(ANN, ANN), (ANN, BOB), (EVE, ANN), (BOB, ROOT), (ROOT, EVE)];

fn rmdir(session: &Session, path: &str) -> Result<(), Errno> {
    plain(
        session
            .0
            .unlink(At::Root, path.as_bytes(), libc::AT_REMOVEDIR),
    )
}

/// A world whose `/open` everybody may write.
fn world() -> World {
    let world = World::new(SIZE);
    world.as_user(ANN, |ann| ann.mkdir("/open", 0o777));
    world
}

/// Makes a directory, cannot remove it while the other has something in it, and removes it then.
fn make_and_remove(session: &Session, turns: &mut Turns) {
    for round in 0..20 {
        session.mkdir("/open/directory", 0o777);
        turns.next();
        assert_eq!(
            rmdir(session, "/open/directory"),
            Err(Errno::NOTEMPTY),
            "round {round}"
        );
        turns.next();
        assert_eq!(rmdir(session, "/open/directory"), Ok(()), "round {round}");
        turns.next();
    }
}

fn directory_with_unfolded_creates(seed: u64) {
    let world = world();
    for (worker, remover) in PAIRS {
        world.together(
            worker,
            |session, turns| {
                let mut random = Random::new(seed);
                for round in 0..20 {
                    // Made by whom it is removed from.
                    turns.next();
                    let length = random.below(6000) as usize;
                    let content = random.bytes(length);
                    let path = "/open/directory/file";
                    match round % 3 {
                        0 => session.put(path, &content, 0o644),
                        1 => {
                            session.put("/open/outside", &content, 0o644);
                            session.rename("/open/outside", path).expect("renamed");
                        }
                        _ => {
                            session.put("/open/outside", &content, 0o644);
                            session.link("/open/outside", path).expect("linked");
                            session.unlink("/open/outside").expect("unlinked");
                        }
                    }
                    turns.next();
                    assert_eq!(session.get(path), Ok(content), "round {round}");
                    session.unlink(path).expect("mine");
                    turns.next();
                }
                turns.pass();
            },
            remover,
            make_and_remove,
        );
    }
    assert_eq!(world.violations(), "");
}

/// What is still there verified, and removed by the other session in its delta alone.
fn directory_with_unfolded_removes(seed: u64) {
    let world = world();
    for (worker, remover) in PAIRS {
        world.together(
            worker,
            |session, turns| {
                let mut random = Random::new(seed);
                for round in 0..20 {
                    let names: Vec<String> = (0..1 + random.below(20))
                        .map(|name| format!("/open/directory/{name}"))
                        .collect();
                    turns.next();
                    for name in &names {
                        session.put(name, name.as_bytes(), 0o666);
                    }
                    session.fold();
                    turns.next();
                    for name in &names {
                        match round % 2 {
                            0 => session.unlink(name).expect("mine"),
                            _ => session.rename(name, "/open/outside").expect("mine"),
                        }
                    }
                    turns.next();
                    let made = session.try_put("/open/directory/late", b"late");
                    assert_eq!(made, Err(Errno::NOENT), "round {round}");
                }
                turns.pass();
            },
            remover,
            make_and_remove,
        );
    }
    assert_eq!(world.violations(), "");
}

const FINISHED: usize = 0;
/// What each has done: nobody is alone.
const FIRST: usize = 1;
const SECOND: usize = 2;

/// How far the other has come.
struct Pace<'b> {
    board: &'b Board,
    other: usize,
}

impl Pace<'_> {
    /// Waits until the other has done fewer things more than this, or has ended; or a moment.
    fn wait(&self, random: &mut Random, below: u64) {
        let more = random.below(below);
        if random.percent(30) {
            std::thread::sleep(Duration::from_micros(random.below(300)));
            return;
        }
        let now = self.board.get(self.other);
        while self.board.get(self.other) < now + more
            && self.board.get(FINISHED) == 0
            && !self.board.has_failed()
        {
            std::thread::yield_now();
        }
    }
}

/// Two sessions and nobody's turn; the second until the first has ended. What each does is counted.
fn against(
    world: &World,
    users: (User, User),
    seed: u64,
    first: impl FnOnce(&Session, Random, &mut dyn FnMut()),
    second: impl Fn(&Session, &mut Random, &Pace<'_>),
) {
    let board = Board::new();
    let one = board.start(world, users.0, |session| {
        let mut done = || board.add(FIRST);
        first(session, Random::new(seed), &mut done);
        board.add(FINISHED);
    });
    let two = board.start(world, users.1, |session| {
        let mut random = Random::new(seed + 1);
        let pace = Pace {
            board: &board,
            other: FIRST,
        };
        while board.get(FINISHED) == 0 && !board.has_failed() {
            second(session, &mut random, &pace);
            board.add(SECOND);
        }
    });
    one.ended("the first");
    two.ended("the second");
}

/// Who has made a name in a directory finds it, and the directory, until it is taken away.
fn directory_removed_at_the_same_time(seed: u64) {
    let world = world();
    for pair in PAIRS {
        against(
            &world,
            pair,
            seed,
            |session, mut random, done| {
                let (mut made, mut gone) = (0, 0);
                for round in 0u64.. {
                    if made >= 100 && gone >= 100 {
                        break;
                    }
                    done();
                    let path = format!("/open/directory/file{}", random.below(3));
                    let content = round.to_le_bytes();
                    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
                    match plain(session.0.open(At::Root, path.as_bytes(), flags, 0o644)) {
                        Ok(handle) => {
                            let written = session.0.write(handle, &content, None);
                            session.0.close(handle);
                            assert_eq!(written, Ok(8), "round {round}");
                            assert_eq!(session.get(&path), Ok(content.to_vec()), "round {round}");
                            assert_eq!(session.unlink(&path), Ok(()), "round {round}");
                            made += 1;
                        }
                        Err(Errno::NOENT) => gone += 1,
                        Err(errno) => panic!("round {round}: creating: {errno}"),
                    }
                }
                println!("  {made} times made, {gone} times without a directory");
            },
            |session, random, pace| {
                match plain(
                    session
                        .0
                        .make_directory(At::Root, b"/open/directory", 0o777),
                ) {
                    Ok(()) => match session.try_chmod("/open/directory", 0o777) {
                        Ok(()) => {}
                        Err(errno) => panic!("chmod: {errno}"),
                    },
                    Err(Errno::EXIST) => {}
                    Err(errno) => panic!("mkdir: {errno}"),
                }
                pace.wait(random, 4);
                match rmdir(session, "/open/directory") {
                    Ok(()) | Err(Errno::NOTEMPTY) => {}
                    Err(errno) => panic!("rmdir: {errno}"),
                }
                pace.wait(random, 3);
            },
        );
    }
    assert_eq!(world.violations(), "");
}

/// A link is there whole, or ENOENT: whichever came first.
fn links_to_what_is_removed(seed: u64) {
    let world = world();
    for pair in PAIRS {
        against(
            &world,
            pair,
            seed,
            |session, mut random, done| {
                for round in 0..400u64 {
                    done();
                    let path = format!("/open/file{}", random.below(2));
                    session.put(&path, &round.to_le_bytes(), 0o666);
                    std::thread::sleep(Duration::from_micros(random.below(200)));
                    let stat = session.stat(&path).expect("mine");
                    assert!((1..=2).contains(&stat.links), "{} links", stat.links);
                    assert_eq!(session.get(&path), Ok(round.to_le_bytes().to_vec()));
                    assert_eq!(session.unlink(&path), Ok(()), "round {round}");
                    assert_eq!(session.stat(&path).err(), Some(Errno::NOENT));
                }
            },
            |session, random, pace| {
                pace.wait(random, 2);
                let path = format!("/open/file{}", random.below(2));
                match session.link(&path, "/open/link") {
                    Ok(()) => {
                        let stat = session.stat("/open/link").expect("a link");
                        assert!((1..=2).contains(&stat.links), "{} links", stat.links);
                        // Made, but perhaps not filled yet.
                        let content = session.get("/open/link").expect("its content");
                        assert!(matches!(content.len(), 0 | 8), "{content:?}");
                        session.unlink("/open/link").expect("mine");
                    }
                    Err(Errno::NOENT) => {}
                    // Whose mode is not yet what it is to be.
                    Err(Errno::PERM | Errno::ACCESS) => {}
                    Err(errno) => panic!("link: {errno}"),
                }
            },
        );
    }
    assert_eq!(world.violations(), "");
}

/// A name leads to the old file or to the new one, whole; who has the old one open goes on in it.
fn renames_over_what_is_written(seed: u64) {
    let world = world();
    for pair in PAIRS {
        world.as_user(ROOT, |root| root.put("/open/target", &[0; 8192], 0o666));
        against(
            &world,
            pair,
            seed,
            |session, mut random, done| {
                for round in 0..200 {
                    done();
                    let open = session.0.open_at_root("/open/target", libc::O_RDWR);
                    let handle = plain(open).unwrap_or_else(|e| panic!("round {round}: {e}"));
                    for _ in 0..4 {
                        let byte = 1 + random.below(100) as u8;
                        let written = session.0.write(handle, &[byte; 8192], Some(0));
                        assert_eq!(written, Ok(8192), "round {round}");
                        let mut content = [0; 8192];
                        let read = session.0.read(handle, &mut content, Some(0));
                        assert_eq!(read, Ok(8192), "round {round}");
                        assert!(content == [byte; 8192], "round {round}");
                    }
                    session.0.close(handle);
                }
            },
            |session, random, pace| {
                pace.wait(random, 2);
                let byte = 101 + random.below(100) as u8;
                session.put("/open/new", &[byte; 8192], 0o666);
                let renamed = session.rename("/open/new", "/open/target");
                assert_eq!(renamed, Ok(()));
                let content = session.get("/open/target").expect("a file");
                assert_eq!(content.len(), 8192);
                // Of two writes at once a reader may see parts: of the two pages, each is whole.
                for page in content.chunks(4096) {
                    assert!(page.iter().all(|&byte| byte == page[0]), "a torn page");
                }
            },
        );
        world.as_user(ROOT, |root| root.unlink("/open/target").expect("there"));
    }
    assert_eq!(world.violations(), "");
}
