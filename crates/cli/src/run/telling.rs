//! Lines on standard error, and errors as users read them.

use std::io;
use std::sync::OnceLock;

/// Which command uses the pool, where it is not `arck run`.
static SPEAKER: OnceLock<&'static str> = OnceLock::new();

/// Lines are those of another command from now on.
pub fn speak_as(command: &'static str) {
    let _ = SPEAKER.set(command);
}

/// Prints one line of `arck run` itself, or of the command in whose place it is.
pub fn say(line: &str) {
    eprintln!("arck {}: {line}", SPEAKER.get().unwrap_or(&"run"));
}

/// An I/O error as the system words it, without the error number.
pub fn plain(error: &io::Error) -> String {
    let mut text = error.to_string();
    if let Some(end) = text.find(" (os error") {
        text.truncate(end);
    }
    if error.raw_os_error() == Some(libc::EMFILE) {
        text += " for the limit on descriptors (`ulimit -n`): allow more";
    }
    text
}
