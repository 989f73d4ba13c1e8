//! The advisory locks, and a log of them by which they outlive the controller.
//!
//! Each change of the table is a record of 64 bytes in a file of the pool that no session gets. A
//! controller that is started while sessions are there makes the same changes again.
//!
//! # Invariants
//! * A change is in the file before it is answered; one that was not answered is asked for again,
//!   and to make it twice is as good as once.
//! * All records of one run of the log have its number. A new run begins at the start of the file
//!   when there are no locks: what stands there until then ends without locks, too.
//! * The file is written and not synced: after a failure of the machine nobody holds a lock.
//! * The table is used through this alone.

use crate::locks::{Asker, LockTable};
use crate::pool::{Pool, allocate};
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_protocol::LockMode;
use arck_protocol::message::{LockHolder, LockRange};
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::collections::HashSet;
use std::time::{Duration, Instant};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Name of the file.
const NAME: &str = "locks";
/// While it is written anew.
const NEW_NAME: &str = "locks.new";
/// Bytes that are allocated at first; beyond it the log is written anew.
const SIZE: u64 = 1 << 20;
/// So long after a start, descriptions of which nobody has told keep their locks.
const UNTOLD: Duration = Duration::from_secs(30);

const SET: u8 = 1;
const DROP_HOLDER: u8 = 2;
const DROP_SESSION: u8 = 3;
const SHARE: u8 = 4;
const CLOSED: u8 = 5;
const DROP_PROCESS: u8 = 6;

#[derive(Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Record {
    /// CRC32C of the rest.
    checksum: u32,
    operation: u8,
    family: u8,
    /// 0 = unlock, 1 = shared, 2 = exclusive.
    mode: u8,
    reserved0: u8,
    run: u64,
    session: u32,
    inode: u32,
    start: u64,
    end: u64,
    owner: u64,
    name: u64,
    process: u32,
    /// At whose expense.
    user: u32,
}
const RECORD: usize = 64;
const _: () = assert!(size_of::<Record>() == RECORD);

impl Record {
    fn of_range(operation: u8, asker: Asker, range: &LockRange) -> Record {
        let Asker { session, user } = asker;
        Record {
            operation,
            user,
            family: range.holder.family,
            mode: match range.mode {
                LockMode::Unlock => 0,
                LockMode::Shared => 1,
                LockMode::Exclusive => 2,
            },
            session,
            inode: range.inode,
            start: range.start,
            end: range.end,
            owner: range.holder.owner,
            process: range.holder.process,
            ..Record::default()
        }
    }

    fn range(&self) -> LockRange {
        LockRange {
            inode: self.inode,
            mode: match self.mode {
                0 => LockMode::Unlock,
                1 => LockMode::Shared,
                _ => LockMode::Exclusive,
            },
            start: self.start,
            end: self.end,
            holder: LockHolder {
                family: self.family,
                owner: self.owner,
                process: self.process,
            },
        }
    }

    fn sealed(mut self, run: u64) -> Record {
        self.run = run;
        self.checksum = crc32c::crc32c(&self.as_bytes()[4..]);
        self
    }

    fn is_whole(&self) -> bool {
        self.checksum == crc32c::crc32c(&self.as_bytes()[4..])
    }

    /// Makes the change again. What was granted once is granted now.
    fn replay(&self, table: &mut LockTable) {
        match self.operation {
            SET => {
                let (session, user) = (self.session, self.user);
                let _ = table.set(Asker { session, user }, &self.range());
            }
            DROP_HOLDER => table.drop_holder(self.session, self.inode, &self.range().holder),
            DROP_SESSION => table.drop_session(self.session),
            SHARE => drop(table.share(self.session, self.inode, self.name, self.owner)),
            DROP_PROCESS => table.drop_process(self.session, self.process),
            CLOSED => table.closed(self.name),
            _ => {}
        }
    }
}

/// See the module's head.
pub struct Locks {
    table: LockTable,
    /// `None` until there is a lock.
    file: Option<OwnedFd>,
    /// Bytes that are allocated.
    capacity: u64,
    /// Bytes of this run.
    at: u64,
    run: u64,
    /// Shared descriptions of an earlier controller that nobody has told this one of.
    untold: HashSet<u64>,
    until: Instant,
}

