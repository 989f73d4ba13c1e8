//! What operations are done on: a directory of a session, and one of tmpfs.
//!
//! # Invariant
//! Both begin with empty directories, empty files, and the file that is linked; errors are told by
//! their numbers.

use super::{Action, DIRECTORIES, FILES, Name, Subject, Told, runs};
use arckfs::{At, Errno, Failure, FileSystem, Handle};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;

/// Longer than any file gets.
const LONGEST: usize = 1 << 20;

/// A directory of a session, with the files open.
pub struct ArckSubject<'s> {
    session: &'s FileSystem,
    base: String,
    files: Vec<[Handle; 2]>,
}

impl<'s> ArckSubject<'s> {
    pub fn new(session: &'s FileSystem, base: &str) -> Self {
        let make = |path: String| {
            let made = session.make_directory(At::Root, path.as_bytes(), 0o755);
            made.expect("mkdir");
        };
        make(base.to_owned());
        (0..DIRECTORIES).for_each(|directory| make(format!("{base}/{directory}")));
        let open = |path: &str, flags| {
            let opened = session.open(At::Root, path.as_bytes(), flags | libc::O_CREAT, 0o644);
            opened.expect("open")
        };
        session.close(open(&format!("{base}/linked"), libc::O_WRONLY));
        let files = (0..FILES).map(|file| {
            let path = format!("{base}/file{file}");
            let append = libc::O_WRONLY | libc::O_APPEND;
            [open(&path, libc::O_RDWR), open(&path, append)]
        });
        ArckSubject {
            session,
            files: files.collect(),
            base: base.to_owned(),
        }
    }

    fn path(&self, (directory, name): Name) -> Vec<u8> {
        format!("{}/{directory}/{name}", self.base).into_bytes()
    }

    fn try_apply(&self, action: Action) -> Result<Told, Failure> {
        let (session, root) = (self.session, At::Root);
        let whole = |written: usize, length: u16| match written == usize::from(length) {
            true => Told::Done,
            false => Told::Number(written as u64),
        };
        let rename =
            |from, to, flags| session.rename(root, &self.path(from), root, &self.path(to), flags);
        match action {
            Action::Create(name) => session.make_directory(root, &self.path(name), 0o755)?,
            Action::Remove(name) => session.unlink(root, &self.path(name), libc::AT_REMOVEDIR)?,
            Action::Unlink(name) => session.unlink(root, &self.path(name), 0)?,
            Action::Rename(from, to) => rename(from, to, 0)?,
            Action::RenameNew(from, to) => rename(from, to, libc::RENAME_NOREPLACE)?,
            Action::Link(name) => {
                let from = format!("{}/linked", self.base);
                session.link(root, from.as_bytes(), root, &self.path(name), 0)?;
            }
            Action::IsThere(name) => {
                let stat = session.stat(root, &self.path(name), 0)?;
                return Ok(Told::Number(u64::from(
                    stat.mode & libc::S_IFMT == libc::S_IFDIR,
                )));
            }
            Action::Links => {
                let path = format!("{}/linked", self.base);
                let stat = session.stat(root, path.as_bytes(), 0)?;
                return Ok(Told::Number(u64::from(stat.links)));
            }
            Action::List(directory) => {
                use crate::Shorthand;
                let names = session.names(&format!("{}/{directory}", self.base))?;
                let names = names.iter().filter_map(|name| name.parse().ok());
                return Ok(Told::Names(names.collect()));
            }
            Action::Append(file, fill, length) => {
                let bytes = vec![fill; usize::from(length)];
                let written = session.write(self.files[usize::from(file)][1], &bytes, None)?;
                return Ok(whole(written, length));
            }
            Action::Write(file, fill, length) => {
                let bytes = vec![fill; usize::from(length)];
                let written = session.write(self.files[usize::from(file)][0], &bytes, Some(0))?;
                return Ok(whole(written, length));
            }
            Action::Truncate(file, size) => {
                session.truncate_handle(self.files[usize::from(file)][0], u64::from(size))?;
            }
            Action::Read(file) => {
                let mut buffer = vec![0; LONGEST];
                let handle = self.files[usize::from(file)][0];
                let read = session.read(handle, &mut buffer, Some(0))?;
                return Ok(Told::Content(runs(&buffer[..read])));
            }
        }
        Ok(Told::Done)
    }
}

