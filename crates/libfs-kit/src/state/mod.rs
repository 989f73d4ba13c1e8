//! What the kit keeps in the auxiliary state, as it stands in the region: what it is and how it begins. What is
//! done with it stands in the rooms above, of the same names.
//!
//! Invariant: nothing here knows of a session: it is there for whoever builds it anew, too.

pub mod arena_pages;
pub mod at_hand;
pub mod data_pages;
pub mod inodes;
pub mod kinds;
pub mod numbers;
pub mod overlay;
pub mod views;

use crate::region_shared;
use arena_pages::ArenaPages;
use data_pages::DataPages;
use numbers::Numbers;
use views::Views;

region_shared! {
    /// What the kit keeps in the auxiliary state; found by auxiliary root 0.
    pub struct State {
        pub views: Views,
        pub numbers: Numbers,
        pub data: DataPages,
        pub arena: ArenaPages,
    }
}
