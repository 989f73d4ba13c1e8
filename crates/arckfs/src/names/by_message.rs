//! Names of mediated directories, which change by message: what of it an attempt does. What is sent is [`crate::engine`]'s.
//!
//! # Invariants
//! * Nothing is asked inside an operation or under a lock: an attempt ends with what is to be sent.
//! * What an attempt finds wrong with a change is told without a message. What it finds right the controller looks at once more.
//! * A directory that this session owns changes as any other.

use super::Context;
use arck_libfs_kit::format::InodeNumber;
use arck_libfs_kit::views::{Directory, flag};

/// A name that is to be changed by message.
pub struct Sent {
    /// Number and generation.
    pub directory: (InodeNumber, u32),
    pub name: Vec<u8>,
    /// What loses the name, or gets it: number and generation.
    pub victim: Option<(InodeNumber, u32)>,
}

/// What an attempt to change a name, or something else, came to.
pub enum Changed<T, S = Sent> {
    Here(T),
    ByMessage(S),
}

impl<T, S> Changed<T, S> {
    pub fn map<U>(self, what: impl FnOnce(T) -> U) -> Changed<U, S> {
        match self {
            Changed::Here(done) => Changed::Here(what(done)),
            Changed::ByMessage(sent) => Changed::ByMessage(sent),
        }
    }
}

impl Context<'_> {
    /// What is to be sent for a name of a directory to change; `None`: this session changes it by itself.
    #[inline(always)]
    pub fn by_message(&self, directory: Directory, name: &[u8]) -> Option<Sent> {
        self.goes_by_message(directory).then(|| Sent {
            directory: (directory.number(), directory.generation()),
            name: name.to_vec(),
            victim: None,
        })
    }

    /// Whether names of a directory change by message: it is mediated, and this session does not own it.
    #[inline(always)]
    pub fn goes_by_message(&self, directory: Directory) -> bool {
        directory.has(flag::MEDIATED) && !self.owns(&directory)
    }
}
