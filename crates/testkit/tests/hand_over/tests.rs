//! The tests. Each has a pool, a session of its own in this process, and another process.

use super::other::{Other, lock};
use arck_core_state::InodeNumber;
use arck_core_state::header::HeaderKind;
use arck_testkit::harness::Case;
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno, FileSystem, Handle};
use std::time::Duration;

pub const ALL: &[Case] = &[
    ("a_stopped_owner", a_stopped_owner),
    ("a_dead_owner", a_dead_owner),
    ("an_owner_inside_an_operation", an_owner_inside_an_operation),
    ("a_silent_owner", a_silent_owner),
    (
        "unlinked_while_open_elsewhere",
        unlinked_while_open_elsewhere,
    ),
    (
        "replaced_while_open_elsewhere",
        replaced_while_open_elsewhere,
    ),
    ("unlinked_by_one_that_dies", unlinked_by_one_that_dies),
    (
        "unlinked_while_one_that_dies_has_it",
        unlinked_while_one_that_dies_has_it,
    ),
    ("cut_while_open_elsewhere", cut_while_open_elsewhere),
    ("locks_hold_between_sessions", locks_hold_between_sessions),
    ("locks_end_with_their_process", locks_end_with_their_process),
    ("readers_see_what_was_written", readers_see_what_was_written),
    ("readers_see_names", readers_see_names),
    ("both_write_in_turns", both_write_in_turns),
];

struct Scene {
    fs: FileSystem,
    other: Other,
    pool: TestPool,
}

/// A pool; in it `d` with a file `old`, and a file `f` of 3 pages of 1, all made by the other.
fn scene() -> Scene {
    let pool = TestPool::new(64 << 20);
    let mut other = Other::start(&pool.path());
    other.does("mkdir d");
    other.does("put d/old before");
    other.does("open f");
    other.does("write f 0 1 12288");
    Scene {
        fs: pool.session(),
        other,
        pool,
    }
}

impl Scene {
    fn open(&self, path: &str) -> Handle {
        self.fs.open_at_root(path, libc::O_RDWR).expect("it opens")
    }

    fn byte(&self, file: Handle, place: u64) -> Option<u8> {
        let mut byte = [0];
        let length = self.fs.read(file, &mut byte, Some(place)).expect("a read");
        (length == 1).then_some(byte[0])
    }

    fn write(&self, file: Handle, place: u64, value: u8, length: usize) {
        let data = vec![value; length];
        assert_eq!(self.fs.write(file, &data, Some(place)), Ok(length));
    }

    fn size(&self, file: Handle) -> (u64, u32) {
        let status = self.fs.stat_handle(file).expect("a stat");
        (status.size, status.links)
    }

    /// Nothing of this was against the rules.
    fn end(self) {
        assert_eq!(self.pool.violations(), "");
    }

    /// This session sees all that the other has done, and takes everything from it.
    fn takes_over(&self) {
        let file = self.open("f");
        assert_eq!(self.byte(file, 4096), Some(2));
        assert_eq!(self.fs.get("d/new").unwrap(), b"made");
        assert_eq!(self.fs.names("d").unwrap(), ["new", "old"]);
        self.write(file, 8192, 3, 4096);
        self.fs.put("d/mine", b"taken").unwrap();
        self.fs.unlink(At::Root, b"d/old", 0).unwrap();
        assert_eq!(self.byte(file, 4096), Some(2));
        assert_eq!(self.byte(file, 8192), Some(3));
        assert_eq!(self.fs.names("d").unwrap(), ["mine", "new"]);
        self.fs.close(file);
    }
}

/// What the other has changed last, not folded.
fn change(other: &mut Other) {
    other.does("write f 4096 2 4096");
    other.does("put d/new made");
}

