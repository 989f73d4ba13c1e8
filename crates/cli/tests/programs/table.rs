//! The table that is printed at the end.

use crate::case::{Case, Form};
use std::fmt::Write;
use std::time::Duration;

pub struct Row {
    program: String,
    compares: String,
    pub version: String,
    pub ok: bool,
    pub host: Vec<Duration>,
    pub pool: Vec<(Form, Duration)>,
}

impl Row {
    pub fn new(case: &Case) -> Row {
        Row {
            program: case.program.clone(),
            compares: case.compares.clone(),
            version: String::new(),
            ok: false,
            host: Vec::new(),
            pool: Vec::new(),
        }
    }

    /// Time in seconds, and how many times that of tmpfs it is.
    fn form(&self, form: Form) -> (String, String) {
        let times = self.pool.iter().filter(|(of, _)| *of == form);
        match (median(times.map(|(_, time)| *time)), self.host()) {
            (Some(time), Some(host)) => (seconds(time), format!("{:.2}", time / host)),
            _ => ("-".to_owned(), "-".to_owned()),
        }
    }

    fn host(&self) -> Option<f64> {
        median(self.host.iter().copied())
    }
}

/// In seconds.
fn median(times: impl Iterator<Item = Duration>) -> Option<f64> {
    let mut times: Vec<_> = times.map(|time| time.as_secs_f64()).collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied()
}

fn seconds(time: f64) -> String {
    format!("{time:.2} s")
}

/// In Markdown.
pub fn table(rows: &[Row], rounds: usize) -> String {
    let mut text = String::from(
        "\n| program | version | what is compared | result | tmpfs | arck run | ratio | \
         arck run --no-group | ratio | mount | ratio |\n\
         | --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n",
    );
    for row in rows {
        let (run, run_ratio) = row.form(Form::Run);
        let (alone, alone_ratio) = row.form(Form::Alone);
        let (mount, mount_ratio) = row.form(Form::Mount);
        let host = row.host().map_or("-".to_owned(), seconds);
        let result = if row.ok { "ok" } else { "differs" };
        let _ = writeln!(
            text,
            "| {} | {} | {} | {result} | {host} | {run} | {run_ratio} | {alone} | {alone_ratio} | {mount} | \
             {mount_ratio} |",
            row.program, row.version, row.compares
        );
    }
    let _ = writeln!(
        text,
        "\nMedians of {rounds} run(s) of the whole case; ratio: how many times as long as on tmpfs. Every \
         store of Arck is flushed (--persist always)."
    );
    text
}
