//! The API beside a model, with ArckFS on the same files in between; bad input; threads; a controller that
//! dies and comes back.

use arck_kvfs::{Batch, Error, Options, Store, VALUE_MAX};
use arck_libfs_kit::Session;
use arck_libfs_kit::messages::Request;
use arck_testkit::{Shorthand, TestPool, connect};
use arckfs::{At, FileSystem};
use proptest::prelude::*;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn store(pool: &TestPool) -> Store {
    let options = Options {
        make: true,
        ..Options::new(pool.path())
    };
    Store::open(options, "values").expect("a store")
}

const KEYS: [&str; 6] = ["a", "b", "c", "a longer key", "d.txt", "\u{e9}"];

fn value(length: usize, fill: u8) -> Vec<u8> {
    (0..length).map(|at| fill ^ (at / 7 % 256) as u8).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Get(usize),
    Set(usize, usize, u8),
    Delete(usize),
    Batch(Vec<(usize, Option<(usize, u8)>)>),
    List,
    /// By ArckFS, in a session of its own: over the file, in place, read, unlink, rename.
    Put(usize, usize, u8),
    Overwrite(usize, u8),
    Look(usize),
    Unlink(usize),
    Rename(usize, usize),
    Fold,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let key = || 0..KEYS.len();
    let length = || {
        prop_oneof![
            Just(0),
            Just(1),
            Just(4095),
            Just(4096),
            Just(4097),
            Just(VALUE_MAX),
            0..VALUE_MAX
        ]
    };
    let change = (key(), prop::option::of((length(), any::<u8>())));
    let step = prop_oneof![
        3 => key().prop_map(Step::Get),
        4 => (key(), length(), any::<u8>()).prop_map(|(k, l, f)| Step::Set(k, l, f)),
        1 => key().prop_map(Step::Delete),
        1 => prop::collection::vec(change, 0..6).prop_map(Step::Batch),
        1 => Just(Step::List),
        1 => (key(), length(), any::<u8>()).prop_map(|(k, l, f)| Step::Put(k, l, f)),
        1 => (key(), any::<u8>()).prop_map(|(k, f)| Step::Overwrite(k, f)),
        1 => key().prop_map(Step::Look),
        1 => key().prop_map(Step::Unlink),
        1 => (key(), key()).prop_map(|(from, to)| Step::Rename(from, to)),
        1 => Just(Step::Fold),
    ];
    prop::collection::vec(step, 1..60)
}

fn path(key: usize) -> String {
    format!("values/{}", KEYS[key])
}

