//! Programs that this library is not loaded into: looked at before they are executed, and named, once for
//! each `arck run`, on standard error. What such a program does goes to the kernel, which knows no pool: it
//! finds nothing there, or, where it may, makes files of its own on the host at that path.
//!
//! Such are static executables, those of another machine or libc, Go's that use no libc, and those for which
//! the loader ignores LD_PRELOAD, since they have rights that their user has not (set-user-ID and
//! set-group-ID ones, and those with capabilities; any that a process executes whose real and effective ids
//! differ). With ARCK_STRICT=1 they are not executed: EACCES, after which a shell looks no further than for
//! another of that name, while after ENOEXEC it would read the program as a script.
//!
//! Where the kernel has the pool mounted at the same place (ARCK_BENEATH=1), such a program reaches it there: it begins in
//! the directory that its starter is in, with the mount's descriptors of what it inherits ([`inherited`]), and is named
//! only if it has a placeholder as its standard input, output or error that could not be replaced.
//!
//! What was said is kept in a table of `arck run`'s, named by ARCK_SAID: a sealed memory file under its
//! descriptor's path, which is there as long as `arck run`. Who does not find it says it again.
//!
//! Invariants:
//! * Looking at an ordinary program takes six system calls, seven for users other than root, and no more
//!   than 2 KiB of stack; nothing is allocated, so children in their parent's memory can do it.
//! * Nothing is believed of the table but that a word in it is one that was put there; anybody's file may
//!   be named. It is used only if it is sealed against cutting, so that it can be mapped.

mod inherited;
pub mod mounted;
pub mod receivers;

use crate::handlers::{HERE, is_empty};
use crate::raw::{self, Text, error, syscall};
use crate::{memory, settings};
use arck_executable::{Kind, Runtime, START};
use std::sync::atomic::{AtomicU64, Ordering};

/// Why a program is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Kind(Kind),
    /// Its user gets rights by it.
    Privileged,
    /// The process that executes it has others than its user's.
    Changed,
    /// It has made its threads' storage itself, so that this library's is gone.
    OwnStorage,
}

impl Reason {
    fn words(self) -> &'static str {
        match self {
            Reason::Kind(kind) => kind.why_unreached().unwrap_or_default(),
            Reason::Privileged => {
                "gives its user other rights (set-user-ID, set-group-ID or capabilities), so the system \
                 ignores LD_PRELOAD"
            }
            Reason::Changed => {
                "is executed by a process whose real and effective user differ, so the system ignores \
                 LD_PRELOAD"
            }
            Reason::OwnStorage => "makes its threads without libc",
        }
    }
}

/// A program that is about to be executed: as the system call has it.
#[derive(Clone, Copy)]
pub struct Program {
    pub directory: usize,
    pub path: usize,
    pub flags: i32,
}

/// Scripts lead to interpreters, which may be scripts: so often.
const DEPTH_MAX: u32 = 5;

/// What is to be known of a program before it is executed: the runtime that it wants to be loaded before all
/// else. Or EACCES, if it shall not be executed.
pub type Seen = Result<Option<Runtime>, isize>;

/// Before a program of the host's is executed: says so if it is not reached.
///
/// # Safety
/// The path is a string, or null.
pub unsafe fn before_host(program: &Program) -> Seen {
    // SAFETY: the caller's promise.
    unsafe { follow(program) }
}

/// The same of a file that is open, a copy of the pool's. `path`: what it is called.
pub fn before_copy(file: isize, path: &[u8]) -> Seen {
    let mut start = [0; START];
    let length = read_at(file, &mut start, 0);
    decide(file, &start[..length], path, None)
}

/// Whether it matters that a program is not reached: where the pool is mounted beneath also if nothing is to be said.
fn is_wanted() -> bool {
    settings::STRICT.get() == b"1"
        || settings::QUIET.get() != b"1"
        || settings::BENEATH.get() == b"1"
        || inherited::are_standard()
}

/// What a look at a file has shown.
#[allow(
    clippy::large_enum_variant,
    reason = "there is one at a time, on the stack, and no allocation"
)]
enum Look {
    Decided(Seen),
    /// A script, whose interpreter is what is executed. Its own bits give nobody rights.
    Script(Text<256>),
}

/// # Safety
/// As for [`before_host`].
unsafe fn follow(program: &Program) -> Seen {
    let mut program = *program;
    let mut interpreter;
    for _ in 0..DEPTH_MAX {
        // SAFETY: the caller's promise; then strings of our own, of which the last one lives.
        match unsafe { look_at(&program) } {
            Look::Decided(result) => return result,
            Look::Script(next) => interpreter = next,
        }
        program = Program {
            directory: HERE,
            path: interpreter.pointer() as usize,
            flags: 0,
        };
    }
    Ok(None)
}

