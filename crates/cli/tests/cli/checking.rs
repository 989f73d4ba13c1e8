//! `arck check`: what its status says, lines and JSON, a repair, a pool that is served, and pools
//! that cannot be checked.

use crate::support::{Place, Serving, arck, refused, run, succeeded};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Output;

fn check(pool: &Path, arguments: &[&str]) -> Output {
    let mut command = arck();
    command.arg("check").arg(pool).args(arguments);
    command.output().unwrap()
}

/// A pool with a page that is marked as in use, and that nothing uses.
fn damaged() -> Place {
    let place = Place::made();
    let bitmap = place.pool().join("pages");
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(bitmap)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 60).unwrap();
    assert_eq!(byte[0] & 1, 0);
    file.write_all_at(&[byte[0] | 1], 60).unwrap();
    place
}

#[test]
fn the_status_says_whether_anything_was_found() {
    let place = Place::made();
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    let place = damaged();
    let found = check(&place.pool(), &[]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert!(text.starts_with("page-leaked: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(found.stderr.is_empty(), "{found:?}");
    let missing = check(&place.path().join("nowhere"), &[]);
    assert_eq!(missing.status.code(), Some(2));
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(text.starts_with("arck check: "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn json_has_an_object_a_line() {
    let place = damaged();
    let found = check(&place.pool(), &["--json"]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert_eq!(lines[0]["rule"], "page-leaked");
    assert_eq!(lines[1]["findings"], 1);
    assert_eq!(lines[1]["closed"], true);
}

#[test]
fn a_repair_tells_what_it_did_and_then_all_is_well() {
    let place = damaged();
    let mended = check(&place.pool(), &["--repair"]);
    assert_eq!(mended.status.code(), Some(1), "{mended:?}");
    assert!(mended.stdout.starts_with(b"page-leaked: "), "{mended:?}");
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    // One in order is left alone.
    assert_eq!(succeeded(&check(&place.pool(), &["--repair"])), "");
}

#[test]
fn a_pool_that_is_served_is_checked_and_not_mended() {
    let place = Place::made();
    let mut serving = Serving::start(&place.pool(), &[]);
    let found = check(&place.pool(), &["--json"]);
    let text = succeeded(&found);
    assert!(text.contains("\"served\":true"), "{text}");
    let refused = check(&place.pool(), &["--repair"]);
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(text.contains("is in use"), "{text}");
    serving.signal(libc::SIGTERM);
    assert!(serving.process.wait().unwrap().success());
}

#[test]
fn data_that_is_missing_is_told_of_with_whose_it_was() {
    let place = Place::made();
    let pool = place.pool();
    let make = "cd /arck; mkdir d; printf 12345678 > d/file; : > empty";
    let made = run(&pool, &[], &["sh", "-c", make]).output().unwrap();
    succeeded(&made);
    let table = std::fs::read(pool.join("segment-table")).unwrap();
    let data = table.chunks_exact(32).position(|entry| entry[0] == 2);
    let name = format!("segments/{:08x}", data.unwrap());
    std::fs::remove_file(pool.join(&name)).unwrap();
    let found = check(&pool, &[]);
    assert_eq!(found.status.code(), Some(1));
    let text = String::from_utf8_lossy(&found.stdout).into_owned();
    assert_eq!(text.lines().count(), 2, "{text}");
    let whole = format!("files: is missing, and a page of it is in use ({name})");
    assert!(text.lines().any(|line| line == whole), "{text}");
    assert!(
        text.contains("/d/file: a page of it was in what is missing"),
        "{text}"
    );
    // Nobody serves it so.
    let served = arck().arg("serve").arg(&pool).output().unwrap();
    refused(&served, &name);
    let ran = run(&pool, &[], &["cat", "/arck/empty"]).output().unwrap();
    assert!(!ran.status.success());
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(
        text.contains(&name) && text.contains("arck check"),
        "{text}"
    );
    // Until it is mended: what was there is zeroes.
    assert_eq!(check(&pool, &["--repair"]).status.code(), Some(1));
    assert_eq!(succeeded(&check(&pool, &[])), "");
    let read = run(&pool, &[], &["cat", "/arck/d/file"]).output().unwrap();
    assert_eq!(succeeded(&read), "\0".repeat(8));
}

#[test]
fn a_superblock_that_is_damaged_is_put_back_from_its_copy() {
    let place = Place::made();
    let path = place.pool().join("superblock");
    let whole = std::fs::read(&path).unwrap();
    let mut bytes = whole.clone();
    bytes[20] ^= 0xff;
    let told = |output: &Output, says: &str| {
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.starts_with("arck check: cannot check "), "{text}");
        assert!(text.contains(says), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    };
    for is_gone in [false, true] {
        match is_gone {
            false => std::fs::write(&path, &bytes).unwrap(),
            true => std::fs::remove_file(&path).unwrap(),
        }
        told(&check(&place.pool(), &[]), "--repair");
        // Nobody serves it, but it is said how to mend it.
        let served = arck().arg("serve").arg(place.pool()).output().unwrap();
        refused(&served, "--repair");
        let mended = check(&place.pool(), &["--repair"]);
        assert_eq!(mended.status.code(), Some(1), "{mended:?}");
        let text = String::from_utf8_lossy(&mended.stdout).into_owned();
        assert!(text.contains("repaired: put the superblock back"), "{text}");
        assert_eq!(succeeded(&check(&place.pool(), &[])), "");
        let mut serving = Serving::start(&place.pool(), &[]);
        serving.signal(libc::SIGTERM);
        assert!(serving.process.wait().unwrap().success());
        assert_eq!(std::fs::read(&path).unwrap(), whole);
    }
    // A copy that is not whole is told of, and mended too.
    let copy = place.pool().join("superblock.copy");
    std::fs::write(&copy, b"no copy").unwrap();
    assert_eq!(check(&place.pool(), &["--repair"]).status.code(), Some(1));
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    // Without it nothing can be done.
    std::fs::remove_file(&copy).unwrap();
    assert_eq!(succeeded(&check(&place.pool(), &[])), "");
    std::fs::write(&path, &bytes).unwrap();
    for arguments in [&[][..], &["--repair"]] {
        told(&check(&place.pool(), arguments), "backup");
    }
    let served = arck().arg("serve").arg(place.pool()).output().unwrap();
    refused(&served, "backup");
}
