//! Opening a pool whose sessions died: it is the same however many threads read it, and how far it
//! has come is told. Nothing here depends on how fast anything is.

use arck_controller::{Division, Options, Progress, Step};
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, FileSystem, Statistics};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// Inodes of a small pool's files: more than one chunk of those below.
const OPERATIONS: u64 = 400;

/// Does something of which it does not matter whether it succeeds.
fn operate(fs: &FileSystem, random: &mut Random) {
    let directory = |random: &mut Random| format!("d{}", random.below(6));
    let name = |random: &mut Random| format!("d{}/f{}", random.below(6), random.below(60));
    match random.below(10) {
        0 => drop(fs.make_directory(At::Root, directory(random).as_bytes(), 0o755)),
        1..=4 => {
            let length = random.below(9000) as usize;
            let content = random.bytes(length);
            drop(fs.put(&name(random), &content));
        }
        5 => drop(fs.unlink(At::Root, name(random).as_bytes(), 0)),
        6 => {
            let (from, to) = (name(random), name(random));
            drop(fs.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0));
        }
        7 => {
            let (from, to) = (name(random), name(random));
            drop(fs.link(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0));
        }
        8 => drop(fs.truncate(At::Root, name(random).as_bytes(), random.below(20_000))),
        _ => drop(fs.symlink(b"target", At::Root, name(random).as_bytes())),
    }
}

/// A random pool that sessions have changed, some of it folded, and whose controller was killed.
fn random_pool(random: &mut Random) -> TestPool {
    let mut pool = TestPool::new(64 << 20);
    let sessions = [pool.session(), pool.session(), pool.session()];
    for _ in 0..OPERATIONS {
        let fs = random.pick(&sessions);
        operate(fs, random);
        if random.percent(1) {
            fs.fold(random.percent(50)).unwrap();
        }
    }
    pool.kill();
    pool
}

/// A copy, in which no session is there any more.
fn copy(from: &Path, to: PathBuf) -> PathBuf {
    let done = std::process::Command::new("cp")
        .args(["-a", "--sparse=always"])
        .args([from, &to])
        .status();
    assert!(done.unwrap().success());
    to
}

/// All files of a pool that a start or an end of it does not write by itself.
fn files(pool: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![pool.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(pool).unwrap().to_path_buf();
            if path.is_dir() {
                folders.push(path);
            } else if path.is_file()
                // Whose process it is, in which order a step was written down, and what a session
                // that is gone had for a secret.
                && !["lock", "journal", "session-table"].iter().any(|own| name == Path::new(own))
            {
                let content = std::fs::read(&path).unwrap();
                files.insert(name, content);
            }
        }
    }
    files
}

/// What stands under each name: kind and rights, links, size. Not the inode's number: which ones a
/// session has been granted when it makes a file depends on how fast it was.
type Tree = BTreeMap<String, (u32, u64, u64)>;

fn tree(fs: &FileSystem) -> Tree {
    let mut tree = Tree::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        for name in fs.names(&folder).unwrap() {
            let path = format!("{folder}/{name}");
            let path = path.trim_start_matches('/').to_owned();
            let found = fs
                .stat(At::Root, path.as_bytes(), libc::AT_SYMLINK_NOFOLLOW as _)
                .unwrap();
            if found.mode & libc::S_IFMT == libc::S_IFDIR {
                folders.push(path.clone());
            }
            tree.insert(path, (found.mode, u64::from(found.links), found.size));
        }
    }
    tree
}

/// What recovery makes of a pool with this division.
#[derive(PartialEq, Debug)]
struct Recovered {
    /// Of its files, those that differ from another one's are told alone.
    files: BTreeMap<PathBuf, Vec<u8>>,
    free: Statistics,
    /// After more was done with it.
    tree: Tree,
}

