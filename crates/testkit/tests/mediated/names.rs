//! Mediated directories (KucoFS, 3.2): sessions that do not trust each other make and take away names of one by messages, each
//! whole or not at all for everybody, and nobody becomes its owner.

use super::{PATH, answered_by_the_next, errno, mediation, owns, pool, set};
use arck_protocol::control::{open_entry, open_reserved};
use arck_protocol::message::{Named, which};
use arck_protocol::{Request, Response};
use arck_testkit::{Random, Shorthand, TestPool};
use arckfs::{At, Errno, Failure, FileSystem, Mediation};
use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::Ordering;

/// Makes the directory, and has it mediated.
pub fn plant(session: &FileSystem) {
    session
        .make_directory(At::Root, PATH.as_bytes(), 0o777)
        .expect("a directory");
    set(session, Mediation::On);
    assert_eq!(mediation(session), Mediation::On);
}

pub fn path(name: &str) -> String {
    format!("{PATH}/{name}")
}

pub fn create(session: &FileSystem, name: &str) -> Result<(), Failure> {
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
    let handle = session.open(At::Root, path(name).as_bytes(), flags, 0o640)?;
    session.close(handle);
    Ok(())
}

fn unlink(session: &FileSystem, name: &str) -> Result<(), Failure> {
    session.unlink(At::Root, path(name).as_bytes(), 0)
}

fn remove(session: &FileSystem, name: &str) -> Result<(), Failure> {
    session.unlink(At::Root, path(name).as_bytes(), libc::AT_REMOVEDIR)
}

fn make(session: &FileSystem, name: &str) -> Result<(), Failure> {
    session.make_directory(At::Root, path(name).as_bytes(), 0o750)
}

/// That it was refused, and as it should be.
fn refused(done: Result<(), Failure>, expected: Errno) -> Result<(), Failure> {
    assert_eq!(errno(done), expected);
    Ok(())
}

/// Renames, as the model says it ends.
fn renamed(session: &FileSystem, model: &mut BTreeMap<String, bool>, from: &str, to: &str) {
    let source = model.get(from).copied();
    let target = model.get(to).copied().filter(|_| from != to);
    let expected = match (source, target) {
        (None, _) => Some(Errno::NOENT),
        (Some(false), Some(true)) => Some(Errno::ISDIR),
        (Some(true), Some(false)) => Some(Errno::NOTDIR),
        _ => None,
    };
    let (from_path, to_path) = (path(from), path(to));
    let done = session.rename(
        At::Root,
        from_path.as_bytes(),
        At::Root,
        to_path.as_bytes(),
        0,
    );
    match expected {
        Some(expected) => assert_eq!(errno(done), expected, "{from} to {to}"),
        None => {
            done.expect("renamed");
            let moved = model.remove(from).expect("it was there");
            model.insert(to.to_owned(), moved);
        }
    }
}

