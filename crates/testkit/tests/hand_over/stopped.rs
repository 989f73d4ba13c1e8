//! Owners that are stopped (SIGSTOP) while what they have done is folded: between the seal and what follows, in the
//! middle of an operation for which the fold waits, and at random instants of a storm of names.
//!
//! Whoever wants the directory gets it while the owner stands: with all that was acknowledged, and nothing by halves.
//! When it goes on, it finds what has become of it, and loses nothing.

use super::other::{Other, TOLD};
use arck_testkit::harness::Case;
use arck_testkit::window::{Next, Window};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Failure, FileSystem};
use std::collections::BTreeSet;

pub const ALL: &[Case] = &[
    (
        "an_owner_stopped_between_seal_and_fold",
        an_owner_stopped_between_seal_and_fold,
    ),
    (
        "an_owner_stopped_inside_while_a_fold_marks",
        an_owner_stopped_inside_while_a_fold_marks,
    ),
    (
        "an_owner_stopped_anywhere_in_a_storm",
        an_owner_stopped_anywhere_in_a_storm,
    ),
];

const SIZE: u64 = 64 << 20;

/// A directory `d` of the other's with verified names, and changes of each kind that no fold has seen.
fn begin(other: &mut Other, fs: &FileSystem) {
    other.does("mkdir d");
    other.does("mkdir e");
    for name in ["gone", "moved", "away", "stays", "later"] {
        other.does(&format!("put d/{name} {name}"));
    }
    // So that it has a stock of all it needs while nobody answers.
    for round in 0..30 {
        other.does(&format!("put e/{round} {round}"));
    }
    assert_eq!(fs.names("d").expect("a listing").len(), 5);
    assert_eq!(fs.names("e").expect("a listing").len(), 30);
    other.does("unlink d/gone");
    other.does("rename d/moved d/there");
    other.does("rename d/away e/away");
    other.does("put d/new made");
}

const SEALED: &[&str] = &["later", "new", "stays", "there"];
/// With what the owner does behind the seal.
const BOTH: &[&str] = &["beside", "later", "new", "stays", "twice"];

fn names(fs: &FileSystem, directory: &str) -> Vec<String> {
    fs.names(directory).expect("a listing")
}

fn an_owner_stopped_between_seal_and_fold() {
    let cases = [false, true].into_iter();
    for (goes_on, writes) in cases.flat_map(|goes_on| [(goes_on, false), (goes_on, true)]) {
        let what = format!("goes on {goes_on}, writes {writes}");
        let (pool, window) = Window::pool(SIZE);
        let mut other = Other::start(&pool.path());
        let fs = pool.session();
        begin(&mut other, &fs);
        window.arm();
        let found = std::thread::scope(|scope| {
            let looks = scope.spawn(|| names(&fs, "d"));
            window.wait();
            if goes_on {
                other.does("put d/beside beside");
                other.does("rename d/there d/twice");
            }
            other.signal(libc::SIGSTOP);
            window.close(Next::GoesOn);
            looks.join().expect("no panic")
        });
        // Who asked before the seal has what was sealed; who asks now, all.
        let all = if goes_on { BOTH } else { SEALED };
        assert!(found == SEALED || found == all, "{what}: {found:?}");
        assert_eq!(names(&fs, "d"), all, "{what}");
        assert!(names(&fs, "e").contains(&"away".to_owned()), "{what}");
        let mut all: Vec<&str> = all.to_vec();
        if writes {
            fs.put("d/mine", b"taken").expect("a file");
            fs.unlink(At::Root, b"d/stays", 0).expect("unlinked");
            all.retain(|name| *name != "stays");
            all.push("mine");
        }
        assert_eq!(fs.get("d/new").expect("a file"), b"made", "{what}");
        assert!(other.is_stopped(), "{what}");
        other.signal(libc::SIGCONT);
        other.does("put d/again more");
        other.does("unlink d/later");
        all.retain(|name| *name != "later");
        all.push("again");
        all.sort_unstable();
        if writes {
            assert_eq!(other.ask("get d/mine"), "taken", "{what}");
        }
        assert_eq!(names(&fs, "d"), all, "{what}");
        assert_eq!(fs.get("d/again").expect("a file"), b"more", "{what}");
        assert_eq!(pool.violations(), "", "{what}");
    }
}

/// It is inside when the mark comes, and stays inside: the fold waits for its patience, and goes on without it. What
/// it does afterwards is done.
fn an_owner_stopped_inside_while_a_fold_marks() {
    let (pool, _window) = Window::pool(SIZE);
    let mut other = Other::start(&pool.path());
    let fs = pool.session();
    begin(&mut other, &fs);
    assert_eq!(other.ask("hold d"), "ok");
    other.signal(libc::SIGSTOP);
    // As often as anybody asks.
    for round in 0..10 {
        assert_eq!(names(&fs, "d"), SEALED, "{round}");
    }
    fs.put("d/mine", b"taken").expect("a file");
    fs.rename(At::Root, b"d/later", At::Root, b"e/later", 0)
        .expect("a rename");
    assert!(other.is_stopped());
    other.signal(libc::SIGCONT);
    other.does("end");
    other.does("put d/again more");
    assert_eq!(other.ask("get d/mine"), "taken");
    assert_eq!(other.ask("get e/later"), "later");
    assert_eq!(names(&fs, "d"), ["again", "mine", "new", "stays", "there"]);
    assert_eq!(pool.violations(), "");
}

/// A name stays for so many rounds.
const STAYS: u64 = 40;

