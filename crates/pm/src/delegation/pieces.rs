//! An access in pieces: cut where a node ends, and put together where they are neighbours, which is one access to the medium.
//!
//! Invariant: the pieces that come out are those that went in, in order, with nothing between.

use super::ring::Piece;
use crate::medium;

/// An access to the medium's memory at `shared`, cut at the ends of nodes and to `most` bytes; each piece with its node.
pub(super) fn cut(
    whole: Piece,
    shared: *mut u8,
    most: usize,
) -> impl Iterator<Item = (u32, Piece)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == whole.length {
            return None;
        }
        let (node, reach) = medium::stretch(shared.wrapping_add(done));
        let length = (whole.length - done).min(reach).min(most);
        let piece = Piece {
            way: whole.way,
            to: whole.to.wrapping_add(done),
            from: whole.from.wrapping_add(done),
            length,
        };
        done += length;
        Some((node, piece))
    })
}

/// What has been put together so far, of one node.
#[derive(Default)]
pub(super) struct Joined(Option<(u32, Piece)>);

impl Joined {
    /// Puts a piece behind the others; gives what is to be done now, since it is no neighbour, or they would be more than `most` bytes.
    pub(super) fn put(&mut self, node: u32, piece: Piece, most: usize) -> Option<(u32, Piece)> {
        if let Some((open_node, open)) = &mut self.0 {
            let whole = open.length + piece.length;
            if *open_node == node && whole <= most && open.leads_to(&piece) {
                open.length = whole;
                return None;
            }
        }
        self.0.replace((node, piece))
    }

    /// The last of it.
    pub(super) fn take(&mut self) -> Option<(u32, Piece)> {
        self.0.take()
    }
}
