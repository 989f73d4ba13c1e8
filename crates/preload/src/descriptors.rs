//! The process's table from descriptor numbers to open file descriptions, and the stock of
//! placeholders.
//!
//! Every number given to the program is an open kernel descriptor, a *placeholder*, so nothing
//! else can take the number and the kernel's own rules (poll, fork, exec, limits) hold. It is a
//! memory file reopened with access mode 3, which grants neither reading nor writing: a `read`
//! or `write` that gets past this library fails with EBADF instead of quietly doing the wrong
//! thing.
//!
//! Two kinds: *plain* placeholders are duplicates of one empty template, close-on-exec, all the
//! same; *external* ones carry a page with flags and offset that other processes may share (see
//! `handover`). Closed plain ones stay open in the kernel, in stock, so that the next `open`
//! makes no system call. Numbers 0 to 2 are never kept in stock.
//!
//! Invariants:
//! * `entry(fd)`: 0 = the kernel's, RESERVED = not open to the program (stock, or our own),
//!   INHERITED = a description of another process still to be adopted, else a `Handle`.
//! * `notes(fd)` is meaningful only for handles and INHERITED.
//! * A bit is set in the stock only while `entry(fd)` is RESERVED and the placeholder is plain.
//! * `HOLE` is never above the lowest number that is free in the kernel (single-threaded
//!   programs; in a race of threads it may be late, which no program can tell).
//!
//! No locks: each entry is one atomic word, and taking it out (`swap`) decides who closes.

use crate::backend::{At, Errno, Failure, Handle, inside, minus};
use crate::{handover, raw, reserved};
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

/// Descriptors from this number on are always the kernel's.
pub const TABLE_SIZE: usize = 1 << 20;
/// Not open as far as the program can tell.
pub const RESERVED: u64 = u64::MAX - 1;
/// Open in another process that handed it over; adopted at the first use.
pub const INHERITED: u64 = u64::MAX;

struct Entry {
    value: AtomicU64,
    notes: AtomicU64,
}

/// Neighbouring numbers, which different threads open and close at the same time, stand this far
/// apart, in different cache lines.
const APART: usize = TABLE_SIZE / 8;

static TABLE: [Entry; TABLE_SIZE] = [const {
    Entry {
        value: AtomicU64::new(0),
        notes: AtomicU64::new(0),
    }
}; TABLE_SIZE];

#[inline(always)]
fn place(descriptor: usize) -> &'static Entry {
    &TABLE[descriptor % 8 * APART + descriptor / 8]
}

/// What a number, less than [`TABLE_SIZE`], stands for.
#[inline(always)]
pub fn entry(descriptor: usize) -> &'static AtomicU64 {
    &place(descriptor).value
}

#[inline(always)]
fn notes_of(descriptor: usize) -> &'static AtomicU64 {
    &place(descriptor).notes
}
/// One above the highest number ever put into the table.
static HIGH_WATER: AtomicUsize = AtomicUsize::new(0);
static HOLE: AtomicUsize = AtomicUsize::new(0);
/// Stock: numbers below `STOCK_END`, one bit each; few words, so that counting them costs less
/// than keeping a count.
static STOCK: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];
const STOCK_END: usize = 256;
const STOCK_MAX: u32 = 64;
static TEMPLATE: AtomicI32 = AtomicI32::new(-1);

/// Close on exec, as the program sees it. (A plain placeholder itself always has the kernel's
/// flag; what must survive an exec is made external first.)
pub const CLOSE_ON_EXEC: u64 = 1;
/// An external placeholder; the bits from 12 on are its page's address (0 = not mapped).
pub const EXTERNAL: u64 = 2;
const PAGE: u64 = !0xfff;

pub fn is_free(descriptor: usize) -> bool {
    entry(descriptor).load(Ordering::Acquire) == 0
}

/// What a number stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Descriptor {
    Kernel,
    Pool(Handle),
    /// Not open, or not usable: the error to return.
    Error(isize),
}

