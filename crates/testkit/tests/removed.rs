//! What has been removed stays removed for whoever has it open, whatever is folded meanwhile, by whomever: in a removed
//! directory nothing is made, no handle is ever that of another file, and `..` never leads to another directory.
//!
//! `SEED=` and `ROUNDS=` say which storms, and how many of each kind.

use arck_controller::Options;
use arck_testkit::window::{Next, Window};
use arck_testkit::{Random, Shorthand, TestPool, connect_as};
use arckfs::{At, Errno, Failure, FileSystem, Handle};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const POOL: u64 = 64 << 20;

fn errno<T: std::fmt::Debug>(result: Result<T, Failure>) -> String {
    match result {
        Ok(value) => format!("done: {value:?}"),
        Err(failure) => format!("{failure:?}"),
    }
}

fn gone() -> String {
    format!("{:?}", Failure::from(Errno::NOENT))
}

fn mkdir(session: &FileSystem, path: &str) {
    let made = session.make_directory(At::Root, path.as_bytes(), 0o755);
    made.unwrap_or_else(|error| panic!("{path}: {error:?}"));
}

fn open_directory(session: &FileSystem, path: &str) -> Handle {
    session
        .open_at_root(path, libc::O_RDONLY | libc::O_DIRECTORY)
        .unwrap_or_else(|error| panic!("{path}: {error:?}"))
}

fn create_in(session: &FileSystem, directory: Handle, name: &str) -> Result<(), Failure> {
    let flags = libc::O_CREAT | libc::O_WRONLY;
    let made = session.open(At::Directory(directory), name.as_bytes(), flags, 0o644)?;
    session.close(made);
    Ok(())
}

fn expect_removed(session: &FileSystem, directory: Handle) {
    let status = session.stat_handle(directory).expect("a stat");
    assert_eq!(status.links, 0, "links of what was removed");
    assert_eq!(errno(create_in(session, directory, "late")), gone());
    let made = session.make_directory(At::Directory(directory), b"sub", 0o755);
    assert_eq!(errno(made), gone());
    assert_eq!(session.names_of(directory), Err(Errno::NOENT));
}

fn check(pool: &TestPool) {
    assert_eq!(pool.violations(), "");
}

/// Removes `p/d` between the seal of a fold and its end, where it need not wait for that; so many of the two have been
/// folded before.
fn removed_in_window(committed: usize, by_rename: bool) {
    let (pool, window) = Window::pool(POOL);
    let one = pool.session();
    for (place, path) in ["p", "p/d"].into_iter().enumerate() {
        mkdir(&one, path);
        if place < committed {
            one.fold(false).expect("a fold");
        }
    }
    one.put("p/other", b"x").expect("put");
    let open = open_directory(&one, "p/d");
    std::thread::scope(|scope| {
        if by_rename {
            mkdir(&one, "p/e");
        }
        window.open(scope, &one);
        let removing = scope.spawn(|| match by_rename {
            true => one.rename(At::Root, b"p/e", At::Root, b"p/d", 0),
            false => one.unlink(At::Root, b"p/d", libc::AT_REMOVEDIR),
        });
        std::thread::sleep(Duration::from_millis(100));
        window.close(Next::GoesOn);
        removing.join().unwrap().expect("removed");
        expect_removed(&one, open);
    });
    expect_removed(&one, open);
    one.put("p/more", b"x").expect("put");
    expect_removed(&one, open);
    one.fold(false).expect("a fold");
    expect_removed(&one, open);
    one.fold(true).expect("a fold");
    expect_removed(&one, open);
    one.close(open);
    let expected: &[&str] = if by_rename {
        &["d", "more", "other"]
    } else {
        &["more", "other"]
    };
    assert_eq!(one.names("p").unwrap(), expected);
    check(&pool);
}

#[test]
fn what_is_removed_while_a_fold_is_sealed_stays_removed() {
    for committed in 0..3 {
        for by_rename in [false, true] {
            removed_in_window(committed, by_rename);
        }
    }
}

