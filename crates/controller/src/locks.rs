//! Advisory locks: POSIX byte ranges, open file descriptions, `flock`.
//!
//! # Invariants
//! * Locks of one holder on one inode do not overlap, and neighbours of one mode are one lock.
//! * Two locks that overlap, of different holders, not both shared, exist only between `flock`
//!   and the other families, which do not see each other.

use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::LockMode;
use arck_protocol::message::{LockHolder, LockRange};
use rustix::io::Errno;
use std::collections::HashMap;

/// Locks that a session may hold.
const LOCKS_MAX: usize = 1 << 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Held {
    session: SessionNumber,
    range: LockRange,
}

/// All locks of a pool.
#[derive(Default, Debug)]
pub struct LockTable {
    by_inode: HashMap<InodeNumber, Vec<Held>>,
    counts: HashMap<SessionNumber, usize>,
}

fn is_flock(holder: &LockHolder) -> bool {
    holder.family == 2
}

fn same_holder(held: &Held, session: SessionNumber, holder: &LockHolder) -> bool {
    held.session == session
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

    /// Locks, converts or unlocks a range. EAGAIN in conflict, ENOLCK when there are too many.
    pub fn set(&mut self, session: SessionNumber, wanted: &LockRange) -> Result<(), Errno> {
        if self.test(session, wanted).is_some() {
            return Err(Errno::AGAIN);
        }
        let count = self.counts.entry(session).or_default();
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
                session,
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

    /// Drops all locks of a session.
    pub fn drop_session(&mut self, session: SessionNumber) {
        self.retain(0, |held| held.session != session);
        self.counts.remove(&session);
    }

    fn retain(&mut self, inode: InodeNumber, keeps: impl Fn(&Held) -> bool) {
        let counts = &mut self.counts;
        let mut filter = |held: &Held| {
            let keep = keeps(held);
            if !keep && let Some(count) = counts.get_mut(&held.session) {
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
                    let key = (held.session, held.range.holder.family, held.range.holder.owner);
                    let bytes = seen.entry(key).or_insert([LockMode::Unlock; BYTES as usize]);
                    for byte in held.range.start..held.range.end {
                        prop_assert_eq!(bytes[byte as usize], LockMode::Unlock);
                        bytes[byte as usize] = held.range.mode;
                    }
                    if held.range.start > 0 {
                        let joins = table.by_inode[&5].iter().any(|other| {
                            same_holder(other, held.session, &held.range.holder)
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
}
