//! Every field of every structure that a session writes, corrupted one at a time and in pairs:
//! each fold ends in time and is refused by a rule, or changes nothing but what the session may.
//!
//! `ARCK_MUTATION_PAIRS` says how many pairs are tried in each scene, or `all` of them (59 million,
//! which takes more than an hour); `ARCK_MUTATION_SEED` from where they are drawn.

use crate::testing::forgery::corruption::{Corruption, corruptions, deltas, forge};
use crate::testing::forgery::judge::{Verdict, judge};
use crate::testing::forgery::scene::{Scene, scenes};
use crate::testing::forgery::{fields, scene};
use crate::{PageBudget, Rule, copy_delta};
use arck_core_state::InodeNumber;
use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::rules;

/// Pairs tried in each scene, unless told otherwise.
const PAIRS: usize = 1200;

/// Rules that no corruption of these scenes can break, and why; each has a scenario by hand
/// among [`rules::CASES`].
const BY_HAND: [(Rule, &str); 1] = [(
    Rule::LinkCount,
    "takes an inode with 2^31 names, more than a model of a file system can hold",
)];

#[derive(Default)]
struct Tally {
    cases: usize,
    refused: usize,
    /// Folded as if nothing had been corrupted; folded, to another state.
    same: usize,
    other: usize,
    fired: HashMap<Rule, usize>,
    /// By structure and field: corruptions, and how many of them were refused.
    fields: BTreeMap<(&'static str, &'static str), (usize, usize)>,
}

impl Tally {
    /// Folds each inode that shows the corruptions, on its own.
    fn fold(&mut self, scene: &Scene, honest: &Honest, corruptions: &[&Corruption]) {
        let mut arena = forge(scene, corruptions);
        let first = corruptions.iter().filter_map(|corruption| corruption.first);
        let mut refused = false;
        let before = self.same;
        for number in scene.first.iter().copied().chain(first) {
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                let (state, who) = (&scene.state, &scene.owner.who);
                judge(state, who, &mut arena, &[number], scene.budget)
            }));
            let outcome = outcome.unwrap_or_else(|_| Err("a panic".to_owned()));
            self.cases += 1;
            match outcome {
                Ok(Verdict::Refused(violation)) => {
                    self.refused += 1;
                    refused = true;
                    *self.fired.entry(violation.rule).or_default() += 1;
                }
                Ok(Verdict::Folded(after)) => {
                    let as_honest = honest.get(&number).is_some_and(|honest| {
                        let same = honest.inodes == after.inodes && honest.names == after.names;
                        same && honest.data == after.data
                    });
                    *(if as_honest {
                        &mut self.same
                    } else {
                        &mut self.other
                    }) += 1;
                }
                Err(wrong) => {
                    let shown: Vec<_> = corruptions.iter().map(|c| shown(c)).collect();
                    let scene = scene.name;
                    panic!(
                        "{scene}, fold of inode {number}, {}: {wrong}",
                        shown.join("; ")
                    );
                }
            }
        }
        if let [only] = corruptions {
            let field = self.fields.entry((only.structure, only.field)).or_default();
            field.0 += 1;
            field.1 += usize::from(refused);
            let same = self.same - before;
            let folds = scene.first.len();
            assert!(
                same == folds || !is_free(only.structure, only.field),
                "{}: {} makes a difference",
                scene.name,
                shown(only)
            );
        }
    }

    fn line(&self, what: &str) -> String {
        let Tally { cases, refused, .. } = self;
        let (same, other) = (self.same, self.other);
        format!(
            "{what}: {cases} folds, {refused} refused, {same} as without, {other} otherwise allowed"
        )
    }
}

fn shown(corruption: &Corruption) -> String {
    let Corruption {
        structure,
        field,
        what,
        ..
    } = corruption;
    format!("{structure}.{field} {what}")
}

/// What the scene's folds lead to without corruption.
type Honest = HashMap<InodeNumber, crate::testing::MemoryState>;

fn honest(scene: &Scene) -> Honest {
    let mut arena = scene.owner.arena.clone();
    let fold = |&number: &InodeNumber| {
        let (state, who) = (&scene.state, &scene.owner.who);
        match judge(state, who, &mut arena, &[number], scene.budget) {
            Ok(Verdict::Folded(after)) => (number, *after),
            other => panic!("{}, inode {number}: {other:?}", scene.name),
        }
    };
    scene.first.iter().map(fold).collect()
}

/// The scenes, and the greatest of them again with no more pages than it needs.
fn all_scenes() -> Vec<Scene> {
    let mut all = scenes();
    let mut tight = all.last().unwrap().clone();
    let mut budget = PageBudget::default();
    let header = tight.state.headers[&scene::HOME];
    copy_delta(&mut tight.owner.arena, scene::HOME, &header, &mut budget).unwrap();
    tight.name = "creates on as many pages as are allowed";
    tight.budget = budget.used();
    all.push(tight);
    all
}