/// Another session that has it open looks at it, or changes it, and so makes it be recalled alone.
#[test]
fn what_is_recalled_by_who_has_it_open_stays_removed() {
    for change in 0..5 {
        let pool = TestPool::new(POOL);
        let (one, two) = (pool.session(), pool.session());
        mkdir(&one, "p");
        mkdir(&one, "p/d");
        one.fold(true).expect("a fold");
        let (open, others) = (open_directory(&one, "p/d"), open_directory(&two, "p/d"));
        one.put("p/x", b"").expect("put");
        one.unlink(At::Root, b"p/d", libc::AT_REMOVEDIR)
            .expect("removed");
        expect_removed(&one, open);
        match change {
            0 => drop(two.stat_handle(others).expect("stat")),
            1 => drop(two.names_of(others)),
            2 => drop(create_in(&two, others, "z")),
            3 => drop(two.change_mode_handle(others, 0o700)),
            _ => (),
        }
        expect_removed(&one, open);
        one.put("p/y", b"").expect("put");
        expect_removed(&one, open);
        expect_removed(&two, others);
        one.fold(true).expect("a fold");
        expect_removed(&one, open);
        expect_removed(&two, others);
        check(&pool);
    }
}

const PARENTS: usize = 3;
const NAMES: usize = 3;

#[derive(Clone, Debug)]
struct Dir {
    /// `None`: removed.
    at: Option<(usize, usize)>,
    files: Vec<(String, usize)>,
}

#[derive(Clone, Debug)]
struct Content {
    content: Vec<u8>,
    links: u32,
}

struct World {
    sessions: Vec<FileSystem>,
    dirs: Vec<Dir>,
    files: Vec<Content>,
    /// Session, handle, directory.
    open_dirs: Vec<(usize, Handle, usize)>,
    open_files: Vec<(usize, Handle, usize)>,
    log: Vec<String>,
    /// Their numbers.
    parents: Vec<u64>,
}

impl World {
    fn dir_at(&self, at: (usize, usize)) -> Option<usize> {
        self.dirs.iter().position(|dir| dir.at == Some(at))
    }
    fn path((parent, name): (usize, usize)) -> String {
        format!("p{parent}/d{name}")
    }
    fn same<T: std::fmt::Debug>(
        &self,
        what: &str,
        got: Result<T, Failure>,
        expected: Result<(), Errno>,
    ) {
        let got = errno(got.map(drop));
        let expected = errno(expected.map_err(Failure::from));
        if got != expected {
            self.fail(&format!("{what}: {got}, not {expected}"));
        }
    }
    fn fail(&self, what: &str) -> ! {
        let from = self.log.len().saturating_sub(60);
        panic!("{what}\n{}", self.log[from..].join("\n"));
    }
    fn check_dir(&self, place: usize) {
        let (by, handle, dir) = self.open_dirs[place];
        let fs = &self.sessions[by];
        let what = format!("session {by}, directory {dir}");
        let status = fs
            .stat_handle(handle)
            .unwrap_or_else(|e| self.fail(&format!("{what} {e:?}")));
        let links = if self.dirs[dir].at.is_some() { 2 } else { 0 };
        if status.links != links {
            self.fail(&format!("{what}: {} links, not {links}", status.links));
        }
        let up = fs.stat(At::Directory(handle), b"..", 0);
        match (self.dirs[dir].at, &up) {
            (Some(at), Ok(up)) if self.parents[at.0] == up.inode => {}
            (None, Ok(up)) if self.parents.contains(&up.inode) => {}
            // What was removed before its parent was created may not find that any more.
            (None, Err(_)) => {}
            _ => self.fail(&format!("{what}: above is {up:?}")),
        }
        let names = fs.names_of(handle);
        let expected = match self.dirs[dir].at {
            None => Err(Errno::NOENT),
            Some(_) => {
                let mut names: Vec<String> =
                    self.dirs[dir].files.iter().map(|f| f.0.clone()).collect();
                names.sort();
                Ok(names)
            }
        };
        if names != expected {
            self.fail(&format!("{what}: {names:?}, not {expected:?}"));
        }
    }
    fn check_file(&self, place: usize) {
        let (by, handle, file) = self.open_files[place];
        let fs = &self.sessions[by];
        let what = format!("session {by}, file {file}");
        let status = fs
            .stat_handle(handle)
            .unwrap_or_else(|e| self.fail(&format!("{what} {e:?}")));
        let expected = &self.files[file];
        let mut got = vec![0; 9000];
        let length = fs
            .read(handle, &mut got, Some(0))
            .unwrap_or_else(|e| self.fail(&format!("{what} {e:?}")));
        got.truncate(length);
        if got != expected.content {
            self.fail(&format!(
                "{what}: {} bytes {:?}, not {} {:?}",
                length,
                got.first(),
                expected.content.len(),
                expected.content.first()
            ));
        }
        // Names that others have changed are counted when they are folded.
        if status.links != expected.links && self.sessions.len() == 1 {
            self.fail(&format!(
                "{what}: {} links, not {}",
                status.links, expected.links
            ));
        }
    }

