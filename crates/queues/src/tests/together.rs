//! Many at once: what is submitted together, threads that do their own requests, devices that have several, and queues that are deep.

use super::oracle::{Ending, InMemory, Several};
use super::queues::{Gate, LONG, Opens, by_id, collect, gated, options, queues};
use crate::request::{Closing, Request};
use crate::{
    Begun, Direction, Errno, FileIdentity, Queue, QueueOptions, Target, Transfer, Underway,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What is submitted together is taken as far as it goes, and the rest is left.
#[test]
fn what_is_submitted_together_is_taken_in_order() {
    let queues = queues(1);
    let (file, gate) = gated(32);
    let queue = queues.open(file.clone(), options(4)).unwrap();
    let write = |position: u64| Request::write(position, b"ab");
    // One that makes no sense is in between.
    let mut requests = vec![write(0), Request::read(0, 2), write(u64::MAX), write(2)];
    let submitted = queue.submit_all(&mut requests);
    assert_eq!(submitted.refused, Some(Errno::INVAL));
    assert_eq!(requests, [write(u64::MAX), write(2)]);
    let first = submitted.taken;
    assert_eq!(
        first.iter().map(|id| id.timestamp()).collect::<Vec<_>>(),
        [1, 2]
    );
    // The read was served from the write beside it.
    let read = queue.reap(9);
    assert_eq!(
        (read.len(), read[0].id, read[0].served_by),
        (1, first[1], Some(first[0]))
    );
    assert_eq!(read[0].buffer, b"ab");
    let mut requests: Vec<_> = (1..6).map(|at| write(at * 4)).collect();
    let submitted = queue.submit_all(&mut requests);
    assert_eq!(submitted.refused, Some(Errno::AGAIN));
    assert_eq!(submitted.taken.len(), 3);
    assert_eq!(requests, [write(16), write(20)]);
    gate.0.open();
    assert_eq!(collect(&queue, 4).len(), 4);
    let submitted = queue.submit_all(&mut requests);
    assert_eq!((submitted.refused, requests.len()), (None, 0));
    assert_eq!(collect(&queue, 2).len(), 2);
    queue.close(Closing::Finish);
    let (submitted, done) = queue.exchange(&mut vec![write(0)], 1);
    assert_eq!((submitted.refused, done.len()), (Some(Errno::BADF), 0));
    let bytes = file.bytes.lock().unwrap();
    assert_eq!(&bytes[..24], b"ab..ab..ab..ab..ab..ab..");
}

/// A thread that does its own requests since they have been quick wakes nobody. One of them waits for the others all the same.
#[test]
fn who_does_its_own_requests_does_not_keep_them_from_workers() {
    const EACH: usize = 4;
    let queues = queues(1);
    let gate = Arc::new(Gate::default());
    let _opens = Opens(Arc::clone(&gate));
    let (at, calls) = (Arc::clone(&gate), AtomicUsize::new(0));
    let slow_from = Arc::new(AtomicUsize::new(usize::MAX));
    let from = Arc::clone(&slow_from);
    let file = Arc::new(InMemory::new(vec![b'.'; 64], move || {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        let from = from.load(Ordering::SeqCst);
        if call == from {
            at.pass();
        } else if from < call && call == from + EACH - 1 {
            at.open();
        }
        Ending::Well
    }));
    let queue = queues.open(file, options(16)).unwrap();
    let mut done = 0;
    let mut exchange = |queue: &Queue| {
        let each = (0..EACH as u64).map(|at| Request::write(at * 8, b"12345678"));
        let mut requests = each.collect();
        let (submitted, completions) = queue.exchange(&mut requests, EACH);
        assert_eq!((submitted.refused, completions.len()), (None, EACH));
        assert!(completions.iter().all(|one| one.result == Ok(8)));
        done += EACH;
        done
    };
    // Some turns, until it was measured to be quick, and the worker has looked and sleeps again.
    let begin = Instant::now();
    let mut calls = 0;
    while calls < 50 * EACH || begin.elapsed() < Duration::from_millis(30) {
        calls = exchange(&queue);
    }
    slow_from.store(calls, Ordering::SeqCst);
    exchange(&queue);
}

/// Nor does it take what has a deadline before it can begin it: where one takes long, the others are late.
#[test]
fn what_waits_behind_a_slow_one_is_late() {
    let queues = queues(1);
    // The worker is at something else.
    let (busy, gate) = gated(32);
    let other = queues.open(busy, options(1)).unwrap();
    other.submit(Request::read(0, 1)).unwrap();
    let is_slow = Arc::new(AtomicBool::new(false));
    let slow = Arc::clone(&is_slow);
    let file = Arc::new(InMemory::new(vec![b'.'; 64], move || {
        if slow.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(100));
        }
        Ending::Well
    }));
    // Another file than the worker's.
    let file = Several {
        file,
        identity: FileIdentity {
            device: 0,
            inode: 7,
        },
        in_flight: 1,
        begun: AtomicU64::new(0),
    };
    let queue = queues.open(Arc::new(file), options(16)).unwrap();
    // Before the queues go.
    let _opens = gate;
    let exchange = |within: Duration| {
        let each = (0..4).map(|at| Request::write(at * 8, b"12345678").within(within));
        queue.exchange(&mut each.collect(), 4).1
    };
    for _ in 0..200 {
        assert!(exchange(LONG).iter().all(|one| one.result == Ok(8)));
    }
    is_slow.store(true, Ordering::SeqCst);
    let mut done = exchange(Duration::from_millis(20));
    done.sort_by_key(|one| one.id);
    let results: Vec<_> = done[1..].iter().map(|one| one.result).collect();
    assert_eq!(results, [Err(Errno::TIMEDOUT); 3]);
}

