//! The torture: processes that work are killed, wherever they are, while others work beside them.

use crate::model::{self, DIRECTORIES, Worker};
use crate::{POOL, Process, TellOver, granted, rebuilt};
use arck_testkit::{Random, Shorthand, TestPool, connect_as};
use arckfs::{At, FileSystem, Handle, Resolver};
use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Processes that are killed, if nothing else is said.
const ROUNDS: u64 = 600;
/// Of which two are killed at about the same time, so that some die over building anew.
const KILLERS: u64 = 2;
/// Threads of each.
const THREADS: u64 = 2;

/// Of a process that is to be killed: works, and says how much has been done.
pub fn work(fs: &FileSystem, seed: &str) -> ! {
    let seed: u64 = seed["storm ".len()..].parse().expect("a seed");
    println!("{}", fs.session().member());
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let mut worker = Worker::new(seed + thread);
                for done in 1u64.. {
                    // What is wrong must end the process, not a thread.
                    let worked = std::panic::AssertUnwindSafe(|| worker.work(fs));
                    if std::panic::catch_unwind(worked).is_err() {
                        std::process::exit(1);
                    }
                    println!("{thread} {done}");
                }
            });
        }
    });
    std::process::exit(1);
}

/// Processes that work are killed, wherever they are; who works beside them meets no error, what was
/// open stays open, and all that was done is there.
pub fn killed_at_any_instant() {
    let seed = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0) >> 24;
    let rounds =
        std::env::var("ARCK_GROUP_ROUNDS").map_or(ROUNDS, |text| text.parse().expect("rounds"));
    println!("seed {seed}");
    let pool = TestPool::new(2 * POOL);
    let members: Vec<FileSystem> = (0..2).map(|_| connect_as(&pool.path(), b"g")).collect();
    let fs = &members[0];
    for directory in DIRECTORIES {
        fs.make_directory(At::Root, directory.as_bytes(), 0o777)
            .expect("mkdir");
    }
    let reader = pool.session();
    let free = || fs.statistics().expect("statistics").pages_free;
    let free_before = free();
    let is_over = AtomicBool::new(false);
    let mut workers: Vec<Worker> = (1..=members.len() as u64).map(Worker::new).collect();
    std::thread::scope(|scope| {
        for (fs, worker) in members.iter().zip(&mut workers) {
            let is_over = &is_over;
            scope.spawn(move || {
                let held = Held::new(fs);
                for count in 0u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    worker.work(fs);
                    held.check(fs, count);
                }
            });
        }
        let _over = TellOver(&is_over);
        std::thread::scope(|scope| {
            let killers: Vec<_> = (0..KILLERS)
                .map(|killer| {
                    let (pool, members, reader) = (&pool, &members, &reader);
                    scope.spawn(move || {
                        let mut random = Random::new(seed + killer);
                        for round in (0..rounds).filter(|round| round % KILLERS == killer) {
                            let id = 1000 + (seed + round) * 10;
                            kill_one(pool, &members[killer as usize], id, &mut random);
                            if round % 8 == 0 {
                                let _ = reader.names(DIRECTORIES[0]);
                            }
                        }
                    })
                })
                .collect();
            for killer in killers {
                if killer.join().is_err() {
                    panic!("a killer has found something");
                }
            }
        });
    });
    let anew = fs.session().region().build() - 1;
    // Numbers that were granted and that nobody knows of any more would be lost until the group ends.
    let uncommitted = granted(fs);
    let memory = rebuilt::region_memory(fs) >> 20;
    let room = (free_before - free()) >> 8;
    println!(
        "{rounds} killed, the group's memory built anew {anew} times; {uncommitted} numbers of inodes that \
         were never committed; {memory} MiB of memory; {room} MiB of the pool"
    );
    assert!(anew * 6 > rounds, "too few died inside");
    assert!(uncommitted < 8000, "{uncommitted} of 32768");
    // FPFS's table is one more of 17.
    let most = match arck_testkit::resolver() {
        Resolver::Tree => 64,
        Resolver::FullPaths => 64 + 18,
    };
    assert!(memory < most, "{memory} MiB");
    for (at, worker) in workers.iter().enumerate() {
        for fs in members.iter().chain([&reader]) {
            model::expect_same(
                &model::seen(fs, worker),
                &worker.model,
                &format!("worker {at}"),
            );
        }
    }
    assert_eq!(pool.violations(), "");
}

