//! The programs of `examples/rust`, run twice, each on a pool that is served: what they say, and that they find what they left.

use arck_test_pool::TestPool;
use std::path::PathBuf;
use std::process::Command;

/// Where cargo puts them, beside the tests.
fn program(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("this program");
    let target = test.ancestors().nth(2).expect("the target directory");
    target.join("examples").join(name)
}

fn said(name: &str, pool: &TestPool) -> String {
    let run = Command::new(program(name))
        .env("ARCK_POOL", pool.path())
        .env_remove("ARCK_FS")
        .output()
        .expect("the example is built");
    let said = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{name}: {run:?}");
    said
}

#[test]
fn all_of_them_run() {
    let pool = TestPool::new(64 << 20);
    let cases: &[(&str, &[&str])] = &[
        (
            "files",
            &[
                "    26 example/cities.csv\n",
                "1000000 people",
                "errno Some(2)",
            ],
        ),
        (
            "keyvalue",
            &["anna language=no\n", "carl language=fr\n", "language=no\n"],
        ),
        ("log", &["1003 lines followed\n", "the log begins at "]),
    ];
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../examples/rust");
    let written = std::fs::read_dir(folder).expect("the examples").count();
    assert_eq!(written, cases.len(), "an example that is not run");
    for turn in 0..2 {
        for (name, parts) in cases {
            let said = said(name, &pool);
            for part in *parts {
                assert!(
                    said.contains(part),
                    "{name}, turn {turn}: no {part:?} in {said}"
                );
            }
        }
    }
}

/// Without a pool each says what is missing, and does not panic.
#[test]
fn without_a_pool_they_say_so() {
    for name in ["files", "keyvalue", "log"] {
        for (pool, why) in [("", "which pool?"), ("/nowhere", "/nowhere")] {
            let run = Command::new(program(name)).env("ARCK_POOL", pool).output();
            let run = run.expect("the example is built");
            let said = String::from_utf8_lossy(&run.stderr).into_owned();
            assert_eq!(run.status.code(), Some(1), "{name}: {said}");
            assert!(said.contains(why), "{name}: {said}");
        }
    }
}
