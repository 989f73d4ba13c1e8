//! Counting, and the lines that end up in the report.
//!
//! Every process tells when it starts, when it executes another program and which, and when it
//! ends: so whoever reads the report knows what this library was not loaded into (it was executed
//! and did not start), and what was killed (it did not end).
//!
//! Invariants:
//! * Counters are only touched when a report was asked for, so that without one a served call pays
//!   one load. A line holds the counts since the previous line of the process.
//! * A line is one write, so that lines of several processes do not mix. One that does not fit (`ulimit -f`,
//!   a full file system) is left out, and the file's mode says that there was one.
//! * No allocation, and stacks of spawned children are small: two texts are never on one at once.

use crate::calls::numbers;
use crate::descriptors::replacements;
use crate::dispatch::kind;
use crate::memory;
use crate::patch::{places, traps};
use crate::path::{Place, Scratch, place};
use crate::raw::{self, Text, syscall};
use crate::{descriptors, settings, thread};
use std::ffi::CStr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

static WANTED: AtomicBool = AtomicBool::new(false);
static WRITTEN: AtomicBool = AtomicBool::new(false);

/// One counter for each call.
type Counters = [AtomicU64; numbers::COUNT];
/// Of calls served, and of those that went past. They are there only where a report was asked for: nobody
/// else's first words are to lie behind pages that nobody uses.
static COUNTERS: AtomicPtr<[Counters; 2]> = AtomicPtr::new(std::ptr::null_mut());
const SERVED: usize = 0;
const PAST: usize = 1;

/// `None` where no report is wanted.
fn counters() -> Option<&'static [Counters; 2]> {
    // SAFETY: null, or a mapping that is never unmapped, and zeroes at first.
    unsafe { COUNTERS.load(Ordering::Acquire).as_ref() }
}

/// What calls are called.
static NAMES: OnceLock<fn(usize) -> &'static str> = OnceLock::new();

fn name_of(number: usize) -> &'static str {
    NAMES.get().map_or("other", |name| name(number))
}

/// At start-up: `names` says what a number of a call is called.
pub fn start(names: fn(usize) -> &'static str) {
    NAMES.get_or_init(|| names);
    if settings::REPORT.is_set()
        && let Some(memory) = raw::map_anonymous(size_of::<[Counters; 2]>())
    {
        COUNTERS.store(memory.cast(), Ordering::Release);
        WANTED.store(true, Ordering::Relaxed);
    }
    if let Some(descriptor) = report_descriptor() {
        crate::reserved::mark(descriptor);
    }
}

/// Standard error is the only one that can be named: what has another number may be anybody's.
fn report_descriptor() -> Option<usize> {
    (settings::REPORT.get() == b"fd:2").then_some(2)
}

/// A call was answered by the LibFS.
#[inline(always)]
pub fn served(number: i64) {
    if WANTED.load(Ordering::Relaxed) {
        count(SERVED, number);
    }
}

/// A call on a pool path or descriptor went to the kernel.
pub fn past(number: i64) {
    if WANTED.load(Ordering::Relaxed) {
        count(PAST, number);
    }
}

#[cold]
fn count(which: usize, number: i64) {
    if let Some(counter) = counters().and_then(|all| all[which].get(number as usize)) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// In a forked child: nothing counted yet.
pub fn forked() {
    let Some(all) = counters() else {
        return;
    };
    for counter in all.as_flattened() {
        counter.store(0, Ordering::Relaxed);
    }
    WRITTEN.store(false, Ordering::Relaxed);
}

unsafe extern "C" {
    static program_invocation_name: *const libc::c_char;
}

/// What a line tells besides counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A program begins, or a forked child.
    Start,
    /// Nothing but the counts, if there are any: another program may be executed next.
    Counts,
    /// Another program was to be executed, but this one goes on.
    Stay,
    /// The program ends.
    End,
}

/// Writes a line of this process.
#[inline]
pub fn write(event: Event) {
    if WANTED.load(Ordering::Relaxed) && !thread::inside() {
        write_wanted(event);
    }
}

