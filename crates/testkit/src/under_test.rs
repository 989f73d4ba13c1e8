//! What each LibFS offers, so that a test of what holds for every one of them runs over all ([`LIBFSES`]) and is
//! not written again for the next: small files in one directory of a pool, as whole values.
//!
//! A LibFS that comes to be implements [`LibFs`] and [`Files`], and is listed.
//!
//! # Invariants
//! * An error is a number, so that LibFSes can be compared; that a file is not there is none.
//! * A session that is dropped has ended.

use crate::{Shorthand, connect_with};
use arck_kvfs::{Batch, Store};
use arck_libfs_kit::Session;
use arckfs::{At, Errno, Failure, FileSystem, Resolver};
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// All that there are.
pub const LIBFSES: [&dyn LibFs; 3] = [&ArckFs(Resolver::Tree), &ArckFs(Resolver::FullPaths), &Kvfs];

/// A name, and what its file is to hold; none: it goes.
pub type Change<'c> = (&'c str, Option<&'c [u8]>);

/// A LibFS.
pub trait LibFs: Sync {
    /// For what a failed test says.
    fn name(&self) -> &'static str;

    /// Whether it changes several names as one: [`Files::together`].
    fn has_batches(&self) -> bool;

    /// A session of its own that works in this directory of a served pool, which is made if it is not there.
    fn open(&self, pool: &Path, directory: &str) -> Box<dyn Files>;
}

/// A session of a LibFS. All threads may use it.
pub trait Files: Send + Sync {
    /// A file has this content from then on.
    fn put(&self, name: &str, content: &[u8]) -> Result<(), Errno>;

    /// The same as one: who looks sees all that was there before, or all of this.
    fn replace(&self, name: &str, content: &[u8]) -> Result<(), Errno>;

    /// All that a file holds.
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Errno>;

    /// Whether it was there.
    fn delete(&self, name: &str) -> Result<bool, Errno>;

    /// The names of the directory, sorted.
    fn list(&self) -> Result<Vec<String>, Errno>;

    /// All these changes as one: nobody sees, and no crash leaves, some of them. Whether the LibFS has that.
    fn together(&self, changes: &[Change<'_>]) -> Result<bool, Errno>;

    fn session(&self) -> &'static Session;

    /// Folds everything that the session changed; `release` also gives up what it owns.
    fn fold(&self, release: bool) -> Result<(), Errno> {
        let request = arck_protocol::Request::CommitAll { release };
        self.session().ask(&request)
    }
}

/// ArckFS, and FPFS.
pub struct ArckFs(pub Resolver);

struct InDirectory {
    session: FileSystem,
    directory: String,
    /// For files on their way to this directory; made when it is needed.
    aside: OnceLock<String>,
    /// How many there have been.
    on_their_way: AtomicU64,
}

impl LibFs for ArckFs {
    fn name(&self) -> &'static str {
        match self.0 {
            Resolver::Tree => "ArckFS",
            Resolver::FullPaths => "FPFS",
        }
    }

    fn has_batches(&self) -> bool {
        false
    }

    fn open(&self, pool: &Path, directory: &str) -> Box<dyn Files> {
        let session = connect_with(pool, b"", self.0);
        make_if_missing(&session, directory);
        Box::new(InDirectory {
            session,
            directory: directory.to_owned(),
            aside: OnceLock::new(),
            on_their_way: AtomicU64::new(0),
        })
    }
}

impl InDirectory {
    fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.directory)
    }

    /// A path that nobody else uses.
    fn path_aside(&self) -> String {
        let aside = self.aside.get_or_init(|| {
            // Nobody else has this number as long as the session lives.
            let number = self.session.session().number();
            let aside = format!("{}.{number}", self.directory);
            make_if_missing(&self.session, &aside);
            aside
        });
        let count = self.on_their_way.fetch_add(1, Ordering::Relaxed);
        format!("{aside}/{count}")
    }
}

