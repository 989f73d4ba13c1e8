//! What programs do with files, and what comes of it: the same on a mount as on tmpfs.
//!
//! Each row works in a directory of its own and tells what it has seen; times and numbers that differ from run to run are
//! left out of that. Written from the manual pages of the calls.

use rustix::fs::{
    self, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
    Timestamps, XattrFlags,
};
use rustix::io::{self, Errno};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{
    File, OpenOptions, create_dir, read, read_link, remove_dir, remove_file, rename, write,
};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

/// What a row has seen.
pub struct Seen(pub String);

impl Seen {
    fn note(&mut self, what: &str, seen: impl std::fmt::Debug) {
        writeln!(self.0, "{what}: {seen:?}").unwrap();
    }

    /// Kind, mode, links, size of what is at a path, not followed; or the error.
    fn status(&mut self, what: &str, path: &Path) {
        let seen = std::fs::symlink_metadata(path).map(|of| {
            let size = if of.is_dir() { 0 } else { of.size() };
            let links = if of.is_dir() { 0 } else { of.nlink() };
            format!("{:o} {links} {size}", of.mode())
        });
        self.note(what, seen.map_err(|error| error.raw_os_error()));
    }

    fn names(&mut self, what: &str, directory: &Path) {
        let names: BTreeSet<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name(), entry.file_type().unwrap().is_dir())
            })
            .collect();
        self.note(what, names);
    }
}

/// An error as its number, so that it reads the same however it is worded.
fn number<T>(done: std::io::Result<T>) -> Result<T, Option<i32>> {
    done.map_err(|error| error.raw_os_error())
}

/// A row: its name, and what it does in an empty directory.
type Row = (&'static str, fn(&Path, &mut Seen));

pub const ROWS: &[Row] = &[
    ("names", names),
    ("wrong names", wrong_names),
    ("long names", long_names),
    ("links", links),
    ("symbolic links", symbolic_links),
    ("renames", renames),
    ("rename flags", rename_flags),
    ("modes and umask", modes),
    ("set-group-id directories", set_group_id),
    ("set-id bits go", set_id_bits),
    ("times", times),
    ("owners", owners),
    ("sizes", sizes),
    ("holes", holes),
    ("fallocate", fallocate),
    ("appending", appending),
    ("two append", two_append),
    ("truncating opens", truncating_opens),
    ("unlinked and open", unlinked_and_open),
    ("renamed and open", renamed_and_open),
    ("replaced and open", replaced_and_open),
    ("removed directory", removed_directory),
    ("shared maps", shared_maps),
    ("private maps", private_maps),
    ("maps of unlinked files", unlinked_maps),
    ("listings", listings),
    ("names removed while listed", removed_while_listed),
    ("seekdir", seekdir),
    ("extended attributes", extended_attributes),
    ("nodes", nodes),
    ("a named pipe carries bytes", pipe_carries),
    ("a socket is connected to", socket_is_connected),
    ("copy_file_range", copy_range),
    ("sendfile and splice", sendfile),
    ("programs", programs),
    ("scripts", scripts),
    ("open flags", open_flags),
    ("large writes", large_writes),
    ("vectors", vectors),
    ("record locks", record_locks),
    ("record locks end with a close", locks_end),
    ("a wait for a lock is interrupted", lock_interrupted),
    ("flock", flock),
    ("access", access),
    ("synced", synced),
    ("getcwd", working_directory),
    ("statfs", statfs),
];

fn names(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "contents").unwrap();
    create_dir(at.join("folder")).unwrap();
    seen.names("made", at);
    seen.status("file", &at.join("file"));
    seen.status("folder", &at.join("folder"));
    seen.note("again", number(create_dir(at.join("folder"))));
    seen.note(
        "exclusively",
        number(
            OpenOptions::new()
                .write(true)
                .create_new(true)
                .open(at.join("file")),
        )
        .map(drop),
    );
    seen.note("read", number(read(at.join("file"))));
    seen.note("none", number(read(at.join("none"))));
    write(at.join("folder/inner"), "").unwrap();
    seen.note("not empty", number(remove_dir(at.join("folder"))));
    remove_file(at.join("folder/inner")).unwrap();
    seen.note("empty", number(remove_dir(at.join("folder"))));
    seen.note("removed", number(remove_file(at.join("file"))));
    seen.note("twice", number(remove_file(at.join("file"))));
    seen.names("nothing", at);
}

