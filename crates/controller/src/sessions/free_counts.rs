//! Telling sessions how many pages are free for them.

use crate::sessions::Sessions;
use std::sync::atomic::Ordering;

impl Sessions {
    /// Tells every session how much space is left for it, if that may have changed.
    pub fn publish_free_counts(&mut self, always: bool) {
        let space = &self.state.space;
        let inodes = self.state.numbers.count_free();
        let published = Some((space.granted().revision, inodes));
        if published == self.published && !always {
            return;
        }
        self.published = published;
        for session in self.all.values() {
            if let Some(live) = &session.live {
                let header = &live.control().header;
                let pages = space.pages_free_for(session.number);
                header.pages_free.store(pages, Ordering::Relaxed);
                header.inodes_free.store(inodes, Ordering::Relaxed);
            }
        }
    }
}
