//! Sessions that do not keep to the protocol: the controller answers, or closes the connection,
//! and everybody else goes on.

mod common;

use arck_core_state::FileKind;
use arck_core_state::branch::BRANCH_SIZE;
use arck_protocol::control::{REQUEST_SLOTS, slot_state};
use arck_protocol::message::{LockHolder, LockRange, MESSAGE_MAX};
use arck_protocol::socket::{Answer, Call, Caller, call, call_with, receive, send};
use arck_protocol::{LockMode, Request, Response};
use common::check::check;
use common::{Client, ROOT, TestPool, dial};
use proptest::prelude::*;
use rustix::fd::{AsFd, BorrowedFd};
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
    for segments in [vec![], vec![7], vec![1 << 30], vec![0; 17]] {
        let answer = call(&socket, &Call::MapSegments { segments }).unwrap().0;
        assert!(matches!(answer, Answer::Error(..)), "{answer:?}");
    }
    works(&pool, "a");
    controller.stop().unwrap();
}

/// Descriptors that are none of shared descriptions, or too many, or none at all.
#[test]
fn only_memory_files_stand_for_descriptions() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let socket = dial(&pool.path());
    let share = Call::ShareLocks {
        inode: 1,
        name: 7,
        owner: 0,
    };
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let memory = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let ask = |share: &Call, files: &[BorrowedFd<'_>]| call_with(&socket, share, files).unwrap().0;
    assert_eq!(error(&ask(&share, &[memory.as_fd()])), Errno::PROTO);
    call(&socket, &Call::hello(b"")).unwrap();
    assert_eq!(error(&ask(&share, &[])), Errno::INVAL);
    assert_eq!(error(&ask(&share, &[file.as_fd()])), Errno::INVAL);
    assert_eq!(error(&ask(&share, &[socket.as_fd()])), Errno::INVAL);
    let two = [memory.as_fd(), memory.as_fd()];
    assert_eq!(error(&ask(&share, &two)), Errno::INVAL);
    assert_eq!(ask(&share, &two[..1]), Answer::Done);
    assert_eq!(ask(&share, &two[..1]), Answer::Done);
    let other = Call::ShareLocks {
        inode: 1,
        name: 8,
        owner: 0,
    };
    assert_eq!(error(&ask(&other, &two[..1])), Errno::INVAL);
    works(&pool, "a");
    controller.stop().unwrap();
}

/// Who knows the name of a shared description may change its locks: others are not told it.
#[test]
fn the_name_of_a_shared_description_is_told_to_nobody() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let socket = dial(&pool.path());
    call(&socket, &Call::hello(b"")).unwrap();
    let (inode, name) = (ROOT, 0x1234_5678_9abc);
    let file = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let owner = 0;
    let share = Call::ShareLocks { inode, name, owner };
    let answer = call_with(&socket, &share, &[file.as_fd()]).unwrap().0;
    assert_eq!(answer, Answer::Done);
    let client = Client::connect(&pool.path());
    let range = |family, owner, process| LockRange {
        inode,
        mode: LockMode::Exclusive,
        start: 0,
        end: 10,
        holder: LockHolder {
            family,
            owner,
            process,
        },
    };
    for family in [3, 4] {
        client.done(&Request::Lock {
            range: range(family, name, 77),
            waits: false,
        });
        let asked = Request::TestLock {
            range: range(family - 2, 1, 1),
        };
        let found = client.ask(&asked);
        assert_eq!(found, Response::Conflict(range(family, 0, 77)));
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
    let receipt = Request::Receipt {
        inode: ROOT,
        fold: 1,
        offset: u64::MAX,
        length: u32::MAX,
    };
    assert_eq!(client.errno(&receipt), Errno::INVAL);
    let move_names = |name: &[u8], flags| Request::MoveDirectory {
        from: ROOT,
        from_name: name.to_vec(),
        to: ROOT,
        to_name: b"x".to_vec(),
        flags,
    };
    assert_eq!(client.errno(&move_names(b"a/b", 0)), Errno::INVAL);
    assert_eq!(client.errno(&move_names(b"", 0)), Errno::NOENT);
    assert_eq!(
        client.errno(&move_names(&[b'x'; 256], 0)),
        Errno::NAMETOOLONG
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
