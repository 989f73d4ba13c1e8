//! A region is far longer than what is in it, and a process reaches what is in it.

use crate::region::{Offset, Region};
use rustix::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

const SIZE: u64 = 32 << 30;
const MIB: u64 = 1 << 20;

fn file() -> OwnedFd {
    let file = rustix::fs::memfd_create("region", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&file, SIZE).unwrap();
    file
}

/// Bytes of a region that can be read in this process, as the kernel tells.
fn readable(region: &Region) -> u64 {
    let addresses = region.addresses();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text| usize::from_str_radix(text, 16).unwrap();
    let of_it = maps.lines().filter_map(|line| {
        let (range, rest) = line.split_once(' ')?;
        let (from, to) = range.split_once('-')?;
        let from = number(from).max(addresses.start);
        let to = number(to).min(addresses.end);
        (rest.starts_with('r') && from < to).then(|| (to - from) as u64)
    });
    of_it.sum()
}

/// Every process of a group mapped all 32 GiB, which counted against `ulimit -v`, was in core files, was
/// locked by `mlockall` and filled by who read it.
#[test]
fn what_is_in_use_is_reached_and_no_more() {
    let file = file();
    let first = Region::create(&file, SIZE).unwrap();
    let second = Region::open(&file).unwrap();
    for region in [&first, &second] {
        assert!(readable(region) < 12 * MIB, "{}", readable(region));
    }
    let slot = first.claim_thread_slot(0).unwrap();
    let good = first.allocate(&slot, AtomicU64::new(7)).unwrap();
    first.set_ready(7);
    let mut objects = Vec::new();
    for build in 0..5u64 {
        objects.clear();
        for index in 0..64u64 {
            let offset = first.allocate_bytes(&slot, MIB as usize).unwrap();
            let word = Offset::<AtomicU64>::from_raw(offset.raw() + MIB - 8);
            first
                .get(word)
                .store(build << 32 | index, Ordering::Relaxed);
            objects.push(word);
        }
        // Another member sees it without having been told; objects of all kinds, from the last on.
        for (index, &word) in objects.iter().enumerate().rev() {
            let seen = second.get(word).load(Ordering::Relaxed);
            assert_eq!(seen, build << 32 | index as u64, "{build}");
        }
        assert_eq!(second.get(good).load(Ordering::Relaxed), 7);
        // Both halves, when one has been in each.
        let bound = if build == 0 { 80 } else { 150 } * MIB;
        for region in [&first, &second] {
            assert!(readable(region) < bound, "{build}: {}", readable(region));
        }
        // It frees what it did not allocate.
        let others = second.claim_thread_slot(1).unwrap();
        for word in objects.drain(..32) {
            let offset = Offset::<AtomicU8>::from_raw(word.raw() - (MIB - 8));
            second.free_bytes(&others, offset, MIB as usize);
        }
        drop(others);
        first.begin_damage();
        first.begin_build();
        first.end_damage();
    }
    let memory = rustix::fs::fstat(&file).unwrap().st_blocks as u64 * 512;
    assert!(memory < 100 * MIB, "{memory}");
}

#[test]
fn the_fixed_slots_are_reached_as_they_are_used() {
    let file = file();
    let first = Region::create(&file, SIZE).unwrap();
    let second = Region::open(&file).unwrap();
    let before = readable(&second);
    let last = first.session_area_length() - 8;
    for place in [0, 4 << 10, 3 << 20] {
        let words = first.session_area::<AtomicU64>(place, 1).unwrap();
        words[0].store(place + 1, Ordering::Relaxed);
        let seen = second.session_area::<AtomicU64>(place, 1).unwrap();
        assert_eq!(seen[0].load(Ordering::Relaxed), place + 1);
    }
    assert!(readable(&second) < before + 5 * MIB);
    assert!(second.session_area::<AtomicU64>(last, 1).is_some());
    assert!(second.session_area::<AtomicU64>(last, 2).is_none());
    // Nothing lies behind the region, wherever that is in the process.
    let end = second.size();
    assert!(second.try_get(Offset::<AtomicU64>::from_raw(end)).is_none());
    assert!(
        second
            .try_get(Offset::<AtomicU64>::from_raw(u64::MAX - 7))
            .is_none()
    );
}