/// # Safety
/// As for [`before_host`].
#[inline(never)]
unsafe fn look_at(program: &Program) -> Look {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
    let nameless = program.flags & libc::AT_EMPTY_PATH != 0 && is_empty(program.path);
    let link;
    let (directory, path) = match nameless {
        // Opened anew: it may be open for its path alone.
        true => {
            link = raw::descriptor_path(program.directory);
            (HERE, link.pointer() as usize)
        }
        false => (program.directory, program.path),
    };
    // SAFETY: the caller's promise; the descriptor is closed below.
    unsafe {
        let file = syscall!(libc::SYS_openat, directory, path, flags);
        // It is not there, or may be executed and not read.
        if raw::failed(file) {
            return Look::Decided(Ok(None));
        }
        let name = memory::text(path).map_or(&b""[..], |text| text.bytes);
        let look = look_into(file, name);
        raw::close(file);
        look
    }
}

fn look_into(file: isize, name: &[u8]) -> Look {
    // SAFETY: a structure on the stack, for which all zeroes are a value, and which the kernel fills.
    let status = unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        if raw::failed(syscall!(libc::SYS_fstat, file, &raw mut status)) {
            return Look::Decided(Ok(None));
        }
        status
    };
    let is_executable = status.st_mode & 0o111 != 0;
    if status.st_mode & libc::S_IFMT != libc::S_IFREG || !is_executable {
        return Look::Decided(Ok(None));
    }
    let mut start = [0; START];
    let length = read_at(file, &mut start, 0);
    let start = &start[..length];
    match interpreter(start) {
        Some(interpreter) => Look::Script(interpreter),
        None => Look::Decided(decide(file, start, name, Some(&status))),
    }
}

/// The interpreter that a script names.
fn interpreter(start: &[u8]) -> Option<Text<256>> {
    let line = start.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let mut words = line.split(|byte| matches!(byte, b' ' | b'\t' | 0));
    let word = words.find(|word| !word.is_empty())?;
    let mut text = Text::new();
    text.push(word);
    (text.bytes().len() == word.len()).then_some(text)
}

fn decide(file: isize, start: &[u8], name: &[u8], status: Option<&libc::stat>) -> Seen {
    if !start.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    let read = |buffer: &mut [u8], offset| read_at(file, buffer, offset) == buffer.len();
    if is_wanted() {
        look_whether_reached(file, start, name, status)?;
    }
    Ok(Runtime::of(start, read))
}

/// Says so if it is not.
fn look_whether_reached(
    file: isize,
    start: &[u8],
    name: &[u8],
    status: Option<&libc::stat>,
) -> Result<(), isize> {
    let kind = Kind::of(start, |buffer, offset| {
        read_at(file, buffer, offset) == buffer.len()
    });
    let reason = match status {
        _ if kind.why_unreached().is_some() => Some(Reason::Kind(kind)),
        Some(status) if gives_rights(file, status) => Some(Reason::Privileged),
        _ if has_changed() => Some(Reason::Changed),
        _ => None,
    };
    let Some(reason) = reason else {
        return Ok(());
    };
    let beneath = settings::BENEATH.get() == b"1";
    if settings::root_changed() {
        return Ok(());
    }
    if beneath {
        begin_beneath();
        if !inherited::replace_all() {
            return Ok(());
        }
    }
    let strict = settings::STRICT.get() == b"1" && !beneath;
    let file = match status {
        Some(status) => [status.st_dev, status.st_ino],
        // Copies of one program are different files.
        None => [hash(name), 0],
    };
    // What is lost is said although nothing else is, and each time.
    let lost = !strict && !beneath && inherited::are_standard();
    if lost || settings::QUIET.get() != b"1" && (strict || is_first(key(file))) {
        say(name, reason, strict, lost);
    }
    match strict {
        true => Err(error(libc::EACCES)),
        false => Ok(()),
    }
}

/// Before the process gets another root: from there the mount's descriptors could not be opened.
pub fn leave_to_mount() {
    begin_beneath();
    inherited::replace_all();
}

/// The kernel's working directory becomes what the process's is: for a program that knows only that. Where it cannot be
/// entered that way it stays where it is, as for a program whose directory was removed.
#[cold]
#[inline(never)]
fn begin_beneath() {
    let mut path = [0u8; settings::PATH_MAX];
    if crate::directory::name(&mut path[..]).is_some_and(|length| length > 0) {
        // SAFETY: a path with its NUL, as was just written.
        unsafe { syscall!(libc::SYS_chdir, path.as_ptr()) };
    }
}