/// Apart, since whoever enters it touches all the stack that it may need.
#[cold]
#[inline(never)]
fn write_wanted(event: Event) {
    let Some(all) = counters() else {
        return;
    };
    let counted = all.as_flattened().iter();
    let empty = counted
        .map(|counter| counter.load(Ordering::Relaxed))
        .all(|count| count == 0);
    // What is counted in a parent's memory is the parent's, and so is what it has told.
    let has_own = !replacements::is_spawned_child();
    if event == Event::Counts && (empty || !has_own) {
        return;
    }
    let ended = has_own && WRITTEN.swap(event == Event::End, Ordering::Relaxed);
    if event == Event::End && empty && ended {
        return;
    }
    let mut text = Text::<12288>::new();
    let event: &[u8] = match event {
        Event::Start => b"start",
        Event::Counts => b"counts",
        Event::Stay => b"stay",
        Event::End => b"end",
    };
    head(&mut text, event).push(b",\"served\":");
    counts(&mut text, if has_own { &all[SERVED][..] } else { &[] });
    text.push(b",\"past\":");
    counts(&mut text, if has_own { &all[PAST][..] } else { &[] });
    append(text.push(b"}\n"));
}

/// Whether there is one.
pub fn is_wanted() -> bool {
    WANTED.load(Ordering::Relaxed)
}

/// Longest path of a program that is told, in bytes.
const TOLD_MAX: usize = 3 << 10;

/// Before a program is executed: says which, if there is one at that path. Whether it did; then
/// [`Event::Stay`] has to follow where the execution fails.
///
/// # Safety
/// The arguments of the execveat system call; the path is a string or cannot be read.
#[inline]
pub unsafe fn executing(directory: usize, path: usize, flags: usize) -> bool {
    WANTED.load(Ordering::Relaxed)
        && !thread::inside()
        // SAFETY: the caller's promise.
        && unsafe { tell_executing(directory, path, flags) }
}

/// # Safety
/// As for [`executing`].
#[cold]
#[inline(never)]
unsafe fn tell_executing(directory: usize, path: usize, flags: usize) -> bool {
    let mut text = Text::<5120>::new();
    head(&mut text, b"execute").push(b",\"executes\":\"");
    let mut scratch = Scratch::new();
    // SAFETY: the program's arguments.
    let Some(name) = (unsafe { memory::text(path) }) else {
        return false;
    };
    let nameless = name.bytes.is_empty();
    if nameless && flags as i32 & libc::AT_EMPTY_PATH == 0 {
        return false;
    }
    let on_kernel = if nameless {
        !descriptors::is_pool(directory)
    } else {
        // SAFETY: as above.
        match unsafe { place(directory, path, &mut scratch) } {
            Place::Kernel => true,
            Place::Pool(..) => false,
            Place::Error(_) => return false,
        }
    };
    if on_kernel && !nameless {
        // SAFETY: as above; only looked at.
        let there = unsafe { syscall!(libc::SYS_faccessat, directory, path, libc::X_OK) };
        if raw::failed(there) {
            return false;
        }
    }
    let mut base = [0u8; 1024];
    if on_kernel && name.bytes.first() != Some(&b'/') {
        // Relative to a directory, or the descriptor itself.
        // SAFETY: NUL-terminated paths; the kernel writes at most the buffer's length.
        let length = unsafe {
            if directory as i32 == libc::AT_FDCWD {
                syscall!(libc::SYS_getcwd, base.as_mut_ptr(), base.len()) - 1
            } else {
                let link = raw::descriptor_path(directory);
                syscall!(
                    libc::SYS_readlink,
                    link.pointer(),
                    base.as_mut_ptr(),
                    base.len()
                )
            }
        };
        let length = usize::try_from(length).unwrap_or(0).min(base.len());
        escaped(&mut text, &base[..length]);
        if !nameless {
            text.push(b"/");
        }
    }
    escaped(&mut text, &name.bytes[..name.bytes.len().min(TOLD_MAX)]);
    append(text.push(b"\",\"served\":{},\"past\":{}}\n"));
    true
}