/// Looks a descriptor up, as given in a register (an `int`).
#[inline(always)]
pub fn lookup(descriptor: usize) -> Descriptor {
    let descriptor = descriptor as u32 as usize;
    if descriptor >= TABLE_SIZE {
        return Descriptor::Kernel;
    }
    match NonZeroU64::new(entry(descriptor).load(Ordering::Acquire)) {
        None => Descriptor::Kernel,
        Some(value) if value.get() < RESERVED => Descriptor::Pool(Handle(value)),
        Some(value) => lookup_special(descriptor, value.get()),
    }
}

#[cold]
fn lookup_special(descriptor: usize, value: u64) -> Descriptor {
    if crate::thread::inside() {
        return Descriptor::Kernel;
    }
    if value == RESERVED {
        return Descriptor::Error(raw::error(libc::EBADF));
    }
    match handover::adopt(descriptor) {
        Ok(handle) => Descriptor::Pool(handle),
        Err(errno) => Descriptor::Error(minus(errno)),
    }
}

/// Whether a number is the pool's, without adopting it.
pub fn is_pool(descriptor: usize) -> bool {
    let descriptor = descriptor as u32 as usize;
    descriptor < TABLE_SIZE && !matches!(entry(descriptor).load(Ordering::Acquire), 0 | RESERVED)
}

pub fn is_reserved(descriptor: usize) -> bool {
    let descriptor = descriptor as u32 as usize;
    descriptor < TABLE_SIZE && entry(descriptor).load(Ordering::Acquire) == RESERVED
}

/// All numbers that are the pool's now.
pub fn pool_descriptors() -> impl Iterator<Item = usize> {
    (0..HIGH_WATER.load(Ordering::Acquire)).filter(|fd| is_pool(*fd))
}

pub fn notes(descriptor: usize) -> u64 {
    notes_of(descriptor).load(Ordering::Acquire)
}

pub fn page(descriptor: usize) -> usize {
    (notes(descriptor) & PAGE) as usize
}

pub fn set_close_on_exec(descriptor: usize, yes: bool) {
    let before = if yes {
        notes_of(descriptor).fetch_or(CLOSE_ON_EXEC, Ordering::AcqRel)
    } else {
        notes_of(descriptor).fetch_and(!CLOSE_ON_EXEC, Ordering::AcqRel)
    };
    if before & EXTERNAL != 0 {
        // SAFETY: sets a flag of an open placeholder.
        unsafe { raw::syscall!(libc::SYS_fcntl, descriptor, libc::F_SETFD, usize::from(yes)) };
    }
}

pub fn close_on_exec(descriptor: usize) -> bool {
    notes(descriptor) & CLOSE_ON_EXEC != 0
}

/// Puts an entry in place for a number whose placeholder is open.
pub fn put(descriptor: usize, value: u64, notes: u64) {
    raise_high_water(descriptor);
    notes_of(descriptor).store(notes, Ordering::Release);
    entry(descriptor).store(value, Ordering::Release);
}

#[inline]
fn raise_high_water(descriptor: usize) {
    if HIGH_WATER.load(Ordering::Relaxed) <= descriptor {
        HIGH_WATER.fetch_max(descriptor + 1, Ordering::AcqRel);
    }
}

/// The template that plain placeholders duplicate; made at the first need. Negative: an error.
fn template() -> isize {
    let template = TEMPLATE.load(Ordering::Acquire);
    if template >= 0 {
        return template as isize;
    }
    let fresh =
        handover::make_placeholder(0).map_or_else(|error| error, |(fd, _)| reserved::keep(fd));
    if raw::failed(fresh) {
        return fresh;
    }
    match TEMPLATE.compare_exchange(template, fresh as i32, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => fresh,
        Err(other) => {
            entry(fresh as usize).store(0, Ordering::Release);
            raw::close(fresh);
            other as isize
        }
    }
}

fn take_from_stock(limit: usize) -> Option<usize> {
    for (index, word) in STOCK.iter().enumerate() {
        loop {
            let bits = word.load(Ordering::Acquire);
            if bits == 0 {
                break;
            }
            let bit = bits & bits.wrapping_neg();
            let descriptor = index * 64 + bit.trailing_zeros() as usize;
            if descriptor > limit {
                return None;
            }
            if word.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                return Some(descriptor);
            }
        }
    }
    None
}

