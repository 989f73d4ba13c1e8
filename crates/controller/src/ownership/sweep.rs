//! Folding all that a session owns, in steps: because it asks for that, or because it ends.
//!
//! # Invariants
//! * A step folds one part, of at most [`Options::slice`](crate::Options) inodes and what must come
//!   along; others are served between two steps.
//! * Where a part is refused, parts of it are tried, down to single inodes. What refusals may take is
//!   bounded: [`WASTED_MAX`] for a sweep that is asked for, and for the ends of all sessions of a user
//!   together ([`Spent`](super::sweeps::Spent)).

use crate::fold::folding::{After, Failure};
use crate::fold::reply::Reply;
use crate::ownership::Owners;
use crate::ownership::sweeps::{Purpose, Sweep};
use arck_core_state::InodeNumber;
use arck_core_state::geometry::SessionNumber;
use arck_core_state::header::HeaderKind;
use arck_protocol::Response;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// So long are refusals dealt with when a session has asked for all to be folded, and of all sessions
/// of a user together that end. What is left then is not folded.
const WASTED_MAX: Duration = Duration::from_millis(500);
/// Into so many parts one is divided in which something is refused.
const PARTS: usize = 8;
/// Inodes that are looked at in one step for whether there is anything to fold of them.
const LOOKED_AT: usize = 8192;
/// A sweep that is asked for goes on so long before others are served.
const AT_ONCE: Duration = Duration::from_millis(2);
/// Who asks for a second sweep of a session asks again after so long.
const SWEEP_AGAIN: Duration = Duration::from_micros(500);

