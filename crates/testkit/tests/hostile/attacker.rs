//! What attacks are made of: a raw session of a process of its own, which stores what it likes
//! where it may, and asks what it likes.

use super::process::{become_user, tell, told};
use super::raw::{Client, ROOT};
use super::table::Attack;
use arck_core_state::branch::StoredBranch;
use arck_core_state::directory::Dentry;
use arck_core_state::record::{Record, RecordRef, effect};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr, index};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::{ControlMemory, InodeList, Request, Response};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};

/// A session that means harm, in a process of its own.
pub struct Attacker {
    client: Client,
    pub pool: PathBuf,
    /// What it says to each line that it is told once the attack is made.
    pub when_asked: Option<Box<dyn FnMut() -> String + Send>>,
}

impl Deref for Attacker {
    type Target = Client;
    fn deref(&self) -> &Client {
        &self.client
    }
}

impl DerefMut for Attacker {
    fn deref_mut(&mut self) -> &mut Client {
        &mut self.client
    }
}

/// The role: makes an attack, says what stopped it, and stays until it is told to go.
pub fn attacker(pool: &Path, attack: &Attack) {
    if attack.needs_privilege {
        super::endless::prepare();
        super::unanswered::prepare();
    }
    become_user();
    let mut attacker = Attacker::connect(pool);
    let stopped = (attack.run)(&mut attacker);
    attacker.stays(&stopped);
}

/// What a response says, short.
pub fn said(response: &Response) -> String {
    match response {
        Response::Done => "accepted".into(),
        Response::Error(errno) => errno_name(*errno),
        Response::Violation(text) => text.split(" broken").next().unwrap_or(text).to_owned(),
        other => format!("{other:?}"),
    }
}

/// What all of them say, if it is the same.
pub fn all_the_same(said: Vec<String>) -> String {
    match said.iter().all(|one| *one == said[0]) {
        true => said[0].clone(),
        false => format!("{said:?}"),
    }
}

/// Asks to move a name to another directory.
pub fn move_request(from: InodeNumber, name: &[u8], to: InodeNumber) -> Request {
    Request::MoveDirectory {
        from,
        from_name: name.to_vec(),
        to,
        to_name: name.to_vec(),
        flags: 0,
    }
}

/// The name of an error that stops attacks.
pub fn errno_name(errno: i32) -> String {
    for (number, name) in [
        (libc::EACCES, "EACCES"),
        (libc::EPERM, "EPERM"),
        (libc::EINVAL, "EINVAL"),
        (libc::ESTALE, "ESTALE"),
        (libc::ENOENT, "ENOENT"),
        (libc::ENOSPC, "ENOSPC"),
        (libc::ENOBUFS, "ENOBUFS"),
        (libc::ENAMETOOLONG, "ENAMETOOLONG"),
        (libc::ENOTEMPTY, "ENOTEMPTY"),
        (libc::EAGAIN, "EAGAIN"),
        (libc::EPROTO, "EPROTO"),
        (libc::ENOLCK, "ENOLCK"),
        (libc::EBADF, "EBADF"),
        (libc::EBUSY, "EBUSY"),
        (libc::ENFILE, "ENFILE"),
        (libc::EADDRINUSE, "EADDRINUSE"),
        (libc::ECONNREFUSED, "ECONNREFUSED"),
        (libc::EIO, "EIO"),
        (libc::EISDIR, "EISDIR"),
        (libc::ENOTDIR, "ENOTDIR"),
        (libc::EEXIST, "EEXIST"),
        (libc::EFBIG, "EFBIG"),
        (libc::ENODATA, "ENODATA"),
        (libc::E2BIG, "E2BIG"),
    ] {
        if errno == number {
            return name.into();
        }
    }
    format!("errno {errno}")
}

impl Attacker {
    pub fn connect(pool: &Path) -> Attacker {
        Attacker::of(Client::connect(pool), pool)
    }

    pub fn of(client: Client, pool: &Path) -> Attacker {
        Attacker {
            client,
            pool: pool.to_path_buf(),
            when_asked: None,
        }
    }

    /// Says what stopped it, and stays until it is told to go.
    pub fn stays(mut self, stopped: &str) {
        tell(stopped);
        while told().is_some() {
            if let Some(look) = &mut self.when_asked {
                tell(&look());
            }
        }
    }

    /// Ends the session, as one that has done with it.
    pub fn end(self) {
        self.client.goodbye();
    }

    /// The verified inode at a path.
    pub fn find(&self, path: &str) -> InodeNumber {
        path.split('/').fold(ROOT, |directory, name| {
            let found = self.verified(directory, name.as_bytes());
            found.unwrap_or_else(|| panic!("no {path}")).inode
        })
    }

