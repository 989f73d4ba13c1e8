//! Pools are damaged at random and repaired: whatever the damage, the check ends, what is left is
//! in order and can be served, and what was not damaged is there.
//!
//! `ARCK_DAMAGES=1000 ARCK_DAMAGE_SEED=N cargo test -p arck-check --test repair` for more.

mod common;

use arck_check::Options;
use arck_core_state::{FileKind, Inode, PAGE_SIZE, PagePtr};
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, FileSystem};
use common::{Copy, made, segment_size};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Bytes of a file of the pool, from and to.
type Range = (String, u64, u64);

/// A pool's files as they were, and what each path needs of them.
struct Original {
    files: BTreeMap<String, Vec<u8>>,
    paths: BTreeMap<String, (u32, Inode)>,
    /// What has to be undamaged for a path to lead to what it did.
    needs: BTreeMap<String, Vec<Range>>,
    contents: BTreeMap<String, Vec<u8>>,
}

impl Original {
    fn word(&self, address: u64) -> u64 {
        let name = format!("segments/{:08x}", address / segment_size());
        let at = (address % segment_size()) as usize;
        u64::from_le_bytes(self.files[&name][at..at + 8].try_into().unwrap())
    }

    fn bytes(address: u64, length: u64) -> Range {
        let name = format!("segments/{:08x}", address / segment_size());
        (
            name,
            address % segment_size(),
            address % segment_size() + length,
        )
    }

    /// Index pages, hash pages, data pages.
    fn walk(&self, page: u64, level: u32, directory: bool, found: &mut Vec<u64>) {
        if page == 0 {
            return;
        }
        found.push(page);
        if level > 0 {
            for slot in 0..512 {
                let below = self.word(page * PAGE_SIZE + slot * 8);
                self.walk(below, level - 1, directory, found);
            }
        } else if directory {
            let next = self.word(page * PAGE_SIZE + 8);
            self.walk(next, 0, true, found);
        }
    }

    /// What an inode is made of.
    fn own(&self, number: u32, inode: &Inode) -> Vec<Range> {
        let at = u64::from(number) * 64;
        let header = &self.files["headers"][at as usize..];
        let address = u64::from_le_bytes(header[8..16].try_into().unwrap());
        let mut pages = Vec::new();
        let directory = inode.kind() == Some(FileKind::Directory);
        self.walk(
            inode.root.pointer(),
            inode.root.height(),
            directory,
            &mut pages,
        );
        pages.extend((!inode.attributes.is_null()).then_some(inode.attributes.0));
        let mut ranges = vec![
            ("headers".to_owned(), at, at + 64),
            Original::bytes(address, 128),
        ];
        let page = |page: u64| Original::bytes(PagePtr(page).address(), PAGE_SIZE);
        ranges.extend(pages.into_iter().map(page));
        ranges
    }

