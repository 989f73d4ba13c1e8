//! One process of the explorer: its share of the work, told line by line.

use crate::{Depth, depth};
use arck_pm::record::Recording;
use arck_testkit::explorer::explore::{Bounds, Explorer, sites};
use arck_testkit::explorer::image::Dropped;
use arck_testkit::explorer::recording::{Group, Workload, record};
use arck_testkit::explorer::workloads;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const SEED: u64 = 20_261_122;

/// Workloads that run on one pool.
const GROUP: usize = 24;

/// Workloads and how deep to look.
fn jobs() -> Vec<(Workload, Bounds)> {
    let bounds = |combinations, stores, nested| Bounds {
        combinations,
        stores,
        nested,
        nested_moments: 3,
        seed: SEED,
    };
    let (single, pair, triples) = match depth() {
        Depth::Quick => (bounds(48, true, 60), bounds(3, false, 400), 100),
        Depth::Full => (bounds(512, true, 5), bounds(32, true, 50), 3000),
    };
    let mut jobs: Vec<(Workload, Bounds)> = Vec::new();
    jobs.extend(workloads::single().into_iter().map(|w| (w, single)));
    jobs.extend(workloads::pairs().into_iter().map(|w| (w, pair)));
    jobs.extend(workloads::triples(triples, SEED).into_iter().map(|w| (w, pair)));
    if let Ok(text) = std::env::var("ARCK_EXPLORER_ONLY") {
        jobs.retain(|(workload, _)| workload.name.contains(&text));
    }
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
    let jobs = jobs();
    let mine: Vec<&[(Workload, Bounds)]> =
        jobs.chunks(GROUP).skip(worker).step_by(count).collect();
    for jobs in mine {
        let workloads: Vec<Workload> = jobs.iter().map(|(workload, _)| workload.clone()).collect();
        let group = record(recording, &workloads);
        let mut explorer = Explorer::new(recording, jobs[0].1);
        for (part, (workload, bounds)) in group.parts.iter().zip(jobs) {
            explorer.set_bounds(*bounds);
            let (begun, before) = (Instant::now(), explorer.counts);
            let outcome = explorer.explore(&group, part, None);
            if tells_each {
                println!(
                    "{}: {} events, {} states, {} images, {:.2} s",
                    workload.name,
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
    let bounds = Bounds {
        combinations: 24,
        stores: true,
        nested: 0,
        nested_moments: 0,
        seed: SEED,
    };
    let mut workloads = workloads::single();
    workloads.extend(workloads::pairs().into_iter().skip(7).step_by(29));
    let groups: Vec<Group> = workloads.chunks(GROUP).map(|part| record(recording, part)).collect();
    let mut met: BTreeMap<Dropped, Vec<(usize, usize)>> = BTreeMap::new();
    for (group_index, group) in groups.iter().enumerate() {
        for (part_index, part) in group.parts.iter().enumerate() {
            let found: BTreeSet<Dropped> = sites(&group.events[part.events.clone()]);
            for site in found {
                met.entry(site).or_default().push((group_index, part_index));
            }
        }
    }
    let mut explorer = Explorer::new(recording, bounds);
    for (site, parts) in met {
        let text = format!("{site:?}");
        let hash = text.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
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
