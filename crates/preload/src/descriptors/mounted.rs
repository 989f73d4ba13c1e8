//! The mount's descriptors of what the program has open on the pool: kernel descriptors of the same files, for requests that
//! the kernel serves (see `handlers::rings`).
//!
//! # Invariants
//! * One belongs to a description, and is closed with the last number of it. The program does not see it: its number is
//!   reserved.
//! * What the program has none of costs a close one load.
//! * No locks: a slot is taken by a change of its key, and what is in it is whole before its number is there.

use super::table::raise_high_water;
use crate::backend::Handle;
use crate::{raw, reserved};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// So many at once.
const SLOTS: usize = 4096;
/// Keys of slots that were never used, and of those that are free again. No handle is either.
const FREE: u64 = 0;
const LEFT: u64 = u64::MAX;

/// It is not closed with the description.
const GIVEN: usize = 1 << 32;

struct Slot {
    handle: AtomicU64,
    /// Plus one; 0: not yet, or not any more. With [`GIVEN`].
    number: AtomicUsize,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot {
        handle: AtomicU64::new(FREE),
        number: AtomicUsize::new(0),
    }
}; SLOTS];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// The slots in which a handle may be, up to the first that was never used.
fn slots(handle: u64) -> impl Iterator<Item = &'static Slot> {
    let home = (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize;
    (0..SLOTS).map(move |step| &TABLE[(home + step) % SLOTS])
}

/// Slots with this handle.
fn of(handle: u64) -> impl Iterator<Item = &'static Slot> {
    slots(handle)
        .take_while(|slot| slot.handle.load(Ordering::Acquire) != FREE)
        .filter(move |slot| slot.handle.load(Ordering::Acquire) == handle)
}

/// The mount's descriptor of a description, if there is one.
pub fn find(handle: Handle) -> Option<usize> {
    if COUNT.load(Ordering::Acquire) == 0 {
        return None;
    }
    of(handle.0.get()).find_map(Slot::number)
}

impl Slot {
    fn number(&self) -> Option<usize> {
        (self.number.load(Ordering::Acquire) & !GIVEN).checked_sub(1)
    }
}

/// Closes a number of a description by `close`: what it says, and the mount's descriptor, if that was the last one, which is
/// whoever's who asks for it then.
pub fn give(handle: Handle, close: impl FnOnce() -> isize) -> (isize, Option<usize>) {
    let slot = of(handle.0.get()).find(|slot| slot.number().is_some());
    let number = slot.and_then(Slot::number);
    if let Some(slot) = slot {
        slot.number.fetch_or(GIVEN, Ordering::AcqRel);
    }
    let closed = close();
    let is_kept = slot.is_some_and(|slot| {
        let before = slot.number.fetch_and(!GIVEN, Ordering::AcqRel);
        before & !GIVEN != 0
    });
    (closed, number.filter(|_| !is_kept))
}

/// Keeps one that was just opened; its number, or minus an error number.
pub fn keep(handle: Handle, opened: isize) -> isize {
    let key = handle.0.get();
    // Numbers from there on are few where the limit is low, and the LibFS needs some.
    let from = match raw::limit(libc::RLIMIT_NOFILE) {
        Some(limit) if limit <= SLOTS => reserved::floor() / 2,
        _ => reserved::floor(),
    };
    let number = reserved::keep_from(opened, from);
    if raw::failed(number) {
        raw::close(opened);
        return number;
    }
    raise_high_water(number as usize);
    COUNT.fetch_add(1, Ordering::AcqRel);
    let taken = slots(key).find(|slot| {
        let before = slot.handle.load(Ordering::Acquire);
        let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
        matches!(before, FREE | LEFT) && slot.handle.compare_exchange(before, key, new, old).is_ok()
    });
    match taken {
        Some(slot) => slot.number.store(number as usize + 1, Ordering::Release),
        None => {
            COUNT.fetch_sub(1, Ordering::AcqRel);
            reserved::let_go(number as usize);
            return raw::error(libc::ENFILE);
        }
    }
    number
}

/// Whether a number is one of these.
pub fn is_one(number: usize) -> bool {
    COUNT.load(Ordering::Acquire) != 0 && TABLE.iter().any(|slot| slot.number() == Some(number))
}

/// The last number of a description was closed.
#[inline(always)]
pub fn closed(handle: Handle) {
    if COUNT.load(Ordering::Acquire) != 0 {
        close(handle);
    }
}

#[cold]
fn close(handle: Handle) {
    of(handle.0.get()).for_each(empty);
}

fn empty(slot: &Slot) {
    let before = slot.number.swap(0, Ordering::AcqRel);
    if let Some(number) = (before & !GIVEN).checked_sub(1) {
        slot.handle.store(LEFT, Ordering::Release);
        COUNT.fetch_sub(1, Ordering::AcqRel);
        match before & GIVEN {
            0 => reserved::let_go(number),
            _ => reserved::forget(&[number as i32]),
        }
    }
}

/// Handles mean something else from now on: the process was forked, or has left its session.
pub fn forget() {
    if COUNT.load(Ordering::Acquire) != 0 {
        TABLE.iter().for_each(empty);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::num::NonZeroU64;

    fn handle(number: u64) -> Handle {
        Handle(NonZeroU64::new(number).unwrap())
    }

    fn open() -> isize {
        // SAFETY: a constant path.
        unsafe { raw::syscall!(libc::SYS_openat, -100isize, c"/dev/null".as_ptr(), 0) }
    }

    /// One test: the table is the process's.
    #[test]
    fn each_description_has_its_own_until_it_is_closed() {
        assert_eq!(find(handle(5)), None);
        let numbers: Vec<_> = (1..40).map(|key| keep(handle(key), open())).collect();
        for (key, number) in (1..).zip(&numbers) {
            assert_eq!(find(handle(key)), Some(*number as usize));
            assert!(is_one(*number as usize) && reserved::is_marked(*number as usize));
        }
        closed(handle(7));
        assert_eq!(find(handle(7)), None);
        // One that is given away stays open, and one of a description that stays is not given.
        let (told, given) = give(handle(9), || {
            closed(handle(9));
            5
        });
        assert_eq!((told, given), (5, Some(numbers[8] as usize)));
        assert!(!is_one(numbers[8] as usize) && !reserved::is_marked(numbers[8] as usize));
        assert!(raw::identity_of(numbers[8] as usize).is_some());
        raw::close(numbers[8]);
        assert_eq!(give(handle(10), || 6), (6, None));
        assert_eq!(find(handle(10)), Some(numbers[9] as usize));
        assert!(!is_one(numbers[6] as usize));
        assert_eq!(raw::identity_of(numbers[6] as usize), None);
        // A slot that was left is used again, and others are found behind it.
        for _ in 0..3 * SLOTS {
            assert!(keep(handle(7), open()) > 0);
            closed(handle(7));
        }
        assert_eq!(find(handle(8)), Some(numbers[7] as usize));
        forget();
        assert_eq!(find(handle(8)), None);
        assert_eq!(raw::identity_of(numbers[7] as usize), None);
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }
}
