//! An emulated medium: persistent memory that is not there, as slow as its description says.
//!
//! Source: a [`Model`], which the controller puts into a page of a memory file and sends to each session; the
//! primitives of this crate tell what is flushed, fenced, streamed and read in bulk.
//!
//! | module | idea |
//! | --- | --- |
//! | `model` | the medium in numbers |
//! | `ledger` | what all threads of all processes share: who is at a node, until when it is busy |
//! | `account` | what one thread owes, and when it waits |
//!
//! # Invariants
//! * While nothing is emulated, it costs next to nothing (`scripts/instructions`): whether it is emulated is a bit of
//!   the byte that each primitive loads anyway (`control`). Bulk reads of [`BULK_READ`] bytes and more, which
//!   loaded nothing, load that byte.
//! * What is emulated is time alone. Which bytes are stored, flushed and fenced, and in which order, is as before.
//! * Where the page of a medium was mapped there is memory until the process ends: a thread may be about to look at it. A page that
//!   another takes the place of, and the parent's in a forked child, become memory of the process's own there.

mod account;
mod ledger;
mod model;

use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use rustix::thread::{NanosleepRelativeResult, Timespec, nanosleep, sched_yield};
use rustix::time::{ClockId, clock_gettime};

use crate::control;
use crate::error::{Error, Result};
use account::{Account, Bank, Clock};
use ledger::{Ledger, PAGE_WORDS};

pub use model::{
    BANDWIDTH_MIN, Curve, DELEGATES_MAX, Delegated, Direction, FROM_MIN, LATENCY_MAX, Model,
    ModelError, NODES_MAX, POINTS_MAX, Way,
};

/// A copy out of shared memory of so many bytes or more is a read of the medium; a smaller one is taken to be of what
/// the processor's caches hold.
pub const BULK_READ: usize = 768;

/// Bytes of the shared page.
const PAGE_BYTES: usize = PAGE_WORDS * 8;

/// The medium of this process.
struct Emulated {
    model: Model,
    words: &'static [AtomicU64; PAGE_WORDS],
    /// Address of the pool's first byte: nodes are counted from there.
    pool: AtomicUsize,
}

/// Null while nothing was ever emulated. What it points to lives for ever.
static EMULATED: AtomicPtr<Emulated> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The thread's account, and the medium it is of.
    static ACCOUNT: RefCell<(usize, Account)> = const { RefCell::new((0, Account::new(0))) };
}

fn emulated() -> Option<&'static Emulated> {
    // SAFETY: null, or a leaked box, which nobody changes but by its atomics.
    unsafe { EMULATED.load(Ordering::Acquire).as_ref() }
}

/// Makes the page of a medium, for [`emulate`] here and in other processes. Its size is sealed.
///
/// # Errors
/// [`Error::Medium`] for a model that is none; those of `memfd_create` and `mmap`.
pub fn make_page(model: &Model) -> Result<OwnedFd> {
    model.check()?;
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("arck-medium", flags).map_err(Error::system("memfd_create"))?;
    ftruncate(&file, PAGE_BYTES as u64).map_err(Error::system("ftruncate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(Error::system("fcntl(F_ADD_SEALS)"))?;
    let words = map(&file)?;
    model.encode(words);
    // SAFETY: mapped just now, and nobody else knows of it.
    unsafe { munmap(words.as_ptr().cast_mut().cast(), PAGE_BYTES) }
        .map_err(Error::system("munmap"))?;
    Ok(file)
}

/// From now on this process's memory is as slow as the medium of this page, beside all others that have the same
/// page.
///
/// # Errors
/// [`Error::Medium`] for a page that is none; those of `fstat` and `mmap`.
pub fn emulate(page: impl AsFd) -> Result<()> {
    let words = map(page.as_fd())?;
    let model = Model::decode(words)?;
    let emulated = Box::leak(Box::new(Emulated {
        model,
        words,
        pool: AtomicUsize::new(0),
    }));
    let before = EMULATED.swap(emulated, Ordering::AcqRel);
    control::set_emulating(true);
    vacate(before);
    Ok(())
}

/// In a forked child, before anything else there: nothing is emulated, and its parent's page is not the child's.
pub fn has_forked() {
    control::set_emulating(false);
    vacate(EMULATED.swap(std::ptr::null_mut(), Ordering::AcqRel));
}

/// Memory of the process's own comes in the place of a page: whoever looks at it yet learns and changes nothing.
fn vacate(before: *const Emulated) {
    // SAFETY: null, or a leaked box.
    if let Some(before) = unsafe { before.as_ref() } {
        let base = before.words.as_ptr().cast_mut().cast();
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
        );
        // SAFETY: over a mapping of the crate's own, as long, in one step; it is accessed by atomics alone, of which any value is
        // sound. Where there is no memory the page stays.
        let _ = unsafe { mmap_anonymous(base, PAGE_BYTES, protection, flags) };
    }
}

/// Emulates nothing any more; a thread that waits does so to the end of its wait.
pub fn stop() {
    control::set_emulating(false);
}

/// Where this process has the pool's first byte, whose node is the first.
pub fn note_pool(base: *const u8) {
    if let Some(emulated) = emulated() {
        emulated.pool.store(base.addr(), Ordering::Relaxed);
    }
}

/// The medium that is emulated in this process, if one is.
pub fn model() -> Option<&'static Model> {
    let emulates = control::load().emulates();
    emulated()
        .filter(|_| emulates)
        .map(|emulated| &emulated.model)
}

