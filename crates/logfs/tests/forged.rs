//! Who may write a log's directory and means harm, by other means: names, sizes and kinds of files that no log has, before a log is
//! opened and beneath one that is open.
//!
//! # Invariants
//! * Every call returns soon, with bytes or an error that has a number; none panics, none waits for ever.
//! * What is read from below the forged place is what was appended. What lies behind it such a writer may make whatever he likes.

use arck_logfs::{Error, Follower, Log, Options};
use arck_testkit::{Shorthand, TestPool};
use arckfs::{At, FileSystem};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Bytes of a section, of a record, and how many records there are: two in each section, and one in the last.
const SECTION: u64 = 100;
const RECORD: usize = 60;
const RECORDS: u8 = 11;
/// Longer than any call takes, but for one that does not end.
const BOUND: Duration = Duration::from_secs(10);

fn options(pool: &TestPool, make: bool) -> Options {
    Options {
        make,
        section: SECTION,
        ..Options::new(pool.path())
    }
}

fn name(position: u64) -> String {
    format!("log/{position:020}")
}

/// Runs what must return; a panic is a failure, and so is what does not come back.
fn returns<T: Send + 'static>(what: String, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let done = catch_unwind(AssertUnwindSafe(work));
        // Who asked may have given up.
        let _ = tell.send(done.map_err(|_| "panicked"));
    });
    match told.recv_timeout(BOUND) {
        Ok(Ok(done)) => done,
        Ok(Err(panicked)) => panic!("{what} {panicked}"),
        Err(_) => panic!("{what} does not return"),
    }
}

struct Forgery {
    what: &'static str,
    forge: fn(&FileSystem),
    /// Below this all is as it was.
    intact: u64,
    /// What is said when the log is opened afterwards, and when it is, to be made if there is none.
    opened: [Option<Errno>; 2],
    /// Whether what is appended afterwards is where it is told: not where a section that is appended to has another name by then, or two
    /// who append have other limits in mind.
    has_places: bool,
}

impl Forgery {
    const fn without_places(self) -> Forgery {
        Forgery {
            has_places: false,
            ..self
        }
    }
}

fn unlink(files: &FileSystem, path: &str) {
    files.unlink(At::Root, path.as_bytes(), 0).expect("to go");
}

fn instead(files: &FileSystem, path: &str, make: fn(&FileSystem, &[u8])) {
    unlink(files, path);
    make(files, path.as_bytes());
}

fn link(files: &FileSystem, path: &[u8]) {
    files
        .symlink(b"/etc/passwd", At::Root, path)
        .expect("a link");
}

fn directory(files: &FileSystem, path: &[u8]) {
    files
        .make_directory(At::Root, path, 0o755)
        .expect("a directory");
}

fn pipe(files: &FileSystem, path: &[u8]) {
    let mode = libc::S_IFIFO | 0o666;
    files.make_node(At::Root, path, mode, 0).expect("a pipe");
}

fn socket(files: &FileSystem, path: &[u8]) {
    let mode = libc::S_IFSOCK | 0o666;
    files.make_node(At::Root, path, mode, 0).expect("a socket");
}

fn cut(files: &FileSystem, position: u64, size: u64) {
    files
        .truncate(At::Root, name(position).as_bytes(), size)
        .expect("another size");
}

fn rename(files: &FileSystem, from: &str, to: &str) {
    files
        .rename(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0)
        .expect("another name");
}

const LAST: u64 = 600;
const END: u64 = 660;

const fn case(
    what: &'static str,
    intact: u64,
    opened: [Option<Errno>; 2],
    forge: fn(&FileSystem),
) -> Forgery {
    Forgery {
        what,
        forge,
        intact,
        opened,
        has_places: true,
    }
}

const SOUND: [Option<Errno>; 2] = [None; 2];
const SPOILT: [Option<Errno>; 2] = [Some(Errno::BADMSG); 2];
/// Who would not make it takes it for none.
const GONE: [Option<Errno>; 2] = [Some(Errno::NOENT), Some(Errno::BADMSG)];

