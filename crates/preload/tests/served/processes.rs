//! Processes: how they are made, what they execute, and what they hand on. Each program prints what
//! becomes of a table of cases on a directory of tmpfs, and on a pool.

use crate::support::{
    Place, compare_with_tmpfs, compare_with_tmpfs_on, compile, compile_as, compile_with, library,
    served_by_pool, set_up,
};
use arck_controller::Options;
use arck_testkit::TestPool;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn same(name: &str) {
    let binary = compile(name);
    compare_with_tmpfs(|| Command::new(&binary));
}

#[test]
fn spawned_with_every_action_and_attribute() {
    same("spawning");
}

/// What the manual pages say of children that run in their parent's memory, one group of cases after the
/// other.
fn vforked(group: &str) {
    static PROGRAM: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    let binary = PROGRAM.get_or_init(|| compile("vforking"));
    compare_with_tmpfs(|| {
        // One that hangs is told from one that is slow.
        let mut command = Command::new("timeout");
        command.args(["--foreground", "-s", "KILL", "300"]);
        command.arg(binary).arg(group);
        command
    });
}

/// A test for each group of cases.
macro_rules! vforked {
    ($($test:ident $group:literal;)*) => {
        $(#[test]
        fn $test() {
            vforked($group);
        })*
    };
}

vforked! {
    spawned_children_are_one "spawned";
    vforked_children_are_who_they_say "who";
    vforked_children_are_jobs "jobs";
    vforked_children_end "ends";
    vforked_children_execute "executions";
    vforked_children_have_descriptors "descriptors";
    vforked_children_change_what_they_have "states";
    vforked_children_have_children "nested";
    many_vforked_children "many";
    vforked_children_are_waited_for "children";
    signals_of_vforked_children "signals";
    vforked_children_of_parents_of_each_kind "parents";
    vforked_children_are_killed "killed";
    vforked_children_run_handlers "handlers";
    vforked_children_on_little_stacks "stacks";
    parents_of_vforked_children_are_cancelled "cancelled";
}

