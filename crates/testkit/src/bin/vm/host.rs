//! The host's side: rounds of booting, checking, working and cutting the power.
//!
//! # Invariant
//! What happens follows from the seed as far as a host can make it so: the workers' steps do, and
//! the delay after which the power is cut; which instruction that meets does not.

use crate::board::{Board, ROUNDS_MAX};
use crate::guest::WORKERS;
use crate::machine::{Machine, Parts};
use crate::medium::{FIGURES, Medium};
use arck_testkit::Random;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Bytes of the persistent memory.
const IMAGE_SIZE: u64 = 256 << 20;

/// Bytes before the file system: what says that the namespace is for direct access.
const INFORMATION_SIZE: u64 = 2 << 20;

/// When the power is cut: so long after the machine said so, or, where that is [`BUSY`], after each
/// worker has done its first steps.
struct Cut {
    after: &'static str,
    delay: Duration,
}

const BUSY: &str = "busy";
/// The first steps of a worker: it is at work from then on.
const FIRST_STEPS: u64 = 3;
/// How often the board is looked at, at least.
const LOOK: Duration = Duration::from_millis(10);
/// A machine whose workers have not begun by then never will: much longer than anything takes.
const BEGIN_MAX: Duration = Duration::from_secs(600);

/// What a round came to.
struct Round {
    booted: Duration,
    checked: Option<Duration>,
    all: Duration,
}

struct Settings {
    parts: Parts,
    directory: PathBuf,
    rounds: u64,
    seed: u64,
    /// The emulator's plugin that keeps apart what is in the medium; without it, all is.
    plugin: Option<PathBuf>,
}

fn settings(options: &[&str]) -> Result<Settings, String> {
    let mut settings = Settings {
        parts: Parts {
            image_size: IMAGE_SIZE,
            processors: 2,
            persist: "auto".to_owned(),
            ..Parts::default()
        },
        directory: PathBuf::new(),
        rounds: 16,
        seed: 1,
        plugin: None,
    };
    let parts = &mut settings.parts;
    for pair in options.chunks(2) {
        let &[name, value] = pair else {
            return Err(format!("{pair:?}: an option without a value"));
        };
        let number = || {
            let number = value.parse::<u64>().ok().filter(|&number| number > 0);
            number.ok_or(format!("{name}: \"{value}\" is no number above 0"))
        };
        match name {
            "--emulator" => parts.emulator = value.into(),
            "--libraries" => parts.libraries = Some(value.to_owned()),
            "--firmware" => parts.firmware.push(value.into()),
            "--kernel" => parts.kernel = value.into(),
            "--initial-files" => parts.initial_files = value.into(),
            "--directory" => settings.directory = value.into(),
            "--processors" => parts.processors = number()?,
            "--persist" => parts.persist = value.to_owned(),
            "--plugin" => settings.plugin = Some(value.into()),
            "--rounds" => settings.rounds = number()?.min(ROUNDS_MAX - 1),
            "--seed" => settings.seed = number()?,
            _ => return Err(format!("unknown option {name}")),
        }
    }
    parts.image = settings.directory.join("nvdimm");
    parts.board = settings.directory.join("board");
    Ok(settings)
}

/// Runs all rounds. With nothing flushed (`--persist never`), something has to be missing.
pub fn main(options: &[&str]) -> Result<(), String> {
    let settings = settings(options)?;
    if settings.parts.persist == "auto" {
        return rounds(settings);
    }
    match rounds(settings) {
        Ok(()) => Err("nothing was flushed, and nothing was missed: the test is blind".to_owned()),
        // Before the first cut nothing can be lost.
        Err(error) if error.contains(LOSS) && !error.starts_with("round 0") => {
            let line = error.lines().next().unwrap_or_default();
            println!("nothing was flushed, and it shows: {line}");
            Ok(())
        }
        Err(error) => Err(error),
    }
}

/// Begins what a machine says that does not find what it should.
const LOSS: &str = "FAILED: lost";

