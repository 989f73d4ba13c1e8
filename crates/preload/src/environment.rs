//! The environment of executed programs.
//!
//! Invariant: built in memory mapped for the purpose, without the allocator, so that it works in
//! a forked child of a threaded program. What the program sets itself wins, except that this
//! library stays in LD_PRELOAD and ARCK_CWD tells the true working directory.

use crate::lock_files::Handed;
use crate::patch::traps;
use crate::process::spawn;
use crate::{directory, memory, raw, settings};
use arck_executable::{BEFORE_MAX, Runtime};
use std::ffi::CStr;

/// How our names in LD_PRELOAD begin: as nobody else would write it.
pub const MARK: &[u8] = b"/proc/self/fd//";

/// A new environment; unmapped when dropped.
pub struct Executed {
    memory: *mut u8,
    size: usize,
    list: usize,
    /// The end of the list, where [`TELLS`] entries may be put, and where their strings are: see
    /// `process::identity`.
    end: *mut usize,
    told: *mut u8,
    /// The entry of LD_PRELOAD, and where its value begins: before which there is room for [`BEFORE_MAX`] more.
    preload: *mut usize,
    libraries: *mut u8,
}

/// See `lock_files`.
const LOCKS: &[u8] = b"ARCK_LOCKS=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
const TELLS: usize = 3;
/// Room for one of them: the variable's name, a path with its NUL byte.
const TOLD: usize = 16 + settings::PATH_MAX;

/// Whether an array of strings can be read up to its null pointer, and where its strings begin.
pub fn is_readable(array: usize) -> bool {
    if array == 0 {
        return true;
    }
    for i in 0.. {
        // SAFETY: an address is a number.
        match unsafe { memory::copy_in::<usize>(array + i * size_of::<usize>()) } {
            Ok(0) => return true,
            Ok(entry) if memory::is_readable(entry) => {}
            _ => return false,
        }
    }
    false
}

/// Number of entries of a NULL-terminated array of pointers; 0 for null.
///
/// # Safety
/// `array` is null or such an array.
pub unsafe fn length(array: usize) -> usize {
    let mut n = 0;
    // SAFETY: the caller's promise.
    unsafe {
        while array >= 4096 && *(array as *const usize).add(n) != 0 {
            n += 1;
        }
    }
    n
}

/// The value of a variable, whose name is given with its `=`.
///
/// # Safety
/// `array` is null or a NULL-terminated array of strings, which lives as long as the result.
pub unsafe fn value<'a>(array: usize, name: &[u8]) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    unsafe {
        (0..length(array)).find_map(|i| {
            let entry = *(array as *const *const libc::c_char).add(i);
            CStr::from_ptr(entry).to_bytes().strip_prefix(name)
        })
    }
}

