//! Inodes without a name: they live on while some session lists them as open, and what they keep
//! from being used again is bounded where that session's user has no business with them.
//!
//! A session can list what it likes. But it may well have a file open that its user could not open:
//! descriptors are passed on. So such a list counts too, as far as what it keeps is little.
//!
//! What stands behind a descriptor that was handed on ([`crate::handed::descriptions`]) stays too, until that is closed
//! everywhere.
//!
//! What is freed, and when, is decided in [`crate::fold::orphans`].
//!
//! What nobody keeps is freed slice by slice ([`Doomed`](super::charges::Doomed)): a large file has as many pages as its
//! owner likes.
//!
//! # Invariants
//! * Where there are several users, what a user keeps of inodes that he could not open when they
//!   lost their last name, or whose map he could not have, is no more than [`Budget::of`] says; and so are
//!   pages that were taken from a file while he had a map of it, whether he could open it or not.
//! * Before open tables are read, every session can see in the header that the inode is an
//!   orphan, and the heavy barrier has been issued: a session that lists it later sees that
//!   when it looks at the header for the second time.

use crate::freeing::Freeing;
use crate::freeing::charges::{Budget, Charge};
use crate::space::number_set::NumberSet;
use crate::state::apply;
use crate::state::apply::file::{number_from_end, truncate};
use crate::state::change::{Change, Weight};
use crate::state::marks::{heavy_barrier, unmark};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::inode::FileKind;
use arck_core_state::{Inode, InodeNumber, Ownership, PAGE_SIZE, cast};
use arck_pm::record::stored;
use arck_protocol::control::open_entry;
use arck_protocol::operation::mark;
use arck_verifier::Credentials;
use foldhash::HashMap;
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Orphans freed in one change.
const FREED_AT_ONCE: usize = 1024;
/// Orphans that are looked at in one step, whoever may keep them.
const LOOKED_AT_ONCE: usize = 8192;
/// Data pages freed in one change: a few milliseconds.
const PAGES_AT_ONCE: u64 = 8192;

/// A slice of that.
enum Slice {
    /// These, whole.
    Whole(Vec<InodeNumber>),
    /// The last pages of one that is larger than a slice.
    End(Inode),
}

/// Orphans that have to stay, and the sessions that list them as open.
type Listed = HashMap<InodeNumber, Vec<SessionNumber>>;

