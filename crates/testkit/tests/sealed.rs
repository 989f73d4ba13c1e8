//! What an owner does while what it has done is folded: its directory is sealed, and it goes on (DESIGN section 5).
//!
//! The controller stops at the instant behind the seal, as long as a test wants.

use arck_controller::Options;
use arck_testkit::window::{Next, Window};
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, FileSystem};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

const SIZE: u64 = 256 << 20;

/// What is in two directories, `a` and `b`: contents of files, `None` for directories.
type Model = BTreeMap<String, Option<Vec<u8>>>;

fn tree(session: &FileSystem) -> Model {
    let mut found = Model::new();
    for directory in ["a", "b"] {
        for name in session.names(directory).expect("names") {
            let path = format!("{directory}/{name}");
            let status = session.stat(At::Root, path.as_bytes(), 0).expect(&path);
            let is_directory = status.mode & libc::S_IFMT == libc::S_IFDIR;
            let content = (!is_directory).then(|| session.get(&path).expect(&path));
            found.insert(path, content);
        }
    }
    found
}

fn rename(session: &FileSystem, from: &str, to: &str) {
    session
        .rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0)
        .unwrap_or_else(|failure| panic!("{from} to {to}: {failure:?}"));
}

fn unlink(session: &FileSystem, path: &str, flags: i32) {
    session
        .unlink(At::Root, path.as_bytes(), flags)
        .unwrap_or_else(|failure| panic!("{path}: {failure:?}"));
}

fn link(session: &FileSystem, from: &str, to: &str) {
    session
        .link(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0)
        .unwrap_or_else(|failure| panic!("{from} as {to}: {failure:?}"));
}

/// Names that are verified, then changes of them that are sealed: renamed, removed, linked, made.
fn begin(owner: &FileSystem) -> Model {
    for directory in ["a", "b"] {
        let made = owner.make_directory(At::Root, directory.as_bytes(), 0o755);
        made.expect("mkdir");
        for name in 0..40 {
            let path = format!("{directory}/verified {name}");
            owner.put(&path, path.as_bytes()).expect("put");
        }
        let made = owner.make_directory(At::Root, format!("{directory}/inner").as_bytes(), 0o755);
        made.expect("mkdir");
    }
    for name in 24..28 {
        link(
            owner,
            &format!("a/verified {name}"),
            &format!("b/linked {name}"),
        );
    }
    owner.fold(false).expect("fold");
    // Each has been sealed once, and has what it needs for the next time; and there is a stock of all else, so
    // that the controller is not asked while it stands still.
    for directory in ["a", "b"] {
        let path = |name| format!("{directory}/stock {name}");
        (0..30).for_each(|name| owner.put(&path(name), b"stock").expect("put"));
        owner.fold(false).expect("fold");
        (0..30).for_each(|name| unlink(owner, &path(name), 0));
        owner.fold(false).expect("fold");
        owner.put(&path(0), b"stock").expect("put");
        unlink(owner, &path(0), 0);
    }
    let mut model = tree(owner);
    let mut moved = |from: &str, to: &str| {
        rename(owner, from, to);
        let content = model.remove(from).expect(from);
        model.insert(to.to_owned(), content);
    };
    for name in 0..10 {
        moved(&format!("a/verified {name}"), &format!("a/renamed {name}"));
        moved(
            &format!("a/verified {}", name + 10),
            &format!("b/moved {name}"),
        );
    }
    // It takes a verified name away.
    moved("a/verified 20", "a/verified 21");
    for path in [
        "a/verified 22",
        "a/verified 23",
        "b/verified 22",
        "b/linked 27",
    ] {
        unlink(owner, path, 0);
        model.remove(path);
    }
    model
}

