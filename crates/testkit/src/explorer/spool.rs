//! What is done with a spool in a workload, and what its replay makes of a tree.
//!
//! # Invariant
//! What is queued and not done lies within its file's length, so that the file is as long as the model says, replayed or not.

use super::tree::{Content, Node, Tree};
use arck_core_state::PAGE_SIZE;
use arck_queues::{Closing, FileIdentity, QueueOptions, Queues, Request, Spool, Target};
use arckfs::{At, Errno, FileSystem, Handle};
use std::num::NonZeroUsize;
use std::sync::{Arc, Condvar, Mutex};

/// Where the spool is.
pub const SPOOL: &str = "spool";
/// The bytes of its ring.
pub const SIZE: u64 = Spool::SIZE_MIN;
/// What stands before the ring.
pub const HEAD: u64 = PAGE_SIZE;

/// A file that a session has open.
struct OnSession {
    session: *const FileSystem,
    handle: Handle,
    identity: FileIdentity,
}

// SAFETY: the session may be used by all threads, and is there as long as the operation that uses it: what outlives that are
// threads that never come to use it (`Gated`).
unsafe impl Send for OnSession {}
// SAFETY: as above.
unsafe impl Sync for OnSession {}

impl OnSession {
    fn open(session: &FileSystem, path: &str) -> OnSession {
        let handle = session
            .open(At::Root, path.as_bytes(), libc::O_RDWR, 0)
            .unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
        let identity = session.identity(handle).expect("an identity");
        OnSession {
            session,
            handle,
            identity: FileIdentity::in_pool([1, 0], identity),
        }
    }

    fn session(&self) -> &FileSystem {
        // SAFETY: there as long as this is used, as said above.
        unsafe { &*self.session }
    }
}

impl Target for OnSession {
    fn identity(&self) -> FileIdentity {
        self.identity
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(self.session().stat_handle(self.handle)?.size)
    }
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        self.session().read(self.handle, buffer, Some(position))
    }
    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        self.session().write(self.handle, bytes, Some(position))
    }
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.session().append(self.handle, bytes)
    }
    fn sync(&self, _: bool) -> Result<(), Errno> {
        self.session().sync(self.handle)
    }
    fn is_durable(&self) -> bool {
        true
    }
}

/// A file of which nothing is ever done: who comes to do it waits for ever, as if the program had been killed before.
struct Gated(FileIdentity, u64);

fn for_ever() -> ! {
    let (mutex, bell) = (Mutex::new(()), Condvar::new());
    let mut locked = mutex.lock().expect("nobody else's");
    loop {
        locked = bell.wait(locked).expect("nobody else's");
    }
}

impl Target for Gated {
    fn identity(&self) -> FileIdentity {
        self.0
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(self.1)
    }
    fn read(&self, _: &mut [u8], _: u64) -> Result<usize, Errno> {
        for_ever()
    }
    fn write(&self, _: &[u8], _: u64) -> Result<usize, Errno> {
        for_ever()
    }
    fn append(&self, _: &[u8]) -> Result<(usize, u64), Errno> {
        for_ever()
    }
    fn sync(&self, _: bool) -> Result<(), Errno> {
        for_ever()
    }
}

/// Makes the file a spool.
pub fn make(session: &FileSystem) {
    let file = Arc::new(OnSession::open(session, SPOOL));
    drop(Spool::make(file, SIZE).expect("a spool"));
}

/// Opens the spool, and does what is left there.
fn open(session: &FileSystem) -> Arc<Spool> {
    let file = Arc::new(OnSession::open(session, SPOOL));
    let spool = Spool::open(file).expect("the spool");
    let replayed = spool.replay(|left| {
        let path = std::str::from_utf8(&left.name).expect("a path");
        Ok(Some(Arc::new(OnSession::open(session, path))))
    });
    replayed.expect("the replay");
    Arc::new(spool)
}

/// Does what was queued and not done.
pub fn replay(session: &FileSystem) {
    drop(open(session));
}

/// Queues a write, and goes no further.
pub fn queue(session: &FileSystem, path: &str, position: u64, bytes: Vec<u8>) {
    let spool = open(session);
    let file = OnSession::open(session, path);
    let size = file.size().expect("a size");
    assert!(position + bytes.len() as u64 <= size, "within the file");
    let queues = Queues::with_workers(NonZeroUsize::MIN);
    let gated = Arc::new(Gated(file.identity, size));
    let queue = queues
        .open_spooled(gated, QueueOptions::default(), &spool, path.as_bytes())
        .expect("a queue");
    queue
        .submit(Request::write(position, bytes))
        .expect("taken");
    // Dropping them would wait for what is never done.
    std::mem::forget((queue, queues));
}

