//! What must hold of whatever was submitted: applied in the order of timestamps, what was done explains what each read has got and what
//! the file has in the end.

use crate::primitive::thread;
use crate::request::{Completion, Operation, RequestId};
use crate::target::{Begun, Direction, FileIdentity, Target, Transfer, Underway};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

pub const FILE: FileIdentity = FileIdentity {
    device: 1,
    inode: 1,
};

/// What a file in memory does to a range.
pub fn write_to(bytes: &mut Vec<u8>, new: &[u8], position: u64) {
    if new.is_empty() {
        // It does not lengthen the file.
        return;
    }
    let (begin, end) = (position as usize, position as usize + new.len());
    if end > bytes.len() {
        bytes.resize(end, 0);
    }
    bytes[begin..end].copy_from_slice(new);
}

pub fn read_from(bytes: &[u8], buffer: &mut [u8], position: u64) -> usize {
    let rest = &bytes[bytes.len().min(position as usize)..];
    let length = rest.len().min(buffer.len());
    buffer[..length].copy_from_slice(&rest[..length]);
    length
}

/// How a call of a target ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    Well,
    Fails,
    /// Half of the bytes are written.
    Short,
}

/// A file in memory, whose calls end as it is told.
pub struct InMemory {
    pub bytes: Mutex<Vec<u8>>,
    /// Called in each call, between its beginning and its end.
    pub pause: Box<dyn Fn() -> Ending + Send + Sync>,
}

impl InMemory {
    pub fn new(bytes: Vec<u8>, pause: impl Fn() -> Ending + Send + Sync + 'static) -> InMemory {
        InMemory {
            bytes: Mutex::new(bytes),
            pause: Box::new(pause),
        }
    }

    #[cfg(not(shuttle))]
    pub fn quiet(bytes: Vec<u8>) -> InMemory {
        InMemory::new(bytes, || Ending::Well)
    }
}

impl Target for InMemory {
    fn identity(&self) -> FileIdentity {
        FILE
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(self.bytes.lock().unwrap().len() as u64)
    }

    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        match (self.pause)() {
            Ending::Fails => Err(Errno::IO),
            _ => Ok(read_from(&self.bytes.lock().unwrap(), buffer, position)),
        }
    }

    fn write(&self, new: &[u8], position: u64) -> Result<usize, Errno> {
        let length = match (self.pause)() {
            Ending::Fails => return Err(Errno::NOSPC),
            Ending::Short => new.len() / 2,
            Ending::Well => new.len(),
        };
        write_to(&mut self.bytes.lock().unwrap(), &new[..length], position);
        Ok(length)
    }

    fn append(&self, new: &[u8]) -> Result<(usize, u64), Errno> {
        if (self.pause)() == Ending::Fails {
            return Err(Errno::NOSPC);
        }
        let mut bytes = self.bytes.lock().unwrap();
        bytes.extend_from_slice(new);
        Ok((new.len(), bytes.len() as u64))
    }

    fn sync(&self, _data_only: bool) -> Result<(), Errno> {
        match (self.pause)() {
            Ending::Fails => Err(Errno::IO),
            _ => Ok(()),
        }
    }
}

/// The same file by a target that does several requests at a time, each at its end, which comes after some looks.
pub struct Several {
    pub file: Arc<InMemory>,
    pub identity: FileIdentity,
    pub in_flight: usize,
    pub begun: AtomicU64,
}

struct Later {
    file: Arc<InMemory>,
    transfer: Transfer,
    looks: u64,
}

impl Underway for Later {
    fn poll(&mut self) -> Option<Result<usize, Errno>> {
        if self.looks > 0 {
            self.looks -= 1;
            return None;
        }
        let position = self.transfer.position();
        Some(match self.transfer.direction() {
            Direction::Read(buffer) => self.file.read(buffer, position),
            Direction::Write(bytes) => self.file.write(bytes, position),
        })
    }

    fn wait(&mut self) {
        thread::yield_now();
    }

    fn end(self: Box<Self>) -> Transfer {
        self.transfer
    }
}

impl Target for Several {
    fn identity(&self) -> FileIdentity {
        self.identity
    }