fn make_if_missing(session: &FileSystem, directory: &str) {
    match session.make_directory(At::Root, directory.as_bytes(), 0o755) {
        Ok(()) | Err(Failure::Errno(Errno::EXIST)) => {}
        Err(failure) => panic!("making {directory}: {failure:?}"),
    }
}

fn errno(failure: Failure) -> Errno {
    match failure {
        Failure::Errno(errno) => errno,
        Failure::Outside(_) => Errno::XDEV,
    }
}

/// What is not there is nothing.
fn found<T>(result: Result<T, Failure>) -> Result<Option<T>, Errno> {
    match result.map_err(errno) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

impl Files for InDirectory {
    fn put(&self, name: &str, content: &[u8]) -> Result<(), Errno> {
        self.session.put(&self.path(name), content).map_err(errno)
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), Errno> {
        let (from, to) = (self.path_aside(), self.path(name));
        let put = self.session.put(&from, content);
        let (from, to) = (from.as_bytes(), to.as_bytes());
        let renamed = put.and_then(|()| self.session.rename(At::Root, from, At::Root, to, 0));
        renamed.map_err(|failure| {
            // Nothing of it is left, if there was room for it at all.
            let _ = self.session.unlink(At::Root, from, 0);
            errno(failure)
        })
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Errno> {
        found(self.session.get(&self.path(name)))
    }

    fn delete(&self, name: &str) -> Result<bool, Errno> {
        let path = self.path(name);
        let gone = found(self.session.unlink(At::Root, path.as_bytes(), 0))?;
        Ok(gone.is_some())
    }

    fn list(&self) -> Result<Vec<String>, Errno> {
        self.session.names(&self.directory).map_err(errno)
    }

    fn together(&self, _: &[Change<'_>]) -> Result<bool, Errno> {
        Ok(false)
    }

    fn session(&self) -> &'static Session {
        self.session.session()
    }
}

/// KVFS.
pub struct Kvfs;

/// On a session that is known here, so that tests reach what it has not folded.
struct OfSession {
    session: &'static Session,
    store: Store,
}

impl LibFs for Kvfs {
    fn name(&self) -> &'static str {
        "KVFS"
    }

    fn has_batches(&self) -> bool {
        true
    }

    fn open(&self, pool: &Path, directory: &str) -> Box<dyn Files> {
        let options = arck_kvfs::Options {
            make: true,
            ..arck_kvfs::Options::new(pool)
        };
        drop(Store::open(options, directory).expect("a directory"));
        let session = Session::connect(pool).expect("a session");
        let store = Store::within(session, directory).expect("a store");
        Box::new(OfSession { session, store })
    }
}

impl Files for OfSession {
    fn put(&self, name: &str, content: &[u8]) -> Result<(), Errno> {
        let set = self.store.set(name.as_bytes(), content);
        set.map_err(|error| error.errno())
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), Errno> {
        self.put(name, content)
    }

    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, Errno> {
        let got = self.store.get(name.as_bytes());
        got.map_err(|error| error.errno())
    }

    fn delete(&self, name: &str) -> Result<bool, Errno> {
        let deleted = self.store.delete(name.as_bytes());
        deleted.map_err(|error| error.errno())
    }

    fn list(&self) -> Result<Vec<String>, Errno> {
        let names = self.store.list().map_err(|error| error.errno())?;
        let names = names
            .into_iter()
            .map(|name| String::from_utf8(name).expect("of a test"));
        let mut names: Vec<_> = names.collect();
        names.sort();
        Ok(names)
    }

    fn together(&self, changes: &[Change<'_>]) -> Result<bool, Errno> {
        let mut batch = Batch::new();
        for (name, content) in changes {
            match content {
                Some(content) => batch.set(name.as_bytes(), content),
                None => batch.delete(name.as_bytes()),
            };
        }
        let applied = self.store.apply(&batch).map_err(|error| error.errno())?;
        let _changed: usize = applied;
        Ok(true)
    }

    fn session(&self) -> &'static Session {
        self.session
    }
}

impl Drop for OfSession {
    fn drop(&mut self) {
        self.session.end();
    }
}
