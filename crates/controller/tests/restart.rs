//! Controllers that are started while sessions of another one are there.

mod common;

use arck_controller::{Options, RunningController};
use arck_core_state::{FileKind, Inode};
use arck_protocol::control::CONTROL_SIZE;
use arck_protocol::socket::{Answer, Call, Caller, Welcome, call, call_with};
use arck_protocol::{PROTOCOL_VERSION, Request, Response, ring};
use common::check::{Tree, check};
use common::{Client, ROOT, TestPool, dial};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

fn options() -> Options {
    Options {
        patience: Duration::from_millis(20),
        take_up: Duration::from_millis(50),
        ..Options::default()
    }
}

/// A pool whose controller dies now and then.
struct Scene {
    pool: TestPool,
    controller: Option<RunningController>,
}

impl Scene {
    fn new(options: Options) -> Scene {
        let pool = TestPool::new(32 << 20);
        let controller = Some(pool.serve_with(options));
        Scene { pool, controller }
    }

    fn client(&self) -> Client {
        Client::connect(&self.pool.path())
    }

    /// Kills the controller, if it has not died, and starts another.
    fn restart(&mut self) {
        self.controller.take().unwrap().kill();
        self.controller = Some(self.pool.serve_with(options()));
    }

    fn resume(&self, client: &mut Client) {
        client.resume(&self.pool.path());
    }

    /// Ends it; what is there, when it has been checked.
    fn end(mut self) -> Tree {
        self.controller.take().unwrap().stop().unwrap();
        check(&self.pool.path())
    }
}

