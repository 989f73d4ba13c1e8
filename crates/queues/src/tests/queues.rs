//! Queues with their threads: one idea each, and what callers do wrong.

use super::oracle::{Ending, FILE, InMemory};
use crate::request::{Closing, Completion, Operation, Request, RequestId};
use crate::{Access, Errno, FileIdentity, Queue, QueueOptions, Queues, Target};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

pub const LONG: Duration = Duration::from_secs(60);

/// A gate that calls of a target wait at.
#[derive(Default)]
pub struct Gate {
    is_open: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    pub fn pass(&self) {
        let mut is_open = self.is_open.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while !*is_open {
            let (woken, late) = self.changed.wait_timeout(is_open, LONG).unwrap();
            assert!(!late.timed_out(), "nobody has opened the gate");
            is_open = woken;
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    pub fn open(&self) {
        *self.is_open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    pub fn await_waiting(&self, count: usize) {
        while self.waiting.load(Ordering::SeqCst) < count {
            std::thread::yield_now();
        }
    }
}

/// Opens its gate when it goes, so that a test that fails does not hang.
pub struct Opens(pub Arc<Gate>);

impl Drop for Opens {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A file of so many bytes, whose calls wait at a gate.
pub fn gated(length: usize) -> (Arc<InMemory>, Opens) {
    let gate = Arc::new(Gate::default());
    let at = Arc::clone(&gate);
    let file = InMemory::new(vec![b'.'; length], move || {
        at.pass();
        Ending::Well
    });
    (Arc::new(file), Opens(gate))
}

pub fn queues(workers: usize) -> Queues {
    Queues::with_workers(NonZeroUsize::new(workers).unwrap())
}

pub fn options(depth: usize) -> QueueOptions {
    QueueOptions {
        depth,
        ..QueueOptions::default()
    }
}

pub fn by_id(completions: Vec<Completion>) -> BTreeMap<RequestId, Completion> {
    let each = completions.into_iter().map(|one| (one.id, one));
    each.collect()
}

pub fn collect(queue: &Queue, count: usize) -> BTreeMap<RequestId, Completion> {
    let mut all = BTreeMap::new();
    while all.len() < count {
        let some = queue.wait(1, Some(LONG));
        assert!(!some.is_empty(), "{} of {count}", all.len());
        all.extend(by_id(some));
    }
    all
}

#[test]
fn each_kind_of_request_is_done() {
    let queues = queues(2);
    let file = Arc::new(InMemory::quiet(b"0123456789".to_vec()));
    let queue = queues.open(file.clone(), options(16)).unwrap();
    let write = queue.submit(Request::write(2, b"ab")).unwrap();
    let append = queue.submit(Request::append(b"xyz")).unwrap();
    let sync = queue.submit(Request::sync()).unwrap();
    let read = queue.submit(Request::read(0, 20)).unwrap();
    let data = queue.submit(Request::sync_data()).unwrap();
    let nothing = queue.submit(Request::read(3, 0)).unwrap();
    let all = collect(&queue, 6);
    assert_eq!(all[&write].result, Ok(2));
    assert_eq!(all[&write].buffer, b"ab");
    assert_eq!((all[&append].result, all[&append].end), (Ok(3), Some(13)));
    assert_eq!(all[&append].buffer, b"xyz");
    assert_eq!((all[&sync].result, all[&data].result), (Ok(0), Ok(0)));
    assert_eq!(all[&read].result, Ok(13));
    assert_eq!(&all[&read].buffer[..13], b"01ab456789xyz");
    assert_eq!(all[&nothing].result, Ok(0));
    assert!(write < append && append < sync && sync < read);
    let counters = queues.counters();
    assert_eq!((counters.submitted, counters.completed), (6, 6));
}

#[test]
fn a_full_queue_refuses_and_gives_the_request_back() {
    let queues = queues(1);
    let (file, gate) = gated(100);
    let queue = queues.open(file, options(3)).unwrap();
    for position in 0..3 {
        queue
            .submit(Request::write(position * 8, b"12345678"))
            .unwrap();
    }
    let refused = queue.submit(Request::write(50, b"bytes")).unwrap_err();
    assert_eq!(refused.errno, Errno::AGAIN);
    let bytes = b"bytes".to_vec();
    let position = 50;
    assert_eq!(
        refused.request.operation,
        Operation::Write { position, bytes }
    );
    gate.0.open();
    // What has completed takes its place until it is reaped.
    while queue.count().0 > 0 {
        std::thread::yield_now();
    }
    assert_eq!(
        queue.submit(Request::sync()).unwrap_err().errno,
        Errno::AGAIN
    );
    assert_eq!(queue.reap(1).len(), 1);
    queue.submit(refused.request).unwrap();
    assert_eq!(collect(&queue, 3).len(), 3);
}

#[test]
fn what_makes_no_sense_is_refused() {
    struct OneWay(Access);
    impl Target for OneWay {
        fn identity(&self) -> FileIdentity {
            FILE
        }
        fn access(&self) -> Access {
            self.0
        }
        fn size(&self) -> Result<u64, Errno> {
            Ok(0)
        }
        fn read(&self, _: &mut [u8], _: u64) -> Result<usize, Errno> {
            panic!("it was not opened to read")
        }
        fn write(&self, _: &[u8], _: u64) -> Result<usize, Errno> {
            panic!("it was not opened to write")
        }
        fn append(&self, _: &[u8]) -> Result<(usize, u64), Errno> {
            panic!("it was not opened to write")
        }
        fn sync(&self, _: bool) -> Result<(), Errno> {
            Ok(())
        }
    }
    let queues = queues(1);
    for (depth, weight) in [
        (0, 1),
        (1, 0),
        (QueueOptions::DEPTH_MAX + 1, 1),
        (1, QueueOptions::WEIGHT_MAX + 1),
    ] {
        let file = Arc::new(InMemory::quiet(Vec::new()));
        let opened = queues.open(file, QueueOptions { depth, weight });
        assert_eq!(opened.err(), Some(Errno::INVAL), "{depth} {weight}");
    }
    let open = |read, write| {
        let target = Arc::new(OneWay(Access { read, write }));
        queues.open(target, options(8)).unwrap()
    };
    let errno = |queue: &Queue, request| queue.submit(request).unwrap_err().errno;
    let (reads, writes) = (open(true, false), open(false, true));
    assert_eq!(errno(&writes, Request::read(0, 4)), Errno::BADF);
    assert_eq!(errno(&reads, Request::write(0, b"1")), Errno::BADF);
    assert_eq!(errno(&reads, Request::append(b"1")), Errno::BADF);
    let last = i64::MAX as u64;
    for position in [last - 3, last, last + 1, u64::MAX - 2, u64::MAX] {
        assert_eq!(errno(&reads, Request::read(position, 4)), Errno::INVAL);
        assert_eq!(
            errno(&writes, Request::write(position, b"1234")),
            Errno::INVAL
        );
    }
    reads.submit(Request::sync()).unwrap();
    assert_eq!(collect(&reads, 1).len(), 1);
    assert_eq!(queues.counters().submitted, 1);
}

/// Served at once, although the write has not even ended.
#[test]
fn a_read_is_served_from_a_write_that_runs_or_waits() {
    let queues = queues(1);
    let (file, gate) = gated(32);
    let queue = queues.open(file.clone(), options(16)).unwrap();
    let other = queues.open(file.clone(), options(16)).unwrap();
    let running = queue.submit(Request::write(0, b"aaaaaaaa")).unwrap();
    gate.0.await_waiting(1);
    let waiting = queue.submit(Request::write(8, b"bbbbbbbb")).unwrap();
    let one = other.submit(Request::read(2, 4)).unwrap();
    let two = other.submit(Request::read(8, 8)).unwrap();
    let both = by_id(other.reap(9));
    assert_eq!(
        (&both[&one].buffer[..], both[&one].served_by),
        (&b"aaaa"[..], Some(running))
    );
    assert_eq!(
        (&both[&two].buffer[..], both[&two].served_by),
        (&b"bbbbbbbb"[..], Some(waiting))
    );
    // It was seen: it is done.
    assert_eq!(queue.cancel(waiting), Err(Errno::ALREADY));
    // Of both: it waits.
    let three = other.submit(Request::read(4, 8)).unwrap();
    assert!(other.reap(9).is_empty());
    queue.submit(Request::write(10, b"c")).unwrap();
    gate.0.open();
    let three = collect(&other, 1).remove(&three).unwrap();
    assert_eq!(
        (&three.buffer[..], three.served_by),
        (&b"aaaabbbb"[..], None)
    );
    assert_eq!(collect(&queue, 3).len(), 3);
    assert_eq!(&file.bytes.lock().unwrap()[..16], b"aaaaaaaabbcbbbbb");
    assert_eq!(queues.counters().served, 2);
}

#[test]
fn a_covered_write_is_not_done() {
    let queues = queues(1);
    let (file, gate) = gated(32);
    let queue = queues.open(file.clone(), options(16)).unwrap();
    queue.submit(Request::write(24, b"first")).unwrap();
    gate.0.await_waiting(1);
    let covered = queue.submit(Request::write(2, b"bb")).unwrap();
    let covering = queue.submit(Request::write(0, b"cccccccc")).unwrap();
    // A barrier lies between: it is done.
    let done = queue.submit(Request::write(16, b"dd")).unwrap();
    queue.submit(Request::sync()).unwrap();
    queue.submit(Request::write(16, b"eeee")).unwrap();
    assert!(queue.reap(9).is_empty());
    gate.0.open();
    let all = collect(&queue, 6);
    assert_eq!(
        (all[&covered].result, all[&covered].covered_by),
        (Ok(2), Some(covering))
    );
    assert_eq!(all[&covered].buffer, b"bb");
    assert_eq!((all[&done].result, all[&done].covered_by), (Ok(2), None));
    assert_eq!(queues.counters().covered, 1);
    assert_eq!(&file.bytes.lock().unwrap()[..8], b"cccccccc");
}

/// And no further than the later one has written.
#[test]
fn a_covered_write_is_done_where_the_later_one_is_not() {
    for (ending, expected) in [(Ending::Fails, b"..bbbb.."), (Ending::Short, b"ccccbb..")] {
        let queues = queues(1);
        let gate = Arc::new(Gate::default());
        let _opens = Opens(Arc::clone(&gate));
        let (at, calls) = (Arc::clone(&gate), AtomicUsize::new(0));
        let file = Arc::new(InMemory::new(vec![b'.'; 8], move || {
            at.pass();
            // The second is the later one.
            match calls.fetch_add(1, Ordering::SeqCst) {
                1 => ending,
                _ => Ending::Well,
            }
        }));
        let queue = queues.open(file.clone(), options(16)).unwrap();
        queue.submit(Request::sync()).unwrap();
        gate.await_waiting(1);
        let covered = queue.submit(Request::write(2, b"bbbb")).unwrap();
        let covering = queue.submit(Request::write(0, b"cccccccc")).unwrap();
        gate.open();
        let all = collect(&queue, 3);
        assert_eq!(
            (all[&covered].result, all[&covered].covered_by),
            (Ok(4), None)
        );
        match ending {
            Ending::Fails => assert_eq!(all[&covering].result, Err(Errno::NOSPC)),
            _ => assert_eq!(all[&covering].result, Ok(4)),
        }
        assert_eq!(&file.bytes.lock().unwrap()[..], expected);
    }
}

#[test]
fn what_has_not_begun_is_cancelled() {
    let queues = queues(1);
    let (file, gate) = gated(32);
    let queue = queues.open(file.clone(), options(16)).unwrap();
    let other = queues.open(file.clone(), options(16)).unwrap();
    let running = queue.submit(Request::write(0, b"aa")).unwrap();
    gate.0.await_waiting(1);
    let covered = queue.submit(Request::write(4, b"bb")).unwrap();
    let covering = queue.submit(Request::write(4, b"cc")).unwrap();
    let third = queue.submit(Request::write(4, b"dd")).unwrap();
    assert_eq!(queue.cancel(running), Err(Errno::ALREADY));
    assert_eq!(other.cancel(covering), Err(Errno::NOENT));
    // What it covered is covered by the third.
    assert_eq!(queue.cancel(covering), Ok(()));
    assert_eq!(queue.cancel(covering), Err(Errno::NOENT));
    let cancelled = &queue.reap(9)[0];
    assert_eq!(
        (cancelled.id, cancelled.result),
        (covering, Err(Errno::CANCELED))
    );
    assert_eq!(cancelled.buffer, b"cc");
    // And is done when that is gone, too.
    assert_eq!(queue.cancel(third), Ok(()));
    gate.0.open();
    let all = collect(&queue, 3);
    assert_eq!(
        (all[&covered].result, all[&covered].covered_by),
        (Ok(2), None)
    );
    assert_eq!(&file.bytes.lock().unwrap()[..6], b"aa..bb");
    assert_eq!(queue.cancel(covered), Err(Errno::NOENT));
    assert_eq!(queue.cancel(RequestId(999)), Err(Errno::NOENT));
    assert_eq!(queues.counters().cancelled, 2);
}

/// Noticed while it waits for another one, whose call is underway for long.
#[test]
fn what_is_late_is_not_begun() {
    let queues = queues(2);
    let (file, gate) = gated(32);
    let queue = queues.open(file.clone(), options(16)).unwrap();
    queue.submit(Request::write(0, b"aaaa")).unwrap();
    gate.0.await_waiting(1);
    let soon = Duration::from_millis(5);
    let read = queue.submit(Request::read(2, 4).within(soon)).unwrap();
    let write = queue
        .submit(Request::write(2, b"bbbb").within(soon))
        .unwrap();
    let in_time = queue
        .submit(Request::write(3, b"cccc").within(LONG))
        .unwrap();
    let all = collect(&queue, 2);
    for late in [read, write] {
        assert_eq!(all[&late].result, Err(Errno::TIMEDOUT));
        assert_eq!(all[&late].buffer.len(), 4);
    }
    gate.0.open();
    let all = collect(&queue, 2);
    assert_eq!(all[&in_time].result, Ok(4));
    assert_eq!(&file.bytes.lock().unwrap()[..7], b"aaacccc");
    assert_eq!(queues.counters().timed_out, 2);
    // Longer than clocks tell.
    queue
        .submit(Request::read(0, 1).within(Duration::MAX))
        .unwrap();
    assert_eq!(queue.wait(1, Some(Duration::MAX)).len(), 1);
}

/// By a worker, where nobody calls.
#[test]
fn what_is_late_is_noticed_by_workers() {
    let queues = queues(2);
    let (file, gate) = gated(32);
    let queue = queues.open(file, options(16)).unwrap();
    let readiness = queue.readiness().unwrap();
    queue.submit(Request::write(0, b"aaaa")).unwrap();
    gate.0.await_waiting(1);
    // The other one sleeps by now, most likely.
    std::thread::sleep(Duration::from_millis(20));
    let late = Request::read(2, 4).within(Duration::from_millis(5));
    queue.submit(late).unwrap();
    assert!(is_ready(&readiness, LONG));
    assert_eq!(queue.reap(1)[0].result, Err(Errno::TIMEDOUT));
    gate.0.open();
}

#[test]
fn a_queue_that_is_closed_finishes_or_cancels() {
    for closing in [Closing::Finish, Closing::Cancel] {
        let queues = queues(1);
        let (file, gate) = gated(32);
        let queue = queues.open(file.clone(), options(16)).unwrap();
        queue.submit(Request::write(0, b"aa")).unwrap();
        gate.0.await_waiting(1);
        for position in [0, 8, 16] {
            queue.submit(Request::write(position, b"b")).unwrap();
        }
        let closed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                queue.close(closing);
                closed.store(true, Ordering::SeqCst);
            });
            loop {
                match queue.submit(Request::read(31, 1)) {
                    Ok(_) => std::thread::yield_now(),
                    Err(refused) if refused.errno == Errno::AGAIN => std::thread::yield_now(),
                    Err(refused) => break assert_eq!(refused.errno, Errno::BADF),
                }
            }
            assert!(!closed.load(Ordering::SeqCst));
            gate.0.open();
        });
        assert_eq!(queue.count().0, 0);
        let all = queue.reap(usize::MAX);
        let cancelled = all.iter().filter(|one| one.result == Err(Errno::CANCELED));
        let expected: &[u8] = match closing {
            Closing::Finish => {
                assert_eq!(cancelled.count(), 0);
                b"ba......b......."
            }
            Closing::Cancel => {
                assert!(cancelled.count() >= 3);
                b"aa.............."
            }
        };
        assert_eq!(&file.bytes.lock().unwrap()[..16], expected);
    }
}

