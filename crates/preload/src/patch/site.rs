//! A site: which `syscall` instructions can be rewritten, and the stub that takes the place of one.

use super::places::Area;
use super::stub::write_stub;
use crate::calls::{self, numbers};
use crate::descriptors::replacements;
use crate::dispatch::kind;

/// Longest sequence of instructions between `mov eax` and `syscall`.
pub const BETWEEN: usize = 20;
pub fn is_simple(number: usize) -> bool {
    number < numbers::COUNT
        && !matches!(
            number as i64,
            libc::SYS_rt_sigreturn
                | libc::SYS_clone
                | libc::SYS_clone3
                | libc::SYS_fork
                | libc::SYS_vfork
                | libc::SYS_exit
        )
}

/// Where the `mov eax, number` before the `syscall` that ends at `after` begins, if all that is
/// between them may be copied.
///
/// # Safety
/// The [`BETWEEN`] + 8 bytes before `after` can be read.
pub unsafe fn find_move(number: usize, after: usize) -> Option<usize> {
    let mut bytes = [0u8; BETWEEN + 8];
    // SAFETY: the caller's promise. A copy, since text may change.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (after - bytes.len()) as *const u8,
            bytes.as_mut_ptr(),
            bytes.len(),
        );
    }
    let end = bytes.len() - 2;
    if bytes[end..] != [0x0f, 0x05] {
        return None;
    }
    let mut wanted = [0xb8, 0, 0, 0, 0];
    wanted[1..].copy_from_slice(&(number as u32).to_le_bytes());
    for at in (1..=end - 5).rev() {
        // A prefix would make it another register's mov.
        if bytes[at..at + 5] == wanted
            && !(0x40..=0x4f).contains(&bytes[at - 1])
            && are_simple(&bytes[at + 5..end])
        {
            return Some(after - bytes.len() + at);
        }
    }
    None
}

/// Whether these bytes are whole instructions that do the same anywhere and leave `eax` and the
/// stack pointer alone: moves and exclusive ors between registers, moves of constants into
/// registers, loads from the stack.
fn are_simple(mut code: &[u8]) -> bool {
    while let Some(first) = code.first() {
        let prefix = usize::from((0x40..=0x4f).contains(first));
        let Some([opcode, rest @ ..]) = code.get(prefix..) else {
            return false;
        };
        let bit = |bit: u8| prefix == 1 && *first & bit != 0;
        // The two operands, with the prefix's extensions; 0 is rax, 4 rsp.
        let second = |operands: &u8| operands & 7 | u8::from(bit(1)) << 3;
        let first = |operands: &u8| operands >> 3 & 7 | u8::from(bit(4)) << 3;
        let length = match (*opcode, rest) {
            // mov and xor, from the first register to the second.
            (0x89 | 0x31, [operands, ..])
                if operands >> 6 == 3
                    && first(operands) != 0
                    && !matches!(second(operands), 0 | 4) =>
            {
                2
            }
            // mov register, constant.
            (0xb9..=0xbf, _) if !bit(8) && *opcode != 0xbc => 5,
            // mov register, [rsp + constant of a byte].
            (0x8b, [operands, 0x24, ..])
                if operands & 0xc7 == 0x44 && !bit(3) && !matches!(first(operands), 0 | 4) =>
            {
                4
            }
            _ => return false,
        };
        let Some(next) = code.get(prefix + length..) else {
            return false;
        };
        code = next;
    }
    true
}

/// Writes the stub of a call made by the `syscall` that ends at `after`. `None` if there is no
/// room for it.
pub unsafe fn make_stub(
    area: &Area,
    size: usize,
    number: usize,
    between: &[u8],
    after: usize,
) -> Option<usize> {
    if between.len() > BETWEEN {
        return None;
    }
    let number_bytes = (number as u32).to_le_bytes();
    // SAFETY: the caller's promise.
    unsafe {
        write_stub(area, size, |code| {
            code.push(between);
            // With the exclusive dispatch a stub's own call would trap.
            if calls::is_handled(number) || kind::kind() == kind::Kind::Exclusive {
                code.push_entry(after, |code| {
                    // mov ecx, number
                    code.push(&[0xb9]);
                    code.push(&number_bytes);
                });
            } else {
                // mov r11, &flags; test byte ptr [r11], 1; jnz over what follows
                code.push(&[0x49, 0xbb]);
                code.push(&(replacements::spawned_child_flag() as u64).to_le_bytes());
                code.push(&[0x41, 0xf6, 0x03, replacements::SPAWNED_CHILD as u8]);
                code.push(&[0x75, 12]);
                // mov eax, number; syscall
                code.push(&[0xb8]);
                code.push(&number_bytes);
                code.push(&[0x0f, 0x05]);
                code.push_jump(after);
                // A child in its parent's memory does not make every call itself.
                code.push_entry(after, |code| {
                    code.push(&[0xb9]);
                    code.push(&number_bytes);
                });
            }
            code.push_jump(after);
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_copied() {
        // mov rsi, rdi; mov edi, -100 (as in __open64_nocancel).
        assert!(are_simple(&[
            0x48, 0x89, 0xfe, 0xbf, 0x9c, 0xff, 0xff, 0xff
        ]));
        // mov rdx, rsi; xor esi, esi (posix_fallocate); mov rsi, [rsp + 16]; mov edi, [rsp + 8].
        assert!(are_simple(&[0x48, 0x89, 0xf2, 0x31, 0xf6]));
        assert!(are_simple(&[
            0x48, 0x8b, 0x74, 0x24, 0x10, 0x8b, 0x7c, 0x24, 0x08
        ]));
        // mov r8, rdi; mov r12, rsp is copied too, since r12 is no stack pointer.
        assert!(are_simple(&[0x49, 0x89, 0xf8, 0x49, 0x89, 0xe4]));
        for not_copied in [
            // Cut off; a jump; a call; relative to the place; the stack pointer; eax; a store.
            &[0x48, 0x89][..],
            &[0x48],
            &[0xbf, 0x9c, 0xff],
            &[0xeb, 0x05],
            &[0xe8, 0, 0, 0, 0],
            &[0x48, 0x8d, 0x35, 0, 0, 0, 0],
            &[0x48, 0x89, 0xfc],
            &[0x48, 0x89, 0xf8],
            &[0xbc, 1, 0, 0, 0],
            &[0x48, 0xbf, 1, 0, 0, 0],
            &[0x8b, 0x44, 0x24, 8],
            &[0x8b, 0x64, 0x24, 8],
            &[0x89, 0xc7],
            &[0x89, 0x7c, 0x24, 8],
        ] {
            assert!(!are_simple(not_copied), "{not_copied:x?}");
        }
    }
}
