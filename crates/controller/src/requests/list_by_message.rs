//! Listing by message: names of a directory that a session may read and cannot map; see
//! [`crate::sessions::rights`].
//!
//! # Invariants
//! * A message looks at a bounded number of buckets, however many are empty.
//! * Places in a bucket count its pages' units: a name keeps its place as long as its bucket is not
//!   split, and as long as no page before its own goes.

use crate::core::Core;
use crate::fold::folding::After;
use crate::fold::reply::Reply;
use arck_core_state::directory::{UNITS, for_each_in_bucket};
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr, cast};
use arck_protocol::Response;
use arck_protocol::message::listed::{Listed, ListedName};
use rustix::io::Errno;

/// Buckets that one message looks at.
const BUCKETS: u64 = 64;

impl Core {
    /// See [`arck_protocol::Request::List`].
    pub fn list(
        &mut self,
        session: SessionNumber,
        directory: (InodeNumber, u32),
        bucket: u64,
        skip: u32,
    ) -> Reply {
        let listed = self.try_list(session, directory, bucket, skip);
        match listed.and_then(|listed| listed.encode().map_err(|_| Errno::IO)) {
            Ok(bytes) => Reply::Now(Response::Bytes(bytes)),
            Err(errno) => errno.into(),
        }
    }

    fn try_list(
        &mut self,
        session: SessionNumber,
        (number, generation): (InodeNumber, u32),
        bucket: u64,
        skip: u32,
    ) -> Result<Listed, Errno> {
        let header = self.sessions.state.header_of(number, generation)?;
        self.sessions.may_be_told(session, number, 4)?;
        // As with a file that is read.
        let own = self.sessions.all.get(&session).ok_or(Errno::NOENT)?;
        if header.ownership.session() == session && own.has_branch(number, &header) {
            // Refused: the verified state is what there is.
            let _ = self.access().fold(session, &[number], After::Keep);
        }
        let inode = self.sessions.may_be_told(session, number, 4)?;
        if inode.kind() != Some(FileKind::Directory) {
            return Err(Errno::NOTDIR);
        }
        let header = self
            .sessions
            .state
            .header_copy(number)
            .ok_or(Errno::STALE)?;
        let buckets = inode.size / PAGE_SIZE;
        let mut listed = Listed {
            sequence: header.sequence,
            parent: inode.parent,
            buckets,
            next: None,
            names: Vec::new(),
        };
        let end = buckets.min(bucket.saturating_add(BUCKETS));
        for place in bucket..end {
            let first = if place == bucket { skip } else { 0 };
            let mut full = None;
            let (mut pages, mut last) = (0, PagePtr::NULL);
            let each = |dentry: arck_core_state::directory::Dentry,
                        _: u32,
                        name: &arck_core_state::directory::Name,
                        page: PagePtr,
                        unit: usize| {
                if page != last {
                    (pages, last) = (pages + 1, page);
                }
                let at = cast::count((pages - 1) * UNITS + unit);
                if at < first || full.is_some() {
                    return;
                }
                let name = ListedName {
                    inode: dentry.inode,
                    kind: dentry.kind as u8,
                    name: name.as_bytes().to_vec(),
                };
                if !listed.push(name) {
                    full = Some((place, at));
                }
            };
            for_each_in_bucket(&self.sessions.state, inode.root, place, each)
                .map_err(|_| Errno::IO)?;
            if full.is_some() {
                listed.next = full;
                return Ok(listed);
            }
        }
        listed.next = (end < buckets).then_some((end, 0));
        Ok(listed)
    }
}
