//! What is left to be told of a change: see [`telling`](super::telling).

use super::moves::{Step, steps};
use crate::state::watching::{Became, Happened, Named};
use arck_core_state::InodeNumber;
use foldhash::HashMap;

/// What is left to be told of a change.
#[derive(Debug)]
pub struct Telling {
    pub number: u64,
    pub became: HashMap<InodeNumber, Became>,
    pub steps: std::vec::IntoIter<Step<Named>>,
    pub inodes: std::vec::IntoIter<(InodeNumber, Became)>,
    pub moved: Vec<(InodeNumber, InodeNumber)>,
}

impl Telling {
    pub fn new(happened: Happened) -> Telling {
        let steps: Vec<Step<Named>> = steps(&happened).into_iter().map(Step::owned).collect();
        Telling {
            number: happened.number,
            became: happened.inodes.iter().copied().collect(),
            steps: steps.into_iter(),
            inodes: happened.inodes.into_iter(),
            moved: Vec::new(),
        }
    }
}
