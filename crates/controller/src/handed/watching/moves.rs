//! Which names of a change are two ends of a move, and in which order moves can be done one by one.
//!
//! # Invariants
//! * An inode that loses a name and gets another one in one change was moved: what became of it in between nobody has seen.
//! * No move is done onto a name from which another one is still to be done; where they go round, one is done in two steps.

use crate::state::watching::{Happened, Named};
use arck_core_state::InodeNumber;
use foldhash::{HashMap, HashSet};

/// A step of a change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step<N> {
    Remove(N),
    Move(N, N),
    /// Two moves, each to where the other one comes from.
    Exchange([(N, N); 2]),
    /// The same in two steps.
    Leave(N),
    Arrive(N),
    /// A name that is made; whether it takes the place of another one, as what is moved there does.
    Make {
        named: N,
        replaces: bool,
    },
}

impl Step<&Named> {
    /// For longer than the change.
    pub fn owned(self) -> Step<Named> {
        let both = |(from, to): (&Named, &Named)| (from.clone(), to.clone());
        match self {
            Step::Remove(named) => Step::Remove(named.clone()),
            Step::Move(from, to) => Step::Move(from.clone(), to.clone()),
            Step::Exchange(moves) => Step::Exchange(moves.map(both)),
            Step::Leave(named) => Step::Leave(named.clone()),
            Step::Arrive(named) => Step::Arrive(named.clone()),
            Step::Make { named, replaces } => Step::Make {
                named: named.clone(),
                replaces,
            },
        }
    }
}

type Place<'h> = (InodeNumber, &'h [u8]);

fn place(named: &Named) -> Place<'_> {
    (named.directory, &named.name)
}

/// The steps of a change, in the order in which they are done.
pub fn steps(happened: &Happened) -> Vec<Step<&Named>> {
    let mut arriving: HashMap<InodeNumber, Vec<&Named>> = HashMap::default();
    for added in happened.added.iter().rev() {
        arriving.entry(added.inode).or_default().push(added);
    }
    let mut moves: Vec<(&Named, &Named)> = Vec::new();
    let mut gone: Vec<&Named> = Vec::new();
    for removed in &happened.removed {
        let to = arriving.get_mut(&removed.inode).and_then(Vec::pop);
        match to {
            // What was taken away and put back stands where it stood.
            Some(to) if place(to) == place(removed) => {}
            Some(to) => moves.push((removed, to)),
            None => gone.push(removed),
        }
    }
    let arrived: HashSet<Place<'_>> = happened.added.iter().map(place).collect();
    let mut replaced: HashMap<Place<'_>, &Named> = HashMap::default();
    let mut steps = Vec::with_capacity(happened.removed.len() + happened.added.len());
    for named in gone {
        match arrived.contains(&place(named)) {
            true => _ = replaced.insert(place(named), named),
            false => steps.push(Step::Remove(named)),
        }
    }
    in_order(&moves, &mut steps);
    // As they are noted.
    let left: HashSet<Place<'_>> = arriving.values().flatten().copied().map(place).collect();
    for named in happened
        .added
        .iter()
        .filter(|named| left.contains(&place(named)))
    {
        let replaces = match replaced.get(&place(named)) {
            // A directory is not replaced by another one, as a rule.
            Some(old) if old.is_directory || named.is_directory => {
                steps.push(Step::Remove(old));
                false
            }
            replaces => replaces.is_some(),
        };
        steps.push(Step::Make { named, replaces });
    }
    steps
}