/// A device that has some requests at a time, each of which ends when it is told.
struct Device {
    file: InMemory,
    number: u64,
    in_flight: usize,
    panics: bool,
    /// Underway now, and the most there have been; requests that may end.
    underway: Arc<[AtomicUsize; 2]>,
    may_end: Arc<AtomicBool>,
}

struct InDevice {
    transfer: Transfer,
    underway: Arc<[AtomicUsize; 2]>,
    may_end: Arc<AtomicBool>,
}

impl Device {
    fn new(in_flight: usize, panics: bool) -> Arc<Device> {
        Arc::new(Device {
            file: InMemory::quiet(vec![b'.'; 64]),
            number: 1,
            in_flight,
            panics,
            underway: Arc::default(),
            may_end: Arc::default(),
        })
    }
}

impl Target for Device {
    fn identity(&self) -> FileIdentity {
        FileIdentity {
            device: 0,
            inode: self.number,
        }
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(64)
    }
    fn read(&self, _: &mut [u8], _: u64) -> Result<usize, Errno> {
        panic!("it is begun")
    }
    fn write(&self, _: &[u8], _: u64) -> Result<usize, Errno> {
        panic!("it is begun")
    }
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.file.append(bytes)
    }
    fn sync(&self, _: bool) -> Result<(), Errno> {
        assert_eq!(self.underway[0].load(Ordering::SeqCst), 0);
        Ok(())
    }
    fn in_flight(&self) -> usize {
        self.in_flight
    }
    fn begin(&self, mut transfer: Transfer) -> Begun {
        let position = transfer.position();
        match transfer.direction() {
            Direction::Read(buffer) => self.file.read(buffer, position),
            Direction::Write(bytes) => self.file.write(bytes, position),
        }
        .unwrap();
        if self.panics && position == 0 {
            panic!("on purpose");
        }
        let now = self.underway[0].fetch_add(1, Ordering::SeqCst) + 1;
        self.underway[1].fetch_max(now, Ordering::SeqCst);
        Begun::Underway(Box::new(InDevice {
            transfer,
            underway: Arc::clone(&self.underway),
            may_end: Arc::clone(&self.may_end),
        }))
    }
}

impl Underway for InDevice {
    fn poll(&mut self) -> Option<Result<usize, Errno>> {
        assert!(self.transfer.position() != 8, "on purpose");
        let ends = self.may_end.load(Ordering::SeqCst);
        ends.then(|| Ok(self.transfer.length()))
    }
    fn wait(&mut self) {
        std::thread::yield_now();
    }
    fn end(self: Box<Self>) -> Transfer {
        self.underway[0].fetch_sub(1, Ordering::SeqCst);
        self.transfer
    }
}

/// A call that blocks would keep what has ended from being told.
#[test]
fn a_call_that_blocks_is_made_with_nothing_underway() {
    let queues = queues(1);
    let one = Device::new(3, false);
    let mut other = Device::new(3, false);
    let beside = Arc::get_mut(&mut other).unwrap();
    beside.number = 2;
    beside.underway = Arc::clone(&one.underway);
    let (first, second) = (
        queues.open(one.clone(), options(16)).unwrap(),
        queues.open(other, options(16)).unwrap(),
    );
    for position in [16, 24] {
        first.submit(Request::write(position, b"1234")).unwrap();
    }
    while one.underway[0].load(Ordering::SeqCst) < 2 {
        std::thread::yield_now();
    }
    second.submit(Request::sync()).unwrap();
    // The worker has taken it by then, most likely.
    std::thread::sleep(Duration::from_millis(20));
    one.may_end.store(true, Ordering::SeqCst);
    assert_eq!(collect(&first, 2).len(), 2);
    let synced = collect(&second, 1);
    assert!(synced.values().all(|one| one.result == Ok(0)), "{synced:?}");
}

