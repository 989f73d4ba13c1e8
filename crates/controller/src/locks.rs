//! Advisory locks: POSIX byte ranges, open file descriptions, `flock`.
//!
//! Locks belong to the session that asked, and end with it; those of a description that several
//! processes have open belong to that, whichever session asked, and end with it
//! ([`LockTable::closed`]; [`watches`](crate::watches) notices).
//!
//! # Invariants
//! * Locks of one holder on one inode do not overlap, and neighbours of one mode are one lock.
//! * Two locks that overlap, of different holders, not both shared, exist only between `flock`
//!   and the other families, which do not see each other.
//! * Who waits asks again and again; what is noted of it here only serves to find circles, and
//!   counts for [`WAITING`] since it asked last.
//! * A request looks at the holders of one inode, and of what each holds at what overlaps: at no
//!   more than [`INODE_MAX`] for each user, and at [`CIRCLE_MAX`] where circles are looked for.

mod held;

use self::held::{Held, Holder, Keeper, OfInode};
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::LockMode;
use arck_protocol::message::{LockHolder, LockRange};
use rustix::io::Errno;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

/// Locks that a session may hold, or a description.
const LOCKS_MAX: usize = 1 << 13;
/// Locks that a user may hold on one inode, with all sessions.
const INODE_MAX: usize = 1 << 14;
/// Locks that a user may hold.
const USER_MAX: usize = 1 << 16;
/// Shared descriptions with locks.
const SHARED_MAX: usize = 1 << 14;
/// Waits that are noted of a session; more than that are not looked at for circles.
const NOTED_MAX: usize = 256;
/// Locks and waits that are looked at for a circle; a longer one is not found, as in Linux, which
/// follows ten. Whoever waits in it waits until one of them gives up.
const CIRCLE_MAX: u64 = 1 << 14;
/// Holders in the way of a lock of whom it is looked whether they are there still.
const HOLDERS_MAX: usize = 16;
/// Far more than the longest pause between two attempts of one that waits.
const WAITING: Duration = Duration::from_secs(10);

/// Who asks for a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asker {
    pub session: SessionNumber,
    pub user: u32,
}

/// Somebody who waits for a POSIX lock.
#[derive(Debug)]
struct Waiting {
    range: LockRange,
    asked: Instant,
}

impl Waiting {
    fn counts(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.asked) < WAITING
    }
}

/// What a keeper has.
#[derive(Default, Debug)]
struct Kept {
    total: usize,
    by_inode: BTreeMap<InodeNumber, usize>,
}

/// How many locks there are, of whom.
#[derive(Default, Debug)]
struct Counts {
    by_keeper: HashMap<Keeper, Kept>,
    by_user: HashMap<u32, usize>,
    by_user_and_inode: HashMap<(u32, InodeNumber), usize>,
}

impl Counts {
    fn add(&mut self, keeper: Keeper, held: &Held) {
        let inode = held.range.inode;
        let kept = self.by_keeper.entry(keeper).or_default();
        kept.total += 1;
        *kept.by_inode.entry(inode).or_default() += 1;
        *self.by_user.entry(held.user).or_default() += 1;
        *self
            .by_user_and_inode
            .entry((held.user, inode))
            .or_default() += 1;
    }

    fn remove(&mut self, keeper: Keeper, held: &Held) {
        let inode = held.range.inode;
        if let Some(kept) = self.by_keeper.get_mut(&keeper) {
            kept.total = kept.total.saturating_sub(1);
            if let Some(count) = kept.by_inode.get_mut(&inode) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    kept.by_inode.remove(&inode);
                }
            }
            if kept.total == 0 {
                self.by_keeper.remove(&keeper);
            }
        }
        less(&mut self.by_user, held.user);
        less(&mut self.by_user_and_inode, (held.user, inode));
    }

    /// Whether there may be one more.
    fn has_room(&self, keeper: Keeper, user: u32, inode: InodeNumber) -> bool {
        let kept = self.by_keeper.get(&keeper).map_or(0, |kept| kept.total);
        let of_user = self.by_user.get(&user).copied().unwrap_or_default();
        let of_both = self.by_user_and_inode.get(&(user, inode));
        kept < LOCKS_MAX && of_user < USER_MAX && of_both.copied().unwrap_or_default() < INODE_MAX
    }

    fn inodes(&self, keeper: Keeper) -> Vec<InodeNumber> {
        let kept = self.by_keeper.get(&keeper);
        kept.map_or_else(Vec::new, |kept| kept.by_inode.keys().copied().collect())
    }
}

fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// All locks of a pool.
#[derive(Default, Debug)]
pub struct LockTable {
    by_inode: HashMap<InodeNumber, OfInode>,
    counts: Counts,
    /// Shared descriptions, by name.
    shared: HashMap<u64, InodeNumber>,
    waiting: BTreeMap<SessionNumber, Vec<Waiting>>,
    /// Holders, locks and waits that have been looked at.
    looked: Cell<u64>,
}

const FLOCK: u8 = 2;
/// What a family is more if the description is shared.
const SHARED: u8 = 3;
const SHARED_FLOCK: u8 = 4;

/// A lock as others may know it: without the name of the description that has it, by which they
/// could change it.
pub fn told_to_others(mut range: LockRange) -> LockRange {
    if range.holder.family >= SHARED {
        range.holder.owner = 0;
    }
    range
}

impl LockTable {
    /// Whether there are no locks, and no descriptions that could have some.
    pub fn is_empty(&self) -> bool {
        self.by_inode.is_empty() && self.shared.is_empty()
    }

    /// Shared descriptions: name and inode.
    pub fn shared(&self) -> impl Iterator<Item = (u64, InodeNumber)> {
        self.shared.iter().map(|(&name, &inode)| (name, inode))
    }

    /// All locks; those of shared descriptions are of session 0.
    pub fn all(&self) -> impl Iterator<Item = (Asker, LockRange)> {
        let held = self.by_inode.values().flat_map(OfInode::all);
        held.map(|(holder, held)| {
            let session = match holder.keeper {
                Keeper::Session(session) => session,
                Keeper::Description(_) => 0,
            };
            let user = held.user;
            (Asker { session, user }, held.range)
        })
    }

    /// Sessions that have locks of their own.
    pub fn holders(&self) -> BTreeSet<SessionNumber> {
        let keepers = self.counts.by_keeper.keys();
        keepers
            .filter_map(|keeper| match keeper {
                Keeper::Session(session) => Some(*session),
                Keeper::Description(_) => None,
            })
            .collect()
    }

    /// Whether a session has locks of its own.
    pub fn has_locks(&self, session: SessionNumber) -> bool {
        let keeper = Keeper::Session(session);
        self.counts.by_keeper.contains_key(&keeper)
    }

    /// Whether a holder has a lock on an inode, or on any (0).
    pub fn holds(&self, session: SessionNumber, inode: InodeNumber, holder: &LockHolder) -> bool {
        let holder = Holder::of(session, holder);
        let has = |inode| {
            let of = self.by_inode.get(&inode);
            of.is_some_and(|of: &OfInode| of.holds(&holder))
        };
        match inode {
            0 => self.counts.inodes(holder.keeper).into_iter().any(has),
            inode => has(inode),
        }
    }

    /// A lock that stands in the way, as F_GETLK tells it.
    pub fn test(&self, session: SessionNumber, wanted: &LockRange) -> Option<LockRange> {
        self.in_the_way(session, wanted)
            .map(|(_, held)| held.range)
            .min_by_key(|range| range.start)
    }

    /// Sessions and processes whose own locks stand in the way; not all of them where there are many.
    pub fn holders_in_the_way(
        &self,
        session: SessionNumber,
        wanted: &LockRange,
    ) -> Vec<(SessionNumber, u32)> {
        let holders = self.in_the_way(session, wanted);
        let own = holders.filter_map(|(holder, held)| match holder.keeper {
            Keeper::Session(of) => Some((of, held.range.holder.process)),
            Keeper::Description(_) => None,
        });
        own.take(HOLDERS_MAX).collect()
    }

