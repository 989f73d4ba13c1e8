//! Deltas that were set aside: files in the pool's directory, for their users to look at.
//!
//! A file is one line of JSON ([`Head`]), the branch as it was stored, and the delta's pages in the
//! order of [`Head::pages`]. File contents are not in it: they are in the pool's data pages, to
//! which an index refers, and which are used again.
//!
//! # Invariants
//! * What is set aside for a user takes no more than [`BYTES_MAX`] bytes and [`FILES_MAX`] files;
//!   the oldest go first, and one user's never for another's.
//! * Nothing in such a file is believed by whoever reads it: it is what a session wrote.

use crate::fold::Folding;
use crate::fold::folding::Failure;
use crate::pool::clock::now;
use crate::pool::names::ASIDE;
use crate::sessions::log::{Event, read_bounded};
use arck_core_state::InodeNumber;
use arck_core_state::branch::{BRANCH_SIZE, StoredBranch};
use arck_core_state::geometry::SessionNumber;
use arck_verifier::CopiedDelta;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

const BYTES_MAX: u64 = 64 << 20;
const FILES_MAX: usize = 1024;
const PAGE: usize = 4096;

/// First line of a file.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Head {
    /// Nanoseconds since 1970.
    pub time: i64,
    pub session: SessionNumber,
    pub uid: u32,
    pub inode: InodeNumber,
    pub generation: u32,
    /// Ownership epoch and fold number: without them the branch means nothing.
    pub ownership_epoch: u32,
    pub fold: u64,
    /// Byte offset of the branch in the session's arena.
    pub branch_offset: u64,
    /// Why it was not folded.
    pub because: String,
    /// Numbers in the arena of the pages that follow.
    pub pages: Vec<u32>,
}

/// A delta that was set aside.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetAside {
    pub head: Head,
    /// `None` if there is no branch of that inode where it should be.
    pub branch: Option<StoredBranch>,
    pub pages: BTreeMap<u32, Box<[u8; 4096]>>,
}

impl SetAside {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or is none of these files (`InvalidData`).
    pub fn read(file: &Path) -> std::io::Result<SetAside> {
        let bytes = read_bounded(file, BYTES_MAX)?;
        SetAside::decode(&bytes).ok_or_else(|| {
            std::io::Error::new(
                std::io::ErrorKind::InvalidData,
                "no delta that was set aside, or cut off",
            )
        })
    }

    fn decode(bytes: &[u8]) -> Option<SetAside> {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let head: Head = serde_json::from_slice(&bytes[..end]).ok()?;
        let (branch, rest) = bytes[end + 1..].split_first_chunk::<BRANCH_SIZE>()?;
        let (pages, rest) = rest.as_chunks::<PAGE>();
        if pages.len() != head.pages.len() || !rest.is_empty() {
            return None;
        }
        let branch = StoredBranch::decode(
            branch,
            head.inode,
            head.generation,
            head.ownership_epoch,
            head.fold,
        );
        let pages = head.pages.iter().zip(pages);
        let pages = pages.map(|(&number, page)| (number, Box::new(*page)));
        Some(SetAside {
            branch,
            pages: pages.collect(),
            head,
        })
    }
}

