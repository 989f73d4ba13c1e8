//! What a hand-over moves and looks at follows the change, not the file or directory: counted by
//! `arck-bench sharing`, small. Times are not looked at.

use std::path::Path;
use std::process::Command;

/// A case's counts of one hand-over, medians.
fn count(row: &serde_json::Value, name: &str) -> f64 {
    row["awake"][name].as_f64().expect("a number")
}

/// Rows whose name has this in it, small ones first.
fn rows<'a>(report: &'a serde_json::Value, part: &str) -> Vec<&'a serde_json::Value> {
    let all = report["rows"].as_array().expect("rows");
    all.iter()
        .filter(|row| row["what"].as_str().expect("a name").contains(part))
        .collect()
}

#[test]
fn hand_overs_cost_what_was_changed() {
    let answer = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sharing.json");
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["sharing", "--quick", "--json"])
        .arg(&answer)
        .output()
        .expect("arck-bench runs");
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    // Three tables, and one of what FxMark has two do: four ways to write, three directories; written in order or not, a hand-over is
    // the same.
    let lines = |part: &str| table.lines().filter(|line| line.starts_with(part)).count();
    assert_eq!(lines("| operation |"), 4, "{table}");
    assert_eq!(lines("| --- |"), 4, "{table}");
    assert_eq!(lines("| write 4 KiB, file of "), 4 + 2 + 2, "{table}");
    assert_eq!(lines("| create, directory of "), 3 + 3 + 3, "{table}");
    assert!(!table.contains("NaN"), "{table}");
    // Turns of two programs: by owners, by messages, as is found, on tmpfs.
    for bytes in ["| 100 |", "| 4096 |", "| 65536 |"] {
        assert_eq!(lines(bytes), 4, "{table}");
    }

    let text = std::fs::read_to_string(&answer).expect("the answer");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let pairs = report["fxmark"].as_array().expect("pairs");
    assert_eq!((pairs.len(), lines("| MWCM") + lines("| MWUM")), (10, 2));
    for pair in pairs {
        // Beside who reads alone, the other does nothing.
        let is_alone = pair["what"]
            .as_str()
            .expect("a name")
            .contains("by one alone");
        for rates in ["pool", "tmpfs"] {
            for (of, rate) in pair[rates].as_array().expect("of both").iter().enumerate() {
                let works = !(is_alone && of == 1);
                assert_eq!(rate.as_f64().expect("a rate") > 0.0, works, "{pair}");
            }
        }
    }
    for turns in report["alternating"].as_array().expect("turns") {
        for time in ["write", "write_99", "write_longest", "read", "read_99"] {
            assert!(turns[time].as_f64().expect("a time") > 0.0, "{turns}");
        }
    }
    let [small, large] = rows(&report, "at random")[..] else {
        panic!("two files: {text}");
    };
    // One pointer changed, of each file.
    assert_eq!(
        (count(small, "records"), count(large, "records")),
        (1.0, 1.0)
    );
    // A page of the delta's index for each level, and the branch.
    let copied = (count(small, "bytes_copied"), count(large, "bytes_copied"));
    assert!(copied.0 > 4096.0 && copied.0 < 2.0 * 4096.0, "{copied:?}");
    assert!(copied.1 - copied.0 <= 4096.0, "{copied:?}");
    let read = (count(small, "pages_read"), count(large, "pages_read"));
    assert!(read.0 >= 1.0 && read.1 - read.0 <= 3.0, "{read:?}");

    let directories = rows(&report, "create");
    assert_eq!(directories.len(), 3);
    let [first, others @ ..] = &directories[..] else {
        panic!("no directories");
    };
    // A name, and a creation, which has its link.
    assert_eq!(count(first, "records"), 2.0);
    for other in others {
        for name in ["records", "bytes_copied"] {
            assert_eq!(count(first, name), count(other, name), "{name}: {other}");
        }
        // Higher in the tree, and a longer chain now and then.
        let more = count(other, "pages_read") - count(first, "pages_read");
        assert!(more <= 6.0, "{other}");
    }
    for row in rows(&report, "") {
        let journaled = count(row, "bytes_journaled");
        assert!(journaled < 1024.0, "{row}");
        assert!(
            row["throughput"]["shared"].as_f64().expect("a rate") > 0.0,
            "{row}"
        );
    }
}