    /// The same, acquired.
    pub fn own(&self, path: &str) -> InodeNumber {
        let number = self.find(path);
        self.acquire(&[number]);
        number
    }

    /// Where a page of a verified file lies.
    pub fn page_of(&self, number: InodeNumber, page: u64) -> PagePtr {
        let found = index::lookup(&self.client, self.inode(number).root, page);
        found.expect("a page of the file")
    }

    /// A record in a directory's delta that adds a name, changed at will.
    pub fn record_with(
        &mut self,
        directory: InodeNumber,
        (inode, kind): (InodeNumber, FileKind),
        name: &[u8],
        edit: impl FnOnce(&mut Record<'_>),
    ) -> RecordRef {
        let in_table = inode < self.welcome.geometry.inode_count;
        let generation = if in_table {
            self.header(inode).generation()
        } else {
            1
        };
        let dentry = Dentry {
            inode,
            generation,
            kind,
        };
        let mut record = self.record(dentry, name, name);
        record.state = effect::ADD;
        record.mode = 0o644;
        edit(&mut record);
        self.append(directory, &record)
    }

    /// A new file in a directory, its record changed at will; gives its number.
    pub fn creation(
        &mut self,
        directory: InodeNumber,
        edit: impl FnOnce(&mut Record<'_>),
    ) -> InodeNumber {
        let number = self.number();
        self.edit_branch(number, |branch| branch.parent = directory);
        self.record_with(directory, (number, FileKind::File), b"new", edit);
        number
    }

    /// A new file of some name in a directory; gives the place of its record.
    pub fn creation_with(
        &mut self,
        directory: InodeNumber,
        name: &[u8],
        edit: impl FnOnce(&mut Record<'_>),
    ) -> RecordRef {
        let number = self.number();
        self.edit_branch(number, |branch| branch.parent = directory);
        let file = (number, FileKind::File);
        self.record_with(directory, file, name, |record| {
            record.source = b"";
            edit(record);
        })
    }

    /// A page into a new inode, of so many bytes.
    pub fn write_size(&mut self, number: InodeNumber, page: PagePtr, size: u64) {
        self.set_entry(number, 0, page.0);
        self.edit_branch(number, |branch| branch.size = size);
    }

    /// Control memory, for another thread; the process ends before its session.
    pub fn control_again(&self) -> impl Fn() -> &'static ControlMemory + Send + 'static {
        let place = std::ptr::from_ref(self.control()) as usize;
        // SAFETY: mapped for as long as the session lives, which is as long as the process does;
        // nothing but atomics.
        move || unsafe { ControlMemory::from_pointer(place as *const u8) }
    }

    /// Another session of this process, that does something over and over.
    pub fn for_ever(&self, what: impl Fn(&Client) + Send + 'static) {
        let pool = self.pool.clone();
        std::thread::spawn(move || {
            let client = Client::connect(&pool);
            loop {
                what(&client);
            }
        });
    }

    /// The arena mapped once more, for another thread.
    pub fn arena_again(&self) -> Mapping {
        let span = arck_core_state::arena::ARENA_SPAN as usize;
        Mapping::new(&self.arena_file, 0, span, MapOptions::READ_WRITE).expect("a map")
    }

    /// Commits, and gives what was said.
    pub fn commit_of(&self, number: InodeNumber) -> String {
        said(&self.ask(&Client::commit_request(&[number], false)))
    }

    /// Changes the branch of an own inode, and commits.
    pub fn forge(&self, number: InodeNumber, edit: impl FnOnce(&mut StoredBranch)) -> String {
        self.edit_branch(number, edit);
        self.commit_of(number)
    }

    /// A creation in the attacker's own directory, changed at will and committed.
    pub fn forge_creation(&mut self, edit: impl FnOnce(&mut Record<'_>)) -> String {
        let directory = self.own("attacker");
        self.creation(directory, edit);
        self.commit_of(directory)
    }

    /// What the controller says to an acquisition.
    pub fn acquisition(&self, number: InodeNumber) -> String {
        said(&self.ask(&Request::Acquire {
            inodes: InodeList::new(&[number]).expect("a short list"),
        }))
    }

    /// Stores into a page of the arena.
    pub fn scribble(&self, page: u32, offset: u64, bytes: &[u8]) {
        self.store(u64::from(page) * PAGE_SIZE + offset, bytes);
    }

    /// A number that is neither the session's nor in use.
    pub fn free_number(&self) -> InodeNumber {
        let last = self.welcome.geometry.inode_count - 1;
        assert!(!self.is_alive(last) && self.header(last).ownership().session() == 0);
        last
    }
}
