//! Where stubs are, how many sites were rewritten, and whether any may be.

use crate::dispatch::kind::{Kind, kind};
use crate::raw::{self, syscall};
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

/// Memory for stubs: where it is, how many bytes are used, and where the entry's address is that they call.
pub struct Area {
    pub start: AtomicUsize,
    pub used: AtomicUsize,
    pub entry: &'static AtomicUsize,
}

impl Area {
    pub const fn new(entry: &'static AtomicUsize) -> Area {
        Area {
            start: AtomicUsize::new(0),
            used: AtomicUsize::new(0),
            entry,
        }
    }
}

/// Below libc, within reach of all of its text.
pub static STUBS: Area = Area::new(&ENTRY);
/// Above it, for `read`.
pub static FAR_STUBS: Area = Area::new(&ENTRY);
/// The entry that stubs call: `arck_patched_avx` or `arck_patched_sse` of [`stub`](super::stub).
pub static ENTRY: AtomicUsize = AtomicUsize::new(0);

/// The entry of stubs for sites outside of libc; 0: not chosen yet, or there is none.
pub static FOREIGN_ENTRY: AtomicUsize = AtomicUsize::new(0);

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

/// Whether a jump at this site lies in one aligned word, so that it can be written while others run.
pub fn is_in_a_word(site: usize) -> bool {
    site % 8 <= 3
}

/// Takes memory for stubs at or below `from`, trying `tries` places `step` apart.
pub fn reserve(area: &Area, size: usize, from: usize, step: usize, tries: usize) {
    for i in 0..tries {
        let Some(hint) = (from & !0xffff).checked_sub(i * step) else {
            break;
        };
        // Root may have memory at 0, where nobody expects any.
        if hint == 0 {
            break;
        }
        // SAFETY: takes the address only if nothing is there.
        let got = unsafe {
            syscall!(
                libc::SYS_mmap,
                hint,
                size,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE,
                -1isize,
                0
            )
        };
        if got == hint as isize {
            area.start.store(hint, Ordering::Release);
            return;
        }
        if got != raw::error(libc::EEXIST) {
            break;
        }
    }
}
