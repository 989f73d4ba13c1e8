//! The crash explorer: what a failure of the machine may leave of short workloads, recovered and
//! looked at ([`arck_testkit::explorer`]); and whether it sees when a flush, a fence or a streaming
//! store is left out.
//!
//! `ARCK_EXPLORER=full`: everything in depth, hours; `ARCK_EXPLORER=full:1/8` is the first of eight
//! parts of that, which together are all of it. `ARCK_EXPLORER=noticed`: only what happens if
//! something is left out that somebody has to notice, with a line for each place;
//! `ARCK_EXPLORER=places`: if anything is. `ARCK_EXPLORER_ONLY=TEXT`: only workloads with this text in their names, or
//! places, with a line for each. Its own `main`: it starts itself again as workers, since a process
//! records one trace at a time.

mod places;
mod worker;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// How much is tried.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Depth {
    /// States, and what somebody has to notice.
    Quick,
    /// What somebody has to notice if it is left out.
    Noticed,
    Places,
    Full(Share),
}

/// One part of so many, each as good as the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    part: usize,
    of: usize,
}

impl Share {
    const ALL: Share = Share { part: 1, of: 1 };

    /// As `1/8` says it.
    fn read(text: &str) -> Option<Share> {
        let (part, of) = text.split_once('/')?;
        let share = Share {
            part: part.parse().ok()?,
            of: of.parse().ok()?,
        };
        (1..=share.of).contains(&share.part).then_some(share)
    }

    /// Whether it has what is of this number.
    fn has(self, number: usize) -> bool {
        number % self.of == self.part - 1
    }
}

fn depth() -> Depth {
    let text = std::env::var("ARCK_EXPLORER").unwrap_or_default();
    match text.as_str() {
        "" => Depth::Quick,
        "full" => Depth::Full(Share::ALL),
        "places" => Depth::Places,
        "noticed" => Depth::Noticed,
        text => {
            let share = text.strip_prefix("full:").and_then(Share::read);
            Depth::Full(share.unwrap_or_else(|| panic!("ARCK_EXPLORER={text}: see main.rs")))
        }
    }
}

/// So many times more is run what was not noticed and should have been.
const TRIES_AGAIN: usize = 2;

/// Characters that are told of how something was noticed, unless some places are asked for.
const TOLD: usize = 200;

/// Processes at once.
fn workers() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// What workers told, added up.
#[derive(Default)]
struct Told {
    sums: BTreeMap<String, u64>,
    failures: Vec<String>,
    /// Of what was left out: by which workload it was noticed.
    places: BTreeMap<String, Option<String>>,
}

impl Told {
    fn line(&mut self, line: &str) {
        let mut words = line.splitn(3, '\t');
        match (words.next(), words.next(), words.next()) {
            (Some("count"), Some(what), Some(number)) => {
                *self.sums.entry(what.into()).or_default() += number.parse().unwrap_or(0);
            }
            (Some("noticed"), Some(place), Some(by)) => {
                self.places.insert(place.into(), Some(by.into()));
                self.progress(place, &format!("noticed by {by}"));
            }
            (Some("unnoticed"), Some(place), Some(tried)) => {
                self.places.entry(place.into()).or_insert(None);
                self.progress(place, &format!("not noticed by {tried}"));
            }
            (Some("failed"), Some(text), _) => self.failures.push(text.into()),
            _ => println!("{line}"),
        }
    }

    fn progress(&self, place: &str, what: &str) {
        if depth() == Depth::Quick {
            return;
        }
        let all = self.sums.get("places").copied().unwrap_or(0);
        // The names of chains, and what the verifier says, are long.
        let most = match std::env::var_os("ARCK_EXPLORER_ONLY") {
            Some(_) => usize::MAX,
            None => TOLD,
        };
        let (head, tail) = match what.char_indices().nth(most) {
            Some((at, _)) => (&what[..at], " ..."),
            None => (what, ""),
        };
        println!(
            "{:>3} of {all}: {place:<60} {head}{tail}",
            self.places.len()
        );
    }
}

