//! Faster dispatch: system call sites of libc that trap often are rewritten to call this library.
//!
//! glibc makes nearly all of its calls as `mov eax, NUMBER`, a few simple instructions or none,
//! and `syscall`. The `mov` is exactly as long as a jump, so it is replaced by one to a stub,
//! which does what the instructions between do; they and the `syscall` stay for whoever jumps
//! straight to them. `read`, whose number is made by the two bytes of `xor eax, eax`, has room
//! for a jump only if the first byte of the next instruction is the jump's last: its stubs lie
//! where the distance has that byte on top. A stub for a call that has a handler saves what the
//! kernel would preserve and runs the handler; any other makes the call itself, from outside the
//! dispatch's range (unless it runs in a spawned child, which does not make each). It comes back behind the original `syscall`.
//!
//! A site is rewritten at its [`OFTEN`]th trap (its first, where there are several threads), and only if the system lets text be made writable;
//! otherwise it goes on trapping. Some are known from the start: those in `read`, those at which nearly all trap
//! ([`common`]), and those that trapped in the program that has executed this one ([`hints`]). They are rewritten all together, and as late as it can be:
//! each page of text that is written to becomes the program's own copy, and most programs are short. That is
//! at the [`EARLY`]th trap, or before the program has its first signal handler or second thread: then somebody
//! might be on his way back to the `syscall` of `read`, which a jump overwrites.
//!
//! Invariants:
//! * Only bytes that are a `mov eax` of the trapped number before the trapped `syscall`, with
//!   instructions between that mean the same anywhere, are replaced (and those in `read`). While
//!   there are other threads this is one aligned 8-byte store, so that they see the old
//!   instruction or the new one; where that is impossible the site is rewritten before the second
//!   thread is made ([`before_threads`]).
//! * Calls that return twice or elsewhere (clone, fork, sigreturn) keep trapping.
//! * Stubs are written before the jump to them, in memory that is never freed.
//! * A stub preserves the sixteen `ymm` (or `xmm`) registers. That is all that can be alive
//!   there: what the program had in wider ones is dead once it called libc, and libc itself is
//!   compiled for no more than AVX2. Upper halves that are zero are not in use afterwards.
//!
//! * Whoever is cancelled in a stub unwinds as from the original `syscall`; see [`unwinding`].
//!
//! Sites of other code are rewritten where that makes its calls for each thing that it does ([`foreign`]).
//!
//! Setting ARCK_PATCH=never leaves all to the traps.

mod common;
pub mod foreign;
pub mod hints;
pub mod places;
pub mod shared;
mod site;
mod stub;
mod text;
pub mod traps;
pub mod unwinding;

use crate::descriptors::replacements;
use crate::dispatch::kind;
use crate::dispatch::text::{is_libcs, libcs};
use crate::raw;
use crate::{settings, thread};
use places::{
    ENTRY, FAR_STUBS, FAR_STUBS_SIZE, LOCK, READ, REFUSED, Range, STUBS, STUBS_SIZE, State,
    distance, is_in_a_word, reserve, state,
};
use site::{Before, find_before, is_simple, make_jump, make_stub};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use stub::{OSXSAVE, arck_patched_avx, arck_patched_sse, kept_by_system};
use text::{Calls, Jump, Jumps};
use traps::OFTEN;

/// First byte of the instruction behind `syscall` in `read` (a comparison of `rax`), and so the
/// highest byte of the distance to its stub.
const NEXT: u8 = 0x48;

/// Counts a trap of the `syscall` instruction that ends at `after`, and rewrites its site if it
/// has trapped often.
///
/// # Safety
/// `after` is the address behind a `syscall` instruction.
pub unsafe fn trapped(number: usize, after: usize) {
    if !is_libcs(after) {
        // SAFETY: the caller's promise.
        return unsafe { foreign::trapped(number, after) };
    }
    traps::ALL.fetch_add(1, Ordering::Relaxed);
    if state() != State::On {
        return;
    }
    let Some(count) = traps::count(number, after) else {
        return;
    };
    if EARLIER.load(Ordering::Relaxed) < EARLY && !replacements::is_spawned_child() {
        let earlier = EARLIER.fetch_add(1, Ordering::Relaxed) + 1;
        if earlier >= EARLY || count == OFTEN {
            rewrite_known();
        }
    }
    // Of a thread that waits for another both wait.
    let often = if raw::is_single_threaded() { OFTEN } else { 0 };
    if count < often || !is_simple(number) {
        return;
    }
    if replacements::is_spawned_child() {
        // It may be killed in the middle of it, and the text is its parent's.
        let place = NOTED
            .iter()
            .find(|place| place.after.load(Ordering::Relaxed) == 0);
        if let Some(place) = place {
            place.number.store(number, Ordering::Relaxed);
            place.after.store(after, Ordering::Relaxed);
        }
        return;
    }
    // SAFETY: the caller's promise.
    unsafe { rewrite_alone(number, after) };
}

