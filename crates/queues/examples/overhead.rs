//! What a request costs beside what it does: one thread, 16 in flight, reads and writes of 4 KiB in turns that do nothing.
//!
//!     cargo run --release -p arck-queues --example overhead

use arck_queues::{Completion, Errno, FileIdentity, Queue, QueueOptions, Queues, Request, Target};
use std::sync::Arc;
use std::time::Instant;

struct Nothing;

impl Target for Nothing {
    fn identity(&self) -> FileIdentity {
        FileIdentity {
            device: 0,
            inode: 0,
        }
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(1 << 30)
    }
    fn read(&self, buffer: &mut [u8], _: u64) -> Result<usize, Errno> {
        Ok(buffer.len())
    }
    fn write(&self, bytes: &[u8], _: u64) -> Result<usize, Errno> {
        Ok(bytes.len())
    }
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        Ok((bytes.len(), 1 << 30))
    }
    fn sync(&self, _: bool) -> Result<(), Errno> {
        Ok(())
    }
}

const TURNS: u64 = 50_000;
const DEPTH: u64 = 16;

/// Nanoseconds that a request costs, where one turn of 16 is done by `turn`.
fn measure(
    queue: &Queue,
    turns: u64,
    turn: impl Fn(&Queue, &mut Vec<Request>) -> Result<Vec<Completion>, Errno>,
) -> Result<f64, Errno> {
    let mut spare = vec![vec![0; 4096]; DEPTH as usize];
    let mut requests = Vec::new();
    let begin = Instant::now();
    for number in 0..turns {
        requests.extend(spare.drain(..).enumerate().map(|(at, buffer)| {
            let position = (number * DEPTH + at as u64) * 7919 % (1 << 18) * 4096;
            match at % 2 {
                0 => Request::read_into(position, buffer),
                _ => Request::write(position, buffer),
            }
        }));
        let done = turn(queue, &mut requests)?;
        spare.extend(done.into_iter().map(|one| one.buffer));
    }
    Ok(begin.elapsed().as_nanos() as f64 / (turns * DEPTH) as f64)
}

fn together(queue: &Queue, requests: &mut Vec<Request>) -> Result<Vec<Completion>, Errno> {
    let (submitted, done) = queue.exchange(requests, DEPTH as usize);
    submitted.refused.map_or(Ok(done), Err)
}

fn one_by_one(queue: &Queue, requests: &mut Vec<Request>) -> Result<Vec<Completion>, Errno> {
    for request in requests.drain(..) {
        queue.submit(request)?;
    }
    Ok(queue.wait(DEPTH as usize, None))
}

/// The same by some threads, each with a queue of the file: nanoseconds of the clock for each request of all.
fn by_threads(queues: &Queues, threads: u32) -> Result<f64, Errno> {
    let begin = Instant::now();
    let done = std::thread::scope(|scope| {
        let one = || {
            let queue = queues.open(Arc::new(Nothing), QueueOptions::default())?;
            measure(&queue, TURNS / u64::from(threads), together)
        };
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        let joined = running
            .into_iter()
            .map(|one| one.join().unwrap_or(Err(Errno::IO)));
        joined.collect::<Result<Vec<f64>, Errno>>()
    });
    let requests = TURNS / u64::from(threads) * u64::from(threads) * DEPTH;
    done.map(|_| begin.elapsed().as_nanos() as f64 / requests as f64)
}

fn main() -> Result<(), Errno> {
    let queues = Queues::new();
    let queue = queues.open(Arc::new(Nothing), QueueOptions::default())?;
    let each = measure(&queue, TURNS, together)?;
    println!("{each:.0} ns a request, exchanged 16 at a time");
    let each = measure(&queue, TURNS, one_by_one)?;
    println!("{each:.0} ns a request, submitted one by one and waited for");
    for threads in [2, 18] {
        let each = by_threads(&queues, threads)?;
        println!("{each:.0} ns a request, exchanged 16 at a time by each of {threads} threads");
    }
    Ok(())
}
