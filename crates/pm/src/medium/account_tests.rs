//! Accounts by a clock that goes only where a test or a wait lets it.

use super::*;
use crate::medium::ledger::PAGE_WORDS;
use crate::medium::ledger::tests::page;
use crate::medium::model::Curve;
use crate::medium::model::tests::model;
use std::cell::Cell;
use std::sync::atomic::AtomicU64;

/// Sleeps are so much longer than they were asked for.
struct Hand {
    now: Cell<u64>,
    late: u64,
    slept: Cell<u64>,
}

impl Hand {
    fn new(late: u64) -> Hand {
        Hand {
            now: Cell::new(1 << 40),
            late,
            slept: Cell::new(0),
        }
    }

    fn go(&self, nanoseconds: u64) {
        self.now.set(self.now.get() + nanoseconds);
    }
}

impl Clock for Hand {
    fn now(&self) -> u64 {
        self.now.get()
    }

    fn sleep(&self, nanoseconds: u64) {
        self.slept.set(self.slept.get() + 1);
        self.go(nanoseconds + self.late);
    }

    fn give_way(&self) {
        self.go(1);
    }

    fn pause(&self) {
        self.go(1);
    }
}

fn bank<'a>(model: &'a Model, page: &'a [AtomicU64; PAGE_WORDS]) -> Bank<'a> {
    Bank {
        model,
        ledger: Ledger::new(page),
    }
}

/// Writes and fences `count` times `len` bytes one after the other; nanoseconds until then.
fn write(bank: Bank<'_>, clock: &Hand, account: &mut Account, count: u64, len: usize) -> u64 {
    let begun = clock.now();
    for index in 0..count {
        let now = clock.now();
        account.copied(bank, clock, now, Way::Write, index * len as u64, len);
        let now = clock.now();
        account.fenced(bank, clock, now);
    }
    clock.now() - begun
}

#[test]
fn a_line_costs_the_latency_of_one_fence() {
    let (model, page) = (model(), page());
    let clock = Hand::new(0);
    let mut account = Account::new(0);
    for lines in [1, 4] {
        let begun = clock.now();
        assert!(!account.is_unfenced());
        for line in 0..lines {
            account.flush(bank(&model, &page), &clock, line * 64, 64);
        }
        assert_eq!(clock.now(), begun, "a flush does not wait");
        assert!(account.is_unfenced());
        account.fenced(bank(&model, &page), &clock, begun);
        // 256 bytes by one thread, at half of 4 GB/s, take 128 ns; that is more than the latency of 90.
        assert_eq!(clock.now() - begun, 128);
    }
}

#[test]
fn the_latency_counts_where_it_is_longer() {
    let (mut model, page) = (model(), page());
    model.write.latency = 700;
    let clock = Hand::new(0);
    let mut account = Account::new(0);
    account.flush(bank(&model, &page), &clock, 0, 64);
    let begun = clock.now();
    // The real fence has taken some of it.
    clock.go(100);
    account.fenced(bank(&model, &page), &clock, begun);
    assert_eq!(clock.now() - begun, 700);
}

#[test]
fn small_lines_are_rounded_to_units() {
    let model = model();
    let mut account = Account::new(0);
    assert_eq!(account.units(&model, 64, 64), 256);
    // The same unit once more, and the next.
    assert_eq!(account.units(&model, 128, 64), 0);
    assert_eq!(account.units(&model, 192, 128), 256);
    assert_eq!(account.units(&model, 4096, 4096), 4096);
    assert_eq!(account.units(&model, 8000, 256), 256);
    assert_eq!(account.units(&model, 100_000, 256), 512);
}

#[test]
fn a_stream_takes_what_the_bandwidth_asks_for() {
    let (model, page) = (model(), page());
    let clock = Hand::new(0);
    let mut account = Account::new(0);
    let bank = bank(&model, &page);
    // 4 GB/s by one thread, and the fence of what has been waited for.
    let time = write(bank, &clock, &mut account, 1, 1 << 20);
    assert_eq!(time, (1 << 20) / 4 + 90);
    let time = write(bank, &clock, &mut account, 1000, 4096);
    assert_eq!(time, 1_024_000);
}

#[test]
fn sleeps_that_take_longer_are_made_up_for() {
    let (mut model, page) = (model(), page());
    model.write.by_threads = Curve::new(&[(1, 1000)]).unwrap();
    let clock = Hand::new(60_000);
    let mut account = Account::new(0);
    let time = write(bank(&model, &page), &clock, &mut account, 16, 1 << 20);
    let right = 16 << 20;
    assert!(time >= right, "{time}");
    assert!(time < right + 100_000, "{time}");
    assert!(clock.slept.get() > 10);
}

#[test]
fn a_slow_machine_gets_no_credit() {
    let (model, page) = (model(), page());
    let clock = Hand::new(0);
    let mut account = Account::new(0);
    let bank = bank(&model, &page);
    let begun = clock.now();
    // The real copy takes a millisecond, the emulated one a quarter of it.
    clock.go(1_000_000);
    account.copied(bank, &clock, begun, Way::Write, 0, 1 << 20);
    account.fenced(bank, &clock, clock.now());
    assert!(clock.now() - begun <= 1_000_000 + 90);
    // The next takes its time all the same.
    let time = write(bank, &clock, &mut account, 1, 1 << 20);
    assert_eq!(time, (1 << 20) / 4 + 90);
}