fn rounds(mut settings: Settings) -> Result<(), String> {
    let directory = settings.directory.clone();
    let describe = |error: std::io::Error| format!("{}: {error}", directory.display());
    File::create(&settings.parts.image)
        .and_then(|file| file.set_len(IMAGE_SIZE))
        .map_err(describe)?;
    let medium = match &settings.plugin {
        Some(plugin) => {
            Some(Medium::create(plugin, &settings.directory, IMAGE_SIZE).map_err(describe)?)
        }
        None => None,
    };
    if let Some(medium) = &medium {
        settings.parts.further = medium.words(&settings.parts.image);
    }
    let board = Board::create(&settings.parts.board)?;
    board.set_seed(settings.seed);
    println!("{} rounds, seed {}", settings.rounds, settings.seed);
    let began = Instant::now();
    let mut random = Random::new(settings.seed);
    let mut acknowledged = 0;
    for round in 0..=settings.rounds {
        board.set_round(round);
        let cut = if round == settings.rounds {
            board.set_final();
            None
        } else {
            Some(draw(round, &mut random))
        };
        // How much of what was not flushed stays: nothing, half, everything.
        let percent = *random.pick(&[0, 0, 50, 50, 100]);
        let result = run(&settings, &board, round, cut.as_ref())?;
        let lines = match &medium {
            Some(medium) => {
                let settled = medium.settle(
                    &settings.parts.image,
                    INFORMATION_SIZE,
                    percent,
                    &mut random,
                );
                let lines = settled.map_err(describe)?;
                format!("of {} cached lines {} stay", lines.cached, lines.kept)
            }
            None => "all cached lines stay".to_owned(),
        };
        let done: Vec<u64> = (0..WORKERS).map(|w| board.slot(round, w).done()).collect();
        acknowledged += done.iter().sum::<u64>();
        let checked = result.checked.map_or("-".to_owned(), |time| {
            format!("{:.1} s", time.as_secs_f64())
        });
        let ending = cut.map_or("shut down".to_owned(), |cut| {
            format!(
                "cut {:.3} s after \"{}\"",
                cut.delay.as_secs_f64(),
                cut.after
            )
        });
        println!(
            "round {round}: mounted after {:.1} s, checked after {checked}; {ending}; {lines}; {done:?} \
             steps acknowledged; {:.1} s",
            result.booted.as_secs_f64(),
            result.all.as_secs_f64()
        );
    }
    if let Some(medium) = &medium {
        let figures = medium.figures().map_err(describe)?;
        let text: Vec<String> = figures
            .iter()
            .zip(FIGURES)
            .map(|(count, name)| format!("{count} {name}"))
            .collect();
        println!("the plugin saw {}", text.join(", "));
        if figures.contains(&0) {
            return Err("the plugin is blind: it has to see some of each".to_owned());
        }
    }
    println!(
        "{} cuts, {acknowledged} acknowledged steps, nothing lost: {:.0} s",
        settings.rounds,
        began.elapsed().as_secs_f64()
    );
    Ok(())
}

/// When to cut. Mostly at work; sometimes while what was cut before is being recovered.
fn draw(round: u64, random: &mut Random) -> Cut {
    let milliseconds = |random: &mut Random, bound| Duration::from_millis(random.below(bound));
    match random.below(8) {
        0 if round > 0 => Cut {
            after: "mounting",
            delay: milliseconds(random, 300),
        },
        1 if round > 0 => Cut {
            after: "serving",
            delay: milliseconds(random, 600),
        },
        2 => Cut {
            after: "working",
            delay: milliseconds(random, 2000),
        },
        _ => Cut {
            after: BUSY,
            delay: milliseconds(random, 4000),
        },
    }
}

/// What a kernel that is not well says.
const ALARMS: [&str; 6] = [
    "EXT4-fs error",
    "Kernel panic",
    "BUG:",
    "Oops",
    "WARNING: CPU",
    "Call Trace",
];

fn run(settings: &Settings, board: &Board, round: u64, cut: Option<&Cut>) -> Result<Round, String> {
    let log_path = settings.directory.join(format!("console-{round}"));
    let log = File::create(&log_path).map_err(|e| format!("{}: {e}", log_path.display()))?;
    let mut machine = Machine::start(&settings.parts, log)?;
    let result = watch(&mut machine, board, round, cut);
    let said = machine.cut();
    let alarm = said
        .iter()
        .find(|line| ALARMS.iter().any(|alarm| line.contains(alarm)));
    match (result, alarm) {
        (Ok(result), None) => Ok(result),
        (Ok(_), Some(alarm)) => Err(failure(settings, round, &said, alarm, &log_path)),
        (Err(error), _) => Err(failure(settings, round, &said, &error, &log_path)),
    }
}

fn failure(settings: &Settings, round: u64, said: &[String], error: &str, log: &Path) -> String {
    let tail = &said[said.len().saturating_sub(30)..];
    format!(
        "round {round}, seed {}: {error}\nthe console's last lines (all of them: {}):\n  {}",
        settings.seed,
        log.display(),
        tail.join("\n  ")
    )
}

/// Listens until the power is to be cut, or the machine has shut down.
fn watch(
    machine: &mut Machine,
    board: &Board,
    number: u64,
    cut: Option<&Cut>,
) -> Result<Round, String> {
    let began = Instant::now();
    let mut round = Round {
        booted: Duration::ZERO,
        checked: None,
        all: Duration::ZERO,
    };
    // When the power is to be cut, once that is known.
    let mut end = None;
    let mut working = None;
    let mut finished = false;
    while end.is_none_or(|end| Instant::now() < end) {
        // At work the machine says nothing; before, it has to say something in time.
        let until = end.or(working.map(|_| Instant::now() + LOOK));
        let line = match machine.line(until) {
            Ok(line) => line.unwrap_or_default(),
            Err(_) if finished => break,
            Err(error) => return Err(error),
        };
        // Behind what the firmware left on the line, maybe.
        let mut event = line.split_once("vm: ").map_or("", |(_, event)| event);
        if event.starts_with("FAILED") {
            return Err(event.to_owned());
        }
        match event {
            "mounted" => round.booted = began.elapsed(),
            "checked" => round.checked = Some(began.elapsed()),
            "working" => working = Some(Instant::now()),
            "finished" => finished = true,
            _ => {}
        }
        if let Some(since) = working
            && end.is_none()
            && event.is_empty()
        {
            if (0..WORKERS).all(|worker| board.slot(number, worker).done() >= FIRST_STEPS) {
                event = BUSY;
            }
            if since.elapsed() > BEGIN_MAX {
                return Err("the workers do not begin".to_owned());
            }
        }
        if let Some(cut) = cut
            && event == cut.after
        {
            end = Some(Instant::now() + cut.delay);
        }
    }
    round.all = began.elapsed();
    Ok(round)
}
