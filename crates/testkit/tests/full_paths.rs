//! Where paths lead, by each resolver: what is remembered of a path is never told when it is not so any more, whoever
//! has changed what is on the way.

use arck_testkit::{Random, Shorthand, TestPool, connect_with};
use arckfs::{At, Errno, Failure, FileSystem, Resolver};
use std::collections::BTreeSet;

const SIZE: u64 = 256 << 20;

fn make(session: &FileSystem, path: &str) -> Result<(), Failure> {
    session.make_directory(At::Root, path.as_bytes(), 0o755)
}

fn make_all(session: &FileSystem, path: &str) {
    let ends = path.match_indices('/').map(|(end, _)| end);
    for end in ends.chain([path.len()]) {
        match make(session, &path[..end]) {
            Ok(()) | Err(Failure::Errno(Errno::EXIST)) => {}
            Err(failure) => panic!("{}: {failure:?}", &path[..end]),
        }
    }
}

fn rename(session: &FileSystem, from: &str, to: &str) -> Result<(), Failure> {
    session.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0)
}

fn inode(session: &FileSystem, path: &str) -> Result<u64, Errno> {
    match session.stat(At::Root, path.as_bytes(), 0) {
        Ok(found) => Ok(found.inode),
        Err(Failure::Errno(errno)) => Err(errno),
        Err(Failure::Outside(path)) => panic!("outside: {path:?}"),
    }
}

/// A path so deep, of names so long.
fn deep(levels: usize, length: usize) -> String {
    let name = |level: usize| format!("{level:0length$}");
    (0..levels).map(name).collect::<Vec<_>>().join("/")
}

#[test]
fn however_deep_and_long_a_path_is() {
    for resolver in Resolver::ALL {
        for (levels, length) in [
            (1, 1),
            (9, 3),
            (10, 3),
            (23, 3),
            (24, 3),
            (25, 3),
            (50, 9),
            (100, 30),
            (3, 95),
            (3, 96),
            (15, 255),
        ] {
            let pool = TestPool::new(SIZE);
            let session = connect_with(&pool.path(), b"", resolver);
            let path = deep(levels, length);
            make_all(&session, &path);
            let file = format!("{path}/file");
            for round in 0..3 {
                let text = format!("{levels} {length} {round}");
                session.put(&file, text.as_bytes()).expect(&text);
                assert_eq!(session.get(&file).expect(&text), text.as_bytes());
                if round == 1 {
                    session.fold(true).expect("a fold");
                }
            }
            // The uppermost has another name: all below it have other paths.
            rename(&session, &path[..length], "other").expect("a rename");
            assert_eq!(inode(&session, &file), Err(Errno::NOENT), "{resolver:?}");
            let moved = format!("other{}", &file[length..]);
            assert!(inode(&session, &moved).is_ok(), "{resolver:?} {levels}");
            assert_eq!(pool.violations(), "");
        }
    }
}

/// Many more directories than any resolver remembers.
#[test]
fn of_more_directories_than_are_remembered() {
    for resolver in Resolver::ALL {
        let pool = TestPool::new(SIZE);
        let session = connect_with(&pool.path(), b"", resolver);
        let path = |outer: u32, inner: u32| format!("{outer}/{inner}");
        let all = (0..20).flat_map(|outer| (0..1_000).map(move |inner| (outer, inner)));
        for (outer, inner) in all.clone() {
            make_all(&session, &path(outer, inner));
            let file = format!("{}/file", path(outer, inner));
            let made = session.open_at_root(&file, libc::O_CREAT | libc::O_WRONLY);
            session.close(made.expect(&file));
        }
        let mut inodes = BTreeSet::new();
        for round in 0..2 {
            for (outer, inner) in all.clone() {
                let file = format!("{}/file", path(outer, inner));
                let found = inode(&session, &file).expect(&file);
                assert_eq!(inodes.insert(found), round == 0, "{resolver:?} {file}");
            }
        }
    }
}