/// Queues a write, or an append, and waits until it is done.
pub fn done(session: &FileSystem, path: &str, position: Option<u64>, bytes: Vec<u8>) {
    let spool = open(session);
    let file = Arc::new(OnSession::open(session, path));
    let queues = Queues::with_workers(NonZeroUsize::MIN);
    let queue = queues
        .open_spooled(file, QueueOptions::default(), &spool, path.as_bytes())
        .expect("a queue");
    let length = bytes.len();
    let request = match position {
        Some(position) => Request::write(position, bytes),
        None => Request::append(bytes),
    };
    queue.submit(request).expect("taken");
    assert_eq!(queue.wait(1, None)[0].result, Ok(length));
    queue.close(Closing::Finish);
}

/// A file of a tree, as bytes.
struct InTree(Mutex<Vec<u8>>, u64);

impl InTree {
    fn of(node: &Node, number: u64) -> InTree {
        let mut bytes = vec![0; node.size as usize];
        for (&page, content) in &node.content {
            let begin = ((page * PAGE_SIZE) as usize).min(bytes.len());
            let length = content.len().min(bytes.len() - begin);
            bytes[begin..begin + length].copy_from_slice(&content[..length]);
        }
        InTree(Mutex::new(bytes), number)
    }

    fn bytes(&self) -> std::sync::MutexGuard<'_, Vec<u8>> {
        self.0.lock().expect("nobody panics with it")
    }
}

impl Target for InTree {
    fn identity(&self) -> FileIdentity {
        FileIdentity {
            device: 0,
            inode: self.1,
        }
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(self.bytes().len() as u64)
    }
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        let bytes = self.bytes();
        let rest = &bytes[bytes.len().min(position as usize)..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
    fn write(&self, new: &[u8], position: u64) -> Result<usize, Errno> {
        let mut bytes = self.bytes();
        let begin = position as usize;
        let length = bytes.len().max(begin + new.len());
        bytes.resize(length, 0);
        bytes[begin..begin + new.len()].copy_from_slice(new);
        Ok(new.len())
    }
    fn append(&self, new: &[u8]) -> Result<(usize, u64), Errno> {
        let mut bytes = self.bytes();
        bytes.extend_from_slice(new);
        Ok((new.len(), bytes.len() as u64))
    }
    fn sync(&self, _: bool) -> Result<(), Errno> {
        Ok(())
    }
    fn is_durable(&self) -> bool {
        true
    }
}

/// A tree after a replay of its spool, if it has one.
pub fn replayed(mut tree: Tree) -> Result<Tree, String> {
    let Some(number) = tree.paths.get(SPOOL).copied() else {
        return Ok(tree);
    };
    let file = Arc::new(InTree::of(&tree.nodes[&number], u64::from(number)));
    let spool = match Spool::open(file) {
        Ok(spool) => spool,
        // One that is being made. What it had would be missing.
        Err(Errno::BADMSG) => return Ok(tree),
        Err(errno) => return Err(format!("the spool: {errno}")),
    };
    let mut files: Vec<(u32, Arc<InTree>)> = Vec::new();
    let told = spool.replay(|left| {
        let path = String::from_utf8_lossy(&left.name).into_owned();
        let number = *tree.paths.get(&path).ok_or(Errno::NOENT)?;
        let known = files.iter().find(|(other, _)| *other == number);
        let file = match known {
            Some((_, file)) => Arc::clone(file),
            None => {
                let file = Arc::new(InTree::of(&tree.nodes[&number], u64::from(number)));
                files.push((number, Arc::clone(&file)));
                file
            }
        };
        Ok(Some(file))
    });
    told.map_err(|errno| format!("replay: {errno}"))?;
    for (number, file) in files {
        let bytes = file.bytes();
        let node = tree.nodes.get_mut(&number).ok_or("no node")?;
        node.size = bytes.len() as u64;
        node.content = content(&bytes);
    }
    Ok(tree)
}

/// The pages of a file's bytes.
fn content(bytes: &[u8]) -> Content {
    let pages = (0..).zip(bytes.chunks(PAGE_SIZE as usize));
    let filled = pages.filter(|(_, page)| page.iter().any(|&byte| byte != 0));
    let whole = filled.map(|(number, page)| {
        let mut page = page.to_vec();
        page.resize(PAGE_SIZE as usize, 0);
        (number, page)
    });
    whole.collect()
}
