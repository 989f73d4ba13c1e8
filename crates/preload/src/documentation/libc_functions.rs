//! The functions of the libc in use, and which of them take a path or a descriptor: by the names
//! of the parameters in its headers, and by the system calls in their code.

use super::lists::words;
use crate::calls;
use std::collections::BTreeMap;
use std::ffi::CStr;
use std::process::{Command, Stdio};

/// A function's place in memory: address and bytes.
pub type Functions = BTreeMap<String, (usize, usize)>;

/// Headers that declare functions of libc; those that a libc does not have are left out.
const HEADERS: &str = "aio.h dirent.h dlfcn.h err.h error.h execinfo.h fcntl.h fstab.h fts.h \
    ftw.h glob.h grp.h gshadow.h iconv.h libintl.h locale.h mntent.h mqueue.h netdb.h nl_types.h \
    poll.h printf.h pty.h pwd.h regex.h resolv.h sched.h search.h semaphore.h shadow.h spawn.h \
    stdio.h stdio_ext.h stdlib.h sys/acct.h sys/epoll.h sys/eventfd.h sys/fanotify.h sys/file.h \
    sys/inotify.h sys/ioctl.h sys/klog.h sys/mman.h sys/mount.h sys/pidfd.h sys/prctl.h \
    sys/quota.h sys/reboot.h sys/select.h sys/sendfile.h sys/shm.h sys/signalfd.h sys/socket.h \
    sys/stat.h sys/statfs.h sys/statvfs.h sys/swap.h sys/time.h sys/timerfd.h sys/uio.h \
    sys/wait.h sys/xattr.h syslog.h termios.h ttyent.h unistd.h utime.h utmp.h utmpx.h wchar.h \
    wordexp.h";

/// Names of `int` parameters that are descriptors, without their underscores.
const DESCRIPTORS: &str = "dfd dirfd epfd fanotify_fd fd fd2 fdin fdout fildes from_dfd fromfd \
    in_fd infd lowfd mountdirfd newdirfd newfd oldfd olddirfd out_fd outfd pid_fd pidfd s sockfd \
    targetfd tcfd to_dfd tofd ufd";

/// Names of `char *` parameters that may be paths.
const PATHS: &str = "cat_name dir dirname file filename from from_pathname name new old path \
    pathname pattern special special_file template to to_pathname tty wtmp_file wtmpx_file words";

/// What the C compiler makes of a source.
pub fn preprocessed(options: &[&str], source: &str) -> String {
    let mut child = Command::new("cc")
        .args(["-E", "-P", "-D_GNU_SOURCE", "-x", "c", "-"])
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("cc runs");
    let mut input = child.stdin.take().expect("a pipe");
    std::io::Write::write_all(&mut input, source.as_bytes()).expect("cc reads");
    drop(input);
    let output = child.wait_with_output().expect("cc ends");
    assert!(output.status.success(), "cc -E fails");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Where the libc of this process was loaded from, and where it lies.
fn loaded() -> (String, usize) {
    // SAFETY: dladdr fills `information` about the object that holds the function, whose name
    // lives as long as the object.
    unsafe {
        let mut information: libc::Dl_info = std::mem::zeroed();
        let found = libc::dladdr(libc::getpid as *const () as *const _, &mut information);
        assert_ne!(found, 0);
        let name = CStr::from_ptr(information.dli_fname).to_string_lossy();
        (name.into_owned(), information.dli_fbase as usize)
    }
}

/// The public functions of libc.
pub fn functions() -> Functions {
    let (file, base) = loaded();
    let output = Command::new("nm")
        .args(["-D", "-S", "--defined-only", &file])
        .output()
        .expect("nm runs (Debian's package binutils)");
    let text = String::from_utf8_lossy(&output.stdout);
    let mut functions = Functions::new();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (Some(address), Some(size), Some("T" | "W" | "i"), Some(name)) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        let (name, version) = name.split_once('@').unwrap_or((name, ""));
        if version.ends_with("GLIBC_PRIVATE") {
            continue;
        }
        let hexadecimal = |text| usize::from_str_radix(text, 16).expect("a number");
        functions.insert(
            name.to_owned(),
            (base + hexadecimal(address), hexadecimal(size)),
        );
    }
    assert!(functions.len() > 1000, "{}", functions.len());
    functions
}

/// Each function that takes a path or a descriptor, and how that shows.
pub fn that_take_files(functions: &Functions) -> BTreeMap<String, String> {
    let mut found = by_parameters(functions);
    assert!(
        found.len() > 150,
        "only {} by their parameters",
        found.len()
    );
    let by_code = by_code(functions);
    assert!(by_code.len() > 60, "only {} by their code", by_code.len());
    found.extend(by_code);
    found
}

fn by_parameters(functions: &Functions) -> BTreeMap<String, String> {
    let source: String = words(HEADERS)
        .map(|header| format!("#if __has_include(<{header}>)\n#include <{header}>\n#endif\n"))
        .collect();
    let text = preprocessed(&[], &source);
    let mut found = BTreeMap::new();
    for statement in text.split([';', '{', '}']) {
        // The first name before a parenthesis that is a function of libc; its parameters.
        let mut rest = statement;
        while let Some(open) = rest.find('(') {
            let (before, after) = rest.split_at(open);
            let name = before
                .trim_end()
                .rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .next()
                .unwrap_or_default();
            if functions.contains_key(name) {
                let end = after.find(')').unwrap_or(after.len());
                for parameter in after[1..end].split(',') {
                    if takes_file(parameter) {
                        found.insert(name.to_owned(), parameter.trim().to_owned());
                    }
                }
                break;
            }
            rest = &after[1..];
        }
    }
    found
}

/// Whether a parameter, as declared, is a path or a descriptor.
fn takes_file(parameter: &str) -> bool {
    let spaced = parameter.replace('*', " * ");
    let mut tokens: Vec<_> = spaced
        .split_whitespace()
        .filter(|word| !matches!(*word, "const" | "__restrict"))
        .collect();
    let Some(name) = tokens.pop() else {
        return false;
    };
    let name = name.trim_matches('_');
    match tokens.as_slice() {
        ["int"] => words(DESCRIPTORS).any(|word| word == name),
        ["char", "*"] => words(PATHS).any(|word| word == name),
        _ => false,
    }
}

/// The functions whose code makes a system call that the table of calls looks at.
fn by_code(functions: &Functions) -> BTreeMap<String, String> {
    let numbers: BTreeMap<u32, &str> = calls::ROWS
        .iter()
        .filter(|(_, _, _, note)| !note.starts_with("takes no file"))
        .map(|(name, number, ..)| (*number as u32, *name))
        .collect();
    let mut found = BTreeMap::new();
    for (name, (address, size)) in functions {
        // SAFETY: the code of a function of libc, which stays loaded; its sites are not rewritten
        // in this process.
        let code = unsafe { std::slice::from_raw_parts(*address as *const u8, *size) };
        for (at, _) in code
            .windows(2)
            .enumerate()
            .filter(|(_, bytes)| *bytes == [0x0f, 0x05])
        {
            let before = &code[at.saturating_sub(25)..at];
            let number = if before.ends_with(&[0x31, 0xc0]) {
                Some(0)
            } else {
                // The last `mov eax, constant`.
                before
                    .windows(5)
                    .filter(|bytes| bytes[0] == 0xb8)
                    .map(|bytes| u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]))
                    .next_back()
            };
            if let Some(call) = number.and_then(|number| numbers.get(&number)) {
                found.insert(name.clone(), format!("makes the system call {call}"));
            }
        }
    }
    found
}
