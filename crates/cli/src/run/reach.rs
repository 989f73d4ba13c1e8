//! Programs that the preload library does not reach: what `arck run` tells it about them. Each is named
//! once, on standard error, by whoever executes it; the table of those that have been is a memory file
//! of `arck run`'s, which they find by its descriptor as long as it runs.

use super::arguments::RunArguments;
use rustix::fd::{AsRawFd, OwnedFd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use std::process::Command;

/// Bytes of the table, as the preload library has it, and the word with which it begins.
const TABLE_SIZE: u64 = 4096;
const TABLE: &[u8; 8] = b"arcksaid";

/// The variable that tells that the kernel has the pool mounted, too.
const BENEATH: &str = "ARCK_BENEATH";

/// Whether such programs are refused: by the option, or by who started this.
pub fn is_strict(arguments: &RunArguments) -> bool {
    arguments.strict || is_one("ARCK_STRICT")
}

/// Whether nothing is said of them.
pub fn is_quiet(arguments: &RunArguments) -> bool {
    arguments.quiet || is_one("ARCK_QUIET")
}

/// Whether the pool that this process sees is mounted at the same place.
pub fn is_beneath() -> bool {
    is_one(BENEATH)
}

/// Tells the command whether it is.
pub fn tell_beneath(command: &mut Command, is_mounted: bool) {
    match is_mounted {
        true => command.env(BENEATH, "1"),
        false => command.env_remove(BENEATH),
    };
}

fn is_one(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| value == "1")
}

/// Of one command; the table is gone with it.
pub struct Reach {
    _table: Option<OwnedFd>,
}

impl Reach {
    /// Tells the command.
    pub fn tell(arguments: &RunArguments, command: &mut Command) -> Reach {
        for (name, is_set) in [
            ("ARCK_STRICT", is_strict(arguments)),
            ("ARCK_QUIET", is_quiet(arguments)),
        ] {
            match is_set {
                true => command.env(name, "1"),
                false => command.env_remove(name),
            };
        }
        // Without one they are named each time.
        let table = table().ok();
        match &table {
            Some(table) => {
                let (process, file) = (std::process::id(), table.as_raw_fd());
                command.env("ARCK_SAID", format!("/proc/{process}/fd/{file}"))
            }
            None => command.env_remove("ARCK_SAID"),
        };
        Reach { _table: table }
    }
}

/// An empty table, which nobody can cut.
fn table() -> Result<OwnedFd, Errno> {
    let table = memfd_create("arck-said", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&table, TABLE_SIZE)?;
    rustix::io::pwrite(&table, TABLE, 0)?;
    fcntl_add_seals(
        &table,
        SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL,
    )?;
    Ok(table)
}
