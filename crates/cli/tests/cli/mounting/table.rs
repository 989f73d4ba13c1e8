//! What programs do with files, and what comes of it: the same on a mount as on tmpfs.
//!
//! Each row works in a directory of its own and tells what it has seen; times and numbers that differ from run to run are
//! left out of that. Written from the manual pages of the calls.

mod attributes;
mod contents;
mod listings;
mod locks;
mod names;
mod open;
mod programs;

use attributes::*;
use contents::*;
use listings::*;
use locks::*;
use names::*;
use open::*;
use programs::*;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What a row has seen.
pub struct Seen(pub String);

impl Seen {
    fn note(&mut self, what: &str, seen: impl std::fmt::Debug) {
        writeln!(self.0, "{what}: {seen:?}").unwrap();
    }

    /// Kind, mode, links, size of what is at a path, not followed; or the error.
    fn status(&mut self, what: &str, path: &Path) {
        let seen = std::fs::symlink_metadata(path).map(|of| {
            let size = if of.is_dir() { 0 } else { of.size() };
            let links = if of.is_dir() { 0 } else { of.nlink() };
            format!("{:o} {links} {size}", of.mode())
        });
        self.note(what, seen.map_err(|error| error.raw_os_error()));
    }

    fn names(&mut self, what: &str, directory: &Path) {
        let names: BTreeSet<_> = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (entry.file_name(), entry.file_type().unwrap().is_dir())
            })
            .collect();
        self.note(what, names);
    }
}

/// An error as its number, so that it reads the same however it is worded.
fn number<T>(done: std::io::Result<T>) -> Result<T, Option<i32>> {
    done.map_err(|error| error.raw_os_error())
}

/// A row: its name, and what it does in an empty directory.
type Row = (&'static str, fn(&Path, &mut Seen));

pub const ROWS: &[Row] = &[
    ("names", names),
    ("wrong names", wrong_names),
    ("long names", long_names),
    ("links", links),
    ("symbolic links", symbolic_links),
    ("renames", renames),
    ("rename flags", rename_flags),
    ("modes and umask", modes),
    ("set-group-id directories", set_group_id),
    ("set-id bits go", set_id_bits),
    ("times", times),
    ("owners", owners),
    ("sizes", sizes),
    ("holes", holes),
    ("fallocate", fallocate),
    ("appending", appending),
    ("two append", two_append),
    ("truncating opens", truncating_opens),
    ("unlinked and open", unlinked_and_open),
    ("renamed and open", renamed_and_open),
    ("replaced and open", replaced_and_open),
    ("removed directory", removed_directory),
    ("removed directories that are held", held_directories),
    ("shared maps", shared_maps),
    ("private maps", private_maps),
    ("maps of unlinked files", unlinked_maps),
    ("listings", listings),
    ("names removed while listed", removed_while_listed),
    ("seekdir", seekdir),
    ("extended attributes", extended_attributes),
    ("nodes", nodes),
    ("a named pipe carries bytes", pipe_carries),
    ("a socket is connected to", socket_is_connected),
    ("copy_file_range", copy_range),
    ("sendfile and splice", sendfile),
    ("programs", programs),
    ("scripts", scripts),
    ("open flags", open_flags),
    ("large writes", large_writes),
    ("vectors", vectors),
    ("record locks", record_locks),
    ("record locks end with a close", locks_end),
    ("a wait for a lock is interrupted", lock_interrupted),
    ("flock", flock),
    ("access", access),
    ("synced", synced),
    ("getcwd", working_directory),
    ("statfs", statfs),
];
