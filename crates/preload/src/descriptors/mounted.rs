//! The mount's descriptors of what the program has open on the pool: kernel descriptors of the same files, for requests that
//! the kernel serves (see `handlers::rings`).
//!
//! # Invariants
//! * One belongs to a description, and is closed with the last number of it. The program does not see it: its number is
//!   reserved.
//! * What the program has none of costs a close one load.
//! * No locks: a slot is taken by a change of its key, and what is in it is whole before its number is there.
//! * What is not there costs few loads, however many have come and gone: of each place it is counted how many keys begin there,
//!   before the first of them is put and after it is taken away, and nobody looks further than to the last of them.

use super::table::raise_high_water;
use crate::backend::Handle;
use crate::{raw, reserved};
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

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

/// How many keys begin at each place.
static BEGIN_AT: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

fn home(handle: u64) -> usize {
    (handle.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize % SLOTS
}

/// All slots, from the one where a handle begins.
fn slots(handle: u64) -> impl Iterator<Item = &'static Slot> {
    let home = home(handle);
    (0..SLOTS).map(move |step| &TABLE[(home + step) % SLOTS])
}

/// Those in which it may be, with their keys.
fn possible(handle: u64) -> impl Iterator<Item = (&'static Slot, u64)> {
    let home_of_it = home(handle);
    let mut left = BEGIN_AT[home_of_it].load(Ordering::Acquire);
    let mut slots = slots(handle);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let slot = slots.next()?;
        let key = slot.handle.load(Ordering::Acquire);
        if !matches!(key, FREE | LEFT) && home(key) == home_of_it {
            left -= 1;
        }
        (key != FREE).then_some((slot, key))
    })
}

/// Slots with this handle.
fn of(handle: u64) -> impl Iterator<Item = &'static Slot> {
    possible(handle).filter_map(move |(slot, key)| (key == handle).then_some(slot))
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
    BEGIN_AT[home(key)].fetch_add(1, Ordering::AcqRel);
    let taken = slots(key).find(|slot| {
        let before = slot.handle.load(Ordering::Acquire);
        let (new, old) = (Ordering::AcqRel, Ordering::Relaxed);
        matches!(before, FREE | LEFT) && slot.handle.compare_exchange(before, key, new, old).is_ok()
    });
    match taken {
        Some(slot) => slot.number.store(number as usize + 1, Ordering::Release),
        None => {
            BEGIN_AT[home(key)].fetch_sub(1, Ordering::AcqRel);
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
        let key = slot.handle.swap(LEFT, Ordering::AcqRel);
        BEGIN_AT[home(key)].fetch_sub(1, Ordering::AcqRel);
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
        // Where so many have come and gone that no slot was never used, what is not there is not looked for in all of them.
        for key in 0..4 * SLOTS as u64 {
            assert!(keep(handle(1000 + key), open()) > 0);
            closed(handle(1000 + key));
        }
        let was_used = |slot: &Slot| slot.handle.load(Ordering::Acquire) != FREE;
        assert!(TABLE.iter().filter(|slot| was_used(slot)).count() > SLOTS * 9 / 10);
        let looked_at: usize = (1000..2000).map(|key| possible(key).count()).sum();
        assert!(looked_at < 1000, "{looked_at}");
        assert_eq!(find(handle(8)), Some(numbers[7] as usize));
        forget();
        assert_eq!(find(handle(8)), None);
        assert_eq!(raw::identity_of(numbers[7] as usize), None);
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }
}
