//! Making, opening and addressing regions; the two locks between threads.

use crate::region::{
    AtomicOffset, Holder, Holders, Lock, Offset, ROOTS, ReadWriteLock, Region, RegionError,
};
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const SIZE: u64 = if cfg!(miri) { 8 << 20 } else { 16 << 20 };

fn holder(thread: u16) -> Holder {
    Holder { member: 7, thread }
}

#[test]
fn sizes_that_hold_no_region_are_refused() {
    for size in [0, 4096, 1 << 20, SIZE + 1, Region::MAXIMUM_SIZE + 4096] {
        assert!(
            matches!(Region::in_memory(size), Err(RegionError::Size(refused)) if refused == size),
            "{size}"
        );
    }
}

#[test]
fn references_outside_are_refused() {
    let region = Region::in_memory(SIZE).unwrap();
    let end = region.size();
    assert!(region.try_get(Offset::<AtomicU64>::NULL).is_none());
    assert!(
        region
            .try_get(Offset::<AtomicU64>::from_raw(end - 8))
            .is_some()
    );
    for offset in [end - 7, end - 4, end, end + 8, 12, u64::MAX, u64::MAX - 7] {
        assert!(
            region
                .try_get(Offset::<AtomicU64>::from_raw(offset))
                .is_none(),
            "{offset}"
        );
    }
    assert!(
        region
            .session_area::<AtomicU64>(region.session_area_length() - 8, 1)
            .is_some()
    );
    assert!(
        region
            .session_area::<AtomicU64>(region.session_area_length() - 8, 2)
            .is_none()
    );
    assert!(region.session_area::<AtomicU64>(u64::MAX - 7, 1).is_none());
    assert!(region.session_area::<AtomicU64>(4, 1).is_none());
    assert!(!region.write_bytes(Offset::from_raw(end - 3), b"four"));
    assert!(!region.bytes_equal(Offset::from_raw(u64::MAX), b"x"));
}

#[test]
#[cfg(not(debug_assertions))]
fn a_wild_reference_leads_to_the_stray_page_and_is_counted() {
    let region = Region::in_memory(SIZE).unwrap();
    region
        .get(Offset::<AtomicU64>::from_raw(u64::MAX))
        .store(9, Ordering::Relaxed);
    assert_eq!(region.statistics().stray_references, 1);
}

#[test]
fn bytes_and_values_keep_what_was_put_in() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    for length in [0, 1, 7, 8, 9, 255, 5000] {
        let bytes: Vec<u8> = (0..length).map(|byte| byte as u8 ^ 0x5a).collect();
        let offset: Offset<AtomicU8> = region.allocate_bytes(&slot, bytes.len()).unwrap();
        let mut read = vec![1; bytes.len()];
        assert!(region.read_bytes(offset, &mut read));
        assert!(read.iter().all(|&byte| byte == 0));
        assert!(region.write_bytes(offset, &bytes));
        assert!(region.read_bytes(offset, &mut read));
        assert_eq!(read, bytes);
        assert!(region.padded_equal(offset, &bytes));
        assert!(region.bytes_equal(offset, &bytes));
        if let Some(first) = read.first_mut() {
            *first ^= 1;
            assert!(!region.bytes_equal(offset, &read));
        }
    }
    let odd = region
        .allocate(&slot, [1, 2, 3, 4, 5].map(AtomicU32::new))
        .unwrap();
    let values = region
        .get(odd)
        .each_ref()
        .map(|value| value.load(Ordering::Relaxed));
    assert_eq!(values, [1, 2, 3, 4, 5]);
}

#[test]
fn padded_bytes_are_compared_as_a_whole() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    for length in 0..40usize {
        let bytes: Vec<u8> = (1..=length as u8).collect();
        let offset: Offset<AtomicU8> = region.allocate_bytes(&slot, 48).unwrap();
        let (before, after) = ([0x77; 48], &mut [0; 48]);
        assert!(region.write_bytes(offset, &before));
        assert!(region.write_padded(offset, &bytes));
        assert!(region.padded_equal(offset, &bytes), "{length} bytes");
        assert!(region.read_bytes(offset, after));
        let end = length.next_multiple_of(8);
        assert_eq!(&after[..length], &bytes[..]);
        assert!(after[length..end].iter().all(|&byte| byte == 0));
        assert_eq!(&after[end..], &before[end..]);
        for wrong in 0..length {
            let mut other = bytes.clone();
            other[wrong] ^= 0x80;
            assert!(!region.padded_equal(offset, &other), "{wrong} of {length}");
        }
        if length % 8 > 1 {
            assert!(!region.padded_equal(offset, &bytes[..length - 1]));
        }
    }
    let end = region.size();
    assert!(!region.write_padded(Offset::from_raw(end - 8), b"nine more"));
    assert!(!region.padded_equal(Offset::from_raw(end - 8), b"nine more"));
}

