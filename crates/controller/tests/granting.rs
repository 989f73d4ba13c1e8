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

/// Has all sessions ask in turns, until each is refused; gives who got what.
fn ask_for_all<T: Ord + Copy + std::fmt::Debug>(
    clients: &mut [Client],
    mut ask: impl FnMut(&mut Client, usize) -> Result<Vec<T>, Errno>,
) -> BTreeMap<T, usize> {
    let mut owners = BTreeMap::new();
    let mut refused = [false; SESSIONS];
    for step in 0.. {
        let who = step % SESSIONS;
        if refused.iter().all(|refused| *refused) {
            break;
        }
        assert!(step < 20_000, "there are always more");
        match ask(&mut clients[who], step / SESSIONS) {
            Err(errno) => {
                assert_eq!(errno, Errno::NOSPC);
                refused[who] = true;
            }
            Ok(granted) => {
                for one in granted {
                    assert_eq!(owners.insert(one, who), None, "{one:?} twice");
                }
            }
        }
    }
    owners
}

/// Nothing was refused that a fold brought.
fn ends_well(pool: &TestPool) {
    let (log, unreadable) = arck_controller::read_log(&pool.path()).unwrap();
    assert!(log.is_empty() && unreadable == 0, "{log:?}");
}

/// Whoever ends, and however, gives back what he has; the others never get what is another's.
#[test]
fn numbers_are_granted_to_one_at_a_time_and_come_back() {
    let pool = TestPool::new(16 << 20);
    let controller = pool.serve();
    let mut most = Vec::new();
    for round in 0..4 {
        let mut clients: Vec<Client> = (0..SESSIONS)
            .map(|_| Client::connect(&pool.path()))
            .collect();
        let inodes = clients[0].welcome.geometry.inode_count as usize;
        // As much as there is, in pieces of all sizes.
        let owners = ask_for_all(&mut clients, |client, turn| {
            let count = [1, 7, 100, GRANT_MAX as u32, u32::MAX][turn % 5];
            let numbers = grant(client, count)?;
            assert!(!numbers.is_empty() && numbers.len() <= count as usize);
            for &number in &numbers {
                assert!((2..inodes as InodeNumber).contains(&number), "{number}");
                let header = client.header(number);
                assert_eq!(header.kind(), HeaderKind::Granted);
                assert_eq!(header.ownership().session(), client.welcome.session);
            }
            Ok(numbers)
        });
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
    ends_well(&pool);
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
    ends_well(&pool);
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
        let owners = ask_for_all(&mut clients, |client, _| {
            let segment = client.grant_segment()?;
            assert!(segment < segments, "{segment} of {segments}");
            Ok(vec![segment])
        });
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
    ends_well(&pool);
    common::check::check(&pool.path());
}
