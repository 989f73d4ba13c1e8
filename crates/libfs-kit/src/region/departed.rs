//! What a wait for a lock has to know of members that are gone.
//!
//! A lock that died with its holder is let go of by nobody. Whoever has waited for it a while looks
//! here: if the member that the lock names has gone, or the region is damaged already, it takes the
//! lock over. What the lock protects may be half changed; so the region is marked damaged first,
//! and from then on the LibFS believes nothing of the auxiliary state and publishes nothing
//! ([`Region::is_damaged`](super::Region::is_damaged)).
//!
//! Locks of the session state (open file descriptions) stand for no more than themselves: they are
//! taken over from the dead alone, also while the auxiliary state is built anew.
//!
//! # Invariant
//! A region is in the list from before its members can die until the end of the process.

use super::holder::Holder;
use std::ops::Range;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Words of a set of members, one bit each.
pub type Set = [AtomicU64];

struct Watched {
    /// Addresses of the region, and of its auxiliary part.
    region: Range<usize>,
    auxiliary: Range<usize>,
    departed: &'static Set,
    damaged: &'static AtomicU32,
    next: *mut Watched,
}

/// The first of them; each names the next. None is ever freed.
static WATCHED: AtomicPtr<Watched> = AtomicPtr::new(ptr::null_mut());

/// All of them.
fn watched() -> impl Iterator<Item = &'static Watched> {
    // SAFETY: leaked by `watch`, which has made it before it put it in the list.
    let of = |watched: *mut Watched| unsafe { watched.as_ref() };
    let first = of(WATCHED.load(Ordering::Acquire));
    std::iter::successors(first, move |watched| of(watched.next))
}

/// In a forked child, which has none of its parent's regions.
pub(crate) fn forget_all() {
    WATCHED.store(ptr::null_mut(), Ordering::Release);
}

/// Whether a member is in a set.
pub fn has(set: &Set, member: u16) -> bool {
    let word = set.get(usize::from(member) / 64);
    word.is_some_and(|word| word.load(Ordering::Acquire) & 1 << (member % 64) != 0)
}

/// Notes a region of `size` bytes, where in it the `auxiliary` part lies, and where it is told which of its
/// members are gone.
pub fn watch(
    from: usize,
    auxiliary: Range<usize>,
    size: usize,
    departed: &'static Set,
    damaged: &'static AtomicU32,
) {
    let watched = Box::leak(Box::new(Watched {
        region: from..from + size,
        auxiliary: from + auxiliary.start..from + auxiliary.end,
        departed,
        damaged,
        next: WATCHED.load(Ordering::Acquire),
    }));
    loop {
        let (new, old) = (Ordering::AcqRel, Ordering::Acquire);
        match WATCHED.compare_exchange(watched.next, watched, new, old) {
            Ok(_) => return,
            Err(other) => watched.next = other,
        }
    }
}

/// For a wait that has taken long: whether the lock in `word`, held by `holder` if it names one,
/// is to be taken over.
#[cold]
pub fn may_take_over(word: &AtomicU32, holder: Option<Holder>) -> bool {
    let address = std::ptr::from_ref(word) as usize;
    let Some(region) = watched().find(|watched| watched.region.contains(&address)) else {
        return false;
    };
    let is_gone = holder.is_some_and(|holder| has(region.departed, holder.member));
    if !region.auxiliary.contains(&address) {
        // Of the session state, which is never built anew: who has it and lives, has it.
        return is_gone;
    }
    if is_gone {
        region.damaged.store(1, Ordering::SeqCst);
    }
    region.damaged.load(Ordering::SeqCst) != 0
}
