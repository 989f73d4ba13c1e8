//! Modes, owners, times, extended attributes.

use super::{Seen, number};
use rustix::fs::{self, AtFlags, CWD, Mode, Timespec, Timestamps, XattrFlags};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, create_dir, write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::Path;

pub fn modes(at: &Path, seen: &mut Seen) {
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

pub fn set_group_id(at: &Path, seen: &mut Seen) {
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

pub fn set_id_bits(at: &Path, seen: &mut Seen) {
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

pub fn times(at: &Path, seen: &mut Seen) {
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

pub fn owners(at: &Path, seen: &mut Seen) {
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

pub fn extended_attributes(at: &Path, seen: &mut Seen) {
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

pub fn access(at: &Path, seen: &mut Seen) {
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

pub fn statfs(at: &Path, seen: &mut Seen) {
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