impl Executed {
    /// `handed`: the lock files that the new program gets.
    ///
    /// # Safety
    /// `given` is null or a NULL-terminated array of strings, which lives as long as the result.
    pub unsafe fn build<S: Fn(usize) -> bool>(
        given: usize,
        handed: &Handed<S>,
    ) -> Option<Executed> {
        // SAFETY: the caller's promise; writes stay within the mapping, whose size counts every
        // string and pointer that is written.
        unsafe {
            let count = length(given);
            let entry =
                |i: usize| CStr::from_ptr(*(given as *const *const libc::c_char).add(i)).to_bytes();
            // Without the libraries that only this program was given (see `process::libraries`).
            let preload = (0..count)
                .find_map(|i| entry(i).strip_prefix(PRELOAD))
                .map(|value| Runtime::behind(value).unwrap_or(value))
                .map(|value| {
                    let mark = MARK;
                    let cut = value.windows(mark.len()).position(|part| part == mark);
                    cut.map_or(value, |cut| &value[..cut.saturating_sub(1)])
                });
            let library = match settings::root_changed() {
                false => settings::LIBRARY.get(),
                true => b"",
            };
            let mut directory = [0u8; settings::PATH_MAX];
            let directory_length = directory::name(&mut directory).unwrap_or(0).max(1) as usize - 1;
            let sites = traps::tell();
            let added: [(&[u8], &[u8]); 16] = [
                (b"ARCK_POOL=", settings::POOL.get()),
                (b"ARCK_MOUNT=", settings::MOUNT.get()),
                (b"ARCK_GROUP=", settings::GROUP.get()),
                (b"ARCK_FS=", settings::FILE_SYSTEM.get()),
                (b"ARCK_DELEGATE=", settings::DELEGATES.get()),
                (b"ARCK_AT_ONCE=", settings::AT_ONCE.get()),
                (b"ARCK_REPORT=", settings::REPORT.get()),
                (b"ARCK_DISPATCH=", settings::DISPATCH.get()),
                (b"ARCK_PATCH=", settings::PATCH.get()),
                (b"ARCK_KEEP=", settings::KEEP.get()),
                (b"ARCK_STRICT=", settings::STRICT.get()),
                (b"ARCK_QUIET=", settings::QUIET.get()),
                (b"ARCK_SAID=", settings::SAID.get()),
                (b"ARCK_BENEATH=", settings::BENEATH.get()),
                (b"ARCK_CWD=", &directory[..directory_length]),
                (b"ARCK_SITES=", sites.bytes()),
            ];
            let locks_max = handed.text_max();
            let strings = added
                .iter()
                .map(|(name, value)| name.len() + value.len() + 1)
                .sum::<usize>()
                + library.len()
                + preload.map_or(0, <[u8]>::len)
                + BEFORE_MAX
                + LOCKS.len()
                + locks_max
                + 32;
            // With LD_PRELOAD, ARCK_LOCKS and the null pointer.
            let entries_most = count + added.len() + TELLS + 3;
            let size = entries_most * size_of::<usize>() + strings + TELLS * TOLD;
            let memory = raw::map_anonymous(size)?;
            spawn::note_mapping(memory, size);
            let list = memory.cast::<usize>();
            let mut text = memory.add(entries_most * size_of::<usize>());
            let mut entries = 0;
            let mut push = |address: usize| {
                let place = list.add(entries);
                place.write(address);
                entries += 1;
                place
            };
            let mut write = |parts: &[&[u8]]| {
                let start = text;
                for part in parts {
                    std::ptr::copy_nonoverlapping(part.as_ptr(), text, part.len());
                    text = text.add(part.len());
                }
                // The mapping is zero-filled: the NUL is there already.
                text = text.add(1);
                start as usize
            };
            for i in 0..count {
                let text = entry(i);
                let of_one = [
                    PRELOAD,
                    b"ARCK_CWD=",
                    b"ARCK_EXECFN=",
                    b"ARCK_EXE=",
                    b"ARCK_EXEC=",
                    LOCKS,
                    b"ARCK_SITES=",
                ];
                if of_one.iter().any(|name| text.starts_with(name)) {
                    continue;
                }
                push(text.as_ptr() as usize);
            }
            let room = [0; BEFORE_MAX];
            let written = match preload {
                Some(value) if settings::root_changed() => {
                    let [before, behind] = without(value, settings::LIBRARY.get());
                    write(&[&room, PRELOAD, before, behind])
                }
                Some(value) if contains(value, library) => write(&[&room, PRELOAD, value]),
                Some(value) if !value.is_empty() => write(&[&room, PRELOAD, library, b":", value]),
                _ => write(&[&room, PRELOAD, library]),
            };
            let preload = push(written + BEFORE_MAX);
            let libraries = (written + BEFORE_MAX + PRELOAD.len()) as *mut u8;
            for (name, value) in added {
                let present = !matches!(name, b"ARCK_CWD=" | b"ARCK_SITES=")
                    && (0..count).any(|i| entry(i).starts_with(name));
                if !value.is_empty() && !present {
                    push(write(&[name, value]));
                }
            }
            std::ptr::copy_nonoverlapping(LOCKS.as_ptr(), text, LOCKS.len());
            let mut length = 0;
            handed.write(|part| {
                // There may be more by now.
                if length + part.len() <= locks_max {
                    let to = text.add(LOCKS.len() + length);
                    std::ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
                    length += part.len();
                }
            });
            if length > 0 {
                list.add(entries).write(text as usize);
                entries += 1;
            }
            // The mapping is zero-filled: the list ends here.
            Some(Executed {
                memory,
                size,
                list: list as usize,
                end: list.add(entries),
                told: memory.add(size - TELLS * TOLD),
                preload,
                libraries,
            })
        }
    }

    /// Has this library loaded before all others, or none before this one.
    pub fn put_first(&self, runtime: Option<&Runtime>) {
        let before = runtime.map_or([&b""[..], b""], Runtime::before);
        // SAFETY: the room before the value, which is in the mapping, has the name and what stands before it.
        unsafe {
            let mut at = self.libraries;
            for part in [before[1], before[0], PRELOAD] {
                at = at.sub(part.len());
                std::ptr::copy_nonoverlapping(part.as_ptr(), at, part.len());
            }
            self.preload.write(at as usize);
        }
    }

    /// Tells the program under which name it is executed (once), cut off if it is no path; the
    /// address of that string. `nameless`: that is its descriptor's.
    pub fn tell_name(&self, nameless: bool, parts: &[&[u8]]) -> usize {
        match nameless {
            true => self.tell(0, b"ARCK_EXECFN=@", parts),
            false => self.tell(0, b"ARCK_EXECFN==", parts),
        }
    }

    /// Tells, after that, for which program all this is meant: by device and inode number of the file that
    /// the kernel executes; `None`: for nobody.
    pub fn tell_file(&self, file: Option<[u64; 2]>) {
        if !self.has_told() {
            return;
        }
        let mut text = raw::Text::<48>::new();
        if let Some([device, inode]) = file {
            text.number(device).push(b":").number(inode);
        }
        self.tell(1, b"ARCK_EXEC=", &[text.bytes()]);
    }

    /// Tells it, after that, its absolute path.
    pub fn tell_executable(&self, path: &[u8]) {
        if !path.is_empty() && self.has_told() {
            self.tell(2, b"ARCK_EXE=", &[path]);
        }
    }

