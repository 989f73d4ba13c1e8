//! `arck attr`: what Arck keeps of a file beside what `stat` and `getfattr` tell.
//!
//! Invariant: a file is left as it was where the command says that something was wrong with it.

use crate::archive::{names, plain};
use crate::session::with_session;
use arckfs::{At, Errno, Failure, FileSystem, Mediation};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `arck attr`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck attr log/events                     how sessions write this file
  arck attr --mediated on log/events       by messages, from now on
  arck attr --mediated on spool            the names of a directory
  arck attr --below /                      what is mediated, or is not to be
  arck attr --pool /dev/shm/pool --json /arck/log/*

A file or a directory is changed by its owner: one session, which passes it on
to the next that wants it. Programs that do not trust each other (other users,
`arck run --no-group`) and change one by turns, a little each, wait for that at
every turn. What is mediated they change by messages to the controller, and
nobody owns it: each write of up to 64 KiB is there whole, or not at all, for
everybody, and so is each name that is made in a directory, renamed or removed.

`auto` has the controller find out which is faster; `on` and `off` are for who
knows. Only the file's user and root may say so. `arck attr` prints
`mediated (found)` where the controller has found it. A file that several
sessions map at the same time to be written goes by messages, too.

Exit status: 0; 1 if something is wrong with a file, which was told.")]
pub struct AttrArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(long, value_name = "POOL")]
    pool: Option<PathBuf>,

    /// How sessions are to write the files, or change the directories' names
    #[arg(long, value_name = "HOW")]
    mediated: Option<Wish>,

    /// Tell of all that is beneath, too, but for what its owner changes because nobody has said otherwise
    #[arg(long, conflicts_with = "mediated")]
    below: bool,

    /// JSON: an object a line
    #[arg(long)]
    json: bool,

    /// Files and directories, by their paths in the pool, with or without /arck before them
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
}

/// What may be wished for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Wish {
    /// By messages
    On,
    /// By owners
    Off,
    /// As the controller finds faster
    Auto,
}

impl From<Wish> for Mediation {
    fn from(wish: Wish) -> Mediation {
        match wish {
            Wish::On => Mediation::On,
            Wish::Off => Mediation::Off,
            Wish::Auto => Mediation::Auto,
        }
    }
}

/// How sessions change a file or a directory.
#[derive(Clone, Copy)]
struct How {
    mediation: Mediation,
    together: bool,
}

impl How {
    fn ask(fs: &FileSystem, name: &[u8]) -> Result<How, Failure> {
        Ok(How {
            mediation: fs.mediation(At::Root, name)?,
            together: fs.is_together(At::Root, name)?,
        })
    }

    fn text(self, path: &Path) -> String {
        let how = match self.mediation {
            Mediation::On => "mediated",
            Mediation::Found => "mediated (found)",
            Mediation::Off => "by its owner",
            Mediation::Auto => "by its owner (auto)",
        };
        let mapped = match self.together {
            true => ", mapped together",
            false => "",
        };
        format!("{}: {how}{mapped}\n", path.display())
    }

    fn told(self, path: &Path) -> Told<'_> {
        Told {
            path,
            mediated: match self.mediation {
                Mediation::On => "on",
                Mediation::Off => "off",
                Mediation::Auto | Mediation::Found => "auto",
            },
            by_messages: self.mediation.is_mediated() || self.together,
            mapped_together: self.together,
        }
    }
}

/// The same as JSON.
#[derive(Serialize)]
struct Told<'p> {
    path: &'p Path,
    /// `on`, `off` or `auto`.
    mediated: &'static str,
    /// Whether it is written by messages now.
    by_messages: bool,
    /// Whether several sessions may have it mapped to be written.
    mapped_together: bool,
}

/// A path in the pool, of one that may begin with where `arck run` shows it.
fn within_pool(path: &Path) -> &[u8] {
    let path = path.strip_prefix("/arck").unwrap_or(path);
    path.as_os_str().as_bytes()
}

fn line_of(failure: Failure) -> String {
    match failure {
        Failure::Errno(arckfs::Errno::INVAL) => {
            "neither a file nor a directory; only those are mediated".to_owned()
        }
        Failure::Errno(arckfs::Errno::PERM) => {
            "only its user and root may say how it is written".to_owned()
        }
        failure => plain(failure),
    }
}

fn one(fs: &FileSystem, arguments: &AttrArguments, path: &Path) -> Result<String, Failure> {
    let name = within_pool(path);
    if let Some(wish) = arguments.mediated {
        fs.set_mediation(At::Root, name, wish.into())?;
        return Ok(String::new());
    }
    Ok(line(arguments, path, How::ask(fs, name)?))
}

fn line(arguments: &AttrArguments, path: &Path, how: How) -> String {
    match arguments.json {
        true => serde_json::to_string(&how.told(path))
            .map_or_else(|_| String::new(), |line| line + "\n"),
        false => how.text(path),
    }
}

/// What a path leads to, and all that is beneath: each that is not as it is by itself to `tell`, and each that cannot be
/// looked at to `wrong`. Symbolic links are not followed.
fn all_below(
    fs: &FileSystem,
    path: &Path,
    tell: &mut dyn FnMut(&Path, How),
    wrong: &mut dyn FnMut(&Path, Failure),
) {
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let name = within_pool(&path);
        // The pool's own directory.
        let name = if name.is_empty() { &b"/"[..] } else { name };
        let looked = fs.stat(At::Root, name, libc::AT_SYMLINK_NOFOLLOW);
        match looked.map(|found| found.mode & libc::S_IFMT) {
            Ok(libc::S_IFDIR) => match names(fs, name) {
                Ok(names) => left.extend(
                    names
                        .iter()
                        .rev()
                        .map(|name| path.join(OsStr::from_bytes(name))),
                ),
                Err(failure) => wrong(&path, failure),
            },
            Ok(libc::S_IFREG) => {}
            Ok(_) => continue,
            // Gone since it was listed.
            Err(Failure::Errno(Errno::NOENT)) if !left.is_empty() => continue,
            Err(failure) => {
                wrong(&path, failure);
                continue;
            }
        }
        match How::ask(fs, name) {
            Ok(How {
                mediation: Mediation::Auto,
                together: false,
            })
            | Err(Failure::Errno(Errno::NOENT)) => {}
            Ok(how) => tell(&path, how),
            Err(failure) => wrong(&path, failure),
        }
    }
}

/// Tells, or changes.
pub fn main(arguments: &AttrArguments) -> ExitCode {
    let mut is_wrong = false;
    let mut wrong = |path: &Path, failure| {
        is_wrong = true;
        eprintln!("arck attr: {}: {}", path.display(), line_of(failure));
    };
    // Whoever reads it may have seen enough.
    let tell = |text: String| drop(std::io::stdout().write_all(text.as_bytes()));
    let done = with_session(arguments.pool.as_deref(), |fs| {
        for path in &arguments.paths {
            if arguments.below {
                let mut tell = |path: &Path, how| tell(line(arguments, path, how));
                all_below(fs, path, &mut tell, &mut wrong);
                continue;
            }
            match one(fs, arguments, path) {
                Ok(text) => tell(text),
                Err(failure) => wrong(path, failure),
            }
        }
        Ok(())
    });
    match done {
        Ok(()) if !is_wrong => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
        Err(line) => {
            eprintln!("arck attr: {line}");
            ExitCode::FAILURE
        }
    }
}