/// How many pairs of each scene; from the environment.
fn pairs_wanted() -> usize {
    match std::env::var("ARCK_MUTATION_PAIRS") {
        Ok(all) if all == "all" => usize::MAX,
        Ok(number) => number
            .parse()
            .expect("ARCK_MUTATION_PAIRS: a number or all"),
        Err(_) => PAIRS,
    }
}

fn seed() -> u64 {
    let seed = std::env::var("ARCK_MUTATION_SEED");
    seed.map_or(1, |seed| {
        seed.parse().expect("ARCK_MUTATION_SEED: a number")
    })
}

/// Numbers below `bound`, the same for the same seed.
fn draw(seed: &mut u64, bound: usize) -> usize {
    *seed = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*seed ^ *seed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) % bound as u64) as usize
}

#[test]
fn scenes_are_honest_and_change_something() {
    assert_eq!(scene::world().check(), Ok(()));
    for scene in all_scenes() {
        for (number, after) in honest(&scene) {
            let before = &scene.state;
            let same = before.inodes == after.inodes
                && before.names == after.names
                && before.data == after.data;
            assert!(!same, "{}, inode {number}", scene.name);
        }
    }
}

#[test]
fn corrupted_deltas_are_refused_or_harmless() {
    let (mut singles, mut pairs) = (Tally::default(), Tally::default());
    let (wanted, mut seed) = (pairs_wanted(), seed());
    let mut possible = 0;
    for scene in all_scenes() {
        let honest = honest(&scene);
        let all = corruptions(&scene);
        possible += all.len() * (all.len() - 1) / 2;
        for corruption in &all {
            singles.fold(&scene, &honest, &[corruption]);
        }
        let mut pair = |one: usize, two: usize| {
            if one < two && !all[one].overlaps(&all[two]) {
                pairs.fold(&scene, &honest, &[&all[one], &all[two]]);
            }
        };
        if wanted < all.len() * (all.len() - 1) / 2 {
            for _ in 0..wanted {
                let (one, two) = (draw(&mut seed, all.len()), draw(&mut seed, all.len()));
                pair(one.min(two), one.max(two));
            }
        } else {
            for one in 0..all.len() {
                (one + 1..all.len()).for_each(|two| pair(one, two));
            }
        }
    }
    println!("{possible} pairs in all");
    report(&singles, &pairs);

    // Every rule is broken by some corruption, or there is a reason why not.
    let fired = |rule| singles.fired.contains_key(&rule) || pairs.fired.contains_key(&rule);
    for rule in Rule::ALL {
        match BY_HAND.iter().find(|(by_hand, _)| *by_hand == rule) {
            None => assert!(fired(rule), "no corruption breaks {rule}"),
            Some((_, reason)) => {
                assert!(!fired(rule), "{rule} is broken, though it {reason}");
                assert!(rules::CASES.iter().any(|case| case.0 == rule));
            }
        }
    }
    // Every field was tried with several values, and is looked at, but for those that are not.
    let tables = [
        fields::branch(),
        fields::delta_page(),
        fields::record(),
        fields::arena(),
    ];
    for field in tables.iter().flatten() {
        let tried = singles.fields.get(&(field.structure, field.name));
        let (tried, refused) = tried.copied().unwrap_or_default();
        assert!(tried >= 50, "{field:?} tried {tried} times");
        assert_eq!(
            refused == 0,
            is_free(field.structure, field.name),
            "{field:?}"
        );
    }
}

/// Fields that nobody looks at, so that nothing may depend on them.
fn is_free(structure: &str, field: &str) -> bool {
    structure == "ArenaHeader" || field.starts_with("reserved")
}

fn report(singles: &Tally, pairs: &Tally) {
    println!("structure and field: corruptions, of which refused");
    for ((structure, field), (tried, refused)) in &singles.fields {
        println!("  {structure}.{field}: {tried}, {refused}");
    }
    println!("rule: broken by single corruptions, by pairs");
    for rule in Rule::ALL {
        let count = |tally: &Tally| tally.fired.get(&rule).copied().unwrap_or(0);
        println!("  {rule}: {}, {}", count(singles), count(pairs));
    }
    // Past the capture of the test's output: the count is to be seen in every run.
    let lines = [singles.line("single corruptions"), pairs.line("pairs")];
    let _ = writeln!(std::io::stderr(), "{}\n{}", lines[0], lines[1]);
}

#[test]
fn every_scene_has_corruptions_of_all_that_it_writes() {
    for scene in all_scenes() {
        let written: usize = deltas(&scene)
            .iter()
            .map(|delta| 1 + delta.pages.len())
            .sum();
        let found = corruptions(&scene);
        assert!(
            found.len() > 100 * written.min(4),
            "{}: {}",
            scene.name,
            found.len()
        );
        // Something is stored, and it is not what stood there.
        for corruption in &found {
            let changes = corruption.stores.iter().any(|(offset, bytes)| {
                let mut now = vec![0; bytes.len()];
                scene.owner.arena.read(*offset, &mut now);
                now != *bytes
            });
            let harmless = corruption.field == "inode, generation, kind";
            assert!(
                changes || harmless || corruption.structure == "arena",
                "{}: {}",
                scene.name,
                shown(corruption)
            );
        }
    }
}
