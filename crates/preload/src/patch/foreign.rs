//! Sites outside of libc: of the calls that programs and their libraries make by an instruction of their own, for each thing that they ask
//! for, like those of rings. A trap takes longer than what they ask for.
//!
//! Who jumps where in such code is not known, and need not be: only the `mov eax` of the call's number becomes a jump, which is as long; who
//! jumps behind it finds all that was there, and traps.
//!
//! # Invariants
//! * Only text that the kernel says is a file's, mapped for the process alone, and can be read and executed and not written, is written to, by one
//!   aligned store: somebody else may be running there.
//! * Before there is a thread without this library's block, all stubs become nothing, for good: the handler would take another's block for its own.
//! * Other code than libc's may use what registers there are: the entry of such stubs keeps all that a handler could change
//!   ([`arck_patched_foreign`](super::stub::arck_patched_foreign)). Where the processor cannot keep them together, such sites trap.
//! * Nothing unwinds from there: these calls are no cancellation points.

use super::places::{self, Area, FOREIGN_ENTRY, LOCK, State, is_in_a_word, reserve, state};
use super::site::{BETWEEN, find_before};
use super::stub;
use super::text::distance_of;
use super::traps::{ALL, OFTEN};
use crate::descriptors::replacements;
use crate::raw::syscall;
use crate::{maps, thread};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Memory for stubs, near what they are for: an executable, and its libraries, which lie together.
static AREAS: [Area; 4] = [const { Area::new(&FOREIGN_ENTRY) }; 4];
/// Bytes of each.
const SIZE: usize = 4096;
/// How far a jump reaches, with some room.
const REACH: usize = 0x7000_0000;
/// Text that lies lower has its stubs above: beneath it there is not enough room, and nothing may ever be at 0.
const LOW: usize = 1 << 32;
/// In [`Seen::count`]: it is not looked at any more.
const GIVEN_UP: usize = usize::MAX;

/// Sites that were seen, and how often each has trapped; those that cannot be rewritten stay here.
static SEEN: [Seen; 16] = [const {
    Seen {
        after: AtomicUsize::new(0),
        count: AtomicUsize::new(0),
    }
}; 16];

struct Seen {
    after: AtomicUsize,
    count: AtomicUsize,
}

/// Stubs: where they are (0: none), and what makes them as if they were not: in place of the instruction of eight bytes with which they begin.
static WRITTEN: [Written; SEEN.len()] = [const {
    Written {
        stub: AtomicUsize::new(0),
        nothing: AtomicU64::new(0),
    }
}; SEEN.len()];

struct Written {
    stub: AtomicUsize,
    nothing: AtomicU64,
}

/// Whether sites of a call are rewritten wherever they are.
fn is_made_by_programs(number: usize) -> bool {
    number == libc::SYS_io_uring_enter as usize
}

/// Counts a trap, and rewrites its site when it has trapped often.
///
/// # Safety
/// `after` is the address behind a `syscall` instruction that has trapped.
pub unsafe fn trapped(number: usize, after: usize) {
    if !is_made_by_programs(number) {
        return;
    }
    ALL.fetch_add(1, Ordering::Relaxed);
    if replacements::is_spawned_child() || state() != State::On || thread::is_one_unseen() {
        return;
    }
    let seen = SEEN.iter().find(|seen| {
        let relaxed = Ordering::Relaxed;
        let known = seen.after.load(relaxed);
        known == after
            || known == 0
                && match seen.after.compare_exchange(0, after, relaxed, relaxed) {
                    Ok(_) => true,
                    Err(other) => other == after,
                }
    });
    let Some(seen) = seen else { return };
    let count = seen.count.load(Ordering::Relaxed);
    if count == GIVEN_UP {
        return;
    }
    // Whoever counts at the same time may count one too few.
    seen.count.store(count + 1, Ordering::Relaxed);
    if (count as u64) + 1 < OFTEN {
        return;
    }
    // A handler that left it in between would leave it locked.
    let _inside = thread::enter();
    if !LOCK.swap(true, Ordering::Acquire) {
        // SAFETY: the caller's promise; the lock is held.
        unsafe { rewrite(number, after) };
        // Where it could not be, it will not be able to.
        seen.count.store(GIVEN_UP, Ordering::Relaxed);
        LOCK.store(false, Ordering::Release);
    }
}

