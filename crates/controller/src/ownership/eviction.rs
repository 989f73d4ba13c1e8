//! Taking away what is not repaired in time, or cannot be folded for who wants it.

use crate::fold::folding::{After, Failure};
use crate::fold::refusals::{
    EVICTIONS_TIME, NO_SPACE_AGAIN, OTHERS_MAX, OTHERS_TIME, QUIESCE_ATTEMPTS,
};
use crate::ownership::Owners;
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use rustix::io::Errno;
use std::time::{Duration, Instant};

impl Owners<'_> {
    /// Takes away what was not repaired in time.
    pub fn evict_due(&mut self) {
        self.access().finish_due();
        let started = Instant::now();
        while started.elapsed() < EVICTIONS_TIME {
            let Some(&(due, owner, number)) = self.folds.refusals.first() else {
                return;
            };
            if due > Instant::now() {
                return;
            }
            self.folds.refusals.pop_first();
            let refusal = self
                .sessions
                .all
                .get_mut(&owner)
                .and_then(|session| session.owned.get_mut(number))
                .and_then(|owned| owned.rest_mut().refusal.as_mut())
                .filter(|refusal| refusal.due == due);
            let Some(refusal) = refusal else {
                continue;
            };
            let again = Instant::now() + NO_SPACE_AGAIN;
            refusal.due = again;
            // It may have been repaired without being committed again.
            if self.reclaim(owner, &[number]).is_err() {
                self.folds.refusals.insert((again, owner, number));
            }
        }
    }

    /// Folds an inode, or else takes it away. Where another inode's delta is why it cannot be
    /// folded, that one is taken away, and this one is tried again. ENOSPC: nothing is wrong with
    /// it but that.
    pub(crate) fn fold_or_take_away(
        &mut self,
        owner: SessionNumber,
        number: InodeNumber,
        after: After,
    ) -> Result<(), Errno> {
        let (mut attempts, mut others) = (0, 0);
        let began = Instant::now();
        loop {
            match self.access().fold(owner, &[number], after) {
                Ok(()) => return Ok(()),
                Err(Failure::Errno(Errno::NOSPC)) => return Err(Errno::NOSPC),
                Err(Failure::Quiescing(_)) if attempts < QUIESCE_ATTEMPTS => {
                    attempts += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(failure) => {
                    let guilty = match &failure {
                        Failure::Violation(violation) | Failure::Quiescing(violation) => {
                            violation.inode
                        }
                        Failure::Errno(_) => number,
                    };
                    let session = self.sessions.all.get(&owner);
                    if guilty != number
                        && others < OTHERS_MAX
                        && began.elapsed() < OTHERS_TIME
                        && session.is_some_and(|session| session.owned.contains(guilty))
                    {
                        others += 1;
                        self.access().take_away(owner, guilty, &failure);
                        continue;
                    }
                    self.access().take_away(owner, number, &failure);
                    return Ok(());
                }
            }
        }
    }
}
