//! Kills at every point of every commit: whatever a copy of the pool's files at that moment
//! holds, opening it gives a whole file system with all that had been folded, and then what the
//! sessions had left in their arenas.

mod common;

use arck_controller::{Controller, Options};
use arck_core_state::header::{COUNTED_MAX, HEADER_SIZE};
use arck_core_state::{FileKind, layout};
use arck_protocol::Request;
use common::check::{Tree, check};
use common::{Client, ROOT, TestPool};
use proptest::prelude::*;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Copies a pool, holes included.
fn snapshot(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp")
        .args(["-a", "--sparse=always"])
        .arg(from)
        .arg(to)
        .status()
        .unwrap();
    assert!(status.success());
}

fn recover(pool: &Path) -> Tree {
    Controller::open(pool, Options::default())
        .unwrap()
        .spawn()
        .unwrap()
        .stop()
        .unwrap();
    check(pool)
}

/// Who went on counting from there would overflow: it is damage, and told as that.
#[test]
fn numbers_that_nobody_has_counted_to_are_damage() {
    let pool = TestPool::new(16 << 20);
    pool.serve().stop().unwrap();
    let headers = std::fs::File::options()
        .read(true)
        .write(true)
        .open(pool.path().join(layout::HEADERS))
        .unwrap();
    let root = HEADER_SIZE as u64 * u64::from(ROOT);
    for (field, told) in [(0, "sequence"), (16, "fold number")] {
        let mut before = [0; 8];
        headers.read_exact_at(&mut before, root + field).unwrap();
        for value in [u64::MAX, u64::MAX - 1, COUNTED_MAX + 1] {
            headers
                .write_all_at(&value.to_le_bytes(), root + field)
                .unwrap();
            let opened = Controller::open(&pool.path(), Options::default());
            let error = opened.err().expect("it is damaged").to_string();
            assert!(error.contains(told), "{error}");
        }
        headers.write_all_at(&before, root + field).unwrap();
    }
    recover(&pool.path());
}

/// Options whose hook copies the pool at every point of every commit while `armed` is set.
struct Snapshots {
    taken: Arc<Mutex<Vec<(String, PathBuf)>>>,
    armed: Arc<AtomicUsize>,
}

impl Snapshots {
    fn new(pool: &TestPool) -> (Snapshots, Options) {
        let taken = Arc::new(Mutex::new(Vec::new()));
        let armed = Arc::new(AtomicUsize::new(0));
        let (from, folder) = (pool.path(), pool.directory.path().to_path_buf());
        let (list, switch) = (taken.clone(), armed.clone());
        let hook = move |point: &'static str| {
            if switch.load(Ordering::SeqCst) == 0 {
                return;
            }
            let mut list = list.lock().unwrap();
            let to = folder.join(format!("snapshot-{}", list.len()));
            snapshot(&from, &to);
            list.push((point.to_owned(), to));
        };
        let options = Options {
            crash_hook: Some(Arc::new(hook)),
            ..Options::default()
        };
        (Snapshots { taken, armed }, options)
    }

    /// Everything copied so far, checked one by one; so many times directories were sealed.
    fn check_all(&self, seals: usize, mut expect: impl FnMut(&str, &Tree)) {
        let taken = std::mem::take(&mut *self.taken.lock().unwrap());
        let sealed = taken.iter().filter(|(point, _)| point == "sealed");
        assert_eq!(sealed.count(), seals);
        assert!(!taken.is_empty());
        for (point, path) in taken {
            let tree = recover(&path);
            expect(&point, &tree);
            // Recovering twice changes nothing.
            assert_eq!(recover(&path), tree, "{point}");
            std::fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn a_killed_controller_loses_nothing() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let file = client.create(ROOT, b"file", FileKind::File);
    let directory = client.create(ROOT, b"directory", FileKind::Directory);
    client.commit(&[ROOT], false);
    let page = client.data_page(3).unwrap();
    client.write(file, 0, page);
    client.create(directory, b"inner", FileKind::File);
    client.create(ROOT, b"late", FileKind::File);
    client.create(ROOT, b"dead", FileKind::File);
    client.remove(ROOT, b"dead");
    controller.kill();
    drop(client);
    let controller = pool.serve();
    let client = Client::connect(&pool.path());
    assert_eq!(client.verified_byte(file, 0), Some(3));
    let tree = ["/directory", "/directory/inner", "/file", "/late"];
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.keys().collect::<Vec<_>>(), tree);
}