impl Folding<'_> {
    /// Keeps a copy of a delta that cannot be folded, for its user to look at, and logs it.
    pub(crate) fn keep_aside(
        &mut self,
        session: SessionNumber,
        inode: InodeNumber,
        delta: &CopiedDelta,
        why: &Failure,
    ) {
        let fold = delta.branch.fold;
        let uid = self
            .sessions
            .all
            .get(&session)
            .map_or(u32::MAX, |session| session.credentials.uid);
        let head = Head {
            time: now(),
            session,
            uid,
            inode,
            generation: delta.header.generation,
            ownership_epoch: delta.header.ownership.epoch(),
            fold,
            branch_offset: delta.branch_offset,
            because: why.to_string(),
            pages: delta.pages.keys().copied().collect(),
        };
        let name = format!("{ASIDE}/{uid}-{session:08x}-{inode:08x}-{fold:016x}");
        let pool = self.sessions.state.pool.path().to_path_buf();
        let write = || -> std::io::Result<()> {
            let folder = pool.join(ASIDE);
            make_folder(&folder)?;
            let size = (BRANCH_SIZE + delta.pages.len() * (PAGE + 8)) as u64;
            make_space(&folder, &format!("{uid}-"), size)?;
            let mut bytes = serde_json::to_vec(&head)?;
            bytes.push(b'\n');
            bytes.extend_from_slice(&delta.branch_bytes);
            for page in delta.pages.values() {
                bytes.extend_from_slice(&page[..]);
            }
            // What a user did in directories that others may not search: nobody else's to read, in a pool whose
            // directory all may search.
            let mut file = OpenOptions::new();
            file.write(true).create(true).truncate(true).mode(0o600);
            file.open(pool.join(&name))?.write_all(&bytes)
        };
        let written = write();
        match &written {
            Ok(()) => tracing::warn!(
                "session {session}, inode {inode}: its changes were set aside in {}: {why}",
                pool.join(&name).display()
            ),
            Err(error) => {
                tracing::warn!(
                    "session {session}, inode {inode}: its changes are lost ({why}), and could \
                     not be set aside: {error}"
                );
                // Half of it is of no use.
                let _ = std::fs::remove_file(pool.join(&name));
            }
        }
        let event = Event::SetAside {
            session,
            inode,
            fold,
            file: written.is_ok().then_some(name),
            because: why.to_string(),
        };
        self.sessions.log_event(session, event);
    }
}

fn make_folder(folder: &Path) -> std::io::Result<()> {
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Removes the oldest files whose names begin so, until there is space for one more of `size`
/// bytes.
fn make_space(folder: &Path, prefix: &str, size: u64) -> std::io::Result<()> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(prefix) {
            let metadata = entry.metadata()?;
            files.push((metadata.modified()?, entry.path(), metadata.len()));
        }
    }
    files.sort();
    let mut bytes: u64 = size + files.iter().map(|(.., length)| length).sum::<u64>();
    let mut left = files.len() + 1;
    for (_, path, length) in files {
        if bytes <= BYTES_MAX && left <= FILES_MAX {
            break;
        }
        std::fs::remove_file(path)?;
        bytes -= length;
        left -= 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_of_the_same_user_go_first() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, length: u64, age: u64| {
            let file = std::fs::File::create(folder.path().join(name)).unwrap();
            file.set_len(length).unwrap();
            let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1000 - age);
            file.set_modified(time).unwrap();
        };
        put("7-a", 30 << 20, 3);
        put("7-b", 20 << 20, 2);
        put("7-c", 10 << 20, 1);
        put("77-d", 60 << 20, 9);
        let names = || {
            let entries = std::fs::read_dir(folder.path()).unwrap();
            let mut names: Vec<String> = entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        };
        make_space(folder.path(), "7-", 4 << 20).unwrap();
        assert_eq!(names().len(), 4);
        make_space(folder.path(), "7-", 5 << 20).unwrap();
        assert_eq!(names(), ["7-b", "7-c", "77-d"]);
        for number in 0..FILES_MAX {
            put(&format!("7-n{number:04}"), 0, 0);
        }
        make_space(folder.path(), "7-", 0).unwrap();
        assert_eq!(names().len(), FILES_MAX);
        assert_eq!(names()[0], "7-n0001");
        assert_eq!(names().last().unwrap(), "77-d");
    }

    #[test]
    fn a_file_that_is_cut_off_is_none() {
        let head = Head {
            time: 1,
            session: 2,
            uid: 3,
            inode: 4,
            generation: 5,
            ownership_epoch: 6,
            fold: 7,
            branch_offset: 8192,
            because: "I1".into(),
            pages: vec![9, 10],
        };
        let mut bytes = serde_json::to_vec(&head).unwrap();
        bytes.push(b'\n');
        bytes.extend_from_slice(&[0; BRANCH_SIZE]);
        bytes.extend_from_slice(&[1; 2 * PAGE]);
        let whole = SetAside::decode(&bytes).unwrap();
        assert_eq!((&whole.head, whole.branch), (&head, None));
        assert_eq!(whole.pages.len(), 2);
        for length in [0, 5, 100, bytes.len() - PAGE, bytes.len() - 1] {
            assert_eq!(SetAside::decode(&bytes[..length]), None, "{length}");
        }
    }
}
