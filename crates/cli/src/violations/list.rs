//! The list: each refusal with what became of it.

use arck_controller::{Entry, Event};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// A line of the list. Everything but time and user is missing where it does not apply.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Row {
    /// From 1; none for a line that only says that others are missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<usize>,
    /// Nanoseconds since 1970.
    pub time: i64,
    pub uid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inode: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// Path in the pool's directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppressed: Option<u64>,
}

/// What became of what was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Nothing yet, as far as the log tells.
    Pending,
    Repaired,
    SetAside,
    /// The session was closed.
    Closed,
}

/// The rows of a log, in its order. What was set aside along with something else, without having
/// been refused itself, is a row of its own.
pub fn rows(entries: Vec<Entry>) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for Entry { time, uid, event } in entries {
        let subject = event.subject();
        let row = Row {
            time,
            uid,
            session: subject.map(|(session, _)| session),
            inode: subject.map(|(_, inode)| inode),
            ..Row::default()
        };
        let (outcome, file, because) = match event {
            Event::Refused {
                group,
                rule,
                offset,
                detail,
                ..
            } => {
                rows.push(Row {
                    group: Some(group),
                    rule: Some(rule),
                    offset: Some(offset),
                    detail: Some(detail),
                    outcome: Some(Outcome::Pending),
                    ..row
                });
                continue;
            }
            Event::Suppressed { count } => {
                rows.push(Row {
                    suppressed: Some(count),
                    ..row
                });
                continue;
            }
            Event::Outgrown {
                session,
                file,
                size,
                bytes,
                allowed,
            } => {
                rows.push(Row {
                    session: Some(session),
                    detail: Some(format!(
                        "{file}: {size} bytes long, {bytes} allocated of at most {allowed}"
                    )),
                    outcome: Some(Outcome::Closed),
                    ..row
                });
                continue;
            }
            Event::Repaired { .. } => (Outcome::Repaired, None, None),
            Event::SetAside { file, because, .. } => (Outcome::SetAside, file, Some(because)),
        };
        let mut told = false;
        for refused in rows.iter_mut().filter(|refused| {
            refused.outcome == Some(Outcome::Pending)
                && (refused.session, refused.inode) == (row.session, row.inode)
        }) {
            refused.outcome = Some(outcome);
            refused.file.clone_from(&file);
            told = true;
        }
        if !told && outcome == Outcome::SetAside {
            rows.push(Row {
                detail: because,
                outcome: Some(outcome),
                file,
                ..row
            });
        }
    }
    let mut number = 0;
    for row in rows.iter_mut().filter(|row| row.suppressed.is_none()) {
        number += 1;
        row.number = Some(number);
    }
    rows
}

/// As a table.
pub fn print(pool: &Path, rows: &[Row], out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = write_table(pool, rows, out);
}

fn write_table(pool: &Path, rows: &[Row], out: &mut Vec<u8>) -> std::io::Result<()> {
    if rows.is_empty() {
        return writeln!(out, "nothing was refused on {}", pool.display());
    }
    writeln!(
        out,
        "{:>4}  {:19}  {:>6}  {:>7}  {:>8}  RULE, PLACE, WHAT",
        "N", "TIME (UTC)", "USER", "SESSION", "INODE"
    )?;
    for row in rows {
        let time = utc(row.time);
        if let Some(count) = row.suppressed {
            writeln!(
                out,
                "{:>4}  {time:19}  {:>6}  {count} more before this were left out",
                "", row.uid
            )?;
            continue;
        }
        let text = |number: Option<u32>| number.map_or_else(String::new, |n| n.to_string());
        write!(
            out,
            "{:>4}  {time:19}  {:>6}  {:>7}  {:>8}  ",
            row.number.unwrap_or_default(),
            row.uid,
            text(row.session),
            text(row.inode)
        )?;
        let detail = row.detail.as_deref().unwrap_or_default();
        match (&row.group, &row.rule, row.offset) {
            (Some(group), Some(rule), Some(offset)) => {
                writeln!(out, "{group} {rule} at {offset:#x}: {detail}")?;
            }
            _ if row.outcome == Some(Outcome::Closed) => writeln!(out, "more memory: {detail}")?,
            _ => writeln!(out, "along with another inode: {detail}")?,
        }
        let became = match (row.outcome, &row.file) {
            (Some(Outcome::Repaired), _) => "repaired by its session".to_owned(),
            (Some(Outcome::SetAside), Some(file)) => {
                format!("set aside in {}", pool.join(file).display())
            }
            (Some(Outcome::Closed), _) => {
                "its session was closed, and the rest taken back".to_owned()
            }
            (Some(Outcome::SetAside), None) => "lost: it could not be set aside".to_owned(),
            _ => "not settled yet: its session may still repair it".to_owned(),
        };
        writeln!(out, "      {became}")?;
    }
    Ok(())
}