fn stock_count() -> u32 {
    STOCK
        .iter()
        .map(|word| word.load(Ordering::Relaxed).count_ones())
        .sum()
}

/// Keeps an open plain placeholder for later. False if there is no room.
fn stock(descriptor: usize) -> bool {
    if !(3..STOCK_END).contains(&descriptor) || stock_count() >= STOCK_MAX {
        return false;
    }
    raise_high_water(descriptor);
    entry(descriptor).store(RESERVED, Ordering::Release);
    STOCK[descriptor / 64].fetch_or(1 << (descriptor % 64), Ordering::AcqRel);
    true
}

/// Removes a number from the stock; its placeholder stays open. False if it was not in stock.
pub fn unstock(descriptor: usize) -> bool {
    let bit = 1 << (descriptor % 64);
    descriptor < STOCK_END && STOCK[descriptor / 64].fetch_and(!bit, Ordering::AcqRel) & bit != 0
}

/// Before the kernel chooses a number for the program: what is in stock must not be in the way
/// of a lower number than the kernel would find. At most the lowest of the stock is given up.
#[inline(always)]
pub fn before_kernel_opens() {
    if STOCK.iter().any(|word| word.load(Ordering::Relaxed) != 0) {
        give_way();
    }
}

#[cold]
fn give_way() {
    let hole = HOLE.load(Ordering::Relaxed);
    // A number below the stock's lowest is free: the kernel will take that one.
    let lowest = STOCK.iter().enumerate().find_map(|(index, word)| {
        let bits = word.load(Ordering::Relaxed);
        (bits != 0).then(|| index * 64 + bits.trailing_zeros() as usize)
    });
    if let Some(lowest) = lowest
        && hole > lowest
        && unstock(lowest)
    {
        entry(lowest).store(0, Ordering::Release);
        kernel_closed(lowest);
        raw::close(lowest as isize);
    }
}

/// The kernel gave the program this number, so all below are taken.
#[inline(always)]
pub fn kernel_opened(descriptor: isize) -> isize {
    if descriptor < 0 {
        return descriptor;
    }
    let number = descriptor as usize;
    if number >= HOLE.load(Ordering::Relaxed) {
        HOLE.store(number + 1, Ordering::Relaxed);
    }
    if number < TABLE_SIZE && !is_free(number) && !crate::thread::inside() {
        // The LibFS closed one of its own.
        entry(number).store(0, Ordering::Release);
    }
    descriptor
}

/// The program closed a number of the kernel's.
#[inline(always)]
pub fn kernel_closed(descriptor: usize) {
    if descriptor < HOLE.load(Ordering::Relaxed) {
        HOLE.store(descriptor, Ordering::Relaxed);
    }
}

/// The lowest number that is free as the program sees it, with a plain placeholder in it and no
/// entry yet (RESERVED or 0). Error: minus the error number.
fn allocate(minimum: usize) -> Result<usize, isize> {
    if minimum == 0
        && let Some(descriptor) = take_from_stock(HOLE.load(Ordering::Relaxed))
    {
        return Ok(descriptor);
    }
    let template = template();
    if raw::failed(template) {
        return Err(template);
    }
    // SAFETY: duplicates our template.
    let fresh = unsafe { raw::syscall!(libc::SYS_fcntl, template, libc::F_DUPFD_CLOEXEC, minimum) };
    if raw::failed(fresh) {
        // The limit is reached in the kernel, but the stock counts as free.
        return match take_from_stock(usize::MAX) {
            Some(descriptor) if descriptor >= minimum => Ok(descriptor),
            Some(descriptor) => {
                stock(descriptor);
                Err(fresh)
            }
            None => Err(fresh),
        };
    }
    let fresh = fresh as usize;
    if fresh >= TABLE_SIZE {
        raw::close(fresh as isize);
        return Err(raw::error(libc::EMFILE));
    }
    if minimum > 0 {
        // What is in stock at or above the minimum counts as free, so the lowest of both.
        for lower in minimum..fresh.min(STOCK_END) {
            if unstock(lower) {
                if !stock(fresh) {
                    raw::close(fresh as isize);
                }
                return Ok(lower);
            }
        }
        return Ok(fresh);
    }
    if let Some(lower) = take_from_stock(fresh) {
        if stock_count() >= 4 || !stock(fresh) {
            raw::close(fresh as isize);
            HOLE.store(fresh, Ordering::Relaxed);
        } else {
            HOLE.store(fresh + 1, Ordering::Relaxed);
        }
        return Ok(lower);
    }
    HOLE.store(fresh + 1, Ordering::Relaxed);
    Ok(fresh)
}

