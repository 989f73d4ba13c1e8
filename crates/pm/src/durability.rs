//! Which durability a place offers, found by probing, and what to flush there.
//!
//! Invariant: a place is called [`DurabilityMode::Dax`] only if the kernel has
//! just accepted a MAP_SYNC mapping there; in doubt it is `Paged`, where
//! nothing but writing pages back counts.

use std::ffi::CStr;
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::str::FromStr;

use rustix::fs::{AtFlags, Mode, OFlags, fstatfs, ftruncate, openat, unlinkat};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::flush::PersistPolicy;
pub use crate::mapping::write_back;
use crate::mapping::{HUGE_PAGE, MapOptions, Mapping};

/// What it takes for a store to survive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DurabilityMode {
    /// Persistent memory mapped directly (MAP_SYNC): flush and fence make durable.
    Dax,
    /// Memory (tmpfs, ramfs, hugetlbfs, memfd): nothing outlives the machine, everything
    /// outlives the process.
    Volatile,
    /// Any other file system: `fsync` writes the pages back ([`write_back`]).
    Paged,
}

impl DurabilityMode {
    /// The mode of files made in a directory, by name.
    ///
    /// # Errors
    /// As [`probe_directory`](Self::probe_directory), and those of `open`.
    pub fn probe(directory: &Path) -> Result<DurabilityMode> {
        let directory = rustix::fs::open(
            directory,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(Error::system("open"))?;
        DurabilityMode::probe_directory(directory)
    }

    /// The mode of files made in a directory: makes one without a name (or, where
    /// the file system cannot, with a name that it removes at once) and tries.
    ///
    /// # Errors
    /// Those of making a file there: EACCES, EROFS, ENOSPC and so on.
    pub fn probe_directory(directory: impl AsFd) -> Result<DurabilityMode> {
        let directory = directory.as_fd();
        if in_memory(directory)? {
            return Ok(DurabilityMode::Volatile);
        }
        let file = nameless_file(directory)?;
        // Two megabytes, as a direct-access device may have no smaller pages.
        ftruncate(&file, HUGE_PAGE as u64).map_err(Error::system("ftruncate"))?;
        Ok(dax_or_paged(&file))
    }

    /// The mode of a file that exists, open for reading and writing, not empty.
    ///
    /// # Errors
    /// Those of `fstatfs`.
    pub fn probe_file(file: impl AsFd) -> Result<DurabilityMode> {
        if in_memory(file.as_fd())? {
            return Ok(DurabilityMode::Volatile);
        }
        Ok(dax_or_paged(file))
    }
}

impl fmt::Display for DurabilityMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            DurabilityMode::Dax => "dax",
            DurabilityMode::Volatile => "volatile",
            DurabilityMode::Paged => "paged",
        })
    }
}

fn in_memory(file: impl AsFd) -> Result<bool> {
    let kind = fstatfs(file).map_err(Error::system("fstatfs"))?.f_type;
    // Some of the magic numbers do not fit a signed word of 32 bits; compare
    // what all architectures have in common.
    const RAMFS_MAGIC: u32 = 0x8584_58f6;
    Ok([
        libc::TMPFS_MAGIC as u32,
        RAMFS_MAGIC,
        libc::HUGETLBFS_MAGIC as u32,
    ]
    .contains(&(kind as u32)))
}

fn dax_or_paged(file: impl AsFd) -> DurabilityMode {
    let options = MapOptions::READ_WRITE.synchronous(true);
    // EOPNOTSUPP where there is no direct access; any other failure proves no
    // more than that.
    match Mapping::new(file, 0, HUGE_PAGE, options) {
        Ok(_) => DurabilityMode::Dax,
        Err(_) => DurabilityMode::Paged,
    }
}

