//! How far a measurement is, on a terminal only.

use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress(ProgressBar);

impl Progress {
    /// Of a command that does so many things.
    pub fn new(command: &str, things: usize) -> Progress {
        let bar = ProgressBar::new(things as u64);
        let template = format!("{command} {{pos}}/{{len}} [{{elapsed}}] {{wide_msg}}");
        if let Ok(style) = ProgressStyle::with_template(&template) {
            bar.set_style(style);
        }
        Progress(bar)
    }

    /// One of them begins.
    pub fn next(&self, thing: String) {
        self.0.set_message(thing);
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
