//! Which of the requests that wait for nobody is begun next (CrossFS, section 4: one scheduler over all descriptor queues).
//!
//! Three ranks of requests: urgent reads, other urgent requests, and the rest. Each goes before those behind it, but for a bound: while
//! something waits in a rank, [`URGENT_RUN`] of the ranks before it are begun in a row at most, and then one of it. So under any load an
//! ordinary request is one of each `2 * (URGENT_RUN + 1)` that are begun, and so is an urgent write.
//!
//! In the urgent ranks the oldest is first, of all queues. In the third, queues share by weight: *start-time fair queueing* (Goyal
//! and others, SIGCOMM 1996). A queue's start tag is where its last request ended in virtual time, or now if that is past; the
//! queue with the smallest is next, and virtual time goes on to that tag. A request takes its cost divided by the weight: so queues
//! that always have something ready move bytes in proportion to their weights, and one that was idle gains nothing by that. Within a queue
//! the oldest is first. Urgent requests cost their queue the same, but do not wait for it.
//!
//! # Invariants
//! * `fair` has each queue with something in its third rank, once; by its tag, or by one that was its tag earlier, which is smaller. It may have queues
//!   whose third rank is empty by now.
//! * `urgent` has what the first two ranks of all queues have.
//! * `lent` is what is ready in queues whose waiting threads do that themselves.

use crate::numbered::ByNumber;
use crate::outstanding::QueueId;
use crate::request::RequestId;
use std::cmp::Reverse;
use std::collections::binary_heap::PeekMut;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// So many of the ranks before it are begun in a row while something waits in a rank.
pub const URGENT_RUN: u32 = 8;

/// What a request costs beside its bytes, in bytes.
const EACH: u64 = 512;
/// Virtual time of a byte at weight 1.
const SCALE: u64 = 1 << 32;
const RANKS: usize = 3;
const ORDINARY: usize = 2;

/// Ready requests of a queue, the oldest first, and what they cost.
#[derive(Default)]
struct Rank(VecDeque<(RequestId, u64)>);

impl Rank {
    fn first(&self) -> Option<RequestId> {
        self.0.front().map(|(request, _)| *request)
    }

    fn add(&mut self, request: RequestId, cost: u64) {
        match self.0.back() {
            // What has waited for others is older than what came meanwhile.
            Some((last, _)) if *last > request => {
                let at = self.0.partition_point(|(other, _)| *other < request);
                self.0.insert(at, (request, cost));
            }
            _ => self.0.push_back((request, cost)),
        }
    }

    fn remove(&mut self, request: RequestId) -> Option<u64> {
        let found = match self.first() == Some(request) {
            true => self.0.pop_front(),
            false => {
                let at = self.0.binary_search_by_key(&request, |(other, _)| *other);
                self.0.remove(at.ok()?)
            }
        };
        found.map(|(_, cost)| cost)
    }
}

struct Share {
    /// Virtual time that a byte takes.
    price: u64,
    /// Where its next request begins in virtual time, at the earliest.
    tag: u128,
    ranks: [Rank; RANKS],
    ready: usize,
    is_in_fair: bool,
    /// So many threads do what is ready themselves.
    lenders: usize,
    /// As [`Schedule::passed`], of what they have begun.
    passed: [u32; RANKS],
}

/// Requests that are ready to be begun.
#[derive(Default)]
pub struct Schedule {
    shares: ByNumber<QueueId, Share>,
    urgent: [BTreeSet<(RequestId, QueueId)>; ORDINARY],
    fair: BinaryHeap<Reverse<(u128, QueueId)>>,
    now: u128,
    /// How many of the ranks before each were begun in a row while something waited in it.
    passed: [u32; RANKS],
    ready: usize,
    /// Of the third rank.
    ordinary: usize,
    lent: usize,
}

fn rank_of(urgent: bool, is_read: bool) -> usize {
    match (urgent, is_read) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => ORDINARY,
    }
}

