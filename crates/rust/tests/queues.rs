//! Queues of requests on the files of a pool.

use arck::queues::{
    Closing, Completion, Operation, Queue, QueueOptions, Queues, Request, RequestId,
};
use arck::{File, Files, Pool, errno};
use arck_test_pool::TestPool;
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Mutex;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

fn served() -> (TestPool, Pool) {
    let served = TestPool::new(64 << 20);
    let pool = Pool::new(served.path());
    (served, pool)
}

fn opened(files: &Files, path: &str) -> File {
    let mut options = files.options();
    options.read(true).write(true).create(true);
    options.open(path).expect("opened")
}

fn collect(queue: &Queue, count: usize) -> BTreeMap<RequestId, Completion> {
    let mut all = BTreeMap::new();
    while all.len() < count {
        let some = queue.wait(1, Some(LONG));
        assert!(!some.is_empty(), "{} of {count}", all.len());
        all.extend(some.into_iter().map(|one| (one.id, one)));
    }
    all
}

/// How a forked child has ended.
fn status_of(child: libc::pid_t) -> i32 {
    let mut status = 0;
    // SAFETY: a child of this process, which nobody else waits for.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    status
}

/// The number of errno that a completion has.
fn number(completion: &Completion) -> Option<i32> {
    let errno = completion.result.err()?;
    Some(errno.raw_os_error())
}

#[test]
fn requests_do_what_calls_do() {
    fn is_send_and_sync<T: Send + Sync + 'static>() {}
    is_send_and_sync::<Queue>();
    is_send_and_sync::<Queues>();
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let queues = Queues::new();
    let file = opened(&files, "f");
    let queue = file
        .queue(&queues, QueueOptions::default())
        .expect("a queue");
    // It keeps the file open, by whatever name.
    drop(file);
    files.rename("f", "g").expect("renamed");
    let write = queue.submit(Request::write(2, b"ab")).expect("taken");
    let append = queue
        .submit(Request::append(vec![b'x'; 5000]))
        .expect("taken");
    let sync = queue.submit(Request::sync()).expect("taken");
    let read = queue.submit(Request::read(0, 10_000)).expect("taken");
    let all = collect(&queue, 4);
    assert_eq!(all[&write].result, Ok(2));
    assert_eq!(
        (all[&append].result, all[&append].end),
        (Ok(5000), Some(5004))
    );
    assert_eq!(all[&sync].result, Ok(0));
    assert_eq!(all[&read].result, Ok(5004));
    assert_eq!(&all[&read].buffer[..6], b"\0\0abxx");
    assert_eq!(files.read("g").expect("read"), &all[&read].buffer[..5004]);
    // The same together.
    let mut requests = vec![Request::write(0, b"12"), Request::append(b"3")];
    let (submitted, done) = queue.exchange(&mut requests, 2);
    assert_eq!((submitted.taken.len(), submitted.refused), (2, None));
    assert_eq!((done.len(), requests.len()), (2, 0));
    let mut requests = vec![Request::read(0, 3), Request::read(5004, 1)];
    let reads = queue.submit_all(&mut requests).taken;
    let all = collect(&queue, 2);
    assert_eq!(all[&reads[0]].buffer, b"12a");
    assert_eq!(all[&reads[1]].buffer, b"3");
    // A file that is cut meanwhile has what there is.
    opened(&files, "g").set_len(3).expect("cut");
    let read = queue.submit(Request::read(0, 10)).expect("taken");
    assert_eq!(collect(&queue, 1)[&read].result, Ok(3));
    // And one without a name is one still.
    files.remove_file("g").expect("removed");
    let read = queue.submit(Request::read(1, 10)).expect("taken");
    assert_eq!(collect(&queue, 1)[&read].result, Ok(2));
    queue.close(Closing::Finish);
    drop(queue);
    files.close().expect("nobody has it");
}