    /// Whether it is told a name.
    pub fn has_told(&self) -> bool {
        // SAFETY: the first of the places.
        unsafe { *self.end != 0 }
    }

    fn tell(&self, place: usize, name: &[u8], parts: &[&[u8]]) -> usize {
        // SAFETY: the place and the string's room are in the mapping, which is ours, and zero-filled
        // where nothing has been written.
        unsafe {
            let start = self.told.add(place * TOLD);
            let mut at = 0;
            for part in std::iter::once(&name).chain(parts) {
                let length = part.len().min(TOLD - 1 - at);
                std::ptr::copy_nonoverlapping(part.as_ptr(), start.add(at), length);
                at += length;
            }
            // Another one may have been there.
            start.add(at).write(0);
            self.end.add(place).write(start as usize);
            start as usize + name.len()
        }
    }

    /// The array, for execve.
    pub fn pointer(&self) -> usize {
        self.list
    }
}

impl Drop for Executed {
    fn drop(&mut self) {
        spawn::forget_mapping(false);
        // SAFETY: our own mapping, not used after.
        unsafe { raw::unmap(self.memory, self.size) };
    }
}

/// What stands before and behind a library in a list of them.
fn without<'l>(list: &'l [u8], library: &[u8]) -> [&'l [u8]; 2] {
    let mut at = 0;
    for entry in list.split(|byte| matches!(byte, b':' | b' ')) {
        if entry == library {
            return [&list[..at], &list[at + entry.len()..]];
        }
        at += entry.len() + 1;
    }
    [list, b""]
}

fn contains(list: &[u8], library: &[u8]) -> bool {
    list.split(|byte| matches!(byte, b':' | b' '))
        .any(|entry| entry == library)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_libraries() {
        assert!(contains(b"/a/x.so:/b/y.so", b"/b/y.so"));
        assert!(contains(b"/a/x.so /b/y.so", b"/a/x.so"));
        assert!(!contains(b"/a/x.so.1", b"/a/x.so"));
        for (list, expected) in [
            (&b"/a/x.so"[..], [&b""[..], b""]),
            (b"/b/y.so:/a/x.so", [b"/b/y.so:", b""]),
            (b"/a/x.so /b/y.so", [b"", b" /b/y.so"]),
            (b"/b/y.so", [b"/b/y.so", b""]),
            (b"/a/x.so.1:/a/x.so", [b"/a/x.so.1:", b""]),
        ] {
            assert_eq!(without(list, b"/a/x.so"), expected);
        }
    }

    /// The entries of what is built of these, after a change to it.
    fn built(entries: &[&CStr], change: impl Fn(&Executed)) -> Vec<Vec<u8>> {
        let mut array: Vec<usize> = entries.iter().map(|e| e.as_ptr() as usize).collect();
        array.push(0);
        // SAFETY: a NULL-terminated array of strings.
        unsafe {
            let built = Executed::build(array.as_ptr() as usize, &Handed::new(|_| true)).unwrap();
            change(&built);
            let entry = |i| *(built.pointer() as *const *const libc::c_char).add(i);
            (0..length(built.pointer()))
                .map(|i| CStr::from_ptr(entry(i)).to_bytes().to_vec())
                .collect()
        }
    }

    #[test]
    fn what_the_program_sets_is_kept() {
        let entries = [c"A=1", c"LD_PRELOAD=/z.so", c"ARCK_CWD=/old", c"B="];
        // No settings in this process: only LD_PRELOAD is touched, ARCK_CWD is gone.
        let expected = [&b"A=1"[..], b"B=", b"LD_PRELOAD=:/z.so"];
        assert_eq!(built(&entries, |_| {}), expected);
    }

    #[test]
    fn a_runtime_is_first_for_the_program_that_wants_it() {
        let runtime = Runtime::named(b"libasan.so.8");
        let longest = Runtime::named(&[&b"libasan.so."[..], &[b'9'; 53]].concat());
        for (given, expected) in [
            (c"LD_PRELOAD=/z.so", &b"LD_PRELOAD=libasan.so.8:::/z.so"[..]),
            (
                c"LD_PRELOAD=libasan.so.7::/z.so",
                b"LD_PRELOAD=libasan.so.8:::/z.so",
            ),
            (
                c"LD_PRELOAD=libasan.so.8:/z.so",
                b"LD_PRELOAD=libasan.so.8:::libasan.so.8:/z.so",
            ),
        ] {
            let first = |of: &Executed| {
                of.put_first(longest.as_ref());
                of.put_first(runtime.as_ref());
            };
            assert_eq!(built(&[c"A=1", given], first), [b"A=1", expected]);
        }
        // The next program does not.
        let given = c"LD_PRELOAD=libasan.so.8::/z.so";
        let none = |of: &Executed| {
            of.put_first(runtime.as_ref());
            of.put_first(None);
        };
        assert_eq!(built(&[given], none), [b"LD_PRELOAD=:/z.so"]);
        assert_eq!(built(&[given], |_| {}), [b"LD_PRELOAD=:/z.so"]);
    }
}
