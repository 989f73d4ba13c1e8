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

use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::LockMode;
use arck_protocol::message::{LockHolder, LockRange};
use rustix::io::Errno;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

/// Locks that a session may hold, or a description: each request looks at all of an inode.
const LOCKS_MAX: usize = 1 << 13;
/// Shared descriptions with locks.
const SHARED_MAX: usize = 1 << 14;
/// Waits that are noted of a session; more than that are not looked at for circles.
const NOTED_MAX: usize = 256;
/// Far more than the longest pause between two attempts of one that waits.
const WAITING: Duration = Duration::from_secs(10);

/// What a lock ends with at the latest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Keeper {
    Session(SessionNumber),
    Description(u64),
}

fn keeper(session: SessionNumber, holder: &LockHolder) -> Keeper {
    match holder.family {
        ..SHARED => Keeper::Session(session),
        _ => Keeper::Description(holder.owner),
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    keeper: Keeper,
    range: LockRange,
}

/// Somebody who waits for a POSIX lock.
#[derive(Debug)]
struct Waiting {
    session: SessionNumber,
    range: LockRange,
    asked: Instant,
}

/// All locks of a pool.
#[derive(Default, Debug)]
pub struct LockTable {
    by_inode: HashMap<InodeNumber, Vec<Held>>,
    counts: HashMap<Keeper, usize>,
    /// Shared descriptions, by name.
    shared: HashMap<u64, InodeNumber>,
    waiting: Vec<Waiting>,
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

fn is_flock(holder: &LockHolder) -> bool {
    matches!(holder.family, FLOCK | SHARED_FLOCK)
}

fn same_holder(held: &Held, session: SessionNumber, holder: &LockHolder) -> bool {
    held.keeper == keeper(session, holder)
        && (held.range.holder.family, held.range.holder.owner) == (holder.family, holder.owner)
}

fn conflicts(held: &Held, session: SessionNumber, wanted: &LockRange) -> bool {
    !same_holder(held, session, &wanted.holder)
        && is_flock(&held.range.holder) == is_flock(&wanted.holder)
        && held.range.start < wanted.end
        && wanted.start < held.range.end
        && (held.range.mode == LockMode::Exclusive || wanted.mode == LockMode::Exclusive)
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
    pub fn all(&self) -> impl Iterator<Item = (SessionNumber, LockRange)> {
        let held = self.by_inode.values().flatten();
        held.map(|held| match held.keeper {
            Keeper::Session(session) => (session, held.range),
            Keeper::Description(_) => (0, held.range),
        })
    }

    /// Sessions that have locks of their own.
    pub fn holders(&self) -> BTreeSet<SessionNumber> {
        let holders = self.all().map(|(session, _)| session);
        holders.filter(|&session| session != 0).collect()
    }

    /// Whether a holder has a lock on an inode, or on any (0).
    pub fn holds(&self, session: SessionNumber, inode: InodeNumber, holder: &LockHolder) -> bool {
        let has = |held: &Vec<Held>| held.iter().any(|held| same_holder(held, session, holder));
        match inode {
            0 => self.by_inode.values().any(has),
            inode => self.by_inode.get(&inode).is_some_and(has),
        }
    }

    /// A lock that stands in the way, as F_GETLK tells it.
    pub fn test(&self, session: SessionNumber, wanted: &LockRange) -> Option<LockRange> {
        if wanted.mode == LockMode::Unlock {
            return None;
        }
        self.by_inode
            .get(&wanted.inode)?
            .iter()
            .filter(|held| conflicts(held, session, wanted))
            .map(|held| held.range)
            .min_by_key(|range| range.start)
    }

    /// As [`LockTable::set`] for one who waits, and asks again on EAGAIN. EDEADLK if it would wait
    /// for one who waits for it, both for POSIX locks.
    pub fn wait(
        &mut self,
        session: SessionNumber,
        wanted: &LockRange,
        now: Instant,
    ) -> Result<(), Errno> {
        let mut result = self.set(session, wanted);
        self.stop_waiting(session, wanted);
        if result == Err(Errno::AGAIN) && wanted.holder.family == 0 {
            self.waiting
                .retain(|waiting| now.saturating_duration_since(waiting.asked) < WAITING);
            let noted = self.waiting.iter();
            let noted = noted.filter(|waiting| waiting.session == session).count();
            if self.closes_circle(session, wanted) {
                result = Err(Errno::DEADLK);
            } else if noted < NOTED_MAX {
                self.waiting.push(Waiting {
                    session,
                    range: *wanted,
                    asked: now,
                });
            }
        }
        result
    }

    /// The lock is not waited for any more.
    pub fn stop_waiting(&mut self, session: SessionNumber, wanted: &LockRange) {
        self.waiting
            .retain(|waiting| (waiting.session, waiting.range) != (session, *wanted));
    }

    /// Whether those whom this one would wait for wait for it, directly or by way of others.
    fn closes_circle(&self, session: SessionNumber, wanted: &LockRange) -> bool {
        let start = (session, wanted.holder.owner);
        let mut seen = HashSet::new();
        let mut next = vec![(session, wanted)];
        while let Some((session, wanted)) = next.pop() {
            let held = self.by_inode.get(&wanted.inode).into_iter().flatten();
            for held in held.filter(|held| conflicts(held, session, wanted)) {
                let Keeper::Session(holder) = held.keeper else {
                    continue;
                };
                let holder = (holder, held.range.holder.owner);
                if held.range.holder.family != 0 || !seen.insert(holder) {
                    continue;
                }
                if holder == start {
                    return true;
                }
                let waits = self.waiting.iter();
                next.extend(
                    waits
                        .filter(|other| (other.session, other.range.holder.owner) == holder)
                        .map(|other| (other.session, &other.range)),
                );
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
        let own = Keeper::Session(session);
        let mut moved = 0;
        for held in self.by_inode.get_mut(&inode).into_iter().flatten() {
            let holder = &mut held.range.holder;
            if held.keeper == own && matches!(holder.family, 1 | FLOCK) && holder.owner == owner {
                held.keeper = Keeper::Description(name);
                holder.family += SHARED - 1;
                holder.owner = name;
                moved += 1;
            }
        }
        if let Some(count) = self.counts.get_mut(&own) {
            *count = count.saturating_sub(moved);
        }
        self.counts.insert(Keeper::Description(name), moved);
        Ok(())
    }

    /// Drops all locks of a shared description, which is open nowhere any more.
    pub fn closed(&mut self, name: u64) {
        if let Some(inode) = self.shared.remove(&name) {
            self.retain(inode, |held| held.keeper != Keeper::Description(name));
            self.counts.remove(&Keeper::Description(name));
        }
    }

    /// Locks, converts or unlocks a range. EAGAIN in conflict, ENOLCK when there are too many,
    /// EBADF if the holder is a shared description that is not known, or not this inode's.
    pub fn set(&mut self, session: SessionNumber, wanted: &LockRange) -> Result<(), Errno> {
        let keeper = keeper(session, &wanted.holder);
        if let Keeper::Description(name) = keeper
            && self.shared.get(&name) != Some(&wanted.inode)
        {
            return Err(Errno::BADF);
        }
        if self.test(session, wanted).is_some() {
            return Err(Errno::AGAIN);
        }
        let count = self.counts.entry(keeper).or_default();
        // Unlocking may split a lock in two; it must not fail.
        if wanted.mode != LockMode::Unlock && *count >= LOCKS_MAX {
            return Err(Errno::NOLCK);
        }
        let all = self.by_inode.entry(wanted.inode).or_default();
        let mut kept = Vec::with_capacity(all.len() + 2);
        let mut own = Vec::new();
        for held in all.drain(..) {
            if same_holder(&held, session, &wanted.holder) {
                own.push(held);
            } else {
                kept.push(held);
            }
        }
        *count = count.saturating_sub(own.len());
        let mut pieces = Vec::with_capacity(own.len() + 2);
        for held in own {
            // What sticks out on either side stays.
            for (start, end) in [
                (held.range.start, held.range.end.min(wanted.start)),
                (held.range.start.max(wanted.end), held.range.end),
            ] {
                if start < end {
                    pieces.push(Held {
                        range: LockRange {
                            start,
                            end,
                            ..held.range
                        },
                        ..held
                    });
                }
            }
        }
        if wanted.mode != LockMode::Unlock {
            pieces.push(Held {
                keeper,
                range: *wanted,
            });
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
        *count += pieces.len();
        kept.extend(pieces);
        if kept.is_empty() {
            self.by_inode.remove(&wanted.inode);
        } else {
            *all = kept;
        }
        Ok(())
    }

    /// Drops all locks of a holder on an inode, or on every inode (0).
    pub fn drop_holder(&mut self, session: SessionNumber, inode: InodeNumber, holder: &LockHolder) {
        self.retain(inode, |held| !same_holder(held, session, holder));
    }

    /// Drops all locks of a session; those of shared descriptions are not its.
    pub fn drop_session(&mut self, session: SessionNumber) {
        self.retain(0, |held| held.keeper != Keeper::Session(session));
        self.counts.remove(&Keeper::Session(session));
        self.waiting.retain(|waiting| waiting.session != session);
    }

    /// Whether a process of a session has locks, or waits for one.
    pub fn has_any_of(&self, session: SessionNumber, process: u32) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.any(|w| w.session == session && w.range.holder.process == process)
            || self
                .all()
                .any(|(of, range)| of == session && range.holder.process == process)
    }

    /// Drops the locks of one process of a session.
    pub fn drop_process(&mut self, session: SessionNumber, process: u32) {
        self.retain(0, |held| {
            held.keeper != Keeper::Session(session) || held.range.holder.process != process
        });
        let is_its = |waiting: &Waiting| {
            waiting.session == session && waiting.range.holder.process == process
        };
        self.waiting.retain(|waiting| !is_its(waiting));
    }

    fn retain(&mut self, inode: InodeNumber, keeps: impl Fn(&Held) -> bool) {
        let counts = &mut self.counts;
        let mut filter = |held: &Held| {
            let keep = keeps(held);
            if !keep && let Some(count) = counts.get_mut(&held.keeper) {
                *count = count.saturating_sub(1);
            }
            keep
        };
        if inode == 0 {
            self.by_inode.retain(|_, all| {
                all.retain(&mut filter);
                !all.is_empty()
            });
        } else if let Some(all) = self.by_inode.get_mut(&inode) {
            all.retain(&mut filter);
            if all.is_empty() {
                self.by_inode.remove(&inode);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 24;

    /// The naive model: for each byte, who holds it how.
    type Model = HashMap<(u32, u8, u64), [LockMode; BYTES as usize]>;

    fn range(start: u64, end: u64, mode: LockMode, family: u8, owner: u64) -> LockRange {
        LockRange {
            inode: 5,
            mode,
            start,
            end,
            holder: LockHolder {
                family,
                owner,
                process: 1,
            },
        }
    }

    fn modes() -> impl Strategy<Value = LockMode> {
        prop_oneof![
            Just(LockMode::Unlock),
            Just(LockMode::Shared),
            Just(LockMode::Exclusive)
        ]
    }

    proptest! {
        #[test]
        fn equals_a_map_from_bytes(operations in prop::collection::vec(
            (1u32..3, 0u8..3, 0u64..2, 0..BYTES, 1..BYTES, modes(), 0u8..20), 1..80)) {
            let mut table = LockTable::default();
            let mut model = Model::new();
            for (session, family, owner, start, length, mode, special) in operations {
                if special == 0 {
                    table.drop_session(session);
                    model.retain(|key, _| key.0 != session);
                    continue;
                }
                if special == 1 {
                    let holder = LockHolder { family, owner, process: 1 };
                    table.drop_holder(session, if start % 2 == 0 { 0 } else { 5 }, &holder);
                    model.remove(&(session, family, owner));
                    continue;
                }
                let end = (start + length).min(BYTES);
                let wanted = range(start, end, mode, family, owner);
                let key = (session, family, owner);
                let conflict = mode != LockMode::Unlock && model.iter().any(|(other, bytes)| {
                    *other != key && (other.1 == 2) == (family == 2)
                        && bytes[start as usize..end as usize].iter().any(|&held| {
                            held == LockMode::Exclusive
                                || (held == LockMode::Shared && mode == LockMode::Exclusive)
                        })
                });
                prop_assert_eq!(table.test(session, &wanted).is_some(), conflict);
                prop_assert_eq!(table.set(session, &wanted).is_err(), conflict);
                if !conflict {
                    let bytes = model.entry(key).or_insert([LockMode::Unlock; BYTES as usize]);
                    bytes[start as usize..end as usize].fill(mode);
                }
                // The table, byte by byte, is the model; and it is as short as can be.
                let mut seen = Model::new();
                for held in table.by_inode.get(&5).into_iter().flatten() {
                    let Keeper::Session(number) = held.keeper else {
                        panic!("{held:?}");
                    };
                    let key = (number, held.range.holder.family, held.range.holder.owner);
                    let bytes = seen.entry(key).or_insert([LockMode::Unlock; BYTES as usize]);
                    for byte in held.range.start..held.range.end {
                        prop_assert_eq!(bytes[byte as usize], LockMode::Unlock);
                        bytes[byte as usize] = held.range.mode;
                    }
                    if held.range.start > 0 {
                        let joins = table.by_inode[&5].iter().any(|other| {
                            same_holder(other, number, &held.range.holder)
                                && other.range.end == held.range.start
                                && other.range.mode == held.range.mode
                        });
                        prop_assert!(!joins);
                    }
                }
                let unlocked = |bytes: &[LockMode]| bytes.iter().all(|&m| m == LockMode::Unlock);
                model.retain(|_, bytes| !unlocked(&bytes[..]));
                prop_assert_eq!(&seen, &model);
                let total: usize = table.counts.values().sum();
                prop_assert_eq!(total, table.by_inode.values().map(Vec::len).sum::<usize>());
            }
        }
    }

    #[test]
    fn locks_of_a_shared_description_end_with_it() {
        let mut table = LockTable::default();
        let exclusive = LockMode::Exclusive;
        let shared = |family, name| range(0, 10, exclusive, family, name);
        assert_eq!(table.set(1, &shared(4, 77)), Err(Errno::BADF));
        // Taken before it was shared, by flock and by fcntl.
        table.set(1, &range(0, 10, exclusive, 2, 9)).unwrap();
        table.set(1, &range(0, 10, exclusive, 1, 9)).unwrap();
        table.set(1, &range(20, 30, exclusive, 1, 8)).unwrap();
        table.share(1, 5, 77, 9).unwrap();
        assert_eq!(table.share(2, 6, 77, 0), Err(Errno::INVAL));
        assert_eq!(table.share(2, 5, 77, 9), Ok(()));
        // It is nobody's own any more, and everybody's who knows the name.
        assert_eq!(
            table.set(1, &range(0, 10, exclusive, 2, 9)),
            Err(Errno::AGAIN)
        );
        assert_eq!(table.set(2, &shared(4, 77)), Ok(()));
        assert_eq!(table.set(3, &shared(3, 77)), Ok(()));
        table.drop_session(1);
        table.drop_session(2);
        let other = range(0, 10, exclusive, 2, 1);
        let found = table.test(4, &other).unwrap();
        assert_eq!((found.holder.family, found.holder.owner), (4, 77));
        assert_eq!(table.test(4, &range(25, 26, exclusive, 0, 1)), None);
        // Unlocked by another session than the one that locked.
        let unlock = range(0, 10, LockMode::Unlock, 4, 77);
        table.set(3, &unlock).unwrap();
        assert_eq!(table.test(4, &other), None);
        assert!(table.test(4, &range(0, 1, exclusive, 0, 1)).is_some());
        table.closed(77);
        assert!(table.by_inode.is_empty() && table.shared.is_empty());
        assert_eq!(table.set(3, &shared(4, 77)), Err(Errno::BADF));
        assert_eq!(table.counts.values().sum::<usize>(), 0);
    }

    #[test]
    fn who_waits_in_a_circle_is_told() {
        let mut table = LockTable::default();
        let now = Instant::now();
        let lock = |at, mode, owner| range(at, at + 1, mode, 0, owner);
        let (exclusive, shared) = (LockMode::Exclusive, LockMode::Shared);
        for session in 1..5 {
            let at = u64::from(session);
            table.set(session, &lock(at, exclusive, at)).unwrap();
        }
        let again = Err(Errno::AGAIN);
        // Four in a row, of whom the last would close the circle, however often it asks.
        assert_eq!(table.wait(1, &lock(2, exclusive, 1), now), again);
        assert_eq!(table.wait(2, &lock(3, shared, 2), now), again);
        assert_eq!(table.wait(3, &lock(4, exclusive, 3), now), again);
        for _ in 0..2 {
            assert_eq!(
                table.wait(4, &lock(1, exclusive, 4), now),
                Err(Errno::DEADLK)
            );
        }
        // Not if it does not wait, and not if one of the others has stopped or been away.
        assert_eq!(table.set(4, &lock(1, exclusive, 4)), again);
        table.stop_waiting(2, &lock(3, shared, 2));
        assert_eq!(table.wait(4, &lock(1, exclusive, 4), now), again);
        assert_eq!(table.wait(2, &lock(3, shared, 2), now), Err(Errno::DEADLK));
        let later = now + WAITING;
        assert_eq!(table.wait(2, &lock(3, shared, 2), later), again);
        table.stop_waiting(2, &lock(3, shared, 2));
        assert_eq!(table.wait(4, &lock(1, exclusive, 4), later), again);
        assert_eq!(table.wait(3, &lock(4, exclusive, 3), later), again);
        assert_eq!(
            table.wait(1, &lock(3, exclusive, 1), later),
            Err(Errno::DEADLK)
        );
        table.drop_session(4);
        assert_eq!(table.wait(3, &lock(4, exclusive, 3), later), Ok(()));
        assert_eq!(table.wait(1, &lock(3, exclusive, 1), later), again);
        // What a session says that it waits for takes no more room than this.
        for at in 0..2 * NOTED_MAX as u64 {
            let holder = LockHolder {
                family: 0,
                owner: 50 + at,
                process: 1,
            };
            let wanted = LockRange {
                holder,
                ..lock(2, exclusive, 0)
            };
            assert_eq!(table.wait(5, &wanted, later), again);
        }
        assert!(table.waiting.len() <= NOTED_MAX + 4);
        table.drop_session(5);
        // A lock of a description is nobody's whom one could wait for in a circle.
        table.set(2, &range(9, 10, exclusive, 1, 1)).unwrap();
        assert_eq!(table.wait(3, &lock(9, exclusive, 3), later), again);
    }
}
