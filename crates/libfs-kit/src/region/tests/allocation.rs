//! The allocator: no two live objects overlap, memory is aligned, reused and returned.

use crate::region::{Offset, OutOfMemory, Region};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const SIZE: u64 = if cfg!(miri) { 8 << 20 } else { 32 << 20 };

/// Live objects by offset, checked against each other.
#[derive(Default)]
struct Live {
    objects: BTreeMap<u64, usize>,
    order: Vec<u64>,
}

impl Live {
    fn add(&mut self, region: &Region, offset: Offset<AtomicU8>, length: usize) {
        let (start, end) = (offset.raw(), offset.raw() + length.max(1) as u64);
        assert!(end <= region.size());
        assert_eq!(start % 16, 0);
        if let Some((before, length)) = self.objects.range(..end).next_back() {
            assert!(
                before + *length as u64 <= start,
                "{before:#x} overlaps {start:#x}"
            );
        }
        self.objects.insert(start, length.max(1));
        self.order.push(start);
    }
}

fn run(region: &Region, steps: &[(bool, usize, usize)]) {
    let slots = [0, 1].map(|member| region.claim_thread_slot(member).unwrap());
    let mut live = Live::default();
    for (index, &(free, length, which)) in steps.iter().enumerate() {
        // Often freed by another thread than the one that allocated it.
        let slot = &slots[index % 2];
        if free && !live.order.is_empty() {
            let start = live.order.swap_remove(which % live.order.len());
            let length = live.objects.remove(&start).unwrap();
            let mark = [start as u8];
            assert!(
                region.bytes_equal(Offset::from_raw(start), &mark),
                "overwritten"
            );
            region.free_bytes(slot, Offset::from_raw(start), length);
        } else {
            let length = length.max(1);
            match region.allocate_bytes(slot, length) {
                Ok(offset) => {
                    live.add(region, offset, length);
                    assert!(region.bytes_equal(offset, &vec![0; length]), "not zero");
                    region.write_bytes(offset, &vec![offset.raw() as u8; length]);
                }
                Err(OutOfMemory) => assert!(region.statistics().pages_in_use > 200),
            }
        }
    }
    let expected: usize = live.objects.values().sum();
    assert!(region.statistics().bytes_in_use >= expected as u64);
    for (start, length) in live.objects {
        let mut bytes = vec![0; length];
        region.read_bytes(Offset::from_raw(start), &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == start as u8));
        region.free_bytes(&slots[0], Offset::from_raw(start), length);
    }
    drop(slots);
    let statistics = region.statistics();
    assert_eq!((statistics.bytes_in_use, statistics.bytes_cached), (0, 0));
    // One empty span per class may stay.
    assert!(statistics.pages_in_use <= 12 * 4 + 2 * 8, "{statistics:?}");
}

fn steps() -> impl Strategy<Value = Vec<(bool, usize, usize)>> {
    let length = prop_oneof![
        8 => 0..300usize,
        3 => 300..5000usize,
        2 => 5000..200_000usize,
    ];
    let most = if cfg!(miri) { 40 } else { 1500 };
    prop::collection::vec((any::<bool>(), length, any::<usize>()), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn objects_never_overlap_and_all_memory_returns(steps in steps()) {
        run(&Region::in_memory(SIZE).unwrap(), &steps);
    }
}

#[test]
fn objects_are_aligned_to_their_type() {
    #[repr(C, align(64))]
    struct Line([AtomicU64; 8]);
    // SAFETY: atomics only, 64 bytes without padding.
    unsafe impl crate::region::Shared for Line {}
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    for value in 0..300 {
        let line = Line([const { AtomicU64::new(0) }; 8]);
        line.0[7].store(value, Ordering::Relaxed);
        let offset = region.allocate(&slot, line).unwrap();
        assert_eq!(offset.raw() % 64, 0);
        assert_eq!(region.get(offset).0[7].load(Ordering::Relaxed), value);
    }
    let page = region.allocate_bytes(&slot, 4096).unwrap();
    let large = region.allocate_bytes(&slot, 40_000).unwrap();
    assert_eq!((page.raw() % 4096, large.raw() % 4096), (0, 0));
}

#[test]
fn memory_of_one_class_serves_another() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    // Each round fills nearly the whole heap with objects of one size.
    for length in [64, 4096, 200, 100_000, 1024, 16_000] {
        let mut objects = Vec::new();
        let most = if cfg!(miri) {
            100_000 / length.max(4000)
        } else {
            usize::MAX
        };
        while objects.len() < most
            && let Ok(offset) = region.allocate_bytes(&slot, length)
        {
            objects.push(offset);
        }
        let statistics = region.statistics();
        if most == usize::MAX {
            let used = objects.len() * length;
            assert!(
                used as u64 > statistics.pages_total * 4096 * 3 / 4,
                "{length}: {statistics:?}"
            );
        }
        for offset in objects {
            region.free_bytes(&slot, offset, length);
        }
    }
    assert_eq!(region.statistics().bytes_in_use, 0);
}

