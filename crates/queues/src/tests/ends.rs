//! What ends at odd moments: all queues, in a call of a target; deadlines of requests that nobody waited for; files that others cut.

use super::oracle::{FILE, InMemory};
use crate::request::Request;
use crate::{Errno, FileIdentity, QueueOptions, Queues, Target};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn queues(workers: usize) -> Queues {
    Queues::with_workers(NonZeroUsize::new(workers).unwrap())
}

/// A target that keeps something, and lets it go in its first call.
struct Keeper<T>(Mutex<Option<T>>);

impl<T: Send> Target for Keeper<T> {
    fn identity(&self) -> FileIdentity {
        FILE
    }

    fn size(&self) -> Result<u64, Errno> {
        Ok(0)
    }

    fn read(&self, _: &mut [u8], _: u64) -> Result<usize, Errno> {
        drop(self.0.lock().unwrap().take());
        Ok(0)
    }

    fn write(&self, bytes: &[u8], _: u64) -> Result<usize, Errno> {
        Ok(bytes.len())
    }

    fn append(&self, bytes: &[u8]) -> Result<(usize, u64), Errno> {
        Ok((bytes.len(), 0))
    }

    fn sync(&self, _: bool) -> Result<(), Errno> {
        Ok(())
    }
}

/// A target that drops all queues in a call, by whichever thread, hangs nobody.
#[test]
fn a_target_drops_all_queues() {
    for lends in [false, true] {
        let queues = queues(3);
        let keeper = Arc::new(Keeper(Mutex::new(None)));
        let queue = queues
            .open(keeper.clone(), QueueOptions::default())
            .unwrap();
        *keeper.0.lock().unwrap() = Some(queues);
        let read = queue.submit(Request::read(0, 10)).unwrap();
        let timeout = (!lends).then_some(LONG);
        let done = queue.wait(1, timeout);
        assert_eq!((done.len(), done[0].id, done[0].result), (1, read, Ok(0)));
        assert!(queue.submit(Request::sync()).is_err());
    }
}

/// Workers that slept when it came know that it is late, too.
#[test]
fn a_request_that_is_late_at_once_is_not_done() {
    let queues = queues(2);
    let file = Arc::new(InMemory::quiet(vec![1; 100]));
    let queue = queues.open(file, QueueOptions::default()).unwrap();
    for turn in 0..200 {
        let late = queue
            .submit(Request::write(0, vec![2; 100]).within(Duration::ZERO))
            .unwrap();
        let done = queue.wait(1, Some(LONG));
        let told: Vec<_> = done.iter().map(|done| (done.id, done.result)).collect();
        assert_eq!(told, [(late, Err(Errno::TIMEDOUT))], "turn {turn}");
    }
}