/// Random calls of two sessions by turns, beside a model of what there is: what one has done, the other sees at once, and nobody
/// owns the directory for it.
#[test]
fn what_one_does_the_other_sees() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    let sessions = [&one, &other];
    // Its maker owns it until then.
    create(&other, "first").expect("made");
    unlink(&one, "first").expect("unlinked");
    let mut model: BTreeMap<String, bool> = BTreeMap::new();
    let mut random = Random::new(5);
    for turn in 0..3_000 {
        let session = sessions[turn % 2];
        let name = format!("n{}", random.below(60));
        let found = model.get(&name).copied();
        let expected = match (random.below(5), found) {
            (4, _) => {
                let to = format!("n{}", random.below(60));
                renamed(session, &mut model, &name, &to);
                Ok(())
            }
            (0, None) => create(session, &name).map(|()| _ = model.insert(name, false)),
            (0, Some(_)) => refused(create(session, &name), Errno::EXIST),
            (1, None) => make(session, &name).map(|()| _ = model.insert(name, true)),
            (1, Some(_)) => refused(make(session, &name), Errno::EXIST),
            (2, None) => refused(unlink(session, &name), Errno::NOENT),
            (2, Some(true)) => refused(unlink(session, &name), Errno::ISDIR),
            (2, Some(false)) => unlink(session, &name).map(|()| _ = model.remove(&name)),
            (_, None) => refused(remove(session, &name), Errno::NOENT),
            (_, Some(false)) => refused(remove(session, &name), Errno::NOTDIR),
            (_, Some(true)) => remove(session, &name).map(|()| _ = model.remove(&name)),
        };
        expected.unwrap_or_else(|failure| panic!("turn {turn}: {failure:?}"));
        let names: Vec<String> = model.keys().cloned().collect();
        let reader = sessions[random.below(2) as usize];
        assert_eq!(reader.names(PATH).expect("names"), names, "turn {turn}");
        let status = reader.stat(At::Root, PATH.as_bytes(), 0).expect("there");
        let directories = model.values().filter(|&&is_directory| is_directory).count();
        assert_eq!(status.links as usize, 2 + directories, "turn {turn}");
        assert!(!owns(&one) && !owns(&other), "turn {turn}");
    }
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// What is made is of its maker, with the mode that he asked for, and is written and read as any other.
#[test]
fn what_is_made_is_as_anywhere() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    for (number, session) in [&one, &other, &one].into_iter().enumerate() {
        let name = format!("file-{number}");
        let flags = libc::O_CREAT | libc::O_WRONLY;
        // Who makes it may write it, whatever its mode says.
        let handle = session.open(At::Root, path(&name).as_bytes(), flags, 0o400);
        let handle = handle.expect("made");
        assert_eq!(session.write(handle, b"contents", None), Ok(8));
        session.close(handle);
        for reader in [&one, &other] {
            assert_eq!(reader.get(&path(&name)).expect("read"), b"contents");
            let told = reader.stat(At::Root, path(&name).as_bytes(), 0);
            let told = told.expect("there");
            assert_eq!(told.mode, libc::S_IFREG | 0o400);
            assert_eq!(told.links, 1);
            assert_eq!(
                (told.uid, told.gid),
                (
                    rustix::process::getuid().as_raw(),
                    rustix::process::getgid().as_raw()
                )
            );
        }
    }
    // Groups are handed down as anywhere.
    one.change_mode(At::Root, PATH.as_bytes(), 0o2777, 0)
        .expect("chmod");
    make(&other, "below").expect("made");
    let below = one
        .stat(At::Root, path("below").as_bytes(), 0)
        .expect("there");
    assert_eq!(below.mode, libc::S_IFDIR | 0o2750);
    one.make_node(At::Root, path("pipe").as_bytes(), libc::S_IFIFO | 0o600, 0)
        .expect("a pipe");
    let pipe = other
        .stat(At::Root, path("pipe").as_bytes(), 0)
        .expect("there");
    assert_eq!(pipe.mode, libc::S_IFIFO | 0o600);
    // What is in them changes as anywhere.
    other.put(&path("below/deep"), b"deep").expect("put");
    assert_eq!(one.get(&path("below/deep")).expect("read"), b"deep");
    assert_eq!(errno(remove(&one, "below")), Errno::NOTEMPTY);
    other
        .unlink(At::Root, path("below/deep").as_bytes(), 0)
        .expect("unlinked");
    remove(&one, "below").expect("empty by now");
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// What is open stays, though its name is taken away by another session.
#[test]
fn what_is_open_outlives_its_name() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    one.put(&path("kept"), b"kept").expect("put");
    let handle = one
        .open_at_root(&path("kept"), libc::O_RDWR)
        .expect("opened");
    unlink(&other, "kept").expect("unlinked");
    assert_eq!(errno(one.get(&path("kept"))), Errno::NOENT);
    let mut read = [0; 5];
    assert_eq!(one.read(handle, &mut read, Some(0)), Ok(4));
    assert_eq!(one.write(handle, b"more", Some(4)), Ok(4));
    assert_eq!(one.read(handle, &mut read, Some(3)), Ok(5));
    assert_eq!(&read, b"tmore");
    one.close(handle);
    // With another name, it stays for good.
    one.put(&path("first"), b"two names").expect("put");
    one.link(At::Root, path("first").as_bytes(), At::Root, b"/second", 0)
        .expect("linked");
    unlink(&other, "first").expect("unlinked");
    assert_eq!(other.get("/second").expect("read"), b"two names");
    assert_eq!(one.stat(At::Root, b"/second", 0).expect("there").links, 1);
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

