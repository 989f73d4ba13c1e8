//! What runs in the virtual machine, under `arck run`: the workers, and the check of what they left.
//!
//! # Invariant
//! The pool is used through the C library alone (`std::fs`, `libc`), so that the preload library
//! serves it as it would serve any program.

use crate::board::{Board, Slot};
use crate::storm::{Step, Storm};
use crate::tree;
use arck_testkit::Random;
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the pool is, as programs see it.
const MOUNT: &str = "/arck";
/// Worker numbers.
const STORMS: std::ops::Range<u64> = 0..2;
const LOG: u64 = 2;
const SQLITE: u64 = 3;
/// Looks at what the others do all the time, so that their changes are folded.
const READER: u64 = 4;
/// Workers that promise something.
pub const WORKERS: u64 = 4;
/// Rounds back that are checked; older ones are removed.
const KEPT: u64 = 2;

type Result<T> = std::result::Result<T, String>;

fn says<T>(what: &Path, result: io::Result<T>) -> Result<T> {
    result.map_err(|error| format!("{}: {error}", what.display()))
}

fn round_directory(round: u64) -> PathBuf {
    Path::new(MOUNT).join(format!("round-{round}"))
}

fn directory(round: u64, worker: u64) -> PathBuf {
    round_directory(round).join(match worker {
        LOG => "log".to_owned(),
        SQLITE => "sqlite".to_owned(),
        storm => format!("storm-{storm}"),
    })
}

fn seed(board: &Board, round: u64, worker: u64) -> u64 {
    Random::new(board.seed() ^ (round << 8 | worker)).next_word()
}

/// Works until the machine is gone.
pub fn work(worker: u64) -> Result<()> {
    let board = Board::find()?;
    let round = board.round();
    if worker == 0 {
        remove_old(round)?;
    }
    let top = round_directory(round);
    match fs::create_dir(&top) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return says(&top, Err(error));
        }
        _ => {}
    }
    let directory = directory(round, worker);
    let slot = board.slot(round, worker);
    let seed = seed(&board, round, worker);
    match worker {
        LOG => log(&directory, &slot, seed),
        SQLITE => sqlite(&directory, &slot),
        READER => look(round, seed),
        _ => storm(&directory, &slot, seed),
    }
}

/// Removes the rounds that are checked no more.
fn remove_old(round: u64) -> Result<()> {
    let top = Path::new(MOUNT);
    for entry in says(top, fs::read_dir(top))? {
        let path = says(top, entry)?.path();
        let number = path
            .to_string_lossy()
            .rsplit('-')
            .next()
            .map(str::parse::<u64>);
        if let Some(Ok(number)) = number
            && number + KEPT < round
        {
            says(&path, fs::remove_dir_all(&path))?;
        }
    }
    Ok(())
}

fn storm(top: &Path, slot: &Slot<'_>, seed: u64) -> Result<()> {
    let mut storm = Storm::new(seed);
    loop {
        let step = storm.next();
        let number = storm.done + 1;
        slot.begin(number);
        if let Err(error) = perform(top, &step) {
            return Err(format!("storm {seed:#x}, step {number}: {step:?}: {error}"));
        }
        slot.finish(number);
        storm.apply(&step);
    }
}

/// Does one step.
fn perform(top: &Path, step: &Step) -> io::Result<()> {
    // `join("")` would put a slash behind the storm's own directory.
    let at = |path: &str| {
        if path.is_empty() {
            top.to_owned()
        } else {
            top.join(path)
        }
    };
    match step {
        Step::Mkdir { path, mode } => fs::DirBuilder::new().mode(*mode).create(at(path)),
        Step::Create { path, mode } => OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(*mode)
            .open(at(path))
            .map(drop),
        Step::Symlink { path, target } => symlink(target, at(path)),
        Step::Link { from, to } => fs::hard_link(at(from), at(to)),
        Step::Write { path, offset, data } => OpenOptions::new()
            .write(true)
            .open(at(path))?
            .write_all_at(data, *offset),
        Step::Append { path, data } => {
            let mut file = OpenOptions::new().append(true).open(at(path))?;
            whole(file.write(data)?, data)
        }
        Step::Truncate { path, size } => OpenOptions::new()
            .write(true)
            .open(at(path))?
            .set_len(*size),
        Step::Chmod { path, mode } => fs::set_permissions(at(path), Permissions::from_mode(*mode)),
        Step::Unlink { path } => fs::remove_file(at(path)),
        Step::Rmdir { path } => fs::remove_dir(at(path)),
        Step::Rename { from, to } => fs::rename(at(from), at(to)),
        Step::Exchange { one, other } => exchange(&at(one), &at(other)),
    }
}

fn whole(written: usize, data: &[u8]) -> io::Result<()> {
    if written == data.len() {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "wrote {written} of {} bytes",
            data.len()
        )))
    }
}