impl Freeing<'_> {
    /// The next orphans in turn: all, if they are not very many.
    pub fn next_orphans(&mut self) -> Vec<InodeNumber> {
        let from = self.freed.doomed.looked_to;
        let next = self.sessions.state.orphans.iter_from(from);
        let next: Vec<InodeNumber> = next.take(LOOKED_AT_ONCE).collect();
        self.freed.doomed.looked_to = match next.last() {
            Some(last) if next.len() == LOOKED_AT_ONCE => last + 1,
            _ => 0,
        };
        next
    }

    /// Those of the given orphans (`None`: of all) that no session lists that counts. None where very much is
    /// listed: the service asks for all now and then.
    pub fn unkept(&mut self, which: Option<&[InodeNumber]>) -> Vec<InodeNumber> {
        let mut candidates: Vec<InodeNumber> = match which {
            Some(which) => which
                .iter()
                .copied()
                .filter(|&number| self.sessions.state.orphans.contains(number))
                .collect(),
            None => self.sessions.state.orphans.iter().collect(),
        };
        candidates.retain(|&number| !self.freed.doomed.numbers.contains(number));
        // Each is charged for once, also where a number came twice.
        candidates.sort_unstable();
        candidates.dedup();
        // One that is away may have any of them open; one that is not recovered yet may have named them.
        if candidates.is_empty() || self.sessions.any_away() || self.sessions.recovering {
            return Vec::new();
        }
        let live = self.sessions.all.values().filter_map(|s| s.live.as_ref());
        let places: usize = live.map(|live| live.control().opens().len()).sum();
        let began = Instant::now();
        if !self.freed.pace.may_look(places, began) {
            return Vec::new();
        }
        let listed = self.listed(&candidates);
        self.freed.pace.looked(places, began, Instant::now());
        self.note_users(&candidates, &listed);
        candidates.retain(|&number| !self.sessions.is_handed_on(number));
        self.charge(candidates, &listed)
    }

    /// Frees orphans that nobody keeps, and that have no names in deltas.
    pub fn doom(&mut self, unkept: Vec<InodeNumber>) {
        self.freed.doomed.numbers.extend(unkept);
        // What is little is free when who deleted it is answered.
        self.free_slice();
    }

    /// After a fold that has given an inode a name: it is no orphan.
    pub fn is_named_again(&mut self, number: InodeNumber) {
        debug_assert!(self.sessions.state.is_alive(number), "{number} has no name");
        if self.sessions.state.orphans.remove(number) {
            self.sessions.state.orphan_users.remove(&number);
            self.freed.charged.remove(number);
            self.freed.doomed.numbers.remove(number);
        }
    }

    /// Frees a slice of what nobody keeps any more; whether something of it is left.
    pub fn free_slice(&mut self) -> bool {
        let freed = match self.next_slice() {
            // What was next had been freed already.
            Slice::Whole(numbers) if numbers.is_empty() => {
                return !self.freed.doomed.numbers.is_empty();
            }
            Slice::Whole(numbers) => {
                let freed = self.free_inodes(&numbers);
                for &number in &numbers {
                    self.freed.doomed.numbers.remove(number);
                }
                freed
            }
            Slice::End(inode) => {
                self.without_owners(&[inode.number], |freeing| freeing.shorten(&inode))
            }
        };
        if let Err(errno) = freed {
            // They stay orphans, and are tried again.
            tracing::warn!("freeing orphans: {errno}");
            self.freed.doomed.numbers.clear();
        }
        !self.freed.doomed.numbers.is_empty()
    }

    /// All of it: where nobody is served, or who is has to have the room.
    pub fn free_doomed(&mut self) {
        while self.free_slice() {}
    }

    /// What is small comes first. Looks at no more than a slice may free: a user can have any number of
    /// inodes deleted at once.
    fn next_slice(&mut self) -> Slice {
        let mut left = PAGES_AT_ONCE;
        let mut whole = Vec::new();
        let mut larger = None;
        let next = self.freed.doomed.numbers.iter().take(FREED_AT_ONCE);
        for number in next.collect::<Vec<_>>() {
            if !self.sessions.state.orphans.contains(number) {
                self.freed.doomed.numbers.remove(number);
                continue;
            }
            let inode = self.sessions.state.shadow(number).copied();
            // Directories are empty when they are removed.
            let file = inode.filter(|inode| inode.kind() == Some(FileKind::File));
            let pages = file.map_or(0, |file| file.pages);
            if pages <= left {
                left -= pages;
                whole.push(number);
            } else {
                larger = larger.or(file);
            }
        }
        match larger {
            Some(larger) if whole.is_empty() => Slice::End(larger),
            _ => Slice::Whole(whole),
        }
    }

    /// Frees the last pages of an orphan, which from now on nobody owns.
    fn shorten(&mut self, orphan: &Inode) -> Result<(), Errno> {
        let mut change = Change::new(&mut self.sessions.state);
        let limit = number_from_end(&change, orphan.root, PAGES_AT_ONCE)?;
        let (root, dropped) = truncate(&mut change, orphan.number, orphan.root, limit)?;
        change.set_inode(Inode {
            root,
            pages: orphan.pages.saturating_sub(dropped),
            size: orphan.size.min(limit * PAGE_SIZE),
            ..*orphan
        });
        let fold = change.state.numbers.fold();
        let header = change.header(orphan.number)?;
        header.fold = fold;
        header.ownership = Ownership::SHARED;
        header.branch_slot = 0;
        change.commit(Weight::Fold)
    }

    fn listed(&self, numbers: &[InodeNumber]) -> Listed {
        heavy_barrier();
        // Few are open for the most part, and many are asked about.
        let wanted: NumberSet = numbers.iter().copied().collect();
        let is_wanted = |entry: u64| {
            let number: InodeNumber = cast::low(entry);
            let header = self.sessions.state.pool.header(number);
            let is_open = header.filter(|_| wanted.contains(number));
            let is_open =
                is_open.is_some_and(|header| open_entry(number, header.generation()) == entry);
            is_open.then_some(number)
        };
        let mut listed: Listed = Listed::default();
        for session in self.sessions.all.values() {
            let Some(live) = &session.live else { continue };
            for entry in live.control().opens() {
                let entry = entry.load(Ordering::Acquire);
                if entry != 0
                    && let Some(number) = is_wanted(entry)
                {
                    let sessions = listed.entry(number).or_default();
                    if sessions.last() != Some(&session.number) {
                        sessions.push(session.number);
                    }
                }
            }
        }
        let keepers = || {
            numbers
                .iter()
                .filter_map(|number| Some((number, self.sessions.state.keepers.get(number)?)))
        };
        let kept_for = keepers().map(|(_, of)| *of).collect();
        let mapped = self.sessions.mapped(&kept_for);
        let needed = keepers().filter_map(|(number, of)| Some((*number, mapped.get(of)?.clone())));
        listed.extend(needed);
        listed
    }

    /// Of the given orphans, those that are to be freed. What stays although that is bounded is
    /// charged to one of those who list it; what was so charged before comes first.
    fn charge(&mut self, mut candidates: Vec<InodeNumber>, listed: &Listed) -> Vec<InodeNumber> {
        if !self.sessions.state.space.shared {
            candidates.retain(|number| !listed.contains_key(number));
            return candidates;
        }
        candidates.sort_by_key(|number| !self.freed.charged.of.contains_key(number));
        for &number in &candidates {
            self.freed.charged.remove(number);
        }
        let page_count = self.sessions.state.pool.geometry().page_count();
        candidates.retain(|&number| {
            let listed = listed.get(&number).map_or(&[][..], Vec::as_slice);
            let Some(charges) = self.who_keeps(number, listed) else {
                return false;
            };
            !charges.into_iter().any(|charge| {
                let budget = Budget::of(charge.is_stranger, page_count);
                self.freed.charged.try_add(number, charge, budget)
            })
        });
        candidates
    }

    /// Those of whom one may keep an orphan at his expense; `None`: it stays at nobody's.
    fn who_keeps(&self, number: InodeNumber, listed: &[SessionNumber]) -> Option<Vec<Charge>> {
        let keeper = self.sessions.state.keepers.get(&number);
        let of = keeper.map_or(number, |&(of, _)| of);
        let pages = self
            .sessions
            .state
            .shadow(number)
            .map_or(0, |inode| inode.pages)
            + 1;
        let mut charges = Vec::new();
        for session in listed
            .iter()
            .filter_map(|number| self.sessions.all.get(number))
        {
            let user = session.credentials.uid;
            if self.sessions.is_trusted(user) {
                return None;
            }
            let may_open = match self.sessions.state.orphan_users.get(&of) {
                Some(users) => users.contains(&user),
                None => [0o4, 0o2]
                    .into_iter()
                    .any(|wanted| self.sessions.may_open(session.number, of, wanted)),
            };
            if keeper.is_none() && may_open {
                return None;
            }
            charges.push(Charge {
                user,
                is_stranger: !may_open,
                pages,
            });
        }
        // Who may have a map of it first.
        charges.sort_by_key(|charge| charge.is_stranger);
        Some(charges)
    }

    /// Of orphans that are new, which users have them open. A session can list what it likes: it
    /// counts if its user could have opened the inode, by the place that it has from its last name.
    fn note_users(&mut self, candidates: &[InodeNumber], listed: &Listed) {
        if !self.sessions.state.space.shared {
            return;
        }
        for &number in candidates {
            if self.sessions.state.orphan_users.contains_key(&number) {
                continue;
            }
            let label = self.sessions.state.label_of_inode(number);
            let inode = self.sessions.state.shadow(number).copied();
            let could_open = |who: &&Credentials| {
                let may = |inode: Inode| {
                    who.uid == inode.uid || who.may(&inode, 0o4) || who.may(&inode, 0o2)
                };
                self.sessions.state.admits(label, who) && inode.is_some_and(may)
                    || self.sessions.keeps(who, number)
            };
            let sessions = listed.get(&number).into_iter().flatten();
            let mut users: BTreeSet<u32> = sessions
                .filter_map(|session| Some(&self.sessions.all.get(session)?.credentials))
                .filter(could_open)
                .map(|who| who.uid)
                .collect();
            let generation = inode.map_or(0, |inode| inode.generation);
            users.extend(self.sessions.descriptions.users(number, generation));
            self.sessions.state.orphan_users.insert(number, users);
        }
    }

    /// Frees inodes, with their pages and numbers, whoever owns them.
    pub fn free_inodes(&mut self, numbers: &[InodeNumber]) -> Result<(), Errno> {
        self.without_owners(numbers, |freeing| freeing.free_marked(numbers))?;
        for number in numbers {
            self.sessions.state.keepers.remove(number);
            self.sessions.state.orphan_users.remove(number);
            self.freed.charged.remove(*number);
        }
        Ok(())
    }

    /// Makes a change that ends the ownership of these inodes, while no operation is begun on them.
    fn without_owners(
        &mut self,
        numbers: &[InodeNumber],
        change: impl FnOnce(&mut Freeing<'_>) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut owners: BTreeMap<SessionNumber, Vec<InodeNumber>> = BTreeMap::new();
        for &number in numbers {
            let Some(header) = self.sessions.state.pool.header(number) else {
                continue;
            };
            let owner = header.ownership().session();
            if owner != 0 {
                // No operation begins on it any more.
                mark(header);
                stored(&header.ownership);
                owners.entry(owner).or_default().push(number);
            }
        }
        if !owners.is_empty() {
            heavy_barrier();
        }
        let changed = change(self);
        unmark(&self.sessions.state, owners.values().flatten());
        changed?;
        for (owner, numbers) in owners {
            if let Some(session) = self.sessions.all.get_mut(&owner) {
                session.disown(&self.sessions.state.pool, &numbers);
            }
        }
        Ok(())
    }

    fn free_marked(&mut self, numbers: &[InodeNumber]) -> Result<(), Errno> {
        debug_assert!(
            numbers
                .iter()
                .all(|&number| !self.sessions.state.is_alive(number)),
            "some of {numbers:?} have names"
        );
        let mut change = Change::new(&mut self.sessions.state);
        change.reserve_numbers(numbers.len());
        for &number in numbers {
            apply::free(&mut change, number)?;
        }
        change.commit(Weight::Fold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::freeing::charges::LISTINGS_AT_ONCE;
    use crate::freeing::{Charges, Pace};
    use crate::state::apply::file::Setter;
    use crate::state::classes::Class;
    use crate::testing::{TestCore, file, new_inode};
    use arck_core_state::header::HeaderKind;
    use arck_core_state::{IndexRoot, PagePtr};
    use std::time::Duration;

    /// A file without a name that has pages at these places.
    fn orphan_with(
        test: &mut TestCore,
        places: impl Iterator<Item = u64>,
    ) -> (InodeNumber, Vec<PagePtr>) {
        let state = &mut test.core.sessions.state;
        let world = state.label(Some(&Class::world()));
        let mut change = Change::new(state);
        change.allocate_for_class(world);
        let mut setter = Setter::new(IndexRoot::EMPTY);
        let mut pages = Vec::new();
        let mut size = 0;
        for place in places {
            let page = change.new_data_page().unwrap();
            setter.set(&mut change, place, page).unwrap();
            pages.push(page);
            size = (place + 1) * PAGE_SIZE;
        }
        let inode = file(1001, 0, setter.root(), size, pages.len() as u64);
        let (number, _) = new_inode(&mut change, HeaderKind::Orphan, inode);
        change.commit(Weight::Fold).unwrap();
        state.orphans.insert(number);
        (number, pages)
    }

    /// The last close of a file of 2 GiB held everybody up for 120 ms: it is freed slice by slice, from its
    /// end, and whatever is left when the controller is killed is freed by the next one.
    #[test]
    fn a_large_file_is_freed_in_slices() {
        let count = 2 * PAGES_AT_ONCE + 300;
        // All together, with holes of many kinds, and with index pages that hold little.
        let places: [fn(u64) -> u64; 3] = [|i| i, |i| i + i / 700 * 9_000, |i| i * 37];
        for (index, place) in places.into_iter().enumerate() {
            for is_killed in [false, true] {
                let mut test = TestCore::of_size(256 << 20);
                let (large, pages) = orphan_with(&mut test, (0..count).map(place));
                let is_used =
                    |test: &TestCore, page: &PagePtr| test.core.sessions.state.space.is_used(*page);
                let used =
                    |test: &TestCore| pages.iter().filter(|page| is_used(test, page)).count();
                assert_eq!(used(&test) as u64, count);
                test.core.folding().free_orphans(None);
                let left = count - PAGES_AT_ONCE;
                let inode = *test.core.sessions.state.shadow(large).unwrap();
                assert_eq!((inode.pages, used(&test) as u64), (left, left), "{index}");
                assert_eq!(inode.size, place(left) * PAGE_SIZE, "{index}");
                assert!(
                    pages[..left as usize]
                        .iter()
                        .all(|page| is_used(&test, page))
                );
                let (small, _) = orphan_with(&mut test, 0..3);
                if is_killed {
                    test = test.reopened();
                } else {
                    // What is small does not wait for it, and it goes on where it was.
                    test.core.folding().free_orphans(None);
                    assert!(test.core.sessions.state.shadow(small).is_none());
                    assert!(test.core.freeing().free_slice());
                    assert_eq!(used(&test) as u64, count - 2 * PAGES_AT_ONCE);
                    assert!(!test.core.freeing().free_slice());
                }
                assert_eq!(used(&test), 0, "{index}");
                assert!(test.core.sessions.state.orphans.is_empty());
                for number in [large, small] {
                    assert!(test.core.sessions.state.shadow(number).is_none());
                }
            }
        }
    }

    /// While the inodes that a user had deleted were freed, each slice looked at all that were left, and so
    /// did the service every second: 12 ms for 300,000.
    #[test]
    fn each_slice_looks_at_its_own() {
        let mut test = TestCore::of_size(64 << 20);
        let made: Vec<_> = (0..3 * LOOKED_AT_ONCE / 2)
            .map(|_| orphan_with(&mut test, 0..0).0)
            .collect();
        test.core.folding().free_next_orphans();
        let left = |test: &TestCore| test.core.sessions.state.orphans.len();
        // Those that were looked at are doomed, and as many are free as a slice frees.
        assert_eq!(left(&test), made.len() - FREED_AT_ONCE);
        assert_eq!(
            test.core.freed.doomed.numbers.len(),
            LOOKED_AT_ONCE - FREED_AT_ONCE
        );
        while test.core.freeing().free_slice() {}
        assert_eq!(left(&test), made.len() - LOOKED_AT_ONCE);
        // The next turn begins where this one has ended, and goes round.
        test.core.folding().free_next_orphans();
        test.core.freeing().free_doomed();
        assert_eq!(left(&test), 0);
        let (again, _) = orphan_with(&mut test, 0..1);
        test.core.folding().free_next_orphans();
        assert!(test.core.sessions.state.shadow(again).is_none());
    }

    #[test]
    fn long_tables_are_looked_at_now_and_then() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let mut pace = Pace::default();
        let (few, many) = (LISTINGS_AT_ONCE, LISTINGS_AT_ONCE + 1);
        let mut looking = 0;
        let mut free_at = 0;
        for now in 0..10_000 {
            assert!(pace.may_look(few, at(now)));
            pace.looked(few, at(now), at(now + 1));
            if now >= free_at && pace.may_look(many, at(now)) {
                // 7 ms each time.
                free_at = now + 7;
                pace.looked(many, at(now), at(free_at));
                looking += 7;
            }
        }
        assert!((300..=500).contains(&looking), "{looking} ms of 10,000");
    }

    #[test]
    fn what_is_charged_is_bounded_and_given_back() {
        let mut charges = Charges::default();
        let budget = Budget {
            inodes: 3,
            pages: 10,
        };
        let charge = |user, pages| Charge {
            user,
            is_stranger: true,
            pages,
        };
        assert!(charges.try_add(1, charge(5, 8), budget));
        assert!(!charges.try_add(2, charge(5, 3), budget));
        assert!(charges.try_add(2, charge(5, 1), budget));
        assert!(charges.try_add(3, charge(5, 1), budget));
        assert!(!charges.try_add(4, charge(5, 0), budget), "too many");
        assert!(charges.try_add(4, charge(6, 10), budget), "another user");
        charges.remove(1);
        charges.remove(1);
        assert!(charges.try_add(5, charge(5, 8), budget));
        (1..=5).for_each(|number| charges.remove(number));
        assert!(charges.of.is_empty() && charges.totals.is_empty());
    }
}