/// One of each kind of change, of names that are sealed in each state: what stands, in one that was renamed, moved,
/// linked, removed. None touches what is not verified yet, or has changed itself.
fn change_in_window(owner: &FileSystem, model: &mut Model) {
    let put = |model: &mut Model, path: &str| {
        owner.put(path, path.as_bytes()).expect(path);
        model.insert(path.to_owned(), Some(path.as_bytes().to_vec()));
    };
    let moved = |model: &mut Model, from: &str, to: &str| {
        rename(owner, from, to);
        let content = model.remove(from).expect(from);
        model.insert(to.to_owned(), content);
    };
    let gone = |model: &mut Model, path: &str| {
        unlink(owner, path, 0);
        model.remove(path).expect(path);
    };
    // New names, also such as were removed, or renamed away.
    for path in [
        "a/new",
        "b/new",
        "a/verified 0",
        "a/verified 22",
        "b/verified 22",
    ] {
        put(model, path);
    }
    // A name that comes and goes.
    put(model, "a/short");
    gone(model, "a/short");
    // Again a name that was removed, which goes again.
    put(model, "a/verified 23");
    gone(model, "a/verified 23");
    gone(model, "a/renamed 1");
    gone(model, "b/moved 1");
    gone(model, "a/verified 24");
    gone(model, "b/linked 25");
    moved(model, "a/renamed 2", "a/renamed again");
    moved(model, "a/renamed 3", "a/verified 3");
    moved(model, "b/moved 2", "a/moved back");
    moved(model, "b/verified 5", "b/verified 6");
    moved(model, "a/renamed 4", "a/renamed 5");
    moved(model, "a/new", "b/new");
    put(model, "a/new");
    for (from, to) in [
        ("a/renamed 6", "a/linked again"),
        ("b/linked 26", "a/linked 26"),
    ] {
        link(owner, from, to);
        model.insert(to.to_owned(), model[from].clone());
    }
    owner
        .make_directory(At::Root, b"a/made", 0o755)
        .expect("mkdir");
    model.insert("a/made".to_owned(), None);
    unlink(owner, "b/inner", libc::AT_REMOVEDIR);
    model.remove("b/inner");
    rename(owner, "a/inner", "a/inner again");
    model.remove("a/inner");
    model.insert("a/inner again".to_owned(), None);
    // What is in a file that is verified.
    owner.put("a/verified 30", b"written").expect("put");
    model.insert("a/verified 30".to_owned(), Some(b"written".to_vec()));
    let links = |path: &str| owner.stat(At::Root, path.as_bytes(), 0).expect(path).links;
    assert_eq!(links("b/linked 24"), 1);
    assert_eq!((links("a/verified 26"), links("a/verified 27")), (3, 1));
    assert_eq!(links("a/linked again"), 2);
    assert_eq!((links("a"), links("b")), (4, 2));
}

#[test]
fn the_owner_goes_on_while_its_directories_are_sealed() {
    let (mut pool, window) = Window::pool(SIZE);
    let owner = pool.session();
    let mut model = begin(&owner);
    std::thread::scope(|scope| {
        window.open(scope, &owner);
        assert_eq!(tree(&owner), model, "sealed");
        change_in_window(&owner, &mut model);
        assert_eq!(tree(&owner), model, "changed beside it");
        window.close(Next::GoesOn);
    });
    assert_eq!(tree(&owner), model, "behind it");
    assert_eq!(tree(&pool.session()), model, "to others");
    pool.kill();
    drop(owner);
    pool.serve();
    assert_eq!(tree(&pool.session()), model, "after a crash");
}

