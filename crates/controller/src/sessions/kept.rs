//! Rights of what was open when they went away, and a log of them by which they outlive the
//! controller.
//!
//! Whenever what is kept of an inode for a user changes, a record of 24 bytes that says what it is now
//! is written to a file of the pool that no session gets. A controller that is started while sessions
//! are there reads it.
//!
//! # Invariants
//! * A right that has ended is not in the file, or a later record takes it back: no controller that is
//!   started again knows it. Where that cannot be written, there is no file.
//! * The file is written and not synced: after a failure of the machine nobody has anything open.

use crate::fair::may_have_more;
use crate::pool::files::{Pool, allocate};
use arck_controller_state::kept_rights::{KEPT_RIGHT_SIZE, KeptRight, NAME, NEW_NAME};
use arck_core_state::InodeNumber;
use foldhash::HashMap;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::BTreeMap;
use zerocopy::IntoBytes;

/// Bytes that are allocated at first; beyond it the log is written anew.
pub const SIZE: u64 = 1 << 16;
/// Inodes of which rights are kept, of each user; beyond that, and beyond a user's part of it, they go at once.
const KEPT_MAX: usize = 1 << 16;
/// So many rights that end at once are taken back one by one; more, by a new file.
const ENDED_MAX: usize = 16;

/// Rights of an inode.
#[derive(Default, Debug, PartialEq, Eq)]
struct RightsOfInode {
    generation: u32,
    /// By user.
    users: BTreeMap<u32, u32>,
}

/// See the module's head.
#[derive(Default, Debug)]
pub struct KeptRights {
    of: HashMap<InodeNumber, RightsOfInode>,
    /// Inodes of each user, and of all users together.
    of_users: HashMap<u32, usize>,
    count: usize,
    /// `None` while nothing is kept, and where there is no room for it.
    file: Option<OwnedFd>,
    /// Bytes that are allocated.
    capacity: u64,
    /// Bytes that are written.
    at: u64,
}

impl KeptRights {
    /// With what an earlier controller left, if its sessions may be there (`counts`).
    pub fn open(pool: &Pool, counts: bool) -> KeptRights {
        let mut kept = KeptRights::default();
        if counts && let Ok(file) = pool.open_file(NAME, OFlags::RDWR) {
            let mut bytes = [0; KEPT_RIGHT_SIZE];
            while rustix::io::pread(&file, &mut bytes[..], kept.at) == Ok(KEPT_RIGHT_SIZE) {
                let Some(record) = KeptRight::decode(bytes) else {
                    break;
                };
                kept.set(record);
                kept.at += KEPT_RIGHT_SIZE as u64;
            }
            let size = rustix::fs::fstat(&file).map_or(0, |status| status.st_size);
            kept.capacity = u64::try_from(size).unwrap_or(0);
            kept.file = Some(file);
        }
        if kept.of.is_empty() {
            kept.remove_file(pool);
        }
        kept
    }

    fn set(&mut self, record: KeptRight) {
        let KeptRight {
            inode,
            generation,
            user,
            rights,
            ..
        } = record;
        let kept = self.of.entry(inode).or_default();
        if kept.generation != generation {
            let before = std::mem::take(&mut kept.users);
            kept.generation = generation;
            before
                .into_keys()
                .for_each(|user| self.count_one_less(user));
        }
        let kept = self.of.entry(inode).or_default();
        let before = match rights {
            0 => kept.users.remove(&user),
            rights => kept.users.insert(user, rights),
        };
        if kept.users.is_empty() {
            self.of.remove(&inode);
        }
        match (before.is_some(), rights != 0) {
            (true, false) => self.count_one_less(user),
            (false, true) => {
                *self.of_users.entry(user).or_default() += 1;
                self.count += 1;
            }
            _ => {}
        }
    }

    fn count_one_less(&mut self, user: u32) {
        self.count -= 1;
        if let Some(count) = self.of_users.get_mut(&user) {
            *count -= 1;
            if *count == 0 {
                self.of_users.remove(&user);
            }
        }
    }

    fn may_keep_more(&self, user: u32) -> bool {
        let own = self.of_users.get(&user).copied().unwrap_or(0);
        may_have_more(own, self.count - own, KEPT_MAX, false)
    }

    pub fn is_empty(&self) -> bool {
        self.of.is_empty()
    }

    /// Inodes of which any right is kept, and their generations.
    pub fn inodes(&self) -> impl Iterator<Item = (InodeNumber, u32)> {
        self.of
            .iter()
            .map(|(&inode, kept)| (inode, kept.generation))
    }

    /// What is kept for a user.
    pub fn rights(&self, inode: InodeNumber, generation: u32, user: u32) -> u32 {
        let kept = self.of.get(&inode);
        let kept = kept.filter(|kept| kept.generation == generation);
        kept.and_then(|kept| kept.users.get(&user).copied())
            .unwrap_or(0)
    }