fn exchange(one: &Path, other: &Path) -> io::Result<()> {
    let text = |path: &Path| CString::new(path.as_os_str().as_encoded_bytes());
    let (one, other) = (text(one)?, text(other)?);
    // SAFETY: both are strings that end with a zero and live until the call returns.
    let status = unsafe {
        libc::renameat2(
            libc::AT_FDCWD,
            one.as_ptr(),
            libc::AT_FDCWD,
            other.as_ptr(),
            libc::RENAME_EXCHANGE,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Record `number` of a log: its length, its number, and bytes that follow from it.
fn record(seed: u64, number: u64) -> Vec<u8> {
    let mut random = Random::new(seed ^ number);
    let length = 8 + random.below(*random.clone().pick(&[100, 100, 5_000])) as usize;
    let mut record = (length as u32).to_le_bytes().to_vec();
    record.extend_from_slice(&(number as u32).to_le_bytes());
    record.extend_from_slice(&random.bytes(length));
    record
}

/// Bytes after which a log goes on in another file.
const LOG_MAX: u64 = 6 << 20;

/// Where record `number` lies: which file, and where in it. Calls for ever larger numbers.
#[derive(Default)]
struct LogPlace {
    file: u64,
    at: u64,
}

impl LogPlace {
    fn advance(&mut self, record: &[u8]) {
        self.at += record.len() as u64;
        if self.at > LOG_MAX {
            *self = LogPlace {
                file: self.file + 1,
                at: 0,
            };
        }
    }

    fn path(&self, top: &Path) -> PathBuf {
        top.join(format!("log-{}", self.file))
    }
}

fn log(top: &Path, slot: &Slot<'_>, seed: u64) -> Result<()> {
    says(top, fs::create_dir(top))?;
    let mut place = LogPlace::default();
    let open = |place: &LogPlace| {
        let path = place.path(top);
        says(
            &path,
            OpenOptions::new().append(true).create(true).open(&path),
        )
    };
    let mut file = open(&place)?;
    for number in 1.. {
        let record = record(seed, number);
        slot.begin(number);
        let written = file.write(&record).and_then(|count| whole(count, &record));
        says(top, written)?;
        slot.finish(number);
        if number % 64 == 0 {
            // Otherwise it would take the processors away from the others.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let before = place.file;
        place.advance(&record);
        if place.file != before {
            // The oldest goes, so that the log does not fill the pool.
            if let Some(oldest) = before.checked_sub(1) {
                let path = LogPlace {
                    file: oldest,
                    at: 0,
                }
                .path(top);
                says(&path, fs::remove_file(&path))?;
            }
            file = open(&place)?;
        }
    }
    Ok(())
}

fn check_log(top: &Path, slot: &Slot<'_>, seed: u64) -> Result<u64> {
    let (begun, done) = (slot.begun(), slot.done());
    if begun == 0 {
        return Ok(1);
    }
    let mut place = LogPlace::default();
    let mut expected = Vec::new();
    for number in 1..=done {
        let record = record(seed, number);
        let before = place.file;
        expected.extend_from_slice(&record);
        place.advance(&record);
        if place.file != before {
            expected.clear();
        }
    }
    let path = place.path(top);
    let found = match fs::read(&path) {
        // A new file was to be begun.
        Err(error) if error.kind() == io::ErrorKind::NotFound && expected.is_empty() => Vec::new(),
        other => says(&path, other)?,
    };
    let differs = |what: &str| {
        Err(format!(
            "{}: {what}; {} bytes, {} expected from {done} records, {begun} begun",
            path.display(),
            found.len(),
            expected.len()
        ))
    };
    let Some(rest) = found.strip_prefix(expected.as_slice()) else {
        return differs("an acknowledged record is not there");
    };
    let flight = if begun > done {
        record(seed, begun)
    } else {
        Vec::new()
    };
    if !rest.is_empty() && rest != flight {
        return differs("the record under way is there in part");
    }
    // The file before, which is kept, is whole.
    if let Some(before) = place.file.checked_sub(1) {
        let path = LogPlace {
            file: before,
            at: 0,
        }
        .path(top);
        let length = says(&path, fs::metadata(&path))?.len();
        if length <= LOG_MAX {
            return Err(format!("{}: has {length} bytes only", path.display()));
        }
    }
    Ok(1 + found.len() as u64 + (place.file << 32))
}

/// Inserts rows, a transaction each.
fn sqlite(top: &Path, slot: &Slot<'_>) -> Result<()> {
    says(top, fs::create_dir(top))?;
    let database = top.join("db");
    let mut child = says(
        &database,
        Command::new("/bin/sqlite3")
            .arg(&database)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn(),
    )?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (Some(mut input), Some(output)) = (input, output) else {
        return Err("sqlite3 has no pipes".to_owned());
    };
    let mut answers = BufReader::new(output).lines();
    // As many as a round may want; the machine is killed long before.
    says(
        &database,
        writeln!(input, "create table t(a integer primary key, b text);"),
    )?;
    for number in 1.. {
        slot.begin(number);
        let text = format!(
            "insert into t values({number}, hex(zeroblob({number} % 700)) || {number}); select {number};"
        );
        says(
            &database,
            writeln!(input, "{text}").and_then(|()| input.flush()),
        )?;
        match answers.next() {
            Some(Ok(line)) if line == number.to_string() => slot.finish(number),
            other => return Err(format!("sqlite3 answered {other:?} to row {number}")),
        }
    }
    Ok(())
}

fn check_sqlite(top: &Path, slot: &Slot<'_>) -> Result<u64> {
    let (begun, done) = (slot.begun(), slot.done());
    if begun == 0 {
        return Ok(1);
    }
    let database = top.join("db");
    let query = "pragma integrity_check; \
        select count(*), ifnull(max(a), 0) from t; \
        select count(*) from t where b <> hex(zeroblob(a % 700)) || a;";
    let ask = |query: &str| {
        Command::new("/bin/sqlite3")
            .arg(&database)
            .arg(query)
            .output()
    };
    let exists = says(&database, ask("select count(*) from sqlite_master;"))?;
    if done == 0 && String::from_utf8_lossy(&exists.stdout).trim() == "0" {
        return Ok(1);
    }
    let output = says(&database, ask(query))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let fail = || {
        Err(format!(
            "sqlite says {text:?}, {:?}; {done} rows are acknowledged, {begun} begun",
            String::from_utf8_lossy(&output.stderr)
        ))
    };
    let [integrity, rows, wrong] = text.lines().collect::<Vec<_>>()[..] else {
        return fail();
    };
    let Some((Ok(count), Ok(last))) = rows
        .split_once('|')
        .map(|(count, last)| (count.parse::<u64>(), last.parse::<u64>()))
    else {
        return fail();
    };
    let all = count == last && (done..=begun).contains(&count);
    if integrity != "ok" || wrong != "0" || !all {
        return fail();
    }
    Ok(1 + count)
}

/// Reads what the others write, for ever; what vanishes meanwhile is nothing to complain of.
fn look(round: u64, seed: u64) -> Result<()> {
    let mut random = Random::new(seed);
    // Rounds differ in how often everything is folded.
    let pause = *random.pick(&[1, 30, 300]);
    loop {
        for worker in STORMS.chain([LOG]) {
            // Any error is theirs who removed or renamed something meanwhile.
            let _ = tree::read(&directory(round, worker));
        }
        std::thread::sleep(std::time::Duration::from_millis(random.below(pause)));
    }
}

/// Checks that everything is there that the last rounds acknowledged.
pub fn check() -> Result<()> {
    let board = Board::find()?;
    let this = board.round();
    for round in this.saturating_sub(KEPT)..this {
        for worker in 0..WORKERS {
            let slot = board.slot(round, worker);
            let digest = check_one(&board, round, worker, &slot)
                .map_err(|error| format!("round {round}, worker {worker}: {error}"))?;
            match slot.found() {
                Some(before) if before != digest => {
                    return Err(format!(
                        "round {round}, worker {worker}: it is not as it was found before \
                         ({before:x}, now {digest:x})"
                    ));
                }
                _ => slot.set_found(digest),
            }
            println!(
                "vm: round {round}, worker {worker}: {} steps acknowledged, all there",
                slot.done()
            );
        }
    }
    Ok(())
}

fn check_one(board: &Board, round: u64, worker: u64, slot: &Slot<'_>) -> Result<u64> {
    let top = directory(round, worker);
    let seed = seed(board, round, worker);
    match worker {
        LOG => check_log(&top, slot, seed),
        SQLITE => check_sqlite(&top, slot),
        _ => {
            let mut storm = Storm::new(seed);
            let (begun, done) = (slot.begun(), slot.done());
            while storm.done < done {
                let step = storm.next();
                storm.apply(&step);
            }
            let flight = (begun > done).then(|| storm.next());
            let found = says(&top, tree::read(&top))?;
            tree::compare(&found, &storm.state, flight.as_ref())
                .map_err(|error| format!("storm {seed:#x}, after step {done}: {error}"))?;
            Ok(tree::digest(&found).max(1))
        }
    }
}

/// Says whether a process has mapped files of the pool with MAP_SYNC, as the kernel tells it.
pub fn synchronous(process: &str, pool: &str) -> Result<()> {
    let path = format!("/proc/{process}/smaps");
    let file = says(Path::new(&path), File::open(&path))?;
    let (mut inside, mut writable, mut with, mut without) = (false, false, 0, Vec::new());
    let mut name = String::new();
    for line in BufReader::new(file).lines() {
        let line = says(Path::new(&path), line)?;
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        if first == "VmFlags:" {
            if inside && writable {
                if words.any(|flag| flag == "sf") {
                    with += 1;
                } else {
                    without.push(name.clone());
                }
            }
        } else if !first.ends_with(':') {
            // The head of a mapping: range, rights, offset, device, inode, path.
            writable = words.next().is_some_and(|rights| rights.starts_with("rw"));
            name = words.nth(3).unwrap_or_default().to_owned();
            inside = name.starts_with(pool);
        }
    }
    if with == 0 || !without.is_empty() {
        return Err(format!(
            "{with} mappings with MAP_SYNC; without it: {without:?}"
        ));
    }
    println!("vm: {with} mappings of the pool with MAP_SYNC, none writable without");
    Ok(())
}
