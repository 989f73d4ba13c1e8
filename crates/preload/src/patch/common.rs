//! Sites that nearly every program traps at which traps at all: with these calls libc loads a locale.
//!
//! A shell's children are not told by each other what they trap at ([`hints`](super::hints)): each would trap five
//! times at each of these sites, and change the protection of text for each by itself.
//!
//! Invariant: what is rewritten is what a site that has trapped must be; where libc has no such function, or its site is another,
//! it traps.

use super::places::{Range, STUBS, STUBS_SIZE};
use super::site::{BETWEEN, find_before, make_jump};
use super::text::{Calls, Jumps};
use super::traps;
use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a function in which its call is.
const LOOKED_AT: usize = 96;

/// A function of libc's, and the call that it makes.
struct Common {
    name: &'static CStr,
    number: usize,
    /// 0: libc has none.
    address: AtomicUsize,
}

const fn common(name: &'static CStr, number: libc::c_long) -> Common {
    let address = AtomicUsize::new(0);
    Common {
        name,
        number: number as usize,
        address,
    }
}

static COMMON: [Common; 4] = [
    common(c"__open_nocancel", libc::SYS_openat),
    common(c"fstatat", libc::SYS_newfstatat),
    common(c"mmap", libc::SYS_mmap),
    common(c"__close_nocancel", libc::SYS_close),
];

/// Where they are: at start-up, since the loader is not asked in the middle of what the program does. `text` is libc's.
pub fn find(text: &Range) {
    for one in &COMMON {
        // SAFETY: a constant name.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, one.name.as_ptr()) } as usize;
        if (text.start + BETWEEN + 8..text.end.saturating_sub(LOOKED_AT)).contains(&address) {
            one.address.store(address, Ordering::Relaxed);
        }
    }
}

/// Makes stubs for them.
///
/// # Safety
/// What [`find`] was told is libc's text; no other thread runs.
pub unsafe fn rewrite(jumps: &mut Jumps) {
    for one in &COMMON {
        let start = one.address.load(Ordering::Relaxed);
        if start == 0 {
            continue;
        }
        // SAFETY: all that is looked at, and moved, lies in the text.
        unsafe {
            let end = start + LOOKED_AT;
            let Some(after) = Calls::new(Range { start, end }).next_from(start) else {
                continue;
            };
            let Some(before) = find_before(after, Some(one.number)) else {
                continue;
            };
            if jumps.has(before.site) {
                continue;
            }
            let Some(jump) = make_jump(&STUBS, STUBS_SIZE, before, after) else {
                return;
            };
            jumps.push(jump);
            traps::is_rewritten(one.number, after);
        }
    }
}