fn wrong_names(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "").unwrap();
    create_dir(at.join("folder")).unwrap();
    seen.note("beneath a file", number(read(at.join("file/x"))));
    seen.note("a file with a slash", number(read(at.join("file/"))));
    seen.note("made beneath a file", number(write(at.join("file/x"), "")));
    seen.note(
        "a file with a slash is made",
        number(write(at.join("new/"), "")),
    );
    seen.note("a directory is read", number(read(at.join("folder"))));
    seen.note(
        "a directory is written",
        number(write(at.join("folder"), "x")),
    );
    seen.note(
        "a directory is unlinked",
        number(remove_file(at.join("folder"))),
    );
    seen.note(
        "a file is removed as a directory",
        number(remove_dir(at.join("file"))),
    );
    seen.note("dot is removed", number(remove_dir(at.join("folder/."))));
    seen.note(
        "dot dot is removed",
        number(remove_dir(at.join("folder/.."))),
    );
    seen.note(
        "a name of bytes",
        number(write(at.join("\u{1}\u{7f}\\\"'*? \n"), "x")),
    );
    seen.names("left", at);
}

fn long_names(at: &Path, seen: &mut Seen) {
    let longest = "n".repeat(255);
    seen.note("255", number(write(at.join(&longest), "x")));
    seen.note("256", number(write(at.join("n".repeat(256)), "x")));
    seen.note("look at 256", number(read(at.join("n".repeat(256)))));
    seen.note("255 is there", number(read(at.join(&longest))));
    let mut deep = at.to_path_buf();
    for _ in 0..60 {
        deep.push("directory-of-thirty-characters");
        create_dir(&deep).unwrap();
    }
    seen.note("deep", number(write(deep.join("file"), "x")));
    seen.note("deep is there", number(read(deep.join("file"))));
}

fn links(at: &Path, seen: &mut Seen) {
    let (one, two) = (at.join("one"), at.join("two"));
    write(&one, "x").unwrap();
    seen.note("link", number(std::fs::hard_link(&one, &two)));
    seen.status("one", &one);
    seen.status("two", &two);
    let inode = |path: &Path| std::fs::metadata(path).unwrap().ino();
    seen.note("the same inode", inode(&one) == inode(&two));
    seen.note("over another", number(std::fs::hard_link(&one, &two)));
    create_dir(at.join("folder")).unwrap();
    seen.note(
        "of a directory",
        number(std::fs::hard_link(at.join("folder"), at.join("three"))),
    );
    seen.note(
        "of nothing",
        number(std::fs::hard_link(at.join("none"), at.join("three"))),
    );
    write(&two, "other").unwrap();
    seen.note("by the other name", number(read(&one)));
    remove_file(&one).unwrap();
    seen.status("one is left", &two);
    symlink("two", at.join("symbolic")).unwrap();
    std::fs::hard_link(at.join("symbolic"), at.join("symbolic 2")).unwrap();
    seen.status("a link's link", &at.join("symbolic 2"));
}

