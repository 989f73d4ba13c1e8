//! Databases that have shared memory in a file, as programs of several users use them who do not trust each other: each has
//! its own `arck run`, with the group of its user, as is usual, or none.

use crate::support::{Running, succeeded};
use crate::users::{ANN, BOB, Users};
use std::process::Command;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(100);

/// In the group of his user, and in a session of its own.
const GROUPS: [&[&str]; 2] = [&["run", "--"], &["run", "--no-group", "--"]];

/// A program that a user runs.
fn run(users: &Users, who: (u32, &'static [u32]), how: &[&str], arguments: &[&str]) -> Command {
    let mut command = users.of(who, how);
    command.args(arguments);
    command
}

fn says(users: &Users, who: (u32, &'static [u32]), how: &[&str], script: &str) -> String {
    succeeded(&Running::start(run(users, who, how, &["sh", "-c", script])).finished(SOON))
}

/// Four programs at the same time, of two users by turns; what each has said.
fn four(users: &Users, how: &[&str], program: impl Fn(usize) -> Vec<String>) -> Vec<String> {
    let running: Vec<Running> = (0..4)
        .map(|number| {
            let arguments = program(number);
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let who = if number % 2 == 0 { ANN } else { BOB };
            Running::start(run(users, who, how, &arguments))
        })
        .collect();
    let finished = running.into_iter().map(|running| running.finished(SOON));
    finished.map(|output| succeeded(&output)).collect()
}

/// The index of SQLite's write-ahead log is shared memory, in which all lock and read what others have just written.
#[test]
fn sqlite_with_a_write_ahead_log_is_two_users() {
    const ROWS: u32 = 200;
    for how in GROUPS {
        let mut users = Users::new();
        users.serve(&["--shared"]);
        let begin = "umask 0; mkdir -m 777 /arck/d && sqlite3 /arck/d/db 'pragma journal_mode=wal; \
                 create table t (who, number, primary key (who, number));' && chmod 666 /arck/d/db";
        assert_eq!(says(&users, ANN, how, begin), "wal\n");
        four(&users, how, |number| {
            let script = format!(
                "umask 0; for i in $(seq {ROWS}); do echo \"insert into t values ({number}, $i);\"; \
             if [ $((i % 50)) = 0 ]; then echo 'select sum(number) > 0 from t;'; fi; done | \
             sqlite3 -bail -cmd '.timeout 60000' /arck/d/db"
            );
            vec!["sh".into(), "-c".into(), script]
        });
        let told = says(
            &users,
            BOB,
            how,
            "sqlite3 /arck/d/db 'pragma integrity_check; pragma journal_mode; \
         select who, count(*), max(number) from t group by who;'",
        );
        let rows = |who| format!("{who}|{ROWS}|{ROWS}\n");
        let rows: String = (0..4).map(rows).collect();
        assert_eq!(told, format!("ok\nwal\n{rows}"));
        users.end();
        crate::support::honest_end(&users.place.pool());
    }
}

const LMDB: &str = r#"
import lmdb, os, sys
who, writes_by_map = sys.argv[1], sys.argv[2] == "map"
os.umask(0)
env = lmdb.open("/arck/lmdb", map_size=16 << 20, mode=0o666, max_readers=20, writemap=writes_by_map)
for number in range(200):
    with env.begin(write=True) as change:
        count = int(change.get(b"count", b"0")) + 1
        change.put(b"count", b"%d" % count)
        change.put(b"%s-%d" % (who.encode(), number), b"x" * 500)
    with env.begin() as look:
        assert int(look.get(b"count")) >= count, "what is seen goes back"
"#;

/// LMDB's lock file is shared memory with locks of threads in it; its data is read through a map that is not to be written,
/// and written by calls, or through the map.
#[test]
fn lmdb_is_two_users() {
    for (how, writes) in GROUPS
        .into_iter()
        .zip(["calls", "map"])
        .chain(GROUPS.into_iter().zip(["map", "calls"]))
    {
        let mut users = Users::new();
        users.serve(&["--shared"]);
        says(&users, ANN, how, "mkdir /arck/lmdb && chmod 777 /arck/lmdb");
        four(&users, how, |number| {
            let words = ["/usr/bin/python3", "-c", LMDB, &number.to_string(), writes];
            words.map(str::to_owned).to_vec()
        });
        let look = "import lmdb; env = lmdb.open('/arck/lmdb', map_size=16 << 20)\n\
                    with env.begin() as look: print(int(look.get(b'count')), look.stat()['entries'])";
        let command = run(&users, BOB, how, &["/usr/bin/python3", "-c", look]);
        let told = succeeded(&Running::start(command).finished(SOON));
        assert_eq!(told, "800 801\n", "{how:?}, {writes}");
        users.end();
        crate::support::honest_end(&users.place.pool());
    }
}

/// Which files and directories no session owns for what it changes of them is told, of each and of all.
#[test]
fn what_nobody_owns_is_told() {
    let mut users = Users::new();
    users.serve(&["--shared"]);
    let how = GROUPS[0];
    says(
        &users,
        ANN,
        how,
        "umask 0; echo text >/arck/mapped; echo text >/arck/said; mkdir /arck/d",
    );
    let status = |arguments: &[&str]| {
        let mut command = users.of(BOB, &["status"]);
        succeeded(
            &command
                .arg(users.place.pool())
                .args(arguments)
                .output()
                .unwrap(),
        )
    };
    let counts = || {
        let told: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
        ["mediated", "mediated_found", "mapped_together"].map(|name| told[name].as_u64().unwrap())
    };
    let attr = |who, arguments: &[&str]| {
        let mut command = users.of(who, &["attr"]);
        succeeded(&command.args(arguments).output().unwrap())
    };
    assert_eq!(counts(), [0, 0, 0]);
    assert!(!status(&[]).contains("mediated"), "{}", status(&[]));
    attr(ANN, &["--mediated", "on", "said", "d"]);
    assert_eq!(counts(), [2, 0, 0]);
    let map = "import mmap, os\n\
               file = os.open('/arck/mapped', os.O_RDWR)\n\
               memory = mmap.mmap(file, 0)\n\
               print('mapped', flush=True)\n\
               input()\n";
    let mut mapping = Running::start_told(run(&users, ANN, how, &["/usr/bin/python3", "-c", map]));
    assert_eq!(mapping.line(), "mapped");
    assert_eq!(counts(), [2, 0, 1]);
    assert_eq!(
        attr(BOB, &["mapped"]),
        "mapped: by its owner (auto), mapped together\n"
    );
    assert_eq!(
        attr(BOB, &["--json", "mapped"]),
        "{\"path\":\"mapped\",\"mediated\":\"auto\",\"by_messages\":true,\"mapped_together\":true}\n"
    );
    assert_eq!(
        attr(BOB, &["--below", "/"]),
        "/d: mediated\n/mapped: by its owner (auto), mapped together\n/said: mediated\n"
    );
    let row = "mediated      2 as said, 1 mapped together; arck attr --pool ";
    assert!(status(&[]).contains(row), "{}", status(&[]));
    says(&users, ANN, how, "rmdir /arck/d");
    mapping.tell("end");
    assert_eq!(succeeded(&mapping.finished(SOON)), "");
    assert_eq!(counts()[0], 1);
    users.end();
    crate::support::honest_end(&users.place.pool());
}
