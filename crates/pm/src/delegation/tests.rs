//! Real threads copy what many others ask for, or go through a gate.

use super::slots::SLOTS;
use super::*;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Barrier, MutexGuard, PoisonError};

/// There is one set of threads in a process, and one medium.
use crate::medium::tests::ONE_AT_A_TIME as ALONE;

fn with(threads: u32) -> Delegated {
    Delegated {
        threads,
        writes_from: 256,
        reads_from: 32 << 10,
    }
}

struct Started(#[allow(dead_code, reason = "held")] MutexGuard<'static, ()>);

fn started(nodes: u32, threads: u32) -> Started {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    start(nodes, &with(threads)).expect("started");
    Started(alone)
}

fn gated(most: u32) -> (Started, &'static Gates) {
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let file = make_gates().expect("a file");
    let gates = Gates::map(&file).expect("mapped");
    at_once(gates, &with(most)).expect("a gate");
    (Started(alone), gates)
}

fn enter(gate: &gate::Gate, most: u32) -> gate::Place {
    let forks = gate::FORKS.load(Ordering::SeqCst);
    gate.enter(most, gate::LONGEST, forks, rules::Rules::default())
}

/// Threads of each of so many nodes, or a gate for so many.
const BOTH_WAYS: [fn(u32, u32) -> Started; 2] = [started, |_, most| gated(most).0];

impl Drop for Started {
    fn drop(&mut self) {
        stop();
        assert!(!is_started());
    }
}

fn memory(bytes: usize) -> Vec<AtomicU64> {
    (0..bytes / 8).map(|_| AtomicU64::new(0)).collect()
}

#[test]
fn nothing_is_delegated_unless_it_is_started() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(batch().is_none());
    for (nodes, threads) in [
        (0, 1),
        (1, 0),
        (medium::NODES_MAX + 1, 1),
        (1, medium::DELEGATES_MAX + 1),
    ] {
        assert!(start(nodes, &with(threads)).is_err(), "{nodes} {threads}");
    }
    assert!(batch().is_none());
}

#[test]
fn a_thread_has_one_at_a_time() {
    for begin in BOTH_WAYS {
        let _started = begin(1, 1);
        let one = batch().expect("one");
        assert!(batch().is_none());
        assert!(one.wait().is_ok());
        assert!(batch().is_some());
    }
}

/// Many threads write and read pieces of many lengths at the same time, each in a part of the memory that is its own.
#[test]
fn all_of_it_is_copied() {
    const THREADS: usize = 12;
    const PART: usize = 1 << 20;
    for (begin, nodes, threads) in [(0, 1, 1), (0, 2, 3), (1, 1, 1), (1, 1, 5)] {
        let _started = BOTH_WAYS[begin](nodes, threads);
        let words = memory(THREADS * PART);
        let view = SharedBytes::from_words(&words);
        let barrier = Barrier::new(THREADS);
        let work = |thread: usize| {
            let mut seed = thread as u64 + 1;
            let mut random = |below: usize| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) as usize % below
            };
            let mut known = vec![0u8; PART];
            barrier.wait();
            for turn in 0..150 {
                let mut batch = batch().expect("one for each thread");
                let mut at = random(5000);
                let mut written = Vec::new();
                // Neighbours and others, small and larger than a piece.
                while at < PART && written.len() < 12 {
                    let most = [64, 4096, 200_000][random(3)];
                    let length = 1 + random(most);
                    let length = length.min(PART - at);
                    let bytes: Vec<u8> = (0..length)
                        .map(|byte| (byte + turn + thread) as u8)
                        .collect();
                    written.push((at, bytes));
                    at += length + if random(2) == 0 { 0 } else { random(3000) };
                }
                for (at, bytes) in &written {
                    // SAFETY: the bytes are there until the batch has been waited for, and the part is this thread's.
                    unsafe { batch.stream(&view, thread * PART + at, bytes) }.expect("inside");
                    known[*at..at + bytes.len()].copy_from_slice(bytes);
                }
                let flushed = batch
                    .wait()
                    .unwrap_or_else(|_| panic!("turn {turn} failed"));
                crate::order::drain(flushed);
                let mut read = vec![0; PART];
                let mut batch = self::batch().expect("one");
                // SAFETY: as above.
                unsafe { batch.copy_out(&view, thread * PART, &mut read) }.expect("inside");
                assert!(batch.wait().is_ok());
                assert!(read == known, "thread {thread}, turn {turn}");
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
        });
    }
}

