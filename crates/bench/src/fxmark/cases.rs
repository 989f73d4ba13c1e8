//! In a worker: what a case prepares, does and removes.
//!
//! What is private has the number of its thread, of all processes, in its name. What is shared the first process
//! makes, and removes when the others are done.

use super::case::Case;
use crate::calls::Calls;
use crate::crew::{Prepared, Share, Turns};
use crate::measure::Random;
use crate::outcome::Outcome;
use std::ffi::CString;

const BLOCK: u64 = 4096;
/// Blocks of a file that is read or overwritten.
const BLOCKS: u64 = 256;
const CREATE: i32 = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;

impl Case {
    /// How often a thread does it in a round.
    fn operations(self) -> u64 {
        match self {
            Case::Drbl | Case::Drbm | Case::Drbh => 100_000,
            Case::Dwol | Case::Dwom | Case::Dwsl => 60_000,
            Case::Dwal | Case::Dwtl => 16_000,
            Case::Mrpl | Case::Mrpm | Case::Mrph => 60_000,
            // Listings of a directory of FILES.
            Case::Mrdl | Case::Mrdm => 160,
            _ => 16_000,
        }
    }
}

/// Files of a directory that is listed, or whose files are opened.
const FILES: u64 = 1_000;

/// What one thread works on.
struct Place {
    /// Of its own, or of all.
    directory: String,
    file: CString,
    names: Vec<CString>,
    targets: Vec<CString>,
}

pub fn prepare<'c, C: Calls + Sync>(calls: &'c C, share: Share<Case>) -> Outcome<Prepared<'c>>
where
    C::File: Send,
{
    let case = share.work;
    let first = share.process == 0;
    let operations = (case.operations() / share.divisor).max(1);
    let deep = matches!(case, Case::Mrpl | Case::Mrpm | Case::Mrph);
    let all_share = matches!(
        case,
        Case::Drbm
            | Case::Drbh
            | Case::Dwom
            | Case::Mrpm
            | Case::Mrph
            | Case::Mrdm
            | Case::Mwcm
            | Case::Mwum
    );
    let numbers = share.process * share.threads..(share.process + 1) * share.threads;
    let mut directories = Vec::new();
    let mut files = Vec::new();
    // A directory of that name, five deep if that is meant.
    let mut make = |name: &str| -> Outcome<String> {
        let mut path = name.to_owned();
        directories.push(calls.path(&path));
        for level in 1..if deep { 5 } else { 1 } {
            path = format!("{path}/{level}");
            directories.push(calls.path(&path));
        }
        Ok(path)
    };
    let mut places: Vec<(Place, bool)> = Vec::new();
    let shared = if all_share || case == Case::Mwrm {
        match first {
            true => Some(make("shared")?),
            false if deep => Some("shared/1/2/3/4".to_owned()),
            false => Some("shared".to_owned()),
        }
    } else {
        None
    };
    for number in numbers.clone() {
        let own = !all_share;
        let directory = match (&shared, own) {
            (Some(shared), false) => shared.clone(),
            _ => make(&format!("private-{number}"))?,
        };
        // Of what all share, the first thread makes what there is.
        let makes = own || number == 0;
        let names = |directory: &str, prefix: &str, count: u64| -> Vec<CString> {
            (0..count)
                .map(|file| calls.path(&format!("{directory}/{prefix}{number}-{file:06}")))
                .collect()
        };
        let common = |count: u64| -> Vec<CString> {
            (0..count)
                .map(|file| calls.path(&format!("{directory}/file-{file:06}")))
                .collect()
        };
        let (names, targets) = match case {
            Case::Mwcl | Case::Mwcm | Case::Mwul | Case::Mwum => {
                (names(&directory, "f", operations), Vec::new())
            }
            Case::Mwrl => (
                names(&directory, "f", operations),
                names(&directory, "r", operations),
            ),
            Case::Mwrm => {
                let target = shared.as_deref().unwrap_or_default();
                (
                    names(&directory, "f", operations),
                    names(target, "r", operations),
                )
            }
            Case::Mrpl | Case::Mrph => (common(1), Vec::new()),
            Case::Mrpm | Case::Mrdl | Case::Mrdm => (common(FILES), Vec::new()),
            _ => (Vec::new(), Vec::new()),
        };
        let file = calls.path(&format!("{directory}/data"));
        let place = Place {
            directory,
            file,
            names,
            targets,
        };
        places.push((place, makes));
    }
    for directory in &directories {
        calls.make_directory(directory)?;
    }
    let mut threads: Vec<Turns<'c>> = Vec::new();
    for (number, (place, makes)) in numbers.zip(places) {
        files.extend(fill(calls, case, &place, makes, operations)?);
        threads.push(turns(calls, case, place, number, operations)?);
    }
    Ok(Prepared {
        threads,
        clean: Box::new(move || {
            files.iter().try_for_each(|file| calls.unlink(file))?;
            let mut inner_first = directories.iter().rev();
            inner_first.try_for_each(|directory| calls.remove_directory(directory))
        }),
    })
}

