//! Several users at work, with threads, while somebody changes the rights to where they work.

use super::Case;
use super::board::Board;
use super::worker::{Allowed, DIRECTORIES, SHARED, Worker, shared_path};
use super::world::{ANN, BOB, EVE, ROOT, Session, User, World};
use arck_testkit::Random;
use arckfs::Errno;
use std::time::Duration;

pub const ALL: &[Case] = &[
    ("chmod_of_what_is_above", chmod_of_what_is_above),
    ("chmod_of_directories", chmod_of_directories),
    ("chown_of_what_is_above", chown_of_what_is_above),
    ("chown_of_directories", chown_of_directories),
    ("directories_that_move", directories_that_move),
    ("what_is_above_moves", what_is_above_moves),
    ("chmod_of_files", chmod_of_files),
    ("chown_of_files", chown_of_files),
    ("all_at_once", all_at_once),
];

/// Owner of the directories, twice: rights change under one's own other session too.
const WORKERS: [User; 4] = [ANN, BOB, EVE, ROOT];
const THREADS: usize = 2;
const STEPS: u32 = 150;

// Words of the board.
const READY: usize = 0;
const FINISHED: usize = 1;
const STOPPED: usize = 2;
const RESTORED: usize = 3;

/// Who changes rights, and how.
type Change = fn(&Session, &mut Random);

fn work(at: usize) -> String {
    format!("/common/d{at}")
}

fn some_directory(random: &mut Random) -> String {
    work(random.below(DIRECTORIES as u64) as usize)
}

/// Everybody at work while the changers are, and then again when all may be reached.
fn storm(seed: u64, changers: &[(User, Change)], allowed: Allowed) {
    let mut world = World::new(256 << 20);
    world.as_user(ANN, |ann| {
        ann.mkdir("/common", 0o777);
        ann.mkdir("/closed", 0o700);
        for at in 0..DIRECTORIES {
            ann.mkdir(&work(at), mode_of(at));
        }
        for which in 0..SHARED {
            ann.put(&shared_path(which), &[0; 4096], 0o666);
        }
    });
    let board = Board::new();
    let all = (WORKERS.len() * THREADS) as u64;
    let mut children = Vec::new();
    for (at, user) in WORKERS.into_iter().enumerate() {
        let pool = world.pool();
        children.push(board.start(&world, user, move |session| {
            // SAFETY: a number.
            unsafe { libc::umask(0) };
            let run = |thread| {
                let slot = at * THREADS + thread;
                let mut worker = Worker::new(session, slot, seed, allowed);
                board.add(READY);
                board.wait(READY, all);
                for _ in 0..STEPS {
                    if !board.has_failed() {
                        worker.step();
                    }
                }
                board.add(FINISHED);
                board.wait(RESTORED, 1);
                worker.look_at_all(session);
                worker
            };
            let mut workers: Vec<Worker<'_>> = std::thread::scope(|scope| {
                let start = |thread| scope.spawn(move || board.guard(|| run(thread)));
                let threads: Vec<_> = (0..THREADS).map(start).collect();
                let joined = threads.into_iter().map(|thread| thread.join());
                joined.map(|worker| worker.expect("see above")).collect()
            });
            // Folded, another session finds the same.
            session.fold();
            let other = Session(arck_testkit::connect(&pool));
            for worker in &mut workers {
                worker.look_at_all(&other);
            }
            other.0.disconnect().expect("an orderly end");
            let done: u64 = workers.iter().map(|worker| worker.done).sum();
            println!("  user {}: {done} calls succeeded", user.0);
            assert!(done > 0, "user {} could do nothing", user.0);
        }));
    }
    for (at, &(user, change)) in changers.iter().enumerate() {
        children.push(board.start(&world, user, move |session| {
            let mut random = Random::new(seed.wrapping_mul(31) + at as u64);
            board.wait(READY, all);
            let mut changes = 0u64;
            while board.get(FINISHED) < all && !board.has_failed() {
                change(session, &mut random);
                changes += 1;
                std::thread::sleep(Duration::from_micros(random.below(3000)));
            }
            println!("  user {}: rights changed {changes} times", user.0);
            board.add(STOPPED);
        }));
    }
    children.push(board.start(&world, ROOT, move |root| {
        board.wait(STOPPED, changers.len() as u64);
        open_everything(root);
        board.add(RESTORED);
    }));
    for child in children {
        child.ended("a session");
    }
    assert_eq!(world.violations(), "", "seed {seed}");
    world.stop();
}

fn mode_of(directory: usize) -> u32 {
    // In the last, others cannot take away what is not theirs.
    if directory == 2 { 0o1777 } else { 0o777 }
}

/// Where everything was, and for everybody.
fn open_everything(root: &Session) {
    if root.stat("/closed/common").is_ok() {
        root.rename("/closed/common", "/common")
            .expect("moved back");
    }
    root.chmod("/common", 0o777);
    for at in 0..DIRECTORIES {
        let away = format!("/closed/d{at}");
        if root.stat(&away).is_ok() {
            root.rename(&away, &work(at)).expect("moved back");
        }
        root.chmod(&work(at), mode_of(at));
    }
    for which in 0..SHARED {
        root.chmod(&shared_path(which), 0o666);
    }
}

