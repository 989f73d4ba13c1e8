//! Runs a sequence on both sides, and shortens one that fails.

use super::operation::ACTORS;
use super::outcome::first_difference;
use super::times::Spans;
use super::{
    ArckSide, Base, HostSide, Node, Operation, Outcome, Place, Side, Step, Subject, View, sequence,
    tree,
};
use crate::{Shorthand, TestPool};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// How sequences are run.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of the pool.
    pub pool: u64,
    /// Steps in one sequence.
    pub length: usize,
    /// Whether there are restarts and kills.
    pub crashes: bool,
}

/// Where the two were not the same.
#[derive(Clone, Debug)]
pub struct Difference {
    /// Number of the step.
    pub step: usize,
    pub text: String,
}

/// Runs `steps` on a new pool and a new directory. Stops at the first difference.
pub fn run(steps: &[Step], settings: Settings) -> Result<(), Difference> {
    let mut arck = ArckSide::new(TestPool::new(settings.pool));
    let mut host = HostSide::new();
    let mut spans = Spans::new();
    let mut allocated = false;
    for (number, step) in steps.iter().enumerate() {
        allocated |= matches!(step.operation, Operation::Allocate { .. });
        if allocated && step.operation.is_about_holes() {
            continue;
        }
        let done = one(&mut arck, &mut host, step, &mut spans);
        done.map_err(|text| Difference { step: number, text })?;
    }
    let end = |text| Difference {
        step: steps.len(),
        text,
    };
    for actor in [1, 0] {
        compare_trees(&mut arck, &mut host, actor, &spans).map_err(end)?;
    }
    let violations = arck.pool.violations();
    if !violations.is_empty() {
        return Err(end(format!("the verifier refused: {violations}")));
    }
    Ok(())
}

fn one(
    arck: &mut ArckSide,
    host: &mut HostSide,
    step: &Step,
    spans: &mut Spans,
) -> Result<(), String> {
    match step.operation {
        Operation::Compare => compare_trees(arck, host, step.actor, spans),
        Operation::Restart => {
            arck.restart()
                .map_err(|errno| format!("disconnect: {errno:?}"))?;
            host.close_all();
            compare_trees(arck, host, step.actor, spans)
        }
        Operation::Kill => {
            arck.kill();
            host.close_all();
            compare_trees(arck, host, step.actor, spans)
        }
        _ => {
            if let Operation::Open { slot, .. } = step.operation {
                arck.close(step.actor, slot);
                host.close(step.actor, slot);
            }
            let (ours, theirs) = spans.during(|| {
                let ours = arck.apply(step.actor, &step.operation);
                // The host's directory would be left as well: nothing to compare.
                let is_outside = ours == Outcome::Outside;
                let theirs = (!is_outside).then(|| host.apply(step.actor, &step.operation));
                (ours, theirs)
            });
            let Some(theirs) = theirs else {
                return Ok(());
            };
            if ours == theirs || only_links_are_late(arck, step, &ours, &theirs)? {
                excuse(arck, host, step, spans);
                return Ok(());
            }
            let place = match (&ours, &theirs) {
                (Outcome::Bytes(ours), Outcome::Bytes(theirs)) => {
                    format!(" (first at byte {})", first_difference(ours, theirs))
                }
                _ => String::new(),
            };
            Err(format!("ArckFS: {ours:?}\ntmpfs:  {theirs:?}{place}"))
        }
    }
}

/// Notes the times of what a step has left that tmpfs stamps whether it changes anything or not.
fn excuse(arck: &mut ArckSide, host: &mut HostSide, step: &Step, spans: &mut Spans) {
    let subject = match &step.operation {
        Operation::ChangeOwner { place, flags, .. } => Subject::Place(place.clone(), *flags),
        Operation::Truncate { place, .. } => Subject::Place(place.clone(), 0),
        Operation::TruncateHandle { slot, .. } => Subject::Slot(*slot),
        _ => return,
    };
    let ours = arck.stamps(step.actor, &subject);
    if let (Some(ours), Some(theirs)) = (ours, host.stamps(step.actor, &subject)) {
        spans.excuse(ours, theirs);
    }
}

/// A name that one session takes away is seen at once by another that looks at the directory;
/// the link count of an inode that is reached otherwise, by a handle or another name, follows
/// when the directory is folded. Folds, and looks again.
fn only_links_are_late(
    arck: &mut ArckSide,
    step: &Step,
    ours: &Outcome,
    theirs: &Outcome,
) -> Result<bool, String> {
    let (Outcome::Stat(our_view), Outcome::Stat(their_view)) = (ours, theirs) else {
        return Ok(false);
    };
    let same_links = View {
        links: their_view.links,
        ..our_view.clone()
    };
    if same_links != *their_view {
        return Ok(false);
    }
    fold_all(arck)?;
    Ok(arck.apply(step.actor, &step.operation) == *theirs)
}

fn fold_all(arck: &mut ArckSide) -> Result<(), String> {
    for actor in 0..ACTORS {
        arck.session(actor)
            .fold(false)
            .map_err(|errno| format!("fold: {errno:?}"))?;
    }
    Ok(())
}

