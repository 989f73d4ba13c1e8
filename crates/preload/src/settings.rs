//! What the environment said at start-up. Who may have written it is this process's own user, and no more
//! is believed of it than that he may harm himself: a privileged program reads nothing of it, what names a
//! descriptor or a file is looked at before it is used (`docs/security.md` lists each).
//!
//! Invariant: written once by the constructor before `READY` is set (and, for the umask and the root, by the
//! calls that change them); read-only afterwards. While `READY` is unset every call passes to the kernel.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Longest mount prefix and pool path this library accepts, in bytes.
pub const PATH_MAX: usize = 4096;

/// A NUL-terminated byte string written once at start-up. The bytes are allocated: those of all settings
/// lie near each other, and are no hole between what else is written at the start of a program.
pub struct Setting {
    /// Without the NUL, which is always behind them.
    bytes: UnsafeCell<&'static [u8]>,
}

// SAFETY: written only by `set`, from the constructor, before other threads can look (READY).
unsafe impl Sync for Setting {}

impl Setting {
    const fn new() -> Self {
        Setting {
            bytes: UnsafeCell::new(b"\0".split_at(0).0),
        }
    }
    /// False if it is too long, or there is no room.
    fn set(&self, value: &[u8]) -> bool {
        let mut bytes = Vec::new();
        if value.len() >= PATH_MAX || bytes.try_reserve_exact(value.len() + 1).is_err() {
            return false;
        }
        bytes.extend_from_slice(value);
        bytes.push(0);
        // SAFETY: the constructor runs once, before READY, on one thread.
        unsafe { *self.bytes.get() = bytes.leak().split_at(value.len()).0 };
        true
    }
    #[inline(always)]
    pub fn get(&self) -> &[u8] {
        // SAFETY: no writer after start-up.
        unsafe { *self.bytes.get() }
    }
    /// So many numbers, with colons between.
    pub fn numbers<const N: usize>(&self) -> Option<[u64; N]> {
        numbers(self.get())
    }
    pub fn is_set(&self) -> bool {
        !self.get().is_empty()
    }
}

pub fn numbers<const N: usize>(text: &[u8]) -> Option<[u64; N]> {
    let mut parts = text.split(|byte| *byte == b':');
    let mut numbers = [0; N];
    for place in &mut numbers {
        *place = number(parts.next()?)?;
    }
    parts.next().is_none().then_some(numbers)
}

