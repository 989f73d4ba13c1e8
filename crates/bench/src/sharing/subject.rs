//! What two sessions share: a file or a directory, what it is called, and how it is made.

use super::session::Order;

/// What two sessions share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    File {
        bytes: u64,
        /// Pages one after the other, each session from a place of its own; else at random.
        in_order: bool,
    },
    Directory {
        names: u64,
    },
}

pub const PAGE: u64 = 4096;
pub const MIB: u64 = 1 << 20;

impl Subject {
    pub fn all(quick: bool) -> Vec<Subject> {
        let large = if quick { 64 * MIB } else { 1 << 30 };
        let mut all: Vec<Subject> = [2 * MIB, large]
            .into_iter()
            .flat_map(|bytes| [true, false].map(|in_order| Subject::File { bytes, in_order }))
            .collect();
        let sizes = [10, 100, 10_000, 1_000_000];
        let sizes = &sizes[..if quick { 3 } else { 4 }];
        all.extend(sizes.iter().map(|&names| Subject::Directory { names }));
        all
    }

    /// In tables.
    pub fn name(self) -> String {
        match self {
            Subject::File { bytes, in_order } => {
                let size = match bytes / MIB {
                    1024 => "1 GiB".to_owned(),
                    mebibytes => format!("{mebibytes} MiB"),
                };
                let order = if in_order { "in order" } else { "at random" };
                format!("write 4 KiB, file of {size}, {order}")
            }
            Subject::Directory { names } => {
                let mut digits = names.to_string();
                let length = digits.len();
                for place in (1..length).rev().filter(|place| (length - place) % 3 == 0) {
                    digits.insert(place, ',');
                }
                format!("create, directory of {digits} names")
            }
        }
    }

    /// What it is called in the pool; files are written in both orders. Directories that take long to
    /// make are there once: one session alone works in the shared one.
    pub fn path(self, owner: &str) -> String {
        let owner = match self {
            Subject::Directory { names: 100_000.. } => "shared",
            _ => owner,
        };
        match self {
            Subject::File { bytes, .. } => format!("file-{}-{owner}", bytes / MIB),
            Subject::Directory { names } => format!("directory-{names}-{owner}"),
        }
    }

    pub fn make(self, owner: &str) -> Order {
        let path = self.path(owner);
        match self {
            Subject::File { bytes, .. } => Order::File { path, bytes },
            Subject::Directory { names } => Order::Directory { path, names },
        }
    }
}