#[test]
fn what_is_dropped_cancels_and_waits() {
    for all in [false, true] {
        let queues = queues(2);
        let (file, gate) = gated(32);
        let queue = queues.open(file.clone(), options(16)).unwrap();
        let other = queues.open(file.clone(), options(16)).unwrap();
        queue.submit(Request::write(0, b"aa")).unwrap();
        gate.0.await_waiting(1);
        queue.submit(Request::write(0, b"bbbb")).unwrap();
        // Seen: it is done.
        queue.submit(Request::write(1, b"c")).unwrap();
        other.submit(Request::read(1, 1)).unwrap();
        let opener = Arc::clone(&gate.0);
        let opening = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            opener.open();
        });
        if all {
            drop(queues);
            let errno = |refused: crate::Refused| refused.errno;
            assert_eq!(
                queue.submit(Request::sync()).map_err(errno),
                Err(Errno::BADF)
            );
            assert_eq!(queue.count(), (0, 3));
            assert!(queue.wait(9, None).len() == 3 && queue.wait(1, None).is_empty());
            drop(queue);
        } else {
            drop(queue);
            other.submit(Request::sync()).unwrap();
            assert_eq!(collect(&other, 2).len(), 2);
        }
        opening.join().unwrap();
        assert_eq!(&file.bytes.lock().unwrap()[..5], b"ac...");
        drop(other);
        assert_eq!(Arc::strong_count(&file), 1, "the target is let go");
    }
}

