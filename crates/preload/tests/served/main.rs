//! Programs under the preload library, with a host directory in place of the pool.

mod applications;
mod programs;
mod shell;
mod support;
