//! `arck.h` is what the sources say. `ARCK_HEADER=write cargo test -p arck-c --test header` makes it.

use std::path::Path;

/// What the header says first, for who reads it.
const HEAD: &str = "\
// Arck's pools in C: files, small values and logs, read and written by the calling process without
// system calls.
//
// Compile with `pkg-config --cflags --libs arck`. docs/c.md has examples, and says what all calls have in common:
//
// * A call that has failed gives -1 and sets errno; arck_message() is a line for people that says what to
//   do. errno means nothing after a call that has not failed. No call ends by a signal (EINTR).
// * Handles are numbers. One that is closed, of another kind or none at all is EBADF, and harms nothing.
// * A null pointer is EFAULT, unless it is said to be allowed. Any other pointer is to lead to as much
//   memory as is said, and texts end with a zero byte.
// * All threads may use all handles. What is closed while another thread uses it is done before, or
//   EBADF there. A handler of signals that has interrupted a call of Arck's makes none (EDEADLK).
// * In a forked child a connection, a store and a log open a session of the child's own at their first
//   need. Files, lists of names and queues that its parent had open are ESTALE there. The parent notices nothing.
//
// Made by cbindgen of crates/c. Who changes that makes it again:
// ARCK_HEADER=write scripts/cargo test -p arck-c --test header
";

fn made(root: &Path) -> String {
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("cbindgen.toml");
    let builder = cbindgen::Builder::new().with_config(config);
    let mut names: Vec<_> = ["options", "handles", "requests"].map(str::to_owned).into();
    // In an order for readers.
    let faces = "sessions files names attributes extended listing store log queues";
    names.extend(faces.split(' ').map(|face| format!("face/{face}")));
    let add = |builder: cbindgen::Builder, name: &String| {
        builder.with_src(root.join(format!("src/{name}.rs")))
    };
    let bindings = names.iter().fold(builder, add).generate();
    let mut bytes = Vec::new();
    bindings.expect("the sources").write(&mut bytes);
    let text = String::from_utf8(bytes).expect("a text");
    tidy(&text)
}

/// Columns of a line.
const WIDTH: usize = 100;

/// Words in lines, of which the first begins so, and the others so; as wide as may be.
fn wrapped(words: &str, begin: &str, next: &str, lines: &mut Vec<String>) {
    let mut line = begin.to_owned();
    let mut is_empty = true;
    for word in words.split_whitespace() {
        if !is_empty && line.len() + 1 + word.len() > WIDTH {
            lines.push(std::mem::replace(&mut line, next.to_owned()));
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    lines.push(line);
}

/// As people write it, and with the types that it takes of the system.
fn tidy(text: &str) -> String {
    let mut lines = Vec::new();
    // The paragraph of a comment that has begun: how it is set off, and its words.
    let mut paragraph: Option<(String, String)> = None;
    for line in text.lines() {
        let words = line.trim_start();
        let off = &line[..line.len() - words.len()];
        if let Some(words) = words
            .strip_prefix("// ")
            .filter(|words| !words.starts_with("SPDX"))
        {
            let (_, all) = paragraph.get_or_insert_with(|| (format!("{off}// "), String::new()));
            all.push(' ');
            all.push_str(words);
            continue;
        }
        if let Some((begin, words)) = paragraph.take() {
            wrapped(&words, &begin, &begin, &mut lines);
        }
        let line = line.replace(" * ", " *").replace("ptrdiff_t", "ssize_t");
        match line.len() > WIDTH {
            true => wrapped(&line, "", "        ", &mut lines),
            false => lines.push(line.replace(" *//", " *  //")),
        }
    }
    let includes = "dirent.h stdint.h sys/stat.h sys/statvfs.h sys/types.h sys/uio.h time.h";
    let includes = includes
        .split(' ')
        .map(|name| format!("#include <{name}>\n"));
    let head = format!("#define ARCK_H\n\n{HEAD}\n{}", includes.collect::<String>());
    let text = lines.join("\n") + "\n";
    text.replacen("#define ARCK_H\n", &head, 1)
}

#[test]
fn it_is_what_the_sources_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let header = root.join("arck.h");
    let made = made(root);
    if std::env::var_os("ARCK_HEADER").is_some_and(|wish| wish == "write") {
        std::fs::write(&header, &made).expect("to write it");
    }
    let there = std::fs::read_to_string(&header).unwrap_or_default();
    let differs = made
        .lines()
        .zip(there.lines())
        .find(|(one, other)| one != other);
    assert!(
        made == there,
        "{} is an old one: {differs:?}",
        header.display()
    );
}
