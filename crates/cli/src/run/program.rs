//! Looks at a command before it runs, to warn where a preload library cannot help.
//!
//! Nothing here decides anything: a program that cannot be understood is run without a warning.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Interpreters of scripts followed at most, as the kernel does.
const INTERPRETERS_MAX: usize = 4;

const PT_INTERP: u32 = 3;
const PT_NOTE: u32 = 4;
const ELF_HEADER_SIZE: usize = 64;
const PROGRAM_HEADER_SIZE: usize = 56;
const SET_USER_OR_GROUP: u32 = 0o6000;

/// What kind of executable a file is, as far as preloading is concerned.
#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// Loads libraries, through this dynamic linker.
    Dynamic(Vec<u8>),
    /// Go's, which makes system calls by its own instructions, whether it loads libraries or not.
    Go,
    Static,
    /// ELF, but not 64-bit x86.
    OtherMachine,
    /// `#!` with this interpreter and argument.
    Script(OsString, Option<OsString>),
    Unknown,
}

/// What to do with programs that no library serves.
const INSTEAD: &str = "a pool cannot be mounted yet: let it work in a directory of the host, and copy \
                       what it needs (arck run -- cp, or arck export and arck import)";

/// Warnings, one line each, about a command word as a shell would look it up.
pub fn warnings(word: &OsStr) -> Vec<String> {
    let mut found = Vec::new();
    let mut next = look_up(word);
    for _ in 0..=INTERPRETERS_MAX {
        let Some(path) = next else { break };
        if let Ok(metadata) = path.metadata()
            && metadata.mode() & SET_USER_OR_GROUP != 0
            && metadata.uid() != rustix::process::geteuid().as_raw()
        {
            found.push(format!(
                "{} is set-user-ID or set-group-ID: the system ignores LD_PRELOAD, so it will not \
                 see the pool",
                path.display()
            ));
        }
        next = None;
        match kind_of(&path) {
            Kind::Static => found.push(format!(
                "{} is a static executable: it loads no libraries, so it will not see the pool; {}",
                path.display(),
                INSTEAD
            )),
            Kind::Go => found.push(format!(
                "{} is a Go program: it makes system calls by itself, past all libraries, so it will \
                 not see the pool; {}",
                path.display(),
                INSTEAD
            )),
            Kind::OtherMachine => found.push(format!(
                "{} is not a 64-bit x86 executable: it cannot load the preload library",
                path.display()
            )),
            Kind::Dynamic(linker) if file_name(&linker).starts_with(b"ld-musl") => {
                found.push(format!(
                    "{} is built for musl, the preload library for glibc: it may fail to start",
                    path.display()
                ));
            }
            Kind::Script(interpreter, argument) => {
                let through_env = file_name(interpreter.as_bytes()) == b"env";
                next = match argument {
                    Some(argument) if through_env && !argument.as_bytes().starts_with(b"-") => {
                        look_up(&argument)
                    }
                    _ => Some(PathBuf::from(interpreter)),
                };
            }
            Kind::Dynamic(_) | Kind::Unknown => {}
        }
    }
    found
}

