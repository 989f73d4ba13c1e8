//! Thread slots and epochs: nothing is freed under a pinned reader, everything is in the end.

use crate::region::{AtomicOffset, Lock, Offset, OutOfMemory, Region};
#[cfg(not(miri))]
use crate::region::{NoThreadSlot, THREAD_SLOTS};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const SIZE: u64 = if cfg!(miri) { 8 << 20 } else { 32 << 20 };
const SMALL: u64 = if cfg!(miri) { 8 << 20 } else { 16 << 20 };

type Pair = [AtomicU64; 2];

#[test]
#[cfg(not(miri))]
fn slots_are_claimed_once_and_reused() {
    let region = Region::in_memory(SIZE).unwrap();
    let mut slots: Vec<_> = (0..THREAD_SLOTS)
        .map(|member| region.claim_thread_slot(member as u16).unwrap())
        .collect();
    assert_eq!(region.claim_thread_slot(1).err(), Some(NoThreadSlot));
    let holder = slots.swap_remove(17).holder();
    assert_eq!((holder.member, holder.thread), (17, 17));
    let again = region.claim_thread_slot(9).unwrap();
    assert_eq!((again.holder().member, again.holder().thread), (9, 17));
}

/// A child that a thread had forked gave its slot away when it ended, and the thread went on using it beside the
/// next one that claimed it.
#[test]
#[cfg(debug_assertions)]
fn a_slot_that_was_given_away_is_not_used() {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    let region = Region::in_memory(SMALL).unwrap();
    let other = region.claim_thread_slot(4).unwrap();
    let slot = region.claim_thread_slot(3).unwrap();
    let is_used = || catch_unwind(AssertUnwindSafe(|| drop(slot.pin()))).is_ok();
    assert!(is_used());
    assert_eq!(region.clear_member(&other, 3).slots, 1);
    assert!(!is_used(), "it is nobody's");
    let next = region.claim_thread_slot(5).unwrap();
    assert_eq!(next.holder().thread, slot.holder().thread);
    assert!(!is_used(), "it is somebody else's");
    drop(next.pin());
    // Its end would give away what is not its own.
    std::mem::forget(slot);
}

#[test]
fn a_pinned_reader_keeps_what_it_may_see() {
    let region = Region::in_memory(SIZE).unwrap();
    let (reader, writer) = (
        region.claim_thread_slot(0).unwrap(),
        region.claim_thread_slot(1).unwrap(),
    );
    let pair = region
        .allocate(&writer, [1, 2].map(AtomicU64::new))
        .unwrap();
    let before = region.statistics().bytes_in_use;
    let guard = region.pin(&reader);
    let nested = region.pin(&reader);
    writer.pin().retire(pair);
    drop(nested);
    for _ in 0..10 {
        writer.collect();
    }
    assert!(region.statistics().bytes_in_use >= before);
    assert_eq!(region.get(pair)[1].load(Ordering::Relaxed), 2);
    drop(guard);
    for _ in 0..4 {
        writer.collect();
    }
    assert_eq!(region.statistics().bytes_in_use, before - 16);
}

#[test]
fn retiring_much_frees_by_itself_and_large_objects_too() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let rounds = if cfg!(miri) { 100 } else { 100_000 };
    for round in 0..rounds {
        let length = if round % 100 == 0 { 20_000 } else { 100 };
        let object = region.allocate_bytes(&slot, length).unwrap();
        slot.pin().retire_bytes(object, length);
    }
    assert!(region.statistics().bytes_in_use < 1 << 20);
    for _ in 0..100 {
        slot.collect();
    }
    assert_eq!(region.statistics().bytes_in_use, 0);
}

#[test]
fn what_a_thread_leaves_behind_is_freed_by_others() {
    let region = Region::in_memory(SIZE).unwrap();
    let other = region.claim_thread_slot(0).unwrap();
    let pinned = other.pin();
    {
        let slot = region.claim_thread_slot(1).unwrap();
        for _ in 0..300 {
            let object = region.allocate_bytes(&slot, 100).unwrap();
            slot.pin().retire_bytes(object, 100);
        }
    }
    assert!(region.statistics().bytes_in_use >= 300 * 100);
    drop(pinned);
    for _ in 0..4 {
        other.collect();
    }
    assert_eq!(region.statistics().bytes_in_use, 0);
}

