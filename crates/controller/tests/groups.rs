//! The region of a trust group: the controller makes it, and nobody else has a say in its size or its end.
//! And connections in other hands than those that made them.

mod common;

use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::{
    Answer, Call, Caller, REGION_SIZE, Welcome, call, receive, receive_answer, send,
};
use common::{Client, TestPool, dial};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{SealFlags, fcntl_get_seals, fstat, ftruncate};
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// One of the group.
fn caller() -> Caller {
    Caller::of_process(b"g").with_region(4 << 20)
}

/// Sends a greeting, whose answer may take its time.
fn greets(pool: &Path, caller: Caller) -> OwnedFd {
    let socket = dial(pool);
    let mut buffer = [0; MESSAGE_MAX];
    let length = Call::hello_of(caller).encode(&mut buffer).unwrap();
    send(socket.as_fd(), &buffer[..length], &[]).unwrap();
    socket
}

fn is_answered(socket: &OwnedFd, within: Duration) -> bool {
    let time = Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    let mut asked = [PollFd::new(socket, PollFlags::IN)];
    poll(&mut asked, Some(&time)).unwrap() == 1
}

fn answer(socket: &OwnedFd) -> Result<(Welcome, Vec<OwnedFd>), Errno> {
    let mut buffer = [0; MESSAGE_MAX];
    let (length, descriptors) = receive(socket.as_fd(), &mut buffer).unwrap();
    match Answer::decode(&buffer[..length]).unwrap() {
        Answer::Welcome(welcome) => Ok((welcome, descriptors)),
        Answer::Error(errno, _) => Err(Errno::from_raw_os_error(errno)),
        other => panic!("{other:?}"),
    }
}

fn says_made(socket: &OwnedFd) {
    assert_eq!(call(socket, &Call::RegionMade).unwrap().0, Answer::Done);
}

const AT_ONCE: Duration = Duration::from_secs(10);
const NOT_YET: Duration = Duration::from_millis(150);

/// Its size is the controller's, for good, whatever limit a member has, and whatever it does.
#[test]
fn nobody_sizes_a_region() {
    let pool = TestPool::new(64 << 20);
    let controller = pool.serve();
    let sizes = [(4 << 20, 4 << 20), (0, REGION_SIZE)];
    for (group, (wish, size)) in [&b"g"[..], b""]
        .into_iter()
        .flat_map(|g| sizes.map(|s| (g, s)))
    {
        let caller = Caller::of_process(group).with_region(wish);
        let socket = greets(&pool.path(), caller);
        let (welcome, descriptors) = answer(&socket).unwrap();
        assert!(welcome.makes_region);
        let region = &descriptors[4];
        assert_eq!(fstat(region).unwrap().st_size as u64, size);
        let seals = fcntl_get_seals(region).unwrap();
        assert!(seals.contains(SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL));
        for other in [0, size / 2, size + 4096] {
            assert_eq!(ftruncate(region, other), Err(Errno::PERM));
        }
        assert_eq!(call(&socket, &Call::Goodbye).unwrap().0, Answer::Done);
    }
    for wish in [1, 4095, 4097, u64::MAX, (8 << 40) + 4096] {
        let caller = Caller::of_process(b"g").with_region(wish);
        let refused = answer(&greets(&pool.path(), caller));
        assert_eq!(refused.err(), Some(Errno::INVAL), "{wish}");
    }
    controller.stop().unwrap();
}

/// Those who come while the first one makes the region are let in when it is whole.
#[test]
fn who_joins_waits_for_the_region() {
    let pool = TestPool::new(64 << 20);
    let controller = pool.serve();
    let maker = greets(&pool.path(), caller());
    let (made, _) = answer(&maker).unwrap();
    let others: Vec<OwnedFd> = (0..3).map(|_| greets(&pool.path(), caller())).collect();
    // Of another group, and of none: they have nothing to wait for.
    for group in [&b"h"[..], b""] {
        let (other, _) = answer(&greets(&pool.path(), Caller::of_process(group))).unwrap();
        assert!(other.makes_region && other.session != made.session);
    }
    assert!(!is_answered(&others[0], NOT_YET));
    says_made(&maker);
    for other in &others {
        assert!(is_answered(other, AT_ONCE));
        let (welcome, _) = answer(other).unwrap();
        assert_eq!(welcome.session, made.session);
        assert!(!welcome.makes_region);
    }
    controller.stop().unwrap();
}

/// One that ends over it leaves nothing behind: the next one has a session, and a region, of its own.
#[test]
fn a_region_that_is_not_whole_goes_with_its_maker() {
    let pool = TestPool::new(64 << 20);
    let controller = pool.serve();
    let maker = greets(&pool.path(), caller());
    let (first, descriptors) = answer(&maker).unwrap();
    rustix::io::pwrite(&descriptors[4], b"half of it", 0).unwrap();
    let others = [(); 2].map(|()| greets(&pool.path(), caller()));
    assert!(!is_answered(&others[0], NOT_YET));
    drop(maker);
    assert!(is_answered(&others[0], AT_ONCE));
    let (second, descriptors) = answer(&others[0]).unwrap();
    assert!(second.makes_region && second.session != first.session);
    let mut bytes = [1; 10];
    rustix::io::pread(&descriptors[4], &mut bytes, 0).unwrap();
    assert_eq!(bytes, [0; 10]);
    assert!(!is_answered(&others[1], NOT_YET));
    says_made(&others[0]);
    assert!(is_answered(&others[1], AT_ONCE));
    assert_eq!(answer(&others[1]).unwrap().0.session, second.session);
    controller.stop().unwrap();
}

