//! A file of a FUSE file system whose server answers no read: memory that never comes, for everybody
//! who may open `/dev/fuse` and mount in a namespace of his own. Here that is done before the process
//! becomes its user.
//!
//! # Invariant
//! * The server does not even take the request to read: so it ends when the reader is killed.
//! * The kernel has learnt that it need not ask when the file is closed: else a process that ends
//!   with it would wait for its own answer, for ever.

use super::endless::Source;
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, open};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::ffi::CString;
use std::path::PathBuf;
use std::sync::OnceLock;

/// The server's end, and where it is mounted.
static MOUNTED: OnceLock<Result<(OwnedFd, PathBuf), String>> = OnceLock::new();

const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const FLUSH: u32 = 25;
const INIT: u32 = 26;
/// Bytes of the file.
const LENGTH: u64 = 1 << 16;

/// Mounts it, while the process may.
pub fn prepare() {
    MOUNTED.get_or_init(|| mount_file().map_err(|(what, error)| format!("{what}: {error}")));
}

fn mount_file() -> Result<(OwnedFd, PathBuf), (&'static str, std::io::Error)> {
    let at = |what| move |error: rustix::io::Errno| (what, error.into());
    let server = open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(at("/dev/fuse"))?;
    // SAFETY: no descriptors are unshared, only what is mounted where.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(at("unshare"))?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    mount_change("/", private).map_err(at("a namespace of its own"))?;
    // What is mounted is not seen by others, and goes with the process; so does what it is mounted on.
    let none = MountFlags::empty();
    mount("none", "/mnt", "tmpfs", none, c"size=1m").map_err(at("a place to mount"))?;
    let file = tempfile::NamedTempFile::new_in("/mnt").map_err(|error| ("a file", error))?;
    let number = rustix::fd::AsRawFd::as_raw_fd(&server);
    let options = format!("fd={number},rootmode=100000,user_id=0,group_id=0,allow_other");
    let options = CString::new(options).map_err(|error| ("options", error.into()))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount(
        "arck-hostile",
        file.path(),
        "fuse",
        flags,
        options.as_c_str(),
    )
    .map_err(at("mount"))?;
    let path = file.path().to_path_buf();
    // It cannot be removed while something is mounted on it here.
    let _ = file.keep();
    Ok((server, path))
}

/// Answers until the file has been closed once, and is open again.
fn serve(server: &OwnedFd) -> Result<(), String> {
    let mut buffer = vec![0u8; 1 << 17];
    let mut was_closed = false;
    loop {
        let length = rustix::io::read(server, &mut buffer[..]).map_err(|e| e.to_string())?;
        let word = |at: usize| u32::from_le_bytes(buffer[at..at + 4].try_into().expect("four"));
        assert!(length >= 40, "a request of {length} bytes");
        let opcode = word(4);
        let mut body: Vec<u8> = Vec::new();
        match opcode {
            INIT => {
                for word in [7u32, 31, 0, 0, 0, 4096, 1] {
                    body.extend(word.to_le_bytes());
                }
                body.resize(64, 0);
            }
            GETATTR => {
                // Valid for long; inode, size, blocks, three times, ...
                for word in [3600u64, 0, 1, LENGTH, LENGTH / 512, 0, 0, 0] {
                    body.extend(word.to_le_bytes());
                }
                for word in [0, 0, 0, libc::S_IFREG | 0o444, 1, 0, 0, 0, 4096, 0] {
                    body.extend(u32::to_le_bytes(word));
                }
            }
            OPEN => body.resize(16, 0),
            _ => {}
        }
        let error = match body.is_empty() {
            true => -libc::ENOSYS,
            false => 0,
        };
        let mut answer = Vec::new();
        answer.extend((16 + body.len() as u32).to_le_bytes());
        answer.extend(error.to_le_bytes());
        answer.extend(&buffer[8..16]);
        answer.extend(body);
        rustix::io::write(server, &answer).map_err(|e| e.to_string())?;
        was_closed |= opcode == FLUSH;
        if was_closed && opcode == OPEN {
            return Ok(());
        }
    }
}

/// Memory whose first bytes are never read.
pub fn unanswered() -> Result<Source, String> {
    let (server, path) = match MOUNTED.get() {
        Some(Ok(mounted)) => mounted,
        Some(Err(why)) => return Err(why.clone()),
        None => return Err("not prepared".into()),
    };
    let server = std::thread::spawn(move || serve(server));
    let open_file = || {
        open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|error| format!("opening the file: {error}"))
    };
    let file = open_file()?;
    let status = rustix::fs::fstat(&file).map_err(|error| error.to_string())?;
    assert_eq!(status.st_size as u64, LENGTH);
    drop(file);
    let file = open_file()?;
    server.join().map_err(|_| "the server ended".to_owned())??;
    // SAFETY: a new map, of a file; nobody reads it but the kernel.
    let map = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            LENGTH as usize,
            libc::PROT_READ,
            libc::MAP_PRIVATE,
            rustix::fd::AsRawFd::as_raw_fd(&file),
            0,
        )
    };
    // Closing it would ask the server, which has ended.
    std::mem::forget(file);
    match map == libc::MAP_FAILED {
        true => Err(std::io::Error::last_os_error().to_string()),
        false => Ok(Source(map as usize)),
    }
}