/// The beginning of every line.
fn head<'a, const N: usize>(text: &'a mut Text<N>, event: &[u8]) -> &'a mut Text<N> {
    text.push(b"{\"pid\":")
        .number(raw::process_id() as u64)
        .push(b",\"event\":\"")
        .push(event)
        .push(b"\",\"program\":\"");
    // SAFETY: libc's variable points to the program's name.
    let name = unsafe {
        if program_invocation_name.is_null() {
            &[][..]
        } else {
            CStr::from_ptr(program_invocation_name).to_bytes()
        }
    };
    escaped(text, &name[..name.len().min(512)]);
    text.push(b"\",\"interception\":{\"symbols\":true,\"dispatch\":\"")
        .push(kind::kind().name().as_bytes())
        .push(b"\",\"dispatch_choice\":\"")
        .push(kind::choice().name().as_bytes())
        .push(b"\",\"patching\":\"")
        .push(places::state().name().as_bytes())
        .push(b"\",\"patched_sites\":")
        .number(places::sites() as u64)
        .push(b",\"traps\":")
        .number(traps::ALL.load(Ordering::Relaxed))
        .push(b"}")
}

/// The inside of a string of JSON.
fn escaped<const N: usize>(text: &mut Text<N>, bytes: &[u8]) {
    for byte in bytes {
        match byte {
            b'"' | b'\\' => text.push(&[b'\\', *byte]),
            0x20..=0x7e => text.push(&[*byte]),
            _ => text.push(b"?"),
        };
    }
}

/// Adds a line to the report, whole, or notes that one is missing. The file is there already, unless whoever
/// wanted it has gone.
fn append<const N: usize>(text: &Text<N>) {
    if let Some(descriptor) = report_descriptor() {
        raw::write_unsignalled(descriptor, text.bytes());
        return;
    }
    // Nothing that is waited for, and no link to elsewhere.
    let flags = libc::O_RDWR | libc::O_APPEND | libc::O_CLOEXEC;
    let flags = flags | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let path = settings::REPORT.get().as_ptr();
    // SAFETY: the setting is NUL-terminated.
    let file = unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0) };
    if raw::failed(file) {
        return;
    }
    if let Some(length) = length_of_report(file) {
        let bytes = text.bytes();
        // A part of a line would spoil the next one too.
        let limit = raw::limit(libc::RLIMIT_FSIZE).unwrap_or(usize::MAX);
        let fits = length.saturating_add(bytes.len()) <= limit;
        if !fits || raw::write_unsignalled(file as usize, bytes) != bytes.len() as isize {
            // SAFETY: no memory.
            unsafe { syscall!(libc::SYS_fchmod, file, LINES_ARE_MISSING) };
        }
    }
    raw::close(file);
}

/// Mode of a report in which there was no room for a line: it means nothing else for a file, and may be set
/// where nothing may be written any more.
const LINES_ARE_MISSING: u32 = libc::S_ISVTX | 0o600;

/// Length of a file that is empty, or begins as reports do: the environment may name any.
fn length_of_report(file: isize) -> Option<usize> {
    const START: &[u8; 7] = b"{\"pid\":";
    let mut start = [0; START.len()];
    // SAFETY: a structure on the stack, for which all zeroes are a value, and a buffer; the kernel fills
    // them.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        let asked = syscall!(libc::SYS_fstat, file, &raw mut status);
        if raw::failed(asked) || status.st_mode & libc::S_IFMT != libc::S_IFREG {
            return None;
        }
        let length = start.len();
        let read = syscall!(libc::SYS_pread64, file, start.as_mut_ptr(), length, 0);
        let is_report = read == 0 || read == length as isize && start == *START;
        is_report.then_some(status.st_size as usize)
    }
}

fn counts<const N: usize>(text: &mut Text<N>, counters: &[AtomicU64]) {
    let mut between: &[u8] = b"{";
    for (number, counter) in counters.iter().enumerate() {
        let count = counter.swap(0, Ordering::Relaxed);
        if count > 0 {
            text.push(between)
                .push(b"\"")
                .push(name_of(number).as_bytes());
            text.push(b"\":").number(count);
            between = b",";
        }
    }
    if between == b"{" {
        text.push(b"{");
    }
    text.push(b"}");
}
