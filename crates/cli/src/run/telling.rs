//! Lines on standard error, and errors as users read them.

use std::io;

/// Prints one line of `arck run` itself.
pub fn say(line: &str) {
    eprintln!("arck run: {line}");
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
