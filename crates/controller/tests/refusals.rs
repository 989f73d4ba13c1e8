//! What becomes of a delta that was refused: repaired within the grace period, or set aside after
//! it, while everybody else goes on.

mod common;

use arck_controller::{Event, Options, RunningController, SetAside, read_log};
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, InodeNumber, PagePtr};
use arck_protocol::{Request, Response};
use common::check::check;
use common::{Client, PATIENCE, ROOT, TestPool};
use std::time::{Duration, Instant};

/// So long that no test sees its end.
const FOR_EVER: Duration = Duration::from_secs(100_000);

fn serve(pool: &TestPool, grace: Duration) -> RunningController {
    pool.serve_with(Options {
        grace,
        ..Options::default()
    })
}

fn violates(client: &Client, inodes: &[InodeNumber]) {
    let answer = client.ask(&Client::commit_request(inodes, false));
    assert!(matches!(answer, Response::Violation(_)), "{answer:?}");
}

fn is_refused(client: &Client, number: InodeNumber) -> bool {
    let ownership = client.header(number).ownership();
    assert!(!ownership.is_marked());
    ownership.is_refused()
}

/// Files in `aside`.
fn set_aside(pool: &TestPool) -> usize {
    std::fs::read_dir(pool.path().join("aside")).map_or(0, Iterator::count)
}

