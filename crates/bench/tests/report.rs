//! `arck-bench report` has all chapters in each of its forms. Times are not looked at.

use std::path::Path;
use std::process::Command;

#[test]
fn one_report_in_three_forms() {
    let at = |name: &str| Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (json, html) = (at("report.json"), at("report.html"));
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["report", "--quick", "--json"])
        .arg(&json)
        .arg("--html")
        .arg(&html)
        .output()
        .expect("arck-bench runs");
    assert!(output.status.success(), "{output:?}");
    let table = String::from_utf8(output.stdout).expect("text");
    let page = std::fs::read_to_string(&html).expect("the page");
    let text = std::fs::read_to_string(&json).expect("the answer");
    let report: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let chapters = report["chapters"].as_array().expect("chapters");
    let commands: Vec<&str> = chapters
        .iter()
        .map(|chapter| chapter["command"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        commands,
        ["growth", "fxmark", "personalities", "micro"].map(|name| format!("arck-bench {name}"))
    );
    for (chapter, command) in chapters.iter().zip(&commands) {
        assert!(table.contains(command), "{table}");
        assert!(page.contains(&format!("<h2>{command}</h2>")), "{page}");
        let rows = chapter["rows"].as_array().expect("rows");
        assert!(rows.len() >= 12, "{chapter}");
        for row in rows {
            let what = row["what"].as_str().expect("a name");
            assert!(table.contains(&format!("| {what} | ")), "{what}: {table}");
            assert!(page.contains(&format!("<td>{what}<td>")), "{what}");
        }
    }
    assert_eq!(page.matches("<svg").count(), commands.len());
    // It needs nothing but itself: the only address is the name of the language of plots.
    let addresses = page.matches("http").count();
    assert_eq!(
        addresses,
        page.matches("http://www.w3.org/2000/svg").count()
    );
    assert!(!table.contains("NaN"), "{table}");
}

#[test]
fn a_page_that_cannot_be_written_is_told_first() {
    let output = Command::new(env!("CARGO_BIN_EXE_arck-bench"))
        .args(["report", "--quick", "--html", "/nowhere/report.html"])
        .output()
        .expect("arck-bench runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = String::from_utf8(output.stderr).expect("text");
    assert!(line.contains("/nowhere/report.html: "), "{line}");
}
