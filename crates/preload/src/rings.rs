//! The program's rings: where it has their memory, and what has become of each.
//!
//! # Invariants
//! * A ring is known by its number, as long as that was not closed or replaced, which the library sees; and else by the identity of its
//!   descriptor's file, whatever its number. Nothing of it is kept open here, not even its
//!   memory: where it has lost a number, another one is looked for among all that the program has.
//! * What is read in its memory is guarded: the program may have taken it away, or put anything there. It cannot be sent
//!   where the program could not go by itself.
//! * One thread at a time looks at a ring's entries and submits them: as many as it has looked at, so that the kernel gets none
//!   that another thread adds meanwhile. What a handler of a fault submits on top of that goes to the kernel as it is.

pub mod entry;

use crate::backend::Handle;
use crate::descriptors::references;
use crate::memory;
use crate::raw::{self, syscall};
use crate::{reserved, thread};
use entry::{
    BEGINS_DISABLED, COUNTERS_ALSO_AT, COUNTERS_AT, ENTRIES_AT, Entry, LARGE_ENTRIES, NO_ARRAY,
    ONE_SUBMITS, OWN_MEMORY, POLLS_FILES, Parameters,
};
use std::num::NonZeroU64;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// Rings of a process that are known at once.
const RINGS: usize = 1024;

pub struct Ring {
    /// Device and inode number of its file; zeroes: nobody's.
    identity: [AtomicU64; 2],
    /// A number of the program's that is its: the one that it was given, as long as that is.
    number: AtomicUsize,
    flags: AtomicU32,
    count: AtomicU32,
    head: AtomicU32,
    tail: AtomicU32,
    array: AtomicU32,
    /// Of completions: how many there can be, and where counters of them are.
    most_told: AtomicU32,
    told_head: AtomicU32,
    told_tail: AtomicU32,
    /// Addresses in the program's memory; 0: not known.
    counters: AtomicUsize,
    entries: AtomicUsize,
    is_disabled: AtomicBool,
    by_mount: AtomicBool,
    /// Who may submit, where one thread alone may: the address of its block.
    submitter: AtomicUsize,
    /// Who looks at it.
    holder: AtomicUsize,
    /// What its registered files are to the library: handles, each of which a reference is kept of; 0 for what is not the pool's.
    files: Mutex<Vec<u64>>,
}

static ALL: [Ring; RINGS] = [const {
    Ring {
        identity: [const { AtomicU64::new(0) }; 2],
        number: AtomicUsize::new(0),
        flags: AtomicU32::new(0),
        count: AtomicU32::new(0),
        head: AtomicU32::new(0),
        tail: AtomicU32::new(0),
        array: AtomicU32::new(0),
        most_told: AtomicU32::new(0),
        told_head: AtomicU32::new(0),
        told_tail: AtomicU32::new(0),
        counters: AtomicUsize::new(0),
        entries: AtomicUsize::new(0),
        is_disabled: AtomicBool::new(false),
        by_mount: AtomicBool::new(false),
        submitter: AtomicUsize::new(0),
        holder: AtomicUsize::new(0),
        files: Mutex::new(Vec::new()),
    }
}; RINGS];
/// One above the last that was ever taken.
static HIGH: AtomicUsize = AtomicUsize::new(0);

const ORDER: Ordering = Ordering::SeqCst;

/// This thread, for as long as it lives.
fn this_thread() -> usize {
    std::ptr::from_ref(thread::current()) as usize
}

/// Notes a ring that was just set up. False: there are too many.
pub fn add(number: usize, parameters: &Parameters) -> bool {
    let Some(identity) = raw::identity_of(number) else {
        return false;
    };
    // What had the number before has lost it.
    closed(number, number);
    let free = ALL.iter().enumerate().find(|(_, ring)| {
        ring.identity[1]
            .compare_exchange(0, u64::MAX, ORDER, ORDER)
            .is_ok()
    });
    let free = free.or_else(|| reclaim().map(|index| (index, &ALL[index])));
    let Some((index, ring)) = free else {
        return false;
    };
    ring.let_go_of_files();
    let (flags, given) = (parameters.flags, &parameters.submission);
    let told = &parameters.completion;
    ring.number.store(number, ORDER);
    ring.flags.store(flags, ORDER);
    ring.count.store(parameters.submissions, ORDER);
    ring.head.store(given.head, ORDER);
    ring.tail.store(given.tail, ORDER);
    ring.array.store(given.array, ORDER);
    ring.most_told.store(parameters.completions, ORDER);
    ring.told_head.store(told.head, ORDER);
    ring.told_tail.store(told.tail, ORDER);
    let own = |address: u64| match flags & OWN_MEMORY {
        0 => 0,
        _ => address as usize,
    };
    ring.counters.store(own(told.address), ORDER);
    ring.entries.store(own(given.address), ORDER);
    ring.is_disabled.store(flags & BEGINS_DISABLED != 0, ORDER);
    ring.by_mount.store(flags & POLLS_FILES != 0, ORDER);
    ring.submitter.store(this_thread(), ORDER);
    ring.holder.store(0, ORDER);
    ring.identity[0].store(identity[0], ORDER);
    ring.identity[1].store(identity[1], ORDER);
    HIGH.fetch_max(index + 1, ORDER);
    true
}

