//! Errors: each as the manual pages have it, and as tmpfs gives it.

use arck_testkit::differential::{ArckSide, Base, HostSide, Operation, Outcome, Place, Side};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, Errno};

const POOL: u64 = 64 << 20;

fn place(path: &str) -> Place {
    Place {
        base: Base::Root,
        path: path.as_bytes().to_vec(),
    }
}

fn open(path: &str, flags: i32) -> Operation {
    Operation::Open {
        slot: 0,
        place: place(path),
        flags,
        mode: 0o644,
    }
}

fn mkdir(path: &str) -> Operation {
    Operation::MakeDirectory {
        place: place(path),
        mode: 0o755,
    }
}

fn rmdir(path: &str) -> Operation {
    Operation::RemoveDirectory { place: place(path) }
}

fn unlink(path: &str) -> Operation {
    Operation::Unlink { place: place(path) }
}

fn rename(from: &str, to: &str, flags: u32) -> Operation {
    Operation::Rename {
        from: place(from),
        to: place(to),
        flags,
    }
}

fn link(from: &str, to: &str, flags: i32) -> Operation {
    Operation::Link {
        from: place(from),
        to: place(to),
        flags,
    }
}

fn symlink(target: &str, path: &str) -> Operation {
    Operation::Symlink {
        target: target.as_bytes().to_vec(),
        place: place(path),
    }
}

fn stat(path: &str) -> Operation {
    Operation::Stat {
        place: place(path),
        flags: 0,
    }
}

fn truncate(path: &str, size: u64) -> Operation {
    Operation::Truncate {
        place: place(path),
        size,
    }
}

fn read_link(path: &str) -> Operation {
    Operation::ReadLink {
        place: place(path),
        length: 100,
    }
}

/// What both sides hold before each case of the table.
fn furnish() -> Vec<Operation> {
    let name = "n".repeat(255);
    let mut made = vec![
        mkdir("empty"),
        mkdir("full"),
        mkdir("full/inner"),
        open("file", libc::O_CREAT | libc::O_WRONLY),
        open("full/file", libc::O_CREAT | libc::O_WRONLY),
        symlink("file", "to-file"),
        symlink("full", "to-full"),
        symlink("nowhere", "dangling"),
        symlink("loop", "loop"),
        symlink("there", "back"),
        symlink("back", "there"),
        open(&name, libc::O_CREAT | libc::O_WRONLY),
        // A chain of 41 links: number 39 takes forty steps, number 40 one too many.
        symlink("file", "chain0"),
    ];
    for number in 1..=40 {
        let before = format!("chain{}", number - 1);
        made.push(symlink(&before, &format!("chain{number}")));
    }
    made.push(Operation::Close { slot: 0 });
    made
}