/// On which node of the emulated medium an address in the pool lies, and how many bytes from there on do; node 0 where none is
/// emulated.
pub fn stretch(address: *const u8) -> (u32, usize) {
    let emulates = control::load().emulates();
    match emulated().filter(|emulated| emulates && emulated.model.nodes > 1) {
        Some(emulated) => {
            let offset = emulated.offset_of(address);
            let stripe = emulated.model.stripe;
            let left = usize::try_from(stripe - offset % stripe);
            (emulated.model.node_of(offset), left.unwrap_or(usize::MAX))
        }
        None => (0, usize::MAX),
    }
}

/// Not through [`crate::Mapping`]: that leaves it out of forked children, where a signal's handler may have forked in the middle.
fn map(file: impl AsFd) -> Result<&'static [AtomicU64; PAGE_WORDS]> {
    let size = fstat(&file).map_err(Error::system("fstat"))?.st_size;
    if usize::try_from(size) != Ok(PAGE_BYTES) {
        return Err(Error::Medium(ModelError::Page));
    }
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
    // SAFETY: a new mapping, which replaces nothing.
    let base = unsafe { mmap(std::ptr::null_mut(), PAGE_BYTES, protection, flags, file, 0) };
    let base = base.map_err(Error::system("mmap"))?;
    // SAFETY: there is memory for ever, aligned to a page, as long as the array, and accessed by atomics alone. The file is no
    // shorter: `make_page` has sealed its size, and who sends another page to a session is its controller.
    Ok(unsafe { &*base.cast::<[AtomicU64; PAGE_WORDS]>() })
}

/// The clock of the machine, one for all processes.
struct Machine;

impl Clock for Machine {
    fn now(&self) -> u64 {
        let time = clock_gettime(ClockId::Monotonic);
        time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
    }

    fn sleep(&self, nanoseconds: u64) {
        let time = Timespec {
            tv_sec: (nanoseconds / 1_000_000_000).cast_signed(),
            tv_nsec: (nanoseconds % 1_000_000_000).cast_signed(),
        };
        // The caller looks at the clock, and sleeps again after a signal.
        let (NanosleepRelativeResult::Ok
        | NanosleepRelativeResult::Interrupted(_)
        | NanosleepRelativeResult::Err(_)) = nanosleep(&time);
    }

    fn give_way(&self) {
        sched_yield();
    }

    fn pause(&self) {
        std::hint::spin_loop();
    }
}

impl Emulated {
    fn offset_of(&self, address: *const u8) -> u64 {
        // Memory that is not in the pool is on some node, too, always the same.
        address
            .addr()
            .wrapping_sub(self.pool.load(Ordering::Relaxed)) as u64
    }

    fn bank(&self) -> Bank<'_> {
        Bank {
            model: &self.model,
            ledger: Ledger::new(self.words),
        }
    }
}

/// The work of a thread on its account; nothing where it is at work on it already (a signal has come in between), or
/// the thread is ending.
fn with_account(work: impl FnOnce(&'static Emulated, &mut Account)) {
    let Some(emulated) = emulated() else { return };
    let _ = ACCOUNT.try_with(|account| {
        let Ok(mut account) = account.try_borrow_mut() else {
            return;
        };
        let which = std::ptr::from_ref(emulated).addr();
        if account.0 != which {
            let slot = emulated.bank().ledger.take_slot();
            *account = (which, Account::new(slot));
        }
        work(emulated, &mut account.1);
    });
}

/// Lines of `[address, address + len)` were flushed.
#[cold]
pub(crate) fn flushed(address: *const u8, len: usize) {
    if len > 0 {
        with_account(|medium, account| {
            account.flush(medium.bank(), &Machine, medium.offset_of(address), len);
        });
    }
}

/// When an access begins that [`copied`] or [`fenced`] is told of.
#[derive(Clone, Copy)]
pub(crate) struct Begun(u64);

/// Before a streamed or a bulk copy to or from `address`.
#[cold]
pub(crate) fn copies(way: Way, address: *const u8) -> Begun {
    let begun = Machine.now();
    with_account(|medium, account| {
        account.copies(medium.bank(), begun, way, medium.offset_of(address));
    });
    Begun(begun)
}

/// After it: waits as long as the medium would take, at least for a read.
#[cold]
pub(crate) fn copied(begun: Begun, way: Way, address: *const u8, len: usize) {
    with_account(|medium, account| {
        let offset = medium.offset_of(address);
        match len {
            0 => account.leaves(medium.bank(), way, offset),
            _ => account.copied(medium.bank(), &Machine, begun.0, way, offset, len),
        }
    });
}

/// Before a fence, if there is anything to wait for.
#[cold]
pub(crate) fn fences() -> Option<Begun> {
    let mut begun = None;
    with_account(|_, account| {
        begun = account.is_unfenced().then(|| Begun(Machine.now()));
    });
    begun
}

/// After it.
#[cold]
pub(crate) fn fenced(begun: Option<Begun>) {
    if let Some(begun) = begun {
        with_account(|medium, account| account.fenced(medium.bank(), &Machine, begun.0));
    }
}

impl From<ModelError> for Errno {
    fn from(_: ModelError) -> Errno {
        Errno::INVAL
    }
}

#[cfg(all(test, not(miri)))]
#[path = "medium/tests.rs"]
pub(crate) mod tests;
