//! What sessions that died leave behind for those who are to be served next, or are being served:
//! however much of it is refused, it keeps them waiting no longer than the refusals of one session do.

mod common;

use arck_controller::{Controller, Options, read_log};
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::socket::{Answer, Call, call};
use common::check::check;
use common::{Client, ROOT, TestPool, dial};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// The tests here one at a time: what processors do for one is measured.
static ALONE: Mutex<()> = Mutex::new(());

/// What processors have done for this process. A busy machine takes longer, and does no more.
fn worked() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::try_from(time).expect("a process has not worked for less than nothing")
}

/// Files of a session, each refused, and each drawing in all of the others; 24 sessions have fewer than a pool of
/// 512 MiB has numbers for.
const REFUSED: usize = 5000;

/// A directory for each of so many sessions, and one for an honest one.
fn directories(pool: &TestPool, count: usize) -> Vec<InodeNumber> {
    let controller = pool.serve();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let directories = (0..=count)
        .map(|at| client.create(ROOT, format!("d{at}").as_bytes(), FileKind::Directory))
        .collect();
    client.goodbye();
    controller.stop().unwrap();
    directories
}

/// Fills a directory with files that are refused.
fn leave_refused(client: &mut Client, directory: InodeNumber) {
    client.acquire(&[directory]);
    for at in 0..REFUSED {
        let file = client.create(directory, format!("f{at}").as_bytes(), FileKind::File);
        client.edit_branch(file, |branch| branch.size = u64::MAX - 1);
    }
}

/// What a start works until the first call is answered, where so many sessions left what is
/// refused; and what the end of it does.
fn start_after(count: usize) -> (Duration, Duration) {
    let pool = TestPool::new(512 << 20);
    let directories = directories(&pool, count);
    let controller = pool.serve();
    let mut hostile: Vec<Client> = Vec::new();
    for &directory in &directories[1..] {
        let mut client = Client::connect(&pool.path());
        leave_refused(&mut client, directory);
        hostile.push(client);
    }
    // The last of them all.
    let mut honest = Client::connect(&pool.path());
    honest.acquire(&directories[..1]);
    honest.create(directories[0], b"kept", FileKind::File);
    controller.kill();
    drop((hostile, honest));

    let before = worked();
    let controller = Controller::open(&pool.path(), Options::default())
        .unwrap()
        .spawn()
        .unwrap();
    let mut client = Client::connect(&pool.path());
    client.acquire(&[ROOT]);
    let took = worked() - before;
    assert!(client.verified(directories[0], b"kept").is_some());
    let (entries, _) = read_log(&pool.path()).unwrap();
    assert!(!entries.is_empty());
    let mut hostile = Vec::new();
    for &directory in &directories[1..] {
        client.acquire(&[directory]);
        client.done(&Client::commit_request(&[directory], true));
        let mut other = Client::connect(&pool.path());
        leave_refused(&mut other, directory);
        hostile.push(other);
    }
    client.create(ROOT, b"last", FileKind::File);
    let before = worked();
    controller.stop().unwrap();
    let stopped = worked() - before;
    assert!(check(&pool.path()).paths.contains_key("/last"));
    (took, stopped)
}

#[test]
fn refusals_of_many_sessions_take_no_longer_than_those_of_one() {
    let _alone = ALONE.lock();
    let few = start_after(1);
    let many = start_after(12);
    eprintln!("until the first call, and the end: {few:?} after one session, {many:?} after 12");
    let bound = Duration::from_millis(500);
    for (few, many) in [(few.0, many.0), (few.1, many.1)] {
        // Else twelve times as much would be little, too.
        assert!(few > bound / 4, "{few:?}");
        assert!(
            many < 3 * few.max(bound),
            "{few:?} after one, {many:?} after 12"
        );
    }
}

/// So many sessions that leave what is refused die at once, beside one who asks by its socket and by
/// its doorbell all the time: how long he waits at most, and until all have ended.
fn die_beside_another(count: usize) -> (Duration, Duration) {
    let pool = TestPool::new(512 << 20);
    let directories = directories(&pool, count);
    let controller = pool.serve();
    let mut hostile: Vec<Client> = Vec::new();
    for &directory in &directories[1..] {
        let mut client = Client::connect(&pool.path());
        leave_refused(&mut client, directory);
        hostile.push(client);
    }
    let bystander = Client::connect(&pool.path());
    let socket = dial(&pool.path());
    let mut longest = Duration::ZERO;
    let began = Instant::now();
    drop(hostile);
    loop {
        let asked = Instant::now();
        let Ok((Answer::Status(status), _)) = call(&socket, &Call::Status) else {
            panic!("no status");
        };
        longest = longest.max(asked.elapsed());
        let asked = Instant::now();
        bystander.acquire(&directories[..1]);
        longest = longest.max(asked.elapsed());
        if status.sessions == 1 {
            break;
        }
        assert!(
            began.elapsed() < Duration::from_secs(100),
            "they do not end"
        );
    }
    let took = began.elapsed();
    // And what they had is nobody's.
    for directory in &directories[1..] {
        bystander.acquire(std::slice::from_ref(directory));
    }
    controller.stop().unwrap();
    check(&pool.path());
    (longest, took)
}

/// 60 sessions with refused deltas that died at once kept everybody's socket calls waiting for 53 s:
/// their ends were done one after another before the next packet was looked at, each of them for half a
/// second and more.
#[test]
fn sessions_that_die_at_once_keep_nobody_waiting_for_all_of_them() {
    let _alone = ALONE.lock();
    let one = die_beside_another(1);
    let many = die_beside_another(24);
    eprintln!("longest wait, and until they had ended: {one:?} of one session, {many:?} of 24");
    // One refusal is a step; a busy machine takes its time for one.
    let step = Duration::from_millis(400);
    assert!(many.0 < step.max(2 * one.0), "{one:?} {many:?}");
    let bound = Duration::from_secs(1);
    assert!(many.1 < 4 * one.1.max(bound), "{one:?} {many:?}");
}
