//! Several members: the same region at two addresses of one process, and in a forked child.

#![cfg(not(miri))]

use super::tables::{Map, Node, mixed};
use crate::region::{HashTable, Lock, Offset, Region, RegionError, layout};
use rustix::fd::OwnedFd;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const SIZE: u64 = 64 << 20;

crate::region_shared! {
    struct Counter {
        lock: Lock,
        rounds: AtomicU32,
        sum: AtomicU64,
        /// Whose turn it is, in the test with a child.
        turn: AtomicU64,
    }
}

fn file(size: u64) -> OwnedFd {
    let file = memfd_create("region", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, size).unwrap();
    file
}

#[test]
fn only_a_region_of_this_build_is_opened() {
    let file = file(SIZE);
    assert!(matches!(Region::open(&file), Err(RegionError::NotARegion)));
    assert!(matches!(
        Region::create(&file, SIZE + 4096),
        Err(RegionError::Size(_))
    ));
    let region = Region::create(&file, SIZE).unwrap();
    assert!(matches!(
        Region::create(&file, SIZE),
        Err(RegionError::NotARegion)
    ));
    let again = Region::open(&file).unwrap();
    assert!(matches!(
        again.expect_ready(7),
        Err(RegionError::NotARegion)
    ));
    region.set_ready(7);
    assert!(again.expect_ready(7).is_ok());
    assert!(matches!(
        again.expect_ready(8),
        Err(RegionError::Incompatible { fingerprint: 7, .. })
    ));
    assert_eq!((again.size(), again.build()), (SIZE, 1));
    assert_ne!(again.base_address(), region.base_address());
    rustix::io::pwrite(&file, &[9], 8).unwrap();
    assert!(matches!(
        Region::open(&file),
        Err(RegionError::Incompatible { version: 9, .. })
    ));
    rustix::io::pwrite(&file, &layout::VERSION.to_le_bytes(), 8).unwrap();
    assert!(Region::open(&file).is_ok());
    // A size in the header that the file does not have.
    rustix::io::pwrite(&file, &(SIZE * 2).to_le_bytes(), 16).unwrap();
    assert!(matches!(Region::open(&file), Err(RegionError::Size(_))));
    let empty = self::file(0);
    assert!(matches!(Region::open(&empty), Err(RegionError::NotARegion)));
}

#[test]
fn a_sparse_region_may_be_larger_than_memory() {
    let size = 1 << 40;
    let region = Region::create(file(size), size).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let offset = region.allocate_bytes(&slot, 100).unwrap();
    assert!(region.write_bytes(offset, b"here"));
}

#[test]
fn two_mappings_of_one_region_see_each_others_work() {
    let file = file(SIZE);
    let here = Region::create(&file, SIZE).unwrap();
    let there = Region::open(&file).unwrap();
    assert_ne!(here.base_address(), there.base_address());
    let table = {
        let slot = here.claim_thread_slot(0).unwrap();
        HashTable::<Node>::create(&here, &slot).unwrap()
    };
    // ThreadSanitizer knows memory by its address: what one thread of a mapping is told of another
    // by way of the other mapping seems to it to have been told by nobody.
    let members = if cfg!(sanitize_thread) { 2 } else { 4 };
    std::thread::scope(|scope| {
        let regions = [&here, &there, &here, &there].into_iter().take(members);
        for (member, region) in regions.enumerate() {
            scope.spawn(move || exercise(region, table, member as u64));
        }
    });
    let slot = there.claim_thread_slot(0).unwrap();
    let contents = Map::new(&there, table, mixed).contents(&slot.pin());
    assert_eq!(contents.len(), members * 5000);
    let statistics = here.statistics();
    assert_eq!(statistics.stray_references, 0);
    assert_eq!(statistics.bytes_leaked, 0);
}

