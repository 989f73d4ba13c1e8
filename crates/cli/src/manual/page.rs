//! One manual page: what clap knows of a command, and what its help says behind the options, each in the section
//! where readers of manuals look for it.
//!
//! Help ends with paragraphs: one that begins with `Examples:`, one that begins with `Exit status:`, and others, which
//! describe. Lines that are indented stand as they are.

use super::tables;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, italic, roman};

/// How examples begin, and what is said of exit statuses.
const EXAMPLES: &str = "Examples:";
const EXIT_STATUS: &str = "Exit status:";

/// What stands behind the options in a command's help.
#[derive(Default)]
struct Parts<'t> {
    described: Vec<&'t str>,
    examples: Vec<&'t str>,
    exit_status: Option<&'t str>,
}

impl<'t> Parts<'t> {
    fn of(text: &'t str) -> Parts<'t> {
        let mut parts = Parts::default();
        for paragraph in text.split("\n\n") {
            if let Some(examples) = paragraph.strip_prefix(EXAMPLES) {
                parts.examples = examples.lines().filter(|line| !line.is_empty()).collect();
            } else if let Some(status) = paragraph.strip_prefix(EXIT_STATUS) {
                parts.exit_status = Some(status);
            } else {
                parts.described.push(paragraph);
            }
        }
        parts
    }
}

/// The page of a command that has been built; `beside` are pages that it refers to.
pub fn of(command: &clap::Command, beside: &[String]) -> Vec<u8> {
    let name = command
        .get_display_name()
        .unwrap_or_else(|| command.get_name())
        .to_owned();
    let version = command.get_version().unwrap_or(env!("CARGO_PKG_VERSION"));
    let man = Man::new(command.clone()).section("1");
    let help = command.get_after_help().map(ToString::to_string);
    let help = help.unwrap_or_default();
    let parts = Parts::of(&help);
    // Without a date, for which there would be a line that is shorter by one word.
    let title = name.to_uppercase();
    let mut page = format!(".TH {title} 1 \"\" \"arck {version}\" \"Arck\"\n").into_bytes();
    // Writing to memory does not fail.
    let _ = man.render_name_section(&mut page);
    let mut roff = Roff::new();
    roff.control("SH", ["SYNOPSIS"]);
    roff.text(synopsis(command, &name));
    roff.control("SH", ["DESCRIPTION"]);
    let about = command.get_long_about().or_else(|| command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let about = about.trim_end_matches('.');
    roff.text([
        bold(name.replacen('-', " ", 1)),
        roman(format!(": {}.", changed(about, char::to_ascii_lowercase))),
    ]);
    for paragraph in tables::described(&name).iter().chain(&parts.described) {
        roff.control("PP", []);
        paragraph_of(&mut roff, paragraph);
    }
    let _ = roff.to_writer(&mut page);
    let _ = man.render_options_section(&mut page);
    if command.get_subcommands().next().is_some() {
        let _ = man.render_subcommands_section(&mut page);
    }
    let mut roff = Roff::new();
    if let Some(status) = parts.exit_status {
        roff.control("SH", ["EXIT STATUS"]);
        roff.text([roman(changed(status.trim(), char::to_ascii_uppercase))]);
    }
    table(&mut roff, "ENVIRONMENT", tables::environment(&name));
    table(&mut roff, "FILES", tables::files(&name));
    roff.control("SH", ["EXAMPLES"]);
    roff.control("nf", []);
    for line in &parts.examples {
        roff.text([roman(line.trim_start())]);
    }
    roff.control("fi", []);
    roff.control("SH", ["SEE ALSO"]);
    let mut words: Vec<Inline> = Vec::new();
    for other in beside {
        words.extend((!words.is_empty()).then(|| roman(", ")));
        words.extend([bold(other.as_str()), roman("(1)")]);
    }
    roff.text(words);
    let _ = roff.to_writer(&mut page);
    page
}

/// How the command is written, as its help says it: clap's own synopsis has each option, and not what it takes.
fn synopsis(command: &clap::Command, name: &str) -> Vec<Inline> {
    let usage = command.clone().render_usage().to_string();
    let words = usage.split_whitespace().skip(1).map(str::to_owned);
    let words: Vec<String> = words.collect();
    let own = name.split('-').count().min(words.len());
    let (own, taken) = words.split_at(own);
    let mut line = vec![bold(own.join(" "))];
    line.extend(
        taken
            .iter()
            .flat_map(|word| [roman(" "), italic(word.as_str())]),
    );
    line
}

/// A text whose first letter is another.
fn changed(text: &str, change: impl Fn(&char) -> char) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|first| change(&first));
    first.into_iter().chain(letters).collect()
}

/// Text, whose indented lines stand as they are.
fn paragraph_of(roff: &mut Roff, paragraph: &str) {
    let mut is_set = false;
    for line in paragraph.lines() {
        let indented = line.starts_with(' ');
        if indented != is_set {
            roff.control(if indented { "RS" } else { "fi" }, []);
            roff.control(if indented { "nf" } else { "RE" }, []);
            is_set = indented;
        }
        roff.text([roman(line.trim_start())]);
    }
    if is_set {
        roff.control("fi", []);
        roff.control("RE", []);
    }
}

fn table(roff: &mut Roff, section: &str, rows: &[tables::Row]) {
    if rows.is_empty() {
        return;
    }
    roff.control("SH", [section]);
    for (name, text) in rows {
        roff.control("TP", []);
        roff.text([italic(*name)]);
        roff.text([roman(*text)]);
    }
}
