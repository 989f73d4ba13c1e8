//! Sessions that do not keep to the protocol: the controller answers, or closes the connection,
//! and everybody else goes on.

mod common;

use arck_core_state::FileKind;
use arck_core_state::branch::BRANCH_SIZE;
use arck_protocol::Request;
use arck_protocol::control::{REQUEST_SLOTS, slot_state};
use arck_protocol::message::MESSAGE_MAX;
use arck_protocol::socket::{Access, Answer, Call, Caller, call, receive, receive_answer, send};
use common::check::check;
use common::{Client, ROOT, TestPool, dial};
use proptest::prelude::*;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Somebody else works as ever.
fn works(pool: &TestPool, name: &str) {
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    client.create(ROOT, name.as_bytes(), FileKind::File);
    client.commit(&[ROOT], true);
    assert!(client.verified(ROOT, name.as_bytes()).is_some());
    client.goodbye();
}

fn error(answer: &Answer) -> Errno {
    match answer {
        Answer::Error(errno, _) => Errno::from_raw_os_error(*errno),
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_greeting_comes_first_and_once() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let socket = dial(&pool.path());
    let segments = vec![0];
    let early = call(&socket, &Call::MapSegments { segments }).unwrap().0;
    assert_eq!(error(&early), Errno::PROTO);
    let other_version = Call::Hello {
        version: 99,
        caller: Caller::default(),
    };
    let other = call(&socket, &other_version).unwrap().0;
    assert_eq!(error(&other), Errno::PROTONOSUPPORT);
    let (welcome, _) = call(&socket, &Call::hello(b"")).unwrap();
    assert!(matches!(welcome, Answer::Welcome(_)));
    let again = call(&socket, &Call::hello(b"")).unwrap().0;
    assert_eq!(error(&again), Errno::ISCONN);
    for segments in [vec![], vec![7], vec![1 << 30]] {
        let answer = call(&socket, &Call::MapSegments { segments }).unwrap().0;
        assert!(matches!(answer, Answer::Error(..)), "{answer:?}");
    }
    // More than a message can name: no session encodes that.
    let mut packet = [0; 3 + 17 * 4];
    packet[..3].copy_from_slice(&[2, 17, 0]);
    send(socket.as_fd(), &packet, &[]).unwrap();
    let answer = receive_answer(socket.as_fd()).unwrap().0;
    assert_eq!(error(&answer), Errno::PROTO);
    let ended = call(&socket, &Call::Status).unwrap_err();
    assert_eq!(ended, Errno::CONNRESET);
    works(&pool, "a");
    controller.stop().unwrap();
}

/// A lock file is for who may open its inode, in that mode, and of the inode that there is.
#[test]
fn lock_files_are_for_what_may_be_opened() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    let ask = |socket: &OwnedFd, inode, generation, access| {
        let asked = Call::LockFile {
            inode,
            generation,
            access,
        };
        call(socket, &asked).unwrap()
    };
    let stranger = dial(&pool.path());
    let answer = ask(&stranger, ROOT, 1, Access::Read).0;
    assert_eq!(error(&answer), Errno::PROTO, "no session");
    // Created or not, folded or not.
    client.acquire(&[ROOT]);
    let file = client.create(ROOT, b"file", FileKind::File);
    let generation = client.header(file).generation();
    let modes = [Access::Read, Access::Write, Access::ReadWrite];
    for folded in [false, true] {
        for access in modes {
            let (answer, files) = ask(&client.socket, file, generation, access);
            assert_eq!((answer, files.len()), (Answer::Done, 1), "{folded}");
        }
        client.commit(&[ROOT], true);
    }
    for (inode, generation) in [
        (file, generation + 1),
        (file, 0),
        (file + 1, 77),
        (0, 0),
        (u32::MAX, 1),
    ] {
        let (answer, files) = ask(&client.socket, inode, generation, Access::Read);
        assert_eq!(error(&answer), Errno::STALE, "{inode} {generation}");
        assert!(files.is_empty());
    }
    client.goodbye();
    works(&pool, "a");
    controller.stop().unwrap();
    assert!(!pool.path().join("lock-files").exists(), "a clean end");
}

/// A lock ends with the last descriptor of who took it. The controller closed its own copy some time after it had
/// sent it: who was killed meanwhile left his lock behind.
#[test]
fn the_controller_keeps_no_lock_of_others() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let file = client.create(ROOT, b"file", FileKind::File);
    let asked = Call::LockFile {
        inode: file,
        generation: client.header(file).generation(),
        access: Access::ReadWrite,
    };
    let opened = |socket| call(socket, &asked).unwrap().1.pop().unwrap();
    let other = opened(&client.socket);
    let lock = |file: &OwnedFd| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
    for round in 0..1000 {
        let taken = opened(&client.socket);
        lock(&taken).unwrap();
        drop(taken);
        assert_eq!(lock(&other), Ok(()), "round {round}");
        rustix::fs::flock(&other, FlockOperation::Unlock).unwrap();
    }
    client.goodbye();
    controller.stop().unwrap();
}

#[test]
fn a_session_asks_the_controller_to_end() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let socket = dial(&pool.path());
    assert_eq!(call(&socket, &Call::Shutdown).unwrap().0, Answer::Done);
    while !controller.is_finished() {
        std::thread::yield_now();
    }
    controller.stop().unwrap();
    check(&pool.path());
}