#[test]
fn roots_are_found_again() {
    let region = Region::in_memory(SIZE).unwrap();
    region.session_root(3).unwrap().store(5, Ordering::Relaxed);
    region
        .auxiliary_root(3)
        .unwrap()
        .store(6, Ordering::Relaxed);
    assert_eq!(region.session_root(3).unwrap().load(Ordering::Relaxed), 5);
    assert_eq!(region.auxiliary_root(3).unwrap().load(Ordering::Relaxed), 6);
    assert!(region.session_root(ROOTS).is_none());
    assert!(region.auxiliary_root(ROOTS).is_none());
    let link = AtomicOffset::<AtomicU64>::default();
    let (old, new) = (Offset::NULL, Offset::from_raw(64));
    let exchange = |old, new| link.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire);
    assert_eq!(exchange(old, new), Ok(old));
    assert_eq!(exchange(old, new), Err(new));
    assert_eq!(link.swap(old, Ordering::AcqRel), new);
}

#[test]
fn a_lock_names_its_holder_and_excludes() {
    let lock = Lock::new();
    let last = Holder {
        member: u16::MAX - 1,
        thread: 1023,
    };
    for who in [holder(0), last] {
        let guard = lock.lock(who);
        assert_eq!(lock.holder(), Some(who));
        assert!(lock.try_lock(holder(1)).is_none());
        drop(guard);
        assert_eq!(lock.holder(), None);
    }
}

#[test]
fn a_lock_of_the_dead_is_released_once_and_wakes_waiters() {
    let lock = Lock::new();
    std::mem::forget(lock.lock(holder(3)));
    assert!(!lock.release_dead(8));
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let _guard = lock.lock(Holder {
                member: 8,
                thread: 1,
            });
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(lock.release_dead(7));
        waiter.join().unwrap();
    });
    assert!(!lock.release_dead(7));

    let lock = ReadWriteLock::new();
    std::mem::forget(lock.write(holder(3)));
    assert!(!lock.release_dead(8));
    assert!(lock.release_dead(7));
    assert_eq!(lock.holders(), Holders::None);
}

#[test]
fn readers_share_and_writers_do_not() {
    let lock = ReadWriteLock::new();
    let first = lock.read();
    let second = lock.try_read().unwrap();
    assert_eq!(lock.holders(), Holders::Readers(2));
    assert!(lock.try_write(holder(1)).is_none());
    drop((first, second));
    let writer = lock.try_write(holder(1)).unwrap();
    assert_eq!(lock.holder(), Some(holder(1)));
    assert!(lock.try_read().is_none());
    drop(writer);
    assert_eq!(lock.holders(), Holders::None);
}

#[test]
fn a_waiting_writer_is_not_passed_by_new_readers() {
    let lock = ReadWriteLock::new();
    let reader = lock.read();
    std::thread::scope(|scope| {
        let (done, written) = mpsc::channel();
        let lock = &lock;
        scope.spawn(move || {
            let _guard = lock.write(holder(1));
            done.send(()).unwrap();
        });
        // The writer announces itself when it goes to sleep.
        while lock.try_read().is_some() {
            std::thread::yield_now();
        }
        assert!(written.try_recv().is_err());
        drop(reader);
        written.recv().unwrap();
    });
    assert_eq!(lock.holders(), Holders::None);
}

#[test]
fn locks_protect_a_plain_sum_between_threads() {
    let (lock, read_write) = (Lock::new(), ReadWriteLock::new());
    let sums = [AtomicU64::new(0), AtomicU64::new(0)];
    let rounds = if cfg!(miri) { 50 } else { 20_000 };
    // Loads and stores, no additions: only the locks make the sums right.
    let add = |sum: &AtomicU64| sum.store(sum.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (lock, read_write, sums) = (&lock, &read_write, &sums);
            scope.spawn(move || {
                for round in 0..rounds {
                    let guard = lock.lock(holder(thread));
                    add(&sums[0]);
                    drop(guard);
                    if round % 4 == 0 {
                        let _guard = read_write.write(holder(thread));
                        add(&sums[1]);
                    } else {
                        let _guard = read_write.read();
                        let before = sums[1].load(Ordering::Relaxed);
                        std::hint::spin_loop();
                        assert_eq!(before, sums[1].load(Ordering::Relaxed));
                    }
                }
            });
        }
    });
    assert_eq!(sums[0].load(Ordering::Relaxed), 4 * rounds);
    assert_eq!(sums[1].load(Ordering::Relaxed), 4 * rounds.div_ceil(4));
}
