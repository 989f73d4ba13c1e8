//! `arck violations`: what a session is refused that writes nonsense into its own arena.

use crate::support::{Place, Serving, arck, refused, succeeded};
use arck_core_state::arena::branch_offset;
use arck_core_state::branch::offset;
use arck_protocol::Request;
use arckfs::{At, ConnectOptions, Errno, FileSystem};
use std::path::Path;
use std::process::Output;

fn violations(pool: &Path, arguments: &[&str]) -> Output {
    let mut command = arck();
    command.arg("violations").arg(pool).args(arguments);
    command.output().unwrap()
}

fn session(pool: &Path) -> FileSystem {
    let options = ConnectOptions {
        pool: pool.to_path_buf(),
        mount: b"/arck".to_vec(),
        group: Vec::new(),
        resolver: arckfs::Resolver::default(),
    };
    FileSystem::connect(&options).unwrap()
}

fn create(fs: &FileSystem, path: &[u8]) {
    let flags = libc::O_CREAT | libc::O_WRONLY;
    let handle = fs.open(At::Root, path, flags, 0o644).unwrap();
    assert_eq!(fs.write(handle, b"some text", None), Ok(9));
    fs.close(handle);
}

fn fold(fs: &FileSystem) -> Result<(), Errno> {
    fs.session().ask(&Request::CommitAll { release: false })
}

/// In the directory `d` the session has made the file `young`, and says of `d` that it has a mode
/// that there is not.
fn is_refused(fs: &FileSystem) {
    fs.make_directory(At::Root, b"d", 0o755).unwrap();
    fold(fs).unwrap();
    create(fs, b"d/young");
    let number = fs.stat(At::Root, b"d", 0).unwrap().inode;
    let slot = fs.session().header(number as u32).unwrap().branch_slot();
    let place = branch_offset(slot).unwrap() + offset::MODE;
    let arena = fs.session().arena_at(place as usize);
    let _ = arena.write_u64(place as usize, 1 << 40).unwrap();
    assert_eq!(fold(fs), Err(Errno::IO));
}

#[test]
fn what_was_refused_is_listed_and_what_was_set_aside_is_shown() {
    let place = Place::made();
    place.has_refusals("a session writes nonsense");
    let pool = place.pool();
    let list = || succeeded(&violations(&pool, &[]));
    assert!(list().starts_with("nothing was refused on "));
    refused(&violations(&pool, &["--show", "1"]), "nothing was refused");
    assert_eq!(succeeded(&violations(&pool, &["--json"])), "");
    let mut serving = Serving::start(&pool, &["--grace", "100000000"]);
    let fs = session(&pool);
    is_refused(&fs);
    let text = list();
    assert_eq!(text.lines().count(), 3, "{text}");
    let status = succeeded(&arck().arg("status").arg(&pool).output().unwrap());
    assert!(
        status.contains("\n  violations    1 since it is served; "),
        "{status}"
    );
    assert!(text.contains("  I1 Mode at 0x"), "{text}");
    assert!(text.contains("may still repair it"), "{text}");
    refused(&violations(&pool, &["--show", "1"]), "not set aside yet");

    // Another session wants to write there.
    create(&session(&pool), b"d/other");
    let text = list();
    assert_eq!(text.matches("set aside in ").count(), 2, "{text}");
    let row = text.lines().nth(1).unwrap();
    assert!(row.starts_with("   1  20"), "{text}");
    let user = rustix::process::geteuid().as_raw().to_string();
    assert!(row.split_whitespace().any(|word| word == user), "{text}");
    assert!(text.contains("along with another inode: I1 Mode"), "{text}");
    let json = succeeded(&violations(&pool, &["--json"]));
    let rows: Vec<serde_json::Value> = json
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(rows.len(), 2, "{json}");
    assert_eq!(rows[0]["number"], 1);
    assert_eq!(rows[0]["rule"], "Mode");
    assert_eq!(rows[0]["outcome"], "set-aside");
    assert!(pool.join(rows[0]["file"].as_str().unwrap()).is_file());
    assert!(rows[0]["offset"].as_u64().unwrap() > 0);

    let shown = succeeded(&violations(&pool, &["--show", "1"]));
    assert!(
        shown.contains("\"young\"") && shown.contains("Names (1)"),
        "{shown}"
    );
    assert!(shown.contains("because: I1 Mode"), "{shown}");
    let json = succeeded(&violations(&pool, &["--show", "1", "--json"]));
    let decoded: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(decoded["records"][0]["name"], "young");
    assert_eq!(decoded["branch"]["mode"], "20000000000000");
    // The file that was to be created.
    let shown = succeeded(&violations(&pool, &["--show", "2"]));
    assert!(shown.contains("size         9"), "{shown}");
    assert!(shown.contains("Pages of the file (1)"), "{shown}");
    refused(&violations(&pool, &["--show", "3"]), "from 1 to 2");

    // The same when nobody serves it.
    let before = list();
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
    assert_eq!(list(), before);
    std::fs::remove_file(pool.join(rows[0]["file"].as_str().unwrap())).unwrap();
    refused(&violations(&pool, &["--show", "1"]), "is gone");
    let second = pool.join(rows[1]["file"].as_str().unwrap());
    std::fs::write(second, b"nonsense").unwrap();
    refused(&violations(&pool, &["--show", "2"]), "cut off");
}

#[test]
fn the_grace_period_is_an_option() {
    let place = Place::made();
    place.has_refusals("a session writes nonsense");
    let pool = place.pool();
    let mut serving = Serving::start(&pool, &["--grace", "5"]);
    let fs = session(&pool);
    is_refused(&fs);
    let started = std::time::Instant::now();
    // Nobody asks the controller for anything.
    while !succeeded(&violations(&pool, &[])).contains("set aside in ") {
        assert!(started.elapsed().as_secs() < 60, "it does not end");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn mistakes_are_told() {
    let place = Place::new();
    refused(&violations(&place.pool(), &[]), "there is no pool at");
    refused(&violations(place.path(), &[]), "there is no pool at");
    let usage = violations(place.path(), &["--show", "x"]);
    assert_eq!(usage.status.code(), Some(2), "{usage:?}");
    let help = succeeded(&violations(place.path(), &["--help"]));
    assert!(
        help.contains("Examples:") && help.contains("--show 3"),
        "{help}"
    );
    // A log of somebody else's making.
    let place = Place::made();
    place.has_refusals("it writes the log itself");
    std::fs::write(place.pool().join("violations.log"), "nonsense\n").unwrap();
    let output = violations(&place.pool(), &[]);
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("1 lines of "), "{said}");
}
