//! Contexts of asynchronous I/O, and what stands in them for requests that are done.
//!
//! A context has memory of its own: a page at whose address, which is its number to the program, nothing is, and behind it
//! as many places as it may have requests. In each is room for a completion, and for a request of the kernel's, which asks
//! whether an eventfd that is never empty can be read, and so is complete when it is submitted.
//!
//! # Invariants
//! * A place is taken by a change of its state from free. Then it is kept, to be fetched without the kernel, or submitted, for
//!   who waits there. It is free again when it was fetched, or if neither came to be.
//! * Who keeps a place looks afterwards whether anybody waits, and who waits has said so before he looks for what is kept:
//!   one of the two sees the other, so nobody waits in the kernel for what is kept here.
//! * Memory of a context stays: a thread may be looking at it. One that has ended is used for another one.
//! * A context is its process's: a child that was forked has none.
//! * The eventfd is made with the first context and stays, so that nothing is lacking when somebody has to be told.

use super::request::{Completion, POLL, Request, TELLS_EVENT};
use crate::raw::{self, error, failed, syscall};
use crate::reserved;
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};

/// Contexts that a process ever had at once, at most.
const CONTEXTS: usize = 1024;
/// The kernel's contexts all together hold no more, unless root has said so.
const PLACES_MOST: u32 = 1 << 20;
const PAGE: usize = 4096;

/// The number of the eventfd that is never empty, plus one; 0: there is none yet.
static READY: AtomicUsize = AtomicUsize::new(0);

/// Its number. EMFILE, ENFILE.
fn ready() -> Result<usize, isize> {
    if let Some(number) = READY.load(Ordering::Acquire).checked_sub(1) {
        return Ok(number);
    }
    // SAFETY: no pointers.
    let made = unsafe { syscall!(libc::SYS_eventfd2, 1, libc::EFD_CLOEXEC) };
    if failed(made) {
        return Err(made);
    }
    let kept = reserved::keep(made);
    if failed(kept) {
        raw::close(made);
        return Err(kept);
    }
    // Of two threads' each is as good; one stays unused.
    READY.store(kept as usize + 1, Ordering::Release);
    Ok(kept as usize)
}

static ALL: [AtomicPtr<Context>; CONTEXTS] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; CONTEXTS];

/// See the module's head. It stands behind the page that is its number.
#[repr(C)]
pub struct Context {
    /// The process that has it; 0 where it has ended.
    process: AtomicU32,
    /// Places, in its memory.
    room: u32,
    /// Requests it was made for.
    count: AtomicU32,
    /// The kernel's context.
    kernels: AtomicUsize,
    /// Where the search for a free place begins.
    next: AtomicU32,
    /// Where the search for a kept one begins, and how many there are.
    first: AtomicU32,
    kept: AtomicU32,
    /// Threads that wait in the kernel, or are about to.
    waiting: AtomicU32,
    /// Requests that the kernel has.
    in_kernel: AtomicU32,
}

const FREE: u32 = 0;
const TAKEN: u32 = 1;
const KEPT: u32 = 2;

#[repr(C)]
struct Place {
    /// First, so that its address is the place's.
    asked: UnsafeCell<Request>,
    told: UnsafeCell<Completion>,
    state: AtomicU32,
}

fn own_process() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall!(libc::SYS_getpid) as u32 }
}

