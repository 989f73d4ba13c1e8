//! Counting, and the line that ends up in the report.
//!
//! Invariant: counters are only touched when a report was asked for, so that without one a
//! served call pays one load. A line holds the counts since the previous line of the process.

use crate::raw::{self, Text, syscall};
use crate::{calls, net, patch, settings};
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

static WANTED: AtomicBool = AtomicBool::new(false);
static WRITTEN: AtomicBool = AtomicBool::new(false);
static SERVED: [AtomicU64; calls::COUNT] = [const { AtomicU64::new(0) }; calls::COUNT];
static PAST: [AtomicU64; calls::COUNT] = [const { AtomicU64::new(0) }; calls::COUNT];

/// At start-up.
pub fn start() {
    WANTED.store(settings::REPORT.is_set(), Ordering::Relaxed);
    if let Some(descriptor) = report_descriptor() {
        crate::reserved::mark(descriptor);
    }
}

fn report_descriptor() -> Option<usize> {
    let digits = settings::REPORT.get().strip_prefix(b"fd:")?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// A call was answered by the LibFS.
#[inline(always)]
pub fn served(number: i64) {
    if WANTED.load(Ordering::Relaxed) {
        count(&SERVED, number);
    }
}

/// A call on a pool path or descriptor went to the kernel.
pub fn past(number: i64) {
    if WANTED.load(Ordering::Relaxed) {
        count(&PAST, number);
    }
}

#[cold]
fn count(counters: &[AtomicU64; calls::COUNT], number: i64) {
    if let Some(counter) = counters.get(number as usize) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// In a forked child: nothing counted yet.
pub fn forked() {
    for counter in SERVED.iter().chain(&PAST) {
        counter.store(0, Ordering::Relaxed);
    }
    WRITTEN.store(false, Ordering::Relaxed);
}

unsafe extern "C" {
    static program_invocation_name: *const libc::c_char;
}

/// Writes the line of this process, at exit or before the program is replaced (`replaced`: then
/// only if there is something to tell).
pub fn write(replaced: bool) {
    if !WANTED.load(Ordering::Relaxed) || crate::thread::inside() {
        return;
    }
    let empty = SERVED
        .iter()
        .chain(&PAST)
        .all(|counter| counter.load(Ordering::Relaxed) == 0);
    if empty && (replaced || WRITTEN.load(Ordering::Relaxed)) {
        return;
    }
    WRITTEN.store(true, Ordering::Relaxed);
    let mut text = Text::<12288>::new();
    text.push(b"{\"pid\":")
        .number(raw::process_id() as u64)
        .push(b",\"program\":\"");
    // SAFETY: libc's variable points to the program's name.
    let name = unsafe {
        if program_invocation_name.is_null() {
            &[][..]
        } else {
            CStr::from_ptr(program_invocation_name).to_bytes()
        }
    };
    for byte in name.iter().take(512) {
        match byte {
            b'"' | b'\\' => text.push(&[b'\\', *byte]),
            0x20..=0x7e => text.push(&[*byte]),
            _ => text.push(b"?"),
        };
    }
    text.push(b"\",\"interception\":{\"symbols\":true,\"net\":\"")
        .push(net::kind().name().as_bytes());
    text.push(b"\",\"net_choice\":\"")
        .push(net::choice().name().as_bytes());
    text.push(b"\",\"patching\":\"")
        .push(patch::state().name().as_bytes());
    text.push(b"\",\"patched_sites\":")
        .number(patch::sites() as u64)
        .push(b"},\"served\":");
    counts(&mut text, &SERVED);
    text.push(b",\"past\":");
    counts(&mut text, &PAST);
    text.push(b"}\n");
    // SAFETY: the setting is NUL-terminated; the text is valid.
    unsafe {
        if let Some(descriptor) = report_descriptor() {
            syscall!(
                libc::SYS_write,
                descriptor,
                text.pointer(),
                text.bytes().len()
            );
            return;
        }
        let flags = libc::O_WRONLY | libc::O_APPEND | libc::O_CREAT | libc::O_CLOEXEC;
        let path = settings::REPORT.get().as_ptr();
        let file = syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0o666);
        if !raw::failed(file) {
            // One write, so that lines of several processes do not mix.
            syscall!(libc::SYS_write, file, text.pointer(), text.bytes().len());
            raw::close(file);
        }
    }
}

fn counts<const N: usize>(text: &mut Text<N>, counters: &[AtomicU64; calls::COUNT]) {
    let mut between: &[u8] = b"{";
    for (number, counter) in counters.iter().enumerate() {
        let count = counter.swap(0, Ordering::Relaxed);
        if count > 0 {
            text.push(between)
                .push(b"\"")
                .push(calls::name(number).as_bytes());
            text.push(b"\":").number(count);
            between = b",";
        }
    }
    if between == b"{" {
        text.push(b"{");
    }
    text.push(b"}");
}
