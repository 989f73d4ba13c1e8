//! What was queued and not done when the process, or the machine, came to its end; and doing it.
//!
//! # Invariants
//! * A record is done at its place in the order, and marked after that; one of which a part had been done is done again. So a
//!   replay that is cut off is repeated, with the same outcome.
//! * An append that had begun says how long the file was then, so that it is not there twice: what lies there is taken for it if it has
//!   its bytes, or zeroes where a failure has torn it. Where somebody else has lengthened the file meanwhile, by other calls, something
//!   else lies there; then it is done again, and may be there twice.

use super::layout::{self, HEADER_LENGTH, Kind};
use super::reading::{Left, Replayed, read_whole, record, write_whole};
use super::{Spool, Spooled};
use crate::primitive::lock;
use crate::target::{FileIdentity, Target};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// The files of a replay, each by what it is and its name; nothing for one that is gone.
type Opened = BTreeMap<(FileIdentity, Vec<u8>), Option<Arc<dyn Target>>>;

impl Spool {
    /// What was queued and not done, in its order.
    ///
    /// # Errors
    /// EBADMSG: the file has changed since the spool was opened. Or what it says.
    pub fn left(&self) -> Result<Vec<Left>, Errno> {
        self.is_here()?;
        let undone: Vec<_> = lock(&self.state).ring.undone().collect();
        let left = undone.into_iter().map(|at| {
            let (record, bytes) = record(&*self.file, &self.head, at)?.ok_or(Errno::BADMSG)?;
            let name = HEADER_LENGTH..HEADER_LENGTH + record.name_length as usize;
            Ok(Left {
                name: bytes[name].to_vec(),
                file: record.file,
                position: (record.kind == Kind::Write).then_some(record.position),
                length: record.length as usize,
            })
        });
        left.collect()
    }

    /// Does what was queued and not done, in its order. `open` is asked for each file, by its name and by which it was; it gives
    /// the file, or nothing if that is gone for ever. What was done is durable when this returns, and is not done again; an
    /// error of `open`, or of a file, ends it, and what follows is still there to be replayed.
    ///
    /// # Errors
    /// That of `open`, or of a file. EFBIG: it is more than this process may write (RLIMIT_FSIZE). ENOSPC: a file took a part. EBADMSG: the spool's file has changed since it was opened.
    pub fn replay(
        &self,
        mut open: impl FnMut(&Left) -> Result<Option<Arc<dyn Target>>, Errno>,
    ) -> Result<Replayed, Errno> {
        self.is_here()?;
        let _replays = lock(&self.replays);
        let undone: Vec<_> = {
            let state = lock(&self.state);
            // What queues have put there since is theirs.
            let old = state.ring.undone().take_while(|_| state.is_to_be_replayed);
            old.collect()
        };
        let mut replayed = Replayed::default();
        let mut opened = Opened::new();
        for at in undone {
            let (record, bytes) = record(&*self.file, &self.head, at)?.ok_or(Errno::BADMSG)?;
            let (name, data) = bytes[HEADER_LENGTH..].split_at(record.name_length as usize);
            let left = Left {
                name: name.to_vec(),
                file: record.file,
                position: (record.kind == Kind::Write).then_some(record.position),
                length: data.len(),
            };
            let target = match opened.entry((left.file, left.name.clone())) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => new.insert(open(&left)?),
            };
            let Some(target) = target else {
                self.forget(Spooled(at))?;
                replayed.dropped += 1;
                continue;
            };
            let done = match record.kind {
                Kind::Append => {
                    let begun = layout::has_begun(&self.head.identity, at, &bytes);
                    self.append_again(Spooled(at), &**target, data, begun)
                }
                _ => write_whole(&**target, data, record.position),
            };
            match done {
                // The file may take it from a process that may write more.
                Err(Errno::FBIG) if is_over_limit(&**target, &left) => return Err(Errno::FBIG),
                Err(Errno::FBIG | Errno::INVAL | Errno::BADF | Errno::ISDIR | Errno::PERM) => {
                    self.forget(Spooled(at))?;
                    replayed.dropped += 1;
                    continue;
                }
                done => done?,
            }
            self.done(Spooled(at), &**target)?;
            replayed.requests += 1;
            replayed.bytes += data.len() as u64;
        }
        lock(&self.state).is_to_be_replayed = false;
        Ok(replayed)
    }

    /// `begun`: how long the file was when it was to be appended before.
    fn append_again(
        &self,
        record: Spooled,
        target: &dyn Target,
        data: &[u8],
        begun: Option<u64>,
    ) -> Result<(), Errno> {
        let size = target.size()?;
        let length = data.len() as u64;
        let from = begun.filter(|&begun| begun < size && target.access().read);
        if let Some(from) = from {
            let there = (size - from).min(length) as usize;
            let mut seen = vec![0; there];
            read_whole(target, &mut seen, from)?;
            if seen == data {
                return Ok(());
            }
            // What a failure has torn is there in part, and 0 elsewhere; nobody has appended behind it.
            let is_part = seen
                .iter()
                .zip(data)
                .all(|(seen, new)| seen == new || *seen == 0);
            if is_part && size <= from + length {
                return write_whole(target, data, from);
            }
        }
        self.begins(record, size)?;
        let mut appended = 0;
        while appended < data.len() {
            match target.append(&data[appended..])? {
                (0, _) => return Err(Errno::NOSPC),
                (length, _) => appended += length,
            }
        }
        Ok(())
    }
}

/// Whether a write ends behind what this process may write.
fn is_over_limit(target: &dyn Target, left: &Left) -> bool {
    let Some(limit) = getrlimit(Resource::Fsize).current else {
        return false;
    };
    let position = left.position.or_else(|| target.size().ok()).unwrap_or(0);
    position.saturating_add(left.length as u64) > limit
}
