//! What a check is asked, and what it tells.

use crate::finding::Finding;
use std::sync::atomic::AtomicBool;

/// How to check.
#[derive(Clone, Copy)]
pub struct Options<'a> {
    /// Threads; 0 = as many as there are processors.
    pub threads: usize,
    /// Findings that are kept; more are counted.
    pub findings_max: usize,
    /// Told how many inode numbers are done, of how many; from several threads.
    pub progress: Option<&'a (dyn Fn(u64, u64) + Sync)>,
    /// Set by somebody who wants no answer any more: [`Error::Interrupted`](crate::Error::Interrupted).
    pub stop: Option<&'a AtomicBool>,
}

impl Default for Options<'_> {
    fn default() -> Self {
        Options {
            threads: 0,
            findings_max: 1000,
            progress: None,
            stop: None,
        }
    }
}

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// What is wrong, by rule, inode and place.
    pub findings: Vec<Finding>,
    /// Findings beyond those that are kept.
    pub more: u64,
    /// Somebody serves it.
    pub served: bool,
    /// The pool was closed by its controller.
    pub closed: bool,
    /// Sessions whose changes are not folded yet; in a pool that was not closed.
    pub unfolded: u64,
    /// Living inodes, orphans among them.
    pub inodes: u64,
    pub directories: u64,
    pub orphans: u64,
    pub names: u64,
    /// Pages in use.
    pub pages: u64,
}

impl Report {
    /// Nothing was found.
    pub fn is_clean(&self) -> bool {
        self.findings.is_empty() && self.more == 0
    }
}
