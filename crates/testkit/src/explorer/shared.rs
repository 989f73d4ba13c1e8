//! Workloads on a pool that is served to all.
//!
//! # Invariant
//! Each operation succeeds where it stands; who records it sees to that.

use super::model::Operation as O;
use super::recording::{Who, Workload};
use super::workloads::workload;
use arck_protocol::message::allocation;

/// All of them.
pub fn all_workloads() -> Vec<Workload> {
    let mut found = relocations();
    found.extend(by_messages());
    found
}

fn all<const N: usize>(chains: [Vec<O>; N]) -> Vec<Workload> {
    let of_first = |chain: Vec<O>| chain.into_iter().map(|o| (Who::First, o)).collect();
    let made = chains.into_iter().map(|chain| workload(of_first(chain), 0));
    made.collect()
}

/// Changes of rights on a pool that is served to all: what is there moves to other read classes.
fn relocations() -> Vec<Workload> {
    let chains = [
        vec![O::ChangeMode("d", 0o700), O::Commit(false)],
        vec![
            O::ChangeMode("d", 0o700),
            O::Commit(true),
            O::Create("d/n"),
            O::Commit(false),
        ],
        vec![
            O::ChangeMode("f", 0o600),
            O::Commit(false),
            O::Append("f", 5000, 20),
        ],
        vec![
            O::ChangeMode("d", 0o700),
            O::Commit(false),
            O::Rename("f", "d/f"),
            O::Commit(false),
            O::Rename("d/f", "f"),
        ],
        vec![
            O::ChangeMode("e", 0o711),
            O::Rename("d", "e/d"),
            O::Commit(false),
        ],
        vec![
            O::ChangeMode("e", 0o700),
            O::Commit(false),
            O::Rename("d", "e/d"),
            O::Write("f", 0, 100, 20),
            O::Commit(true),
        ],
        vec![
            O::Link("f", "d/h"),
            O::ChangeMode("d", 0o700),
            O::Commit(false),
            O::Unlink("f"),
            O::Commit(false),
        ],
    ];
    all(chains)
}

/// What sessions have the controller do by messages: bytes, lengths and names.
fn by_messages() -> Vec<Workload> {
    let chains = [
        // What a session has the controller write, beside what it has written itself.
        vec![
            O::Tell("f", 4000, 200, 20),
            O::Append("f", 5000, 21),
            O::Tell("f", 100, 1900, 22),
            O::Write("f", 0, 50, 23),
        ],
        vec![
            O::Commit(true),
            O::Tell("d/x", 8900, 500, 20),
            O::Tell("d/x", 60_000, 500, 21),
            O::Tell("g", 2_200_000, 50, 22),
            O::Commit(false),
        ],
        // More of it than a slot holds.
        vec![
            O::Tell("f", 100, 9000, 20),
            O::Write("f", 0, 50, 21),
            O::Tell("f", 8000, 5000, 22),
            O::Commit(false),
        ],
        vec![O::Tell("g", 0, 40_000, 20), O::Tell("g", 100, 65_536, 21)],
        // What sessions have mapped together.
        vec![
            O::ChangeMode("f", 0o666),
            O::Commit(true),
            O::WriteMapped("f", 100, 5000, 20),
            O::WriteMapped("f", 4000, 200, 21),
            O::Write("f", 0, 50, 22),
            O::WriteMapped("f", 12_000, 300, 23),
            O::ChangeMode("f", 0o600),
            O::WriteMapped("f", 0, 9000, 24),
        ],
        // Names that it changes.
        vec![
            O::Mediate("d"),
            O::Commit(true),
            O::Create("d/n"),
            O::Unlink("d/x"),
            O::Write("d/n", 0, 5000, 20),
            O::Unlink("d/n"),
            O::Create("d/n"),
        ],
        vec![
            O::Mediate("e"),
            O::Mediate("d"),
            O::Commit(true),
            O::MakeDirectory("e/n"),
            O::Create("e/n/inside"),
            O::Rename("d/x", "e/x"),
            O::Create("d/x"),
            O::Rename("e/x", "d/x"),
        ],
        vec![
            O::Mediate("d"),
            O::Commit(true),
            O::Link("f", "d/f"),
            O::Commit(true),
            O::Unlink("d/f"),
            O::MakeDirectory("d/m"),
            O::RemoveDirectory("d/m"),
            O::Rename("d/x", "d/y"),
        ],
        // Another name of what a session owns, and of what it does not; attributes and lengths of what nobody does.
        vec![
            O::Mediate("d"),
            O::Mediate("f"),
            O::Mediate("e"),
            O::Commit(true),
            O::Link("f", "d/h"),
            O::Append("g", 5000, 20),
            O::Link("g", "d/g"),
            O::SetTimes("f", 1_000, 2_000),
            O::ChangeMode("f", 0o640),
            O::Truncate("f", 100),
            O::Truncate("d/h", 9_000),
            O::Unlink("f"),
            O::ChangeMode("e", 0o700),
            O::SetTimes("d", 3_000, 4_000),
            O::Commit(false),
        ],
        // What some have in them from the beginning, and attributes.
        vec![
            O::Mediate("d"),
            O::Mediate("f"),
            O::Commit(true),
            O::Symlink("elsewhere", "d/l"),
            O::Device("d/c", 0),
            O::SetAttribute("f", "user.one", "1"),
            O::SetAttribute("d", "user.one", "1"),
            O::SetAttribute("f", "user.two", "2"),
            O::SetAttribute("f", "user.one", "another"),
            O::Unlink("d/l"),
            O::Symlink("f", "d/l"),
            O::Commit(false),
        ],
        // Space for it.
        vec![
            O::Append("f", 9000, 20),
            O::TellAllocate("f", allocation::PUNCH, 3000, 3000),
            O::TellAllocate("f", allocation::PUNCH, 0, 8192),
            O::TellSize("f", 20_000),
            O::TellAllocate("f", allocation::FILL, 0, 20_000),
            O::Write("f", 12_000, 1000, 21),
            O::TellAllocate("f", allocation::ZERO, 100, 12_500),
            O::Commit(false),
        ],
        // And cut.
        vec![
            O::Append("f", 9000, 20),
            O::TellSize("f", 5000),
            O::TellSize("f", 20_000),
            O::Write("f", 4500, 1000, 21),
            O::TellSize("f", 0),
        ],
    ];
    all(chains)
}
