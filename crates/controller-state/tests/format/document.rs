//! Reads the tables and drawings of `docs/format.md`.

use std::collections::BTreeMap;
use std::ops::Index;
use std::path::Path;

/// The document, as lines.
pub struct Document {
    lines: Vec<String>,
    tables: Vec<Table>,
}

/// A table and the marker before it.
#[derive(Clone)]
pub struct Table {
    marker: Vec<String>,
    pub rows: Vec<Row>,
    /// Line behind its last row.
    end: usize,
}

/// The cells of a row, without the backticks of code.
#[derive(Clone, Debug)]
pub struct Row(Vec<String>);

impl Index<usize> for Row {
    type Output = String;
    fn index(&self, index: usize) -> &String {
        &self.0[index]
    }
}

impl Row {
    pub fn number(&self, index: usize) -> u64 {
        let cell = self[index].replace('_', "");
        match cell.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16),
            None => cell.parse(),
        }
        .unwrap_or_else(|_| panic!("{:?} is no number in {:?}", self[index], self.0))
    }

    /// A number, possibly negative, or eight characters between quotes as a little-endian word.
    pub fn value(&self, index: usize) -> i128 {
        if let Some(text) = self[index].strip_prefix('"') {
            let text = text.trim_end_matches('"').replace("\\0", "\0");
            let bytes = text.as_bytes().try_into().expect("eight characters");
            return i128::from(u64::from_le_bytes(bytes));
        }
        match self[index].strip_prefix('-') {
            Some(_) => self[index].replace('_', "").parse().expect("a number"),
            None => i128::from(self.number(index)),
        }
    }

    /// `a..b`, or `a` for one bit.
    pub fn range(&self, index: usize) -> (u64, u64) {
        let bit = |text: &str| text.parse().expect("a bit");
        match self[index].split_once("..") {
            Some((from, to)) => (bit(from), bit(to)),
            None => (bit(&self[index]), bit(&self[index]) + 1),
        }
    }
}

impl Table {
    fn kind(&self) -> &str {
        &self.marker[0]
    }
    pub fn name(&self) -> &str {
        self.marker.get(1).map_or("", String::as_str)
    }
    /// Of a structure, in bytes.
    pub fn size(&self) -> u64 {
        self.marker[2].parse().expect("a size in the marker")
    }
}

impl Document {
    pub fn read(path: &Path) -> Document {
        let text = std::fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        let tables = tables(&lines);
        let mut seen = BTreeMap::new();
        for table in &tables {
            let key = (table.kind().to_owned(), table.name().to_owned());
            assert!(seen.insert(key, ()).is_none(), "{} twice", table.name());
        }
        Document { lines, tables }
    }

    pub fn write(&self, path: &Path) {
        std::fs::write(path, self.lines.join("\n") + "\n").expect("writing the document");
    }

    pub fn tables(&self, kind: &'static str) -> impl Iterator<Item = &Table> {
        self.tables.iter().filter(move |table| table.kind() == kind)
    }

    pub fn table(&self, kind: &'static str, name: &str) -> &Table {
        self.tables(kind)
            .find(|table| table.name() == name)
            .unwrap_or_else(|| panic!("docs/format.md has no table {kind} {name}"))
    }

    /// Tables of structures, the last first, so that replacing a drawing moves none of the rest.
    pub fn drawn(&self) -> Vec<Table> {
        let mut drawn: Vec<Table> = self.tables("struct").cloned().collect();
        drawn.extend(self.tables("struct-private").cloned());
        drawn.sort_by_key(|table| std::cmp::Reverse(table.end));
        drawn
    }

    /// Lines of the drawing behind a table: the next block of text before another marker.
    fn drawing_lines(&self, table: &Table) -> std::ops::Range<usize> {
        let rest = &self.lines[table.end..];
        let missing = || panic!("{} has no drawing behind its table", table.name());
        let next = rest
            .iter()
            .position(|line| line.starts_with("<!-- "))
            .unwrap_or(rest.len());
        let first = rest[..next]
            .iter()
            .position(|line| line == "```text")
            .unwrap_or_else(missing);
        let length = rest[first + 1..]
            .iter()
            .position(|line| line == "```")
            .unwrap_or_else(missing);
        table.end + first + 1..table.end + first + 1 + length
    }

    pub fn drawing_after(&self, table: &Table) -> String {
        self.lines[self.drawing_lines(table)].join("\n")
    }

    pub fn replace_drawing(&mut self, table: &Table, drawing: &str) {
        let range = self.drawing_lines(table);
        self.lines.splice(range, drawing.lines().map(str::to_owned));
    }
}

fn tables(lines: &[String]) -> Vec<Table> {
    let mut tables = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(marker) = line
            .strip_prefix("<!-- ")
            .and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let first = at
            + lines[at..]
                .iter()
                .position(|line| line.starts_with('|'))
                .unwrap_or_else(|| panic!("no table behind {line}"));
        let length = lines[first..]
            .iter()
            .position(|line| !line.starts_with('|'))
            .unwrap_or(lines.len() - first);
        // The first two lines are the head.
        let rows = lines[first..first + length].iter().skip(2).map(|line| {
            let cells = line.trim_matches('|').split('|');
            Row(cells
                .map(|cell| cell.trim().trim_matches('`').to_owned())
                .collect())
        });
        tables.push(Table {
            marker: marker.split(' ').map(str::to_owned).collect(),
            rows: rows.collect(),
            end: first + length,
        });
    }
    tables
}
