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
}

/// Calls that follow each other, timed by one look at the clock each.
pub struct Stopwatch {
    times: Histogram<u64>,
    before: Instant,
}

impl Stopwatch {
    pub fn new() -> Outcome<Stopwatch> {
        // Grows to what it is asked to keep.
        let times = Histogram::new(3).map_err(|error| error.to_string())?;
        Ok(Stopwatch {
            times,
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
        self.times += (now - self.before).as_nanos() as u64;
        self.before = now;
    }

    pub fn latencies(&self) -> Latencies {
        let quantile = |part: f64| self.times.value_at_quantile(part) as f64;
        Latencies {
            calls: self.times.len(),
            middle: quantile(0.5),
            percent_99: quantile(0.99),
            percent_99_9: quantile(0.999),
            longest: self.times.max() as f64,
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
            watch.times += time;
        }
        let told = watch.latencies();
        assert_eq!(
            (told.calls, told.middle, told.longest),
            (1000, 500.0, 1000.0)
        );
        assert_eq!((told.percent_99, told.percent_99_9), (990.0, 999.0));
    }
}
