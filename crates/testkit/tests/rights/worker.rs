//! One thread that works where rights change: random operations on names of its own, and on its own
//! bytes of files that all have.

use super::oracle::{ATTRIBUTE, File, Oracle, Place, path};
use super::world::{Session, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, Handle, Subject};

/// Directories in which is worked.
pub const DIRECTORIES: usize = 3;
/// Files that all write, each thread its own bytes.
pub const SHARED: usize = 2;
/// Bytes of each thread in them.
const SLOT: usize = 96;

/// What a call may be told besides success; else the test fails.
pub type Allowed = &'static [Errno];

/// See the module's head.
pub struct Worker<'s> {
    session: &'s Session,
    oracle: Oracle,
    random: Random,
    /// Which slot of the shared files is its own.
    slot: usize,
    shared: [Vec<u8>; SHARED],
    /// The same files, open all the time.
    open: [Handle; SHARED],
    allowed: Allowed,
    /// Of descriptors that are open, whatever becomes of rights.
    allowed_open: Allowed,
    /// Calls that succeeded.
    pub done: u64,
}

pub fn shared_path(which: usize) -> String {
    format!("/common/shared{which}")
}

impl<'s> Worker<'s> {
    pub fn new(session: &'s Session, slot: usize, seed: u64, allowed: Allowed) -> Worker<'s> {
        Worker {
            session,
            oracle: Oracle::new(format!("w{slot}-")),
            random: Random::new(seed.wrapping_mul(1000) + slot as u64),
            slot,
            shared: std::array::from_fn(|_| vec![0; SLOT]),
            open: std::array::from_fn(|which| {
                let open = session.0.open_at_root(&shared_path(which), libc::O_RDWR);
                plain(open).expect("a shared file")
            }),
            allowed,
            allowed_open: &[],
            done: 0,
        }
    }

    /// Counts a success, gives an error that is allowed, and fails for all others.
    fn note<T>(&mut self, what: &str, result: Result<T, Errno>) -> Option<T> {
        let told = result.as_ref().err();
        let told = told.map_or_else(|| "done".to_owned(), Errno::to_string);
        self.oracle.history.push(format!("{what}: {told}"));
        match result {
            Ok(value) => {
                self.done += 1;
                Some(value)
            }
            Err(errno) if self.allowed.contains(&errno) => None,
            Err(errno) => panic!("{what}: {errno}"),
        }
    }

    /// The same of a write by a descriptor, whatever became of the right to the file meanwhile.
    fn wrote(&mut self, what: &str, result: Result<usize, Errno>) -> usize {
        let allowed = std::mem::take(&mut self.allowed);
        let written = self.note(what, result);
        self.allowed = allowed;
        written.unwrap_or(0)
    }

    pub fn step(&mut self) {
        let place = self.oracle.some_name(&mut self.random);
        let few = self.oracle.names.len() < 12;
        match (self.random.below(26), place) {
            (0..=3, _) if few => self.create(),
            (4, _) if self.oracle.directories.len() < 4 => self.make_directory(),
            (5..=6, _) => self.remove_directory(),
            (7..=10, Some(place)) => self.write(&place),
            (11, Some(place)) => self.truncate(&place),
            (12..=13, Some(place)) => self.rename(&place),
            (14..=15, Some(place)) => self.unlink(&place),
            (16, Some(place)) => self.change_mode(&place),
            (17, Some(place)) => self.set_attribute(&place),
            (18, Some(place)) if few => self.link(&place),
            (19..=20, Some(place)) => {
                let looked = self.oracle.look(self.session, &place);
                let call = looked.map_or_else(|(call, _)| call, |()| "looking at");
                let looked = looked.map_err(|(_, errno)| errno);
                self.note(&format!("{call} {}", path(&place)), looked);
            }
            (21..=22, _) => self.write_shared(),
            (23..=24, _) => self.use_open(),
            _ => self.look_at_shared(),
        }
    }

    fn create(&mut self) {
        let place = self.oracle.free_place(&mut self.random, DIRECTORIES);
        let path = path(&place);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        let fs = &self.session.0;
        let opened = plain(fs.open(At::Root, path.as_bytes(), flags, 0o644));
        let Some(handle) = self.note(&format!("creating {path}"), opened) else {
            return;
        };
        let id = self.oracle.next;
        self.oracle.next += 1;
        let length = self.random.below(9000) as usize;
        let content = self.random.bytes(length);
        let written = fs.write(handle, &content, Some(0));
        fs.close(handle);
        let written = self.wrote(&format!("filling {path} with {length}"), written);
        assert_eq!(written, length, "{path}");
        let file = File {
            content: content[..written].to_vec(),
            mode: 0o644,
            attribute: None,
        };
        self.oracle.files.insert(id, file);
        self.oracle.names.insert(place, id);
    }

    fn make_directory(&mut self) {
        let place = self.oracle.free_place(&mut self.random, DIRECTORIES);
        let path = path(&place);
        let fs = &self.session.0;
        let made = plain(fs.make_directory(At::Root, path.as_bytes(), 0o755));
        if self.note(&format!("mkdir {path}"), made).is_some() {
            self.oracle.directories.insert(place);
        }
    }

    fn remove_directory(&mut self) {
        let Some(place) = self.oracle.directories.first().cloned() else {
            return;
        };
        let path = path(&place);
        let fs = &self.session.0;
        let removed = plain(fs.unlink(At::Root, path.as_bytes(), libc::AT_REMOVEDIR));
        if self.note(&format!("rmdir {path}"), removed).is_some() {
            self.oracle.directories.remove(&place);
        }
    }

    fn write(&mut self, place: &Place) {
        let path = path(place);
        let fs = &self.session.0;
        let opened = plain(fs.open_at_root(&path, libc::O_RDWR));
        let Some(handle) = self.note(&format!("opening {path}"), opened) else {
            return;
        };
        let size = self.oracle.file(place).content.len() as u64;
        let at = self.random.below(size + 1) as usize;
        let length = 1 + self.random.below(5000) as usize;
        let bytes = self.random.bytes(length);
        let written = fs.write(handle, &bytes, Some(at as u64));
        fs.close(handle);
        let written = self.wrote(
            &format!("writing {path}, {length} at {at} of {size}"),
            written,
        );
        assert_eq!(written, length, "{path}");
        let content = &mut self.oracle.file(place).content;
        content.resize(content.len().max(at + length), 0);
        content[at..at + length].copy_from_slice(&bytes);
    }

    fn truncate(&mut self, place: &Place) {
        let path = path(place);
        let size = self.random.below(9000);
        let cut = plain(self.session.0.truncate(At::Root, path.as_bytes(), size));
        if self
            .note(&format!("truncating {path} to {size}"), cut)
            .is_some()
        {
            self.oracle.file(place).content.resize(size as usize, 0);
        }
    }

    fn rename(&mut self, place: &Place) {
        let over = self.oracle.some_name(&mut self.random);
        let to = match over {
            Some(over) if self.random.percent(40) => over,
            _ => self.oracle.free_place(&mut self.random, DIRECTORIES),
        };
        let (from_path, to_path) = (path(place), path(&to));
        let renamed = self.session.rename(&from_path, &to_path);
        let what = format!("renaming {from_path} to {to_path}");
        if self.note(&what, renamed).is_some() {
            let id = self.oracle.names[place];
            // Two names of one file: nothing is done.
            if self.oracle.names.get(&to) != Some(&id) {
                if self.oracle.names.contains_key(&to) {
                    self.oracle.remove(&to);
                }
                self.oracle.names.remove(place);
                self.oracle.names.insert(to, id);
            }
        }
    }

    fn unlink(&mut self, place: &Place) {
        let path = path(place);
        let removed = self.session.unlink(&path);
        if self.note(&format!("unlinking {path}"), removed).is_some() {
            self.oracle.remove(place);
        }
    }

    fn change_mode(&mut self, place: &Place) {
        let path = path(place);
        let mode = *self.random.pick(&[0o600, 0o644, 0o666, 0o640]);
        let changed = self.session.try_chmod(&path, mode);
        if self.note(&format!("chmod {path}"), changed).is_some() {
            self.oracle.file(place).mode = mode;
        }
    }

    fn set_attribute(&mut self, place: &Place) {
        let path = path(place);
        let length = 1 + self.random.below(100) as usize;
        let value = self.random.bytes(length);
        let subject = Subject::Path(At::Root, path.as_bytes(), 0);
        let set = plain(self.session.0.set_extended(subject, ATTRIBUTE, &value, 0));
        if self.note(&format!("setxattr {path}"), set).is_some() {
            self.oracle.file(place).attribute = Some(value);
        }
    }

    fn link(&mut self, place: &Place) {
        let to = self.oracle.free_place(&mut self.random, DIRECTORIES);
        let (from_path, to_path) = (path(place), path(&to));
        let linked = self.session.link(&from_path, &to_path);
        let what = format!("linking {from_path} to {to_path}");
        if self.note(&what, linked).is_some() {
            let id = self.oracle.names[place];
            self.oracle.names.insert(to, id);
        }
    }

    fn start(&self) -> u64 {
        (self.slot * SLOT) as u64
    }

    fn write_shared(&mut self) {
        let which = self.random.below(SHARED as u64) as usize;
        let path = shared_path(which);
        let fs = &self.session.0;
        let opened = plain(fs.open_at_root(&path, libc::O_RDWR));
        let Some(handle) = self.note(&format!("opening {path}"), opened) else {
            return;
        };
        let bytes = self.random.bytes(SLOT);
        let written = fs.write(handle, &bytes, Some(self.start()));
        fs.close(handle);
        let written = self.wrote(&format!("writing {path}"), written);
        assert_eq!(written, SLOT, "{path}");
        self.shared[which] = bytes;
    }

    fn look_at(&mut self, which: usize, handle: Handle) -> Result<(), Errno> {
        let mut bytes = vec![0; SLOT];
        let read = self
            .session
            .0
            .read(handle, &mut bytes, Some(self.start()))?;
        let path = shared_path(which);
        assert_eq!(read, SLOT, "{path}, slot {}", self.slot);
        assert_eq!(bytes, self.shared[which], "{path}, slot {}", self.slot);
        Ok(())
    }

    fn look_at_shared(&mut self) {
        let which = self.random.below(SHARED as u64) as usize;
        let path = shared_path(which);
        let opened = plain(self.session.0.open_at_root(&path, libc::O_RDONLY));
        let Some(handle) = self.note(&format!("opening {path}"), opened) else {
            return;
        };
        let looked = self.look_at(which, handle);
        self.session.0.close(handle);
        self.note(&format!("reading {path}"), looked);
    }

    /// By a descriptor that was open before the rights began to change.
    fn use_open(&mut self) {
        let which = self.random.below(SHARED as u64) as usize;
        let handle = self.open[which];
        let what = format!("descriptor of {}", shared_path(which));
        let allowed = std::mem::replace(&mut self.allowed, self.allowed_open);
        if self.random.percent(50) {
            let bytes = self.random.bytes(SLOT);
            let written = self.session.0.write(handle, &bytes, Some(self.start()));
            let written = self.wrote(&format!("writing, {what}"), written);
            assert_eq!(written, SLOT, "{what}");
            self.shared[which] = bytes;
        } else {
            let looked = self.look_at(which, handle);
            self.note(&format!("reading, {what}"), looked);
        }
        self.allowed = allowed;
    }

    /// Now that everything can be reached: exactly what is known is there.
    pub fn look_at_all(&mut self, session: &Session) {
        self.oracle.look_at_all(session, DIRECTORIES);
        for which in 0..SHARED {
            let path = shared_path(which);
            let content = session.get(&path);
            let content = content.unwrap_or_else(|errno| panic!("{path}: {errno}"));
            let at = self.slot * SLOT;
            assert_eq!(
                content[at..at + SLOT],
                self.shared[which],
                "{path}, slot {}",
                self.slot
            );
        }
    }
}
