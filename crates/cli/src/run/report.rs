//! `--report`: what the preload library did, summed over all processes of a command.
//!
//! At its exit, and before it executes another program, every process appends a line of JSON to
//! the file named by `ARCK_REPORT`, with its counts since its previous line:
//!
//! ```json
//! {"pid": 1, "program": "cp", "interception": {"symbols": true, "net": "sud-inclusive",
//!  "net_choice": "best", "patching": "on", "patched_sites": 3}, "served": {"open": 2}, "past": {}}
//! ```
//!
//! Unknown members are ignored and missing ones count as nothing, so that a library of another
//! version still reports. A line that cannot be read is counted and said, never fatal.

use super::{plain, say};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

/// Processes shown one by one; the others are only counted.
const PROCESSES_SHOWN: usize = 12;

/// One process's line.
#[derive(Deserialize, Serialize, Debug, Clone)]
#[serde(default)]
struct Process {
    pid: u32,
    program: String,
    interception: Interception,
    served: BTreeMap<String, u64>,
    past: BTreeMap<String, u64>,
}

/// How its calls were caught.
#[derive(Deserialize, Serialize, Debug, Clone)]
#[serde(default)]
struct Interception {
    /// Calls to libc's functions.
    symbols: bool,
    /// The net below them for libc's own inner calls: `sud-inclusive`, `sud-exclusive`, `none`.
    net: String,
    /// Why that net: `best`, `asked` (by `ARCK_NET`), `fallback` (a better one was refused).
    net_choice: String,
    /// Whether sites that trap often are rewritten: `on`, `not-used` (with this net), `never` (by
    /// `ARCK_PATCH`), `refused` (by the system).
    patching: String,
    /// System call instructions replaced by jumps.
    patched_sites: u64,
}

impl Interception {
    /// What was chosen at start-up instead of the fastest way, as a sentence; `None` if nothing.
    fn fallbacks(&self) -> Option<String> {
        let mut said = Vec::new();
        match (self.net.as_str(), self.net_choice.as_str()) {
            (_, "best") | (_, "") => {}
            ("none", choice) => said.push(format!(
                "no net ({}): calls that libc makes itself are not served",
                reason(choice, "ARCK_NET", "the kernel refuses it")
            )),
            (net, choice) => said.push(format!(
                "net {net} ({})",
                reason(choice, "ARCK_NET", "the kernel refuses sud-inclusive")
            )),
        }
        match self.patching.as_str() {
            "never" => said.push("sites are not rewritten (ARCK_PATCH)".to_string()),
            "refused" => said.push("sites are not rewritten (the system refuses it)".to_string()),
            _ => {}
        }
        (!said.is_empty()).then(|| said.join("; "))
    }
}

/// Who chose: a variable, or the system.
fn reason<'a>(choice: &str, variable: &'a str, refusal: &'a str) -> &'a str {
    if choice == "asked" { variable } else { refusal }
}

impl Default for Process {
    fn default() -> Process {
        Process {
            pid: 0,
            program: "?".to_string(),
            interception: Interception::default(),
            served: BTreeMap::new(),
            past: BTreeMap::new(),
        }
    }
}

impl Default for Interception {
    fn default() -> Interception {
        Interception {
            symbols: false,
            net: "none".to_string(),
            net_choice: String::new(),
            patching: String::new(),
            patched_sites: 0,
        }
    }
}

/// The command that was run.
pub struct Run<'a> {
    pub command: &'a [OsString],
    pub process: u32,
    pub status: ExitStatus,
    pub pool: &'a Path,
    pub mount: &'a Path,
}

/// All processes together; also the JSON of `--report=FILE.json`.
#[derive(Serialize, Debug)]
struct Summary {
    command: Vec<String>,
    pool: String,
    mount: String,
    /// The command's exit status, if it exited.
    exit_status: Option<i32>,
    /// The signal that ended it, if one did.
    signal: Option<i32>,
    /// Whether the command's own process was intercepted.
    interception_on: bool,
    served: BTreeMap<String, u64>,
    past: BTreeMap<String, u64>,
    /// Lines in the report that could not be read.
    unreadable: u64,
    processes: Vec<Process>,
}

/// The file that the processes report to, until the command has ended.
pub struct Collector {
    path: PathBuf,
    destination: Option<PathBuf>,
}