fn a_stopped_owner() {
    let mut scene = scene();
    change(&mut scene.other);
    scene.other.signal(libc::SIGSTOP);
    scene.takes_over();
    // It goes on with what has become of it.
    scene.other.signal(libc::SIGCONT);
    assert_eq!(scene.other.ask("read f 8192 1"), "1 3 3");
    assert_eq!(scene.other.ask("get d/mine"), "taken");
    assert_eq!(
        scene.other.ask("get d/old"),
        format!("errno {}", libc::ENOENT)
    );
    scene.other.does("write f 0 4 1");
    scene.other.does("put d/again more");
    let file = scene.open("f");
    assert_eq!(scene.byte(file, 0), Some(4));
    assert_eq!(scene.byte(file, 8192), Some(3));
    assert_eq!(scene.fs.names("d").unwrap(), ["again", "mine", "new"]);
    scene.end();
}

fn a_dead_owner() {
    let mut scene = scene();
    change(&mut scene.other);
    scene.other.kill();
    scene.takes_over();
    scene.end();
}

fn an_owner_inside_an_operation() {
    let mut scene = scene();
    change(&mut scene.other);
    // It spins there, and no fold may wait for it more than once.
    scene.other.does("enter");
    scene.takes_over();
    let file = scene.open("f");
    for round in 0..20 {
        scene.write(file, 0, round, 1);
        scene.fs.put("d/mine", &[round]).unwrap();
    }
    scene.other.kill();
    assert_eq!(scene.fs.get("d/mine").unwrap(), [19]);
    assert_eq!(scene.byte(file, 0), Some(19));
    scene.end();
}

fn a_silent_owner() {
    let mut scene = scene();
    change(&mut scene.other);
    // It waits for us, and answers nobody: no fold asks it anything.
    scene.takes_over();
    assert_eq!(scene.other.ask("read f 4096 8192"), "8192 2 3");
    scene.end();
}

/// The number of what a path leads to, and how often the number has been used.
fn identity(scene: &Scene, path: &str) -> (InodeNumber, u32) {
    let status = scene.fs.stat(At::Root, path.as_bytes(), 0).expect("a stat");
    let number = status.inode as InodeNumber;
    let header = scene.fs.session().header(number).expect("a header");
    (number, header.generation())
}

fn is_free(scene: &Scene, (number, generation): (InodeNumber, u32)) -> bool {
    let header = scene.fs.session().header(number).expect("a header");
    header.kind() == HeaderKind::Free || header.generation() != generation
}