    fn step(&mut self, random: &mut Random) {
        let by = random.below(self.sessions.len() as u64) as usize;
        let at = (
            random.below(PARENTS as u64) as usize,
            random.below(NAMES as u64) as usize,
        );
        let path = World::path(at);
        let there = self.dir_at(at);
        let what = random.below(100);
        self.log.push(format!("{by} {what} {path} {there:?}"));
        let fs = &self.sessions[by];
        match what {
            0..15 => {
                let made = fs.make_directory(At::Root, path.as_bytes(), 0o755);
                self.same("mkdir", made, there.map_or(Ok(()), |_| Err(Errno::EXIST)));
                if there.is_none() {
                    self.dirs.push(Dir {
                        at: Some(at),
                        files: vec![],
                    });
                    if random.percent(60) {
                        let handle = open_directory(fs, &path);
                        self.open_dirs.push((by, handle, self.dirs.len() - 1));
                    }
                }
            }
            15..30 => {
                let done = fs.unlink(At::Root, path.as_bytes(), libc::AT_REMOVEDIR);
                let expected = match there {
                    None => Err(Errno::NOENT),
                    Some(dir) if !self.dirs[dir].files.is_empty() => Err(Errno::NOTEMPTY),
                    Some(_) => Ok(()),
                };
                self.same("rmdir", done, expected);
                if expected.is_ok() {
                    self.dirs[there.unwrap()].at = None;
                }
            }
            30..38 => {
                // Renames a directory over another one.
                let to = (
                    if random.percent(70) {
                        at.0
                    } else {
                        random.below(PARENTS as u64) as usize
                    },
                    random.below(NAMES as u64) as usize,
                );
                let over = self.dir_at(to);
                let to_path = World::path(to);
                self.log.push(format!("   to {to_path} {over:?}"));
                let done = fs.rename(At::Root, path.as_bytes(), At::Root, to_path.as_bytes(), 0);
                let expected = match (there, over) {
                    (None, _) => Err(Errno::NOENT),
                    (Some(one), Some(other)) if one == other => Ok(()),
                    (_, Some(other)) if !self.dirs[other].files.is_empty() => Err(Errno::NOTEMPTY),
                    _ => Ok(()),
                };
                self.same("rename", done, expected);
                if expected.is_ok() && there != over {
                    if let Some(over) = over {
                        self.dirs[over].at = None;
                    }
                    self.dirs[there.unwrap()].at = Some(to);
                }
            }
            38..45 => {
                if let Some(dir) = there {
                    let handle = open_directory(fs, &path);
                    self.open_dirs.push((by, handle, dir));
                }
            }
            45..62 if !self.open_dirs.is_empty() => {
                // Makes a file by a handle.
                let place = random.below(self.open_dirs.len() as u64) as usize;
                let (by, handle, dir) = self.open_dirs[place];
                let fs = &self.sessions[by];
                let name = format!("f{}", random.below(3));
                self.log.push(format!(
                    "   create {name} by {by} in {dir} at {:?}",
                    self.dirs[dir].at
                ));
                let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
                let made = fs.open(At::Directory(handle), name.as_bytes(), flags, 0o644);
                let exists = self.dirs[dir].files.iter().any(|f| f.0 == name);
                let expected = match self.dirs[dir].at {
                    None => Err(Errno::NOENT),
                    Some(_) if exists => Err(Errno::EXIST),
                    Some(_) => Ok(()),
                };
                let file = made.as_ref().ok().copied();
                self.same("create", made, expected);
                if let Some(file) = file {
                    let content =
                        vec![(self.files.len() % 251 + 1) as u8; 1 + random.below(8192) as usize];
                    let written = self.sessions[by].write(file, &content, Some(0));
                    assert_eq!(written, Ok(content.len()));
                    self.files.push(Content { content, links: 1 });
                    let number = self.files.len() - 1;
                    self.dirs[dir].files.push((name, number));
                    self.open_files.push((by, file, number));
                }
            }
            62..75 => {
                // Unlinks a file.
                if let Some(dir) = there
                    && let Some((name, file)) = self.dirs[dir].files.pop()
                {
                    let done = fs.unlink(At::Root, format!("{path}/{name}").as_bytes(), 0);
                    self.same("unlink", done, Ok(()));
                    self.files[file].links -= 1;
                }
            }
            75..79 => {
                // Opens or links a file.
                if let Some(dir) = there
                    && let Some((name, file)) = self.dirs[dir].files.last().cloned()
                {
                    let from = format!("{path}/{name}");
                    if random.percent(50) {
                        let handle = fs
                            .open_at_root(&from, libc::O_RDWR)
                            .unwrap_or_else(|e| self.fail(&format!("{e:?}")));
                        self.open_files.push((by, handle, file));
                    } else {
                        let to = format!(
                            "p{}/d{}",
                            random.below(PARENTS as u64),
                            random.below(NAMES as u64)
                        );
                        let over: Vec<usize> =
                            to[1..].split("/d").map(|n| n.parse().unwrap()).collect();
                        if let Some(to_dir) = self.dir_at((over[0], over[1]))
                            && !self.dirs[to_dir].files.iter().any(|f| f.0 == "link")
                        {
                            let done = fs.link(
                                At::Root,
                                from.as_bytes(),
                                At::Root,
                                format!("{to}/link").as_bytes(),
                                0,
                            );
                            self.same("link", done, Ok(()));
                            self.files[file].links += 1;
                            self.dirs[to_dir].files.push(("link".into(), file));
                        }
                    }
                }
            }
            79..84 if !self.open_dirs.is_empty() => {
                let place = random.below(self.open_dirs.len() as u64) as usize;
                self.check_dir(place);
                let (by, handle, _) = self.open_dirs.swap_remove(place);
                self.sessions[by].close(handle);
            }
            84..89 if !self.open_files.is_empty() => {
                let place = random.below(self.open_files.len() as u64) as usize;
                self.check_file(place);
                let (by, handle, _) = self.open_files.swap_remove(place);
                self.sessions[by].close(handle);
            }
            89..91 if !self.open_dirs.is_empty() => {
                let place = random.below(self.open_dirs.len() as u64) as usize;
                let (by, handle, _) = self.open_dirs[place];
                let _ = self.sessions[by].change_mode_handle(handle, 0o755);
            }
            91..94 if !self.open_files.is_empty() => {
                let place = random.below(self.open_files.len() as u64) as usize;
                let (by, handle, _) = self.open_files[place];
                let _ = self.sessions[by].change_mode_handle(handle, 0o644);
            }
            94..97 => fs.fold(random.percent(30)).expect("a fold"),
            _ => {}
        }
        for _ in 0..2 {
            if !self.open_dirs.is_empty() {
                self.check_dir(random.below(self.open_dirs.len() as u64) as usize);
            }
            if !self.open_files.is_empty() {
                self.check_file(random.below(self.open_files.len() as u64) as usize);
            }
        }
    }
}

