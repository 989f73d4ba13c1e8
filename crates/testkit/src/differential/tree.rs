//! Everything that a file system holds, as a path walk finds it.

use super::Side;
use super::operation::{Base, Operation, Place, Subject};
use super::outcome::{Outcome, View};
use std::collections::BTreeMap;

/// What stands under a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub stat: View,
    /// A directory's names, a file's bytes, a link's target.
    pub content: Outcome,
    /// Names and values.
    pub extended: Vec<(Vec<u8>, Outcome)>,
}

/// The extended attributes of what stands under a path.
fn extended(
    side: &mut impl Side,
    actor: usize,
    place: &Place,
) -> Result<Vec<(Vec<u8>, Outcome)>, Outcome> {
    let subject = Subject::Place(place.clone(), libc::AT_SYMLINK_NOFOLLOW);
    let buffer = 1 << 16;
    let list = Operation::ListExtended {
        subject: subject.clone(),
        buffer,
    };
    let names = match side.apply(actor, &list) {
        Outcome::Names(names) => names,
        other => return Err(other),
    };
    let mut found = Vec::new();
    for (mut name, _) in names {
        // The NUL behind it.
        name.pop();
        let get = Operation::GetExtended {
            subject: subject.clone(),
            name: name.clone(),
            buffer,
        };
        found.push((name, side.apply(actor, &get)));
    }
    Ok(found)
}

/// All paths, as `actor` sees them; an error's path and text where one cannot be read.
pub fn tree(side: &mut impl Side, actor: usize) -> Result<BTreeMap<Vec<u8>, Node>, String> {
    let mut nodes = BTreeMap::new();
    let mut waiting = vec![b".".to_vec()];
    while let Some(path) = waiting.pop() {
        let place = Place {
            base: Base::Root,
            path: path.clone(),
        };
        let failed =
            |what: &str, outcome: &Outcome| format!("{what} {}: {outcome:?}", path.escape_ascii());
        let stat = match side.apply(
            actor,
            &Operation::Stat {
                place: place.clone(),
                flags: libc::AT_SYMLINK_NOFOLLOW,
            },
        ) {
            Outcome::Stat(stat) => stat,
            other => return Err(failed("stat", &other)),
        };
        let extended = extended(side, actor, &place).map_err(|other| failed("listing", &other))?;
        let content = match stat.mode & libc::S_IFMT {
            libc::S_IFDIR => {
                let buffer = 1 << 15;
                side.apply(actor, &Operation::List { place, buffer })
            }
            libc::S_IFLNK => side.apply(
                actor,
                &Operation::ReadLink {
                    place,
                    length: 5000,
                },
            ),
            libc::S_IFREG => side.apply(actor, &Operation::Content { place }),
            _ => Outcome::Done,
        };
        if let Outcome::Names(names) = &content {
            for (name, _) in names {
                if name != b"." && name != b".." {
                    waiting.push([&path[..], b"/", name].concat());
                }
            }
        }
        if let Outcome::Error(_) | Outcome::Outside = content {
            return Err(failed("reading", &content));
        }
        let node = Node {
            stat,
            content,
            extended,
        };
        nodes.insert(path, node);
    }
    Ok(nodes)
}
