//! `arck check`: looks at a pool as a whole, and tells what is not as it has to be.
//!
//! Invariant: nothing is said of a pool in order, and nothing of it is changed; of others only by
//! `--repair`. A finding is one
//! line on standard output, all else goes to standard error.

use crate::bar::Bar;
use arck_check::{Finding, Options, Report};
use clap::Args;
use rustix::io::Errno;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Options of `arck check`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck check /dev/shm/pool             says nothing if all is well
  arck check /dev/shm/pool --verbose   and what there is, if it is
  arck check /dev/shm/pool --json      findings and sums as JSON, one a line
  arck check /dev/shm/pool --repair    mends what it finds; nobody may serve it

A finding is a line: rule, inode, path where one is known, what is wrong, and
where it stands in the pool's files. File contents are not looked at. The rules
are told in docs/check.md.

--repair keeps what is in order where it is, and puts what has lost its name or
its directory into /lost+found. It changes the pool in one step, through its
journal, and one in order not at all. What it tells stands in the pool's
repair-report too, from before the change on: if it is cut off, or its output is
lost, the next --repair tells it, on lines that begin with `earlier:`.

Exit status: 0 nothing was found; 1 something was (with --repair: and is
mended); 2 the pool could not be checked, or not be mended.")]
pub struct CheckArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// JSON: an object for each line of an earlier repair, for each finding, one with the sums, one for
    /// each thing that was mended
    #[arg(long)]
    json: bool,

    /// Mend what is found, and tell what was done
    #[arg(long)]
    repair: bool,

    /// Say what there is, on standard error
    #[arg(long, short)]
    verbose: bool,

    /// Tell at most so many findings, and the number of the others
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = crate::number::parse::<usize>)]
    limit: usize,

    /// Threads [default: as many as there are processors]
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true, value_parser = crate::number::parse::<usize>)]
    threads: usize,
}

/// Before that nobody waits.
const MOMENT: Duration = Duration::from_millis(500);

/// Something was found.
const FOUND: u8 = 1;
/// The pool could not be checked.
const FAILED: u8 = 2;

/// Checks.
pub fn main(arguments: &CheckArguments) -> ExitCode {
    let pool = crate::run::named_or_default(arguments.pool.as_deref());
    match pool.and_then(|pool| run(arguments, &pool)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(FOUND),
        Err(line) => {
            eprintln!("arck check: {line}");
            ExitCode::from(FAILED)
        }
    }
}

/// Whether nothing was found, nor told of an earlier repair.
fn run(arguments: &CheckArguments, pool: &Path) -> Result<bool, String> {
    crate::nested::refuse(pool)?;
    // Who owns the directory chooses what lies in it by a pool's names.
    crate::owner::become_owner(pool)?;
    let bar = Bar::new("checking".to_owned(), MOMENT);
    let progress = |done: u64, all: u64| bar.set(done, all);
    let options = Options {
        threads: arguments.threads,
        findings_max: arguments.limit,
        progress: Some(&progress),
        stop: None,
    };
    let mut actions = Vec::new();
    let mut earlier = Vec::new();
    let report = if arguments.repair {
        let repaired = arck_check::repair(pool, &options);
        bar.end();
        let repaired = repaired.map_err(|error| told(pool, &error))?;
        if !repaired.after.is_clean() {
            let left = repaired.after.findings.first().map(ToString::to_string);
            return Err(format!(
                "{} could not be mended whole: {}",
                pool.display(),
                left.unwrap_or_default()
            ));
        }
        actions = repaired.actions;
        earlier = repaired.earlier;
        repaired.before
    } else {
        let report = arck_check::check(pool, &options);
        bar.end();
        if arck_check::has_untold_repair(pool) {
            eprintln!(
                "arck check: a repair of {pool} was cut off, or its output lost; what it found and did \
                 is told by: arck check --repair {pool}",
                pool = pool.display()
            );
        }
        report.map_err(|error| told(pool, &error))?
    };
    let is_well = report.is_clean() && earlier.is_empty();
    let mut text = Vec::new();
    for told in &earlier {
        if arguments.json {
            line(&JsonEarlier { earlier: told }, &mut text);
        } else {
            // Into memory.
            let _ = writeln!(text, "earlier: {told}");
        }
    }
    if arguments.json {
        json(&report, &mut text);
    } else {
        for finding in &report.findings {
            // Into memory.
            let _ = writeln!(text, "{finding}");
        }
        if report.more > 0 {
            let _ = writeln!(text, "and {} more", report.more);
        }
    }
    for action in &actions {
        if arguments.json {
            line(&JsonAction { action }, &mut text);
        } else {
            // Into memory.
            let _ = writeln!(text, "repaired: {action}");
        }
    }
    let written = io::stdout()
        .write_all(&text)
        .and_then(|()| io::stdout().flush());
    if arguments.verbose {
        eprintln!("arck check: {}", sums(pool, &report));
    }
    if arguments.repair && !is_well {
        written.map_err(|error| {
            format!(
                "what was found and done could not be printed ({}); it is in {}, and the next repair \
                 tells it",
                crate::run::plain(&error),
                pool.join(arck_core_state::layout::REPAIR_REPORT).display()
            )
        })?;
        // If that fails it is told once more.
        let _ = arck_check::repair_was_told(pool);
    }
    // Of a check whoever reads it may have seen enough.
    Ok(is_well)
}

