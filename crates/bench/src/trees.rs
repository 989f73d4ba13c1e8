//! `arck-bench trees`: whole programs on trees of files: unpacking 10,000 small files, `git status` of
//! 50,000, `rm -rf` of both, `make -j2`.
//!
//! Two workers, one plainly on tmpfs, one under the preload library on a pool, run the same commands;
//! round by round they take turns which of them is first. The one on the pool is a member of a
//! group, as `arck run` is, and so are the programs that it starts. A round that is not counted warms
//! caches, and has the pool's and tmpfs's memory allocated.
//!
//! Invariant: what the commands read (archives) lies on tmpfs for both sides, and was made before.

use crate::conversation::{self, Conversation};
use crate::machine::Machine;
use crate::measure::median;
use crate::outcome::Outcome;
use crate::output;
use crate::output::Output;
use crate::pool::{self, Bench, policy_name};
use arck_pm::PersistOption;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

/// Bytes of the pool: room for all that a round makes, twice.
const POOL: u64 = 4 << 30;
/// Files unpacked, and files of the repository; in folders of a hundred.
const SMALL: u32 = 10_000;
const TRACKED: u32 = 50_000;
const FOLDER: u32 = 100;
/// Bytes of a file at most; half of that in the middle.
const BYTES: u64 = 2048;
/// Sources of the project that is made.
const SOURCES: u32 = 60;
/// The trust group of the side on the pool.
pub const GROUP: &str = "trees";
/// The directory of the side, in a command.
const HERE: &str = "{}";

#[derive(Args)]
pub struct TreesArguments {
    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,

    /// A hundredth of the files: for tests
    #[arg(long, hide = true)]
    few: bool,

    /// Only what has this in its name
    #[arg(long, value_name = "WORD")]
    filter: Option<String>,

    /// Whether stores to the pool are flushed: auto, always, never
    #[arg(long, value_name = "WHEN", default_value = "auto", value_parser = pool::parse_persist)]
    persist: PersistOption,

    #[command(flatten)]
    output: Output,
}

/// What one command took, with all the processes that it started.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Took {
    /// Milliseconds.
    pub wall: f64,
    /// Milliseconds of processor time.
    pub processor: f64,
}

/// A step of a round.
struct Step {
    /// What it is called in the report; nothing if it is not measured.
    name: Option<&'static str>,
    command: Vec<String>,
}

#[derive(Serialize)]
struct Row {
    what: &'static str,
    tmpfs: f64,
    arck: f64,
    /// How many times as fast: median of the pairs.
    times: f64,
    /// Processor time of its processes, controller not included.
    tmpfs_processor: f64,
    arck_processor: f64,
}

#[derive(Serialize)]
struct Report {
    machine: Machine,
    rounds: usize,
    persist: &'static str,
    trees: Vec<Row>,
}

/// A worker, which runs a command for each line and answers with what it took.
pub struct Side {
    worker: Conversation,
    here: String,
}

impl Side {
    /// On the pool it is a member of the group [`GROUP`], from its first command on.
    pub fn start(bench: &Bench, library: Option<&Path>) -> Outcome<Side> {
        let mut command = bench.worker(library)?;
        command.args(["--task", "trees"]);
        let here = match library {
            Some(_) => {
                command.env("ARCK_GROUP", GROUP);
                crate::pool::MOUNT.to_owned()
            }
            None => {
                command.arg("--kernel");
                bench.tmpfs().display().to_string()
            }
        };
        let worker = Conversation::start(command)?;
        Ok(Side { worker, here })
    }

    /// Runs a command, with the side's directory in place of `{}`.
    pub fn run(&mut self, command: &[String]) -> Outcome<Took> {
        let here = |word: &String| word.replace(HERE, &self.here);
        let words: Vec<String> = command.iter().map(here).collect();
        self.worker.ask(&words)
    }

    pub fn end(self) -> Outcome<()> {
        self.worker.end()
    }
}

/// In a worker: for each line of standard input, a command.
pub fn commands(here: &str) -> Outcome<()> {
    // Who does nothing on the pool is no member of its group.
    fs::metadata(here).map_err(|error| format!("{here}: {error}"))?;
    conversation::answer(|words: Vec<String>| command(&words))
}

/// Milliseconds of processor time of all children that have ended.
fn processor_time() -> f64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: room for the answer; all zeroes is a value of it, if the call should fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr());
        usage.assume_init()
    };
    let milliseconds = |time: libc::timeval| time.tv_sec as f64 * 1e3 + time.tv_usec as f64 / 1e3;
    milliseconds(usage.ru_utime) + milliseconds(usage.ru_stime)
}

