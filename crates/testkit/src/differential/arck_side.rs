//! ArckFS, by two sessions in this process.

use super::operation::{ACTORS, Base, Operation, Place, SLOTS, Subject, TimeChoice};
use super::outcome::{Outcome, View, set_time};
use super::{Side, host_side};
use crate::{Random, Shorthand, TestPool};
use arckfs::{At, Attributes, Errno, Failure, FileSystem, Handle, SetTime, Timestamp};

/// Two sessions of one pool.
pub struct ArckSide {
    pub pool: TestPool,
    sessions: Vec<FileSystem>,
    slots: [[Option<Handle>; SLOTS]; ACTORS],
}

impl ArckSide {
    pub fn new(pool: TestPool) -> ArckSide {
        let sessions = (0..ACTORS).map(|_| pool.session()).collect();
        ArckSide {
            pool,
            sessions,
            slots: Default::default(),
        }
    }

    pub fn session(&self, actor: usize) -> &FileSystem {
        &self.sessions[actor]
    }

    /// Closes everything, ends the sessions and the controller, and starts again.
    pub fn restart(&mut self) -> Result<(), Errno> {
        for actor in 0..ACTORS {
            for slot in 0..SLOTS {
                self.close(actor, slot);
            }
        }
        for session in self.sessions.drain(..) {
            session.disconnect()?;
        }
        self.pool.stop();
        self.begin();
        Ok(())
    }

    /// The controller dies, with its sessions; a new one recovers.
    pub fn kill(&mut self) {
        self.pool.kill();
        self.sessions.clear();
        self.begin();
    }

    fn begin(&mut self) {
        self.slots = Default::default();
        self.pool.serve();
        self.sessions = (0..ACTORS).map(|_| self.pool.session()).collect();
    }

    fn handle(&self, actor: usize, slot: usize) -> Result<Handle, Failure> {
        Ok(self.slots[actor][slot].ok_or(Errno::BADF)?)
    }

    fn at(&self, actor: usize, place: &Place) -> Result<At, Failure> {
        match place.base {
            Base::Root => Ok(At::Root),
            Base::Slot(slot) => Ok(At::Directory(self.handle(actor, slot)?)),
        }
    }