/// Rewrites a site, if it may be.
///
/// # Safety
/// `after` is the address behind a `syscall` instruction that has trapped, and [`LOCK`] is held.
unsafe fn rewrite(number: usize, after: usize) {
    let Some(start) = after.checked_sub(BETWEEN + 8) else {
        return;
    };
    if thread::is_one_unseen() || !can_keep_registers() || !maps::is_a_files_text(start..after) {
        return;
    }
    // SAFETY: what is read, from `start` on, is a file's text that can be read, as the kernel has just said. The stub is new, in memory of ours
    // (`LOCK` is held). The jump is written to text that lies in one aligned word of that, and comes in place of the `mov` alone: whoever runs there
    // is before it or behind it.
    unsafe {
        // Not as in libc, what looks like the number may be part of another instruction.
        let before = find_before(after, None);
        let Some(before) = before.filter(|before| before.number == Some(number)) else {
            return;
        };
        let free = WRITTEN
            .iter()
            .find(|written| written.stub.load(Ordering::Relaxed) == 0);
        let (Some(area), Some(free), true) =
            (area_near(before.site), free, is_in_a_word(before.site))
        else {
            return;
        };
        let Some((stub, nothing)) = stub::write_foreign(area, SIZE, number, before.site, after)
        else {
            return;
        };
        // Noted first: a child that another thread forks in between has it, too.
        free.nothing.store(nothing, Ordering::Relaxed);
        free.stub.store(stub, Ordering::SeqCst);
        if write(before.site, jump(before.site, stub)) {
            places::SITES.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// When it has been said that there is going to be a thread without this library's block ([`thread::has_no_block`]): whoever comes to a stub goes on as if the site were what it was. Texts
/// stay as they are, of which some may not be there any more.
pub fn end() {
    let _inside = thread::enter();
    while LOCK.swap(true, Ordering::Acquire) {
        // SAFETY: no arguments.
        unsafe { syscall!(libc::SYS_sched_yield) };
    }
    for written in &WRITTEN {
        let stub = written.stub.load(Ordering::SeqCst);
        if stub != 0 {
            // SAFETY: the first eight bytes of a stub, which are aligned, and one instruction: whoever runs there is before it or behind it.
            // Stubs are in memory of ours, which can be written and is never freed.
            let first = unsafe { &*(stub as *const AtomicU64) };
            first.store(written.nothing.load(Ordering::Relaxed), Ordering::Release);
        }
    }
    LOCK.store(false, Ordering::Release);
}

/// mov eax, number.
const MOVE: [u8; 5] = {
    let [a, b, c, d] = (libc::SYS_io_uring_enter as u32).to_le_bytes();
    [0xb8, a, b, c, d]
};

fn jump(site: usize, stub: usize) -> [u8; 5] {
    let [a, b, c, d] = distance_of(site, stub);
    [0xe9, a, b, c, d]
}

/// Puts a jump in the place of the move by one exchange; whether that was there, and the system lets it.
///
/// # Safety
/// It may stand there, whoever is running there, and lies in one aligned word of a file's text.
unsafe fn write(site: usize, new: [u8; 5]) -> bool {
    const PAGE: usize = 4096;
    let page = site & !(PAGE - 1);
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: a page of text, in which the word lies, being aligned; and the caller's promise.
    unsafe {
        if syscall!(
            libc::SYS_mprotect,
            page,
            PAGE,
            executable | libc::PROT_WRITE
        ) != 0
        {
            return false;
        }
        let word = &*((site & !7) as *const AtomicU64);
        let before = word.load(Ordering::Relaxed);
        let mut bytes = before.to_le_bytes();
        let place = &mut bytes[site % 8..site % 8 + 5];
        let is_it = *place == MOVE;
        place.copy_from_slice(&new);
        let after = u64::from_le_bytes(bytes);
        let (success, failure) = (Ordering::AcqRel, Ordering::Relaxed);
        let is_new = is_it
            && word
                .compare_exchange(before, after, success, failure)
                .is_ok();
        syscall!(libc::SYS_mprotect, page, PAGE, executable);
        is_new
    }
}

/// One of the areas whose stubs a site can jump to.
fn area_near(site: usize) -> Option<&'static Area> {
    AREAS.iter().find(|area| {
        if area.start.load(Ordering::Relaxed) == 0 {
            // Below the text: above it an executable's heap grows.
            let from = match site < LOW {
                true => site + REACH - 0x100_0000,
                false => site - 0x100_0000,
            };
            reserve(area, SIZE, from, 0x100_0000, 64);
        }
        let start = area.start.load(Ordering::Relaxed);
        let is_free = area.used.load(Ordering::Relaxed) + super::places::STUB_SIZE <= SIZE;
        start != 0 && is_free && site.abs_diff(start) < REACH
    })
}

/// Whether the entry can be used; then it has its mask.
fn can_keep_registers() -> bool {
    static KNOWN: AtomicBool = AtomicBool::new(false);
    if KNOWN.load(Ordering::Acquire) {
        return FOREIGN_ENTRY.load(Ordering::Relaxed) != 0;
    }
    if stub::choose_kept() {
        let entry = stub::arck_patched_foreign as *const () as usize;
        FOREIGN_ENTRY.store(entry, Ordering::Relaxed);
    }
    KNOWN.store(true, Ordering::Release);
    FOREIGN_ENTRY.load(Ordering::Relaxed) != 0
}
