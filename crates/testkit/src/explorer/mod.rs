//! The crash explorer: records what a short workload stores, flushes and fences, LibFS and controller
//! in one trace, builds what a failure of the machine may leave at every fence and every store,
//! recovers each image with the controller's own code, and looks at what is there.
//!
//! | module | idea |
//! | --- | --- |
//! | [`recording`] | runs a workload and records it |
//! | [`image`] | replays a trace: what is durable, what is in flight |
//! | [`explore`] | which images there may be, and what is asked of each |
//! | [`stage`] | puts images into files to be recovered, at the cost of what differs |
//! | [`tree`] | reads what was recovered, and whether it is one whole |
//! | [`model`] | operations, and what they do |
//! | [`checking`] | which trees a crash may leave |
//! | this one | LibFSes, and which workloads each has |
//! | [`workloads`] | those of files, which ArckFS has |
//! | [`sealed`] | those of directories that are sealed |
//! | [`shared`] | those of a pool that is served to all: rights, messages |
//! | [`values`] | those of whole values, which every LibFS has in its way |
//! | [`records`] | those of logs |
//! | [`spool`] | what is done with a spool |
//! | [`spooled`] | those of queues whose writes are durable when they are queued |
//!
//! # Invariants
//! * An image is one that the processor and the medium of [`image`]'s model may leave; so a tree
//!   that is not allowed is a fault of the code, of the model, or of [`checking`].
//! * Choices are seeded: the same trace is explored in the same way.

pub mod checking;
pub mod explore;
pub mod image;
pub mod model;
pub mod recording;
pub mod records;
pub mod sealed;
pub mod shared;
pub mod spool;
pub mod spooled;
pub mod stage;
pub mod tree;
pub mod values;
pub mod workloads;

use model::Sets;
use recording::Workload;

/// Makes workloads of a LibFS that sets values so.
pub type Makes = fn(Sets) -> Vec<Workload>;

/// A LibFS, by what is recorded of it. All are looked at in the same ways, which depend on how many there are.
pub struct Subject {
    /// For what a failure says.
    pub name: &'static str,
    /// How it gives names of one directory new values, or takes them away.
    pub sets: Sets,
    /// Operations alone, and few in a row: in depth, and with each flush and fence left out.
    pub short: &'static [Makes],
    /// Many in a row: in less depth, and with each left out.
    pub long: &'static [Makes],
    /// Each operation after each, in all the ways in which two may meet: in less depth, and some with each left out.
    pub pairs: Makes,
}

/// All LibFSes; a new one brings its workloads.
pub const SUBJECTS: [Subject; 4] = [
    Subject {
        name: "ArckFS",
        sets: values::by_files,
        short: &[
            workloads::single,
            workloads::chains,
            workloads::taken_over,
            workloads::crosswise,
            values::single,
            values::chains,
        ],
        long: &[workloads::long_chains, sealed::sealed],
        pairs: workloads::pairs,
    },
    Subject {
        name: "KVFS",
        sets: values::in_batches,
        short: &[values::single, values::chains],
        long: &[],
        pairs: values::pairs,
    },
    Subject {
        name: "log",
        // What it has besides records are ordinary files.
        sets: values::by_files,
        short: &[records::single, records::chains],
        long: &[],
        pairs: records::pairs,
    },
    Subject {
        name: "spool",
        // What it stands in and what it is replayed into are ordinary files.
        sets: values::by_files,
        short: &[spooled::single, spooled::chains],
        long: &[],
        pairs: spooled::pairs,
    },
];

impl Subject {
    /// What some of its makers make, named after it.
    pub fn made(&self, makers: &[Makes]) -> Vec<Workload> {
        let mut made: Vec<_> = makers.iter().flat_map(|makes| makes(self.sets)).collect();
        for workload in &mut made {
            workload.name = format!("{}: {}", self.name, workload.name);
        }
        assert!(
            !made.is_empty() || makers.is_empty(),
            "{} has no workloads",
            self.name
        );
        made
    }
}