fn symbolic_links(at: &Path, seen: &mut Seen) {
    symlink("file", at.join("relative")).unwrap();
    symlink("/nowhere/at/all", at.join("absolute")).unwrap();
    symlink("loop", at.join("loop")).unwrap();
    symlink("x".repeat(4095), at.join("longest")).unwrap();
    seen.note(
        "too long",
        number(symlink("x".repeat(4096), at.join("longer"))),
    );
    seen.note("empty", number(symlink("", at.join("empty"))));
    for name in ["relative", "absolute", "loop"] {
        seen.note(name, number(read_link(at.join(name))));
        seen.status(name, &at.join(name));
    }
    seen.note(
        "longest",
        read_link(at.join("longest")).unwrap().as_os_str().len(),
    );
    seen.note("dangling", number(read(at.join("relative"))));
    write(at.join("relative"), "through").unwrap();
    seen.note("made through it", number(read(at.join("file"))));
    seen.note("loops", number(read(at.join("loop"))));
    let opened = fs::open(
        at.join("relative"),
        OFlags::RDONLY | OFlags::NOFOLLOW,
        Mode::empty(),
    );
    seen.note("not followed", opened.map(drop));
    create_dir(at.join("folder")).unwrap();
    symlink("folder", at.join("to folder")).unwrap();
    write(at.join("to folder/inner"), "x").unwrap();
    seen.names("through a directory's link", &at.join("to folder/"));
    seen.note(
        "a link is no directory",
        number(remove_dir(at.join("to folder"))),
    );
    symlink("../file", at.join("folder/up")).unwrap();
    seen.note("up and down", number(read(at.join("folder/up"))));
}

fn renames(at: &Path, seen: &mut Seen) {
    for name in ["a", "b"] {
        write(at.join(name), name).unwrap();
        create_dir(at.join(format!("folder {name}"))).unwrap();
    }
    write(at.join("folder b/inner"), "x").unwrap();
    let mut go = |what: &str, from: &str, to: &str| {
        seen.note(what, number(rename(at.join(from), at.join(to))))
    };
    go("over a file", "a", "b");
    go("from nothing", "a", "c");
    go("a file over a directory", "b", "folder a");
    go("a directory over a file", "folder a", "b");
    go("a directory over a full one", "folder a", "folder b");
    go("a directory over an empty one", "folder b", "folder a");
    go("a directory into itself", "folder a", "folder a/inner/self");
    go("into a directory", "b", "folder a/b");
    go("to itself", "folder a/b", "folder a/b");
    seen.names("left", at);
    seen.names("inside", &at.join("folder a"));
    std::fs::hard_link(at.join("folder a/b"), at.join("same")).unwrap();
    seen.note(
        "over its own link",
        number(rename(at.join("same"), at.join("folder a/b"))),
    );
    seen.names("both are left", at);
    create_dir(at.join("far")).unwrap();
    create_dir(at.join("folder a/near")).unwrap();
    seen.note(
        "a directory moves",
        number(rename(at.join("folder a/near"), at.join("far/away"))),
    );
    seen.names("far", &at.join("far"));
    seen.names("its parent", &at.join("far/away/.."));
}

fn rename_flags(at: &Path, seen: &mut Seen) {
    write(at.join("a"), "a").unwrap();
    write(at.join("b"), "b").unwrap();
    create_dir(at.join("folder")).unwrap();
    let go = |from: &str, to: &str, flags| {
        fs::renameat_with(CWD, at.join(from), CWD, at.join(to), flags)
    };
    seen.note("not over", go("a", "b", RenameFlags::NOREPLACE));
    seen.note("to nothing", go("a", "c", RenameFlags::NOREPLACE));
    seen.note("exchanged", go("b", "c", RenameFlags::EXCHANGE));
    seen.note("b", number(read(at.join("b"))));
    seen.note("c", number(read(at.join("c"))));
    seen.note(
        "a file and a directory",
        go("b", "folder", RenameFlags::EXCHANGE),
    );
    seen.status("b", &at.join("b"));
    seen.note("with nothing", go("b", "none", RenameFlags::EXCHANGE));
    seen.note(
        "both flags",
        go("b", "c", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE),
    );
    seen.names("left", at);
}

fn modes(at: &Path, seen: &mut Seen) {
    for (index, mode) in [0o777, 0o640, 0o400, 0o000, 0o4755, 0o1777]
        .into_iter()
        .enumerate()
    {
        let path = at.join(format!("{index}"));
        let file = OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(true)
            .mode(mode)
            .open(&path);
        seen.note("made", number(file.map(drop)));
        seen.status("file", &path);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        seen.status("set", &path);
    }
    fs::mkdirat(CWD, at.join("folder"), Mode::from_raw_mode(0o777)).unwrap();
    seen.status("folder", &at.join("folder"));
    let file = File::open(at.join("0")).unwrap();
    seen.note(
        "by descriptor",
        fs::fchmod(&file, Mode::from_raw_mode(0o604)),
    );
    seen.status("then", &at.join("0"));
    // The mode that a file is made with does not bind who makes it.
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .read(true)
        .mode(0o0)
        .open(at.join("closed"))
        .unwrap();
    seen.note("written all the same", number(file.write_at(b"x", 0)));
}

