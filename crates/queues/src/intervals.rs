//! Which outstanding requests overlap a range: an interval tree (CrossFS, section 3: "per-inode interval tree").
//!
//! It is a treap by the beginning of the ranges, in which each node knows the furthest end beneath it. std has no ordered map
//! that keeps such a maximum, and a map by the beginning alone would have to look at all that begin before the range ends. Priorities
//! are a hash of the request's number, so that its shape is the same in each run.
//!
//! # Invariants
//! * In order of (begin, request); no node's priority is above its parent's: the expected depth is logarithmic.
//! * `furthest` is the greatest end of a node and all beneath it. A look goes beneath a node only if that lies behind the range's
//!   begin; so it sees what it reports, the nodes above that, and one path beside.

use crate::request::RequestId;
use std::cmp::Ordering;
use std::ops::Range;

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Node {
    begin: u64,
    end: u64,
    furthest: u64,
    request: RequestId,
    priority: u32,
    left: u32,
    right: u32,
}

/// Ranges of bytes, none of them empty, each of a request.
pub struct Intervals {
    nodes: Vec<Node>,
    free: Vec<u32>,
    root: u32,
}

impl Default for Intervals {
    fn default() -> Intervals {
        Intervals {
            nodes: Vec::new(),
            free: Vec::new(),
            root: NONE,
        }
    }
}

/// Splitmix64: requests come in ascending order, priorities must not.
fn scattered(number: u64) -> u32 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as u32
}

impl Intervals {
    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self.nodes[at as usize]
    }

    fn key(&self, at: u32) -> (u64, RequestId) {
        let node = self.node(at);
        (node.begin, node.request)
    }

    fn furthest(&self, at: u32) -> u64 {
        match at {
            NONE => 0,
            at => self.node(at).furthest,
        }
    }

    fn update(&mut self, at: u32) {
        let node = *self.node(at);
        let beneath = self.furthest(node.left).max(self.furthest(node.right));
        self.node_mut(at).furthest = node.end.max(beneath);
    }

    /// Those before a key, and the others.
    fn split(&mut self, at: u32, key: (u64, RequestId)) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        if self.key(at) < key {
            let (before, behind) = self.split(self.node(at).right, key);
            self.node_mut(at).right = before;
            self.update(at);
            (at, behind)
        } else {
            let (before, behind) = self.split(self.node(at).left, key);
            self.node_mut(at).left = behind;
            self.update(at);
            (before, at)
        }
    }

    /// Both together, of which all of the first come before the second.
    fn merge(&mut self, first: u32, second: u32) -> u32 {
        if first == NONE {
            return second;
        }
        if second == NONE {
            return first;
        }
        if self.node(first).priority >= self.node(second).priority {
            let right = self.merge(self.node(first).right, second);
            self.node_mut(first).right = right;
            self.update(first);
            first
        } else {
            let left = self.merge(first, self.node(second).left);
            self.node_mut(second).left = left;
            self.update(second);
            second
        }
    }

    /// Adds the range of a request that is not in it.
    pub fn insert(&mut self, range: Range<u64>, request: RequestId) {
        debug_assert!(!range.is_empty());
        let key = (range.start, request);
        let priority = scattered(request.0);
        // Down to where its priority belongs. Only what is beneath that is split, which is two nodes in the mean.
        let (mut above, mut beneath) = (NONE, self.root);
        while beneath != NONE && self.node(beneath).priority >= priority {
            above = beneath;
            let is_before = self.key(beneath) < key;
            let node = self.node_mut(beneath);
            node.furthest = node.furthest.max(range.end);
            beneath = if is_before { node.right } else { node.left };
        }
        let (left, right) = self.split(beneath, key);
        let node = Node {
            begin: range.start,
            end: range.end,
            furthest: range.end,
            request,
            priority,
            left,
            right,
        };
        let at = match self.free.pop() {
            Some(at) => {
                *self.node_mut(at) = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.update(at);
        match above {
            NONE => self.root = at,
            above if self.key(above) < key => self.node_mut(above).right = at,
            above => self.node_mut(above).left = at,
        }
    }

    /// Takes the range of a request away, if it is there.
    pub fn remove(&mut self, begin: u64, request: RequestId) {
        self.root = self.without(self.root, (begin, request));
    }

    fn without(&mut self, at: u32, key: (u64, RequestId)) -> u32 {
        if at == NONE {
            return NONE;
        }
        let Node { left, right, .. } = *self.node(at);
        match self.key(at).cmp(&key) {
            Ordering::Equal => {
                self.free.push(at);
                return self.merge(left, right);
            }
            Ordering::Less => self.node_mut(at).right = self.without(right, key),
            Ordering::Greater => self.node_mut(at).left = self.without(left, key),
        }
        self.update(at);
        at
    }

    /// Adds the requests whose ranges overlap this one to `found`, in the order of their ranges.
    pub fn overlapping(&self, range: &Range<u64>, found: &mut Vec<RequestId>) {
        if !range.is_empty() {
            self.look(self.root, range, found);
        }
    }

    fn look(&self, at: u32, range: &Range<u64>, found: &mut Vec<RequestId>) {
        if self.furthest(at) <= range.start {
            return;
        }
        let node = self.node(at);
        self.look(node.left, range, found);
        if node.begin < range.end {
            if range.start < node.end {
                found.push(node.request);
            }
            self.look(node.right, range, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Intervals {
        fn depth(&self, at: u32) -> usize {
            match at {
                NONE => 0,
                at => {
                    let node = self.node(at);
                    1 + self.depth(node.left).max(self.depth(node.right))
                }
            }
        }
    }

    /// Beside a list of all, with ranges that come and go.
    #[test]
    fn finds_what_a_list_finds() {
        for seed in 1..=20 {
            let mut random = crate::tests::Random::new(seed);
            let mut tree = Intervals::default();
            let mut list: Vec<(Range<u64>, RequestId)> = Vec::new();
            let mut looked_at = 0;
            for number in 1..=2000 {
                let begin = random.below(1000);
                let range = begin..begin + 1 + random.below(60);
                if random.below(3) < 2 {
                    tree.insert(range.clone(), RequestId(number));
                    list.push((range, RequestId(number)));
                } else if !list.is_empty() {
                    let at = random.below(list.len() as u64) as usize;
                    let (range, request) = list.swap_remove(at);
                    tree.remove(range.start, request);
                    // What is not there is none.
                    tree.remove(range.start, request);
                }
                let begin = random.below(1000);
                let range = begin..begin + 1 + random.below(100);
                let mut found = Vec::new();
                tree.overlapping(&range, &mut found);
                found.sort();
                let mut expected: Vec<RequestId> = list
                    .iter()
                    .filter(|(other, _)| other.start < range.end && range.start < other.end)
                    .map(|(_, request)| *request)
                    .collect();
                expected.sort();
                assert_eq!(found, expected, "seed {seed}");
                looked_at += found.len();
            }
            assert!(looked_at > 1000, "seed {seed}");
        }
    }

    /// Requests come in ascending order of their numbers, and often of their positions.
    #[test]
    fn is_not_deep() {
        let mut tree = Intervals::default();
        for number in 0..10_000 {
            tree.insert(number * 8..number * 8 + 8, RequestId(number + 1));
        }
        assert!(tree.depth(tree.root) < 60, "{}", tree.depth(tree.root));
        for number in 0..10_000 {
            tree.remove(number * 8, RequestId(number + 1));
        }
        assert_eq!(tree.depth(tree.root), 0);
        assert_eq!(tree.free.len(), tree.nodes.len());
    }
}
