//! Files that are open: which description of which session a handle means.
//!
//! # Invariants
//! * To look one up takes no lock and writes nothing. What was read of a place counts if it is in the same life
//!   afterwards; a place that is used again is in another one.
//! * Places are filled and emptied under one lock. A place in an odd life is open.
//! * A place has had its last life when handles have no more bits for the next one: so no handle is ever that of another file.
//! * What is used while another thread closes it is safe by ArckFS: its own handle is none then (EBADF), and never
//!   another file's.

use crate::trouble::Trouble;
use arck_libfs_kit::Session;
use arckfs::{Errno, Handle};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Places are made so many at a time.
const TOGETHER: usize = 1024;
const MOST: usize = 4096;
/// Bits of a place's number in a handle, and of its life.
const PLACE_BITS: u32 = 22;
const LIFE_BITS: u32 = 38;
/// Lives of a place. That many files one after the other take a program hours of nothing else.
const LIVES: u64 = 1 << LIFE_BITS;

/// What a handle means.
#[derive(Clone, Copy, Debug)]
pub struct OpenFile {
    /// The connection.
    pub root: u32,
    pub handle: Handle,
    /// Where the session is that it was opened in: another one is a forked child's.
    session: usize,
}

impl OpenFile {
    pub fn new(root: u32, handle: Handle, session: &'static Session) -> OpenFile {
        OpenFile {
            root,
            handle,
            session: std::ptr::from_ref(session).addr(),
        }
    }

    /// That the file is open in this session. ESTALE.
    #[inline]
    pub fn expect_of(&self, session: &'static Session) -> Result<(), Trouble> {
        match std::ptr::from_ref(session).addr() == self.session && !session.has_ended() {
            true => Ok(()),
            false => Err(Trouble::of_parent()),
        }
    }
}

#[derive(Default)]
struct Place {
    life: AtomicU64,
    root: AtomicU32,
    handle: AtomicU64,
    session: AtomicUsize,
}

static PLACES: [OnceLock<Box<[Place]>>; MOST] = [const { OnceLock::new() }; MOST];

/// What is free, and how many there are.
pub struct Free {
    places: Vec<u32>,
    made: usize,
}

static FREE: Mutex<Free> = Mutex::new(Free {
    places: Vec::new(),
    made: 0,
});

impl Free {
    /// Ends a life of a place, which can be used again if there is another one.
    fn end(&mut self, number: u32, place: &Place, life: u64) {
        place.life.store(life + 1, Ordering::Release);
        if life + 2 < LIVES {
            self.places.push(number);
        }
    }
}

/// Its lock, which whoever forks has meanwhile.
pub fn lock() -> MutexGuard<'static, Free> {
    // What it protects is changed by steps that do not fail.
    FREE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[inline]
fn place(number: u32) -> Option<&'static Place> {
    let number = number as usize;
    let some = PLACES.get(number / TOGETHER)?.get()?;
    some.get(number % TOGETHER)
}

/// A place with its life, as the lower bits of a handle.
fn key_of(number: u32, life: u64) -> u64 {
    life << PLACE_BITS | u64::from(number)
}

/// Notes one that has been opened; gives its key. ENFILE.
pub fn add(file: OpenFile) -> Result<u64, Trouble> {
    let mut free = lock();
    let number = match free.places.pop() {
        Some(number) => number,
        None => {
            let made = free.made;
            let some = PLACES.get(made / TOGETHER).ok_or(Errno::MFILE)?;
            some.get_or_init(|| (0..TOGETHER).map(|_| Place::default()).collect());
            free.made += TOGETHER;
            let others = (made as u32 + 1..free.made as u32).rev();
            free.places.extend(others);
            made as u32
        }
    };
    let place = place(number).ok_or(Errno::MFILE)?;
    // Behind the end of its last life, which those who look at it see first.
    fence(Ordering::Release);
    place.root.store(file.root, Ordering::Relaxed);
    place.handle.store(file.handle.0.get(), Ordering::Relaxed);
    place.session.store(file.session, Ordering::Relaxed);
    let life = place.life.load(Ordering::Relaxed) + 1;
    place.life.store(life, Ordering::Release);
    Ok(key_of(number, life))
}

/// The place of a key, and its life, if it is in that.
#[inline(always)]
fn found(key: u64) -> Option<(u32, &'static Place, u64)> {
    let number = (key % (1 << PLACE_BITS)) as u32;
    let place = place(number)?;
    let life = place.life.load(Ordering::Acquire);
    let is_it = life % 2 == 1 && key_of(number, life) == key;
    is_it.then_some((number, place, life))
}

/// What a key means. EBADF.
#[inline(always)]
pub fn get(key: u64) -> Result<OpenFile, Trouble> {
    let (_, place, life) = found(key).ok_or_else(Trouble::no_handle)?;
    let root = place.root.load(Ordering::Relaxed);
    let handle = NonZeroU64::new(place.handle.load(Ordering::Relaxed));
    let session = place.session.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    match (handle, place.life.load(Ordering::Relaxed) == life) {
        (Some(handle), true) => Ok(OpenFile {
            root,
            handle: Handle(handle),
            session,
        }),
        _ => Err(Trouble::no_handle()),
    }
}

/// Makes a key mean nothing; gives what it did. EBADF.
pub fn take(key: u64) -> Result<OpenFile, Trouble> {
    let mut free = lock();
    let file = get(key)?;
    let (number, place, life) = found(key).ok_or_else(Trouble::no_handle)?;
    free.end(number, place, life);
    Ok(file)
}

/// Makes all keys of a connection mean nothing; it is closed, and closes them.
pub fn forget_all_of(root: u32) {
    let mut free = lock();
    for number in 0..free.made as u32 {
        let Some(place) = place(number) else { continue };
        let life = place.life.load(Ordering::Relaxed);
        if life % 2 == 1 && place.root.load(Ordering::Relaxed) == root {
            free.end(number, place, life);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(handle: u64) -> u64 {
        add(OpenFile {
            root: 0,
            handle: Handle(NonZeroU64::new(handle).unwrap()),
            session: 0,
        })
        .unwrap()
    }

    fn number(key: u64) -> u32 {
        (key % (1 << PLACE_BITS)) as u32
    }

    #[test]
    fn no_handle_is_ever_that_of_another_file() {
        let first = opened(1);
        take(first).unwrap();
        let again = opened(2);
        assert_eq!(number(again), number(first), "the place is used again");
        assert!(get(first).is_err() && get(again).unwrap().handle.0.get() == 2);
        take(again).unwrap();

        // As if it had been opened and closed so often that one life is left.
        place(number(first))
            .unwrap()
            .life
            .store(LIVES - 2, Ordering::Relaxed);
        let last = opened(3);
        assert_eq!(number(last), number(first));
        assert_eq!(
            last >> (PLACE_BITS + LIFE_BITS),
            0,
            "all of it is in the handle"
        );
        assert_eq!(get(last).unwrap().handle.0.get(), 3);
        take(last).unwrap();
        let others: Vec<u64> = (0..2 * TOGETHER as u64).map(|_| opened(4)).collect();
        assert!(others.iter().all(|&other| number(other) != number(first)));
        assert!([first, again, last].iter().all(|&key| get(key).is_err()));
    }
}