#[test]
fn credit_lapses() {
    let (model, page) = (model(), page());
    let clock = Hand::new(500_000);
    let mut account = Account::new(0);
    let bank = bank(&model, &page);
    write(bank, &clock, &mut account, 1, 1 << 20);
    clock.go(LAPSE);
    let begun = clock.now();
    account.copied(bank, &clock, begun, Way::Write, 0, 4096);
    account.fenced(bank, &clock, clock.now());
    assert_eq!(clock.now() - begun, 1024);
}

#[test]
fn a_read_waits_by_itself() {
    let (model, page) = (model(), page());
    let clock = Hand::new(0);
    let mut account = Account::new(0);
    let bank = bank(&model, &page);
    let begun = clock.now();
    account.copied(bank, &clock, begun, Way::Read, 0, 1024);
    // 1024 bytes at 2 GB/s.
    assert_eq!(clock.now() - begun, 512);
    let begun = clock.now();
    account.copied(bank, &clock, begun, Way::Read, 0, 256);
    assert_eq!(clock.now() - begun, 300);
    assert!(!account.is_unfenced());
}

/// The thread whose own time is least does the next access: as if each had a processor.
fn together(threads: usize, len: usize, rounds: u64, place: impl Fn(usize) -> u64) -> f64 {
    let (model, page) = (model(), page());
    let bank = bank(&model, &page);
    let mut all: Vec<_> = (0..threads)
        .map(|_| (Hand::new(0), Account::new(bank.ledger.take_slot())))
        .collect();
    // All have been there once, so that each sees all.
    for (index, (clock, account)) in all.iter_mut().enumerate() {
        account.copies(bank, clock.now(), Way::Write, place(index));
    }
    let begun = 1u64 << 40;
    for _ in 0..rounds * threads as u64 {
        let next = (0..threads)
            .min_by_key(|&index| all[index].0.now())
            .unwrap();
        let (clock, account) = &mut all[next];
        account.copies(bank, clock.now(), Way::Write, place(next));
        let now = clock.now();
        account.copied(bank, clock, now, Way::Write, place(next), len);
        account.fenced(bank, clock, clock.now());
        account.copies(bank, clock.now(), Way::Write, place(next));
    }
    let end = all.iter().map(|(clock, _)| clock.now()).max().unwrap();
    (rounds * threads as u64 * len as u64) as f64 / (end - begun) as f64
}

#[test]
fn threads_share_a_node() {
    for (threads, right) in [(1, 4.0), (2, 6.0), (4, 10.0), (8, 2.5), (64, 2.5)] {
        let found = together(threads, 4096, 200, |_| 0);
        assert!(
            (found / right - 1.0).abs() < 0.1,
            "{threads} threads: {found} GB/s, not {right}"
        );
    }
}

#[test]
fn two_nodes_move_twice_as_much() {
    let stripe = model().stripe;
    let found = together(8, 4096, 200, |thread| thread as u64 % 2 * stripe);
    assert!((found / 20.0 - 1.0).abs() < 0.1, "{found}");
}

#[test]
fn an_access_across_stripes_is_on_both_nodes() {
    let (model, page) = (model(), page());
    let clock = Hand::new(0);
    let mut account = Account::new(0);
    let bank = bank(&model, &page);
    let begun = clock.now();
    let half = 8192;
    let offset = model.stripe - half;
    account.copied(bank, &clock, begun, Way::Write, offset, 2 * half as usize);
    let until = [0, 1].map(|node| {
        let way = Way::Write;
        bank.ledger.reserve(Port { node, way }, begun, begun, 0)
    });
    assert_eq!(until, [begun + half / 4, begun + half / 2]);
}

/// An access of which nothing was copied is not at the node afterwards.
#[test]
fn who_has_copied_nothing_leaves() {
    let (model, page) = (model(), page());
    let bank = bank(&model, &page);
    let mut account = Account::new(bank.ledger.take_slot());
    let other = bank.ledger.take_slot();
    let port = Port {
        node: 0,
        way: Way::Read,
    };
    let now = 1 << 40;
    bank.ledger.enter(other, port, now);
    account.copies(bank, now, Way::Read, 0);
    assert_eq!(bank.ledger.inside(port, now), 2);
    account.leaves(bank, Way::Read, 0);
    assert_eq!(bank.ledger.inside(port, now), 1);
}

#[test]
fn nobody_waits_longer_than_the_bound() {
    let (model, page) = (model(), page());
    for word in &page[512..] {
        word.store(u64::MAX, std::sync::atomic::Ordering::Relaxed);
    }
    let clock = Hand::new(0);
    let mut account = Account::new(3);
    let bank = bank(&model, &page);
    let begun = clock.now();
    account.flush(bank, &clock, 0, 64);
    account.fenced(bank, &clock, clock.now());
    assert!(clock.now() - begun <= WAIT_MAX);
    account.copied(bank, &clock, clock.now(), Way::Read, 0, 4096);
    assert!(clock.now() - begun <= 3 * WAIT_MAX);
}
