//! What those share that ask and those that copy: a slot for each thread that asks, and where the threads of a node sleep.
//!
//! # Invariants
//! * A slot is one thread's from when it is taken until it is not, and only that thread puts into its rings.
//! * What is handed over is counted before it can be taken ([`Slot::left`]), and is counted off when it is done: 0 means that nobody copies
//!   anything for the slot.
//! * Whoever is about to sleep says so first and looks again then; whoever changes what it waits for looks afterwards whether it has said so.

use super::primitive::thread::JoinHandle;
use super::primitive::{self, AtomicBool, AtomicU32, AtomicUsize, LOOKS, Mutex, Ordering};
use super::ring::{Piece, Ring};
use super::rules::{Rule, Rules};
use std::sync::PoisonError;

/// Threads that have a batch at the same time; others copy by themselves.
pub(super) const SLOTS: usize = if cfg!(shuttle) { 2 } else { 128 };

/// The threads of a node, and where they sleep.
pub(super) struct Node {
    /// Goes up with each piece.
    pub(super) handed: AtomicU32,
    pub(super) sleepers: AtomicU32,
}

/// What a thread has that asks.
pub(super) struct Slot {
    pub(super) is_taken: AtomicBool,
    /// Pieces that are not done.
    pub(super) left: AtomicU32,
    /// Whoever asked sleeps, or is about to.
    pub(super) is_waited_for: AtomicBool,
    pub(super) has_failed: AtomicBool,
    /// One for each node.
    pub(super) rings: Vec<Ring>,
}

/// All of it; lives for ever.
pub(super) struct Delegates {
    pub(super) nodes: Vec<Node>,
    pub(super) slots: Vec<Slot>,
    /// Slots that were ever taken: nobody looks behind them.
    pub(super) used: AtomicUsize,
    pub(super) is_ending: AtomicBool,
    /// Threads of each node.
    pub(super) per_node: usize,
    /// This is a forked child's copy.
    pub(super) are_gone: AtomicBool,
    pub(super) rules: Rules,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Delegates {
    pub(super) fn new(nodes: u32, per_node: usize) -> Delegates {
        let slot = || Slot {
            is_taken: AtomicBool::new(false),
            left: AtomicU32::new(0),
            is_waited_for: AtomicBool::new(false),
            has_failed: AtomicBool::new(false),
            rings: (0..nodes).map(|_| Ring::new()).collect(),
        };
        let node = |_| Node {
            handed: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        };
        Delegates {
            nodes: (0..nodes).map(node).collect(),
            slots: std::iter::repeat_with(slot).take(SLOTS).collect(),
            used: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            per_node,
            are_gone: AtomicBool::new(false),
            rules: Rules::default(),
            threads: Mutex::new(Vec::new()),
        }
    }

    pub(super) fn note(&self, thread: JoinHandle<()>) {
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.push(thread);
    }

    /// Takes a slot: the one that the thread had last, if that is free. `None`: none is.
    pub(super) fn take(&self, last: usize) -> Option<usize> {
        let take = |&index: &usize| {
            let slot = self.slots.get(index);
            slot.is_some_and(|slot| slot.take(self.rules))
        };
        let index = Some(last).filter(take).or_else(|| (0..SLOTS).find(take))?;
        self.used.fetch_max(index + 1, Ordering::SeqCst);
        Some(index)
    }

    /// Ends the threads, when all batches are over. Blocks until then.
    pub(super) fn close(&self) {
        for slot in &self.slots {
            // Nobody begins another.
            while !slot.take(self.rules) && self.rules.hold(Rule::BatchesBeforeEnd) {
                primitive::give_way();
            }
        }
        self.end();
    }

    /// The same where there are no batches.
    pub(super) fn end(&self) {
        let is_said_first = self.rules.hold(Rule::EndsBeforeWaking);
        if is_said_first {
            self.is_ending.store(true, Ordering::SeqCst);
        }
        for node in &self.nodes {
            node.handed.fetch_add(1, Ordering::SeqCst);
            match self.rules.hold(Rule::WakesAllAtEnd) {
                true => primitive::wake_all(&node.handed),
                false => primitive::wake(&node.handed),
            }
        }
        if !is_said_first {
            self.is_ending.store(true, Ordering::SeqCst);
        }
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        for thread in threads.drain(..) {
            // Whatever it has come to, its pieces are counted off.
            let _ = thread.join();
        }
    }

    /// Hands a piece to the threads of a node. Waits where as many as fit are waiting there: that is what holds back
    /// who asks for more than the medium does.
    pub(super) fn hand_over(&self, slot: &Slot, node: usize, piece: Piece) {
        let (Some(ring), Some(threads)) = (slot.rings.get(node), self.nodes.get(node)) else {
            slot.has_failed.store(true, Ordering::Relaxed);
            return;
        };
        let is_counted_first = self.rules.hold(Rule::CountsBeforeHandingOver);
        if is_counted_first {
            slot.left.fetch_add(1, Ordering::SeqCst);
        }
        let mut looks = 0;
        while !ring.put(&piece, self.rules) {
            if self.are_gone.load(Ordering::Relaxed) {
                slot.has_failed.store(true, Ordering::Relaxed);
                return;
            }
            let left = slot.left.load(Ordering::SeqCst);
            slot.rest(&mut looks, left, self.rules, || !ring.is_full());
        }
        threads.is_handed(self.rules);
        if !is_counted_first {
            slot.left.fetch_add(1, Ordering::SeqCst);
        }
    }
}

impl Node {
    /// A piece was put into one of its rings.
    fn is_handed(&self, rules: Rules) {
        let change = || self.handed.fetch_add(1, Ordering::SeqCst);
        let is_changed_first = rules.hold(Rule::ChangesBeforeWakingDelegates);
        if is_changed_first {
            change();
        }
        if self.sleepers.load(Ordering::SeqCst) != 0 {
            primitive::wake(&self.handed);
        }
        if !is_changed_first {
            change();
        }
    }

