//! One process of the explorer: its share of the work, told line by line.

use crate::{Depth, Share, depth, places};
use arck_pm::record::Recording;
use arck_testkit::explorer::explore::{Bounds, Explorer, Recovery, sites};
use arck_testkit::explorer::image::Dropped;
use arck_testkit::explorer::recording::{Group, Who, Workload, record, record_life};
use arck_testkit::explorer::{SUBJECTS, shared, workloads};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

const SEED: u64 = 20_261_122;

/// Workloads that run on one pool.
const GROUP: usize = 24;
/// The same of those with steps beside what is sealed: so few that what a session gets when it comes is enough, since
/// it has nobody to ask for more there.
const BESIDE: usize = 3;

/// One in so many recovered images is looked at by the whole-pool check too.
const CHECKS: u64 = 100;

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
        checks: CHECKS,
        seed: SEED,
    }
}

/// Whether steps of it are made beside what is sealed.
fn is_beside(workload: &Workload) -> bool {
    workload.steps.iter().any(|(who, _)| *who == Who::Beside)
}

fn in_groups(workloads: Vec<Workload>) -> impl Iterator<Item = Run> {
    let (beside, others): (Vec<_>, Vec<_>) = workloads.into_iter().partition(is_beside);
    let groups = others.chunks(GROUP).chain(beside.chunks(BESIDE));
    let groups: Vec<Vec<Workload>> = groups.map(<[_]>::to_vec).collect();
    groups.into_iter().map(Run::Workloads)
}

/// What runs, and how deep to look.
fn jobs() -> Vec<(Run, Bounds)> {
    if let Ok(text) = std::env::var("ARCK_EXPLORER_ONLY") {
        let mut all = Vec::new();
        for libfs in &SUBJECTS {
            all.extend(libfs.made(libfs.short));
            all.extend(libfs.made(libfs.long));
            all.extend(libfs.made(&[libfs.pairs]));
        }
        let named = |workload: &Workload| workload.name.contains(&text);
        all.retain(named);
        let mut shared = shared::all_workloads();
        shared.retain(named);
        assert!(
            !all.is_empty() || !shared.is_empty(),
            "no workload has {text:?} in its name"
        );
        let shared = (!shared.is_empty()).then_some(Run::Shared(shared));
        return in_groups(all)
            .chain(shared)
            .map(|run| (run, bounds(64, true, 20)))
            .collect();
    }
    let is_full = matches!(depth(), Depth::Full(_));
    let (deep, shallow, triples) = match is_full {
        false => (bounds(12, true, 60), bounds(3, false, 400), 100),
        true => (bounds(512, true, 5), bounds(32, true, 50), 3000),
    };
    // Of the pairs, every second.
    let step = if is_full { 1 } else { 2 };
    let beside = match is_full {
        true => deep,
        false => bounds(12, true, 100),
    };
    let few = |run: Run| (run, shallow);
    // A controller that folds what is sealed, beside an owner who goes on: at each store.
    let of_long = |run: Run| {
        let is_beside = matches!(&run, Run::Workloads(of) if of.iter().any(is_beside));
        let bounds = if is_beside { beside } else { shallow };
        (run, bounds)
    };
    let mut jobs = vec![
        (Run::Life, deep),
        (Run::Shared(shared::all_workloads()), deep),
    ];
    for libfs in &SUBJECTS {
        jobs.extend(in_groups(libfs.made(libfs.short)).map(|run| (run, deep)));
        jobs.extend(in_groups(libfs.made(libfs.long)).map(of_long));
        let pairs = libfs.made(&[libfs.pairs]).into_iter().step_by(step);
        jobs.extend(in_groups(pairs.collect()).map(few));
    }
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
        _ => leave_out(&recording, worker, count),
    }
}

/// What of all is to be done here.
fn share() -> Share {
    match depth() {
        Depth::Full(share) => share,
        _ => Share::ALL,
    }
}

fn explore(recording: &Recording, worker: usize, count: usize) {
    let tells_each = std::env::var_os("ARCK_EXPLORER_ONLY").is_some();
    let share = share();
    let (_, jobs): (Vec<_>, Vec<_>) = jobs()
        .into_iter()
        .enumerate()
        .filter(|&(number, _)| share.has(number))
        .unzip();
    let (begun, all) = (
        Instant::now(),
        jobs.len().saturating_sub(worker).div_ceil(count),
    );
    let mine = jobs.into_iter().skip(worker).step_by(count);
    for (number, (run, bounds)) in mine.enumerate() {
        let group = run.record(recording);
        let mut explorer = Explorer::new(recording, bounds);
        for part in &group.parts {
            let (begun, before) = (Instant::now(), explorer.counts);
            let outcome = explorer.explore(&group, part);
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
            ("checked", counts.checked),
        ] {
            println!("count\t{what}\t{number}");
        }
        if matches!(depth(), Depth::Full(_)) {
            println!(
                "process {worker}: {} of {all} groups, {} states in this one, {:.0} s so far",
                number + 1,
                counts.states,
                begun.elapsed().as_secs_f64()
            );
        }
    }
}

/// Of the pairs that pass a place, and of the recoveries, so many are looked at with it left out.
const PASSING: usize = 20;

