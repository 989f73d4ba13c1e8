//! A gate before a memory node: so many threads at once are at large accesses there, whichever processes they are of, and others wait.
//!
//! Source: concurrency restriction (D. Dice and A. Kogan, *Avoiding Scalability Collapse by Restricting Concurrency*, Euro-Par 2019), for
//! what OdinFS has delegates for: a medium whose bandwidth collapses under many threads. Who asks copies by himself, with his own
//! rights and between his own memory and the medium; so nothing of his has to reach another process.
//!
//! # Invariants
//! * A place is one thread's from the exchange by which it takes it until the one by which it leaves it: each is by a stamp that no other
//!   access has.
//! * Nobody relies on it: who finds the words of a gate damaged, or whose place was taken from him, is slower, or one too many is at the
//!   medium. So a process may die, or be stopped, at any point: its place is taken from it after [`STALE`]. Whatever stands in the words, who has waited for
//!   [`LONGEST`] goes in without a place.
//! * Whoever is about to sleep says so, and that it wants to be woken, and looks again then; whoever leaves a place looks afterwards whether
//!   somebody sleeps. Of those who were woken, the one that takes a place wakes the next where there is another place.
//! * Who comes while a place is free takes it, before others who sleep: a switch of threads for each access would cost more than the access.
//!
//! No lock is taken. The words lie in memory that all who use the gate can write: all programs of one user.

use super::primitive::{self, AtomicU32, LOOKS, Ordering};
use super::rules::{Rule, Rules};
#[cfg(not(shuttle))]
use crate::error::{Error, Result};
use crate::medium::{DELEGATES_MAX, NODES_MAX};
#[cfg(not(shuttle))]
use rustix::fd::{AsFd, OwnedFd};
#[cfg(not(shuttle))]
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
#[cfg(not(shuttle))]
use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap};
use std::time::Duration;

const PLACES: usize = DELEGATES_MAX as usize;

/// After so long, a place whose holder has shown no sign of life is another's. It is longer than a piece of an access takes, after each of
/// which the holder shows one.
pub(super) const STALE: Duration = Duration::from_millis(50);

/// Nobody waits longer, be it for want of luck; and in one access once at most.
pub(super) const LONGEST: Duration = Duration::from_secs(5);

/// How often the process, or one that it comes from, has forked: the child's number.
pub(super) static FORKS: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// The words of one node; zeroed: nobody is there.
#[repr(C, align(64))]
pub struct Gate {
    /// Goes up before somebody is woken, who sleeps on it.
    turn: AtomicU32,
    /// Threads that sleep, or are about to.
    sleepers: AtomicU32,
    /// Not 0: somebody was woken, and nobody has looked since.
    woken: AtomicU32,
    /// The last stamp that was given.
    stamp: AtomicU32,
    /// How many the first one wanted there at most; and not 0 once somebody has wanted another number: then all are woken, since not
    /// each can have any place. For as long as the gates are there.
    most: AtomicU32,
    is_mixed: AtomicU32,
    line: [AtomicU32; 10],
    /// The stamp of who is there; 0: nobody.
    places: [AtomicU32; PLACES],
}

/// Gates of all nodes.
#[repr(C)]
pub struct Gates([Gate; NODES_MAX as usize]);

/// Bytes of the memory file of gates.
#[cfg(not(shuttle))]
const GATES_SIZE: usize = size_of::<Gates>().next_multiple_of(4096);

/// Makes the memory file of gates, at which nobody is, for [`Gates::map`] in all who use them. Its size is sealed.
///
/// # Errors
/// Those of `memfd_create`, `ftruncate` and `fcntl`.
#[cfg(not(shuttle))]
pub fn make_gates() -> Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("arck-gates", flags).map_err(Error::system("memfd_create"))?;
    ftruncate(&file, GATES_SIZE as u64).map_err(Error::system("ftruncate"))?;
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(Error::system("fcntl(F_ADD_SEALS)"))?;
    Ok(file)
}

/// All that were ever mapped by this process.
#[cfg(not(shuttle))]
static MAPPED: [std::sync::atomic::AtomicPtr<Gates>; 64] =
    [const { std::sync::atomic::AtomicPtr::new(std::ptr::null_mut()) }; 64];

#[cfg(not(shuttle))]
fn wrong(errno: rustix::io::Errno) -> Error {
    Error::System {
        operation: "mapping gates",
        errno,
    }
}

/// In a forked child, before anything else there.
pub(super) fn has_forked() {
    FORKS.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
    #[cfg(not(shuttle))]
    for place in &MAPPED {
        // SAFETY: null, or what `map` has mapped for ever.
        if let Some(gates) = unsafe { place.load(std::sync::atomic::Ordering::SeqCst).as_ref() } {
            gates.let_go();
        }
    }
}

/// A thread's place at a gate.
pub(super) struct Place {
    index: usize,
    stamp: u32,
}

impl Place {
    /// Of who is there without one.
    const NONE: Place = Place {
        index: PLACES,
        stamp: 0,
    };