/// Gives a number at or above `minimum` to a description. On error the caller still owns the
/// handle. Returns the number or minus the error number.
pub fn install(handle: Handle, minimum: usize, close_on_exec: bool) -> isize {
    match allocate(minimum) {
        Ok(descriptor) => {
            put(descriptor, handle.0.get(), u64::from(close_on_exec));
            descriptor as isize
        }
        Err(error) => error,
    }
}

/// `open` on the pool: the new descriptor, or the failure.
pub fn open(at: At, path: &[u8], flags: i32, mode: u32) -> Result<isize, Failure> {
    open_within(at, path, flags, mode, 0)
}

/// `openat2` on the pool.
pub fn open_within(
    at: At,
    path: &[u8],
    flags: i32,
    mode: u32,
    resolve: u64,
) -> Result<isize, Failure> {
    // What is made or emptied must not be if there is no number for it.
    let number =
        match flags & (libc::O_CREAT | libc::O_TRUNC | libc::O_TMPFILE & !libc::O_DIRECTORY) {
            0 => None,
            _ => match allocate(0) {
                Ok(number) => Some(number),
                Err(error) => return Ok(error),
            },
        };
    let close_on_exec = flags & libc::O_CLOEXEC != 0;
    let opened = inside(|fs| {
        let handle = fs.open_within(at, path, flags, mode, resolve)?;
        if number.is_some() {
            return Ok(handle.0.get() as isize);
        }
        let descriptor = install(handle, 0, close_on_exec);
        if descriptor < 0 {
            fs.close(handle);
        }
        Ok(descriptor)
    });
    let Some(number) = number else {
        // The kernel looks for a number before it looks at the path.
        return match opened {
            Err(Failure::Errno(errno)) if errno != Errno::INVAL && !path.is_empty() => {
                expect_number().map_or_else(Ok, |()| Err(Failure::Errno(errno)))
            }
            opened => opened,
        };
    };
    match opened {
        Ok(handle) => {
            put(number, handle as u64, u64::from(close_on_exec));
            Ok(number as isize)
        }
        Err(failure) => {
            give_back(number);
            Err(failure)
        }
    }
}

/// That there is a number for an open; minus the error number if there is none.
#[cold]
fn expect_number() -> Result<(), isize> {
    if stock_count() == 0 {
        give_back(allocate(0)?);
    }
    Ok(())
}

/// Gives back a number with a plain placeholder that [`allocate`] gave.
fn give_back(number: usize) {
    if !stock(number) {
        entry(number).store(0, Ordering::Release);
        kernel_closed(number);
        raw::close(number as isize);
    }
}

/// One more reference to what a descriptor stood for a moment ago.
fn retain(handle: Handle) -> Result<(), isize> {
    // Another thread may have closed it.
    inside(|fs| Ok(fs.retain(handle)?)).map_err(|_| raw::error(libc::EBADF))
}

fn let_go(handle: Handle) {
    let _ = inside(|fs| {
        fs.close(handle);
        Ok(())
    });
}

/// Duplicates a pool descriptor to the lowest number at or above `minimum`.
pub fn duplicate(descriptor: usize, minimum: usize, close_on_exec: bool) -> isize {
    let handle = match lookup(descriptor) {
        Descriptor::Pool(handle) => handle,
        Descriptor::Kernel => return raw::error(libc::EBADF),
        Descriptor::Error(error) => return error,
    };
    let target = match allocate(minimum) {
        Ok(number) => number,
        Err(error) => return error,
    };
    if let Err(error) = retain(handle) {
        give_back(target);
        return error;
    }
    let (source, flags, notes) = placeholder_of(descriptor, close_on_exec);
    if notes & EXTERNAL != 0 {
        // SAFETY: duplicates a placeholder over one that is ours.
        let result = unsafe { raw::syscall!(libc::SYS_dup3, source, target, flags) };
        if raw::failed(result) {
            give_back(target);
            let_go(handle);
            return result;
        }
    }
    put(target, handle.0.get(), notes);
    target as isize
}