/// Threads of a process change its ids together: libc signals each, and waits for all.
#[test]
fn ids_change_in_all_threads() {
    let _started = started(2, 2);
    // SAFETY: to what they are.
    unsafe {
        assert_eq!(libc::setuid(libc::getuid()), 0);
        assert_eq!(libc::setgid(libc::getgid()), 0);
    }
}

/// From which size on, the one number for writes and the other for reads say; nothing, where nothing is delegated.
#[test]
fn what_is_large_enough_is_delegated() {
    use Way::{Read, Write};
    let wanted = |way, length| is_wanted(way, length);
    let nothing = || {
        let sizes = [1, 255, 256, 4096, 1 << 20, usize::MAX - 1];
        sizes
            .iter()
            .all(|&size| !wanted(Read, size) && !wanted(Write, size))
    };
    {
        let _started = started(1, 1);
        assert!(wanted(Write, 256) && !wanted(Write, 255));
        assert!(wanted(Read, 32 << 10) && !wanted(Read, (32 << 10) - 1));
        let mut others = with(1);
        (others.writes_from, others.reads_from) = (u32::MAX, 5000);
        start(1, &others).expect("the same threads");
        assert!(wanted(Read, 5000) && !wanted(Read, 4999) && !wanted(Write, 1 << 31));
        others.reads_from = FROM_MIN - 1;
        assert!(start(1, &others).is_err());
        assert!(start_when_wanted(1, others, || true).is_err());
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    assert!(nothing());
}

/// Nobody starts threads before there is something for them to do, nor where it may not.
#[test]
fn threads_that_are_put_off_are_started_by_who_may() {
    thread_local! {
        static MAY: Cell<bool> = const { Cell::new(false) };
    }
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    start_when_wanted(1, with(2), || MAY.get()).expect("put off");
    assert!(is_wanted(Way::Write, 256) && !is_started());
    assert!(batch().is_none() && !is_started());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            MAY.set(true);
            assert!(batch().is_some());
        });
    });
    assert!(is_started() && batch().is_some());
    stop();
    assert!(batch().is_none() && !is_wanted(Way::Write, 1 << 20));
}

/// Other ones than are running are refused, and the same are there already.
#[test]
fn there_is_one_set_of_them() {
    let _started = started(2, 3);
    assert!(start(2, &with(3)).is_ok());
    for (nodes, threads) in [(2, 2), (1, 3)] {
        let busy = start(nodes, &with(threads))
            .expect_err("others are running")
            .errno();
        assert_eq!(busy, rustix::io::Errno::BUSY);
    }
}

/// An access over several stripes is cut where a node ends, and each part is its node's.
#[test]
fn each_node_has_what_lies_on_it() {
    const STRIPE: usize = 4096;
    let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut model = crate::medium::tests::model();
    model.nodes = 2;
    model.stripe = STRIPE as u64;
    let page = medium::make_page(&model).expect("a page");
    medium::emulate(&page).expect("emulated");
    let words = memory(16 * STRIPE);
    let view = SharedBytes::from_words(&words);
    medium::note_pool(view.as_ptr());
    for at in 0..16 {
        let address = view.as_ptr().wrapping_add(at * STRIPE + 100);
        let expected = (at as u32 % 2, STRIPE - 100);
        assert_eq!(medium::stretch(address), expected, "stripe {at}");
    }
    start(2, &with(1)).expect("started");
    let bytes: Vec<u8> = (0..15 * STRIPE).map(|byte| byte as u8).collect();
    let mut batch = batch().expect("one");
    // SAFETY: the bytes are there until the batch has been waited for.
    unsafe { batch.stream(&view, 1000, &bytes) }.expect("inside");
    let delegates = delegates().expect("threads");
    let handed = |node: usize| delegates.nodes[node].handed.load(Ordering::SeqCst);
    // Of sixteen parts, the last is handed over when it is waited for.
    assert_eq!((handed(0), handed(1)), (8, 7));
    assert!(batch.wait().is_ok());
    let mut read = vec![0; bytes.len()];
    view.copy_to(1000, &mut read).expect("inside");
    assert!(read == bytes);
    stop();
    medium::stop();
    drop(alone);
}

/// What was waited for is durable already: by the fences of those who have stored it.
#[test]
fn what_is_waited_for_is_durable() {
    use crate::record::{Event, Recording};
    use crate::replay::{Region, Replay};
    const LENGTH: usize = 300_000;
    for start in BOTH_WAYS {
        let _started = start(1, 3);
        let words = memory(1 << 19);
        let view = SharedBytes::from_words(&words);
        let bytes: Vec<u8> = (0..LENGTH).map(|byte| byte as u8 | 1).collect();
        // Whole lines, so that nothing else is in the last one.
        let begin = view.as_ptr().align_offset(4096);
        let recording = Recording::start().expect("nobody else records");
        let mut batch = batch().expect("one");
        // SAFETY: the bytes are there until the batch has been waited for.
        unsafe { batch.stream(&view, begin, &bytes) }.expect("inside");
        let done = batch.wait();
        let events: Vec<Event> = recording.finish();
        assert!(done.is_ok());
        let address = view.as_ptr().addr() + begin;
        let region = Region::Memory {
            address: address as u64,
        };
        let mut replay = Replay::new(region, vec![0; LENGTH]).expect("a region");
        events.iter().for_each(|event| replay.step(event));
        assert!(replay.durable_image() == bytes);
    }
}