/// Cases with the errno that POSIX and the manual pages give; `None` = success.
fn table() -> Vec<(Operation, Option<Errno>)> {
    use libc::{O_CREAT, O_DIRECTORY, O_EXCL, O_NOFOLLOW, O_RDONLY, O_RDWR, O_TRUNC, O_WRONLY};
    let name = |length: usize| "n".repeat(length);
    let path_of = |length: usize| format!("{}file", "./".repeat((length - 4) / 2));
    let error = |operation, errno| (operation, Some(errno));
    let fine = |operation| (operation, None);
    vec![
        // Names and paths.
        fine(stat(&name(255))),
        error(stat(&name(256)), Errno::NAMETOOLONG),
        error(stat(&name(254)), Errno::NOENT),
        error(open(&name(256), O_CREAT | O_RDWR), Errno::NAMETOOLONG),
        error(mkdir(&name(256)), Errno::NAMETOOLONG),
        error(symlink("file", &name(256)), Errno::NAMETOOLONG),
        error(link("file", &name(256), 0), Errno::NAMETOOLONG),
        error(rename("file", &name(256), 0), Errno::NAMETOOLONG),
        error(unlink(&name(256)), Errno::NAMETOOLONG),
        error(stat(&format!("{}/x", name(256))), Errno::NAMETOOLONG),
        fine(stat(&path_of(4094))),
        error(stat(&path_of(4096)), Errno::NAMETOOLONG),
        error(symlink(&"t".repeat(4096), "long"), Errno::NAMETOOLONG),
        error(symlink("", "nothing"), Errno::NOENT),
        // Loops.
        error(stat("loop"), Errno::LOOP),
        error(stat("back"), Errno::LOOP),
        error(open("loop", O_RDONLY), Errno::LOOP),
        error(open("loop", O_CREAT | O_RDWR), Errno::LOOP),
        fine(stat("chain39")),
        error(stat("chain40"), Errno::LOOP),
        error(open("to-file", O_RDONLY | O_NOFOLLOW), Errno::LOOP),
        // open
        error(open("nothing", O_RDONLY), Errno::NOENT),
        error(open("nothing/file", O_CREAT | O_RDWR), Errno::NOENT),
        error(open("file/file", O_RDONLY), Errno::NOTDIR),
        error(open("file/", O_RDONLY), Errno::NOTDIR),
        error(open("file/.", O_RDONLY), Errno::NOTDIR),
        error(open("file", O_CREAT | O_EXCL | O_RDWR), Errno::EXIST),
        error(open("full", O_CREAT | O_EXCL | O_RDWR), Errno::EXIST),
        error(open("dangling", O_CREAT | O_EXCL | O_RDWR), Errno::EXIST),
        error(open("to-file", O_CREAT | O_EXCL | O_RDWR), Errno::EXIST),
        error(open("full", O_WRONLY), Errno::ISDIR),
        error(open("full", O_RDWR), Errno::ISDIR),
        error(open("full", O_CREAT | O_RDONLY), Errno::ISDIR),
        error(open("full", O_RDONLY | O_TRUNC), Errno::ISDIR),
        error(open("file", O_RDONLY | O_DIRECTORY), Errno::NOTDIR),
        error(open("to-file", O_RDONLY | O_DIRECTORY), Errno::NOTDIR),
        fine(open("to-full", O_RDONLY | O_DIRECTORY)),
        fine(open("dangling", O_CREAT | O_RDWR)),
        error(open("new/", O_CREAT | O_RDWR), Errno::ISDIR),
        // mkdir, rmdir, unlink
        error(mkdir("full"), Errno::EXIST),
        error(mkdir("file"), Errno::EXIST),
        error(mkdir("dangling"), Errno::EXIST),
        error(mkdir("nothing/new"), Errno::NOENT),
        error(mkdir("file/new"), Errno::NOTDIR),
        error(mkdir("."), Errno::EXIST),
        fine(mkdir("new/")),
        error(rmdir("full"), Errno::NOTEMPTY),
        error(rmdir("file"), Errno::NOTDIR),
        error(rmdir("to-full"), Errno::NOTDIR),
        error(rmdir("nothing"), Errno::NOENT),
        error(rmdir("empty/."), Errno::INVAL),
        error(rmdir("full/inner/.."), Errno::NOTEMPTY),
        fine(rmdir("empty/")),
        error(unlink("empty"), Errno::ISDIR),
        error(unlink("nothing"), Errno::NOENT),
        error(unlink("file/"), Errno::NOTDIR),
        fine(unlink("to-full")),
        fine(unlink("dangling")),
        // rename
        error(rename("nothing", "file", 0), Errno::NOENT),
        error(rename("file", "nothing/new", 0), Errno::NOENT),
        error(rename("file", "empty", 0), Errno::ISDIR),
        error(rename("empty", "file", 0), Errno::NOTDIR),
        error(rename("empty", "full", 0), Errno::NOTEMPTY),
        fine(rename("full/inner", "empty", 0)),
        fine(rename("full", "empty", 0)),
        error(rename("full", "full/inner/x", 0), Errno::INVAL),
        error(rename("full", "full/x", 0), Errno::INVAL),
        error(rename("full/inner", "full", 0), Errno::NOTEMPTY),
        error(rename("file", "new/", 0), Errno::NOTDIR),
        error(rename("file", "full/..", 0), Errno::BUSY),
        error(rename(".", "new", 0), Errno::BUSY),
        error(rename("file", "full/file", 1), Errno::EXIST),
        error(rename("file", "nothing", 2), Errno::NOENT),
        error(rename("file", "new", 3), Errno::INVAL),
        error(rename("file", "new", 64), Errno::INVAL),
        fine(rename("file", "full", 2)),
        fine(rename("file", "file", 0)),
        fine(rename("file", "full/file", 0)),
        // link, symlink, readlink
        error(link("full", "new", 0), Errno::PERM),
        error(link("nothing", "new", 0), Errno::NOENT),
        error(link("file", "full/file", 0), Errno::EXIST),
        error(link("file", "nothing/new", 0), Errno::NOENT),
        error(
            link("dangling", "new", libc::AT_SYMLINK_FOLLOW),
            Errno::NOENT,
        ),
        fine(link("dangling", "new", 0)),
        fine(link("to-file", "new", libc::AT_SYMLINK_FOLLOW)),
        error(symlink("x", "file"), Errno::EXIST),
        error(symlink("x", "nothing/new"), Errno::NOENT),
        error(read_link("file"), Errno::INVAL),
        error(read_link("full"), Errno::INVAL),
        error(read_link("nothing"), Errno::NOENT),
        // truncate
        error(truncate("full", 0), Errno::ISDIR),
        error(truncate("nothing", 0), Errno::NOENT),
        error(truncate("file/", 0), Errno::NOTDIR),
        fine(truncate("to-file", 10)),
    ]
}

