//! `docs/messages.md`, drawn from the declarations, and the test that it is as drawn.
//!
//! `MESSAGES_DRAW=1 cargo test -p arck-protocol documentation` draws the document anew.

use crate::PROTOCOL_VERSION;
use crate::declare::Row;
use crate::measure::HandOvers;
use crate::message::listed::{Listed, ListedName};
use crate::message::{MESSAGE_MAX, Request, Response};
use crate::socket::{Access, Answer, Call, Caller, HandedOn, Welcome};
use crate::status::{Pool, Process, Processes, Status};
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "\
# Messages

What sessions and the controller say to each other, byte for byte. Made from the declarations in
`crates/protocol/src` (`messages!`), which also make the types, what encodes and what decodes them: do not edit;
`MESSAGES_DRAW=1 cargo test -p arck-protocol documentation` makes it anew, and a test fails if it differs.

A message is a byte that says which, then its fields in order, without padding; numbers are little-endian. *Bytes*
is how long it is in all. What is shorter, longer, or has other bytes than a field can have is malformed, and answered EPROTO.

| a field | is |
| --- | --- |
| `u8`, `u32`, `u64`, `InodeNumber`, `SegmentNumber` | a number of one, four or eight bytes; numbers of inodes and segments have four |
| `u16` | four bytes, of which two are 0 |
| `i32` | an error number, from 1 to 4095, in four bytes |
| `bool` | a byte, 0 or 1; `as Flag`: four bytes |
| `[T; N]` | N of them |
| `Vec<u8> as Bytes<N>` | their number in two bytes, and at most N bytes |
| `Vec<_> as List<N>` | their number in two bytes, and at most N numbers of four bytes; `InodeList`: at most 128 |
| `String as Text<N>`, `as PlainText<N>` | as `Bytes<N>`, in UTF-8; what is longer is cut off. Of plain text whoever reads it takes out what would steer a terminal |
| `as Version` | the version of the protocol; of a message of another version nothing else is read |
| `Geometry` | bytes of a segment (eight), number of segments, number of inodes (four each) |
| `as SomeProcesses` | their number in two bytes, and they; at most 32 |
| `as Onward` | a bucket (eight bytes) and what to skip there (four); at the end -1 and 0 |
| `as ToTheEnd` | as many as there are, to the end of the message |
";

/// Links between items of the code are none here.
fn plain(document: &str) -> String {
    let mut plain = String::new();
    let mut rest = document.trim();
    while let Some(at) = rest.find("](") {
        plain += &rest[..=at];
        rest = rest[at..].find(')').map_or("", |end| &rest[at + end + 1..]);
    }
    plain += rest;
    plain
        .replace("[`", "`")
        .replace("`]", "`")
        .replace('|', "\\|")
}

fn draw() -> String {
    let mut text = HEAD.to_string();
    let _ = writeln!(
        text,
        "\nVersion {PROTOCOL_VERSION} of the protocol; no message has more than {MESSAGE_MAX} bytes."
    );
    let mut table = |title: &str, rows: &[&[Row]]| {
        let _ = write!(text, "\n## {title}\n\n");
        let mut rows: Vec<&Row> = rows.iter().copied().flatten().collect();
        rows.sort_by_key(|row| row.number);
        text += "| | message | fields | bytes | what |\n| --- | --- | --- | --- | --- |\n";
        for row in rows {
            let number = row
                .number
                .map_or(String::new(), |number| number.to_string());
            let field = |(name, coding): &(_, _)| format!("`{name}: {coding}`");
            let fields: Vec<_> = row.fields.iter().map(field).collect();
            let bytes = match (row.least, row.most) {
                (least, most) if least == most => least.to_string(),
                (least, most) => format!("{least} to {most}"),
            };
            let (name, fields) = (row.name, fields.join(", "));
            let what = plain(row.document);
            let _ = writeln!(
                text,
                "| {number} | `{name}` | {fields} | {bytes} | {what} |"
            );
        }
    };
    table("Requests, in a slot of control memory", &[Request::ROWS]);
    table("Responses to them", &[Response::ROWS]);
    table("Calls, on the socket", &[Call::ROWS]);
    table("Answers to them", &[Answer::ROWS]);
    table(
        "What they are made of",
        &[
            Caller::ROWS,
            HandedOn::ROWS,
            Welcome::ROWS,
            Status::ROWS,
            Pool::ROWS,
            Process::ROWS,
            Processes::ROWS,
            HandOvers::ROWS,
            Listed::ROWS,
            ListedName::ROWS,
        ],
    );
    table("What a file is open for (`Access`)", &[Access::ROWS]);
    text
}

#[test]
fn the_document_is_as_drawn() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/messages.md");
    let drawn = draw();
    if std::env::var_os("MESSAGES_DRAW").is_some() {
        std::fs::write(&path, &drawn).expect("docs/messages.md can be written");
        return;
    }
    let there = std::fs::read_to_string(&path).expect("docs/messages.md");
    let mut lines = there.lines().zip(drawn.lines());
    let differs = lines.find(|(there, drawn)| there != drawn);
    assert!(
        there == drawn,
        "docs/messages.md is not as declared ({differs:?}); MESSAGES_DRAW=1 draws it anew"
    );
}
