//! How long single calls take: counted in a histogram of three digits, told as a few numbers.

use crate::outcome::Outcome;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use std::time::Instant;

/// Nanoseconds of calls.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Latencies {
    pub calls: u64,
    pub middle: f64,
    /// 99 of 100 calls take no longer than this.
    pub percent_99: f64,
    /// 999 of 1,000.
    pub percent_99_9: f64,
    pub longest: f64,
    /// Part of all the time that was taken by calls longer than [`LONG`].
    pub waiting: f64,
}

/// Nanoseconds of a call that waits for something, or does what others will not have to do.
const LONG: u64 = 100_000;

/// Calls that follow each other, timed by one look at the clock each.
pub struct Stopwatch {
    times: Histogram<u64>,
    /// Nanoseconds of all calls, and of the long ones.
    all: u64,
    long: u64,
    before: Instant,
}

impl Stopwatch {
    pub fn new() -> Outcome<Stopwatch> {
        // Grows to what it is asked to keep.
        let times = Histogram::new(3).map_err(|error| error.to_string())?;
        Ok(Stopwatch {
            times,
            all: 0,
            long: 0,
            before: Instant::now(),
        })
    }

    /// The next call begins now.
    #[inline]
    pub fn begin(&mut self) {
        self.before = Instant::now();
    }

    /// A call has ended, and the next one begins.
    #[inline]
    pub fn lap(&mut self) {
        let now = Instant::now();
        self.add((now - self.before).as_nanos() as u64);
        self.before = now;
    }

    /// A call that somebody else has timed.
    #[inline]
    pub fn add(&mut self, time: u64) {
        self.times += time;
        self.all += time;
        if time > LONG {
            self.long += time;
        }
    }

    pub fn latencies(&self) -> Latencies {
        let quantile = |part: f64| self.times.value_at_quantile(part) as f64;
        Latencies {
            calls: self.times.len(),
            middle: quantile(0.5),
            percent_99: quantile(0.99),
            percent_99_9: quantile(0.999),
            longest: self.times.max() as f64,
            waiting: self.long as f64 / self.all.max(1) as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_all_calls() {
        let mut watch = Stopwatch::new().expect("a histogram");
        for time in 1..=1000u64 {
            watch.add(time);
        }
        let told = watch.latencies();
        assert_eq!(
            (told.calls, told.middle, told.longest),
            (1000, 500.0, 1000.0)
        );
        assert_eq!((told.percent_99, told.percent_99_9), (990.0, 999.0));
        assert_eq!(told.waiting, 0.0);
    }

    #[test]
    fn waiting_is_a_part_of_all_the_time() {
        let mut watch = Stopwatch::new().expect("a histogram");
        for time in [100_000, 200_000, 100_000, 400_000] {
            watch.add(time);
        }
        assert_eq!(watch.latencies().waiting, 0.75);
    }
}