/// What is outside is refused, and what was begun is waited for when it is dropped.
#[test]
fn what_is_dropped_has_been_done() {
    for start in BOTH_WAYS {
        let _started = start(1, 2);
        let words = memory(1 << 20);
        let view = SharedBytes::from_words(&words);
        let bytes = vec![7; 1 << 20];
        let mut batch = batch().expect("one");
        // SAFETY: nothing is copied that does not fit; what does is there until the batch is dropped.
        unsafe {
            assert!(batch.stream(&view, 1, &bytes).is_none());
            batch.stream(&view, 0, &bytes).expect("inside");
        }
        drop(batch);
        assert!(
            words
                .iter()
                .all(|word| word.load(Ordering::Relaxed) == 0x0707_0707_0707_0707)
        );
    }
}

/// A buffer that is not there fails the batch, and nothing else; the next one is as if nothing had been.
#[test]
fn memory_that_is_not_there_is_told() {
    use crate::mapping::{MapOptions, Mapping};
    crate::guarded::install_guard();
    for start in BOTH_WAYS {
        let _started = start(1, 2);
        let file = tempfile::tempfile().expect("a file");
        file.set_len(1 << 20).expect("a length");
        let mapping = Mapping::new(&file, 0, 1 << 20, MapOptions::READ_WRITE).expect("mapped");
        let bytes = vec![7; 1 << 20];
        for (length, is_there) in [(1 << 20, true), (300_000, false), (1 << 20, true)] {
            file.set_len(length).expect("cut");
            let mut batch = batch().expect("one");
            // SAFETY: the bytes are there until the batch is over, and nobody else looks at the file.
            unsafe { batch.stream(&mapping.bytes(), 0, &bytes) }.expect("inside");
            assert_eq!(batch.wait().is_ok(), is_there, "{length}");
        }
    }
}

/// More threads than there are places for: some are told to copy by themselves.
#[test]
fn threads_beyond_all_slots_copy_by_themselves() {
    let _started = started(1, 1);
    let (begin, end) = (Barrier::new(SLOTS + 9), Barrier::new(SLOTS + 9));
    let got = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..SLOTS + 8 {
            scope.spawn(|| {
                let mine = batch();
                got.fetch_add(usize::from(mine.is_some()), Ordering::Relaxed);
                begin.wait();
                end.wait();
            });
        }
        begin.wait();
        assert_eq!(got.load(Ordering::Relaxed), SLOTS);
        end.wait();
    });
}

/// A child of a fork has none of the threads, and copies by itself; nor has it the page of its parent's medium.
#[test]
fn a_forked_child_has_none() {
    for start in BOTH_WAYS {
        let _started = start(1, 1);
        let page = medium::make_page(&crate::medium::tests::model()).expect("a page");
        medium::emulate(&page).expect("emulated");
        let maps_it = || {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
            maps.contains("arck-medium")
        };
        assert!(maps_it() && medium::model().is_some());
        // SAFETY: the child does nothing but look at atomics, and ends by the system call.
        let child = unsafe { libc::fork() };
        if child == 0 {
            has_forked();
            medium::has_forked();
            let is_free = batch().is_none()
                && !is_wanted(Way::Write, 1 << 20)
                && medium::model().is_none()
                && !maps_it();
            let code = i32::from(!is_free);
            // SAFETY: ends the child.
            unsafe { libc::_exit(code) };
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        assert!(batch().is_some());
        medium::stop();
    }
}

/// No more than may be are at large accesses at once; none of the others waits for longer than its turn is due.
#[test]
fn so_many_are_inside_at_once() {
    const THREADS: usize = 8;
    for most in [1, 3] {
        let (_started, gates) = gated(most);
        let words = memory(THREADS << 16);
        let view = SharedBytes::from_words(&words);
        let inside = AtomicUsize::new(0);
        let work = |thread: usize| {
            let bytes = vec![thread as u8; 1 << 16];
            for _ in 0..300 {
                let mut batch = batch().expect("one for each thread");
                // SAFETY: the bytes are there until the batch is over, and the part is this thread's.
                unsafe { batch.stream(&view, thread << 16, &bytes) }.expect("inside");
                let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(now <= most as usize, "{now} at once");
                std::hint::spin_loop();
                inside.fetch_sub(1, Ordering::SeqCst);
                assert!(batch.wait().is_ok());
            }
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                scope.spawn(move || work(thread));
            }
        });
        assert_eq!(gates.of(0).inside(), 0);
    }
}