#[test]
fn malformed_packets_close_their_connection() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    for bytes in [&b"x"[..], &[0xff; MESSAGE_MAX], &[1], &[2, 255, 255]] {
        let socket = dial(&pool.path());
        send(socket.as_fd(), bytes, &[socket.as_fd()]).unwrap();
        let mut buffer = [0; MESSAGE_MAX];
        let (length, _) = receive(socket.as_fd(), &mut buffer).unwrap();
        assert_eq!(
            error(&Answer::decode(&buffer[..length]).unwrap()),
            Errno::PROTO
        );
        assert!(matches!(
            receive(socket.as_fd(), &mut buffer),
            Ok((0, _)) | Err(_)
        ));
    }
    works(&pool, "a");
    controller.stop().unwrap();
}

#[test]
fn a_signature_on_somebody_elses_inode_is_refused() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let client = Client::connect(&pool.path());
    // Not owned: commits of it fold nothing, and moves of names in it acquire first.
    client.done(&Client::commit_request(&[ROOT, 0, u32::MAX, 77], true));
    let grow = |branch_pages, delta_pages| Request::GrowArena {
        branch_pages,
        delta_pages,
    };
    assert_eq!(client.errno(&grow(u32::MAX, 0)), Errno::INVAL);
    assert_eq!(client.errno(&grow(0, u32::MAX)), Errno::INVAL);
    let fold_copy = Request::FoldCopy {
        inode: ROOT,
        fold: 1,
        offset: u64::MAX,
        length: u32::MAX,
    };
    assert_eq!(client.errno(&fold_copy), Errno::INVAL);
    let move_names = |name: &[u8], flags| Request::MoveDirectory {
        from: ROOT,
        from_name: name.to_vec(),
        to: ROOT,
        to_name: b"x".to_vec(),
        flags,
    };
    assert_eq!(client.errno(&move_names(b"a/b", 0)), Errno::INVAL);
    assert_eq!(client.errno(&move_names(b"", 0)), Errno::NOENT);
    let told = client.ask_with_long_name(ROOT);
    assert_eq!(
        told,
        arck_protocol::Response::Error(Errno::PROTO.raw_os_error())
    );
    assert_eq!(client.errno(&move_names(b"a", 4)), Errno::INVAL);
    client.goodbye();
    works(&pool, "a");
    controller.stop().unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24, failure_persistence: None, ..ProptestConfig::default()
    })]

    /// Whatever stands in control memory and in the arena.
    #[test]
    fn garbage_harms_nobody(
        words in prop::collection::vec((0..REQUEST_SLOTS, 0..254usize, any::<u64>()), 0..60),
        kinds in prop::collection::vec(0u8..18, REQUEST_SLOTS),
        lengths in prop::collection::vec(prop_oneof![0u32..80, any::<u32>()], REQUEST_SLOTS),
        stores in prop::collection::vec((0u64..40, 0u64..4096, any::<[u8; 16]>()), 0..60),
        counters in prop::collection::vec((0..1024usize, any::<bool>()), 0..10),
    ) {
        let pool = TestPool::new(16 << 20);
        let controller = pool.serve();
        let mut client = Client::connect(&pool.path());
        client.acquire(&[ROOT]);
        let directory = client.create(ROOT, b"good", FileKind::Directory);
        client.create(directory, b"inner", FileKind::File);
        let file = client.create(ROOT, b"file", FileKind::File);
        let page = client.data_page(1).unwrap();
        client.write(file, 600, page);
        for (page, offset, bytes) in &stores {
            // Branches, and the delta pages used so far.
            let page = match page {
                0..20 => 1 + page,
                _ => u64::from(arck_core_state::arena::DELTA_FIRST) + page - 20,
            };
            let at = page * 4096 + offset.min(&4080) / 8 * 8;
            client.store(at, bytes);
            // One of them where it surely matters.
            let branch = client.slot_offset(ROOT) + offset % (BRANCH_SIZE as u64 - 16) / 8 * 8;
            if offset % 7 == 0 {
                client.store(branch, bytes);
            }
        }
        for (thread, inside) in counters {
            if inside {
                client.enter(thread);
            } else {
                client.operation(thread).leave();
            }
        }
        let control = client.control();
        for (slot, (kind, length)) in kinds.iter().zip(&lengths).enumerate() {
            control.requests[slot].length.store(*length, Ordering::Relaxed);
            control.requests[slot].payload[0].store(u64::from(*kind) | 0x0101_0000, Ordering::Relaxed);
        }
        for (slot, word, value) in words {
            control.requests[slot].payload[word].store(value, Ordering::Relaxed);
        }
        for slot in &control.requests {
            slot.state.store(slot_state::SUBMITTED, Ordering::SeqCst);
        }
        control.header.doorbell.store(u64::MAX, Ordering::SeqCst);
        works(&pool, "other");
        drop(client);
        works(&pool, "another");
        controller.stop().unwrap();
        let tree = check(&pool.path());
        prop_assert!(tree.paths.contains_key("/other") && tree.paths.contains_key("/another"));
        // And again, from the files alone.
        let controller = pool.serve();
        works(&pool, "third");
        controller.stop().unwrap();
        check(&pool.path());
    }
}
