//! One process of the explorer: its share of the work, told line by line.

use crate::{Depth, depth};
use arck_pm::record::Recording;
use arck_testkit::explorer::explore::{Bounds, Explorer, sites};
use arck_testkit::explorer::image::Dropped;
use arck_testkit::explorer::recording::{Group, Workload, record, record_life};
use arck_testkit::explorer::workloads;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const SEED: u64 = 20_261_122;

/// Workloads that run on one pool.
const GROUP: usize = 24;

/// What runs on one pool.
enum Run {
    Workloads(Vec<Workload>),
    /// On a pool that is served to all users.
    Shared(Vec<Workload>),
    Life,
}

impl Run {
    fn record(&self, recording: &Recording) -> Group {
        match self {
            Run::Workloads(workloads) => record(recording, workloads, false),
            Run::Shared(workloads) => record(recording, workloads, true),
            Run::Life => record_life(recording),
        }
    }
}

fn bounds(combinations: usize, stores: bool, nested: usize) -> Bounds {
    Bounds {
        combinations,
        stores,
        nested,
        nested_moments: 3,
        seed: SEED,
    }
}

fn in_groups(workloads: Vec<Workload>) -> impl Iterator<Item = Run> {
    let groups: Vec<Vec<Workload>> = workloads.chunks(GROUP).map(<[_]>::to_vec).collect();
    groups.into_iter().map(Run::Workloads)
}

/// What runs, and how deep to look.
fn jobs() -> Vec<(Run, Bounds)> {
    if let Ok(text) = std::env::var("ARCK_EXPLORER_ONLY") {
        let mut all = workloads::single();
        all.extend(workloads::chains());
        all.extend(workloads::pairs());
        all.retain(|workload| workload.name.contains(&text));
        return in_groups(all)
            .map(|run| (run, bounds(64, true, 20)))
            .collect();
    }
    let (deep, shallow, triples) = match depth() {
        Depth::Quick | Depth::Places => (bounds(40, true, 60), bounds(3, false, 400), 100),
        Depth::Full => (bounds(512, true, 5), bounds(32, true, 50), 3000),
    };
    let few = |run| (run, shallow);
    let mut jobs = vec![
        (Run::Life, deep),
        (Run::Shared(workloads::relocations()), deep),
    ];
    jobs.extend(in_groups(workloads::single()).map(|run| (run, deep)));
    jobs.extend(in_groups(workloads::chains()).map(|run| (run, deep)));
    jobs.extend(in_groups(workloads::pairs()).map(few));
    jobs.extend(in_groups(workloads::triples(triples, SEED)).map(few));
    jobs
}

pub fn main(what: &str) {
    let words: Vec<&str> = what.split(' ').collect();
    let [phase, worker, count] = words[..] else {
        panic!("what is this worker to do?");
    };
    let (worker, count) = (worker.parse().unwrap(), count.parse().unwrap());
    let recording = Recording::start().expect("nobody else records");
    match phase {
        "explore" => explore(&recording, worker, count),
        _ => places(&recording, worker, count),
    }
}

fn explore(recording: &Recording, worker: usize, count: usize) {
    let tells_each = std::env::var_os("ARCK_EXPLORER_ONLY").is_some();
    let mine = jobs().into_iter().skip(worker).step_by(count);
    for (run, bounds) in mine {
        let group = run.record(recording);
        let mut explorer = Explorer::new(recording, bounds);
        for part in &group.parts {
            let (begun, before) = (Instant::now(), explorer.counts);
            let outcome = explorer.explore(&group, part, None);
            if tells_each {
                println!(
                    "{}: {} events, {} states, {} images, {:.2} s",
                    part.workload.name,
                    part.events.len(),
                    explorer.counts.states - before.states,
                    explorer.counts.images - before.images,
                    begun.elapsed().as_secs_f64()
                );
            }
            if let Err(error) = outcome {
                println!("failed\t{}", error.replace(['\n', '\t'], " "));
            }
        }
        let counts = explorer.counts;
        for (what, number) in [
            ("workloads", group.parts.len() as u64),
            ("moments", counts.moments),
            ("states", counts.states),
            ("images", counts.images),
            ("nested", counts.nested),
        ] {
            println!("count\t{what}\t{number}");
        }
    }
}

/// Leaves out what each place in the source does, in turn, until somebody notices.
fn places(recording: &Recording, worker: usize, count: usize) {
    let mut runs: Vec<Run> = in_groups(workloads::single()).collect();
    runs.extend(in_groups(workloads::chains()));
    runs.push(Run::Shared(workloads::relocations()));
    runs.push(Run::Life);
    runs.extend(in_groups(
        workloads::pairs().into_iter().skip(7).step_by(29).collect(),
    ));
    let groups: Vec<Group> = runs.iter().map(|run| run.record(recording)).collect();
    let mut met: BTreeMap<Dropped, Vec<(usize, usize)>> = BTreeMap::new();
    for (group_index, group) in groups.iter().enumerate() {
        for (part_index, part) in group.parts.iter().enumerate() {
            let found: BTreeSet<Dropped> = sites(&group.events[part.events.clone()]);
            for site in found {
                met.entry(site).or_default().push((group_index, part_index));
            }
        }
    }
    let mut explorer = Explorer::new(recording, bounds(24, true, 0));
    for (site, parts) in met {
        let text = format!("{site:?}");
        let hash = text
            .bytes()
            .fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        if hash % count != worker {
            continue;
        }
        let mut by = None;
        for &(group, part) in &parts {
            let group = &groups[group];
            if let Err(error) = explorer.explore(group, &group.parts[part], Some(site)) {
                by = Some(error);
                break;
            }
        }
        match by {
            Some(error) => println!("noticed\t{text}\t{}", error.replace(['\n', '\t'], " ")),
            None => println!("unnoticed\t{text}\t{}", parts.len()),
        }
    }
}