/// Who does not leave is waited for for a while; what it does when it comes back changes nothing for others.
#[test]
fn a_place_that_is_not_left_is_taken() {
    let (_started, gates) = gated(1);
    let gate = gates.of(0);
    let rules = rules::Rules::default();
    let mut stopped = enter(gate, 1);
    let begun = std::time::Instant::now();
    let other = enter(gate, 1);
    let waited = begun.elapsed();
    assert!(waited >= gate::STALE, "{waited:?}");
    assert!(waited < gate::STALE * 20, "{waited:?}");
    gate.leave(&stopped, rules);
    assert_eq!(gate.inside(), 1);
    assert!(!gate.is_still_there(&mut stopped));
    gate.leave(&stopped, rules);
    assert_eq!(gate.inside(), 1);
    gate.leave(&other, rules);
    assert_eq!(gate.inside(), 0);
}

/// Who shows that it is there keeps its place, however long it takes.
#[test]
fn a_place_that_is_in_use_is_kept() {
    let (_started, gates) = gated(1);
    let gate = gates.of(0);
    let rules = rules::Rules::default();
    let is_in = AtomicUsize::new(0);
    let mut place = enter(gate, 1);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let place = enter(gate, 1);
            is_in.store(1, Ordering::SeqCst);
            gate.leave(&place, rules);
        });
        let begun = std::time::Instant::now();
        while begun.elapsed() < gate::STALE * 5 {
            std::thread::sleep(gate::STALE / 10);
            // A machine that was stopped for so long is no reason to fail.
            if !gate.is_still_there(&mut place) {
                return;
            }
            assert_eq!(is_in.load(Ordering::SeqCst), 0);
        }
        gate.leave(&place, rules);
    });
    assert_eq!(gate.inside(), 0);
}

/// Somebody keeps all places in use for ever; nobody waits for ever.
#[test]
fn who_has_waited_long_goes_in() {
    let (_started, gates) = gated(1);
    let gate = gates.of(0);
    let is_over = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1.. {
                gate.fill(value);
                std::thread::sleep(gate::STALE / 10);
                if is_over.load(Ordering::SeqCst) != 0 {
                    break;
                }
            }
        });
        std::thread::sleep(gate::STALE);
        let begun = std::time::Instant::now();
        let place = enter(gate, 1);
        let waited = begun.elapsed();
        gate.leave(&place, rules::Rules::default());
        is_over.store(1, Ordering::SeqCst);
        assert!(waited >= gate::LONGEST - gate::STALE, "{waited:?}");
        assert!(waited < gate::LONGEST * 5, "{waited:?}");
    });
}

/// A handler of signals forks while its thread has an access under way: in the child nothing of the gate is looked at, and it fails there.
#[test]
fn a_child_of_who_is_inside_is_not_there() {
    let (_started, gates) = gated(1);
    let words = memory(1 << 20);
    let view = SharedBytes::from_words(&words);
    let bytes = vec![7; 1 << 20];
    let mut batch = batch().expect("one");
    // SAFETY: the bytes are there until the batch is over.
    unsafe { batch.stream(&view, 0, &bytes) }.expect("inside");
    assert_eq!(gates.of(0).inside(), 1);
    // SAFETY: the child looks at atomics and its own memory, and ends by the system call.
    let child = unsafe { libc::fork() };
    if child == 0 {
        has_forked();
        let is_done = batch.wait().is_ok();
        // What it has of the words is its own, and nobody is there.
        let code = i32::from(is_done) | i32::from(gates.of(0).inside() != 0) << 1;
        // SAFETY: ends the child.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: a child of this process.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0);
    assert!(batch.wait().is_ok());
    assert_eq!(gates.of(0).inside(), 0);
}

/// Words that somebody has written over: everybody gets in, later at most.
#[test]
fn damaged_words_hold_nobody_up_for_long() {
    let (_started, gates) = gated(2);
    let gate = gates.of(0);
    for value in [1, 0x0101_0101, u32::MAX] {
        gate.fill(value);
        let begun = std::time::Instant::now();
        let place = enter(gate, 2);
        assert!(begun.elapsed() < gate::LONGEST * 5);
        gate.leave(&place, rules::Rules::default());
    }
}