impl Subject for ArckSubject<'_> {
    fn apply(&self, action: &Action) -> Told {
        match self.try_apply(*action) {
            Ok(told) => told,
            Err(Failure::Errno(errno)) => Told::Error(errno.raw_os_error()),
            Err(Failure::Outside(_)) => Told::Error(Errno::XDEV.raw_os_error()),
        }
    }
}

impl Drop for ArckSubject<'_> {
    fn drop(&mut self) {
        for handle in self.files.iter().flatten() {
            self.session.close(*handle);
        }
    }
}

/// A directory of tmpfs.
pub struct HostSubject {
    directory: tempfile::TempDir,
}

impl HostSubject {
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let directory = tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm");
        for number in 0..DIRECTORIES {
            std::fs::create_dir(directory.path().join(number.to_string())).expect("mkdir");
        }
        for file in (0..FILES)
            .map(|file| format!("file{file}"))
            .chain(["linked".into()])
        {
            std::fs::write(directory.path().join(file), b"").expect("create");
        }
        HostSubject { directory }
    }

    fn try_apply(&self, action: Action) -> std::io::Result<Told> {
        let base = self.directory.path();
        let path = |(directory, name): Name| -> PathBuf {
            base.join(directory.to_string()).join(name.to_string())
        };
        let file = |file: u8, append: bool| {
            let mut options = std::fs::File::options();
            options.read(!append).write(!append).append(append);
            options.open(base.join(format!("file{file}")))
        };
        let rename = |from, to, flags| {
            let here = rustix::fs::CWD;
            rustix::fs::renameat_with(here, path(from), here, path(to), flags)
        };
        match action {
            Action::Create(name) => std::fs::create_dir(path(name))?,
            Action::Remove(name) => std::fs::remove_dir(path(name))?,
            Action::Unlink(name) => std::fs::remove_file(path(name))?,
            Action::Rename(from, to) => rename(from, to, rustix::fs::RenameFlags::empty())?,
            Action::RenameNew(from, to) => rename(from, to, rustix::fs::RenameFlags::NOREPLACE)?,
            Action::Link(name) => std::fs::hard_link(base.join("linked"), path(name))?,
            Action::IsThere(name) => {
                let is_directory = std::fs::metadata(path(name))?.is_dir();
                return Ok(Told::Number(u64::from(is_directory)));
            }
            Action::Links => {
                return Ok(Told::Number(
                    std::fs::metadata(base.join("linked"))?.nlink(),
                ));
            }
            Action::List(directory) => {
                let mut names = Vec::new();
                for entry in std::fs::read_dir(base.join(directory.to_string()))? {
                    names.extend(entry?.file_name().to_string_lossy().parse::<u8>());
                }
                names.sort_unstable();
                return Ok(Told::Names(names));
            }
            Action::Append(number, fill, length) => {
                let bytes = vec![fill; usize::from(length)];
                std::io::Write::write_all(&mut file(number, true)?, &bytes)?;
            }
            Action::Write(number, fill, length) => {
                file(number, false)?.write_all_at(&vec![fill; usize::from(length)], 0)?;
            }
            Action::Truncate(number, size) => file(number, false)?.set_len(u64::from(size))?,
            Action::Read(number) => {
                let mut bytes = vec![0; LONGEST];
                let read = file(number, false)?.read_at(&mut bytes, 0)?;
                return Ok(Told::Content(runs(&bytes[..read])));
            }
        }
        Ok(Told::Done)
    }
}

impl Subject for HostSubject {
    fn apply(&self, action: &Action) -> Told {
        self.try_apply(*action)
            .unwrap_or_else(|error| Told::Error(error.raw_os_error().unwrap_or(0)))
    }
}
