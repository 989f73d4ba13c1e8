//! Trust groups: several members of one session, each with mappings of its own at addresses of its
//! own. Members in this process stand for processes where nobody is killed.
//!
//!     cargo test -p arck-testkit --test group [-- WORD]

mod departed;
mod forked;
mod model;
mod numbers;
mod rebuilt;
mod stopped;
mod storm;

use arck_core_state::header::HeaderKind;
use arck_libfs_kit::Session;
use arck_libfs_kit::session::SessionOptions;
use arck_testkit::harness::{self, Case};
use arck_testkit::{Shorthand, TestPool, connect_as};
use arckfs::{At, Errno, FileSystem};
use model::{DIRECTORIES, Worker};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

const POOL: u64 = 128 << 20;
const CHANGES: u64 = 1500;

const TESTS: &[Case] = &[
    ("a_group_has_one_session", a_group_has_one_session),
    (
        "who_is_built_otherwise_is_refused",
        who_is_built_otherwise_is_refused,
    ),
    ("members_see_what_members_do", members_see_what_members_do),
    ("members_at_once", members_at_once),
    (
        "a_session_lasts_as_long_as_a_member",
        a_session_lasts_as_long_as_a_member,
    ),
    (
        "segments_go_to_and_fro_between_members",
        segments_go_to_and_fro_between_members,
    ),
    (
        "who_joins_asks_once_for_what_others_read",
        who_joins_asks_once_for_what_others_read,
    ),
    (
        "more_processes_than_a_session_has_numbers",
        more_processes_than_a_session_has_numbers,
    ),
    ("processes_that_end", processes_that_end),
    (
        "who_forks_keeps_its_place",
        forked::who_forks_keeps_its_place,
    ),
    (
        "who_dies_without_a_controller_is_departed",
        departed::who_dies_without_a_controller_is_departed,
    ),
    (
        "locks_of_the_dead_stand_in_nobodys_way",
        departed::locks_of_the_dead_stand_in_nobodys_way,
    ),
    (
        "segments_are_given_back_when_all_have_left",
        departed::segments_are_given_back_when_all_have_left,
    ),
    (
        "open_files_without_names_go_on",
        rebuilt::open_files_without_names_go_on,
    ),
    (
        "a_listing_goes_on_where_it_was",
        rebuilt::a_listing_goes_on_where_it_was,
    ),
    (
        "maps_are_not_descriptors",
        rebuilt::maps_are_not_descriptors,
    ),
    (
        "an_offset_is_one_threads_at_a_time",
        rebuilt::an_offset_is_one_threads_at_a_time,
    ),
    (
        "memory_of_what_was_comes_back",
        rebuilt::memory_of_what_was_comes_back,
    ),
    (
        "who_closes_waits_outside",
        rebuilt::who_closes_waits_outside,
    ),
    (
        "who_is_stopped_inside_is_waited_for",
        stopped::who_is_stopped_inside_is_waited_for,
    ),
    (
        "who_is_stopped_at_work_keeps_nobody_for_good",
        stopped::who_is_stopped_at_work_keeps_nobody_for_good,
    ),
    (
        "room_is_waited_for_while_it_is_given_back",
        stopped::room_is_waited_for_while_it_is_given_back,
    ),
    (
        "what_the_dead_asked_ahead_costs_no_slot",
        numbers::what_the_dead_asked_ahead_costs_no_slot,
    ),
    ("killed_at_any_instant", storm::killed_at_any_instant),
];

fn main() -> ExitCode {
    if let Some(pool) = std::env::var_os("ARCK_GROUP_MEMBER") {
        member(pool.as_ref());
        return ExitCode::SUCCESS;
    }
    harness::run(
        TESTS
            .iter()
            .map(|&(name, test)| harness::trial(name, test))
            .collect(),
    )
}

fn number_of(fs: &FileSystem) -> u32 {
    fs.session().number()
}

/// A program of another version has other structures in the region: it is told so, and touches nothing.
fn who_is_built_otherwise_is_refused() {
    let pool = TestPool::new(POOL);
    let first = connect_as(&pool.path(), b"g");
    first.put("file", b"of the first").expect("put");
    let other = Session::connect_with(
        &pool.path(),
        &SessionOptions {
            group: b"g",
            structures: 1,
            ..SessionOptions::default()
        },
    );
    let Err(refused) = other else {
        panic!("it is let in");
    };
    assert_eq!(refused.errno(), Errno::PROTONOSUPPORT);
    let told = refused.to_string();
    assert!(told.contains("another version of Arck"), "{told}");
    // Whoever is built as the first is goes on beside it, and the group is as it was.
    let second = connect_as(&pool.path(), b"g");
    assert_eq!(second.get("file").expect("get"), b"of the first");
    assert_eq!(second.session().number(), first.session().number());
    assert_eq!(pool.violations(), "");
}

