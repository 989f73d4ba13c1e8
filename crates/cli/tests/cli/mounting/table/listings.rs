//! Reading directories.

use super::Seen;
use rustix::fs::{self, FileType, Mode, OFlags};
use std::collections::BTreeSet;
use std::fs::{remove_file, write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

pub fn listings(at: &Path, seen: &mut Seen) {
    for index in 0..3000 {
        write(at.join(format!("name-{index:05}")), "").unwrap();
    }
    let names: BTreeSet<_> = std::fs::read_dir(at)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    seen.note(
        "all, once each",
        (names.len(), names.first().cloned(), names.last().cloned()),
    );
    let folder = fs::open(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let mut listed = fs::Dir::read_from(&folder).unwrap();
    let count = |listed: &mut fs::Dir| {
        let (mut names, mut dots) = (0, 0);
        while let Some(entry) = listed.read() {
            let entry = entry.unwrap();
            match entry.file_name().to_bytes() {
                b"." | b".." => dots += u32::from(entry.file_type() == FileType::Directory),
                _ => names += u32::from(entry.file_type() == FileType::RegularFile),
            }
        }
        (names, dots)
    };
    seen.note("with their kinds", count(&mut listed));
    write(at.join("later"), "").unwrap();
    listed.rewind();
    seen.note("from the beginning", count(&mut listed));
    let by_number: BTreeSet<_> = std::fs::read_dir(at)
        .unwrap()
        .filter(|entry| {
            let entry = entry.as_ref().unwrap();
            std::os::unix::fs::DirEntryExt::ino(entry) == entry.metadata().unwrap().ino()
        })
        .map(|entry| entry.unwrap().file_name())
        .collect();
    seen.note("numbers are those of stat", by_number.len());
}

pub fn removed_while_listed(at: &Path, seen: &mut Seen) {
    for index in 0..10_000 {
        write(at.join(format!("{index}")), "").unwrap();
    }
    let mut removed = 0;
    for entry in std::fs::read_dir(at).unwrap() {
        remove_file(entry.unwrap().path()).unwrap();
        removed += 1;
    }
    seen.note("removed", removed);
    seen.names("left", at);
}

pub fn seekdir(at: &Path, seen: &mut Seen) {
    for index in 0..200 {
        write(at.join(format!("{index}")), "").unwrap();
    }
    let path = std::ffi::CString::new(at.to_str().unwrap()).unwrap();
    // SAFETY: a stream of this function's own, and what it returns, which is used before the next call.
    unsafe {
        let stream = libc::opendir(path.as_ptr());
        let next = || {
            let entry = libc::readdir(stream);
            (!entry.is_null())
                .then(|| std::ffi::CStr::from_ptr((*entry).d_name.as_ptr()).to_owned())
        };
        let mut places = Vec::new();
        let mut names = Vec::new();
        loop {
            let place = libc::telldir(stream);
            match next() {
                Some(name) => {
                    places.push(place);
                    names.push(name);
                }
                None => break,
            }
        }
        seen.note("names", names.len());
        let come_back = [150, 3, 201, 77].into_iter().all(|index| {
            libc::seekdir(stream, places[index]);
            next().as_ref() == Some(&names[index])
        });
        seen.note("come back", come_back);
        libc::closedir(stream);
    }
}
