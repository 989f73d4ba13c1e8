//! Takes the code out of the guide for authors of a LibFS, for `tests/guide.rs`.

use std::path::Path;

fn main() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/libfs.md");
    println!("cargo::rerun-if-changed={}", guide.display());
    let text = std::fs::read_to_string(&guide).expect("docs/libfs.md");
    let mut code = String::new();
    let mut is_code = false;
    for line in text.lines() {
        match line.trim_end() {
            "```rust" => is_code = true,
            "```" if is_code => {
                is_code = false;
                code.push('\n');
            }
            _ if is_code => code.extend([line, "\n"]),
            _ => {}
        }
    }
    let place = std::env::var_os("OUT_DIR").expect("a place for it");
    std::fs::write(Path::new(&place).join("guide.rs"), code).expect("to write it");
}