/// What has a name only in what is sealed is marked until that is verified state. It can be looked at, and its names
/// taken away and moved; nobody takes its number before.
#[test]
fn what_is_created_in_what_is_sealed_is_there() {
    let (mut pool, window) = Window::pool(SIZE);
    let owner = pool.session();
    let mut model = begin(&owner);
    let path = |name: usize| format!("a/fresh {name}");
    for name in 0..40 {
        let content = match name % 2 {
            0 => Vec::new(),
            _ => path(name).into_bytes(),
        };
        owner.put(&path(name), &content).expect("put");
        model.insert(path(name), Some(content));
    }
    let fresh: Vec<u64> = (0..40).map(|name| inode(&owner, &path(name))).collect();
    std::thread::scope(|scope| {
        window.open(scope, &owner);
        let header = |number: u64| owner.session().header(number as u32).expect("a header");
        let is_marked = || {
            fresh
                .iter()
                .all(|&number| header(number).ownership().is_marked())
        };
        assert!(is_marked(), "what is sealed names them");
        assert_eq!(tree(&owner), model, "sealed");
        let open = owner.open_at_root(&path(0), libc::O_RDONLY).expect("open");
        for name in 0..10 {
            unlink(&owner, &path(name), 0);
            model.remove(&path(name));
            // Within the directory, and to another.
            for (from, to) in [
                (path(name + 10), format!("a/old {name}")),
                (path(name + 20), format!("b/old {name}")),
            ] {
                rename(&owner, &from, &to);
                let content = model.remove(&from).expect("there");
                model.insert(to, content);
            }
            let later = format!("a/later {name}");
            owner.put(&later, b"later").expect("put");
            assert!(
                !fresh.contains(&inode(&owner, &later)),
                "its number is another's"
            );
            model.insert(later, Some(b"later".to_vec()));
        }
        owner.close(open);
        assert_eq!(tree(&owner), model, "changed beside it");
        assert!(is_marked(), "it was over");
        window.close(Next::GoesOn);
    });
    assert_eq!(tree(&owner), model, "behind it");
    assert_eq!(tree(&pool.session()), model, "to others");
    // What lost its name in the window is nobody's by then, and its number somebody's.
    owner.fold(false).expect("fold");
    for name in 0..10 {
        let path = format!("b/last {name}");
        owner.put(&path, b"last").expect("put");
        model.insert(path, Some(b"last".to_vec()));
    }
    assert_eq!(tree(&owner), model, "with new ones");
    assert_eq!(pool.violations(), "");
    pool.kill();
    drop(owner);
    pool.serve();
    assert_eq!(tree(&pool.session()), model, "after a crash");
}

/// What changes it waits until what is sealed is verified state.
#[test]
fn what_is_created_in_what_is_sealed_changes_later() {
    let (pool, window) = Window::pool(SIZE);
    let owner = pool.session();
    let mut model = begin(&owner);
    for name in 0..2 {
        let path = format!("a/fresh {name}");
        owner.put(&path, path.as_bytes()).expect("put");
        model.insert(path.clone(), Some(path.into_bytes()));
    }
    let done = AtomicU64::new(0);
    std::thread::scope(|scope| {
        window.open(scope, &owner);
        scope.spawn(|| {
            owner.put("a/fresh 0", b"written").expect("put");
            done.fetch_add(1, Ordering::SeqCst);
        });
        scope.spawn(|| {
            link(&owner, "a/fresh 1", "a/linked");
            done.fetch_add(1, Ordering::SeqCst);
        });
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(done.load(Ordering::SeqCst), 0, "nothing was waited for");
        window.close(Next::GoesOn);
    });
    model.insert("a/fresh 0".to_owned(), Some(b"written".to_vec()));
    let content = model["a/fresh 1"].clone();
    model.insert("a/linked".to_owned(), content);
    assert_eq!(tree(&owner), model);
    assert_eq!(tree(&pool.session()), model);
    assert_eq!(pool.violations(), "");
}

/// The machine fails behind the seal, when there is an active delta beside the sealed one.
#[test]
fn both_deltas_are_there_after_a_failure() {
    let (pool, window) = Window::pool(SIZE);
    let owner = pool.session();
    let mut model = begin(&owner);
    let copy = tempfile::tempdir_in("/dev/shm").unwrap();
    std::thread::scope(|scope| {
        window.open(scope, &owner);
        change_in_window(&owner, &mut model);
        snapshot(&pool.path(), copy.path());
        window.close(Next::GoesOn);
    });
    let recovered = TestPool::adopt(copy.path());
    assert_eq!(tree(&recovered.session()), model);
    drop(recovered);
    assert_eq!(tree(&owner), model);
}

