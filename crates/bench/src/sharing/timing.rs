//! When what is timed begins and ends.
//!
//! Invariant: the clock is looked at between operations, and not more often than after [`STEP`] of them.

use crate::measure::monotonic as now;
use crate::outcome::Outcome;

/// Operations between two looks at the clock.
const STEP: u64 = 16;

/// Sleeps, and then spins; gives the time at which it ended.
pub fn wait_until(begin: u64) -> u64 {
    loop {
        let time = now();
        match begin.checked_sub(time) {
            None | Some(0) => return time,
            Some(left) if left > 200_000 => {
                std::thread::sleep(std::time::Duration::from_nanos(left - 150_000));
            }
            Some(_) => std::hint::spin_loop(),
        }
    }
}

/// Repeats it until the clock says `end`; gives how often.
pub fn until(end: u64, mut one: impl FnMut() -> Outcome<()>) -> Outcome<u64> {
    until_none(end, || one().map(|()| true))
}

/// The same, or until there is nothing more to do, which is not counted.
pub fn until_none(end: u64, mut one: impl FnMut() -> Outcome<bool>) -> Outcome<u64> {
    let mut count = 0;
    while now() < end {
        for _ in 0..STEP {
            if !one()? {
                return Ok(count);
            }
            count += 1;
        }
    }
    Ok(count)
}