/// Runs the workers and collects what they tell.
fn run(phase: &str) -> Told {
    let count = workers();
    let this = std::env::current_exe().expect("this program");
    let mut children: Vec<_> = (0..count)
        .map(|worker| {
            Command::new(&this)
                .env("ARCK_EXPLORER_WORKER", format!("{phase} {worker} {count}"))
                .stdout(Stdio::piped())
                .spawn()
                .expect("a worker")
        })
        .collect();
    let mut told = Told::default();
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        for child in &mut children {
            let output = child.stdout.take().expect("its output");
            let sender = sender.clone();
            scope.spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    let _ = sender.send(line);
                }
            });
        }
        drop(sender);
        for line in receiver {
            told.line(&line);
        }
    });
    for mut child in children {
        match child.wait() {
            Ok(status) if status.success() => {}
            Ok(status) => told.failures.push(format!("a worker ended with {status}")),
            Err(error) => told.failures.push(format!("a worker: {error}")),
        }
    }
    told
}

fn main() -> ExitCode {
    if let Ok(what) = std::env::var("ARCK_EXPLORER_WORKER") {
        worker::main(&what);
        return ExitCode::SUCCESS;
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == "--list") {
        println!("crash_explorer: test");
        return ExitCode::SUCCESS;
    }
    let mut passed = 0;
    let mut failed = 0;
    let mut end = |name: &str, failures: &[String]| {
        if failures.is_empty() {
            passed += 1;
            println!("test {name} ... ok");
        } else {
            failed += 1;
            println!("test {name} ... FAILED");
            for failure in failures.iter().take(20) {
                println!("    {failure}");
            }
        }
    };

    let only = std::env::var_os("ARCK_EXPLORER_ONLY").is_some();
    if matches!(depth(), Depth::Quick | Depth::Full(_)) {
        end(
            "every_state_recovers_to_one_that_is_allowed",
            &explore(only),
        );
    }
    let leaves_out = match depth() {
        Depth::Quick | Depth::Full(_) => !only,
        Depth::Noticed | Depth::Places => true,
    };
    if leaves_out {
        let begun = Instant::now();
        let mut told = run("places");
        for _ in 0..TRIES_AGAIN {
            if !places::any_unexpected(&told.places) {
                break;
            }
            told.places.append(&mut noticed_by_another_run());
        }
        let mut failures = told.failures;
        let all = matches!(depth(), Depth::Places | Depth::Full(Share::ALL)) && !only;
        failures.extend(places::report(&told.places, all));
        println!("in {:.0} s", begun.elapsed().as_secs_f64());
        end("what_is_left_out_is_noticed", &failures);
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out",
        if failed == 0 { "ok" } else { "FAILED" }
    );
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Of what is left out, what another run notices. The controller works beside the recorded threads, so
/// no two runs record the same stores, and a place that few images show may go unnoticed once.
fn noticed_by_another_run() -> BTreeMap<String, Option<String>> {
    let mut places = run("places").places;
    places.retain(|_, by| by.is_some());
    places
}

/// Tries all workloads; gives what went wrong.
fn explore(only: bool) -> Vec<String> {
    let begun = Instant::now();
    let told = run("explore");
    let sum = |what: &str| told.sums.get(what).copied().unwrap_or(0);
    println!(
        "{} workloads, {} moments, {} states ({} of them after a second crash), {} distinct images \
         recovered, {} of them looked at by the whole-pool check, in {:.0} s with {} processes",
        sum("workloads"),
        sum("moments"),
        sum("states"),
        sum("nested"),
        sum("images"),
        sum("checked"),
        begun.elapsed().as_secs_f64(),
        workers(),
    );
    let mut failures = told.failures;
    let least = match depth() {
        Depth::Full(share) => 100_000 / share.of as u64,
        _ => 100_000,
    };
    if !only && sum("states") < least {
        failures.push(format!("{} states are too few", sum("states")));
    }
    failures
}
