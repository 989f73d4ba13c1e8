//! Writable shared maps of one file by several sessions, which do not trust each other: one memory.

use arck_controller::Options;
use arck_core_state::Mediation;
use arck_testkit::mapped::{BOTH, Mapped, READ, map};
use arck_testkit::{Random, Shorthand, TestPool, connect_as};
use arckfs::{At, Errno, FileSystem, Handle};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const POOL: u64 = 64 << 20;
/// A pool that several users may be served on: where there is one, nobody else may write a file, whatever its mode says.
fn pool() -> TestPool {
    let options = Options {
        shared: true,
        ..Options::default()
    };
    TestPool::with_options(POOL, options)
}

fn make(session: &FileSystem, name: &str, content: &[u8]) {
    session.put(name, content).unwrap();
    let made = session.change_mode(At::Root, name.as_bytes(), 0o666, 0);
    made.unwrap();
}

fn open(session: &FileSystem) -> Handle {
    session.open_at_root("f", libc::O_RDWR).unwrap()
}

/// No call is made between a store and who sees it.
#[test]
fn what_one_stores_the_other_sees() {
    let pool = pool();
    let (one, two) = (pool.session(), connect_as(&pool.path(), b"another"));
    make(&one, "f", &[b'a'; 4 * PAGE]);
    let handles = [open(&one), open(&two)];
    let maps = [
        map(&one, handles[0], 4 * PAGE, BOTH).unwrap(),
        map(&two, handles[1], 4 * PAGE, BOTH).unwrap(),
    ];
    for at in [0, PAGE - 1, 3 * PAGE + 7] {
        maps[0].put(at, b'1');
        assert_eq!(maps[1].byte(at), b'1');
        maps[1].put(at, b'2');
        assert_eq!(maps[0].byte(at), b'2');
    }
    // Who has no map reads it, and writes it; long writes, too.
    assert_eq!(one.get("f").unwrap()[3 * PAGE + 7], b'2');
    let third = pool.session();
    let theirs = open(&third);
    assert_eq!(third.write(theirs, b"third", Some(100)), Ok(5));
    let long = vec![b'l'; 2 * PAGE];
    assert_eq!(
        two.write(handles[1], &long, Some(PAGE as u64 / 2)),
        Ok(2 * PAGE)
    );
    for map in &maps {
        assert_eq!([map.byte(100), map.byte(104), map.byte(105)], *b"tda");
        assert_eq!(
            [
                map.byte(PAGE / 2 - 1),
                map.byte(PAGE / 2),
                map.byte(2 * PAGE)
            ],
            *b"all"
        );
    }
    // Locks and counts in it are one.
    std::thread::scope(|scope| {
        for map in &maps {
            scope.spawn(|| {
                for _ in 0..100_000 {
                    map.word(PAGE).fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let count = u32::from_le_bytes(*b"llll").wrapping_add(200_000);
    assert_eq!(maps[0].word(PAGE).load(Ordering::Relaxed), count);
    drop(maps);
    assert_eq!(two.write(handles[1], b"after", Some(0)), Ok(5));
    assert_eq!(&one.get("f").unwrap()[..5], b"after");
    assert_eq!(pool.violations(), "");
}

/// A map that is not to be written, by a descriptor that could: LMDB relies on seeing what others write by calls.
#[test]
fn who_may_write_sees_at_once_what_others_write() {
    let pool = pool();
    let (one, two) = (pool.session(), pool.session());
    make(&one, "f", &[b'a'; 2 * PAGE]);
    let handles = [open(&one), open(&two)];
    let looking = map(&one, handles[0], 8 * PAGE, READ).unwrap();
    for turn in 0..100u8 {
        assert_eq!(
            two.write(handles[1], &[turn; 10], Some(PAGE as u64 - 5)),
            Ok(10)
        );
        assert_eq!([looking.byte(PAGE - 5), looking.byte(PAGE + 4)], [turn; 2]);
    }
    // It becomes writable.
    looking.protect(8 * PAGE, BOTH);
    looking.put(9, b'!');
    assert_eq!(two.get("f").unwrap()[9], b'!');
    // What has come to be behind the end is there at the next call.
    assert_eq!(two.write(handles[1], b"more", Some(2 * PAGE as u64)), Ok(4));
    assert_eq!(one.write(handles[0], b"x", Some(0)), Ok(1));
    assert_eq!([looking.byte(2 * PAGE), looking.byte(2 * PAGE + 3)], *b"me");
    looking.put(2 * PAGE, b'M');
    assert_eq!(&two.get("f").unwrap()[2 * PAGE..], b"More");
    drop(looking);
    assert_eq!(pool.violations(), "");
}

/// What lies behind an end, and was stored there through a map, is not what the file has when it grows.
#[test]
fn its_length_changes() {
    let pool = pool();
    let (one, two) = (pool.session(), pool.session());
    make(&one, "f", &[b'a'; 2 * PAGE]);
    let handles = [open(&one), open(&two)];
    let maps = [
        map(&one, handles[0], 4 * PAGE, BOTH).unwrap(),
        map(&two, handles[1], 4 * PAGE, BOTH).unwrap(),
    ];
    assert_eq!(two.truncate_handle(handles[1], PAGE as u64 / 2), Ok(()));
    assert_eq!(one.stat_handle(handles[0]).unwrap().size, PAGE as u64 / 2);
    assert!(maps[0].get(PAGE - 1).is_some() && maps[0].get(PAGE).is_none());
    maps[0].put(PAGE / 2 + 1, b'!');
    maps[1].put(PAGE - 1, b'!');
    assert_eq!(one.truncate_handle(handles[0], 3 * PAGE as u64 + 1), Ok(()));
    let now = two.get("f").unwrap();
    assert_eq!(now.len(), 3 * PAGE + 1);
    assert!(now[..PAGE / 2].iter().all(|&byte| byte == b'a'));
    assert!(now[PAGE / 2..].iter().all(|&byte| byte == 0), "garbage");
    maps[1].put(3 * PAGE, b'z');
    assert_eq!(one.get("f").unwrap()[3 * PAGE], b'z');
    // A gap is zero, whatever was stored there, and space can be asked for.
    maps[0].put(3 * PAGE + 9, b'!');
    assert_eq!(
        one.write(handles[0], b"w", Some(3 * PAGE as u64 + 100)),
        Ok(1)
    );
    assert_eq!(
        two.get("f").unwrap()[3 * PAGE..][..101]
            .iter()
            .filter(|&&b| b != 0)
            .count(),
        2
    );
    assert_eq!(two.allocate(handles[1], 0, 0, 9 * PAGE as u64), Ok(()));
    assert_eq!(one.stat_handle(handles[0]).unwrap().size, 9 * PAGE as u64);
    drop(maps);
    assert_eq!(pool.violations(), "");
}

/// What makes somebody the file's owner waits until nobody has a map, and is done then.
#[test]
fn who_wants_to_own_it_waits_for_its_maps() {
    let pool = pool();
    let (one, two) = (pool.session(), pool.session());
    make(&one, "f", &[b'a'; 700 * PAGE]);
    one.set_mediation(At::Root, b"f", Mediation::Off).unwrap();
    let (handle, theirs) = (open(&one), open(&two));
    let mapped = map(&two, theirs, 700 * PAGE, BOTH).unwrap();
    mapped.put(699 * PAGE, b'm');
    let change = |session: &FileSystem| session.change_mode(At::Root, b"f", 0o600, 0);
    let busy = Err(arckfs::Failure::Errno(Errno::TXTBSY));
    assert_eq!(change(&one), busy);
    // Who has it mapped alone is not kept from it by himself.
    assert_eq!(two.change_mode(At::Root, b"f", 0o662, 0), Ok(()));
    assert_eq!(two.link(At::Root, b"f", At::Root, b"g", 0), Ok(()));
    assert_eq!(two.unlink(At::Root, b"g", 0), Ok(()));
    mapped.put(650 * PAGE, b'n');
    assert_eq!(
        two.write(theirs, b"by message", Some(650 * PAGE as u64 + 1)),
        Ok(10)
    );
    assert_eq!(mapped.byte(650 * PAGE + 1), b'b');
    let mine = map(&one, handle, 700 * PAGE, BOTH).unwrap();
    assert_eq!([mine.byte(650 * PAGE), mine.byte(650 * PAGE + 1)], *b"nb");
    assert_eq!(two.change_mode(At::Root, b"f", 0o666, 0), busy);
    drop(mine);
    // A hole is zeroes.
    let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    assert_eq!(
        two.allocate(theirs, punch, 650 * PAGE as u64, 2 * PAGE as u64),
        Ok(())
    );
    assert_eq!(
        [
            mapped.byte(650 * PAGE),
            mapped.byte(650 * PAGE + 1),
            mapped.byte(652 * PAGE)
        ],
        *b"\0\0a"
    );
    drop(mapped);
    assert_eq!(change(&one), Ok(()));
    assert_eq!(
        one.mediation(At::Root, b"f"),
        Ok(Mediation::Off),
        "it is kept"
    );
    assert_eq!(one.write(handle, b"own", Some(0)), Ok(3));
    let now = two.get("f").unwrap();
    assert_eq!([now[0], now[3], now[699 * PAGE]], *b"oam");
    assert_eq!(one.change_mode(At::Root, b"f", 0o666, 0), Ok(()));
    // And again, of what was left where it is.
    let again = map(&one, handle, 700 * PAGE, BOTH).unwrap();
    let other = map(&two, theirs, 700 * PAGE, BOTH).unwrap();
    again.put(350 * PAGE, b'!');
    assert_eq!(
        [
            other.byte(0),
            other.byte(350 * PAGE),
            other.byte(699 * PAGE)
        ],
        *b"o!m"
    );
    drop((again, other));
    one.unlink(At::Root, b"f", 0).unwrap();
    assert_eq!(pool.violations(), "");
}

/// The controller ends, and one comes that knows of the maps what the sessions tell it.
#[test]
fn a_controller_that_ends_takes_nothing_with_it() {
    let mut pool = pool();
    {
        let (one, two) = (pool.session(), pool.session());
        make(&one, "f", &[b'a'; 8 * PAGE]);
        let handles = [open(&one), open(&two)];
        let maps = [
            map(&one, handles[0], 8 * PAGE, BOTH).unwrap(),
            map(&two, handles[1], 8 * PAGE, BOTH).unwrap(),
        ];
        maps[0].put(PAGE, b'1');
        pool.kill();
        maps[1].put(PAGE + 1, b'2');
        pool.serve();
        assert_eq!(one.write(handles[0], b"w", Some(PAGE as u64 + 2)), Ok(1));
        for map in &maps {
            assert_eq!(
                [map.byte(PAGE), map.byte(PAGE + 1), map.byte(PAGE + 2)],
                *b"12w"
            );
        }
        maps[1].put(7 * PAGE, b'7');
        assert_eq!(maps[0].byte(7 * PAGE), b'7');
        drop(maps);
    }
    let after = pool.session();
    let now = after.get("f").unwrap();
    assert_eq!(
        [now[PAGE], now[PAGE + 1], now[PAGE + 2], now[7 * PAGE]],
        *b"12w7"
    );
    assert_eq!(pool.violations(), "");
}

/// Segments that have nothing else in them are not the end of a pool: where there are few, a map is a session's own, as it was.
#[test]
fn many_files_do_not_take_the_pool() {
    let pool = pool();
    let session = pool.session();
    let mut maps = Vec::new();
    for number in 0..300 {
        let name = format!("file{number}");
        make(&session, &name, &[b'a'; 10]);
        let handle = session.open_at_root(&name, libc::O_RDWR).unwrap();
        let mapped = map(&session, handle, PAGE, BOTH).unwrap();
        mapped.put(3, b'm');
        maps.push((name, mapped));
    }
    session
        .put("large", &vec![b'l'; 8 << 20])
        .expect("there is room");
    for (name, mapped) in maps {
        assert_eq!(session.get(&name).unwrap(), *b"aaamaaaaaa", "{name}");
        drop(mapped);
    }
    assert_eq!(pool.violations(), "");
}

/// Whatever is done by whom, all see what one file would show.
#[test]
fn two_sessions_and_a_model() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        println!("seed {seed}");
        let pool = pool();
        let sessions = [pool.session(), pool.session()];
        let mut model = vec![b'm'; 5 * PAGE + 77];
        make(&sessions[0], "f", &model);
        let handles = [open(&sessions[0]), open(&sessions[1])];
        const LENGTH: usize = 40 * PAGE;
        let mut maps: [Option<Mapped<'_>>; 2] = [None, None];
        let until = Instant::now() + Duration::from_secs(20);
        for step in 0..3000 {
            if Instant::now() > until {
                break;
            }
            let who = random.below(2) as usize;
            let (session, handle) = (&sessions[who], handles[who]);
            match random.below(12) {
                0 => {
                    maps[who] = None;
                }
                1 | 2 => {
                    if maps[who].is_none() {
                        maps[who] = Some(map(session, handle, LENGTH, BOTH).unwrap());
                    }
                }
                3..=5 => {
                    // Of what is there since its session's last call.
                    let size = session.stat_handle(handle).unwrap().size as usize;
                    assert_eq!(size, model.len(), "step {step}");
                    if let Some(map) = &maps[who]
                        && size != 0
                    {
                        let at = random.below(size as u64) as usize;
                        if at < LENGTH {
                            assert_eq!(map.byte(at), model[at], "step {step}, at {at}");
                            let byte = random.below(256) as u8;
                            map.put(at, byte);
                            model[at] = byte;
                        }
                    }
                }
                6 | 7 => {
                    let at = random.below(LENGTH as u64) as usize;
                    let bytes =
                        vec![random.below(256) as u8; 1 + random.below(3 * PAGE as u64) as usize];
                    assert_eq!(
                        session.write(handle, &bytes, Some(at as u64)),
                        Ok(bytes.len())
                    );
                    if model.len() < at + bytes.len() {
                        model.resize(at + bytes.len(), 0);
                    }
                    model[at..at + bytes.len()].copy_from_slice(&bytes);
                }
                8 => {
                    let size = random.below(LENGTH as u64) as usize;
                    assert_eq!(session.truncate_handle(handle, size as u64), Ok(()));
                    model.resize(size, 0);
                }
                _ => {
                    let at = random.below(model.len() as u64 + 1) as usize;
                    let mut bytes = vec![0; 1 + random.below(2 * PAGE as u64) as usize];
                    let read = session.read(handle, &mut bytes, Some(at as u64)).unwrap();
                    assert_eq!(read, bytes.len().min(model.len() - at), "step {step}");
                    assert!(
                        bytes[..read] == model[at..at + read],
                        "step {step}, at {at}"
                    );
                }
            }
        }
        drop(maps);
        for session in &sessions {
            assert!(session.get("f").unwrap() == model);
        }
        assert_eq!(pool.violations(), "");
    }
}
