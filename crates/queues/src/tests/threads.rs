//! Threads that submit, cancel and reap at once, on queues of two files, beside the oracle; targets take a random while.

use super::Random;
use super::oracle::{Ending, History, InMemory, Several};
use crate::request::{Closing, Operation, Request};
use crate::{Errno, FileIdentity, QueueOptions, Queues};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LENGTH: u64 = 64;

fn operation(random: &mut Random, stamp: u8) -> Operation {
    let position = random.below(LENGTH) / 8 * 8;
    let length = 8 * (1 + random.below(3)) as usize;
    match random.below(20) {
        0..9 => Operation::Write {
            position,
            bytes: vec![stamp; length],
        },
        9..18 => Operation::Read {
            position,
            buffer: vec![0; length],
        },
        18 => Operation::Append {
            bytes: vec![stamp; length],
        },
        _ => Operation::Sync { data_only: true },
    }
}

fn one(seed: u64, fails: bool) {
    const FILES: usize = 2;
    const THREADS: u64 = 4;
    let calls = Arc::new(AtomicU64::new(seed));
    let files: Vec<Arc<InMemory>> = (0..FILES)
        .map(|_| {
            let calls = Arc::clone(&calls);
            Arc::new(InMemory::new(vec![b'.'; LENGTH as usize], move || {
                let call = calls.fetch_add(1, Ordering::Relaxed);
                let mut random = Random::new(call);
                match random.below(40) {
                    0 => std::thread::sleep(Duration::from_micros(200)),
                    1..10 => std::thread::yield_now(),
                    10 if fails => return Ending::Fails,
                    11 if fails => return Ending::Short,
                    12 if fails => std::panic::panic_any(()),
                    _ => {}
                }
                Ending::Well
            }))
        })
        .collect();
    let workers = 1 + seed as usize % 3;
    let queues = Queues::with_workers(NonZeroUsize::new(workers).unwrap());
    let histories: Vec<Mutex<History>> = (0..FILES).map(|_| Mutex::default()).collect();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (queues, histories, files) = (&queues, &histories, &files);
            scope.spawn(move || {
                let mut random = Random::new(seed * 100 + thread);
                let at = thread as usize % FILES;
                let options = QueueOptions {
                    depth: 16,
                    weight: 1 + thread as u32,
                };
                let target = Several {
                    file: Arc::clone(&files[at]),
                    identity: FileIdentity {
                        device: 0,
                        inode: at as u64,
                    },
                    in_flight: 1 + (seed as usize / 3) % 3,
                    begun: AtomicU64::default(),
                };
                let queue = queues.open(Arc::new(target), options).unwrap();
                let mut last = None;
                for stamp in 0..150 {
                    let operation = operation(&mut random, (thread * 50 + stamp % 50) as u8);
                    let mut request = Request::from(operation.clone());
                    request.urgent = random.below(6) == 0;
                    if random.below(10) == 0 {
                        request.deadline = Some(Duration::from_micros(random.below(300)));
                    }
                    match queue.submit(request) {
                        Ok(id) => {
                            last = Some(id);
                            let mut history = histories[at].lock().unwrap();
                            history.submitted.insert(id, operation);
                        }
                        Err(refused) => assert_eq!(refused.errno, Errno::AGAIN),
                    }
                    let reaped = match random.below(12) {
                        0 => queue.wait(4, None),
                        1 => queue.wait(2, Some(Duration::from_micros(50))),
                        2..6 => queue.reap(3),
                        6 => {
                            let _ = last.map(|last| queue.cancel(last));
                            Vec::new()
                        }
                        _ => Vec::new(),
                    };
                    histories[at].lock().unwrap().complete(reaped).unwrap();
                }
                queue.close(match random.below(2) {
                    0 => Closing::Finish,
                    _ => Closing::Cancel,
                });
                let rest = queue.reap(usize::MAX);
                histories[at].lock().unwrap().complete(rest).unwrap();
            });
        }
    });
    for (history, file) in histories.into_iter().zip(files) {
        let last = file.bytes.lock().unwrap().clone();
        let first = vec![b'.'; LENGTH as usize];
        let checked = history.into_inner().unwrap().check(first, &last);
        checked.unwrap_or_else(|error| panic!("seed {seed}, failures: {fails}: {error}"));
    }
    let counters = queues.counters();
    assert_eq!(counters.submitted, counters.completed);
    assert!(
        counters.served > 0 && counters.submitted > 100,
        "{counters:?}"
    );
}

#[test]
fn threads_beside_the_oracle() {
    std::panic::set_hook(Box::new(|info| {
        // Those of targets are on purpose.
        if !info.payload().is::<()>() {
            eprintln!("{info}");
        }
    }));
    let first = std::env::var("ARCK_QUEUES_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("seeds from {first} on");
    for seed in first..first + 40 {
        one(seed, false);
        one(seed, true);
    }
}
