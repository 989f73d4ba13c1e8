//! The hash table against the standard one, and under threads.

use crate::region::{Guard, HashLink, HashTable, Offset, Region, ThreadSlot};
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

crate::region_hash_node! {
    pub struct Node {
        key: AtomicU64,
        value: AtomicU64,
    }
}

const SIZE: u64 = if cfg!(miri) { 8 << 20 } else { 64 << 20 };

/// Mixes the bits as a real hash would.
pub fn mixed(key: u64) -> u64 {
    let key = (key ^ key >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let key = (key ^ key >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    key ^ key >> 31
}

/// A table from numbers to numbers, as a LibFS would wrap it.
pub struct Map<'r> {
    pub table: &'r HashTable<Node>,
    hash: fn(u64) -> u64,
}

impl<'r> Map<'r> {
    pub fn new(region: &'r Region, table: Offset<HashTable<Node>>, hash: fn(u64) -> u64) -> Self {
        let table = region.get(table);
        Self { table, hash }
    }

    fn create(slot: &ThreadSlot<'r>, hash: fn(u64) -> u64) -> Self {
        let region = slot.region();
        Self::new(region, HashTable::create(region, slot).unwrap(), hash)
    }

    pub fn insert(&self, guard: &Guard<'_>, key: u64, value: u64) -> bool {
        let node = Node {
            link: HashLink::default(),
            key: AtomicU64::new(key),
            value: AtomicU64::new(value),
        };
        let region = guard.region();
        let node = region.allocate(guard.slot(), node).unwrap();
        let inserted = self
            .table
            .insert(guard, (self.hash)(key), node, |other| is(other, key));
        if let Err(other) = inserted {
            assert!(is(region.get(other), key));
            region.free(guard.slot(), node);
        }
        inserted.is_ok()
    }

    pub fn lookup(&self, guard: &Guard<'_>, key: u64) -> Option<u64> {
        let (_, node) = self
            .table
            .lookup(guard, (self.hash)(key), |node| is(node, key))?;
        assert!(is(node, key), "the node changed under the guard");
        Some(node.value.load(Ordering::Relaxed))
    }

    pub fn remove(&self, guard: &Guard<'_>, key: u64) -> Option<u64> {
        let node = self
            .table
            .remove(guard, (self.hash)(key), |node| is(node, key))?;
        let value = guard.region().get(node).value.load(Ordering::Relaxed);
        guard.retire(node);
        Some(value)
    }

    pub fn contents(&self, guard: &Guard<'_>) -> HashMap<u64, u64> {
        let mut contents = HashMap::new();
        self.table.for_each(guard, |_, node| {
            let key = node.key.load(Ordering::Relaxed);
            let value = node.value.load(Ordering::Relaxed);
            assert_eq!(contents.insert(key, value), None, "{key} is there twice");
            true
        });
        contents
    }
}

fn is(node: &Node, key: u64) -> bool {
    node.key.load(Ordering::Relaxed) == key
}

fn compare(steps: &[(u8, u64, u64)], hash: fn(u64) -> u64) {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let map = Map::create(&slot, hash);
    let mut expected = HashMap::new();
    for &(step, key, value) in steps {
        let guard = region.pin(&slot);
        match step {
            0..5 => {
                let new = !expected.contains_key(&key);
                expected.entry(key).or_insert(value);
                assert_eq!(map.insert(&guard, key, value), new);
            }
            5..8 => assert_eq!(map.remove(&guard, key), expected.remove(&key)),
            _ => assert_eq!(map.lookup(&guard, key), expected.get(&key).copied()),
        }
    }
    assert_eq!(map.contents(&region.pin(&slot)), expected);
}

fn steps(keys: u64) -> impl Strategy<Value = Vec<(u8, u64, u64)>> {
    let most = if cfg!(miri) { 60 } else { 4000 };
    prop::collection::vec((0..10u8, 0..keys, any::<u64>()), 0..most)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 48 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn it_does_what_the_standard_table_does(steps in steps(1000)) {
        compare(&steps, mixed);
    }

    #[test]
    fn nodes_of_equal_hash_are_told_apart(steps in steps(40)) {
        // Few hashes, among them ones that differ only in the bits that the order gives up.
        compare(&steps, |key| ((key % 3) << 61) | (key % 2));
    }
}

#[test]
fn it_grows_and_keeps_everything() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let map = Map::create(&slot, mixed);
    let keys = if cfg!(miri) { 200 } else { 100_000 };
    for key in 0..keys {
        assert!(map.insert(&slot.pin(), key, !key));
    }
    let guard = slot.pin();
    for key in 0..keys {
        assert_eq!(map.lookup(&guard, key), Some(!key));
    }
    assert_eq!(map.lookup(&guard, keys), None);
    assert_eq!(map.contents(&guard).len() as u64, keys);
    if !cfg!(miri) {
        let (buckets, estimate) = (map.table.buckets(), map.table.estimated_length());
        assert!(buckets * 4 > keys && buckets < keys * 4, "{buckets}");
        assert!(
            estimate > keys * 9 / 10 && estimate < keys * 11 / 10,
            "{estimate}"
        );
    }
}