/// What a path led to, and leads to when something on its way was changed by this session, by another one, or by
/// another process of its group.
#[test]
fn what_is_on_the_way_is_changed_by_anybody() {
    for resolver in Resolver::ALL {
        for who in ["the session", "another session", "another member"] {
            let pool = TestPool::new(SIZE);
            let group = b"together";
            let session = connect_with(&pool.path(), group, resolver);
            let other = match who {
                "the session" => None,
                "another session" => Some(connect_with(&pool.path(), b"", Resolver::Tree)),
                _ => Some(connect_with(&pool.path(), group, resolver)),
            };
            let changing = other.as_ref().unwrap_or(&session);
            let path = "a/b/c/d/e";
            make_all(&session, path);
            session.put("a/b/c/d/e/file", b"first").expect("put");
            let get = || {
                session
                    .get("a/b/c/d/e/file")
                    .map_err(|failure| format!("{failure:?}"))
            };
            let gone = Err(format!("{:?}", Failure::Errno(Errno::NOENT)));
            let said = format!("{resolver:?}, by {who}");
            assert_eq!(get().as_deref(), Ok(&b"first"[..]), "{said}");
            rename(changing, "a/b", "a/x").expect("rename");
            assert_eq!(get(), gone, "renamed: {said}");
            rename(changing, "a/x", "a/b").expect("rename");
            assert_eq!(get().as_deref(), Ok(&b"first"[..]), "back: {said}");
            // Another directory in its place.
            rename(changing, "a/b/c", "aside").expect("rename");
            make_all(changing, "a/b/c/d/e");
            assert_eq!(get(), gone, "another: {said}");
            changing.put("a/b/c/d/e/file", b"second").expect("put");
            assert_eq!(get().as_deref(), Ok(&b"second"[..]), "{said}");
            // A link in its place, and a file.
            rename(changing, "a/b/c", "second").expect("rename");
            changing
                .symlink(b"../../aside", At::Root, b"a/b/c")
                .expect("a link");
            assert_eq!(get().as_deref(), Ok(&b"first"[..]), "by a link: {said}");
            changing.unlink(At::Root, b"a/b/c", 0).expect("unlink");
            changing.put("a/b/c", b"no directory").expect("put");
            let none = Err(format!("{:?}", Failure::Errno(Errno::NOTDIR)));
            assert_eq!(get(), none, "a file: {said}");
            changing.unlink(At::Root, b"a/b/c", 0).expect("unlink");
            // The last one goes and comes.
            make_all(changing, path);
            assert_eq!(get(), gone, "{said}");
            changing.put("a/b/c/d/e/file", b"third").expect("put");
            assert_eq!(get().as_deref(), Ok(&b"third"[..]), "{said}");
            changing
                .unlink(At::Root, b"a/b/c/d/e/file", 0)
                .expect("unlink");
            let removed = changing.unlink(At::Root, b"a/b/c/d/e", libc::AT_REMOVEDIR);
            removed.expect("rmdir");
            assert_eq!(get(), gone, "removed: {said}");
            let made = session
                .put("a/b/c/d/e/file", b"")
                .map_err(|failure| format!("{failure:?}"));
            assert_eq!(made, gone.map(|_: Vec<u8>| ()), "made there: {said}");
            assert_eq!(pool.violations(), "", "{said}");
        }
    }
}

/// Two sessions of random file systems make, move and remove directories and files by turns; each finds all that the
/// model has, and nothing else.
#[test]
fn by_turns_with_another_session() {
    let seed: u64 = std::env::var("ARCK_SEED").map_or(1, |seed| seed.parse().expect("a number"));
    for seed in seed..seed + 6 {
        for resolver in Resolver::ALL {
            turns(seed, resolver);
        }
    }
}

fn turns(seed: u64, resolver: Resolver) {
    let mut random = Random::new(seed);
    let pool = TestPool::new(SIZE);
    let sessions = [
        connect_with(&pool.path(), b"first", resolver),
        connect_with(&pool.path(), b"first", resolver),
        connect_with(&pool.path(), b"", Resolver::FullPaths),
    ];
    // Directories end with a slash.
    let mut model: BTreeSet<String> = BTreeSet::from([String::new()]);
    for step in 0..600 {
        let said = format!("seed {seed}, {resolver:?}, step {step}");
        let session = &sessions[random.below(3) as usize];
        let pick = |model: &BTreeSet<String>, random: &mut Random, directory: bool| {
            let all: Vec<&String> = model
                .iter()
                .filter(|path| (path.ends_with('/') || path.is_empty()) == directory)
                .collect();
            let at = random.below(all.len().max(1) as u64) as usize;
            all.get(at).map(|path| (*path).clone())
        };
        let within = pick(&model, &mut random, true).expect("the root");
        let name = format!("{within}{}", random.below(4));
        let is_there = model.contains(&name) || model.contains(&format!("{name}/"));
        match random.below(8) {
            0..3 if within.matches('/').count() < 30 => {
                let made = make(session, &name);
                assert_eq!(made.is_ok(), !is_there, "{said}: mkdir {name}: {made:?}");
                if !is_there {
                    model.insert(format!("{name}/"));
                }
            }
            3 => {
                if !model.contains(&format!("{name}/")) {
                    session.put(&name, b"").expect(&said);
                    model.insert(name);
                }
            }
            4 | 5 => {
                let Some(from) = pick(&model, &mut random, true).filter(|from| !from.is_empty())
                else {
                    continue;
                };
                let into_itself = name.starts_with(&from) || format!("{name}/") == from;
                let moved = rename(session, from.trim_end_matches('/'), &name);
                if is_there || into_itself {
                    // An empty directory may be replaced.
                    let replaced = format!("{name}/");
                    let is_empty = model.contains(&replaced)
                        && !model
                            .iter()
                            .any(|path| path.starts_with(&replaced) && *path != replaced);
                    assert_eq!(
                        moved.is_ok(),
                        (is_empty && !into_itself) || replaced == from,
                        "{said}: {from} {name}: {moved:?}"
                    );
                    if moved.is_err() || replaced == from {
                        continue;
                    }
                    model.remove(&replaced);
                } else {
                    moved.expect(&said);
                }
                let below: Vec<String> = model
                    .iter()
                    .filter(|path| path.starts_with(&from))
                    .cloned()
                    .collect();
                for path in below {
                    model.remove(&path);
                    model.insert(format!("{name}/{}", &path[from.len()..]));
                }
            }
            6 => {
                if let Some(file) = pick(&model, &mut random, false) {
                    let removed = session.unlink(At::Root, file.as_bytes(), 0);
                    removed.expect(&said);
                    model.remove(&file);
                }
            }
            _ => {
                if let Some(path) = pick(&model, &mut random, true).filter(|path| !path.is_empty())
                {
                    let removed = session.unlink(
                        At::Root,
                        path.trim_end_matches('/').as_bytes(),
                        libc::AT_REMOVEDIR,
                    );
                    let is_empty = !model
                        .iter()
                        .any(|other| other.starts_with(&path) && *other != path);
                    assert_eq!(
                        removed.is_ok(),
                        is_empty,
                        "{said}: rmdir {path}: {removed:?}"
                    );
                    if is_empty {
                        model.remove(&path);
                    }
                }
            }
        }
        // What was there once, and is not, is looked for as well.
        let looking = &sessions[random.below(3) as usize];
        for path in model.iter().filter(|path| !path.is_empty()) {
            let found = inode(looking, path.trim_end_matches('/'));
            assert!(found.is_ok(), "{said}: {path}: {found:?}");
            let beside = format!("{}x", path.trim_end_matches('/'));
            assert_eq!(
                inode(looking, &beside),
                Err(Errno::NOENT),
                "{said}: {beside}"
            );
        }
    }
    assert_eq!(pool.violations(), "");
}

