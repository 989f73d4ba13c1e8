//! Programs under the preload library, beside what they do on the host's own file systems.

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