/// What a member has open all along: a file that the controller knows and has no name any more, one that
/// it has never known, and a directory.
struct Held {
    files: [Handle; 2],
    directory: Handle,
}

impl Held {
    fn new(fs: &FileSystem) -> Held {
        let name = format!("held-{}", fs.session().member());
        let known = fs.open_at_root(&name, libc::O_RDWR | libc::O_CREAT);
        let known = known.expect("open");
        fs.fold(false).expect("a fold");
        fs.unlink(At::Root, name.as_bytes(), 0).expect("unlink");
        let open = |name: &str, flags: i32| fs.open_at_root(name, flags).expect("open");
        let held = Held {
            files: [known, open(DIRECTORIES[0], libc::O_TMPFILE | libc::O_RDWR)],
            directory: open(DIRECTORIES[1], libc::O_RDONLY | libc::O_DIRECTORY),
        };
        for file in held.files {
            assert_eq!(fs.write(file, &0u64.to_le_bytes(), Some(0)), Ok(8));
        }
        held
    }

    fn check(&self, fs: &FileSystem, count: u64) {
        for file in self.files {
            let mut seen = [0; 8];
            assert_eq!(fs.read(file, &mut seen, Some(0)), Ok(8));
            assert_eq!(u64::from_le_bytes(seen), count);
            assert_eq!(fs.write(file, &(count + 1).to_le_bytes(), Some(0)), Ok(8));
        }
        if count.is_multiple_of(16) {
            fs.names_of(self.directory).expect("a listing");
        }
    }
}

/// Waits until the controller knows that a worker is gone, and so does nothing more of what that has
/// asked for: a move of a directory may come a moment after the end of who asked for it.
fn wait_until_gone(fs: &FileSystem, member: u16) {
    let (word, bit) = (usize::from(member) / 64, 1u64 << (member % 64));
    let began = Instant::now();
    // Its number is another's only when the group has cleared away what it left.
    while fs.session().control().header.members[word].load(Ordering::SeqCst) & bit != 0 {
        assert!(began.elapsed() < Duration::from_secs(60), "member {member}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// A process works, perhaps is stopped for a while, and is killed; then others look at what it has left,
/// and remove it.
fn kill_one(pool: &TestPool, fs: &FileSystem, id: u64, random: &mut Random) {
    let mut process = Process::start(pool, &format!("storm {id}"));
    assert_eq!(process.says(), fs.session().number().to_string());
    let member: u16 = process.says().parse().expect("its number");
    std::thread::sleep(Duration::from_micros(random.below(30_000)));
    if random.percent(20) {
        crate::stopped::stop(&process.child, true);
        std::thread::sleep(Duration::from_micros(random.below(60_000)));
        if random.percent(50) {
            crate::stopped::stop(&process.child, false);
        }
    }
    process.child.kill().expect("killed");
    let status = process.child.wait().expect("its end");
    assert_eq!(
        status.signal(),
        Some(libc::SIGKILL),
        "worker {id} has found something"
    );
    wait_until_gone(fs, member);
    let mut told = String::new();
    process.told.read_to_string(&mut told).expect("its lines");
    let whole = told.rfind('\n').map_or("", |end| &told[..end]);
    let mut done: BTreeMap<u64, u64> = BTreeMap::new();
    for line in whole.lines() {
        let (thread, count) = line.split_once(' ').expect("two numbers");
        done.insert(
            thread.parse().expect("a thread"),
            count.parse().expect("a count"),
        );
    }
    for thread in 0..THREADS {
        let mut worker = Worker::new(id + thread);
        let done = done.get(&thread).copied().unwrap_or(0);
        (0..done).for_each(|_| drop(worker.imagine()));
        let model = worker.model.clone();
        let next = worker.imagine();
        let seen = model::seen(fs, &worker);
        model::expect_left(
            &seen,
            &model,
            &next,
            &format!("worker {} after {done}", id + thread),
        );
        for (name, content) in &seen.names {
            let flags = match content {
                model::Content::Directory => libc::AT_REMOVEDIR,
                model::Content::File(_) => 0,
            };
            fs.unlink(At::Root, name.as_bytes(), flags).expect("unlink");
        }
    }
}
