//! `arck mount` beside tmpfs passed through by the same FUSE library: what a pool costs where FUSE is in between.
//!
//! # Invariants
//! * Both are mounted at once and asked in turn, round by round, by the same calls of the kernel.
//! * No mount is left, whatever ends this: each is served by a child, which ends with it.

mod passthrough;

use crate::machine::Machine;
use crate::measure::{Measurement, Random, Sample, Samples, compare, timed};
use crate::outcome::Outcome;
use crate::pool::{Bench, find_command, need_memory};
use arck_pm::PersistOption;
use clap::Args;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `arck mount` beside a passthrough of tmpfs by the same FUSE library; as root
///
/// EXAMPLES
///   arck-bench mount
///   arck-bench mount --rounds 15
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct MountArguments {
    /// Rounds that count
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The command `arck` [default: the one beside this]
    #[arg(long, value_name = "FILE")]
    arck: Option<PathBuf>,
    /// Serve the passthrough of one directory at another
    #[arg(long, num_args = 2, value_names = ["FROM", "AT"], hide = true)]
    passthrough: Option<Vec<PathBuf>>,
}

const SIZE: u64 = 512 << 20;
const FILES: u64 = 500;
const SMALL: usize = 4096;
const LARGE: usize = 1 << 20;
const LARGES: u64 = 64;

/// Something that is mounted, by a child.
struct Mounted {
    child: Child,
    at: PathBuf,
}

impl Mounted {
    fn start(command: &mut Command, at: &Path) -> Outcome<Mounted> {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut mounted = Mounted {
            child: child.map_err(|error| format!("{command:?}: {error}"))?,
            at: at.to_owned(),
        };
        let mut word = String::new();
        if let Some(output) = mounted.child.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut word);
        }
        match word == "ready\n" {
            true => Ok(mounted),
            false => Err(format!("{}: it is not mounted", at.display())),
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if let Ok(path) = CString::new(self.at.as_os_str().as_bytes()) {
            // SAFETY: a string.
            unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
        }
        // Nothing is open there any more.
        let _ = self.child.wait();
    }
}

fn names(at: &Path, what: &str) -> Vec<PathBuf> {
    (0..FILES)
        .map(|index| at.join(format!("{what}{index}")))
        .collect()
}

/// One side, made ready.
struct Side {
    tree: PathBuf,
    deep: PathBuf,
    small: File,
    large: File,
    log: File,
    places: Vec<u64>,
    buffer: Vec<u8>,
}

impl Side {
    fn new(at: &Path) -> std::io::Result<Side> {
        let tree = at.join("tree");
        let deep = tree.join("a/b/c");
        fs::create_dir_all(&deep)?;
        fs::create_dir_all(tree.join("listed"))?;
        for name in names(&deep, "file") {
            fs::write(name, "contents")?;
        }
        for name in names(&tree.join("listed"), "name") {
            fs::write(name, "")?;
        }
        let open = |name: &str| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(true)
                .open(tree.join(name))
        };
        let (small, large) = (open("small")?, open("large")?);
        for index in 0..LARGES {
            small.write_all_at(&[7; LARGE], index * LARGE as u64)?;
            large.write_all_at(&[7; LARGE], index * LARGE as u64)?;
        }
        let log = OpenOptions::new()
            .append(true)
            .create(true)
            .open(tree.join("log"))?;
        Ok(Side {
            places: Random(5).below(LARGES * (LARGE / SMALL) as u64, FILES),
            buffer: vec![1; LARGE],
            tree,
            deep,
            small,
            large,
            log,
        })
    }
}

