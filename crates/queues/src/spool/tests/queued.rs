//! Queues with a spool, on a machine that fails, and what differs from other queues.

use super::protocol::{Operation, contents, replay};
use super::*;
use crate::request::{Closing, Request, RequestId};
use crate::{QueueOptions, Queues};
use std::num::NonZeroUsize;
use std::time::Duration;

/// A write of eight bytes, of a file and a place there.
type Cell = (usize, u64, [u8; 8]);

fn until_it_fails(seed: u64, memory: Memory, steps: u64) -> bool {
    const THREADS: u64 = 3;
    const CELLS: u64 = 6;
    let machine = Machine::new(seed, memory);
    let spool = Arc::new(Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap());
    machine.lock().unwrap().left = steps;
    let queues = Queues::with_workers(NonZeroUsize::new(2).unwrap());
    let one = |thread: u64| {
        let mut random = Random::new(seed << 8 | thread);
        let opened = (0..FILES).map(|file| {
            let name = format!("file {file}");
            let options = QueueOptions::default();
            queues.open_spooled(target(&machine, 1 + file), options, &spool, name.as_bytes())
        });
        let opened: Vec<_> = opened.map(Result::unwrap).collect();
        let mut kept: Vec<(RequestId, Cell)> = Vec::new();
        for number in 1..=60_u64 {
            let file = random.below(FILES as u64) as usize;
            let cell = (
                file,
                random.below(CELLS) * 8,
                (number << 8 | thread).to_le_bytes(),
            );
            loop {
                match opened[file].submit(Request::write(cell.1, cell.2)) {
                    Ok(id) => {
                        kept.push((id, cell));
                        break;
                    }
                    Err(refused) if refused.errno == Errno::AGAIN => _ = opened[file].wait(1, None),
                    Err(refused) => {
                        assert_eq!(refused.errno, Errno::IO);
                        return (kept, Some(cell));
                    }
                }
            }
            if random.below(8) == 0 {
                opened[file].wait(1, None);
            }
        }
        (kept, None)
    };
    let told: Vec<_> = std::thread::scope(|scope| {
        let one = &one;
        let running: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        running
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    drop(queues);
    drop(spool);
    let has_failed = machine.lock().unwrap().has_failed;
    restart(&machine, u64::MAX);
    let told_of = format!("seed {seed}, {memory:?}, {steps} steps");
    replay(&machine).unwrap_or_else(|errno| panic!("{told_of}: {errno}"));
    let there = contents(&machine);
    let mut kept: Vec<_> = told.iter().flat_map(|(kept, _)| kept).collect();
    kept.sort();
    let in_flight: Vec<_> = told.iter().filter_map(|(_, cell)| *cell).collect();
    for (file, at) in (0..FILES).flat_map(|file| (0..CELLS).map(move |cell| (file, cell * 8))) {
        let mut bytes = [0; 8];
        let stands = there[file].get(at as usize..).unwrap_or_default();
        let length = stands.len().min(8);
        bytes[..length].copy_from_slice(&stands[..length]);
        let last = kept
            .iter()
            .rev()
            .find(|(_, cell)| (cell.0, cell.1) == (file, at));
        let is_last = bytes == last.map_or([0; 8], |(_, cell)| cell.2);
        // What was in flight has stayed, or not.
        let is_in_flight = in_flight.contains(&(file, at, bytes));
        assert!(
            is_last || is_in_flight,
            "{told_of}: file {file}, {at}: {bytes:?}, not {last:?}"
        );
    }
    has_failed
}

/// Threads that queue on two files, workers, and a machine that fails at some moment.
#[test]
fn what_threads_queue_survives() {
    let mut failed = 0;
    for seed in 0..400 {
        let memory = [Memory::Durable, Memory::Cached][seed as usize % 2];
        failed += u32::from(until_it_fails(seed, memory, Random::new(seed).below(700)));
    }
    assert!(failed > 200, "{failed}");
}

#[test]
fn a_spooled_queue_is_a_queue() {
    let machine = Machine::new(1, Memory::Durable);
    let spool = Arc::new(Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap());
    let queues = Queues::with_workers(NonZeroUsize::MIN);
    let options = QueueOptions {
        depth: 4,
        ..QueueOptions::default()
    };
    let own = queues.open_spooled(target(&machine, SPOOL), options, &spool, b"spool");
    assert_eq!(own.err(), Some(Errno::INVAL));
    let long = vec![b'a'; Spool::NAME_MAX + 1];
    let named = queues.open_spooled(target(&machine, 1), options, &spool, &long);
    assert_eq!(named.err(), Some(Errno::NAMETOOLONG));
    let queue = queues
        .open_spooled(target(&machine, 1), options, &spool, b"file 0")
        .unwrap();
    let plain = queues.open(target(&machine, 1), options).unwrap();
    let late = Request::write(0, b"late").within(Duration::from_secs(1));
    assert_eq!(queue.submit(late).unwrap_err().errno, Errno::INVAL);
    let too_long = Request::write(0, vec![1; Spool::SIZE_MIN as usize]);
    assert_eq!(queue.submit(too_long).unwrap_err().errno, Errno::MSGSIZE);
    assert_eq!(queue.count(), (0, 0));
    let first = queue.submit(Request::write(0, b"first")).unwrap();
    let append = queue.submit(Request::append(b" and more")).unwrap();
    let read = plain.submit(Request::read(0, 20)).unwrap();
    assert!(matches!(
        queue.cancel(first),
        Err(Errno::ALREADY | Errno::NOENT)
    ));
    let done = plain.wait(1, None);
    assert_eq!(
        (done[0].id, &done[0].buffer[..14]),
        (read, &b"first and more"[..])
    );
    let done = queue.wait(2, None);
    assert_eq!(done[0].result, Ok(5));
    assert_eq!(
        (done[1].id, done[1].result, done[1].end),
        (append, Ok(9), Some(14))
    );
    assert!(spool.is_empty());
    // A full queue refuses before it spools; nothing and syncs are not spooled.
    for number in 0..4 {
        queue.submit(Request::write(number, b"")).unwrap();
    }
    assert_eq!(
        queue.submit(Request::write(0, b"a")).unwrap_err().errno,
        Errno::AGAIN
    );
    assert_eq!(queue.wait(4, None).len(), 4);
    queue.submit(Request::sync()).unwrap();
    queue.submit(Request::write(0, b"F")).unwrap();
    // What is spooled is done, however the queue is closed.
    queue.close(Closing::Cancel);
    let done = queue.reap(9);
    assert_eq!(done.last().unwrap().result, Ok(1));
    assert_eq!(
        queue.submit(Request::write(0, b"a")).unwrap_err().errno,
        Errno::BADF
    );
    assert_eq!(contents(&machine)[0], b"First and more");
    assert!(spool.is_empty());
    drop((queue, plain, spool));
    let spool = Arc::new(Spool::open(target(&machine, SPOOL)).unwrap());
    assert_eq!(spool.left(), Ok(Vec::new()));
}

/// A file's sync fails once, or that of the spool: whoever is told that something is done finds it after a crash, whatever came later.
#[test]
fn what_completes_behind_a_failure_stays() {
    for (file, failure) in [
        (1, Failure::Fails),
        (1, Failure::Panics),
        (SPOOL, Failure::Fails),
        (SPOOL, Failure::Panics),
    ] {
        let told = format!("file {file} {failure:?}");
        let machine = Machine::new(1, Memory::Cached);
        let spool = Arc::new(Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap());
        let queues = Queues::with_workers(NonZeroUsize::MIN);
        let open = || {
            let options = QueueOptions::default();
            queues.open_spooled(target(&machine, 1), options, &spool, b"file 0")
        };
        let queue = open().unwrap();
        machine.lock().unwrap().fails_once = Some((file, failure));
        let mut expected = Vec::new();
        for text in [b"first", b"later"] {
            // Refused, or told in its completion.
            let Ok(_) = queue.submit(Request::write(0, text)) else {
                continue;
            };
            // It is not durable, or not marked.
            assert!(queue.wait(1, None)[0].result.is_err(), "{told}");
            expected = text.to_vec();
        }
        assert!(queue.submit(Request::write(0, b"last")).is_err(), "{told}");
        drop((queue, spool, queues));
        if file == SPOOL {
            // What was refused was made none, as far as that could be: the program comes up again, and the machine has not failed.
            let spool = Spool::open(target(&machine, SPOOL)).unwrap();
            assert_eq!(spool.left(), Ok(Vec::new()), "{told}");
        }
        restart(&machine, u64::MAX);
        replay(&machine).unwrap_or_else(|errno| panic!("{told}: {errno}"));
        let there = contents(&machine)[0].clone();
        // What was promised is there, though it has failed; what was refused may be there or not.
        assert!(
            expected.is_empty() || there == expected,
            "{told}: {there:?}"
        );
        assert_ne!(there, b"last", "{told}");
    }
}

/// What its file refuses for ever is dropped, and what follows is done.
#[test]
fn what_is_refused_for_ever_holds_up_nothing() {
    let machine = Machine::new(1, Memory::Durable);
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    let kept = |file: usize| Operation {
        file,
        position: Some(0),
        bytes: b"kept".to_vec(),
    };
    kept(0).keep(&spool).unwrap();
    kept(1).keep(&spool).unwrap();
    drop(spool);
    for (errno, replayed) in [(Errno::NOSPC, Err(Errno::NOSPC)), (Errno::FBIG, Ok((1, 1)))] {
        let spool = Spool::open(target(&machine, SPOOL)).unwrap();
        let done = spool.replay(|left| {
            Ok(Some(match left.file.inode {
                1 => Arc::new(Refusing(errno)),
                _ => target(&machine, 2),
            }))
        });
        let done = done.map(|done| (done.requests, done.dropped));
        assert_eq!(done, replayed, "{errno}");
    }
    assert_eq!(contents(&machine)[1], b"kept");
}

/// What is more than this process may write stays for one that may write more.
#[test]
fn what_is_over_a_limit_is_not_dropped() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    const LIMIT: u64 = 1 << 40;
    let machine = Machine::new(1, Memory::Durable);
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    let kept = Operation {
        file: 0,
        position: Some(LIMIT - 3),
        bytes: b"kept".to_vec(),
    };
    kept.keep(&spool).unwrap();
    drop(spool);
    let spool = Spool::open(target(&machine, SPOOL)).unwrap();
    let replay = || spool.replay(|_| Ok(Some(Arc::new(Refusing(Errno::FBIG)))));
    let before = getrlimit(Resource::Fsize);
    let mut low = before;
    low.current = Some(LIMIT);
    setrlimit(Resource::Fsize, low).unwrap();
    let under_limit = replay();
    setrlimit(Resource::Fsize, before).unwrap();
    assert_eq!(under_limit, Err(Errno::FBIG));
    assert_eq!(spool.left().unwrap().len(), 1);
    assert_eq!(replay().unwrap().dropped, 1);
}

struct Refusing(Errno);

impl Target for Refusing {
    fn identity(&self) -> FileIdentity {
        FileIdentity {
            device: 1,
            inode: 1,
        }
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(0)
    }
    fn read(&self, _: &mut [u8], _: u64) -> Result<usize, Errno> {
        Ok(0)
    }
    fn write(&self, _: &[u8], _: u64) -> Result<usize, Errno> {
        Err(self.0)
    }
    fn append(&self, _: &[u8]) -> Result<(usize, u64), Errno> {
        Err(self.0)
    }
    fn sync(&self, _: bool) -> Result<(), Errno> {
        Ok(())
    }
}

/// A machine that fails while a spool is made: it is made again, and never has to be taken away by hand.
#[test]
fn one_that_was_being_made_is_made_again() {
    let mut made = 0;
    for memory in [Memory::Durable, Memory::Cached] {
        for steps in 0..8 {
            let machine = Machine::new(steps + 1, memory);
            machine.lock().unwrap().left = steps;
            let first = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN);
            made += u32::from(first.is_err());
            drop(first);
            restart(&machine, u64::MAX);
            let again = Spool::open_or_make(target(&machine, SPOOL), Spool::SIZE_MIN);
            assert!(again.is_ok(), "{memory:?}, {steps} steps: {again:?}");
        }
    }
    assert!(made > 4, "{made}");
}

