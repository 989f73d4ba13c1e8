//! `libarck.so`: Arck's pools for programs in C, and all that can call C. `arck.h` is made of what `face` declares.
//!
//! From below:
//!
//! * `errno`: libc's. `trouble`: why something was not done, as that and a line. `boundary`: what C passes.
//! * `options`: what C says when it opens something.
//! * `inside`: who is inside what is to be closed.
//! * `roots`: what has a session. `open_files`, `parts`: what is opened in that.
//! * `forks`: what a forked child has of it. `handles`: the numbers that C has for all of these.
//! * `making`: modes of what is made.
//! * `face`: C's functions.
//!
//! # Invariants
//! * No panic leaves a function of C's ([`trouble::answer`]): it is EIO.
//! * No number that C passes as a handle leads to memory: it is looked up ([`handles`]).
//! * What is closed is used by nobody: who closes waits until the others have left ([`inside`]).
//! * A call that has failed says so by its value, `errno` and a line; one that has not leaves `errno` as it was, or not.

mod boundary;
mod errno;
mod face;
mod forks;
mod handles;
mod inside;
mod making;
mod open_files;
mod options;
mod parts;
mod roots;
mod trouble;
