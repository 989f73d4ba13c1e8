//! A change of the controller's own.

use crate::fold::Folding;
use crate::fold::folding::Failure;
use arck_core_state::InodeNumber;
use rustix::io::Errno;

impl Folding<'_> {
    /// A change of the controller's own, of inodes that nobody owns.
    pub fn change_alone(
        &mut self,
        what: impl FnOnce(
            &mut crate::state::change::Change<'_>,
            &mut Vec<InodeNumber>,
        ) -> Result<(), Errno>,
    ) -> Result<(), Failure> {
        let mut dying = Vec::new();
        let mut change = crate::state::change::Change::new(&mut self.sessions.state);
        what(&mut change, &mut dying)?;
        change.commit(crate::state::change::Weight::Fold)?;
        self.sessions.state.orphans.extend(dying.iter().copied());
        self.free_orphans(Some(&dying));
        Ok(())
    }
}
