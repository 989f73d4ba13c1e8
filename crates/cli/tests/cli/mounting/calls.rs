//! System calls through a mount beside tmpfs: what differs is in the column of docs/calls.md.

use super::mount::Mount;
use crate::support::succeeded;
use std::path::Path;
use std::process::Command;

/// What differs: the call and what is asked of it, what tmpfs says, what is said through a mount.
const DIFFERENT: [(&str, &str, &str); 10] = [
    ("openat O_TMPFILE", "done", "EOPNOTSUPP"),
    ("statx time of birth", "told", "not told"),
    ("ioctl FS_IOC_SETFLAGS of a flag", "done", "EOPNOTSUPP"),
    ("fallocate zeroes", "EOPNOTSUPP", "done"),
    ("fcntl F_ADD_SEALS", "EPERM", "EINVAL"),
    ("fcntl F_GET_SEALS", "done", "EINVAL"),
    ("renameat2 RENAME_WHITEOUT", "done", "EINVAL"),
    ("openat a device", "done", "EACCES"),
    ("setxattr trusted.a", "done", "EOPNOTSUPP"),
    ("setxattr security.a", "done", "EOPNOTSUPP"),
];

fn said(place: &Path) -> String {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/mounting/calls.py");
    let output = Command::new("/usr/bin/python3")
        .arg(script)
        .arg(place)
        .output();
    succeeded(&output.expect("python3 runs"))
}

/// What the column of a call says.
fn column(document: &str, call: &str) -> String {
    let row = document
        .lines()
        .find(|line| line.starts_with(&format!("| {call} |")));
    let row = row.unwrap_or_else(|| panic!("{call} is not in docs/calls.md"));
    row.split(" | ").nth(2).expect("a column").to_owned()
}

#[test]
fn what_differs_from_tmpfs_is_in_the_document() {
    let mount = Mount::made("256M");
    let host = tempfile::tempdir_in("/dev/shm").expect("a directory of tmpfs");
    let (there, here) = (said(host.path()), said(&mount.path()));
    assert_eq!(there.lines().count(), here.lines().count());
    let differs: Vec<_> = there
        .lines()
        .zip(here.lines())
        .filter(|(there, here)| there != here)
        .map(|(there, here)| {
            let (what, there) = there.rsplit_once(": ").expect("a result");
            (what, there, here.rsplit_once(": ").expect("a result").1)
        })
        .collect();
    assert_eq!(differs, DIFFERENT);
    let document = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/calls.md");
    let document = std::fs::read_to_string(document).expect("docs/calls.md");
    for (what, _, here) in differs {
        let (call, what) = what.split_once(' ').expect("a call");
        let column = column(&document, call);
        let tells = |text: &str| column.contains(text);
        assert!(
            tells(here) || tells(what),
            "docs/calls.md says of {call} through a mount: {column}"
        );
    }
    assert_eq!(column(&document, "io_setup"), "works");
    mount.unmount();
}
