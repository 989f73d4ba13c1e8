//! Holds the documents to what there is: which crate depends on which, and that nothing that is trusted knows a
//! LibFS (`docs/architecture.md`); where the code has what the glossary names, and words that the documents are
//! not to use (`docs/glossary.md`); links between documents.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// What stands from a headline on, up to the next.
fn section<'t>(text: &'t str, headline: &str) -> &'t str {
    let start = text
        .find(&format!("\n{headline}\n"))
        .unwrap_or_else(|| panic!("no {headline:?}"));
    let rest = &text[start + headline.len() + 2..];
    rest.find("\n#").map_or(rest, |end| &rest[..end])
}

/// The rows of the tables in a text, without their heads; cells trimmed.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let mut rows = Vec::new();
    for line in text.lines() {
        match line.strip_prefix("| ") {
            // What stands above it was the head.
            Some(line) if line.starts_with("---") => _ = rows.pop(),
            Some(line) => rows.push(
                line.trim_end_matches('|')
                    .split('|')
                    .map(str::trim)
                    .collect(),
            ),
            None => {}
        }
    }
    rows
}

/// What stands in backquotes.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The Rust files beneath a folder, if there is one.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.push(path);
        }
    }
    found
}

/// The documents: their paths from the root.
fn documents() -> Vec<String> {
    let mut found = vec!["README.md".to_owned(), "CONTRIBUTING.md".to_owned()];
    for entry in std::fs::read_dir(root().join("docs")).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if name.ends_with(".md") {
            found.push(format!("docs/{name}"));
        }
    }
    assert!(found.len() > 10);
    found
}

/// Of each crate, by the name of its folder: the crates of the workspace that it depends on, and those that its
/// tests do besides.
type Dependencies = BTreeMap<String, (BTreeSet<String>, BTreeSet<String>)>;

fn folder_of(package: &str) -> String {
    package.strip_prefix("arck-").unwrap_or(package).to_owned()
}

fn asked_of_cargo() -> Dependencies {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<&str> = packages
        .iter()
        .map(|package| package["name"].as_str().unwrap())
        .collect();
    let depends = |package: &Value| {
        let (mut always, mut in_tests) = (BTreeSet::new(), BTreeSet::new());
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if names.contains(name) {
                match dependency["kind"].as_str() {
                    Some("dev") => in_tests.insert(folder_of(name)),
                    _ => always.insert(folder_of(name)),
                };
            }
        }
        (always, in_tests)
    };
    packages
        .iter()
        .map(|package| {
            (
                folder_of(package["name"].as_str().unwrap()),
                depends(package),
            )
        })
        .collect()
}

/// All that a crate reaches, tests left out.
fn reached(all: &Dependencies, from: &str, found: &mut BTreeSet<String>) {
    for name in &all[from].0 {
        if found.insert(name.clone()) {
            reached(all, name, found);
        }
    }
}

#[test]
fn dependencies_are_as_they_are_drawn() {
    let text = read(&root().join("docs/architecture.md"));
    let cargo = asked_of_cargo();
    let set = |cell: &str| quoted(cell).map(str::to_owned).collect::<BTreeSet<_>>();
    let mut drawn = Dependencies::new();
    for row in rows(section(&text, "### Dependencies")) {
        let name = quoted(row[0]).next().unwrap().to_owned();
        let (always, in_tests) = (set(row[1]), set(row[2]));
        // Downward only: what a crate depends on stands above it.
        for lower in &always {
            assert!(drawn.contains_key(lower), "`{name}` stands above `{lower}`");
        }
        drawn.insert(name, (always, in_tests));
    }
    for (name, depends) in &cargo {
        assert_eq!(
            drawn.get(name),
            Some(depends),
            "`{name}`: drawn, and asked of cargo"
        );
    }
    assert_eq!(drawn.len(), cargo.len(), "a crate that is not there");
    let parts: BTreeSet<String> = rows(section(&text, "## Parts"))
        .iter()
        .map(|row| quoted(row[1]).next().unwrap().to_owned())
        .collect();
    assert_eq!(parts, cargo.into_keys().collect(), "the table of parts");
}

/// Crates that are built of rooms, and where that is told.
const ROOMS: &[(&str, &str)] = &[
    ("controller", "### Inside the controller"),
    ("libfs-kit", "### Inside the kit"),
    ("arckfs", "### Inside ArckFS"),
];