fn set_group_id(at: &Path, seen: &mut Seen) {
    create_dir(at.join("shared")).unwrap();
    fs::chownat(
        CWD,
        at.join("shared"),
        None,
        Some(fs::Gid::from_raw(4321)),
        AtFlags::empty(),
    )
    .unwrap();
    std::fs::set_permissions(at.join("shared"), std::fs::Permissions::from_mode(0o2775)).unwrap();
    write(at.join("shared/file"), "").unwrap();
    create_dir(at.join("shared/folder")).unwrap();
    for name in ["shared", "shared/file", "shared/folder"] {
        seen.status(name, &at.join(name));
        seen.note("group", std::fs::metadata(at.join(name)).unwrap().gid());
    }
}

fn set_id_bits(at: &Path, seen: &mut Seen) {
    let path = at.join("program");
    write(&path, "x").unwrap();
    let set = || std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o6755)).unwrap();
    set();
    seen.status("set", &path);
    fs::chownat(
        CWD,
        &path,
        Some(fs::Uid::from_raw(1234)),
        None,
        AtFlags::empty(),
    )
    .unwrap();
    seen.status("after chown", &path);
    set();
    // Root keeps them.
    write(&path, "y").unwrap();
    seen.status("written", &path);
}

fn times(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "x").unwrap();
    let time = |seconds, nanoseconds| Timespec {
        tv_sec: seconds,
        tv_nsec: nanoseconds,
    };
    let told = |path: &Path| {
        let of = std::fs::symlink_metadata(path).unwrap();
        (of.atime(), of.atime_nsec(), of.mtime(), of.mtime_nsec())
    };
    let set = |path: &Path, accessed, modified| {
        let times = Timestamps {
            last_access: accessed,
            last_modification: modified,
        };
        fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)
    };
    seen.note(
        "set",
        set(
            &path,
            time(1_000_000_000, 1),
            time(1_234_567_890, 999_999_999),
        ),
    );
    seen.note("told", told(&path));
    seen.note(
        "one is left",
        set(&path, time(0, fs::UTIME_OMIT), time(77, 7)),
    );
    seen.note("told", told(&path));
    seen.note("before 1970", set(&path, time(-5, 0), time(-1, 0)));
    seen.note("told", told(&path));
    seen.note("wrong", set(&path, time(0, 1_000_000_000), time(0, 0)));
    set(&path, time(0, fs::UTIME_NOW), time(0, fs::UTIME_NOW)).unwrap();
    let (accessed, ..) = told(&path);
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs() as i64;
    seen.note("now", (now - accessed).abs() < 60);
    symlink("file", at.join("link")).unwrap();
    seen.note(
        "a link's own",
        set(&at.join("link"), time(5, 0), time(6, 0)),
    );
    seen.note("told", told(&at.join("link")));
    set(at, time(1, 0), time(1, 0)).unwrap();
    write(at.join("another"), "").unwrap();
    seen.note("a name made moves its directory's", told(at).2 > 1);
    set(&path, time(1, 0), time(1, 0)).unwrap();
    let changed = std::fs::metadata(&path).unwrap().ctime();
    seen.note("changed is now", (now - changed).abs() < 60);
    write(&path, "more").unwrap();
    seen.note("a write moves modified", told(&path).2 > 1);
}

