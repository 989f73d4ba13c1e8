//! The sections of a log: files of its directory, named by the position of their first byte.
//!
//! # Invariants
//! * A section that has as many bytes as the log's limit never changes again ([`append`](crate::append)); the next one
//!   begins where it ends. So who makes that needs no lock of the one before, and two who do make the same one.
//! * The limit is the log's, and not that of who has it open: it stands in the file [`LIMIT`], which is made with the first
//!   section, by one store.
//! * The last section is never cut off: it says where the log ends.
//! * What is remembered of sections counts until it is found to be wrong (ESTALE); then names are looked up again. Its inode is known
//!   by its life, too: that of a section which was cut off before any fold is another file's, with the same generation.

use crate::error::TURNS;
use arck_libfs_kit::engine::{Attempt, Context, Engine, Need, Way};
use arck_libfs_kit::format::FileKind;
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::names::directories::may_remove;
use arck_libfs_kit::names::together::{Contents, Successor};
use arck_libfs_kit::views::{CachedInode, Directory, File};
use rustix::io::Errno;
use std::collections::BTreeMap;

/// Digits of a section's name: those of the largest position.
const DIGITS: usize = 20;

/// No log is longer: the largest size of a file, so that no position in a section is more than a number holds.
pub const POSITION_MAX: u64 = i64::MAX as u64;

/// The file that says how long sections become, in decimal. A shell's `*` leaves it out.
pub const LIMIT: &[u8] = b".limit";

/// Sections that are cut off by one store at most.
const CUT_TOGETHER: usize = 64;

/// A section, as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Section {
    /// The position of its first byte.
    pub begin: u64,
    pub file: SectionFile,
}

/// The inode of a section, as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SectionFile {
    pub number: u32,
    pub generation: u32,
    /// See [`life`](arck_libfs_kit::views::Viewing::life).
    pub life: u64,
}

impl SectionFile {
    /// Its view. ESTALE: it is no section any more.
    pub fn view(self, context: &Context<'_>) -> Attempt<File> {
        let found = context.view(self.number, self.generation)?;
        self.expect(context, found)?;
        Ok(File::of(found)?)
    }

    /// The same, to change it.
    pub fn view_to_change(self, context: &Context<'_>) -> Attempt<File> {
        let found = context.view_to_change(self.number, self.generation)?;
        self.expect(context, found)?;
        Ok(File::of(found)?)
    }

    /// That what has its number and generation is this one. ESTALE.
    pub fn expect(self, context: &Context<'_>, found: &CachedInode) -> Attempt<()> {
        match context.life(found)? == self.life {
            true => Ok(()),
            false => Err(Errno::STALE.into()),
        }
    }
}

/// The name of the section that begins at a position.
pub fn name_of(begin: u64) -> [u8; DIGITS] {
    let mut name = [b'0'; DIGITS];
    let mut rest = begin;
    for digit in name.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    name
}

/// Where the section of a name begins, if it is that of one.
pub fn begin_of(name: &[u8]) -> Option<u64> {
    if name.len() != DIGITS || !name.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let begin = std::str::from_utf8(name).ok()?.parse().ok();
    begin.filter(|&begin| begin <= POSITION_MAX)
}

/// What is remembered of sections, by where they begin.
#[derive(Default)]
pub struct Known(BTreeMap<u64, SectionFile>);

impl Known {
    /// The one in which a position lies, if it is the log's: the last that does not begin behind it.
    pub fn with(&self, position: u64) -> Option<Section> {
        let (&begin, &file) = self.0.range(..=position).next_back()?;
        Some(Section { begin, file })
    }

    pub fn note(&mut self, section: Section) {
        self.0.insert(section.begin, section.file);
    }

    /// All that there are by now.
    pub fn replace(&mut self, all: &[Section]) {
        self.0 = all.iter().map(|one| (one.begin, one.file)).collect();
    }
}

/// A log's directory, in a session.
#[derive(Clone, Copy)]
pub struct InDirectory<'e> {
    pub engine: Engine<'e>,
    /// Number and generation.
    pub directory: (u32, u32),
    /// What a new section is like.
    pub create: Creation<'static>,
}

