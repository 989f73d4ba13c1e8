//! io_uring, where the kernel has the pool mounted beneath.
//!
//! What an entry asks for of the pool is done while it is submitted ([`here`]), as the kernel does it on tmpfs, and the kernel is
//! given an entry in its place that does nothing and tells the result: so completions come as ever, in order, and to whoever
//! waits for them. Entries that wait for others of the kernel's, or use what it keeps, are the kernel's, with the mount's
//! descriptors of the pool's files ([`by_mount`]). Where there is no mount the calls are told to be missing.
//!
//! # Invariants
//! * An entry is looked at once, before the kernel takes it, and by the thread that has it take it, which holds the ring from the
//!   one to the other: the kernel takes no more than were looked at. What was put in its place stays there until then, so that what is
//!   done is not done again if the kernel takes fewer; then the program's own is there again, as it may submit it once more.
//! * An entry that is submitted without a call cannot be looked at: rings with a thread of the kernel's are refused.
//! * Only a kernel that can be told results serves rings.

mod by_mount;
mod files;
mod here;

use super::others;
use crate::dispatch::kind::{Kind, kind};
use crate::memory;
use crate::raw::{self, Arguments, error, failed, syscall};
use crate::rings::{self as known, Ring, entry};
use crate::signals;
use crate::{descriptors, report, settings, thread};
use entry::{
    DRAIN, Entry, HARD_LINK, HAS_STRUCTURE, IS_REGISTERED, LINK, Parameters, TELLS_RESULT, WAITS,
};
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether rings are served: all calls are seen, wherever they are made, and the kernel has the pool too.
pub fn are_served() -> bool {
    settings::BENEATH.get() == b"1" && kind() == Kind::Exclusive && tells_results()
}

/// Whether the kernel can be told results: found out once.
fn tells_results() -> bool {
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(0);
    match KNOWN.load(Ordering::Relaxed) {
        NO => false,
        YES => true,
        _ => {
            // SAFETY: makes a ring of its own, and takes it away.
            let tells = unsafe { tells_a_result() };
            KNOWN.store(if tells { YES } else { NO }, Ordering::Relaxed);
            tells
        }
    }
}