/// The controller dies behind the seal; the owner lives on, and the next controller folds what is sealed first.
#[test]
fn an_owner_outlives_a_controller_that_dies_behind_the_seal() {
    for changes_first in [false, true] {
        let (mut pool, window) = Window::pool(SIZE);
        let owner = pool.session();
        let mut model = begin(&owner);
        for path in ["a/fresh", "a/gone"] {
            owner.put(path, b"fresh").expect("put");
            model.insert(path.to_owned(), Some(b"fresh".to_vec()));
        }
        std::thread::scope(|scope| {
            window.open(scope, &owner);
            if changes_first {
                change_in_window(&owner, &mut model);
            }
            window.close(Next::Dies);
            pool.kill();
            // What is sealed creates both: one is changed when it is verified state, the other ends then.
            unlink(&owner, "a/gone", 0);
            let waits = scope.spawn(|| owner.put("a/fresh", b"changed"));
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waits.is_finished(), "what is sealed creates it");
            pool.serve();
            waits.join().unwrap().expect("put");
        });
        model.remove("a/gone");
        model.insert("a/fresh".to_owned(), Some(b"changed".to_vec()));
        if !changes_first {
            change_in_window(&owner, &mut model);
        }
        assert_eq!(tree(&owner), model);
        assert_eq!(tree(&pool.session()), model);
        pool.kill();
        drop(owner);
        pool.serve();
        assert_eq!(tree(&pool.session()), model, "after a crash");
    }
}

/// Copies a pool as it lies there.
fn snapshot(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            std::fs::create_dir(&target).unwrap();
            snapshot(&entry.path(), &target);
        } else if kind.is_file() {
            let made = std::process::Command::new("cp")
                .arg("--sparse=always")
                .args([&entry.path(), &target])
                .status();
            assert!(made.unwrap().success(), "{target:?}");
        }
    }
}

/// Random changes by one thread and by two, beside folds that take their time behind each seal.
#[test]
fn random_changes_beside_what_is_sealed() {
    let seed = std::env::var("ARCK_SEALED_SEED").map_or(1, |seed| seed.parse().unwrap());
    println!("ARCK_SEALED_SEED={seed}");
    let in_window = Arc::new(AtomicBool::new(false));
    let windows = Arc::new(AtomicU64::new(0));
    let (flag, count) = (in_window.clone(), windows.clone());
    let options = Options {
        crash_hook: Some(Arc::new(move |point| {
            if point == "sealed" {
                flag.store(true, Ordering::SeqCst);
                std::thread::sleep(Duration::from_millis(1));
                flag.store(false, Ordering::SeqCst);
                count.fetch_add(1, Ordering::SeqCst);
            }
        })),
        seal_pages: 1,
        owned_kept: usize::MAX,
        ..Options::default()
    };
    let mut pool = TestPool::with_options(SIZE, options);
    let owner = pool.session();
    for directory in ["a", "b"] {
        let made = owner.make_directory(At::Root, directory.as_bytes(), 0o755);
        made.expect("mkdir");
    }
    owner.fold(false).expect("fold");
    let (stop, during) = (AtomicBool::new(false), AtomicU64::new(0));
    let models: Vec<Model> = std::thread::scope(|scope| {
        let reader = pool.session();
        let stop = &stop;
        scope.spawn(move || {
            while !stop.load(Ordering::SeqCst) {
                let _ = reader.names("a");
                let _ = reader.names("b");
            }
        });
        let threads = (0..2u64).map(|thread| {
            let (owner, in_window, during) = (&owner, &in_window, &during);
            scope.spawn(move || {
                let mut random = Random::new(seed * 2 + thread);
                let mut model = Model::new();
                for step in 0..6000 {
                    let began = in_window.load(Ordering::SeqCst);
                    random_change(owner, &mut random, &mut model, thread, step);
                    if began && in_window.load(Ordering::SeqCst) {
                        during.fetch_add(1, Ordering::SeqCst);
                    }
                    if step % 500 == 0 {
                        let own = |path: &String| path.contains(&format!("/{thread} "));
                        let found = tree_of(owner, own);
                        assert_eq!(found, model, "thread {thread}, step {step}");
                    }
                }
                model
            })
        });
        let threads: Vec<_> = threads.collect();
        let models = threads.into_iter().map(|thread| thread.join());
        let models: Vec<_> = models.collect();
        stop.store(true, Ordering::SeqCst);
        models
            .into_iter()
            .map(|model| model.expect("a thread"))
            .collect()
    });
    let model: Model = models.into_iter().flatten().collect();
    assert_eq!(tree(&owner), model);
    assert_eq!(tree(&pool.session()), model);
    let (windows, during) = (
        windows.load(Ordering::SeqCst),
        during.load(Ordering::SeqCst),
    );
    println!("{windows} seals, {during} changes within them");
    assert!(
        windows > 20 && during > 200,
        "{windows} seals, {during} changes"
    );
    pool.kill();
    drop(owner);
    pool.serve();
    assert_eq!(tree(&pool.session()), model);
}

