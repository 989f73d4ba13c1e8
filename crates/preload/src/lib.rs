//! The library that serves unmodified programs: loaded with LD_PRELOAD, it sends every call on a
//! path below the mount prefix, or on a descriptor opened there, to the LibFS, and everything
//! else to the kernel untouched.
//!
//! Layers, each with its own module head:
//!
//! * [`symbols`]: the entry points of libc that programs call; the fast layer.
//! * [`dispatch`]: catches the system calls that libc makes itself; [`calls`] is the table both use.
//! * [`handlers`]: one per system call; [`path`] and [`descriptors`] say what is the pool's.
//! * [`process`], [`handover`], [`environment`]: fork and exec. [`signals`]: no handler of the
//!   program runs inside the LibFS. [`stack`]: on which stack it runs. [`unwinder`]: what unwinds
//!   threads, loaded when it is needed. [`unreached`]: what this library is not loaded into.
//! * [`backend`]: the one door to the LibFS. [`raw`]: the one door to the kernel. [`memory`]: the
//!   one door to what the program points to.
//!
//! Environment: ARCK_POOL (directory), ARCK_MOUNT (absolute prefix), ARCK_REPORT (path of a file
//! that exists, or `fd:2`; optional), ARCK_DISPATCH (`sud-exclusive`, `sud-inclusive` or `none`;
//! default: the best there is), ARCK_PATCH (`never`: see [`patch`]), ARCK_KEEP (descriptor that
//! `arck run` keeps open in all of its command's processes, see [`reserved`]), ARCK_WAIT (seconds), ARCK_STRICT, ARCK_QUIET, ARCK_SAID and ARCK_BENEATH (see [`unreached`]), ARCK_CWD,
//! ARCK_LOCKS, ARCK_EXECFN, ARCK_EXE, ARCK_EXEC, ARCK_SITES and ARCK_TOLD (set by this library itself). Without the
//! first two it does nothing.
//!
//! What is not served: programs that it is not loaded into, which [`unreached`] names before they are
//! executed, and, through the inclusive dispatch, system calls that programs make by their own instructions.

// A test binary must not interpose on itself, so there the entry points are left out.
#![cfg_attr(test, allow(dead_code))]

mod allocator;
mod backend;
mod calls;
mod descriptors;
mod directory;
mod dispatch;
#[cfg(test)]
mod documentation;
mod emulated;
mod environment;
mod handlers;
mod handover;
mod lock_files;
mod maps;
mod memory;
mod patch;
mod path;
mod process;
mod raw;
mod report;
mod reserved;
mod rings;
mod settings;
mod signals;
mod stack;
mod symbols;
mod thread;
mod unreached;
mod unwinder;

#[cfg(not(test))]
#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator;

/// Run by the loader before the program.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static START: unsafe extern "C" fn() = start;

/// Run at exit, when no dispatch sees the last call.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".fini_array")]
static END: unsafe extern "C" fn() = end;

#[cfg(not(test))]
unsafe extern "C" fn start() {
    if emulated::by_valgrind() || !settings::read() {
        return;
    }
    stack::start();
    signals::guard();
    raw::find_single_threaded();
    process::find_real_functions();
    process::fork::watch_forks();
    report::start(calls::name);
    reserved::start();
    process::libraries::close_loaded(settings::preloaded());
    lock_files::handed::start();
    handover::find_inherited();
    lock_files::handed::found_all();
    directory::start();
    process::identity::start();
    settings::READY.store(true, std::sync::atomic::Ordering::Release);
    dispatch::start();
    report::write(report::Event::Start);
}

#[cfg(not(test))]
unsafe extern "C" fn end() {
    if dispatch::kind::kind() == dispatch::kind::Kind::None {
        report::write(report::Event::End);
    }
}