impl Owners<'_> {
    /// What a session owns now is to be folded. `None`: there is no such session.
    pub fn begin_sweep(&self, session: SessionNumber, purpose: Purpose) -> Option<Sweep> {
        let owned = &self.sessions.all.get(&session)?.owned;
        let mut sweep = Sweep {
            session,
            purpose,
            refused: Vec::new(),
            sound: Vec::with_capacity(owned.len()),
            next: 0,
            parts: Vec::new(),
            wasted: Duration::ZERO,
            first: None,
        };
        for (number, owned) in owned.iter() {
            match owned.refusal() {
                // They have not been repaired, most likely.
                Some(_) => sweep.refused.push(number),
                None => sweep.sound.push(number),
            }
        }
        // In order, so that a recovery is the same each time; the last of those is next.
        sweep.refused.sort_unstable_by(|a, b| b.cmp(a));
        sweep.sound.sort_unstable();
        Some(sweep)
    }

    /// The next part; `None`: nothing is left.
    fn next_part(&self, sweep: &mut Sweep) -> Option<Vec<InodeNumber>> {
        if let Some(part) = sweep.parts.pop() {
            return Some(part);
        }
        let owner = self.sessions.all.get(&sweep.session)?;
        // What was done before this was asked is visible, without a barrier: what has no branch
        // has nothing to fold.
        let is_worth_it = |number: InodeNumber| {
            let header = self.sessions.state.header_copy(number);
            header.is_some_and(|header| {
                (sweep.purpose == Purpose::Release && header.kind != HeaderKind::Granted)
                    || owner.has_branch(number, &header)
            })
        };
        let mut looked_at = 0;
        while let Some(number) = sweep.refused.pop() {
            if is_worth_it(number) {
                return Some(vec![number]);
            }
            looked_at += 1;
            if looked_at == LOOKED_AT {
                return Some(Vec::new());
            }
        }
        let mut part = Vec::new();
        let size = self.sessions.options.slice.max(1);
        while let Some(&number) = sweep.sound.get(sweep.next)
            && looked_at < LOOKED_AT
            && part.len() < size
        {
            sweep.next += 1;
            looked_at += 1;
            if is_worth_it(number) {
                part.push(number);
            }
        }
        (looked_at != 0).then_some(part)
    }

    /// Folds the next part; false if nothing is left.
    pub fn sweep_step(&mut self, sweep: &mut Sweep) -> bool {
        let Some(part) = self.next_part(sweep) else {
            return false;
        };
        if part.is_empty() {
            return true;
        }
        let (session, ends) = (sweep.session, sweep.purpose == Purpose::End);
        let user = self.sessions.all.get(&session).map(|s| s.credentials.uid);
        let after = match sweep.purpose {
            Purpose::Release => After::Release,
            Purpose::Commit | Purpose::End => After::Keep,
        };
        let began = Instant::now();
        let folded = self.access().fold(session, &part, after);
        if folded.is_ok() || part.len() == 1 {
            self.folds.progress.add(part.len() as u64);
        }
        let Err(failure) = folded else {
            return true;
        };
        // Each refusal may cost a copy of all that hangs together, so a session could make
        // thousands of them last for minutes; and a user many sessions.
        let spent = |owners: &Owners<'_>, sweep: &Sweep| match user {
            Some(user) if ends => owners.sweeps.spent.of(user),
            _ => sweep.wasted,
        };
        let is_spent = spent(self, sweep) > WASTED_MAX;
        if let &[number] = &part[..] {
            if ends && !is_spent {
                self.set_aside_at_end(session, number);
            }
        } else {
            let parts = part.chunks(part.len().div_ceil(PARTS)).rev();
            sweep.parts.extend(parts.map(<[InodeNumber]>::to_vec));
        }
        let took = began.elapsed();
        sweep.wasted += took;
        if let Some(user) = user.filter(|_| ends) {
            self.sweeps.spent.add(user, took);
        }
        if part.len() == 1 || is_spent {
            sweep.first.get_or_insert(failure);
        }
        spent(self, sweep) <= WASTED_MAX
    }

    /// Of a session that ends: what cannot be folded.
    fn set_aside_at_end(&mut self, session: SessionNumber, number: InodeNumber) {
        // It is released with all else.
        let folds = |owners: &mut Self| {
            let folded = owners.fold_or_take_away(session, number, After::Keep);
            folded.is_ok()
        };
        // What is sealed comes first, and there may be room for everything but that.
        if folds(self) || self.access().take_away_sealed(session, Errno::NOSPC) && folds(self) {
            return;
        }
        self.access()
            .take_away(session, number, &Failure::Errno(Errno::NOSPC));
    }

    /// Folds everything that a session owns, in one go. The first refusal is the answer; the rest is
    /// folded all the same.
    pub fn commit_all(&mut self, session: SessionNumber) -> Reply {
        let Some(mut sweep) = self.begin_sweep(session, Purpose::Commit) else {
            return Errno::NOENT.into();
        };
        while self.sweep_step(&mut sweep) {}
        sweep.answer()
    }

    /// The same for a request, which is served again until it is done.
    pub fn commit_all_in_steps(&mut self, session: SessionNumber, release: bool) -> Reply {
        let asked = self.sessions.state.serving.map_or(0, |(_, token)| token);
        let began = Instant::now();
        let mut sweep = match self.sweeps.under_way.remove(&session) {
            Some((of, sweep)) if of == asked => sweep,
            // One at a time, for what it takes of memory.
            Some(others) => {
                self.sweeps.under_way.insert(session, others);
                return Reply::Later(began + SWEEP_AGAIN);
            }
            None => {
                let purpose = match release {
                    true => Purpose::Release,
                    false => Purpose::Commit,
                };
                match self.begin_sweep(session, purpose) {
                    Some(sweep) => sweep,
                    None => return Errno::NOENT.into(),
                }
            }
        };
        while began.elapsed() < AT_ONCE {
            if !self.sweep_step(&mut sweep) {
                return sweep.answer();
            }
        }
        self.sweeps.under_way.insert(session, (asked, sweep));
        Reply::Later(Instant::now())
    }

    /// Whoever had asked for it may be gone; who has not asks once more.
    pub fn forget_sweep(&mut self, session: SessionNumber) {
        self.sweeps.under_way.remove(&session);
    }
}

impl Sweep {
    fn answer(self) -> Reply {
        match self.first {
            Some(failure) => failure.into(),
            None => Reply::Now(Response::Done),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ownership::Spent;

    #[test]
    fn what_ends_have_cost_is_forgotten_in_time() {
        let mut spent = Spent::default();
        spent.add(5, Duration::from_millis(400));
        spent.add(5, Duration::from_millis(200));
        assert!(spent.of(5) > WASTED_MAX);
        assert_eq!(spent.of(6), Duration::ZERO);
        let before = Instant::now().checked_sub(Duration::from_secs(4));
        spent.0.get_mut(&5).unwrap().1 = before.unwrap();
        assert!(spent.of(5) < Duration::from_millis(400));
        let before = Instant::now().checked_sub(Duration::from_secs(600));
        spent.0.get_mut(&5).unwrap().1 = before.unwrap();
        assert_eq!(spent.of(5), Duration::ZERO);
    }
}
