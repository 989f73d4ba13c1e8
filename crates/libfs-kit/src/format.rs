//! What a LibFS needs of the core state's format, by name: the rest of it is the kit's business.
//!
//! What is not listed here is stored and read through [`delta`](crate::delta), [`views`](crate::views) and
//! [`names`](crate::names). Who finds something lacking adds it here, with its use in mind.

pub use arck_core_state::geometry::{FILE_SIZE_MAX, LINKS_MAX, NAME_MAX, PATH_MAX};
pub use arck_core_state::header::HeaderKind;
pub use arck_core_state::superblock::Durability;
pub use arck_core_state::{
    FileKind, IndexRoot, InodeNumber, Mediation, PAGE_SIZE, PagePtr, Pages, ROOT_INODE,
};

/// Verified directories, searched in place.
pub mod directory {
    pub use arck_core_state::directory::{Dentry, lookup};
}

/// From a page of a file to a page of the pool: verified indexes, walked in place.
pub mod index {
    pub use arck_core_state::index::{FANOUT, HOLE, capacity, height_for, lookup, next};
}

/// The page of an inode's extended attributes.
pub mod extended {
    pub use arck_core_state::extended::{NAME_MAX, NONE, PREFIX, Page, VALUE_MAX};
}

/// What a stored branch says ([`Branch::stored`](crate::delta::Branch::stored)).
pub mod branch {
    pub use arck_core_state::branch::{
        StoredBranch, UNCHANGED_MODE, UNCHANGED_SIZE, UNCHANGED_TIME,
    };
}
