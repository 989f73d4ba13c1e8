//! Large copies by few threads at once at each memory node: those of who asks, as a gate lets them, or a fixed set of others.
//!
//! Source: OdinFS (OSDI'22), section 4, as Trio uses it (SOSP'23, section 4.5). Media whose bandwidth collapses
//! under many threads are accessed by few; what lies on several nodes is accessed by the threads of each at the same time. A gate
//! ([`at_once`]) does the first of both, for all programs of a user, and without a switch of threads where nobody waits.
//!
//! | module | idea |
//! | --- | --- |
//! | `ring` | what an asking thread hands to the threads of one node |
//! | `slots` | what all of them share |
//! | `pieces` | an access in pieces |
//! | `delegate` | what these threads do |
//! | `gate` | who may be at a node now |
//! | `at_once` | copies of who is let through |
//! | `rules` | what each of these keeps, by name |
//!
//! Their real code is checked under shuttle (`delegation/tests/model.rs` and `gate_model.rs`), with sleep and copies that are models; memory is sequentially
//! consistent there.
//!
//! A [`Batch`] is the access of one thread: its pieces are cut where a node ends, put together where they are neighbours, and
//! handed over as they come, or copied where a gate lets them. Whoever asks waits for all of them ([`Batch::wait`]): a moment by looking, then asleep.
//!
//! # Invariants
//! * A piece is durable before it is done, by its delegate's own fence. So what [`Batch::wait`] gives is as good as what the
//!   asking thread has stored itself, and order is as before: nothing is published before it has been waited for.
//! * What the asking thread has streamed before goes before what others store for it ([`batch`] fences); what it stores itself behind a gate it
//!   fences together with that.
//! * No thread of another process copies anything, so none copies with rights that who asks does not have.
//! * A batch that is dropped has been waited for: the memory of its pieces is its caller's until then.
//! * While nothing is delegated, an access costs one load more ([`is_wanted`]), and one below [`FROM_MIN`] bytes nothing.

mod at_once;
mod delegate;
mod gate;
mod pieces;
mod primitive;
mod ring;
mod rules;
mod slots;

use crate::error::{Error, Result};
use crate::flush::store_fence;
use crate::medium::{self, Delegated, FROM_MIN, Way};
use crate::order::Flushed;
use crate::shared::SharedBytes;
use at_once::AtOnce;
use pieces::{Joined, cut};
use primitive::{Ordering, thread};
use ring::Piece;
use slots::{Delegates, Slot};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};

pub use at_once::Failed;
pub use gate::Gates;
#[cfg(not(shuttle))]
pub use gate::make_gates;

/// Bytes of a piece, at most: a large access is done by several threads of a node.
const PIECE: usize = 64 << 10;

/// Null while there are no threads.
static DELEGATES: AtomicPtr<Delegates> = AtomicPtr::new(std::ptr::null_mut());

/// Gates, and how many threads each lets through; null: there are none.
static GATES: AtomicPtr<Gates> = AtomicPtr::new(std::ptr::null_mut());
static MOST: AtomicU32 = AtomicU32::new(0);

/// What [`start_when_wanted`] was told; null: nothing.
static LATER: AtomicPtr<Later> = AtomicPtr::new(std::ptr::null_mut());
/// A thread is starting what was put off.
static IS_STARTING: AtomicBool = AtomicBool::new(false);

/// Bytes from which on accesses are delegated, of each way; the greatest number while nothing is.
static FROM: [AtomicUsize; 2] = [const { AtomicUsize::new(usize::MAX) }; 2];

/// Threads that are started when something is delegated to them.
struct Later {
    nodes: u32,
    delegated: Delegated,
    may_start: fn() -> bool,
}

thread_local! {
    /// The slot that the thread had last, and whether it has it now.
    static SLOT: Cell<(usize, bool)> = const { Cell::new((usize::MAX, false)) };
}

