//! What root does with another user's pool leaves the pool that user's. Needs root, to be two
//! users, and fails without, saying so.

use crate::support::{Place, Serving, succeeded};
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The user `nobody` of every system.
const OTHER: u32 = 65534;

struct Users {
    place: Place,
    arck: PathBuf,
}

impl Users {
    /// Two users, with a copy of the command that both can reach.
    fn new() -> Users {
        assert!(
            rustix::process::geteuid().is_root(),
            "this test becomes other users: run it as root (sudo -E cargo test)"
        );
        let (place, arck) = Place::of_users(OTHER);
        Users { place, arck }
    }
    fn pool(&self) -> PathBuf {
        self.place.pool()
    }
    fn root(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.arck);
        command.args(arguments).current_dir("/");
        command.env("ARCK_POOL", self.pool());
        command
    }
    fn other(&self, arguments: &[&str]) -> Command {
        let mut command = self.root(arguments);
        command.uid(OTHER).gid(OTHER);
        command
    }
}

fn output(mut command: Command) -> Output {
    command.output().unwrap()
}

/// Everything in a directory belongs to the other user.
fn all_belong_to_other(directory: &Path) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let entry = entry.unwrap();
        let metadata = entry.metadata().unwrap();
        let user = metadata.uid();
        assert_eq!((user, metadata.gid()), (OTHER, OTHER), "{:?}", entry.path());
        if metadata.is_dir() {
            all_belong_to_other(&entry.path());
        }
    }
}

#[test]
fn roots_use_of_a_pool_leaves_it_to_its_owner() {
    let users = Users::new();
    succeeded(&output(users.other(&["mkfs", "--size", "16M"])));
    // More than one segment's worth of data, so that files are made.
    let script = "head -c 5000000 /dev/zero >/arck/zeroes; echo hi >/arck/file; ls /arck";
    let listed = succeeded(&output(users.root(&["run", "sh", "-c", script])));
    assert_eq!(listed, "file\nzeroes\n");
    all_belong_to_other(&users.pool());
    let script = "cat /arck/file; echo ho >/arck/mine; cat /arck/mine";
    let read = succeeded(&output(users.other(&["run", "sh", "-c", script])));
    assert_eq!(read, "hi\nho\n");
    // Making it anew, too.
    succeeded(&output(users.root(&["mkfs", "--size", "32M", "--force"])));
    all_belong_to_other(&users.pool());
    succeeded(&output(users.other(&["run", "touch", "/arck/mine"])));
    all_belong_to_other(&users.pool());
}

#[test]
fn a_lock_that_another_user_left_is_named() {
    let users = Users::new();
    succeeded(&output(users.other(&["mkfs", "--size", "16M"])));
    let lock = users.pool().join("run.lock");
    std::fs::write(&lock, "").unwrap();
    std::fs::set_permissions(&lock, std::fs::Permissions::from_mode(0o600)).unwrap();
    lchown(&lock, Some(0), Some(0)).unwrap();
    let refused = output(users.other(&["run", "true"]));
    crate::support::refused(&refused, "run.lock");
    crate::support::refused(&refused, "chown");
    std::fs::remove_file(&lock).unwrap();
    succeeded(&output(users.other(&["run", "true"])));
}

#[test]
fn the_pool_of_another_user_is_refused_with_its_owner() {
    let users = Users::new();
    succeeded(&output(users.root(&["mkfs", "--size", "16M"])));
    lchown(users.pool(), Some(0), Some(0)).unwrap();
    for (arguments, says) in [
        (&["serve"][..], "belongs to user 0"),
        (&["mkfs", "--size", "16M", "--force"], "belongs to user 0"),
        (&["mkfs", "/proc/pool", "--size", "16M"], "/proc/pool"),
        (&["run", "true"], "run this as its owner"),
    ] {
        crate::support::refused(&output(users.other(arguments)), says);
    }
}

/// Whoever cannot use a pool since it is another user's is told whose it is, and what that user can do.
#[test]
fn a_pool_of_another_user_is_told_of() {
    let users = Users::new();
    succeeded(&output(users.other(&["mkfs", "--size", "16M"])));
    let mut serving = Serving::of(&mut users.other(&["serve", "--ready-fd", "1"]));
    let third = |arguments: &[&str]| {
        let mut command = users.root(arguments);
        command.uid(1003).gid(1003);
        output(command)
    };
    for words in [&["status"][..], &["check"], &["run", "true"], &["export"]] {
        let output = third(words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{words:?}");
        assert_eq!(text.lines().count(), 1, "{words:?}: {text}");
        assert!(
            text.contains(&format!("user {OTHER}")) && text.contains("arck serve --shared"),
            "{words:?}: {text}"
        );
    }
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

/// A program that becomes another user under `arck run` is told why it sees nothing.
#[test]
fn who_becomes_another_user_is_told_of_shared_pools() {
    let users = Users::new();
    succeeded(&output(users.other(&["mkfs", "--size", "16M"])));
    let become_other = [
        "setpriv",
        "--reuid",
        "1003",
        "--regid",
        "1003",
        "--clear-groups",
    ];
    let mut words = vec!["run", "--no-group"];
    words.extend(become_other);
    words.extend(["ls", "/arck"]);
    let output = output(users.root(&words));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "{text}");
    assert!(text.contains("arck serve --shared"), "{text}");
}