fn storm(seed: u64, groups: &[&[u8]], steps: usize, with_folds: bool, seal: bool) {
    let options = Options {
        seal_pages: if seal {
            1
        } else {
            Options::default().seal_pages
        },
        ..Options::default()
    };
    let pool = TestPool::with_options(POOL, options);
    let sessions: Vec<FileSystem> = groups
        .iter()
        .map(|group| match group.is_empty() {
            true => pool.session(),
            false => connect_as(&pool.path(), group),
        })
        .collect();
    let mut world = World {
        sessions,
        dirs: vec![],
        files: vec![],
        open_dirs: vec![],
        open_files: vec![],
        log: vec![format!("seed {seed}, {} sessions", groups.len())],
        parents: vec![],
    };
    for parent in 0..PARENTS {
        let path = format!("p{parent}");
        mkdir(&world.sessions[0], &path);
        world.parents.push(number(&world.sessions[0], &path).0);
    }
    let mut random = Random::new(seed);
    let over = AtomicBool::new(false);
    let folding: Vec<_> = world.sessions.iter().map(|s| s.session()).collect();
    std::thread::scope(|scope| {
        let _over = arck_testkit::StopAtEnd(&over);
        if with_folds {
            let over = &over;
            scope.spawn(move || {
                let mut random = Random::new(seed ^ 77);
                while !over.load(Ordering::Relaxed) {
                    let session = random.pick(&folding);
                    let _ = session.ask(&arck_protocol::Request::CommitAll {
                        release: random.percent(20),
                    });
                    std::thread::sleep(Duration::from_micros(random.below(1500)));
                }
            });
        }
        for _ in 0..steps {
            world.step(&mut random);
        }
        for place in 0..world.open_dirs.len() {
            world.check_dir(place);
        }
        for place in 0..world.open_files.len() {
            world.check_file(place);
        }
    });
    for (by, handle, _) in world.open_dirs.drain(..).chain(world.open_files.drain(..)) {
        world.sessions[by].close(handle);
    }
    for session in &world.sessions {
        session.fold(true).expect("a fold");
    }
    for dir in &world.dirs {
        if let Some(at) = dir.at {
            let mut names: Vec<String> = dir.files.iter().map(|f| f.0.clone()).collect();
            names.sort();
            assert_eq!(world.sessions[0].names(&World::path(at)).unwrap(), names);
            for (name, file) in &dir.files {
                let status = world.sessions[0]
                    .stat(
                        At::Root,
                        format!("{}/{name}", World::path(at)).as_bytes(),
                        0,
                    )
                    .unwrap();
                assert_eq!(status.links, world.files[*file].links, "seed {seed}");
            }
        }
    }
    assert_eq!(pool.violations(), "", "seed {seed}");
    drop(world);
    let mut pool = pool;
    pool.stop();
    let report = arck_check::check(&pool.path(), &arck_check::Options::default()).expect("a check");
    assert!(report.is_clean(), "seed {seed}: {:?}", report.findings);
}