#[test]
fn a_target_that_panics_is_eio_and_hangs_nobody() {
    let queues = queues(1);
    let calls = AtomicUsize::new(0);
    let file = Arc::new(InMemory::new(vec![b'.'; 8], move || {
        match calls.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => panic!("on purpose"),
            _ => Ending::Well,
        }
    }));
    let queue = queues.open(file, options(16)).unwrap();
    for _ in 0..4 {
        let broken = queue.submit(Request::read(0, 8)).unwrap();
        let all = collect(&queue, 1);
        assert_eq!(all[&broken].result, Err(Errno::IO));
        assert_eq!(all[&broken].buffer.len(), 8);
        queue.submit(Request::write(0, b"a")).unwrap();
        assert_eq!(queue.wait(1, None)[0].result, Ok(1));
    }
    assert_eq!(queues.counters().panicked, 4);
}

/// A file that is cut by a plain call has what there is then.
#[test]
fn a_file_is_cut_beneath_its_requests() {
    let queues = queues(1);
    let (file, gate) = gated(32);
    let queue = queues.open(file.clone(), options(16)).unwrap();
    queue.submit(Request::sync()).unwrap();
    gate.0.await_waiting(1);
    let read = queue.submit(Request::read(8, 8)).unwrap();
    let write = queue.submit(Request::write(4, b"w")).unwrap();
    file.bytes.lock().unwrap().truncate(2);
    gate.0.open();
    let all = collect(&queue, 3);
    assert!(matches!(all[&read].result, Ok(0)));
    assert_eq!(all[&write].result, Ok(1));
    assert_eq!(&file.bytes.lock().unwrap()[..], b"..\0\0w");
}

