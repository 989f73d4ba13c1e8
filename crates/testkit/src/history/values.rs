//! Operations that every LibFS has (`under_test`): names that get whole values and lose them, one by one, and several
//! as one where the LibFS has that.
//!
//! # Invariant
//! What is told is comparable: values as runs of equal bytes, names as numbers.

use super::{Explained, Subject, Told, runs};
use crate::Random;
use crate::under_test::{Change, Files};
use std::collections::BTreeMap;

/// Names that values get.
const NAMES: u64 = 4;

/// What a name is to hold: so many bytes of the given value; none: it goes.
pub type New = (u8, Option<(u8, u16)>);

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ValueAction {
    Set(u8, u8, u16),
    Get(u8),
    Delete(u8),
    List,
    /// As one.
    Together(Vec<New>),
}

/// The operations of a thread.
pub fn actions(seed: u64, thread: u64, count: usize, has_together: bool) -> Vec<ValueAction> {
    let mut random = Random::new(seed.wrapping_mul(0x1_0001).wrapping_add(thread));
    let mut action = || {
        let fill = (thread * 50 + 1 + random.below(49)) as u8;
        let name = random.below(NAMES) as u8;
        // No bytes, inside a page, and across some.
        let length = *random.pick(&[0u16, 1, 100, 4096, 5000, 20_000]);
        match random.below(12) {
            0..=3 => ValueAction::Set(name, fill, length),
            4..=6 => ValueAction::Get(name),
            7 | 8 => ValueAction::Delete(name),
            9 => ValueAction::List,
            _ if !has_together => ValueAction::Get(name),
            _ => {
                let other = (name + 1 + random.below(NAMES - 1) as u8) % NAMES as u8;
                let second = random.percent(60).then_some((fill, 5000));
                ValueAction::Together(vec![(name, Some((fill, length))), (other, second)])
            }
        }
    };
    (0..count).map(|_| action()).collect()
}

fn content((fill, length): (u8, u16)) -> Vec<u8> {
    vec![fill; usize::from(length)]
}

impl Explained for ValueAction {
    type Model = BTreeMap<u8, Vec<(u8, usize)>>;

    fn apply(&self, values: &mut Self::Model) -> Told {
        let mut set = |name: u8, new: Option<(u8, u16)>| {
            let before = match new {
                Some(new) => values.insert(name, runs(&content(new))),
                None => values.remove(&name),
            };
            before.is_some()
        };
        match self {
            ValueAction::Set(name, fill, length) => {
                set(*name, Some((*fill, *length)));
                Told::Done
            }
            ValueAction::Get(name) => match values.get(name) {
                Some(value) => Told::Content(value.clone()),
                None => Told::Error(libc::ENOENT),
            },
            ValueAction::Delete(name) => Told::Number(u64::from(set(*name, None))),
            ValueAction::List => Told::Names(values.keys().copied().collect()),
            ValueAction::Together(changes) => {
                for &(name, new) in changes {
                    set(name, new);
                }
                Told::Done
            }
        }
    }
}

/// A LibFS's directory.
pub struct ValueSubject<'f>(pub &'f dyn Files);

impl Subject<ValueAction> for ValueSubject<'_> {
    fn apply(&self, action: &ValueAction) -> Told {
        let files = self.0;
        let name = |number: &u8| format!("n{number}");
        let told = match action {
            ValueAction::Set(to, fill, length) => files
                .replace(&name(to), &content((*fill, *length)))
                .map(|()| Told::Done),
            ValueAction::Get(from) => files.get(&name(from)).map(|value| match value {
                Some(value) => Told::Content(runs(&value)),
                None => Told::Error(libc::ENOENT),
            }),
            ValueAction::Delete(of) => files
                .delete(&name(of))
                .map(|was_there| Told::Number(u64::from(was_there))),
            ValueAction::List => files.list().map(|names| {
                let numbers = names.iter().filter_map(|name| name[1..].parse().ok());
                Told::Names(numbers.collect())
            }),
            ValueAction::Together(changes) => {
                let owned = changes
                    .iter()
                    .map(|(to, new)| (name(to), new.map(content)))
                    .collect::<Vec<_>>();
                let borrowed: Vec<Change<'_>> = owned
                    .iter()
                    .map(|(name, content)| (name.as_str(), content.as_deref()))
                    .collect();
                files.together(&borrowed).map(|is_done| {
                    assert!(is_done, "the LibFS has no batches");
                    Told::Done
                })
            }
        };
        told.unwrap_or_else(|errno| Told::Error(errno.raw_os_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Event, explained};

    /// What is set as one is not seen in part.
    #[test]
    fn a_part_of_a_batch_is_not_explained() {
        let event = |thread, action, told, begun, ended| Event {
            thread,
            action,
            told,
            begun,
            ended,
        };
        let both = ValueAction::Together(vec![(0, Some((7, 1))), (1, Some((7, 1)))]);
        let seen = |first: Vec<u8>, second: Vec<u8>| {
            [
                vec![event(0, both.clone(), Told::Done, 0, 9)],
                vec![
                    event(1, ValueAction::List, Told::Names(first), 1, 2),
                    event(1, ValueAction::List, Told::Names(second), 3, 4),
                ],
            ]
        };
        assert!(explained(&seen(vec![], vec![0, 1])));
        assert!(explained(&seen(vec![], vec![])));
        assert!(!explained(&seen(vec![0], vec![0, 1])), "a part");
        assert!(!explained(&seen(vec![0, 1], vec![])), "and back");
    }
}
