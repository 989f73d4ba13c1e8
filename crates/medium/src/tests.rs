//! Descriptions that are right, and what is told of those that are not.

use super::*;

const RIGHT: &str = r#"about = "two of something"
[nodes]
count = 2
stripe = 2097152
source = "a"
[unit]
bytes = 256
source = "b"
[read.latency]
nanoseconds = 305
source = "c"
[read.by_threads]
points = [[1, 2.88], [17, 38]]
source = "d"
[write.latency]
nanoseconds = 90
source = "e"
[write.by_threads]
points = [[1, 2.5],
          [4, 12.5],
          [24, 7.5]]
source = "f"
[write.by_size]
points = [[256, 6], [4096, 12]]
source = "g"
"#;

#[test]
fn a_description_makes_a_model() {
    let medium = Medium::parse("x.toml", RIGHT).unwrap();
    assert_eq!(medium.about, "two of something");
    let model = medium.model;
    assert_eq!((model.nodes, model.stripe, model.unit), (2, 2 << 20, 256));
    assert_eq!((model.read.latency, model.write.latency), (305, 90));
    assert_eq!(model.read.by_threads.points(), [(1, 2880), (17, 38_000)]);
    assert_eq!(model.read.by_size, arck_pm::medium::Curve::NONE);
    assert_eq!(model.write.bandwidth(14, 4096), 10_000.0);
    assert_eq!(model.write.bandwidth(14, 256), 5_000.0);
}

/// Nodes that an option says stand in place of the description's; what makes no sense is told.
#[test]
fn nodes_are_those_of_the_option() {
    let nodes = |name, nodes| chosen(name, nodes).map(|medium| medium.unwrap().model.nodes);
    assert_eq!(nodes(Some("optane"), None), Ok(2));
    assert_eq!(nodes(Some("optane"), Some(5)), Ok(5));
    for (name, wrong, says) in [
        (
            Some("optane"),
            0,
            "--nodes 0: a medium has 1 to 16 nodes, not 0",
        ),
        (
            Some("optane"),
            17,
            "--nodes 17: a medium has 1 to 16 nodes, not 17",
        ),
        (
            Some("none"),
            2,
            "--nodes 2 is for an emulated medium: name it with --medium",
        ),
    ] {
        let told = chosen(name, Some(wrong)).unwrap_err().to_string();
        assert_eq!(told, says);
    }
}