/// Why a command word could not be executed, in one line that says what to do.
pub fn why_not(word: &OsStr, error: &std::io::Error) -> String {
    let name = word.display();
    let error_text = super::plain(error);
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
        (Some(libc::ENOENT), Kind::Dynamic(linker)) => format!(
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
    let mut start = [0; 256];
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
    elf(start, |buffer, offset| {
        file.read_exact_at(buffer, offset).is_ok()
    })
    .unwrap_or(Kind::Unknown)
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

/// An ELF file by its first bytes and a function that reads at an offset; `None` if it is cut
/// short. Numbers in it are checked before use: a file may say anything.
fn elf(start: &[u8], read_at: impl Fn(&mut [u8], u64) -> bool) -> Option<Kind> {
    let number = |bytes: &[u8], offset: usize, size: usize| -> Option<u64> {
        let mut word = [0; 8];
        word[..size].copy_from_slice(bytes.get(offset..offset.checked_add(size)?)?);
        Some(u64::from_le_bytes(word))
    };
    let header = start.get(..ELF_HEADER_SIZE)?;
    // Class 64-bit, little-endian, EM_X86_64.
    if header[4] != 2 || header[5] != 1 || number(header, 18, 2)? != 62 {
        return Some(Kind::OtherMachine);
    }
    let table = number(header, 32, 8)?;
    let entry_size = number(header, 54, 2)?;
    let entries = number(header, 56, 2)?;
    if (entry_size as usize) < PROGRAM_HEADER_SIZE {
        return None;
    }
    let (mut linker, mut go) = (None, false);
    for index in 0..entries {
        let mut entry = [0; PROGRAM_HEADER_SIZE];
        if !read_at(&mut entry, table.checked_add(index * entry_size)?) {
            return None;
        }
        let (kind, place) = (number(&entry, 0, 4)?, number(&entry, 8, 8)?);
        let mut part = vec![0; number(&entry, 32, 8)?.min(4096) as usize];
        if kind == u64::from(PT_INTERP) {
            if !read_at(&mut part, place) {
                return None;
            }
            while part.last() == Some(&0) {
                part.pop();
            }
            linker = Some(part);
        } else if kind == u64::from(PT_NOTE) {
            go |= read_at(&mut part, place) && has_note_of_go(&part);
        }
    }
    Some(match linker {
        _ if go => Kind::Go,
        Some(linker) => Kind::Dynamic(linker),
        None => Kind::Static,
    })
}

/// Whether one of a segment's notes is what Go's linker writes: which build it is.
fn has_note_of_go(mut notes: &[u8]) -> bool {
    let number = |bytes: &[u8], at: usize| {
        let field = bytes.get(at..at + 4)?;
        Some(u32::from_le_bytes([field[0], field[1], field[2], field[3]]) as usize)
    };
    while let (Some(name), Some(description)) = (number(notes, 0), number(notes, 4)) {
        if notes.get(12..16) == Some(b"Go\0\0") && name == 4 {
            return true;
        }
        let length = 12 + name.next_multiple_of(4) + description.next_multiple_of(4);
        notes = notes.get(length..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind_of_bytes(bytes: &[u8]) -> Option<Kind> {
        elf(bytes, |buffer, offset| {
            let range = offset as usize..(offset as usize).saturating_add(buffer.len());
            match bytes.get(range) {
                Some(part) => {
                    buffer.copy_from_slice(part);
                    true
                }
                None => false,
            }
        })
    }

    fn elf_file(program_header: u32) -> Vec<u8> {
        let mut file = vec![0; 256];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18] = 62;
        file[32] = 64; // program headers follow the header
        file[54] = PROGRAM_HEADER_SIZE as u8;
        file[56] = 1;
        file[64..68].copy_from_slice(&program_header.to_le_bytes());
        file[72] = 200; // offset of the interpreter's name
        file[96] = 8; // its size
        file[200..208].copy_from_slice(b"/ld.so.\0");
        file
    }

    #[test]
    fn static_and_dynamic_are_told_apart() {
        assert_eq!(
            kind_of_bytes(&elf_file(PT_INTERP)),
            Some(Kind::Dynamic(b"/ld.so.".to_vec()))
        );
        assert_eq!(kind_of_bytes(&elf_file(1)), Some(Kind::Static));
        let mut other = elf_file(1);
        other[18] = 3;
        assert_eq!(kind_of_bytes(&other), Some(Kind::OtherMachine));
    }

    #[test]
    fn programs_of_go_are_known_by_their_note() {
        let mut file = elf_file(PT_NOTE);
        file[96] = 20;
        file[200..220].copy_from_slice(b"\x04\0\0\0\x04\0\0\0\x04\0\0\0Go\0\0abcd");
        assert_eq!(kind_of_bytes(&file), Some(Kind::Go));
        // Behind another, and none.
        let mut other = file.clone();
        other[96] = 40;
        other[200..220].copy_from_slice(b"\x04\0\0\0\x04\0\0\0\x01\0\0\0GNU\0abcd");
        assert_eq!(kind_of_bytes(&other), Some(Kind::Static));
        other[220..240].copy_from_slice(&file[200..220]);
        assert_eq!(kind_of_bytes(&other), Some(Kind::Go));
        // Lengths that lead nowhere.
        other[200..208].fill(0xff);
        assert_eq!(kind_of_bytes(&other), Some(Kind::Static));
    }

    #[test]
    fn damaged_files_are_unknown() {
        assert_eq!(kind_of_bytes(&elf_file(1)[..60]), None);
        let mut far = elf_file(PT_INTERP);
        far[72..80].fill(0xff);
        assert_eq!(kind_of_bytes(&far), None);
        far = elf_file(1);
        far[32..40].fill(0xff);
        assert_eq!(kind_of_bytes(&far), None);
    }

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
        assert!(matches!(kind_of(&executable), Kind::Dynamic(_)));
        assert_eq!(warnings(executable.as_os_str()), Vec::<String>::new());
    }
}
