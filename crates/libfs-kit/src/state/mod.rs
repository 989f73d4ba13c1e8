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

use crate::region::fingerprint;
use crate::region_shared;
use arena_pages::ArenaPages;
use data_pages::DataPages;
use numbers::Numbers;
use views::Views;

/// Of the sources of what stands in the region, here and in the structures that it is made of.
pub(crate) const FINGERPRINT: u32 = fingerprint::of(&[
    include_bytes!("arena_pages.rs"),
    include_bytes!("at_hand.rs"),
    include_bytes!("data_pages.rs"),
    include_bytes!("inodes.rs"),
    include_bytes!("kinds.rs"),
    include_bytes!("mod.rs"),
    include_bytes!("numbers.rs"),
    include_bytes!("overlay.rs"),
    include_bytes!("views.rs"),
    include_bytes!("../region/hash_table.rs"),
    include_bytes!("../region/layout.rs"),
    include_bytes!("../region/lock.rs"),
    include_bytes!("../region/offset.rs"),
    include_bytes!("../region/read_write_lock.rs"),
    include_bytes!("../region/structures.rs"),
]);

region_shared! {
    /// What the kit keeps in the auxiliary state; found by auxiliary root 0.
    pub struct State {
        pub views: Views,
        pub numbers: Numbers,
        pub data: DataPages,
        pub arena: ArenaPages,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    /// Each source with a structure of the region in it is one of those that the fingerprint is of.
    #[test]
    fn all_structures_are_in_the_fingerprint() {
        let here = include_str!("mod.rs");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut found = 0;
        for (room, prefix) in [("state", ""), ("region", "../region/")] {
            for entry in std::fs::read_dir(source.join(room)).expect("a room") {
                let path = entry.expect("an entry").path();
                let Ok(text) = std::fs::read_to_string(&path) else {
                    continue;
                };
                let name = path.file_name().expect("a name").to_string_lossy();
                if text.contains("region_shared! {") || text.contains("Shared for ") {
                    found += 1;
                    let line = format!("include_bytes!(\"{prefix}{name}\")");
                    assert!(here.contains(&line), "{line} is missing");
                }
            }
        }
        assert!(found >= 10, "only {found} with structures");
        let elsewhere = std::fs::read_dir(&source).expect("the sources");
        for path in elsewhere.map(|entry| entry.expect("an entry").path()) {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(!text.contains("region_shared! {"), "{}", path.display());
        }
    }
}