#[test]
fn what_is_wrong_is_told_with_the_line() {
    let cases = [
        ("count = 2", "count = 0", 3, "1 to 16 nodes, not 0"),
        ("count = 2", "count = two", 3, ""),
        ("count = 2", "counts = 2", 3, "unknown field `counts`"),
        ("stripe = 2097152", "stripe = 5000", 4, "a power of two"),
        ("bytes = 256", "bytes = 100", 7, "64 to 4096"),
        ("nanoseconds = 305", "nanoseconds = 9999999", 10, "latency"),
        ("nanoseconds = 90", "nanoseconds = 9999999", 16, "latency"),
        ("nanoseconds = 90", "nanoseconds = -1", 16, ""),
        ("[4, 12.5]", "[1, 12.5]", 20, "after 1 comes 1"),
        ("[24, 7.5]", "[24, 0]", 21, "at least 10 MB/s"),
        ("[24, 7.5]", "[24, -7.5]", 21, "at least 10 MB/s"),
        ("[24, 7.5]", "[24, nan]", 21, "at least 10 MB/s"),
        ("[24, 7.5]", "[24]", 21, ""),
        ("[[256, 6], [4096, 12]]", "[]", 24, "1 to 32 points"),
        ("source = \"d\"", "source = \" \"", 14, "come from"),
        ("source = \"f\"\n", "", 18, "missing field `source`"),
    ];
    for (right, wrong, line, what) in cases {
        let text = RIGHT.replacen(right, wrong, 1);
        assert_ne!(text, RIGHT, "{right}");
        let error = Medium::parse("x.toml", &text).unwrap_err();
        let MediumError::Wrong { line: found, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(found, line, "{wrong}: {error}");
        let told = error.to_string();
        assert!(told.contains(what), "{wrong}: {told}");
        assert_eq!(told.lines().count(), 1, "{told}");
    }
}

/// What the file says of delegation, and of how many there are at once, counts; of what it does not say, what is usual does.
#[test]
fn a_description_says_what_is_done_by_few() {
    let of = |table: &str| Medium::parse("x.toml", &format!("{RIGHT}{table}"));
    let numbers = |table: &str| {
        let model = of(table).unwrap().model;
        [model.delegated, model.at_once].map(|few| (few.threads, few.writes_from, few.reads_from))
    };
    // As many threads as write most, and Trio's sizes; or writes of a page, and no reads.
    let usual = [(4, 256, 32 << 10), (4, 4096, u32::MAX)];
    assert_eq!(numbers(""), usual);
    let source = "source = \"h\"\n";
    for (at, name) in ["delegation", "at_once"].into_iter().enumerate() {
        let (threads, writes, reads) = usual[at];
        for (said, expected) in [
            ("", (threads, writes, reads)),
            ("threads = 2\n", (2, writes, reads)),
            ("writes_from = 5000\n", (threads, 5000, reads)),
            ("reads_from = 4294967295\n", (threads, writes, u32::MAX)),
            ("reads_from = 8192\n", (threads, writes, 8192)),
        ] {
            let mut all = usual;
            all[at] = expected;
            assert_eq!(numbers(&format!("[{name}]\n{said}{source}")), all);
        }
    }
    for (wrong, what) in [
        ("threads = 0", "1 to 64 threads of a node, not 0"),
        ("threads = 65", "1 to 64 threads of a node, not 65"),
        ("writes_from = 255", "from 256 bytes on or more, not 255"),
        ("reads_from = 0", "from 256 bytes on or more, not 0"),
        ("reads_from = 4294967296", ""),
        ("from = 256", "unknown field `from`"),
        ("source = \" \"", "come from"),
    ] {
        let table = format!("[delegation]\n{wrong}\n");
        let source = if wrong.starts_with("source") {
            ""
        } else {
            source
        };
        let error = of(&(table + source)).unwrap_err();
        let MediumError::Wrong { line, .. } = error else {
            panic!("{error}");
        };
        assert_eq!(line, RIGHT.lines().count() + 2, "{wrong}: {error}");
        assert!(error.to_string().contains(what), "{wrong}: {error}");
    }
}

#[test]
fn the_crates_own_are_right() {
    for (name, _) in OWN {
        let medium = Medium::load(name).unwrap();
        assert_eq!(medium.name, name);
        assert_eq!(named(Some(name)).as_deref(), Some(name));
    }
    let optane = Medium::load("optane").unwrap().model;
    // FAST'20: writes peak at 4 threads, and reads do not fall.
    assert_eq!(optane.write.by_threads.peak(), 12_500.0);
    assert_eq!(optane.write.by_threads.at(4), 12_500.0);
    assert_eq!(optane.read.by_threads.at(24), 37_560.0);
    // What Arck's delegation is for.
    assert!(optane.write.by_threads.at(64) < 0.5 * optane.write.by_threads.peak());
}

#[test]
fn files_are_found_and_missing_ones_told() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("mine.toml");
    let name = file.to_str().unwrap();
    let error = Medium::load(name).unwrap_err().to_string();
    assert!(error.contains("no such file"), "{error}");
    assert!(error.contains("optane, cxl, dram"), "{error}");
    std::fs::write(&file, RIGHT).unwrap();
    assert_eq!(chosen(Some(name), None).unwrap().unwrap().name, name);
    assert_eq!(chosen(Some("none"), None), Ok(None));
    let relative = named(Some("mine.toml")).unwrap();
    assert!(Path::new(&relative).is_absolute());
}