/// What plain calls on the descriptor would say.
#[test]
fn errors_are_those_of_calls() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let queues = Queues::new();
    files.write("f", b"0123").expect("written");
    let queue = |file: &File| {
        file.queue(&queues, QueueOptions::default())
            .expect("a queue")
    };
    let reads = queue(&files.open("f").expect("opened"));
    let refused = reads.submit(Request::write(0, b"x")).unwrap_err();
    assert_eq!(refused.errno.raw_os_error(), libc::EBADF);
    let mut options = files.options();
    let appends = queue(&options.append(true).open("f").expect("opened"));
    let refused = appends.submit(Request::read(0, 4)).unwrap_err();
    assert_eq!(refused.errno.raw_os_error(), libc::EBADF);
    // Where it says.
    appends.submit(Request::write(1, b"x")).expect("taken");
    appends.submit(Request::append(b"y")).expect("taken");
    collect(&appends, 2);
    assert_eq!(files.read("f").expect("read"), b"0x23y");
    // A pool without room: the completion says so, or how much there was room for.
    let full = queue(&opened(&files, "full"));
    let write = full
        .submit(Request::write(0, vec![1; 128 << 20]))
        .expect("taken");
    let all = collect(&full, 1);
    match all[&write].result {
        Ok(length) => assert!(length < 128 << 20),
        Err(_) => assert_eq!(number(&all[&write]), Some(libc::ENOSPC)),
    }
    let far = full.submit(Request::write((i64::MAX - 8) as u64, b"1234"));
    let all = collect(&full, 1);
    assert_eq!(number(&all[&far.expect("taken")]), Some(libc::EFBIG));
    files.create_dir("d").expect("made");
    let directory = queue(&files.open("d").expect("opened"));
    let read = directory.submit(Request::read(0, 10)).expect("taken");
    assert_eq!(number(&collect(&directory, 1)[&read]), Some(libc::EISDIR));
    let none = QueueOptions {
        depth: 0,
        ..QueueOptions::default()
    };
    let error = files
        .open("f")
        .expect("opened")
        .queue(&queues, none)
        .unwrap_err();
    assert_eq!(errno(&error), Some(libc::EINVAL));
    drop(queues);
    let refused = reads.submit(Request::read(0, 4)).unwrap_err();
    assert_eq!(refused.errno.raw_os_error(), libc::EBADF);
}

/// Threads with queues of two sessions on one file: in the order of their numbers they explain what was read.
#[test]
fn requests_of_two_sessions_are_in_one_order() {
    const LENGTH: usize = 64 << 10;
    const BLOCK: usize = 4096;
    let (_served, pool) = served();
    let sessions = [0, 1].map(|_| pool.files().expect("a session"));
    sessions[0].write("f", vec![0; LENGTH]).expect("written");
    let queues = Queues::new();
    let submitted: Mutex<BTreeMap<RequestId, Operation>> = Mutex::default();
    let completed: Mutex<BTreeMap<RequestId, Completion>> = Mutex::default();
    std::thread::scope(|scope| {
        for thread in 0..4u8 {
            let (sessions, queues) = (&sessions, &queues);
            let (submitted, completed) = (&submitted, &completed);
            scope.spawn(move || {
                let file = opened(&sessions[thread as usize % 2], "f");
                let queue = file
                    .queue(queues, QueueOptions::default())
                    .expect("a queue");
                let mut state = u64::from(thread) + 1;
                for turn in 0..200u8 {
                    state = state
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1);
                    let at = (state >> 33) as usize % (LENGTH / BLOCK - 1) * BLOCK;
                    let position = (at + (state >> 60) as usize * 100) as u64;
                    let operation = match (state >> 40) % 16 {
                        0 => Operation::Append {
                            bytes: vec![turn; 100],
                        },
                        1 => Operation::Sync { data_only: false },
                        2..9 => Operation::Write {
                            position,
                            bytes: vec![thread * 50 + turn % 50; BLOCK],
                        },
                        _ => Operation::Read {
                            position,
                            buffer: vec![0; BLOCK],
                        },
                    };
                    let id = queue.submit(operation.clone().into()).expect("taken");
                    submitted.lock().unwrap().insert(id, operation);
                    let some = match turn % 8 {
                        7 => queue.wait(4, None),
                        _ => queue.reap(8),
                    };
                    let some = some.into_iter().map(|one| (one.id, one));
                    completed.lock().unwrap().extend(some);
                }
                queue.close(Closing::Finish);
                let rest = queue.reap(usize::MAX).into_iter();
                let rest = rest.map(|one| (one.id, one));
                completed.lock().unwrap().extend(rest);
            });
        }
    });
    let (submitted, completed) = (
        submitted.into_inner().unwrap(),
        completed.into_inner().unwrap(),
    );
    assert_eq!((submitted.len(), completed.len()), (800, 800));
    let mut bytes = vec![0; LENGTH];
    for (id, operation) in submitted {
        let done = &completed[&id];
        let length = done.result.expect("done");
        match operation {
            Operation::Write {
                position,
                bytes: new,
            } => bytes[position as usize..][..length].copy_from_slice(&new[..length]),
            Operation::Append { bytes: new } => {
                bytes.extend_from_slice(&new);
                assert_eq!(done.end, Some(bytes.len() as u64));
            }
            Operation::Read { position, .. } => {
                let expected = &bytes[position as usize..][..length];
                assert!(done.buffer[..length] == *expected, "{id} at {position}");
            }
            Operation::Sync { .. } => {}
        }
    }
    assert!(sessions[1].read("f").expect("read") == bytes);
}

