//! What the threads of a node do: copy what is handed to them, and sleep where there is nothing.
//!
//! # Invariants
//! * A piece is durable, or has failed, before its slot is told that it is done.
//! * A thread sleeps only if it has seen nothing after it has said so (`Node::sleepers`), and whoever hands something over looks at that afterwards: so
//!   nothing lies there while all sleep.

use super::primitive::{self, LOOKS, Ordering};
use super::ring::Piece;
use super::rules::{Rule, Rules};
use super::slots::{Delegates, Slot};
#[cfg(not(shuttle))]
use crate::copy::{self, Stores};
use crate::medium::Way;
use rustix::io::Errno;

/// Runs until [`super::stop`].
pub(super) fn run(all: &Delegates, node: usize, index: usize) {
    let Some(threads) = all.nodes.get(node) else {
        return;
    };
    let rules = all.rules;
    let mut looks = 0;
    loop {
        let seen = threads.handed.load(Ordering::SeqCst);
        if pass(all, node, index) {
            looks = 0;
            continue;
        }
        if all.is_ending.load(Ordering::SeqCst) {
            return;
        }
        if looks < LOOKS {
            looks += 1;
            primitive::spin_hint();
            continue;
        }
        let seen = match rules.hold(Rule::SeesBeforeLooking) {
            true => seen,
            false => threads.handed.load(Ordering::SeqCst),
        };
        threads.sleep(seen, rules);
        looks = 0;
    }
}

/// Does what it finds, one piece of each thread that asks; whether there was anything. Threads of a node begin at different ones.
fn pass(all: &Delegates, node: usize, index: usize) -> bool {
    let used = all.used.load(Ordering::SeqCst);
    let mut any = false;
    for at in 0..used {
        let slot = &all.slots[(at + index) % used];
        let ring = slot.rings.get(node);
        let Some(piece) = ring.and_then(|ring| ring.take(all.rules)) else {
            continue;
        };
        any = true;
        let mut counted = Counted {
            slot,
            is_whole: false,
            rules: all.rules,
        };
        counted.is_whole = copy(&piece);
        if !all.rules.hold(Rule::DurableBeforeTelling) {
            drop(counted);
            fence(&piece);
            continue;
        }
        fence(&piece);
    }
    any
}

/// A piece that is counted off when this goes, as one that has failed unless all of it was done.
struct Counted<'s> {
    slot: &'s Slot,
    is_whole: bool,
    rules: Rules,
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.slot.is_done(self.is_whole, self.rules);
    }
}

/// Copies; false where memory was not there.
#[cfg(not(shuttle))]
fn copy(piece: &Piece) -> bool {
    // SAFETY: whoever asked has said that both sides are his until he is told (`Batch::stream`, `Batch::copy_out`); what is not there
    // is a fault that is guarded.
    let copied = unsafe {
        match piece.way {
            Way::Write => {
                copy::guarded_store(piece.to, piece.from, piece.length, Stores::Streaming)
            }
            Way::Read => copy::guarded_copy_out(piece.to, piece.from, piece.length),
        }
    };
    copied.is_ok()
}

#[cfg(shuttle)]
fn copy(piece: &Piece) -> bool {
    primitive::copy(piece.way, piece.to, piece.from, piece.length)
}

/// What was written is durable.
fn fence(piece: &Piece) {
    if piece.way == Way::Write {
        #[cfg(not(shuttle))]
        crate::fence();
        #[cfg(shuttle)]
        primitive::fence();
    }
}

/// What is started meanwhile has all signals blocked but those that a fault is told by.
pub(super) fn with_signals_blocked<T>(start: impl FnOnce() -> T) -> T {
    let mut blocked = u64::MAX;
    for signal in [
        // libc's own: by one of these it changes the ids of all threads, and waits for each.
        32,
        33,
        34,
        libc::SIGSYS,
        libc::SIGBUS,
        libc::SIGSEGV,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGTRAP,
    ] {
        blocked &= !(1 << (signal - 1));
    }
    let before = mask(blocked);
    let started = start();
    if let Ok(before) = before {
        let _ = mask(before);
    }
    started
}

/// Sets the thread's mask of blocked signals by the system call itself, as libc keeps some signals out of it; gives the one before.
fn mask(new: u64) -> Result<u64, Errno> {
    let mut before = 0u64;
    // SAFETY: both are of the size that is said; the call changes nothing but the thread's mask.
    let told = unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const new,
            &raw mut before,
            size_of::<u64>(),
        )
    };
    match told {
        0 => Ok(before),
        _ => Err(Errno::INVAL),
    }
}