    /// Sleeps until there is something, where nothing was handed over since `seen`.
    pub(super) fn sleep(&self, seen: u32, rules: Rules) {
        let said = u32::from(rules.hold(Rule::DelegateSaysThatItSleeps));
        self.sleepers.fetch_add(said, Ordering::SeqCst);
        if self.handed.load(Ordering::SeqCst) == seen {
            primitive::wait(&self.handed, seen);
        }
        self.sleepers.fetch_sub(said, Ordering::SeqCst);
    }
}

impl Slot {
    fn take(&self, rules: Rules) -> bool {
        if !rules.hold(Rule::TakesSlotByExchange) {
            let is_free = !self.is_taken.load(Ordering::Acquire);
            self.is_taken.store(true, Ordering::Release);
            return is_free;
        }
        !self.is_taken.swap(true, Ordering::Acquire)
    }

    /// By who has taken it, when all of its pieces are done.
    pub(super) fn give_back(&self) {
        self.has_failed.store(false, Ordering::Relaxed);
        self.is_taken.store(false, Ordering::Release);
    }

    /// Lets a little time pass: looks, then sleeps until a piece is done, where `left` still are not.
    fn rest(&self, looks: &mut u32, left: u32, rules: Rules, is_over: impl Fn() -> bool) {
        if *looks < LOOKS {
            *looks += 1;
            primitive::spin_hint();
            return;
        }
        self.is_waited_for
            .store(rules.hold(Rule::AskerSaysThatItSleeps), Ordering::SeqCst);
        let now = self.left.load(Ordering::SeqCst);
        let is_as_seen = now == left || !rules.hold(Rule::SleepsOnWhatWasSeen);
        if is_as_seen && !(rules.hold(Rule::LooksForPlaceAgain) && is_over()) {
            primitive::wait(&self.left, now);
        }
        self.is_waited_for.store(false, Ordering::SeqCst);
    }

    /// Until all pieces are done.
    pub(super) fn wait(&self, all: &Delegates) {
        let mut looks = 0;
        loop {
            match self.left.load(Ordering::Acquire) {
                0 => return,
                _ if all.are_gone.load(Ordering::Relaxed) => {
                    self.has_failed.store(true, Ordering::Relaxed);
                    return;
                }
                left => self.rest(&mut looks, left, all.rules, || false),
            }
        }
    }

    /// A piece is done, by a delegate; whether all of it was there.
    pub(super) fn is_done(&self, is_whole: bool, rules: Rules) {
        let fail = || {
            if !is_whole {
                self.has_failed.store(true, Ordering::Relaxed);
            }
        };
        let change = || self.left.fetch_sub(1, Ordering::SeqCst);
        let is_said_first = rules.hold(Rule::FailsBeforeTelling);
        let is_changed_first = rules.hold(Rule::ChangesBeforeWakingAsker);
        if is_said_first {
            fail();
        }
        if is_changed_first {
            change();
        }
        if self.is_waited_for.load(Ordering::SeqCst) {
            primitive::wake(&self.left);
        }
        if !is_changed_first {
            change();
        }
        if !is_said_first {
            fail();
        }
    }
}
