//! How two processes write one file by turns.
//!
//! Invariant: each name says what `arck attr` is told for it.

use serde::{Deserialize, Serialize};

/// How it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum How {
    Owners,
    Messages,
    /// As the controller finds, from the first turn on.
    Auto,
    Tmpfs,
}

impl How {
    pub const ALL: [How; 4] = [How::Owners, How::Messages, How::Auto, How::Tmpfs];

    pub fn name(self) -> &'static str {
        match self {
            How::Owners => "by owners (`--mediated off`)",
            How::Messages => "by messages (`--mediated on`)",
            How::Auto => "as is found (`--mediated auto`)",
            How::Tmpfs => "tmpfs",
        }
    }
}