fn must(what: &str, result: Result<(), Errno>) {
    result.unwrap_or_else(|errno| panic!("{what}: {errno}"));
}

/// Directories' modes: nobody but root, the owner, those who may only search, everybody.
const MODES: [u32; 6] = [0, 0o700, 0o711, 0o755, 0o777, 0o777];

fn chmod_of_what_is_above(seed: u64) {
    let change: Change = |ann, random| ann.chmod("/common", *random.pick(&MODES));
    storm(seed, &[(ANN, change)], &[Errno::ACCESS]);
}

fn chmod_of_directories(seed: u64) {
    let change: Change = |ann, random| {
        // Taken from all and given back at once, now and then.
        let directory = some_directory(random);
        must("chmod /common", ann.try_chmod("/common", 0o777));
        ann.chmod(&directory, *random.pick(&MODES));
        if random.percent(30) {
            ann.chmod(&directory, 0o777);
        }
    };
    storm(seed, &[(ANN, change)], &[Errno::ACCESS]);
}

/// Root gives a directory to one and the other, and its mode says that it is the owner's.
fn give(root: &Session, path: &str, random: &mut Random) {
    let mode = *random.pick(&[0o700, 0o755, 0o777]);
    root.chmod(path, mode);
    let (uid, gid) = *random.pick(&[(1001, 1001), (1002, 1002), (1003, 1003), (1003, 2000)]);
    must("chown", root.try_chown(path, uid, gid));
    if random.percent(50) {
        root.chmod(path, 0o770);
    }
}

fn chown_of_what_is_above(seed: u64) {
    let change: Change = |root, random| give(root, "/common", random);
    storm(seed, &[(ROOT, change)], &[Errno::ACCESS]);
}

fn chown_of_directories(seed: u64) {
    let change: Change = |root, random| give(root, &some_directory(random), random);
    storm(seed, &[(ROOT, change)], &[Errno::ACCESS]);
}

fn there_and_back(ann: &Session, from: &str, to: &str, random: &mut Random) {
    must("rename", ann.rename(from, to));
    std::thread::sleep(Duration::from_micros(random.below(2000)));
    must("rename back", ann.rename(to, from));
}

/// What a path into a directory that has moved away is told.
const MOVED: Allowed = &[Errno::NOENT];

/// A directory moves to where only its owner can follow, and back.
fn directories_that_move(seed: u64) {
    let change: Change = |ann, random| {
        let at = random.below(DIRECTORIES as u64) as usize;
        there_and_back(ann, &work(at), &format!("/closed/d{at}"), random);
    };
    storm(seed, &[(ANN, change)], MOVED);
}

fn what_is_above_moves(seed: u64) {
    let change: Change = |ann, random| there_and_back(ann, "/common", "/closed/common", random);
    storm(seed, &[(ANN, change)], MOVED);
}

fn chmod_of_files(seed: u64) {
    let change: Change = |ann, random| {
        let which = random.below(SHARED as u64) as usize;
        ann.chmod(
            &shared_path(which),
            *random.pick(&[0, 0o600, 0o644, 0o622, 0o666]),
        );
    };
    storm(seed, &[(ANN, change)], &[Errno::ACCESS]);
}

fn chown_of_files(seed: u64) {
    let change: Change = |root, random| {
        let which = random.below(SHARED as u64) as usize;
        give(root, &shared_path(which), random);
    };
    storm(seed, &[(ROOT, change)], &[Errno::ACCESS]);
}

fn all_at_once(seed: u64) {
    let ann: Change = |ann, random| match random.below(4) {
        // Root has it given to somebody else meanwhile.
        0 => allow(ann.try_chmod(&some_directory(random), *random.pick(&MODES))),
        1 => allow(ann.try_chmod("/common", *random.pick(&MODES))),
        2 => {
            let at = random.below(DIRECTORIES as u64) as usize;
            let (from, to) = (work(at), format!("/closed/d{at}"));
            // There and back, or back from the last time.
            allow(ann.rename(&from, &to));
            std::thread::sleep(Duration::from_micros(random.below(2000)));
            allow(ann.rename(&to, &from));
        }
        _ => {
            let which = random.below(SHARED as u64) as usize;
            allow(ann.try_chmod(&shared_path(which), *random.pick(&[0o600, 0o644, 0o666])));
        }
    };
    let root: Change = |root, random| {
        let path = match random.below(3) {
            0 => "/common".to_owned(),
            1 => some_directory(random),
            _ => shared_path(random.below(SHARED as u64) as usize),
        };
        let (uid, gid) = *random.pick(&[(1001, 1001), (1001, 1001), (1002, 1002), (1003, 2000)]);
        match root.try_chown(&path, uid, gid) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => panic!("chown {path}: {errno}"),
        }
    };
    let errors = &[Errno::ACCESS, Errno::NOENT];
    storm(seed, &[(ANN, ann), (ROOT, root)], errors);
}

/// Of a changer whose own rights change too.
fn allow(result: Result<(), Errno>) {
    match result {
        Ok(()) | Err(Errno::ACCESS | Errno::PERM | Errno::NOENT) => {}
        Err(errno) => panic!("a change of rights: {errno}"),
    }
}
