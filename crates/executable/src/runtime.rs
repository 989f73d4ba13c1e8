//! A library that insists on being the first one that the loader loads: AddressSanitizer's runtime. It ends a
//! program in which another comes before it, and a preloaded one would; so it is preloaded too, in front.
//!
//! Such a runtime is the first library that its program needs, since without preloaded ones it has to be the first
//! as well: no other is looked at.
//!
//! Invariants: those of the crate; a name has nothing in it that LD_PRELOAD cannot express.

use crate::{File, PT_DYNAMIC, SEGMENTS_MAX, number};

/// Longest name, with the byte behind it.
const NAME_MAX: usize = 64;
/// Entries of the dynamic section that are read at once: what is asked for stands in front.
const ENTRIES: u64 = 24;
const ENTRY: u64 = 16;
const PARTS_MAX: u64 = 8;

const PT_LOAD: u64 = 1;
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;

/// The runtime that a program wants first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Runtime {
    name: [u8; NAME_MAX],
    length: usize,
}

impl Runtime {
    /// As for [`crate::Kind::of`].
    pub fn of(start: &[u8], mut read_at: impl FnMut(&mut [u8], u64) -> bool) -> Option<Runtime> {
        let mut file = File {
            start,
            read_at: &mut read_at,
        };
        file.runtime()
    }

    /// One by its name, if it is one.
    pub fn named(found: &[u8]) -> Option<Runtime> {
        let mut name = [0; NAME_MAX];
        name.get_mut(..found.len())?.copy_from_slice(found);
        let length = found.len();
        is_runtime(found).then_some(Runtime { name, length })
    }

    /// What the loader finds it by, as the program itself says it.
    pub fn name(&self) -> &[u8] {
        &self.name[..self.length]
    }

    /// Of a list of libraries: what stands behind the runtime that [`Runtime::before`] has put there.
    pub fn behind(list: &[u8]) -> Option<&[u8]> {
        let end = list
            .windows(SEPARATOR.len())
            .position(|at| at == SEPARATOR)?;
        is_runtime(&list[..end]).then(|| &list[end + SEPARATOR.len()..])
    }

    /// What is to stand before a list of libraries: the name and an empty one, which the loader passes over and
    /// by which it is known that nobody else has put the runtime there.
    pub fn before(&self) -> [&[u8]; 2] {
        [self.name(), SEPARATOR]
    }
}

/// Longest that stands before a list.
pub const BEFORE_MAX: usize = NAME_MAX + SEPARATOR.len();

const SEPARATOR: &[u8] = b"::";

/// Whether it is the name of a runtime that looks whether it is the first: GCC's, and Clang's.
fn is_runtime(name: &[u8]) -> bool {
    let starts = [&b"libasan.so"[..], b"libclang_rt.asan"];
    starts.iter().any(|start| name.starts_with(start))
        && !name.iter().any(|byte| matches!(byte, b' ' | b':' | b'/'))
}