/// Steps in a storm of names: of three, one makes a name, one moves it, one takes away what came some rounds before.
pub fn step(fs: &FileSystem, directory: &str, step: u64) -> Result<(), Failure> {
    let round = step / 3;
    let path = |word: &str, round: u64| format!("{directory}/{word} {round}").into_bytes();
    match step % 3 {
        0 => fs.put(&format!("{directory}/made {round}"), b"text"),
        1 => {
            let (from, to) = (path("made", round), path("moved", round));
            fs.rename(At::Root, &from, At::Root, &to, 0)
        }
        _ if round >= STAYS => fs.unlink(At::Root, &path("moved", round - STAYS), 0),
        _ => Ok(()),
    }
}

/// What a storm has made, after so many steps.
#[derive(Clone, Default)]
struct Storm {
    names: BTreeSet<String>,
    steps: u64,
}

impl Storm {
    fn go_on(&mut self) {
        let round = self.steps / 3;
        match self.steps % 3 {
            0 => self.names.insert(format!("made {round}")),
            1 => {
                self.names.remove(&format!("made {round}"));
                self.names.insert(format!("moved {round}"))
            }
            _ if round >= STAYS => self.names.remove(&format!("moved {}", round - STAYS)),
            _ => false,
        };
        self.steps += 1;
    }

    fn go_on_to(&mut self, steps: u64) {
        while self.steps < steps {
            self.go_on();
        }
    }

    /// How names differ from those after the last step that they tell of.
    fn told_by(&self, names: &BTreeSet<String>) -> String {
        let mut storm = self.clone();
        storm.go_on_to(3 * last_round(names) + 2);
        let missing: Vec<_> = storm.names.difference(names).take(9).collect();
        let further: Vec<_> = names.difference(&storm.names).take(9).collect();
        format!(
            "by {} steps {missing:?} are missing, and {further:?} are there",
            storm.steps
        )
    }

    /// Whether it comes to these names, in a step of the last round that they tell of.
    fn comes_to(&self, names: &BTreeSet<String>) -> bool {
        let mut storm = self.clone();
        storm.go_on_to(3 * last_round(names));
        (0..4).any(|_| {
            let is_there = storm.names == *names;
            storm.go_on();
            is_there
        })
    }
}

fn last_round(names: &BTreeSet<String>) -> u64 {
    let round = |name: &String| name.split(' ').next_back()?.parse().ok();
    names.iter().filter_map(round).max().unwrap_or(0)
}

/// So many stops at least, each after so many steps that the owner has told of.
const STOPS: u64 = 150;
/// Of them, where the owner was at work and not in a system call, at least.
const AT_WORK: u64 = 5;
/// Stops at most until there have been so many.
const STOPS_MOST: u64 = 3000;

/// A number of steps, as the owner tells it; else it says what failed.
fn steps(line: &str) -> u64 {
    line.parse().unwrap_or_else(|_| panic!("the owner: {line}"))
}

fn an_owner_stopped_anywhere_in_a_storm() {
    let seed = std::env::var("ARCK_STOP_SEED").map_or(7, |seed| seed.parse().expect("a number"));
    println!("ARCK_STOP_SEED={seed}");
    let mut random = Random::new(seed);
    let (pool, _window) = Window::pool(SIZE);
    let mut other = Other::start(&pool.path());
    let fs = pool.session();
    other.does("mkdir s");
    other.tell("storm s");
    let (mut told, mut at_work) = (0, 0);
    let (mut storm, mut mine) = (Storm::default(), BTreeSet::new());
    let mut stops = 0;
    while stops < STOPS || at_work < AT_WORK && stops < STOPS_MOST {
        let stop = stops;
        stops += 1;
        let wanted = told + TOLD * (1 + random.below(8));
        while told < wanted {
            told = steps(&other.hear());
        }
        other.signal(libc::SIGSTOP);
        at_work += u64::from(other.is_stopped_at_work());
        while let Some(more) = other.overhears() {
            told = steps(&more);
        }
        // A reader, and at every fifth stop a writer.
        let look = || fs.names("s").expect("a listing").into_iter().collect();
        let found: BTreeSet<String> = look();
        let of_other: BTreeSet<String> = found.difference(&mine).cloned().collect();
        // All that was told of, and what came after it in order: no step by half, none left out.
        storm.go_on_to(told);
        let is_some = storm.comes_to(&of_other);
        assert!(
            is_some,
            "stop {stop}: {told} steps, {}",
            storm.told_by(&of_other)
        );
        assert!(mine.is_subset(&found), "stop {stop}: {found:?}");
        if stop % 5 == 4 {
            let name = format!("by the other {stop}");
            fs.put(&format!("s/{name}"), b"mine").expect("a file");
            mine.insert(name);
            assert!(look().is_superset(&mine), "stop {stop}");
        }
        assert!(other.is_stopped(), "stop {stop}");
        other.signal(libc::SIGCONT);
    }
    other.tell("end");
    let mut last = String::new();
    while last != "ok" {
        told = last.parse().unwrap_or(told);
        last = other.hear();
    }
    storm.go_on_to(told);
    let expected: BTreeSet<String> = storm.names.union(&mine).cloned().collect();
    let found: BTreeSet<String> = fs.names("s").expect("a listing").into_iter().collect();
    assert!(found == expected, "{}", storm.told_by(&found));
    for name in &storm.names {
        assert_eq!(
            fs.get(&format!("s/{name}")).expect("a file"),
            b"text",
            "{name}"
        );
    }
    println!("{told} steps, {at_work} of {stops} stops at work");
    assert!(at_work >= AT_WORK, "only {at_work} stops were at work");
    assert_eq!(pool.violations(), "");
}