/// Members of one group have one session; others have their own.
fn a_group_has_one_session() {
    let pool = TestPool::new(POOL);
    let [one, two, other, none] = [&b"a"[..], b"a", b"b", b""].map(|g| connect_as(&pool.path(), g));
    assert_eq!(number_of(&one), number_of(&two));
    assert_eq!(one.session().member(), 1);
    assert_eq!(two.session().member(), 2);
    for fs in [&other, &none] {
        assert_ne!(number_of(&one), number_of(fs));
        assert_eq!(fs.session().member(), 1);
    }
    assert_ne!(number_of(&other), number_of(&none));
    let bases = [&one, &two].map(|fs| fs.session().region().base_address());
    assert_ne!(bases[0], bases[1], "a region at two addresses");
}

/// What one member does the others see at their next call, without a fold.
fn members_see_what_members_do() {
    let pool = TestPool::new(POOL);
    let members: Vec<FileSystem> = (0..4).map(|_| connect_as(&pool.path(), b"g")).collect();
    for round in 0..40usize {
        let [one, two, three] = [0, 1, 2].map(|at| &members[(round + at) % members.len()]);
        let directory = format!("d{round}");
        one.make_directory(At::Root, directory.as_bytes(), 0o755)
            .expect("mkdir");
        let name = format!("{directory}/file");
        let content: Vec<u8> = (0..20_000 + round)
            .map(|at| (at * 7 + round) as u8)
            .collect();
        two.put(&name, &content).expect("put");
        assert_eq!(three.get(&name), Ok(content.clone()));
        // In place, and by one who has not been granted the pages.
        let changed: Vec<u8> = content.iter().map(|byte| byte ^ 0xff).collect();
        let file = three.open_at_root(&name, libc::O_RDWR).expect("open");
        assert_eq!(three.write(file, &changed[..9000], Some(4096)), Ok(9000));
        three.close(file);
        let mut wanted = content.clone();
        wanted[4096..13096].copy_from_slice(&changed[..9000]);
        assert_eq!(one.get(&name), Ok(wanted.clone()));
        assert_eq!(two.get(&name), Ok(wanted));
        let moved = format!("{directory}/moved");
        two.rename(At::Root, name.as_bytes(), At::Root, moved.as_bytes(), 0)
            .expect("rename");
        assert_eq!(three.names(&directory), Ok(vec!["moved".to_owned()]));
        one.unlink(At::Root, moved.as_bytes(), 0).expect("unlink");
        two.unlink(At::Root, directory.as_bytes(), libc::AT_REMOVEDIR)
            .expect("rmdir");
        let gone = three.stat(At::Root, directory.as_bytes(), 0).map(drop);
        assert_eq!(gone, Err(Errno::NOENT.into()));
    }
}

/// Members that work in one directory at the same time, while the controller folds.
fn members_at_once() {
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0) >> 8;
    println!("seed {seed}");
    let pool = TestPool::new(POOL);
    let members: Vec<FileSystem> = (0..4).map(|_| connect_as(&pool.path(), b"g")).collect();
    for directory in DIRECTORIES {
        members[0]
            .make_directory(At::Root, directory.as_bytes(), 0o777)
            .expect("mkdir");
    }
    let reader = pool.session();
    let mut workers: Vec<Worker> = (0..4).map(|at| Worker::new(seed + at)).collect();
    std::thread::scope(|scope| {
        let working: Vec<_> = members
            .iter()
            .zip(&mut workers)
            .map(|(fs, worker)| scope.spawn(move || (0..CHANGES).for_each(|_| worker.work(fs))))
            .collect();
        while working.iter().any(|thread| !thread.is_finished()) {
            // Each look is a fold.
            let _ = reader.names(DIRECTORIES[0]);
        }
    });
    for worker in &workers {
        for fs in members.iter().chain([&reader]) {
            model::expect_same(&model::seen(fs, worker), &worker.model, "at the end");
        }
    }
    assert_eq!(pool.violations(), "");
}

