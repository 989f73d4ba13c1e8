//! What others have put into directories like `/tmp`: links that are followed, and files under names that
//! were to be made. `fs.protected_symlinks`, `fs.protected_regular` and `fs.protected_fifos` say whether they
//! are; each user does the same on the pool and on a directory of the host, as the machine has them set, and
//! on the pool where they seem to be set otherwise (files mounted over them, seen by this test alone).

use super::Case;
use super::world::{ANN, BOB, Child, EVE, ROOT, SERVER, Session, User, World, plain};
use arckfs::{At, Errno, Failure};
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::mount::{MountPropagationFlags, mount_bind, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

const SIZE: u64 = 64 << 20;

pub const ALL: &[Case] = &[(
    "what_others_put_into_a_directory_for_all",
    what_others_put_into_a_directory_for_all,
)];

/// The group that Ann and Bob have in common.
const GROUP: u32 = 2000;

/// Directories: name, mode, whose. All who try something may search each.
const DIRECTORIES: [(&str, u32, User); 7] = [
    ("roots", 0o1777, ROOT),
    ("anns", 0o1777, ANN),
    ("eves", 0o1777, EVE),
    ("not-sticky", 0o777, EVE),
    ("groups", 0o1775, ROOT),
    ("anns-groups", 0o1775, ANN),
    ("nobody-writes", 0o1755, ROOT),
];
/// Who has something in each, and who tries what: any of these.
const USERS: [User; 4] = [ROOT, ANN, BOB, EVE];

/// `fs.protected_symlinks`, `fs.protected_regular` and `fs.protected_fifos`.
const SETTINGS: [&str; 3] = ["symlinks", "regular", "fifos"];
const SET: [[u32; 3]; 8] = [
    [0, 0, 0],
    [1, 0, 0],
    [0, 1, 0],
    [0, 2, 0],
    [0, 0, 1],
    [0, 0, 2],
    [1, 1, 1],
    [1, 2, 2],
];

fn setting(name: &str) -> String {
    format!("/proc/sys/fs/protected_{name}")
}

/// Which rule is asked.
#[derive(Clone, Copy, PartialEq)]
enum Rule {
    None,
    /// A link is followed that is the last of its path.
    Follow,
    /// What is there is opened with O_CREAT: settings of files, of pipes, of none.
    Create(Option<usize>),
}

const READ: i32 = libc::O_RDONLY;
const MAKE: i32 = libc::O_RDWR | libc::O_CREAT;
const CREATE_FILE: Rule = Rule::Create(Some(1));
const CREATE_PIPE: Rule = Rule::Create(Some(2));

/// What is tried: `D` is the directory, `U` whose it is; flags of open, or none for stat; which rule is asked.
const TRIED: [(&str, Option<i32>, Rule); 32] = [
    ("D/link-U", None, Rule::Follow),
    ("D/link-U", Some(READ), Rule::Follow),
    ("D/link-U", Some(libc::O_PATH), Rule::Follow),
    (
        "D/link-U",
        Some(libc::O_WRONLY | libc::O_TRUNC),
        Rule::Follow,
    ),
    ("D/link-U", Some(MAKE), Rule::Follow),
    ("./D/link-U", Some(MAKE), Rule::Follow),
    ("D/missing-U", Some(MAKE & !libc::O_CREAT), Rule::Follow),
    ("D/outside-U", None, Rule::Follow),
    // Not followed.
    ("D/link-U", Some(READ | libc::O_NOFOLLOW), Rule::None),
    ("D/link-U", Some(MAKE | libc::O_EXCL), Rule::None),
    (
        "D/link-U",
        Some(MAKE | libc::O_NOFOLLOW),
        Rule::Create(None),
    ),
    // The last of a path is what only slashes follow.
    ("D/way-U", None, Rule::Follow),
    ("D/way-U/", None, Rule::Follow),
    ("D/way-U//", Some(READ), Rule::Follow),
    ("D/way-U/.", None, Rule::None),
    ("D/way-U/target", None, Rule::None),
    ("D/way-U/target", Some(MAKE), Rule::None),
    ("D/way-U/../plain/target", Some(READ), Rule::None),
    // By a link of root's elsewhere: as its last, and within it.
    ("plain/D-link-U", None, Rule::Follow),
    ("plain/D-link-U", Some(READ), Rule::Follow),
    ("plain/D-way-U/target", None, Rule::None),
    // By two in the directory.
    ("D/again-U", Some(READ), Rule::Follow),
    ("D/file-U", Some(READ), Rule::None),
    ("D/file-U", Some(MAKE & !libc::O_CREAT), Rule::None),
    ("D/file-U", Some(MAKE), CREATE_FILE),
    (
        "D/file-U",
        Some(libc::O_RDONLY | libc::O_CREAT),
        CREATE_FILE,
    ),
    ("./D/./file-U", Some(MAKE | libc::O_TRUNC), CREATE_FILE),
    ("D/file-U", Some(MAKE | libc::O_EXCL), Rule::None),
    ("plain/D-file-U", Some(MAKE), CREATE_FILE),
    ("D/pipe-U", Some(MAKE | libc::O_NONBLOCK), CREATE_PIPE),
    (
        "D/pipe-U",
        Some(libc::O_RDWR | libc::O_NONBLOCK),
        Rule::None,
    ),
    ("D/socket-U", Some(MAKE), Rule::Create(None)),
];

/// Whether the rule refuses it, as the manual has it (proc_sys_fs(5), and for what is neither file nor pipe
/// the kernel's source).
fn is_refused(
    set: [u32; 3],
    who: User,
    (_, mode, holder): (&str, u32, User),
    owner: User,
    rule: Rule,
) -> bool {
    let is_sticky = mode & 0o1000 != 0;
    if !is_sticky || owner.0 == who.0 || owner.0 == holder.0 {
        return false;
    }
    let all_write = mode & 0o002 != 0;
    match rule {
        Rule::None => false,
        Rule::Follow => set[0] != 0 && all_write,
        Rule::Create(None) => all_write,
        Rule::Create(Some(kind)) => {
            set[kind] >= 1 && all_write || set[kind] >= 2 && mode & 0o020 != 0
        }
    }
}

/// Everything that a user tries.
fn all_tries(mut each: impl FnMut(&str, Option<i32>, (&'static str, u32, User), User, Rule)) {
    for directory in DIRECTORIES {
        for owner in USERS {
            for (path, flags, rule) in TRIED {
                let path = path
                    .replace('D', directory.0)
                    .replace('U', &owner.0.to_string());
                each(&path, flags, directory, owner, rule);
            }
        }
    }
}

/// # Regression
/// Root followed a user's link out of a directory of the pool that all may write, also to the host's files,
/// where the machine says that nobody does.
fn what_others_put_into_a_directory_for_all() {
    let world = World::new(SIZE);
    let host = world.pool().with_file_name("host");
    std::fs::create_dir(&host).expect("a directory of the host");
    let like_tmp = PermissionsExt::from_mode(0o1777);
    std::fs::set_permissions(&host, like_tmp).expect("chmod");
    std::os::unix::fs::chown(&host, Some(SERVER), Some(SERVER)).expect("chown");
    world.as_user(ROOT, |root| {
        // SAFETY: a number.
        unsafe { libc::umask(0) };
        make(&|what| on_pool(root, what));
        make(&|what| on_host(&host, what));
    });
    let read = |name: &str| {
        let text = std::fs::read_to_string(setting(name)).expect("Linux 4.19 or later");
        text.trim().parse::<u32>().expect("a number")
    };
    let machine = SETTINGS.map(read);
    for who in USERS {
        world.as_user(who, |user| {
            all_tries(|path, flags, directory, owner, rule| {
                let what = format!("{machine:?}: {} does {path} {flags:?}", who.0);
                let kernel = on_host(&host, Do::Try(path, flags));
                let refused = is_refused(machine, who, directory, owner, rule);
                assert_eq!(kernel == Err(Errno::ACCESS), refused, "the kernel, {what}");
                let pool = on_pool(user, Do::Try(path, flags));
                // Pipes and sockets of a pool are nodes without the kernel's other half.
                match path.contains("pipe") || path.contains("socket") {
                    true => assert_eq!(pool == Err(Errno::ACCESS), refused, "{what}"),
                    false => assert_eq!(pool, kernel, "{what}"),
                }
            });
        });
    }
    for set in SET {
        let mut refusals = 0;
        for who in USERS {
            as_if_set(&world, set, who, |user| {
                all_tries(|path, flags, directory, owner, rule| {
                    let pool = on_pool(user, Do::Try(path, flags));
                    let refused = is_refused(set, who, directory, owner, rule);
                    let what = format!("{set:?}: {} does {path} {flags:?}: {pool:?}", who.0);
                    assert_eq!(pool == Err(Errno::ACCESS), refused, "{what}");
                });
            });
            all_tries(|_, _, directory, owner, rule| {
                let refused = is_refused(set, who, directory, owner, rule);
                refusals += u32::from(refused && rule != Rule::Create(None));
            });
        }
        assert_eq!(refusals > 0, set != [0, 0, 0], "{set:?}");
    }
}

/// Runs `what` with a session of a user's in a process that finds the settings so.
fn as_if_set(world: &World, set: [u32; 3], who: User, what: impl FnOnce(&Session)) {
    let files = world.pool().with_file_name("settings");
    Child::start(ROOT, || {
        // SAFETY: no descriptors are unshared, only what is mounted where.
        unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.expect("unshare");
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", private).expect("a namespace of its own");
        std::fs::create_dir_all(&files).expect("mkdir");
        for (name, value) in SETTINGS.into_iter().zip(set) {
            let file = files.join(name);
            std::fs::write(&file, format!("{value}\n")).expect("write");
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).expect("chmod");
            mount_bind(&file, setting(name)).expect("mount");
        }
        world.as_user(who, what);
    })
    .ended(&format!("{set:?}"));
}

/// What is done on both.
#[derive(Clone, Copy)]
enum Do<'a> {
    Try(&'a str, Option<i32>),
    Directory(&'a str, u32),
    Node(&'a str, FileType),
    Link(&'a str, &'a str),
    Own(&'a str, u32, u32),
}

/// The trees: by root, who gives them to whom they are to be.
fn make(on: &dyn Fn(Do<'_>) -> Result<(), Errno>) {
    let must = |what: Do<'_>| on(what).expect("what root may");
    must(Do::Directory("plain", 0o755));
    must(Do::Node("plain/target", FileType::RegularFile));
    for (directory, mode, holder) in DIRECTORIES {
        must(Do::Directory(directory, mode));
        must(Do::Own(directory, holder.0, GROUP));
        for User(owner, _) in USERS {
            let at = |name: &str| format!("{directory}/{name}-{owner}");
            for (name, target) in [
                ("link", "../plain/target".to_owned()),
                ("way", "../plain".to_owned()),
                ("missing", "../plain/missing".to_owned()),
                // Of the host's files; the same for both.
                ("outside", "/proc/self/status".to_owned()),
                ("again", format!("link-{owner}")),
            ] {
                must(Do::Link(&at(name), &target));
                must(Do::Own(&at(name), owner, owner));
            }
            for (name, kind) in [
                ("file", FileType::RegularFile),
                ("pipe", FileType::Fifo),
                ("socket", FileType::Socket),
            ] {
                must(Do::Node(&at(name), kind));
                must(Do::Own(&at(name), owner, owner));
            }
            for name in ["link", "way", "file"] {
                let by = format!("plain/{directory}-{name}-{owner}");
                must(Do::Link(&by, &format!("../{}", at(name))));
            }
        }
    }
}

fn on_pool(session: &Session, what: Do<'_>) -> Result<(), Errno> {
    let fs = &session.0;
    match what {
        Do::Try(path, None) => match fs.stat(At::Root, path.as_bytes(), 0) {
            // Where it leads is the host's.
            Err(Failure::Outside(_)) => Ok(()),
            other => plain(other.map(drop)),
        },
        Do::Try(path, Some(flags)) => {
            let handle = plain(fs.open(At::Root, path.as_bytes(), flags, 0o666))?;
            fs.close(handle);
            Ok(())
        }
        Do::Directory(path, mode) => plain(fs.make_directory(At::Root, path.as_bytes(), mode)),
        Do::Node(path, kind) => {
            let mode = kind.as_raw_mode() | 0o666;
            plain(fs.make_node(At::Root, path.as_bytes(), mode, 0))
        }
        Do::Link(path, target) => plain(fs.symlink(target.as_bytes(), At::Root, path.as_bytes())),
        Do::Own(path, uid, gid) => {
            let flags = libc::AT_SYMLINK_NOFOLLOW;
            plain(fs.change_owner(At::Root, path.as_bytes(), uid, gid, flags))
        }
    }
}

fn on_host(host: &Path, what: Do<'_>) -> Result<(), Errno> {
    match what {
        Do::Try(path, None) => {
            rustix::fs::stat(host.join(path))?;
        }
        Do::Try(path, Some(flags)) => {
            let flags = OFlags::from_bits_retain(flags as u32);
            rustix::fs::open(host.join(path), flags, Mode::from_raw_mode(0o666))?;
        }
        Do::Directory(path, mode) => rustix::fs::mkdir(host.join(path), Mode::from_raw_mode(mode))?,
        Do::Node(path, kind) => {
            let mode = Mode::from_raw_mode(0o666);
            rustix::fs::mknodat(rustix::fs::CWD, host.join(path), kind, mode, 0)?;
        }
        Do::Link(path, target) => rustix::fs::symlink(target, host.join(path))?,
        Do::Own(path, uid, gid) => {
            let path = host.join(path);
            let uid = rustix::fs::Uid::from_raw(uid);
            let gid = rustix::fs::Gid::from_raw(gid);
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(rustix::fs::CWD, path, Some(uid), Some(gid), flags)?;
        }
    }
    Ok(())
}