fn link(session: &FileSystem, from: &str, to: &str) -> Result<(), Failure> {
    let (from, to) = (path(from), path(to));
    session.link(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0)
}

/// Another name goes by message, of what its session owns, of what another does, and of what nobody has made known yet.
#[test]
fn other_names_are_given_by_message() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    // Its maker owns it until then.
    create(&other, "first").expect("made");
    for round in 0..20 {
        let session = [&one, &other][round % 2];
        let outside = format!("/outside-{round}");
        session.put(&outside, b"outside").expect("put");
        let (from, to) = (format!("/outside-{round}"), path(&format!("in-{round}")));
        let writer = [&one, &other][round / 2 % 2];
        writer.put(&outside, b"changed").expect("put");
        let linked = session.link(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0);
        linked.expect("linked");
        assert!(!owns(&one) && !owns(&other), "round {round}");
        link(session, &format!("in-{round}"), &format!("again-{round}")).expect("linked");
        for reader in [&one, &other] {
            for name in [&from, &to] {
                assert_eq!(reader.get(name).expect("read"), b"changed");
                let told = reader.stat(At::Root, name.as_bytes(), 0).expect("there");
                assert_eq!(told.links, 3, "{name}");
            }
        }
        unlink(&other, &format!("in-{round}")).expect("unlinked");
        one.unlink(At::Root, from.as_bytes(), 0).expect("unlinked");
        let again = path(&format!("again-{round}"));
        assert_eq!(other.get(&again).expect("read"), b"changed");
        assert_eq!(
            one.stat(At::Root, again.as_bytes(), 0)
                .expect("there")
                .links,
            1
        );
    }
    make(&one, "directory").expect("made");
    for (from, to, expected) in [
        ("first", "again-3", Errno::EXIST),
        ("first", "directory", Errno::EXIST),
        ("directory", "again-3", Errno::EXIST),
        ("directory", "new", Errno::PERM),
        ("nothing", "new", Errno::NOENT),
    ] {
        assert_eq!(errno(link(&other, from, to)), expected, "{from} to {to}");
    }
    // What has lost all its names gets none, also where its session alone knows that, or that there has been any.
    for (number, folds) in (0..).zip([false, true, false, true]) {
        let outside = format!("/outside-{number}");
        let flags = libc::O_CREAT | libc::O_RDWR;
        let handle = one.open_at_root(&outside, flags).expect("opened");
        if folds {
            one.fold(false).expect("folded");
        }
        let remover = [&one, &other][number / 2];
        let unlinked = remover.unlink(At::Root, outside.as_bytes(), 0);
        unlinked.expect("unlinked");
        let by_descriptor = one.link(
            At::Directory(handle),
            b"",
            At::Root,
            path("new").as_bytes(),
            libc::AT_EMPTY_PATH,
        );
        assert_eq!(errno(by_descriptor), Errno::NOENT, "{number}");
        one.close(handle);
    }
    assert!(!owns(&one) && !owns(&other));
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// What comes from a directory that is not mediated is moved by who owns both; afterwards it is nobody's.
#[test]
fn what_no_message_does_is_done_by_its_owner() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    for round in 0..50 {
        let (from, to) = (format!("from-{round}"), format!("to-{round}"));
        create(&one, &from).expect("made");
        let outside = format!("/outside-{round}");
        other.put(&outside, b"").expect("made");
        let to_path = path(&to);
        let moved = other.rename(
            At::Root,
            outside.as_bytes(),
            At::Root,
            to_path.as_bytes(),
            0,
        );
        moved.expect("moved");
        assert!(owns(&other));
        // What its owner has made, too.
        create(&other, "own").expect("made");
        assert!(owns(&other));
        unlink(&one, &to).expect("unlinked");
        assert!(!owns(&one) && !owns(&other));
        assert_eq!(one.names(PATH).expect("names"), [&*from, "own"]);
        unlink(&one, &from).expect("unlinked");
        unlink(&other, "own").expect("unlinked");
    }
    set(&one, Mediation::Off);
    create(&other, "own").expect("made");
    assert!(owns(&other));
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// Threads of two sessions make the same names and take them away: each is made by one, and taken away by one.
#[test]
fn each_name_is_made_once() {
    const NAMES: usize = 300;
    let pool = pool();
    let sessions = [pool.session(), pool.session()];
    plant(&sessions[0]);
    let barrier = &Barrier::new(4);
    let counts: Vec<(usize, usize)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let session = &sessions[thread % 2];
                scope.spawn(move || {
                    barrier.wait();
                    let done = |call: &dyn Fn(&str) -> Result<(), Failure>, or: Errno| {
                        let each = (0..NAMES).filter(|number| match call(&format!("n{number}")) {
                            Ok(()) => true,
                            Err(Failure::Errno(errno)) if errno == or => false,
                            other => panic!("{other:?}"),
                        });
                        each.count()
                    };
                    let made = done(&|name| create(session, name), Errno::EXIST);
                    barrier.wait();
                    let removed = done(&|name| unlink(session, name), Errno::NOENT);
                    (made, removed)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect()
    });
    assert_eq!(counts.iter().map(|(made, _)| made).sum::<usize>(), NAMES);
    assert_eq!(
        counts.iter().map(|(_, removed)| removed).sum::<usize>(),
        NAMES
    );
    assert_eq!(sessions[0].names(PATH).expect("names"), [""; 0]);
    drop(sessions);
    assert_eq!(pool.violations(), "");
}