fn owners(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "x").unwrap();
    symlink("file", at.join("link")).unwrap();
    let own = |path: &Path| {
        let of = std::fs::symlink_metadata(path).unwrap();
        (of.uid(), of.gid())
    };
    let set = |path: &Path, uid: Option<u32>, gid: Option<u32>, flags| {
        fs::chownat(
            CWD,
            path,
            uid.map(fs::Uid::from_raw),
            gid.map(fs::Gid::from_raw),
            flags,
        )
    };
    seen.note("both", set(&path, Some(10), Some(20), AtFlags::empty()));
    seen.note("told", own(&path));
    seen.note("group", set(&path, None, Some(30), AtFlags::empty()));
    seen.note("told", own(&path));
    seen.note(
        "a link's own",
        set(&at.join("link"), Some(40), None, AtFlags::SYMLINK_NOFOLLOW),
    );
    seen.note("told", (own(&path), own(&at.join("link"))));
    let file = File::open(&path).unwrap();
    seen.note(
        "by descriptor",
        fs::fchown(&file, Some(fs::Uid::from_raw(50)), None),
    );
    seen.note("told", own(&path));
    // As large as an id can be.
    seen.note(
        "large",
        set(
            &path,
            Some(u32::MAX - 2),
            Some(u32::MAX - 3),
            AtFlags::empty(),
        ),
    );
    seen.note("told", own(&path));
}