#[test]
fn retiring_in_a_full_region_makes_room() {
    let region = Region::in_memory(SMALL).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let mut objects = Vec::new();
    while let Ok(object) = region.allocate_bytes(&slot, 16 << 10) {
        objects.push(object);
    }
    let count = objects.len() as u64;
    for object in objects {
        slot.pin().retire_bytes(object, 16 << 10);
    }
    for _ in 0..4 {
        slot.collect();
    }
    let statistics = region.statistics();
    // Only while the emergency bag waits for its epoch can something be lost.
    assert!(
        count > 50 && statistics.bytes_leaked <= 4 * (16 << 10),
        "{statistics:?}"
    );
    assert_eq!(statistics.bytes_in_use, statistics.bytes_leaked);
    assert!(region.allocate_bytes(&slot, 16 << 10).is_ok());
}

#[test]
fn the_slots_of_a_dead_member_are_cleared() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    // Two threads of member 5 die: pinned, with retired and cached memory.
    for _ in 0..2 {
        let dead = region.claim_thread_slot(5).unwrap();
        let object = region.allocate_bytes(&dead, 100).unwrap();
        let guard = dead.pin();
        guard.retire_bytes(object, 100);
        std::mem::forget(guard);
        std::mem::forget(dead);
    }
    let epoch = region.epoch();
    for _ in 0..5 {
        slot.collect();
    }
    assert!(
        region.epoch() <= epoch + 1,
        "a pinned thread holds the epoch up"
    );
    let cleared = region.clear_member(&slot, 5);
    assert_eq!((cleared.slots, cleared.auxiliary_damaged), (2, false));
    assert_eq!(region.clear_member(&slot, 5).slots, 0);
    for _ in 0..5 {
        slot.collect();
    }
    assert!(region.epoch() > epoch + 2);
    assert_eq!(region.statistics().bytes_in_use, 0);
    assert_eq!(region.claim_thread_slot(1).unwrap().holder().thread, 1);
}

#[test]
fn a_death_inside_the_allocator_is_noticed() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let object = region.allocate(&slot, AtomicU64::new(5)).unwrap();
    let dead = region.claim_thread_slot(5).unwrap();
    let lock: &Lock = &region.auxiliary().pool.lock;
    std::mem::forget(lock.lock(dead.holder()));
    std::mem::forget(dead);
    assert!(!region.clear_member(&slot, 4).auxiliary_damaged);
    let cleared = region.clear_member(&slot, 5);
    assert_eq!((cleared.slots, cleared.auxiliary_damaged), (1, true));
    // Nobody waits for the dead, and nothing is taken from what it left.
    assert!(region.is_damaged());
    assert_eq!(region.allocate_bytes(&slot, 100), Err(OutOfMemory));
    assert_eq!(region.allocate_bytes(&slot, 100_000), Err(OutOfMemory));
    region.free(&slot, object);
    drop(slot);
    assert!(region.claim_thread_slot(3).is_ok());
}

/// A writer replaces a pair again and again and spoils the old ones when it gets their memory
/// back; a reader must never see a spoilt one.
#[test]
fn readers_never_see_reused_memory() {
    let region = Region::in_memory(SIZE).unwrap();
    let shared = AtomicOffset::<Pair>::default();
    let finished = AtomicBool::new(false);
    let (rounds, epochs) = if cfg!(miri) { (100, 4) } else { (200_000, 50) };
    std::thread::scope(|scope| {
        let (region, shared, finished) = (&region, &shared, &finished);
        for reader in 1..4 {
            scope.spawn(move || {
                let slot = region.claim_thread_slot(reader).unwrap();
                while !finished.load(Ordering::Relaxed) {
                    let guard = region.pin(&slot);
                    if let Some(pair) = guard.region().try_get(shared.load(Ordering::Acquire)) {
                        let first = pair[0].load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        assert_eq!(pair[1].load(Ordering::Relaxed), !first);
                    }
                    drop(guard);
                    // Losing the processor here, and not pinned, lets memory come back.
                    std::thread::yield_now();
                }
            });
        }
        let slot = region.claim_thread_slot(0).unwrap();
        let mut value = 0;
        while value < rounds || region.epoch() < epochs {
            value += 1;
            // Memory that comes back is first filled with what no reader may see.
            let spoilt = [value, value].map(AtomicU64::new);
            let Ok(pair): Result<Offset<Pair>, _> = region.allocate(&slot, spoilt) else {
                // A reader was stopped while pinned.
                std::thread::yield_now();
                slot.collect();
                continue;
            };
            region.get(pair)[1].store(!value, Ordering::Relaxed);
            let guard = slot.pin();
            guard.retire(shared.swap(pair, Ordering::AcqRel));
        }
        finished.store(true, Ordering::Relaxed);
    });
    let slot = region.claim_thread_slot(0).unwrap();
    for _ in 0..if cfg!(miri) { 20 } else { 10_000 } {
        slot.collect();
    }
    // All but the pair that is still there.
    assert_eq!(region.statistics().bytes_in_use, 16);
}
