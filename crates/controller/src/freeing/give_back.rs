//! Segments that nobody needs any more become free again, for whoever does need one.
//!
//! # Invariants
//! * What becomes free has nothing in it, no session has it, and nobody can write it.
//! * Where there are several users, it was sent to no session that is there. Whoever gets it gets another file
//!   ([`arck_controller_state::segments::STALE`]): mappings that were kept show nothing new.
//! * Where there is one user, its file stays, and is emptied for whoever gets it
//!   ([`arck_controller_state::segments::UNSHARED`]): sessions may look at it, and see there what comes.
//! * It is done when space is short, and never while a change is prepared.

use crate::freeing::Freeing;
use crate::state::change::{Change, Weight};
use crate::state::classes::Class;
use arck_controller_state::segments::{STALE, SegmentEntry, SegmentKind, UNSHARED};
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Whether files can still be written changes without a word: it is asked again after so long.
const AGAIN: Duration = Duration::from_millis(100);

impl Freeing<'_> {
    /// Frees segments that nobody needs. Of the classes of everybody, and of each user who has a
    /// session, one segment for metadata stays.
    pub(crate) fn give_back_segments(&mut self) {
        // Who finds no room has what was deleted before.
        self.free_doomed();
        let is_due = self.sessions.state.space.may_have_unused
            || self
                .freed
                .gave_back
                .is_none_or(|last| last.elapsed() > AGAIN);
        // While a pool is opened, what a crash left in unused pages has not been looked at yet.
        if self.sessions.recovering || !is_due {
            return;
        }
        self.freed.gave_back = Some(Instant::now());
        let users: HashSet<u32> = self
            .sessions
            .all
            .values()
            .map(|s| s.credentials.uid)
            .collect();
        let classes = users.into_iter().map(Class::only).chain([Class::world()]);
        let kept: HashSet<u32> = classes
            .filter_map(|class| self.sessions.state.classes.number(&class))
            .collect();
        let unused = self
            .sessions
            .state
            .space
            .find_unused(&self.sessions.state.pool, &kept);
        if unused.is_empty() {
            return;
        }
        let flags = match self.sessions.state.space.shared {
            true => STALE,
            false => STALE | UNSHARED,
        };
        let free = SegmentEntry {
            kind: SegmentKind::Free as u32,
            flags,
            ..SegmentEntry::default()
        };
        let mut change = Change::new(&mut self.sessions.state);
        for &segment in &unused {
            change.set_segment(segment, free);
        }
        match change.commit(Weight::Fold) {
            Ok(()) => {
                for segment in unused {
                    self.sessions.state.pool.unmap_metadata(segment);
                }
            }
            Err(errno) => tracing::warn!("segments that nobody needs stay taken: {errno}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::files::numbered;
    use crate::state::classes::NOBODY;
    use crate::testing::TestCore;
    use arck_core_state::{PagePtr, Pages, SegmentNumber, layout};
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::sync::atomic::Ordering;

    impl TestCore {
        /// A metadata page for a user's class; what is written into it is seen in the file.
        fn page_of(&mut self, uid: u32) -> PagePtr {
            self.core.freeing().note_kept();
            let state = &mut self.core.sessions.state;
            let label = state.label(Some(&Class::only(uid)));
            let mut change = Change::new(state);
            change.allocate_for_class(label);
            let page = change.new_page().unwrap();
            change.set_word(page, 5, u64::from(uid)).unwrap();
            change.commit(Weight::Fold).unwrap();
            let words = self.core.sessions.state.pool.page(page).unwrap();
            assert_eq!(words[5].load(Ordering::Relaxed), u64::from(uid));
            page
        }

        fn free(&mut self, page: PagePtr) {
            let mut change = Change::new(&mut self.core.sessions.state);
            change.free_page(page);
            change.commit(Weight::Fold).unwrap();
        }

        fn segment_of(&self, page: PagePtr) -> SegmentNumber {
            self.core.sessions.state.pool.geometry().segment_of(page)
        }

        fn file_of(&self, page: PagePtr) -> File {
            let name = numbered(layout::SEGMENTS, self.segment_of(page));
            File::open(self.path().join(name)).unwrap()
        }

        fn word_in(&self, file: &File, page: PagePtr) -> u64 {
            let size = self.core.sessions.state.pool.geometry().segment_size;
            let mut word = [0; 8];
            let at = page.address() % size + 40;
            file.read_exact_at(&mut word, at).unwrap();
            u64::from_le_bytes(word)
        }
    }

    /// Segments go from the class of one user to that of another, many more of them than there are
    /// segments, and each sees what is his alone.
    #[test]
    fn classes_that_nothing_uses_leave_their_segments() {
        let mut test = TestCore::new();
        let mut old: Vec<(File, PagePtr, u32)> = Vec::new();
        for uid in 1001..1100 {
            let page = test.page_of(uid);
            let label = test.core.sessions.state.space.label_of(page);
            assert_ne!(label, NOBODY, "user {uid}");
            assert_eq!(
                test.core.sessions.state.classes.get(label),
                Some(&Class::only(uid)),
                "user {uid}"
            );
            let file = test.file_of(page);
            assert_eq!(test.word_in(&file, page), u64::from(uid));
            for (kept, at, of) in &old {
                assert_eq!(test.word_in(kept, *at), u64::from(*of));
            }
            old.push((file, page, uid));
            test.free(page);
        }
        let files = old.iter().map(|(file, ..)| file.metadata().unwrap().ino());
        assert_eq!(files.collect::<HashSet<_>>().len(), old.len());
    }

    /// The file that a free segment has stays where none but the pool's user was sent it, whoever comes; else it is
    /// another one.
    #[test]
    fn a_file_stays_that_only_the_pools_user_was_sent() {
        let mut test = TestCore::new();
        for (flags, stays) in [(STALE | UNSHARED, true), (STALE, false)] {
            let page = test.page_of(1001);
            let segment = test.segment_of(page);
            let before = test.file_of(page);
            test.free(page);
            let free = SegmentEntry {
                flags,
                ..SegmentEntry::default()
            };
            let mut change = Change::new(&mut test.core.sessions.state);
            change.set_segment(segment, free);
            change.commit(Weight::Fold).unwrap();
            test.core.sessions.state.pool.unmap_metadata(segment);
            let other = test.page_of(1002);
            assert_eq!(test.segment_of(other), segment);
            let inode = |file: File| file.metadata().unwrap().ino();
            let is_same = inode(test.file_of(other)) == inode(before.try_clone().unwrap());
            assert_eq!(is_same, stays, "flags {flags}");
            let seen = if stays { 1002 } else { 1001 };
            assert_eq!(test.word_in(&before, page), seen, "flags {flags}");
            test.free(other);
            test.core.freeing().give_back_segments();
        }
    }

    /// Whoever has been sent a segment would look at the old file: it stays for as long as he does.
    #[test]
    fn what_a_session_was_sent_stays_its_classs() {
        let mut test = TestCore::new();
        let ann = test.session(1001, &[1001]);
        let page = test.page_of(1001);
        let segment = test.segment_of(page);
        test.core
            .sessions
            .map_segments(ann, &[segment], true)
            .unwrap();
        test.free(page);
        // Others take all that they get; each has half of what is left.
        let others: Vec<_> = (1002..1020).map(|uid| test.session(uid, &[uid])).collect();
        let fill = |test: &mut TestCore| {
            for &other in &others {
                while test.core.grant_segment(other, false).is_ok() {}
            }
        };
        fill(&mut test);
        test.core.freeing().give_back_segments();
        let label = |test: &TestCore| {
            let label = test.core.sessions.state.space.label(segment);
            test.core.sessions.state.classes.get(label).cloned()
        };
        assert_eq!(label(&test), Some(Class::only(1001)));
        assert!(
            test.core
                .sessions
                .map_segments(others[0], &[segment], true)
                .is_err()
        );
        test.core.owners().end_session(ann, libc::ESHUTDOWN);
        fill(&mut test);
        let now = label(&test).unwrap();
        assert!((1002..1020).any(|uid| now == Class::only(uid)), "{now:?}");
    }
}
