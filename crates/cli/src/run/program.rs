//! Looks at a command before it runs, to warn where a preload library cannot help.
//!
//! Nothing here decides anything: a program that cannot be understood is run without a warning.

use arck_executable::Runtime;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Interpreters of scripts followed at most, as the kernel does.
const INTERPRETERS_MAX: usize = 4;

const SET_USER_OR_GROUP: u32 = 0o6000;

/// What a file is.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    Elf {
        kind: arck_executable::Kind,
        /// The dynamic linker's path, if it has one.
        linker: Vec<u8>,
        /// What is to be loaded before all else.
        runtime: Option<Runtime>,
    },
    /// `#!` with this interpreter and argument.
    Script(OsString, Option<OsString>),
    Unknown,
}

/// What to do with programs that no library serves.
const INSTEAD: &str = "mount the pool for it (arck mount), or let it work in a directory of the host, and copy \
                       what it needs (arck run -- cp, or arck export and arck import)";

/// What a command word is, as a shell would look it up.
#[derive(Default)]
pub struct Seen {
    /// One line each.
    pub warnings: Vec<String>,
    /// Of the file that the kernel executes, which may be a script's interpreter.
    pub runtime: Option<Runtime>,
}

impl Seen {
    pub fn of(word: &OsStr) -> Seen {
        let mut seen = Seen::default();
        let mut next = look_up(word);
        // Whether it is what the kernel comes to by itself: not what `env` looks up.
        let mut executed = true;
        for _ in 0..=INTERPRETERS_MAX {
            let Some(path) = next else { break };
            if let Ok(metadata) = path.metadata()
                && metadata.mode() & SET_USER_OR_GROUP != 0
                && metadata.uid() != rustix::process::geteuid().as_raw()
            {
                seen.warnings.push(format!(
                    "{} is set-user-ID or set-group-ID: the system ignores LD_PRELOAD, so it will \
                     not see the pool",
                    path.display()
                ));
            }
            next = None;
            match kind_of(&path) {
                Kind::Elf { kind, runtime, .. } => {
                    seen.warnings.extend(kind.why_unreached().map(|why| {
                        format!(
                            "{} {why}: it does not see the pool; {INSTEAD}",
                            path.display()
                        )
                    }));
                    seen.runtime = runtime.filter(|_| executed);
                }
                Kind::Script(interpreter, argument) => {
                    let through_env = file_name(interpreter.as_bytes()) == b"env";
                    next = match argument {
                        Some(argument) if through_env && !argument.as_bytes().starts_with(b"-") => {
                            executed = false;
                            look_up(&argument)
                        }
                        _ => Some(PathBuf::from(interpreter)),
                    };
                }
                Kind::Unknown => {}
            }
        }
        seen
    }
}

/// Why a command word could not be executed, in one line that says what to do.
pub fn why_not(word: &OsStr, error: &std::io::Error) -> String {
    let name = word.display();
    let error_text = super::telling::plain(error);
    let Some(path) = look_up(word).filter(|path| path.exists()) else {
        if word.as_bytes().contains(&b' ') {
            return format!(
                "no such command: \"{name}\"; if that is a command with its arguments, give them \
                 as words of their own, without quotes (or: sh -c \"{name}\")"
            );
        }
        let place = if word.as_bytes().contains(&b'/') {
            "there is no such file"
        } else {
            "it is in no directory of $PATH"
        };
        return format!("no such command: {name} ({place})");
    };
    let file = path.display();
    if path.is_dir() {
        return format!("cannot execute {file}: it is a directory");
    }
    match (error.raw_os_error(), kind_of(&path)) {
        (Some(libc::EACCES), _) => {
            format!("cannot execute {file}: {error_text}; if it is a program: chmod +x {file}")
        }
        (Some(libc::ENOENT), Kind::Script(interpreter, _)) => format!(
            "cannot execute {file}: its interpreter {} does not exist; correct its first line",
            interpreter.display()
        ),
        (Some(libc::ENOENT), Kind::Elf { linker, .. }) if !linker.is_empty() => format!(
            "cannot execute {file}: its dynamic linker {} does not exist",
            String::from_utf8_lossy(&linker)
        ),
        (Some(libc::ENOEXEC), _) => {
            format!("cannot execute {file}: it is no program for this machine")
        }
        _ => format!("cannot execute {file}: {error_text}"),
    }
}

fn file_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

/// The file that a command word names: itself if it has a slash, else the first in $PATH.
pub fn look_up(word: &OsStr) -> Option<PathBuf> {
    if word.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(word));
    }
    std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|directory| directory.join(word))
        .find(|path| {
            path.metadata().is_ok_and(|metadata| {
                metadata.is_file() && metadata.permissions().mode() & 0o111 != 0
            })
        })
}

fn kind_of(path: &Path) -> Kind {
    let Ok(mut file) = File::open(path) else {
        return Kind::Unknown;
    };
    let mut start = [0; arck_executable::START];
    let mut length = 0;
    while length < start.len() {
        match file.read(&mut start[length..]) {
            Ok(0) => break,
            Ok(count) => length += count,
            Err(_) => return Kind::Unknown,
        }
    }
    let start = &start[..length];
    if let Some(line) = start.strip_prefix(b"#!") {
        return script(line);
    }
    if !start.starts_with(b"\x7fELF") {
        return Kind::Unknown;
    }
    let read_at = |buffer: &mut [u8], offset| file.read_exact_at(buffer, offset).is_ok();
    let kind = arck_executable::Kind::of(start, read_at);
    let mut linker = Vec::new();
    if let arck_executable::Kind::Dynamic { place, length } = kind {
        linker.resize(length, 0);
        if !read_at(&mut linker, place) {
            linker.clear();
        }
        while linker.last() == Some(&0) {
            linker.pop();
        }
    }
    let runtime = Runtime::of(start, read_at);
    Kind::Elf {
        kind,
        linker,
        runtime,
    }
}

/// The rest of a `#!` line: interpreter and at most one argument, as the kernel splits it.
fn script(line: &[u8]) -> Kind {
    let line = line
        .split(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    let end = line
        .iter()
        .position(u8::is_ascii_whitespace)
        .unwrap_or(line.len());
    if end == 0 {
        return Kind::Unknown;
    }
    let argument = line[end..].trim_ascii();
    let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    Kind::Script(
        owned(&line[..end]),
        (!argument.is_empty()).then(|| owned(argument)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn script_lines() {
        let kind = |line: &str| script(line.as_bytes());
        assert_eq!(kind(" /bin/sh\necho"), Kind::Script("/bin/sh".into(), None));
        assert_eq!(
            kind("/usr/bin/env  python3 -u\n"),
            Kind::Script("/usr/bin/env".into(), Some("python3 -u".into()))
        );
        assert_eq!(kind("  \n"), Kind::Unknown);
    }

    #[test]
    fn this_test_is_dynamic_and_warned_of_nothing() {
        let executable = std::env::current_exe().unwrap();
        let Kind::Elf { kind, linker, .. } = kind_of(&executable) else {
            panic!("{executable:?}");
        };
        assert!(matches!(kind, arck_executable::Kind::Dynamic { .. }));
        assert!(
            linker.starts_with(b"/") && !linker.contains(&0),
            "{linker:?}"
        );
        assert_eq!(
            Seen::of(executable.as_os_str()).warnings,
            Vec::<String>::new()
        );
    }
}