/// Of this process's own program, which has begun.
pub fn say_of_this(reason: Reason) {
    let mut path = [0u8; 512];
    // SAFETY: a constant path, and a buffer that the kernel fills.
    let (length, file) = unsafe {
        let link = c"/proc/self/exe".as_ptr();
        let length = syscall!(libc::SYS_readlink, link, path.as_mut_ptr(), path.len());
        let here = libc::AT_FDCWD;
        let file = raw::identity(|status| syscall!(libc::SYS_newfstatat, here, link, status, 0));
        (usize::try_from(length).unwrap_or(0), file)
    };
    let strict = settings::STRICT.get() == b"1";
    if settings::QUIET.get() != b"1" && (strict || is_first(key(file.unwrap_or_default()))) {
        say(&path[..length], reason, strict, false);
    }
    if strict {
        // SAFETY: ends the process, which has done nothing yet, as a shell would that could not execute it.
        unsafe { syscall!(libc::SYS_exit_group, 126) };
    }
}

/// `lost`: what it writes to its standard output or error is.
fn say(name: &[u8], reason: Reason, strict: bool, lost: bool) {
    let mut text = Text::<1024>::new();
    text.push(b"arck: ").push(&name[..name.len().min(400)]);
    text.push(b" ").push(reason.words().as_bytes());
    match strict {
        true => text.push(b": not executed (--strict)\n"),
        false if settings::BENEATH.get() == b"1" => text
            .push(b": it cannot use what it inherits open on the pool; have it open that by name, beneath ")
            .push(settings::MOUNT.get())
            .push(b", or put cat before or behind it\n"),
        false => text
            .push(b": it does not see the pool at ")
            .push(settings::MOUNT.get())
            .push(match lost {
                true => &b", and what it writes to its standard output or error, which are on the pool, is lost"[..],
                false => b"",
            })
            .push(b"; mount the pool for it (arck mount), or let it work in a directory of the host\n"),
    };
    if !lost || !inherited::say(text.bytes()) {
        raw::print(2, text.bytes());
    }
}

/// So many bytes from there on, or fewer where the file ends; 0 where it cannot be read.
fn read_at(file: isize, buffer: &mut [u8], offset: u64) -> usize {
    let Ok(offset) = i64::try_from(offset) else {
        return 0;
    };
    // SAFETY: a buffer of our own.
    let length = unsafe {
        syscall!(
            libc::SYS_pread64,
            file,
            buffer.as_mut_ptr(),
            buffer.len(),
            offset
        )
    };
    usize::try_from(length).unwrap_or(0)
}

/// Real, effective and saved user or group.
fn ids(number: i64) -> [u32; 3] {
    let mut ids = [0u32; 3];
    let [real, effective, saved] = &mut ids;
    // SAFETY: numbers that the kernel fills.
    unsafe { syscall!(number, &raw mut *real, &raw mut *effective, &raw mut *saved) };
    ids
}

/// Whether the file gives who executes it rights that he has not.
fn gives_rights(file: isize, status: &libc::stat) -> bool {
    let has = |bit: u32| status.st_mode & bit == bit;
    let user = has(libc::S_ISUID) && ids(libc::SYS_getresuid)[1] != status.st_uid;
    // Without the right to execute it the bit means something else.
    let group = has(libc::S_ISGID | 0o010) && ids(libc::SYS_getresgid)[1] != status.st_gid;
    // SAFETY: asks for no more than the length; a constant name. Root has all capabilities before.
    let capabilities = || unsafe {
        let name = c"security.capability".as_ptr();
        ids(libc::SYS_getresuid)[0] != 0 && syscall!(libc::SYS_fgetxattr, file, name, 0, 0) > 0
    };
    (user || group || capabilities()) && may_give(file)
}

