//! Opening what paths lead to, and making it.
//!
//! # Invariant
//! * What is given is listed as open, by the rights that its path showed in the same attempt; what fails later is not listed any more.

use super::*;
use crate::names::by_message::{Changed, Sent};

/// O_TMPFILE without O_DIRECTORY, which is part of it.
const NAMELESS: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;
/// What was there before it was opened.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Before {
    Absent,
    There,
    /// It is (O_TRUNC).
    ToBeCut,
}

/// What an attempt to open has listed, or the pipe that is to be opened where its ends meet.
type Found = Result<(Listed, Before), (InodeNumber, u32)>;

impl FileSystem {
    /// `flags` are `O_*` as given by the program; `mode` is already masked by the umask.
    pub fn open(&self, at: At, path: &[u8], flags: i32, mode: u32) -> Result<Handle, Failure> {
        self.open_within(at, path, flags, mode, 0)
    }

    /// The same with `RESOLVE_*` flags, as openat2: EXDEV, ELOOP.
    pub fn open_within(
        &self,
        at: At,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Result<Handle, Failure> {
        match self.open_any(at, path, flags, mode, resolve)? {
            Opening::File(handle) => Ok(handle),
            Opening::Pipe(_) => Err(Errno::NXIO.into()),
        }
    }

    /// The same, also of a named pipe, which is not open then: it is to be opened where its ends meet
    /// ([`open_pipe`](Self::open_pipe)).
    pub fn open_any(
        &self,
        at: At,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Result<Opening, Failure> {
        if flags & NAMELESS != 0 && flags & libc::O_PATH == 0 {
            let opened = self.open_nameless(at, path, flags, mode, resolve);
            return opened.map(Opening::File);
        }
        // O_SYNC has O_DSYNC in it.
        let flags = match flags & libc::O_SYNC & !libc::O_DSYNC {
            0 => flags,
            _ => flags | libc::O_DSYNC,
        };
        let create = flags & libc::O_CREAT != 0 && flags & libc::O_PATH == 0;
        let exclusive = create && flags & libc::O_EXCL != 0;
        let follow = flags & libc::O_NOFOLLOW == 0 && !exclusive;
        if create && flags & libc::O_DIRECTORY != 0 {
            return Err(Errno::INVAL.into());
        }
        if create || flags & libc::O_TRUNC != 0 {
            self.engine.expect_description()?;
        }
        let start = Start {
            creating: create,
            resolve,
            ..self.start_of(at, path)?
        };
        let is_itself = path.is_empty() && matches!(at, At::Inode(..));
        let cuts = flags & libc::O_TRUNC != 0 && flags & libc::O_PATH == 0;
        let was = |inode: &CachedInode| match cuts && inode.kind() == Some(FileKind::File) {
            true => Before::ToBeCut,
            false => Before::There,
        };
        let attempt = || {
            self.engine.run(|context| {
                if is_itself {
                    let inode = context.view(start.directory.0, start.directory.1)?;
                    context.may_open(inode, flags)?;
                    let listed = context.list_open_as_seen(inode)?;
                    return Ok(Changed::Here(Ok((listed, was(inode)))));
                }
                let placed = context.walk(start, path, follow, |place| {
                    context.open_place(place, create, exclusive, mode)
                })?;
                let (inode, created) = match placed {
                    Changed::Here(placed) => placed,
                    Changed::ByMessage(sent) => return Ok(Changed::ByMessage(sent)),
                };
                if created {
                    return Ok(Changed::Here(Ok((context.listed(inode), Before::Absent))));
                }
                context.may_open(inode, flags)?;
                if inode.kind() == Some(FileKind::Pipe) && flags & libc::O_PATH == 0 {
                    return Ok(Changed::Here(Err((inode.number(), inode.generation()))));
                }
                let listed = context.list_open_as_seen(inode)?;
                Ok(Changed::Here(Ok((listed, was(inode)))))
            })
        };
        let send = |sent: &Sent| self.open_by_message(sent, mode, exclusive);
        let found = self.engine.here_or_by_message(attempt, send)?;
        let (listed, before) = match found {
            Ok(found) => found,
            Err(inode) => return Ok(Opening::Pipe(NamedPipe { inode, flags })),
        };
        let opened = self.finish_open(listed, before, flags);
        if opened.is_err() {
            self.engine.kit().unlist_open(listed)?;
        }
        Ok(Opening::File(opened?))
    }

    /// O_TMPFILE: a file without a name, of the directory that the path leads to.
    fn open_nameless(
        &self,
        at: At,
        path: &[u8],
        flags: i32,
        mode: u32,
        resolve: u64,
    ) -> Result<Handle, Failure> {
        let directory = flags & libc::O_DIRECTORY != 0;
        if !directory || flags & libc::O_CREAT != 0 || flags & ACCESS_MODE == libc::O_RDONLY {
            return Err(Errno::INVAL.into());
        }
        let start = Start {
            resolve,
            ..self.start_of(at, path)?
        };
        let creation = Creation {
            kind: FileKind::File,
            mode: mode & 0o7777,
            target: b"",
            device: 0,
            opens: true,
            owner: self.engine.credentials.owner(),
            groups: &self.engine.credentials.groups,
        };
        let listed = self.engine.run(|context| {
            let directory = context.resolve(start, path, flags & libc::O_NOFOLLOW == 0)?;
            if !directory.is_directory() {
                return Err(Errno::NOTDIR.into());
            }
            context.credentials.check(directory, 3)?;
            let linkable = flags & libc::O_EXCL == 0;
            let inode = context.create_nameless(Directory::of(directory)?, creation, linkable)?;
            Ok(context.listed(inode))
        })?;
        let opened = self.finish_open(listed, Before::Absent, flags);
        if opened.is_err() {
            self.engine.kit().unlist_open(listed)?;
        }
        Ok(opened?)
    }

    fn finish_open(&self, opened: Listed, before: Before, flags: i32) -> Result<Handle, Errno> {
        if before == Before::ToBeCut {
            // An empty one too, for its times.
            self.resize_open((opened.number, opened.generation), 0)?;
        }
        let kept = if flags & libc::O_PATH != 0 {
            flags & (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
        } else {
            let once = libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOCTTY;
            let made = if before == Before::Absent && flags & NAMELESS == 0 {
                MADE
            } else {
                0
            };
            flags & !(once | libc::O_CLOEXEC) | made
        };
        self.engine.new_description(opened, kept)
    }

    /// Has the controller make a file, and lists it as open. EAGAIN, ESTALE, EACCES, EBUSY where it is to be looked at again, and
    /// nothing was made. What was made is what is given, whatever has become of its name and of the path meanwhile.
    fn open_by_message(&self, sent: &Sent, mode: u32, exclusive: bool) -> Result<Found, Errno> {
        let engine = &self.engine;
        // It may be renamed, removed and moved to where it cannot be reached as soon as it has its name.
        let reserved = engine.run_local(|context| context.reserve_open())?;
        let creation = engine.credentials.opened_file(mode);
        let made = engine.make_by_message(sent, &creation, (reserved.place, reserved.mark));
        let opened = match made {
            Ok(made) => self.open_made(sent, creation, made),
            // Somebody else was faster.
            Err(Errno::EXIST) if !exclusive => Err(Errno::AGAIN),
            Err(errno) => Err(errno),
        };
        // It fails where the session is lost, with its table.
        let _ = engine.run_local(|context| {
            context.give_up_reserved(&reserved);
            Ok(())
        });
        opened
    }

    fn open_made(
        &self,
        sent: &Sent,
        creation: Creation<'_>,
        made: (InodeNumber, u32),
    ) -> Result<Found, Errno> {
        let engine = &self.engine;
        let by_name = engine.run_local(|context| {
            let directory = context.view(sent.directory.0, sent.directory.1)?;
            let made = context.is_made(Directory::of(directory)?, &sent.name, made)?;
            made.map(|made| context.list_open_as_seen(made)).transpose()
        });
        let by_number = || {
            engine.run_local(|context| {
                let inode = context.view(made.0, made.1)?;
                context.list_open_as_seen(inode)
            })
        };
        let listed = match by_name {
            Ok(Some(listed)) => listed,
            _ => match by_number() {
                Ok(listed) => listed,
                // Where the controller has died, nobody may have it any more: an empty file without a name is what its maker has then.
                Err(_) => engine
                    .run_local(|context| {
                        let directory = context.view(sent.directory.0, sent.directory.1)?;
                        let directory = Directory::of(directory)?;
                        let inode = context.create_nameless(directory, creation, false)?;
                        Ok(context.listed(inode))
                    })
                    // It is not attempted again: something was made.
                    .map_err(|_| Errno::IO)?,
            },
        };
        Ok(Ok((listed, Before::Absent)))
    }
}