/// Makes the files that a thread works on; answers which files there are to remove after its turns.
fn fill<C: Calls>(
    calls: &C,
    case: Case,
    place: &Place,
    makes: bool,
    operations: u64,
) -> Outcome<Vec<CString>> {
    let blocks = match case {
        Case::Drbl | Case::Drbm | Case::Drbh | Case::Dwol | Case::Dwom | Case::Dwsl => Some(BLOCKS),
        Case::Dwal => Some(0),
        Case::Dwtl => Some(operations),
        _ => None,
    };
    if let Some(blocks) = blocks {
        if !makes {
            return Ok(Vec::new());
        }
        let file = calls.open(&place.file, CREATE)?;
        let data = [1; BLOCK as usize];
        (0..blocks).try_for_each(|block| calls.write(file, &data, block * BLOCK))?;
        calls.close(file);
        return Ok(vec![place.file.clone()]);
    }
    let make = || {
        place.names.iter().try_for_each(|name| {
            calls.close(calls.open(name, CREATE)?);
            Ok(())
        })
    };
    match case {
        Case::Mwcl | Case::Mwcm => Ok(place.names.clone()),
        Case::Mwul | Case::Mwum => make().map(|()| Vec::new()),
        Case::Mwrl | Case::Mwrm => make().map(|()| place.targets.clone()),
        _ if makes => make().map(|()| place.names.clone()),
        _ => Ok(Vec::new()),
    }
}

/// What a thread does in a run.
fn turns<'c, C: Calls + Sync>(
    calls: &'c C,
    case: Case,
    place: Place,
    number: u64,
    operations: u64,
) -> Outcome<Turns<'c>>
where
    C::File: Send,
{
    let mut buffer = vec![number as u8 + 1; BLOCK as usize];
    // A block of a shared file that is the thread's own.
    let own = match case {
        Case::Drbm | Case::Dwom => number % BLOCKS * BLOCK,
        _ => 0,
    };
    let Place {
        directory, file, ..
    } = &place;
    let path = file.clone();
    let on_file = |mut each: Box<dyn FnMut(C::File, u64) -> Outcome<()> + Send + 'c>| {
        let flags = match case {
            Case::Dwal => libc::O_RDWR | libc::O_APPEND,
            _ => libc::O_RDWR,
        };
        Box::new(move || {
            let file = calls.open(&path, flags)?;
            let done = (0..operations).try_for_each(|turn| each(file, turn));
            calls.close(file);
            done.map(|()| operations)
        }) as Turns<'c>
    };
    Ok(match case {
        Case::Drbl | Case::Drbm | Case::Drbh => {
            on_file(Box::new(move |file, _| calls.read(file, &mut buffer, own)))
        }
        Case::Dwol | Case::Dwom => {
            on_file(Box::new(move |file, _| calls.write(file, &buffer, own)))
        }
        Case::Dwsl => on_file(Box::new(move |file, _| {
            calls.write(file, &buffer, own)?;
            calls.sync(file)
        })),
        Case::Dwal => on_file(Box::new(move |file, _| calls.append(file, &buffer))),
        Case::Dwtl => on_file(Box::new(move |file, turn| {
            calls.truncate(file, (operations - 1 - turn) * BLOCK)
        })),
        Case::Mrdl | Case::Mrdm => {
            let directory = calls.path(directory);
            Box::new(move || {
                let mut found = 0;
                for _ in 0..operations {
                    found += calls.list(&directory)?;
                }
                Ok(found)
            })
        }
        _ => on_names(calls, case, place, number, operations),
    })
}

fn on_names<'c, C: Calls + Sync>(
    calls: &'c C,
    case: Case,
    place: Place,
    number: u64,
    operations: u64,
) -> Turns<'c> {
    let Place { names, targets, .. } = place;
    let picks = Random(number).below(names.len() as u64, operations);
    Box::new(move || {
        match case {
            Case::Mrpl | Case::Mrpm | Case::Mrph => picks.iter().try_for_each(|&pick| {
                calls.close(calls.open(&names[pick as usize], libc::O_RDONLY)?);
                Ok(())
            }),
            Case::Mwcl | Case::Mwcm => names.iter().try_for_each(|name| {
                calls.close(calls.open(name, CREATE)?);
                Ok(())
            }),
            Case::Mwul | Case::Mwum => names.iter().try_for_each(|name| calls.unlink(name)),
            _ => {
                let mut pairs = names.iter().zip(&targets);
                pairs.try_for_each(|(from, to)| calls.rename(from, to))
            }
        }?;
        Ok(operations)
    })
}