    fn of(pool: &Path) -> Original {
        let mut files = BTreeMap::new();
        for name in [
            "headers",
            "pages",
            "segment-table",
            "session-table",
            "journal",
        ] {
            files.insert(name.to_owned(), std::fs::read(pool.join(name)).unwrap());
        }
        for entry in std::fs::read_dir(pool.join("segments")).unwrap() {
            let entry = entry.unwrap();
            let name = format!("segments/{}", entry.file_name().to_str().unwrap());
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
        let mut original = Original {
            files,
            paths: BTreeMap::new(),
            needs: BTreeMap::new(),
            contents: BTreeMap::new(),
        };
        for (path, found) in arck_check::paths(pool).unwrap() {
            original
                .paths
                .insert(String::from_utf8(path).unwrap(), found);
        }
        for (path, (number, inode)) in &original.paths {
            let mut needs = original.own(*number, inode);
            let mut above = path.as_str();
            while let Some(end) = above.rfind('/') {
                above = &above[..end];
                let (number, inode) = &original.paths[above];
                needs.extend(original.own(*number, inode));
            }
            original.needs.insert(path.clone(), needs);
        }
        original
    }

    fn survivors(&self, damaged: &[Range]) -> Vec<&String> {
        let meets = |a: &Range, b: &Range| a.0 == b.0 && a.1 < b.2 && b.1 < a.2;
        let whole =
            |needs: &&Vec<Range>| !needs.iter().any(|n| damaged.iter().any(|d| meets(n, d)));
        let paths = self.needs.iter().filter(|(_, needs)| whole(needs));
        paths.map(|(path, _)| path).collect()
    }
}

/// Damages a copy in one way; says what it was.
fn damage(copy: &Copy, original: &Original, random: &mut Random) -> (String, Vec<Range>) {
    let names: Vec<&String> = original.files.keys().collect();
    let metadata: Vec<&String> = names
        .iter()
        .copied()
        .filter(|name| {
            name.starts_with("segments/") && original.files[*name].iter().any(|&b| b != 0)
        })
        .collect();
    // Where something stands: elsewhere there is nothing to damage.
    let somewhere = |random: &mut Random, name: &str| {
        let file = &original.files[name];
        for _ in 0..200 {
            let at = random.below(file.len() as u64 / 8) * 8;
            if file[at as usize..at as usize + 8]
                .iter()
                .any(|&byte| byte != 0)
            {
                return at;
            }
        }
        random.below(file.len() as u64 / 8) * 8
    };
    let used_pages: Vec<u64> = (1..original.files["pages"].len() as u64 * 8)
        .filter(|page| original.files["pages"][(page / 8) as usize] >> (page % 8) & 1 == 1)
        .collect();
    let kind = random.below(11);
    let (what, ranges) = match kind {
        0..4 => {
            let name = if random.percent(50) {
                "headers"
            } else {
                *random.pick(&names)
            };
            let at = somewhere(random, name);
            let old = copy.word(&(name.to_owned(), at));
            let word = match random.below(5) {
                0 => 0,
                1 => u64::MAX,
                2 => old ^ 1 << random.below(64),
                3 => random.next_word(),
                _ => old.wrapping_add(random.below(5)).wrapping_sub(2),
            };
            copy.set(&(name.to_owned(), at), word);
            (
                format!("{name}+{at:#x}: {old:#x} is {word:#x}"),
                vec![(name.to_owned(), at, at + 8)],
            )
        }
        4 => {
            let name = (*random.pick(&names)).clone();
            let at = somewhere(random, &name);
            let bytes = {
                let length = 1 + random.below(300) as usize;
                random.bytes(length)
            };
            let end = (at + bytes.len() as u64).min(original.files[&name].len() as u64);
            copy.write(&(name.clone(), at), &bytes[..(end - at) as usize]);
            (
                format!("{name}+{at:#x}: {} bytes", end - at),
                vec![(name, at, end)],
            )
        }
        5..8 => {
            let one = *random.pick(&used_pages);
            let other = *random.pick(&used_pages);
            let read = |page: u64| {
                let (name, from, to) = Original::bytes(page * PAGE_SIZE, PAGE_SIZE);
                original.files[&name][from as usize..to as usize].to_vec()
            };
            let put = |page: u64, bytes: &[u8]| copy.write(&copy.page(page, 0), bytes);
            let range = |page: u64| Original::bytes(page * PAGE_SIZE, PAGE_SIZE);
            let (first, second) = (read(one), read(other));
            match kind {
                5 => {
                    put(one, &second);
                    put(other, &first);
                    (
                        format!("pages {one:#x} and {other:#x} swapped"),
                        vec![range(one), range(other)],
                    )
                }
                6 => {
                    put(one, &second);
                    (format!("page {one:#x} is {other:#x}"), vec![range(one)])
                }
                _ => {
                    put(one, &[0; PAGE_SIZE as usize]);
                    (format!("page {one:#x} is zeroes"), vec![range(one)])
                }
            }
        }
        8 => {
            let name = (*random.pick(&metadata)).clone();
            copy.write(&(name.clone(), 0), &vec![0; segment_size() as usize]);
            (format!("{name} is zeroes"), vec![(name, 0, segment_size())])
        }
        9 => {
            let name = (*random.pick(&names)).clone();
            let length = original.files[&name].len() as u64;
            let kept = random.below(length);
            let path = copy.path().join(&name);
            let file = std::fs::OpenOptions::new().write(true).open(path);
            if let Ok(file) = file {
                file.set_len(kept).unwrap();
            }
            (
                format!("{name} ends at {kept:#x}"),
                vec![(name, kept, length)],
            )
        }
        _ => {
            let name = (*random.pick(&names)).clone();
            // It may be gone already.
            let _ = std::fs::remove_file(copy.path().join(&name));
            let length = original.files[&name].len() as u64;
            (format!("{name} is gone"), vec![(name, 0, length)])
        }
    };
    (what, ranges)
}

fn content(fs: &FileSystem, path: &str, kind: FileKind) -> Vec<u8> {
    let relative = path.trim_start_matches('/');
    match kind {
        FileKind::Directory => Vec::new(),
        FileKind::Link => {
            let mut buffer = [0; 4096];
            let length = fs
                .read_link(At::Root, relative.as_bytes(), &mut buffer)
                .unwrap();
            buffer[..length].to_vec()
        }
        FileKind::CharacterDevice => {
            let found = fs.stat(At::Root, relative.as_bytes(), 0).unwrap();
            found.device.to_le_bytes().to_vec()
        }
        _ => fs.get(relative).unwrap(),
    }
}

fn files_of(pool: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for folder in [pool.to_path_buf(), pool.join("segments")] {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_file() {
                all.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
    all
}

#[test]
fn a_pool_in_order_is_left_alone() {
    let pool = made();
    let before = files_of(&pool.path());
    let done = arck_check::repair(&pool.path(), &Options::default()).unwrap();
    assert!(done.before.is_clean() && done.after.is_clean() && done.actions.is_empty());
    assert!(before == files_of(&pool.path()));
}

#[test]
fn whatever_is_damaged_the_rest_is_kept() {
    let number = |name: &str, default: u64| {
        let given = std::env::var(name).ok();
        given.map_or(default, |text| text.parse().unwrap())
    };
    let mut pool = made();
    let mut original = Original::of(&pool.path());
    pool.serve();
    let fs = pool.session();
    let paths: Vec<(String, FileKind)> = original
        .paths
        .iter()
        .map(|(path, (_, inode))| (path.clone(), inode.kind().unwrap()))
        .collect();
    for (path, kind) in paths.iter().filter(|(path, _)| !path.is_empty()) {
        let content = content(&fs, path, *kind);
        original.contents.insert(path.clone(), content);
    }
    fs.disconnect().unwrap();
    pool.stop();
    let first = number("ARCK_DAMAGE_SEED", 1);
    let (mut kept, mut found) = (0, 0);
    for seed in first..first + number("ARCK_DAMAGES", 80) {
        let mut random = Random::new(seed);
        let copy = Copy::of(&pool.path());
        let mut damaged = Vec::new();
        let mut told = Vec::new();
        for _ in 0..1 + random.below(4) {
            let (what, ranges) = damage(&copy, &original, &mut random);
            told.push(what);
            damaged.extend(ranges);
        }
        let told = format!("ARCK_DAMAGE_SEED={seed}: {}", told.join("; "));
        println!("{told}");
        let done = arck_check::repair(&copy.path(), &Options::default())
            .unwrap_or_else(|error| panic!("{told}: {error}"));
        let left: Vec<String> = done
            .after
            .findings
            .iter()
            .map(ToString::to_string)
            .collect();
        let actions = done.actions.join("\n");
        assert!(
            done.after.is_clean(),
            "{told}\n{}\n{actions}",
            left.join("\n")
        );
        found += u64::from(!done.before.is_clean());
        let again = copy.check();
        assert!(again.is_clean(), "{told}");
        // It can be served, and all that was not damaged is what it was.
        let mut served = TestPool::adopt(&copy.path());
        let fs = served.session();
        let mut seen = BTreeSet::new();
        for path in original
            .survivors(&damaged)
            .into_iter()
            .filter(|path| !path.is_empty())
        {
            let (_, inode) = &original.paths[path];
            let stat = fs
                .stat(
                    At::Root,
                    path.trim_start_matches('/').as_bytes(),
                    libc::AT_SYMLINK_NOFOLLOW,
                )
                .unwrap_or_else(|error| panic!("{told}\n{path}: {error:?}\n{actions}"));
            assert_eq!(stat.mode, inode.mode, "{told}\n{path}");
            if inode.kind() != Some(FileKind::Directory) {
                let told_size = stat.size + u64::from(stat.device);
                assert_eq!(told_size, inode.size, "{told}\n{path}");
            }
            // One in ten is read: they are many.
            if seen.len() % 10 == 0 || !path.starts_with("/many") {
                let content = content(&fs, path, inode.kind().unwrap());
                assert!(
                    content == original.contents[path],
                    "{told}\n{path}\n{actions}"
                );
            }
            seen.insert(path);
        }
        kept += seen.len();
        let put = fs.put("afterwards", b"text");
        assert!(put.is_ok(), "{told}: {put:?}\n{actions}");
        fs.disconnect().unwrap();
        served.stop();
        let report = copy.check();
        let lines: Vec<String> = report.findings.iter().map(ToString::to_string).collect();
        assert!(
            report.is_clean(),
            "{told}: after serving it: {}",
            lines.join("\n")
        );
    }
    println!("{found} pools had findings, {kept} paths were kept");
    assert!(number("ARCK_DAMAGES", 80) < 10 || (found > 0 && kept > 0));
}