    fn size(&self) -> Result<u64, Errno> {
        self.file.size()
    }

    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        self.file.read(buffer, position)
    }

    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        self.file.write(bytes, position)
    }

    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        self.file.append(bytes)
    }

    fn in_flight(&self) -> usize {
        self.in_flight
    }

    fn begin(&self, mut transfer: Transfer) -> Begun {
        let number = self.begun.fetch_add(1, Ordering::SeqCst);
        // Some are done at once, and those that began later may end earlier.
        match number * 7 % 5 {
            0 => {
                let position = transfer.position();
                let done = match transfer.direction() {
                    Direction::Read(buffer) => self.read(buffer, position),
                    Direction::Write(bytes) => self.write(bytes, position),
                };
                Begun::Done(transfer, done)
            }
            looks => Begun::Underway(Box::new(Later {
                file: Arc::clone(&self.file),
                transfer,
                looks,
            })),
        }
    }

    fn sync(&self, data_only: bool) -> Result<(), Errno> {
        self.file.sync(data_only)
    }
}

/// What was submitted to a file, and what came of it.
#[derive(Default)]
pub struct History {
    pub submitted: BTreeMap<RequestId, Operation>,
    pub completed: BTreeMap<RequestId, Completion>,
}

impl History {
    pub fn complete(&mut self, completions: Vec<Completion>) -> Result<(), String> {
        for completion in completions {
            let id = completion.id;
            if self.completed.insert(id, completion).is_some() {
                return Err(format!("{id} has completed twice"));
            }
        }
        Ok(())
    }

    /// The write that a read was served from, where that came to nothing or to less.
    fn failed_source(&self, read: &Completion) -> Result<Option<&Operation>, String> {
        let Some(write) = read.served_by else {
            return Ok(None);
        };
        let operation = &self.submitted[&write];
        let Operation::Write { bytes, .. } = operation else {
            return Err(format!("{} was served from {operation:?}", read.id));
        };
        match self.completed[&write].result {
            Ok(length) if length == bytes.len() => Ok(None),
            Err(Errno::CANCELED | Errno::TIMEDOUT) => Err(format!(
                "{} was served from {write}, which was taken back",
                read.id
            )),
            _ => Ok(Some(operation)),
        }
    }

    /// Whether a later write has done what was said to be done in place of an earlier one.
    fn check_covering(&self, covered: &Completion, position: u64) -> Result<(), String> {
        let (Some(by), Ok(length)) = (covered.covered_by, covered.result) else {
            return Ok(());
        };
        let covers = match (&self.submitted[&by], self.completed[&by].result) {
            (Operation::Write { position: from, .. }, Ok(done)) => {
                *from <= position && position + length as u64 <= from + done as u64
            }
            _ => false,
        };
        let is_so = covers && by > covered.id && self.completed[&by].covered_by.is_none();
        match is_so {
            true => Ok(()),
            false => Err(format!("{by} was not done in place of {}", covered.id)),
        }
    }

    /// Whether the order of timestamps explains everything.
    pub fn check(&self, mut bytes: Vec<u8>, last: &[u8]) -> Result<(), String> {
        for (id, operation) in &self.submitted {
            let Some(completion) = self.completed.get(id) else {
                return Err(format!("{id} has not completed: {operation:?}"));
            };
            let Ok(length) = completion.result else {
                continue;
            };
            if length > completion.buffer.len() {
                return Err(format!("{id} tells of {length} bytes"));
            }
            match operation {
                Operation::Write {
                    position,
                    bytes: new,
                } => {
                    if completion.buffer != *new {
                        return Err(format!("{id} gave another buffer back"));
                    }
                    self.check_covering(completion, *position)?;
                    write_to(&mut bytes, &new[..length], *position);
                }
                Operation::Append { bytes: new } => {
                    bytes.extend_from_slice(&new[..length]);
                    if completion.end != Some(bytes.len() as u64) {
                        return Err(format!(
                            "{id} ended at {:?}, not at {}",
                            completion.end,
                            bytes.len()
                        ));
                    }
                }
                Operation::Sync { .. } => {}
                Operation::Read { position, buffer } => {
                    let mut expected = buffer.clone();
                    let expected_length = match self.failed_source(completion)? {
                        Some(Operation::Write {
                            position: begin,
                            bytes,
                        }) => read_from(bytes, &mut expected, position - begin),
                        _ => read_from(&bytes, &mut expected, *position),
                    };
                    let seen = &completion.buffer[..length];
                    if seen != &expected[..expected_length] {
                        let expected = &expected[..expected_length];
                        return Err(format!(
                            "{id} read {seen:?} in place of {expected:?} at {position}"
                        ));
                    }
                }
            }
        }
        match bytes == last {
            true => Ok(()),
            false => Err(format!("{last:?} is there in place of {bytes:?}")),
        }
    }
}
