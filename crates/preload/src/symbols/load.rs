//! `dlopen` of a library stored on the pool.
//!
//! The loader's own calls are outside the dispatch's range, so the library is copied into a memory
//! file and opened by its descriptor's path, after those that it needs and that lie on the pool
//! ([`libraries`]). Then it gets its path on the pool as its name, by which it is found when it is
//! opened again. Anything else goes on to libc's function by a jump,
//! because that looks at its return address to find the caller's search paths.

use crate::backend::{At, Failure, inside};
use crate::handlers::HERE;
use crate::path::{Place, Scratch, place};
use crate::process::libraries::{self, Copied};
use crate::raw;
use std::ffi::{CStr, CString};
use std::sync::atomic::{AtomicUsize, Ordering};

/// # Safety
/// As libc's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlopen() {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {choose}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        choose = sym choose,
    )
}

type Open = unsafe extern "C" fn(*const libc::c_char, i32) -> *mut libc::c_void;

/// libc's function.
fn real() -> Open {
    static REAL: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn missing(_: *const libc::c_char, _: i32) -> *mut libc::c_void {
        std::ptr::null_mut()
    }
    let mut address = REAL.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: a constant name.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, c"dlopen".as_ptr()) } as usize;
        REAL.store(address, Ordering::Relaxed);
    }
    if address == 0 {
        return missing;
    }
    // SAFETY: the address of a function of this type.
    unsafe { std::mem::transmute::<usize, Open>(address) }
}

/// The function to go on with: [`open_copy`] if the name has a slash and leads to the pool.
unsafe extern "C" fn choose(path: usize) -> Open {
    let mut scratch = Scratch::new();
    // SAFETY: the program's string, or null.
    unsafe {
        if path != 0
            && !libc::strchr(path as *const _, i32::from(b'/')).is_null()
            && matches!(place(HERE, path, &mut scratch), Place::Pool(..))
        {
            return open_copy;
        }
    }
    real()
}

unsafe extern "C" fn open_copy(path: *const libc::c_char, flags: i32) -> *mut libc::c_void {
    let mut scratch = Scratch::new();
    // SAFETY: the program's string; libc's own function.
    unsafe {
        let Place::Pool(at, relative) = place(HERE, path as usize, &mut scratch) else {
            return real()(path, flags);
        };
        let name = inside(|fs| {
            let handle = fs.open(at, relative, libc::O_RDONLY, 0)?;
            let path = fs.path_of(handle);
            fs.close(handle);
            Ok(path?)
        });
        match name {
            Ok(name) => load(&name, flags).unwrap_or_else(|| real()(path, flags)),
            Err(Failure::Outside(host)) => match CString::new(host) {
                Ok(host) => real()(host.as_ptr(), flags),
                Err(_) => std::ptr::null_mut(),
            },
            // Let the loader say that there is no such file.
            Err(Failure::Errno(_)) => real()(path, flags),
        }
    }
}

/// Opens the library of an absolute path on the pool: the one that is loaded from there, or a copy
/// of it, with what it needs. `None` if it cannot be read.
///
/// # Safety
/// As `dlopen`.
unsafe fn load(path: &[u8], flags: i32) -> Option<*mut libc::c_void> {
    let name = CString::new(path).ok()?;
    // SAFETY: libc's own functions, and strings that outlive the calls.
    unsafe {
        let loaded = real()(name.as_ptr(), flags | libc::RTLD_NOLOAD);
        if !loaded.is_null() || flags & libc::RTLD_NOLOAD != 0 {
            return Some(loaded);
        }
        let relative = crate::path::below_mount(path)?;
        let copy = inside(|fs| Copied::new(fs, At::Root, relative)).ok()?;
        let search = libc::getenv(c"LD_LIBRARY_PATH".as_ptr());
        let search = (!search.is_null()).then(|| CStr::from_ptr(search).to_bytes());
        let length = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let mut needed = libraries::gather(copy.file, &path[..length], search);
        // The loader takes what is loaded for what is needed. Those that others need come last.
        let mut held = Vec::new();
        let mut left = usize::MAX;
        while needed.len() < left {
            left = needed.len();
            for library in std::mem::take(&mut needed).into_iter().rev() {
                match load_copy(&library, libc::RTLD_LAZY) {
                    handle if handle.is_null() => needed.insert(0, library),
                    handle => held.push(handle),
                }
            }
        }
        for library in needed {
            raw::close(library.file);
        }
        let result = load_copy(&copy, flags);
        if result.is_null() {
            raw::close(copy.file);
        }
        for handle in held {
            libc::dlclose(handle);
        }
        Some(result)
    }
}

/// The beginning of what the loader, and so `dladdr`, tells of a library.
#[repr(C)]
struct LinkMap {
    address: usize,
    name: *mut libc::c_char,
}

/// Opens a copy, whose file is closed then, or what is loaded from the same path; null if that
/// fails.
///
/// # Safety
/// As `dlopen`.
unsafe fn load_copy(copy: &Copied, flags: i32) -> *mut libc::c_void {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let path = CString::new(copy.path.clone()).unwrap_or_default();
    // SAFETY: libc's own functions, and strings that outlive the calls.
    unsafe {
        if !path.is_empty() {
            let loaded = real()(path.as_ptr(), flags | libc::RTLD_NOLOAD);
            if !loaded.is_null() {
                raw::close(copy.file);
                return loaded;
            }
        }
        // What has been opened by a name is what the loader has by that name ever after, so each gets
        // one of its own.
        let mut name = b"/proc/self/fd".to_vec();
        let mut count = COUNT.fetch_add(1, Ordering::Relaxed);
        while count > 0 {
            name.extend_from_slice(if count.is_multiple_of(2) {
                b"/."
            } else {
                b"//."
            });
            count /= 2;
        }
        name.push(b'/');
        name.extend_from_slice(copy.file.to_string().as_bytes());
        let name = CString::new(name).unwrap_or_default();
        let handle = real()(name.as_ptr(), flags);
        if handle.is_null() {
            return handle;
        }
        raw::close(copy.file);
        let mut map: *mut LinkMap = std::ptr::null_mut();
        let found = libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast());
        if found == 0 && !map.is_null() && !path.is_empty() {
            // The library is known by its path from now on. The loader frees the string with the
            // library; somebody may be looking at the one that was there, which stays.
            let path = libc::strdup(path.as_ptr());
            if !path.is_null() {
                (&raw mut (*map).name).write(path);
            }
        }
        handle
    }
}

written_out! {
    dlopen => SYS_openat;
}