impl Locks {
    /// With what an earlier controller left, if its sessions may be there (`counts`).
    pub fn open(pool: &Pool, counts: bool) -> Locks {
        let mut locks = Locks {
            table: LockTable::default(),
            file: None,
            capacity: SIZE,
            at: 0,
            run: 1,
            untold: HashSet::new(),
            until: Instant::now() + UNTOLD,
        };
        if counts {
            locks.read(pool);
        }
        if locks.file.is_none() {
            pool.remove_file(NAME);
        }
        locks
    }

    fn read(&mut self, pool: &Pool) {
        let Ok(file) = pool.open_file(NAME, OFlags::RDWR) else {
            return;
        };
        let mut bytes = [0; RECORD];
        loop {
            if rustix::io::pread(&file, &mut bytes[..], self.at) != Ok(RECORD) {
                break;
            }
            let record: Record = zerocopy::transmute!(bytes);
            if !record.is_whole() || (self.at != 0 && record.run != self.run) {
                break;
            }
            self.run = record.run;
            record.replay(&mut self.table);
            self.at += RECORD as u64;
        }
        self.untold = self.table.shared().map(|(name, _)| name).collect();
        let size = rustix::fs::fstat(&file).map_or(0, |status| status.st_size);
        self.capacity = u64::try_from(size).unwrap_or(0);
        self.file = Some(file);
    }

    /// Forgets what sessions hold that are not there.
    pub fn keep_sessions(&mut self, pool: &Pool, is_there: impl Fn(SessionNumber) -> bool) {
        for session in self.table.holders() {
            if !is_there(session) {
                self.drop_session(pool, session);
            }
        }
    }

    /// Makes sure that a record can be written. ENOLCK.
    fn prepare(&mut self, pool: &Pool) -> Result<(), Errno> {
        if self.table.is_empty() && self.at != 0 {
            self.run += 1;
            self.at = 0;
        }
        if self.file.is_none() {
            let file = pool
                .open_file(NAME, OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC)
                .and_then(|file| pool.with_room(|| allocate(&file, 0, SIZE)).map(|()| file));
            self.file = Some(file.map_err(|_| Errno::NOLCK)?);
        }
        if self.at + RECORD as u64 > self.capacity {
            self.write_anew(pool).map_err(|_| Errno::NOLCK)?;
        }
        Ok(())
    }

