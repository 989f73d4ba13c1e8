//! Processes: how they are made, what they execute, and what they hand on. Each program prints what
//! becomes of a table of cases on a directory of tmpfs, and on a pool.

use crate::support::{
    Backend, Place, compare_with_tmpfs, compare_with_tmpfs_on, compile, compile_with, library,
    served_by_pool,
};
use arck_controller::Options;
use arck_testkit::TestPool;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

fn same(name: &str) {
    let binary = compile(name);
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn spawned_with_every_action_and_attribute() {
    same("spawning");
}

#[test]
fn cloned() {
    same("cloning");
}

/// Without shared memory there are no shared descriptors either, and no shared directory: the
/// parent's stay as they are. A thread among others is told that it cannot have its own.
#[test]
fn descriptors_are_shared_by_threads_alone() {
    let binary = compile("cloning");
    let pool = TestPool::new(64 << 20);
    let place = Place::new();
    let report = place.report.to_str().expect("UTF-8");
    let mut command = Command::new(&binary);
    let output = served_by_pool(&pool, report, command.args(["/arck", "shared"]));
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}");
    let of = |case: &str| {
        let rest = printed.split_once(&format!("\n{case}: 3\n")).expect(case).1;
        rest.lines().next().expect("a line").to_owned()
    };
    let forked = of("clone on a stack");
    assert!(forked.contains(" 4x(/other 2 2/10) in "), "{forked}");
    for case in [
        "clone FS",
        "clone FILES",
        "clone3 FILES FS",
        "clone on a stack FILES",
        "clone VM VFORK FILES",
        "clone VM VFORK FS",
    ] {
        assert_eq!(of(case), forked, "{case}");
    }
    let refused = printed.matches("thread: unshare -1, went 0").count();
    assert_eq!(refused, 2, "{printed}");
    for alone in [
        "thread: unshare 0",
        "unshare(CLONE_FILES) = 0\nunshare(CLONE_FS) = 0\nclose_range",
    ] {
        assert!(printed.contains(alone), "{printed}");
    }
    assert_eq!(pool.violations(), "");
}

#[test]
fn executed_from_the_pool() {
    let binary = compile_with("executing", &["-ldl"]);
    compare_with_tmpfs(|| Command::new(&binary));
}

/// A pool that all users reach, and a copy of the library that they can load.
fn pool_of_all() -> (TestPool, tempfile::TempDir, PathBuf) {
    // SAFETY: no arguments, no memory.
    let user = unsafe { libc::geteuid() };
    assert_eq!(
        user, 0,
        "this test becomes other users: run it as root (sudo -E cargo test)"
    );
    let shared = Options {
        shared: true,
        ..Options::default()
    };
    let pool = TestPool::with_options(256 << 20, shared);
    let reached = |path: &Path| {
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(path, mode).expect("a mode");
    };
    reached(pool.path().parent().expect("a directory"));
    let place = tempfile::tempdir().expect("a directory");
    reached(place.path());
    let copy = place.path().join("library.so");
    std::fs::copy(library(Backend::Pool), &copy).expect("a copy");
    (pool, place, copy)
}

/// Who gives up rights has none of them any more, by paths nor by what is in the session; who takes
/// them back has them again.
#[test]
fn somebody_else() {
    let binary = compile("identities");
    let (pool, place, library) = pool_of_all();
    let program = place.path().join("identities");
    std::fs::copy(binary, &program).expect("a copy");
    compare_with_tmpfs_on(
        &pool,
        || Command::new(&program),
        |command| {
            command.env("LD_PRELOAD", &library);
        },
    );
}
