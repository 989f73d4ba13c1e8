//! `libarck.so`: Arck's pools for programs in C, and all that can call C. `arck.h` is made of what `face` declares.
//!
//! From below:
//!
//! * `errno`: libc's. `trouble`: why something was not done, as that and a line. `by_kernel`: copies of memory that may not be there.
//! * `requests`: requests and completions. `boundary`: what C passes.
//! * `options`: what C says when it opens something.
//! * `inside`: who is inside what is to be closed.
//! * `roots`: what has a session. `open_files`, `parts`: what is opened in that.
//! * `workers`: threads that do requests. `targets`: files, for these. `spools`: where requests outlive a crash. `queues`: queues of requests, and sets of these.
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
mod by_kernel;
mod errno;
mod face;
mod forks;
mod handles;
mod inside;
mod making;
mod open_files;
mod options;
mod parts;
mod queues;
mod requests;
mod roots;
mod spools;
mod targets;
mod trouble;
mod workers;
