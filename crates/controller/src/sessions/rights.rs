//! Reading by message: what a session may read and cannot map.
//!
//! Two kinds of files are read so. One was open when the right to read it went away: the one who has
//! it open reads on, as POSIX has it, and what is in it has moved to where he cannot follow. The
//! other has no class that the session could be in (there are too many, or no room for it).
//!
//! # Invariants
//! * A right that a session keeps ([`KeptRights`]) is one that its user had when it went away, of an
//!   inode that the session listed as open then, or one that he was handed on with a descriptor
//!   ([`crate::handed::descriptions`]); it ends when no session of that user lists the inode any more. One that is
//!   away may list what it likes. No user has more of them than half of what others leave.
//! * What was *shown* to a session is an inode to which it has asked the way, by a directory that it
//!   could search; until the way is closed.
//! * No data is mapped for longer than one answer takes, and it is copied guarded: the session that
//!   wrote it may cut its file off.

use crate::pool::files::Pool;
use crate::sessions::kept::KeptRights;
use crate::state::classes::Class;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::{FileKind, Inode, InodeNumber};
use arck_verifier::Credentials;
use foldhash::HashMap;
use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

/// Inodes shown to sessions; when there are more, all have to ask the way again.
pub const SHOWN_MAX: usize = 4096;

/// How long a right that was claimed stays before the session that has claimed it lists the inode.
const CLAIMED: Duration = Duration::from_secs(10);

/// Inode, generation and user.
pub type Claim = (InodeNumber, u32, u32);

/// Rights that were claimed a moment ago, with descriptors that were handed on: as many as one user may keep,
/// so none is looked for among the others.
#[derive(Default)]
pub struct Claims {
    since: HashMap<Claim, Instant>,
    /// The oldest first. What was claimed anew stands here again.
    order: VecDeque<(Instant, Claim)>,
}

impl Claims {
    pub fn note(&mut self, claim: Claim, now: Instant) {
        let is_over = |since: Instant| now.saturating_duration_since(since) >= CLAIMED;
        while let Some((since, oldest)) = self.order.pop_front_if(|(since, _)| is_over(*since)) {
            if self.since.get(&oldest) == Some(&since) {
                self.since.remove(&oldest);
            }
        }
        // It stands in the order twice at most.
        let since = self.since.entry(claim).or_insert(now);
        if *since == now || now.saturating_duration_since(*since) > CLAIMED / 2 {
            *since = now;
            self.order.push_back((now, claim));
        }
    }

    pub fn has(&self, claim: Claim) -> bool {
        let since = self.since.get(&claim);
        since.is_some_and(|since| since.elapsed() < CLAIMED)
    }
}

/// What is served by message, to whom.
#[derive(Default)]
pub struct Rights {
    pub kept: KeptRights,
    pub claimed: Claims,
    pub leaving: Vec<Leaving>,
    pub shown: HashMap<InodeNumber, Vec<SessionNumber>>,
}

impl Rights {
    /// With the rights that were kept before, if that `counts`.
    pub fn open(pool: &Pool, counts: bool) -> Rights {
        Rights {
            kept: KeptRights::open(pool, counts),
            ..Rights::default()
        }
    }

    /// Whether any right is kept, which is to be forgotten some time.
    pub fn keeps_any(&self) -> bool {
        !self.kept.is_empty()
    }

    pub fn forget_session(&mut self, session: SessionNumber) {
        self.shown.retain(|_, sessions| {
            sessions.retain(|&other| other != session);
            !sessions.is_empty()
        });
    }
}

/// An inode that is closed in the step under way.
pub struct Leaving {
    /// Before and after its own rights changed, if they did.
    pub old: Inode,
    pub inode: Inode,
    /// Class of the place that it had, and of the one that it is to have.
    pub from: Option<Class>,
    pub place: Option<Class>,
    /// It has no name; and who can get at it, if that is known.
    pub orphan: bool,
    pub users: Option<BTreeSet<u32>>,
    /// Sessions to which it had been shown.
    pub shown: Vec<SessionNumber>,
}

impl Leaving {
    pub fn could_reach(&self, session: SessionNumber, who: &Credentials) -> bool {
        let by_place = || self.from.as_ref().is_some_and(|from| from.admits(who));
        match &self.users {
            Some(users) => users.contains(&who.uid),
            None => by_place() || !self.orphan && self.shown.contains(&session),
        }
    }

    pub fn can_reach(&self, session: SessionNumber, who: &Credentials) -> bool {
        match self.orphan {
            true => self.could_reach(session, who),
            false => self.place.as_ref().is_some_and(|place| place.admits(who)),
        }
    }
}

/// Which of reading (4) and writing (2) an inode's mode lets a user do.
pub fn bits(who: &Credentials, inode: &Inode) -> u32 {
    let reads = inode.kind() == Some(FileKind::Link) || who.may(inode, 4);
    (u32::from(reads) * 4) | (u32::from(who.may(inode, 2)) * 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Core;
    use crate::testing::TestCore;

    /// Who claimed ten thousand descriptors, and used none, had each further claim look at all of them, and
    /// once a second all of them at each other: everybody waited for seconds.
    #[test]
    fn claims_are_not_looked_for_among_each_other() {
        const CLAIMS: u32 = 30_000;
        let mut test = TestCore::new();
        for user in 0..64 {
            test.session(1000 + user, &[1000 + user]);
        }
        let core = &mut test.core;
        let seconds = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_sec;
        let began = seconds();
        for number in 0..CLAIMS {
            core.sessions.keep_claimed((number, 1), 1001, 4).unwrap();
        }
        core.sessions.forget_kept();
        let took = seconds() - began;
        assert!(took < 5, "{took} seconds of work");
        let kept = |core: &Core, number| core.sessions.rights.kept.rights(number, 1, 1001);
        assert!((0..CLAIMS).all(|number| kept(core, number) == 5));
        // Nobody lists them, and nobody has claimed them since.
        core.sessions.rights.claimed = Claims::default();
        core.sessions.forget_kept();
        assert!(!core.sessions.rights.keeps_any());
    }

    #[test]
    fn a_claim_counts_for_a_while_from_when_it_was_made_last() {
        let mut claims = Claims::default();
        let now = Instant::now();
        let at = |seconds| now.checked_sub(Duration::from_secs(seconds)).unwrap();
        let (one, other) = ((1, 1, 1001), (1, 1, 1002));
        claims.note(one, at(14));
        claims.note(other, at(12));
        for seconds in [13, 8, 7, 6] {
            claims.note(one, at(seconds));
        }
        assert!(claims.has(one) && !claims.has(other));
        claims.note((2, 1, 1001), now);
        assert!(!claims.since.contains_key(&other));
        assert_eq!((claims.since.len(), claims.order.len()), (2, 2));
    }
}