/// The rooms of a crate stand in the document from below, as `scripts/circles` has them and checks that no room
/// imports one above it; no module is left out.
#[test]
fn rooms_are_as_they_are_told() {
    let document = read(&root().join("docs/architecture.md"));
    let script = read(&root().join("scripts/circles"));
    for (name, headline) in ROOMS {
        let inside = section(&document, headline);
        let told = inside.split("From below:").nth(1).expect("the rooms");
        let told = told.split(". ").next().expect("a sentence");
        let of = |room: &str| quoted(room).map(str::to_owned).collect::<BTreeSet<_>>();
        let told: Vec<BTreeSet<String>> = told.split(';').map(of).collect();
        let rooms = script
            .split(&format!("\"{name}\": "))
            .nth(1)
            .expect("ROOMS");
        let rooms = rooms.split(".split()").next().expect("a list");
        let checked: Vec<BTreeSet<String>> = rooms
            .replace('"', " ")
            .split_whitespace()
            .map(|room| room.split('+').map(str::to_owned).collect())
            .collect();
        assert_eq!(told, checked, "{name}");
        let source = std::fs::read_dir(root().join("crates").join(name).join("src"));
        let there: BTreeSet<String> = source
            .expect("the source")
            .filter_map(Result::ok)
            .map(|entry| entry.path().with_extension(""))
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .filter(|name| !["lib", "testing"].contains(&&**name))
            .collect();
        let told: BTreeSet<String> = told.into_iter().flatten().collect();
        assert_eq!(told, there, "{name}");
    }
}

/// Where a table says which modules a room has, they are there, and no folder is left out.
#[test]
fn modules_of_rooms_are_there() {
    let document = read(&root().join("docs/architecture.md"));
    for (name, headline) in ROOMS {
        let source = root().join("crates").join(name).join("src");
        let rows: Vec<_> = rows(section(&document, headline));
        if rows[0].len() != 3 {
            // Told by module and idea alone.
            continue;
        }
        let (mut room, mut told) = (String::new(), BTreeSet::new());
        for row in rows {
            if let Some(named) = quoted(row[0]).next() {
                room = named.to_owned();
                told.insert(room.clone());
            }
            for module in quoted(row[1]) {
                let place = source.join(&room).join(module);
                let is_there = place.with_extension("rs").exists() || place.is_dir();
                assert!(is_there, "{name}: room `{room}` has no `{module}`");
            }
        }
        let folders = std::fs::read_dir(&source).expect("the source");
        let folders = folders.filter_map(Result::ok);
        for folder in folders.filter(|entry| entry.path().is_dir()) {
            let folder = folder.file_name().to_string_lossy().into_owned();
            assert!(told.contains(&folder), "{name}: `{folder}` is not told of");
        }
    }
}

/// LibFSes, and what each is built on of the workspace: the kit, and nothing beneath it.
const LIBFSES: &[&str] = &["arckfs", "kvfs", "logfs"];

/// What a LibFS needs of format, protocol and persistence the kit hands on, by name: there is no back door beside it,
/// and what another LibFS may use is what these do.
#[test]
fn a_libfs_is_built_on_the_kit_alone() {
    let cargo = asked_of_cargo();
    for name in LIBFSES {
        let (always, in_tests) = &cargo[*name];
        let always: Vec<&str> = always.iter().map(String::as_str).collect();
        assert_eq!(always, ["libfs-kit"], "`{name}`");
        // Its tests have a pool besides, on which it is served as anywhere, and others to be compared with.
        let beside = ["test-pool", "testkit", "arckfs"];
        for other in in_tests {
            assert!(
                beside.contains(&other.as_str()),
                "tests of `{name}`: {other}"
            );
        }
    }
    // What serves programs knows its LibFS, and what it needs to know of executables.
    let preload: Vec<&str> = cargo["preload"].0.iter().map(String::as_str).collect();
    assert_eq!(preload, ["arckfs", "executable"]);
    // By name: a glob would hand on what nobody meant to.
    let mut looked_at = 0;
    for file in sources(&root().join("crates/libfs-kit/src")) {
        for line in read(&file).lines().map(str::trim) {
            looked_at += 1;
            let is_glob = line.starts_with("pub use arck_") && line.ends_with("*;");
            let is_whole = line.starts_with("pub use arck_") && !line.contains("::");
            assert!(!is_glob && !is_whole, "{}: {line}", file.display());
        }
    }
    assert!(looked_at > 5_000);
}