fn storms(groups: &[&[u8]], with_folds: bool, seal: bool) {
    let rounds = std::env::var("ROUNDS").map_or(2, |r| r.parse().unwrap());
    let from = std::env::var("SEED").map_or(1, |r| r.parse().unwrap());
    for seed in from..from + rounds {
        storm(seed, groups, 1500, with_folds, seal);
    }
}

#[test]
fn storms_of_one_session() {
    storms(&[b""], false, false);
    storms(&[b""], true, false);
    storms(&[b""], true, true);
}
#[test]
fn storms_of_two_sessions() {
    storms(&[b"", b""], false, false);
    storms(&[b"", b""], true, true);
}
#[test]
fn storms_of_a_group() {
    storms(&[b"g", b"g"], true, true);
    storms(&[b"g", b"g", b""], true, true);
}

/// A directory in which names were made and removed had records, which a fold took; and who had it open, removed as it
/// was before it was created, was told ESTALE from then on.
#[test]
fn a_directory_with_records_that_dies_uncommitted_stays_open() {
    for release in [false, true] {
        let pool = TestPool::new(POOL);
        let one = pool.session();
        mkdir(&one, "p");
        one.fold(false).expect("a fold");
        mkdir(&one, "p/d");
        let open = open_directory(&one, "p/d");
        one.put("p/d/f", b"x").expect("put");
        one.unlink(At::Root, b"p/d/f", 0).expect("removed");
        one.unlink(At::Root, b"p/d", libc::AT_REMOVEDIR)
            .expect("removed");
        expect_removed(&one, open);
        one.fold(release).expect("a fold");
        expect_removed(&one, open);
        let status = one.stat_handle(open).expect("a stat");
        one.close(open);
        // Its number comes back.
        let comes_back = (0..500).any(|place| {
            let path = format!("p/{place}");
            mkdir(&one, &path);
            number(&one, &path).0 == status.inode
        });
        assert!(comes_back, "{release}");
        check(&pool);
    }
}

