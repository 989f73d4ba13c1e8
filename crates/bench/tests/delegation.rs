//! `arck-bench delegation` measures all ways, and tells of each what the medium could do.

mod common;

const MEDIUM: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../medium/media/optane-eighth.toml"
);

#[test]
fn all_ways_are_measured() {
    let answer = common::at("delegation.json");
    let printed = common::printed(common::bench(&[
        "--medium",
        MEDIUM,
        "delegation",
        "--quick",
        "--json",
        answer.to_str().expect("a path"),
    ]));
    let found = common::json(&answer);
    // As many threads as move most in the file.
    assert_eq!(found["delegates"], 4);
    assert_eq!(found["nodes"], 1);
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6, "{printed}");
    for row in rows {
        let figure = |name: &str| row[name].as_f64().expect("a figure");
        for way in ["alone", "delegated", "at_once"] {
            assert!(figure(way) > 0.0, "{row}");
        }
        let longest = row["longest"].as_array().expect("three");
        assert!(longest.len() == 3 && longest.iter().all(|one| one.as_f64() > Some(0.0)));
        // One thread writes no faster than the medium lets it.
        if figure("threads") == 1.0 && row["operation"] == "write 2 MiB" {
            assert!(figure("alone") < 0.6 * figure("peak"), "{row}");
        }
    }
    assert!(printed.contains("| write 2 MiB | 16 |"), "{printed}");
}

/// Files that grow, and one that does little beside those who write much.
#[test]
fn who_stands_by_is_measured() {
    let answer = common::at("bystander.json");
    let printed = common::printed(common::bench(&[
        "--medium",
        MEDIUM,
        "delegation",
        "--quick",
        "--bystander",
        "--fresh",
        "--json",
        answer.to_str().expect("a path"),
    ]));
    let found = common::json(&answer);
    assert_eq!(found["threads"], 16);
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 6, "{printed}");
    for row in rows {
        assert!(row["rate"].as_f64() > Some(0.0), "{row}");
        for what in ["names", "writes"] {
            let figure = |name: &str| row[what][name].as_f64().expect("a figure");
            assert!(figure("median") > 0.0, "{row}");
            assert!(figure("median") <= figure("most"), "{row}");
            assert!(figure("most") <= figure("longest"), "{row}");
        }
    }
    assert!(
        printed.contains("| write 2 MiB | so many at once |"),
        "{printed}"
    );
}

/// Of files that grow, writes are measured.
#[test]
fn files_that_grow_are_measured() {
    let answer = common::at("fresh.json");
    let printed = common::printed(common::bench(&[
        "--medium",
        MEDIUM,
        "delegation",
        "--quick",
        "--fresh",
        "--json",
        answer.to_str().expect("a path"),
    ]));
    let found = common::json(&answer);
    assert_eq!(found["is_fresh"], true);
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{printed}");
    assert!(printed.contains("writes are of new pages"), "{printed}");
}

/// The table that is printed is one that a medium's file can have, with what was measured.
#[test]
fn thresholds_are_printed_for_the_mediums_file() {
    let answer = common::at("thresholds.json");
    let printed = common::printed(common::bench(&[
        "--medium",
        MEDIUM,
        "delegation",
        "--thresholds",
        "--quick",
        "--delegates",
        "3",
        "--json",
        answer.to_str().expect("a path"),
    ]));
    let found = common::json(&answer);
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 16, "{printed}");
    for row in rows {
        let figure = |name: &str| row[name].as_f64().expect("a figure");
        for way in ["alone", "delegated", "at_once"] {
            assert!(figure(way) > 0.0, "{row}");
        }
    }
    let (_, tables) = printed.split_once("[delegation]").expect("tables");
    let text = std::fs::read_to_string(MEDIUM).expect("the medium");
    let (text, _) = text.split_once("[delegation]").unwrap_or((&text, ""));
    let text = format!("{text}\n[delegation]{tables}");
    let with = arck_medium::Medium::parse("printed.toml", &text).expect("a medium");
    for (at, (name, few)) in [
        ("delegation", with.model.delegated),
        ("at_once", with.model.at_once),
    ]
    .into_iter()
    .enumerate()
    {
        let table = &found["tables"][at];
        assert_eq!(table["name"], name);
        assert_eq!(few.threads, 3);
        assert_eq!(table["writes_from"], few.writes_from);
        assert_eq!(table["reads_from"], few.reads_from);
    }
}

/// Several processes of one group, all ways; on a medium that many writers slow down, few at once are few of all processes.
#[test]
fn processes_of_a_group_are_few_at_once_together() {
    let answer = common::at("processes.json");
    let printed = common::printed(common::bench(&[
        "--medium",
        MEDIUM,
        "delegation",
        "--processes",
        "1,4",
        "--threads",
        "48",
        "--rounds",
        "1",
        "--json",
        answer.to_str().expect("a path"),
    ]));
    let found = common::json(&answer);
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{printed}");
    for row in rows {
        let figure = |name: &str| row[name].as_f64().expect("a figure");
        assert_eq!(figure("threads"), 48.0 / figure("processes"));
        assert!(figure("delegated") > 0.0, "{row}");
        // 48 writers get 0.6 GB/s, and 4 get 1.5; with whatever else the machine has to do.
        if row["operation"] == "write 2 MiB" {
            assert!(figure("at_once") > 1.3 * figure("alone"), "{row}");
        }
    }
}

/// Each way to another process's memory has its figures, and no figure is of nothing.
#[test]
fn the_memory_of_another_process_is_measured() {
    let answer = common::at("across.json");
    let json = answer.to_str().expect("a path");
    let arguments = ["delegation", "--across", "--rounds", "1", "--json", json];
    let printed = common::printed(common::bench(&arguments));
    let found = common::json(&answer);
    let rows = found["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 4, "{printed}");
    for row in rows {
        let times = row["microseconds"].as_array().expect("times");
        let times: Vec<f64> = times.iter().filter_map(|time| time.as_f64()).collect();
        assert!(
            times.len() == 3 && times[0] > 0.0 && times[2] > times[0],
            "{row}"
        );
    }
    assert!(printed.contains("process_vm_readv") && printed.contains("process_vm_writev"));
}
