//! `arck-bench report` has all chapters in each of its forms. Times are not looked at.

mod common;

use common::{at, bench, printed};

#[test]
fn one_report_in_three_forms() {
    common::library();
    common::leveldb_bench();
    let (json, html) = (at("report.json"), at("report.html"));
    let path = |file: &std::path::Path| file.to_str().expect("a path").to_owned();
    let table = printed(bench(&[
        "report",
        "--quick",
        "--json",
        &path(&json),
        "--html",
        &path(&html),
    ]));
    let page = std::fs::read_to_string(&html).expect("the page");
    let report = common::json(&json);
    let chapters = report["chapters"].as_array().expect("chapters");
    let commands: Vec<&str> = chapters
        .iter()
        .map(|chapter| chapter["command"].as_str().expect("a name"))
        .collect();
    assert_eq!(
        commands,
        ["growth", "fxmark", "personalities", "micro", "apps"]
            .map(|name| format!("arck-bench {name}"))
    );
    for (chapter, command) in chapters.iter().zip(&commands) {
        assert!(table.contains(command), "{table}");
        assert!(page.contains(&format!("<h2>{command}</h2>")), "{page}");
        // A quick report says what it is short of.
        let shortened = chapter["shortened"].as_str().expect("a sentence");
        assert!(shortened.contains("One round") || shortened.contains("one round"));
        for text in [&table, &page] {
            assert!(text.contains(shortened), "{shortened}: {text}");
        }
        let rows = chapter["rows"].as_array().expect("rows");
        assert!(rows.len() >= 12, "{chapter}");
        for row in rows {
            let what = row["what"].as_str().expect("a name");
            assert!(table.contains(&format!("| {what} | ")), "{what}: {table}");
            assert!(page.contains(&format!("<td>{what}<td>")), "{what}");
        }
    }
    let of_controller = report["fold"]["rows"].as_array().expect("rows");
    assert_eq!(of_controller.len(), 3);
    for row in of_controller {
        let (what, both, wanted) = (&row["what"], &row["both"], &row["wanted"]);
        let (what, both) = (what.as_str().expect("a name"), both.as_f64().expect("ns"));
        let wanted = wanted.as_f64().expect("ns");
        let line = format!("| {both:.0} | {wanted:.0} |");
        let told = table
            .lines()
            .find(|text| text.starts_with(&format!("| {what} | ")));
        assert!(told.is_some_and(|told| told.ends_with(&line)), "{table}");
        assert!(page.contains(&format!("<td>{what}<td class=n>")), "{page}");
    }
    for wanted in [
        "longest (wanted: 10000)",
        "bystander's 99.9 % (wanted: 2000)",
    ] {
        assert!(table.contains(wanted), "{table}");
    }
    for row in report["step"]["rows"].as_array().expect("rows") {
        let (operation, way) = (&row["operation"], &row["way"]);
        let name = |value: &serde_json::Value| value.as_str().expect("a name").to_owned();
        let (operation, way) = (name(operation), name(way));
        assert!(
            table.contains(&format!("| {operation} | {way} | ")),
            "{table}"
        );
        assert!(page.contains(&format!("<td>{operation}<td>{way}<td")));
    }
    assert_eq!(report["step"]["rows"].as_array().map(Vec::len), Some(20));
    assert_eq!(page.matches("<svg").count(), commands.len() + 1);
    // It needs nothing but itself: the only address is the name of the language of plots.
    let addresses = page.matches("http").count();
    assert_eq!(
        addresses,
        page.matches("http://www.w3.org/2000/svg").count()
    );
    assert!(!table.contains("NaN"), "{table}");
    // README's table comes out of it.
    let readme = printed(bench(&["readme", &path(&json)]));
    let names = printed(bench(&["readme"]));
    let document = at("report-readme.md");
    let marks = "<!-- arck-bench readme begins -->\n<!-- arck-bench readme ends -->";
    std::fs::write(&document, format!("before {marks} behind")).expect("a document");
    printed(bench(&[
        "readme",
        &path(&json),
        "--write",
        &path(&document),
    ]));
    let written = std::fs::read_to_string(&document).expect("the document");
    assert!(written.starts_with("before ") && written.ends_with(" behind"));
    for name in names.lines() {
        assert!(readme.contains(&format!("| {name} | ")), "{name}: {readme}");
        assert!(
            written.contains(&format!("| {name} | ")),
            "{name}: {written}"
        );
    }
}

#[test]
fn a_page_that_cannot_be_written_is_told_first() {
    let output = bench(&["report", "--quick", "--html", "/nowhere/report.html"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let line = String::from_utf8(output.stderr).expect("text");
    assert!(line.contains("/nowhere/report.html: "), "{line}");
}
