//! Ctrl-C, and a request to end, while an archive is written or read.
//!
//! Invariant: a signal only sets a word; whoever waits for the archive is woken (a call is not
//! begun again), sees it, and ends in order.

use crate::run::signals;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn note(_signal: libc::c_int) {
    INTERRUPTED.store(true, Ordering::SeqCst);
}

/// Whether a signal has come.
pub fn happened() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// From now on signals are noted. One that was ignored stays so.
pub fn watch() {
    let signals = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];
    // Without SA_RESTART: who reads or writes is woken.
    // SAFETY: the handler takes the signal alone, and stores an atomic word.
    unsafe { signals::handle(&signals, note as *const () as usize, 0) };
}

fn ended() -> io::Error {
    io::Error::other("interrupted")
}

/// Reads or writes until a signal has come.
pub struct Until<T>(pub T);

impl<R: Read> Read for Until<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer) {
            _ if happened() => Err(ended()),
            other => other,
        }
    }
}

impl<W: Write> Write for Until<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if happened() {
            return Err(ended());
        }
        match self.0.write(bytes) {
            Err(_) if happened() => Err(ended()),
            other => other,
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}