/// Tries it with a ring of its own.
#[cold]
unsafe fn tells_a_result() -> bool {
    /// Any.
    const RESULT: u32 = 77;
    const LENGTH: usize = 4096;
    let mut parameters = Parameters::default();
    // SAFETY: structures of ours; memory of the ring's, of which the kernel has said what is where, is used as numbers within what
    // was mapped, and taken away. Each mapping has at least a page.
    unsafe {
        let ring = syscall!(libc::SYS_io_uring_setup, 1, &raw mut parameters);
        if failed(ring) {
            return false;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let shared = libc::MAP_SHARED;
        let map = |at: u64| syscall!(libc::SYS_mmap, 0, LENGTH, access, shared, ring, at);
        let (counters, entries) = (map(entry::COUNTERS_AT), map(entry::ENTRIES_AT));
        let mut tells = false;
        let given = &parameters.submission;
        let told = parameters.completion.completions as usize;
        if !failed(counters) && !failed(entries) && told + 16 <= LENGTH {
            let asked = Entry {
                length: RESULT,
                how: TELLS_RESULT,
                ..Entry::default()
            };
            let word = |offset: u32| (counters as usize + offset as usize) as *mut u32;
            (entries as *mut Entry).write_volatile(asked);
            word(given.array).write_volatile(0);
            word(given.tail).write_volatile(1);
            let done = syscall!(libc::SYS_io_uring_enter, ring, 1, 1, WAITS, 0, 0);
            // Behind what the program is told it by.
            let result = (counters as usize + told + 8) as *const u32;
            tells = done == 1 && result.read_volatile() == RESULT;
        }
        for mapped in [counters, entries] {
            if !failed(mapped) {
                raw::unmap(mapped as *mut u8, LENGTH);
            }
        }
        raw::close(ring);
        tells
    }
}

/// Whether a call is the kernel's alone: there is no pool, or it is this library's own.
fn is_kernels() -> bool {
    thread::inside() || !settings::ready()
}

/// # Safety
/// The system call's own, in all of this module.
pub unsafe fn setup(a: &Arguments) -> isize {
    const NUMBER: usize = libc::SYS_io_uring_setup as usize;
    if is_kernels() || !are_served() {
        // SAFETY: the program's arguments.
        return unsafe { others::missing::<NUMBER>(a) };
    }
    // SAFETY: numbers.
    let Ok(asked) = (unsafe { memory::copy_in::<Parameters>(a[1]) }) else {
        return error(libc::EFAULT);
    };
    if asked.flags & entry::THREAD != 0 {
        report::past(crate::calls::numbers::RING_WITH_THREAD);
        return error(libc::EPERM);
    }
    if asked.flags & !entry::KNOWN != 0 {
        return error(libc::EINVAL);
    }
    descriptors::before_kernel_opens();
    // SAFETY: the program's arguments.
    let ring = descriptors::kernel_opened(unsafe { raw::call(NUMBER, a) });
    if failed(ring) {
        return ring;
    }
    report::served(NUMBER as i64);
    // SAFETY: numbers.
    let is_known = unsafe { memory::copy_in::<Parameters>(a[1]) }
        .is_ok_and(|made| known::add(ring as usize, &made));
    if !is_known {
        raw::close(ring);
        descriptors::kernel_closed(ring as usize);
        return error(libc::ENFILE);
    }
    ring
}

/// A file of the kernel's was mapped, with this result.
#[inline(always)]
pub fn mapped(a: &Arguments, address: isize) -> isize {
    if known::any() && !failed(address) && !thread::inside() {
        known::mapped(a[4], a[5] as u64, address as usize);
    }
    address
}

pub unsafe fn enter(a: &Arguments) -> isize {
    const NUMBER: usize = libc::SYS_io_uring_enter as usize;
    if is_kernels() || !are_served() {
        // SAFETY: the program's arguments.
        return unsafe { others::missing::<NUMBER>(a) };
    }
    let (most, flags) = (a[1] as u32, a[3] as u32);
    let ring = match most {
        0 => None,
        // What the kernel refuses as a whole is not done.
        _ if flags & (IS_REGISTERED | !entry::CALL_KNOWN) != 0 => None,
        _ => known::of(a[0] as u32 as usize).filter(|ring| ring.takes_entries()),
    };
    let Some(ring) = ring else {
        // SAFETY: the program's arguments.
        return unsafe { waited(a) };
    };
    // SAFETY: the program's entries.
    let taken = unsafe { looked_at(ring, a) };
    let Some(taken) = taken else {
        // SAFETY: the program's arguments.
        return unsafe { waited(a) };
    };
    if taken == most as isize && flags & WAITS != 0 && !ring.has_told(a[2] as u32 as usize) {
        // SAFETY: the program's arguments. What waiting says is not told, as the kernel does it, but that of a call that
        // has submitted nothing.
        unsafe { waited(&[a[0], 0, a[2], a[3], a[4], a[5]]) };
    }
    taken
}

/// Does and translates what is submitted, and has the kernel take it. What the kernel says; `None` in a handler of a fault that
/// came while this thread did so.
unsafe fn looked_at(ring: &'static Ring, a: &Arguments) -> Option<isize> {
    // A handler that jumped out of it would leave it held.
    let _unbroken = thread::unbroken();
    let _held = ring.hold()?;
    // SAFETY: the program's entries.
    unsafe {
        let replaced = look(ring, a[0] as u32 as usize, a[1] as u32);
        let taken = submit(a, replaced.count);
        replaced.restore(ring);
        Some(taken)
    }
}

/// The kernel takes so many, and waits for nothing.
unsafe fn submit(a: &Arguments, count: u32) -> isize {
    const NUMBER: usize = libc::SYS_io_uring_enter as usize;
    let mut flags = a[3] as u32 & !HAS_STRUCTURE;
    if count != a[1] as u32 {
        // It does not look for completions then.
        flags &= !WAITS;
    }
    // SAFETY: no pointers.
    unsafe { syscall!(NUMBER, a[0], count, 0, flags, 0, 0) }
}

/// The kernel's call, which may wait with another mask of signals: not with one that keeps the dispatch's away.
unsafe fn waited(a: &Arguments) -> isize {
    const NUMBER: usize = libc::SYS_io_uring_enter as usize;
    let flags = a[3] as u32;
    // SAFETY: the program's arguments, copied where something is changed.
    unsafe {
        if a[4] == 0 || flags & WAITS == 0 {
            return raw::call(NUMBER, a);
        }
        let mut structure = [0u64; 3];
        let mask_at = match flags & HAS_STRUCTURE {
            0 => a[4],
            _ => match memory::copy_in(a[4]) {
                Ok(given) => {
                    structure = given;
                    structure[0] as usize
                }
                Err(_) => return raw::call(NUMBER, a),
            },
        };
        let Ok(mask) = memory::copy_in::<u64>(mask_at) else {
            return raw::call(NUMBER, a);
        };
        let mask = signals::without_sigsys(mask);
        let mut changed = *a;
        changed[4] = &raw const mask as usize;
        if flags & HAS_STRUCTURE != 0 {
            structure[0] = &raw const mask as u64;
            changed[4] = structure.as_ptr() as usize;
        }
        raw::call(NUMBER, &changed)
    }
}

/// An entry that the kernel gets in another form.
struct Replaced {
    at: usize,
    /// Which of those that are taken it is.
    turn: u32,
    before: Entry,
    after: Entry,
}

/// Those of one call.
struct AllReplaced {
    entries: Vec<Replaced>,
    /// How many had been taken before.
    taken: u32,
    /// How many the kernel may take.
    count: u32,
}

impl AllReplaced {
    /// Puts back what was there, of those that the kernel has taken.
    fn restore(self, ring: &Ring) {
        let Some(taken) = ring.taken() else { return };
        let taken = taken.wrapping_sub(self.taken);
        for replaced in self.entries {
            // Another thread may have put the next one there.
            if replaced.turn < taken && known::read(replaced.at) == Some(replaced.after) {
                let _ = memory::copy_out(replaced.at, &replaced.before);
            }
        }
    }
}

/// What the entries before in a chain have become.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// The next one is in none.
    Outside,
    Done,
    Failed,
    /// One that was not to tell that it succeeds has failed: it tells, and those behind it do not.
    FailedSilently,
    Kernels,
}