fn check(pool: &TestPool, steps: &[Step]) {
    let (store, other) = (store(pool), pool.session());
    let mut model: BTreeMap<usize, Vec<u8>> = BTreeMap::new();
    for step in steps {
        match step {
            Step::Get(key) => {
                let got = store.get(KEYS[*key].as_bytes()).expect("get");
                assert!(got.as_ref() == model.get(key), "{step:?}");
            }
            &Step::Set(key, length, fill) => {
                let value = value(length, fill);
                store.set(KEYS[key].as_bytes(), &value).expect("set");
                model.insert(key, value);
            }
            Step::Delete(key) => {
                let was_there = store.delete(KEYS[*key].as_bytes()).expect("delete");
                assert_eq!(was_there, model.remove(key).is_some(), "{step:?}");
            }
            Step::Batch(changes) => {
                let values: Vec<_> = changes
                    .iter()
                    .map(|(key, change)| (*key, change.map(|(length, fill)| value(length, fill))))
                    .collect();
                let mut batch = Batch::new();
                for (key, value) in &values {
                    match value {
                        Some(value) => batch.set(KEYS[*key].as_bytes(), value),
                        None => batch.delete(KEYS[*key].as_bytes()),
                    };
                }
                store.apply(&batch).expect("a batch");
                for (key, value) in values {
                    match value {
                        Some(value) => model.insert(key, value),
                        None => model.remove(&key),
                    };
                }
            }
            Step::List => {
                let mut keys = store.list().expect("list");
                keys.sort();
                let keyed = model.keys().map(|key| KEYS[*key].as_bytes().to_vec());
                let mut wanted: Vec<Vec<u8>> = keyed.collect();
                wanted.sort();
                assert_eq!(keys, wanted);
            }
            &Step::Put(key, length, fill) => {
                other.put(&path(key), &value(length, fill)).expect("put");
                model.insert(key, value(length, fill));
            }
            &Step::Overwrite(key, fill) => {
                let opened = other.open_at_root(&path(key), libc::O_WRONLY);
                assert_eq!(opened.is_ok(), model.contains_key(&key), "{step:?}");
                if let (Ok(file), Some(before)) = (opened, model.get_mut(&key)) {
                    other.write(file, &[fill; 10], Some(3)).expect("write");
                    other.close(file);
                    before.resize(before.len().max(13), 0);
                    before[3..13].fill(fill);
                }
                if model.get(&key).is_some_and(|value| value.len() > VALUE_MAX) {
                    model.remove(&key);
                    other
                        .unlink(At::Root, path(key).as_bytes(), 0)
                        .expect("unlink");
                }
            }
            Step::Look(key) => {
                let read = other.get(&path(*key)).ok();
                assert!(read.as_ref() == model.get(key), "{step:?}");
            }
            Step::Unlink(key) => {
                let done = other.unlink(At::Root, path(*key).as_bytes(), 0);
                assert_eq!(done.is_ok(), model.remove(key).is_some(), "{step:?}");
            }
            &Step::Rename(from, to) => {
                let done = other.rename(
                    At::Root,
                    path(from).as_bytes(),
                    At::Root,
                    path(to).as_bytes(),
                    0,
                );
                assert_eq!(done.is_ok(), model.contains_key(&from), "{step:?}");
                if let Some(value) = model.remove(&from) {
                    model.insert(to, value);
                }
            }
            Step::Fold => other.fold(false).expect("a fold"),
        }
    }
    for (key, name) in KEYS.iter().enumerate() {
        let got = store.get(name.as_bytes()).expect("get");
        assert!(got.as_ref() == model.get(&key), "{name} at the end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn a_store_is_a_map_whoever_else_uses_its_files(steps in steps()) {
        // The pool asserts that nothing was refused.
        check(&TestPool::new(128 << 20), &steps);
    }
}

#[test]
fn what_is_no_key_or_no_value_is_told() {
    let pool = TestPool::new(64 << 20);
    let (store, other) = (store(&pool), pool.session());
    let long = [b'k'; 256];
    let keys: [(&[u8], Errno); 6] = [
        (b"", Errno::INVAL),
        (b".", Errno::INVAL),
        (b"..", Errno::INVAL),
        (b"a/b", Errno::INVAL),
        (b"a\0b", Errno::INVAL),
        (&long, Errno::NAMETOOLONG),
    ];
    for (key, errno) in keys {
        let told = |error: Error| {
            let line = error.to_string();
            assert!(line.contains("is no key") && !line.contains('\n'), "{line}");
            error.errno()
        };
        assert_eq!(store.get(key).map_err(told), Err(errno), "{key:?}");
        assert_eq!(store.set(key, b"").map_err(told), Err(errno), "{key:?}");
        assert_eq!(store.delete(key).map_err(told), Err(errno), "{key:?}");
    }
    store.set(&long[1..], b"longest").expect("255 bytes");
    assert_eq!(
        store.get(&long[1..]).unwrap().as_deref(),
        Some(&b"longest"[..])
    );

    // A value too large, set or found; what was there stays.
    store.set(b"k", b"before").expect("set");
    let large = vec![1; VALUE_MAX + 1];
    let error = store.set(b"k", &large).unwrap_err();
    assert_eq!(error.errno(), Errno::FBIG);
    assert!(error.to_string().contains("32768 bytes at most"), "{error}");
    let mut batch = Batch::new();
    batch.set(b"first", b"1").set(b"k", &large);
    assert_eq!(store.apply(&batch).unwrap_err().errno(), Errno::FBIG);
    assert_eq!(store.get(b"first").unwrap(), None, "nothing of the batch");
    assert_eq!(store.get(b"k").unwrap().as_deref(), Some(&b"before"[..]));
    other.put("values/large", &large).expect("put");
    assert_eq!(store.get(b"large").unwrap_err().errno(), Errno::FBIG);
    store
        .set(b"large", b"small")
        .expect("a large file is replaced");
    assert_eq!(other.get("values/large").unwrap(), b"small");

    // Names of other things.
    other
        .make_directory(At::Root, b"values/dir", 0o755)
        .unwrap();
    other.symlink(b"k", At::Root, b"values/link").unwrap();
    for (key, errno) in [(&b"dir"[..], Errno::ISDIR), (b"link", Errno::LOOP)] {
        assert_eq!(store.get(key).unwrap_err().errno(), errno);
        assert_eq!(store.set(key, b"v").unwrap_err().errno(), errno);
        assert_eq!(store.delete(key).unwrap_err().errno(), errno);
    }
    let error = store.get(b"dir").unwrap_err();
    assert!(
        error.to_string().starts_with("dir is a directory"),
        "{error}"
    );
    let names: Vec<_> = (0..=Batch::MAX).map(|key| key.to_string()).collect();
    let mut batch = Batch::new();
    for name in &names {
        batch.delete(name.as_bytes());
    }
    assert_eq!(store.apply(&batch).unwrap_err().errno(), Errno::TOOBIG);
    assert_eq!(store.apply(&Batch::new()).unwrap(), 0);
    // The directory goes.
    let gone = Store::open(
        Options {
            make: true,
            ..Options::new(pool.path())
        },
        "gone",
    )
    .unwrap();
    other.unlink(At::Root, b"gone", libc::AT_REMOVEDIR).unwrap();
    assert_eq!(gone.set(b"k", b"v").unwrap_err().errno(), Errno::NOENT);
    assert_eq!(gone.get(b"k").unwrap_err().errno(), Errno::NOENT);
}

#[test]
fn what_cannot_be_opened_is_told() {
    let mut pool = TestPool::new(64 << 20);
    pool.session().put("file", b"").unwrap();
    let open = |pool: &TestPool, path: &str| {
        Store::open(Options::new(pool.path()), path)
            .map(|_| ())
            .map_err(|error| (error.errno(), error.to_string()))
    };
    assert!(open(&pool, "").is_ok(), "the root");
    for (path, errno) in [
        ("nothing", Errno::NOENT),
        ("file", Errno::NOTDIR),
        ("..", Errno::INVAL),
    ] {
        let (told, line) = open(&pool, path).unwrap_err();
        assert_eq!(told, errno, "{line}");
        assert!(line.contains(&format!("directory {path}")), "{line}");
    }
    pool.stop();
    let (told, line) = open(&pool, "").unwrap_err();
    assert_eq!(told, Errno::CONNREFUSED);
    assert!(line.contains("nobody serves this pool; start"), "{line}");
    let none = Store::open(Options::new("/dev/shm/no-such-pool"), "");
    assert_eq!(none.map(|_| ()).unwrap_err().errno(), Errno::NOENT);
}

/// A set keeps the permission bits that were; who has the file before open, or another name for it, keeps
/// that.
#[test]
fn the_file_before_is_left_to_those_who_have_it() {
    let pool = TestPool::new(64 << 20);
    let (store, other) = (store(&pool), pool.session());
    let mode = |path: &str| other.stat(At::Root, path.as_bytes(), 0).unwrap().mode & 0o7777;
    store.set(b"k", b"one").unwrap();
    assert_eq!(mode("values/k"), 0o644);
    other.change_mode(At::Root, b"values/k", 0o600, 0).unwrap();
    other
        .link(At::Root, b"values/k", At::Root, b"values/h", 0)
        .unwrap();
    let open = other.open_at_root("values/k", libc::O_RDONLY).unwrap();
    for round in 0..2 {
        store.set(b"k", &[round; 5000]).unwrap();
        assert_eq!(mode("values/k"), 0o600);
        assert_eq!(other.get("values/k").unwrap(), [round; 5000]);
        let mut buffer = [0; 10];
        assert_eq!(other.read(open, &mut buffer, Some(0)).unwrap(), 3);
        assert_eq!(&buffer[..3], b"one");
        assert_eq!(store.get(b"h").unwrap().as_deref(), Some(&b"one"[..]));
    }
    assert_eq!(other.stat(At::Root, b"values/h", 0).unwrap().links, 1);
}

/// A value that says by each of its words what it is: which key, and the how-manieth.
fn whole(key: u64, count: u64) -> Vec<u8> {
    let word = (key << 48 | count).to_le_bytes();
    word.repeat(1 + (count as usize * 997) % (VALUE_MAX / 8))
}

fn assert_whole(key: u64, value: &[u8]) -> u64 {
    let word = u64::from_le_bytes(*value.first_chunk().expect("a word"));
    let count = word & ((1 << 48) - 1);
    assert!(
        value == whole(key, count),
        "key {key}: a mixture near {count}"
    );
    count
}

/// Two threads set and take away the same few keys, in batches and alone, while a third and a session of
/// ArckFS read: what they read is one value, and never an older one than before.
#[test]
fn threads_see_whole_values() {
    let pool = TestPool::new(256 << 20);
    let store = store(&pool);
    let other = pool.session();
    let ended = AtomicBool::new(false);
    const ROUNDS: u64 = 3000;
    std::thread::scope(|scope| {
        let (store, other, ended) = (&store, &other, &ended);
        let writers: Vec<_> = (0..2u64)
            .map(|thread| {
                scope.spawn(move || {
                    for count in 1..ROUNDS {
                        let own = [thread, thread + 2].map(|key| (key, whole(key, count)));
                        let names = own.each_ref().map(|(key, _)| format!("key-{key}"));
                        let mut batch = Batch::new();
                        for (name, (_, value)) in names.iter().zip(&own) {
                            batch.set(name.as_bytes(), value);
                        }
                        match count % 3 {
                            0 => store.apply(&batch).map(|_| ()).unwrap(),
                            _ => store.set(names[0].as_bytes(), &own[0].1).unwrap(),
                        }
                        store
                            .set(b"shared", &whole(9, thread * ROUNDS + count))
                            .unwrap();
                        if count % 7 == 0 {
                            store.delete(b"shared").unwrap();
                        }
                    }
                })
            })
            .collect();
        scope.spawn(move || {
            let mut last = [0; 4];
            let mut value = [0; VALUE_MAX];
            let mut seen = 0u64;
            while !ended.load(Ordering::Relaxed) {
                for key in 0..4u64 {
                    let name = format!("key-{key}");
                    if let Some(length) = store.get_into(name.as_bytes(), &mut value).unwrap() {
                        let count = assert_whole(key, &value[..length]);
                        assert!(count >= last[key as usize], "key {key} went back");
                        last[key as usize] = count;
                        seen += 1;
                    }
                }
                if let Some(length) = store.get_into(b"shared", &mut value).unwrap() {
                    assert_whole(9, &value[..length]);
                }
            }
            assert!(seen > 100, "{seen}");
        });
        scope.spawn(move || read_by_files(other, ended));
        for writer in writers {
            writer.join().expect("a writer");
        }
        ended.store(true, Ordering::Relaxed);
    });
    for key in 0..2u64 {
        let value = store.get(format!("key-{key}").as_bytes()).unwrap().unwrap();
        assert_eq!(assert_whole(key, &value), ROUNDS - 1);
    }
}

fn read_by_files(other: &FileSystem, ended: &AtomicBool) {
    while !ended.load(Ordering::Relaxed) {
        for key in 0..4u64 {
            // Not there yet.
            if let Ok(value) = other.get(&format!("values/key-{key}")) {
                assert_whole(key, &value);
            }
        }
    }
}

/// A reader holds on to nothing: while it copies, the file it reads may be replaced, its pages given back,
/// and filled with the next value.
#[test]
fn pages_that_are_used_again_are_no_value() {
    let pool = TestPool::new(64 << 20);
    let store = store(&pool);
    store.set(b"k", &whole(1, 1)).unwrap();
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut value = [0; VALUE_MAX];
                    while !ended.load(Ordering::Relaxed) {
                        let length = store.get_into(b"k", &mut value).unwrap().expect("a value");
                        assert_whole(1, &value[..length]);
                    }
                })
            })
            .collect();
        for count in 1..6000 {
            store.set(b"k", &whole(1, count)).unwrap();
        }
        ended.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().expect("a reader"));
    });
}

