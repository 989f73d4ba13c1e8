//! A session of a command's own on a pool that is served, or that is served for it.
//!
//! Invariant: it has ended, with all that was done folded, when the command goes on.

use arckfs::{ConnectOptions, Errno, FileSystem};
use std::path::Path;

/// Runs `work` with a session on the pool. One line says what was wrong.
pub fn with_session(
    pool: Option<&Path>,
    work: impl FnOnce(&FileSystem) -> Result<(), String>,
) -> Result<(), String> {
    let pool = crate::run::locate(pool)?;
    let user = crate::run::User::attach(&pool, &crate::run::Wishes::new(None, None, None))?;
    let options = ConnectOptions {
        pool,
        mount: b"/arck".to_vec(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    };
    let fs = FileSystem::connect_waiting(&options).map_err(|error| error.to_string())?;
    let done = work(&fs);
    let ended = fs
        .disconnect()
        .map_err(|errno: Errno| format!("ending the session: {}", crate::archive::plain(errno)));
    let line = user.end();
    done.and(ended).and(line.map_or(Ok(()), Err))
}