/// It is freed once nobody has it open any more.
fn comes_free(scene: &Scene, inode: (InodeNumber, u32)) {
    for _ in 0..12_000 {
        if is_free(scene, inode) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{inode:?} is not freed");
}

fn unlinked_while_open_elsewhere() {
    let mut scene = scene();
    let inode = identity(&scene, "f");
    scene.fs.unlink(At::Root, b"f", 0).unwrap();
    scene.fs.fold(true).unwrap();
    assert_eq!(scene.fs.get("f"), Err(Errno::NOENT.into()));
    assert_eq!(scene.other.ask("size f"), "12288 0");
    assert_eq!(scene.other.ask("read f 0 12288"), "12288 1 1");
    scene.other.does("write f 12288 7 4096");
    assert_eq!(scene.other.ask("read f 0 99999"), "16384 1 7");
    scene.other.does("cut f 1");
    assert_eq!(scene.other.ask("size f"), "1 0");
    // Another one of that name has nothing to do with it.
    scene.fs.put("f", b"x").unwrap();
    assert_eq!(scene.other.ask("read f 0 10"), "1 1 1");
    assert!(!is_free(&scene, inode));
    scene.other.does("close f");
    comes_free(&scene, inode);
    assert_eq!(scene.other.ask("get f"), "x");
    scene.end();
}

fn replaced_while_open_elsewhere() {
    let mut scene = scene();
    scene.fs.put("next", b"new").unwrap();
    scene
        .fs
        .rename(At::Root, b"next", At::Root, b"f", 0)
        .unwrap();
    assert_eq!(scene.other.ask("read f 0 12288"), "12288 1 1");
    // How many names it has is told by the directory, once that is folded.
    scene.fs.fold(true).unwrap();
    assert_eq!(scene.other.ask("size f"), "12288 0");
    assert_eq!(scene.other.ask("get f"), "new");
    scene.other.does("write f 0 9 1");
    assert_eq!(scene.fs.get("f").unwrap(), b"new");
    assert_eq!(scene.other.ask("read f 0 2"), "2 9 1");
    scene.end();
}

fn unlinked_by_one_that_dies() {
    let mut scene = scene();
    scene.other.does("put d/g data");
    let file = scene.open("d/g");
    scene.other.does("unlink d/g");
    scene.other.kill();
    assert_eq!(scene.fs.get("d/g"), Err(Errno::NOENT.into()));
    assert_eq!(scene.byte(file, 0), Some(b'd'));
    scene.write(file, 4, b'!', 1);
    assert_eq!(scene.size(file), (5, 0));
    scene.fs.close(file);
    scene.end();
}

fn unlinked_while_one_that_dies_has_it() {
    let mut scene = scene();
    let inode = identity(&scene, "f");
    scene.fs.unlink(At::Root, b"f", 0).unwrap();
    scene.other.does("write f 0 5 1");
    scene.fs.fold(true).unwrap();
    assert_eq!(scene.other.ask("size f"), "12288 0");
    assert!(!is_free(&scene, inode));
    scene.other.kill();
    comes_free(&scene, inode);
    scene.end();
}

fn cut_while_open_elsewhere() {
    let mut scene = scene();
    let file = scene.open("f");
    scene.fs.truncate_handle(file, 5000).unwrap();
    assert_eq!(scene.other.ask("size f"), "5000 1");
    assert_eq!(scene.other.ask("read f 0 12288"), "5000 1 1");
    assert_eq!(scene.other.ask("read f 5000 10"), "0 0 0");
    // What lay behind the end does not come back.
    scene.other.does("cut f 9000");
    assert_eq!(scene.size(file), (9000, 1));
    assert_eq!(scene.byte(file, 4999), Some(1));
    assert_eq!(scene.byte(file, 5000), Some(0));
    assert_eq!(scene.byte(file, 8999), Some(0));
    assert_eq!(scene.byte(file, 9000), None);
    // By the path, to nothing, and written anew from the old place.
    scene.fs.truncate(At::Root, b"f", 0).unwrap();
    assert_eq!(scene.other.ask("size f"), "0 1");
    scene.other.does("write f 4096 6 10");
    assert_eq!(scene.size(file), (4106, 1));
    assert_eq!(scene.byte(file, 4095), Some(0));
    assert_eq!(scene.byte(file, 4096), Some(6));
    scene.end();
}

const OWNERS: [&str; 3] = ["flock", "posix", "description"];

fn locks_hold_between_sessions() {
    let mut scene = scene();
    let file = scene.open("f");
    let locks = scene.fs.lock_file(file).expect("a lock file");
    let again = Err(Errno::AGAIN);
    let refused = format!("errno {}", libc::EAGAIN);
    for owner in OWNERS {
        scene.other.does(&format!("lock f {owner} exclusive"));
        assert_eq!(lock(&locks, owner, "shared"), again, "{owner}");
        assert_eq!(lock(&locks, owner, "exclusive"), again, "{owner}");
        // Shared ones go together.
        scene.other.does(&format!("lock f {owner} shared"));
        assert_eq!(lock(&locks, owner, "shared"), Ok(()), "{owner}");
        assert_eq!(lock(&locks, owner, "exclusive"), again, "{owner}");
        // Who wants a greater one by flock gives up what he has first.
        assert_eq!(lock(&locks, owner, "shared"), Ok(()), "{owner}");
        assert_eq!(
            scene.other.ask(&format!("lock f {owner} exclusive")),
            refused
        );
        scene.other.does(&format!("lock f {owner} none"));
        assert_eq!(lock(&locks, owner, "exclusive"), Ok(()), "{owner}");
        assert_eq!(scene.other.ask(&format!("lock f {owner} shared")), refused);
        assert_eq!(lock(&locks, owner, "none"), Ok(()), "{owner}");
        scene.other.does(&format!("lock f {owner} exclusive"));
        scene.other.does(&format!("lock f {owner} none"));
    }
    // Locks of ranges see each other, whoever they belong to; those of flock do not see them.
    scene.other.does("lock f posix exclusive");
    assert_eq!(lock(&locks, "description", "shared"), again);
    assert_eq!(lock(&locks, "flock", "exclusive"), Ok(()));
    assert_eq!(scene.other.ask("lock f flock shared"), refused);
    // They say nothing about writing.
    scene.write(file, 0, 8, 1);
    assert_eq!(scene.other.ask("read f 0 1"), "1 8 8");
    scene.end();
}

fn locks_end_with_their_process() {
    for owner in OWNERS {
        let mut scene = scene();
        let file = scene.open("f");
        let locks = scene.fs.lock_file(file).expect("a lock file");
        scene.other.does(&format!("lock f {owner} exclusive"));
        // Stopped is not dead.
        scene.other.signal(libc::SIGSTOP);
        let refused = lock(&locks, owner, "exclusive");
        assert_eq!(refused, Err(Errno::AGAIN), "{owner}");
        scene.other.kill();
        let mut locked = Err(Errno::AGAIN);
        for _ in 0..12_000 {
            // It has not been waited for.
            locked = lock(&locks, owner, "exclusive");
            if locked.is_ok() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(locked, Ok(()), "{owner}");
        scene.end();
    }
}

fn readers_see_what_was_written() {
    let mut scene = scene();
    let file = scene.open("f");
    for round in 1..=100u8 {
        scene.other.does(&format!("write f 0 {round} 1"));
        assert_eq!(scene.byte(file, 0), Some(round));
        // And the other way round, of what it owns no more.
        if round % 10 == 0 {
            scene.write(file, 4096, round, 1);
        }
        let seen = round / 10 * 10;
        let seen = if seen == 0 { 1 } else { seen };
        assert_eq!(scene.other.ask("read f 4096 1"), format!("1 {seen} {seen}"));
        // It grows.
        let end = 12288 + u64::from(round);
        scene.other.does(&format!("write f {} {round} 1", end - 1));
        assert_eq!(scene.size(file), (end, 1));
        assert_eq!(scene.byte(file, end - 1), Some(round));
    }
    scene.end();
}

fn readers_see_names() {
    let mut scene = scene();
    for round in 0..50 {
        scene.other.does(&format!("put d/n{round} {round}"));
        let content = scene.fs.get(&format!("d/n{round}")).unwrap();
        assert_eq!(content, round.to_string().into_bytes());
        scene.other.does(&format!("rename d/n{round} d/m{round}"));
        assert_eq!(
            scene.fs.get(&format!("d/n{round}")),
            Err(Errno::NOENT.into())
        );
        assert!(scene.fs.get(&format!("d/m{round}")).is_ok());
        if round % 3 == 0 {
            scene.other.does(&format!("unlink d/m{round}"));
            assert_eq!(
                scene.fs.get(&format!("d/m{round}")),
                Err(Errno::NOENT.into())
            );
        }
    }
    // What this session makes where the other has made something under the same name.
    scene.other.does("put d/same theirs");
    let exclusive = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let refused = scene.fs.open_at_root("d/same", exclusive);
    assert_eq!(refused, Err(Errno::EXIST.into()));
    let file = scene
        .fs
        .open_at_root("d/same", libc::O_CREAT | libc::O_RDWR);
    let file = file.expect("it is there");
    assert_eq!(scene.byte(file, 0), Some(b't'));
    scene.end();
}

fn both_write_in_turns() {
    let mut scene = scene();
    let file = scene.open("f");
    scene.fs.make_directory(At::Root, b"e", 0o755).unwrap();
    for round in 0..100u8 {
        scene
            .other
            .does(&format!("write f {} {round} 100", u64::from(round) * 100));
        scene.write(file, u64::from(round) * 100 + 50, round ^ 0x80, 50);
        scene.other.does(&format!("put e/theirs{round} x"));
        scene.fs.put(&format!("e/ours{round}"), b"x").unwrap();
    }
    for round in 0..100u8 {
        let place = u64::from(round) * 100;
        assert_eq!(scene.byte(file, place + 49), Some(round));
        assert_eq!(scene.byte(file, place + 50), Some(round ^ 0x80));
        let answer = scene.other.ask(&format!("read f {place} 100"));
        assert_eq!(answer, format!("100 {round} {}", round ^ 0x80));
    }
    assert_eq!(scene.fs.names("e").unwrap().len(), 200);
    scene.end();
}