    pub(super) fn is_none(&self) -> bool {
        self.index == PLACES
    }
}

impl Gate {
    /// Nobody is there.
    #[cfg(all(test, shuttle))]
    pub(super) fn new() -> Gate {
        let word = |_| AtomicU32::new(0);
        Gate {
            turn: word(0),
            sleepers: word(0),
            woken: word(0),
            stamp: word(0),
            most: word(0),
            is_mixed: word(0),
            line: std::array::from_fn(word),
            places: std::array::from_fn(word),
        }
    }

    fn next_stamp(&self) -> u32 {
        // A place with 0 would be free.
        self.stamp
            .fetch_add(1, Ordering::Relaxed)
            .wrapping_add(1)
            .max(1)
    }

    /// Takes one of the first `most` places. Blocks while others have them, for so long at most. `forks`: of the process, when its access began; in
    /// a child that a handler of signals has forked meanwhile nobody waits.
    pub(super) fn enter(&self, most: u32, patience: Duration, forks: u32, rules: Rules) -> Place {
        if self.most.load(Ordering::Relaxed) != most
            && self
                .most
                .compare_exchange(0, most, Ordering::SeqCst, Ordering::SeqCst)
                .is_err_and(|first| first != most)
            && rules.hold(Rule::KnowsThatSomeDiffer)
        {
            self.is_mixed.store(1, Ordering::SeqCst);
        }
        let places = &self.places[..PLACES.min(most as usize)];
        let stamp = self.next_stamp();
        for _ in 0..LOOKS {
            if let Some(index) = take(places, stamp, rules) {
                return Place { index, stamp };
            }
            primitive::spin_hint();
        }
        match patience.is_zero() {
            true => Place::NONE,
            false => self.wait(places, stamp, (patience, forks), rules),
        }
    }

    #[cold]
    fn wait(
        &self,
        places: &[AtomicU32],
        stamp: u32,
        (patience, forks): (Duration, u32),
        rules: Rules,
    ) -> Place {
        let mut seen_places = Seen::now(places);
        let begun = primitive::now();
        let says = u32::from(rules.hold(Rule::SaysThatItWaits));
        let index = loop {
            self.sleepers.fetch_add(says, Ordering::SeqCst);
            let mut seen = self.turn.load(Ordering::SeqCst);
            if rules.hold(Rule::AsksToBeWoken) {
                self.woken.store(0, Ordering::SeqCst);
            }
            if !rules.hold(Rule::SeesTurnBeforeAsking) {
                seen = self.turn.load(Ordering::SeqCst);
            }
            let mut taken = match rules.hold(Rule::LooksBeforeWaiting) {
                true => take(places, stamp, rules),
                false => None,
            };
            if taken.is_none() {
                primitive::wait_for(&self.turn, seen, STALE);
                if FORKS.load(Ordering::Relaxed) != forks {
                    return Place::NONE;
                }
                taken = seen_places.take_stale(places, stamp);
            }
            self.sleepers.fetch_sub(says, Ordering::SeqCst);
            if rules.hold(Rule::SaysThatItLooks) {
                self.woken.store(0, Ordering::SeqCst);
            }
            if let Some(index) = taken.or_else(|| take(places, stamp, rules)) {
                break index;
            }
            if primitive::now().saturating_sub(begun) >= patience {
                return Place::NONE;
            }
        };
        // Others may have left meanwhile, and woken nobody since this thread was on its way.
        let is_free = |place: &AtomicU32| place.load(Ordering::SeqCst) == 0;
        if rules.hold(Rule::WakesNext) && places.iter().any(is_free) {
            self.wake();
        }
        Place { index, stamp }
    }

    /// A sign of life of who is there; false: the place was taken from it.
    pub(super) fn is_still_there(&self, place: &mut Place) -> bool {
        let stamp = self.next_stamp();
        let mine = self.places.get(place.index);
        let is_mine = mine.is_some_and(|mine| change(mine, place.stamp, stamp));
        place.stamp = stamp;
        is_mine
    }

    /// Whether somebody waits, or is about to.
    pub(super) fn is_waited_for(&self) -> bool {
        self.sleepers.load(Ordering::Relaxed) != 0
    }

    pub(super) fn leave(&self, place: &Place, rules: Rules) {
        if !rules.hold(Rule::LeavesBeforeLooking) {
            self.wake();
        }
        // Where it was taken from it, it stays who took it.
        if let Some(mine) = self.places.get(place.index) {
            let _ = change(mine, place.stamp, 0);
        }
        if rules.hold(Rule::LeavesBeforeLooking) {
            self.wake();
        }
    }