impl InDirectory<'_> {
    pub(crate) fn directory(&self, context: &Context<'_>) -> Attempt<Directory> {
        let (number, generation) = self.directory;
        Ok(Directory::of(context.view(number, generation)?)?)
    }

    /// All sections, ascending. ENOENT: the directory is gone. EBADMSG: a name of a section leads to no file.
    pub fn list(&self) -> Result<Vec<Section>, Errno> {
        self.engine.run(Way::Names, |context| {
            let directory = self.directory(context)?;
            let mut begins = Vec::new();
            {
                let _locked = context.lock_now(directory.inode())?;
                context.for_each_name(directory, |_, kind, name| {
                    if kind == FileKind::File {
                        begins.extend(begin_of(name));
                    }
                })?;
            }
            begins.sort_unstable();
            let found = begins.iter().map(|&begin| {
                // Cut off since it was listed.
                self.look_up(context, directory, begin)?
                    .ok_or_else(|| Need::Again.into())
            });
            found.collect()
        })
    }

    /// The section that begins at a position, if there is one.
    pub fn find(&self, begin: u64) -> Result<Option<Section>, Errno> {
        self.engine.run(Way::Names, |context| {
            let directory = self.directory(context)?;
            self.look_up(context, directory, begin)
        })
    }

    fn look_up(
        &self,
        context: &Context<'_>,
        directory: Directory,
        begin: u64,
    ) -> Attempt<Option<Section>> {
        let name = name_of(begin);
        if begin > POSITION_MAX {
            return Ok(None);
        }
        let Some(found) = context.dentry(directory, &name)? else {
            return Ok(None);
        };
        if found.kind != FileKind::File {
            return Err(Errno::BADMSG.into());
        }
        // Which shows the controller the way, by which it judges whether this session may read it.
        let inode = File::of(context.view_of(directory, &name, found)?)?;
        let file = SectionFile {
            number: inode.number(),
            generation: inode.generation(),
            life: context.life(&inode)?,
        };
        Ok(Some(Section { begin, file }))
    }

    /// The section that begins at a position, made if there is none, and the one that ends there is still the log's. ESTALE: that was cut off,
    /// and so may this one have been. EFBIG: no log is so long. EAGAIN: somebody takes it away again and again.
    pub fn find_or_make(&self, begin: u64, behind: Option<Section>) -> Result<Section, Errno> {
        if begin > POSITION_MAX {
            return Err(Errno::FBIG);
        }
        for _ in 0..TURNS {
            if let Some(found) = self.find(begin)? {
                return Ok(found);
            }
            self.make(&name_of(begin), None, behind)?;
        }
        Err(Errno::AGAIN)
    }

    /// Makes an empty file, unless something has its name, and with it one that says the limit. ESTALE: the section `behind` which it is to be
    /// is not there.
    pub fn make(
        &self,
        name: &[u8],
        limit: Option<&str>,
        behind: Option<Section>,
    ) -> Result<(), Errno> {
        let wanted = [(name, "")].into_iter();
        let wanted: Vec<_> = wanted.chain(limit.map(|limit| (LIMIT, limit))).collect();
        let mut successors: Vec<Option<Successor>> = wanted.iter().map(|_| None).collect();
        let made = self.engine.run(Way::Names, |context| {
            let (number, generation) = self.directory;
            let directory = Directory::of(context.view_to_change(number, generation)?)?;
            let mut changes = Vec::with_capacity(wanted.len());
            for (name, _) in &wanted {
                changes.push(context.look_at(directory, name)?);
            }
            if changes.iter().any(|change| change.victim.is_some()) {
                return Ok(());
            }
            context.expect_own(directory.inode())?;
            for ((_, content), successor) in wanted.iter().zip(&mut successors) {
                if successor.is_none() {
                    *successor = Some(Successor {
                        creation: self.create,
                        contents: Contents::store(context, content.as_bytes())?,
                    });
                }
            }
            // Sections are cut off from the first one on: where that one is, what stood behind it was not cut off.
            let holds = || match behind {
                Some(section) if self.look_up(context, directory, section.begin)? != behind => {
                    // ESTALE would have the directory looked up again.
                    Err(Errno::CANCELED.into())
                }
                _ => Ok(()),
            };
            context.change_together_if(directory, &mut changes, &mut successors, holds)
        });
        match made {
            Err(Errno::CANCELED) => Err(Errno::STALE),
            made => made,
        }
    }

    /// Takes sections away, a few by each store, the first of the log first.
    pub fn remove(&self, sections: &[Section]) -> Result<(), Errno> {
        for some in sections.chunks(CUT_TOGETHER) {
            let names: Vec<_> = some.iter().map(|one| name_of(one.begin)).collect();
            let mut none: Vec<Option<Successor>> = some.iter().map(|_| None).collect();
            self.engine.run(Way::Names, |context| {
                let (number, generation) = self.directory;
                let directory = Directory::of(context.view_to_change(number, generation)?)?;
                let mut changes = Vec::with_capacity(names.len());
                for name in &names {
                    changes.push(context.look_at(directory, name)?);
                }
                let user = self.create.owner.0;
                let victims = changes.iter().filter_map(|change| change.victim);
                let mut may = victims.map(|victim| may_remove(&directory, victim, user));
                // Who did not heed this would lose what was changed of the directory.
                if user != 0 && may.any(|may| !may) {
                    return Err(Errno::PERM.into());
                }
                context.change_together(directory, &mut changes, &mut none)
            })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_positions_and_sort_like_them() {
        let positions = [0, 1, 9, 10, 4096, 1 << 40, POSITION_MAX];
        let names: Vec<_> = positions.iter().map(|&at| name_of(at)).collect();
        assert!(names.is_sorted());
        for (name, at) in names.iter().zip(positions) {
            assert_eq!(begin_of(name), Some(at));
        }
        let others: &[&[u8]] = &[
            b"",
            b".limit",
            b"0000000000000000000",
            b"000000000000000000000",
            b"+0000000000000000001",
            b"0000000000000000000a",
            b"09223372036854775808",
            b"18446744073709551615",
            b"99999999999999999999",
        ];
        for name in others {
            assert_eq!(begin_of(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_position_lies_in_the_last_section_that_does_not_begin_behind_it() {
        let mut known = Known::default();
        assert_eq!(known.with(5), None);
        for (at, begin) in [10, 20, 35].into_iter().enumerate() {
            let file = SectionFile {
                number: at as u32 + 1,
                generation: 0,
                life: 0,
            };
            known.note(Section { begin, file });
        }
        for (position, begin) in [
            (9, None),
            (10, Some(10)),
            (19, Some(10)),
            (20, Some(20)),
            (u64::MAX, Some(35)),
        ] {
            assert_eq!(known.with(position).map(|one| one.begin), begin);
        }
    }
}
