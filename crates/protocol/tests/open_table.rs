//! Model check of the open table (DESIGN section 5), under shuttle:
//!
//! ```text
//! RUSTFLAGS="--cfg shuttle" cargo test --release -p arck-protocol --test open_table
//! ```
//!
//! A session opens a file by a name that it has looked up while the controller takes that name away
//! and frees what nobody lists. The steps are those of a LibFS that lists what it opens and of `free_orphans` in
//! the controller; the words are those of the table.
//!
//! What is checked: who has opened a file reads its page, not what the page is used for next, until
//! he closes it; and a file that nobody has open is free in the end.
//!
//! What is not: weak memory (see the model of ownership).
//!
//! That it can fail is shown by mutations, each of which the checker has to find.

#![cfg(shuttle)]

use arck_core_state::primitive::{AtomicU64, Ordering};
use arck_protocol::control::open_entry;
use shuttle::sync::Mutex;
use shuttle::{Runner, scheduler::RandomScheduler, thread};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

const NUMBER: u32 = 5;
const GENERATION: u32 = 1;
const THREADS: usize = 2;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutation {
    None,
    // In the LibFS.
    DoesNotLookAgain,
    /// Takes an inode without a name for one that stays because it is listed.
    TrustsOrphans,
    // In the controller.
    /// And stores that the name is gone afterwards: the page is reused before the table was read.
    ReadsTableFirst,
    DoesNotReadTable,
}

const ALIVE: u64 = 1;
const ORPHAN: u64 = 2;
const FREE: u64 = 3;

struct World {
    mutation: Mutation,
    kind: AtomicU64,
    table: [AtomicU64; THREADS],
    /// The file's page: 1 = its own content, 2 = another file's.
    page: AtomicU64,
    /// One request at a time.
    service: Mutex<()>,
}

impl World {
    fn is_listed(&self) -> bool {
        let entry = open_entry(NUMBER, GENERATION);
        let mut entries = self.table.iter();
        self.mutation != Mutation::DoesNotReadTable
            && entries.any(|place| place.load(Ordering::SeqCst) == entry)
    }

    fn free(&self) {
        self.kind.store(FREE, Ordering::SeqCst);
        self.page.store(2, Ordering::SeqCst);
    }

    /// The last name goes.
    fn unlink(&self) {
        let _one_at_a_time = self.service.lock().unwrap();
        if self.mutation == Mutation::ReadsTableFirst {
            let is_listed = self.is_listed();
            self.kind.store(ORPHAN, Ordering::SeqCst);
            if !is_listed {
                self.free();
            }
            return;
        }
        self.kind.store(ORPHAN, Ordering::SeqCst);
        if !self.is_listed() {
            self.free();
        }
    }

    /// Looks whether an orphan can be freed; what had been begun before is done when it returns.
    fn forget(&self) {
        let _one_at_a_time = self.service.lock().unwrap();
        if self.kind.load(Ordering::SeqCst) == ORPHAN && !self.is_listed() {
            self.free();
        }
    }

    fn close(&self, place: &AtomicU64) {
        place.store(0, Ordering::SeqCst);
        if self.kind.load(Ordering::SeqCst) == ORPHAN {
            self.forget();
        }
    }

    /// Looks the name up, opens, reads, closes.
    fn open(&self, place: &AtomicU64) {
        if self.kind.load(Ordering::SeqCst) != ALIVE {
            return;
        }
        place.store(open_entry(NUMBER, GENERATION), Ordering::SeqCst);
        let looks = self.mutation != Mutation::DoesNotLookAgain;
        let mut kind = self.kind.load(Ordering::SeqCst);
        if looks && kind == ORPHAN && self.mutation != Mutation::TrustsOrphans {
            self.forget();
            kind = self.kind.load(Ordering::SeqCst);
        }
        if looks && kind == FREE {
            place.store(0, Ordering::SeqCst);
            return;
        }
        for _ in 0..2 {
            let page = self.page.load(Ordering::SeqCst);
            assert_eq!(page, 1, "a page of another file in an open one");
        }
        self.close(place);
    }
}

fn run(mutation: Mutation, schedules: usize) {
    let runner = Runner::new(
        RandomScheduler::new_from_seed(1, schedules),
        shuttle::Config::new(),
    );
    runner.run(move || {
        let world = Arc::new(World {
            mutation,
            kind: AtomicU64::new(ALIVE),
            table: std::array::from_fn(|_| AtomicU64::new(0)),
            page: AtomicU64::new(1),
            service: Mutex::new(()),
        });
        let threads: Vec<_> = (0..THREADS)
            .map(|at| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.open(&world.table[at]))
            })
            .collect();
        world.unlink();
        for thread in threads {
            thread.join().unwrap();
        }
        let kind = world.kind.load(Ordering::SeqCst);
        assert_eq!(kind, FREE, "kept for nobody");
    });
}

#[test]
fn what_is_open_stays_and_nothing_else() {
    run(Mutation::None, 100_000);
}

#[test]
fn finds_every_mistake() {
    for mutation in [
        Mutation::DoesNotLookAgain,
        Mutation::TrustsOrphans,
        Mutation::ReadsTableFirst,
        Mutation::DoesNotReadTable,
    ] {
        let found = catch_unwind(AssertUnwindSafe(|| run(mutation, 100_000)));
        let Err(panic) = found else {
            panic!("{mutation:?} was not found");
        };
        let text = panic.downcast_ref::<String>().map_or("", String::as_str);
        assert!(
            text.contains("a page of another file"),
            "{mutation:?} failed otherwise: {text}"
        );
    }
}
