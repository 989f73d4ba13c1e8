//! What is in files.

use super::{Seen, number};
use rustix::fs::{self, FallocateFlags, Mode, OFlags, SeekFrom};
use rustix::io::{self, Errno};
use std::fs::{File, OpenOptions, read, write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::process::Command;

pub fn sizes(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "0123456789").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    for size in [5, 8, 5000, 0, 12] {
        seen.note("ftruncate", number(file.set_len(size)));
        seen.status("then", &path);
        seen.note(
            "read",
            number(read(&path)).map(|bytes| {
                (
                    bytes.len(),
                    bytes.iter().map(|&byte| u32::from(byte)).sum::<u32>(),
                )
            }),
        );
    }
    seen.note("truncate", {
        let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        // SAFETY: a string.
        unsafe { libc::truncate(path.as_ptr(), 3) }
    });
    seen.status("then", &path);
    let only_read = File::open(&path).unwrap();
    seen.note("not for writing", number(only_read.set_len(1)));
    seen.note(
        "of a directory",
        fs::open(at, OFlags::WRONLY, Mode::empty()).map(drop),
    );
    seen.note("negative seek", fs::seek(&file, SeekFrom::Current(-100)));
    seen.note("end", fs::seek(&file, SeekFrom::End(4)));
    seen.note("behind the end", number(file.write_at(b"x", 100)));
    seen.status("grown", &path);
}

pub fn holes(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    file.write_at(b"begin", 0).unwrap();
    file.write_at(b"middle", 1 << 20).unwrap();
    file.set_len(2 << 20).unwrap();
    for from in [0, 4096, 1 << 20, (1 << 20) + 4096, (2 << 20) - 1, 2 << 20] {
        seen.note("data", fs::seek(&file, SeekFrom::Data(from)));
        seen.note("hole", fs::seek(&file, SeekFrom::Hole(from)));
    }
    let mut bytes = [1; 8192];
    seen.note(
        "read",
        number(file.read_at(&mut bytes, 8192))
            .map(|read| (read, bytes.iter().all(|&byte| byte == 0))),
    );
    seen.note("blocks", std::fs::metadata(&path).unwrap().blocks());
    seen.note(
        "sum",
        read(&path)
            .unwrap()
            .iter()
            .map(|&byte| u64::from(byte))
            .sum::<u64>(),
    );
}

pub fn fallocate(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let go = |flags, offset, length| fs::fallocate(&file, flags, offset, length);
    seen.note("space", go(FallocateFlags::empty(), 0, 20_000));
    seen.status("then", &path);
    file.write_at(&[7; 20_000], 0).unwrap();
    seen.note(
        "a hole",
        go(
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            4096,
            8192,
        ),
    );
    let sum = || {
        read(&path)
            .unwrap()
            .iter()
            .map(|&byte| u64::from(byte))
            .sum::<u64>()
    };
    seen.note("sum", sum());
    seen.note(
        "odd ends",
        go(
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            100,
            5000,
        ),
    );
    seen.note("sum", sum());
    seen.note("nothing", go(FallocateFlags::empty(), 0, 0));
    seen.note("collapse", go(FallocateFlags::COLLAPSE_RANGE, 0, 4096));
    seen.note("keeps its size", go(FallocateFlags::KEEP_SIZE, 0, 100_000));
    seen.status("then", &path);
    let only_read = File::open(&path).unwrap();
    seen.note(
        "not for writing",
        fs::fallocate(&only_read, FallocateFlags::empty(), 0, 1),
    );
}

pub fn appending(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "one").unwrap();
    let file = OpenOptions::new()
        .append(true)
        .read(true)
        .open(&path)
        .unwrap();
    seen.note("write", io::write(&file, b" two"));
    seen.note("pwrite appends", io::pwrite(&file, b" three", 0));
    seen.note("read", String::from_utf8(read(&path).unwrap()));
    fs::fcntl_setfl(&file, OFlags::empty()).unwrap();
    seen.note("not any more", io::pwrite(&file, b"ONE", 0));
    seen.note("read", String::from_utf8(read(&path).unwrap()));
    let other = OpenOptions::new().write(true).open(&path).unwrap();
    fs::fcntl_setfl(&other, OFlags::APPEND).unwrap();
    seen.note("from now on", io::write(&other, b"!"));
    seen.note("read", String::from_utf8(read(&path).unwrap()));
    seen.note("offset", fs::seek(&other, SeekFrom::Current(0)));
}