/// The one who made it may go.
fn a_session_lasts_as_long_as_a_member() {
    let pool = TestPool::new(POOL);
    let one = connect_as(&pool.path(), b"g");
    one.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    one.put("d/file", b"of one").expect("put");
    let two = connect_as(&pool.path(), b"g");
    let number = number_of(&two);
    let held = two.open_at_root("d/file", libc::O_RDWR).expect("open");
    drop(one);
    let mut buffer = [0; 16];
    assert_eq!(two.read(held, &mut buffer, Some(0)), Ok(6));
    assert_eq!(two.write(held, b"by two", Some(0)), Ok(6));
    two.unlink(At::Root, b"d/file", 0).expect("unlink");
    assert_eq!(two.read(held, &mut buffer, Some(0)), Ok(6));
    assert_eq!(&buffer[..6], b"by two");
    let three = connect_as(&pool.path(), b"g");
    assert_eq!(number_of(&three), number);
    assert_eq!(three.names("d"), Ok(Vec::new()));
    drop(two);
    drop(three);
    let four = connect_as(&pool.path(), b"g");
    assert_ne!(number_of(&four), number);
    assert_eq!(four.names("d"), Ok(Vec::new()));
}

/// Two groups fill and empty a small pool at the same time: what a group has freed the other can use,
/// and what its members still had mapped of it nobody takes for what is there now.
fn segments_go_to_and_fro_between_members() {
    const PIECE: usize = 1 << 20;
    let pool = TestPool::new(32 << 20);
    let groups = [&b"a"[..], b"b"];
    let members: Vec<FileSystem> = (0..6)
        .map(|at| connect_as(&pool.path(), groups[at % 2]))
        .collect();
    let content = |at: usize, turn: usize, pieces: usize| -> Vec<u8> {
        let value = |byte: usize| (byte / 4096 * 31 + byte + turn * 7 + at) as u8;
        (0..pieces * PIECE).map(value).collect()
    };
    std::thread::scope(|scope| {
        for (at, fs) in members.iter().enumerate() {
            let members = &members;
            scope.spawn(move || {
                let name = format!("file-{at}");
                let mut done = 0;
                for turn in 0..30 {
                    let wanted = content(at, turn, 1 + (turn + at) % 5);
                    match fs.put(&name, &wanted) {
                        Ok(()) => {
                            done += 1;
                            // By one of the group, and by one of the other.
                            for reader in [&members[(at + 2) % 6], &members[(at + 3) % 6]] {
                                let found = reader.get(&name).expect("a file");
                                assert!(found == wanted, "{name}, turn {turn}");
                            }
                        }
                        Err(failure) => {
                            assert_eq!(failure, Errno::NOSPC.into(), "{name}, turn {turn}")
                        }
                    }
                    fs.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
                }
                assert!(done > 3, "{name}: there was room {done} times of 30");
            });
        }
    });
    // One group alone, then the other, fills nearly all.
    for (turn, fs) in members.iter().enumerate() {
        let wanted = content(turn, 0, 18);
        fs.put("big", &wanted)
            .expect("room that the others have freed");
        for reader in &members {
            assert!(reader.get("big") == Ok(wanted.clone()), "turn {turn}");
        }
        fs.unlink(At::Root, b"big", 0).expect("unlink");
    }
    assert_eq!(pool.violations(), "");
}

/// With the first segment that a new member needs it gets those that others have mapped last to read,
/// but not more; and what lies in them is what was written.
fn who_joins_asks_once_for_what_others_read() {
    let pool = TestPool::new(POOL);
    let [writer, reader] = [b"g"; 2].map(|group| connect_as(&pool.path(), group));
    let segment = usize::try_from(writer.session().geometry().segment_size).expect("a length");
    let content = |at: usize| vec![at as u8 + 1; segment * 2 / 3];
    for at in 0..10 {
        writer
            .put(&format!("file-{at}"), &content(at))
            .expect("room");
        assert!(reader.get(&format!("file-{at}")) == Ok(content(at)));
    }
    let all = reader.session().mapped_segments();
    assert!(all >= 7, "{all} segments for ten files");
    let joined = connect_as(&pool.path(), b"g");
    assert_eq!(joined.session().mapped_segments(), 0);
    joined.stat(At::Root, b"file-9", 0).expect("a file");
    let handle = joined
        .open(At::Root, b"file-9", libc::O_RDONLY, 0)
        .expect("a file");
    let mut byte = [0];
    assert_eq!(joined.read(handle, &mut byte, Some(0)), Ok(1));
    let some = joined.session().mapped_segments();
    assert!((3..=6).contains(&some), "{some} segments of {all}");
    for at in 0..10 {
        assert!(joined.get(&format!("file-{at}")) == Ok(content(at)), "{at}");
    }
    assert_eq!(pool.violations(), "");
}