/// Why a pool could not be checked: what there is instead of one, or the error.
fn told(pool: &Path, error: &arck_check::Error) -> String {
    let advice = match error {
        arck_check::Error::System {
            errno: Errno::ACCESS | Errno::PERM,
            ..
        } => match crate::owner::other_user(pool) {
            Some(owner) => format!("; run this as its owner (user {owner})"),
            None => "; run this as its owner".to_owned(),
        },
        _ => String::new(),
    };
    crate::run::why_none(pool).unwrap_or_else(|| format!("{error}{advice}"))
}

fn sums(pool: &Path, report: &Report) -> String {
    let state = match (report.closed, report.unfolded) {
        _ if report.served => "served".to_owned(),
        (true, _) => "closed".to_owned(),
        (false, 0) => "not closed".to_owned(),
        (false, n) => format!("not closed, changes of {n} sessions not folded"),
    };
    format!(
        "{}: {} ({state}): {} inodes, {} directories, {} names, {} pages in use",
        pool.display(),
        match report.findings.len() as u64 + report.more {
            0 => "well".to_owned(),
            1 => "1 finding".to_owned(),
            n => format!("{n} findings"),
        },
        report.inodes,
        report.directories,
        report.names,
        report.pages,
    )
}

/// A finding as JSON.
#[derive(Serialize)]
struct JsonFinding<'a> {
    rule: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    inode: Option<u32>,
    /// Bytes that are no UTF-8 are replaced.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    detail: &'a str,
    place: String,
}

/// Something that a repair has done.
#[derive(Serialize)]
struct JsonAction<'a> {
    action: &'a str,
}

/// A line of a repair before this one.
#[derive(Serialize)]
struct JsonEarlier<'a> {
    earlier: &'a str,
}

/// The sums.
#[derive(Serialize)]
struct JsonSums {
    findings: u64,
    served: bool,
    closed: bool,
    unfolded_sessions: u64,
    inodes: u64,
    directories: u64,
    orphans: u64,
    names: u64,
    pages: u64,
}

fn line(value: &impl Serialize, text: &mut Vec<u8>) {
    // Numbers, strings and nothing else: there is always a JSON of that.
    let _ = serde_json::to_writer(&mut *text, value);
    text.push(b'\n');
}

fn json(report: &Report, text: &mut Vec<u8>) {
    for finding in &report.findings {
        line(&JsonFinding::of(finding), text);
    }
    let sums = JsonSums {
        findings: report.findings.len() as u64 + report.more,
        served: report.served,
        closed: report.closed,
        unfolded_sessions: report.unfolded,
        inodes: report.inodes,
        directories: report.directories,
        orphans: report.orphans,
        names: report.names,
        pages: report.pages,
    };
    line(&sums, text);
}

impl JsonFinding<'_> {
    fn of(finding: &Finding) -> JsonFinding<'_> {
        let path = finding.path.as_deref();
        JsonFinding {
            rule: finding.rule.name(),
            inode: finding.inode,
            path: path.map(|path| String::from_utf8_lossy(path).into_owned()),
            detail: &finding.detail,
            place: finding.place.to_string(),
        }
    }
}