/// Looks at what is submitted next.
unsafe fn look(ring: &Ring, number: usize, most: u32) -> AllReplaced {
    // What cannot be read the program has taken away. The kernel has it still, and gets it as it is.
    let mut all = AllReplaced {
        entries: Vec::new(),
        taken: ring.taken().unwrap_or(0),
        count: most,
    };
    let Some(next) = ring.next(most) else {
        return all;
    };
    let mut chain = Chain::Outside;
    let mut count = 0;
    for at in next {
        let turn = count;
        let Some(at) = at else { return all };
        count += 1;
        if at == 0 {
            break;
        }
        let Some(entry) = known::read(at) else {
            return all;
        };
        if entry.flags & DRAIN != 0 {
            // Those behind it wait for it, also the next call's.
            ring.only_by_mount();
        }
        // SAFETY: the program's entry.
        let (after, next) = unsafe { become_of(&entry, chain, ring, number) };
        chain = match entry.flags & (LINK | HARD_LINK) {
            0 => Chain::Outside,
            _ => next,
        };
        if after != entry && memory::copy_out(at, &after).is_ok() {
            all.entries.push(Replaced {
                at,
                turn,
                before: entry,
                after,
            });
        }
    }
    all.count = count;
    all
}

/// What the kernel gets for an entry, and what that is to the next one in its chain.
unsafe fn become_of(entry: &Entry, chain: Chain, ring: &Ring, number: usize) -> (Entry, Chain) {
    match chain {
        Chain::Failed => return (entry.done(error(libc::ECANCELED)), chain),
        Chain::FailedSilently => {
            let mut silent = entry.done(0);
            silent.flags |= entry::SKIPS_SUCCESS;
            return (silent, chain);
        }
        _ => {}
    }
    let plain = LINK | HARD_LINK | entry::ASYNCHRONOUS | entry::SKIPS_SUCCESS | entry::REGISTERED;
    let here = chain != Chain::Kernels
        && !ring.is_by_mount()
        && entry.flags & !plain == 0
        && entry.personality == 0;
    // SAFETY: the program's entry.
    unsafe {
        if here && let Some(done) = here::perform(entry, ring, number) {
            report::served(libc::SYS_io_uring_enter);
            let is_silent = entry.flags & entry::SKIPS_SUCCESS != 0;
            let next = match done.has_failed && entry.flags & HARD_LINK == 0 {
                true if is_silent && !failed(done.result) => Chain::FailedSilently,
                true => Chain::Failed,
                false => Chain::Done,
            };
            let mut told = entry.done(done.result);
            if done.has_failed && !failed(done.result) {
                // Less than was asked for is a failure to the kernel, and is told.
                told.flags &= !entry::SKIPS_SUCCESS;
            }
            return (told, next);
        }
        files::before_kernel(ring, entry);
        (by_mount::translate(entry, ring), Chain::Kernels)
    }
}

pub unsafe fn register(a: &Arguments) -> isize {
    /// Operations that are looked at besides those with files.
    const RESTRICTIONS: u32 = 11;
    const ENABLE: u32 = 12;
    const RING_DESCRIPTORS: u32 = 20;
    const RESIZE: u32 = 33;
    const NUMBER: usize = libc::SYS_io_uring_register as usize;
    if is_kernels() || !are_served() {
        // SAFETY: the program's arguments.
        return unsafe { others::missing::<NUMBER>(a) };
    }
    let (descriptor, operation) = (a[0] as u32 as usize, a[1] as u32);
    match operation {
        // By such a number a ring is not found, and one that moves neither: as kernels say that do not know of it.
        RING_DESCRIPTORS | RESIZE => return error(libc::EINVAL),
        RESTRICTIONS => {
            if let Some(ring) = known::of(descriptor) {
                ring.only_by_mount();
            }
        }
        _ => {
            if let Some(result) = files::register(descriptor, operation, a[2], a[3] as u32 as usize)
            {
                report::served(NUMBER as i64);
                return result;
            }
        }
    }
    // SAFETY: the program's arguments.
    let result = unsafe { raw::call(NUMBER, a) };
    if operation == ENABLE
        && result == 0
        && let Some(ring) = known::of(descriptor)
    {
        ring.enable();
    }
    result
}
