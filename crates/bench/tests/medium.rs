//! `arck-bench medium` tells of each case what the file says and what is found. Times are looked at from one side only:
//! a machine that is busy is slower, and never faster.

mod common;

#[test]
fn an_emulated_medium_is_no_faster_than_its_file() {
    let answer = common::at("medium.json");
    let file = common::at("slow.toml");
    // So slow that any machine can do it.
    let text = r#"
        about = "a slow one"
        [nodes]
        count = 2
        stripe = 2097152
        source = "made up"
        [unit]
        bytes = 256
        source = "made up"
        [read.latency]
        nanoseconds = 1000
        source = "made up"
        [read.by_threads]
        points = [[1, 1.0], [4, 2.0], [16, 0.5]]
        source = "made up"
        [write.latency]
        nanoseconds = 3000
        source = "made up"
        [write.by_threads]
        points = [[1, 0.5], [4, 1.0], [16, 0.25]]
        source = "made up"
    "#;
    std::fs::write(&file, text).expect("a file");
    let printed = common::printed(common::bench(&[
        "medium",
        "--quick",
        "--medium",
        file.to_str().expect("a path"),
        "--json",
        answer.to_str().expect("a path"),
    ]));
    let found = common::json(&answer);
    assert_eq!(found["about"], "a slow one");
    let tables = found["tables"].as_array().expect("tables");
    assert_eq!(tables.len(), 4, "{printed}");
    for row in tables
        .iter()
        .flat_map(|table| table["rows"].as_array().expect("rows"))
    {
        let figure = |name: &str| row[name].as_f64().expect("a figure");
        assert!(figure("found") > 0.0, "{row}");
        // Fewer threads at once, as on a machine that does not let all of them run, are faster here.
        assert!(figure("found") < 2.2, "{row}");
        if figure("threads") == 1.0 {
            assert!(figure("found") < 1.1 * figure("file"), "{row}");
        }
    }
    let fence = &found["fence"];
    assert!(fence[1].as_f64().expect("a figure") >= 3000.0, "{fence}");
    assert!(printed.contains("streamed writes of 2 MiB"), "{printed}");
}

#[test]
fn a_medium_that_is_none_is_told() {
    let output = common::bench(&["medium", "--medium", "floppy"]);
    assert!(!output.status.success());
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(told.contains("floppy: no such file"), "{told}");
}
