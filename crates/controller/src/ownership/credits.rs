//! Making credits for folds, by folds where there is none: see [`crate::sessions::credits`].

use crate::fold::reply::Reply;
use crate::ownership::Owners;
use crate::sessions::credits::{CREDITS_STEP, PAGES_PER_DELTA_PAGE};
use arck_core_state::geometry::SessionNumber;
use arck_protocol::Response;
use rustix::io::Errno;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Where space is short, sessions of which something is refused are folded for so long altogether.
const REFUSED_TIME: Duration = Duration::from_millis(200);

impl Owners<'_> {
    /// Whether so many metadata pages (or the space for them) can be used without touching what
    /// is kept. Where they cannot, takes back credits that is not used, and then folds what sessions
    /// have in their deltas, which shows what that really takes.
    pub fn make_spare(&mut self, pages: u64) -> bool {
        if self.sessions.spare_pages() >= pages {
            return true;
        }
        self.sessions.lower_credits();
        if self.sessions.spare_pages() < pages {
            self.freeing().give_back_segments();
        }
        let with_credits = self.sessions.all.values().filter(|s| s.credits() != 0);
        let mut with_credits: Vec<SessionNumber> = with_credits.map(|s| s.number).collect();
        // Those of whom nothing is refused first: others can make a fold of theirs last.
        let refused: HashSet<SessionNumber> = self
            .folds
            .refusals
            .iter()
            .map(|&(_, owner, _)| owner)
            .collect();
        with_credits.sort_by_key(|session| refused.contains(session));
        let began = Instant::now();
        for session in with_credits {
            let is_too_long = refused.contains(&session) && began.elapsed() > REFUSED_TIME;
            if is_too_long || self.sessions.spare_pages() >= pages {
                break;
            }
            // What is refused is its owner's business.
            let _ = self.commit_all(session);
        }
        self.sessions.spare_pages() >= pages
    }

    /// See [`arck_protocol::Request::MoreCredits`].
    pub fn more_credits(&mut self, number: SessionNumber, pages: u32, pressing: bool) -> Reply {
        let pages = u64::from(pages).clamp(1, CREDITS_STEP);
        if self.sessions.raise_credits(number, pages) {
            return Reply::Now(Response::Done);
        }
        self.sessions.lower_credits();
        if self.sessions.raise_credits(number, pages) {
            return Reply::Now(Response::Done);
        }
        if pressing {
            self.make_spare(pages * PAGES_PER_DELTA_PAGE);
            if self.sessions.raise_credits(number, pages) {
                return Reply::Now(Response::Done);
            }
        }
        Errno::NOSPC.into()
    }
}
