//! `dlopen` of a library stored on the pool.
//!
//! The loader's own calls are outside the net's range, so the library is copied into a memory
//! file and opened by its descriptor's path. Anything else goes on to libc's function by a jump,
//! because that looks at its return address to find the caller's search paths.

use crate::backend::{Failure, inside};
use crate::handlers::HERE;
use crate::path::{Place, Scratch, place};
use crate::{process, raw};
use std::ffi::CString;
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
    let mut scratch = Scratch::uninit();
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
    let mut scratch = Scratch::uninit();
    // SAFETY: the program's string; libc's own function.
    unsafe {
        let Place::Pool(at, relative) = place(HERE, path as usize, &mut scratch) else {
            return real()(path, flags);
        };
        let copied = inside(|fs| {
            let handle = fs.open(at, relative, libc::O_RDONLY, 0)?;
            let file = process::copy_to_memory(fs, handle);
            fs.close(handle);
            file
        });
        match copied {
            Ok(file) if file >= 0 => {
                let result = real()(raw::descriptor_path(file as usize).pointer().cast(), flags);
                raw::close(file);
                result
            }
            Err(Failure::Outside(host)) => match CString::new(host) {
                Ok(host) => real()(host.as_ptr(), flags),
                Err(_) => std::ptr::null_mut(),
            },
            // Let the loader say that there is no such file.
            _ => real()(path, flags),
        }
    }
}

written_out! {
    dlopen => SYS_openat;
}