const FORGERIES: &[Forgery] = &[
    case("names that are no section's", END, SOUND, |files| {
        for name in [
            "x",
            "0000000000000000000x",
            "+0000000000000000660",
            "000000000000000000660",
            "99999999999999999999",
            "-0000000000000000001",
        ] {
            files
                .put(&format!("log/{name}"), b"forged")
                .expect("a file");
        }
    }),
    case("a section at the largest number", END, SOUND, |files| {
        files.put(&name(u64::MAX), b"forged").expect("a file");
    }),
    case(
        "a section that ends behind the largest number",
        END,
        SOUND,
        |files| {
            files.put(&name(u64::MAX - 3), &[7; 200]).expect("a file");
        },
    ),
    case("a section at the largest position", END, SOUND, |files| {
        files
            .put(&name(i64::MAX as u64), b"forged")
            .expect("a file");
    }),
    case("a section far behind the end", END, SOUND, |files| {
        files.put(&name(1 << 40), b"forged").expect("a file");
    }),
    case("a section in the middle of another", 60, SOUND, |files| {
        files.put(&name(60), &[7; 10]).expect("a file");
    }),
    case("an empty section in the middle", 60, SOUND, |files| {
        files.put(&name(60), b"").expect("a file");
    }),
    case("a section of many bytes", LAST, SOUND, |files| {
        cut(files, LAST, 1 << 42);
    }),
    case(
        "a section in the middle of many bytes",
        240,
        SOUND,
        |files| {
            cut(files, 120, 1 << 42);
        },
    ),
    case("a section cut to nothing", 120, SOUND, |files| {
        cut(files, 120, 0)
    }),
    case("a section cut short", 170, SOUND, |files| {
        cut(files, 120, 50)
    }),
    case("the last section cut to nothing", LAST, SOUND, |files| {
        cut(files, LAST, 0);
    }),
    case("a hole in a section", 120, SOUND, |files| {
        cut(files, 120, 0);
        cut(files, 120, 120);
    }),
    case("other bytes", 120, SOUND, |files| {
        files.put(&name(120), &[0xff; 120]).expect("a file");
    }),
    case("the first section gone", 0, SOUND, |files| {
        unlink(files, &name(0))
    }),
    case("a section in the middle gone", 120, SOUND, |files| {
        unlink(files, &name(120));
    }),
    case("the last section gone", LAST, SOUND, |files| {
        unlink(files, &name(LAST));
    }),
    case("all sections gone", 0, SOUND, |files| {
        (0..=LAST / 120).for_each(|at| unlink(files, &name(at * 120)));
    }),
    case("the last section has another name", LAST, SOUND, |files| {
        rename(files, &name(LAST), &name(LAST + 1));
    })
    .without_places(),
    case("the last section is the first, too", 0, SOUND, |files| {
        rename(files, &name(LAST), &name(0));
    })
    .without_places(),
    case("two sections change places", 120, SOUND, |files| {
        rename(files, &name(120), "log/aside");
        rename(files, &name(240), &name(120));
        rename(files, "log/aside", &name(240));
    }),
    case("one file as two sections", 480, SOUND, |files| {
        unlink(files, &name(480));
        let (from, to) = (name(0), name(480));
        files
            .link(At::Root, from.as_bytes(), At::Root, to.as_bytes(), 0)
            .expect("a link");
    }),
    case("a link in place of a section", 120, SOUND, |files| {
        instead(files, &name(120), link);
    }),
    case("a directory in place of a section", 120, SOUND, |files| {
        instead(files, &name(120), directory);
    }),
    case("a pipe in place of a section", 120, SOUND, |files| {
        instead(files, &name(120), pipe);
    }),
    case(
        "a socket in place of the last section",
        LAST,
        SOUND,
        |files| {
            instead(files, &name(LAST), socket);
        },
    ),
    case(
        "a directory in place of the first section",
        0,
        SOUND,
        |files| {
            instead(files, &name(0), directory);
        },
    ),
    case(
        "a directory where the next section is to be",
        END,
        SOUND,
        |files| {
            directory(files, name(720).as_bytes());
        },
    ),
    case(
        "a link where the next section is to be",
        END,
        SOUND,
        |files| {
            link(files, name(720).as_bytes());
        },
    ),
    case("no limit", END, GONE, |files| {
        unlink(files, "log/.limit");
    }),
    case("a limit that is a directory", END, SPOILT, |files| {
        instead(files, "log/.limit", directory);
    }),
    case("a limit that is a link", END, SPOILT, |files| {
        instead(files, "log/.limit", link);
    }),
    case("a limit that is a pipe", END, SPOILT, |files| {
        instead(files, "log/.limit", pipe);
    }),
    case("a limit of no bytes", END, SPOILT, |files| {
        files.put("log/.limit", b"").expect("a file");
    }),
    case("a limit of nothing", END, SPOILT, |files| {
        files.put("log/.limit", b"0").expect("a file");
    }),
    case("a limit beyond all", END, SPOILT, |files| {
        files
            .put("log/.limit", b"99999999999999999999")
            .expect("a file");
    }),
    case("a limit of many bytes", END, SPOILT, |files| {
        files
            .truncate(At::Root, b"log/.limit", 1 << 42)
            .expect("another size");
    }),
    case("the largest limit", END, SOUND, |files| {
        files
            .put("log/.limit", u64::MAX.to_string().as_bytes())
            .expect("a file");
    })
    .without_places(),
    case("the smallest limit", END, SOUND, |files| {
        files.put("log/.limit", b"1").expect("a file");
    })
    .without_places(),
    case(
        "no limit, and no section but a directory",
        0,
        GONE,
        |files| {
            (0..=LAST / 120).for_each(|at| unlink(files, &name(at * 120)));
            unlink(files, "log/.limit");
            directory(files, name(0).as_bytes());
        },
    ),
    case("no limit, and no section but a link", 0, GONE, |files| {
        (0..=LAST / 120).for_each(|at| unlink(files, &name(at * 120)));
        unlink(files, "log/.limit");
        link(files, name(0).as_bytes());
    }),
    case("nobody may read a section", 120, SOUND, |files| {
        files
            .change_mode(At::Root, name(120).as_bytes(), 0, 0)
            .expect("another mode");
    }),
];

