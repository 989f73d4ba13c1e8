//! What is open, while its names come and go; and maps.

use super::{Seen, number};
use rustix::fs::{self, Mode, OFlags, Timespec, Timestamps};
use rustix::io::{self};
use std::fs::{File, OpenOptions, create_dir, read, remove_dir, remove_file, rename, write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

pub fn unlinked_and_open(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.write_at(b"before", 0).unwrap();
    remove_file(&path).unwrap();
    seen.names("nothing", at);
    let told = |file: &File| number(file.metadata().map(|of| (of.nlink(), of.size(), of.mode())));
    seen.note("told", told(&file));
    seen.note("write", number(file.write_at(b"after it", 6)));
    let mut bytes = [0; 20];
    seen.note("read", number(file.read_at(&mut bytes, 0)));
    seen.note("bytes", String::from_utf8_lossy(&bytes).into_owned());
    seen.note("cut", number(file.set_len(4)));
    seen.note("mode", fs::fchmod(&file, Mode::from_raw_mode(0o600)));
    seen.note("owner", fs::fchown(&file, Some(fs::Uid::from_raw(3)), None));
    let time = Timespec {
        tv_sec: 9,
        tv_nsec: 0,
    };
    seen.note(
        "times",
        fs::futimens(
            &file,
            &Timestamps {
                last_access: time,
                last_modification: time,
            },
        ),
    );
    seen.note("told", told(&file));
    seen.note("modified", file.metadata().unwrap().mtime());
    seen.note("synced", number(file.sync_all()));
    seen.note("made again", number(write(&path, "another")));
    seen.note("is another", number(file.read_at(&mut bytes, 0)));
    let again = OpenOptions::new()
        .read(true)
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()));
    seen.note(
        "opened again",
        number(again.and_then(|again| again.read_at(&mut bytes, 0))),
    );
}