/// Starts the threads for each of `nodes` memory nodes, unless these were started; from then on accesses of this process are delegated
/// that are as large as `delegated` says. The threads block all signals but those of faults, and libc's own.
///
/// # Errors
/// [`Error::System`]: EINVAL for no nodes or threads or too many, or sizes that are too small; EBUSY: other threads are running; that of the
/// thread that could not be started, and then there are none.
pub fn start(nodes: u32, delegated: &Delegated) -> Result<()> {
    check(nodes, delegated)?;
    let threads = delegated.threads as usize;
    if let Some(running) = delegates() {
        if running.nodes.len() != nodes as usize || running.per_node != threads {
            return Err(Error::System {
                operation: "delegation",
                errno: rustix::io::Errno::BUSY,
            });
        }
        delegate_from(delegated);
        return Ok(());
    }
    let made: &'static Delegates = Box::leak(Box::new(Delegates::new(nodes, threads)));
    for node in 0..nodes as usize {
        for index in 0..threads {
            let run = move || delegate::run(made, node, index);
            let named = thread::Builder::new().name("arck-delegate".into());
            match delegate::with_signals_blocked(|| named.spawn(run)) {
                Ok(thread) => made.note(thread),
                Err(error) => {
                    made.end();
                    let errno = rustix::io::Errno::from_io_error(&error);
                    return Err(Error::System {
                        operation: "a thread",
                        errno: errno.unwrap_or(rustix::io::Errno::AGAIN),
                    });
                }
            }
        }
    }
    let made = std::ptr::from_ref(made).cast_mut();
    let new = DELEGATES.compare_exchange(
        std::ptr::null_mut(),
        made,
        Ordering::AcqRel,
        Ordering::Acquire,
    );
    if new.is_err() {
        // SAFETY: leaked above.
        unsafe { &*made }.end();
    }
    delegate_from(delegated);
    Ok(())
}

/// The same, but that the threads are started by the first access that is delegated, where `may_start` says that its thread may start
/// others (it is in no handler of a signal, which may have interrupted libc while it held a lock). Where they cannot be started nothing is
/// delegated any more. Does not block.
///
/// # Errors
/// [`Error::System`]: EINVAL as [`start`].
pub fn start_when_wanted(nodes: u32, delegated: Delegated, may_start: fn() -> bool) -> Result<()> {
    check(nodes, &delegated)?;
    // It lives for ever: a thread may be looking at it.
    let later = Box::leak(Box::new(Later {
        nodes,
        delegated,
        may_start,
    }));
    LATER.store(later, Ordering::Release);
    delegate_from(&delegated);
    Ok(())
}

/// From now on accesses of this process that are as large as `delegated` says go through gates, which let so many threads at once to each
/// node, of all processes that have these gates: those who ask, which copy by themselves. Instead of threads that were started.
///
/// # Errors
/// [`Error::System`]: EINVAL as [`start`].
pub fn at_once(gates: &'static Gates, delegated: &Delegated) -> Result<()> {
    check(1, delegated)?;
    MOST.store(delegated.threads, Ordering::Relaxed);
    let gates = std::ptr::from_ref(gates).cast_mut();
    GATES.store(gates, Ordering::Release);
    delegate_from(delegated);
    Ok(())
}

fn check(nodes: u32, delegated: &Delegated) -> Result<()> {
    match (1..=medium::NODES_MAX).contains(&nodes) && delegated.check().is_ok() {
        true => Ok(()),
        false => Err(Error::System {
            operation: "delegation",
            errno: rustix::io::Errno::INVAL,
        }),
    }
}

fn delegate_from(delegated: &Delegated) {
    for way in [Way::Read, Way::Write] {
        FROM[way as usize].store(delegated.from(way) as usize, Ordering::Relaxed);
    }
}

fn delegate_nothing() {
    GATES.store(std::ptr::null_mut(), Ordering::Release);
    LATER.store(std::ptr::null_mut(), Ordering::Release);
    for from in &FROM {
        from.store(usize::MAX, Ordering::Relaxed);
    }
}

