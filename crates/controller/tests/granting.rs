//! What is granted to several sessions at once, inode numbers and segments: never the same to two, never more than there
//! is, and all of it given back when they end.

mod common;

use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::message::GRANT_MAX;
use arck_protocol::{Request, Response};
use common::{Client, ROOT, TestPool};
use rustix::io::Errno;
use std::collections::BTreeMap;

const SESSIONS: usize = 4;

/// Numbers that are granted at once; the errno, where there are none.
fn grant(client: &Client, count: u32) -> Result<Vec<InodeNumber>, Errno> {
    match client.ask(&Request::GrantInodes { count }) {
        Response::Inodes(runs) => Ok(runs.into_iter().flat_map(|run| run.numbers()).collect()),
        Response::Error(errno) => Err(Errno::from_raw_os_error(errno)),
        other => panic!("{other:?}"),
    }
}

/// Whoever ends, and however, gives back what he has; the others never get what is another's.
#[test]
fn numbers_are_granted_to_one_at_a_time_and_come_back() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let mut most = Vec::new();
    for round in 0..4 {
        let clients: Vec<Client> = (0..SESSIONS)
            .map(|_| Client::connect(&pool.path()))
            .collect();
        let inodes = clients[0].welcome.geometry.inode_count as usize;
        let mut owners: BTreeMap<InodeNumber, usize> = BTreeMap::new();
        let mut refused = [false; SESSIONS];
        // As much as there is, in pieces of all sizes.
        for step in 0.. {
            let who = step % SESSIONS;
            if refused.iter().all(|refused| *refused) {
                break;
            }
            assert!(step < 20_000, "there are always more");
            let count = [1, 7, 100, GRANT_MAX as u32, u32::MAX][step / SESSIONS % 5];
            match grant(&clients[who], count) {
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    refused[who] = true;
                }
                Ok(numbers) => {
                    assert!(!numbers.is_empty() && numbers.len() <= count as usize);
                    for number in numbers {
                        assert!((2..inodes as InodeNumber).contains(&number), "{number}");
                        assert_eq!(owners.insert(number, who), None, "{number} twice");
                        let header = clients[who].header(number);
                        assert_eq!(header.kind(), HeaderKind::Granted);
                        assert_eq!(header.ownership().session(), clients[who].welcome.session);
                    }
                }
            }
        }
        assert!(owners.len() < inodes, "{} of {inodes}", owners.len());
        most.push(owners.len());
        // In order, or cut off.
        for (place, client) in clients.into_iter().enumerate() {
            match (place + round) % 2 {
                0 => client.goodbye(),
                _ => drop(client),
            }
        }
        // All that was theirs is free for the next ones, when they have ended.
        let last = Client::connect(&pool.path());
        let started = std::time::Instant::now();
        let is_free = |number: &InodeNumber| last.header(*number).kind() == HeaderKind::Free;
        while !owners.keys().all(is_free) {
            assert!(
                started.elapsed() < common::PATIENCE,
                "they are not given back"
            );
            std::thread::yield_now();
        }
        last.goodbye();
    }
    // Each time as many, but for those that the last one of the round before had.
    let (least, most) = (most.iter().min().unwrap(), most.iter().max().unwrap());
    assert!(most - least <= most / 8, "{least} and {most}");
    controller.stop().unwrap();
    common::check::check(&pool.path());
}

/// A number that became an inode stays that, and is granted to nobody until it has gone.
#[test]
fn what_became_an_inode_is_granted_to_nobody() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let mut maker = Client::connect(&pool.path());
    maker.acquire(&[ROOT]);
    let made: Vec<InodeNumber> = (0..100)
        .map(|file| maker.create(ROOT, format!("{file}").as_bytes(), FileKind::File))
        .collect();
    maker.commit_all(true);
    maker.goodbye();
    let other = Client::connect(&pool.path());
    while let Ok(numbers) = grant(&other, GRANT_MAX as u32) {
        let taken: Vec<_> = numbers
            .iter()
            .filter(|number| made.contains(number))
            .collect();
        assert!(taken.is_empty(), "{taken:?}");
    }
    other.goodbye();
    controller.stop().unwrap();
    assert_eq!(common::check::check(&pool.path()).paths.len(), 100);
}

/// Segments, which others wait for while their files are made.
#[test]
fn segments_are_granted_to_one_at_a_time_and_come_back() {
    let pool = TestPool::new(32 << 20);
    let controller = pool.serve();
    let mut counts = Vec::new();
    for _ in 0..3 {
        let mut clients: Vec<Client> = (0..SESSIONS)
            .map(|_| Client::connect(&pool.path()))
            .collect();
        let segments = clients[0].welcome.geometry.segment_count;
        let mut owners: BTreeMap<u32, usize> = BTreeMap::new();
        let mut refused = [false; SESSIONS];
        for step in 0.. {
            let who = step % SESSIONS;
            if refused.iter().all(|refused| *refused) {
                break;
            }
            assert!(step < 10_000, "there are always more");
            match clients[who].grant_segment() {
                Err(errno) => {
                    assert_eq!(errno, Errno::NOSPC);
                    refused[who] = true;
                }
                Ok(segment) => {
                    assert!(segment < segments, "{segment} of {segments}");
                    assert_eq!(owners.insert(segment, who), None, "{segment} twice");
                }
            }
        }
        assert!(
            owners.len() < segments as usize,
            "{} of {segments}",
            owners.len()
        );
        counts.push(owners.len());
        clients.into_iter().for_each(Client::goodbye);
    }
    // Whoever comes next gets as many.
    assert!(counts[0] > 10, "{counts:?}");
    assert!(counts.iter().all(|count| *count == counts[0]), "{counts:?}");
    controller.stop().unwrap();
    common::check::check(&pool.path());
}