#[test]
fn every_point_of_a_commit_recovers() {
    let pool = TestPool::new(16 << 20);
    let (snapshots, options) = Snapshots::new(&pool);
    let controller = pool.serve_with(options);
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let directory = client.create(ROOT, b"d", FileKind::Directory);
    client.commit_all(false);
    for i in 0..300 {
        client.create(
            directory,
            format!("a long name, number {i}").as_bytes(),
            FileKind::File,
        );
    }
    let file = client.create(ROOT, b"f", FileKind::File);
    for page in [0, 1, 600] {
        let data = client.data_page(1).unwrap();
        client.write(file, page, data);
    }
    let all = |tree: &Tree| {
        assert_eq!(tree.paths.len(), 302);
        assert_eq!(tree.sizes["/f"], 601 * 4096);
    };
    // What has no room for sure is not sealed.
    let for_all = Request::MoreCredits {
        pages: 20,
        pressing: true,
    };
    client.done(&for_all);
    snapshots.armed.store(1, Ordering::SeqCst);
    client.commit(&[ROOT, directory, file], false);
    client.commit(&[file], true);
    client.acquire(&[file]);
    snapshots.armed.store(0, Ordering::SeqCst);
    snapshots.check_all(1, |_, tree| all(tree));

    // A name goes, and nothing else is to be folded.
    client.remove(directory, b"a long name, number 299");
    client.done(&for_all);
    snapshots.armed.store(1, Ordering::SeqCst);
    client.commit(&[directory], false);
    snapshots.armed.store(0, Ordering::SeqCst);
    snapshots.check_all(1, |point, tree| {
        assert_eq!(tree.paths.len(), 301, "{point}")
    });

    // Now names go, and the directory with them.
    for i in 0..299 {
        client.remove(directory, format!("a long name, number {i}").as_bytes());
    }
    client.truncate(file, 4096, 0);
    client.done(&for_all);
    snapshots.armed.store(1, Ordering::SeqCst);
    client.commit(&[directory, file], false);
    client.remove(ROOT, b"d");
    client.commit_all(true);
    snapshots.armed.store(0, Ordering::SeqCst);
    snapshots.check_all(1, |_, tree| {
        assert!((1..=2).contains(&tree.paths.len()), "{:?}", tree.paths);
        assert_eq!(tree.sizes["/f"], 4096);
    });
    client.goodbye();
    controller.stop().unwrap();
    check(&pool.path());
}

#[derive(Clone, Debug)]
enum Step {
    Create(usize, u8),
    Directory(usize, u8),
    Remove(usize, u8),
    Rename(usize, u8, usize, u8),
    Link(usize, u8, usize, u8),
    Write(usize, u8, u64),
    Truncate(usize, u8, u64),
    Fold(usize),
    FoldAll,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let name = 0u8..12;
    let place = 0usize..4;
    let step = prop_oneof![
        6 => (place.clone(), name.clone()).prop_map(|(d, n)| Step::Create(d, n)),
        2 => (place.clone(), name.clone()).prop_map(|(d, n)| Step::Directory(d, n)),
        4 => (place.clone(), name.clone()).prop_map(|(d, n)| Step::Remove(d, n)),
        4 => (place.clone(), name.clone(), place.clone(), name.clone())
            .prop_map(|(d, n, e, m)| Step::Rename(d, n, e, m)),
        2 => (place.clone(), name.clone(), place.clone(), name.clone())
            .prop_map(|(d, n, e, m)| Step::Link(d, n, e, m)),
        4 => (place.clone(), name.clone(), 0u64..700).prop_map(|(d, n, p)| Step::Write(d, n, p)),
        2 => (place.clone(), name.clone(), 0u64..700).prop_map(|(d, n, p)| Step::Truncate(d, n, p)),
        3 => place.prop_map(Step::Fold),
        1 => Just(Step::FoldAll),
        1 => Just(Step::Crash),
    ];
    prop::collection::vec(step, 1..60)
}

/// Runs steps against a pool and a map of paths; the map says what a program would see.
struct Walk {
    pool: TestPool,
    controller: Option<arck_controller::RunningController>,
    client: Option<Client>,
    /// Living directories: path, number.
    directories: Vec<(String, u32)>,
    model: std::collections::BTreeMap<String, (u32, FileKind)>,
    sizes: std::collections::BTreeMap<u32, u64>,
}

impl Walk {
    fn new() -> Walk {
        let pool = TestPool::new(16 << 20);
        let controller = pool.serve();
        let client = Client::connect(&pool.path());
        client.acquire(&[ROOT]);
        Walk {
            pool,
            controller: Some(controller),
            client: Some(client),
            directories: vec![(String::new(), ROOT)],
            model: Default::default(),
            sizes: Default::default(),
        }
    }

    fn at(&self, directory: usize, name: u8) -> (u32, String, Vec<u8>) {
        let (path, number) = &self.directories[directory % self.directories.len()];
        let name = format!("name {name}").repeat(1 + usize::from(name) * 3);
        (*number, format!("{path}/{name}"), name.into_bytes())
    }

    /// Owns what is touched; a fold may have killed nothing of it.
    fn own(&self, number: u32) {
        let client = self.client.as_ref().unwrap();
        if client.header(number).ownership().session() != client.welcome.session {
            client.acquire(&[number]);
        }
    }

