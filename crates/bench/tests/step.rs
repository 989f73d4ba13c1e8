//! `arck-bench step` counts right, on code of which it is known what it does, and the same each time.

mod common;

use common::{at, bench, json, library, printed};
use serde_json::{Value, json};

fn rows(name: &str, arguments: &[&str]) -> Vec<Value> {
    let answer = at(name);
    let path = answer.to_str().expect("a path");
    let arguments = [&["step", "--json", path], arguments].concat();
    printed(bench(&arguments));
    json(&answer)["rows"].as_array().expect("rows").clone()
}

#[test]
fn known_code_is_counted_exactly() {
    let rows = rows("step-known.json", &["--known"]);
    assert_eq!(rows.len(), 2, "{rows:?}");
    let (nothing, some) = (&rows[0], &rows[1]);
    for (row, name) in [(nothing, "nothing"), (some, "some of each")] {
        assert_eq!(row["operation"], name);
        assert_eq!(row["operations"], 3);
    }
    for (figure, count) in nothing["each"].as_object().expect("figures") {
        assert_eq!(count, 0, "{figure}");
    }
    assert_eq!(
        some["each"],
        json!({
            "instructions": 19, "preload": 0, "libc": 0, "system_calls": 1,
            "lines_read": 7, "lines_written": 9, "lines": 13, "lines_pool": 0,
            "flushes": 2, "streaming": 1, "fences": 2, "locked": 2,
        })
    );
    assert_eq!(some["mean_instructions"], 19.0);
}

#[test]
fn calls_are_counted_in_both_ways_and_the_same_again() {
    library();
    let arguments = ["--quick", "--filter", "stat"];
    let first = rows("step-stat.json", &arguments);
    let names: Vec<(&str, &str)> = first
        .iter()
        .map(|row| {
            let text = |field: &str| row[field].as_str().expect("text");
            (text("way"), text("operation"))
        })
        .collect();
    let expected = [
        ("preload", "stat"),
        ("preload", "stat, five deep"),
        ("Rust API", "stat"),
        ("Rust API", "stat, five deep"),
    ];
    assert_eq!(names, expected);
    for row in &first {
        let each = |field: &str| row["each"][field].as_u64().expect("a count");
        assert!(each("instructions") > 100, "{row}");
        assert!(each("lines_read") > 10 && each("lines_pool") > 0, "{row}");
        for none in ["system_calls", "flushes", "streaming", "fences"] {
            assert_eq!(each(none), 0, "{row}");
        }
        // ArckFS is in the preload library, or in the program.
        assert_eq!(each("preload") > 100, row["way"] == "preload", "{row}");
    }
    let again = rows("step-stat-again.json", &arguments);
    for (one, other) in first.iter().zip(&again) {
        for (figure, count) in one["each"].as_object().expect("figures") {
            let (count, again) = (count.as_f64(), other["each"][figure].as_f64());
            let (count, again) = (count.expect("a count"), again.expect("a count"));
            // Chains of a few names differ from pool to pool.
            let apart = (count - again).abs();
            assert!(apart <= (count * 0.05).max(2.0), "{figure}: {one} {other}");
        }
    }
}

#[test]
fn what_is_written_is_flushed_and_fenced() {
    library();
    let rows = rows("step-append.json", &["--quick", "--filter", "append"]);
    assert_eq!(rows.len(), 2);
    for row in rows {
        let each = |field: &str| row["each"][field].as_u64().expect("a count");
        // 4 KiB are 64 lines; both ways stream them.
        assert!(
            each("streaming") >= 64 && each("lines_written") >= 64,
            "{row}"
        );
        assert!(each("fences") >= 1, "{row}");
        assert!(each("flushes") >= 1, "{row}");
    }
}