#[test]
fn a_controller_that_is_killed_and_comes_back_loses_nothing() {
    let mut pool = TestPool::new(128 << 20);
    let store = store(&pool);
    for round in 0..4u64 {
        for key in 0..50u64 {
            store
                .set(format!("{key}").as_bytes(), &whole(key, round * 50 + key))
                .unwrap();
        }
        pool.kill();
        // Nobody is asked for what this session owns.
        store.set(b"meanwhile", &whole(7, round)).unwrap();
        assert_eq!(store.get(b"meanwhile").unwrap(), Some(whole(7, round)));
        pool.serve();
        for key in 0..50u64 {
            let value = store.get(format!("{key}").as_bytes()).unwrap();
            assert_eq!(value, Some(whole(key, round * 50 + key)), "round {round}");
        }
    }
    drop(store);
    let other = connect(&pool.path());
    assert_eq!(other.get("values/meanwhile").unwrap(), whole(7, 3));
    assert_eq!(other.names("values").unwrap().len(), 51);
}

/// The trial on the first kit said ENOSPC with half of the pool free, since it did not follow up on the room
/// that it lacked; and a session that sets the same key over and over used up its numbers and pages.
#[test]
fn a_pool_is_used_up_and_goes_on_after_deletes() {
    let pool = TestPool::new(64 << 20);
    let store = store(&pool);
    for (round, pages) in [(0, 2), (1, 3), (2, 5)] {
        let mut set = 0u32;
        let error = loop {
            let value = vec![round; pages << 12];
            match store.set(format!("{set}").as_bytes(), &value) {
                Ok(()) => set += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.errno(), Errno::NOSPC, "{error}");
        let bytes = set as usize * (pages << 12);
        assert!(
            bytes > 40 << 20,
            "round {round}: {set} values of {pages} pages in 64 MiB"
        );
        assert_eq!(store.list().unwrap().len() as u32, set);
        for key in 0..set {
            assert!(store.delete(format!("{key}").as_bytes()).unwrap());
        }
        assert!(store.list().unwrap().is_empty());
    }
    for count in 0..20_000 {
        store.set(b"again", &whole(3, count)).unwrap();
    }
}

/// Values of several pages are set by two threads while all of the session is folded over and over. (A fold of all
/// marks inodes that are on their way, too: the branch of one that was not committed after all could not be ended, and
/// its index page was another value's in the next attempt. Both branches led there, and both deltas were refused.)
#[test]
fn what_is_not_born_while_all_is_folded_leaves_its_contents() {
    for pause in [0, 0, 0, 100, 500] {
        set_while_all_is_folded(Duration::from_micros(pause));
    }
}

/// `pause`: between two folds.
fn set_while_all_is_folded(pause: Duration) {
    let pool = TestPool::new(256 << 20);
    let session = Session::connect(&pool.path()).expect("a session");
    let store = Store::within(session, "").expect("a store");
    let folds = std::thread::scope(|scope| {
        let set_and_get = |thread: u64| {
            let store = &store;
            scope.spawn(move || {
                for count in 0..20_000 {
                    let key = format!("{thread} {}", count % 7);
                    let bytes = value(5000 + count * 3331 % 27_000, count as u8);
                    store.set(key.as_bytes(), &bytes).expect("set");
                    let read = store.get(key.as_bytes()).expect("get");
                    assert_eq!(read.as_deref(), Some(&*bytes), "{key}");
                }
            })
        };
        let workers = [0, 1].map(set_and_get);
        let mut folds = 0;
        while workers.iter().any(|worker| !worker.is_finished()) {
            let all = Request::CommitAll { release: false };
            match session.ask(&all) {
                Ok(()) => folds += 1,
                // Operations were in the middle of something.
                Err(Errno::AGAIN) => {}
                Err(other) => panic!("a fold: {other}"),
            }
            std::thread::sleep(pause);
        }
        folds
    });
    assert!(folds > 100, "{folds} folds: nothing was folded meanwhile");
    assert_eq!(pool.violations(), "");
}

#[test]
fn what_does_not_fit_is_told_and_not_read() {
    let pool = TestPool::new(64 << 20);
    let store = store(&pool);
    store.set(b"a", &value(5000, 3)).expect("set");
    let mut room = vec![9; 5000];
    let mut get = |length: usize| store.get_if_fits(b"a", &mut room[..length]).expect("get");
    assert_eq!([0, 1, 4999, 5000].map(&mut get), [Some(5000); 4]);
    assert_eq!(room, value(5000, 3));
    let mut room = [9; 4999];
    assert_eq!(store.get_if_fits(b"a", &mut room).expect("get"), Some(5000));
    assert_eq!(room, [9; 4999]);
    assert_eq!(store.get_if_fits(b"b", &mut []).expect("get"), None);
    store.set(b"a", b"").expect("set");
    assert_eq!(store.get_if_fits(b"a", &mut []).expect("get"), Some(0));

    let files = connect(&pool.path());
    let handle = files
        .open(At::Root, b"values/a", libc::O_RDWR, 0)
        .expect("open");
    files
        .truncate_handle(handle, VALUE_MAX as u64 + 1)
        .expect("longer");
    let refused = store.get_if_fits(b"a", &mut []).expect_err("no value");
    assert_eq!(refused.errno(), Errno::FBIG);
}

/// Keys whose values have lengths of their own are set anew all the time, so that their inodes change places: nobody is
/// told the length of another one's.
#[test]
fn lengths_are_of_the_key_that_was_asked_for() {
    let pool = TestPool::new(64 << 20);
    let store = store(&pool);
    let ends = AtomicBool::new(false);
    let all = [(&b"short"[..], 10), (b"middle", 5000), (b"long", 20_000)];
    for (key, length) in all {
        store.set(key, &value(length, 1)).expect("set");
    }
    std::thread::scope(|scope| {
        for turn in 0..2 {
            let (store, ends) = (&store, &ends);
            scope.spawn(move || {
                while !ends.load(Ordering::Relaxed) {
                    let (key, length) = all[turn];
                    store.set(key, &value(length, 1)).expect("set");
                    let (key, length) = all[2 - turn];
                    store.set(key, &value(length, 1)).expect("set");
                }
            });
        }
        for turn in 0..60_000 {
            let (key, length) = all[turn % 3];
            let told = store.get_if_fits(key, &mut [0; 4]);
            if !matches!(told, Ok(Some(told)) if told == length) {
                ends.store(true, Ordering::Relaxed);
                panic!("{told:?}, not {length}");
            }
        }
        ends.store(true, Ordering::Relaxed);
    });
}