    /// Keeps rights for a user, with what is kept for him already. False if he has too many.
    pub fn keep(
        &mut self,
        pool: &Pool,
        (inode, generation): (InodeNumber, u32),
        user: u32,
        rights: u32,
    ) -> bool {
        let before = self.rights(inode, generation, user);
        if before | rights == before {
            return true;
        }
        if before == 0 && !self.may_keep_more(user) {
            return false;
        }
        let record = KeptRight::new(inode, generation, user, before | rights);
        self.set(record);
        self.write(pool, record);
        true
    }

    /// Forgets the rights of which that is not said, by inode, generation and user.
    pub fn retain(&mut self, pool: &Pool, keeps: impl Fn(InodeNumber, u32, u32) -> bool) {
        let all = self.of.iter().flat_map(|(&inode, kept)| {
            let users = kept.users.keys();
            users.map(move |&user| (inode, kept.generation, user))
        });
        let ended: Vec<KeptRight> = all
            .filter(|&(inode, generation, user)| !keeps(inode, generation, user))
            .map(|(inode, generation, user)| KeptRight::new(inode, generation, user, 0))
            .collect();
        ended.iter().for_each(|&record| self.set(record));
        if ended.len() > ENDED_MAX || self.of.is_empty() && !ended.is_empty() {
            self.write_anew(pool);
        } else {
            ended.iter().for_each(|&record| self.write(pool, record));
        }
    }

    fn write(&mut self, pool: &Pool, record: KeptRight) {
        let has_room = self.at + KEPT_RIGHT_SIZE as u64 <= self.capacity;
        let written = match &self.file {
            Some(file) if has_room => rustix::io::pwrite(file, record.as_bytes(), self.at),
            _ => Err(Errno::NOSPC),
        };
        match written {
            Ok(KEPT_RIGHT_SIZE) => self.at += KEPT_RIGHT_SIZE as u64,
            _ => self.write_anew(pool),
        }
    }

    /// All that is kept now, in a new file.
    fn write_anew(&mut self, pool: &Pool) {
        let written = match self.of.is_empty() {
            true => Err(Errno::NOENT),
            false => self.try_write_anew(pool),
        };
        if written.is_err() {
            // Rather none than rights that have ended.
            self.remove_file(pool);
        }
    }

    fn try_write_anew(&mut self, pool: &Pool) -> Result<(), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let file = pool.open_file(NEW_NAME, flags)?;
        let mut bytes = Vec::new();
        for (&inode, kept) in &self.of {
            for (&user, &rights) in &kept.users {
                let record = KeptRight::new(inode, kept.generation, user, rights);
                bytes.extend_from_slice(record.as_bytes());
            }
        }
        let length = bytes.len() as u64;
        // Not to be written anew all the time.
        let capacity = SIZE.max(2 * length);
        allocate(&file, 0, capacity)?;
        if rustix::io::pwrite(&file, &bytes, 0)? as u64 != length {
            return Err(Errno::NOSPC);
        }
        let directory = pool.directory();
        rustix::fs::renameat(directory, NEW_NAME, directory, NAME)?;
        (self.file, self.capacity, self.at) = (Some(file), capacity, length);
        Ok(())
    }

    fn remove_file(&mut self, pool: &Pool) {
        pool.remove_file(NEW_NAME);
        pool.remove_file(NAME);
        (self.file, self.capacity, self.at) = (None, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestCore;

    /// One user took all that there was by claiming what another had handed him.
    #[test]
    fn a_user_keeps_no_more_than_half_of_what_others_leave() {
        let test = TestCore::new();
        let pool = &test.core.sessions.state.pool;
        let mut kept = KeptRights::default();
        let half = KEPT_MAX as u32 / 2;
        for inode in 0..half {
            assert!(kept.keep(pool, (inode, 1), 1001, 4));
        }
        assert!(!kept.keep(pool, (half, 1), 1001, 4));
        assert!(kept.keep(pool, (0, 1), 1001, 2), "more of what he has");
        assert!(kept.keep(pool, (half, 1), 1002, 4) && kept.keep(pool, (0, 1), 1002, 4));
        // The number is another inode's.
        assert!(kept.keep(pool, (0, 2), 1002, 4));
        assert_eq!(kept.rights(0, 1, 1001), 0);
        // Of what others leave: they have two.
        assert!(!kept.keep(pool, (half + 1, 1), 1001, 4));
        kept.retain(pool, |inode, _, _| inode != 1);
        assert!(kept.keep(pool, (half + 1, 1), 1001, 4));
        assert!(!kept.keep(pool, (half + 2, 1), 1001, 4));
        // What a controller that is started again finds is the same.
        let again = KeptRights::open(pool, true);
        assert_eq!((again.count, &again.of_users), (kept.count, &kept.of_users));
        kept.retain(pool, |_, _, user| user == 1002);
        assert_eq!((kept.count, kept.of_users.len()), (2, 1));
    }
}