#[test]
fn errors_are_those_of_the_manual_and_of_tmpfs() {
    let mut wrong = Vec::new();
    for (operation, errno) in table() {
        let mut arck = ArckSide::new(TestPool::new(POOL));
        let mut host = HostSide::new();
        for made in furnish() {
            let (ours, theirs) = (arck.apply(0, &made), host.apply(0, &made));
            assert_eq!(ours, theirs, "{made:?}");
            assert!(!matches!(ours, Outcome::Error(_)), "{made:?}: {ours:?}");
        }
        let expected = errno.map(Outcome::Error);
        let result = |outcome: Outcome| match outcome {
            Outcome::Error(errno) => Some(Outcome::Error(errno)),
            _ => None,
        };
        // Session 1 finds it as the other left it.
        let ours = result(arck.apply(1, &operation));
        let theirs = result(host.apply(1, &operation));
        if ours != expected || theirs != expected {
            wrong.push(format!(
                "{operation:?}: expected {expected:?}, ArckFS {ours:?}, tmpfs {theirs:?}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn handles_are_checked() {
    let pool = TestPool::new(POOL);
    let session = pool.session();
    session.put("file", b"content").unwrap();
    session
        .make_directory(At::Root, b"directory", 0o755)
        .unwrap();
    let read_only = session.open_at_root("file", libc::O_RDONLY).unwrap();
    let write_only = session.open_at_root("file", libc::O_WRONLY).unwrap();
    let directory = session.open_at_root("directory", libc::O_RDONLY).unwrap();
    let mut buffer = [0; 10];
    assert_eq!(session.write(read_only, b"x", None), Err(Errno::BADF));
    assert_eq!(
        session.read(write_only, &mut buffer, None),
        Err(Errno::BADF)
    );
    assert_eq!(
        session.read(directory, &mut buffer, None),
        Err(Errno::ISDIR)
    );
    assert_eq!(session.write(directory, b"x", None), Err(Errno::BADF));
    assert_eq!(session.truncate_handle(read_only, 0), Err(Errno::INVAL));
    assert_eq!(
        session.read_directory(read_only, &mut [0; 1000]),
        Err(Errno::NOTDIR)
    );
    assert_eq!(
        session.read_directory(directory, &mut [0; 8]),
        Err(Errno::INVAL)
    );
    assert_eq!(
        session.seek(read_only, -1, libc::SEEK_SET),
        Err(Errno::INVAL)
    );
    assert_eq!(
        session.seek(read_only, i64::MAX, libc::SEEK_END),
        Err(Errno::INVAL)
    );
    assert_eq!(
        session.write(write_only, b"x", Some(u64::MAX - 1)),
        Err(Errno::INVAL)
    );
    assert_eq!(
        session.write(write_only, b"x", Some(1 << 47)),
        Err(Errno::FBIG)
    );
    session.close(read_only);
    assert_eq!(session.read(read_only, &mut buffer, None), Err(Errno::BADF));
    session.close(read_only);
    assert_eq!(session.get("file").unwrap(), b"content");
}

/// A handle of a session that was left is none of the next one's, though both are the first of theirs.
#[test]
fn handles_of_another_session() {
    let pool = TestPool::new(POOL);
    let left = pool.session();
    left.put("one", b"content").unwrap();
    let old = left.open_at_root("one", libc::O_RDWR).unwrap();
    drop(left);
    let session = pool.session();
    session.put("two", b"other").unwrap();
    let new = session.open_at_root("two", libc::O_RDWR).unwrap();
    assert_ne!(old, new);
    assert_eq!(session.write(old, b"x", Some(0)), Err(Errno::BADF));
    session.close(old);
    assert_eq!(session.write(new, b"O", Some(0)), Ok(1));
    assert_eq!(session.get("two").unwrap(), b"Other");
}
