//! Inodes without a name: they live on while some session lists them as open.
//!
//! # Invariant
//! * Before open tables are read, every session can see in the header that the inode is an
//!   orphan, and the heavy barrier has been issued: a session that lists it later sees that
//!   when it looks at the header for the second time.

use crate::apply;
use crate::change::{Change, Weight};
use crate::core::Core;
use crate::fold::{heavy_barrier, unmark};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{Inode, InodeNumber};
use arck_protocol::control::open_entry;
use arck_protocol::operation::mark;
use arck_verifier::Credentials;
use foldhash::HashMap;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// Orphans freed in one change.
const FREED_AT_ONCE: usize = 1024;

/// Orphans that have to stay, and the sessions that list them as open.
type Listed = HashMap<InodeNumber, Vec<SessionNumber>>;

impl Core {
    /// Frees those of the given orphans (`None`: of all) that no session lists.
    pub fn free_orphans(&mut self, which: Option<&[InodeNumber]>) {
        let candidates: Vec<InodeNumber> = match which {
            Some(which) => which
                .iter()
                .copied()
                .filter(|number| self.state.orphans.contains(number))
                .collect(),
            None => self.state.orphans.iter().copied().collect(),
        };
        if candidates.is_empty() {
            return;
        }
        let listed = self.listed(&candidates);
        self.note_users(&candidates, &listed);
        let unlisted: Vec<InodeNumber> = candidates
            .into_iter()
            .filter(|number| !listed.contains_key(number))
            .collect();
        for part in unlisted.chunks(FREED_AT_ONCE) {
            if let Err(errno) = self.free_inodes(part) {
                // They stay orphans, and are tried again.
                tracing::warn!("freeing {} orphans: {errno}", part.len());
                return;
            }
        }
    }

    fn listed(&self, numbers: &[InodeNumber]) -> Listed {
        heavy_barrier();
        let wanted: HashMap<u64, InodeNumber> = numbers
            .iter()
            .filter_map(|&number| {
                let generation = self.state.pool.header(number)?.generation();
                Some((open_entry(number, generation), number))
            })
            .collect();
        let mut listed: Listed = Listed::default();
        for session in self.sessions.values() {
            let Some(live) = &session.live else { continue };
            for entry in &live.control().open {
                let entry = entry.load(Ordering::Acquire);
                if entry != 0
                    && let Some(&number) = wanted.get(&entry)
                {
                    listed.entry(number).or_default().push(session.number);
                }
            }
        }
        let keepers = || {
            numbers
                .iter()
                .filter_map(|number| Some((number, self.state.keepers.get(number)?)))
        };
        let kept_for = keepers().map(|(_, of)| *of).collect();
        let mapped = self.mapped(&kept_for);
        let needed = keepers().filter(|(_, of)| mapped.contains(of));
        listed.extend(needed.map(|(number, _)| (*number, Vec::new())));
        listed
    }

    /// Of orphans that are new, which users have them open. A session can list what it likes: it
    /// counts if its user could have opened the inode, by the place that it has from its last name.
    fn note_users(&mut self, candidates: &[InodeNumber], listed: &Listed) {
        if !self.state.space.shared {
            return;
        }
        for &number in candidates {
            if self.state.orphan_users.contains_key(&number) {
                continue;
            }
            let label = self.state.label_of_inode(number);
            let inode = self.state.shadow(number).copied();
            let could_open = |who: &&Credentials| {
                let may = |inode: Inode| {
                    who.uid == inode.uid || who.may(&inode, 0o4) || who.may(&inode, 0o2)
                };
                self.state.admits(label, who) && inode.is_some_and(may)
            };
            let sessions = listed.get(&number).into_iter().flatten();
            let users = sessions
                .filter_map(|session| Some(&self.sessions.get(session)?.credentials))
                .filter(could_open)
                .map(|who| who.uid)
                .collect();
            self.state.orphan_users.insert(number, users);
        }
    }

    /// Frees inodes, with their pages and numbers, whoever owns them.
    pub fn free_inodes(&mut self, numbers: &[InodeNumber]) -> Result<(), Errno> {
        let mut owners: BTreeMap<SessionNumber, Vec<InodeNumber>> = BTreeMap::new();
        for &number in numbers {
            let Some(header) = self.state.pool.header(number) else {
                continue;
            };
            let owner = header.ownership().session();
            if owner != 0 {
                // No operation begins on it any more.
                mark(header);
                owners.entry(owner).or_default().push(number);
            }
        }
        if !owners.is_empty() {
            heavy_barrier();
        }
        let freed = self.free_marked(numbers);
        unmark(&self.state, owners.values().flatten());
        freed?;
        for number in numbers {
            self.state.keepers.remove(number);
            self.state.orphan_users.remove(number);
        }
        for (owner, numbers) in owners {
            if let Some(session) = self.sessions.get_mut(&owner) {
                session.disown(&numbers);
            }
        }
        Ok(())
    }

    fn free_marked(&mut self, numbers: &[InodeNumber]) -> Result<(), Errno> {
        let mut change = Change::new(&mut self.state);
        for &number in numbers {
            apply::free(&mut change, number)?;
        }
        change.commit(Weight::Fold)
    }
}