pub fn renamed_and_open(at: &Path, seen: &mut Seen) {
    create_dir(at.join("folder")).unwrap();
    write(at.join("folder/file"), "x").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(at.join("folder/file"))
        .unwrap();
    let folder = fs::open(
        at.join("folder"),
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .unwrap();
    rename(at.join("folder"), at.join("moved")).unwrap();
    rename(at.join("moved/file"), at.join("moved/other")).unwrap();
    seen.note("write", number(file.write_at(b"written", 0)));
    seen.note("there", number(read(at.join("moved/other"))));
    seen.note("not there", number(read(at.join("folder/file"))));
    let below = fs::openat(&folder, "other", OFlags::RDONLY, Mode::empty());
    seen.note("by the directory", below.map(drop));
    let made = fs::openat(
        &folder,
        "new",
        OFlags::WRONLY | OFlags::CREATE,
        Mode::from_raw_mode(0o600),
    );
    seen.note("made by it", made.map(drop));
    seen.names("moved", &at.join("moved"));
}

pub fn replaced_and_open(at: &Path, seen: &mut Seen) {
    write(at.join("config"), "old").unwrap();
    let old = File::open(at.join("config")).unwrap();
    write(at.join("config.new"), "new").unwrap();
    rename(at.join("config.new"), at.join("config")).unwrap();
    let mut bytes = [0; 3];
    old.read_exact_at(&mut bytes, 0).unwrap();
    seen.note("old", String::from_utf8_lossy(&bytes).into_owned());
    seen.note("links", old.metadata().unwrap().nlink());
    seen.note("new", std::fs::read_to_string(at.join("config")).unwrap());
}

/// What is made in the place of a removed directory is another one, also while something holds that.
pub fn held_directories(at: &Path, seen: &mut Seen) {
    let mut lost = Vec::new();
    for round in 0..20 {
        let removed = at.join("removed");
        create_dir(&removed).unwrap();
        let held = fs::open(&removed, OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        std::fs::remove_dir(&removed).unwrap();
        let others: Vec<_> = (0..40).map(|other| at.join(format!("{other}"))).collect();
        for (number, other) in others.iter().enumerate() {
            create_dir(other).unwrap();
            if let Err(error) = create_dir(other.join("in it")) {
                lost.push((round, number, error.raw_os_error()));
            }
            seen.names("listed", other);
        }
        for other in others {
            std::fs::remove_dir_all(other).unwrap();
        }
        drop(held);
    }
    seen.note("lost", lost);
}

pub fn removed_directory(at: &Path, seen: &mut Seen) {
    create_dir(at.join("folder")).unwrap();
    let folder = fs::open(
        at.join("folder"),
        OFlags::RDONLY | OFlags::DIRECTORY,
        Mode::empty(),
    )
    .unwrap();
    remove_dir(at.join("folder")).unwrap();
    let made = fs::openat(
        &folder,
        "new",
        OFlags::WRONLY | OFlags::CREATE,
        Mode::from_raw_mode(0o600),
    );
    seen.note("made in it", made.map(drop));
    seen.note(
        "made in it",
        fs::mkdirat(&folder, "new", Mode::from_raw_mode(0o700)),
    );
    let mut listed = fs::Dir::read_from(&folder).unwrap();
    let mut names = Vec::new();
    while let Some(Ok(entry)) = listed.read() {
        names.push(entry.file_name().to_owned());
    }
    seen.note(
        "listed",
        names
            .iter()
            .filter(|name| !name.to_bytes().starts_with(b"."))
            .count(),
    );
    seen.note("links", fs::fstat(&folder).map(|of| of.st_nlink));
}

/// A map of a file; unmapped when dropped.
struct Map(*mut u8, usize);

impl Map {
    fn new(file: &File, length: usize, protection: i32, flags: i32) -> Result<Map, Option<i32>> {
        // SAFETY: a new map, wherever the kernel puts it.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                flags,
                file.as_raw_fd(),
                0,
            )
        };
        match at {
            libc::MAP_FAILED => Err(std::io::Error::last_os_error().raw_os_error()),
            at => Ok(Map(at.cast(), length)),
        }
    }
    #[allow(clippy::mut_from_ref)]
    fn bytes(&self) -> &mut [u8] {
        // SAFETY: the map, which one thread uses, and whose file is not cut.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }
    fn sync(&self) -> i32 {
        // SAFETY: the map.
        unsafe { libc::msync(self.0.cast(), self.1, libc::MS_SYNC) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the map, which nobody uses any more.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

pub fn shared_maps(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, vec![b'a'; 10_000]).unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    let map = Map::new(&file, 10_000, READ_WRITE, libc::MAP_SHARED).unwrap();
    seen.note("seen", (map.bytes()[0], map.bytes()[9_999]));
    map.bytes()[5_000] = b'B';
    seen.note("read shows it", read(&path).unwrap()[5_000]);
    file.write_at(b"C", 6_000).unwrap();
    seen.note("it shows what was written", map.bytes()[6_000]);
    seen.note("msync", map.sync());
    map.bytes()[7_000] = b'D';
    drop(map);
    drop(file);
    let bytes = read(&path).unwrap();
    seen.note(
        "after it",
        (bytes[5_000], bytes[6_000], bytes[7_000], bytes.len()),
    );
    let reader = File::open(&path).unwrap();
    seen.note(
        "not for writing",
        Map::new(&reader, 4096, READ_WRITE, libc::MAP_SHARED).map(drop),
    );
    seen.note(
        "to read",
        Map::new(&reader, 4096, libc::PROT_READ, libc::MAP_SHARED).map(|map| map.bytes()[0]),
    );
}

pub fn private_maps(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, vec![b'a'; 5_000]).unwrap();
    let file = File::open(&path).unwrap();
    let map = Map::new(&file, 5_000, READ_WRITE, libc::MAP_PRIVATE).unwrap();
    map.bytes()[1] = b'X';
    seen.note("own", (map.bytes()[0], map.bytes()[1]));
    seen.note("nobody else's", read(&path).unwrap()[1]);
}

pub fn unlinked_maps(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.set_len(8192).unwrap();
    let map = Map::new(&file, 8192, READ_WRITE, libc::MAP_SHARED).unwrap();
    remove_file(&path).unwrap();
    map.bytes()[4096] = 77;
    drop(file);
    seen.note(
        "after the last descriptor",
        (map.bytes()[0], map.bytes()[4096], map.sync()),
    );
}

pub fn open_flags(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "x").unwrap();
    create_dir(at.join("folder")).unwrap();
    let open = |name: &str, flags: OFlags| {
        fs::open(at.join(name), flags, Mode::from_raw_mode(0o600)).map(drop)
    };
    seen.note(
        "a file as a directory",
        open("file", OFlags::RDONLY | OFlags::DIRECTORY),
    );
    seen.note("a directory to write", open("folder", OFlags::RDWR));
    seen.note(
        "made over a directory",
        open("folder", OFlags::RDONLY | OFlags::CREATE),
    );
    seen.note(
        "exclusively",
        open("file", OFlags::RDONLY | OFlags::CREATE | OFlags::EXCL),
    );
    seen.note("synchronous", open("file", OFlags::WRONLY | OFlags::SYNC));
    seen.note(
        "without times",
        open("file", OFlags::RDONLY | OFlags::NOATIME),
    );
    let by_path = fs::open(at.join("file"), OFlags::PATH, Mode::empty()).unwrap();
    seen.note("a path reads nothing", io::read(&by_path, &mut [0; 4]));
    seen.note("and tells", fs::fstat(&by_path).map(|of| of.st_size));
    let writes = fs::open(at.join("file"), OFlags::WRONLY, Mode::empty()).unwrap();
    seen.note("a writer reads nothing", io::read(&writes, &mut [0; 4]));
    let reads = fs::open(at.join("file"), OFlags::RDONLY, Mode::empty()).unwrap();
    seen.note("a reader writes nothing", io::write(&reads, b"x"));
    seen.note(
        "flags",
        fs::fcntl_getfl(&reads).map(|flags| flags & (OFlags::ACCMODE | OFlags::APPEND)),
    );
    seen.note(
        "a directory is not read",
        io::read(
            fs::open(at, OFlags::RDONLY, Mode::empty()).unwrap(),
            &mut [0; 4],
        ),
    );
}
