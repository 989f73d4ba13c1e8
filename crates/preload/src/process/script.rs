//! `#!` lines, read as the kernel reads them.

use crate::environment;
use crate::raw::{self, Text, error, syscall};

/// Bytes of a file that the kernel looks at to know what it is; a line is cut off before the last.
pub const START: usize = 256;

/// A `#!` line.
pub struct Script {
    pub interpreter: Text<START>,
    argument: Option<Text<START>>,
}

fn is_blank(byte: &u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

impl Script {
    /// `start`: the file's first bytes, zeroes where it is shorter. `None`: it is no script.
    /// ENOEXEC: it names no interpreter, or the line may have been cut off within its name.
    pub fn parse(start: &[u8; START]) -> Option<Result<Script, isize>> {
        let line = start.strip_prefix(b"#!")?;
        const NONE: Option<Result<Script, isize>> = Some(Err(error(libc::ENOEXEC)));
        let whole = line.iter().position(|byte| *byte == b'\n');
        let line = &line[..whole.unwrap_or(line.len() - 1)];
        let Some(first) = line.iter().position(|byte| !is_blank(byte)) else {
            return NONE;
        };
        let last = line.iter().rposition(|byte| !is_blank(byte));
        let line = &line[first..=last.unwrap_or(first)];
        let end = line.iter().position(|byte| is_blank(byte) || *byte == 0);
        if whole.is_none() && end.is_none() && first + line.len() + 3 >= START {
            return NONE;
        }
        let (interpreter, rest) = line.split_at(end.unwrap_or(line.len()));
        let argument = rest.first().filter(|byte| **byte != 0).map(|_| {
            let skipped = rest.iter().position(|byte| !is_blank(byte));
            &rest[skipped.unwrap_or(rest.len())..]
        });
        // Strings end at a zero.
        let text = |bytes: &[u8]| {
            let mut text = Text::new();
            text.push(bytes.split(|byte| *byte == 0).next().unwrap_or_default());
            text
        };
        Some(Ok(Script {
            interpreter: text(interpreter),
            argument: argument.map(text),
        }))
    }

    /// # Safety
    /// `path` is a NUL-terminated string.
    pub unsafe fn read_host(path: usize) -> Option<Script> {
        let mut start = [0u8; START];
        // SAFETY: the path is the program's; the buffer is ours.
        unsafe {
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            let file = syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags);
            if raw::failed(file) {
                return None;
            }
            syscall!(libc::SYS_read, file, start.as_mut_ptr(), start.len());
            raw::close(file);
        }
        Script::parse(&start)?.ok()
    }

    /// Whether its interpreter lies on the pool.
    pub fn is_for_pools(&self) -> bool {
        crate::path::below_mount(self.interpreter.bytes()).is_some()
    }

    /// Runs `execute` with the arguments for the interpreter: its own, the script's name, and the
    /// program's from the second on.
    ///
    /// # Safety
    /// `arguments` is null or a NULL-terminated array.
    pub unsafe fn with_arguments(
        &self,
        name: usize,
        arguments: usize,
        execute: impl FnOnce(usize) -> isize,
    ) -> isize {
        // SAFETY: NULL-terminated arrays; the new one is large enough for all of them.
        unsafe {
            let count = environment::length(arguments);
            let size = (count + 4) * size_of::<usize>();
            let Some(memory) = raw::map_anonymous(size) else {
                return error(libc::ENOMEM);
            };
            let list = memory.cast::<usize>();
            let mut at = 0;
            let mut push = |value: usize| {
                list.add(at).write(value);
                at += 1;
            };
            push(self.interpreter.pointer() as usize);
            if let Some(argument) = &self.argument {
                push(argument.pointer() as usize);
            }
            push(name);
            for i in 1..count {
                push(*(arguments as *const usize).add(i));
            }
            let result = execute(list as usize);
            raw::unmap(memory, size);
            result
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Parts = (Vec<u8>, Option<Vec<u8>>);

    fn parsed(text: &[u8]) -> Option<Result<Parts, isize>> {
        let mut start = [0; START];
        let length = text.len().min(START);
        start[..length].copy_from_slice(&text[..length]);
        Script::parse(&start).map(|script| {
            script.map(|script| {
                let argument = script.argument.map(|text| text.bytes().to_vec());
                (script.interpreter.bytes().to_vec(), argument)
            })
        })
    }

    fn line(interpreter: &str, argument: Option<&str>) -> Option<Result<Parts, isize>> {
        Some(Ok((interpreter.into(), argument.map(Into::into))))
    }

    #[test]
    fn script_lines() {
        assert_eq!(
            parsed(b"#! /bin/sh -e  x \nrest"),
            line("/bin/sh", Some("-e  x"))
        );
        assert_eq!(parsed(b"#!/usr/bin/env"), line("/usr/bin/env", None));
        assert_eq!(parsed(b"#!/bin/sh x\r\n"), line("/bin/sh", Some("x\r")));
        assert_eq!(parsed(b"#!"), line("", None));
        assert_eq!(parsed(b"\x7fELF"), None);
        let none = Some(Err(error(libc::ENOEXEC)));
        assert_eq!(parsed(b"#!\n"), none);
        assert_eq!(parsed(b"#! \t \n"), none);
    }

    #[test]
    fn long_lines_are_cut_off() {
        let long = "y".repeat(400);
        let none = Some(Err(error(libc::ENOEXEC)));
        assert_eq!(parsed(format!("#!/{long}\n").as_bytes()), none);
        let cut = line("/bin/sh", Some(&long[..START - 1 - "#!/bin/sh ".len()]));
        assert_eq!(parsed(format!("#!/bin/sh {long}\n").as_bytes()), cut);
        // Just so.
        let name = "x".repeat(START - 3);
        assert_eq!(parsed(format!("#!{name}\n").as_bytes()), line(&name, None));
    }
}
