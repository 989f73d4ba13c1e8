//! What a change notes for who watches: see [`crate::state::watching`].
//!
//! # Invariant
//! * Nothing is noted where nothing is watched.

use crate::state::change::Change;
use crate::state::watching::Became;
use arck_core_state::InodeNumber;
use arck_core_state::directory::Dentry;
use arck_verifier::Changes;

impl Change<'_> {
    /// Notes what a fold is about to do, where anything is watched.
    pub fn note_fold(&mut self, changes: &Changes<'_>) {
        if !self.state.watching.is_any() {
            return;
        }
        for change in &changes.inodes {
            let number = change.inode;
            for name in &change.names_removed {
                self.noted.removes(number, &name.name, name.dentry);
            }
            for name in &change.names_added {
                self.noted.adds(number, &name.name, name.dentry);
            }
            let has_names = !(change.names_removed.is_empty() && change.names_added.is_empty());
            let has_pages =
                !change.pages.is_empty() || change.size.is_some() || change.limit.is_some();
            let (modified, accessed) = (change.modified.is_some(), change.accessed.is_some());
            let is_stamped = modified && !accessed && !has_names;
            let is_set = modified && accessed;
            let changed_alone = change.changed.is_some() && !modified && !accessed && !has_names;
            let became = Became {
                // As the kernel tells it: who sets the time of modification alone has modified it.
                has_other_data: has_pages || is_stamped,
                has_other_attributes: is_set
                    || change.mode.is_some()
                    || change.attributes.is_some()
                    || (changed_alone && !has_pages),
                ..Became::default()
            };
            self.noted.said.insert(number, became);
        }
    }

    /// Notes that attributes of an inode are other ones.
    pub fn note_attributes(&mut self, number: InodeNumber) {
        if self.state.watching.is_any() {
            let became = self.noted.said.entry(number).or_default();
            became.has_other_attributes = true;
        }
    }

    /// Notes that a name of a directory leads to something else, or to nothing, from now on.
    pub fn note_name(
        &mut self,
        (directory, name): (InodeNumber, &[u8]),
        old: Option<Dentry>,
        new: Option<Dentry>,
    ) {
        if !self.state.watching.is_any() {
            return;
        }
        if let Some(old) = old {
            self.noted.removes(directory, name, old);
        }
        if let Some(new) = new {
            self.noted.adds(directory, name, new);
        }
    }
}
