//! Compares `docs/format.md` with the code, both ways: a stored structure, field, bit, constant,
//! enumeration value or file that only one of them knows, or that they place differently, fails.
//!
//! The document's tables are the machine-readable part. A line `<!-- struct NAME SIZE -->`,
//! `<!-- bits NAME -->`, `<!-- enum NAME -->`, `<!-- constants -->`, `<!-- files -->` or
//! `<!-- examples NAME -->` says what the table that follows describes. The drawing that follows
//! the table of a structure is compared with one made from the table;
//! `FORMAT_DRAW=1 cargo test -p arck-controller-state --test format` replaces the drawings.

mod format {
    pub mod code;
    pub mod document;
    pub mod drawing;
    pub mod source;
}

use format::code;
use format::document::{Document, Table};
use format::{drawing, source};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn document() -> Document {
    Document::read(&root().join("docs/format.md"))
}

/// Both maps say the same, or the test says everything in which they differ.
fn same<V: PartialEq + std::fmt::Debug>(
    what: &str,
    documented: &BTreeMap<String, V>,
    coded: &BTreeMap<String, V>,
) {
    let mut wrong = Vec::new();
    for (name, value) in documented {
        match coded.get(name) {
            None => wrong.push(format!("{name}: only in docs/format.md")),
            Some(code) if code != value => wrong.push(format!(
                "{name}: docs/format.md says {value:?}, the code {code:?}"
            )),
            Some(_) => {}
        }
    }
    wrong.extend(
        coded
            .keys()
            .filter(|name| !documented.contains_key(*name))
            .map(|name| format!("{name}: missing in docs/format.md")),
    );
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

/// Field by name: offset and size.
type Fields = BTreeMap<String, (u64, u64)>;

fn fields_of(table: &Table) -> Fields {
    table
        .rows
        .iter()
        .map(|row| (row[2].clone(), (row.number(0), row.number(1))))
        .collect()
}

#[test]
fn structures() {
    let document = document();
    let mut documented = BTreeMap::new();
    for table in document.tables("struct") {
        documented.insert(table.name().to_owned(), (table.size(), fields_of(table)));
    }
    let mut coded = code::structures();
    coded.extend(code::page_layouts());
    let private = document
        .tables("struct-private")
        .map(|table| (table.name().to_owned(), (table.size(), fields_of(table))))
        .collect();
    same("private structures", &private, &code::private());
    same("structures", &documented, &coded);
}

#[test]
fn fields_leave_no_gap() {
    let document = document();
    for table in document
        .tables("struct")
        .chain(document.tables("struct-private"))
    {
        let mut end = 0;
        for row in &table.rows {
            assert_eq!(row.number(0), end, "{}.{}", table.name(), &row[2]);
            end += row.number(1);
        }
        assert_eq!(end, table.size(), "{} ends elsewhere", table.name());
    }
}

/// A structure or constant that is new in the sources is known to this test, and so, by the
/// other tests, to the document.
#[test]
fn nothing_in_the_sources_is_forgotten() {
    let names = |structures: BTreeMap<String, _>| structures.into_keys().map(|n| (n, ())).collect();
    for (krate, known) in [
        ("core-state", names(code::structures())),
        ("controller-state", names(code::private())),
    ] {
        same(
            "structures",
            &known,
            &source::stored_structures(&root(), krate),
        );
    }
    let known = code::constants().into_keys().map(|n| (n, ())).collect();
    same(
        "constants",
        &known,
        &source::constants(&root(), "core-state"),
    );
}

#[test]
fn constants() {
    let documented = document()
        .tables("constants")
        .flat_map(|table| &table.rows)
        .map(|row| (row[0].clone(), row.value(1)))
        .collect();
    same("constants", &documented, &code::constants());
}

#[test]
fn bits() {
    let document = document();
    for (name, fields) in code::bits() {
        let table = document.table("bits", name);
        let documented = table
            .rows
            .iter()
            .map(|row| (row[1].clone(), row.range(0)))
            .collect();
        same(name, &documented, &fields);
    }
    assert_eq!(document.tables("bits").count(), code::bits().len());
}

#[test]
fn enumerations() {
    let document = document();
    let coded = code::enumerations();
    for (name, values) in &coded {
        let documented = document
            .table("enum", name)
            .rows
            .iter()
            .map(|row| (row[1].clone(), row.number(0)))
            .collect();
        same(name, &documented, values);
    }
    assert_eq!(document.tables("enum").count(), coded.len());
}

#[test]
fn files() {
    let documented = document()
        .tables("files")
        .flat_map(|table| &table.rows)
        .map(|row| (row[0].clone(), ()))
        .collect();
    same("files", &documented, &code::files());
}

#[test]
fn examples() {
    let document = document();
    for row in &document.table("examples", "hash_name").rows {
        let hash = arck_core_state::directory::hash_name(row.number(0), row[1].as_bytes());
        assert_eq!(hash, row.number(2), "hash of {}", &row[1]);
        assert_eq!(
            u64::from(arck_core_state::directory::tag(hash)),
            row.number(3)
        );
    }
    for row in &document.table("examples", "bucket_of").rows {
        let bucket = arck_core_state::directory::bucket_of(row.number(1), row.number(0));
        assert_eq!(bucket, row.number(2), "{:?}", row);
    }
    for row in &document.table("examples", "units_for").rows {
        let units = arck_core_state::directory::units_for(row.number(0) as usize);
        assert_eq!(units as u64, row.number(1), "{:?}", row);
    }
    for row in &document.table("examples", "height_for").rows {
        let height = arck_core_state::index::height_for(row.number(0));
        assert_eq!(u64::from(height), row.number(1), "{:?}", row);
    }
}

/// The checksum of a record, computed as the document says.
#[test]
fn record_checksum() {
    use arck_core_state::record::{RECORD_UNIT, Record, Seed, effect};
    let document = document();
    let table = document.table("struct", "RecordSeed");
    let seed = Seed {
        directory: 0x0102_0304,
        fold: 0x1112_1314_1516_1718,
        unit: 0x2122_2324,
    };
    let mut bytes = vec![0u8; table.size() as usize];
    for row in &table.rows {
        let value = match row[2].as_str() {
            "directory" => u64::from(seed.directory),
            "fold" => seed.fold,
            "unit" => u64::from(seed.unit),
            other => panic!("{other} is no part of the seed"),
        };
        let (at, size) = (row.number(0) as usize, row.number(1) as usize);
        bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size]);
    }
    let record = Record {
        state: effect::ADD,
        sequence: 1,
        kind: arck_core_state::FileKind::File,
        inode: 2,
        generation: 3,
        source_directory: 0,
        mode: 0o644,
        uid: 4,
        gid: 5,
        created: 6,
        changed: None,
        kills: Default::default(),
        name: b"name",
        source: b"source",
    };
    let mut stored = [0u8; 2 * RECORD_UNIT];
    assert_eq!(record.encode(seed, &mut stored), Some(stored.len()));
    let covered = &stored[8..RECORD_UNIT + record.name.len() + record.source.len()];
    let expected = crc32c::crc32c_append(crc32c::crc32c(&bytes), covered);
    assert_eq!(stored[..4], expected.to_le_bytes());
}

#[test]
fn drawings() {
    let mut document = document();
    let mut wrong = Vec::new();
    let draw = std::env::var_os("FORMAT_DRAW").is_some();
    for table in document.drawn() {
        let expected = drawing::draw(&table);
        let found = document.drawing_after(&table);
        if draw {
            document.replace_drawing(&table, &expected);
        } else if found != expected {
            wrong.push(format!("{} should be drawn\n{expected}", table.name()));
        }
    }
    if draw {
        document.write(&root().join("docs/format.md"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