fn tree_of(session: &FileSystem, own: impl Fn(&String) -> bool) -> Model {
    let mut found = Model::new();
    for directory in ["a", "b"] {
        for name in session.names(directory).expect("names") {
            let path = format!("{directory}/{name}");
            if own(&path) {
                let content = session.get(&path).expect(&path);
                found.insert(path, Some(content));
            }
        }
    }
    found
}

/// A change of names that are this thread's, of which there are some tens.
fn random_change(
    session: &FileSystem,
    random: &mut Random,
    model: &mut Model,
    thread: u64,
    step: u64,
) {
    let path = |random: &mut Random| {
        let directory = random.pick(&["a", "b"]).to_owned();
        format!("{directory}/{thread} {}", random.below(24))
    };
    let (one, two) = (path(random), path(random));
    match (random.below(6), model.contains_key(&one)) {
        (0 | 1, _) => {
            let content = format!("{one} of {step}").into_bytes();
            session.put(&one, &content).expect(&one);
            // What has other names too is written for all of them.
            let shared = model.get(&one).cloned();
            match shared {
                Some(_) => write_to_all(session, model, &one, &content),
                None => drop(model.insert(one, Some(content))),
            }
        }
        (2 | 3, true) => {
            unlink(session, &one, 0);
            model.remove(&one);
        }
        (4, true) if one != two && !is_same(session, model, &one, &two) => {
            rename(session, &one, &two);
            let content = model.remove(&one).unwrap();
            model.insert(two, content);
        }
        (5, true) if !model.contains_key(&two) => {
            link(session, &one, &two);
            model.insert(two, model[&one].clone());
        }
        _ => {}
    }
}

fn inode(session: &FileSystem, path: &str) -> u64 {
    session
        .stat(At::Root, path.as_bytes(), 0)
        .expect(path)
        .inode
}

fn is_same(session: &FileSystem, model: &Model, one: &str, two: &str) -> bool {
    model.contains_key(two) && inode(session, one) == inode(session, two)
}

fn write_to_all(session: &FileSystem, model: &mut Model, path: &str, content: &[u8]) {
    let written = inode(session, path);
    let status = session.stat(At::Root, path.as_bytes(), 0).expect(path);
    let mut names = 0;
    for (other, known) in model.iter_mut() {
        if inode(session, other) == written {
            *known = Some(content.to_vec());
            names += 1;
        }
    }
    assert_eq!(status.links, names, "{path}");
}
