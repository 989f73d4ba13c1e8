//! What the kernel says that this process has mapped (`/proc/self/maps`).
//!
//! Invariant: it is as it was when it was read; another thread may have changed it since.

use crate::memory;
use arckfs::Errno;
use rustix::fs::{Mode, OFlags};
use std::ops::Range;

/// The text, a line for each mapping. ENOENT where there is no `/proc`.
pub fn read() -> Result<Vec<u8>, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(c"/proc/self/maps", flags, Mode::empty())?;
    let mut text = Vec::with_capacity(64 << 10);
    let mut piece = [0; 1024];
    loop {
        match rustix::io::read(&file, &mut piece)? {
            0 => return Ok(text),
            count => text.extend_from_slice(&piece[..count]),
        }
    }
}

/// The lines that say where something is, and these addresses; of the kernel's own half none.
pub fn lines(text: &[u8]) -> impl Iterator<Item = (Range<usize>, &[u8])> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter_map(|line| Some((range(line)?, line)))
}

fn range(line: &[u8]) -> Option<Range<usize>> {
    let range = line.split(|&byte| byte == b' ').next()?;
    let (from, to) = std::str::from_utf8(range).ok()?.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    let range = number(from)?..number(to)?;
    (!range.is_empty() && !memory::is_nowhere(range.end)).then_some(range)
}

/// Whether a line is of a file's text, mapped for this process alone and not to be written.
fn is_text(line: &[u8]) -> bool {
    let mut words = line
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    let access = words.nth(1);
    // Behind the offset and the device: the file's inode number.
    let file = words.nth(2);
    access == Some(b"r-xp") && file.is_some_and(|number| number != b"0")
}

/// Whether all between two addresses is text of a file, mapped for this process alone and not to be written. False where that cannot be told.
pub fn is_a_files_text(wanted: Range<usize>) -> bool {
    let Ok(text) = read() else { return false };
    let holds = |range: &Range<usize>| range.start <= wanted.start && wanted.end <= range.end;
    lines(&text).any(|(range, line)| holds(&range) && is_text(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let text = b"55d5c1000000-55d5c1002000 r-xp 00001000 fe:00 1234   /usr/bin/fio\n\
            7ffe00000000-7ffe00021000 rw-p 00000000 00:00 0     [stack]\n\
            7f0000000000-7f0000001000 r-xs 00000000 00:01 77    /memfd:a\n\
            7f0000002000-7f0000003000 r-xp 00000000 00:00 0\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n\
            nonsense\n\n";
        let read = lines(text).map(|(range, line)| (range, is_text(line)));
        assert_eq!(
            read.collect::<Vec<_>>(),
            [
                (0x55d5_c100_0000..0x55d5_c100_2000, true),
                (0x7ffe_0000_0000..0x7ffe_0002_1000, false),
                (0x7f00_0000_0000..0x7f00_0000_1000, false),
                (0x7f00_0000_2000..0x7f00_0000_3000, false),
            ]
        );
    }

    #[test]
    fn text_of_files_is_told_from_other_memory() {
        let text = lines_are_read as *const () as usize;
        assert!(is_a_files_text(text..text + 8));
        let data = 0u64;
        let at = &raw const data as usize;
        assert!(!is_a_files_text(at..at + 8));
        assert!(!is_a_files_text(8..16));
        // Nothing reaches over two.
        assert!(!is_a_files_text(at.min(text)..at.max(text)));
    }
}
