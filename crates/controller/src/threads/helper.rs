//! System calls that may never return, made by a thread that is given up then.
//!
//! Who has a FIFO open for writing can hold its lock for ever, with a write whose source never comes: whoever opens
//! it, closes it for good, or asks its size waits, and cannot be killed. So the thread that everybody waits for
//! does none of that where somebody else may have the FIFO: it has it done here, and waits for the outcome for
//! as long as it comes in an ordinary time.
//!
//! # Invariants
//! * One step is done at a time, unless threads were given up.
//! * A step counts as stuck when its thread has been asleep for [`ASLEEP_MAX`] looks at it, [`LOOK`] apart: one that
//!   waits for a processor is not.
//! * At most [`STUCK_MAX`] steps of a user are stuck at once; nothing more is begun for him then.

use rustix::thread::gettid;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Steps of a user that have not come back.
const STUCK_MAX: usize = 8;
/// How often it is looked whether a step goes on.
const LOOK: Duration = Duration::from_millis(10);
/// See the module's head.
const ASLEEP_MAX: usize = 5;
/// Looks altogether.
const LOOKS_MAX: usize = 200;

type Step = Box<dyn FnOnce() + Send>;

/// The thread that does the steps.
#[derive(Debug)]
struct Thread {
    steps: Sender<Step>,
    number: Arc<AtomicI32>,
}

/// Says whether a step has come back.
#[derive(Clone, Debug)]
pub struct Stuck(Weak<()>);

impl Stuck {
    pub fn is_stuck(&self) -> bool {
        self.0.strong_count() > 0
    }
}

/// See the module's head.
#[derive(Default, Debug)]
pub struct Helper {
    thread: Option<Thread>,
    /// Of which user.
    stuck: Vec<(u32, Stuck)>,
}

impl Helper {
    /// Has a step done for a user. An error if it is stuck, or was not begun: `None`, too many of his are stuck,
    /// or there is no thread. What a stuck step gives in the end is dropped by its thread.
    pub fn has_done<T: Send + 'static>(
        &mut self,
        user: u32,
        step: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Option<Stuck>> {
        self.stuck.retain(|(_, stuck)| stuck.is_stuck());
        if self.stuck.iter().filter(|(of, _)| *of == user).count() >= STUCK_MAX {
            return Err(None);
        }
        let (sender, outcome) = channel();
        let lives = Arc::new(());
        let stuck = Stuck(Arc::downgrade(&lives));
        let step: Step = Box::new(move || {
            let done = step();
            drop(lives);
            // Nobody listens any more where it has been given up.
            let _ = sender.send(done);
        });
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => start().ok_or(None)?,
        };
        thread.steps.send(step).map_err(|_| None)?;
        match wait(&outcome, &thread.number) {
            Some(done) => {
                self.thread = Some(thread);
                Ok(done)
            }
            // The thread ends when it comes back: nobody can tell it of another step.
            None => {
                self.stuck.push((user, stuck.clone()));
                Err(Some(stuck))
            }
        }
    }
}

fn start() -> Option<Thread> {
    let (steps, told) = channel::<Step>();
    let number = Arc::new(AtomicI32::new(0));
    let of_thread = number.clone();
    let run = move || {
        of_thread.store(gettid().as_raw_nonzero().get(), Ordering::Release);
        told.into_iter().for_each(|step| step());
    };
    let named = std::thread::Builder::new().name("arck-helper".into());
    named.spawn(run).ok()?;
    Some(Thread { steps, number })
}

fn wait<T>(outcome: &Receiver<T>, thread: &AtomicI32) -> Option<T> {
    let mut asleep = 0;
    for _ in 0..LOOKS_MAX {
        match outcome.recv_timeout(LOOK) {
            Ok(done) => return Some(done),
            Err(RecvTimeoutError::Disconnected) => return None,
            Err(RecvTimeoutError::Timeout) => {}
        }
        asleep = match is_running(thread.load(Ordering::Acquire)) {
            true => 0,
            false => asleep + 1,
        };
        if asleep >= ASLEEP_MAX {
            break;
        }
    }
    // It may have come just now.
    outcome.try_recv().ok()
}

/// Whether a thread runs, or waits for a processor. If that cannot be told, it does not.
fn is_running(thread: i32) -> bool {
    // It has not begun.
    if thread == 0 {
        return true;
    }
    let told = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat"));
    // After the name, which is in parentheses.
    told.is_ok_and(|told| {
        told.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('R'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn a_step_that_does_not_come_back_is_given_up_and_others_are_done() {
        let mut helper = Helper::default();
        assert_eq!(helper.has_done(5, || 7).ok(), Some(7));
        let mut held = Vec::new();
        for _ in 0..STUCK_MAX {
            let (hold, wait) = channel::<()>();
            let stuck = helper.has_done(5, move || wait.recv().is_err());
            held.push((hold, stuck.unwrap_err().unwrap()));
            assert_eq!(helper.has_done(6, || 8).ok(), Some(8));
        }
        assert!(held.iter().all(|(_, stuck)| stuck.is_stuck()));
        // No more for him; for others as ever.
        assert!(matches!(helper.has_done(5, || 7), Err(None)));
        assert_eq!(helper.has_done(6, || 8).ok(), Some(8));
        let (hold, stuck) = held.pop().unwrap();
        drop(hold);
        let since = Instant::now();
        while stuck.is_stuck() {
            assert!(since.elapsed() < Duration::from_secs(20));
            std::thread::yield_now();
        }
        assert_eq!(helper.has_done(5, || 7).ok(), Some(7));
    }

    #[test]
    fn one_that_computes_for_long_is_not_stuck() {
        let mut helper = Helper::default();
        let computes = || {
            let since = Instant::now();
            while since.elapsed() < LOOK * (ASLEEP_MAX as u32 + 3) {}
            9
        };
        assert_eq!(helper.has_done(5, computes).ok(), Some(9));
    }
}
