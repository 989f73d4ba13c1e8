//! The model of what the kernel and the memory do, under shuttle.
//!
//! # Invariants
//! * A futex compares and falls asleep in one step against those who wake, and wakes nobody for nothing.
//! * Nothing is really copied: a piece is noted, and whatever it names is not looked at. What was written is durable when the thread that
//!   wrote it has made a fence.

use crate::medium::Way;
use shuttle::sync::atomic::AtomicU32;
use shuttle::sync::{Condvar, Mutex};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Addresses of both sides, and how many bytes.
type Copied = (usize, usize, usize);

shuttle::lazy_static! {
    /// The kernel's table of sleepers: one condition variable for each word.
    static ref SLEEPERS: Mutex<HashMap<usize, Arc<Condvar>>> = Mutex::new(HashMap::new());
    /// What is where it is to be, durably where it was written.
    static ref DONE: Mutex<Vec<Copied>> = Mutex::new(Vec::new());
}

shuttle::thread_local! {
    /// What a thread has written since its last fence.
    static STREAMED: RefCell<Vec<Copied>> = RefCell::new(Vec::new());
}

pub fn spin_hint() {
    shuttle::thread::yield_now();
}

pub fn give_way() {
    shuttle::thread::yield_now();
}

fn key(word: &AtomicU32) -> usize {
    std::ptr::from_ref(word).addr()
}

pub fn wait(word: &AtomicU32, expected: u32) {
    let mut table = SLEEPERS.lock().unwrap();
    if word.load(Ordering::SeqCst) != expected {
        return;
    }
    let sleepers = Arc::clone(table.entry(key(word)).or_default());
    drop(sleepers.wait(table).unwrap());
}

/// Nobody is ever tired of waiting: who relies on that does not come to an end.
pub fn wait_for(word: &AtomicU32, expected: u32, _most: Duration) {
    wait(word, expected);
}

pub fn wake_shared(word: &AtomicU32) {
    wake(word);
}

pub fn wake_all_shared(word: &AtomicU32) {
    wake_all(word);
}

pub fn now() -> Duration {
    Duration::ZERO
}

pub fn wake(word: &AtomicU32) {
    let table = SLEEPERS.lock().unwrap();
    if let Some(sleepers) = table.get(&key(word)) {
        sleepers.notify_one();
    }
}

pub fn wake_all(word: &AtomicU32) {
    let table = SLEEPERS.lock().unwrap();
    if let Some(sleepers) = table.get(&key(word)) {
        sleepers.notify_all();
    }
}

/// Copies, for what the model has of that. A piece from nowhere is memory that is not there.
pub fn copy(way: Way, to: *mut u8, from: *const u8, length: usize) -> bool {
    if from.is_null() {
        return false;
    }
    let copied = (to.addr(), from.addr(), length);
    match way {
        Way::Write => STREAMED.with(|streamed| streamed.borrow_mut().push(copied)),
        Way::Read => DONE.lock().unwrap().push(copied),
    }
    true
}

pub fn fence() {
    let streamed = STREAMED.with(RefCell::take);
    DONE.lock().unwrap().extend(streamed);
}

/// All that was copied, and is durable where it was written.
#[cfg(test)]
pub fn done() -> Vec<Copied> {
    DONE.lock().unwrap().clone()
}
