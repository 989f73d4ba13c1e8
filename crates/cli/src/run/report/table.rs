//! The report as a table for people: what is known, and what is not.
//!
//! Invariant: it never says that nothing got past the library where something may have that the
//! library cannot see.

use super::summary::{Interception, Process, Summary};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Processes shown one by one; the others are only counted.
const PROCESSES_SHOWN: usize = 12;

impl Interception {
    /// What was chosen at start-up instead of the fastest way, as a sentence; `None` if nothing.
    fn fallbacks(&self) -> Option<String> {
        let mut said = Vec::new();
        match (self.dispatch.as_str(), self.dispatch_choice.as_str()) {
            (_, "best") | (_, "") => {}
            ("none", choice) => said.push(format!(
                "no dispatch ({}): calls that libc makes itself are not served",
                reason(choice, "ARCK_DISPATCH", "the kernel refuses it")
            )),
            (dispatch, choice) => said.push(format!(
                "dispatch {dispatch} ({})",
                reason(choice, "ARCK_DISPATCH", "the kernel refuses sud-exclusive")
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

/// The table. Writing to a String cannot fail, so the results of `writeln!` are dropped.
pub fn table(summary: &Summary) -> String {
    let mut text = String::new();
    let program = summary.command.first().map_or("", String::as_str);
    let verdict = if summary.interception_on {
        "on"
    } else if summary.processes.is_empty() {
        "OFF: no process reported (static, set-user-ID, or killed at once?)"
    } else {
        "OFF for the command itself (static, set-user-ID, or killed at once?); see below"
    };
    let _ = writeln!(
        text,
        "arck report for {program}: {} on {}",
        summary.pool, summary.mount
    );
    let _ = writeln!(text, "interception: {verdict}");
    rows(&mut text, &summary.processes);
    counts(&mut text, "calls served by Arck:", &summary.served, " none");
    let seen = if summary.uncovered.is_empty() {
        " none seen"
    } else {
        " none seen where the library was loaded"
    };
    let title = "calls on pool paths or descriptors that got past it:";
    counts(&mut text, title, &summary.past, seen);
    unknown(&mut text, summary);
    let _ = writeln!(text, "{}", summary.strays);
    if summary.unreadable > 0 {
        let _ = writeln!(
            text,
            "lines of the report that could not be read: {}",
            summary.unreadable
        );
    }
    if summary.lines_are_missing {
        text.push_str(
            "lines are missing: some process had no room for what it had to tell (ulimit -f, or a full $TMPDIR)\n",
        );
    }
    text
}

/// Processes, and the fall-backs that they took.
fn rows(text: &mut String, processes: &[Process]) {
    if !processes.is_empty() {
        let _ = writeln!(
            text,
            "{:>9}  {:<18} {:<7} {:<14} {:>7} {:>12} {:>8}",
            "process", "program", "symbols", "dispatch", "patched", "served", "past"
        );
    }
    // Those first that have done anything.
    let mut sorted: Vec<&Process> = processes.iter().collect();
    sorted.sort_by_key(|process| process.served.is_empty() && process.past.is_empty());
    for process in sorted.into_iter().take(PROCESSES_SHOWN) {
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
            process.interception.dispatch,
            grouped(process.interception.patched_sites),
            sum(&process.served),
            sum(&process.past)
        );
    }
    if let Some(more) = processes
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
    let mut fallbacks: Vec<_> = processes
        .iter()
        .filter_map(|process| process.interception.fallbacks())
        .collect();
    fallbacks.sort_unstable();
    fallbacks.dedup();
    for said in fallbacks {
        let _ = writeln!(text, "fall-back: {said}");
    }
}

/// Calls by their count, or what to say if there are none.
fn counts(text: &mut String, title: &str, calls: &BTreeMap<String, u64>, none: &str) {
    let sorted = by_count(calls);
    let _ = writeln!(text, "{title}{}", if sorted.is_empty() { none } else { "" });
    for (call, count) in sorted {
        let _ = writeln!(text, "  {call:<24} {:>14}", grouped(count));
    }
}

/// What the library cannot know.
fn unknown(text: &mut String, summary: &Summary) {
    let cut = |entries: usize| {
        let more = entries.saturating_sub(PROCESSES_SHOWN);
        (more > 0).then(|| format!("and {} more", grouped(more as u64)))
    };
    if !summary.uncovered.is_empty() {
        let _ = writeln!(
            text,
            "the library was not loaded into these programs; what they did, and what they started without it, \
             is not known:"
        );
        for program in summary.uncovered.iter().take(PROCESSES_SHOWN) {
            let why = program.reason.as_deref().unwrap_or("why is not known");
            let _ = writeln!(text, "  {} x {} ({why})", program.times, program.program);
        }
        if let Some(more) = cut(summary.uncovered.len()) {
            let _ = writeln!(text, "  {more}");
        }
    }
    let endless: Vec<String> = summary
        .processes
        .iter()
        .filter(|process| !process.ended)
        .map(|process| format!("{} ({})", process.program, process.pid))
        .collect();
    if !endless.is_empty() {
        let mut shown = endless[..endless.len().min(PROCESSES_SHOWN)].join(", ");
        shown.extend(cut(endless.len()).map(|more| format!(" {more}")));
        let _ = writeln!(
            text,
            "killed, or still running: {shown}; what they did after their last line is not counted"
        );
    }
    let catches_all = |process: &Process| process.interception.dispatch == "sud-exclusive";
    if !summary.processes.iter().all(catches_all) {
        let _ = writeln!(
            text,
            "never seen with these ways of dispatch: system calls that programs make by their own instructions, \
             not through libc (ARCK_DISPATCH=sud-exclusive catches them)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LINES, summary};
    use super::*;

    #[test]
    fn fallbacks_are_told() {
        let line = |interception: &str| {
            let line = format!(r#"{{"pid":7,"program":"p","interception":{{{interception}}}}}"#);
            table(&summary(&line, 7))
        };
        let best =
            r#""symbols":true,"dispatch":"sud-exclusive","dispatch_choice":"best","patching":"on""#;
        assert!(!line(best).contains("fall-back"));
        // A library that does not say.
        assert!(!table(&summary(LINES, 7)).contains("fall-back"));
        for (interception, expected) in [
            (
                r#""dispatch":"sud-inclusive","dispatch_choice":"fallback","patching":"on""#,
                "fall-back: dispatch sud-inclusive (the kernel refuses sud-exclusive)\n",
            ),
            (
                r#""dispatch":"none","dispatch_choice":"asked","patching":"not-used""#,
                "fall-back: no dispatch (ARCK_DISPATCH): calls that libc makes itself are not served\n",
            ),
            (
                r#""dispatch":"sud-exclusive","dispatch_choice":"best","patching":"refused""#,
                "fall-back: sites are not rewritten (the system refuses it)\n",
            ),
            (
                r#""dispatch":"sud-inclusive","dispatch_choice":"asked","patching":"never""#,
                "fall-back: dispatch sud-inclusive (ARCK_DISPATCH); sites are not rewritten (ARCK_PATCH)\n",
            ),
        ] {
            let text = line(interception);
            assert!(text.contains(expected), "{text}");
        }
    }

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1000), "1,000");
        assert_eq!(grouped(12_345_678), "12,345,678");
    }
}
