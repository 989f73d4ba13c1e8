//! Sequences by which the differential test found bugs, shortened, in the order found.

use arck_testkit::differential::{Base, Operation, Place, Settings, Step, run};

const SETTINGS: Settings = Settings {
    pool: 64 << 20,
    length: 0,
    crashes: true,
};

fn place(path: &str) -> Place {
    Place {
        base: Base::Root,
        path: path.as_bytes().to_vec(),
    }
}

fn mkdir(path: &str) -> Operation {
    Operation::MakeDirectory {
        place: place(path),
        mode: 0o755,
    }
}

/// Opens, made if it is not there, in slot 0.
fn create(path: &str) -> Operation {
    Operation::Open {
        slot: 0,
        place: place(path),
        flags: libc::O_CREAT | libc::O_RDWR,
        mode: 0o644,
    }
}

fn open_directory(path: &str) -> Operation {
    Operation::Open {
        slot: 0,
        place: place(path),
        flags: libc::O_DIRECTORY,
        mode: 0,
    }
}

fn rename(from: &str, to: &str) -> Operation {
    Operation::Rename {
        from: place(from),
        to: place(to),
        flags: 0,
    }
}

fn symlink(target: &str, path: &str) -> Operation {
    Operation::Symlink {
        target: target.as_bytes().to_vec(),
        place: place(path),
    }
}

fn rmdir(path: &str) -> Operation {
    Operation::RemoveDirectory { place: place(path) }
}

fn stat(path: &str) -> Operation {
    Operation::Stat {
        place: place(path),
        flags: 0,
    }
}

fn fold() -> Operation {
    Operation::Fold { release: false }
}

const STAT: Operation = Operation::StatHandle { slot: 0 };

fn agrees(steps: Vec<(usize, Operation)>) {
    let steps: Vec<Step> = steps
        .into_iter()
        .map(|(actor, operation)| Step { actor, operation })
        .collect();
    if let Err(difference) = run(&steps, SETTINGS) {
        panic!("step {}: {}", difference.step, difference.text);
    }
}

#[test]
fn a_removed_name_whose_number_was_used_again_leaves_links_alone() {
    agrees(vec![
        (0, mkdir("a")),
        (0, mkdir("a/a")),
        (1, rmdir("a/a")),
        (1, fold()),
        (0, mkdir("b")),
        (1, create("b/f")),
        (1, fold()),
        (1, STAT),
    ]);
}

#[test]
fn a_move_between_directories_leaves_links_alone_when_both_are_folded() {
    agrees(vec![
        (0, mkdir("a")),
        (1, create("a/f")),
        (1, fold()),
        (0, rename("a/f", "g")),
        (1, stat("c/b")),
        (0, stat("g")),
    ]);
}

#[test]
fn an_inode_folded_before_its_directory_keeps_its_link() {
    agrees(vec![
        (0, mkdir("a")),
        (0, symlink("b", "a/l")),
        (0, fold()),
        (0, Operation::Compare),
    ]);
}

#[test]
fn a_name_made_by_another_session_is_seen_where_own_names_were_folded() {
    agrees(vec![
        (1, mkdir("c")),
        (0, create("x")),
        (0, rename("x", "f")),
        (1, stat("f")),
    ]);
}

#[test]
fn links_of_a_directory_that_changed_hands() {
    agrees(vec![
        (1, mkdir("c")),
        (0, create("c/f")),
        (1, mkdir("c/e")),
        (0, Operation::Compare),
    ]);
}

#[test]
fn a_directory_moves_into_one_that_is_not_born_yet() {
    agrees(vec![
        (0, mkdir("a")),
        (0, mkdir("b")),
        (0, mkdir("a/a")),
        (0, mkdir("b/a")),
        (0, rename("b/a", "a/a/a")),
        (0, Operation::Compare),
    ]);
}

#[test]
fn what_the_controller_moved_is_listed() {
    agrees(vec![
        (0, mkdir("b")),
        (0, mkdir("c")),
        (
            1,
            Operation::Unlink {
                place: place("b/d"),
            },
        ),
        (1, rename("c", "b/b")),
        (1, Operation::Compare),
    ]);
}

#[test]
fn chown_drops_set_id_bits_in_every_view() {
    agrees(vec![
        (0, create("f")),
        (
            0,
            Operation::ChangeMode {
                place: place("f"),
                mode: 0o6755,
            },
        ),
        (
            1,
            Operation::ChangeOwner {
                place: place("f"),
                uid: 0,
                gid: u32::MAX,
                flags: 0,
            },
        ),
        (1, stat("f")),
        (0, stat("f")),
    ]);
}

#[test]
fn a_directory_removed_while_another_session_has_it_open() {
    agrees(vec![
        (0, mkdir("a")),
        (0, open_directory("a")),
        (1, rmdir("a")),
        (1, symlink("b", "l")),
        (0, STAT),
        (1, fold()),
        (1, Operation::Compare),
    ]);
}

#[test]
fn an_inode_linked_in_two_directories_before_it_is_created() {
    agrees(vec![
        (0, mkdir("b")),
        (0, create("b/f")),
        (
            0,
            Operation::Link {
                from: place("b/f"),
                to: place("e"),
                flags: 0,
            },
        ),
        (1, stat("e")),
        (1, Operation::Compare),
        (0, Operation::Restart),
    ]);
}

#[test]
fn a_moved_directory_with_changes_of_its_own_knows_its_parent() {
    agrees(vec![
        (0, mkdir("b")),
        (1, mkdir("c")),
        (0, open_directory("c")),
        (
            0,
            Operation::SetTimesHandle {
                slot: 0,
                accessed: None,
                modified: Some(Some((1, 2))),
            },
        ),
        (0, rename("c", "b/n")),
        (0, Operation::PathOf { slot: 0 }),
        (0, stat("b/n/..")),
    ]);
}