/// A target that says more than it was asked for.
#[test]
fn a_target_that_lies_about_lengths_hurts_nobody() {
    struct Lies;
    impl Target for Lies {
        fn identity(&self) -> FileIdentity {
            FILE
        }
        fn size(&self) -> Result<u64, Errno> {
            Ok(u64::MAX)
        }
        fn read(&self, _: &mut [u8], _: u64) -> Result<usize, Errno> {
            Ok(usize::MAX)
        }
        fn write(&self, _: &[u8], _: u64) -> Result<usize, Errno> {
            Ok(usize::MAX)
        }
        fn append(&self, _: &[u8]) -> Result<(usize, u64), Errno> {
            Ok((usize::MAX, u64::MAX))
        }
        fn sync(&self, _: bool) -> Result<(), Errno> {
            Ok(())
        }
    }
    let queues = queues(1);
    let queue = queues.open(Arc::new(Lies), options(16)).unwrap();
    for request in [
        Request::read(0, 5),
        Request::write(i64::MAX as u64 - 5, b"12345"),
        Request::append(b"12345"),
    ] {
        queue.submit(request).unwrap();
    }
    let all = collect(&queue, 3);
    assert!(all.values().all(|one| one.result == Ok(5)));
}

fn is_ready(readiness: &OwnedFd, within: Duration) -> bool {
    let mut polled = [PollFd::new(readiness, PollFlags::IN)];
    let within = Timespec {
        tv_sec: within.as_secs() as i64,
        tv_nsec: i64::from(within.subsec_nanos()),
    };
    poll(&mut polled, Some(&within)).unwrap() == 1
}

