//! Hostile LibFSes: processes of other users that hold exactly what a session holds and speak the
//! protocol raw, against a controller in a process of its own, while a victim works on the same
//! pool with a real LibFS, and a session of each LibFS that there is beside it. Prints a table of all attacks and of what stopped each.
//!
//!     cargo test -p arck-testkit --test hostile [-- WORD...]
//!
//! runs those in whose name or group one of the words occurs. As root every party has a user of
//! its own; otherwise all have the same, and attacks that mean nothing then are left out.

mod arena;
mod attacker;
mod crowding;
mod endless;
mod exhausting;
mod filling;
mod handed;
mod hoarding;
mod holding;
mod honest;
mod keeping;
mod logs;
mod mediating;
mod meeting;
mod membership;
mod passing;
mod pinned;
mod process;
mod races;
#[path = "../../../controller/tests/common/mod.rs"]
mod raw;
mod reading;
mod restarting;
mod stalling;
mod table;
mod tree;
mod unanswered;
mod values;
mod watching;
mod world;

use std::path::Path;
use std::time::Instant;
use table::{Attack, Outcome};

fn attacks() -> Vec<&'static Attack> {
    let groups: [&[Attack]; 19] = [
        arena::ATTACKS,
        tree::ATTACKS,
        races::ATTACKS,
        holding::ATTACKS,
        keeping::ATTACKS,
        passing::ATTACKS,
        handed::ATTACKS,
        membership::ATTACKS,
        logs::ATTACKS,
        mediating::ATTACKS,
        meeting::ATTACKS,
        restarting::ATTACKS,
        exhausting::ATTACKS,
        filling::ATTACKS,
        hoarding::ATTACKS,
        crowding::ATTACKS,
        reading::ATTACKS,
        stalling::ATTACKS,
        watching::ATTACKS,
    ];
    groups.into_iter().flatten().collect()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(role) = process::own_role() else {
        return run_table(&arguments);
    };
    let pool = Path::new(arguments.first().expect("a pool"));
    match role.as_str() {
        "controller" => honest::controller(pool, &arguments[1]),
        "builder" => honest::builder(pool),
        "victim" => honest::victim(pool),
        "worker" => values::worker(pool, &arguments[1]),
        "writer" => honest::writer(pool, &arguments[1]),
        "closer" => honest::closer(pool, &arguments[1]),
        "third" => honest::third(pool),
        "cutter" => reading::cutter(pool),
        "rewriter" => hoarding::rewriter(pool),
        "giver" => handed::giver(pool, &arguments[1]),
        "member" => membership::member(pool),
        "logger" => logs::logger(pool),
        "trusting" => logs::trusting(pool),
        "log-member" => logs::member(pool),
        "heir" => handed::heir(pool),
        "parent" => handed::parent(pool),
        "second" => passing::second(pool, &arguments[1], &arguments[2]),
        "reader" => honest::reader(pool, &arguments[1]),
        "attacker" => {
            let attack = attacks()
                .into_iter()
                .find(|attack| attack.name == arguments[1]);
            attacker::attacker(pool, attack.expect("an attack"));
        }
        other => panic!("no role {other}"),
    }
}

fn run_table(words: &[String]) {
    let words: Vec<&String> = words.iter().filter(|word| !word.starts_with('-')).collect();
    let is_wanted = |attack: &&Attack| {
        words.is_empty()
            || words.iter().any(|word| {
                attack.name.contains(word.as_str()) || attack.group.contains(word.as_str())
            })
    };
    let chosen: Vec<&Attack> = attacks().into_iter().filter(is_wanted).collect();
    // What went wrong stands in the table.
    std::panic::set_hook(Box::new(|_| {}));
    println!("\nrunning {} tests", chosen.len());
    println!(
        "{:<10} {:<62} {:<24} {:>6} {:>8}",
        "group", "attack", "stopped by", "rounds", "longest"
    );
    let started = Instant::now();
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for attack in chosen {
        let (left, right) = match table::run(attack) {
            Outcome::Stopped { rounds, longest } => {
                passed += 1;
                (
                    attack.stop.to_owned(),
                    format!("{rounds:>6} {:>5} ms", longest.as_millis()),
                )
            }
            Outcome::NotRun => {
                ignored += 1;
                ("(needs several users)".to_owned(), "not run".to_owned())
            }
            Outcome::Failed(text) => {
                failed += 1;
                ("FAILED".to_owned(), text)
            }
        };
        println!(
            "{:<10} {:<62} {left:<24} {right}",
            attack.group, attack.name
        );
    }
    println!(
        "\ntest result: {}. {passed} passed; {failed} failed; {ignored} ignored; 0 measured; \
         finished in {:.2}s\n",
        if failed == 0 { "ok" } else { "FAILED" },
        started.elapsed().as_secs_f64()
    );
    if failed != 0 {
        std::process::exit(101);
    }
}
