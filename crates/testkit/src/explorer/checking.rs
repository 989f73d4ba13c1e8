//! Which trees a crash may leave: all that has returned is there, and of the one call that has not, what the
//! [`model`](super::model) says that may be.

use super::model::{Clock, Operation, Torn};
use super::spool::SPOOL;
use super::tree::{Content, Node, Tree};
use arck_core_state::PAGE_SIZE;

/// A call that has not returned.
#[derive(Clone, Copy)]
pub struct Flight<'a> {
    pub operation: &'a Operation,
    /// When it has.
    pub after: &'a Tree,
    pub clock: &'a Clock,
}

/// Whether `found` is a tree that may be there when everything up to `before` has returned and
/// `flight` has not.
pub fn check(found: &Tree, before: &Tree, flight: Option<Flight<'_>>) -> Result<(), String> {
    let shape = found.shape();
    let after = flight.map(|flight| flight.after);
    let torn = flight.and_then(|flight| flight.operation.torn(before, flight.clock));
    let mut outcome: Option<String> = None;
    let between = flight.and_then(|flight| before.with_next_section(flight.operation));
    // An exchange of two files has the same names before and after.
    for (base, other) in [
        (Some(before), after),
        (after, Some(before)),
        (between.as_ref(), after),
    ] {
        let Some(base) = base.filter(|base| base.shape() == shape) else {
            continue;
        };
        match check_nodes(found, base, other, torn.as_ref()) {
            Ok(()) => return Ok(()),
            Err(error) => {
                outcome = Some(match outcome {
                    None => error,
                    Some(before) => format!("neither as before ({before}) nor as after ({error})"),
                });
            }
        }
    }
    Err(outcome.unwrap_or_else(|| {
        let names: Vec<&str> = shape.keys().copied().collect();
        let wanted: Vec<&str> = before.shape().keys().copied().collect();
        format!("names are {names:?}, before were {wanted:?}")
    }))
}

/// Compares what names lead to: each field is as in `base` or as in `other`.
fn check_nodes(
    found: &Tree,
    base: &Tree,
    other: Option<&Tree>,
    torn: Option<&Torn>,
) -> Result<(), String> {
    for (path, number) in &base.paths {
        if path == SPOOL {
            // What stands there was replayed, or was not whole.
            continue;
        }
        let here = &found.nodes[&found.paths[path]];
        let node = &base.nodes[number];
        let other = other
            .and_then(|tree| tree.nodes.get(number))
            .unwrap_or(node);
        macro_rules! one_of {
            ($what:expr, $found:expr, $one:expr, $other:expr) => {
                if $found != $one && $found != $other {
                    return Err(format!(
                        "{} of {path:?}: {:x?}, may be {:x?} or {:x?}",
                        $what, $found, $one, $other
                    ));
                }
            };
        }
        one_of!("links", here.links, node.links, node.links);
        one_of!("mode", here.mode, node.mode, other.mode);
        one_of!(
            "attributes",
            here.attributes,
            node.attributes,
            other.attributes
        );
        one_of!("size", here.size, node.size, other.size);
        let torn = torn.filter(|torn| torn.number == *number);
        match torn {
            Some(torn) => {
                check_torn(here, [node, other], torn.start, torn.end)
                    .map_err(|error| format!("{path:?}: {error}"))?;
            }
            None => {
                let old = here.size == node.size && here.content == node.content;
                let new = here.size == other.size && here.content == other.content;
                if !old && !new {
                    return Err(format!(
                        "content of {path:?} (of {} bytes): {}",
                        here.size,
                        first_difference(&here.content, &node.content)
                    ));
                }
            }
        }
        for (index, what) in ["atime", "mtime", "ctime"].into_iter().enumerate() {
            let stamps = torn.and_then(|torn| torn.stamps.as_ref());
            if index > 0 && stamps.is_some_and(|clock| clock.contains(&here.times[index])) {
                continue;
            }
            one_of!(
                what,
                here.times[index],
                node.times[index],
                other.times[index]
            );
        }
    }
    Ok(())
}

fn byte(content: &Content, at: u64) -> u8 {
    content
        .get(&(at / PAGE_SIZE))
        .map_or(0, |page| page[(at % PAGE_SIZE) as usize])
}

fn first_difference(found: &Content, wanted: &Content) -> String {
    let pages = found.keys().chain(wanted.keys());
    let differs = pages
        .flat_map(|page| page * PAGE_SIZE..(page + 1) * PAGE_SIZE)
        .find(|&at| byte(found, at) != byte(wanted, at));
    differs.map_or("its size".into(), |at| {
        format!(
            "byte {at} is {:#x}, was {:#x}",
            byte(found, at),
            byte(wanted, at)
        )
    })
}

/// Within the range, every byte is as before or as after; what lies beyond the old size is there
/// whole if the new size is. Outside, nothing has changed.
fn check_torn(here: &Node, states: [&Node; 2], start: u64, end: u64) -> Result<(), String> {
    let old = if states[0].size <= states[1].size {
        states[0].size
    } else {
        states[1].size
    };
    let pages = states
        .iter()
        .flat_map(|node| node.content.keys())
        .chain(here.content.keys());
    let pages: std::collections::BTreeSet<u64> = pages.copied().collect();
    let grown = here.size > old;
    // The longer state is the later one where sizes differ.
    let later = if states[0].size > states[1].size {
        states[0]
    } else {
        states[1]
    };
    for page in pages {
        for at in page * PAGE_SIZE..((page + 1) * PAGE_SIZE).min(here.size) {
            let found = byte(&here.content, at);
            let may = if grown && at >= old {
                [byte(&later.content, at); 2]
            } else if (start..end).contains(&at) {
                states.map(|node| byte(&node.content, at))
            } else {
                [byte(&states[0].content, at); 2]
            };
            if !may.contains(&found) {
                return Err(format!("byte {at} is {found:#x}, may be {may:x?}"));
            }
        }
    }
    Ok(())
}
