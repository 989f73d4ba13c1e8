//! The verified state as the controller holds it, and its atomic steps.
//!
//! Beneath it are `space` and `pool`. A read class is a matter of the state, since it follows from inodes alone.
//!
//! # Invariants
//! * The verified state changes by a [`change::Change`], whole or not at all.
//! * What is remembered (shadow inodes, who may search what) equals what is stored.

pub mod apply;
pub mod change;
pub mod classes;
pub mod marks;
pub mod mediated;
pub mod runs;
pub mod searches;
pub mod tables;
pub mod watching;
pub mod working;