#[test]
#[cfg(not(miri))]
fn a_table_that_cannot_grow_still_works() {
    let region = Region::in_memory(16 << 20).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let map = Map::create(&slot, mixed);
    let guard = slot.pin();
    let mut hoard = Vec::new();
    let keys = 500;
    for key in 0..keys {
        assert!(map.insert(&guard, key, key));
        if key == 20 {
            while hoard.len() < 100_000
                && let Ok(page) = region.allocate_bytes(&slot, 32 << 10)
            {
                hoard.push(page);
            }
        }
    }
    for key in 0..keys {
        assert_eq!(map.remove(&guard, key), Some(key));
    }
    assert!(map.contents(&guard).is_empty());
}

#[test]
fn destroying_a_table_returns_its_memory() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let before = region.statistics().bytes_in_use;
    let table = HashTable::create(&region, &slot).unwrap();
    let map = Map::new(&region, table, mixed);
    let keys = if cfg!(miri) { 100 } else { 5000 };
    for key in 0..keys {
        map.insert(&slot.pin(), key, 0);
    }
    for key in 0..keys {
        assert_eq!(map.remove(&slot.pin(), key), Some(0));
    }
    HashTable::destroy(&slot.pin(), table);
    for _ in 0..100 {
        slot.collect();
    }
    assert_eq!(region.statistics().bytes_in_use, before);
}

/// Permanent keys are never missed and changing ones are never torn, while the table grows from
/// its smallest size and nodes come and go.
#[test]
fn lookups_go_on_while_it_grows_and_shrinks() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let map = Map::create(&slot, mixed);
    let (permanent, grown) = if cfg!(miri) { (20, 60) } else { (500, 60_000) };
    for key in 0..permanent {
        map.insert(&slot.pin(), key, !key);
    }
    let finished = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (region, map, finished) = (&region, &map, &finished);
        let writers: Vec<_> = (1..3u64)
            .map(|writer| {
                scope.spawn(move || {
                    let slot = region.claim_thread_slot(writer as u16).unwrap();
                    let mine = |key: u64| writer << 32 | key;
                    for key in 0..grown {
                        assert!(map.insert(&slot.pin(), mine(key), !mine(key)));
                        // A contended pair of keys that both writers insert and remove.
                        let guard = slot.pin();
                        map.insert(&guard, (1 << 40) | (key % 2), !((1 << 40) | (key % 2)));
                        map.remove(&guard, (1 << 40) | ((key + 1) % 2));
                        drop(guard);
                        if key >= grown / 2 {
                            let old = mine(key - grown / 2);
                            assert_eq!(map.remove(&slot.pin(), old), Some(!old));
                        }
                    }
                })
            })
            .collect();
        for reader in 3..5 {
            scope.spawn(move || {
                let slot = region.claim_thread_slot(reader).unwrap();
                let mut round = 0;
                while !finished.load(Ordering::Relaxed) {
                    let key = round % permanent;
                    let guard = slot.pin();
                    assert_eq!(map.lookup(&guard, key), Some(!key));
                    let changing = (1 << 32) | (mixed(round) % grown);
                    if let Some(value) = map.lookup(&guard, changing) {
                        assert_eq!(value, !changing);
                    }
                    round += 1;
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        finished.store(true, Ordering::Relaxed);
    });
    let guard = slot.pin();
    let contents = map.contents(&guard);
    let contended = contents.keys().filter(|&&key| key >= 1 << 40).count() as u64;
    assert_eq!(
        contents.len() as u64 - contended,
        permanent + 2 * (grown - grown.div_ceil(2))
    );
    assert!(contents.iter().all(|(&key, &value)| value == !key));
}

/// Of several threads that insert the same key, one succeeds; of several that remove it, one.
#[test]
fn insertion_and_removal_have_one_winner() {
    let region = Region::in_memory(SIZE).unwrap();
    let slot = region.claim_thread_slot(0).unwrap();
    let map = Map::create(&slot, |key| key % 4);
    let rounds = if cfg!(miri) { 20 } else { 20_000 };
    let balance = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for thread in 1..5u64 {
            let (region, map, balance) = (&region, &map, &balance);
            scope.spawn(move || {
                let slot = region.claim_thread_slot(thread as u16).unwrap();
                for round in 0..rounds {
                    let (key, guard) = (mixed(round * thread) % 8, slot.pin());
                    if mixed(round ^ thread << 20).is_multiple_of(2) {
                        let inserted = map.insert(&guard, key, key);
                        balance.fetch_add(u64::from(inserted), Ordering::Relaxed);
                    } else {
                        let removed = map.remove(&guard, key).is_some();
                        balance.fetch_sub(u64::from(removed), Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let contents = map.contents(&slot.pin());
    assert_eq!(contents.len() as u64, balance.into_inner());
}