    /// Of each other holder the first lock that stands in the way.
    fn in_the_way<'a>(
        &'a self,
        session: SessionNumber,
        wanted: &'a LockRange,
    ) -> impl Iterator<Item = (Holder, &'a Held)> {
        let of = self.by_inode.get(&wanted.inode);
        let of = of.filter(|_| wanted.mode != LockMode::Unlock);
        let own = Holder::of(session, &wanted.holder);
        of.into_iter()
            .flat_map(move |of| of.in_the_way(own, wanted, &self.looked))
    }

    /// As [`LockTable::set`] for one who waits, and asks again on EAGAIN. EDEADLK if it would wait
    /// for one who waits for it, both for POSIX locks.
    pub fn wait(&mut self, asker: Asker, wanted: &LockRange, now: Instant) -> Result<(), Errno> {
        let session = asker.session;
        let mut result = self.set(asker, wanted);
        self.stop_waiting(session, wanted);
        if result == Err(Errno::AGAIN) && wanted.holder.family == 0 {
            if let Some(noted) = self.waiting.get_mut(&session) {
                noted.retain(|waiting| waiting.counts(now));
            }
            if self.closes_circle(session, wanted, now) {
                result = Err(Errno::DEADLK);
            } else {
                let noted = self.waiting.entry(session).or_default();
                if noted.len() < NOTED_MAX {
                    noted.push(Waiting {
                        range: *wanted,
                        asked: now,
                    });
                }
            }
        }
        result
    }

    /// The lock is not waited for any more.
    pub fn stop_waiting(&mut self, session: SessionNumber, wanted: &LockRange) {
        self.keep_waiting(session, |waiting| waiting.range != *wanted);
    }

    fn keep_waiting(&mut self, session: SessionNumber, keeps: impl Fn(&Waiting) -> bool) {
        if let Some(noted) = self.waiting.get_mut(&session) {
            noted.retain(keeps);
            if noted.is_empty() {
                self.waiting.remove(&session);
            }
        }
    }

    /// Whether those whom this one would wait for wait for it, directly or by way of others; those
    /// who are nearest are looked at first, and no more than [`CIRCLE_MAX`].
    fn closes_circle(&self, session: SessionNumber, wanted: &LockRange, now: Instant) -> bool {
        let start = (session, wanted.holder.owner);
        let most = self.looked.get() + CIRCLE_MAX;
        let mut seen = HashSet::new();
        let mut next = VecDeque::from([(session, wanted)]);
        while let Some((session, wanted)) = next.pop_front() {
            for (holder, _) in self.in_the_way(session, wanted) {
                if self.looked.get() > most {
                    return false;
                }
                let Keeper::Session(of) = holder.keeper else {
                    continue;
                };
                let waits_as = (of, holder.owner);
                if holder.family != 0 || !seen.insert(waits_as) {
                    continue;
                }
                if waits_as == start {
                    return true;
                }
                let waits = self.waiting.get(&of).map_or(&[][..], Vec::as_slice);
                self.looked.set(self.looked.get() + waits.len() as u64);
                let its = |waiting: &&Waiting| {
                    waiting.range.holder.owner == holder.owner && waiting.counts(now)
                };
                next.extend(waits.iter().filter(its).map(|other| (of, &other.range)));
            }
        }
        false
    }

    /// Makes a description known that other processes have open too, under a name; what the
    /// session's own number for it has becomes its. EINVAL if the name is another inode's, ENOLCK.
    pub fn share(
        &mut self,
        session: SessionNumber,
        inode: InodeNumber,
        name: u64,
        owner: u64,
    ) -> Result<(), Errno> {
        match self.shared.get(&name) {
            Some(&known) if known != inode => return Err(Errno::INVAL),
            Some(_) => return Ok(()),
            None if self.shared.len() >= SHARED_MAX => return Err(Errno::NOLCK),
            None => self.shared.insert(name, inode),
        };
        let Some(of) = self.by_inode.get_mut(&inode) else {
            return Ok(());
        };
        for family in [1, FLOCK] {
            let old = Holder {
                keeper: Keeper::Session(session),
                family,
                owner,
            };
            let new = Holder {
                keeper: Keeper::Description(name),
                family: family + SHARED - 1,
                owner: name,
            };
            for held in of.take(&old) {
                self.counts.remove(old.keeper, &held);
                self.counts.add(new.keeper, &held);
                of.put(new, held);
            }
        }
        Ok(())
    }

    /// Drops all locks of a shared description, which is open nowhere any more.
    pub fn closed(&mut self, name: u64) {
        if self.shared.remove(&name).is_some() {
            self.drop_of(Keeper::Description(name), |_| true);
        }
    }

    /// Locks, converts or unlocks a range. EAGAIN in conflict, ENOLCK when there are too many,
    /// EBADF if the holder is a shared description that is not known, or not this inode's.
    pub fn set(&mut self, asker: Asker, wanted: &LockRange) -> Result<(), Errno> {
        let Asker { session, user } = asker;
        let holder = Holder::of(session, &wanted.holder);
        let keeper = holder.keeper;
        if let Keeper::Description(name) = keeper
            && self.shared.get(&name) != Some(&wanted.inode)
        {
            return Err(Errno::BADF);
        }
        if self.in_the_way(session, wanted).next().is_some() {
            return Err(Errno::AGAIN);
        }
        // Unlocking may split a lock in two; it must not fail.
        let unlocks = wanted.mode == LockMode::Unlock;
        if !unlocks && !self.counts.has_room(keeper, user, wanted.inode) {
            return Err(Errno::NOLCK);
        }
        let of = self.by_inode.entry(wanted.inode).or_default();
        let own = of.take_touching(&holder, wanted, &self.looked);
        let mut pieces = Vec::with_capacity(own.len() + 2);
        for held in own {
            self.counts.remove(keeper, &held);
            // What sticks out on either side stays.
            for (start, end) in [
                (held.range.start, held.range.end.min(wanted.start)),
                (held.range.start.max(wanted.end), held.range.end),
            ] {
                if start < end {
                    let range = LockRange {
                        start,
                        end,
                        ..held.range
                    };
                    pieces.push(Held { range, ..held });
                }
            }
        }
        if !unlocks {
            let range = *wanted;
            pieces.push(Held { range, user });
        }
        pieces.sort_unstable_by_key(|held| held.range.start);
        pieces.dedup_by(|next, before| {
            let joins =
                before.range.mode == next.range.mode && before.range.end == next.range.start;
            if joins {
                before.range.end = next.range.end;
            }
            joins
        });
        for held in pieces {
            self.counts.add(keeper, &held);
            of.put(holder, held);
        }
        if of.is_empty() {
            self.by_inode.remove(&wanted.inode);
        }
        Ok(())
    }

    /// Drops all locks of a holder on an inode, or on every inode (0).
    pub fn drop_holder(&mut self, session: SessionNumber, inode: InodeNumber, holder: &LockHolder) {
        let holder = Holder::of(session, holder);
        let inodes = match inode {
            0 => self.counts.inodes(holder.keeper),
            inode => vec![inode],
        };
        for inode in inodes {
            let Some(of) = self.by_inode.get_mut(&inode) else {
                continue;
            };
            for held in of.take(&holder) {
                self.counts.remove(holder.keeper, &held);
            }
            if of.is_empty() {
                self.by_inode.remove(&inode);
            }
        }
    }

    /// Drops all locks of a session; those of shared descriptions are not its.
    pub fn drop_session(&mut self, session: SessionNumber) {
        self.drop_of(Keeper::Session(session), |_| true);
        self.waiting.remove(&session);
    }

    /// Whether a process of a session has locks, or waits for one.
    pub fn has_any_of(&self, session: SessionNumber, process: u32) -> bool {
        let keeper = Keeper::Session(session);
        let is_its = |range: &LockRange| range.holder.process == process;
        let mut waiting = self.waiting.get(&session).into_iter().flatten();
        let inodes = self.counts.inodes(keeper).into_iter();
        waiting.any(|waiting| is_its(&waiting.range))
            || inodes
                .filter_map(|inode| self.by_inode.get(&inode))
                .flat_map(|of| of.of_keeper(keeper))
                .any(|(_, held)| is_its(&held.range))
    }

    /// Drops the locks of one process of a session.
    pub fn drop_process(&mut self, session: SessionNumber, process: u32) {
        self.drop_of(Keeper::Session(session), |held| {
            held.range.holder.process == process
        });
        self.keep_waiting(session, |waiting| waiting.range.holder.process != process);
    }

    fn drop_of(&mut self, keeper: Keeper, drops: impl Fn(&Held) -> bool) {
        for inode in self.counts.inodes(keeper) {
            let Some(of) = self.by_inode.get_mut(&inode) else {
                continue;
            };
            for held in of.take_of_keeper(keeper, &drops) {
                self.counts.remove(keeper, &held);
            }
            if of.is_empty() {
                self.by_inode.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests;