/// # Safety
/// As for [`trapped`].
unsafe fn rewrite_alone(number: usize, after: usize) {
    // A handler that left it in between would leave it locked.
    let _inside = thread::enter();
    if !LOCK.swap(true, Ordering::Acquire) {
        // SAFETY: the caller's promise; the lock is held.
        unsafe { rewrite(number, after) };
        LOCK.store(false, Ordering::Release);
    }
}

/// A site that trapped often in a child in its parent's memory.
struct Noted {
    number: AtomicUsize,
    /// 0: none.
    after: AtomicUsize,
}

static NOTED: [Noted; 8] = [const {
    Noted {
        number: AtomicUsize::new(0),
        after: AtomicUsize::new(0),
    }
}; 8];

/// The parent rewrites the sites that its child has noted.
pub fn rewrite_noted() {
    for place in &NOTED {
        let after = place.after.swap(0, Ordering::Relaxed);
        if after != 0 {
            // SAFETY: noted by `trapped`.
            unsafe { rewrite_alone(place.number.load(Ordering::Relaxed), after) };
        }
    }
}

unsafe fn rewrite(number: usize, after: usize) {
    // SAFETY: libc's text before the end of the instruction.
    unsafe {
        let Some(before) = find_before(after, Some(number)) else {
            return;
        };
        let alone = raw::is_single_threaded();
        if !is_in_a_word(before.site) && !alone {
            return;
        }
        if let Some(jump) = make_jump(&STUBS, STUBS_SIZE, before, after) {
            text::place(&[jump], alone);
        }
    }
}

/// Before a thread is made. Before the first: rewrites the sites that are known from the start, and then all
/// those that could not be rewritten later. (libc says already that there are several threads.)
pub fn before_threads() {
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.swap(true, Ordering::Relaxed) {
        return;
    }
    rewrite_known();
    // With another dispatch a thread may have been made unseen.
    if state() != State::On || kind::kind() != kind::Kind::Exclusive {
        return;
    }
    let (start, end) = libcs();
    let mut jumps = Jumps::new();
    // SAFETY: libc's text; there is one thread.
    unsafe {
        let mut calls = Calls::new(Range { start, end });
        while let Some(after) = calls.next_from(start + site::BETWEEN + 8) {
            let movable =
                |before: &Before| !is_in_a_word(before.site) && before.number.is_none_or(is_simple);
            let Some(before) = find_before(after, None).filter(movable) else {
                continue;
            };
            let Some(jump) = make_jump(&STUBS, STUBS_SIZE, before, after) else {
                break;
            };
            if jumps.is_full() {
                text::place(jumps.sorted(), true);
                jumps = Jumps::new();
            }
            jumps.push(jump);
        }
        text::place(jumps.sorted(), true);
    }
}

/// Makes stubs for the sites in libc's `read`, at `function`: `xor eax, eax; syscall`, and behind it a
/// comparison of `rax`.
///
/// # Safety
/// The function is `read`; no other thread runs.
unsafe fn rewrite_read(function: usize, jumps: &mut Jumps) {
    const SITE: [u8; 6] = [0x31, 0xc0, 0x0f, 0x05, NEXT, 0x3d];
    let mut code = [0u8; 160];
    // SAFETY: libc's text is longer than this one function, which lies in its first half.
    unsafe { std::ptr::copy_nonoverlapping(function as *const u8, code.as_mut_ptr(), code.len()) };
    let sites = code.windows(SITE.len()).enumerate();
    for (at, _) in sites.filter(|(_, bytes)| *bytes == SITE) {
        let site = function + at;
        if FAR_STUBS.start.load(Ordering::Relaxed) == 0 {
            let near = site + (usize::from(NEXT) << 24) + (1 << 23);
            // Whatever the site, the highest byte of the distance stays the same.
            reserve(&FAR_STUBS, FAR_STUBS_SIZE, near, 1 << 18, 16);
        }
        // SAFETY: the text is `read`'s, and nobody is in it.
        let stub = unsafe { make_stub(&FAR_STUBS, FAR_STUBS_SIZE, Some(0), &[], site + 4) };
        if let Some(stub) = stub
            && distance(site + 5, stub)[3] == NEXT
        {
            jumps.push(Jump { site, stub });
        }
    }
}