pub fn two_append(at: &Path, seen: &mut Seen) {
    let path = at.join("log");
    let script = "i=0; while [ $i -lt 500 ]; do echo \"$0 line $i\"; i=$((i+1)); done >>log";
    let start = |name: &str| {
        Command::new("sh")
            .args(["-c", script, name])
            .current_dir(at)
            .spawn()
            .unwrap()
    };
    let children = [start("first"), start("second")];
    for mut child in children {
        seen.note("ends", child.wait().unwrap().success());
    }
    let text = std::fs::read_to_string(&path).unwrap();
    seen.note("lines", text.lines().count());
    let in_order = |name: &str| {
        let own: Vec<&str> = text.lines().filter(|line| line.starts_with(name)).collect();
        own.len() == 500
            && own
                .iter()
                .enumerate()
                .all(|(index, line)| **line == format!("{name} line {index}"))
    };
    seen.note(
        "whole and in order",
        (in_order("first"), in_order("second")),
    );
}

pub fn truncating_opens(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "long contents").unwrap();
    let reader = File::open(&path).unwrap();
    drop(
        OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(&path)
            .unwrap(),
    );
    seen.status("cut", &path);
    let mut bytes = [0; 8];
    seen.note("who had it open", number(reader.read_at(&mut bytes, 0)));
    write(&path, "new").unwrap();
    seen.note("reads", number(reader.read_at(&mut bytes, 0)));
    seen.note(
        "cut and read",
        fs::open(&path, OFlags::RDONLY | OFlags::TRUNC, Mode::empty()).map(drop),
    );
    seen.status("then", &path);
}

pub fn copy_range(at: &Path, seen: &mut Seen) {
    let bytes: Vec<u8> = (0..300_000u32).map(|index| index as u8).collect();
    write(at.join("from"), &bytes).unwrap();
    let from = File::open(at.join("from")).unwrap();
    let to = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(at.join("to"))
        .unwrap();
    let (mut read_at, mut write_at) = (1000, 5);
    let mut copied = 0;
    loop {
        match fs::copy_file_range(
            &from,
            Some(&mut read_at),
            &to,
            Some(&mut write_at),
            200_000 - copied,
        ) {
            Ok(0) | Err(Errno::INTR) => break,
            Ok(more) => copied += more,
            Err(errno) => {
                seen.note("failed", errno);
                break;
            }
        }
        if copied == 200_000 {
            break;
        }
    }
    seen.note("copied", (copied, read_at, write_at));
    seen.note(
        "is it",
        read(at.join("to")).unwrap()[5..] == bytes[1000..201_000],
    );
    seen.note(
        "std copies",
        number(std::fs::copy(at.join("from"), at.join("third"))),
    );
    seen.note("is it", read(at.join("third")).unwrap() == bytes);
}

pub fn sendfile(at: &Path, seen: &mut Seen) {
    let bytes: Vec<u8> = (0..50_000u32).map(|index| (index * 7) as u8).collect();
    write(at.join("from"), &bytes).unwrap();
    let from = File::open(at.join("from")).unwrap();
    let to = File::create(at.join("to")).unwrap();
    let mut offset = 10;
    let mut left = 40_000;
    while left > 0 {
        match fs::sendfile(&to, &from, Some(&mut offset), left) {
            Ok(0) => break,
            Ok(sent) => left -= sent,
            Err(errno) => {
                seen.note("failed", errno);
                break;
            }
        }
    }
    seen.note(
        "sent",
        (
            left,
            offset,
            read(at.join("to")).unwrap() == bytes[10..40_010],
        ),
    );
}

pub fn large_writes(at: &Path, seen: &mut Seen) {
    let bytes: Vec<u8> = (0..5_000_001u32)
        .map(|index| (index ^ (index >> 8)) as u8)
        .collect();
    let path = at.join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    seen.note("at once", number(file.write_at(&bytes, 3)));
    seen.status("then", &path);
    let mut back = vec![0; bytes.len()];
    seen.note("read at once", number(file.read_at(&mut back, 3)));
    seen.note("the same", back == bytes);
    seen.note("over the end", number(file.read_at(&mut back, 5_000_000)));
    seen.note("behind it", number(file.read_at(&mut back, 6_000_000)));
    seen.note("far away", number(file.write_at(b"x", 1 << 40)));
    seen.note("too far", number(file.write_at(b"x", i64::MAX as u64)));
}

pub fn vectors(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .unwrap();
    let parts = [&b"one "[..], b"", b"two ", b"three"].map(std::io::IoSlice::new);
    seen.note("writev", io::writev(&file, &parts));
    let (mut first, mut second) = ([0; 5], [0; 20]);
    let read = io::preadv(
        &file,
        &mut [
            std::io::IoSliceMut::new(&mut first),
            std::io::IoSliceMut::new(&mut second),
        ],
        0,
    );
    seen.note("preadv", (read, first, second));
}

pub fn synced(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "x").unwrap();
    let file = OpenOptions::new()
        .write(true)
        .open(at.join("file"))
        .unwrap();
    seen.note("fsync", fs::fsync(&file));
    seen.note("fdatasync", fs::fdatasync(&file));
    let folder = fs::open(at, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    seen.note("a directory", fs::fsync(&folder));
    seen.note("all", fs::syncfs(&folder));
}