#[test]
fn a_full_region_says_so_and_recovers() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    assert_eq!(region.allocate_bytes(&slot, usize::MAX), Err(OutOfMemory));
    assert_eq!(
        region.allocate_bytes(&slot, SIZE as usize),
        Err(OutOfMemory)
    );
    assert!(
        region
            .allocate_zeroed::<AtomicU64>(&slot, usize::MAX / 4)
            .is_err()
    );
    let heap = region.statistics().pages_total as usize * 4096;
    let most = region.allocate_bytes(&slot, heap / 2).unwrap();
    assert_eq!(
        region.allocate_bytes(&slot, heap / 2 + 4096),
        Err(OutOfMemory)
    );
    region.free_bytes(&slot, most, heap / 2);
    let again = region.allocate_bytes(&slot, heap / 2).unwrap();
    assert_eq!(again, most);
}

#[test]
fn freed_neighbours_merge_into_one_run() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let runs: Vec<_> = (0..8)
        .map(|_| region.allocate_bytes(&slot, 8 * 4096).unwrap())
        .collect();
    for index in [1, 3, 2, 6, 7, 0, 5, 4] {
        region.free_bytes(&slot, runs[index], 8 * 4096);
    }
    assert_eq!(region.allocate_bytes(&slot, 64 * 4096), Ok(runs[0]));
}

#[test]
#[cfg(not(miri))]
fn much_free_memory_goes_back_to_the_system() {
    let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let size = 256 << 20;
    rustix::fs::ftruncate(&file, size).unwrap();
    let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks as u64 * 512;
    let region = Region::create(&file, size).unwrap();
    assert!(blocks() < 1 << 20, "a new region takes no memory");
    let slot = region.claim_thread_slot(0).unwrap();
    let objects: Vec<_> = (0..64)
        .map(|_| region.allocate_bytes(&slot, 1 << 20).unwrap())
        .collect();
    for offset in &objects {
        region.write_bytes(*offset, &vec![1; 1 << 20]);
    }
    assert!(blocks() >= 64 << 20);
    assert!(region.statistics().pages_mapped >= 64 * 256);
    for offset in &objects {
        region.free_bytes(&slot, *offset, 1 << 20);
    }
    assert!(blocks() < 10 << 20, "{} bytes are left", blocks());
    assert!(region.statistics().pages_mapped * 4096 < 10 << 20);
    // What was given back can be used again, and is zero where nobody wrote.
    let offset = region.allocate_bytes(&slot, 1 << 20).unwrap();
    assert!(region.bytes_equal(offset, &vec![0; 1 << 20]));
}

#[test]
fn threads_allocate_and_free_each_others_objects() {
    let region = Region::in_memory(SIZE).unwrap();
    let rounds: u64 = if cfg!(miri) { 60 } else { 30_000 };
    let mailbox: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (region, mailbox) = (&region, &mailbox);
            scope.spawn(move || {
                let slot = region.claim_thread_slot(thread as u16).unwrap();
                let mut random = thread + 1;
                for _ in 0..rounds {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let value = [const { AtomicU64::new(0) }; 6];
                    value[0].store(random, Ordering::Relaxed);
                    value[5].store(!random, Ordering::Relaxed);
                    let offset = region.allocate(&slot, value).unwrap();
                    let other =
                        mailbox[(random >> 58) as usize].swap(offset.raw(), Ordering::AcqRel);
                    if other != 0 {
                        let other = Offset::<[AtomicU64; 6]>::from_raw(other);
                        let value = region.get(other);
                        let first = value[0].load(Ordering::Relaxed);
                        assert_eq!(!first, value[5].load(Ordering::Relaxed));
                        region.free(&slot, other);
                    }
                }
            });
        }
    });
    let slot = region.claim_thread_slot(9).unwrap();
    for offset in mailbox {
        region.free(
            &slot,
            Offset::<[AtomicU64; 6]>::from_raw(offset.into_inner()),
        );
    }
    assert_eq!(region.statistics().bytes_in_use, 0);
}

/// Bytes of memory behind a region's file.
#[cfg(not(miri))]
fn memory(file: &rustix::fd::OwnedFd) -> u64 {
    rustix::fs::fstat(file).unwrap().st_blocks as u64 * 512
}