/// Nanoseconds since 1970 as `2026-11-21 19:44:29`.
pub fn utc(time: i64) -> String {
    let seconds = time.div_euclid(1_000_000_000);
    let (day, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let is_leap = |year: i64| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // 400 years have 146,097 days; within them a year at a time.
    let mut year = 1970 + day.div_euclid(146_097) * 400;
    let mut left = day.rem_euclid(146_097);
    loop {
        let days = if is_leap(year) { 366 } else { 365 };
        if left < days {
            break;
        }
        left -= days;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for days in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if left < days {
            break;
        }
        left -= days;
        month += 1;
    }
    format!(
        "{year:04}-{month:02}-{:02} {:02}:{:02}:{:02}",
        left + 1,
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00"),
            (951_782_400, "2000-02-29 00:00:00"),
            (1_795_290_269, "2026-11-21 19:44:29"),
            (4_107_542_399, "2100-02-28 23:59:59"),
            (4_107_542_400, "2100-03-01 00:00:00"),
            (-1, "1969-12-31 23:59:59"),
        ] {
            assert_eq!(utc(seconds * 1_000_000_000), text);
        }
    }

    fn entry(event: Event) -> Entry {
        Entry {
            time: 1,
            uid: 7,
            event,
        }
    }

    fn refused(inode: u32) -> Entry {
        entry(Event::Refused {
            session: 3,
            inode,
            group: "I1".into(),
            rule: "Name".into(),
            offset: 64,
            detail: "x".into(),
        })
    }

    fn set_aside(inode: u32, file: Option<&str>) -> Entry {
        entry(Event::SetAside {
            session: 3,
            inode,
            fold: 1,
            file: file.map(str::to_owned),
            because: "why".into(),
        })
    }

    #[test]
    fn each_refusal_gets_its_own_outcome() {
        let repaired = entry(Event::Repaired {
            session: 3,
            inode: 10,
        });
        let suppressed = entry(Event::Suppressed { count: 5 });
        let rows = rows(vec![
            refused(10),
            refused(11),
            repaired,
            refused(10),
            suppressed,
            refused(10),
            set_aside(10, Some("aside/a")),
            set_aside(12, None),
        ]);
        let outcomes: Vec<_> = rows
            .iter()
            .map(|row| (row.number, row.inode, row.outcome, row.file.as_deref()))
            .collect();
        let aside = Some(Outcome::SetAside);
        assert_eq!(
            outcomes,
            [
                (Some(1), Some(10), Some(Outcome::Repaired), None),
                (Some(2), Some(11), Some(Outcome::Pending), None),
                (Some(3), Some(10), aside, Some("aside/a")),
                (None, None, None, None),
                (Some(4), Some(10), aside, Some("aside/a")),
                (Some(5), Some(12), aside, None),
            ]
        );
    }

    #[test]
    fn who_took_too_much_memory_is_told_of() {
        let rows = rows(vec![entry(Event::Outgrown {
            session: 3,
            file: "segments/00000007".into(),
            size: 4096,
            bytes: 9000,
            allowed: 5000,
        })]);
        assert_eq!(
            (rows[0].session, rows[0].outcome),
            (Some(3), Some(Outcome::Closed))
        );
        let mut text = Vec::new();
        print(Path::new("pool"), &rows, &mut text);
        let text = String::from_utf8(text).unwrap();
        assert!(
            text.contains("segments/00000007: 4096 bytes long, 9000 allocated of at most 5000")
                && text.contains("its session was closed"),
            "{text}"
        );
    }
}