/// One that is stopped over it keeps the others for a moment; then they do without it.
#[test]
fn a_maker_that_does_not_go_on_keeps_nobody() {
    let pool = TestPool::new(64 << 20);
    let controller = pool.serve();
    let maker = greets(&pool.path(), caller());
    let (first, _) = answer(&maker).unwrap();
    let began = Instant::now();
    let other = greets(&pool.path(), caller());
    assert!(is_answered(&other, AT_ONCE), "{:?}", began.elapsed());
    let (second, _) = answer(&other).unwrap();
    assert!(second.makes_region && second.session != first.session);
    says_made(&other);
    let (third, _) = answer(&greets(&pool.path(), caller())).unwrap();
    assert_eq!(third.session, second.session);
    // It goes on at last.
    says_made(&maker);
    controller.stop().unwrap();
}

/// Packets of [`tries_all`].
const TRIED: usize = 5;

/// Sends what may be sent by a connection, and looks whether anything is answered.
fn tries_all(socket: &OwnedFd) -> bool {
    let mut buffer = [0; MESSAGE_MAX];
    for call in [Call::GrantSegment, Call::Goodbye, Call::Status] {
        let length = call.encode(&mut buffer).unwrap();
        send(socket.as_fd(), &buffer[..length], &[]).unwrap();
    }
    // What is no message at all, and none that is left when somebody goes.
    send(socket.as_fd(), b"\xff", &[]).unwrap();
    send(socket.as_fd(), b"", &[socket.as_fd()]).unwrap();
    is_answered(socket, NOT_YET)
}

/// A connection that somebody else has in his hands, a child of the one who made it, or whoever that has
/// become, is worth nothing to him, and he takes nothing away: the child is not answered, as its parent would
/// take that for an answer to itself; and who has become somebody else, and waits, is told so.
#[test]
fn a_connection_is_worth_nothing_in_other_hands() {
    let pool = TestPool::new(64 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    // Before and after the first call.
    let fresh = dial(&pool.path());
    for socket in [&client.socket, &fresh] {
        // SAFETY: the child makes system calls, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let is_answered = std::panic::catch_unwind(|| tries_all(socket));
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(is_answered.map_or(2, i32::from)) };
        }
        let mut status = -1;
        // SAFETY: waits for the child.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0, "{status:x}");
    }
    client.grant_segment().unwrap();
    let (welcome, _) = answer(&greets(&pool.path(), caller())).unwrap();
    assert!(welcome.session > client.welcome.session);
    let status = call(&fresh, &Call::Status).unwrap();
    assert!(matches!(status.0, Answer::Status(_)));
    // The same process, as somebody else: of root alone.
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        std::thread::scope(|threads| {
            let other = threads.spawn(|| {
                // SAFETY: numbers. By the system call it is this thread's alone.
                let became = unsafe { libc::syscall(libc::SYS_setresuid, 1234, 1234, 1234) };
                assert_eq!(became, 0);
                tries_all(&client.socket)
            });
            assert!(other.join().unwrap());
        });
        for _ in 0..TRIED {
            let (refused, descriptors) = receive_answer(client.socket.as_fd()).unwrap();
            assert!(
                matches!(refused, Answer::Error(libc::EPERM, _)),
                "{refused:?}"
            );
            assert!(descriptors.is_empty());
        }
        client.grant_segment().unwrap();
    }
    client.goodbye();
    controller.stop().unwrap();
}

/// All who had waited in vain for a region were given sessions of their own at one moment, while everybody
/// else waited; and before that they were looked after between any two requests.
#[test]
fn those_who_wait_for_a_region_keep_nobody_waiting() {
    const GREETING: usize = 200;
    let pool = TestPool::new(256 << 20);
    let controller = pool.serve();
    let _maker = answer(&greets(&pool.path(), caller())).unwrap();
    let waiting: Vec<OwnedFd> = (0..GREETING)
        .map(|_| greets(&pool.path(), caller()))
        .collect();
    let is_over = AtomicBool::new(false);
    let number = |socket: &OwnedFd| answer(socket).unwrap().0.session;
    let (theirs, others) = std::thread::scope(|threads| {
        // Sessions are numbered as they are opened.
        let others = threads.spawn(|| {
            let mut numbers = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                numbers.push(number(&greets(&pool.path(), Caller::of_process(b""))));
            }
            numbers
        });
        let theirs: BTreeSet<u32> = waiting.iter().map(number).collect();
        is_over.store(true, Ordering::Relaxed);
        (theirs, others.join().unwrap())
    });
    assert_eq!(theirs.len(), GREETING);
    // So many were opened while nobody else was served.
    let others: BTreeSet<u32> = others.into_iter().collect();
    let mut longest = 0;
    let mut run = 0;
    for number in theirs.first().copied().unwrap()..=theirs.last().copied().unwrap() {
        run = match others.contains(&number) {
            true => 0,
            false => run + 1,
        };
        longest = longest.max(run);
    }
    assert!(longest < GREETING / 2, "{longest} of {GREETING}");
    drop(waiting);
    controller.stop().unwrap();
}