impl Context {
    /// One that has room for so many requests. EAGAIN, ENOMEM, as the kernel.
    pub fn begin(count: u32) -> Result<&'static Context, isize> {
        if count > PLACES_MOST {
            return Err(error(libc::EAGAIN));
        }
        if ready().is_err() {
            return Err(error(libc::EAGAIN));
        }
        let mut kernels = 0usize;
        // SAFETY: the kernel writes the number.
        let made = unsafe { syscall!(libc::SYS_io_setup, count, &raw mut kernels) };
        if failed(made) {
            return Err(made);
        }
        Context::used_again(count)
            .or_else(|| Context::new(count))
            .inspect(|context| {
                context.count.store(count, Ordering::Relaxed);
                for word in [
                    &context.next,
                    &context.first,
                    &context.kept,
                    &context.in_kernel,
                ] {
                    word.store(0, Ordering::Relaxed);
                }
                context.kernels.store(kernels, Ordering::Release);
            })
            .ok_or_else(|| {
                // SAFETY: the context was made here.
                unsafe { syscall!(libc::SYS_io_destroy, kernels) };
                error(libc::ENOMEM)
            })
    }

    /// One that has ended, or was a parent's, with enough room: taken.
    fn used_again(count: u32) -> Option<&'static Context> {
        let process = own_process();
        Context::all().find(|context| {
            let of = context.process.load(Ordering::Acquire);
            let is_over = of != process && context.room >= count;
            let taken = is_over.then(|| {
                let order = Ordering::AcqRel;
                context
                    .process
                    .compare_exchange(of, process, order, Ordering::Relaxed)
            });
            let is_taken = taken.is_some_and(|taken| taken.is_ok());
            if is_taken {
                if of != 0 {
                    // No thread of a parent's is here. Those of this process that still wait take that back themselves.
                    context.waiting.store(0, Ordering::Relaxed);
                }
                // What was under way there is nobody's any more.
                let places = context.places();
                places
                    .iter()
                    .for_each(|place| place.state.store(FREE, Ordering::Relaxed));
            }
            is_taken
        })
    }

    fn new(count: u32) -> Option<&'static Context> {
        let header = size_of::<Context>().next_multiple_of(align_of::<Place>());
        let length = PAGE + header + count as usize * size_of::<Place>();
        let (access, how) = (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
        );
        // SAFETY: new memory, which is zeroed.
        let at = unsafe { syscall!(libc::SYS_mmap, 0, length, access, how, usize::MAX, 0) };
        if failed(at) {
            return None;
        }
        // SAFETY: memory of its own that stays; zeroes are a context that has ended, and places that are free.
        let context = unsafe {
            let context = (at as usize + PAGE) as *mut Context;
            (&raw mut (*context).room).write(count);
            (*context).process.store(own_process(), Ordering::Relaxed);
            &*context
        };
        let own = std::ptr::from_ref(context).cast_mut();
        let is_free = ALL.iter().any(|free| {
            free.compare_exchange(
                std::ptr::null_mut(),
                own,
                Ordering::AcqRel,
                Ordering::Relaxed,
            )
            .is_ok()
        });
        if !is_free {
            // SAFETY: nobody else has seen it.
            unsafe { syscall!(libc::SYS_munmap, at, length) };
        }
        is_free.then_some(context)
    }

    fn all() -> impl Iterator<Item = &'static Context> {
        ALL.iter().map_while(|context| {
            let context = context.load(Ordering::Acquire);
            // SAFETY: what is there was put there by `new`, which made all of it, and stays mapped.
            unsafe { context.as_ref() }
        })
    }

    /// The context of this process that has a number.
    pub fn of(number: usize) -> Option<&'static Context> {
        let process = own_process();
        Context::all().find(|context| {
            context.number() == number && context.process.load(Ordering::Acquire) == process
        })
    }

    /// What the program calls it.
    pub fn number(&self) -> usize {
        std::ptr::from_ref(self) as usize - PAGE
    }

    pub fn kernels(&self) -> usize {
        self.kernels.load(Ordering::Acquire)
    }

    pub fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// Ends it; the kernel's answer. EINVAL if another thread has.
    pub fn end(&self) -> isize {
        let kernels = self.kernels.swap(0, Ordering::AcqRel);
        // SAFETY: waits for what is under way there.
        let ended = unsafe { raw::call(libc::SYS_io_destroy as usize, &raw::pad([kernels])) };
        if !failed(ended) {
            self.process.store(0, Ordering::Release);
        }
        ended
    }

    /// Submits a request to the kernel: the program's own, which is about nothing of the pool, or what stands for one.
    pub fn submit(&self, request: usize) -> isize {
        let list = [request];
        // Before it can be fetched.
        self.in_kernel.fetch_add(1, Ordering::AcqRel);
        // SAFETY: a list of one.
        let answer = unsafe { syscall!(libc::SYS_io_submit, self.kernels(), 1, list.as_ptr()) };
        if answer != 1 {
            self.one_less_in_kernel();
        }
        answer
    }

    /// It may have been one of the context that this was before.
    fn one_less_in_kernel(&self) {
        let less = |count: u32| Some(count.saturating_sub(1));
        let order = Ordering::AcqRel;
        let _ = self.in_kernel.fetch_update(order, Ordering::Acquire, less);
    }

    pub fn has_any_in_kernel(&self) -> bool {
        self.in_kernel.load(Ordering::Acquire) != 0
    }

    /// Says that this thread waits in the kernel, until that is dropped.
    pub fn wait(&self) -> Waits<'_> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        Waits(self)
    }

    /// A completion that is kept: taken.
    pub fn kept(&self) -> Option<Standing<'_>> {
        if self.kept.load(Ordering::SeqCst) == 0 {
            return None;
        }
        let places = self.places().get(..self.count() as usize)?;
        let from = self.first.load(Ordering::Relaxed) as usize % places.len().max(1);
        let (before, behind) = places.split_at(from);
        for (index, place) in behind.iter().chain(before).enumerate() {
            if place.change(KEPT, TAKEN) {
                self.kept.fetch_sub(1, Ordering::SeqCst);
                let next = (from + index + 1) % places.len();
                self.first.store(next as u32, Ordering::Relaxed);
                return Some(Standing {
                    context: self,
                    place,
                });
            }
        }
        None
    }

    /// What the request at this address stands for, if it is one of this context's places, which is free then. An event of
    /// the kernel's was fetched.
    pub fn fetched(&self, request: usize) -> Option<Completion> {
        self.one_less_in_kernel();
        let places = self.places();
        let offset = request.checked_sub(places.as_ptr() as usize)?;
        if offset % size_of::<Place>() != 0 {
            return None;
        }
        let place = places.get(offset / size_of::<Place>())?;
        if place.state.load(Ordering::Acquire) != TAKEN {
            return None;
        }
        // SAFETY: it was written before it was submitted, and its event is fetched once.
        let completion = unsafe { place.told.get().read() };
        place.state.store(FREE, Ordering::Release);
        Some(completion)
    }

    fn places(&self) -> &[Place] {
        let header = size_of::<Context>().next_multiple_of(align_of::<Place>());
        let at = std::ptr::from_ref(self) as usize + header;
        // SAFETY: so many are behind it in the same mapping; what is not atomic in one is used by who has taken it.
        unsafe { std::slice::from_raw_parts(at as *const Place, self.room as usize) }
    }

    /// A place for what stands for a request, if one is free.
    pub fn standing(&self) -> Option<Standing<'_>> {
        let places = self.places().get(..self.count() as usize)?;
        let from = self.next.fetch_add(1, Ordering::Relaxed) as usize % places.len().max(1);
        let (before, behind) = places.split_at(from);
        let place = behind
            .iter()
            .chain(before)
            .find(|place| place.change(FREE, TAKEN))?;
        Some(Standing {
            context: self,
            place,
        })
    }
}