/// A group has one file system, and says so to who wants another.
#[test]
fn a_group_has_one() {
    for (theirs, ours) in [
        (Resolver::Tree, Resolver::FullPaths),
        (Resolver::FullPaths, Resolver::Tree),
    ] {
        let pool = TestPool::new(SIZE);
        let _first = connect_with(&pool.path(), b"group", theirs);
        let refused = FileSystem::connect(&arckfs::ConnectOptions {
            pool: pool.path(),
            mount: b"/arck".to_vec(),
            group: b"group".to_vec(),
            resolver: ours,
        });
        let Err(refused) = refused else {
            panic!("{ours:?} joined {theirs:?}");
        };
        assert_eq!(refused.errno, Errno::BUSY);
        let said = refused.to_string();
        for part in ["group", theirs.name(), ours.name(), "--own-group"] {
            assert!(said.contains(part), "{said}");
        }
        // Who has the same joins.
        drop(connect_with(&pool.path(), b"group", theirs));
        drop(connect_with(&pool.path(), b"another", ours));
    }
}

/// Root's programs of one group, of which one has given up what lets root search everything: it is told so, whatever the
/// other has walked. Needs root.
#[test]
fn who_may_not_search_is_not_led_by_who_may() {
    for resolver in Resolver::ALL {
        let pool = TestPool::new(SIZE);
        let (path, group) = (pool.path(), b"roots");
        let session = connect_with(&path, group, resolver);
        make_all(&session, "a/b/c");
        session.put("a/b/c/file", b"text").expect("put");
        let at = (At::Root, &b"a/b"[..]);
        session
            .change_owner(at.0, at.1, 1234, 1234, 0)
            .expect("chown");
        session.change_mode(at.0, at.1, 0o700, 0).expect("chmod");
        assert!(inode(&session, "a/b/c/file").is_ok(), "{resolver:?}");
        // Capabilities are a thread's, and who opens a session is looked at then.
        let weak = std::thread::spawn(move || {
            give_up_searching();
            let session = connect_with(&path, group, resolver);
            inode(&session, "a/b/c/file")
        });
        assert_eq!(
            weak.join().expect("an answer"),
            Err(Errno::ACCESS),
            "{resolver:?}"
        );
        assert!(inode(&session, "a/b/c/file").is_ok(), "{resolver:?}");
    }
}

/// CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH are no longer this thread's.
fn give_up_searching() {
    let (head, mut sets) = ([0x2008_0522_u32, 0], [0_u32; 6]);
    // SAFETY: the kernel reads two words, and writes or reads six.
    unsafe {
        assert_eq!(
            libc::syscall(libc::SYS_capget, head.as_ptr(), sets.as_mut_ptr()),
            0
        );
        sets[0] &= !(1 << 1 | 1 << 2);
        assert_eq!(
            libc::syscall(libc::SYS_capset, head.as_ptr(), sets.as_ptr()),
            0
        );
    }
}
