//! Asks the controller of a pool how it is.
//!
//! # Invariants
//! * Nobody waits longer than he said, whatever the controller does or its pool's file system: what may last is done
//!   by a thread of its own, which ends with the process at the latest.
//! * What is told says nothing that would steer a terminal, nor more than a bounded number of processes.

use super::terminal::plain;
use super::told::Told;
use crate::announcing::Peer;
use arck_libfs_kit::session::connect_socket;
use arck_protocol::socket::{self, Answer, Call};
use arck_protocol::status::Process;
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// So many processes are listed at most.
const PROCESSES_MAX: usize = 1 << 16;

/// Does something that may last for ever. `None`: it has lasted for too long.
pub fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Option<Result<T, String>> {
    let (sender, receiver) = channel();
    let thread = std::thread::Builder::new().spawn(move || {
        // Nobody may be listening any more.
        let _ = sender.send(work());
    });
    if let Err(error) = thread {
        return Some(Err(format!(
            "no thread can be started: {}",
            crate::run::plain(&error)
        )));
    }
    match receiver.recv_timeout(limit) {
        Ok(done) => Some(done),
        Err(RecvTimeoutError::Timeout) => None,
        Err(RecvTimeoutError::Disconnected) => Some(Err("it cannot be asked".to_owned())),
    }
}

/// Asks the controller of a pool; no longer than that.
///
/// # Errors
/// One line: nobody serves it, or not to this user, or does not answer.
pub fn ask(pool: &Path, limit: Duration) -> Result<Told, String> {
    let shown = pool.display();
    let owned = pool.to_path_buf();
    within(limit, move || ask_for_ever(&owned)).unwrap_or_else(|| {
        Err(format!(
            "the controller of {shown} has not answered for {} s: it is stopped, or very busy",
            limit.as_secs_f32()
        ))
    })
}

pub fn ask_for_ever(pool: &Path) -> Result<Told, String> {
    let shown = pool.display();
    let socket = connect_socket(pool).map_err(|errno| {
        crate::run::why_none(pool).unwrap_or_else(|| match errno {
            Errno::NOENT | Errno::NOTDIR | Errno::CONNREFUSED => {
                let serving = arck_libfs_kit::connection::serving(pool);
                format!("nobody serves the pool {shown}; {serving} does")
            }
            other => format!("cannot ask the controller of {shown}: {other}"),
        })
    })?;
    let failed = |errno: Errno| format!("cannot ask the controller of {shown}: {errno}");
    let peer = Peer::of(socket.as_fd()).map_err(failed)?;
    let status = match socket::call(&socket, &Call::Status) {
        Ok((Answer::Status(status), _)) => status,
        Ok((Answer::Error(_, text), _)) => {
            return Err(format!("the controller of {shown}: {text}"));
        }
        Ok(_) => {
            return Err(format!(
                "the controller of {shown} is of another release, and tells nothing"
            ));
        }
        Err(errno) => return Err(failed(errno)),
    };
    // An earlier release does not know what comes now, and hangs up.
    let pool = match socket::call(&socket, &Call::Pool) {
        Ok((Answer::Pool(pool), _)) => Some(pool),
        _ => None,
    };
    let processes = match pool {
        Some(_) => processes(&socket).map_err(failed)?,
        None => Vec::new(),
    };
    Ok(Told {
        status,
        pool,
        processes,
        peer,
    })
}

fn processes(socket: &OwnedFd) -> Result<Vec<Process>, Errno> {
    let mut all: Vec<Process> = Vec::new();
    loop {
        let last = all.last().map(|last| (last.session, last.member));
        let (session, member) = last.unwrap_or((0, 0));
        let told = match socket::call(socket, &Call::Processes { session, member })?.0 {
            Answer::Processes(told) => told,
            _ => return Err(Errno::PROTO),
        };
        let more = told.more && !told.processes.is_empty();
        all.extend(told.processes.into_iter().map(|process| Process {
            program: plain(&process.program),
            ..process
        }));
        if !more || all.len() >= PROCESSES_MAX {
            return Ok(all);
        }
    }
}