fn sizes(at: &Path, seen: &mut Seen) {
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

fn holes(at: &Path, seen: &mut Seen) {
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

fn fallocate(at: &Path, seen: &mut Seen) {
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

fn appending(at: &Path, seen: &mut Seen) {
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

fn two_append(at: &Path, seen: &mut Seen) {
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

fn truncating_opens(at: &Path, seen: &mut Seen) {
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

fn unlinked_and_open(at: &Path, seen: &mut Seen) {
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

fn renamed_and_open(at: &Path, seen: &mut Seen) {
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

fn replaced_and_open(at: &Path, seen: &mut Seen) {
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

fn removed_directory(at: &Path, seen: &mut Seen) {
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

fn shared_maps(at: &Path, seen: &mut Seen) {
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

fn private_maps(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, vec![b'a'; 5_000]).unwrap();
    let file = File::open(&path).unwrap();
    let map = Map::new(&file, 5_000, READ_WRITE, libc::MAP_PRIVATE).unwrap();
    map.bytes()[1] = b'X';
    seen.note("own", (map.bytes()[0], map.bytes()[1]));
    seen.note("nobody else's", read(&path).unwrap()[1]);
}

fn unlinked_maps(at: &Path, seen: &mut Seen) {
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

fn listings(at: &Path, seen: &mut Seen) {
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

fn removed_while_listed(at: &Path, seen: &mut Seen) {
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

fn seekdir(at: &Path, seen: &mut Seen) {
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

fn extended_attributes(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "").unwrap();
    let set = |name: &str, value: &[u8], flags| fs::lsetxattr(&path, name, value, flags);
    let get = |name: &str| {
        let mut value = vec![0; 1000];
        fs::lgetxattr(&path, name, &mut value[..]).map(|length| value[..length].to_vec())
    };
    seen.note("set", set("user.one", b"value", XattrFlags::empty()));
    seen.note("get", get("user.one"));
    seen.note("none", get("user.none"));
    seen.note("not again", set("user.one", b"x", XattrFlags::CREATE));
    seen.note("not new", set("user.two", b"x", XattrFlags::REPLACE));
    seen.note(
        "replaced",
        set("user.one", b"longer value", XattrFlags::REPLACE),
    );
    seen.note("get", get("user.one"));
    seen.note("empty", set("user.empty", b"", XattrFlags::empty()));
    seen.note("get", get("user.empty"));
    let mut small = [0; 3];
    seen.note("no room", fs::lgetxattr(&path, "user.one", &mut small[..]));
    let mut none: [u8; 0] = [];
    seen.note("length", fs::lgetxattr(&path, "user.one", &mut none[..]));
    let mut names = vec![0; 1000];
    let length = fs::llistxattr(&path, &mut names[..]).unwrap();
    let listed: BTreeSet<_> = names[..length]
        .split(|&byte| byte == 0)
        .filter(|name| name.starts_with(b"user."))
        .collect();
    seen.note("listed", listed);
    seen.note("removed", fs::lremovexattr(&path, "user.one"));
    seen.note("twice", fs::lremovexattr(&path, "user.one"));
    symlink("file", at.join("link")).unwrap();
    seen.note(
        "of a link",
        fs::lsetxattr(at.join("link"), "user.x", b"x", XattrFlags::empty()),
    );
    seen.note(
        "of nobody's space",
        set("nobody.x", b"x", XattrFlags::empty()),
    );
}

fn nodes(at: &Path, seen: &mut Seen) {
    let make = |name: &str, kind, mode| {
        fs::mknodat(CWD, at.join(name), kind, Mode::from_raw_mode(mode), 0)
    };
    seen.note("file", make("file", FileType::RegularFile, 0o644));
    seen.note("pipe", make("pipe", FileType::Fifo, 0o600));
    seen.note("socket", make("socket", FileType::Socket, 0o666));
    for name in ["file", "pipe", "socket"] {
        seen.status(name, &at.join(name));
    }
    seen.note("again", make("file", FileType::Fifo, 0o600));
    seen.note("a socket is opened", number(read(at.join("socket"))));
    let flags = OFlags::WRONLY | OFlags::NONBLOCK;
    seen.note(
        "nobody reads",
        fs::open(at.join("pipe"), flags, Mode::empty()).map(drop),
    );
    seen.note("removed", number(remove_file(at.join("pipe"))));
}

fn pipe_carries(at: &Path, seen: &mut Seen) {
    let path = at.join("pipe");
    fs::mknodat(CWD, &path, FileType::Fifo, Mode::from_raw_mode(0o600), 0).unwrap();
    let mut writer = Command::new("sh")
        .args(["-c", "echo through >pipe"])
        .current_dir(at)
        .spawn()
        .unwrap();
    seen.note("read", std::fs::read_to_string(&path).unwrap());
    seen.note("ends", writer.wait().unwrap().success());
}

fn socket_is_connected(at: &Path, seen: &mut Seen) {
    use std::io::{Read, Write};
    // Its address holds 107 bytes only.
    let before = std::env::current_dir().unwrap();
    let _one_at_a_time = super::WORKING.lock().unwrap();
    std::env::set_current_dir(at).unwrap();
    let listener = std::os::unix::net::UnixListener::bind("socket").unwrap();
    let mut client = std::os::unix::net::UnixStream::connect("socket").unwrap();
    client.write_all(b"hello").unwrap();
    drop(client);
    let mut text = String::new();
    listener
        .accept()
        .unwrap()
        .0
        .read_to_string(&mut text)
        .unwrap();
    seen.note("read", text);
    seen.status("socket", Path::new("socket"));
    drop(listener);
    seen.note(
        "nobody listens",
        number(std::os::unix::net::UnixStream::connect("socket")).map(drop),
    );
    std::env::set_current_dir(before).unwrap();
}

fn copy_range(at: &Path, seen: &mut Seen) {
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

fn sendfile(at: &Path, seen: &mut Seen) {
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

fn programs(at: &Path, seen: &mut Seen) {
    let program = at.join("true");
    std::fs::copy("/bin/true", &program).unwrap();
    seen.note("runs", Command::new(&program).status().unwrap().code());
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o644)).unwrap();
    seen.note(
        "not executable",
        number(Command::new(&program).status()).map(drop),
    );
    write(at.join("garbage"), "\0garbage").unwrap();
    std::fs::set_permissions(at.join("garbage"), std::fs::Permissions::from_mode(0o755)).unwrap();
    seen.note(
        "no program",
        number(Command::new(at.join("garbage")).status()).map(drop),
    );
    std::fs::copy("/bin/sleep", at.join("sleep")).unwrap();
    let mut sleeping = Command::new(at.join("sleep")).arg("30").spawn().unwrap();
    seen.note(
        "busy",
        number(OpenOptions::new().write(true).open(at.join("sleep"))).map(drop),
    );
    seen.note(
        "unlinked all the same",
        number(remove_file(at.join("sleep"))),
    );
    sleeping.kill().unwrap();
    sleeping.wait().unwrap();
}

fn scripts(at: &Path, seen: &mut Seen) {
    write(
        at.join("script"),
        "#!/bin/sh\necho it runs in $(basename $(dirname $0)) >out; cat out; rm out; echo $?\n",
    )
    .unwrap();
    std::fs::set_permissions(at.join("script"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(at.join("script"))
        .current_dir(at)
        .output()
        .unwrap();
    seen.note(
        "says",
        String::from_utf8_lossy(&output.stdout)
            .lines()
            .skip(1)
            .collect::<Vec<_>>(),
    );
    let script = "mkdir -p a/b/c && for i in 1 2 3; do echo $i >a/b/c/$i; done && cp -a a copy && diff -r a copy && \
        mv copy/b/c/1 copy/one && ln copy/one copy/two && find . | sort && tar cf x.tar a && rm -rf a && tar xf x.tar && \
        cat a/b/c/* && sed -i s/2/two/ a/b/c/2 && cat a/b/c/2 && du -a a | wc -l && rm -rf a copy x.tar";
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(at)
        .output()
        .unwrap();
    seen.note(
        "script",
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
            String::from_utf8_lossy(&output.stderr).into_owned(),
        ),
    );
}

fn open_flags(at: &Path, seen: &mut Seen) {
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

fn large_writes(at: &Path, seen: &mut Seen) {
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

fn vectors(at: &Path, seen: &mut Seen) {
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

/// fcntl's lock calls, by another process.
fn other_process(at: &Path, kind: i32, start: i64, length: i64) -> String {
    let script = "import fcntl,struct,sys,os\n\
        f=os.open('file',os.O_RDWR)\n\
        kind,start,length=map(int,sys.argv[1:])\n\
        r=fcntl.fcntl(f,fcntl.F_GETLK,struct.pack('hhqqi',kind,0,start,length,0))\n\
        k,_,s,l,p=struct.unpack('hhqqi',r)\n\
        print(k,s,l,p==os.getppid()) if k!=fcntl.F_UNLCK else print('free')\n\
        try:\n fcntl.fcntl(f,fcntl.F_SETLK,struct.pack('hhqqi',kind,0,start,length,0)); print('locked')\n\
        except OSError as e: print('refused',e.errno)\n";
    let output = Command::new("/usr/bin/python3")
        .args(["-c", script])
        .args([kind.to_string(), start.to_string(), length.to_string()])
        .current_dir(at)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn set_lock(file: &File, kind: i32, start: i64, length: i64) -> Result<(), Option<i32>> {
    // SAFETY: numbers, for which zeroes are values.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_start = start;
    lock.l_len = length;
    // SAFETY: the kernel reads the structure.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const lock) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error()),
    }
}

fn record_locks(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "0123456789").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    seen.note("lock", set_lock(&file, libc::F_WRLCK, 2, 4));
    seen.note("another there", other_process(at, libc::F_WRLCK, 0, 3));
    seen.note("another beside", other_process(at, libc::F_WRLCK, 6, 1));
    seen.note("another to the end", other_process(at, libc::F_RDLCK, 5, 0));
    seen.note("down to shared", set_lock(&file, libc::F_RDLCK, 2, 2));
    seen.note("another shares", other_process(at, libc::F_RDLCK, 2, 2));
    seen.note("another does not", other_process(at, libc::F_WRLCK, 2, 1));
    seen.note("the rest is kept", other_process(at, libc::F_RDLCK, 4, 1));
    seen.note("unlock the middle", set_lock(&file, libc::F_UNLCK, 3, 1));
    seen.note("another there", other_process(at, libc::F_WRLCK, 3, 1));
    let reader = File::open(&path).unwrap();
    seen.note("not for writing", set_lock(&reader, libc::F_WRLCK, 9, 1));
    seen.note("by it too", set_lock(&reader, libc::F_RDLCK, 9, 1));
}

fn locks_end(at: &Path, seen: &mut Seen) {
    let path = at.join("file");
    write(&path, "x").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(&path)
        .unwrap();
    seen.note("lock", set_lock(&file, libc::F_WRLCK, 0, 0));
    seen.note("held", other_process(at, libc::F_WRLCK, 0, 0));
    // Any descriptor of the file.
    drop(File::open(&path).unwrap());
    seen.note("gone", other_process(at, libc::F_WRLCK, 0, 0));
}

fn lock_interrupted(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "x").unwrap();
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(at.join("file"))
        .unwrap();
    set_lock(&file, libc::F_WRLCK, 0, 0).unwrap();
    let script = "import fcntl,signal,time,sys\n\
        def ring(*_): raise TimeoutError\n\
        signal.signal(signal.SIGALRM,ring); f=open('file','r+'); signal.setitimer(signal.ITIMER_REAL,0.2)\n\
        try: fcntl.lockf(f,fcntl.LOCK_EX); print('locked')\n\
        except TimeoutError: print('interrupted')\n\
        sys.stdout.flush(); signal.setitimer(signal.ITIMER_REAL,0); fcntl.lockf(f,fcntl.LOCK_EX); print('locked')\n";
    let start = |script: &str| {
        let mut command = Command::new("/usr/bin/python3");
        command
            .args(["-c", script])
            .current_dir(at)
            .stdout(std::process::Stdio::piped());
        command.spawn().unwrap()
    };
    let waiting = start(script);
    let mut killed = start("import fcntl; fcntl.lockf(open('file','r+'),fcntl.LOCK_EX)");
    std::thread::sleep(std::time::Duration::from_millis(500));
    killed.kill().unwrap();
    seen.note("killed while it waits", killed.wait().unwrap().success());
    set_lock(&file, libc::F_UNLCK, 0, 0).unwrap();
    seen.note(
        "says",
        String::from_utf8(waiting.wait_with_output().unwrap().stdout),
    );
}

fn flock(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "x").unwrap();
    let (one, two) = (
        File::open(at.join("file")).unwrap(),
        File::open(at.join("file")).unwrap(),
    );
    let now = |file: &File, how| fs::flock(file, how);
    seen.note(
        "one",
        now(&one, fs::FlockOperation::NonBlockingLockExclusive),
    );
    seen.note("two", now(&two, fs::FlockOperation::NonBlockingLockShared));
    seen.note("unlocked", now(&one, fs::FlockOperation::Unlock));
    seen.note("two", now(&two, fs::FlockOperation::NonBlockingLockShared));
    seen.note("both", now(&one, fs::FlockOperation::NonBlockingLockShared));
}

fn access(at: &Path, seen: &mut Seen) {
    write(at.join("file"), "").unwrap();
    for mode in [0o000, 0o600, 0o755] {
        std::fs::set_permissions(at.join("file"), std::fs::Permissions::from_mode(mode)).unwrap();
        for wish in [
            fs::Access::EXISTS,
            fs::Access::READ_OK,
            fs::Access::WRITE_OK,
            fs::Access::EXEC_OK,
        ] {
            seen.note("access", (mode, wish, fs::access(at.join("file"), wish)));
        }
    }
}

fn synced(at: &Path, seen: &mut Seen) {
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

fn working_directory(at: &Path, seen: &mut Seen) {
    create_dir(at.join("folder")).unwrap();
    let script = "cd folder && mv ../folder ../moved && basename $(pwd -P) && echo x >made && cat ../moved/made && \
        cd .. && ls && rm -r moved";
    let output = Command::new("sh")
        .args(["-ec", script])
        .current_dir(at)
        .output()
        .unwrap();
    seen.note(
        "says",
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stdout).into_owned(),
        ),
    );
}

fn statfs(at: &Path, seen: &mut Seen) {
    let told = fs::statvfs(at).unwrap();
    seen.note("longest name", told.f_namemax);
    seen.note("pages", (told.f_bsize, told.f_frsize));
    seen.note(
        "some is free",
        told.f_bfree > 0 && told.f_bfree <= told.f_blocks && told.f_ffree > 0,
    );
    let before = told.f_bfree;
    write(at.join("file"), vec![1; 1 << 20]).unwrap();
    let after = fs::statvfs(at).unwrap().f_bfree;
    seen.note("less is free then", before - after >= 256);
}