/// One thread has as many in a device as that says.
#[test]
fn a_thread_has_several_requests_in_a_device() {
    for lends in [false, true] {
        let queues = queues(1);
        let device = Device::new(3, false);
        let queue = queues.open(device.clone(), options(16)).unwrap();
        let mut requests: Vec<_> = (2..8)
            .map(|at| Request::write(at * 8, b"12345678"))
            .collect();
        requests.push(Request::append(b"end"));
        requests.push(Request::read(16, 4));
        let may_end = Arc::clone(&device.may_end);
        let underway = Arc::clone(&device.underway);
        let opening = std::thread::spawn(move || {
            while underway[0].load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            may_end.store(true, Ordering::SeqCst);
        });
        let all = match lends {
            true => by_id(queue.exchange(&mut requests, 8).1),
            false => {
                assert_eq!(queue.submit_all(&mut requests).refused, None);
                collect(&queue, 8)
            }
        };
        opening.join().unwrap();
        assert!(all.values().all(|one| one.result.is_ok()), "{all:?}");
        let read = all.values().last().unwrap();
        assert_eq!(&read.buffer, b"1234");
        // A thread that waits works beside the one worker.
        let most = device.underway[1].load(Ordering::SeqCst);
        assert!((3..=if lends { 6 } else { 3 }).contains(&most), "{most}");
        let bytes = device.file.bytes.lock().unwrap();
        assert_eq!((bytes.len(), &bytes[64..]), (67, &b"end"[..]));
    }
}

/// When it is begun, or when it is looked at.
#[test]
fn a_device_that_panics_is_eio_and_hangs_nobody() {
    let queues = queues(1);
    let device = Device::new(2, true);
    device.may_end.store(true, Ordering::SeqCst);
    let queue = queues.open(device, options(16)).unwrap();
    for position in [0, 8, 16, 0, 24] {
        queue.submit(Request::write(position, b"1234")).unwrap();
        let done = queue.wait(1, Some(LONG));
        let expected = if position < 16 { Err(Errno::IO) } else { Ok(4) };
        assert_eq!(done[0].result, expected, "{position}");
        // A write's is kept.
        assert_eq!(done[0].buffer, b"1234");
    }
    assert_eq!(queues.counters().panicked, 3);
}

/// As many in flight as there can be: what each of them waits for is not listed with each.
#[test]
fn the_deepest_queue_of_barriers_and_of_writes_behind_the_end() {
    let queues = queues(1);
    let depth = QueueOptions::DEPTH_MAX as u64;
    for kind in 0..3 {
        let (file, gate) = gated(8);
        let queue = queues.open(file.clone(), options(depth as usize)).unwrap();
        let submit = |number: u64| {
            let byte = vec![number as u8];
            queue.submit(match (kind, number % 2) {
                (0, _) => Request::append(byte),
                (1, _) => Request::write(8 + number, byte),
                (_, 0) => Request::sync(),
                (_, _) => Request::write(8 + number, byte),
            })
        };
        let ids: Vec<_> = (0..depth).map(|number| submit(number).unwrap()).collect();
        gate.0.await_waiting(1);
        // Some of them in between, from behind; the order of the others stands.
        let cancelled = (0..depth).rev().filter(|number| number % 8 == 4);
        let cancelled = cancelled.map(|number| queue.cancel(ids[number as usize]).unwrap());
        let cancelled = cancelled.count() as u64;
        gate.0.open();
        let all = collect(&queue, depth as usize);
        let done = all.values().filter(|one| one.result.is_ok());
        assert_eq!(done.count() as u64, depth - cancelled);
        let bytes = file.bytes.lock().unwrap();
        match kind {
            0 => {
                let kept = (0..depth).filter(|number| number % 8 != 4);
                assert!(
                    bytes[8..]
                        .iter()
                        .copied()
                        .eq(kept.map(|number| number as u8))
                );
            }
            _ => assert_eq!(bytes.len() as u64, 8 + depth),
        }
    }
}