#[test]
fn the_descriptor_is_readable_while_something_can_be_reaped() {
    let queues = queues(1);
    let file = Arc::new(InMemory::quiet(vec![b'.'; 8]));
    let queue = queues.open(file, options(16)).unwrap();
    queue.submit(Request::read(0, 1)).unwrap();
    while queue.count().1 == 0 {
        std::thread::yield_now();
    }
    // Also if it had been there before anybody asked.
    let readiness = queue.readiness().unwrap();
    assert!(Arc::ptr_eq(&readiness, &queue.readiness().unwrap()));
    assert!(is_ready(&readiness, Duration::ZERO));
    assert_eq!(queue.reap(1).len(), 1);
    assert!(!is_ready(&readiness, Duration::ZERO));
    assert!(queue.reap(1).is_empty());
    for _ in 0..100 {
        queue.submit(Request::read(0, 1)).unwrap();
        queue.submit(Request::read(1, 1)).unwrap();
        let mut reaped = 0;
        while reaped < 2 {
            assert!(is_ready(&readiness, LONG));
            reaped += queue.reap(1).len();
        }
        assert!(!is_ready(&readiness, Duration::ZERO));
    }
}

/// So many that a recursion over them would need more stack than there is.
#[test]
fn a_long_chain_of_covered_writes_is_taken_apart() {
    // All of it done, or cancelled from either end.
    for cancels in [None, Some(false), Some(true)] {
        let queues = queues(1);
        let (file, gate) = gated(32);
        let depth = QueueOptions::DEPTH_MAX;
        let queue = queues.open(file.clone(), options(depth)).unwrap();
        queue.submit(Request::sync()).unwrap();
        gate.0.await_waiting(1);
        let writes = (1..depth).map(|number| {
            let write = Request::write(0, vec![number as u8]);
            queue.submit(write).unwrap()
        });
        let mut writes: Vec<_> = writes.collect();
        if let Some(from_behind) = cancels {
            if from_behind {
                writes.reverse();
            }
            writes
                .iter()
                .for_each(|write| queue.cancel(*write).unwrap());
        }
        gate.0.open();
        let all = collect(&queue, depth);
        let covered = all.values().filter(|one| one.covered_by.is_some()).count();
        if cancels.is_none() {
            assert_eq!(covered, depth - 2);
            assert_eq!(file.bytes.lock().unwrap()[0], (depth - 1) as u8);
        } else {
            assert_eq!(covered, 0);
            assert_eq!(file.bytes.lock().unwrap()[0], b'.');
        }
    }
}

#[test]
fn nobody_waits_for_nothing() {
    let queues = queues(1);
    let file = Arc::new(InMemory::quiet(vec![b'.'; 8]));
    let queue = queues.open(file, options(16)).unwrap();
    assert!(queue.wait(3, None).is_empty());
    assert!(queue.wait(0, None).is_empty());
    assert!(queue.reap(0).is_empty());
    queue.submit(Request::read(0, 1)).unwrap();
    // More than ever come.
    assert_eq!(queue.wait(3, None).len(), 1);
    queue.close(Closing::Finish);
    queue.close(Closing::Cancel);
    assert!(queue.wait(1, None).is_empty());
}