fn command(words: &[String]) -> Outcome<Took> {
    let Some((program, rest)) = words.split_first() else {
        return Err("no command".to_owned());
    };
    let before = processor_time();
    let start = Instant::now();
    let output = Command::new(program)
        .args(rest)
        .envs([("GIT_CONFIG_GLOBAL", "/dev/null"), ("LC_ALL", "C")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .map_err(|error| format!("{program}: {error}"))?;
    let wall = start.elapsed().as_secs_f64() * 1e3;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {said}", words.join(" "), output.status));
    }
    Ok(Took {
        wall,
        processor: processor_time() - before,
    })
}

pub fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Files of different contents and lengths, in folders.
fn make_files(directory: &Path, count: u32) -> std::io::Result<()> {
    // A generator of Marsaglia's; what the files hold is no matter, but it is the same each time.
    let mut state = 88_172_645_463_325_252u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut folder = directory.to_owned();
    for file in 0..count {
        if file % FOLDER == 0 {
            folder = directory.join(format!("d{:04}", file / FOLDER));
            fs::create_dir_all(&folder)?;
        }
        let length = next() % BYTES;
        let bytes: Vec<u8> = (0..length).map(|_| b'a' + (next() % 26) as u8).collect();
        fs::write(folder.join(format!("file{file:06}.c")), bytes)?;
    }
    Ok(())
}

/// A project: sources that include one header, a program of them all.
fn make_project(directory: &Path) -> std::io::Result<()> {
    fs::create_dir_all(directory)?;
    let mut makefile = "CFLAGS = -O1\nprogram:".to_owned();
    let mut main = "#include \"all.h\"\nint main(void) { int sum = 0;".to_owned();
    let mut header = "#include <stdio.h>\n#include <stdlib.h>\n#include <string.h>\n".to_owned();
    for source in 0..SOURCES {
        let _ = write!(makefile, " part{source}.o");
        let _ = write!(main, " sum += part{source}({source});");
        let _ = writeln!(header, "int part{source}(int);");
        let mut text = "#include \"all.h\"\n".to_owned();
        for function in 0..20 {
            let _ = writeln!(
                text,
                "static int f{function}(int x) {{ char b[64]; for (int i = 0; i < {function}; i++) \
                 x = x * 31 + snprintf(b, sizeof b, \"%d %s\", x, \"{source}\"); return x + (int)strlen(b); }}"
            );
        }
        let sum: Vec<String> = (0..20).map(|function| format!("f{function}(x)")).collect();
        let _ = writeln!(
            text,
            "int part{source}(int x) {{ return {}; }}",
            sum.join(" + ")
        );
        fs::write(directory.join(format!("part{source}.c")), text)?;
    }
    makefile.push_str(" main.o\n\t$(CC) -o $@ $^\n*.o: all.h\n");
    main.push_str(" printf(\"%d\\n\", sum); return 0; }\n");
    fs::write(directory.join("Makefile"), makefile)?;
    fs::write(directory.join("main.c"), main)?;
    fs::write(directory.join("all.h"), header)
}

/// Makes the archives that the rounds unpack, in `place`.
fn prepare(place: &Path, (small, tracked): (u32, u32)) -> Outcome<()> {
    let at = |name: &str| place.join(name);
    let text = |error: std::io::Error| error.to_string();
    make_files(&at("small"), small).map_err(text)?;
    make_files(&at("tree"), tracked).map_err(text)?;
    make_project(&at("project")).map_err(text)?;
    let place = place.display();
    for line in [
        format!("git init -q {place}/tree"),
        format!("git -C {place}/tree add ."),
        format!(
            "git -C {place}/tree -c user.name=Arck -c user.email=arck@example.org commit -q -m all"
        ),
        format!("git -C {place}/tree repack -a -d -q"),
        format!("tar -C {place} -cf {place}/small.tar small"),
        format!("tar -C {place} -cf {place}/tree.tar tree"),
        format!("tar -C {place} -cf {place}/project.tar project"),
        format!("rm -rf {place}/small {place}/tree {place}/project"),
    ] {
        command(&words(&line))?;
    }
    Ok(())
}

/// A round, with archives in `place`.
fn steps(place: &Path, filter: Option<&str>) -> Vec<Step> {
    let place = place.display();
    let unpack = |what: &str| format!("tar -C {HERE} -xf {place}/{what}.tar");
    let all = [
        (
            "small",
            Some("untar of 10,000 small files"),
            unpack("small"),
        ),
        (
            "small",
            Some("rm -rf of 10,000 small files"),
            format!("rm -rf {HERE}/small"),
        ),
        ("tree", None, unpack("tree")),
        // After this the index knows the inode numbers.
        ("tree", None, format!("git -C {HERE}/tree status")),
        (
            "tree",
            Some("git status of 50,000 files"),
            format!("git -C {HERE}/tree status"),
        ),
        (
            "tree",
            Some("rm -rf of 50,000 files"),
            format!("rm -rf {HERE}/tree"),
        ),
        ("project", None, unpack("project")),
        (
            "project",
            Some("make -j2 of 61 sources"),
            format!("make -s -j2 -C {HERE}/project"),
        ),
        ("project", None, format!("rm -rf {HERE}/project")),
    ];
    let is_wanted = |name: &str| filter.is_none_or(|word| name.contains(word));
    let wanted: Vec<&str> = all
        .iter()
        .filter(|(_, name, _)| name.is_some_and(is_wanted))
        .map(|&(tree, ..)| tree)
        .collect();
    all.into_iter()
        .filter(|(tree, ..)| wanted.contains(tree))
        .map(|(_, name, command)| Step {
            name: name.filter(|name| is_wanted(name)),
            command: words(&command),
        })
        .collect()
}

pub fn main(arguments: &TreesArguments) -> Outcome<()> {
    let arck = arguments.output.command()?;
    let library = pool::find_library()
        .ok_or("libarck_preload.so is not beside this executable: build arck-preload")?;
    let machine = Machine::look();
    let bench = Bench::start(POOL, arguments.persist, arck.as_deref())?;
    let place = bench.tmpfs().with_file_name("made");
    let share = if arguments.few { 100 } else { 1 };
    eprintln!("making the archives");
    prepare(&place, (SMALL / share, TRACKED / share))?;
    let steps = steps(&place, arguments.filter.as_deref());
    if steps.is_empty() {
        return Err("nothing has that in its name".to_owned());
    }
    let mut sides = [
        Side::start(&bench, None)?,
        Side::start(&bench, Some(&library))?,
    ];
    let mut samples: Vec<Vec<[Took; 2]>> = steps.iter().map(|_| Vec::new()).collect();
    for round in 0..=arguments.rounds {
        eprintln!("round {round} of {}", arguments.rounds);
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for (step, samples) in steps.iter().zip(&mut samples) {
            let mut pair = [None; 2];
            for side in order {
                pair[side] = Some(sides[side].run(&step.command)?);
            }
            // The first is to warm up.
            if let ([Some(tmpfs), Some(arck)], true) = (pair, round > 0) {
                samples.push([tmpfs, arck]);
            }
        }
    }
    for side in sides {
        side.end()?;
    }
    let row = |(step, samples): (&Step, &Vec<[Took; 2]>)| {
        let each = |value: &dyn Fn(&[Took; 2]) -> f64| median(samples.iter().map(value));
        Some(Row {
            what: step.name?,
            tmpfs: each(&|pair| pair[0].wall),
            arck: each(&|pair| pair[1].wall),
            times: each(&|pair| pair[0].wall / pair[1].wall),
            tmpfs_processor: each(&|pair| pair[0].processor),
            arck_processor: each(&|pair| pair[1].processor),
        })
    };
    let report = Report {
        machine,
        rounds: arguments.rounds,
        persist: policy_name(bench.policy),
        trees: steps.iter().zip(&samples).filter_map(row).collect(),
    };
    arguments.output.publish(&report)
}

impl output::Report for Report {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "{}.\nMilliseconds of whole commands, start of their processes included, on tmpfs and by the \
             preload library in a group on a pool of 4 GiB, {}; medians of {} rounds on each side, \
             alternating, after one that is not counted; factor = tmpfs / Arck, median of the pairs, above 1 Arck is faster. \
             Processor time is the commands' own, without the controller's.\n\n\
             | command | tmpfs | Arck | factor | processor time, tmpfs | Arck |\n\
             | --- | ---: | ---: | ---: | ---: | ---: |",
            self.machine, self.persist, self.rounds
        )?;
        for row in &self.trees {
            writeln!(
                text,
                "| {} | {:.1} | {:.1} | {:.2} | {:.1} | {:.1} |",
                row.what, row.tmpfs, row.arck, row.times, row.tmpfs_processor, row.arck_processor
            )?;
        }
        Ok(())
    }
}