/// A program that is killed with many requests queued leaves those that were done, whole, and nothing of the others.
#[test]
fn a_program_is_killed_with_requests_queued() {
    const REQUESTS: u64 = 1000;
    const LENGTH: usize = 4096;
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    files.write("f", b"").expect("written");
    // SAFETY: the child opens what it uses itself, and is killed.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let files = pool.files().expect("a session");
        let queues = Queues::new();
        let depth = REQUESTS as usize;
        let options = QueueOptions {
            depth,
            ..QueueOptions::default()
        };
        let queue = opened(&files, "f")
            .queue(&queues, options)
            .expect("a queue");
        for number in 0..REQUESTS {
            let bytes = vec![number as u8 | 1; LENGTH];
            let request = Request::write(number * LENGTH as u64, bytes);
            queue.submit(request).expect("taken");
        }
        // SAFETY: ends the child, in the middle of what its workers do.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }
    let status = status_of(child);
    assert!(libc::WIFSIGNALED(status), "{status:#x}");
    let found = files.read("f").expect("read");
    println!("{} of {} bytes", found.len(), REQUESTS as usize * LENGTH);
    for (number, block) in found.chunks(LENGTH).enumerate() {
        let whole = number as u8 | 1;
        let is_whole = block.len() == LENGTH && block.iter().all(|&byte| byte == whole);
        let is_hole = block.iter().all(|&byte| byte == 0);
        assert!(is_whole || is_hole, "block {number}");
    }
}

/// A file that is cut between requests is as long as it is for the next.
#[test]
fn a_file_that_was_cut_is_as_long_as_it_is() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let queues = Queues::new();
    let file = opened(&files, "f");
    let queue = file
        .queue(&queues, QueueOptions::default())
        .expect("a queue");
    for turn in 0..200 {
        queue
            .submit(Request::write(0, vec![1; 100_000]))
            .expect("taken");
        collect(&queue, 1);
        file.set_len(0).expect("cut");
        // It lengthens the file over what is read, which sees that.
        let write = queue
            .submit(Request::write(4096, vec![2; 4096]))
            .expect("taken");
        let read = queue
            .submit(Request::read(0, 4096).urgent())
            .expect("taken");
        let all = collect(&queue, 2);
        assert_eq!(all[&write].result, Ok(4096));
        assert_eq!(all[&read].result, Ok(4096), "turn {turn}");
        assert!(
            all[&read].buffer.iter().all(|&byte| byte == 0),
            "turn {turn}"
        );
    }
}

/// Nothing hangs in a child, and the parent goes on.
#[test]
fn a_forked_child_has_no_queues() {
    let (_served, pool) = served();
    let files = pool.files().expect("a session");
    let queues = Queues::new();
    let file = opened(&files, "f");
    let queue = file
        .queue(&queues, QueueOptions::default())
        .expect("a queue");
    queue.submit(Request::write(0, b"parent")).expect("taken");
    collect(&queue, 1);
    // SAFETY: the child runs what a child may that had other threads beside it: locks of this process's heap are free, as far as
    // libc sees to it.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let stale = Some(libc::ESTALE);
        let refused = queue.submit(Request::sync()).unwrap_err();
        let own = opened(&files, "f");
        let found = [
            refused.errno.raw_os_error() == libc::ESTALE,
            queue.wait(1, None).is_empty() && queue.reap(1).is_empty(),
            {
                let mut requests = vec![Request::sync()];
                let together = queue.submit_all(&mut requests);
                let (exchanged, done) = queue.exchange(&mut requests, 1);
                let errnos = [together.refused, exchanged.refused];
                let all_stale = errnos
                    .iter()
                    .all(|errno| errno.is_some_and(|errno| errno.raw_os_error() == libc::ESTALE));
                all_stale && (requests.len(), done.len()) == (1, 0)
            },
            queue.readiness().is_err_and(|error| errno(&error) == stale),
            own.queue(&queues, QueueOptions::default())
                .is_err_and(|error| errno(&error) == stale),
            {
                // The child's own.
                let queues = Queues::new();
                let queue = own
                    .queue(&queues, QueueOptions::default())
                    .expect("a queue");
                let read = queue.submit(Request::read(0, 6)).expect("taken");
                collect(&queue, 1)[&read].buffer == b"parent"
            },
        ];
        queue.close(Closing::Finish);
        drop((queue, queues, file));
        let failed = found.iter().position(|found| !found);
        // SAFETY: ends the child, without the parent's ends.
        unsafe { libc::_exit(failed.map_or(0, |at| at as i32 + 1)) };
    }
    let status = status_of(child);
    assert_eq!(libc::WEXITSTATUS(status), 0, "{status:#x}");
    assert!(libc::WIFEXITED(status));
    queue.submit(Request::write(6, b"!")).expect("taken");
    collect(&queue, 1);
    let mut all = String::new();
    files
        .open("f")
        .expect("opened")
        .read_to_string(&mut all)
        .expect("read");
    assert_eq!(all, "parent!");
}