    fn is_empty(&self, path: &str) -> bool {
        let below = format!("{path}/");
        !self.model.keys().any(|other| other.starts_with(&below))
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Create(d, n) | Step::Directory(d, n) => {
                let (parent, path, name) = self.at(d, n);
                if self.model.contains_key(&path) {
                    return;
                }
                let kind = match step {
                    Step::Create(..) => FileKind::File,
                    _ => FileKind::Directory,
                };
                self.own(parent);
                let number = self.client.as_mut().unwrap().create(parent, &name, kind);
                if kind == FileKind::Directory {
                    self.directories.push((path.clone(), number));
                }
                // The number may have been a file's that is gone.
                self.sizes.remove(&number);
                self.model.insert(path, (number, kind));
            }
            Step::Remove(d, n) => {
                let (parent, path, name) = self.at(d, n);
                let Some(&(number, kind)) = self.model.get(&path) else {
                    return;
                };
                if kind == FileKind::Directory {
                    if !self.is_empty(&path) {
                        return;
                    }
                    self.own(number);
                    self.directories.retain(|(_, other)| *other != number);
                }
                self.own(parent);
                self.client.as_mut().unwrap().remove(parent, &name);
                self.model.remove(&path);
            }
            Step::Rename(d, n, e, m) => {
                let (from, from_path, from_name) = self.at(d, n);
                let (to, to_path, to_name) = self.at(e, m);
                let Some(&(number, kind)) = self.model.get(&from_path) else {
                    return;
                };
                let target = self.model.get(&to_path).copied();
                // Directories only within their parent and onto nothing, here.
                if from_path == to_path
                    || target.is_some_and(|(other, _)| other == number)
                    || (kind == FileKind::Directory && (from != to || target.is_some()))
                    || target.is_some_and(|(_, other)| other == FileKind::Directory)
                {
                    return;
                }
                if kind == FileKind::Directory && !self.is_empty(&from_path) {
                    return;
                }
                self.own(from);
                self.own(to);
                if let Some((other, _)) = target {
                    self.own(other);
                }
                let client = self.client.as_mut().unwrap();
                let room = |a: u32, b: u32| {
                    let partners = client.branch(a).partners;
                    a == b || partners.contains(&b) || partners.contains(&0)
                };
                if !room(from, to) || !room(to, from) {
                    return;
                }
                client.rename((from, &from_name), (to, &to_name));
                self.model.remove(&from_path);
                self.model.insert(to_path.clone(), (number, kind));
                for (path, directory) in &mut self.directories {
                    if *directory == number {
                        *path = to_path.clone();
                    }
                }
            }
            Step::Link(d, n, e, m) => {
                let (_, from_path, _) = self.at(d, n);
                let (to, to_path, to_name) = self.at(e, m);
                let Some(&(number, FileKind::File)) = self.model.get(&from_path) else {
                    return;
                };
                if self.model.contains_key(&to_path) {
                    return;
                }
                self.own(number);
                self.own(to);
                let client = self.client.as_mut().unwrap();
                let partners = client.branch(number).partners;
                if !partners.contains(&to) && !partners.contains(&0) {
                    return;
                }
                client.link(number, FileKind::File, to, &to_name);
                self.model.insert(to_path, (number, FileKind::File));
            }
            Step::Write(d, n, page) => {
                let (_, path, _) = self.at(d, n);
                let Some(&(number, FileKind::File)) = self.model.get(&path) else {
                    return;
                };
                self.own(number);
                let client = self.client.as_mut().unwrap();
                let data = client.data_page(page as u8).unwrap();
                client.write(number, page, data);
                let size = self.sizes.entry(number).or_default();
                *size = (*size).max((page + 1) * 4096);
            }
            Step::Truncate(d, n, pages) => {
                let (_, path, _) = self.at(d, n);
                let Some(&(number, FileKind::File)) = self.model.get(&path) else {
                    return;
                };
                self.own(number);
                let client = self.client.as_mut().unwrap();
                client.truncate(number, pages * 4096, 700);
                self.sizes.insert(number, pages * 4096);
            }
            Step::Fold(d) => {
                let number = self.directories[d % self.directories.len()].1;
                self.client.as_mut().unwrap().commit(&[number], false);
            }
            Step::FoldAll => self.client.as_mut().unwrap().commit_all(true),
            Step::Crash => {
                self.controller.take().unwrap().kill();
                self.client = None;
                self.compare(true);
                self.controller = Some(self.pool.serve());
                self.client = Some(Client::connect(&self.pool.path()));
            }
        }
    }

    /// What recovery makes of the pool is what the map says.
    fn compare(&self, recovers: bool) {
        let tree = if recovers {
            recover(&self.pool.path())
        } else {
            check(&self.pool.path())
        };
        let wanted: Vec<(String, u32)> = self
            .model
            .iter()
            .map(|(path, (number, _))| (path.clone(), *number))
            .collect();
        let found: Vec<(String, u32)> = tree.paths.clone().into_iter().collect();
        assert_eq!(found, wanted);
        for (path, (number, kind)) in &self.model {
            if *kind == FileKind::File {
                let size = self.sizes.get(number).copied().unwrap_or(0);
                assert_eq!(tree.sizes[path], size, "{path}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_equals_its_model(steps in steps()) {
        let mut walk = Walk::new();
        for step in &steps {
            walk.step(step);
        }
        walk.client.take().unwrap().goodbye();
        walk.controller.take().unwrap().stop().unwrap();
        walk.compare(false);
    }
}