/// What is trusted neither reaches the kit nor anything that does, and does not say its name: a new LibFS changes
/// nothing in it.
#[test]
fn nothing_that_is_trusted_knows_a_libfs() {
    let text = read(&root().join("docs/architecture.md"));
    let cargo = asked_of_cargo();
    let on_the_kit: Vec<&String> = cargo
        .keys()
        .filter(|name| {
            let mut found = BTreeSet::new();
            reached(&cargo, name, &mut found);
            *name == "libfs-kit" || found.contains("libfs-kit")
        })
        .collect();
    assert!(on_the_kit.iter().any(|name| *name == "arckfs"));
    // The names of packages, in both spellings; a folder's name alone ("bench") is a word like others.
    let mut words = Vec::new();
    for name in &on_the_kit {
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        let line = manifest
            .lines()
            .find_map(|line| line.strip_prefix("name = \""));
        let package = line.expect("its name").trim_end_matches('"').to_owned();
        words.push(package.replace('-', "_"));
        words.push(package);
    }
    words.push("libfs-kit".to_owned());
    let trusted: Vec<String> = rows(section(&text, "## Parts"))
        .iter()
        .filter(|row| row[2] == "yes")
        .map(|row| quoted(row[1]).next().unwrap().to_owned())
        .collect();
    for name in [
        "controller",
        "controller-state",
        "core-state",
        "protocol",
        "verifier",
    ] {
        assert!(trusted.iter().any(|one| one == name), "{name} is trusted");
    }
    for name in &trusted {
        let (always, in_tests) = &cargo[name];
        for other in always.iter().chain(in_tests) {
            assert!(
                !on_the_kit.contains(&other),
                "`{name}` depends on `{other}`"
            );
        }
        let folder = root().join("crates").join(name);
        let mut files = sources(&folder.join("src"));
        files.extend(sources(&folder.join("tests")));
        assert!(!files.is_empty());
        // These words are here because they are looked for.
        files.retain(|file| !file.ends_with("controller-state/tests/documents.rs"));
        for file in files {
            let text = read(&file).to_lowercase();
            let named: Vec<&String> = words.iter().filter(|word| has_word(&text, word)).collect();
            assert!(named.is_empty(), "{}: names {named:?}", file.display());
        }
    }
}

/// Whether a text has a word by itself.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |letter: Option<char>| letter.is_some_and(|c| c.is_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_part(text[..at].chars().next_back()) && !is_part(text[at + word.len()..].chars().next())
    })
}

/// Whether a source defines a name: a type, a function, a constant, a module, a field or a variant (before which stands
/// its number where it is a message).
fn defines(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        let line = line.trim_start();
        if line.starts_with("//") || !has_word(line, name) {
            return false;
        }
        let kinds = [
            "struct", "enum", "fn", "const", "static", "trait", "type", "mod", "union",
        ];
        let before = line[..line.find(name).unwrap_or_default()].trim_end();
        let after = line[before.len()..]
            .trim_start()
            .strip_prefix(name)
            .unwrap_or_default();
        let is_member = before.bytes().all(|byte| byte.is_ascii_digit())
            || before.starts_with("pub") && !before.contains("fn ");
        kinds
            .iter()
            .any(|kind| has_word(before, kind) && before.ends_with(kind))
            || is_member && after.starts_with([':', ',', '(', '{', ' '])
    })
}

#[test]
fn what_the_glossary_names_is_there() {
    let text = read(&root().join("docs/glossary.md"));
    let mut terms = BTreeSet::new();
    let mut places = 0;
    for row in rows(&text).into_iter().filter(|row| row.len() == 4) {
        let term = row[0];
        assert!(terms.insert(term.to_lowercase()), "{term}: twice");
        assert!(
            row.iter().all(|cell| !cell.is_empty()),
            "{term}: an empty cell"
        );
        let in_code: Vec<&str> = quoted(row[3]).collect();
        assert!(in_code.is_empty() == (row[3] == "–"), "{term}: its place");
        for place in in_code {
            places += 1;
            let (name_of_crate, name) = place.split_once("::").expect("a crate and a name");
            let folder = root().join("crates").join(name_of_crate).join("src");
            let files = sources(&folder);
            assert!(!files.is_empty(), "{term}: no crate of `{place}`");
            let is_there = files.iter().any(|file| {
                file.file_stem().is_some_and(|stem| stem == name) || defines(&read(file), name)
            });
            assert!(is_there, "{term}: `{place}` is not there (any more)");
        }
    }
    assert!(
        terms.len() > 60 && places > 60,
        "{} terms, {places} places",
        terms.len()
    );
}