/// Recovers a pool with this division, and does more with it.
fn recover(path: &Path, division: Division, seed: u64) -> Recovered {
    let options = Options {
        division,
        ..Options::default()
    };
    let mut pool = TestPool::adopt_with(path, options);
    let fs = pool.session();
    let free = fs.statistics().unwrap();
    fs.disconnect().unwrap();
    pool.stop();
    let files = files(path);
    pool.serve();
    let fs = pool.session();
    assert_eq!(fs.statistics().unwrap(), free);
    // It can be worked with: what is free is free.
    let mut random = Random::new(seed);
    for _ in 0..OPERATIONS / 4 {
        operate(&fs, &mut random);
    }
    fs.fold(true).unwrap();
    let tree = tree(&fs);
    fs.disconnect().unwrap();
    pool.stop();
    let report = arck_check::check(path, &arck_check::Options::default()).unwrap();
    assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
    Recovered { files, free, tree }
}

#[test]
fn recovery_is_the_same_by_one_thread_and_by_several() {
    for seed in 0..6 {
        let mut random = Random::new(seed);
        let pool = random_pool(&mut random);
        let beside = tempfile::tempdir_in("/dev/shm").unwrap();
        let alone = copy(&pool.path(), beside.path().join("alone"));
        let one_thread = Division {
            threads: 1,
            chunk: 0,
        };
        let expected = recover(&alone, one_thread, seed);
        assert!(expected.tree.len() > 10, "seed {seed}: {expected:?}");
        for (threads, chunk) in [(4, 1), (3, 7), (2, 64), (1, 5), (0, 0)] {
            let path = copy(
                &pool.path(),
                beside.path().join(format!("{threads}-{chunk}")),
            );
            let found = recover(&path, Division { threads, chunk }, seed);
            let names = |recovered: &Recovered| recovered.files.keys().cloned().collect::<Vec<_>>();
            assert_eq!(names(&found), names(&expected), "seed {seed}");
            let other = found
                .files
                .iter()
                .find(|&(name, content)| expected.files[name] != *content);
            let name = other.map(|(name, _)| name);
            assert_eq!(name, None, "seed {seed}, {threads} threads of {chunk}");
            assert_eq!(found.free, expected.free, "seed {seed}, {threads} threads");
            assert_eq!(found.tree, expected.tree, "seed {seed}, {threads} threads");
        }
    }
}

/// What is told of the opening of a pool.
fn told(path: &Path, division: Division) -> Vec<Progress> {
    let list = Arc::new(Mutex::new(Vec::new()));
    let sink = list.clone();
    let options = Options {
        division,
        progress: Some(Arc::new(move |progress| {
            sink.lock().unwrap().push(progress)
        })),
        ..Options::default()
    };
    let mut pool = TestPool::adopt_with(path, options);
    let told = list.lock().unwrap().clone();
    // Nothing is told any more.
    pool.session().put("another", b"file").unwrap();
    pool.stop();
    assert_eq!(*list.lock().unwrap(), told);
    told
}

#[test]
fn how_far_an_opening_is_is_told() {
    let mut random = Random::new(7);
    let pool = random_pool(&mut random);
    let beside = tempfile::tempdir_in("/dev/shm").unwrap();
    for (threads, chunk) in [(1, 0), (1, 3), (4, 3)] {
        let path = copy(
            &pool.path(),
            beside.path().join(format!("{threads}-{chunk}")),
        );
        let division = Division { threads, chunk };
        let words = told(&path, division);
        // Never back, and each step to its end.
        assert!(
            words.is_sorted_by_key(|word| (word.step, word.done)),
            "{words:?}"
        );
        assert!(words.iter().all(|word| word.done <= word.all), "{words:?}");
        for step in [Step::Inodes, Step::Sessions] {
            let of: Vec<_> = words.iter().filter(|word| word.step == step).collect();
            let (first, last) = (of.first().unwrap(), of.last().unwrap());
            assert_eq!(first.done, 0, "{words:?}");
            assert_eq!(last.done, last.all, "{words:?}");
            assert!(last.all > 20, "{words:?}");
        }
        // Closed cleanly meanwhile: nobody left anything.
        let words = told(&path, division);
        assert!(
            words.iter().all(|word| word.step == Step::Inodes),
            "{words:?}"
        );
    }
}