/// A controller that ends between having changed a name and saying so: the next one says so, and changes nothing.
#[test]
fn what_was_done_is_told_by_the_next_controller() {
    /// What another session sets after what is told of.
    const LATER: u32 = 0o750;
    /// Where what is made is to be listed as open, and the mark that the place is reserved by.
    const OPEN: (u32, u32) = (77, 7);
    let mut pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    create(&other, "first").expect("made");
    let at = one.stat(At::Root, PATH.as_bytes(), 0).expect("there").inode as u32;
    let generation = one.session().header(at).expect("there").generation();
    let owner = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let make = |name: &str| Request::MakeName {
        directory: at,
        generation,
        name: name.into(),
        kind: arck_core_state::FileKind::File as u8,
        mode: 0o640,
        uid: owner.0,
        gid: owner.1,
        size: 0,
        open: OPEN.0,
        mark: OPEN.1,
    };
    let remove = |name: &str| Request::RemoveName {
        directory: at,
        generation,
        name: name.into(),
        is_directory: false,
    };
    type Step<'n> = (
        Request,
        fn(&FileSystem) -> Result<(), Failure>,
        fn(&FileSystem),
        &'n [&'n str],
    );
    let first = one.stat(At::Root, path("first").as_bytes(), 0);
    let linked = first.expect("there").inode as u32;
    let inode_generation = one.session().header(linked).expect("there").generation();
    let link = Request::LinkName {
        directory: at,
        generation,
        name: b"linked".to_vec(),
        inode: linked,
        inode_generation,
    };
    let set = Request::SetAttributes {
        inode: at,
        generation,
        which: which::MODE,
        mode: 0o700,
        accessed: 0,
        modified: 0,
    };
    let steps: [Step<'_>; 5] = [
        (
            link,
            |one| self::link(one, "first", "linked"),
            |_| {},
            &["first", "linked"],
        ),
        (
            set,
            |one| one.change_mode(At::Root, PATH.as_bytes(), 0o700, 0),
            |other| {
                let set = other.change_mode(At::Root, PATH.as_bytes(), LATER, 0);
                set.expect("chmod");
            },
            &["first", "linked"],
        ),
        (
            make("n"),
            |one| create(one, "n"),
            |_| {},
            &["first", "linked", "n"],
        ),
        (
            remove("first"),
            |one| unlink(one, "first"),
            |_| {},
            &["linked", "n"],
        ),
        (remove("n"), |one| unlink(one, "n"), |_| {}, &["linked"]),
    ];
    for (request, call, meanwhile, names) in steps {
        call(&one).expect("done");
        meanwhile(&other);
        let control = one.session().control();
        let place = &control.open[OPEN.0 as usize];
        control.header.opens.fetch_max(OPEN.0 + 1, Ordering::SeqCst);
        place.store(open_reserved(OPEN.1), Ordering::SeqCst);
        let told = answered_by_the_next(&mut pool, &one, &request);
        let told = match told {
            Ok(Response::Bytes(told)) => Named::decode(&told).expect("a name"),
            Ok(Response::Done) if matches!(request, Request::SetAttributes { .. }) => {
                Named::default()
            }
            told => panic!("{told:?}"),
        };
        let made = matches!(request, Request::MakeName { .. });
        let expected = match made {
            true => {
                other
                    .stat(At::Root, path("n").as_bytes(), 0)
                    .expect("there")
                    .inode
            }
            false => 0,
        };
        assert_eq!(u64::from(told.inode), expected);
        // As it was to be opened, it is open: the controller that ended may not have come to that.
        let listed = match made {
            true => open_entry(told.inode, told.generation),
            false => open_reserved(OPEN.1),
        };
        assert_eq!(place.swap(0, Ordering::SeqCst), listed);
        assert_eq!(one.names(PATH).expect("names"), names);
        if let Request::SetAttributes { .. } = request {
            // Not set back.
            let now = one.stat(At::Root, PATH.as_bytes(), 0).expect("there");
            assert_eq!(now.mode & 0o7777, LATER);
        }
    }
}