/// For a duplicate of a pool descriptor: the descriptor of the kernel to duplicate, with which
/// flags, and the notes. (Plain ones are all the same.)
fn placeholder_of(descriptor: usize, close_on_exec: bool) -> (isize, i32, u64) {
    let from = notes(descriptor);
    let notes = u64::from(close_on_exec);
    if from & EXTERNAL != 0 {
        let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        (descriptor as isize, flags, notes | from & (PAGE | EXTERNAL))
    } else {
        (template(), libc::O_CLOEXEC, notes)
    }
}

/// Counted after the entry of a descriptor in use was replaced, and before what it was fails.
static REPLACEMENTS: AtomicUsize = AtomicUsize::new(0);

/// How many descriptors in use were replaced: a call that fails on what was looked up since an
/// equal count has failed on what the descriptor is.
pub fn replacements() -> usize {
    REPLACEMENTS.load(Ordering::SeqCst)
}

/// `dup2` and `dup3` from a pool descriptor; `descriptor != target`. To other threads the target
/// is all the time what it was or what it becomes.
pub fn duplicate_to(descriptor: usize, target: usize, close_on_exec: bool) -> isize {
    let handle = match lookup(descriptor) {
        Descriptor::Pool(handle) => handle,
        Descriptor::Kernel => return raw::error(libc::EBADF),
        Descriptor::Error(error) => return error,
    };
    if target >= TABLE_SIZE {
        return raw::error(libc::EBADF);
    }
    if is_reserved(target)
        && let Err(error) = vacate(target)
    {
        return error;
    }
    if let Err(error) = retain(handle) {
        return error;
    }
    let (source, flags, notes) = placeholder_of(descriptor, close_on_exec);
    let was_kernels = is_free(target);
    let page = page(target);
    if was_kernels {
        // The entry first: a placeholder without one is of no use to another thread.
        put(target, handle.0.get(), notes | EXTERNAL);
        REPLACEMENTS.fetch_add(1, Ordering::SeqCst);
    }
    // SAFETY: the program asked for the target to be replaced.
    let result = unsafe { raw::syscall!(libc::SYS_dup3, source, target, flags) };
    if raw::failed(result) {
        if was_kernels {
            entry(target).store(0, Ordering::Release);
        }
        let_go(handle);
        return result;
    }
    notes_of(target).store(notes, Ordering::Release);
    let before = entry(target).swap(handle.0.get(), Ordering::AcqRel);
    if !was_kernels {
        REPLACEMENTS.fetch_add(1, Ordering::SeqCst);
        release(before, page);
    }
    target as isize
}

/// `dup2` and `dup3` onto `target` from a descriptor of the kernel's, done by `duplicate`, which
/// is certain to succeed. To other threads the target is all the time what it was or what it
/// becomes. Error if the number is one the LibFS needs.
pub fn replaced_by_kernels(target: usize, duplicate: impl FnOnce() -> isize) -> isize {
    if !is_pool(target) {
        return match vacate(target) {
            Ok(()) => duplicate(),
            Err(error) => error,
        };
    }
    let result = duplicate();
    if !raw::failed(result) {
        let page = page(target);
        let before = entry(target).swap(0, Ordering::AcqRel);
        REPLACEMENTS.fetch_add(1, Ordering::SeqCst);
        release(before, page);
    }
    result
}

/// Takes a number that is not open to the program out of this library's hands before the kernel
/// puts something else there with `dup2`; the placeholder stays open until then. Error if the
/// number is one the LibFS needs.
fn vacate(target: usize) -> Result<(), isize> {
    if target >= TABLE_SIZE {
        return Ok(());
    }
    let value = entry(target).load(Ordering::Acquire);
    match value {
        0 => {}
        RESERVED if unstock(target) => entry(target).store(0, Ordering::Release),
        RESERVED if TEMPLATE.load(Ordering::Acquire) == target as i32 => {
            TEMPLATE.store(-1, Ordering::Release);
            entry(target).store(0, Ordering::Release);
        }
        RESERVED => return Err(raw::error(libc::EBUSY)),
        // Not for them: see `replaced_by_kernels` and `duplicate_to`.
        _ => {}
    }
    Ok(())
}

