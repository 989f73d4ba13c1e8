//! How far the opening of a pool is, for whoever waits for it: a bar on a terminal, lines elsewhere,
//! and words through the status pipe for an `arck run` that started this controller.
//!
//! # Invariants
//! * Nothing is told of an opening that takes less than [`MOMENT`].
//! * A word is a line that begins with [`WORD`]; who does not know it can leave it out.

use crate::bar::Bar;
use arck_controller::{Progress, ProgressHook};
use rustix::fd::OwnedFd;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Before that nobody waits.
pub const MOMENT: Duration = Duration::from_secs(1);
/// Between two lines where there is no terminal.
const LINES: Duration = Duration::from_secs(10);
/// Between two words through a pipe.
const WORDS: Duration = Duration::from_millis(200);
/// What a word through the status pipe begins with.
pub const WORD: &str = "opening ";

/// Tells on standard error. Call the second when the pool is open.
pub fn on_standard_error(pool: &Path) -> (ProgressHook, impl Fn() + use<>) {
    let what = format!("arck serve: opening {}", pool.display());
    let bar = Arc::new(Bar::new(what.clone(), MOMENT));
    let has_bar = std::io::stderr().is_terminal();
    let next = Mutex::new(Instant::now() + MOMENT);
    let shown = bar.clone();
    let hook = move |progress: Progress| {
        if has_bar {
            let text = format!("{what}, {}", progress.step.name());
            shown.step(&text, progress.done, progress.all);
        } else if is_due(&next, LINES) {
            eprintln!(
                "{what}, {}: {} of {}",
                progress.step.name(),
                progress.done,
                progress.all
            );
        }
    };
    (Arc::new(hook), move || bar.end())
}

/// Tells through the status pipe.
pub fn through(pipe: OwnedFd) -> ProgressHook {
    let next = Mutex::new(Instant::now() + MOMENT);
    Arc::new(move |progress: Progress| {
        if is_due(&next, WORDS) {
            let Progress { step, done, all } = progress;
            let word = format!("{WORD}{done} {all} {}\n", step.name());
            // Whoever started us may be gone already.
            let _ = rustix::io::write(&pipe, word.as_bytes());
        }
    })
}

/// Whether it is time again; then the next time is so much later.
pub fn is_due(next: &Mutex<Instant>, every: Duration) -> bool {
    let now = Instant::now();
    match next.lock() {
        Ok(mut next) if now >= *next => {
            *next = now + every;
            true
        }
        _ => false,
    }
}

/// What such a word says: so much, of so much, of what.
pub fn read(word: &str) -> Option<(u64, u64, &str)> {
    let mut parts = word.strip_prefix(WORD)?.splitn(3, ' ');
    let done = parts.next()?.parse().ok()?;
    let all = parts.next()?.parse().ok()?;
    Some((done, all, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use arck_controller::Step;
    use std::io::Read;

    #[test]
    fn a_word_is_read_as_it_was_written() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let hook = through(writer.into());
        let progress = Progress {
            step: Step::Sessions,
            done: 3,
            all: 17,
        };
        // Nobody waits yet.
        hook(progress);
        std::thread::sleep(MOMENT);
        hook(progress);
        // Too soon, unless this was slow; then the same again.
        hook(progress);
        drop(hook);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        let words: Vec<_> = text.lines().map(read).collect();
        assert!(!words.is_empty());
        for word in words {
            assert_eq!(word, Some((3, 17, Step::Sessions.name())));
        }
        assert_eq!(read("ready"), None);
        assert_eq!(read("opening the door now"), None);
    }
}