    /// What is held now, as the log's beginning.
    fn write_anew(&mut self, pool: &Pool) -> Result<(), Errno> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let file = pool.open_file(NEW_NAME, flags)?;
        let run = self.run + 1;
        let mut bytes = Vec::new();
        for (name, inode) in self.table.shared() {
            let record = Record {
                operation: SHARE,
                inode,
                name,
                ..Record::default()
            };
            bytes.extend_from_slice(record.sealed(run).as_bytes());
        }
        for (asker, range) in self.table.all() {
            let record = Record::of_range(SET, asker, &range);
            bytes.extend_from_slice(record.sealed(run).as_bytes());
        }
        let length = bytes.len() as u64;
        // Not to be written anew all the time.
        let capacity = SIZE.max(2 * length);
        pool.with_room(|| allocate(&file, 0, capacity))?;
        if rustix::io::pwrite(&file, &bytes, 0)? as u64 != length {
            return Err(Errno::NOSPC);
        }
        let directory = pool.directory();
        rustix::fs::renameat(directory, NEW_NAME, directory, NAME)?;
        (self.file, self.capacity) = (Some(file), capacity);
        (self.run, self.at) = (run, length);
        Ok(())
    }

    fn write(&mut self, record: Record) {
        let bytes = record.sealed(self.run);
        let Some(file) = &self.file else { return };
        match rustix::io::pwrite(file, bytes.as_bytes(), self.at) {
            Ok(RECORD) => self.at += RECORD as u64,
            // It was allocated.
            other => tracing::error!("the log of locks: {other:?}"),
        }
    }

    /// As [`LockTable::test`].
    pub fn test(&self, session: SessionNumber, wanted: &LockRange) -> Option<LockRange> {
        self.table.test(session, wanted)
    }

    /// As [`LockTable::holders_in_the_way`].
    pub fn in_the_way(
        &self,
        session: SessionNumber,
        wanted: &LockRange,
    ) -> Vec<(SessionNumber, u32)> {
        self.table.holders_in_the_way(session, wanted)
    }

    /// As [`LockTable::wait`].
    pub fn wait(&mut self, pool: &Pool, asker: Asker, wanted: &LockRange) -> Result<(), Errno> {
        self.change(pool, asker, wanted, |table| {
            table.wait(asker, wanted, Instant::now())
        })
    }

    /// As [`LockTable::set`].
    pub fn set(&mut self, pool: &Pool, asker: Asker, wanted: &LockRange) -> Result<(), Errno> {
        self.change(pool, asker, wanted, |table| table.set(asker, wanted))
    }

    fn change(
        &mut self,
        pool: &Pool,
        asker: Asker,
        wanted: &LockRange,
        change: impl FnOnce(&mut LockTable) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let unlocks = wanted.mode == LockMode::Unlock;
        let is_shared = wanted.holder.family > 2;
        if is_shared && !unlocks && self.untold.contains(&wanted.holder.owner) {
            // Whoever has it tells of it, so that its end is noticed.
            return Err(Errno::BADF);
        }
        let is_logged = !unlocks
            || self
                .table
                .holds(asker.session, wanted.inode, &wanted.holder);
        if is_logged {
            let prepared = self.prepare(pool);
            // Unlocking must not fail.
            if !unlocks {
                prepared?;
            }
        }
        change(&mut self.table)?;
        if is_logged {
            self.write(Record::of_range(SET, asker, wanted));
        }
        Ok(())
    }

    /// As [`LockTable::stop_waiting`].
    pub fn stop_waiting(&mut self, session: SessionNumber, wanted: &LockRange) {
        self.table.stop_waiting(session, wanted);
    }

    /// As [`LockTable::drop_holder`].
    pub fn drop_holder(
        &mut self,
        pool: &Pool,
        session: SessionNumber,
        inode: InodeNumber,
        holder: &LockHolder,
    ) {
        if !self.table.holds(session, inode, holder) {
            return;
        }
        let range = LockRange {
            inode,
            mode: LockMode::Unlock,
            start: 0,
            end: u64::MAX,
            holder: *holder,
        };
        let _ = self.prepare(pool);
        self.table.drop_holder(session, inode, holder);
        // What is dropped is at nobody's expense.
        let asker = Asker { session, user: 0 };
        self.write(Record::of_range(DROP_HOLDER, asker, &range));
    }

    /// As [`LockTable::drop_session`].
    pub fn drop_session(&mut self, pool: &Pool, session: SessionNumber) {
        let is_logged = self.table.has_locks(session);
        if is_logged {
            let _ = self.prepare(pool);
        }
        self.table.drop_session(session);
        if is_logged {
            self.write(Record {
                operation: DROP_SESSION,
                session,
                ..Record::default()
            });
        }
    }

    /// As [`LockTable::drop_process`].
    pub fn drop_process(&mut self, pool: &Pool, session: SessionNumber, process: u32) {
        if !self.table.has_any_of(session, process) {
            return;
        }
        let _ = self.prepare(pool);
        self.table.drop_process(session, process);
        self.write(Record {
            operation: DROP_PROCESS,
            session,
            process,
            ..Record::default()
        });
    }

    /// As [`LockTable::share`]; the description is watched from now on.
    pub fn share(
        &mut self,
        pool: &Pool,
        session: SessionNumber,
        inode: InodeNumber,
        name: u64,
        owner: u64,
    ) -> Result<(), Errno> {
        self.prepare(pool)?;
        self.table.share(session, inode, name, owner)?;
        self.untold.remove(&name);
        self.write(Record {
            operation: SHARE,
            session,
            inode,
            name,
            owner,
            ..Record::default()
        });
        Ok(())
    }

    /// As [`LockTable::closed`].
    pub fn closed(&mut self, pool: &Pool, name: u64) {
        let _ = self.prepare(pool);
        self.table.closed(name);
        self.untold.remove(&name);
        self.write(Record {
            operation: CLOSED,
            name,
            ..Record::default()
        });
    }

    /// Drops the locks of descriptions of which nobody has told in all this time: they were closed
    /// while there was no controller.
    pub fn drop_untold(&mut self, pool: &Pool) {
        if !self.untold.is_empty() && Instant::now() > self.until {
            for name in std::mem::take(&mut self.untold) {
                self.closed(pool, name);
            }
        }
    }
}
