//! What the sources say, read as text: which stored structures and constants there are, and the
//! private structures of the controller, which this crate cannot name.

use std::collections::BTreeMap;
use std::path::Path;

fn sources(root: &Path) -> Vec<(String, String)> {
    let folder = root.join("crates/core-state/src");
    let mut sources = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the sources") {
        let path = entry.expect("a source").path();
        let module = path.file_stem().expect("a name").to_string_lossy();
        let text = std::fs::read_to_string(&path).expect("a source");
        // Tests come last and store nothing.
        let text = text.split("mod tests {").next().unwrap_or("").to_owned();
        sources.push((module.into_owned(), text));
    }
    sources
}

/// Names of the structures with a fixed layout, but for those that are one word.
pub fn stored_structures(root: &Path) -> BTreeMap<String, ()> {
    let mut names = BTreeMap::new();
    for (_, text) in sources(root) {
        let mut fixed = false;
        for line in text.lines() {
            if line.starts_with("#[repr(C") {
                fixed = true;
            } else if let Some(rest) = line.strip_prefix("pub struct ")
                && std::mem::take(&mut fixed)
            {
                let name = rest.split([' ', '(', '<']).next().unwrap_or("");
                names.insert(name.to_owned(), ());
            }
        }
    }
    names
}

/// Public constants as `module::NAME`, `module::inner::NAME` or `Type::NAME`, without texts.
pub fn constants(root: &Path) -> BTreeMap<String, ()> {
    let mut names = BTreeMap::new();
    for (module, text) in sources(root) {
        let mut inside = module.clone();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("pub mod ") {
                if let Some(name) = rest.strip_suffix(" {") {
                    inside = format!("{module}::{name}");
                }
            } else if let Some(rest) = line.strip_prefix("impl ") {
                inside = rest.split([' ', '<']).next().unwrap_or("").to_owned();
            } else if line == "}" {
                inside.clone_from(&module);
            }
            let Some(rest) = line.trim_start().strip_prefix("pub const ") else {
                continue;
            };
            let Some((name, rest)) = rest.split_once(": ") else {
                continue;
            };
            let is_text = rest.starts_with("&str");
            if !is_text
                && name
                    .chars()
                    .all(|c| c.is_ascii_uppercase() || c == '_' || c.is_ascii_digit())
            {
                names.insert(format!("{inside}::{name}"), ());
            }
        }
    }
    names
}

/// The structures of the controller's own files: size, and offset and size of each field.
pub fn private(root: &Path) -> BTreeMap<String, (u64, super::super::Fields)> {
    let mut found = BTreeMap::new();
    for file in ["files.rs", "journal.rs"] {
        let path = root.join("crates/controller/src").join(file);
        let text = std::fs::read_to_string(path).expect("the controller's sources");
        let mut fixed = false;
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if line == "#[repr(C)]" {
                fixed = true;
                continue;
            }
            let line = line.strip_prefix("pub ").unwrap_or(line);
            let Some(name) = line
                .strip_prefix("struct ")
                .and_then(|l| l.strip_suffix(" {"))
            else {
                continue;
            };
            if !std::mem::take(&mut fixed) {
                continue;
            }
            let mut fields = BTreeMap::new();
            let (mut end, mut most) = (0u64, 1u64);
            for line in lines.by_ref().take_while(|line| *line != "}") {
                let line = line.trim();
                let Some((field, kind)) = line.split_once(": ").filter(|_| !line.starts_with("//"))
                else {
                    continue;
                };
                let (size, align) = size_of(kind.trim_end_matches(','), &text);
                let offset = end.next_multiple_of(align);
                let field = field.strip_prefix("pub ").unwrap_or(field);
                fields.insert(field.to_owned(), (offset, size));
                end = offset + size;
                most = most.max(align);
            }
            found.insert(name.to_owned(), (end.next_multiple_of(most), fields));
        }
    }
    found
}

/// Size and alignment of a type made of integers and arrays.
fn size_of(kind: &str, text: &str) -> (u64, u64) {
    if let Some(array) = kind.strip_prefix('[').and_then(|k| k.strip_suffix(']')) {
        let (element, count) = array.split_once("; ").expect("an array");
        let count: u64 = count.parse().unwrap_or_else(|_| {
            let start = format!("const {count}: usize = ");
            let rest = text
                .split(&start)
                .nth(1)
                .expect("a constant of the same file");
            let digits = rest.split(';').next().expect("its value");
            digits.parse().expect("a number")
        });
        let (size, align) = size_of(element, text);
        return (size * count, align);
    }
    match kind {
        "u8" => (1, 1),
        "u32" => (4, 4),
        "u64" => (8, 8),
        other => panic!("a stored field of type {other}"),
    }
}