/// In time that grows with their number: each waits for one other at most, which leaves the place that it goes to.
fn in_order<'h>(moves: &[(&'h Named, &'h Named)], steps: &mut Vec<Step<&'h Named>>) {
    let leaves = moves.iter().map(|&(from, _)| place(from));
    let leaves: HashMap<Place<'_>, usize> = leaves.zip(0..).collect();
    let waits_for: Vec<Option<usize>> = moves
        .iter()
        .map(|&(_, to)| leaves.get(&place(to)).copied())
        .collect();
    // Of those that wait for each, the last; and of each, the one before it.
    let mut last: Vec<Option<usize>> = vec![None; moves.len()];
    let mut before = last.clone();
    for (at, &other) in waits_for.iter().enumerate() {
        if let Some(other) = other {
            before[at] = last[other].replace(at);
        }
    }
    let mut is_done = vec![false; moves.len()];
    let mut free: Vec<usize> = Vec::new();
    let mut arriving = Vec::new();
    let starts = (0..moves.len()).filter(|&at| waits_for[at].is_none());
    // What none of them leads to goes round.
    for start in starts.chain((0..moves.len()).rev()) {
        if is_done[start] {
            continue;
        }
        let (from, to) = moves[start];
        let done = match waits_for[start] {
            None => {
                steps.push(Step::Move(from, to));
                [Some(start), None]
            }
            Some(other) if waits_for[other] == Some(start) && !is_done[other] => {
                steps.push(Step::Exchange([(from, to), moves[other]]));
                [Some(start), Some(other)]
            }
            Some(_) => {
                steps.push(Step::Leave(from));
                arriving.push(Step::Arrive(to));
                [Some(start), None]
            }
        };
        free.extend(done.into_iter().flatten());
        for &at in &free {
            is_done[at] = true;
        }
        while let Some(at) = free.pop() {
            let mut next = last[at];
            while let Some(waiting) = next {
                next = before[waiting];
                if !std::mem::replace(&mut is_done[waiting], true) {
                    let (from, to) = moves[waiting];
                    steps.push(Step::Move(from, to));
                    free.push(waiting);
                }
            }
        }
    }
    steps.append(&mut arriving);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(directory: InodeNumber, name: &str, inode: InodeNumber) -> Named {
        Named {
            directory,
            name: name.as_bytes().into(),
            inode,
            is_directory: inode >= 100,
        }
    }

    /// Names with directories, as `1a` or `2b`, and inodes.
    fn told(removed: &[(&str, InodeNumber)], added: &[(&str, InodeNumber)]) -> String {
        let of = |names: &[(&str, InodeNumber)]| {
            let of = |&(place, inode): &(&str, InodeNumber)| {
                named(place[..1].parse().unwrap(), &place[1..], inode)
            };
            names.iter().map(of).collect()
        };
        let happened = Happened {
            removed: of(removed),
            added: of(added),
            inodes: Vec::new(),
            number: 1,
        };
        let show = |named: &Named| {
            let name = String::from_utf8_lossy(&named.name).into_owned();
            format!("{}{name}", named.directory)
        };
        let steps = steps(&happened);
        let steps = steps.iter().map(|step| match step {
            Step::Remove(one) => format!("-{}", show(one)),
            Step::Move(one, other) => format!("{}>{}", show(one), show(other)),
            Step::Exchange([(one, other), _]) => format!("{}<>{}", show(one), show(other)),
            Step::Leave(one) => format!("{}>", show(one)),
            Step::Arrive(one) => format!(">{}", show(one)),
            Step::Make { named, replaces } => {
                format!("{}{}", if *replaces { "=" } else { "+" }, show(named))
            }
        });
        steps.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_become_steps() {
        for (removed, added, expected) in [
            (&[][..], &[("1a", 7)][..], "+1a"),
            (&[("1a", 7)], &[], "-1a"),
            (&[("1a", 7)], &[("1b", 7)], "1a>1b"),
            (&[("1a", 7)], &[("2a", 7)], "1a>2a"),
            // Over what was there.
            (&[("1a", 7), ("1b", 8)], &[("1b", 7)], "1a>1b"),
            (&[("1b", 8)], &[("1b", 9)], "=1b"),
            (&[("1b", 108)], &[("1b", 9)], "-1b +1b"),
            // A log that is rotated.
            (&[("1a", 7)], &[("1b", 7), ("1a", 9)], "1a>1b +1a"),
            (
                &[("1a", 7), ("1b", 8)],
                &[("1b", 7), ("1c", 8)],
                "1b>1c 1a>1b",
            ),
            (&[("1a", 7), ("1b", 8)], &[("1b", 7), ("1a", 8)], "1b<>1a"),
            (
                &[("1a", 7), ("1b", 8), ("1c", 9)],
                &[("1b", 7), ("1c", 8), ("1a", 9)],
                "1c> 1b>1c 1a>1b >1a",
            ),
            (&[("1a", 7)], &[("1a", 7)], ""),
            // A link that is made beside what goes.
            (&[("1a", 7)], &[("1b", 7), ("1c", 7)], "1a>1b +1c"),
        ] {
            assert_eq!(told(removed, added), expected, "{removed:?} {added:?}");
        }
    }

    /// Does steps, in which nothing may come to where something is.
    fn done(steps: &[Step<&Named>], mut there: HashSet<(InodeNumber, Box<[u8]>)>) -> usize {
        let own = |named: &Named| (named.directory, named.name.clone());
        let mut done = 0;
        for step in steps {
            done += 1;
            match *step {
                Step::Move(from, to) => {
                    assert!(there.remove(&own(from)), "{from:?} is not there");
                    assert!(there.insert(own(to)), "{to:?} is not free");
                }
                Step::Leave(from) => assert!(there.remove(&own(from)), "{from:?} is not there"),
                Step::Arrive(to) => assert!(there.insert(own(to)), "{to:?} is not free"),
                Step::Exchange(both) => {
                    for (from, to) in both {
                        assert!(there.contains(&own(from)) && there.contains(&own(to)));
                    }
                    done += 1;
                }
                Step::Remove(_) | Step::Make { .. } => panic!("{step:?} is none"),
            }
        }
        done
    }

    /// Many moves in one change are ordered in time that grows with their number, and none comes to where something is.
    #[test]
    fn long_chains_and_circles_are_ordered() {
        const MANY: u32 = 100_000;
        for (circle, expected) in [(MANY + 1, MANY), (2, MANY), (5, MANY / 5 * 6)] {
            // Each circle's last comes to where its first was; of one that is longer than all, nothing comes back.
            let to = |number: u32| match (number + 1) % circle {
                0 => number + 1 - circle,
                _ => number + 1,
            };
            let numbered = |place: u32, inode: u32| named(1, &format!("f{place}"), inode + 1000);
            let happened = Happened {
                removed: (0..MANY).map(|number| numbered(number, number)).collect(),
                added: (0..MANY)
                    .map(|number| numbered(to(number), number))
                    .collect(),
                ..Happened::default()
            };
            let there = |named: &Named| (named.directory, named.name.clone());
            let there = happened.removed.iter().map(there).collect();
            let began = std::time::Instant::now();
            let steps = steps(&happened);
            let took = began.elapsed();
            assert!(took.as_millis() < 1000, "{took:?}");
            assert_eq!(done(&steps, there), expected as usize);
        }
    }
}