fn number(session: &FileSystem, path: &str) -> (u64, u32) {
    let status = session.stat(At::Root, path.as_bytes(), 0).expect("a stat");
    (status.inode, status.generation)
}

/// `..` of a removed directory, whose parent was removed too, led to whatever had got the parent's number.
#[test]
fn what_was_above_a_removed_directory_is_never_another_one() {
    for committed in [false, true] {
        let pool = TestPool::new(POOL);
        let one = pool.session();
        mkdir(&one, "p");
        mkdir(&one, "p/d");
        if committed {
            one.fold(false).expect("a fold");
        }
        let open = open_directory(&one, "p/d");
        let (above, generation) = number(&one, "p");
        for path in ["p/d", "p"] {
            one.unlink(At::Root, path.as_bytes(), libc::AT_REMOVEDIR)
                .expect("removed");
        }
        // Its records are over then, too.
        one.fold(committed).expect("a fold");
        let next = (0..2000).find_map(|place| {
            let path = format!("other{place}");
            mkdir(&one, &path);
            let (number, generation) = number(&one, &path);
            (number == above).then_some(generation)
        });
        assert_eq!(next, Some(generation + u32::from(committed)));
        let up = one.stat(At::Directory(open), b"..", 0);
        assert_eq!(errno(up.map(|up| up.inode)), gone());
        one.close(open);
        check(&pool);
    }
}

/// `..` of a removed directory leads to where it was as long as that is there, whoever folds it, or owns it.
#[test]
fn what_was_above_a_removed_directory_is_found_as_long_as_it_is_there() {
    for committed in 0..3 {
        let pool = TestPool::new(POOL);
        let (one, two) = (pool.session(), pool.session());
        mkdir(&one, "p");
        mkdir(&one, "p/d");
        if committed != 0 {
            one.fold(committed == 2).expect("a fold");
        }
        let open = open_directory(&one, "p/d");
        let others = open_directory(&two, "p/d");
        let of = number(&one, "p");
        let expect = |what: &str| {
            for (by, handle) in [(&one, open), (&two, others)] {
                let up = by.stat(At::Directory(handle), b"..", 0);
                let up = up.unwrap_or_else(|e| panic!("{committed} {what}: {e:?}"));
                assert_eq!((up.inode, up.generation), of, "{what}");
            }
        };
        one.unlink(At::Root, b"p/d", libc::AT_REMOVEDIR)
            .expect("removed");
        expect("removed");
        two.put("p/two", b"").expect("put");
        expect("taken");
        one.fold(true).expect("a fold");
        two.fold(true).expect("a fold");
        expect("folded");
        one.put("p/one", b"").expect("put");
        expect("taken again");
        one.rename(At::Root, b"p", At::Root, b"q", 0)
            .expect("renamed");
        expect("renamed");
        check(&pool);
    }
}
