//! Segments for what users will make, as far as what is kept for folds allows it.

use crate::freeing::Freeing;
use crate::state::change::{Change, Weight};
use crate::state::classes::{Class, NOBODY};
use arck_controller_state::segments::SegmentKind;
use arck_verifier::Credentials;

impl Freeing<'_> {
    /// What is to stay free for folds, for who allocates pages of a class.
    pub fn note_kept(&mut self) {
        if !self.sessions.state.space.shared {
            return;
        }
        self.sessions.state.space.kept = self.sessions.kept_pages();
        if !self.sessions.state.space.has_segment_for_class() {
            // Room that sessions do not use keeps no class from having a segment.
            self.sessions.lower_credits();
            self.sessions.state.space.kept = self.sessions.kept_pages();
        }
        if !self.sessions.state.space.has_segment_for_class() {
            self.give_back_segments();
        }
    }

    /// Space for what a user will make, while there is plenty: where the pool fills, what folds
    /// promise keeps classes from getting segments.
    pub fn prepare_classes(&mut self, who: &Credentials) {
        if !self.sessions.state.space.shared || self.sessions.state.is_privileged(who) {
            return;
        }
        for class in [Class::world(), Class::only(who.uid)] {
            self.note_kept();
            let label = self.sessions.state.label(Some(&class));
            if label == NOBODY || !self.sessions.state.space.lacks(label) {
                continue;
            }
            let mut change = Change::new(&mut self.sessions.state);
            let added = change.add_segment_of(SegmentKind::Metadata, label);
            if let Err(errno) = added.and_then(|()| change.commit(Weight::Fold)) {
                tracing::warn!("no segment for what user {} makes: {errno}", who.uid);
            }
        }
    }
}