/// Inserts 10000 keys of one's own, removes every other, and looks at those of the others.
fn exercise(region: &Region, table: Offset<HashTable<Node>>, member: u64) {
    let slot = region.claim_thread_slot(member as u16).unwrap();
    let map = Map::new(region, table, mixed);
    for round in 0..10_000 {
        let key = member << 32 | round;
        assert!(map.insert(&slot.pin(), key, !key));
        if round % 2 == 1 {
            assert_eq!(map.remove(&slot.pin(), key), Some(!key));
        }
        let other = (((member + 1) % 4) << 32) | (round / 2);
        if let Some(value) = map.lookup(&slot.pin(), other) {
            assert_eq!(value, !other);
        }
    }
}

/// Runs `child` in a forked process and `parent` here; the child must end well.
fn with_child(child: impl FnOnce(), parent: impl FnOnce()) {
    // SAFETY: the child runs only code of this test, which takes no lock that another thread of
    // the test runner may hold, except by failing; then it ends, or the parent's wait times out.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(child));
        // SAFETY: ends this process, without running what belongs to the parent.
        unsafe { libc::_exit(i32::from(ended.is_err())) };
    }
    parent();
    let mut status = 0;
    // SAFETY: waits for our own child, into a local variable.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0, "the child failed");
}

#[test]
fn a_forked_child_works_in_the_same_region() {
    let file = file(SIZE);
    let region = Region::create(&file, SIZE).unwrap();
    region.mapping.give_to_children();
    let slot = region.claim_thread_slot(0).unwrap();
    let table = HashTable::<Node>::create(&region, &slot).unwrap();
    let counter = region.allocate_zeroed::<Counter>(&slot, 1).unwrap();
    let root = region.auxiliary_root(0).unwrap();
    root.store(table.raw(), Ordering::Release);
    let rounds = 20_000;
    let work = |region: &Region, member: u16| {
        let slot = region.claim_thread_slot(member).unwrap();
        let table = region.auxiliary_root(0).unwrap().load(Ordering::Acquire);
        let map = Map::new(region, Offset::from_raw(table), mixed);
        let counter = region.get(counter);
        // Strictly in turns first, so that each works on what the other left.
        for turn in 0..200 {
            while counter.turn.load(Ordering::Acquire) % 2 != u64::from(member % 2) {
                std::thread::yield_now();
            }
            let guard = slot.pin();
            if turn > 0 || member == 1 {
                let theirs = u64::from(1 - member % 2) << 40 | (turn - u64::from(1 - member % 2));
                assert_eq!(map.remove(&guard, theirs), Some(!theirs));
            }
            let mine = u64::from(member % 2) << 40 | turn;
            assert!(map.insert(&guard, mine, !mine));
            counter.turn.fetch_add(1, Ordering::Release);
        }
        // Then both at once; the futex is one for two addresses.
        for round in 0..rounds {
            let key = u64::from(member) << 32 | round;
            assert!(map.insert(&slot.pin(), key, !key));
            assert_eq!(map.lookup(&slot.pin(), key), Some(!key));
            let _locked = counter.lock.lock(slot.holder());
            assert_eq!(counter.lock.holder(), Some(slot.holder()));
            let sum = counter.sum.load(Ordering::Relaxed);
            counter.sum.store(sum + 1, Ordering::Relaxed);
        }
    };
    with_child(
        || {
            // At another address than the inherited one.
            let again = Region::open(&file).unwrap();
            assert_ne!(again.base_address(), region.base_address());
            work(&again, 1);
        },
        || work(&region, 2),
    );
    assert_eq!(region.get(counter).sum.load(Ordering::Relaxed), 2 * rounds);
    let map = Map::new(&region, table, mixed);
    assert_eq!(map.contents(&slot.pin()).len() as u64, 2 * rounds + 1);
}

#[test]
fn a_child_that_is_killed_at_work_leaves_the_region_usable() {
    // Some die with a lock of the allocator: that is for a rebuild, and the next ones get another region.
    let mut survived = 0;
    for _ in 0..200 {
        survived += deaths_at_work();
        if survived >= 20 {
            return;
        }
    }
    panic!("only {survived} left the region usable");
}

