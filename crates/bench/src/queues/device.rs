//! A device with processors of its own, as CrossFS emulates one: each is busy for the latency with each request.
//!
//! It is emulated by time, not by the host's processors. A request that arrives begins when one of the device's processors is free, and ends
//! a latency later; whoever waits for it spins, or sleeps where that is long enough, until then. The bytes are copied by the host in that
//! time, as the device itself would.
//!
//! # Invariants
//! * A processor has one request at a time; requests begin in the order in which they arrive.
//! * Nobody sees the end of a request before its time.

use crate::outcome::Outcome;
use serde::{Deserialize, Serialize};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What a device is like.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Description {
    pub processors: usize,
    pub latency: Duration,
}

/// See above.
pub struct Device {
    latency: Duration,
    /// When each of the processors is free.
    free: Mutex<Vec<Instant>>,
}

/// To sleep for less takes longer than to spin.
const SLEEPS: Duration = Duration::from_micros(100);

impl Device {
    pub fn new(description: Description) -> Device {
        Device {
            latency: description.latency,
            free: Mutex::new(vec![Instant::now(); description.processors]),
        }
    }

    /// A request arrives; gives when it ends.
    pub fn arrive(&self) -> Instant {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        // There is one processor at least.
        match free.iter_mut().min() {
            Some(first) => {
                *first = now.max(*first) + self.latency;
                *first
            }
            None => now + self.latency,
        }
    }
}

/// Blocks until then.
pub fn wait_until(end: Instant) {
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return;
        }
        match left.checked_sub(SLEEPS) {
            Some(most) if !most.is_zero() => std::thread::sleep(most),
            _ => std::hint::spin_loop(),
        }
    }
}

/// A duration with its unit: 900ns, 20us, 1ms; 1 ns to 1 s.
pub fn parse_latency(text: &str) -> Outcome<Duration> {
    let units = [("ns", 1), ("us", 1_000), ("µs", 1_000), ("ms", 1_000_000)];
    let number = units.iter().find_map(|(unit, nanoseconds)| {
        let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        number.checked_mul(*nanoseconds)
    });
    match number {
        Some(nanoseconds @ 1..=1_000_000_000) => Ok(Duration::from_nanos(nanoseconds)),
        _ => Err("a number and ns, us or ms, up to 1000ms".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_units() {
        for (text, nanoseconds) in [
            ("900ns", Some(900)),
            ("20us", Some(20_000)),
            ("20 µs", Some(20_000)),
            ("1000ms", Some(1_000_000_000)),
            ("1001ms", None),
            ("0ns", None),
            ("900", None),
            ("ns", None),
            ("-1ns", None),
            ("99999999999999999999ms", None),
        ] {
            let parsed = parse_latency(text).ok();
            assert_eq!(parsed, nanoseconds.map(Duration::from_nanos), "{text}");
        }
    }

    /// Seven requests at once, on three processors.
    #[test]
    fn each_processor_has_one_request_at_a_time() {
        let latency = Duration::from_secs(100);
        let device = Device::new(Description {
            processors: 3,
            latency,
        });
        let begin = Instant::now();
        let ends: Vec<_> = (0..7).map(|_| device.arrive()).collect();
        let rounds = ends.iter().map(|end| {
            let after = end.duration_since(begin).as_secs_f64();
            (after / latency.as_secs_f64()).round() as u64
        });
        assert_eq!(rounds.collect::<Vec<_>>(), [1, 1, 1, 2, 2, 2, 3]);
    }

    #[test]
    fn nobody_sees_an_end_before_its_time() {
        for microseconds in [1, 300] {
            let end = Instant::now() + Duration::from_micros(microseconds);
            wait_until(end);
            assert!(Instant::now() >= end);
        }
    }
}
