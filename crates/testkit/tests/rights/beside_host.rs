//! The same done on the pool and on a directory of the host, by the same user, and compared: what the kernel
//! says there is what is right.

use super::world::{Session, World, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{Errno, Handle, MapRequest};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The same on the pool and on a directory of the host.
pub struct Both<'s> {
    pub session: &'s Session,
    pub host: PathBuf,
}

/// A file that is open on both.
pub struct Open<'s> {
    pub session: &'s Session,
    pub pool: Handle,
    pub host: File,
}

pub fn errno(error: std::io::Error) -> Errno {
    Errno::from_io_error(&error).expect("an errno")
}

impl<'s> Both<'s> {
    pub fn at(&self, path: &str) -> PathBuf {
        self.host.join(&path[1..])
    }

    pub fn mkdir(&self, path: &str, mode: u32) {
        self.session.mkdir(path, mode);
        std::fs::create_dir(self.at(path)).expect("mkdir");
        self.set(path, mode);
    }

    pub fn set(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.at(path), PermissionsExt::from_mode(mode)).expect("chmod");
    }

    pub fn chmod(&self, path: &str, mode: u32) {
        self.session.chmod(path, mode);
        self.session.fold();
        self.set(path, mode);
    }

    pub fn put(&self, path: &str, content: &[u8], mode: u32) {
        self.session.put(path, content, mode);
        self.session.fold();
        std::fs::write(self.at(path), content).expect("written");
        self.set(path, mode);
    }

    /// Overwrites a part.
    pub fn write(&self, path: &str, content: &[u8], at: u64) {
        let handle = self.session.0.open_at_root(path, libc::O_WRONLY);
        let handle = plain(handle).expect("mine");
        let written = self.session.0.write(handle, content, Some(at));
        assert_eq!(written, Ok(content.len()));
        self.session.0.close(handle);
        let file = File::options().write(true).open(self.at(path));
        file.expect("mine")
            .write_all_at(content, at)
            .expect("written");
    }

    pub fn rename(&self, from: &str, to: &str) {
        self.session.rename(from, to).expect("renamed");
        self.session.fold();
        std::fs::rename(self.at(from), self.at(to)).expect("renamed");
    }

    pub fn unlink(&self, path: &str) {
        self.session.unlink(path).expect("removed");
        self.session.fold();
        std::fs::remove_file(self.at(path)).expect("removed");
    }

    pub fn link(&self, from: &str, to: &str) {
        self.session.link(from, to).expect("linked");
        self.session.fold();
        std::fs::hard_link(self.at(from), self.at(to)).expect("linked");
    }

    pub fn chown(&self, path: &str, uid: u32, gid: u32) {
        self.session.try_chown(path, uid, gid).expect("chown");
        std::os::unix::fs::chown(self.at(path), Some(uid), Some(gid)).expect("chown");
    }

    pub fn open(&self, path: &str) -> Result<Open<'s>, Errno> {
        self.open_as(path, libc::O_RDONLY)
    }

    pub fn open_as(&self, path: &str, flags: i32) -> Result<Open<'s>, Errno> {
        let pool = plain(self.session.0.open_at_root(path, flags));
        let access = flags & libc::O_ACCMODE;
        let host = File::options()
            .read(access != libc::O_WRONLY)
            .write(access != libc::O_RDONLY)
            .custom_flags(flags & !libc::O_ACCMODE)
            .open(self.at(path))
            .map_err(errno);
        assert_eq!(pool.as_ref().err(), host.as_ref().err(), "opening {path}");
        Ok(Open {
            session: self.session,
            pool: pool?,
            host: host?,
        })
    }

    /// Whether it can be read by its path, and what is there.
    pub fn get(&self, path: &str) -> Result<Vec<u8>, Errno> {
        let pool = self.session.get(path);
        let host = std::fs::read(self.at(path)).map_err(errno);
        let lengths = |read: &Result<Vec<u8>, Errno>| read.as_ref().map(Vec::len).map_err(|&e| e);
        assert_eq!(lengths(&pool), lengths(&host), "{path}");
        assert!(pool == host, "{path} holds something else");
        pool
    }
}