/// Every program that is executed starts once, and what starts ends or executes another; whether or not
/// its parent's memory was enough for the child.
#[test]
fn vforked_children_are_reported_once() {
    let binary = compile_as("vforking", "vforking-reported", &[]);
    for case in [
        "exits",
        "executes",
        "late",
        "library",
        "interpreter",
        "spawned",
        "spawned-library",
        "spawned-interpreter",
    ] {
        let pool = TestPool::new(64 << 20);
        let place = Place::new();
        let report = place.report.to_str().expect("UTF-8");
        let mut command = Command::new(&binary);
        let host = place.directory.path().to_str().expect("UTF-8").to_owned();
        command.args(["reported", "/arck", case, host.as_str()]);
        if case.ends_with("library") {
            command.env("LD_LIBRARY_PATH", "/arck/lib");
        }
        let output = served_by_pool(&pool, report, &mut command);
        assert!(output.status.success(), "{case}: {output:?}");
        let mut open: Vec<(u64, bool)> = Vec::new();
        let report = place.report();
        for line in &report {
            let pid = line["pid"].as_u64().expect("a number");
            let at = open.iter().position(|(process, _)| *process == pid);
            match line["event"].as_str().expect("an event") {
                "start" => match at {
                    Some(at) => {
                        assert!(open[at].1, "{case}: starts twice: {report:?}");
                        open[at].1 = false;
                    }
                    None => open.push((pid, false)),
                },
                "execute" => match at {
                    Some(at) => open[at].1 = true,
                    None => open.push((pid, true)),
                },
                "stay" => match at {
                    Some(at) => open[at].1 = false,
                    None => open.push((pid, false)),
                },
                "end" => {
                    let at =
                        at.unwrap_or_else(|| panic!("{case}: {pid} never started: {report:?}"));
                    assert!(!open[at].1, "{case}: {pid} did not execute: {report:?}");
                    open.remove(at);
                }
                _ => {}
            }
        }
        assert!(open.is_empty(), "{case}: {open:?} did not end: {report:?}");
    }
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

/// Whatever a process closes, what it opens next, and under which names it finds it.
#[test]
fn closed_and_daemons() {
    same("closing");
}

/// Descriptors through sockets, within a group and between two, and files without a name that only
/// those have open who were handed them.
#[test]
fn handed_on() {
    same("passing");
}

/// What a program was told of itself, of where it is and of what it holds is not believed by one that was
/// executed by it in turn, if this library does not serve it.
#[test]
fn executed_by_one_that_is_not_served() {
    let binary = compile("launching");
    let launcher = compile_with("launcher", &["-static"]);
    compare_with_tmpfs(|| {
        let mut command = Command::new(&binary);
        // That it is not is said elsewhere.
        command.env("LAUNCHER", &launcher).env("ARCK_QUIET", "1");
        command
    });
}

/// A pool that all users reach, and a copy of the library that they can load.
pub fn pool_of_all() -> (TestPool, tempfile::TempDir, PathBuf) {
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
    std::fs::copy(library(), &copy).expect("a copy");
    (pool, place, copy)
}

/// A program that becomes other users prints the same on tmpfs and on a pool that all reach.
fn same_for_all(name: &str) {
    same_for_all_with(name, |_, _| {});
}

/// The same with more in its environment, and in the directory where it is.
fn same_for_all_with(name: &str, prepare: impl Fn(&Path, &mut Command)) {
    let binary = compile(name);
    let (pool, place, library) = pool_of_all();
    let program = place.path().join(name);
    std::fs::copy(binary, &program).expect("a copy");
    compare_with_tmpfs_on(
        &pool,
        || {
            let mut command = Command::new(&program);
            prepare(place.path(), &mut command);
            command
        },
        |command| {
            command.env("LD_PRELOAD", &library);
        },
    );
}

/// Who gives up rights has none of them any more, by paths nor by what is in the session; who takes
/// them back has them again.
#[test]
fn somebody_else() {
    same_for_all("identities");
}

/// Device nodes, as root and as somebody else; they stay what they are.
#[test]
fn devices() {
    same_for_all("devices");
}

/// What another user sends, and says to be a file of the pool's that it may not open itself, is believed by
/// nobody.
#[test]
fn sent_by_somebody_else() {
    same_for_all("forging");
}

/// Whatever a program of another user's inherits of root's: the descriptors stand for what they stood for,
/// and there is neither a connection nor memory among them. (Whoever inherited a descriptor could have root's
/// later writes go to another file; and with a file open that had no name, got root's connection.)
#[test]
fn inherited_by_a_robber() {
    let robber = compile_with("robber", &["-static"]);
    same_for_all_with("robbed", |place, command| {
        let copy = place.join("robber");
        std::fs::copy(&robber, &copy).expect("a copy");
        // Not reached, on purpose.
        command.env("ROBBER", copy).env("ARCK_QUIET", "1");
    });
}

/// A descriptor gives its file in its mode to whoever is handed it, also to another user's process.
#[test]
fn handed_on_to_somebody_else() {
    same_for_all("heirs");
}

/// Processes of several users, each in a session of its own, wait for each other's locks as on any file system.
#[test]
fn users_wait_for_each_others_locks() {
    same_for_all("circles");
}

/// Nothing in a group's memory is of use in one process alone: two programs that could hardly differ
/// more in where they lie have it at different addresses, do random operations on the same files in
/// turn, from descriptors that both keep, and each finds what the other has done.
#[test]
fn a_group_of_two_layouts() {
    let fixed = ["-no-pie", "-fno-pie", "-DBIG=300000000", "-mcmodel=medium"];
    let programs = [
        (compile_as("layouts", "layouts-fixed", &fixed), "fixed"),
        (
            compile_as("layouts", "layouts-pie", &["-pie", "-fPIE"]),
            "random",
        ),
    ];
    let pool = TestPool::new(256 << 20);
    for seed in ["1", "2", "3"] {
        let place = Place::new();
        let mount = format!("/arck/{seed}");
        let made = served_by_pool(&pool, "", Command::new("mkdir").arg(&mount));
        assert!(made.status.success(), "{made:?}");
        let running: Vec<_> = programs
            .iter()
            .enumerate()
            .map(|(who, (program, layout))| {
                let mut command = Command::new(program);
                set_up(&pool, Path::new("/arck"), &place.report, &mut command);
                command
                    .args([&who.to_string(), "other", seed, "600", layout])
                    .arg(&mount)
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .expect("it runs")
            })
            .collect();
        let told: Vec<String> = running
            .into_iter()
            .map(|child| {
                let output = child.wait_with_output().expect("it ends");
                let text = String::from_utf8_lossy(&output.stdout).into_owned();
                assert!(output.status.success(), "{output:?}");
                assert!(text.ends_with("0 wrong of 600 turns\n"), "{output:?}");
                text
            })
            .collect();
        let [one, two] = told.iter().map(|text| memory_of(text)).collect::<Vec<_>>()[..] else {
            panic!("{told:?}");
        };
        assert_ne!(one.program, two.program, "{told:?}");
        assert_eq!(one.file, two.file, "not one group: {told:?}");
        assert_ne!(one.group, two.group, "at the same address: {told:?}");
    }
    assert_eq!(pool.violations(), "");
}

#[derive(Clone, Copy)]
struct Memory<'a> {
    program: &'a str,
    group: &'a str,
    file: &'a str,
}

/// `program ADDRESS`, then `group ADDRESS FILE`.
fn memory_of(text: &str) -> Memory<'_> {
    let words: Vec<&str> = text.split_whitespace().collect();
    match words[..] {
        ["program", program, "group", group, file, ..] => Memory {
            program,
            group,
            file,
        },
        _ => panic!("{text}"),
    }
}