/// What is measured: name, operations, bytes that each moves, and what is done.
type Operation = (&'static str, u64, u64, fn(&mut Side) -> std::io::Result<()>);

const OPERATIONS: &[Operation] = &[
    ("stat, five directories deep", FILES, 0, |side| {
        names(&side.deep, "file")
            .iter()
            .try_for_each(|name| fs::symlink_metadata(name).map(drop))
    }),
    ("open and close", FILES, 0, |side| {
        names(&side.deep, "file")
            .iter()
            .try_for_each(|name| File::open(name).map(drop))
    }),
    ("create and close", FILES, 0, |side| {
        names(&side.tree, "new")
            .iter()
            .try_for_each(|name| File::create_new(name).map(drop))
    }),
    ("rename", FILES, 0, |side| {
        let (from, to) = (names(&side.tree, "new"), names(&side.tree, "moved"));
        from.iter()
            .zip(to)
            .try_for_each(|(from, to)| fs::rename(from, to))
    }),
    ("unlink", FILES, 0, |side| {
        names(&side.tree, "moved")
            .iter()
            .try_for_each(fs::remove_file)
    }),
    ("mkdir and rmdir", FILES, 0, |side| {
        names(&side.tree, "folder").iter().try_for_each(|name| {
            fs::create_dir(name)?;
            fs::remove_dir(name)
        })
    }),
    ("a list of 500 names", 20, 0, |side| {
        (0..20).try_for_each(|_| {
            fs::read_dir(side.tree.join("listed"))?.try_for_each(|entry| entry.map(drop))
        })
    }),
    ("4 KiB read at random", FILES, 0, |side| {
        let Side {
            small,
            places,
            buffer,
            ..
        } = side;
        places
            .iter()
            .try_for_each(|place| small.read_exact_at(&mut buffer[..SMALL], place * SMALL as u64))
    }),
    ("4 KiB overwritten at random", FILES, 0, |side| {
        let Side {
            small,
            places,
            buffer,
            ..
        } = side;
        places
            .iter()
            .try_for_each(|place| small.write_all_at(&buffer[..SMALL], place * SMALL as u64))
    }),
    ("4 KiB appended", FILES, 0, |side| {
        (0..FILES).try_for_each(|_| (&side.log).write_all(&side.buffer[..SMALL]))
    }),
    ("1 MiB read", LARGES, LARGE as u64, |side| {
        let Side { large, buffer, .. } = side;
        (0..LARGES).try_for_each(|index| large.read_exact_at(buffer, index * LARGE as u64))
    }),
    ("1 MiB written", LARGES, LARGE as u64, |side| {
        let Side { large, buffer, .. } = side;
        (0..LARGES).try_for_each(|index| large.write_all_at(buffer, index * LARGE as u64))
    }),
];

fn measure(rounds: usize, passed: &Path, mount: &Path) -> Outcome<Vec<Measurement>> {
    let failed = |error: std::io::Error| format!("on a mount: {error}");
    let mut sides = [
        Side::new(passed).map_err(failed)?,
        Side::new(mount).map_err(failed)?,
    ];
    let mut samples = [Samples::default(), Samples::default()];
    // The first round warms up.
    for round in 0..=rounds {
        for &(name, operations, _, work) in OPERATIONS {
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let sample: Sample = timed(operations, || {
                    work(&mut sides[side]).map_err(|error| format!("{name}: {error}"))
                })?;
                if round > 0 {
                    samples[side].add(name, sample);
                }
            }
        }
        for side in &sides {
            side.log.set_len(0).map_err(failed)?;
        }
    }
    let of = |side: usize, name: &str| samples[side].lists.get(name).map_or(&[][..], Vec::as_slice);
    let all = OPERATIONS.iter();
    Ok(all
        .map(|&(name, _, bytes, _)| compare(name, bytes, of(0, name), of(1, name)))
        .collect())
}

fn figure(nanoseconds: f64, bytes: u64) -> String {
    match bytes {
        0 => format!("{:.1} µs", nanoseconds / 1000.0),
        bytes => format!("{:.1} GB/s", bytes as f64 / nanoseconds),
    }
}

/// Measures, or serves the passthrough.
pub fn main(arguments: &MountArguments) -> Outcome<()> {
    if let Some([from, at]) = arguments.passthrough.as_deref() {
        return passthrough::serve(from, at, || println!("ready"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err("mounting takes root here: sudo arck-bench mount".to_owned());
    }
    need_memory(2 * SIZE, "both sides")?;
    let arck = find_command(arguments.arck.as_deref())?;
    let arck =
        arck.ok_or("there is no arck beside this command: cargo build --release -p arck-cli")?;
    let mut bench = Bench::start(SIZE, PersistOption::Auto, Some(&arck))?;
    let place = |name: &str| -> Outcome<PathBuf> {
        let path = bench.tmpfs().with_file_name(name);
        fs::create_dir(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok(path)
    };
    let (passed, mount) = (place("passed")?, place("mount")?);
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(own);
    command
        .args(["mount", "--passthrough"])
        .arg(bench.tmpfs())
        .arg(&passed);
    let passthrough = Mounted::start(&mut command, &passed)?;
    let mut command = Command::new(&arck);
    command
        .arg("mount")
        .arg(bench.pool())
        .arg(&mount)
        .args(["--foreground", "--ready-fd", "1"]);
    let mounted = Mounted::start(&mut command, &mount)?;
    let measured = measure(arguments.rounds, &passed, &mount);
    drop((passthrough, mounted));
    println!(
        "| an operation | passthrough of tmpfs | arck mount | factor |\n| --- | ---: | ---: | ---: |"
    );
    for found in measured? {
        println!(
            "| {} | {} | {} | {:.2} |",
            found.operation,
            figure(found.tmpfs, found.bytes),
            figure(found.arckfs, found.bytes),
            found.ratio
        );
    }
    println!(
        "\nMedians of {} rounds on each side, alternating; factor above 1: arck mount is faster. {}.",
        arguments.rounds,
        Machine::look()
    );
    bench.stop()
}
