//! What `arck run` is asked.

use arck_protocol::socket::GROUP_NAME_MAX;
use arckfs::{Resolver, Threads};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Options of `arck run`.
#[derive(Args, Debug)]
#[command(after_help = "\
If nobody serves the pool, arck run starts a controller of its own for it. That
one stays until the command, what the command left running in the background,
and all other programs on the pool have ended; arck run itself ends with the
command. If it is killed before, arck run starts another one, and the programs
go on.

A program sees one pool: an arck run inside another shows its command its own
pool instead. To copy from one pool to another:
  arck export A | arck import B

Exit status: the command's own; 127 if there is no such command, 126 if it
cannot be executed. If a signal ends the command, the same signal ends arck run,
of which a shell makes 128 + its number. Where arck run itself fails, 1; if its
options are wrong, 2.

Examples:
  arck run -- ls -l /arck
  arck run --pool /dev/shm/pool --report -- sqlite3 /arck/data.db
  arck run --mount /data -- sh       a shell in which /data is the pool
  arck run --fs fpfs -- ./indexer    for trees of many deep directories
  arck run --own-group -- ./untried  apart from your other programs
  arck run --group shop -- ./server  one session with all of --group shop
  arck run --at-once 4 -- ./copier   four large writes at once, and others wait")]
pub struct RunArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(long, value_name = "DIRECTORY")]
    pub pool: Option<PathBuf>,

    /// Path under which the command sees the pool. On the host it should be missing, an empty
    /// directory, or where the pool is mounted; where possible one is made for as long as the command
    /// runs [default: where the pool is mounted (arck mount), else /arck]
    #[arg(long, value_name = "PATH")]
    pub mount: Option<PathBuf>,

    /// Trust group to be one of: its programs have one session together, see each other's changes
    /// at once and pay nothing for them, and trust each other; only programs of the same user join
    /// [default: the one it is started in, else that of all your programs on the pool]
    #[arg(long, value_name = "NAME", value_parser = group_name)]
    pub group: Option<String>,

    /// A trust group for this command alone
    #[arg(long, conflicts_with = "group")]
    pub own_group: bool,

    /// A session of its own for each program that the command starts
    #[arg(long, conflicts_with_all = ["group", "own_group"])]
    pub no_group: bool,

    /// File system of the command's programs: arckfs for all that there is, or fpfs, which finds files in deep trees of
    /// many directories by their full paths. All programs of a group have one; without --group, those that have
    /// another are another group [default: $ARCK_FS, else arckfs]
    #[arg(long, value_name = "NAME")]
    pub fs: Option<Resolver>,

    /// Say at exit what was intercepted, on standard error or in FILE (JSON if it ends in .json)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true)]
    pub report: Option<Option<PathBuf>>,

    /// Do not mount the pool for programs that the library is not loaded into, such as static ones: where the
    /// kernel has FUSE arck run does so, as root in a mount namespace of the command's, else by fusermount3
    /// if --mount is an empty directory of the user's own
    #[arg(long)]
    pub no_mount: bool,

    /// Do not execute programs that do not see the pool, such as static ones where it is not mounted (EACCES)
    #[arg(long)]
    pub strict: bool,

    /// Do not name programs that do not see the pool
    #[arg(long)]
    pub quiet: bool,

    /// Whether a private controller's sessions flush their stores to memory
    #[arg(long, value_name = "WHEN", value_enum)]
    pub persist: Option<Persist>,

    /// Have a private controller and its sessions emulate this medium: optane, cxl, dram, or a file that describes one;
    /// none for none [default: $ARCK_MEDIUM, else none]
    #[arg(long, value_name = "NAME|FILE")]
    pub medium: Option<String>,

    /// The emulated medium has so many memory nodes, and not as many as its description says: 1 to 16
    /// [default: $ARCK_NODES]
    #[arg(long, value_name = "N", value_parser = crate::number::parse::<u32>)]
    pub nodes: Option<u32>,

    /// Threads that are at large writes at once, of all programs of the user together, at each memory node: 1 to 64; auto
    /// for what the description of the emulated medium says, off for all that ask. For media that many writers slow down
    /// [default: $ARCK_AT_ONCE, else off]
    #[arg(long, value_name = "N|auto|off", conflicts_with = "delegate")]
    pub at_once: Option<Threads>,

    /// Threads of each program that do its large reads and writes for it, of each memory node: 1 to 64; auto for as
    /// many as the description of the emulated medium says, off for none. A program starts them at its first such
    /// access [default: $ARCK_DELEGATE, else off]
    #[arg(long, value_name = "N|auto|off")]
    pub delegate: Option<Threads>,

    /// The command and its arguments
    // No hyphen values: an option of ours that is mistyped would be taken for the command. What
    // follows the command's first word is the command's, options included.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<OsString>,
}

/// A name that a trust group can have.
fn group_name(name: &str) -> Result<String, String> {
    match name.len() {
        1..=GROUP_NAME_MAX => Ok(name.to_owned()),
        _ => Err(format!("a name has 1 to {GROUP_NAME_MAX} bytes")),
    }
}

/// When stores are flushed (`--persist`).
#[derive(ValueEnum, Clone, Copy, Debug)]
pub enum Persist {
    /// As the kind of memory under the pool demands
    Auto,
    /// Even where the memory does not survive the machine
    Always,
    /// Not at all
    Never,
}

impl Persist {
    pub fn name(self) -> &'static str {
        match self {
            Persist::Auto => "auto",
            Persist::Always => "always",
            Persist::Never => "never",
        }
    }
}
