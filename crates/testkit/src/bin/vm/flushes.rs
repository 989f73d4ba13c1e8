//! Makes the flushes of a program visible to the emulator's plugin (`crates/testkit/vm/cache.c`).
//!
//! A plugin is told of loads and stores, and the emulator makes nothing of `clwb`. So each `clwb` is
//! replaced by `fcom`, a comparison of the floating-point stack with what is in the line: it loads
//! from the same address, is encoded in as many bytes, and changes nothing but the status of the
//! old floating-point unit, which these programs do not use.
//!
//! # Invariant
//! Only the machine's copy of a program is changed, and only where the disassembler finds `clwb`.

use std::path::Path;
use std::process::Command;

/// Replaces all `clwb` of an ELF file by `fcom`. Gives their number.
pub fn observe(path: &Path) -> Result<usize, String> {
    let says = |error: std::io::Error| format!("{}: {error}", path.display());
    let mut bytes = std::fs::read(path).map_err(says)?;
    let output = Command::new("objdump")
        .args(["-d", "--wide"])
        .arg(path)
        .output()
        .map_err(|error| format!("objdump: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut count = 0;
    for line in text.lines().filter(|line| line.contains("clwb")) {
        let (address, code) = parse(line).ok_or_else(|| format!("objdump says: {line}"))?;
        let seen = replacement(&code).ok_or_else(|| format!("an unknown form of clwb: {line}"))?;
        let offset = file_offset(&bytes, address);
        let place = offset.and_then(|offset| bytes.get_mut(offset..offset + code.len()));
        match place {
            Some(place) if *place == *code => place.copy_from_slice(&seen),
            _ => return Err(format!("{}: nothing at {address:#x}", path.display())),
        }
        count += 1;
    }
    std::fs::write(path, bytes).map_err(says)?;
    Ok(count)
}

/// Address and bytes of a line such as `  1234:\t66 0f ae 30 \tclwb (%rax)`.
fn parse(line: &str) -> Option<(u64, Vec<u8>)> {
    let (address, rest) = line.split_once(':')?;
    let address = u64::from_str_radix(address.trim(), 16).ok()?;
    let code = rest.split('\t').nth(1)?;
    let bytes = code
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).ok());
    Some((address, bytes.collect::<Option<_>>()?))
}

/// `66 [REX] 0F AE /6` becomes `66 90 [REX] D8 /2`: a no-operation and `fcom m32`.
fn replacement(code: &[u8]) -> Option<Vec<u8>> {
    let (rex, operands) = match code {
        [0x66, rex @ 0x40..=0x4f, 0x0f, 0xae, operands @ ..] => (Some(*rex), operands),
        [0x66, 0x0f, 0xae, operands @ ..] => (None, operands),
        _ => return None,
    };
    let (&form, further) = operands.split_first()?;
    let is_memory = form < 0xc0 && form & 0x38 == 0x30;
    let mut seen = vec![0x66, 0x90];
    seen.extend(rex);
    seen.extend([0xd8, form & !0x38 | 0x10]);
    seen.extend_from_slice(further);
    is_memory.then_some(seen)
}

/// Where in an ELF file of 64 bits what is loaded at `address` lies.
fn file_offset(elf: &[u8], address: u64) -> Option<usize> {
    let word = |at: usize, length: usize| -> Option<u64> {
        let mut bytes = [0; 8];
        bytes[..length].copy_from_slice(elf.get(at..at + length)?);
        Some(u64::from_le_bytes(bytes))
    };
    if elf.get(..5)? != b"\x7fELF\x02" {
        return None;
    }
    let (table, size, count) = (word(32, 8)?, word(54, 2)?, word(56, 2)?);
    for index in 0..count {
        let at = usize::try_from(table + index * size).ok()?;
        let is_loaded = word(at, 4)? == 1;
        let (offset, start, length) = (word(at + 8, 8)?, word(at + 16, 8)?, word(at + 32, 8)?);
        if is_loaded && (start..start.saturating_add(length)).contains(&address) {
            return usize::try_from(offset + (address - start)).ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clwb_becomes_a_load_of_the_same_length() {
        let cases: [(&[u8], &[u8]); 3] = [
            // (%rax), (%r12), 0x0(%r13)
            (&[0x66, 0x0f, 0xae, 0x30], &[0x66, 0x90, 0xd8, 0x10]),
            (
                &[0x66, 0x41, 0x0f, 0xae, 0x34, 0x24],
                &[0x66, 0x90, 0x41, 0xd8, 0x14, 0x24],
            ),
            (
                &[0x66, 0x41, 0x0f, 0xae, 0x75, 0x00],
                &[0x66, 0x90, 0x41, 0xd8, 0x55, 0x00],
            ),
        ];
        for (code, seen) in cases {
            assert_eq!(replacement(code).as_deref(), Some(seen));
        }
        // sfence, clflushopt, a register.
        for other in [
            &[0x0f, 0xae, 0xf8][..],
            &[0x66, 0x0f, 0xae, 0x38],
            &[0x66, 0x0f, 0xae, 0xf0],
        ] {
            assert_eq!(replacement(other), None);
        }
    }

    #[test]
    fn lines_of_the_disassembler() {
        let line = "   1a2b:\t66 41 0f ae 34 24    \tclwb   (%r12)";
        assert_eq!(
            parse(line),
            Some((0x1a2b, vec![0x66, 0x41, 0x0f, 0xae, 0x34, 0x24]))
        );
        assert_eq!(parse("clwb:"), None);
    }
}
