//! `arck manual DIRECTORY`: writes the manual pages and the completions for shells, for whoever installs or
//! packages the command (`make build`). It is no command of users', and not in the help.
//!
//! Both are made from the definition of the command line, so that they say of each option what its help says.
//!
//! Invariant: what is written depends on the definition alone, on no date and no machine.

mod page;
mod tables;

use clap::ValueEnum;
use clap_complete::Shell;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The directory, if the command line asks for that and nothing else.
pub fn asked() -> Option<PathBuf> {
    let mut words = std::env::args_os().skip(1);
    let is_asked = words.next().as_deref() == Some(OsStr::new("manual"));
    let directory = words.next().filter(|_| is_asked)?;
    words.next().is_none().then(|| PathBuf::from(directory))
}

/// Writes all of it, as the command line is defined.
pub fn main(directory: &Path, command: clap::Command) -> ExitCode {
    match write(directory, &documented(command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let shown = directory.display();
            eprintln!("arck manual: {shown}: {}", crate::run::plain(&error));
            ExitCode::FAILURE
        }
    }
}

/// `man1/arck*.1`, and `arck.bash`, `_arck`, `arck.fish`.
fn write(directory: &Path, command: &clap::Command) -> std::io::Result<()> {
    let pages = directory.join("man1");
    std::fs::create_dir_all(&pages)?;
    for (name, text) in pages_of(command.clone()) {
        std::fs::write(pages.join(format!("{name}.1")), text)?;
    }
    for shell in Shell::value_variants() {
        let name = match shell {
            Shell::Bash => "arck.bash",
            Shell::Zsh => "_arck",
            Shell::Fish => "arck.fish",
            _ => continue,
        };
        let mut text = Vec::new();
        clap_complete::generate(*shell, &mut command.clone(), "arck", &mut text);
        std::fs::write(directory.join(name), text)?;
    }
    Ok(())
}

/// What there is help of has a page, and nothing else.
fn documented(command: clap::Command) -> clap::Command {
    command.disable_help_subcommand(true)
}

/// Of the command and each of its subcommands: the name, and the page.
fn pages_of(mut command: clap::Command) -> Vec<(String, Vec<u8>)> {
    command.build();
    let inner: Vec<clap::Command> = command.get_subcommands().cloned().collect();
    let names: Vec<String> = inner
        .iter()
        .map(|inner| format!("arck-{}", inner.get_name()))
        .collect();
    let mut pages = vec![("arck".to_owned(), page::of(&command, &names))];
    for (name, inner) in names.iter().zip(&inner) {
        let beside: Vec<String> = std::iter::once("arck".to_owned())
            .chain(tables::beside(name).iter().map(|&name| name.to_owned()))
            .collect();
        pages.push((name.clone(), page::of(inner, &beside)));
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn each_command_has_a_page_that_says_what_its_help_does() {
        let command = documented(crate::Arguments::command());
        let pages = pages_of(command.clone());
        assert_eq!(pages.len(), 1 + command.get_subcommands().count());
        let text = |name: &str| {
            let page = pages.iter().find(|(of, _)| of == name);
            String::from_utf8(page.expect(name).1.clone()).unwrap()
        };
        for (name, _) in &pages {
            let page = text(name);
            for section in [
                "NAME",
                "SYNOPSIS",
                "DESCRIPTION",
                "EXAMPLES",
                "\"SEE ALSO\"",
            ] {
                let line = format!(".SH {section}\n");
                assert_eq!(page.matches(&line).count(), 1, "{name}: {section}");
            }
            // None of its lines is a request by accident, nor names a page that is not there.
            for line in page.lines().filter(|line| line.starts_with('.')) {
                let known = [
                    "TH", "SH", "TP", "PP", "RS", "RE", "IP", "nf", "fi", "br", "ie", "el",
                ];
                let request = line[1..].split(' ').next().unwrap_or_default();
                assert!(known.contains(&request), "{name}: {line}");
            }
            for other in tables::beside(name) {
                assert!(pages.iter().any(|(of, _)| of == other), "{name}: {other}");
            }
        }
        let synopsis = |name: &str| {
            let page = text(name);
            let (_, behind) = page.split_once(".SH SYNOPSIS\n").expect(name);
            let lines = behind.lines().take_while(|line| !line.starts_with(".SH"));
            lines.collect::<Vec<_>>().join("\n")
        };
        let taken = [
            ("arck", "<COMMAND>"),
            ("arck-run", "<CMD>..."),
            ("arck-mkfs", "<SIZE>"),
            ("arck-mount", "DIR"),
        ];
        for (name, word) in taken {
            assert!(synopsis(name).contains(word), "{}", synopsis(name));
        }
        let run = text("arck-run");
        for part in [
            "EXIT STATUS",
            "ENVIRONMENT",
            "FILES",
            "ARCK_WAIT",
            "\\-\\-group",
        ] {
            assert!(run.contains(part), "{part}");
        }
    }
}
