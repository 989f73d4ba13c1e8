//! A thread's place in a session: its slot in the group region and its operation slot in
//! control memory, both under the same number.
//!
//! # Invariants
//! * A context is used by its own thread only.
//! * After `fork` the contexts that the child finds belong to the parent: nothing of them is touched
//!   there, whatever libc runs (the destructors of a thread's variables too). [`forget_all`] forgets
//!   them, and where nobody has called it, contexts say whose they are.

use crate::membership::Membership;
use crate::region::ThreadSlot;
use arck_protocol::operation::OperationSlot;
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// See the module's head. Alone in its lines, and in those that the processor fetches along: its
/// counters change at every operation, and an allocator may put those of two threads side by side.
#[repr(align(128))]
pub struct ThreadContext {
    membership: &'static Membership,
    slot: ThreadSlot<'static>,
    operation: &'static OperationSlot,
    depth: Cell<u32>,
    /// See [`ThreadContext::unreached`].
    unreached: Cell<Option<Errno>>,
    not_send: PhantomData<*const ()>,
}

/// Inside an operation until dropped.
#[must_use = "an operation ends when this is dropped"]
pub struct Operation<'t> {
    context: &'t ThreadContext,
}

impl ThreadContext {
    /// For allocation, locks and epochs of the region.
    #[inline]
    pub fn slot(&self) -> &ThreadSlot<'static> {
        &self.slot
    }

    /// Why this thread has not reached something of the session's that is there, if it has not since this was
    /// last forgotten: what it has found since may be wrong. ENOMEM and EMFILE where the process may have no
    /// more addresses or descriptors.
    #[inline]
    pub fn unreached(&self) -> Option<Errno> {
        self.unreached.get()
    }

    /// From now on [`ThreadContext::unreached`] tells of what comes.
    #[inline]
    pub fn forget_unreached(&self) {
        self.unreached.set(None);
    }

    /// Begins an operation (DESIGN section 5); nests. No message may be sent inside.
    #[inline]
    pub fn enter(&self) -> Operation<'_> {
        let depth = self.depth.get();
        if depth == 0 {
            // Another member of the group may have written there: one panic of that is enough, and a second one in a destructor that
            // the first runs would end the program.
            debug_assert!(
                self.operation.is_of(self.membership.member)
                    || self.membership.has_ended()
                    || std::thread::panicking(),
                "another thread's place in control memory"
            );
            self.operation.enter(self.membership.barrier);
        }
        self.depth.set(depth + 1);
        Operation { context: self }
    }
}

impl Drop for Operation<'_> {
    #[inline]
    fn drop(&mut self) {
        let depth = self.context.depth.get() - 1;
        self.context.depth.set(depth);
        if depth == 0 {
            self.context.operation.leave();
        }
    }
}

/// The contexts of one thread, one per session; freed when the thread ends.
struct Contexts {
    /// The process that they belong to; 0 while there are none.
    process: u32,
    contexts: Vec<&'static ThreadContext>,
}

impl Contexts {
    /// Forgets what was another process's: a parent's.
    fn keep_own(&mut self) {
        let process = process();
        if self.process != process {
            self.contexts = Vec::new();
            self.process = process;
        }
    }
}

/// How many threads are ending, and giving their places back.
static LEAVING: AtomicU32 = AtomicU32::new(0);

/// That a thread is ending, until dropped: no session that it found open ends meanwhile ([`wait_for_leaving`]).
struct Leaving;

impl Leaving {
    fn begin() -> Leaving {
        LEAVING.fetch_add(1, Ordering::SeqCst);
        // Either this thread sees that a session has ended, or who ends that sees this thread.
        fence(Ordering::SeqCst);
        Leaving
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        LEAVING.fetch_sub(1, Ordering::Release);
    }
}

/// Waits for threads that are giving back their places in a session that has been marked as ended: what they
/// work on is about to be zeroes. Those that come later leave it alone.
pub(crate) fn wait_for_leaving() {
    fence(Ordering::SeqCst);
    while LEAVING.load(Ordering::Acquire) != 0 {
        rustix::thread::sched_yield();
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        LAST.set(None);
        if self.contexts.is_empty() {
            return;
        }
        self.keep_own();
        let _leaving = Leaving::begin();
        for context in self.contexts.drain(..) {
            if context.membership.has_ended() {
                // Its places are others' to clear away, and this process has nothing of them any more.
                continue;
            }
            context.operation.clear();
            // SAFETY: made by Box::leak in `context` below; this thread alone had it, and it is
            // ending.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(context).cast_mut()) });
        }
    }
}