/// Drops the reference that a table entry held, which is not there any more, and its page.
fn release(value: u64, page: usize) {
    if value < RESERVED
        && let Some(value) = NonZeroU64::new(value)
    {
        let_go(Handle(value));
    }
    if page != 0 && !pool_descriptors().any(|other| self::page(other) == page) {
        handover::retire_page(page);
    }
}

/// `close` of a number that [`lookup`] found to be ours, or not.
#[inline(always)]
pub fn close(descriptor: usize) -> Option<isize> {
    if descriptor >= TABLE_SIZE {
        return None;
    }
    match entry(descriptor).load(Ordering::Acquire) {
        0 => None,
        _ => Some(close_ours(descriptor)),
    }
}

#[inline(never)]
fn close_ours(descriptor: usize) -> isize {
    let value = entry(descriptor).load(Ordering::Acquire);
    if value == RESERVED {
        return raw::error(libc::EBADF);
    }
    let plain = notes(descriptor) & EXTERNAL == 0;
    // While RESERVED nobody but us can take the number.
    if entry(descriptor)
        .compare_exchange(value, RESERVED, Ordering::AcqRel, Ordering::Acquire)
        .is_err()
    {
        return raw::error(libc::EBADF);
    }
    release(value, page(descriptor));
    if !plain || !stock(descriptor) {
        entry(descriptor).store(0, Ordering::Release);
        kernel_closed(descriptor);
        raw::close(descriptor as isize);
    }
    0
}

/// `close_range`: closes what is the program's in the range, kernel's and pool's, and leaves the
/// rest alone.
pub fn close_range(first: usize, last: usize, flags: usize) -> isize {
    let high = HIGH_WATER
        .load(Ordering::Acquire)
        .max(TEMPLATE.load(Ordering::Acquire).max(0) as usize + 1);
    let set_flag = flags & libc::CLOSE_RANGE_CLOEXEC as usize != 0;
    let mut from = first;
    let high = high.max(reserved::floor() + 128).min(TABLE_SIZE);
    for descriptor in first..high.min(last.saturating_add(1)) {
        if is_free(descriptor) {
            continue;
        }
        if descriptor > from {
            let result = kernel_close_range(from, descriptor - 1, flags);
            if result < 0 {
                return result;
            }
        }
        from = descriptor + 1;
        if is_pool(descriptor) {
            if set_flag {
                set_close_on_exec(descriptor, true);
            } else {
                close_ours(descriptor);
            }
        }
    }
    if from <= last {
        kernel_close_range(from, last, flags)
    } else {
        0
    }
}

fn kernel_close_range(first: usize, last: usize, flags: usize) -> isize {
    if flags & libc::CLOSE_RANGE_CLOEXEC as usize == 0 {
        kernel_closed(first);
    }
    // SAFETY: the program asked for these numbers to be closed; none is ours.
    unsafe { raw::syscall!(libc::SYS_close_range, first, last, flags) }
}

/// In a forked child: every description belongs to the parent's session and must be adopted
/// through its page.
pub fn forked() {
    for descriptor in pool_descriptors() {
        entry(descriptor).store(INHERITED, Ordering::Release);
    }
}

/// Replaces entries that refer to one page after adopting it.
pub fn adopted(descriptor: usize, handle: Handle) {
    let page = page(descriptor);
    let mut first = true;
    let high = HIGH_WATER.load(Ordering::Acquire);
    for other in 0..high {
        let entry = entry(other);
        if entry.load(Ordering::Acquire) == INHERITED
            && (other == descriptor || self::page(other) == page)
        {
            if !first {
                let _ = retain(handle);
            }
            first = false;
            entry.store(handle.0.get(), Ordering::Release);
        }
    }
}
