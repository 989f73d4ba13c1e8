//! What an executable file is to a library that is to be loaded into it by `LD_PRELOAD`: whether the system
//! loads libraries into it at all, and whether it uses the libc that the library replaces.
//!
//! Also whether it has a runtime that wants to be loaded before all others ([`Runtime`]).
//!
//! `arck run` asks of its command, and the preload library of each program that is executed from there on.
//!
//! Invariants:
//! * A file may say anything: each offset and length is checked, each loop bounded, and what makes no sense
//!   is [`Kind::Unknown`].
//! * No allocation, and stacks of a few hundred bytes: it runs in children of threaded programs.

#![forbid(unsafe_code)]

mod runtime;

pub use runtime::{BEFORE_MAX, Runtime};

/// Bytes of a file's beginning that [`Kind::of`] should be given; what lies there is not read again. It is
/// where compilers put all that is looked at of an ordinary program.
pub const START: usize = 1024;

const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SEGMENTS_MAX: u64 = 128;
const NOTES_MAX: usize = 64;
const DYNAMIC_MAX: u64 = 64;
/// Longest path of a dynamic linker that is looked at.
pub const LINKER_MAX: usize = 256;

const PT_DYNAMIC: u64 = 2;
const PT_INTERP: u64 = 3;
const PT_NOTE: u64 = 4;
const DT_NEEDED: u64 = 1;
const DT_SONAME: u64 = 14;
const EM_X86_64: u64 = 62;

/// What kind of executable a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Loads libraries, through the dynamic linker whose path is so many bytes at this place of the file.
    Dynamic {
        place: u64,
        length: usize,
    },
    /// The same through a linker of another libc than glibc.
    OtherLibc,
    /// Go's, without libc: it makes system calls by its own instructions, and threads in its own way.
    Go,
    Static,
    /// ELF, but not of 64-bit x86.
    OtherMachine,
    /// A script, no program, or damaged.
    Unknown,
}

impl Kind {
    /// Why the library does not serve such a program; `None`: it does, or that cannot be seen.
    pub const fn why_unreached(self) -> Option<&'static str> {
        Some(match self {
            Kind::Dynamic { .. } | Kind::Unknown => return None,
            Kind::OtherLibc => "is built for another libc than glibc",
            Kind::Go => "is a Go program that makes system calls by itself, past all libraries",
            Kind::Static => "is a static executable, which loads no libraries",
            Kind::OtherMachine => "is not a 64-bit x86 executable",
        })
    }

    /// Of a file by its first bytes, [`START`] of them if it has so many, and a function that fills a buffer
    /// from an offset on, or says that it cannot.
    pub fn of(start: &[u8], mut read_at: impl FnMut(&mut [u8], u64) -> bool) -> Kind {
        if !start.starts_with(b"\x7fELF") {
            return Kind::Unknown;
        }
        let mut file = File {
            start,
            read_at: &mut read_at,
        };
        file.kind().unwrap_or(Kind::Unknown)
    }
}

/// A file, of which the beginning is there already.
struct File<'a> {
    start: &'a [u8],
    read_at: &'a mut dyn FnMut(&mut [u8], u64) -> bool,
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<u64> {
    let mut word = [0; 8];
    word.get_mut(..size)?
        .copy_from_slice(bytes.get(at..at.checked_add(size)?)?);
    Some(u64::from_le_bytes(word))
}

impl File<'_> {
    fn read<const N: usize>(&mut self, place: u64) -> Option<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, place)?;
        Some(bytes)
    }

    fn fill(&mut self, bytes: &mut [u8], place: u64) -> Option<()> {
        let from = usize::try_from(place).ok();
        let there = from.and_then(|from| self.start.get(from..from.checked_add(bytes.len())?));
        match there {
            Some(there) => bytes.copy_from_slice(there),
            None if (self.read_at)(bytes, place) => {}
            None => return None,
        }
        Some(())
    }

    /// `None`: it is cut off, or makes no sense.
    fn kind(&mut self) -> Option<Kind> {
        let header: [u8; HEADER] = self.read(0)?;
        // 64-bit, little-endian.
        if header[4] != 2 || header[5] != 1 || number(&header, 18, 2)? != EM_X86_64 {
            return Some(Kind::OtherMachine);
        }
        let table = number(&header, 32, 8)?;
        let size = number(&header, 54, 2)?;
        if size < SEGMENT as u64 {
            return None;
        }
        let (mut linker, mut go, mut needed) = (None, false, None);
        for index in 0..number(&header, 56, 2)?.min(SEGMENTS_MAX) {
            let segment: [u8; SEGMENT] = self.read(table.checked_add(index * size)?)?;
            let (place, length) = (number(&segment, 8, 8)?, number(&segment, 32, 8)?);
            match number(&segment, 0, 4)? {
                PT_INTERP => linker = Some((place, length)),
                PT_NOTE => go |= self.has_note_of_go(place, length),
                PT_DYNAMIC => needed = Some((place, length)),
                _ => {}
            }
        }
        let mut has = |tag| needed.is_some_and(|(place, length)| self.has(tag, place, length));
        let Some((place, length)) = linker else {
            return Some(match go {
                true => Kind::Go,
                // A dynamic linker, called by its name, loads libraries itself.
                false if has(DT_SONAME) => Kind::Unknown,
                false => Kind::Static,
            });
        };
        // One that needs no library has no libc's, whoever loads it.
        if go && !has(DT_NEEDED) {
            return Some(Kind::Go);
        }
        let length = usize::try_from(length).ok().filter(|n| *n <= LINKER_MAX)?;
        Some(match self.is_of_other_libc(place, length)? {
            true => Kind::OtherLibc,
            false => Kind::Dynamic { place, length },
        })
    }

    /// Whether one of a segment's notes is what Go's linker writes: which build it is.
    fn has_note_of_go(&mut self, mut place: u64, length: u64) -> bool {
        let end = place.saturating_add(length);
        for _ in 0..NOTES_MAX {
            if place.saturating_add(16) > end {
                break;
            }
            let Some(note) = self.read::<16>(place) else {
                break;
            };
            let (Some(name), Some(description)) = (number(&note, 0, 4), number(&note, 4, 4)) else {
                break;
            };
            if name == 4 && note[12..] == *b"Go\0\0" {
                return true;
            }
            place = place
                .saturating_add(12 + name.next_multiple_of(4) + description.next_multiple_of(4));
        }
        false
    }

    /// Whether a dynamic section has an entry of this kind.
    fn has(&mut self, wanted: u64, place: u64, length: u64) -> bool {
        (0..(length / 16).min(DYNAMIC_MAX))
            .map_while(|index| self.read::<8>(place.checked_add(index * 16)?))
            .map(u64::from_le_bytes)
            .take_while(|tag| *tag != 0)
            .any(|tag| tag == wanted)
    }

    /// Whether the linker's name is that of another libc's.
    fn is_of_other_libc(&mut self, place: u64, length: usize) -> Option<bool> {
        let mut path = [0; LINKER_MAX];
        let path = path.get_mut(..length)?;
        self.fill(path, place)?;
        let name = path.rsplit(|byte| *byte == b'/').next()?;
        let others = [&b"ld-musl"[..], b"ld64-uClibc", b"ld-uClibc", b"linker64"];
        Some(others.iter().any(|other| name.starts_with(other)))
    }
}

#[cfg(test)]
mod tests;