/// A place that is taken. Free again when this is dropped, unless it was submitted.
pub struct Standing<'c> {
    context: &'c Context,
    place: &'c Place,
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        self.place.state.store(FREE, Ordering::Release);
    }
}

/// A thread that waits in the kernel.
pub struct Waits<'c>(&'c Context);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Place {
    fn change(&self, from: u32, to: u32) -> bool {
        let order = Ordering::SeqCst;
        // Most are not as is looked for.
        self.state.load(Ordering::SeqCst) == from
            && self
                .state
                .compare_exchange(from, to, order, Ordering::Relaxed)
                .is_ok()
    }
}

impl Standing<'_> {
    /// What is kept.
    pub fn completion(&self) -> Completion {
        // SAFETY: the place is taken by this alone, and was written before it was kept.
        unsafe { self.place.told.get().read() }
    }

    /// It could not be told: it stays kept.
    pub fn keep_on(self) {
        let completion = self.completion();
        self.keep(completion);
    }

    /// Keeps a completion until it is fetched; where somebody waits in the kernel, it is told there. 1, or why not.
    pub fn keep(self, completion: Completion) -> isize {
        // SAFETY: the place is taken by this alone.
        unsafe { self.place.told.get().write(completion) };
        let standing = std::mem::ManuallyDrop::new(self);
        let (context, place) = (standing.context, standing.place);
        context.kept.fetch_add(1, Ordering::SeqCst);
        place.state.store(KEPT, Ordering::SeqCst);
        if context.waiting.load(Ordering::SeqCst) == 0 || !place.change(KEPT, TAKEN) {
            return 1;
        }
        context.kept.fetch_sub(1, Ordering::SeqCst);
        if standing.stand(None) != 1 {
            // Nobody is told before he looks again.
            context.kept.fetch_add(1, Ordering::SeqCst);
            place.state.store(KEPT, Ordering::SeqCst);
        }
        1
    }

    /// Has the kernel tell of a completion, and an eventfd with it. 1, or why not.
    pub fn submit(self, completion: Completion, event: u32) -> isize {
        // SAFETY: the place is taken by this alone.
        unsafe { self.place.told.get().write(completion) };
        let answer = self.stand(Some(event));
        if answer == 1 {
            std::mem::forget(self);
        }
        answer
    }

    /// Has a request of the kernel's stand for what is told.
    fn stand(&self, event: Option<u32>) -> isize {
        // It is never empty, so it can be read at once.
        let Ok(ready) = ready() else {
            return error(libc::EAGAIN);
        };
        let asked = Request {
            operation: POLL,
            descriptor: ready as u32,
            buffer: libc::POLLIN as u64,
            flags: event.map_or(0, |_| TELLS_EVENT),
            event_descriptor: event.unwrap_or(0),
            ..Request::default()
        };
        // SAFETY: the place is taken by this alone.
        unsafe { self.place.asked.get().write(asked) };
        self.context.submit(self.place.asked.get() as usize)
    }
}
