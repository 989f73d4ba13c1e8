//! How far the opening of a pool has come, for whoever waits for it.
//!
//! # Invariants
//! * Of each step that has anything to do, its beginning and its end are told, whatever it takes;
//!   in between no more often than [`TOLD`] says. What is told of a step never goes back.
//! * After the pool was opened nothing is told.

use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between two words about one step.
const TOLD: Duration = Duration::from_millis(50);
/// An opening that takes longer is told in the log, and again each time as much has passed.
const LOGGED: Duration = Duration::from_secs(1);

/// What is being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Headers and inodes are read; counted are numbers of inodes.
    Inodes,
    /// What sessions that are gone have changed is folded; counted are inodes that they owned.
    Sessions,
    /// What moves that were cut off have left is looked for; counted are numbers of inodes.
    Leftovers,
    /// Who may read what is looked at; counted are inodes.
    Rights,
}

impl Step {
    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Step::Inodes => "reading inodes",
            Step::Sessions => "taking over what sessions left",
            Step::Leftovers => "looking for what was cut off",
            Step::Rights => "looking at who may read what",
        }
    }
}

/// A word about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub step: Step,
    pub done: u64,
    /// Of so many: an estimate where that is not known, never less than `done`.
    pub all: u64,
}

/// Told how far it is, by the thread that opens the pool, which waits for it.
pub type ProgressHook = Arc<dyn Fn(Progress) + Send + Sync>;

/// Counts, and tells.
pub struct Reporter {
    hook: Option<ProgressHook>,
    begun: Instant,
    told: Instant,
    logged: Instant,
    now: Option<Progress>,
}

impl Reporter {
    pub fn new(hook: Option<ProgressHook>) -> Reporter {
        let begun = Instant::now();
        Reporter {
            hook,
            begun,
            told: begun,
            logged: begun,
            now: None,
        }
    }

    /// A step begins, with so much to do.
    pub fn begin(&mut self, step: Step, all: u64) {
        self.end();
        if all > 0 {
            let done = 0;
            self.now = Some(Progress { step, done, all });
            self.tell();
        }
    }

    /// So much more of the step is done. Nothing if none is under way.
    pub fn add(&mut self, more: u64) {
        let Some(progress) = &mut self.now else {
            return;
        };
        progress.done += more;
        progress.all = progress.all.max(progress.done);
        if self.told.elapsed() >= TOLD {
            self.tell();
        }
    }

    /// The step is done.
    pub fn end(&mut self) {
        if let Some(progress) = &mut self.now {
            progress.done = progress.all;
            self.tell();
        }
        self.now = None;
    }

    /// Since the opening began.
    pub fn elapsed(&self) -> Duration {
        self.begun.elapsed()
    }

    fn tell(&mut self) {
        let Some(progress) = self.now else { return };
        self.told = Instant::now();
        if self.logged.elapsed() >= LOGGED {
            self.logged = self.told;
            let Progress { step, done, all } = progress;
            tracing::info!("opening the pool: {}, {done} of {all}", step.name());
        }
        if let Some(hook) = &self.hook {
            hook(progress);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn each_step_is_told_from_its_beginning_to_its_end() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let list = told.clone();
        let mut reporter = Reporter::new(Some(Arc::new(move |progress| {
            list.lock().unwrap().push(progress);
        })));
        reporter.add(7);
        reporter.begin(Step::Inodes, 3);
        reporter.add(1);
        reporter.begin(Step::Sessions, 0);
        reporter.add(1);
        // More than was thought.
        reporter.begin(Step::Leftovers, 1);
        reporter.add(5);
        reporter.end();
        reporter.end();
        let told = told.lock().unwrap();
        let told: Vec<_> = told.iter().map(|p| (p.step, p.done, p.all)).collect();
        let ends = [
            (Step::Inodes, 0, 3),
            (Step::Inodes, 3, 3),
            (Step::Leftovers, 0, 1),
            (Step::Leftovers, 5, 5),
        ];
        // Others may be in between, if this was slow.
        let in_order: Vec<_> = told.iter().filter(|word| ends.contains(word)).collect();
        assert_eq!(in_order, ends.iter().collect::<Vec<_>>());
        assert!(told.is_sorted());
        assert!(!told.iter().any(|&(step, ..)| step == Step::Sessions));
    }
}
