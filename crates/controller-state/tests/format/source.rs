//! What the sources say, read as text: which stored structures and constants there are. The compiler
//! tells of a field that is not listed, but not of a structure.

use std::collections::BTreeMap;
use std::path::Path;

fn sources(root: &Path, krate: &str) -> Vec<(String, String)> {
    let folder = root.join("crates").join(krate).join("src");
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
pub fn stored_structures(root: &Path, krate: &str) -> BTreeMap<String, ()> {
    let mut names = BTreeMap::new();
    for (_, text) in sources(root, krate) {
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
pub fn constants(root: &Path, krate: &str) -> BTreeMap<String, ()> {
    let mut names = BTreeMap::new();
    for (module, text) in sources(root, krate) {
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
