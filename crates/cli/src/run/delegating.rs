//! By how many threads a command's programs have large accesses done: so many at once (`--at-once`), or threads of their own (`--delegate`).
//!
//! # Invariants
//! * What the environment says counts only where no option does, and is looked at before the command is started.
//! * One of both is said at most: an option of the one is more than a variable of the other.

use super::arguments::RunArguments;
use arckfs::{NotThreads, Threads};
use std::process::Command;

/// The variables that tell the preload library.
const AT_ONCE: &str = "ARCK_AT_ONCE";
const DELEGATE: &str = "ARCK_DELEGATE";

/// What is to be said to the library.
#[derive(Clone, Copy)]
pub struct Few {
    at_once: Threads,
    delegate: Threads,
}

/// What the options say, or else the environment.
pub fn few(arguments: &RunArguments) -> Result<Few, String> {
    let (at_once, delegate) = (arguments.at_once, arguments.delegate);
    let is_said = |option: Option<Threads>| option.is_some_and(|threads| threads != Threads::Off);
    let (is_at_once, is_delegate) = (is_said(at_once), is_said(delegate));
    let said = |option: Option<Threads>, other: bool, variable: &str| match option {
        Some(threads) => Ok(threads),
        None if other => Ok(Threads::Off),
        None => of_environment(variable),
    };
    let few = Few {
        at_once: said(at_once, is_delegate, AT_ONCE)?,
        delegate: said(delegate, is_at_once, DELEGATE)?,
    };
    match few.at_once != Threads::Off && few.delegate != Threads::Off {
        true => Err(format!(
            "{AT_ONCE} and {DELEGATE} are both set, and only one of them can be: unset the other"
        )),
        false => Ok(few),
    }
}

fn of_environment(variable: &str) -> Result<Threads, String> {
    match std::env::var_os(variable).filter(|text| !text.is_empty()) {
        None => Ok(Threads::default()),
        Some(text) => {
            let said = text.to_string_lossy().parse();
            said.map_err(|error: NotThreads| format!("{variable}: {error}"))
        }
    }
}

/// Tells the command. In a program of a pool a variable that is only taken away comes back when the command is executed, so `off` is said
/// where anything was.
pub fn tell(command: &mut Command, few: Few) {
    for (variable, threads) in [(AT_ONCE, few.at_once), (DELEGATE, few.delegate)] {
        if threads != Threads::Off || std::env::var_os(variable).is_some() {
            command.env(variable, threads.to_string());
        }
    }
}