/// What takes a turn at a directory, a name each, is found; who is alone there is left alone.
#[test]
fn who_takes_turns_is_found() {
    let pool = pool();
    let (one, other) = (pool.session(), pool.session());
    plant(&one);
    set(&one, Mediation::Auto);
    let sessions = [&one, &other];
    // A machine that pauses for longer than a lease at each turn takes longer to find it, and may leave it again.
    let is_found = |turn: usize| {
        create(sessions[turn % 2], &format!("n{turn}")).expect("made");
        mediation(&one) == Mediation::Found
    };
    let turns = (0..1000).find(|&turn| is_found(turn));
    println!("found in turn {turns:?}");
    assert!(turns.is_some(), "it was never found");
    let nobodys = (0..1000).find(|turn| {
        create(sessions[turn % 2], &format!("m{turn}")).expect("made");
        // Whoever had it when it was found gives it up.
        !owns(&one) && !owns(&other)
    });
    assert!(nobodys.is_some(), "it never went by message");
    let mut alone = 0;
    while mediation(&one) == Mediation::Found {
        create(&one, &format!("a{alone}")).expect("made");
        alone += 1;
        assert!(alone < 1000, "it was never left");
    }
    create(&one, "own").expect("made");
    assert!(owns(&one));
    // As its owner says, and not by itself.
    set(&one, Mediation::Off);
    for turn in 0..20 {
        create(sessions[turn % 2], &format!("o{turn}")).expect("made");
    }
    assert_eq!(mediation(&one), Mediation::Off);
    drop((one, other));
    assert_eq!(pool.violations(), "");
}

/// What a session has written, and nobody has folded, gives its room to the other at once when its name goes by message: taken
/// away, and taken by another file.
#[test]
fn room_of_what_goes_by_message_is_anybodys_at_once() {
    const BIG: usize = 38 << 20;
    let pool = TestPool::new(64 << 20);
    let sessions = [pool.session(), pool.session()];
    plant(&sessions[0]);
    // Its maker owns it until then.
    create(&sessions[1], "first").expect("made");
    let big = vec![7; BIG];
    for turn in 0..12 {
        let session = &sessions[turn % 2];
        let put = session.put(&path("big"), &big);
        put.unwrap_or_else(|failure| panic!("turn {turn}: {failure:?}"));
        if turn % 3 == 0 {
            create(session, "small").expect("made");
            let (from, to) = (path("small"), path("big"));
            let moved = session.rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0);
            moved.expect("renamed");
        }
        unlink(session, "big").expect("unlinked");
        assert!(!owns(session), "turn {turn}");
    }
    drop(sessions);
    assert_eq!(pool.violations(), "");
}