/// The number that decimal digits, and nothing else, stand for.
pub fn number(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Whether there is a pool to serve.
pub static READY: AtomicBool = AtomicBool::new(false);
/// Directory of the pool (ARCK_POOL).
pub static POOL: Setting = Setting::new();
/// The trust group (ARCK_GROUP); empty: none.
pub static GROUP: Setting = Setting::new();
/// Which file system its programs have (ARCK_FS), by its name; empty: ArckFS.
pub static FILE_SYSTEM: Setting = Setting::new();
/// By how many threads large accesses are done for its programs (ARCK_DELEGATE): a number, `auto`, `off`; empty: off.
pub static DELEGATES: Setting = Setting::new();
/// How many large accesses there are at once (ARCK_AT_ONCE), as above.
pub static AT_ONCE: Setting = Setting::new();
/// Where it appears (ARCK_MOUNT), without a trailing slash.
pub static MOUNT: Setting = Setting::new();
/// Where the report goes (ARCK_REPORT): a path, or `fd:2`.
pub static REPORT: Setting = Setting::new();
/// Working directory on the pool inherited through exec (ARCK_CWD).
pub static START_DIRECTORY: Setting = Setting::new();
/// Under which name this program was executed (ARCK_EXECFN), and its path on the pool (ARCK_EXE), if they
/// are of this program (ARCK_EXEC): see `process::identity`.
pub static EXECFN: Setting = Setting::new();
pub static EXECUTABLE: Setting = Setting::new();
/// Which way of dispatch to use (ARCK_DISPATCH): empty = the best there is.
pub static DISPATCH: Setting = Setting::new();
/// Whether sites in libc are rewritten (ARCK_PATCH): unless `never`, where the system allows it.
pub static PATCH: Setting = Setting::new();
/// A descriptor that has to stay open (ARCK_KEEP): its number, and the device and inode number of
/// its file, with colons between.
pub static KEEP: Setting = Setting::new();
/// How long the LibFS waits for the controller (ARCK_WAIT), as it was when the program started.
pub static WAIT: Setting = Setting::new();
/// Whether programs that are not reached are refused (ARCK_STRICT: `1`), or not even named (ARCK_QUIET: `1`),
/// and where it is noted which have been (ARCK_SAID): see `unreached`.
pub static STRICT: Setting = Setting::new();
pub static QUIET: Setting = Setting::new();
pub static SAID: Setting = Setting::new();
/// Whether the kernel has the pool mounted at the same place (ARCK_BENEATH: `1`), for what is not reached.
pub static BENEATH: Setting = Setting::new();
/// This library's own path, for LD_PRELOAD of executed programs.
pub static LIBRARY: Setting = Setting::new();
/// Whether the process has a root that this library is not in: see `handlers::root`.
pub static ROOT_CHANGED: AtomicBool = AtomicBool::new(false);
/// The file creation mask.
pub static UMASK: AtomicU32 = AtomicU32::new(0o22);

#[inline(always)]
pub fn ready() -> bool {
    READY.load(Ordering::Relaxed)
}

#[inline(always)]
pub fn root_changed() -> bool {
    ROOT_CHANGED.load(Ordering::Relaxed)
}

unsafe extern "C" {
    static environ: *const *const libc::c_char;
}

/// The value of a variable in the process's environment.
fn variable(name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: `environ` is a NULL-terminated array of C strings; the constructor runs before the
    // program can change it.
    unsafe {
        let mut entry = environ;
        while !entry.is_null() && !(*entry).is_null() {
            let text = std::ffi::CStr::from_ptr(*entry).to_bytes();
            if let Some(rest) = text.strip_prefix(name)
                && let Some(value) = rest.strip_prefix(b"=")
            {
                return Some(value);
            }
            entry = entry.add(1);
        }
    }
    None
}

/// The values of variables whose names are these behind `ARCK_`. In one pass: environments are long, and this
/// is done at the start of every program.
fn variables<const N: usize>(names: [&[u8]; N]) -> [Option<&'static [u8]>; N] {
    // SAFETY: as in `variable`.
    unsafe { values(environ, names) }
}

/// # Safety
/// `entries` is null, or a NULL-terminated array of C strings that nobody changes.
unsafe fn values<'e, const N: usize>(
    mut entries: *const *const libc::c_char,
    names: [&[u8]; N],
) -> [Option<&'e [u8]>; N] {
    let mut values = [None; N];
    // SAFETY: the caller's promise.
    unsafe {
        while !entries.is_null() && !(*entries).is_null() {
            let text = std::ffi::CStr::from_ptr(*entries).to_bytes();
            entries = entries.add(1);
            let Some(text) = text.strip_prefix(b"ARCK_") else {
                continue;
            };
            for (name, value) in names.iter().zip(&mut values) {
                // The first of several counts, as for `getenv`.
                let rest = text.strip_prefix(*name).filter(|_| value.is_none());
                if let Some(found) = rest.and_then(|rest| rest.strip_prefix(b"=")) {
                    *value = Some(found);
                }
            }
        }
    }
    values
}

/// Whether a program before this one has said what its dispatch does not catch (ARCK_TOLD).
pub fn was_told() -> bool {
    variable(b"ARCK_TOLD").is_some()
}

/// What the loader was told to load besides (LD_PRELOAD).
pub fn preloaded() -> &'static [u8] {
    variable(b"LD_PRELOAD").unwrap_or_default()
}

/// Sites that trapped in the programs before this one (ARCK_SITES): see `patch::hints`.
pub fn sites() -> &'static [u8] {
    variable(b"ARCK_SITES").unwrap_or_default()
}

/// Lock files that were handed on (ARCK_LOCKS): see `lock_files`.
pub fn locks() -> &'static [u8] {
    variable(b"ARCK_LOCKS").unwrap_or_default()
}

/// Device and inode number of the file that the kernel has executed; zeroes if it does not tell.
fn executed() -> [u64; 2] {
    let path = c"/proc/self/exe".as_ptr();
    crate::raw::identity(|status| {
        // SAFETY: a string, and a structure that the kernel fills.
        unsafe { crate::raw::syscall!(libc::SYS_newfstatat, libc::AT_FDCWD, path, status, 0) }
    })
    .unwrap_or_default()
}

