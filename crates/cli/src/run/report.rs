//! `--report`: what the preload library did, summed over all processes of a command.
//!
//! Every process appends lines of JSON to the file named by `ARCK_REPORT`: when it starts, before it
//! executes another program, and when it ends, each with its counts since its previous line:
//!
//! ```json
//! {"pid": 1, "event": "start", "program": "sh", "interception": {"symbols": true,
//!  "dispatch": "sud-exclusive", "dispatch_choice": "best", "patching": "on", "patched_sites": 3},
//!  "served": {}, "past": {}}
//! {"pid": 1, "event": "execute", "executes": "/bin/cp", ...}
//! {"pid": 1, "event": "end", "program": "cp", "served": {"open": 2}, ...}
//! ```
//!
//! So it is known of a process without an end that it was killed, or still runs, and of a program
//! that was executed and did not start that the library was not loaded into it. (`counts` is a line
//! of counts and nothing else; `stay` says that the execution before it failed.)
//!
//! Unknown members are ignored and missing ones count as nothing, so that a library of another
//! version still reports. A line that cannot be read is counted and said, never fatal; so is that there
//! was no room for one (`ulimit -f`), of which the file's sticky bit tells.

mod summary;
mod table;

use super::program;
use super::telling::{plain, say};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use summary::{Interception, Process, Summary, Uncovered};
use table::table;

/// One line of a process.
#[derive(Deserialize, Debug)]
#[serde(default)]
struct Line {
    pid: u32,
    event: String,
    program: String,
    /// With the event `execute`: the path of the program.
    executes: String,
    interception: Interception,
    served: BTreeMap<String, u64>,
    past: BTreeMap<String, u64>,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            pid: 0,
            event: String::new(),
            program: "?".to_string(),
            executes: String::new(),
            interception: Interception::default(),
            served: BTreeMap::new(),
            past: BTreeMap::new(),
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
    /// What programs find at the mount point that the library is not loaded into.
    pub strays: String,
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
        let mut summary = summarise(&String::from_utf8_lossy(&text), run);
        summary.lines_are_missing =
            std::fs::metadata(&self.path).is_ok_and(|file| file.mode() & libc::S_ISVTX != 0);
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
        strays: run.strays.clone(),
        exit_status: run.status.code(),
        signal: run.status.signal(),
        interception_on: false,
        served: BTreeMap::new(),
        past: BTreeMap::new(),
        unreadable: 0,
        lines_are_missing: false,
        processes: Vec::new(),
        uncovered: Vec::new(),
    };
    // Programs executed that have not started yet, by process.
    let mut executed: BTreeMap<u32, String> = BTreeMap::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let Ok(line) = serde_json::from_str::<Line>(line) else {
            summary.unreadable += 1;
            continue;
        };
        add(&mut summary.served, &line.served);
        add(&mut summary.past, &line.past);
        summary.interception_on |= line.pid == run.process && line.interception.symbols;
        let process = find(&mut summary.processes, &line);
        add(&mut process.served, &line.served);
        add(&mut process.past, &line.past);
        // It is rewritten as the process runs.
        process.interception = line.interception;
        match line.event.as_str() {
            "start" | "stay" => {
                (process.ended, process.replaced) = (false, false);
                executed.remove(&line.pid);
            }
            "execute" => {
                (process.ended, process.replaced) = (true, true);
                executed.insert(line.pid, line.executes);
            }
            "counts" => {}
            _ => process.ended = true,
        }
    }
    // Children that were forked to execute something are no news.
    summary.processes.retain(|process| {
        let silent = process.served.is_empty() && process.past.is_empty();
        !(silent && process.replaced) || process.pid == run.process
    });
    // Nobody but `arck run` tells of the command itself.
    if !summary.interception_on && !executed.contains_key(&run.process) {
        let word = run
            .command
            .first()
            .map_or(OsStr::new(""), OsString::as_os_str);
        let path = program::look_up(word).unwrap_or_else(|| PathBuf::from(word));
        executed.insert(run.process, path.display().to_string());
    }
    for path in executed.into_values() {
        match summary.uncovered.iter_mut().find(|u| u.program == path) {
            Some(known) => known.times += 1,
            None => summary.uncovered.push(Uncovered {
                reason: program::Seen::of(OsStr::new(&path))
                    .warnings
                    .into_iter()
                    .next(),
                program: path,
                times: 1,
            }),
        }
    }
    summary
}