#[test]
fn documents_use_no_word_that_the_glossary_bans() {
    let text = read(&root().join("docs/glossary.md"));
    let banned: Vec<&str> = rows(section(&text, "## Words that are not used"))
        .iter()
        .flat_map(|row| quoted(row[0]).collect::<Vec<_>>())
        .collect();
    assert!(banned.len() > 10);
    let mut found = Vec::new();
    for document in documents() {
        if document == "docs/glossary.md" {
            continue;
        }
        // Names in the code are the code's.
        let text = read(&root().join(&document)).to_lowercase();
        let mut is_code = false;
        for (number, line) in (1..).zip(text.lines()) {
            is_code ^= line.starts_with("```");
            let prose: Vec<&str> = line.split('`').step_by(2).collect();
            let prose = prose.join(" ");
            for word in &banned {
                if !is_code && has_word(&prose, word) {
                    found.push(format!("{document}:{number}: {word:?}"));
                }
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// A source in lower case, names taken apart into their words, without what stands in backquotes of comments.
fn words_of(source: &str) -> String {
    let mut text = String::new();
    for line in source.lines() {
        let line: Vec<&str> = match line.trim_start().starts_with("//") {
            true => line.split('`').step_by(2).collect(),
            false => vec![line],
        };
        let mut before = ' ';
        for letter in line.join(" ").chars() {
            if letter.is_uppercase() && before.is_lowercase() {
                text.push(' ');
            }
            text.extend(match letter {
                '_' => ' '.to_lowercase(),
                letter => letter.to_lowercase(),
            });
            before = letter;
        }
        text.push('\n');
    }
    text
}

#[test]
fn sources_use_no_word_that_the_glossary_bans_there() {
    let text = read(&root().join("docs/glossary.md"));
    let all = section(&text, "## Words that are not used");
    let all: BTreeSet<&str> = rows(all).iter().flat_map(|row| quoted(row[0])).collect();
    let banned: Vec<&str> = quoted(section(&text, "### Nor in the code")).collect();
    assert!(banned.len() > 15 && banned.iter().all(|word| all.contains(word)));
    for (source, words) in [
        ("fn keep_receipt()", "receipt"),
        ("struct FoldReceipt;", "receipt"),
        ("// what was never born", "never born"),
    ] {
        assert!(has_word(&words_of(source), words), "{source}");
    }
    let files = sources(&root().join("crates"));
    assert!(files.len() > 300, "{} sources", files.len());
    let mut found = Vec::new();
    for file in files.iter().filter(|file| !file.ends_with("documents.rs")) {
        // The kernel's name of a flag.
        let source = read(file).replace("RENAME_WHITEOUT", "");
        for (number, line) in (1..).zip(words_of(&source).lines()) {
            let named = banned.iter().filter(|word| has_word(line, word));
            found.extend(named.map(|word| format!("{}:{number}: {word:?}", file.display())));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// What a headline is called in a link.
fn anchor(headline: &str) -> String {
    let text = headline.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

#[test]
fn no_link_between_documents_is_dead() {
    let mut links = 0;
    let mut dead = Vec::new();
    for document in documents() {
        let path = root().join(&document);
        let text = read(&path);
        for link in text.split("](").skip(1) {
            let link = link.split(')').next().unwrap_or_default();
            if link.contains("://") || link.contains(char::is_whitespace) {
                continue;
            }
            links += 1;
            let (file, headline) = link.split_once('#').unwrap_or((link, ""));
            let target = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            let has_headline = |text: &str| {
                let mut lines = text.lines();
                lines.any(|line| line.starts_with('#') && anchor(line) == headline)
            };
            let is_there = target.exists() && (headline.is_empty() || has_headline(&read(&target)));
            if !is_there {
                dead.push(format!("{document}: {link}"));
            }
        }
    }
    assert!(links > 40, "{links} links");
    assert!(dead.is_empty(), "{dead:#?}");
    for document in ["README.md", "docs/architecture.md"] {
        assert!(
            read(&root().join(document)).contains("glossary.md)"),
            "{document}"
        );
    }
}
