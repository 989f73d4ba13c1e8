//! `arck serve --mount DIR`: a mount that is there for as long as the pool is served.
//!
//! It is served by a process of its own: a client of the controller like any other, which is nothing to be trusted. That
//! process is started before this one may become the pool's owner, so that root's mount is root's, and waits for a word on
//! its standard input; when that input ends, whatever the controller died of, it ends the mount.
//!
//! Invariant: the pool is said to be served when the mount is there, and closed after the mount has ended.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For so long the end of the mount's process is waited for; then the pool is closed all the same.
const END_LIMIT: Duration = Duration::from_secs(30);
const PAUSE: Duration = Duration::from_millis(5);

/// See the module's head.
pub struct Mounting {
    process: Child,
}

impl Mounting {
    /// Starts what will serve the mount. Does not block.
    pub fn prepare(pool: &Path, directory: &Path) -> Result<Mounting, String> {
        let failed = |error: std::io::Error| {
            format!("cannot start arck mount: {}", crate::run::plain(&error))
        };
        let absolute = |path: &Path| std::path::absolute(path).map_err(failed);
        let mut command: Command = crate::mount::serving(&absolute(pool)?, &absolute(directory)?);
        command.arg("--beneath");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let process = command.spawn().map_err(failed)?;
        Ok(Mounting { process })
    }

    /// The pool is served: mounts it. Blocks until the mount is there.
    ///
    /// # Errors
    /// One line.
    pub fn begin(&mut self) -> Result<(), String> {
        if let Some(input) = &mut self.process.stdin {
            // Where it has ended, it says why.
            let _ = input.write_all(crate::mount::GO.as_bytes());
        }
        let mut word = String::new();
        if let Some(output) = self.process.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut word);
        }
        if word == crate::mount::READY {
            return Ok(());
        }
        let mut said = String::new();
        if let Some(errors) = &mut self.process.stderr {
            let _ = errors.read_to_string(&mut said);
        }
        let line = said
            .lines()
            .next()
            .unwrap_or("what was to mount it ended without a word");
        Err(line.strip_prefix("arck mount: ").unwrap_or(line).to_owned())
    }

    /// Ends the mount, if it is still there, with all that was done through it folded. Blocks at most [`END_LIMIT`].
    pub fn end(mut self) {
        drop(self.process.stdin.take());
        let since = Instant::now();
        while matches!(self.process.try_wait(), Ok(None)) && since.elapsed() < END_LIMIT {
            std::thread::sleep(PAUSE);
        }
    }
}
