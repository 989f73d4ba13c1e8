//! A coarse bound on the usual path, in release builds; far above what it takes on idle machines,
//! so that only a change of kind (a lock, a system call) fails it.

use crate::region::{HashLink, HashTable, Region};
use std::sync::atomic::AtomicU64;
use std::time::Instant;

fn nanoseconds(rounds: u32, mut round: impl FnMut()) -> f64 {
    let least = (0..5).map(|_| {
        let start = Instant::now();
        for _ in 0..rounds {
            round();
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(rounds)
    });
    least.fold(f64::INFINITY, f64::min)
}

#[test]
fn the_usual_path_is_short() {
    let region = Region::in_memory(64 << 20).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let allocation = nanoseconds(1_000_000, || {
        let value = [const { AtomicU64::new(1) }; 8];
        let offset = region.allocate(&slot, value).unwrap();
        region.free(&slot, std::hint::black_box(offset));
    });
    let pinning = nanoseconds(1_000_000, || drop(std::hint::black_box(slot.pin())));
    let table = HashTable::<Entry>::create(&region, &slot).unwrap();
    let table = region.get(table);
    for key in 0..1000 {
        let hash = super::tables::mixed(key);
        let node = Entry {
            link: HashLink::default(),
            key: AtomicU64::new(key),
            value: AtomicU64::new(0),
        };
        let node = region.allocate(&slot, node).unwrap();
        table.insert(&slot.pin(), hash, node, |_| false).unwrap();
    }
    let mut key = 0;
    let guard = slot.pin();
    let lookup = nanoseconds(1_000_000, || {
        key = (key + 7) % 1000;
        let found = table.lookup(&guard, super::tables::mixed(key), |_| true);
        assert!(std::hint::black_box(found).is_some());
    });
    println!(
        "allocate and free {allocation:.1} ns, pin and unpin {pinning:.1} ns, look up {lookup:.1} ns"
    );
    assert!(allocation < 400.0 && pinning < 400.0 && lookup < 800.0);
}

crate::region_hash_node! {
    struct Entry {
        key: AtomicU64,
        value: AtomicU64,
    }
}