/// Starts the threads that were put off, if this thread is the one to do it.
#[cold]
fn start_now() -> Option<&'static Delegates> {
    // SAFETY: null, or leaked by `start_when_wanted`.
    let later = unsafe { LATER.load(Ordering::Acquire).as_ref() }?;
    if !(later.may_start)() || IS_STARTING.swap(true, Ordering::Acquire) {
        return None;
    }
    if start(later.nodes, &later.delegated).is_err() && delegates().is_none() {
        delegate_nothing();
    }
    IS_STARTING.store(false, Ordering::Release);
    delegates()
}

/// Whether an access of so many bytes is to be delegated in this process.
#[inline(always)]
pub fn is_wanted(way: Way, length: usize) -> bool {
    length >= FROM_MIN as usize && length >= FROM[way as usize].load(Ordering::Relaxed)
}

/// Whether there are threads to which something can be delegated.
pub fn is_started() -> bool {
    delegates().is_some()
}

/// Ends the threads, when all batches are over. Blocks until then, but where another thread is at it.
pub fn stop() {
    delegate_nothing();
    let last = DELEGATES.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or leaked by `start`.
    if let Some(delegates) = unsafe { last.as_ref() } {
        delegates.close();
    }
}

/// In a forked child, before anything else there: it has none of the threads, and nothing says that it is to start any. What the forking
/// thread itself was in the middle of (its signal's handler has forked) fails there.
pub fn has_forked() {
    delegate_nothing();
    gate::has_forked();
    IS_STARTING.store(false, Ordering::Relaxed);
    let parents = DELEGATES.swap(std::ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: null, or leaked by `start`: this child's copy.
    if let Some(parents) = unsafe { parents.as_ref() } {
        parents.are_gone.store(true, Ordering::SeqCst);
    }
    let _ = SLOT.try_with(|slot| slot.set((usize::MAX, false)));
}

#[inline(always)]
fn delegates() -> Option<&'static Delegates> {
    // SAFETY: null, or leaked by `start`; nobody changes it but by its atomics.
    unsafe { DELEGATES.load(Ordering::Acquire).as_ref() }
}

/// An access that is delegated. One at a time for each thread.
pub struct Batch {
    by: By,
    /// It is of the thread that began it.
    _this_thread: [*const (); 0],
}

/// Who copies.
enum By {
    Delegates(Handed),
    ThisThread(AtOnce),
}

/// What is handed over.
struct Handed {
    delegates: &'static Delegates,
    slot: &'static Slot,
    /// What was not handed over yet.
    open: Joined,
}

/// An access that is to be delegated; `None` where nothing is, where the thread has one already, or too many threads have.
/// Starts the threads where that was put off.
#[inline(always)]
pub fn batch() -> Option<Batch> {
    // Before the gates, which are a child's no more.
    let forks = gate::FORKS.load(Ordering::SeqCst);
    // SAFETY: null, or what `at_once` was given, for ever.
    if let Some(gates) = unsafe { GATES.load(Ordering::SeqCst).as_ref() } {
        return begin_at_once(gates, forks);
    }
    delegates().or_else(start_now).and_then(begin)
}

fn begin_at_once(gates: &'static Gates, forks: u32) -> Option<Batch> {
    let (last, has_one) = SLOT.try_with(Cell::get).ok()?;
    if has_one {
        return None;
    }
    SLOT.try_with(|slot| slot.set((last, true))).ok()?;
    Some(Batch {
        by: By::ThisThread(AtOnce::new(gates, MOST.load(Ordering::Relaxed), forks)),
        _this_thread: [],
    })
}

#[cold]
fn begin(delegates: &'static Delegates) -> Option<Batch> {
    let (last, has_one) = SLOT.try_with(Cell::get).ok()?;
    if has_one {
        return None;
    }
    let index = delegates.take(last)?;
    SLOT.try_with(|slot| slot.set((index, true))).ok()?;
    // What this thread has streamed so far comes first, wherever a delegate writes.
    store_fence();
    Some(Batch {
        by: By::Delegates(Handed {
            delegates,
            slot: &delegates.slots[index],
            open: Joined::default(),
        }),
        _this_thread: [],
    })
}

