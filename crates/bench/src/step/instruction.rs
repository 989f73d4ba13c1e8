//! What one instruction does: of which kind it is, and which memory it reads and writes.

use iced_x86::{
    Decoder, DecoderOptions, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register,
    UsedMemory,
};
use libc::user_regs_struct;

/// Bytes of the longest instruction.
pub const LONGEST: usize = 15;
/// Bytes of a cache line.
pub const LINE: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Other,
    /// Writes a cache line back: clwb, clflushopt, clflush.
    Flush,
    /// Stores past the cache.
    Streaming,
    /// sfence and mfence.
    Fence,
    /// With a lock prefix, or as if it had one.
    Locked,
    KernelCall,
}

/// See the module's head.
#[derive(Debug)]
pub struct Instruction {
    pub kind: Kind,
    /// A string instruction that a prefix repeats: each time is a step.
    pub repeats: bool,
    memory: Vec<UsedMemory>,
}

impl Instruction {
    /// The instruction that `bytes` begin with, which lies at `address`.
    pub fn decode(bytes: &[u8], address: u64) -> Instruction {
        let decoded = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE).decode();
        let kind = match decoded.mnemonic() {
            Mnemonic::Clwb | Mnemonic::Clflushopt | Mnemonic::Clflush => Kind::Flush,
            Mnemonic::Movnti
            | Mnemonic::Movntdq
            | Mnemonic::Movntps
            | Mnemonic::Movntpd
            | Mnemonic::Movntq
            | Mnemonic::Vmovntdq
            | Mnemonic::Vmovntps
            | Mnemonic::Vmovntpd
            | Mnemonic::Movdiri
            | Mnemonic::Movdir64b => Kind::Streaming,
            Mnemonic::Sfence | Mnemonic::Mfence => Kind::Fence,
            Mnemonic::Syscall => Kind::KernelCall,
            Mnemonic::Xchg if decoded.op0_kind() == OpKind::Memory => Kind::Locked,
            _ if decoded.has_lock_prefix() => Kind::Locked,
            _ => Kind::Other,
        };
        let memory = match kind {
            // It takes a line out of the cache, and needs nothing of it.
            Kind::Flush => Vec::new(),
            _ => InstructionInfoFactory::new()
                .info(&decoded)
                .used_memory()
                .to_vec(),
        };
        Instruction {
            kind,
            repeats: decoded.is_string_instruction()
                && (decoded.has_rep_prefix() || decoded.has_repne_prefix()),
            memory,
        }
    }

    /// Tells the lines that it touches, if registers hold this: address of the line, whether it is read, whether it
    /// is written.
    pub fn lines(&self, registers: &user_regs_struct, mut touch: impl FnMut(u64, bool, bool)) {
        if self.repeats && registers.rcx == 0 {
            return;
        }
        for memory in &self.memory {
            let (reads, writes) = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => (true, false),
                OpAccess::Write | OpAccess::CondWrite => (false, true),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
                _ => continue,
            };
            let value = |register, _, _| value(register, registers);
            let Some(address) = memory.virtual_address(0, value) else {
                continue;
            };
            // Some sizes are known at run time only: a byte of it at least.
            let size = (memory.memory_size().size() as u64).max(1);
            let (first, last) = (address / LINE, address.wrapping_add(size - 1) / LINE);
            (first..=last).for_each(|line| touch(line * LINE, reads, writes));
        }
    }
}