impl Collector {
    /// Makes the file; `destination` is where the summary goes, standard error if none.
    pub fn new(destination: Option<PathBuf>) -> Result<Collector, String> {
        if let Some(file) = &destination {
            // Found out now rather than after hours of work.
            std::fs::write(file, b"").map_err(|error| {
                format!(
                    "cannot write the report {}: {}",
                    file.display(),
                    plain(&error)
                )
            })?;
        }
        let directory = std::env::temp_dir();
        let process = std::process::id();
        for attempt in 0u32.. {
            let path = directory.join(format!("arck-report-{process}-{attempt}"));
            match OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path)
            {
                Ok(_) => return Ok(Collector { path, destination }),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(format!(
                        "cannot make a file for the report in {}: {}; let $TMPDIR name another \
                         directory",
                        directory.display(),
                        plain(&error)
                    ));
                }
            }
        }
        Err("cannot make a file for the report".to_string())
    }

    /// Where the processes append.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads what they wrote and prints the summary where it was asked for.
    pub fn finish(self, run: &Run<'_>) {
        let text = std::fs::read(&self.path).unwrap_or_default();
        let summary = summarise(&String::from_utf8_lossy(&text), run);
        let Some(file) = &self.destination else {
            eprint!("{}", table(&summary));
            return;
        };
        let text = if file
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            serde_json::to_string_pretty(&summary)
                .map(|text| text + "\n")
                .unwrap_or_default()
        } else {
            table(&summary)
        };
        if let Err(error) = std::fs::write(file, text) {
            say(&format!("--report={}: {}", file.display(), plain(&error)));
        }
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        // Nothing to be done about a file that is gone already.
        let _ = std::fs::remove_file(&self.path);
    }
}

fn summarise(lines: &str, run: &Run<'_>) -> Summary {
    let mut summary = Summary {
        command: run
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        pool: run.pool.display().to_string(),
        mount: run.mount.display().to_string(),
        exit_status: run.status.code(),
        signal: run.status.signal(),
        interception_on: false,
        served: BTreeMap::new(),
        past: BTreeMap::new(),
        unreadable: 0,
        processes: Vec::new(),
    };
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let Ok(process) = serde_json::from_str::<Process>(line) else {
            summary.unreadable += 1;
            continue;
        };
        add(&mut summary.served, &process.served);
        add(&mut summary.past, &process.past);
        summary.interception_on |= process.pid == run.process && process.interception.symbols;
        match summary
            .processes
            .iter_mut()
            .find(|known| known.pid == process.pid && known.program == process.program)
        {
            Some(known) => {
                add(&mut known.served, &process.served);
                add(&mut known.past, &process.past);
            }
            None => summary.processes.push(process),
        }
    }
    summary
}

