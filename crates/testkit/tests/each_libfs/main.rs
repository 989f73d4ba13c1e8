//! What holds for every LibFS, over all that there are (`LIBFSES`), alone and beside each other on one pool: they
//! do what a directory of tmpfs does; what a crash leaves is what had returned; what one of them corrupts is refused, and
//! takes nothing from others. What fails says which LibFS it was. Logs are beside them.

mod corrupt;
mod crash;
mod differential;
mod logs;
mod room;

use arck_testkit::Random;
use arck_testkit::under_test::{Change, Files};
use std::fmt::{Debug, Formatter};
use std::path::Path;

/// Names that files get.
const NAMES: [&str; 6] = ["a", "b", "c", "a longer name", "d.txt", "\u{e9}"];
/// Lengths that they get: none, about a page, the most that KVFS has.
const LENGTHS: [u64; 7] = [0, 1, 4095, 4096, 4097, 20_000, 32_768];

/// What is done with a session.
#[derive(Clone, Debug)]
enum Step {
    Put(&'static str, Vec<u8>),
    Get(&'static str),
    Delete(&'static str),
    List,
    Together(Vec<(&'static str, Option<Vec<u8>>)>),
    Fold(bool),
}

fn content(random: &mut Random) -> Vec<u8> {
    let length = match random.percent(70) {
        true => *random.pick(&LENGTHS),
        false => random.below(32_768),
    };
    let fill = random.below(256) as u8;
    let bytes = (0..length).map(|at| fill ^ (at / 7 % 256) as u8);
    bytes.collect()
}

impl Step {
    fn draw(random: &mut Random) -> Step {
        let name = |random: &mut Random| *random.pick(&NAMES);
        match random.below(20) {
            0..=6 => Step::Put(name(random), content(random)),
            7..=10 => Step::Get(name(random)),
            11..=13 => Step::Delete(name(random)),
            14 => Step::List,
            15..=17 => {
                let mut names = NAMES.to_vec();
                let changes = (0..1 + random.below(3)).map(|_| {
                    let name = names.swap_remove(random.below(names.len() as u64) as usize);
                    let content = random.percent(70).then(|| content(random));
                    (name, content)
                });
                Step::Together(changes.collect())
            }
            _ => Step::Fold(random.percent(50)),
        }
    }

    /// Does it with a session, and gives what that told: the same as [`Step::on_host`].
    fn on(&self, files: &dyn Files) -> Told {
        let told = || -> Result<Told, rustix::io::Errno> {
            Ok(match self {
                Step::Put(name, content) => {
                    files.put(name, content)?;
                    Told::Done
                }
                Step::Get(name) => Told::Content(files.get(name)?),
                Step::Delete(name) => Told::WasThere(files.delete(name)?),
                Step::List => Told::Names(files.list()?),
                Step::Together(changes) => {
                    let borrowed: Vec<Change<'_>> = changes
                        .iter()
                        .map(|(name, content)| (*name, content.as_deref()))
                        .collect();
                    if !files.together(&borrowed)? {
                        // One after the other, where the LibFS has no more.
                        for (name, content) in borrowed {
                            match content {
                                Some(content) => files.put(name, content)?,
                                None => drop(files.delete(name)?),
                            }
                        }
                    }
                    Told::Done
                }
                Step::Fold(release) => {
                    files.fold(*release)?;
                    Told::Done
                }
            })
        };
        told().unwrap_or_else(Told::Error)
    }

    /// Does it with a directory of tmpfs.
    fn on_host(&self, directory: &Path) -> Told {
        let remove = |name: &str| std::fs::remove_file(directory.join(name)).is_ok();
        let put = |name: &str, content: &[u8]| {
            std::fs::write(directory.join(name), content).expect("a file on tmpfs");
        };
        match self {
            Step::Put(name, content) => {
                put(name, content);
                Told::Done
            }
            Step::Get(name) => Told::Content(std::fs::read(directory.join(name)).ok()),
            Step::Delete(name) => Told::WasThere(remove(name)),
            Step::List => Told::Names(host_names(directory)),
            Step::Together(changes) => {
                for (name, content) in changes {
                    match content {
                        Some(content) => put(name, content),
                        None => drop(remove(name)),
                    }
                }
                Told::Done
            }
            Step::Fold(_) => Told::Done,
        }
    }

    /// Without what it writes.
    fn short(&self) -> String {
        let of = |content: &Vec<u8>| format!("{} bytes", content.len());
        match self {
            Step::Put(name, content) => format!("put {name:?}, {}", of(content)),
            Step::Together(changes) => {
                let changes = changes.iter();
                let each = changes.map(|(name, content)| (name, content.as_ref().map(of)));
                format!("together {:?}", each.collect::<Vec<_>>())
            }
            other => format!("{other:?}"),
        }
    }
}

/// What a step told.
#[derive(PartialEq, Eq)]
enum Told {
    Done,
    Content(Option<Vec<u8>>),
    WasThere(bool),
    Names(Vec<String>),
    Error(rustix::io::Errno),
}

impl Debug for Told {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Told::Done => write!(f, "done"),
            Told::Content(None) => write!(f, "no file"),
            Told::Content(Some(all)) => {
                let first = &all[..all.len().min(8)];
                write!(f, "{} bytes, {first:?}...", all.len())
            }
            Told::WasThere(is_so) => write!(f, "was there: {is_so}"),
            Told::Names(names) => write!(f, "{names:?}"),
            Told::Error(errno) => write!(f, "{errno:?}"),
        }
    }
}

fn host_names(directory: &Path) -> Vec<String> {
    let names = std::fs::read_dir(directory).expect("a directory of tmpfs");
    let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.collect();
    names.sort();
    names
}

/// That a session sees what a directory of tmpfs holds.
fn assert_same(files: &dyn Files, host: &Path, of: &str) {
    let names = host_names(host);
    assert_eq!(files.list(), Ok(names.clone()), "{of}: names");
    for name in names {
        let content = std::fs::read(host.join(&name)).expect("a file of tmpfs");
        let got = files
            .get(&name)
            .unwrap_or_else(|errno| panic!("{of}: {name}: {errno}"));
        assert!(got == Some(content), "{of}: {name} has other contents");
    }
}

/// The first seed, and how many: `ARCK_LIBFS_SEED`, `ARCK_LIBFS_SEEDS`.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let number = |name: &str, otherwise| {
        std::env::var(name).map_or(otherwise, |text| text.parse().expect("a number"))
    };
    let first = number("ARCK_LIBFS_SEED", 1);
    first..first + number("ARCK_LIBFS_SEEDS", count)
}

fn host() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory in /dev/shm")
}
