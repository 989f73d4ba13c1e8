//! What the kernel asks for, request by request.
//!
//! Invariant: the kernel is told what was done, and nothing that it could be wrong about a moment later.

use super::{BELIEVED, Requests, number, told};
use crate::attributes::{self, Changes};
use crate::data;
use crate::flags;
use crate::locks::Range;
use crate::names::{self, Made};
use crate::nodes::{self, Node};
use arckfs::FileSystem;
use fuser::{
    BsdFileFlags, CopyFileRangeFlags, FileHandle, Filesystem, FopenFlags, INodeNo, InitFlags,
    IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::SystemTime;

/// Requests that the kernel sends without waiting for their answers, at most.
const IN_BACKGROUND: u16 = 64;

impl Filesystem for Requests {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let _ = config.set_max_write(data::REQUEST_MAX as u32);
        let _ = config.set_max_readahead(data::REQUEST_MAX as u32);
        let _ = config.set_max_background(IN_BACKGROUND);
        for wish in [
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_ATOMIC_O_TRUNC,
            InitFlags::FUSE_AUTO_INVAL_DATA,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            // No inode has another target later.
            InitFlags::FUSE_CACHE_SYMLINKS,
            // ArckFS takes set-id bits away where its user does not keep them; where whoever writes is another one than
            // whoever opened the file, the kernel says so.
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
        ] {
            // Where the kernel has it not, it is slower.
            let _ = config.add_capabilities(wish);
        }
        // What is read and written comes from the pool, and goes there, each time; maps go through the kernel's cache.
        if config
            .add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP)
            .is_ok()
        {
            self.opened = FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES;
        }
        Ok(())
    }

    fn lookup(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.serve(request, |fs| {
            let found = names::look_up(fs, Node::of(parent), name.as_bytes())?;
            Ok((found, self.lives.of(&found)))
        });
        Self::answer_entry(reply, found);
    }

    fn forget(&self, _request: &Request, _number: INodeNo, _lookups: u64) {}

    fn getattr(
        &self,
        request: &Request,
        number: INodeNo,
        open: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        match self.attributes(request, Node::of(number), open) {
            Ok(found) => reply.attr(&BELIEVED, &nodes::attributes(&found)),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn setattr(
        &self,
        request: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _changed: Option<SystemTime>,
        open: Option<FileHandle>,
        _created: Option<SystemTime>,
        _flags_changed: Option<SystemTime>,
        _saved: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let node = Node::of(number);
        let changes = Changes {
            mode,
            uid,
            gid,
            size,
            accessed,
            modified,
        };
        let changed = self.session(request).and_then(|session| {
            let open = open.and_then(|number| self.open.get(number).ok());
            let held = || self.open.any_of(node, Some(&session));
            attributes::change(&session, node, open.as_deref(), held, &changes)
        });
        match changed.and_then(|()| self.attributes(request, node, open)) {
            Ok(found) => reply.attr(&BELIEVED, &nodes::attributes(&found)),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn readlink(&self, request: &Request, number: INodeNo, reply: ReplyData) {
        match self.serve(request, |fs| names::read_link(fs, Node::of(number))) {
            Ok(target) => reply.data(&target),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        Self::answer_entry(
            reply,
            self.make(request, parent, name, Made::Node(mode, device)),
        );
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        Self::answer_entry(
            reply,
            self.make(request, parent, name, Made::Directory(mode)),
        );
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = Made::Link(target.as_os_str().as_bytes());
        Self::answer_entry(reply, self.make(request, parent, name, made));
    }

    fn link(
        &self,
        request: &Request,
        number: INodeNo,
        parent: INodeNo,
        name: &OsStr,
        reply: ReplyEntry,
    ) {
        let made = Made::Another(Node::of(number));
        Self::answer_entry(reply, self.make(request, parent, name, made));
    }

    fn unlink(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::answer(reply, self.remove(request, parent, name, false));
    }

    fn rmdir(&self, request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        Self::answer(reply, self.remove(request, parent, name, true));
    }

    fn rename(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (Node::of(parent), name.as_bytes());
        let to = (Node::of(new_parent), new_name.as_bytes());
        let done = self.serve(request, |fs| {
            let rename = || names::rename(fs, from, to, flags.bits());
            match names::look_up(fs, to.0, to.1) {
                // It takes the place of another, which loses that name.
                Ok(found) if flags.is_empty() => self.lives.end(Node::from(&found), || {
                    rename()?;
                    Ok(names::was_last(fs, &found))
                }),
                _ => rename(),
            }
        });
        Self::answer(reply, done);
    }

    fn open(&self, request: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let node = Node::of(number);
        let opened = self.session(request).and_then(|session| {
            let handle = data::open(&*session.enter()?, node, flags.0)?;
            Ok(self.open.add(session, handle, node))
        });
        match opened {
            Ok(number) => reply.opened(number, self.opened),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let created = self.session(request).and_then(|session| {
            let fs = session.enter()?;
            let handle = data::create(&fs, Node::of(parent), name.as_bytes(), flags, mode)?;
            match fs.stat_handle(handle) {
                Ok(found) => {
                    let node = Node::from(&found);
                    Ok((self.open.add(session.clone(), handle, node), found))
                }
                Err(errno) => {
                    fs.close(handle);
                    Err(errno)
                }
            }
        });
        match created {
            Ok((number, found)) => reply.created(
                &BELIEVED,
                &nodes::attributes(&found),
                self.lives.of(&found),
                number,
                self.opened,
            ),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn read(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        match self.open.get(open) {
            Ok(open) => data::read(&open, offset, size as usize, |read| match read {
                Ok(bytes) => reply.data(bytes),
                Err(errno) => reply.error(told(errno)),
            }),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn write(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        offset: u64,
        bytes: &[u8],
        of: WriteFlags,
        flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // What comes from a map lies where it was mapped.
        let append = flags.0 & libc::O_APPEND != 0 && !of.contains(WriteFlags::FUSE_WRITE_CACHE);
        let written = self.by_open(open, |fs, handle| {
            if of.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID) {
                attributes::take_set_id(fs, handle)?;
            }
            fs.write_as(handle, bytes, Some(offset), Some(append))
        });
        match written {
            Ok(length) => reply.written(length as u32),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn flush(
        &self,
        _request: &Request,
        number: INodeNo,
        _open: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Everything else is done that was asked for.
        self.locks.closed(Node::of(number), owner.0);
        reply.ok();
    }

    fn getlk(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        process: u32,
        reply: ReplyLock,
    ) {
        let range = Range {
            start,
            last,
            kind,
            process,
        };
        let found = self.open.get(open);
        match found.and_then(|of| self.locks.get(&of, open.0, owner.0, range)) {
            Ok(found) => reply.locked(found.start, found.last, found.kind, found.process),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn setlk(
        &self,
        request: &Request,
        _number: INodeNo,
        open: FileHandle,
        owner: LockOwner,
        start: u64,
        last: u64,
        kind: i32,
        process: u32,
        waits: bool,
        reply: ReplyEmpty,
    ) {
        let range = Range {
            start,
            last,
            kind,
            process,
        };
        match self.open.get(open) {
            Ok(of) if waits => {
                let then = |done| Self::answer(reply, done);
                let thread = request.pid();
                self.locks
                    .set_waiting(&of, open.0, owner.0, range, thread, then);
            }
            Ok(of) => Self::answer(reply, self.locks.set(&of, open.0, owner.0, range)),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn release(
        &self,
        _request: &Request,
        number: INodeNo,
        open: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.locks.released(Node::of(number), open.0);
        self.open.remove(open);
        reply.ok();
    }

    fn fsync(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        Self::answer(reply, self.by_open(open, |fs, handle| fs.sync(handle)));
    }

    fn opendir(&self, request: &Request, number: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        let node = Node::of(number);
        let opened = self.session(request).and_then(|session| {
            let flags = libc::O_RDONLY | libc::O_DIRECTORY;
            let handle = data::open(&*session.enter()?, node, flags)?;
            Ok(self.open.add(session, handle, node))
        });
        match opened {
            Ok(number) => reply.opened(number, FopenFlags::empty()),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        position: u64,
        mut reply: ReplyDirectory,
    ) {
        let added = self.listing(open, position).and_then(|listing| {
            self.by_open(open, |fs, _| {
                for (next, entry, name) in listing.from(position) {
                    let of = number(fs, entry.number);
                    if reply.add(of, next, entry.kind, OsStr::from_bytes(name)) {
                        break;
                    }
                }
                Ok(())
            })
        });
        match added {
            Ok(()) => reply.ok(),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.open.remove(open);
        reply.ok();
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        _only_data: bool,
        reply: ReplyEmpty,
    ) {
        Self::answer(reply, self.by_open(open, |fs, handle| fs.sync(handle)));
    }

    fn statfs(&self, request: &Request, _number: INodeNo, reply: ReplyStatfs) {
        match self.serve(request, FileSystem::statistics) {
            Ok(told) => reply.statfs(
                told.pages,
                told.pages_free,
                told.pages_free,
                told.inodes,
                told.inodes_free,
                4096,
                told.name_max,
                4096,
            ),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn setxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        let node = Node::of(number);
        let set =
            |fs: &FileSystem| attributes::set_extended(fs, node, name.as_bytes(), value, flags);
        Self::answer(reply, self.serve(request, set));
    }

    fn getxattr(
        &self,
        request: &Request,
        number: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        let node = Node::of(number);
        let get = |fs: &FileSystem| attributes::extended(fs, node, name.as_bytes(), size as usize);
        Self::answer_extended(reply, size, self.serve(request, get));
    }

    fn listxattr(&self, request: &Request, number: INodeNo, size: u32, reply: ReplyXattr) {
        let node = Node::of(number);
        let list = |fs: &FileSystem| attributes::extended_names(fs, node, size as usize);
        Self::answer_extended(reply, size, self.serve(request, list));
    }

    fn removexattr(&self, request: &Request, number: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let node = Node::of(number);
        let remove = |fs: &FileSystem| attributes::remove_extended(fs, node, name.as_bytes());
        Self::answer(reply, self.serve(request, remove));
    }

    fn ioctl(
        &self,
        _request: &Request,
        _number: INodeNo,
        _open: FileHandle,
        _flags: IoctlFlags,
        command: u32,
        given: &[u8],
        _size: u32,
        reply: ReplyIoctl,
    ) {
        match flags::answer(command, given) {
            Ok(answer) => reply.ioctl(0, answer),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn fallocate(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let allocated = self.by_open(open, |fs, handle| fs.allocate(handle, mode, offset, length));
        Self::answer(reply, allocated);
    }

    fn lseek(
        &self,
        _request: &Request,
        _number: INodeNo,
        open: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.by_open(open, |fs, handle| fs.seek(handle, offset, whence)) {
            Ok(found) => reply.offset(found.cast_signed()),
            Err(errno) => reply.error(told(errno)),
        }
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _number: INodeNo,
        from: FileHandle,
        offset: u64,
        _to_number: INodeNo,
        to: FileHandle,
        to_offset: u64,
        length: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // What is told is 32 bits long.
        let length = length.min(1 << 30);
        let copied = self.open.get(from).and_then(|from| {
            let to = self.open.get(to)?;
            data::copy(&from, offset, &to, to_offset, length)
        });
        match copied {
            Ok(copied) => reply.written(copied as u32),
            Err(errno) => reply.error(told(errno)),
        }
    }
}
