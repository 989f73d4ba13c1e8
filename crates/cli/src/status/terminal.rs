//! Text that others have chosen, for a terminal.

use std::path::Path;

/// What would steer a terminal is taken out: others choose it.
pub fn plain(text: &str) -> String {
    let plain = |c: char| if c.is_control() { '?' } else { c };
    text.chars().map(plain).collect()
}

/// A path.
pub fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}
