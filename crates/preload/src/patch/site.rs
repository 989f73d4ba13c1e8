//! A site: which `syscall` instructions can be rewritten, and the stub that takes the place of one.

use super::places::Area;
use super::stub::write_stub;
use super::text::Jump;
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

/// What comes before a `syscall` that can be rewritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Before {
    /// The instruction of five bytes that a jump takes the place of.
    pub site: usize,
    /// The call's number, if that instruction puts it into `eax`. Otherwise it puts a constant into another
    /// register, and belongs to what is copied.
    pub number: Option<usize>,
}

/// What comes before the `syscall` that ends at `after`, if all that is between may be copied: a `mov eax` of
/// the number, which the caller knows where it has trapped; or else, as in loops that keep the number in a
/// register, a `mov` of another constant.
///
/// # Safety
/// The [`BETWEEN`] + 8 bytes before `after` can be read.
pub unsafe fn find_before(after: usize, known: Option<usize>) -> Option<Before> {
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
    let start = after - bytes.len();
    // A prefix would make it another register's mov.
    let places = || {
        (3..=end - 5)
            .rev()
            .filter(|at| !(0x40..=0x4f).contains(&bytes[*at - 1]))
    };
    // What looks like a `mov` may be the operand of a longer instruction.
    let is_whole = |at: usize| {
        let with_constant = |byte: u8| matches!(byte, 0x69 | 0x81 | 0xc7);
        !with_constant(bytes[at - 2]) && !with_constant(bytes[at - 3])
    };
    for at in places().filter(|at| bytes[*at] == 0xb8) {
        let number =
            u32::from_le_bytes([bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4]]);
        let number = number as usize;
        let is_it = match known {
            Some(known) => known == number,
            None => number < numbers::COUNT && is_whole(at),
        };
        if is_it && are_simple(&bytes[at + 5..end]) {
            let (site, number) = (start + at, Some(number));
            return Some(Before { site, number });
        }
    }
    // mov eax, register: the last, of two bytes, or of three for the higher registers.
    let (rest, source) = match bytes[..end] {
        [.., 0x44, 0x89, operands] if operands & 0xc7 == 0xc0 => (3, operands >> 3 & 7 | 8),
        [.., 0x89, operands] if operands & 0xc7 == 0xc0 => (2, operands >> 3 & 7),
        _ => return None,
    };
    let loaded = end - rest;
    let constants = places().filter(|at| *at + 5 <= loaded && matches!(bytes[*at], 0xb9..=0xbf));
    let other = |at: &usize| bytes[*at] != 0xbc && bytes[*at] & 7 != source;
    for at in constants.filter(other).filter(|at| is_whole(*at)) {
        if are_simple(&bytes[at + 5..loaded]) {
            return Some(Before {
                site: start + at,
                number: None,
            });
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
            // xor and and of a register and a constant, of a byte or of four.
            (0x80, [operands, ..])
                if operands >> 3 == 0x1e && !matches!(second(operands), 0 | 4) =>
            {
                3
            }
            (0x81, [operands, ..])
                if operands >> 3 == 0x1c && !matches!(second(operands), 0 | 4) =>
            {
                6
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

/// The jump for what [`find_before`] found before the `syscall` that ends at `after`. `None` if there is no
/// room for its stub.
///
/// # Safety
/// The text can be read; the patch lock is held, or no other thread runs.
pub unsafe fn make_jump(area: &Area, size: usize, before: Before, after: usize) -> Option<Jump> {
    let Before { site, number } = before;
    let from = if number.is_some() { site + 5 } else { site };
    // SAFETY: the caller's promise.
    let stub = unsafe {
        let copied = std::slice::from_raw_parts(from as *const u8, after - 2 - from);
        make_stub(area, size, number, copied, after)?
    };
    Some(Jump { site, stub })
}

/// Writes the stub of a call made by the `syscall` that ends at `after`. `None` if there is no
/// room for it.
pub unsafe fn make_stub(
    area: &Area,
    size: usize,
    number: Option<usize>,
    between: &[u8],
    after: usize,
) -> Option<usize> {
    if between.len() > BETWEEN + 5 {
        return None;
    }
    let Some(number) = number else {
        // SAFETY: the caller's promise.
        return unsafe {
            write_stub(area, size, |code| {
                code.push(between);
                // mov ecx, eax
                code.push_entry(after, |code| code.push(&[0x89, 0xc1]));
                code.push_jump(after);
            })
        };
    };
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
        // and esi, 128; xor sil, 129 (pthread_mutex_unlock); xor dl, 129.
        assert!(are_simple(&[
            0x81, 0xe6, 0x80, 0, 0, 0, 0x40, 0x80, 0xf6, 0x81, 0x80, 0xf2, 0x81
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
            &[0x80, 0xf0, 0x81],
            &[0x40, 0x80, 0xf4, 0x81],
            &[0x81, 0xe4, 0x80, 0, 0, 0],
        ] {
            assert!(!are_simple(not_copied), "{not_copied:x?}");
        }
    }
}
