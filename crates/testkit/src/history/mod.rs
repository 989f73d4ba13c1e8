//! Operations of several threads, and whether some order of them explains what they told.
//!
//! Each thread draws its operations from seed and thread; names and files are few and everybody's.
//! A run notes when each operation began and ended and what it told. [`explained`] looks for an
//! order of all operations, in which none stands before one that had ended when it began, and in
//! which the model tells the same. The same histories, of one thread, on tmpfs hold the model to
//! account.
//!
//! | module | idea |
//! | --- | --- |
//! | this one | what threads do and tell, and a run of them |
//! | `values` | the same for what every LibFS has: whole values of names |
//! | `subjects` | what operations are done on: a session, a directory of tmpfs |
//! | `model` | what everything is between operations |
//! | `search` | whether some order explains a history, and shorter ones that none explains |
//!
//! # Invariants
//! * An operation is one call. Data is reached through descriptors opened before.
//! * A thread's operations depend on seed and thread alone, so that leaving some out leaves the
//!   others as they were.
//! * What an operation tells is comparable: no inode numbers, no times.

mod model;
mod search;
mod subjects;
pub mod values;

pub use search::{explained, shorten, unexplained};
pub use subjects::{ArckSubject, HostSubject};

use crate::Random;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};

const DIRECTORIES: u64 = 2;
/// Names in each directory.
const NAMES: u64 = 3;
/// Files whose data is read and written.
const FILES: u64 = 2;

/// A name: directory and name.
pub type Name = (u8, u8);

/// What a thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// mkdir: nobody reaches it by a descriptor, and rmdir needs it to be empty, which it is.
    Create(Name),
    Remove(Name),
    Rename(Name, Name),
    /// RENAME_NOREPLACE.
    RenameNew(Name, Name),
    /// A name for the one file that is there from the beginning.
    Link(Name),
    Unlink(Name),
    IsThere(Name),
    /// Links of the file that [`Action::Link`] names.
    Links,
    /// Names of the directory.
    List(u8),
    /// Appends so many bytes of the given value.
    Append(u8, u8, u16),
    /// Overwrites from the start.
    Write(u8, u8, u16),
    Truncate(u8, u16),
    /// All of the file.
    Read(u8),
}

/// What it told.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Told {
    Done,
    Error(i32),
    /// A number of links, or what a name is: see [`Held`].
    Number(u64),
    /// Runs of equal bytes: value and count.
    Content(Vec<(u8, usize)>),
    Names(Vec<u8>),
}

/// A kind of operations, by what each of them has to tell.
pub trait Explained: Clone + Debug + Send + Sync {
    /// What everything is, between operations: empty at first.
    type Model: Default + Clone + Eq + Hash;

    /// Does it, and gives what it tells.
    fn apply(&self, model: &mut Self::Model) -> Told;
}

/// An operation that was done.
#[derive(Clone, Debug)]
pub struct Event<A = Action> {
    pub thread: usize,
    pub action: A,
    pub told: Told,
    /// Ticks of a clock that all threads share.
    pub begun: u64,
    pub ended: u64,
}

/// The operations of a thread.
pub fn actions(seed: u64, thread: u64, count: usize) -> Vec<Action> {
    let mut random = Random::new(seed.wrapping_mul(0x1_0001).wrapping_add(thread));
    (0..count).map(|_| action(&mut random, thread)).collect()
}

fn action(random: &mut Random, thread: u64) -> Action {
    let name = |random: &mut Random| {
        let directory = random.below(DIRECTORIES) as u8;
        (directory, random.below(NAMES) as u8)
    };
    let file = random.below(FILES) as u8;
    let fill = (thread * 50 + 1 + random.below(49)) as u8;
    // Inside a page, and across some.
    let length = *random.pick(&[1u16, 100, 4096, 5000, 12_000]);
    match random.below(18) {
        6 | 7 => Action::Link(name(random)),
        0 | 1 => Action::Create(name(random)),
        2 | 8 => Action::Remove(name(random)),
        3 | 4 => Action::Rename(name(random), name(random)),
        5 => Action::RenameNew(name(random), name(random)),
        9 => Action::Unlink(name(random)),
        10 | 11 => Action::IsThere(name(random)),
        12 => Action::List(random.below(DIRECTORIES) as u8),
        14 => Action::Write(file, fill, length),
        13 => Action::Append(file, fill, length),
        15 => Action::Truncate(file, length / 2),
        17 => Action::Links,
        _ => Action::Read(file),
    }
}

fn runs(bytes: &[u8]) -> Vec<(u8, usize)> {
    let mut runs: Vec<(u8, usize)> = Vec::new();
    for &byte in bytes {
        match runs.last_mut() {
            Some((value, count)) if *value == byte => *count += 1,
            _ => runs.push((byte, 1)),
        }
    }
    runs
}

/// What each thread did.
pub type History<A = Action> = Vec<Vec<Event<A>>>;

/// Something that operations are done on.
pub trait Subject<A = Action>: Sync {
    fn apply(&self, action: &A) -> Told;
}

/// Does the operations of all threads at once.
pub fn run<A: Explained>(subject: &impl Subject<A>, threads: &[Vec<A>]) -> History<A> {
    let clock = AtomicU64::new(0);
    let barrier = Barrier::new(threads.len());
    std::thread::scope(|scope| {
        let workers: Vec<_> = threads
            .iter()
            .enumerate()
            .map(|(thread, actions)| {
                let (clock, barrier) = (&clock, &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let one = |action: &A| {
                        let begun = clock.fetch_add(1, Ordering::SeqCst);
                        let told = subject.apply(action);
                        let ended = clock.fetch_add(1, Ordering::SeqCst);
                        Event {
                            thread,
                            action: action.clone(),
                            told,
                            begun,
                            ended,
                        }
                    };
                    actions.iter().map(one).collect()
                })
            })
            .collect();
        let join = |worker: std::thread::ScopedJoinHandle<'_, _>| worker.join().expect("a thread");
        workers.into_iter().map(join).collect()
    })
}