/// Whether the program has rights that whoever started it has not, and so has written its environment: it is
/// set-user-ID, or the like. The loader loads no library then that is named there, but one that the program
/// itself wants.
fn is_privileged() -> bool {
    // SAFETY: no pointers.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Reads the environment. Returns whether there is a pool to serve.
pub fn read() -> bool {
    if is_privileged() {
        return false;
    }
    let [pool, mount, executed_for, execfn, executable] =
        variables([b"POOL", b"MOUNT", b"EXEC", b"EXECFN", b"EXE"]);
    let (Some(pool), Some(mount)) = (pool, mount) else {
        return false;
    };
    let mount = mount.strip_suffix(b"/").unwrap_or(mount);
    if mount.len() < 2 || mount[0] != b'/' || mount.len() > 255 {
        crate::raw::print(
            2,
            b"arck: ARCK_MOUNT is not an absolute path below /; not serving\n",
        );
        return false;
    }
    let mut fits = POOL.set(pool) && MOUNT.set(mount);
    let settings = [
        (&b"REPORT"[..], &REPORT),
        (b"GROUP", &GROUP),
        (b"FS", &FILE_SYSTEM),
        (b"DELEGATE", &DELEGATES),
        (b"AT_ONCE", &AT_ONCE),
        (b"CWD", &START_DIRECTORY),
        (b"DISPATCH", &DISPATCH),
        (b"PATCH", &PATCH),
        (b"KEEP", &KEEP),
        (b"WAIT", &WAIT),
        (b"STRICT", &STRICT),
        (b"QUIET", &QUIET),
        (b"SAID", &SAID),
        (b"BENEATH", &BENEATH),
    ];
    let values = variables(settings.map(|(name, _)| name));
    for ((_, setting), value) in settings.iter().zip(values) {
        if let Some(value) = value {
            fits &= setting.set(value);
        }
    }
    if executed_for.is_some_and(|file| numbers(file) == Some(executed())) {
        for (value, setting) in [(execfn, &EXECFN), (executable, &EXECUTABLE)] {
            // What is too long for a path is told to nobody.
            setting.set(value.unwrap_or_default());
        }
    }
    // SAFETY: dladdr fills `information` about the object that holds this function; its name
    // stays valid as long as the object is loaded.
    unsafe {
        let mut information: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(read as *const () as *const _, &mut information) != 0
            && !information.dli_fname.is_null()
        {
            fits &= LIBRARY.set(std::ffi::CStr::from_ptr(information.dli_fname).to_bytes());
        }
        let mask = crate::raw::syscall!(libc::SYS_umask, 0o77);
        crate::raw::syscall!(libc::SYS_umask, mask);
        UMASK.store(mask as u32, Ordering::Relaxed);
    }
    if !fits {
        crate::raw::print(2, b"arck: a variable of ARCK_ is too long; not serving\n");
    }
    fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_ends_with_a_nul_whether_it_is_set_or_not() {
        let setting = Setting::new();
        assert!(!setting.is_set());
        // SAFETY: behind every setting there is a NUL.
        unsafe { assert_eq!(*setting.get().as_ptr(), 0) };
        assert!(setting.set(b"/some/where"));
        assert_eq!(setting.get(), b"/some/where");
        // SAFETY: as above.
        unsafe { assert_eq!(*setting.get().as_ptr().add(11), 0) };
        assert!(!setting.set(&[b'a'; PATH_MAX]));
        assert_eq!(setting.get(), b"/some/where");
    }

    #[test]
    fn variables_are_found_in_one_pass() {
        let entries = [
            c"PATH=/bin",
            c"ARCK_EXECFN=a",
            c"ARCK_EXEC=b=c",
            c"ARCK_EXEC=d",
            c"ARCK_",
            c"ARCK_DISPATCH",
            c"XARCK_POOL=e",
            c"ARCK_CWD=",
        ];
        let mut list = entries.map(|entry| entry.as_ptr()).to_vec();
        list.push(std::ptr::null());
        let names = [&b"EXEC"[..], b"EXECFN", b"DISPATCH", b"POOL", b"CWD"];
        let expected = [Some(&b"b=c"[..]), Some(b"a"), None, None, Some(b"")];
        // SAFETY: such an array, and no array.
        unsafe {
            assert_eq!(values(list.as_ptr(), names), expected);
            assert_eq!(values(std::ptr::null(), names), [None; 5]);
        }
    }

    #[test]
    fn numbers_are_digits_with_colons_between() {
        assert_eq!(numbers(b"1:0:18446744073709551615"), Some([1, 0, u64::MAX]));
        for wrong in [
            "",
            "1:2",
            "1:2:",
            "1:2:3:4",
            "1:-2:3",
            "1:2:18446744073709551616",
        ] {
            assert_eq!(numbers::<3>(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