/// Adds counts by kind of call.
fn add(total: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (call, count) in counts {
        let sum = total.entry(call.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
}

/// Calls by count, most frequent first.
fn by_count(calls: &BTreeMap<String, u64>) -> Vec<(&str, u64)> {
    let mut sorted: Vec<_> = calls
        .iter()
        .map(|(call, count)| (call.as_str(), *count))
        .collect();
    sorted.retain(|(_, count)| *count > 0);
    sorted.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    sorted
}

/// A number with commas at the thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Writing to a String cannot fail, so the results of `writeln!` are dropped here.
fn table(summary: &Summary) -> String {
    let mut text = String::new();
    let program = summary.command.first().map_or("", String::as_str);
    let verdict = if summary.interception_on {
        "on"
    } else if summary.processes.is_empty() {
        "OFF: no process reported (static, set-user-ID or killed?)"
    } else {
        "OFF for the command itself (static, set-user-ID or killed?); see the processes below"
    };
    let _ = writeln!(
        text,
        "arck report for {program}: {} on {}",
        summary.pool, summary.mount
    );
    let _ = writeln!(text, "interception: {verdict}");
    if !summary.processes.is_empty() {
        let _ = writeln!(
            text,
            "{:>9}  {:<18} {:<7} {:<14} {:>7} {:>12} {:>8}",
            "process", "program", "symbols", "net", "patched", "served", "past"
        );
    }
    for process in summary.processes.iter().take(PROCESSES_SHOWN) {
        let sum = |calls: &BTreeMap<String, u64>| {
            grouped(
                calls
                    .values()
                    .fold(0, |sum, count| sum.saturating_add(*count)),
            )
        };
        let _ = writeln!(
            text,
            "{:>9}  {:<18} {:<7} {:<14} {:>7} {:>12} {:>8}",
            process.pid,
            process.program.rsplit('/').next().unwrap_or_default(),
            if process.interception.symbols {
                "yes"
            } else {
                "no"
            },
            process.interception.net,
            grouped(process.interception.patched_sites),
            sum(&process.served),
            sum(&process.past)
        );
    }
    if let Some(more) = summary
        .processes
        .len()
        .checked_sub(PROCESSES_SHOWN)
        .filter(|n| *n > 0)
    {
        let _ = writeln!(
            text,
            "           and {} more processes",
            grouped(more as u64)
        );
    }
    let mut fallbacks: Vec<_> = summary
        .processes
        .iter()
        .filter_map(|process| process.interception.fallbacks())
        .collect();
    fallbacks.sort_unstable();
    fallbacks.dedup();
    for said in fallbacks {
        let _ = writeln!(text, "fall-back: {said}");
    }
    for (title, calls) in [
        ("calls served by Arck:", &summary.served),
        (
            "calls on pool paths or descriptors that got past it:",
            &summary.past,
        ),
    ] {
        let sorted = by_count(calls);
        let _ = writeln!(
            text,
            "{title}{}",
            if sorted.is_empty() { " none" } else { "" }
        );
        for (call, count) in sorted {
            let _ = writeln!(text, "  {call:<24} {:>14}", grouped(count));
        }
    }
    if summary.unreadable > 0 {
        let _ = writeln!(
            text,
            "lines of the report that could not be read: {}",
            summary.unreadable
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = concat!(
        r#"{"pid":7,"program":"sh","interception":{"symbols":true,"net":"sud-inclusive","patched_sites":12},"served":{"open":2,"read":1500},"past":{}}"#,
        "\n",
        r#"{"pid":8,"program":"cp","interception":{"symbols":true},"served":{"open":3},"past":{"io_uring_setup":1},"extra":[]}"#,
        "\n",
        r#"{"pid":8,"program":"cp","interception":{"symbols":true},"served":{"open":4},"past":{}}"#,
        "\n",
        "{torn",
        "\n"
    );

    fn summary(lines: &str, process: u32) -> Summary {
        let run = Run {
            command: &[OsString::from("sh")],
            process,
            status: ExitStatus::from_raw(0),
            pool: Path::new("/dev/shm/p"),
            mount: Path::new("/arck"),
        };
        summarise(lines, &run)
    }

    #[test]
    fn counts_are_summed_over_processes() {
        let summary = summary(LINES, 7);
        assert!(summary.interception_on);
        assert_eq!(summary.served["open"], 9);
        // Two lines of one process are one process.
        assert_eq!(summary.processes.len(), 2);
        assert_eq!(summary.processes[1].served["open"], 7);
        assert_eq!(summary.past["io_uring_setup"], 1);
        assert_eq!(summary.processes[1].interception.net, "none");
        assert_eq!(summary.unreadable, 1);
        let text = table(&summary);
        assert!(text.contains("interception: on\n"), "{text}");
        assert!(
            text.contains("1,500") && text.contains("io_uring_setup"),
            "{text}"
        );
        assert!(
            text.find("  read ").unwrap() < text.find("  open ").unwrap(),
            "{text}"
        );
    }

    #[test]
    fn fallbacks_are_told() {
        let line = |interception: &str| {
            let line = format!(r#"{{"pid":7,"program":"p","interception":{{{interception}}}}}"#);
            table(&summary(&line, 7))
        };
        let best = r#""symbols":true,"net":"sud-inclusive","net_choice":"best","patching":"on""#;
        assert!(!line(best).contains("fall-back"));
        // A library that does not say.
        assert!(!table(&summary(LINES, 7)).contains("fall-back"));
        for (interception, expected) in [
            (
                r#""net":"sud-exclusive","net_choice":"fallback","patching":"not-used""#,
                "fall-back: net sud-exclusive (the kernel refuses sud-inclusive)\n",
            ),
            (
                r#""net":"none","net_choice":"asked","patching":"not-used""#,
                "fall-back: no net (ARCK_NET): calls that libc makes itself are not served\n",
            ),
            (
                r#""net":"sud-inclusive","net_choice":"best","patching":"refused""#,
                "fall-back: sites are not rewritten (the system refuses it)\n",
            ),
            (
                r#""net":"sud-inclusive","net_choice":"asked","patching":"never""#,
                "fall-back: net sud-inclusive (ARCK_NET); sites are not rewritten (ARCK_PATCH)\n",
            ),
        ] {
            let text = line(interception);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn silence_is_not_taken_for_interception() {
        assert!(table(&summary("", 7)).contains("interception: OFF: no process reported"));
        // A child reported, but not the command itself.
        let other = summary(LINES, 99);
        assert!(!other.interception_on);
        assert!(table(&other).contains("OFF for the command itself"));
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }

    #[test]
    fn the_collecting_file_is_removed() {
        let collector = Collector::new(None).unwrap();
        let path = collector.path().to_path_buf();
        assert!(path.exists());
        drop(collector);
        assert!(!path.exists());
    }
}