/// A group that has more processes than a session has numbers for has several sessions.
fn more_processes_than_a_session_has_numbers() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    fs.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    let mut waiting: Vec<Process> = (0..300).map(|_| Process::start(&pool, "")).collect();
    let mut sessions = BTreeMap::new();
    for process in &mut waiting {
        *sessions.entry(process.says()).or_insert(0) += 1;
        assert_eq!(process.says(), "ready");
    }
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    assert_eq!(sessions.get(&number_of(&fs).to_string()), Some(&254));
    assert_eq!(fs.names("d").map(|names| names.len()), Ok(1500));
    for mut process in waiting {
        drop(process.child.stdin.take());
        process.child.wait().expect("its end");
    }
    assert_eq!(pool.violations(), "");
}

/// Another process of the group.
struct Process {
    child: Child,
    told: BufReader<ChildStdout>,
}

impl Process {
    /// `work`: what it does; nothing: it opens files and waits.
    fn start(pool: &TestPool, work: &str) -> Process {
        Process::start_with(pool, work, None)
    }

    /// The same; `wait`: the seconds of its `ARCK_WAIT`.
    fn start_with(pool: &TestPool, work: &str, wait: Option<u32>) -> Process {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .envs(wait.map(|seconds| ("ARCK_WAIT", seconds.to_string())))
            .env("ARCK_GROUP_MEMBER", pool.path())
            .env("ARCK_GROUP_WORK", work)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let told = BufReader::new(child.stdout.take().expect("its output"));
        Process { child, told }
    }

    /// Tells it to go on.
    fn tell(&mut self) {
        let input = self.child.stdin.as_mut().expect("its input");
        input.write_all(b"\n").expect("told");
    }

    /// Ends it as it is.
    fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("its end");
    }

    /// Waits for its next line.
    fn says(&mut self) -> String {
        let mut line = String::new();
        self.told.read_line(&mut line).expect("a line");
        line.trim().to_owned()
    }
}

/// What such a process does: opens files, says so, and waits for its end.
fn member(pool: &std::path::Path) {
    let fs = connect_as(pool, b"g");
    println!("{}", fs.session().number());
    let work = std::env::var("ARCK_GROUP_WORK").unwrap_or_default();
    match work.as_str() {
        "inside" => return rebuilt::stay_inside(&fs),
        "asks" => return stopped::ask(&fs),
        "makes" => return stopped::make(&fs),
        "asks ahead" => return numbers::ask_unnoted(&fs),
        "locks" => return departed::hold_locks(&fs),
        work if work.starts_with("storm") => storm::work(&fs, work),
        _ => {}
    }
    let process = std::process::id();
    for at in 0..10 {
        let name = format!("d/{process}-{at}");
        fs.put(&name, name.as_bytes()).expect("put");
        fs.open_at_root(&name, libc::O_RDWR).expect("open");
        if at % 2 == 0 {
            fs.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
        }
    }
    println!("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
    // As a program ends: nothing is said to anybody.
    std::process::exit(0);
}

/// More processes come and go, by themselves or killed while they wait, than there are numbers for.
fn processes_that_end() {
    let pool = TestPool::new(POOL);
    let fs = connect_as(&pool.path(), b"g");
    fs.make_directory(At::Root, b"d", 0o777).expect("mkdir");
    let free = fs.statistics().map(|s| s.inodes_free).expect("statistics");
    let held = fs
        .open_at_root("d/held", libc::O_RDWR | libc::O_CREAT)
        .expect("open");
    for round in 0..300 {
        let mut process = Process::start(&pool, "");
        assert_eq!(process.says(), number_of(&fs).to_string());
        assert_eq!(process.says(), "ready");
        if round % 2 == 0 {
            process.child.kill().expect("killed");
        } else {
            drop(process.child.stdin.take());
        }
        process.child.wait().expect("its end");
        assert_eq!(fs.write(held, b"here", Some(0)), Ok(4));
        let names = fs.names("d").expect("a listing");
        assert_eq!(names.len(), 6, "round {round}: {names:?}");
        for name in names.iter().filter(|name| *name != "held") {
            let name = format!("d/{name}");
            assert_eq!(fs.get(&name), Ok(name.clone().into_bytes()));
            fs.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
        }
    }
    fs.fold(false).expect("a fold");
    let left = fs.statistics().map(|s| s.inodes_free).expect("statistics");
    // Stocks, but nothing of what they had open.
    assert!(free - left < 1200, "{free} inodes were free, {left} are");
    assert_eq!(pool.violations(), "");
}

/// Numbers of inodes that were granted, and are uncommitted.
fn granted(fs: &FileSystem) -> usize {
    let session = fs.session();
    let is_granted = |number| {
        let header = session.header(number);
        header.is_some_and(|header| header.kind() == HeaderKind::Granted)
    };
    (1..session.geometry().inode_count)
        .filter(|&number| is_granted(number))
        .count()
}

/// Tells the others also when a round has failed.
struct TellOver<'a>(&'a AtomicBool);

impl Drop for TellOver<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