/// Traps, of whatever sites, before those that are known from the start are rewritten.
const EARLY: usize = 3;
/// Traps until then.
static EARLIER: AtomicUsize = AtomicUsize::new(0);
/// At start-up, while there is one thread, with libc's text.
pub fn start(text: Range) {
    // SAFETY: a constant name.
    let read = unsafe { libc::dlsym(libc::RTLD_NEXT, c"read".as_ptr()) } as usize;
    if read < text.start || !raw::is_single_threaded() {
        return;
    }
    READ.store(read, Ordering::Relaxed);
    if kind::kind() != kind::Kind::None && settings::PATCH.get() != b"never" {
        traps::text_begins(text.start);
        common::find(&text);
        choose_entry();
    }
    // With another dispatch, a thread or a handler may be made unseen. Where the unwinder is loaded already it
    // is told of the stubs, for which it takes memory, and so not amidst a call that libc makes to take some.
    if kind::kind() != kind::Kind::Exclusive || unwinding::is_loaded() {
        rewrite_known();
    }
}

/// Rewrites the sites that are known from the start, if they are not yet. Before there is another thread, or
/// a handler of the program's.
pub fn rewrite_known() {
    if READ.load(Ordering::Relaxed) == 0 || replacements::is_spawned_child() {
        return;
    }
    let read = READ.swap(0, Ordering::Relaxed);
    EARLIER.store(EARLY, Ordering::Relaxed);
    let (start, end) = libcs();
    let text = Range { start, end };
    if state() == State::On {
        prepare(text.start);
    }
    // SAFETY: the text is libc's, and there is one thread, which is inside none of the functions but for a
    // `syscall` that ends a site: the byte behind it stays what it was.
    unsafe {
        let sites = shared::start(read, text);
        if state() == State::On {
            let mut jumps = Jumps::new();
            shared::rewrite(&sites, &mut jumps);
            rewrite_read(read, &mut jumps);
            hints::rewrite(settings::sites(), text, &mut jumps);
            common::rewrite(&mut jumps);
            text::place(jumps.sorted(), true);
            unwinding::start();
        }
    }
}

/// As `is_x86_feature_detected!`, which asks the processor a dozen questions: each takes microseconds in a
/// virtual machine, and this is done at the start of every program.
fn has_avx() -> bool {
    /// Of `ECX` of leaf 1.
    const AVX: u32 = 1 << 28;
    let both = OSXSAVE | AVX;
    // SAFETY: the system uses XSAVE. The state of the SSE and AVX registers is bits 1 and 2.
    features() & both == both && unsafe { kept_by_system() } & 6 == 6
}

/// `ECX` of the processor's leaf 1: of the answer that the loader had, if it tells.
fn features() -> u32 {
    match told_to_loader(0) {
        // An SSE2 bit is in EDX.
        Some(leaf) if leaf[3] != 0 => leaf[2],
        _ => std::arch::x86_64::__cpuid(1).ecx,
    }
}

/// `EAX`, `EBX`, `ECX` and `EDX` as the processor told the loader: of leaf 1 (0 in the loader's numbering), or
/// 7 (1). From glibc 2.33 on.
fn told_to_loader(leaf: u32) -> Option<[u32; 4]> {
    /// Part of `cpuid_feature` in glibc's `sys/platform/x86.h`.
    #[repr(C)]
    struct Leaf {
        said: [u32; 4],
    }
    type Find = unsafe extern "C" fn(u32) -> *const Leaf;
    // SAFETY: a constant name, and the function that glibc documents under it: it gives memory of the
    // loader's, which nobody changes, or null.
    unsafe {
        let find = libc::dlsym(libc::RTLD_DEFAULT, c"__x86_get_cpuid_feature_leaf".as_ptr());
        let find: Option<Find> = std::mem::transmute(find);
        let leaf = find.and_then(|find| find(leaf).as_ref())?;
        Some(leaf.said)
    }
}

