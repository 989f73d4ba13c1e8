//! Programs under the preload library, with a host directory in place of the pool.

mod programs;
mod shell;
mod support;
