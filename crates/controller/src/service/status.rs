//! What is told of a pool to whoever asks, with a session or without.
//!
//! # Invariants
//! * Nobody but the pool's user and root is told of other users' processes.
//! * What is asked of the kernel waits for no process: its name, and not its arguments, for which the kernel
//!   would wait until that process lets go of its memory.

use crate::service::{Connection, Service};
use arck_protocol::Status;
use arck_protocol::status::{PROCESSES_MAX, Pool, Process, Processes};
use std::io::Read;

impl Service {
    pub(super) fn status(&self) -> Status {
        let [closings, waiting, work, moved, longest] = self.core.places.closings.progress();
        Status {
            sessions: self.core.sessions.all.len() as u64,
            pages_free: self.core.sessions.state.space.pages_free(),
            inodes_free: self.core.sessions.state.numbers.count_free(),
            closings,
            waiting,
            work,
            moved,
            longest,
        }
    }

    pub(super) fn pool_status(&self) -> Pool {
        let sessions = &self.core.sessions;
        let pool = &sessions.state.pool;
        let superblock = pool.superblock();
        let mediated = sessions.state.mediated;
        Pool {
            pages: pool.geometry().page_count(),
            inodes: u64::from(pool.geometry().inode_count),
            durability: superblock.durability as u32,
            flush: pool.flushes(),
            shared: sessions.options.shared,
            user: superblock.uid,
            process: std::process::id(),
            violations: sessions.violations,
            mediated: mediated.said,
            found: mediated.found,
            together: mediated.together,
        }
    }

    /// Of those that have a session, some behind this session and member, as far as `asker` may know of them.
    pub(super) fn processes(&self, asker: &Connection, session: u32, member: u16) -> Processes {
        let sees_all = self.is_pools_user(asker);
        let user = asker.credentials.uid;
        let mut found: Vec<_> = self
            .connections
            .values()
            .filter(|of| sees_all || of.credentials.uid == user)
            .filter_map(|of| Some((of.session?, of.member, of.peer, of.credentials.uid)))
            .filter(|of| (of.0, of.1) > (session, member))
            .collect();
        found.sort_unstable();
        let more = found.len() > PROCESSES_MAX;
        found.truncate(PROCESSES_MAX);
        let tell = |(session, member, process, user)| Process {
            session,
            member,
            process: u32::try_from(process).unwrap_or(0),
            user,
            program: program(process),
        };
        Processes {
            more,
            processes: found.into_iter().map(tell).collect(),
        }
    }
}

/// What the kernel calls the program of a process; empty where it does not tell.
fn program(process: i32) -> String {
    let mut name = Vec::new();
    if let Ok(file) = std::fs::File::open(format!("/proc/{process}/comm")) {
        // Bounded by the kernel too; what cannot be read has no name.
        let _ = file.take(64).read_to_end(&mut name);
    }
    String::from_utf8_lossy(&name)
        .trim_end_matches('\n')
        .to_owned()
}