/// Whether neither the file system nor the process forbids it.
fn may_give(file: isize) -> bool {
    /// Words of the kernel's structure, and that of its flags.
    const STATUS: usize = 15;
    const FLAGS: usize = 10;
    // SAFETY: words on the stack, which the kernel fills; the other call takes numbers.
    unsafe {
        let mut status = [0u64; STATUS];
        let asked = syscall!(libc::SYS_fstatfs, file, status.as_mut_ptr());
        let nosuid = status[FLAGS] & libc::ST_NOSUID != 0;
        let none = syscall!(libc::SYS_prctl, libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
        (raw::failed(asked) || !nosuid) && !none
    }
}

/// Whether the process has other effective ids than real ones. One that began so is not asked again: this
/// library was loaded into it.
fn has_changed() -> bool {
    if !crate::process::identities::have_changed() {
        return false;
    }
    [libc::SYS_getresuid, libc::SYS_getresgid]
        .iter()
        .any(|number| {
            let [real, effective, _] = ids(*number);
            real != effective
        })
}

fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A file in the table: never 0.
fn key([device, inode]: [u64; 2]) -> u64 {
    let mixed =
        (device.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ inode).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed | 1
}

/// Words of the table; the first says that it is one.
const WORDS: usize = 512;
const TABLE_SIZE: usize = WORDS * size_of::<u64>();
/// As in `arck run`, which makes it.
const TABLE: u64 = u64::from_le_bytes(*b"arcksaid");

/// Puts a key into the table. Whether it was not there; or there is no table, or no room.
fn is_first(key: u64) -> bool {
    let path = settings::SAID.get();
    if path.is_empty() {
        return true;
    }
    // SAFETY: the setting is NUL-terminated. The file is mapped only if it cannot become shorter than what is
    // mapped, and is looked at as atomic words.
    unsafe {
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NONBLOCK | libc::O_NOCTTY;
        let file = syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if raw::failed(file) {
            return true;
        }
        let first = is_table(file).then(|| {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let shared = libc::MAP_SHARED;
            let map = syscall!(libc::SYS_mmap, 0, TABLE_SIZE, access, shared, file, 0);
            if raw::failed(map) {
                return true;
            }
            let words = &*(map as *const [AtomicU64; WORDS]);
            let first = put(words, key);
            raw::unmap(map as *mut u8, TABLE_SIZE);
            first
        });
        raw::close(file);
        first.unwrap_or(true)
    }
}

/// Whether it is a memory file of that size at least that nobody can cut.
fn is_table(file: isize) -> bool {
    // SAFETY: a structure on the stack, for which all zeroes are a value, and which the kernel fills.
    unsafe {
        let seals = syscall!(libc::SYS_fcntl, file, libc::F_GET_SEALS);
        let mut status: libc::stat = std::mem::zeroed();
        let asked = syscall!(libc::SYS_fstat, file, &raw mut status);
        let mut word = [0; 8];
        !raw::failed(seals)
            && seals as i32 & libc::F_SEAL_SHRINK != 0
            && !raw::failed(asked)
            && status.st_size >= TABLE_SIZE as i64
            && read_at(file, &mut word, 0) == 8
            && u64::from_le_bytes(word) == TABLE
    }
}

fn put(words: &[AtomicU64; WORDS], key: u64) -> bool {
    let home = (key >> 32) as usize;
    for step in 0..WORDS {
        let index = (home + step) % WORDS;
        if index == 0 {
            continue;
        }
        let relaxed = Ordering::Relaxed;
        match words[index].compare_exchange(0, key, relaxed, relaxed) {
            Ok(_) => return true,
            Err(there) if there == key => return false,
            Err(_) => {}
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_the_first_once_until_there_is_no_room() {
        let words = [const { AtomicU64::new(0) }; WORDS];
        for inode in 0..WORDS as u64 - 1 {
            assert!(put(&words, key([5, inode])), "{inode}");
            assert!(!put(&words, key([5, inode])), "{inode}");
        }
        // Rather twice than never.
        assert!(put(&words, key([6, 1])) && put(&words, key([6, 1])));
        assert!(!put(&words, key([5, 3])));
    }

    #[test]
    fn only_a_sealed_table_is_one() {
        let made = |size: usize, word: &[u8], seals: i32| {
            // SAFETY: a memory file of this test's.
            unsafe {
                let flags = libc::MFD_ALLOW_SEALING | libc::MFD_CLOEXEC;
                let file = libc::memfd_create(c"said".as_ptr(), flags);
                assert_eq!(libc::ftruncate(file, size as i64), 0);
                let length = word.len().min(size);
                assert_eq!(
                    libc::pwrite(file, word.as_ptr().cast(), length, 0),
                    length as isize
                );
                assert_eq!(libc::fcntl(file, libc::F_ADD_SEALS, seals), 0);
                let is = is_table(file as isize);
                libc::close(file);
                is
            }
        };
        assert!(made(TABLE_SIZE, b"arcksaid", libc::F_SEAL_SHRINK));
        assert!(!made(TABLE_SIZE, b"arcksaid", libc::F_SEAL_GROW));
        assert!(!made(TABLE_SIZE, b"something", libc::F_SEAL_SHRINK));
        assert!(!made(TABLE_SIZE - 1, b"arcksaid", libc::F_SEAL_SHRINK));
        assert!(!made(4, b"arck", libc::F_SEAL_SHRINK));
        for path in [c"/dev/null", c"/dev/zero", c"/proc/self/exe", c"/"] {
            // SAFETY: a constant path.
            let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY) };
            assert!(!is_table(file as isize), "{path:?}");
            raw::close(file as isize);
        }
    }

    #[test]
    fn interpreters_of_scripts() {
        let of = |text: &[u8]| interpreter(text).map(|text| text.bytes().to_vec());
        assert_eq!(of(b"#! /bin/sh -e\nx"), Some(b"/bin/sh".to_vec()));
        assert_eq!(of(b"#!/bin/sh"), Some(b"/bin/sh".to_vec()));
        assert_eq!(of(b"#!\n/bin/sh"), None);
        let long = [b"#!/".to_vec(), vec![b'x'; 400]].concat();
        assert_eq!(of(&long), None);
    }
}