/// The process of a line: the last one with its number and program.
fn find<'a>(processes: &'a mut Vec<Process>, line: &Line) -> &'a mut Process {
    let known = processes
        .iter()
        .rposition(|known| known.pid == line.pid && known.program == line.program);
    let index = known.unwrap_or_else(|| {
        processes.push(Process {
            pid: line.pid,
            program: line.program.clone(),
            ended: false,
            replaced: false,
            interception: line.interception.clone(),
            served: BTreeMap::new(),
            past: BTreeMap::new(),
        });
        processes.len() - 1
    });
    &mut processes[index]
}

/// Adds counts by kind of call.
fn add(total: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (call, count) in counts {
        let sum = total.entry(call.clone()).or_default();
        *sum = sum.saturating_add(*count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub const LINES: &str = concat!(
        r#"{"pid":7,"program":"sh","interception":{"symbols":true,"dispatch":"sud-inclusive","patched_sites":12},"served":{"open":2,"read":1500},"past":{}}"#,
        "\n",
        r#"{"pid":8,"program":"cp","interception":{"symbols":true},"served":{"open":3},"past":{"io_uring_setup":1},"extra":[]}"#,
        "\n",
        r#"{"pid":8,"program":"cp","interception":{"symbols":true},"served":{"open":4},"past":{}}"#,
        "\n",
        "{torn",
        "\n"
    );

    pub fn summary(lines: &str, process: u32) -> Summary {
        let run = Run {
            command: &[OsString::from("sh")],
            process,
            status: ExitStatus::from_raw(0),
            pool: Path::new("/dev/shm/p"),
            mount: Path::new("/arck"),
            strays: String::new(),
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
        assert_eq!(summary.processes[1].interception.dispatch, "none");
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
    fn silence_is_not_taken_for_interception() {
        let silent = table(&summary("", 7));
        assert!(
            silent.contains("interception: OFF: no process reported"),
            "{silent}"
        );
        assert!(
            silent.contains("not loaded into") && silent.contains("/sh ("),
            "{silent}"
        );
        assert!(!silent.contains("none seen\n"), "{silent}");
        // A child reported, but not the command itself.
        let other = summary(LINES, 99);
        assert!(!other.interception_on);
        assert!(table(&other).contains("OFF for the command itself"));
    }

    #[test]
    fn the_killed_and_the_uncovered_are_told() {
        let line = |pid: u32, event: &str, rest: &str| {
            format!(
                r#"{{"pid":{pid},"event":"{event}","program":"sh",
                "interception":{{"symbols":true,"dispatch":"sud-inclusive"}}{rest}}}"#
            )
            .replace('\n', "")
        };
        let executes = |path: &str| format!(r#","executes":"{path}""#);
        let told = |lines: &[String]| table(&summary(&lines.join("\n"), 7));
        // Killed: it was on all the same.
        let killed = told(&[line(7, "start", "")]);
        assert!(killed.contains("interception: on\n"), "{killed}");
        assert!(
            killed.contains("killed, or still running: sh (7)"),
            "{killed}"
        );
        let ended = told(&[line(7, "start", ""), line(7, "end", "")]);
        assert!(!ended.contains("still running"), "{ended}");
        assert!(!ended.contains("not loaded into"), "{ended}");
        assert!(ended.contains("got past it: none seen\n"), "{ended}");
        // Executed, and never heard of again; twice.
        let path = "/nonexistent/static";
        let lines = [8, 9].map(|pid| {
            [
                line(pid, "start", ""),
                line(pid, "execute", &executes(path)),
            ]
        });
        let mut lines = lines.concat();
        lines.extend([line(7, "start", ""), line(7, "end", "")]);
        let uncovered = told(&lines);
        assert!(uncovered.contains("not loaded into"), "{uncovered}");
        assert!(uncovered.contains("2 x /nonexistent/static"), "{uncovered}");
        assert!(
            !uncovered.contains("got past it: none seen\n"),
            "{uncovered}"
        );
        // Executed and started, or not executed after all.
        for last in ["start", "stay"] {
            let lines = [
                line(7, "start", ""),
                line(7, "execute", &executes(path)),
                line(7, last, ""),
            ];
            assert!(!told(&lines).contains("not loaded into"));
        }
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
