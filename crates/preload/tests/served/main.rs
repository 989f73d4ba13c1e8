//! Programs under the preload library, with a host directory in place of the pool.

mod applications;
mod exports;
mod groups;
mod modes;
mod processes;
mod programs;
mod reach;
mod semantics;
mod shell;
mod support;
mod tables;
