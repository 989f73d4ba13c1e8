//! Where stubs are, how many sites were rewritten, and whether any may be.

use crate::dispatch::kind::{Kind, kind};
use crate::settings;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// All stubs but those of `read`.
pub const STUBS_SIZE: usize = 32 * 1024;
/// The stubs of `read`.
pub const FAR_STUBS_SIZE: usize = 4096;
/// Longest stub.
pub const STUB_SIZE: usize = 112;
pub static SITES: AtomicUsize = AtomicUsize::new(0);
pub static LOCK: AtomicBool = AtomicBool::new(false);
pub static REFUSED: AtomicBool = AtomicBool::new(false);
/// libc's `read`, until the sites that are known from the start are rewritten; then 0.
pub static READ: AtomicUsize = AtomicUsize::new(0);

/// Memory for stubs: where it is, and how many bytes are used.
pub struct Area {
    pub start: AtomicUsize,
    pub used: AtomicUsize,
}

impl Area {
    const fn new() -> Area {
        Area {
            start: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
        }
    }
}

/// Below libc, within reach of all of its text.
pub static STUBS: Area = Area::new();
/// Above it, for `read`.
pub static FAR_STUBS: Area = Area::new();
/// The entry that stubs call: `arck_patched_avx` or `arck_patched_sse` of [`stub`](super::stub).
pub static ENTRY: AtomicUsize = AtomicUsize::new(0);

/// Addresses of code.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    pub start: usize,
    pub end: usize,
}

/// Whether sites are rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Those that trap often are.
    On,
    /// There is no net.
    NotUsed,
    /// The setting says so.
    Never,
    /// The system does not let text be written, or there is no place for stubs.
    Refused,
}

impl State {
    pub fn name(self) -> &'static str {
        match self {
            State::On => "on",
            State::NotUsed => "not-used",
            State::Never => "never",
            State::Refused => "refused",
        }
    }
}

pub fn state() -> State {
    if kind() == Kind::None {
        State::NotUsed
    } else if settings::PATCH.get() == b"never" {
        State::Never
    } else if REFUSED.load(Ordering::Relaxed) {
        State::Refused
    } else {
        State::On
    }
}

/// How many sites were rewritten.
pub fn sites() -> usize {
    SITES.load(Ordering::Relaxed)
}

/// In a forked child: another thread of the parent may have held the lock.
pub fn forked() {
    LOCK.store(false, Ordering::Release);
}

/// The operand of a jump; the stubs were placed so that it fits.
pub fn distance(from: usize, to: usize) -> [u8; 4] {
    (to.wrapping_sub(from) as i32).to_le_bytes()
}