fn compare_trees(
    arck: &mut ArckSide,
    host: &mut HostSide,
    actor: usize,
    spans: &Spans,
) -> Result<(), String> {
    let walk =
        |arck: &mut ArckSide| tree(arck, actor).map_err(|text| format!("walking ArckFS: {text}"));
    let mut ours = walk(arck)?;
    let theirs = tree(host, actor).map_err(|text| format!("walking tmpfs: {text}"))?;
    let without_links = |nodes: &BTreeMap<Vec<u8>, Node>| {
        let mut nodes = nodes.clone();
        nodes.values_mut().for_each(|node| node.stat.links = 0);
        nodes
    };
    if ours != theirs && without_links(&ours) == without_links(&theirs) {
        fold_all(arck)?;
        ours = walk(arck)?;
    }
    let mut text = String::new();
    let missing = "nothing there";
    for path in ours.keys().chain(theirs.keys()) {
        let (one, other) = (ours.get(path), theirs.get(path));
        if one == other {
            continue;
        }
        let shown = |node: Option<&super::Node>| match node {
            Some(node) => format!("{:?} {:?} {:?}", node.stat, node.content, node.extended),
            None => missing.into(),
        };
        let _ = write!(
            text,
            "{}\n  ArckFS: {}\n  tmpfs:  {}",
            path.escape_ascii(),
            shown(one),
            shown(other)
        );
        if let (Some(one), Some(other)) = (one, other)
            && let (Outcome::Bytes(one), Outcome::Bytes(other)) = (&one.content, &other.content)
        {
            let _ = write!(text, "\n  first at byte {}", first_difference(one, other));
        }
        return Err(format!(
            "the trees differ as session {actor} sees them: {text}"
        ));
    }
    if let Err(first) = compare_times(arck, host, actor, spans, &ours) {
        // What changes names says so of the inode when its directory is folded, as with links.
        fold_all(arck)?;
        compare_times(arck, host, actor, spans, &ours)
            .map_err(|again| format!("{again}\nbefore a fold: {first}"))?;
    }
    Ok(())
}

/// That what stands under each path was modified, and changed, by the same step.
fn compare_times(
    arck: &mut ArckSide,
    host: &mut HostSide,
    actor: usize,
    spans: &Spans,
    nodes: &BTreeMap<Vec<u8>, Node>,
) -> Result<(), String> {
    for path in nodes.keys() {
        let place = Place {
            base: Base::Root,
            path: path.clone(),
        };
        let subject = Subject::Place(place, libc::AT_SYMLINK_NOFOLLOW);
        let stamps = (arck.stamps(actor, &subject), host.stamps(actor, &subject));
        let (Some(ours), Some(theirs)) = stamps else {
            return Err(format!("{}: {stamps:?}", path.escape_ascii()));
        };
        for (at, what) in ["modified", "changed"].into_iter().enumerate() {
            if !spans.may_be_one(ours[at], theirs[at]) {
                let steps = [ours[at], theirs[at]].map(|time| spans.of(time));
                return Err(format!(
                    "{} was {what} by another step, as session {actor} sees it: {} by ArckFS, {} by \
                     tmpfs; of those that were compared, these may have been at it: {steps:?}",
                    path.escape_ascii(),
                    ours[at],
                    theirs[at]
                ));
            }
        }
    }
    Ok(())
}

/// Leaves out steps as long as the rest still fails in the same way, for at most `patience`.
pub fn shorten(
    mut steps: Vec<Step>,
    first: &Difference,
    settings: Settings,
    patience: Duration,
) -> Vec<Step> {
    let kind = |steps: &[Step], number: usize| {
        steps
            .get(number)
            .map(|step| std::mem::discriminant(&step.operation))
    };
    let failing = kind(&steps, first.step);
    // A short text tells two results; a long one holds what else is there.
    let same = |steps: &[Step], other: &Difference| {
        kind(steps, other.step) == failing && (first.text.len() > 300 || other.text == first.text)
    };
    let begun = Instant::now();
    let mut piece = steps.len().div_ceil(2);
    while piece > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < steps.len() {
            if begun.elapsed() > patience {
                return steps;
            }
            let end = (at + piece).min(steps.len());
            let mut fewer = steps[..at].to_vec();
            fewer.extend_from_slice(&steps[end..]);
            match run_caught(&fewer, settings) {
                Err(difference) if same(&fewer, &difference) => {
                    fewer.truncate(difference.step + 1);
                    steps = fewer;
                    shorter = true;
                }
                _ => at = end,
            }
        }
        if piece == 1 && !shorter {
            break;
        }
        piece = if piece == 1 { 1 } else { piece / 2 };
    }
    steps
}

/// As `run`; a panic counts as a difference at the end.
fn run_caught(steps: &[Step], settings: Settings) -> Result<(), Difference> {
    std::panic::catch_unwind(|| run(steps, settings)).unwrap_or_else(|_| {
        Err(Difference {
            step: steps.len(),
            text: "panicked".into(),
        })
    })
}

/// Draws the sequence of `seed`, runs it, and says in one text what differed: the shortest
/// sequence found that still fails.
pub fn check(seed: u64, settings: Settings) -> Result<(), String> {
    let mut steps = sequence(seed, settings.length, settings.crashes);
    let Err(first) = run_caught(&steps, settings) else {
        return Ok(());
    };
    steps.truncate(first.step + 1);
    let steps = shorten(steps, &first, settings, Duration::from_secs(40));
    let mut text = format!(
        "seed {seed} with {settings:?}: step {}:\n{}\nshortened to:\n",
        first.step, first.text
    );
    for step in &steps {
        let _ = writeln!(text, "  {}: {:?}", step.actor, step.operation);
    }
    match run_caught(&steps, settings) {
        Err(again) => {
            let _ = writeln!(text, "which ends in\n{}", again.text);
        }
        Ok(()) => text.push_str("which does not always fail\n"),
    }
    Err(text)
}