    fn subject<'p>(
        &self,
        actor: usize,
        subject: &'p Subject,
    ) -> Result<arckfs::Subject<'p>, Failure> {
        Ok(match subject {
            Subject::Slot(slot) => arckfs::Subject::Handle(self.handle(actor, *slot)?),
            Subject::Place(place, flags) => {
                arckfs::Subject::Path(self.at(actor, place)?, &place.path, *flags)
            }
        })
    }

    fn list(&self, actor: usize, handle: Handle, buffer: usize) -> Result<Outcome, Failure> {
        let mut buffer = vec![0; buffer];
        let mut names = Vec::new();
        loop {
            let used = self.sessions[actor].read_directory(handle, &mut buffer)?;
            if used == 0 {
                break;
            }
            host_side::parse_entries(&buffer[..used], &mut names);
        }
        names.sort();
        Ok(Outcome::Names(names))
    }

    fn content(&self, actor: usize, at: At, path: &[u8]) -> Result<Outcome, Failure> {
        let session = &self.sessions[actor];
        let handle = session.open(at, path, libc::O_RDONLY, 0)?;
        let content = host_side::pieces(
            || Ok(session.stat_handle(handle)?.size),
            |buffer, at| session.read(handle, buffer, Some(at)),
        );
        session.close(handle);
        Ok(Outcome::Bytes(content?))
    }

    fn attempt(&mut self, actor: usize, operation: &Operation) -> Result<Outcome, Failure> {
        let session = &self.sessions[actor];
        let handle = |slot: usize| self.handle(actor, slot);
        let at = |place: &Place| self.at(actor, place);
        let of = |subject| self.subject(actor, subject);
        match operation {
            Operation::Open {
                slot,
                place,
                flags,
                mode,
            } => {
                let opened = session.open(at(place)?, &place.path, *flags, *mode)?;
                self.slots[actor][*slot] = Some(opened);
            }
            Operation::Close { slot } => {
                handle(*slot)?;
                self.close(actor, *slot);
            }
            Operation::Duplicate { from, to } => {
                let handle = handle(*from)?;
                session.retain(handle).expect("it is open");
                self.close(actor, *to);
                self.slots[actor][*to] = Some(handle);
            }
            Operation::Read {
                slot,
                length,
                position,
            } => {
                let mut buffer = vec![0xaa; *length];
                let read = session.read(handle(*slot)?, &mut buffer, *position)?;
                buffer.truncate(read);
                return Ok(Outcome::Bytes(buffer));
            }
            Operation::Write {
                slot,
                length,
                position,
                seed,
            } => {
                let data = Random::new(*seed).bytes(*length);
                let written = session.write(handle(*slot)?, &data, *position)?;
                return Ok(Outcome::Number(written as u64));
            }
            Operation::Seek {
                slot,
                offset,
                whence,
            } => {
                let handle = handle(*slot)?;
                let before = session.seek(handle, 0, libc::SEEK_CUR)?;
                let sought = session.seek(handle, *offset, *whence)?;
                if operation.is_about_holes() {
                    session.seek(handle, before as i64, libc::SEEK_SET)?;
                }
                return Ok(Outcome::Number(sought));
            }
            Operation::TruncateHandle { slot, size } => {
                session.truncate_handle(handle(*slot)?, *size)?;
            }
            Operation::Truncate { place, size } => {
                session.truncate(at(place)?, &place.path, *size)?;
            }
            Operation::Allocate {
                slot,
                offset,
                length,
            } => session.allocate(handle(*slot)?, 0, *offset, *length)?,
            Operation::StatHandle { slot } => {
                return Ok(Outcome::Stat(view(session.stat_handle(handle(*slot)?)?)));
            }
            Operation::Stat { place, flags } => {
                return Ok(Outcome::Stat(view(session.stat(
                    at(place)?,
                    &place.path,
                    *flags,
                )?)));
            }
            Operation::Access { place, mode } => {
                session.access(at(place)?, &place.path, *mode as i32, 0)?;
            }
            Operation::ChangeMode { place, mode } => {
                session.change_mode(at(place)?, &place.path, *mode, 0)?;
            }
            Operation::ChangeModeHandle { slot, mode } => {
                session.change_mode_handle(handle(*slot)?, *mode)?;
            }
            Operation::ChangeOwner {
                place,
                uid,
                gid,
                flags,
            } => session.change_owner(at(place)?, &place.path, *uid, *gid, *flags)?,
            Operation::SetTimes {
                place,
                accessed,
                modified,
                flags,
            } => {
                let at = at(place)?;
                session.set_times(at, &place.path, time(*accessed), time(*modified), *flags)?;
                let mut stat = session.stat(at, &place.path, *flags)?;
                if matches!(accessed, None | Some(None)) || place.path.contains(&b'/') {
                    // Walking through a link may change its time.
                    stat.accessed.seconds = i64::MAX;
                }
                return Ok(Outcome::Stat(with_accessed(stat)));
            }
            Operation::SetTimesHandle {
                slot,
                accessed,
                modified,
            } => {
                let handle = handle(*slot)?;
                session.set_times_handle(handle, time(*accessed), time(*modified))?;
            }
            Operation::MakeDirectory { place, mode } => {
                session.make_directory(at(place)?, &place.path, *mode)?;
            }
            Operation::MakeNode { place, mode } => {
                session.make_node(at(place)?, &place.path, *mode, 0)?;
            }
            Operation::SetExtended {
                subject,
                name,
                length,
                flags,
                seed,
            } => {
                let value = Random::new(*seed).bytes(*length);
                session.set_extended(of(subject)?, name, &value, *flags)?;
            }
            Operation::GetExtended {
                subject,
                name,
                buffer,
            } => {
                let mut value = vec![0; *buffer];
                let length = session.get_extended(of(subject)?, name, &mut value)?;
                return Ok(host_side::attribute(length, value));
            }
            Operation::ListExtended { subject, buffer } => {
                let mut names = vec![0; *buffer];
                let length = session.list_extended(of(subject)?, &mut names)?;
                return Ok(host_side::attributes(length, names));
            }
            Operation::RemoveExtended { subject, name } => {
                session.remove_extended(of(subject)?, name)?;
            }
            Operation::Unlink { place } => session.unlink(at(place)?, &place.path, 0)?,
            Operation::RemoveDirectory { place } => {
                session.unlink(at(place)?, &place.path, libc::AT_REMOVEDIR)?;
            }
            Operation::Rename { from, to, flags } => {
                session.rename(at(from)?, &from.path, at(to)?, &to.path, *flags)?;
            }
            Operation::Link { from, to, flags } => {
                session.link(at(from)?, &from.path, at(to)?, &to.path, *flags)?;
            }
            Operation::Symlink { target, place } => {
                session.symlink(target, at(place)?, &place.path)?;
            }
            Operation::ReadLink { place, length } => {
                let mut buffer = vec![0; *length];
                let read = session.read_link(at(place)?, &place.path, &mut buffer)?;
                buffer.truncate(read);
                return Ok(Outcome::Bytes(buffer));
            }
            Operation::List { place, buffer } => {
                let flags = libc::O_RDONLY | libc::O_DIRECTORY;
                let handle = session.open(at(place)?, &place.path, flags, 0)?;
                let listed = self.list(actor, handle, *buffer);
                session.close(handle);
                return listed;
            }
            Operation::ListHandle { slot, buffer } => {
                let handle = handle(*slot)?;
                let before = session.seek(handle, 0, libc::SEEK_CUR)?;
                session.seek(handle, 0, libc::SEEK_SET)?;
                let listed = self.list(actor, handle, *buffer);
                // Where a listing ends is each file system's own matter.
                let after = if listed.is_ok() { 0 } else { before as i64 };
                session.seek(handle, after, libc::SEEK_SET)?;
                return listed;
            }
            Operation::Flags { slot } => {
                let flags = session.flags(handle(*slot)?)? & !host_side::LARGE_FILE;
                return Ok(Outcome::Number(flags as u64));
            }
            Operation::SetFlags { slot, flags } => session.set_flags(handle(*slot)?, *flags)?,
            Operation::PathOf { slot } => {
                let handle = handle(*slot)?;
                if session.stat_handle(handle)?.mode & libc::S_IFMT == libc::S_IFDIR {
                    let mut path = session.path_of(handle)?;
                    path.drain(..crate::MOUNT.len());
                    return Ok(Outcome::Bytes(path));
                }
            }
            Operation::Sync { slot } => session.sync(handle(*slot)?)?,
            Operation::Content { place } => {
                return self.content(actor, at(place)?, &place.path);
            }
            Operation::Fold { release } => session.fold(*release)?,
            Operation::Compare | Operation::Restart | Operation::Kill => {}
        }
        Ok(Outcome::Done)
    }
}

