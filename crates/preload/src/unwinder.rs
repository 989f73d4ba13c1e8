//! The unwinder (`libgcc_s`), loaded when somebody unwinds.
//!
//! Rust's standard library unwinds by it when it panics, and libc when it cancels a thread or a thread
//! exits. As a needed library it would cost every program that is started four mappings, its
//! relocations, and a constructor that asks the processor some twenty questions, each of which is a
//! trap to the hypervisor in a virtual machine. So its functions are defined here, for this library
//! alone: each goes on to the real one by a jump, and the first use of any loads the library.
//!
//! It is linked to no copy of its own: who unwinds a thread that libc cancels must be the same one
//! that libc uses.
//!
//! Invariants:
//! * The real function finds the registers, the stack and the return address of its caller.
//! * Where libc cancels a thread, or one exits, everything is loaded before ([`load`]): a thread may
//!   be cancelled where it must not load anything.

use crate::patch;
use std::ffi::CStr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The library that libc unwinds with.
const LIBRARY: &CStr = c"libgcc_s.so.1";

/// Defines the functions: their numbers and names.
macro_rules! forwarded {
    ($count:literal: $($index:literal $name:literal;)*) => {
        /// Where the real ones are; 0 = not loaded yet.
        static FUNCTIONS: [AtomicUsize; $count] = [const { AtomicUsize::new(0) }; $count];

        const NAMES: [&CStr; $count] = [$({
            match CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name with a NUL byte"),
            }
        },)*];

        // A test's executable has the real ones.
        #[cfg(not(test))]
        std::arch::global_asm!(
            $(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ",@function"),
                concat!($name, ":"),
                ".cfi_startproc",
                concat!("mov rax, [rip + {functions} + 8 * ", $index, "]"),
                "test rax, rax",
                "jz 2f",
                "jmp rax",
                "2:",
                concat!("mov eax, ", $index),
                "jmp {first}",
                ".cfi_endproc",
                concat!(".size ", $name, ", . - ", $name),
            )*
            functions = sym FUNCTIONS,
            first = sym first,
        );
    };
}

forwarded! { 12:
    0 "_Unwind_Backtrace";
    1 "_Unwind_DeleteException";
    2 "_Unwind_GetDataRelBase";
    3 "_Unwind_GetIP";
    4 "_Unwind_GetIPInfo";
    5 "_Unwind_GetLanguageSpecificData";
    6 "_Unwind_GetRegionStart";
    7 "_Unwind_GetTextRelBase";
    8 "_Unwind_RaiseException";
    9 "_Unwind_Resume";
    10 "_Unwind_SetGR";
    11 "_Unwind_SetIP";
}

/// Loads all, and goes on with the function of which the number is in `eax`.
#[cfg(not(test))]
#[unsafe(naked)]
unsafe extern "C" fn first() {
    std::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        "mov edi, eax",
        "call {find}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        find = sym find,
    )
}

extern "C" fn find(index: usize) -> usize {
    load();
    FUNCTIONS[index].load(Ordering::Acquire)
}

/// Loads the unwinder, if it is not, and tells it of the stubs. Ends the program if there is none, as
/// libc does.
pub fn load() {
    /// Nothing is left to do; two threads may do it all at once.
    static DONE: AtomicBool = AtomicBool::new(false);
    if DONE.load(Ordering::Acquire) {
        return;
    }
    // While nobody takes memory: the unwinder takes some when it is told of stubs.
    patch::rewrite_known();
    // SAFETY: constant names; the library stays loaded.
    unsafe {
        let library = libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW);
        let find = |name: &CStr| match library.is_null() {
            true => 0,
            false => libc::dlsym(library, name.as_ptr()) as usize,
        };
        for (name, function) in NAMES.iter().zip(&FUNCTIONS) {
            let address = find(name);
            if address == 0 {
                crate::raw::print(
                    2,
                    b"arck: libgcc_s.so.1 must be installed for threads to be cancelled (Debian's libgcc-s1)\n",
                );
                std::process::abort();
            }
            function.store(address, Ordering::Release);
        }
        patch::unwinding::register(find(c"__register_frame"));
    }
    DONE.store(true, Ordering::Release);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_them_are_found() {
        for (index, name) in NAMES.iter().enumerate() {
            // SAFETY: a constant name.
            let real = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            assert_ne!(real as usize, 0, "{name:?}");
            assert_eq!(find(index), real as usize, "{name:?}");
        }
    }
}