impl File<'_> {
    fn runtime(&mut self) -> Option<Runtime> {
        let (table, size, count) = self.segments()?;
        let mut dynamic = None;
        for index in 0..count {
            let segment = self.segment(table, size, index)?;
            if number(&segment, 0, 4)? == PT_DYNAMIC {
                dynamic = Some((number(&segment, 8, 8)?, number(&segment, 32, 8)?));
            }
        }
        let (place, length) = dynamic?;
        let (mut needed, mut strings) = (None, None);
        'all: for part in 0..PARTS_MAX {
            let begin = part * ENTRIES * ENTRY;
            let mut entries = [0; (ENTRIES * ENTRY) as usize];
            let left = length.checked_sub(begin)?.min(ENTRIES * ENTRY);
            let entries = entries.get_mut(..left as usize)?;
            self.fill(entries, place.checked_add(begin)?)?;
            for entry in entries.chunks_exact(ENTRY as usize) {
                match (number(entry, 0, 8)?, number(entry, 8, 8)?) {
                    (0, _) => break 'all,
                    (DT_NEEDED, value) => needed = needed.or(Some(value)),
                    (DT_STRTAB, value) => strings = Some(value),
                    _ => {}
                }
            }
            if strings.is_some() {
                break;
            }
        }
        let address = strings?.checked_add(needed?)?;
        for index in 0..count {
            let segment = self.segment(table, size, index)?;
            let within = address.checked_sub(number(&segment, 16, 8)?);
            if number(&segment, 0, 4)? != PT_LOAD {
                continue;
            }
            if let Some(within) = within
                && let Some(left) = number(&segment, 32, 8)?.checked_sub(within)
                && left > 0
            {
                let mut name = [0; NAME_MAX];
                // The file may end behind the name.
                let most = usize::try_from(left).map_or(NAME_MAX, |left| left.min(NAME_MAX));
                self.fill(
                    name.get_mut(..most)?,
                    number(&segment, 8, 8)?.checked_add(within)?,
                )?;
                let length = name.iter().position(|byte| *byte == 0)?;
                return Runtime::named(&name[..length]);
            }
        }
        None
    }

    /// Place, size of an entry and number of the table of segments.
    fn segments(&mut self) -> Option<(u64, u64, u64)> {
        let header: [u8; crate::HEADER] = self.read(0)?;
        let size = number(&header, 54, 2)?;
        let is_one = header.starts_with(b"\x7fELF\x02\x01") && size >= crate::SEGMENT as u64;
        let count = number(&header, 56, 2)?.min(SEGMENTS_MAX);
        is_one.then_some((number(&header, 32, 8)?, size, count))
    }

    fn segment(&mut self, table: u64, size: u64, index: u64) -> Option<[u8; crate::SEGMENT]> {
        self.read(table.checked_add(index * size)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::reading;
    use std::process::Command;

    fn of(file: &[u8]) -> Option<Runtime> {
        Runtime::of(&file[..file.len().min(crate::START)], reading(file))
    }

    /// What a compiler makes with these options.
    fn compiled(options: &[&str]) -> Vec<u8> {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("program");
        let source = place.path().join("source.c");
        std::fs::write(&source, "int main(void) { return 0; }\n").unwrap();
        let mut compile = Command::new("cc");
        let status = compile
            .args(options)
            .arg(&source)
            .arg("-o")
            .arg(&program)
            .status();
        assert!(status.unwrap().success(), "{compile:?}");
        std::fs::read(program).unwrap()
    }

    #[test]
    fn a_program_with_a_runtime_says_so() {
        let asan = compiled(&["-fsanitize=address"]);
        let found = of(&asan).expect("a runtime");
        assert!(found.name().starts_with(b"libasan.so."), "{found:?}");
        assert_eq!(
            of(&compiled(&["-fsanitize=address", "-static-libasan"])),
            None
        );
        assert_eq!(of(&compiled(&[])), None);
        assert_eq!(of(&compiled(&["-static"])), None);
        // Cut off, and with each byte of its head as large as can be.
        for length in 0..2048 {
            assert_eq!(of(&asan[..length]), None);
        }
        for at in 16..crate::START {
            let mut damaged = asan.clone();
            damaged[at] = 0xff;
            let _ = of(&damaged);
        }
    }

    #[test]
    fn what_is_put_before_a_list_is_found_again() {
        let runtime = of(&compiled(&["-fsanitize=address"])).unwrap();
        let list = [&runtime.before().concat()[..], b"/a.so:/b.so"].concat();
        assert_eq!(Runtime::behind(&list), Some(&b"/a.so:/b.so"[..]));
        for others in [
            &b"/a.so:/b.so"[..],
            b"/a.so::/b.so",
            b"libasan.so.8:/a.so",
            b"/x/libasan.so.8::/a.so",
            b"/a.so:libasan.so.8::/b.so",
            b"",
        ] {
            assert_eq!(Runtime::behind(others), None);
        }
    }
}