/// Lines of the log that tell of something refused.
fn refusals(pool: &TestPool) -> usize {
    let log = std::fs::read_to_string(pool.path().join("violations.log")).unwrap_or_default();
    log.lines()
        .filter(|line| line.contains(r#""event":"refused""#))
        .count()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Gives the directory `name` at the root, whose delta is refused: it has the name `twice` twice.
fn refused_directory(client: &mut Client, name: &[u8]) -> InodeNumber {
    client.acquire(&[ROOT]);
    let directory = client.create(ROOT, name, FileKind::Directory);
    client.create(directory, b"twice", FileKind::File);
    client.commit(&[ROOT, directory], false);
    let number = client.number();
    client.create_as(directory, b"twice", FileKind::File, number);
    violates(client, &[directory]);
    assert!(is_refused(client, directory));
    directory
}

#[test]
fn what_is_repaired_within_the_grace_period_is_folded() {
    let pool = TestPool::new(32 << 20);
    let controller = serve(&pool, FOR_EVER);
    let mut client = Client::connect(&pool.path());
    let directory = refused_directory(&mut client, b"d");
    let fold = client.header(directory).fold();
    assert_eq!(refusals(&pool), 1);
    // The same refusal again is no news; other inodes are folded all the same.
    violates(&client, &[directory]);
    let file = client.create(ROOT, b"other", FileKind::File);
    let answer = client.ask(&Request::CommitAll { release: false });
    assert!(matches!(answer, Response::Violation(_)), "{answer:?}");
    assert!(client.verified(ROOT, b"other").is_some() && client.is_alive(file));
    assert!(is_refused(&client, directory) && !is_refused(&client, ROOT));
    assert_eq!(client.header(directory).fold(), fold);
    assert_eq!(refusals(&pool), 1);
    // The second of the two names goes; then one of its own comes.
    client.remove(directory, b"twice");
    client.create(directory, b"more", FileKind::File);
    client.commit(&[directory], false);
    assert!(!is_refused(&client, directory));
    assert_eq!(client.names(directory).len(), 2);
    assert_eq!(client.header(directory).evicted(), 0);
    // The next refusal is another, with a grace period of its own.
    let number = client.number();
    client.create_as(directory, b"more", FileKind::File, number);
    violates(&client, &[directory]);
    assert_eq!(refusals(&pool), 2);
    // Dropping the whole delta is a repair as well.
    client.edit_branch(directory, |branch| branch.fold = 0);
    client.commit(&[directory], false);
    assert!(!is_refused(&client, directory));
    let session = client.welcome.session;
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(set_aside(&pool), 0);
    let (entries, unreadable) = read_log(&pool.path()).unwrap();
    assert_eq!(unreadable, 0);
    let uid = rustix::process::geteuid().as_raw();
    assert!(entries.iter().all(|entry| entry.uid == uid));
    let subject = Some((session, directory));
    assert!(entries.iter().all(|entry| entry.event.subject() == subject));
    let told: Vec<&str> = entries
        .iter()
        .map(|entry| match &entry.event {
            Event::Refused { rule, .. } => rule,
            Event::Repaired { .. } => "repaired",
            _ => "something else",
        })
        .collect();
    assert_eq!(told, ["NameUnique", "repaired", "NameUnique", "repaired"]);
    assert_eq!(check(&pool.path()).paths.len(), 4);
}

#[test]
fn what_is_not_repaired_is_set_aside_and_taken_away() {
    let pool = TestPool::new(32 << 20);
    let controller = serve(&pool, Duration::from_millis(30));
    let mut client = Client::connect(&pool.path());
    let directory = refused_directory(&mut client, b"d");
    let fold = client.header(directory).fold();
    let kept = client.create(ROOT, b"kept", FileKind::File);
    let ownership_epoch = client.header(directory).ownership().epoch();
    assert_ne!(ownership_epoch, 0);
    // Nobody asks for anything: the controller wakes by itself.
    wait_until("the end of the grace period", || {
        client.header(directory).ownership().session() == 0
    });
    assert_eq!(client.header(directory).evicted(), fold);
    assert_ne!(client.header(directory).fold(), fold);
    assert!(!is_refused(&client, directory));
    // With the file that it was to bear; the log is written before that can be seen.
    let (entries, _) = read_log(&pool.path()).unwrap();
    let file = entries.iter().find_map(|entry| match &entry.event {
        Event::SetAside { inode, file, .. } if *inode == directory => file.clone(),
        _ => None,
    });
    let aside = SetAside::read(&pool.path().join(file.unwrap())).unwrap();
    assert_eq!((aside.head.inode, aside.head.fold), (directory, fold));
    let branch = aside.branch.unwrap();
    assert!(aside.pages.contains_key(&branch.tails[0]));
    // From the verified state on; and what else the session had changed is as it was.
    client.overlay.retain(|(within, _), _| *within != directory);
    client.acquire(&[directory]);
    client.create(directory, b"again", FileKind::File);
    client.commit(&[directory, ROOT], false);
    assert!(client.verified(ROOT, b"kept").is_some() && client.is_alive(kept));
    assert_eq!(client.names(directory).len(), 2);
    client.goodbye();
    controller.stop().unwrap();
    check(&pool.path());
}

#[test]
fn readers_and_writers_do_not_wait_for_the_grace_period() {
    let pool = TestPool::new(32 << 20);
    let controller = serve(&pool, FOR_EVER);
    let mut client = Client::connect(&pool.path());
    let directory = refused_directory(&mut client, b"d");
    let owner = client.header(directory).ownership();
    let mut other = Client::connect(&pool.path());
    for _ in 0..3 {
        other.recall(&[directory]);
        assert_eq!(other.names(directory).len(), 1);
    }
    // A reader takes nothing from the owner, who may still repair it.
    assert_eq!(other.header(directory).ownership(), owner);
    assert_eq!(set_aside(&pool), 0);
    other.acquire(&[directory]);
    assert!(!is_refused(&other, directory));
    assert_eq!(
        other.header(directory).ownership().session(),
        other.welcome.session
    );
    // With the delta of the inode that it was to bear.
    assert_eq!(set_aside(&pool), 2);
    other.create(directory, b"more", FileKind::File);
    other.commit(&[directory], true);
    assert_eq!(other.names(directory).len(), 2);
    // A repair comes too late for that delta, and does nobody any harm.
    client.done(&Client::commit_request(&[directory], false));
    assert_eq!(client.names(directory).len(), 2);
    other.goodbye();
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 3);
}

#[test]
fn what_was_repaired_and_not_committed_is_folded_at_the_end() {
    let pool = TestPool::new(32 << 20);
    let controller = serve(&pool, FOR_EVER);
    let mut client = Client::connect(&pool.path());
    let directory = refused_directory(&mut client, b"d");
    client.remove(directory, b"twice");
    client.create(directory, b"more", FileKind::File);
    let other = Client::connect(&pool.path());
    other.acquire(&[directory]);
    assert_eq!(other.names(directory).len(), 2);
    assert_eq!(set_aside(&pool), 0);
    drop(other);
    drop(client);
    controller.stop().unwrap();
    check(&pool.path());
}

#[test]
fn inodes_that_were_to_be_born_go_with_their_directory() {
    for is_cut_off in [false, true] {
        created_in_what_is_refused(is_cut_off);
    }
}

fn created_in_what_is_refused(is_cut_off: bool) {
    let pool = TestPool::new(32 << 20);
    let controller = serve(&pool, Duration::from_millis(30));
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let directory = client.create(ROOT, b"d", FileKind::Directory);
    client.commit(&[ROOT, directory], false);
    let file = client.create(directory, b"f", FileKind::File);
    let page = client.data_page(7).unwrap();
    client.write(file, 0, page);
    let second = client.number();
    client.create_as(directory, b"f", FileKind::File, second);
    if is_cut_off {
        // The records are there, but nobody can find them.
        client.edit_branch(directory, |branch| branch.tails[0] = u32::MAX);
    }
    let fold = client.header(file).fold();
    violates(&client, &[directory]);
    wait_until("the end of the grace period", || {
        client.header(directory).ownership().session() == 0
    });
    assert_eq!(set_aside(&pool), 3);
    // Still the session's, uncommitted, and nothing is left of what it had.
    let header = client.header(file);
    assert_eq!(header.kind(), HeaderKind::Granted);
    assert_eq!(header.ownership().session(), client.welcome.session);
    assert_eq!(header.evicted(), fold);
    assert_ne!(header.fold(), fold);
    client.acquire(&[directory]);
    client.create_as(directory, b"again", FileKind::File, file);
    client.commit(&[directory, file], false);
    assert_eq!(client.inode(file).size, 0);
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 2);
}

#[test]
fn a_refused_file_does_not_take_its_directory_along() {
    let pool = TestPool::new(32 << 20);
    let controller = serve(&pool, Duration::from_millis(30));
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let file = client.create(ROOT, b"bad", FileKind::File);
    client.create(ROOT, b"good", FileKind::File);
    // Somebody else's page.
    client.write(file, 0, PagePtr(1));
    violates(&client, &[ROOT, file]);
    assert!(is_refused(&client, file) && !is_refused(&client, ROOT));
    wait_until("the end of the grace period", || {
        client.header(file).ownership().session() == 0
    });
    // It is created, empty.
    assert!(client.is_alive(file));
    assert_eq!(client.inode(file).size, 0);
    assert_eq!(client.names(ROOT).len(), 2);
    assert_eq!(set_aside(&pool), 1);
    client.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).sizes["/bad"], 0);
}

#[test]
fn a_session_that_ends_has_no_grace_period() {
    let pool = TestPool::new(32 << 20);
    let controller = serve(&pool, FOR_EVER);
    let mut client = Client::connect(&pool.path());
    refused_directory(&mut client, b"d");
    client.create(ROOT, b"last", FileKind::File);
    drop(client);
    let mut other = Client::connect(&pool.path());
    wait_until("the end of the session", || {
        other.verified(ROOT, b"last").is_some()
    });
    let directory = other.verified(ROOT, b"d").unwrap().inode;
    other.acquire(&[directory]);
    assert_eq!(set_aside(&pool), 2);
    other.create(directory, b"more", FileKind::File);
    other.commit(&[directory], true);
    other.goodbye();
    controller.stop().unwrap();
    assert_eq!(check(&pool.path()).paths.len(), 4);
}