#[test]
fn what_is_left_is_replayed_before_anything_else_is_queued() {
    let machine = Machine::new(1, Memory::Durable);
    let spool = Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap();
    let kept = Operation {
        file: 0,
        position: None,
        bytes: b"kept".to_vec(),
    };
    kept.keep(&spool).unwrap();
    drop(spool);
    let spool = Arc::new(Spool::open(target(&machine, SPOOL)).unwrap());
    let queues = Queues::with_workers(NonZeroUsize::MIN);
    let open = || {
        queues.open_spooled(
            target(&machine, 1),
            QueueOptions::default(),
            &spool,
            b"file 0",
        )
    };
    assert_eq!(open().err(), Some(Errno::BUSY));
    assert_eq!(spool.left().unwrap()[0].length, 4);
    let replay = || {
        spool
            .replay(|_| Ok(Some(target(&machine, 1))))
            .unwrap()
            .requests
    };
    assert_eq!(replay(), 1);
    let queue = open().unwrap();
    queue.submit(Request::append(b" too")).unwrap();
    // What is queued is not replayed beside its queue.
    assert_eq!(replay(), 0);
    queue.close(Closing::Finish);
    assert_eq!(contents(&machine)[0], b"kept too");
}

/// One thread that appends, workers, and a machine that fails at some moment: each record is there once.
#[test]
fn appends_that_are_queued_survive_once() {
    let mut failed = 0;
    for seed in 0..400 {
        let memory = [Memory::Durable, Memory::Cached][seed as usize % 2];
        let steps = Random::new(seed).below(400);
        let machine = Machine::new(seed, memory);
        let spool = Arc::new(Spool::make(target(&machine, SPOOL), Spool::SIZE_MIN).unwrap());
        machine.lock().unwrap().left = steps;
        let queues = Queues::with_workers(NonZeroUsize::MIN);
        let queue = queues.open_spooled(
            target(&machine, 1),
            QueueOptions::default(),
            &spool,
            b"file 0",
        );
        let queue = queue.unwrap();
        let (mut kept, mut in_flight) = (Vec::new(), Vec::new());
        for number in 1..=60_u64 {
            let bytes = (number << 32 | seed << 8 | 1).to_le_bytes().repeat(2);
            match queue.submit(Request::append(bytes.clone())) {
                Ok(_) => kept.extend(bytes),
                Err(_) => {
                    in_flight = bytes;
                    break;
                }
            }
            if number % 8 == 0 {
                queue.wait(1, None);
            }
        }
        drop((queue, queues, spool));
        failed += u32::from(machine.lock().unwrap().has_failed);
        restart(&machine, u64::MAX);
        let told = format!("seed {seed}, {memory:?}, {steps} steps");
        replay(&machine).unwrap_or_else(|errno| panic!("{told}: {errno}"));
        let there = &contents(&machine)[0];
        let with_last: Vec<u8> = kept.iter().chain(&in_flight).copied().collect();
        assert!(
            *there == kept || *there == with_last,
            "{told}: {} {}",
            there.len(),
            kept.len()
        );
    }
    assert!(failed > 200, "{failed}");
}
