//! The time, as the controller stamps with it.

/// Nanoseconds since the epoch, from the coarse clock by which sessions stamp files too: a finer one
/// would put what the controller does behind what a session does a moment later.
pub fn now() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    time.tv_sec
        .saturating_mul(1_000_000_000)
        .saturating_add(time.tv_nsec)
}
