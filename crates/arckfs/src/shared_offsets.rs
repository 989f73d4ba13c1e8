//! Locks of offsets that several processes share, held for the length of a read or write.
//!
//! # Invariants
//! * The lock is one word in the shared memory: 0, or the *mark* of the process that holds it,
//!   stored in the same step as the lock is taken. Only the holder writes 0; who finds a holder
//!   that is dead puts its own mark in that one's place.
//! * A mark names one program run by one process: its number, and what the kernel tells of when
//!   the process began and where its stack is, so that neither another process with the same
//!   number nor the next program of the same process passes for it.
//! * Where the kernel does not tell enough, a process counts as alive: a lock is waited for rather
//!   than held twice.

use crate::interface::ExternalDescription;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Rounds of waiting without a pause.
const EAGER: u32 = 100;
/// Rounds after which the holder is looked at, a tenth of a second and more apart.
const LOOK: u32 = 2_000;
const PAUSE: Duration = Duration::from_micros(50);

/// A shared offset, locked.
pub struct Locked<'d> {
    memory: &'d ExternalDescription,
    mark: u64,
}

impl<'d> Locked<'d> {
    /// Blocks while a process that lives holds it. `mark` is this process's.
    pub fn new(memory: &'d ExternalDescription, mark: u64) -> Locked<'d> {
        let mut rounds = 0u32;
        loop {
            let holder = memory.holder.load(Ordering::Relaxed);
            rounds = rounds.wrapping_add(1);
            let is_free = holder == 0 || (rounds.is_multiple_of(LOOK) && is_dead(holder));
            if is_free && exchange(&memory.holder, holder, mark) {
                return Locked { memory, mark };
            }
            if rounds > EAGER {
                arck_protocol::wait::sleep(PAUSE);
            }
        }
    }

    pub fn get(&self) -> u64 {
        self.memory.offset.load(Ordering::Relaxed)
    }

    pub fn set(&self, offset: u64) {
        self.memory.offset.store(offset, Ordering::Relaxed);
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        exchange(&self.memory.holder, self.mark, 0);
    }
}

fn exchange(word: &AtomicU64, old: u64, new: u64) -> bool {
    word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Relaxed)
        .is_ok()
}

/// What the kernel tells of a process.
struct Told {
    /// `Z` and `X`: its first thread has ended.
    state: u8,
    threads: u64,
    /// Clock ticks since the machine began.
    began: u64,
    /// An address of its stack, which differs from program to program; 0 if that is kept from us.
    stack: u64,
}

/// `/proc/<number>/stat`; `None` if it cannot be read.
fn told_of(process: u32) -> Option<Told> {
    let text = std::fs::read(format!("/proc/{process}/stat")).ok()?;
    // The program's name, in brackets, can be anything.
    let name_end = text.iter().rposition(|&byte| byte == b')')?;
    let text = std::str::from_utf8(&text[name_end + 1..]).ok()?;
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    // The first is the third that proc(5) counts.
    let field = |number: usize| fields.get(number - 3);
    let value = |number| field(number).and_then(|text| text.parse().ok());
    Some(Told {
        state: *field(3)?.as_bytes().first()?,
        threads: value(20)?,
        began: value(22)?,
        stack: value(28)?,
    })
}

impl Told {
    fn mark(&self, process: u32) -> u64 {
        let mixed = (self.began ^ self.stack.rotate_left(24)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        // Never the 0 of a process of which nothing is told.
        u64::from(process) << 32 | mixed >> 32 | 1
    }
}

/// The mark of this process, as it is now: another one after a fork or exec.
pub fn own_mark() -> u64 {
    let process = std::process::id();
    told_of(process).map_or(u64::from(process) << 32, |told| told.mark(process))
}

/// Whether the program that a mark names has ended.
fn is_dead(mark: u64) -> bool {
    let process = (mark >> 32) as u32;
    let number = i32::try_from(process).ok();
    let Some(number) = number.and_then(rustix::process::Pid::from_raw) else {
        return true;
    };
    if rustix::process::test_kill_process(number) == Err(rustix::io::Errno::SRCH) {
        return true;
    }
    let Some(told) = told_of(process) else {
        return false;
    };
    if matches!(told.state, b'Z' | b'X') {
        return told.threads <= 1;
    }
    mark as u32 != 0 && told.stack != 0 && told.mark(process) != mark
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};
    use std::sync::atomic::AtomicBool;

    fn memory() -> ExternalDescription {
        // SAFETY: atomics, for which all zero is a value.
        unsafe { std::mem::zeroed() }
    }

    fn mark_of(process: u32) -> u64 {
        told_of(process).unwrap().mark(process)
    }

    #[test]
    fn a_holder_that_lives_is_waited_for() {
        let memory = memory();
        let got = AtomicBool::new(false);
        let held = Locked::new(&memory, own_mark());
        held.set(7);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mine = Locked::new(&memory, own_mark());
                got.store(true, Ordering::SeqCst);
                mine.set(mine.get() + 1);
            });
            // Longer than several looks at the holder.
            arck_protocol::wait::sleep(PAUSE * LOOK * 15);
            assert!(!got.load(Ordering::SeqCst), "held by two");
            held.set(10);
            drop(held);
        });
        assert_eq!(memory.offset.load(Ordering::SeqCst), 11);
        assert_eq!(memory.holder.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn what_the_dead_hold_is_taken_over() {
        let own = own_mark();
        assert!(!is_dead(own));
        assert_eq!(own, own_mark());
        // Goes on to be another program when it is told.
        let mut child = Command::new("sh")
            .args(["-c", "echo; read line; exec sh -c 'echo; read line'"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut output = child.stdout.take().unwrap();
        output.read_exact(&mut [0]).unwrap();
        let first = mark_of(child.id());
        assert!(!is_dead(first));
        input.write_all(b"\n").unwrap();
        output.read_exact(&mut [0]).unwrap();
        let second = mark_of(child.id());
        assert!(is_dead(first) && !is_dead(second));

        let memory = memory();
        memory.holder.store(second, Ordering::SeqCst);
        child.kill().unwrap();
        // Dead, and not waited for.
        let locked = Locked::new(&memory, own);
        locked.set(5);
        drop(locked);
        child.wait().unwrap();
        assert!(is_dead(second));
        memory.holder.store(second, Ordering::SeqCst);
        assert_eq!(Locked::new(&memory, own).get(), 5);
        // What no process writes.
        memory.holder.store(u64::MAX, Ordering::SeqCst);
        drop(Locked::new(&memory, own));
    }
}
