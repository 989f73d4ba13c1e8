//! Clocks, samples, and what is made of them.
//!
//! Invariant: round `i` of one side and round `i` of the other follow each other directly, and
//! which of them is first alternates; ratios are taken inside such pairs.

use crate::outcome::Outcome;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// One timed loop.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Nanoseconds an operation, on the wall clock.
    pub wall: f64,
    /// The same of this thread's processor time: what waits and other processes took is not in
    /// it.
    pub processor: f64,
}

/// Nanoseconds of processor time that all threads of this process have used.
pub fn process_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of processor time this thread has used.
pub fn processor_time() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
}

/// Nanoseconds of CLOCK_MONOTONIC, which all processes see alike.
pub fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Times `body`, which does `operations`.
pub fn timed(operations: u64, body: impl FnOnce() -> Outcome<()>) -> Outcome<Sample> {
    let processor = processor_time();
    let start = Instant::now();
    body()?;
    let wall = start.elapsed().as_nanos() as f64;
    let processor = processor_time() - processor;
    Ok(Sample {
        wall: wall / operations as f64,
        processor: processor / operations as f64,
    })
}

/// Samples of one side by what was measured.
#[derive(Default)]
pub struct Samples {
    pub lists: BTreeMap<&'static str, Vec<Sample>>,
}

impl Samples {
    pub fn add(&mut self, name: &'static str, sample: Sample) {
        self.lists.entry(name).or_default().push(sample);
    }
}

/// The middle value.
pub fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => values[middle],
        _ => (values[middle - 1] + values[middle]) / 2.0,
    }
}

/// What is known of one operation, in nanoseconds an operation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Measurement {
    pub operation: String,
    /// Bytes an operation moves, where that is what counts; else 0.
    pub bytes: u64,
    pub tmpfs: f64,
    pub arckfs: f64,
    pub tmpfs_best: f64,
    pub arckfs_best: f64,
    /// Processor time alone.
    pub tmpfs_processor: f64,
    pub arckfs_processor: f64,
    /// Median of the ratios of the pairs: above 1, ArckFS is faster.
    pub ratio: f64,
    pub ratio_processor: f64,
    pub rounds: usize,
}

/// Puts the pairs of one operation together.
pub fn compare(operation: &str, bytes: u64, tmpfs: &[Sample], arckfs: &[Sample]) -> Measurement {
    let best = |samples: &[Sample]| {
        let values = samples.iter().map(|sample| sample.wall);
        values.fold(f64::INFINITY, f64::min)
    };
    let pairs = || tmpfs.iter().zip(arckfs);
    Measurement {
        operation: operation.to_owned(),
        bytes,
        tmpfs: median(tmpfs.iter().map(|sample| sample.wall)),
        arckfs: median(arckfs.iter().map(|sample| sample.wall)),
        tmpfs_best: best(tmpfs),
        arckfs_best: best(arckfs),
        tmpfs_processor: median(tmpfs.iter().map(|sample| sample.processor)),
        arckfs_processor: median(arckfs.iter().map(|sample| sample.processor)),
        ratio: median(pairs().map(|(one, other)| one.wall / other.wall)),
        ratio_processor: median(pairs().map(|(one, other)| one.processor / other.processor)),
        rounds: tmpfs.len().min(arckfs.len()),
    }
}

/// Random numbers that are the same in every run (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
    /// `count` numbers below `limit`.
    pub fn below(&mut self, limit: u64, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.next() % limit).collect()
    }
}

/// Runs so many threads, each of which tells when it began and ended; from when the first began until the last was done.
pub fn together(
    threads: u64,
    one: impl Fn(u64) -> Outcome<(Instant, Instant)> + Sync,
) -> Outcome<Duration> {
    let done: Vec<Outcome<(Instant, Instant)>> = std::thread::scope(|scope| {
        let one = &one;
        let workers: Vec<_> = (0..threads)
            .map(|thread| scope.spawn(move || one(thread)))
            .collect();
        let joined = workers.into_iter().map(|worker| worker.join());
        joined
            .map(|result| result.unwrap_or_else(|_| Err("a thread panicked".into())))
            .collect()
    });
    let done = done.into_iter().collect::<Outcome<Vec<_>>>()?;
    let begin = done.iter().map(|times| times.0).min();
    let end = done.iter().map(|times| times.1).max();
    match (begin, end) {
        (Some(begin), Some(end)) => Ok(end - begin),
        _ => Err("no threads".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(wall: f64) -> Sample {
        Sample {
            wall,
            processor: wall / 2.0,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median([3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median([]).is_nan());
    }

    #[test]
    fn ratios_are_of_pairs() {
        // The machine was half as fast in the second round: pairs do not see it.
        let tmpfs = [sample(100.0), sample(200.0), sample(100.0)];
        let arckfs = [sample(50.0), sample(100.0), sample(50.0)];
        let measured = compare("x", 0, &tmpfs, &arckfs);
        assert_eq!(measured.ratio, 2.0);
        assert_eq!(measured.tmpfs, 100.0);
        assert_eq!(measured.arckfs_best, 50.0);
        assert_eq!(measured.rounds, 3);
    }

    #[test]
    fn random_is_repeatable_and_in_range() {
        let list = Random(7).below(10, 1000);
        assert_eq!(list, Random(7).below(10, 1000));
        assert!((0..10).all(|wanted| list.contains(&wanted)));
        assert!(list.iter().all(|&value| value < 10));
    }
}