/// Kills children at work in a region of their own until one dies with a lock of the allocator; so many died
/// before.
fn deaths_at_work() -> u32 {
    let file = file(SIZE);
    let region = Region::create(&file, SIZE).unwrap();
    region.mapping.give_to_children();
    let slot = region.claim_thread_slot(0).unwrap();
    let table = HashTable::<Node>::create(&region, &slot).unwrap();
    let counter = region.allocate_zeroed::<Counter>(&slot, 1).unwrap();
    for member in 1..=20 {
        // What was mapped since the last one, too.
        region.mapping.give_to_children();
        // SAFETY: as in `with_child`; this child never returns from its loop.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0);
        if pid == 0 {
            let slot = region.claim_thread_slot(member).unwrap();
            let map = Map::new(&region, table, mixed);
            for key in 0.. {
                let key = (u64::from(member) << 32) | (key % 1000);
                map.insert(&slot.pin(), key, !key);
                map.remove(&slot.pin(), key ^ 1);
                region.get(counter).turn.fetch_add(1, Ordering::Relaxed);
            }
        }
        let before = region.get(counter).turn.load(Ordering::Relaxed);
        while region.get(counter).turn.load(Ordering::Relaxed) < before + 1000 {
            // SAFETY: asks for our own child, and takes no status.
            let ended = unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
            assert_eq!(ended, 0, "child {member} has died by itself");
            std::thread::yield_now();
        }
        // SAFETY: kills and waits for our own child.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        let cleared = region.clear_member(&slot, member);
        assert_eq!(cleared.slots, 1);
        assert_eq!(cleared.auxiliary_damaged, region.is_damaged());
        if cleared.auxiliary_damaged {
            return u32::from(member) - 1;
        }
        let map = Map::new(&region, table, mixed);
        for key in 0..1000 {
            map.insert(&slot.pin(), key, !key);
            assert_eq!(map.remove(&slot.pin(), key), Some(!key));
        }
        let epoch = region.epoch();
        for _ in 0..3 {
            slot.collect();
        }
        assert!(region.epoch() > epoch, "the dead hold nobody up");
        assert!(
            map.contents(&slot.pin())
                .iter()
                .all(|(&key, &value)| value == !key)
        );
    }
    20
}

/// A lock whose holder is stopped is waited for without a processor, and had when it goes on.
#[test]
fn a_lock_of_one_who_is_stopped_is_waited_for_asleep() {
    let region = Region::create(file(SIZE), SIZE).unwrap();
    region.mapping.give_to_children();
    let slot = region.claim_thread_slot(0).unwrap();
    let counter = region.allocate_zeroed::<Counter>(&slot, 1).unwrap();
    let counter = region.get(counter);
    // SAFETY: as in `with_child`.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let theirs = region.claim_thread_slot(1).unwrap();
        let locked = counter.lock.lock(theirs.holder());
        // SAFETY: signals this process, and ends it.
        unsafe {
            libc::raise(libc::SIGSTOP);
            counter.sum.store(1, Ordering::Relaxed);
            drop(locked);
            libc::_exit(0);
        }
    }
    // SAFETY: waits until our own child is stopped.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WUNTRACED) };
    let clock = rustix::time::ClockId::ThreadCPUTime;
    let processor = || rustix::time::clock_gettime(clock);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let slot = region.claim_thread_slot(2).unwrap();
            let before = processor();
            let _locked = counter.lock.lock(slot.holder());
            let time = processor() - before;
            (
                time.tv_sec,
                time.tv_nsec,
                counter.sum.load(Ordering::Relaxed),
            )
        });
        std::thread::sleep(std::time::Duration::from_millis(700));
        assert!(!waiting.is_finished());
        // SAFETY: signals our own child, and waits for its end.
        unsafe {
            libc::kill(pid, libc::SIGCONT);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
        let (seconds, nanoseconds, sum) = waiting.join().unwrap();
        assert_eq!(sum, 1);
        assert!(seconds == 0 && nanoseconds < 50_000_000, "{nanoseconds} ns");
    });
}