fn errno_of(answered: Result<(Answer, Vec<OwnedFd>), Errno>) -> Errno {
    match answered {
        Ok((Answer::Error(errno, _), _)) => Errno::from_raw_os_error(errno),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nobody_goes_on_with_the_session_of_another() {
    let mut scene = Scene::new(options());
    let path = scene.pool.path();
    let mut client = scene.client();
    client.acquire(&[ROOT]);
    client.create(ROOT, b"file", FileKind::File);
    let secret = client.welcome.secret;
    // While it is connected.
    assert_eq!(
        errno_of(client.resume_as(&dial(&path), secret)),
        Errno::BUSY
    );
    scene.restart();
    let wrong = [secret[0], secret[1] ^ 1];
    assert_eq!(
        errno_of(client.resume_as(&dial(&path), wrong)),
        Errno::ACCESS
    );
    let resume = |session| Call::Resume {
        version: PROTOCOL_VERSION,
        session,
        secret,
        member: 1,
        caller: Caller::default(),
    };
    let control = [client.control_file.as_fd()];
    let of_none = resume(client.welcome.session + 7);
    let stale = errno_of(call_with(&dial(&path), &of_none, &control));
    assert_eq!(stale, Errno::STALE);
    // Without control memory, or with something else in its place.
    let right = resume(client.welcome.session);
    assert_eq!(errno_of(call(&dial(&path), &right)), Errno::INVAL);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let unsealed = rustix::fs::memfd_create("unsealed", flags).unwrap();
    rustix::fs::ftruncate(&unsealed, CONTROL_SIZE as u64).unwrap();
    let short = rustix::fs::memfd_create("short", flags).unwrap();
    rustix::fs::ftruncate(&short, 4096).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&short, seals).unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let arena = client.arena_file.as_fd();
    for file in [unsealed.as_fd(), short.as_fd(), null.as_fd(), arena] {
        let refused = errno_of(call_with(&dial(&path), &right, &[file]));
        assert_eq!(refused, Errno::INVAL);
    }
    // After all that: its own.
    scene.resume(&mut client);
    client.commit(&[ROOT], false);
    client.goodbye();
    assert_eq!(scene.end().paths.len(), 1);
}

/// The first member of a trust group, raw: what it was sent.
fn greets(path: &Path, caller: &Caller) -> (OwnedFd, Result<(Welcome, Vec<OwnedFd>), Errno>) {
    let socket = dial(path);
    let hello = Call::Hello {
        version: PROTOCOL_VERSION,
        caller: caller.clone(),
    };
    let answered = match call(&socket, &hello).unwrap() {
        (Answer::Welcome(welcome), descriptors) => Ok((welcome, descriptors)),
        (Answer::Error(errno, _), _) => Err(Errno::from_raw_os_error(errno)),
        other => panic!("{other:?}"),
    };
    (socket, answered)
}

/// The controller opens a group's region anew for everybody who joins: who comes back could hand in
/// a file of the pool that it was sent to be read, and have it opened for writing.
#[test]
fn a_region_that_is_handed_in_is_nothing_of_the_pool() {
    let mut scene = Scene::new(options());
    let path = scene.pool.path();
    let caller = Caller {
        process: 1,
        group: b"thieves".to_vec(),
        region: 1 << 20,
    };
    let (socket, greeted) = greets(&path, &caller);
    let (welcome, descriptors) = greeted.unwrap();
    assert!(welcome.makes_region);
    assert_eq!(call(&socket, &Call::RegionMade).unwrap().0, Answer::Done);
    let [headers, bitmap, control, _, region, arena]: [OwnedFd; 6] =
        descriptors.try_into().unwrap();
    scene.restart();
    let resume = Call::Resume {
        version: PROTOCOL_VERSION,
        session: welcome.session,
        secret: welcome.secret,
        member: welcome.member,
        caller: caller.clone(),
    };
    let again = |flags| {
        let place = format!("/proc/self/fd/{}", region.as_raw_fd());
        rustix::fs::open(place, flags, Mode::empty()).unwrap()
    };
    let (to_read, place_only) = (again(OFlags::RDONLY), again(OFlags::PATH));
    let null = std::fs::File::open("/dev/null").unwrap();
    // Its size could be changed under those who join.
    let unsealed = rustix::fs::memfd_create("unsealed", MemfdFlags::CLOEXEC).unwrap();
    for file in [
        headers.as_fd(),
        bitmap.as_fd(),
        arena.as_fd(),
        to_read.as_fd(),
        place_only.as_fd(),
        null.as_fd(),
        unsealed.as_fd(),
    ] {
        let handed_in = [control.as_fd(), file];
        let refused = errno_of(call_with(&dial(&path), &resume, &handed_in));
        assert_eq!(refused, Errno::INVAL);
    }
    // One of its own, with a lease: whoever joins is told so, and does not keep the controller waiting.
    let sealed = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let leased = rustix::fs::memfd_create("leased", sealed).unwrap();
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    rustix::fs::fcntl_add_seals(&leased, seals).unwrap();
    // SAFETY: fcntl with integer arguments on a descriptor that lives.
    let lease = unsafe { libc::fcntl(leased.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK) };
    assert_eq!(lease, 0);
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGIO, libc::SIG_IGN) };
    let back = dial(&path);
    let handed_in = [control.as_fd(), leased.as_fd()];
    let (answer, _) = call_with(&back, &resume, &handed_in).unwrap();
    assert_eq!(answer, Answer::Resumed);
    let (_other, joined) = greets(&path, &caller);
    assert_eq!(joined.err(), Some(Errno::AGAIN));
    // SAFETY: as above.
    unsafe { libc::fcntl(leased.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    let (_other, joined) = greets(&path, &caller);
    assert_eq!(joined.unwrap().0.session, welcome.session);
}

#[test]
fn a_fold_copy_outlives_the_controller_that_made_it() {
    let mut scene = Scene::new(options());
    let mut client = scene.client();
    client.acquire(&[ROOT]);
    // One fold with nothing in flight, one that a thread straddles.
    let whole = client.header(ROOT).fold();
    client.create(ROOT, b"before", FileKind::File);
    client.commit(&[ROOT], false);
    let fold = client.header(ROOT).fold();
    client.create(ROOT, b"first", FileKind::File);
    let (offset, mut stored) = (client.slot_offset(ROOT), [0; 64]);
    client.load(offset, &mut stored);
    client.enter(3);
    client.commit(&[ROOT], false);
    let fold_copy = |fold, offset, length| Request::FoldCopy {
        inode: ROOT,
        fold,
        offset,
        length,
    };
    for _ in 0..3 {
        let asked = client.ask(&fold_copy(fold, offset, 64));
        assert_eq!(asked, Response::Bytes(stored.to_vec()));
        assert_eq!(client.errno(&fold_copy(fold, 1 << 29, 64)), Errno::NODATA);
        assert_eq!(client.ask(&fold_copy(whole, 0, 8)), Response::Done);
        scene.restart();
        scene.resume(&mut client);
    }
    // A fold while it is away: whatever was in flight can ask.
    client.forget_overlay();
    let fold = client.header(ROOT).fold();
    client.create(ROOT, b"second", FileKind::File);
    client.load(client.slot_offset(ROOT), &mut stored);
    scene.restart();
    let other = scene.client();
    other.recall(&[ROOT]);
    assert!(other.verified(ROOT, b"second").is_some());
    assert_ne!(client.header(ROOT).fold(), fold);
    scene.resume(&mut client);
    let asked = client.ask(&fold_copy(fold, client.slot_offset(ROOT), 64));
    assert_eq!(asked, Response::Bytes(stored.to_vec()));
    client.operation(3).leave();
    client.forget_overlay();
    client.create(ROOT, b"third", FileKind::File);
    client.commit(&[ROOT], true);
    client.goodbye();
    other.goodbye();
    assert_eq!(scene.end().paths.len(), 4);
}

/// A controller that dies at a named point, when it comes there for the time after `skipped`.
fn dies_at(point: &'static str, skipped: u32) -> Options {
    let count = Arc::new(AtomicU32::new(0));
    Options {
        crash_hook: Some(Arc::new(move |name| {
            assert!(
                name != point || count.fetch_add(1, Ordering::SeqCst) != skipped,
                "here the controller dies"
            );
        })),
        ..options()
    }
}

const POINTS: [&str; 4] = [
    "fresh pages written",
    "journal written",
    "half applied",
    "applied",
];

/// Whatever was done when the controller died: the move is made, and once.
#[test]
fn a_move_is_made_once() {
    for point in POINTS {
        for skipped in 0.. {
            let mut scene = Scene::new(options());
            let mut client = scene.client();
            client.acquire(&[ROOT]);
            let [from, to] =
                [b"from", b"to__"].map(|name| client.create(ROOT, &name[..], FileKind::Directory));
            let inner = client.create(from, b"inner", FileKind::Directory);
            client.create(inner, b"file", FileKind::File);
            client.commit_all(false);
            client.create(from, b"unfolded", FileKind::File);
            scene.controller.take().unwrap().kill();
            scene.controller = Some(scene.pool.serve_with(dies_at(point, skipped)));
            scene.resume(&mut client);
            let slot = client.submit(&Request::MoveDirectory {
                from,
                from_name: b"inner".to_vec(),
                to,
                to_name: b"moved".to_vec(),
                flags: 0,
            });
            let slot = slot.unwrap();
            let controller = scene.controller.as_ref().unwrap();
            while !controller.is_finished() && !ring::is_answered(client.control(), slot) {
                std::thread::yield_now();
            }
            let died = !ring::is_answered(client.control(), slot);
            scene.restart();
            scene.resume(&mut client);
            assert_eq!(client.finish(slot), Response::Done, "{point} {skipped}");
            client.commit_all(true);
            client.goodbye();
            let tree = scene.end();
            let paths: Vec<_> = tree.paths.keys().map(String::as_str).collect();
            let expected = [
                "/from",
                "/from/unfolded",
                "/to__",
                "/to__/moved",
                "/to__/moved/file",
            ];
            assert_eq!(paths, expected, "{point} {skipped}");
            if !died {
                assert!(skipped > 0);
                break;
            }
        }
    }
}

fn bytes_of(file: &OwnedFd) -> u64 {
    rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512
}

/// # Regression
/// What a controller was having allocated for a session when it was killed was found in the session's arena by
/// the next one, which knew nothing of it: a torture of honest programs ended with `33820672 allocated of at
/// most 25960512`, and EIO for all of the group.
#[test]
fn what_was_being_allocated_when_the_controller_died_is_nobody_s_fault() {
    const PAGES: u32 = 48 << 10;
    let mut scene = Scene::new(options());
    let mut client = scene.client();
    client.acquire(&[ROOT]);
    let grow = Request::GrowArena {
        branch_pages: 0,
        delta_pages: PAGES,
    };
    let before = bytes_of(&client.arena_file);
    let slot = client.submit(&grow).unwrap();
    while bytes_of(&client.arena_file) < before + (16 << 20) {
        std::thread::yield_now();
    }
    let was_answered = ring::is_answered(client.control(), slot);
    scene.controller.take().unwrap().kill();
    // The worker is a thread of this process, and goes on.
    let all = u64::from(PAGES) * 4096;
    while bytes_of(&client.arena_file) < all {
        std::thread::yield_now();
    }
    scene.controller = Some(scene.pool.serve_with(options()));
    // By then all files have been looked at, before the session asks again.
    std::thread::sleep(Duration::from_secs(3));
    scene.resume(&mut client);
    assert_eq!(client.finish(slot), Response::Done);
    assert!(!was_answered, "nothing was under way");
    client.create(ROOT, b"file", FileKind::File);
    client.commit(&[ROOT], false);
    client.goodbye();
    let (refused, _) = arck_controller::read_log(&scene.pool.path()).unwrap();
    assert!(refused.is_empty(), "{refused:?}");
    scene.end();
}

/// A reader that looks while a controller dies in the middle of a change, and another one applies
/// the journal again, sees the inode before or after.
#[test]
fn a_reader_sees_no_half_of_what_is_applied_again() {
    for point in ["journal written", "half applied"] {
        let mut scene = Scene::new(Options {
            // Commits are counted.
            seal_pages: usize::MAX,
            ..dies_at(point, 3)
        });
        let mut client = scene.client();
        let reader = scene.client();
        client.acquire(&[ROOT]);
        let file = client.create(ROOT, b"file", FileKind::File);
        client.commit(&[ROOT], false);
        // Maps what it will look at.
        reader.inode(file);
        let ends = &AtomicU32::new(0);
        std::thread::scope(|scope| {
            let looking = scope.spawn(move || {
                let mut seen = std::collections::BTreeSet::new();
                let header = reader.header(file);
                while ends.load(Ordering::SeqCst) == 0 {
                    let Some(sequence) = header.read_begin() else {
                        continue;
                    };
                    let inode = Inode::read(&reader, header.copy().inode);
                    if header.read_end(sequence) {
                        let inode = inode.expect("an inode");
                        // Size and modification time were changed together.
                        seen.insert((inode.size, inode.modified));
                    }
                }
                seen
            });
            let mut size = 0;
            for _ in 0..8 {
                size += 4096;
                client.edit_branch(file, |branch| {
                    branch.size = size;
                    branch.modified = size as i64;
                });
                let slot = client
                    .submit(&Client::commit_request(&[file], false))
                    .unwrap();
                let controller = scene.controller.as_ref().unwrap();
                while !controller.is_finished() && !ring::is_answered(client.control(), slot) {
                    std::thread::yield_now();
                }
                if !ring::is_answered(client.control(), slot) {
                    std::thread::sleep(Duration::from_millis(20));
                    scene.restart();
                    scene.resume(&mut client);
                }
                assert_eq!(client.finish(slot), Response::Done);
            }
            ends.store(1, Ordering::SeqCst);
            let seen = looking.join().unwrap();
            assert!(
                seen.iter()
                    .all(|&(size, time)| size as i64 == time || size == 0)
            );
            assert_eq!(client.inode(file).size, size);
        });
    }
}
