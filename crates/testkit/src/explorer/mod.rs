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
//! | [`model`] | operations, what they do, and which trees a crash may leave |
//! | [`workloads`], [`values`] | which workloads there are; those of KVFS |
//!
//! # Invariants
//! * An image is one that the processor and the medium of [`image`]'s model may leave; so a tree
//!   that is not allowed is a fault of the code, of the model, or of [`model::check`].
//! * Choices are seeded: the same trace is explored in the same way.

pub mod explore;
pub mod image;
pub mod model;
pub mod recording;
pub mod stage;
pub mod tree;
pub mod values;
pub mod workloads;