/// A ring whose number is another file's by now, for another one.
#[cold]
fn reclaim() -> Option<usize> {
    ALL.iter().position(|ring| {
        let inode = ring.identity[1].load(ORDER);
        !ring.is_at(ring.number.load(ORDER))
            && ring.identity[1]
                .compare_exchange(inode, u64::MAX, ORDER, ORDER)
                .is_ok()
    })
}

/// Whether there may be any.
#[inline(always)]
pub fn any() -> bool {
    HIGH.load(Ordering::Relaxed) != 0
}

/// Those that there are.
fn known() -> impl Iterator<Item = &'static Ring> {
    let all = ALL[..HIGH.load(ORDER)].iter();
    all.filter(|ring| !matches!(ring.identity[1].load(ORDER), 0 | u64::MAX))
}

/// The ring that a descriptor is of.
pub fn of(descriptor: usize) -> Option<&'static Ring> {
    if !any() {
        return None;
    }
    let is_at = |ring: &&Ring| {
        ring.number.load(ORDER) == descriptor
            && (!thread::is_one_unseen() || ring.is_at(descriptor))
    };
    known().find(is_at).or_else(|| by_identity(descriptor))
}

/// The same of another number than the one that it was given: a copy, or one that came from elsewhere.
#[cold]
fn by_identity(descriptor: usize) -> Option<&'static Ring> {
    let [device, inode] = raw::identity_of(descriptor)?;
    ALL[..HIGH.load(ORDER)].iter().find(|ring| {
        ring.identity[1].load(ORDER) == inode && ring.identity[0].load(ORDER) == device
    })
}

/// A part of a descriptor was mapped.
#[cold]
pub fn mapped(descriptor: usize, offset: u64, address: usize) {
    let Some(ring) = of(descriptor) else {
        return;
    };
    match offset {
        COUNTERS_AT | COUNTERS_ALSO_AT => ring.counters.store(address, ORDER),
        ENTRIES_AT => ring.entries.store(address, ORDER),
        _ => {}
    }
}

/// What the kernel had under these numbers of the program's was closed, or replaced.
#[inline(always)]
pub fn closed(first: usize, last: usize) {
    if any() {
        look_for(first, last);
    }
}

#[cold]
#[inline(never)]
fn look_for(first: usize, last: usize) {
    let had = |ring: &&Ring| (first..=last).contains(&ring.number.load(ORDER));
    known().filter(had).for_each(Ring::look_for_number);
}

/// The kernel closes a number when it gets to it: until then it is the ring's, which is found by its identity.
pub fn closes(number: usize) {
    for ring in known().filter(|ring| ring.number.load(ORDER) == number) {
        ring.number.store(usize::MAX, ORDER);
    }
}

/// Handles mean nothing any more: the process was forked, where no other thread looks at any ring, or has left its session.
pub fn forked() {
    for ring in &ALL[..HIGH.load(ORDER)] {
        ring.holder.store(0, ORDER);
        // References are the session's, which is not this process's any more.
        match ring.files.try_lock() {
            Ok(mut files) => files.clear(),
            Err(_) => ring.identity[1].store(0, ORDER),
        }
    }
}

/// What is registered with any ring may be something else by now.
pub fn unsure_of_files() {
    ALL[..HIGH.load(ORDER)]
        .iter()
        .for_each(Ring::let_go_of_files);
}

/// While a thread looks at a ring.
pub struct Held(&'static Ring);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.holder.store(0, ORDER);
    }
}

impl Ring {
    fn forget(&self) {
        self.identity[1].store(0, ORDER);
        self.let_go_of_files();
    }

    fn is_at(&self, number: usize) -> bool {
        let identity = [0, 1].map(|word: usize| self.identity[word].load(ORDER));
        raw::identity_of(number) == Some(identity)
    }

    /// Its number is another of the program's that it has, if it has lost that one; without any it is forgotten.
    fn look_for_number(&self) {
        if self.is_at(self.number.load(ORDER)) {
            return;
        }
        let mut other = None;
        reserved::for_each_open(|number| {
            if other.is_none() && self.is_at(number) {
                other = Some(number);
            }
        });
        match other {
            Some(number) => self.number.store(number, ORDER),
            None => self.forget(),
        }
    }

    /// Nobody holds the list for long, and no handler of signals comes in between. `None` in a process that was forked while
    /// another thread of its parent's was at it.
    fn with_files<R>(&self, use_them: impl FnOnce(&mut Vec<u64>) -> R) -> Option<R> {
        const PATIENCE: u32 = 100_000;
        let _inside = thread::enter();
        for _ in 0..PATIENCE {
            if let Ok(mut files) = self.files.try_lock() {
                return Some(use_them(&mut files));
            }
            // SAFETY: no arguments.
            unsafe { syscall!(libc::SYS_sched_yield) };
        }
        None
    }

