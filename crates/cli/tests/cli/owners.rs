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
    let pool = users.pool().display().to_string();
    for words in [
        &["status", &pool][..],
        &["check"],
        &["run", "true"],
        &["export"],
    ] {
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

/// Whatever a pool's owner puts into its directory harms root no more than himself, who becomes him or goes by the
/// names in it as he would: a FIFO kept root's `arck run` and `arck violations` for ever.
#[test]
fn what_an_owner_puts_into_his_pool_holds_up_nobody_else() {
    let users = Users::new();
    succeeded(&output(users.other(&["mkfs", "--size", "16M"])));
    let names = [
        "run.lock",
        "violations.log",
        "superblock",
        "lock",
        "headers",
        "repair-report",
    ];
    let secret = users.place.path().join("secret");
    std::fs::write(&secret, "root's\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let at = |name: &str| users.pool().join(name);
    for name in names {
        let was_there = std::fs::rename(at(name), at("away")).is_ok();
        for is_link in [false, true] {
            match is_link {
                true => std::os::unix::fs::symlink(&secret, at(name)).unwrap(),
                false => {
                    let made = Command::new("mkfifo").arg(at(name)).status().unwrap();
                    assert!(made.success());
                }
            }
            lchown(at(name), Some(OTHER), Some(OTHER)).unwrap();
            let commands: [&[&str]; 6] = [
                &["run", "true"],
                &["violations"],
                &["check"],
                &["check", "--repair"],
                &["status"],
                &["mkfs", "--size", "16M"],
            ];
            for arguments in commands {
                let running = crate::support::Running::start(users.root(arguments));
                let ended = running.finished(std::time::Duration::from_secs(45));
                let told = String::from_utf8_lossy(&ended.stderr).into_owned();
                assert!(!told.contains("root's"), "{name}, {arguments:?}: {told}");
            }
            assert_eq!(std::fs::read(&secret).unwrap(), b"root's\n", "{name}");
            // Whatever they have made of it.
            let _ = std::fs::remove_file(at(name));
        }
        if was_there {
            std::fs::rename(at("away"), at(name)).unwrap();
        }
    }
    succeeded(&output(users.root(&["run", "true"])));
}

/// Who may write the directory above a pool could put another pool in its place after root had looked whose it is: root
/// went on as root, and opened, cut and wrote what links in it led to.
#[test]
fn a_directory_that_was_replaced_is_not_used_by_root() {
    let users = Users::new();
    succeeded(&output(users.other(&["mkfs", "--size", "16M"])));
    let pool = users.pool();
    let as_root = [
        arck_controller::Controller::open(&pool, arck_controller::Options::default())
            .err()
            .map(|error| error.to_string()),
        arck_check::repair(&pool, &arck_check::Options::default())
            .err()
            .map(|error| error.to_string()),
    ];
    for refused in as_root {
        let refused = refused.expect("a refusal");
        assert!(
            refused.contains(&format!("belongs to user {OTHER}")),
            "{refused}"
        );
    }
    all_belong_to_other(&pool);
}

/// Everybody can make the directory that is meant where no pool is named, and serve it to all.
#[test]
fn a_pool_of_anothers_is_not_used_unless_it_is_named() {
    let users = Users::new();
    let name = format!("squatted-{}", std::process::id());
    let pool = PathBuf::from(format!("/dev/shm/arck-{name}"));
    let squatter = |arguments: &[&str]| {
        let mut command = users.other(arguments);
        command.env("ARCK_POOL", &pool);
        command
    };
    succeeded(&output(squatter(&[
        "mkfs", "--size", "16M", "--mode", "1777",
    ])));
    let mut serving = Serving::of(&mut squatter(&["serve", "--shared", "--ready-fd", "1"]));
    for arguments in [
        &["run", "true"][..],
        &["check"],
        &["violations"],
        &["export"],
        &["serve"],
        &["mkfs", "--size", "16M"],
    ] {
        for user in [0, 1003] {
            let mut command = users.root(arguments);
            command.env_remove("ARCK_POOL").env("USER", &name).uid(user);
            let output = output(command);
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            let says = format!("belongs to user {OTHER}");
            assert!(
                !output.status.success() && text.contains(&says),
                "{arguments:?}: {text}"
            );
        }
    }
    // Named, it is used; and its own user needs no name.
    let named = ["run", "--pool", pool.to_str().unwrap(), "true"];
    succeeded(&output(users.root(&named)));
    let mut own = users.other(&["run", "true"]);
    own.env_remove("ARCK_POOL").env("USER", &name);
    succeeded(&output(own));
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    arck_testkit::honest::assert_nothing_refused(&pool);
    std::fs::remove_dir_all(&pool).unwrap();
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