/// What calls may say of a log that somebody has spoilt.
fn is_told(error: &Error) -> bool {
    let errno = error.errno();
    [
        Errno::BADMSG,
        Errno::NODATA,
        Errno::NOENT,
        Errno::INVAL,
        Errno::FBIG,
        Errno::ISDIR,
        Errno::ACCESS,
    ]
    .contains(&errno)
        && !error.to_string().is_empty()
}

fn told<T>(of: &str, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(done) => Some(done),
        Err(error) => {
            assert!(is_told(&error), "{of}: {error} ({:?})", error.errno());
            None
        }
    }
}

/// Reads by positions, some at a time; what is read below `intact` is what was appended.
fn read_all(of: &str, log: &Log, intact: u64, expected: &[u8]) {
    for from in [
        0,
        1,
        59,
        119,
        120,
        121,
        300,
        599,
        600,
        659,
        660,
        661,
        1 << 40,
        u64::MAX,
    ] {
        for length in [1, 130, 1000] {
            let mut buffer = vec![0; length];
            let of = format!("{of}: {length} bytes at {from}");
            let Some(read) = told(&of, log.read_at(from, &mut buffer)) else {
                continue;
            };
            assert!(read <= length, "{of}: {read}");
            let below = (intact.saturating_sub(from) as usize).min(read);
            let expected = expected.get(from as usize..).unwrap_or_default();
            assert_eq!(buffer[..below], expected[..below], "{of}");
        }
    }
}

/// Follows from a position to the end or an error, but no further than so much.
fn follow_all(of: &str, log: &Log, from: u64, intact: u64, expected: &[u8]) {
    if let Some(follower) = told(of, log.follow(from)) {
        follow_on(of, follower, intact, expected);
    }
}

fn follow_on(of: &str, mut follower: Follower<'_>, intact: u64, expected: &[u8]) {
    let mut buffer = [0; 77];
    let mut position = follower.position();
    for _ in 0..200 {
        let Some(read) = told(of, follower.next(&mut buffer, Duration::from_millis(2))) else {
            return;
        };
        if read == 0 {
            return;
        }
        let below = (intact.saturating_sub(position) as usize).min(read);
        let expected = expected.get(position as usize..).unwrap_or_default();
        assert_eq!(buffer[..below], expected[..below], "{of}: at {position}");
        position += read as u64;
        assert_eq!(follower.position(), position, "{of}");
    }
}