/// When so many images of one place have been looked at, what else passes it is not; of the order of
/// stores half of it.
const IMAGES: u64 = 40_000;

/// What passes a place, with the number of its events.
type Passing<T> = Vec<(usize, T)>;

/// Some of what passes a place, the shortest first.
fn chosen<T: Copy>(mut passing: Passing<T>) -> impl Iterator<Item = T> {
    passing.sort_by_key(|&(length, _)| length);
    let step = passing.len().div_ceil(PASSING).max(1);
    passing.into_iter().step_by(step).map(|(_, one)| one)
}

/// Leaves out what each place in the source does, in turn, until somebody notices: first of
/// workloads, then of recoveries.
fn leave_out(recording: &Recording, worker: usize, count: usize) {
    let mut runs: Vec<Run> = Vec::new();
    for libfs in &SUBJECTS {
        runs.extend(in_groups(libfs.made(libfs.short)));
        runs.extend(in_groups(libfs.made(libfs.long)));
    }
    runs.push(Run::Shared(shared::all_workloads()));
    runs.push(Run::Life);
    let crashed = runs.len();
    for libfs in &SUBJECTS {
        let pairs = libfs.made(&[libfs.pairs]).into_iter();
        runs.extend(in_groups(pairs.skip(7).step_by(29).collect()));
    }
    let groups: Vec<Group> = runs.iter().map(|run| run.record(recording)).collect();
    let mut explorer = Explorer::new(recording, bounds(24, true, 0));
    let mut met: BTreeMap<Dropped, Passing<(usize, usize)>> = BTreeMap::new();
    let mut pairs: BTreeMap<Dropped, Passing<(usize, usize)>> = BTreeMap::new();
    let mut recoveries: Vec<(usize, usize, Recovery)> = Vec::new();
    for (group_index, group) in groups.iter().enumerate() {
        for (part_index, part) in group.parts.iter().enumerate() {
            let events = &group.events[part.events.clone()];
            for site in sites(events) {
                let met = match group_index < crashed {
                    true => &mut met,
                    false => &mut pairs,
                };
                let passing = met.entry(site).or_default();
                passing.push((events.len(), (group_index, part_index)));
            }
            if group_index < crashed {
                let found = explorer.recoveries(group, part);
                recoveries.extend(found.into_iter().map(|one| (group_index, part_index, one)));
            }
        }
    }
    let mut recovered: BTreeMap<Dropped, Passing<usize>> = BTreeMap::new();
    for (index, (.., recovery)) in recoveries.iter().enumerate() {
        for site in sites(&recovery.events) {
            let passing = recovered.entry(site).or_default();
            passing.push((recovery.events.len(), index));
        }
    }
    let only = std::env::var("ARCK_EXPLORER_ONLY").unwrap_or_default();
    let all = met.keys().chain(pairs.keys()).chain(recovered.keys());
    let all: BTreeSet<Dropped> = all.copied().collect();
    let mine = all.into_iter().filter(|site| {
        let text = format!("{site:?}");
        let hash = text
            .bytes()
            .fold(0usize, |sum, byte| sum.wrapping_mul(31) + usize::from(byte));
        let all = matches!(depth(), Depth::Places | Depth::Full(_));
        let is_wanted = all || places::is_to_be_noticed(&text);
        let is_mine = hash % count == worker && share().has(hash / count);
        is_wanted && text.contains(&only) && is_mine
    });
    let mine: Vec<Dropped> = mine.collect();
    println!("count\tplaces\t{}", mine.len());
    for site in mine {
        let mut parts = met.remove(&site).unwrap_or_default();
        parts.sort_by_key(|&(length, _)| length);
        let parts = parts.into_iter().map(|(_, one)| one);
        let pairs = chosen(pairs.remove(&site).unwrap_or_default());
        let parts: Vec<(usize, usize)> = match site {
            Dropped::Order(_) => parts.collect(),
            _ => parts.chain(pairs).collect(),
        };
        let crashes: Vec<_> = chosen(recovered.remove(&site).unwrap_or_default()).collect();
        let parts = parts.into_iter().map(|(group, part)| {
            let group = &groups[group];
            (group, &group.parts[part], None)
        });
        let crashes = crashes.into_iter().map(|index| {
            let (group, part, recovery) = &recoveries[index];
            let group = &groups[*group];
            (group, &group.parts[*part], Some(recovery))
        });
        let (mut by, mut tried) = (None, 0);
        let before = explorer.counts.images;
        let enough = match site {
            Dropped::Order(_) => IMAGES / 2,
            _ => IMAGES,
        };
        for (group, part, recovery) in parts.chain(crashes) {
            let outcome = match recovery {
                None => explorer.leave_out(group, part, site),
                Some(recovery) => explorer.leave_out_of_recovery(group, part, recovery, site),
            };
            tried += 1;
            by = outcome.err();
            if by.is_some() || explorer.counts.images - before > enough {
                break;
            }
        }
        let images = explorer.counts.images - before;
        match by {
            Some(error) => println!("noticed\t{site:?}\t{}", error.replace(['\n', '\t'], " ")),
            None => println!("unnoticed\t{site:?}\t{tried} runs, {images} images"),
        }
    }
}