/// What a register holds that addresses are made of.
fn value(register: Register, registers: &user_regs_struct) -> Option<u64> {
    let segment = match register {
        Register::FS => Some(registers.fs_base),
        Register::GS => Some(registers.gs_base),
        Register::CS | Register::DS | Register::ES | Register::SS => Some(0),
        _ => None,
    };
    if segment.is_some() {
        return segment;
    }
    let whole = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        // Vectors of addresses, which nothing here uses.
        _ => return None,
    };
    Some(match register.size() {
        4 => whole & 0xffff_ffff,
        _ => whole,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all zeroes.
    fn registers() -> user_regs_struct {
        // SAFETY: plain numbers, of which zero is one.
        unsafe { std::mem::zeroed() }
    }

    #[test]
    fn kinds() {
        let cases: &[(&[u8], Kind)] = &[
            (&[0x66, 0x0f, 0xae, 0x30], Kind::Flush),     // clwb [rax]
            (&[0x66, 0x0f, 0xae, 0x38], Kind::Flush),     // clflushopt [rax]
            (&[0x0f, 0xae, 0x38], Kind::Flush),           // clflush [rax]
            (&[0x0f, 0xc3, 0x08], Kind::Streaming),       // movnti [rax], ecx
            (&[0x66, 0x0f, 0xe7, 0x00], Kind::Streaming), // movntdq [rax], xmm0
            (&[0x0f, 0x2b, 0x00], Kind::Streaming),       // movntps [rax], xmm0
            (&[0xc5, 0xfd, 0xe7, 0x00], Kind::Streaming), // vmovntdq [rax], ymm0
            (&[0x0f, 0xae, 0xf8], Kind::Fence),           // sfence
            (&[0x0f, 0xae, 0xf0], Kind::Fence),           // mfence
            (&[0x0f, 0xae, 0xe8], Kind::Other),           // lfence
            (&[0x87, 0x08], Kind::Locked),                // xchg [rax], ecx
            (&[0x87, 0xc8], Kind::Other),                 // xchg eax, ecx
            (&[0xf0, 0x0f, 0xb1, 0x08], Kind::Locked),    // lock cmpxchg [rax], ecx
            (&[0x0f, 0xb1, 0x08], Kind::Other),           // cmpxchg [rax], ecx
            (&[0x0f, 0x05], Kind::KernelCall),            // syscall
            (&[0x90], Kind::Other),                       // nop
        ];
        for (bytes, kind) in cases {
            assert_eq!(Instruction::decode(bytes, 0).kind, *kind, "{bytes:x?}");
        }
    }

    #[test]
    fn lines_of_operands() {
        let mut registers = registers();
        (registers.rax, registers.rsi, registers.rdi) = (0x1000, 0x2000, 0x3000);
        (registers.rsp, registers.fs_base) = (0x4000, 0x5000);
        let of = |bytes: &[u8], registers: &user_regs_struct| {
            let mut found = Vec::new();
            let instruction = Instruction::decode(bytes, 0x6000);
            instruction.lines(registers, |line, reads, writes| {
                found.push((line, reads, writes));
            });
            found.sort_unstable();
            found
        };
        type Lines = [(u64, bool, bool)];
        let cases: &[(&[u8], &Lines)] = &[
            (&[0x48, 0x8b, 0x48, 0x08], &[(0x1000, true, false)]), // mov rcx, [rax + 8]
            // mov [rax + 60], rcx: across two lines.
            (
                &[0x48, 0x89, 0x48, 0x3c],
                &[(0x1000, false, true), (0x1040, false, true)],
            ),
            (&[0x48, 0x01, 0x08], &[(0x1000, true, true)]), // add [rax], rcx
            (&[0x51], &[(0x3fc0, false, true)]),            // push rcx
            (&[0x59], &[(0x4000, true, false)]),            // pop rcx
            // mov rcx, fs:[0x40]
            (
                &[0x64, 0x48, 0x8b, 0x0c, 0x25, 0x40, 0, 0, 0],
                &[(0x5040, true, false)],
            ),
            // mov rcx, [rip + 0x100], seven bytes long
            (&[0x48, 0x8b, 0x0d, 0, 1, 0, 0], &[(0x6100, true, false)]),
            (&[0xa4], &[(0x2000, true, false), (0x3000, false, true)]), // movsb
            (&[0xf3, 0xa4], &[]),                                       // rep movsb, no more times
            (&[0x48, 0x8d, 0x48, 0x08], &[]),                           // lea rcx, [rax + 8]
            (&[0x0f, 0x18, 0x08], &[]),                                 // prefetcht0 [rax]
            (&[0x66, 0x0f, 0xae, 0x30], &[]),                           // clwb [rax]
        ];
        for (bytes, lines) in cases {
            assert_eq!(&of(bytes, &registers)[..], *lines, "{bytes:x?}");
        }
        registers.rcx = 5;
        assert_eq!(of(&[0xf3, 0xa4], &registers).len(), 2);
    }
}
