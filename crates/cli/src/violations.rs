//! `arck violations`: what the verifier refused on a pool, what became of it, and what was set
//! aside, for its user to look at.
//!
//! Invariant: it only reads files of the pool's directory, which the controller appends to or
//! replaces; so it works whether the pool is served or not.

mod delta;
mod list;

use arck_core_state::layout;
use clap::Args;
use list::{Outcome, Row};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Options of `arck violations`.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  arck violations /dev/shm/pool           all that was refused, newest last
  arck violations /dev/shm/pool --show 3  what was set aside as number 3
  arck violations /dev/shm/pool --json    one JSON object a line, for programs

Numbers count from the oldest line of the log, which keeps the last few MiB.
Times are UTC.

Exit status: 0 also if nothing was refused; 1 if the pool cannot be read, or the
number is none.")]
pub struct ViolationsArguments {
    /// Directory of the pool [default: $ARCK_POOL, else /dev/shm/arck-$USER]
    #[arg(value_name = "POOL")]
    pool: Option<PathBuf>,

    /// JSON: an object for each line, or for what is shown
    #[arg(long)]
    json: bool,

    /// Show the changes that were set aside under this number
    #[arg(long, value_name = "N", value_parser = crate::number::parse::<usize>)]
    show: Option<usize>,
}

/// Lists, or shows.
pub fn main(arguments: &ViolationsArguments) -> ExitCode {
    let mut text = Vec::new();
    let pool = crate::run::named_or_default(arguments.pool.as_deref());
    let told = pool.and_then(|pool| tell(arguments, &pool, &mut text));
    // Whoever reads it may have seen enough.
    let _ = std::io::stdout().write_all(&text);
    match told {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            eprintln!("arck violations: {line}");
            ExitCode::FAILURE
        }
    }
}

fn tell(arguments: &ViolationsArguments, pool: &Path, out: &mut Vec<u8>) -> Result<(), String> {
    check_pool(pool)?;
    // Who owns the directory chooses what lies in it by these names.
    crate::owner::become_owner(pool)?;
    let (entries, unreadable) = arck_controller::read_log(pool).map_err(|error| {
        format!(
            "cannot read the log of {}: {}",
            pool.display(),
            crate::run::plain(&error)
        )
    })?;
    let rows = list::rows(entries);
    match arguments.show {
        Some(number) => show(arguments.json, pool, &rows, number, out)?,
        None if arguments.json => {
            for row in &rows {
                // Numbers, strings and nothing else: there is always a JSON of that.
                let _ = serde_json::to_writer(&mut *out, row);
                out.push(b'\n');
            }
        }
        None => list::print(pool, &rows, out),
    }
    if unreadable != 0 && arguments.show.is_none() {
        eprintln!(
            "arck violations: {unreadable} lines of {} are of another release, or damaged, and \
             left out",
            pool.join(arck_controller::VIOLATIONS_LOG).display()
        );
    }
    Ok(())
}

fn check_pool(pool: &Path) -> Result<(), String> {
    crate::nested::refuse(pool)?;
    let shown = pool.display();
    match std::fs::metadata(pool.join(layout::SUPERBLOCK)) {
        Ok(_) => Ok(()),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            let advice = crate::run::without_superblock(pool);
            Err(advice.unwrap_or_else(|| {
                format!(
                    "there is no pool at {shown}; name the directory of one: arck violations POOL"
                )
            }))
        }
        Err(error) => Err(format!(
            "cannot use the pool {shown}: {}; run this as its owner",
            crate::run::plain(&error)
        )),
    }
}

fn show(
    json: bool,
    pool: &Path,
    rows: &[Row],
    number: usize,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let row = rows
        .iter()
        .find(|row| row.number == Some(number))
        .ok_or_else(|| match rows.iter().filter_map(|row| row.number).max() {
            None => format!("nothing was refused on {}", pool.display()),
            Some(last) => format!("there is no number {number}: they go from 1 to {last}"),
        })?;
    let file = match (&row.outcome, &row.file) {
        (Some(Outcome::SetAside), Some(file)) => pool.join(file),
        (Some(Outcome::SetAside), None) => {
            return Err(format!(
                "number {number} is lost: there was no space to set it aside"
            ));
        }
        (Some(Outcome::Repaired), _) => {
            return Err(format!(
                "number {number} was not set aside: its session repaired it"
            ));
        }
        _ => {
            return Err(format!(
                "number {number} is not set aside yet: its session may still repair it"
            ));
        }
    };
    let aside = arck_controller::SetAside::read(&file).map_err(|error| match error.kind() {
        ErrorKind::NotFound => format!(
            "{} is gone: only the newest changes of each user are kept",
            file.display()
        ),
        _ => format!(
            "cannot read {}: {}",
            file.display(),
            crate::run::plain(&error)
        ),
    })?;
    let decoded = delta::Decoded::of(&aside);
    if json {
        let _ = serde_json::to_writer(&mut *out, &decoded);
        out.push(b'\n');
    } else {
        decoded.print(&file, out);
    }
    Ok(())
}
