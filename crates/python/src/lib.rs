//! `arck._arck`: the part of the Python package `arck` that calls Arck. The package's own modules
//! (`python/arck`) make of it what Python's programmers know: files of `io`, paths of `pathlib`, mappings.
//!
//! From below:
//!
//! * `gate`: who is inside what is to be closed, and what a forked child knows of that.
//! * `errors`: what went wrong, as Python's exceptions. `arguments`: paths, buffers and times that Python passes.
//! * `session`: the session of a file system, and the one that a forked child has instead.
//! * `attributes`: status, times, extended attributes.
//! * `file`: open files. `map`: their bytes in memory. `requested`, `queue`: requests on them that are in flight. `file_system`: what has a path. `spool`: requests that outlive a crash. `store`: small values. `log`: logs.
//!
//! # Invariants
//! * Python's lock is not held while Arck works or waits, and nothing of Python's is asked meanwhile.
//! * A panic becomes Python's `PanicException`, since no class here is called from anything but Python.
//! * What is closed is used by nobody: who closes waits until the others have left ([`gate`]).

mod arguments;
mod attributes;
mod errors;
mod file;
mod file_system;
mod gate;
mod log;
mod map;
mod queue;
mod requested;
mod session;
mod spool;
mod store;

/// The native part of `arck`; see there.
#[pyo3::pymodule]
mod _arck {
    #[pymodule_export]
    use crate::file::OpenFile;
    #[pymodule_export]
    use crate::file_system::FileSystem;
    #[pymodule_export]
    use crate::gate::in_child;
    #[pymodule_export]
    use crate::log::{Follower, Log, Waiting};
    #[pymodule_export]
    use crate::map::Map;
    #[pymodule_export]
    use crate::queue::{Queue, Queues};
    #[pymodule_export]
    use crate::spool::Spool;
    #[pymodule_export]
    use crate::store::Store;
}
