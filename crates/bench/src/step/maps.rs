//! What lies at an address of another process: read from what the kernel tells of its mappings, and again where
//! there is none at an address.

use std::path::{Path, PathBuf};

/// Whose a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The program itself, and all that has no name: heap, stack.
    Program,
    Preload,
    /// And all other libraries, the kernel's among them.
    Libc,
    /// The pool.
    Pool,
}

/// See the module's head.
pub struct Maps {
    process: libc::pid_t,
    pool: PathBuf,
    preload: Option<PathBuf>,
    /// By address.
    found: Vec<(u64, u64, Whose)>,
}

impl Maps {
    pub fn new(process: libc::pid_t, pool: &Path, preload: Option<&Path>) -> Maps {
        let mut maps = Maps {
            process,
            pool: pool.to_owned(),
            preload: preload.map(Path::to_owned),
            found: Vec::new(),
        };
        maps.read();
        maps
    }

    fn read(&mut self) {
        let text = std::fs::read_to_string(format!("/proc/{}/maps", self.process));
        let text = text.unwrap_or_default();
        self.found = text.lines().filter_map(|line| self.parse(line)).collect();
    }

    fn parse(&self, line: &str) -> Option<(u64, u64, Whose)> {
        let mut fields = line.split_whitespace();
        let (first, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        let whose = match fields.nth(4) {
            Some(path) if Path::new(path).starts_with(&self.pool) => Whose::Pool,
            Some(path) if self.preload.as_deref() == Some(Path::new(path)) => Whose::Preload,
            Some(path) if path.contains(".so") || path == "[vdso]" => Whose::Libc,
            _ => Whose::Program,
        };
        Some((number(first)?, number(end)?, whose))
    }

    pub fn whose(&mut self, address: u64) -> Whose {
        self.known(address).unwrap_or_else(|| {
            self.read();
            self.known(address).unwrap_or(Whose::Program)
        })
    }

    fn known(&self, address: u64) -> Option<Whose> {
        let after = self.found.partition_point(|&(first, ..)| first <= address);
        let &(_, end, whose) = self.found.get(after.checked_sub(1)?)?;
        (address < end).then_some(whose)
    }
}
