//! A spool and a file on a machine that fails at every step, with what was in flight there torn.

mod protocol;
mod queued;

use super::{Kept, Spool, Spooled};
use crate::target::{FileIdentity, Target};
use crate::tests::Random;
use rustix::io::Errno;
use std::sync::{Arc, Mutex};

/// What happens to stores.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Memory {
    /// They are durable when the call returns.
    Durable,
    /// They are durable after a sync.
    Cached,
}

/// A machine with some files, which fails.
struct Machine {
    memory: Memory,
    /// Stores that are left until it does.
    left: u64,
    random: Random,
    files: Vec<Contents>,
    has_failed: bool,
    /// The next sync of this file fails, or panics, and nothing else does.
    fails_once: Option<(usize, Failure)>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Failure {
    Fails,
    Panics,
}

#[derive(Clone, Default)]
struct Contents {
    /// As programs see it.
    seen: Vec<u8>,
    /// As it is after a failure.
    durable: Vec<u8>,
    /// Stores that a failure may lose: where, and what.
    pending: Vec<(usize, Vec<u8>)>,
}

fn store(bytes: &mut Vec<u8>, at: usize, new: &[u8]) {
    let end = bytes.len().max(at + new.len());
    bytes.resize(end, 0);
    bytes[at..at + new.len()].copy_from_slice(new);
}

impl Machine {
    /// One that does not fail until that is wished.
    fn new(seed: u64, memory: Memory) -> Arc<Mutex<Machine>> {
        Arc::new(Mutex::new(Machine {
            memory,
            left: u64::MAX,
            random: Random::new(seed),
            files: vec![Contents::default(); 1 + FILES],
            has_failed: false,
            fails_once: None,
        }))
    }

    fn fail(&mut self) {
        self.has_failed = true;
        for file in &mut self.files {
            for (at, new) in std::mem::take(&mut file.pending) {
                // Words of eight bytes are stored as a whole or not; a length is not shorter than what is there.
                let end = file.durable.len().max(at + new.len());
                let kept = match self.random.below(4) {
                    0 => 0,
                    1 => new.len(),
                    _ => self.random.below(new.len() as u64 + 1) as usize,
                };
                let scattered = self.random.below(2) == 0;
                file.durable.resize(end, 0);
                for (word, piece) in new.chunks(8).enumerate() {
                    let is_kept = match scattered {
                        true => self.random.below(2) == 0,
                        false => word * 8 < kept,
                    };
                    if is_kept {
                        store(&mut file.durable, at + word * 8, piece);
                    }
                }
            }
        }
    }

    fn write(&mut self, file: usize, bytes: &[u8], at: usize) -> Result<(), Errno> {
        if self.has_failed {
            return Err(Errno::IO);
        }
        self.files[file].pending.push((at, bytes.to_vec()));
        if self.left == 0 {
            self.fail();
            return Err(Errno::IO);
        }
        self.left -= 1;
        store(&mut self.files[file].seen, at, bytes);
        if self.memory == Memory::Durable {
            self.sync(file);
        }
        Ok(())
    }

    fn sync(&mut self, file: usize) {
        let file = &mut self.files[file];
        file.pending.clear();
        file.durable.clone_from(&file.seen);
    }
}

struct OnMachine(Arc<Mutex<Machine>>, usize);

impl Target for OnMachine {
    fn identity(&self) -> FileIdentity {
        FileIdentity {
            device: 1,
            inode: self.1 as u64,
        }
    }
    fn size(&self) -> Result<u64, Errno> {
        Ok(self.0.lock().unwrap().files[self.1].seen.len() as u64)
    }
    fn read(&self, buffer: &mut [u8], position: u64) -> Result<usize, Errno> {
        let machine = self.0.lock().unwrap();
        let seen = &machine.files[self.1].seen;
        let rest = &seen[seen.len().min(position as usize)..];
        let length = rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&rest[..length]);
        Ok(length)
    }
    fn write(&self, bytes: &[u8], position: u64) -> Result<usize, Errno> {
        let mut machine = self.0.lock().unwrap();
        machine.write(self.1, bytes, position as usize)?;
        Ok(bytes.len())
    }
    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        let mut machine = self.0.lock().unwrap();
        let end = machine.files[self.1].seen.len();
        machine.write(self.1, bytes, end)?;
        Ok((bytes.len(), (end + bytes.len()) as u64))
    }
    fn sync(&self, _: bool) -> Result<(), Errno> {
        let mut machine = self.0.lock().unwrap();
        if machine.has_failed {
            return Err(Errno::IO);
        }
        if let Some((_, failure)) = machine.fails_once.take_if(|(file, _)| *file == self.1) {
            drop(machine);
            match failure {
                Failure::Fails => return Err(Errno::IO),
                Failure::Panics => std::panic::panic_any(()),
            }
        }
        if machine.left == 0 {
            machine.fail();
            return Err(Errno::IO);
        }
        machine.left -= 1;
        machine.sync(self.1);
        Ok(())
    }
    fn is_durable(&self) -> bool {
        self.0.lock().unwrap().memory == Memory::Durable
    }
}

const SPOOL: usize = 0;
/// Two files.
const FILES: usize = 2;
fn target(machine: &Arc<Mutex<Machine>>, file: usize) -> Arc<dyn Target> {
    Arc::new(OnMachine(Arc::clone(machine), file))
}

/// An empty file of a machine that does not fail.
pub fn on_machine() -> Arc<dyn Target> {
    target(&Machine::new(1, Memory::Durable), SPOOL)
}

/// Starts the machine again, which fails after so many stores.
fn restart(machine: &Arc<Mutex<Machine>>, steps: u64) {
    let mut machine = machine.lock().unwrap();
    if !machine.has_failed {
        machine.fail();
    }
    machine.has_failed = false;
    machine.left = steps;
    for file in &mut machine.files {
        file.seen.clone_from(&file.durable);
    }
}