thread_local! {
    static LAST: Cell<Option<&'static ThreadContext>> = const { Cell::new(None) };
    static CONTEXTS: RefCell<Contexts> = const {
        RefCell::new(Contexts {
            process: 0,
            contexts: Vec::new(),
        })
    };
}

/// This process.
fn process() -> u32 {
    let process = rustix::process::getpid().as_raw_nonzero();
    process.get().unsigned_abs()
}

/// This thread's context in `session`. EAGAIN if too many threads use it.
#[inline]
pub fn context(membership: &'static Membership) -> Result<&'static ThreadContext, Errno> {
    if let Some(last) = LAST.get()
        && std::ptr::eq(last.membership, membership)
    {
        return Ok(last);
    }
    find_or_claim(membership)
}

/// The context that this thread has in `session` already.
fn find(membership: &Membership) -> Option<&'static ThreadContext> {
    let found = CONTEXTS.try_with(|contexts| {
        let contexts = &mut *contexts.borrow_mut();
        contexts.keep_own();
        let mut contexts = contexts.contexts.iter().copied();
        contexts.find(|context| std::ptr::eq(context.membership, membership))
    });
    found.unwrap_or(None)
}

/// Whether this thread is inside an operation of a session.
pub(crate) fn is_inside(membership: &Membership) -> bool {
    let last = LAST
        .get()
        .filter(|last| std::ptr::eq(last.membership, membership));
    let context = last.or_else(|| find(membership));
    context.is_some_and(|context| context.depth.get() != 0)
}

/// Notes that this thread has not reached something of the session's ([`ThreadContext::unreached`]). Whoever
/// has no place in the session yet sees it by what he asked for.
#[cold]
pub(crate) fn note_unreached(membership: &Membership, errno: Errno) {
    if let Some(context) = find(membership) {
        context.unreached.set(Some(errno));
    }
}

/// Why this thread has not reached something of the session's: see [`ThreadContext::unreached`].
#[cold]
pub(crate) fn unreached(membership: &Membership) -> Option<Errno> {
    find(membership).and_then(ThreadContext::unreached)
}

#[cold]
fn find_or_claim(membership: &'static Membership) -> Result<&'static ThreadContext, Errno> {
    if let Some(found) = find(membership) {
        LAST.set(Some(found));
        return Ok(found);
    }
    if membership.has_ended() {
        return Err(Errno::IO);
    }
    let slot = membership
        .region
        .claim_thread_slot(membership.member)
        .map_err(|_| Errno::AGAIN)?;
    let (control, place) = (membership.control(), slot.holder().thread);
    let operation = control
        .threads
        .get(usize::from(place))
        .ok_or(Errno::AGAIN)?;
    control
        .header
        .threads
        .fetch_max(u32::from(place) + 1, Ordering::SeqCst);
    let member = u64::from(membership.member);
    operation
        .thread
        .store(u64::from(process()) | member << 32, Ordering::Release);
    let context: &'static ThreadContext = Box::leak(Box::new(ThreadContext {
        membership,
        slot,
        operation,
        depth: Cell::new(0),
        unreached: Cell::new(None),
        not_send: PhantomData,
    }));
    // A thread that is ending (its contexts are gone already) keeps this one for good.
    let _ = CONTEXTS.try_with(|contexts| contexts.borrow_mut().contexts.push(context));
    LAST.set(Some(context));
    Ok(context)
}

/// Gives back this thread's place in a session that ends. The context itself stays, since
/// whoever was given a reference to it may keep it; it is no use any more.
pub fn leave(membership: &'static Membership) {
    LAST.set(None);
    let found = CONTEXTS.try_with(|contexts| {
        let contexts = &mut *contexts.borrow_mut();
        contexts.keep_own();
        let contexts = &mut contexts.contexts;
        let place = contexts
            .iter()
            .position(|context| std::ptr::eq(context.membership, membership))?;
        Some(contexts.swap_remove(place))
    });
    if let Ok(Some(context)) = found {
        context.operation.clear();
        context.slot.give_back();
    }
}

/// In a forked child: forgets the parent's contexts.
pub(crate) fn forget_all() {
    LAST.set(None);
    LEAVING.store(0, Ordering::Relaxed);
    let _ = CONTEXTS.try_with(|contexts| contexts.borrow_mut().contexts.clear());
}