/// All that is done with a log, by one that was open before and by one that is opened then.
fn use_all(of: &str, log: &Log, forgery: &Forgery, expected: &[u8]) {
    let intact = forgery.intact;
    read_all(of, log, intact, expected);
    for from in [0, 130, 600, 660] {
        follow_all(of, log, from, intact, expected);
    }
    let _ = told(of, log.begin());
    let _ = told(of, log.end());
    for turn in 0..5 {
        let of = format!("{of}: append {turn}");
        let Some(position) = told(&of, log.append(&[0xaa; RECORD])) else {
            continue;
        };
        // Where it says.
        let mut bytes = [0; RECORD];
        if let Some(read) = told(&of, log.read_at(position, &mut bytes))
            && forgery.has_places
        {
            assert_eq!(
                (read, bytes),
                (RECORD, [0xaa; RECORD]),
                "{of} at {position}"
            );
        }
    }
    read_all(of, log, intact, expected);
    let _ = told(of, log.cut(121));
    let _ = told(of, log.begin());
    let _ = told(of, log.append(b"behind a cut"));
}

fn filled(pool: &TestPool) -> (Log, Vec<u8>) {
    let log = Log::open(options(pool, true), "log").expect("a log");
    let mut bytes = Vec::new();
    for count in 0..RECORDS {
        let record = [count + 1; RECORD];
        assert_eq!(log.append(&record).expect("append"), bytes.len() as u64);
        bytes.extend(record);
    }
    assert_eq!(bytes.len() as u64, END);
    (log, bytes)
}

#[test]
fn what_is_forged_is_told_or_is_what_its_writer_may_write() {
    let mut failed = Vec::new();
    for forgery in FORGERIES {
        for folded in [true, false] {
            let of = format!("{}, folded: {folded}", forgery.what);
            println!("{of}");
            let case = AssertUnwindSafe(|| is_told_or_intact(forgery, folded, &of));
            if catch_unwind(case).is_err() {
                failed.push(of);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn is_told_or_intact(forgery: &'static Forgery, folded: bool, of: &str) {
    let pool = TestPool::new(64 << 20);
    let (log, bytes) = filled(&pool);
    // One of these has looked at all of it, the other at nothing.
    let unlooked = Log::open(options(&pool, false), "log").expect("a log");
    read_all(of, &log, END, &bytes);
    let unlooked = Arc::new(unlooked);
    // One is beneath a section's end, one in its middle, and one waits at the log's end.
    let under_way = [0, 300, END].map(|from| {
        let mut follower = unlooked.follow_shared(from).expect("a follower");
        let read = follower.next(&mut [0; 60], Duration::ZERO).expect("next");
        assert_eq!(read, if from == END { 0 } else { 60 });
        follower
    });
    let files = pool.session();
    (forgery.forge)(&files);
    if folded {
        Shorthand::fold(&files, true).expect("a fold");
    }
    let intact = forgery.intact;
    let (path, expected, text) = (options(&pool, false), bytes.clone(), of.to_owned());
    let opened = returns(of.to_owned(), move || match Log::open(path, "log") {
        Ok(log) => {
            read_all(&text, &log, intact, &expected);
            for from in [0, 120, 660] {
                follow_all(&text, &log, from, intact, &expected);
            }
            Ok(())
        }
        Err(error) => Err(error.errno()),
    });
    let path = options(&pool, true);
    let made = returns(of.to_owned(), move || Log::open(path, "log"));
    let (made, error) = match made {
        Ok(made) => (Some(made), None),
        Err(error) => (None, Some(error.errno())),
    };
    assert_eq!([opened.err(), error], forgery.opened, "{of}");
    for follower in under_way {
        let (expected, text) = (bytes.clone(), format!("{of}: under way"));
        returns(text.clone(), move || {
            follow_on(&text, follower, intact, &expected)
        });
    }
    let made = made.map(Arc::new);
    for log in [Some(Arc::new(log)), Some(unlooked), made]
        .into_iter()
        .flatten()
    {
        let (expected, text) = (bytes.clone(), of.to_owned());
        returns(of.to_owned(), move || {
            use_all(&text, &log, forgery, &expected)
        });
    }
}