fn nameless_file(directory: impl AsFd) -> Result<OwnedFd> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    match openat(&directory, c".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => return Ok(file),
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
        Err(errno) => {
            return Err(Error::System {
                operation: "open(O_TMPFILE)",
                errno,
            });
        }
    }
    let name = format!(
        ".arck-probe-{}\0",
        rustix::process::getpid().as_raw_nonzero()
    );
    let name = CStr::from_bytes_with_nul(name.as_bytes()).map_err(|_| Error::System {
        operation: "open",
        errno: Errno::INVAL,
    })?;
    let file = openat(
        &directory,
        name,
        flags | OFlags::CREATE | OFlags::EXCL,
        mode,
    )
    .map_err(Error::system("open"))?;
    unlinkat(&directory, name, AtFlags::empty()).map_err(Error::system("unlink"))?;
    Ok(file)
}

/// The user's wish: `--persist auto|always|never`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum PersistOption {
    /// Flush where flushing makes durable: in the `dax` mode.
    #[default]
    Auto,
    /// Flush everywhere: to measure what persistent memory would cost.
    Always,
    /// Flush nowhere: a machine failure may lose or damage what is not written back.
    Never,
}

impl PersistOption {
    /// What it comes to in a mode.
    pub fn policy(self, mode: DurabilityMode) -> PersistPolicy {
        match (self, mode) {
            (PersistOption::Always, _) | (PersistOption::Auto, DurabilityMode::Dax) => {
                PersistPolicy::Flush
            }
            (PersistOption::Never | PersistOption::Auto, _) => PersistPolicy::NoFlush,
        }
    }
}

impl FromStr for PersistOption {
    type Err = Error;

    fn from_str(text: &str) -> Result<PersistOption> {
        match text {
            "auto" => Ok(PersistOption::Auto),
            "always" => Ok(PersistOption::Always),
            "never" => Ok(PersistOption::Never),
            _ => Err(Error::UnknownPersistOption(text.to_owned())),
        }
    }
}

impl fmt::Display for PersistOption {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            PersistOption::Auto => "auto",
            PersistOption::Always => "always",
            PersistOption::Never => "never",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_round_trip() {
        for option in [
            PersistOption::Auto,
            PersistOption::Always,
            PersistOption::Never,
        ] {
            assert_eq!(option.to_string().parse(), Ok(option));
        }
        let error = "sometimes".parse::<PersistOption>().unwrap_err();
        assert_eq!(error.errno(), Errno::INVAL);
    }

    #[test]
    fn auto_flushes_in_dax_only() {
        use DurabilityMode::{Dax, Paged, Volatile};
        for mode in [Dax, Volatile, Paged] {
            assert_eq!(PersistOption::Always.policy(mode), PersistPolicy::Flush);
            assert_eq!(PersistOption::Never.policy(mode), PersistPolicy::NoFlush);
            let auto = PersistOption::Auto.policy(mode);
            assert_eq!(auto == PersistPolicy::Flush, mode == Dax);
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn memory_is_volatile() {
        assert_eq!(
            DurabilityMode::probe(Path::new("/dev/shm")),
            Ok(DurabilityMode::Volatile)
        );
        let file = rustix::fs::memfd_create("probe", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert_eq!(
            DurabilityMode::probe_file(&file),
            Ok(DurabilityMode::Volatile)
        );
    }

    #[test]
    #[cfg(not(miri))]
    fn a_directory_is_probed_and_left_clean() {
        let directory = tempfile::tempdir().unwrap();
        let mode = DurabilityMode::probe(directory.path()).unwrap();
        let magic = rustix::fs::statfs(directory.path()).unwrap().f_type;
        if magic == libc::EXT4_SUPER_MAGIC {
            assert_ne!(mode, DurabilityMode::Volatile);
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    #[cfg(not(miri))]
    fn missing_directory_says_so() {
        let error = DurabilityMode::probe(Path::new("/nonexistent/pool")).unwrap_err();
        assert_eq!(error.errno(), Errno::NOENT);
    }
}