impl Side for ArckSide {
    fn stamps(&mut self, actor: usize, subject: &Subject) -> Option<[i64; 2]> {
        let session = &self.sessions[actor];
        let stat = match subject {
            Subject::Slot(slot) => session.stat_handle(self.handle(actor, *slot).ok()?).ok()?,
            Subject::Place(place, flags) => {
                let at = self.at(actor, place).ok()?;
                session.stat(at, &place.path, *flags).ok()?
            }
        };
        let time = |time: Timestamp| time.seconds * 1_000_000_000 + i64::from(time.nanoseconds);
        Some([time(stat.modified), time(stat.changed)])
    }

    fn apply(&mut self, actor: usize, operation: &Operation) -> Outcome {
        match self.attempt(actor, operation) {
            Ok(outcome) => outcome,
            Err(Failure::Errno(errno)) => Outcome::Error(errno),
            Err(Failure::Outside(_)) => Outcome::Outside,
        }
    }

    fn close(&mut self, actor: usize, slot: usize) {
        if let Some(handle) = self.slots[actor][slot].take() {
            self.sessions[actor].close(handle);
        }
    }
}

fn time(choice: TimeChoice) -> SetTime {
    match choice {
        None => SetTime::Omit,
        Some(None) => SetTime::Now,
        Some(Some((seconds, nanoseconds))) => SetTime::At(Timestamp {
            seconds,
            nanoseconds,
        }),
    }
}

fn view(stat: Attributes) -> View {
    View {
        mode: stat.mode,
        links: u64::from(stat.links),
        uid: stat.uid,
        gid: stat.gid,
        size: (stat.mode & libc::S_IFMT != libc::S_IFDIR).then_some(stat.size),
        modified: set_time(stat.modified.seconds, stat.modified.nanoseconds),
        accessed: None,
    }
}

fn with_accessed(stat: Attributes) -> View {
    View {
        accessed: set_time(stat.accessed.seconds, stat.accessed.nanoseconds),
        ..view(stat)
    }
}