/// Build after build, each as large as a good part of the region, some of them begun several
/// times: there is always memory, what the last one had can still be read, and what was before is given
/// back.
#[test]
#[cfg(not(miri))]
fn builds_give_their_memory_back() {
    const OBJECT: usize = 3000;
    let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, SIZE).unwrap();
    let region = Region::create(&file, SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let good = region.allocate_bytes(&slot, OBJECT).unwrap();
    assert!(region.write_bytes(good, &[7; OBJECT]));
    region.set_ready(7);
    let begun = memory(&file);
    let mut before: Vec<Offset<AtomicU8>> = Vec::new();
    let mut most = 0;
    for build in 0..100u8 {
        let fill = |count: usize, mark: u8| -> Vec<Offset<AtomicU8>> {
            let filled = (0..count).map(|_| {
                let offset = region.allocate_bytes(&slot, OBJECT).unwrap();
                assert!(region.write_bytes(offset, &[mark; OBJECT]));
                offset
            });
            filled.collect()
        };
        // At most a fifth of the heap, and sometimes little.
        let now = fill(if build % 7 == 3 { 10 } else { 1500 }, build);
        for &old in &before {
            let mark = build.wrapping_sub(1);
            assert!(region.bytes_equal(old, &[mark; OBJECT]), "{build}");
        }
        region.begin_damage();
        for _ in 0..1 + build % 3 {
            region.begin_build();
            fill(100, 200);
            for &old in &now {
                assert!(region.bytes_equal(old, &[build; OBJECT]), "{build}");
            }
        }
        region.end_damage();
        assert!(region.bytes_equal(good, &[7; OBJECT]));
        most = most.max(memory(&file) - begun);
        before = now;
    }
    // The one before, at most, and what was filled meanwhile.
    assert!(most < 12 << 20, "{most} bytes of memory");
}

/// What a group is begun with is mostly tables of which few pages are ever looked at.
#[test]
#[cfg(not(miri))]
fn what_is_zero_already_is_not_written() {
    const LARGE: usize = 1 << 16;
    let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, SIZE).unwrap();
    let blocks = || rustix::fs::fstat(&file).unwrap().st_blocks * 512;
    let region = Region::create(&file, SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let large = |mark: u8| {
        let offset = region.allocate_bytes(&slot, LARGE).unwrap();
        assert!(region.bytes_equal(offset, &[0; LARGE]), "for {mark}");
        assert!(region.write_bytes(offset, &[mark; LARGE]));
        offset
    };
    let before = blocks();
    region.allocate_bytes(&slot, 4 * LARGE).unwrap();
    let taken = blocks() - before;
    assert!(taken < 1 << 15, "{taken} bytes of memory");
    // What was used is, and what may have been in an earlier build.
    let used = large(1);
    region.free_bytes(&slot, used, LARGE);
    assert_eq!(large(2).raw(), used.raw());
    region.set_ready(7);
    for build in 3..9 {
        large(build);
        region.begin_damage();
        for _ in 0..1 + build % 2 {
            region.begin_build();
            (0..3).for_each(|_| _ = large(build));
        }
        region.end_damage();
    }
}

/// Builds that take all that they can have: the next finds what it needs of each, also when whoever
/// builds it dies over it, and can have as much.
#[test]
#[cfg(not(miri))]
fn builds_that_fill_the_region_are_there_for_whoever_builds() {
    const OBJECT: usize = 3000;
    let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, SIZE).unwrap();
    let region = Region::create(&file, SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let good = region.allocate_bytes(&slot, OBJECT).unwrap();
    assert!(region.write_bytes(good, &[7; OBJECT]));
    region.set_ready(7);
    let fill = |count: usize, mark: u8| -> Vec<Offset<AtomicU8>> {
        let mut filled = Vec::new();
        while filled.len() < count
            && let Ok(offset) = region.allocate_bytes(&slot, OBJECT)
        {
            assert!(region.write_bytes(offset, &[mark; OBJECT]));
            filled.push(offset);
        }
        filled
    };
    let pages = region.statistics().pages_total as usize;
    for build in 0..9u8 {
        let now = fill(usize::MAX, build);
        // But for what its builders have used.
        let all = now.len() + usize::from(build != 0) * 3 * (pages / 10);
        assert!(all * 10 > pages * 9, "{} of {pages}", now.len());
        region.begin_damage();
        let make = |mark: u8, old: &[Offset<AtomicU8>], old_mark: u8| {
            region.begin_build();
            let built = fill(pages / 10, mark);
            assert_eq!(built.len(), pages / 10, "there is room beside it");
            for &old in old {
                let is_there = region.bytes_equal(old, &[old_mark; OBJECT]);
                assert!(is_there, "{build}, by {mark}");
            }
            built
        };
        let mut built = Vec::new();
        for builder in 100..103 {
            built = make(builder, &now, build);
        }
        if build % 2 == 1 {
            // Who had all but said that it is whole died over that.
            region.give_back_builds();
            make(103, &built, 102);
        }
        region.end_damage();
        assert!(region.bytes_equal(good, &[7; OBJECT]));
    }
}
