//! The ways by which large accesses are done, beside each other.
//!
//! # Invariants
//! * Rounds of all ways take turns.
//! * After a round nothing is delegated, and nobody waits for his turn.

use super::rate::Done;
use crate::measure::median;
use crate::outcome::Outcome;
use arck_libfs_kit::memory::delegation;
use arck_libfs_kit::memory::medium::Delegated;
use arckfs::FileSystem;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum How {
    /// By all that ask.
    Alone,
    /// By threads of the process.
    Delegated,
    /// By who asks, so many of all processes at once.
    AtOnce,
}

pub const ALL: [How; 3] = [How::Alone, How::Delegated, How::AtOnce];

impl How {
    /// Does something that way.
    pub fn within<T>(
        self,
        files: &FileSystem,
        nodes: u32,
        few: &Delegated,
        work: impl FnOnce() -> Outcome<T>,
    ) -> Outcome<T> {
        match self {
            How::Alone => {}
            How::Delegated => {
                delegation::start(nodes, few).map_err(|error| format!("delegates: {error}"))?;
            }
            How::AtOnce => {
                let gates = files.session().gates();
                let gates = gates.map_err(|errno| format!("gates: {errno}"))?;
                delegation::at_once(gates, few).map_err(|error| format!("gates: {error}"))?;
            }
        }
        let done = work();
        delegation::stop();
        done
    }
}

/// What is done by each way: GB/s, medians of the rounds; and the longest access in milliseconds, of all rounds.
#[derive(Clone, Copy, Serialize)]
pub struct Ways {
    pub alone: f64,
    pub delegated: f64,
    pub at_once: f64,
    pub longest: [f64; ALL.len()],
}

/// Columns of [`Ways::beside`].
pub const COLUMNS: &str = "the medium at best | by themselves | of that | delegated | of that | so many at once | of that | longest, ms | delegated | at once |";
/// And what stands beneath their names.
pub const RULES: &str = "---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |";

impl Ways {
    /// So many rounds of each.
    pub fn measure(rounds: usize, mut round: impl FnMut(How) -> Outcome<Done>) -> Outcome<Ways> {
        let mut all = [const { Vec::new() }; ALL.len()];
        for _ in 0..rounds {
            for (how, done) in ALL.into_iter().zip(&mut all) {
                done.push(round(how)?);
            }
        }
        let rate = |done: &Vec<Done>| median(done.iter().map(|done| done.rate));
        let longest = |done: &Vec<Done>| {
            done.iter()
                .fold(0.0, |most: f64, done| most.max(done.longest))
        };
        let [alone, delegated, at_once] = all.each_ref().map(rate);
        Ok(Ways {
            alone,
            delegated,
            at_once,
            longest: all.each_ref().map(longest),
        })
    }

    /// The columns, beside what the medium does at best.
    pub fn beside(&self, peak: f64) -> String {
        let of = |rate: f64| format!("{rate:.2} | {:.0} %", 100.0 * rate / peak);
        let [alone, delegated, at_once] = self.longest;
        format!(
            "{peak:.2} | {} | {} | {} | {alone:.1} | {delegated:.1} | {at_once:.1} |",
            of(self.alone),
            of(self.delegated),
            of(self.at_once)
        )
    }
}
