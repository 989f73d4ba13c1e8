//! A side: a directory on tmpfs, or one on the pool, and how programs are started that see it.

use crate::outcome::Outcome;
use crate::pool::{Bench, MOUNT};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// See the module's head.
pub struct Side {
    pub name: &'static str,
    /// The directory in which a program works.
    pub directory: String,
    /// A directory of the host's, for what is not measured: sockets, scripts.
    pub beside: PathBuf,
    /// The command and the pool, on that side.
    run: Option<(PathBuf, PathBuf)>,
}

impl Side {
    pub fn tmpfs(bench: &Bench) -> Side {
        Side {
            name: "tmpfs",
            directory: bench.tmpfs().join("work").display().to_string(),
            beside: bench.tmpfs(),
            run: None,
        }
    }

    pub fn pool(bench: &Bench, arck: &Path) -> Side {
        Side {
            name: "the pool",
            directory: format!("{MOUNT}/work"),
            beside: bench.tmpfs(),
            run: Some((arck.to_owned(), bench.pool())),
        }
    }

    /// A program that sees the side. It ends when this process does.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = match &self.run {
            None => Command::new(program),
            Some((arck, pool)) => {
                let mut command = Command::new(arck);
                command.arg("run").arg("--pool").arg(pool).arg("--");
                command.arg(program);
                command
            }
        };
        command.stdin(Stdio::null()).env("LC_ALL", "C");
        let end_with_us = || {
            // SAFETY: numbers only.
            match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: it makes one system call, and allocates nothing.
        unsafe { command.pre_exec(end_with_us) };
        command
    }

    pub fn make(&self) -> Outcome<()> {
        said(self.command(Path::new("mkdir")).arg(&self.directory)).map(drop)
    }

    pub fn remove(&self) -> Outcome<()> {
        let mut command = self.command(Path::new("rm"));
        said(command.arg("-r").arg(&self.directory)).map(drop)
    }
}

/// Runs a command to its end: what it has printed. An error is what it has said.
pub fn said(command: &mut Command) -> Outcome<String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    // Some programs draw over what they have said before.
    let lines: Vec<&str> = errors.split(['\n', '\r']).chain(printed.lines()).collect();
    let last = &lines[lines.len().saturating_sub(5)..];
    Err(format!(
        "{command:?}: {}: {}",
        output.status,
        last.join("\n").trim()
    ))
}
