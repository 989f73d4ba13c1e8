//! The file that says how long a log's sections become, made with the first of them.
//!
//! # Invariants
//! * All who have a log use one limit: what stands there is never changed.
//! * Where a log has a record that survives the machine, its limit does: in `paged` mode whoever has read it makes it durable before
//!   he can append, since who has made it may not have come so far. A directory that is folded has new files without their
//!   contents, so a machine that fails in between leaves a limit of no bytes and nothing appended; who would make the log writes it then.

use crate::append::make_durable;
use crate::error::{Error, TURNS};
use crate::sections::{InDirectory, LIMIT, name_of};
use arck_libfs_kit::engine::Way;
use arck_libfs_kit::format::FileKind;
use arck_libfs_kit::names::together::{Contents, Successor};
use arck_libfs_kit::views::{Directory, File};
use rustix::io::Errno;
use std::sync::atomic::Ordering;

/// Digits of the largest limit.
const DIGITS: usize = 20;

/// What the file says.
enum Said {
    /// There is none.
    Nothing,
    /// It is there, and has no contents.
    Empty,
    Limit(u64),
    /// Something else, for an error's text.
    Nonsense(String),
}

impl InDirectory<'_> {
    /// The limit of the log that is here; one with this `limit` is made where there is none, if that is said. ENOENT:
    /// there is none. EBADMSG: what says the limit does not. EAGAIN: somebody takes it away again and again.
    pub fn limit(&self, make: Option<u64>) -> Result<u64, Error> {
        for _ in 0..TURNS {
            match (self.said()?, make) {
                (Said::Limit(limit), _) => {
                    self.make_limit_durable()?;
                    return Ok(limit);
                }
                (Said::Nothing, None) => return Err(Errno::NOENT.into()),
                (Said::Nothing, Some(limit)) => {
                    // Where somebody has taken the limit away, the last section stays the last. The first one is made
                    // together with it, and where its name leads to something else, nothing is made.
                    if !self.list()?.is_empty() || self.find(0)?.is_some() {
                        let text = "there are sections and no `.limit`";
                        return Err(Error::Malformed(text.to_owned()));
                    }
                    self.make(&name_of(0), Some(&limit.to_string()), None)?;
                }
                (Said::Empty, Some(limit)) if self.is_untouched()? => self.finish(limit)?,
                (Said::Empty, _) => return Err(nonsense("nothing")),
                (Said::Nonsense(text), _) => return Err(nonsense(&text)),
            }
        }
        Err(Errno::AGAIN.into())
    }

    fn said(&self) -> Result<Said, Errno> {
        let read = self.engine.run(Way::Names, |context| {
            let directory = self.directory(context)?;
            let Some(found) = context.dentry(directory, LIMIT)? else {
                return Ok(Said::Nothing);
            };
            if found.kind != FileKind::File {
                return Ok(Said::Nonsense("nothing: it is no file".to_owned()));
            }
            let file = File::of(context.view_of(directory, LIMIT, found)?)?;
            let mut text = [0; DIGITS];
            let length = context.read_whole(file, &mut text)?;
            if length == 0 {
                return Ok(Said::Empty);
            }
            let text = String::from_utf8_lossy(&text[..length]);
            Ok(match text.parse() {
                Ok(limit) if limit > 0 => Said::Limit(limit),
                _ => Said::Nonsense(format!("{text:?}")),
            })
        });
        match read {
            Err(Errno::FBIG) => Ok(Said::Nonsense("more than any limit has".to_owned())),
            read => read,
        }
    }

    /// Whether nothing has been appended.
    fn is_untouched(&self) -> Result<bool, Errno> {
        match self.list()?[..] {
            [] => Ok(true),
            [only] if only.begin == 0 => self.engine.run_local(|context| {
                let file = only.file.view(context)?;
                Ok(file.size.load(Ordering::Acquire) == 0)
            }),
            _ => Ok(false),
        }
    }

    /// Replaces a file that says nothing, by record: who came first has said it.
    fn finish(&self, limit: u64) -> Result<(), Errno> {
        let text = limit.to_string();
        let mut successor = [None];
        self.engine.run(Way::Names, |context| {
            let (number, generation) = self.directory;
            let directory = Directory::of(context.view_to_change(number, generation)?)?;
            let change = context.look_at(directory, LIMIT)?;
            let says = |victim: &arck_libfs_kit::views::CachedInode| {
                victim.size.load(Ordering::Acquire) != 0
            };
            if change.victim.is_none_or(says) {
                return Ok(());
            }
            context.expect_own(directory.inode())?;
            if successor[0].is_none() {
                successor[0] = Some(Successor {
                    creation: self.create,
                    contents: Contents::store(context, text.as_bytes())?,
                });
            }
            context.change_together(directory, &mut [change], &mut successor)
        })
    }

    fn make_limit_durable(&self) -> Result<(), Errno> {
        let number = self.engine.run(Way::Names, |context| {
            let directory = self.directory(context)?;
            let Some(found) = context.dentry(directory, LIMIT)? else {
                return Ok(None);
            };
            Ok(Some(context.view_of(directory, LIMIT, found)?.number()))
        })?;
        // Where it has been taken away meanwhile, that is found by who reads it.
        number.map_or(Ok(()), |number| {
            make_durable(self.engine.session, &[number, self.directory.0])
        })
    }
}

fn nonsense(says: &str) -> Error {
    Error::Malformed(format!(
        "`.limit` says {says}, and not how many bytes a section has"
    ))
}