    /// The description behind a registered file, if it is the pool's.
    pub fn file(&self, place: usize) -> Option<Handle> {
        let value = self.with_files(|files| files.get(place).copied())??;
        NonZeroU64::new(value).map(Handle)
    }

    /// Registered files from a place on are these, of each of which a reference is handed over.
    pub fn put_files(&self, place: usize, handles: &[u64]) {
        let end = place + handles.len();
        let before = self.with_files(|files| {
            if files.len() < end && handles.iter().any(|handle| *handle != 0) {
                files.resize(end, 0);
            }
            let there = files.get_mut(place..).unwrap_or_default();
            let mut before = Vec::new();
            for (there, handle) in there.iter_mut().zip(handles) {
                before.push(std::mem::replace(there, *handle));
            }
            before
        });
        // Where it is being used, nothing is known of them: they are the mount's.
        give_up_all(before.unwrap_or_else(|| handles.to_vec()));
    }

    pub fn let_go_of_files(&self) {
        give_up_all(self.with_files(std::mem::take).unwrap_or_default());
    }

    /// Waits for other threads; `None` for a handler of signals in between.
    pub fn hold(&'static self) -> Option<Held> {
        let this = this_thread();
        loop {
            match self.holder.compare_exchange(0, this, ORDER, ORDER) {
                Ok(_) => return Some(Held(self)),
                Err(holder) if holder == this => return None,
                // SAFETY: no arguments.
                Err(_) => unsafe { syscall!(libc::SYS_sched_yield) },
            };
        }
    }

    /// Whether the kernel lets this thread submit, so that what is done ahead of it is not refused afterwards.
    pub fn takes_entries(&self) -> bool {
        let flags = self.flags.load(ORDER);
        let may = flags & ONE_SUBMITS == 0 || self.submitter.load(ORDER) == this_thread();
        may && !self.is_disabled.load(ORDER)
    }

    /// It takes entries from now on.
    pub fn enable(&self) {
        if self.is_disabled.load(ORDER) {
            self.submitter.store(this_thread(), ORDER);
            self.is_disabled.store(false, ORDER);
        }
    }

    /// Whether nothing is done here for it: its entries wait for each other, or not all are allowed.
    pub fn is_by_mount(&self) -> bool {
        self.by_mount.load(ORDER)
    }

    pub fn only_by_mount(&self) {
        self.by_mount.store(true, ORDER);
    }

    fn counter(&self, offset: &AtomicU32) -> Option<u32> {
        let at = self.counters.load(ORDER);
        // SAFETY: a number.
        (at != 0).then(|| unsafe { memory::copy_in(at + offset.load(ORDER) as usize) }.ok())?
    }

    /// How many entries have been taken, ever.
    pub fn taken(&self) -> Option<u32> {
        self.counter(&self.head)
    }

    /// Whether so many completions are there that nobody who waits for this many has to: not known where the kernel has to look
    /// for them.
    pub fn has_told(&self, wanted: usize) -> bool {
        let wanted = wanted.min(self.most_told.load(ORDER) as usize);
        let is_seen = self.flags.load(ORDER) & POLLS_FILES == 0;
        let counters = self.counter(&self.told_head);
        let counters = counters.zip(self.counter(&self.told_tail));
        is_seen && counters.is_some_and(|(head, tail)| tail.wrapping_sub(head) as usize >= wanted)
    }

    /// Addresses of the entries that the kernel takes next, so many at most: 0 where it leaves one out and goes no further, and
    /// `None` where that cannot be read. `None` where nothing is known of the ring's memory.
    pub fn next(&self, most: u32) -> Option<impl Iterator<Item = Option<usize>> + '_> {
        let (head, tail) = self.taken().zip(self.counter(&self.tail))?;
        fence(Ordering::Acquire);
        let (all, flags) = (self.count.load(ORDER), self.flags.load(ORDER));
        let entries = self.entries.load(ORDER);
        if entries == 0 {
            return None;
        }
        let count = tail.wrapping_sub(head).min(all).min(most);
        let array = self.counters.load(ORDER) + self.array.load(ORDER) as usize;
        let shift = if flags & LARGE_ENTRIES == 0 { 6 } else { 7 };
        Some((0..count).map(move |step| {
            let mut index = head.wrapping_add(step) % all;
            if flags & NO_ARRAY == 0 {
                // SAFETY: a number.
                index =
                    unsafe { memory::copy_in(array + index as usize * size_of::<u32>()) }.ok()?;
            }
            Some(match index < all {
                true => entries + ((index as usize) << shift),
                false => 0,
            })
        }))
    }
}

fn give_up_all(handles: Vec<u64>) {
    for handle in handles.into_iter().filter_map(NonZeroU64::new) {
        references::give_up(Handle(handle));
    }
}

/// The entry at an address.
pub fn read(at: usize) -> Option<Entry> {
    // SAFETY: numbers.
    unsafe { memory::copy_in(at) }.ok()
}
