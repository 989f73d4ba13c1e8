//! Follows a thread that is stepped through, operation by operation.
//!
//! Invariant: an instruction is counted when the thread is stopped before the next one: the one that calls
//! `operation_ends` is not.

use super::instruction::{Instruction, Kind, LONGEST};
use super::maps::{Maps, Whose};
use super::tally::Tally;
use crate::outcome::Outcome;
use crate::trace::Look;
use libc::user_regs_struct;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

/// Of a line: whether it was read, and whether it was written.
type Touched = (bool, bool);

/// An operation that has begun.
#[derive(Default)]
struct Operation {
    tally: Tally,
    lines: BTreeMap<u64, Touched>,
    /// What the thread is about to execute.
    next: Option<(Rc<Instruction>, user_regs_struct)>,
}

/// The process that is looked at.
struct Process {
    memory: File,
    maps: Maps,
    /// By address. Code that has been executed stays as it is.
    decoded: HashMap<u64, Rc<Instruction>>,
}

/// See the module's head.
pub struct Looking {
    pool: PathBuf,
    preload: Option<PathBuf>,
    process: Option<Process>,
    phase: u64,
    begins: u64,
    ends: u64,
    operation: Option<Operation>,
    done: BTreeMap<u64, Vec<Tally>>,
}

impl Looking {
    pub fn new(pool: PathBuf, preload: Option<PathBuf>) -> Looking {
        Looking {
            pool,
            preload,
            process: None,
            phase: 0,
            begins: 0,
            ends: 0,
            operation: None,
            done: BTreeMap::new(),
        }
    }

    /// All operations, by phase.
    pub fn operations(self) -> BTreeMap<u64, Vec<Tally>> {
        self.done
    }
}

impl Look for Looking {
    fn begin(&mut self, phase: u64, process: libc::pid_t, places: [u64; 2]) -> Outcome<()> {
        (self.phase, [self.begins, self.ends]) = (phase, places);
        self.operation = None;
        if self.process.is_none() {
            let path = format!("/proc/{process}/mem");
            let memory = File::open(&path).map_err(|error| format!("{path}: {error}"))?;
            self.process = Some(Process {
                memory,
                maps: Maps::new(process, &self.pool, self.preload.as_deref()),
                decoded: HashMap::new(),
            });
        }
        Ok(())
    }

    fn look(&mut self, thread: libc::pid_t) -> Outcome<()> {
        let Some(process) = &mut self.process else {
            return Ok(());
        };
        let registers = registers(thread)?;
        if registers.rip == self.ends {
            if let Some(operation) = self.operation.take() {
                let tally = operation.ended(&mut process.maps);
                self.done.entry(self.phase).or_default().push(tally);
            }
        } else if registers.rip == self.begins {
            self.operation = Some(Operation::default());
        } else if let Some(operation) = &mut self.operation {
            operation.executed(registers.rip, &mut process.maps);
            let instruction = process.instruction(registers.rip)?;
            operation.next = Some((instruction, registers));
        }
        Ok(())
    }
}

impl Operation {
    /// The thread has come to `address`: what it was about to do is done.
    fn executed(&mut self, address: u64, maps: &mut Maps) {
        let Some((instruction, registers)) = self.next.take() else {
            return;
        };
        instruction.lines(&registers, |line, reads, writes| {
            let touched = self.lines.entry(line).or_default();
            *touched = (touched.0 || reads, touched.1 || writes);
        });
        // It goes on, and counts when it is through.
        if instruction.repeats && registers.rip == address {
            return;
        }
        let tally = &mut self.tally;
        tally.instructions += 1;
        match maps.whose(registers.rip) {
            Whose::Preload => tally.preload += 1,
            Whose::Libc => tally.libc += 1,
            Whose::Program | Whose::Pool => {}
        }
        match instruction.kind {
            Kind::Other => {}
            Kind::Flush => tally.flushes += 1,
            Kind::Streaming => tally.streaming += 1,
            Kind::Fence => tally.fences += 1,
            Kind::Locked => tally.locked += 1,
            Kind::KernelCall => tally.system_calls += 1,
        }
    }

    fn ended(mut self, maps: &mut Maps) -> Tally {
        for (line, (read, written)) in self.lines {
            self.tally.lines += 1;
            self.tally.lines_read += u64::from(read);
            self.tally.lines_written += u64::from(written);
            self.tally.lines_pool += u64::from(maps.whose(line) == Whose::Pool);
        }
        self.tally
    }
}

impl Process {
    fn instruction(&mut self, address: u64) -> Outcome<Rc<Instruction>> {
        if let Some(known) = self.decoded.get(&address) {
            return Ok(Rc::clone(known));
        }
        let mut bytes = [0; LONGEST];
        // At the end of a mapping there are fewer.
        let read = self.memory.read_at(&mut bytes, address);
        let length = read.map_err(|error| format!("code at {address:#x}: {error}"))?;
        let instruction = Rc::new(Instruction::decode(&bytes[..length], address));
        self.decoded.insert(address, Rc::clone(&instruction));
        Ok(instruction)
    }
}

fn registers(thread: libc::pid_t) -> Outcome<user_regs_struct> {
    let mut registers = std::mem::MaybeUninit::<user_regs_struct>::zeroed();
    // SAFETY: the kernel writes such a structure; the thread is our tracee and stopped. All zeroes is a value of it.
    unsafe {
        if libc::ptrace(libc::PTRACE_GETREGS, thread, 0, registers.as_mut_ptr()) < 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("ptrace(PTRACE_GETREGS): {error}"));
        }
        Ok(registers.assume_init())
    }
}