impl Open<'_> {
    /// Somewhere, over what is there and beyond; or wherever O_APPEND puts it.
    pub fn write(&self, random: &mut Random, what: &str) {
        let at = random.below(80_000);
        let length = 1 + random.below(9000) as usize;
        let content = random.bytes(length);
        let written = self.session.0.write(self.pool, &content, Some(at));
        assert_eq!(written, Ok(length), "{what}: writing at {at}");
        self.host.write_all_at(&content, at).expect("written");
    }

    /// Shorter or longer, as it comes.
    pub fn cut(&self, random: &mut Random, what: &str) {
        let size = random.below(90_000);
        let cut = self.session.0.truncate_handle(self.pool, size);
        assert_eq!(cut, Ok(()), "{what}: cutting to {size}");
        self.host.set_len(size).expect("cut");
    }

    /// Names of a directory; and how many.
    pub fn list(&self, what: &str) -> usize {
        let pool = self.session.0.names_of(self.pool);
        let mut pool = pool.unwrap_or_else(|errno| panic!("{what}: listing: {errno}"));
        let copy = self.host.try_clone().expect("a descriptor");
        // Another opening would ask for the right again.
        let mut listing = rustix::fs::Dir::new(copy).expect("a directory");
        listing.rewind();
        let names = listing.map(|entry| entry.expect("an entry").file_name().to_owned());
        let names = names.map(|name| name.into_string().expect("text"));
        let mut host: Vec<String> = names.filter(|name| name != "." && name != "..").collect();
        pool.sort();
        host.sort();
        assert_eq!(pool, host, "{what}");
        host.len()
    }

    pub fn identity(&self) -> (u32, u32) {
        let stat = self.session.0.stat_handle(self.pool).expect("fstat");
        let inode = u32::try_from(stat.inode).expect("one");
        let header = self.session.0.session().header(inode).expect("one");
        (inode, header.generation())
    }

    /// What a private map shows: all that is in the file.
    fn compare_map(&self, length: usize, what: &str) {
        let protection = libc::PROT_READ;
        let request = MapRequest {
            address: 0,
            length,
            protection,
            flags: libc::MAP_PRIVATE,
            offset: 0,
        };
        // SAFETY: nothing else is at the address that it gives.
        let address = unsafe { self.session.0.map(self.pool, &request) };
        let address = address.unwrap_or_else(|errno| panic!("{what}: mapping: {errno}"));
        let mut host = vec![0; length];
        self.host.read_exact_at(&mut host, 0).expect("read");
        // SAFETY: mapped above, as long, and nobody cuts the file meanwhile.
        let pool = unsafe { std::slice::from_raw_parts(address as *const u8, length) };
        assert!(pool == host, "{what}: the map shows something else");
        // SAFETY: of what was mapped above.
        unsafe { self.session.0.unmap(address, length) }.expect("unmapped");
    }

    /// Parts here and there, the end, and what lies beyond.
    pub fn compare(&self, seed: u64, what: &str) {
        let mut random = Random::new(seed);
        let stat = self.session.0.stat_handle(self.pool);
        let stat = stat.unwrap_or_else(|errno| panic!("{what}: fstat: {errno}"));
        let meta = self.host.metadata().expect("fstat");
        assert_eq!(
            (
                stat.mode,
                stat.size,
                stat.uid,
                stat.gid,
                u64::from(stat.links)
            ),
            (
                meta.mode(),
                meta.size(),
                meta.uid(),
                meta.gid(),
                meta.nlink()
            ),
            "{what}"
        );
        if meta.size() != 0 {
            self.compare_map(meta.size() as usize, what);
        }
        for _ in 0..20 {
            let at = random.below(meta.size() + 5000);
            let length = 1 + random.below(20_000) as usize;
            let (mut pool, mut host) = (vec![0; length], vec![0; length]);
            let read = self.session.0.read(self.pool, &mut pool, Some(at));
            let read = read.unwrap_or_else(|errno| panic!("{what}: reading at {at}: {errno}"));
            let mut on_host = 0;
            while let Ok(more @ 1..) = self.host.read_at(&mut host[on_host..], at + on_host as u64)
            {
                on_host += more;
            }
            assert_eq!(read, on_host, "{what}: {length} at {at}");
            assert!(pool == host, "{what}: {length} at {at} differ");
        }
    }
}

pub fn big(byte: u8) -> Vec<u8> {
    (0..50_000u32).map(|i| byte ^ (i / 7) as u8).collect()
}

pub fn make_host(world: &World) -> PathBuf {
    let host = world.pool().with_file_name("host");
    std::fs::create_dir(&host).expect("mkdir");
    std::fs::set_permissions(&host, PermissionsExt::from_mode(0o777)).expect("chmod");
    host
}

pub fn both<'s>(session: &'s Session, host: &Path) -> Both<'s> {
    Both {
        session,
        host: host.to_path_buf(),
    }
}