/// Of the ranks in which something waits, which is next: the rearmost whose patience is at its end, or else the foremost. `passed`: how
/// many before each of them have been begun in a row.
fn choose(passed: &mut [u32; RANKS], waiting: [bool; RANKS]) -> Option<usize> {
    let late = (1..RANKS)
        .rev()
        .find(|&rank| waiting[rank] && passed[rank] >= URGENT_RUN);
    let rank = late.or_else(|| (0..RANKS).find(|&rank| waiting[rank]))?;
    for (passed, waits) in passed.iter_mut().zip(waiting).skip(rank + 1) {
        *passed = if waits { *passed + 1 } else { 0 };
    }
    passed[rank] = 0;
    Some(rank)
}

impl Schedule {
    pub fn add_queue(&mut self, queue: QueueId, weight: u32) {
        let share = Share {
            price: SCALE / u64::from(weight.max(1)),
            tag: 0,
            ranks: Default::default(),
            ready: 0,
            is_in_fair: false,
            lenders: 0,
            passed: [0; RANKS],
        };
        self.shares.insert(queue, share);
    }

    /// Of a queue that has nothing ready.
    pub fn remove_queue(&mut self, queue: QueueId) {
        let share = self.shares.remove(&queue);
        debug_assert!(share.as_ref().is_none_or(|share| share.ready == 0));
        if share.is_some_and(|share| share.is_in_fair) {
            self.fair.retain(|Reverse((_, other))| *other != queue);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.ready == 0
    }

    /// How many requests are ready of a queue.
    pub fn ready_of(&self, queue: QueueId) -> usize {
        self.shares.get(&queue).map_or(0, |share| share.ready)
    }

    /// Whether something is ready that no thread does which waits for it.
    pub fn has_for_workers(&self) -> bool {
        self.ready > self.lent
    }

    /// A thread that waits for a queue does what that has ready, from now on.
    pub fn lend(&mut self, queue: QueueId) {
        if let Some(share) = self.shares.get_mut(&queue) {
            share.lenders += 1;
            if share.lenders == 1 {
                self.lent += share.ready;
            }
        }
    }

    /// And does so no longer.
    pub fn lend_no_longer(&mut self, queue: QueueId) {
        if let Some(share) = self.shares.get_mut(&queue) {
            share.lenders -= 1;
            if share.lenders == 0 {
                self.lent -= share.ready;
            }
        }
    }

    pub fn add(
        &mut self,
        queue: QueueId,
        request: RequestId,
        (urgent, is_read): (bool, bool),
        bytes: usize,
    ) {
        let Some(share) = self.shares.get_mut(&queue) else {
            debug_assert!(false, "a queue that is not there");
            return;
        };
        let rank = rank_of(urgent, is_read);
        if rank == ORDINARY {
            if share.ranks[ORDINARY].0.is_empty() {
                share.tag = share.tag.max(self.now);
            }
            if !share.is_in_fair {
                share.is_in_fair = true;
                self.fair.push(Reverse((share.tag, queue)));
            }
            self.ordinary += 1;
        } else {
            self.urgent[rank].insert((request, queue));
        }
        share.ranks[rank].add(request, (bytes as u64).saturating_add(EACH));
        share.ready += 1;
        self.lent += usize::from(share.lenders > 0);
        self.ready += 1;
    }

    /// Takes a request away, if it is ready.
    pub fn remove(&mut self, queue: QueueId, request: RequestId) {
        self.begin(queue, request, false);
    }

    /// The next request.
    pub fn take(&mut self) -> Option<RequestId> {
        let waits = |rank: usize| match rank {
            ORDINARY => self.ordinary > 0,
            _ => !self.urgent[rank].is_empty(),
        };
        let waiting = [waits(0), waits(1), waits(ORDINARY)];
        let rank = choose(&mut self.passed, waiting)?;
        let (request, queue) = match rank {
            ORDINARY => {
                let (tag, oldest, queue) = self.first_by_tag()?;
                self.now = self.now.max(tag);
                (oldest, queue)
            }
            _ => *self.urgent[rank].first()?,
        };
        self.begin(queue, request, true);
        // What nobody else wanted meanwhile is no debt to who comes later.
        if self.ordinary == 0
            && let Some(share) = self.shares.get(&queue)
        {
            self.now = self.now.max(share.tag);
        }
        Some(request)
    }

    /// The queue with the smallest tag of those with something in their third rank, and the oldest of that.
    fn first_by_tag(&mut self) -> Option<(u128, RequestId, QueueId)> {
        loop {
            let mut first = self.fair.peek_mut()?;
            let Reverse((tag, queue)) = *first;
            let share = self.shares.get_mut(&queue);
            match share {
                Some(share) if !share.ranks[ORDINARY].0.is_empty() => {
                    if share.tag == tag {
                        return Some((tag, share.ranks[ORDINARY].first()?, queue));
                    }
                    // It goes where it belongs by now.
                    first.0.0 = share.tag;
                }
                share => {
                    PeekMut::pop(first);
                    if let Some(share) = share {
                        share.is_in_fair = false;
                    }
                }
            }
        }
    }

    /// The next request of one queue, for a thread that the queue brings along: it costs the queue nothing.
    pub fn take_of(&mut self, queue: QueueId) -> Option<RequestId> {
        let share = self.shares.get_mut(&queue)?;
        let waiting = std::array::from_fn(|rank| share.ranks[rank].first().is_some());
        let rank = choose(&mut share.passed, waiting)?;
        let request = share.ranks[rank].first()?;
        self.begin(queue, request, false);
        Some(request)
    }

    fn begin(&mut self, queue: QueueId, request: RequestId, at_its_cost: bool) {
        let Some(share) = self.shares.get_mut(&queue) else {
            return;
        };
        let found =
            (0..RANKS).find_map(|rank| share.ranks[rank].remove(request).map(|cost| (rank, cost)));
        let Some((rank, cost)) = found else {
            return;
        };
        self.ready -= 1;
        share.ready -= 1;
        self.lent -= usize::from(share.lenders > 0);
        match rank {
            ORDINARY => self.ordinary -= 1,
            _ => _ = self.urgent[rank].remove(&(request, queue)),
        }
        if at_its_cost {
            let took = u128::from(cost) * u128::from(share.price);
            share.tag = share.tag.max(self.now) + took;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(weights: &[u32]) -> Schedule {
        let mut schedule = Schedule::default();
        for (at, &weight) in weights.iter().enumerate() {
            schedule.add_queue(QueueId(at as u64), weight);
        }
        schedule
    }

    /// Two queues that always have something ready.
    #[test]
    fn queues_share_by_weight() {
        for (weights, bytes) in [
            ([1, 1], [4096, 4096]),
            ([3, 1], [4096, 4096]),
            ([1, 1], [65536, 4096]),
            ([4, 1], [4096, 65536]),
            ([100, 1], [512, 512]),
        ] {
            let mut schedule = of(&weights);
            let mut next = 0;
            let mut add = |schedule: &mut Schedule, queue: usize| {
                next += 1;
                let request = RequestId(next * 2 + queue as u64);
                schedule.add(QueueId(queue as u64), request, (false, false), bytes[queue]);
            };
            (0..2).for_each(|queue| add(&mut schedule, queue));
            let mut moved = [0.0; 2];
            for _ in 0..20_000 {
                let queue = (schedule.take().unwrap().0 % 2) as usize;
                moved[queue] += bytes[queue] as f64 + EACH as f64;
                add(&mut schedule, queue);
            }
            let share = moved[0] / moved[1];
            let expected = f64::from(weights[0]) / f64::from(weights[1]);
            let off = (share / expected - 1.0).abs();
            assert!(off < 0.05, "{weights:?} {bytes:?}: {share}");
        }
    }

    /// One that was idle gains nothing by that: it does not catch up.
    #[test]
    fn who_was_idle_does_not_catch_up() {
        let mut schedule = of(&[1, 1]);
        for number in 1..=1000 {
            schedule.add(QueueId(0), RequestId(number * 2), (false, true), 4096);
        }
        (0..500).for_each(|_| _ = schedule.take().unwrap());
        for number in 1001..=1500 {
            schedule.add(QueueId(1), RequestId(number * 2 + 1), (false, true), 4096);
        }
        let late = (0..100).filter(|_| schedule.take().unwrap().0 % 2 == 1);
        assert!((49..=51).contains(&late.count()));
    }

    #[test]
    fn urgent_ones_go_first_and_nobody_starves() {
        let mut schedule = of(&[1, 1]);
        let queue = QueueId(0);
        schedule.add(queue, RequestId(1), (false, true), 100);
        schedule.add(queue, RequestId(2), (true, false), 100);
        schedule.add(QueueId(1), RequestId(3), (true, true), 100);
        assert_eq!(schedule.take(), Some(RequestId(3)));
        assert_eq!(schedule.take(), Some(RequestId(2)));
        assert_eq!(schedule.take(), Some(RequestId(1)));
        assert_eq!(schedule.take(), None);
        // An endless stream of urgent reads, beside one of each other kind that is always there.
        let mut next = 10;
        let mut add = |schedule: &mut Schedule, kind: (bool, bool)| {
            next += 1;
            schedule.add(queue, RequestId(next), kind, 100);
            RequestId(next)
        };
        let mut write = add(&mut schedule, (true, false));
        let mut ordinary = add(&mut schedule, (false, true));
        let (mut writes, mut ordinaries) = (0, 0);
        for _ in 0..1800 {
            add(&mut schedule, (true, true));
            let taken = schedule.take().unwrap();
            if taken == write {
                write = add(&mut schedule, (true, false));
                writes += 1;
            } else if taken == ordinary {
                ordinary = add(&mut schedule, (false, true));
                ordinaries += 1;
            }
        }
        let bound = 1800 / (2 * (URGENT_RUN + 1));
        assert!(
            writes >= bound && ordinaries >= bound,
            "{writes} {ordinaries}"
        );
        assert!(writes + ordinaries < 500);
    }

    /// What was urgent while nobody else wanted anything is no debt afterwards.
    #[test]
    fn urgent_ones_of_who_was_alone_cost_nothing_later() {
        let mut schedule = of(&[1, 1]);
        for number in 1..=1000 {
            schedule.add(QueueId(0), RequestId(number), (true, true), 1 << 20);
            assert_eq!(schedule.take(), Some(RequestId(number)));
        }
        schedule.add(QueueId(0), RequestId(2000), (false, true), 4096);
        for number in 2001..=2100 {
            schedule.add(QueueId(1), RequestId(number), (false, true), 4096);
        }
        let mut taken = (0..20).map(|_| schedule.take().unwrap());
        assert!(taken.any(|taken| taken == RequestId(2000)));
    }

    /// Nor do they where a thread does its queue's own.
    #[test]
    fn nobody_starves_beside_who_does_its_own() {
        let mut schedule = of(&[1]);
        let queue = QueueId(0);
        schedule.add(queue, RequestId(1), (false, true), 100);
        let taken = (2..40).find(|&number| {
            schedule.add(queue, RequestId(number), (true, true), 100);
            schedule.take_of(queue) == Some(RequestId(1))
        });
        assert!(taken.is_some());
    }

    #[test]
    fn what_is_taken_away_is_not_taken() {
        let mut schedule = of(&[1]);
        for number in 1..=3 {
            schedule.add(QueueId(0), RequestId(number), (number == 2, true), 1);
        }
        schedule.remove(QueueId(0), RequestId(2));
        schedule.remove(QueueId(0), RequestId(1));
        schedule.remove(QueueId(0), RequestId(1));
        assert_eq!(schedule.take(), Some(RequestId(3)));
        assert!(schedule.is_empty());
        assert_eq!(schedule.take(), None);
        schedule.remove_queue(QueueId(0));
    }
}