/// Chooses the entry that stubs call.
fn choose_entry() {
    if let Some(leaf) = told_to_loader(1) {
        arckfs::know_leaf_7(leaf[1]);
    }
    let entry = if has_avx() {
        arck_patched_avx as *const () as usize
    } else {
        arck_patched_sse as *const () as usize
    };
    ENTRY.store(entry, Ordering::Relaxed);
}

/// Takes memory for stubs below libc's text, which begins at `near`.
fn prepare(near: usize) {
    // Before the LibFS maps the neighbourhood, 16 MiB apart.
    reserve(&STUBS, STUBS_SIZE, near - 0x100_0000, 0x100_0000, 64);
    if STUBS.start.load(Ordering::Relaxed) == 0 {
        REFUSED.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_known() {
        assert_eq!(has_avx(), std::arch::is_x86_feature_detected!("avx"));
        assert_eq!(features(), std::arch::x86_64::__cpuid(1).ecx);
        let flushes = |ebx: u32| ebx & (1 << 23 | 1 << 24);
        let leaf = told_to_loader(1).expect("a glibc from 2.33 on");
        let said = std::arch::x86_64::__cpuid_count(7, 0).ebx;
        assert_eq!(flushes(leaf[1]), flushes(said));
    }

    /// The area of stubs in this test program.
    pub fn area() -> usize {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            choose_entry();
            prepare(libc::read as *const () as usize & !0xfff);
        });
        STUBS.start.load(Ordering::Relaxed)
    }

    #[test]
    fn jumps_reach() {
        assert_eq!(distance(0x1000, 0x1005), 5i32.to_le_bytes());
        assert_eq!(distance(0x2000, 0x1000), (-0x1000i32).to_le_bytes());
    }

    #[test]
    fn the_move_before_a_call_is_found() {
        let find = |tail: &[u8]| {
            let mut code = [0x90u8; 64];
            code[64 - tail.len()..].copy_from_slice(tail);
            let end = code.as_ptr() as usize + 64;
            // SAFETY: the array is longer than what is looked at.
            unsafe { find_before(end, Some(0x101)) }.map(|before| end - before.site)
        };
        assert_eq!(find(&[0xb8, 1, 1, 0, 0, 0x0f, 0x05]), Some(7));
        assert_eq!(
            find(&[
                0xb8, 1, 1, 0, 0, 0x48, 0x89, 0xfe, 0xbf, 0x9c, 0xff, 0xff, 0xff, 0x0f, 0x05
            ]),
            Some(15)
        );
        // Another number, another register, no such instruction, something else between.
        assert_eq!(find(&[0xb8, 2, 1, 0, 0, 0x0f, 0x05]), None);
        assert_eq!(find(&[0x41, 0xb8, 1, 1, 0, 0, 0x0f, 0x05]), None);
        assert_eq!(find(&[0x89, 0xd0, 0x0f, 0x05]), None);
        assert_eq!(find(&[0xb8, 1, 1, 0, 0, 0x90, 0x0f, 0x05]), None);
        // mov esi, 128; mov eax, r8d, as in a loop that waits for a lock. Not: mov r14d, 128; mov edx, 60 and
        // eax of it, which ends a thread; a store of a constant.
        let loops = [0xbe, 128, 0, 0, 0, 0x44, 0x89, 0xc0, 0x0f, 0x05];
        assert_eq!(find(&loops), Some(10));
        assert_eq!(find(&[&[0x41], &loops[..]].concat()), None);
        assert_eq!(find(&[0xba, 60, 0, 0, 0, 0x89, 0xd0, 0x0f, 0x05]), None);
        assert_eq!(find(&[&[0xc7, 0x44, 0x24], &loops[..]].concat()), None);
    }

    /// What is in the sixteen vector registers.
    #[derive(Clone, Debug, PartialEq, Eq)]
    #[repr(C, align(64))]
    struct Registers([[u64; 4]; 16]);

    /// Calls an entry with a number that nothing handles, the stack as in a stub, with these halves of the vector registers,
    /// by these moves; what is there afterwards, and what `$after` leaves in eax.
    macro_rules! called {
        ($entry:path, $move:literal, $register:literal, $before:expr, $after:literal) => {{
            let before: &Registers = $before;
            let mut after = Registers([[0; 4]; 16]);
            let result: u64;
            let told: u32;
            std::arch::asm!(
                "lea rsp, [rsp - 128]",
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                concat!($move, " ", $register, "\\n, [{before} + \\n*32]"),
                ".endr",
                "mov ecx, 39",
                "call {entry}",
                "mov {result}, rax",
                $after,
                ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
                concat!($move, " [{after} + \\n*32], ", $register, "\\n"),
                ".endr",
                "lea rsp, [rsp + 128]",
                before = in(reg) before,
                after = in(reg) &raw mut after,
                result = out(reg) result,
                entry = sym $entry,
                inout("rdi") 1u64 => _, inout("rsi") 2u64 => _, inout("rdx") 3u64 => _,
                inout("r8") 4u64 => _, inout("r9") 5u64 => _, inout("r10") 6u64 => _,
                out("eax") told, out("rcx") _, out("r11") _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _, out("xmm4") _, out("xmm5") _,
                out("xmm6") _, out("xmm7") _, out("xmm8") _, out("xmm9") _, out("xmm10") _, out("xmm11") _,
                out("xmm12") _, out("xmm13") _, out("xmm14") _, out("xmm15") _,
            );
            assert_eq!(result as u32, std::process::id());
            (after, told)
        }};
    }

    /// Each register another value; of the upper halves, those that `has_upper` says.
    fn registers(has_upper: impl Fn(u64) -> bool) -> Registers {
        Registers(std::array::from_fn(|register| {
            let register = register as u64 + 1;
            let word = |place: u64| register << 32 | place;
            match has_upper(register - 1) {
                true => [word(1), word(2), word(3), word(4)],
                false => [word(1), word(2), 0, 0],
            }
        }))
    }

    #[test]
    fn registers_are_preserved() {
        // SAFETY: the entries preserve what is not said to be changed.
        unsafe {
            let none = registers(|_| false);
            assert_eq!(
                called!(arck_patched_sse, "movdqa", "xmm", &none, "").0,
                none
            );
            if !has_avx() {
                return;
            }
            // No upper half, all of them, and each alone: what is in any of them must be found.
            for upper in 0..16 {
                let one = registers(|register| register == upper);
                assert_eq!(called!(arck_patched_avx, "vmovdqa", "ymm", &one, "").0, one);
            }
            let all = registers(|_| true);
            assert_eq!(called!(arck_patched_avx, "vmovdqa", "ymm", &all, "").0, all);
            assert_eq!(
                called!(arck_patched_avx, "vmovdqa", "ymm", &none, "").0,
                none
            );
        }
    }

    /// Upper halves that are not in use are not in use afterwards, which would make all code for SSE slower that the program
    /// has. Which are in use a processor tells by XGETBV with 1; one that does not cannot be asked.
    #[test]
    fn halves_that_are_not_in_use_stay_so() {
        let tells = std::arch::x86_64::__cpuid_count(0xd, 1).eax & 1 << 2 != 0;
        assert!(
            tells || !has_avx(),
            "this processor does not tell which registers are in use: run this on one of the last ten years"
        );
        if !has_avx() {
            return;
        }
        const ASK: u32 = 4;
        let none = registers(|_| false);
        // SAFETY: as above.
        unsafe {
            std::arch::asm!("vzeroupper");
            let (after, told) = called!(
                arck_patched_avx,
                "vmovdqa",
                "xmm",
                &none,
                "mov ecx, 1\nxgetbv"
            );
            assert_eq!((after, told & ASK), (none, 0), "in use");
            let all = registers(|_| true);
            let (_, told) = called!(
                arck_patched_avx,
                "vmovdqa",
                "ymm",
                &all,
                "mov ecx, 1\nxgetbv"
            );
            assert_eq!(told & ASK, ASK, "nothing would be noticed");
            std::arch::asm!("vzeroupper");
        }
    }

    #[test]
    fn calls_that_return_elsewhere_keep_trapping() {
        assert!(is_simple(libc::SYS_openat as usize) && is_simple(libc::SYS_futex as usize));
        assert!(
            !is_simple(libc::SYS_clone3 as usize) && !is_simple(libc::SYS_rt_sigreturn as usize)
        );
    }
}