impl Batch {
    /// Streams bytes into the view, sooner or later. `None`: they do not fit there.
    ///
    /// # Safety
    /// Until the batch has been waited for, or dropped, `bytes` and the view's memory stay as they are; nobody else looks at what is
    /// written, or writes it.
    pub unsafe fn stream(
        &mut self,
        view: &SharedBytes<'_>,
        offset: usize,
        bytes: &[u8],
    ) -> Option<()> {
        let place = view.slice(offset, bytes.len())?;
        let target = place.as_ptr();
        let piece = Piece {
            way: Way::Write,
            to: target,
            from: bytes.as_ptr(),
            length: bytes.len(),
        };
        // SAFETY: by the caller, and the view's own memory.
        unsafe { self.add(piece, target) };
        Some(())
    }

    /// Copies out of the view, sooner or later. `None`: there are not so many bytes.
    ///
    /// # Safety
    /// As [`Batch::stream`].
    pub unsafe fn copy_out(
        &mut self,
        view: &SharedBytes<'_>,
        offset: usize,
        buffer: &mut [u8],
    ) -> Option<()> {
        let place = view.slice(offset, buffer.len())?;
        let source = place.as_ptr();
        let piece = Piece {
            way: Way::Read,
            to: buffer.as_mut_ptr(),
            from: source,
            length: buffer.len(),
        };
        // SAFETY: by the caller, and the view's own memory.
        unsafe { self.add(piece, source) };
        Some(())
    }

    /// `shared`: which of both sides is on the medium.
    ///
    /// # Safety
    /// Both sides are the caller's until this has been waited for; what is not there is noticed.
    unsafe fn add(&mut self, piece: Piece, shared: *mut u8) {
        match &mut self.by {
            By::Delegates(handed) => handed.add(piece, shared),
            // SAFETY: by the caller.
            By::ThisThread(at_once) => unsafe { at_once.add(piece, shared) },
        }
    }

    /// Waits until everything is done. Errors: not all of it was, since memory was not there, on one side or the other; who did it
    /// himself would be told which.
    pub fn wait(mut self) -> std::result::Result<Flushed, Failed> {
        match &mut self.by {
            By::Delegates(handed) => handed.wait(),
            By::ThisThread(at_once) => at_once.finish(),
        }
    }
}

impl Handed {
    fn add(&mut self, whole: Piece, shared: *mut u8) {
        for (node, piece) in cut(whole, shared, PIECE) {
            if let Some((node, piece)) = self.open.put(node, piece, PIECE) {
                self.hand_over(node, piece);
            }
        }
    }

    fn hand_over(&self, node: u32, piece: Piece) {
        // What has no such node is where no medium is emulated.
        let node = node as usize % self.delegates.nodes.len();
        self.delegates.hand_over(self.slot, node, piece);
    }

    fn wait(&mut self) -> std::result::Result<Flushed, Failed> {
        self.finish();
        match self.slot.has_failed.load(Ordering::Relaxed) {
            true => Err(Failed),
            false => Ok(Flushed::by_others()),
        }
    }

    fn finish(&mut self) {
        if let Some((node, piece)) = self.open.take() {
            self.hand_over(node, piece);
        }
        self.slot.wait(self.delegates);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        match &mut self.by {
            By::Delegates(handed) => {
                handed.finish();
                let _ = SLOT.try_with(|slot| slot.set((slot.get().0, false)));
                handed.slot.give_back();
            }
            By::ThisThread(at_once) => {
                at_once.end();
                let _ = SLOT.try_with(|slot| slot.set((slot.get().0, false)));
            }
        }
    }
}

#[cfg(all(test, shuttle))]
#[path = "delegation/tests/model.rs"]
mod model;

#[cfg(all(test, shuttle))]
#[path = "delegation/tests/gate_model.rs"]
mod gate_model;

#[cfg(all(test, shuttle))]
#[path = "delegation/tests/running.rs"]
mod running;

#[cfg(all(test, not(miri), not(shuttle)))]
#[path = "delegation/tests.rs"]
mod tests;
