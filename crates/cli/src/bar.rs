//! A bar on standard error, if that is a terminal, for work that takes longer than a moment.
//!
//! Invariant: nothing is drawn before that, and nothing of it is left at the end.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::{self, IsTerminal};
use std::time::{Duration, Instant};

/// See the module's head.
pub struct Bar {
    bar: ProgressBar,
    since: Instant,
    moment: Duration,
}

impl Bar {
    /// `moment`: before that nobody waits.
    pub fn new(what: String, moment: Duration) -> Bar {
        let bar = ProgressBar::hidden();
        let template = "{msg} {bar:40} {percent}% {elapsed} of about {duration}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        bar.set_message(what);
        let since = Instant::now();
        Bar { bar, since, moment }
    }

    fn show(&self, all: u64) -> bool {
        if self.since.elapsed() < self.moment {
            return false;
        }
        if self.bar.is_hidden() && io::stderr().is_terminal() {
            self.bar.set_draw_target(ProgressDrawTarget::stderr());
        }
        if self.bar.length() != Some(all) {
            self.bar.set_length(all);
        }
        true
    }

    /// So much is done; threads may tell in any order.
    pub fn set(&self, done: u64, all: u64) {
        if self.show(all) && done > self.bar.position() {
            self.bar.set_position(done);
        }
    }

    /// So much of a step of its own is done.
    pub fn step(&self, what: &str, done: u64, all: u64) {
        if self.show(all) {
            if self.bar.message() != what {
                self.bar.set_message(what.to_owned());
                self.bar.reset_eta();
            }
            self.bar.set_position(done);
        }
    }

    /// Takes it away.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
