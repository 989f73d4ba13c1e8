//! What there is in a pool before an attack, and the names of it.

use super::process::{User, has_users};
use arck_testkit::Shorthand;
use arckfs::{At, FileSystem};

/// Who serves the pool, and owns its files.
pub const KEEPER_USER: User = User(61_001);
pub const VICTIM_USER: User = User(61_002);
pub const ATTACKER_USER: User = User(61_003);
pub const THIRD_USER: User = User(61_004);
/// Builds the world.
pub const ROOT_USER: User = User(0);

/// The victim's own directory, with `private`, which nobody else may open, and `inner`.
pub const VICTIM: &str = "victim";
/// What stands in the victim's `private`, and in `home/secret`, where nobody else may search.
pub const SECRET: &[u8] = b"what only the victim may know";
/// What stands in root's `locked/theirs`, which anybody may read.
pub const PUBLIC: &[u8] = b"what everybody may know";
/// The attacker's: `file` (of two pages), `shown`, the same, which anybody may write, `second`, the empty directories `empty`, `one`, `two`,
/// and `full`, with `inner` in it.
pub const ATTACKER: &str = "attacker";
/// Root's, with the sticky bit: where victim, attacker and third work at the same time. Anybody
/// may write `both`.
pub const COMMON: &str = "common";
/// The same, where nobody works: with the victim's `theirs`, which anybody may write, and the
/// directory `directory`.
pub const STICKY: &str = "sticky";
/// Root's, anybody may write.
pub const OPEN: &str = "open";
/// The victim's, set-group-id, anybody may write.
pub const HANDING: &str = "handing";
/// The victim's: with a directory for each LibFS, in which a session of that works.
pub const VALUES: &str = "values";
/// Root's, with named pipes: the victim's `talk`, which anybody may read, and `whisper`, which nobody else may open;
/// the attacker's `own`; and names of sockets: the victim's `door`, which anybody may write, and `shut`, and the
/// attacker's `post`.
pub const PIPES: &str = "pipes";
/// Root's; nobody else may write.
pub const LOCKED: &str = "locked";

/// Makes all of it.
pub fn build(fs: &FileSystem) {
    let make = |path: &str, mode: u32, owner: User| {
        fs.make_directory(At::Root, path.as_bytes(), mode)
            .expect("a directory");
        set(fs, path, mode, owner);
    };
    let fill = |path: &str, content: &[u8], mode: u32, owner: User| {
        fs.put(path, content).expect("a file");
        set(fs, path, mode, owner);
    };
    let root = ROOT_USER;
    make(VICTIM, 0o755, VICTIM_USER);
    make("victim/inner", 0o755, VICTIM_USER);
    fill("victim/private", SECRET, 0o600, VICTIM_USER);
    make("victim/home", 0o700, VICTIM_USER);
    fill("victim/home/secret", SECRET, 0o666, VICTIM_USER);
    make(ATTACKER, 0o755, ATTACKER_USER);
    for name in ["empty", "one", "two", "full"] {
        make(&format!("{ATTACKER}/{name}"), 0o755, ATTACKER_USER);
    }
    fill("attacker/file", &[7; 8192], 0o644, ATTACKER_USER);
    fill("attacker/second", b"", 0o644, ATTACKER_USER);
    fill("attacker/shown", &[7; 8192], 0o666, ATTACKER_USER);
    fill("attacker/full/inner", b"inner", 0o644, ATTACKER_USER);
    make(COMMON, 0o1777, root);
    fill("common/both", &[3; 8192], 0o666, VICTIM_USER);
    make(STICKY, 0o1777, root);
    fill("sticky/theirs", &[9; 8192], 0o666, VICTIM_USER);
    make("sticky/directory", 0o777, VICTIM_USER);
    make(OPEN, 0o777, root);
    fill("open/theirs", &[9; 100], 0o644, VICTIM_USER);
    make("open/directory", 0o755, VICTIM_USER);
    make(HANDING, 0o2777, VICTIM_USER);
    make(VALUES, 0o755, VICTIM_USER);
    make(LOCKED, 0o755, root);
    fill("locked/theirs", PUBLIC, 0o644, root);
    make(PIPES, 0o755, root);
    for (name, kind, mode, owner) in [
        ("talk", libc::S_IFIFO, 0o644, VICTIM_USER),
        ("whisper", libc::S_IFIFO, 0o600, VICTIM_USER),
        ("own", libc::S_IFIFO, 0o600, ATTACKER_USER),
        ("door", libc::S_IFSOCK, 0o666, VICTIM_USER),
        ("shut", libc::S_IFSOCK, 0o600, VICTIM_USER),
        ("post", libc::S_IFSOCK, 0o600, ATTACKER_USER),
    ] {
        let path = format!("{PIPES}/{name}");
        fs.make_node(At::Root, path.as_bytes(), kind | mode, 0)
            .expect("a node");
        set(fs, &path, mode, owner);
    }
}

/// Owner and then mode, since a new owner takes the set-id bits away.
fn set(fs: &FileSystem, path: &str, mode: u32, User(owner): User) {
    if has_users() {
        fs.change_owner(At::Root, path.as_bytes(), owner, owner, 0)
            .expect("an owner");
    }
    fs.change_mode(At::Root, path.as_bytes(), mode, 0)
        .expect("a mode");
}