    /// Wakes one who sleeps, if somebody does and nobody was woken since one of them looked.
    fn wake(&self) {
        if self.sleepers.load(Ordering::SeqCst) == 0 {
            return;
        }
        if self.is_mixed.load(Ordering::SeqCst) != 0 {
            self.turn.fetch_add(1, Ordering::SeqCst);
            primitive::wake_all_shared(&self.turn);
        } else if self.woken.swap(1, Ordering::SeqCst) == 0 {
            self.turn.fetch_add(1, Ordering::SeqCst);
            primitive::wake_shared(&self.turn);
        }
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn fill(&self, value: u32) {
        let words = [&self.turn, &self.sleepers, &self.woken, &self.stamp];
        let words = words.into_iter().chain([&self.most, &self.is_mixed]);
        for word in words.chain(&self.places) {
            word.store(value, Ordering::SeqCst);
        }
    }

    #[cfg(all(test, shuttle))]
    pub(super) fn waiting(&self) -> u32 {
        self.sleepers.load(Ordering::SeqCst)
    }

    /// How many are there.
    #[cfg(test)]
    pub(super) fn inside(&self) -> usize {
        let places = self.places.iter();
        places
            .filter(|place| place.load(Ordering::SeqCst) != 0)
            .count()
    }
}

impl Gates {
    /// Those in a memory file that [`make_gates`] has made; there is memory for as long as the process lives. In a forked child it becomes the
    /// child's own ([`super::has_forked`]): a handler of signals may have forked in the middle of an access.
    ///
    /// # Errors
    /// EINVAL for another file; ENFILE: this process has mapped too many; those of `mmap`.
    #[cfg(not(shuttle))]
    pub fn map(file: impl AsFd) -> Result<&'static Gates> {
        let file = file.as_fd();
        let size = fstat(file).map_err(Error::system("fstat"))?.st_size;
        if usize::try_from(size) != Ok(GATES_SIZE) {
            return Err(wrong(rustix::io::Errno::INVAL));
        }
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, which replaces nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), GATES_SIZE, protection, flags, file, 0) };
        let base = base.map_err(Error::system("mmap"))?;
        let free = MAPPED.iter().find(|place| {
            let null = std::ptr::null_mut();
            let (success, failure) = (std::sync::atomic::Ordering::SeqCst, Ordering::Relaxed);
            place
                .compare_exchange(null, base.cast(), success, failure)
                .is_ok()
        });
        if free.is_none() {
            // SAFETY: mapped just now, and nobody else knows of it.
            unsafe { munmap(base, GATES_SIZE) }.map_err(Error::system("munmap"))?;
            return Err(wrong(rustix::io::Errno::NFILE));
        }
        // SAFETY: memory for ever, aligned to a page, of so many bytes (the file cannot get shorter); it is accessed by atomics alone, of
        // which any value is sound.
        Ok(unsafe { &*base.cast::<Gates>() })
    }

    /// It becomes memory of the process's own, of zeroes: of what others have in it nothing is known here any more.
    #[cfg(not(shuttle))]
    pub fn let_go(&'static self) {
        let base = std::ptr::from_ref(self).cast_mut().cast();
        let (protection, flags) = (
            ProtFlags::READ | ProtFlags::WRITE,
            MapFlags::PRIVATE | MapFlags::FIXED,
        );
        // SAFETY: over a mapping of `map`'s, as long, in one step; see there. Where there is no memory the file's stays.
        let _ = unsafe { mmap_anonymous(base, GATES_SIZE, protection, flags) };
    }

    /// Of a node; there are as many as nodes can be.
    pub(super) fn of(&self, node: u32) -> &Gate {
        &self.0[(node % NODES_MAX) as usize]
    }
}

fn change(word: &AtomicU32, old: u32, new: u32) -> bool {
    word.compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
        .is_ok()
}

/// Takes the first place that is free.
fn take(places: &[AtomicU32], stamp: u32, rules: Rules) -> Option<usize> {
    places.iter().position(|place| {
        if place.load(Ordering::SeqCst) != 0 {
            return false;
        }
        match rules.hold(Rule::TakesPlaceByExchange) {
            true => change(place, 0, stamp),
            false => {
                place.store(stamp, Ordering::SeqCst);
                true
            }
        }
    })
}

/// Who was where, and when that was seen.
struct Seen {
    stamps: [u32; PLACES],
    since: Duration,
}

impl Seen {
    fn now(places: &[AtomicU32]) -> Seen {
        let mut seen = Seen {
            stamps: [0; PLACES],
            since: primitive::now(),
        };
        for (seen, place) in seen.stamps.iter_mut().zip(places) {
            *seen = place.load(Ordering::SeqCst);
        }
        seen
    }

    /// Takes a place whose holder is the one that was there [`STALE`] ago, and has shown no sign of life.
    fn take_stale(&mut self, places: &[AtomicU32], stamp: u32) -> Option<usize> {
        if primitive::now().saturating_sub(self.since) < STALE {
            return None;
        }
        let stale = places.iter().zip(&self.stamps).position(|(place, &seen)| {
            seen != 0 && place.load(Ordering::SeqCst) == seen && change(place, seen, stamp)
        });
        if stale.is_none() {
            *self = Seen::now(places);
        }
        stale
    }
}
