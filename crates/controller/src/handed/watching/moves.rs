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
pub enum Step<'h> {
    Remove(&'h Named),
    Move(&'h Named, &'h Named),
    /// Two moves, each to where the other one comes from.
    Exchange([(&'h Named, &'h Named); 2]),
    /// The same in two steps.
    Leave(&'h Named),
    Arrive(&'h Named),
    /// A name that is made; whether it takes the place of another one, as what is moved there does.
    Make {
        named: &'h Named,
        replaces: bool,
    },
}

type Place<'h> = (InodeNumber, &'h [u8]);

fn place(named: &Named) -> Place<'_> {
    (named.directory, &named.name)
}

/// The steps of a change, in the order in which they are done.
pub fn steps(happened: &Happened) -> Vec<Step<'_>> {
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
    in_order(moves, &mut steps);
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

fn in_order<'h>(mut moves: Vec<(&'h Named, &'h Named)>, steps: &mut Vec<Step<'h>>) {
    let mut arriving = Vec::new();
    while !moves.is_empty() {
        let sources: HashSet<Place<'_>> = moves.iter().map(|(from, _)| place(from)).collect();
        let (free, blocked): (Vec<_>, Vec<_>) = moves
            .into_iter()
            .partition(|(_, to)| !sources.contains(&place(to)));
        moves = blocked;
        let any = !free.is_empty();
        steps.extend(free.into_iter().map(|(from, to)| Step::Move(from, to)));
        if any {
            continue;
        }
        // They go round.
        let Some((from, to)) = moves.pop() else {
            break;
        };
        let back = moves
            .iter()
            .position(|(other, there)| place(other) == place(to) && place(there) == place(from));
        match back {
            Some(back) => {
                let other = moves.swap_remove(back);
                steps.push(Step::Exchange([(from, to), other]));
            }
            None => {
                steps.push(Step::Leave(from));
                arriving.push(Step::Arrive(to));
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
}
