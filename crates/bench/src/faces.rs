//! `arck-bench faces`: what a call costs through `libarck.so` beside the same call of the Rust API.
//!
//! # Invariants
//! * Both are measured in one process and one thread, on one pool, each in its own sessions and directories, by the same
//!   turns; rounds of the one and the other alternate, and which is first does too.
//! * The library is loaded as a program's linker would load it, and called by its addresses.

use crate::machine::Machine;
use crate::measure::{self, Random, median};
use crate::outcome::Outcome;
use crate::output::{Output, Report};
use crate::pool::{self, Bench};
use arck_kvfs::{Options, Store, VALUE_MAX};
use arck_logfs::Log;
use arck_pm::PersistOption;
use arckfs::{At, ConnectOptions, FileSystem, Handle};
use clap::Args;
use serde::{Deserialize, Serialize};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};

#[derive(Args)]
#[command(after_help = "Examples:
  arck-bench faces
  arck-bench faces --rounds 51 --persist never")]
pub struct FacesArguments {
    /// Which stores are flushed: auto, always or never
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = pool::parse_persist)]
    persist: PersistOption,

    /// Rounds that count, on each side
    #[arg(long, value_name = "N", default_value_t = 101)]
    rounds: usize,

    /// The library [default: libarck_c.so beside the command that serves the pool]
    #[arg(long, value_name = "PATH")]
    library: Option<PathBuf>,

    #[command(flatten)]
    output: Output,
}

/// One kind of calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    pub call: String,
    /// Nanoseconds a call, medians.
    pub rust: f64,
    pub c: f64,
    /// Median of the ratios of the pairs: above 1, C is slower.
    pub ratio: f64,
}

#[derive(Serialize)]
struct Told {
    machine: Machine,
    persist: String,
    flushing: String,
    controller: String,
    rounds: usize,
    rows: Vec<Row>,
}

const POOL_SIZE: u64 = 1 << 30;
const KEYS: u64 = 1_000;
/// Names, what is called, bytes, and how often in a round.
const KINDS: [(&str, Call, usize, u64); 8] = [
    ("KVFS, get of 100 bytes", Call::Get, 100, 4_000),
    ("KVFS, get of 4 KiB", Call::Get, 4096, 4_000),
    ("KVFS, set of 100 bytes", Call::Set, 100, 1_000),
    ("KVFS, set of 4 KiB", Call::Set, 4096, 1_000),
    ("ArckFS, pread of 100 bytes", Call::Pread, 100, 4_000),
    ("ArckFS, pwrite of 4 KiB", Call::Pwrite, 4096, 4_000),
    ("ArckFS, open and close", Call::Open, 0, 4_000),
    ("log, append of 100 bytes", Call::Append, 100, 2_000),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Get,
    Set,
    Pread,
    Pwrite,
    Open,
    Append,
}

/// The calls, through one face. Errors name the call.
trait Face {
    fn get(&self, key: &CStr, value: &mut [u8; VALUE_MAX]) -> Outcome<usize>;
    fn set(&self, key: &CStr, value: &[u8]) -> Outcome<()>;
    fn pread(&self, value: &mut [u8], position: u64) -> Outcome<usize>;
    fn pwrite(&self, value: &[u8], position: u64) -> Outcome<usize>;
    fn open(&self, path: &CStr) -> Outcome<()>;
    fn append(&self, record: &[u8]) -> Outcome<()>;
    /// Takes away what was appended, so that the pool does not become full.
    fn cut(&self) -> Outcome<()>;
}

fn said(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

struct Rust {
    store: Store,
    files: FileSystem,
    file: Handle,
    log: Log,
}

impl Rust {
    fn open(pool: &Path) -> Outcome<Rust> {
        let options = Options {
            make: true,
            ..Options::new(pool)
        };
        let log = arck_logfs::Options {
            make: true,
            ..arck_logfs::Options::new(pool)
        };
        let files = FileSystem::connect(&ConnectOptions {
            pool: pool.to_path_buf(),
            mount: crate::pool::MOUNT.into(),
            group: Vec::new(),
            resolver: arckfs::Resolver::default(),
        });
        let files = files.map_err(said)?;
        let made = files.make_directory(At::Root, b"rust", 0o755);
        made.map_err(said)?;
        let flags = libc::O_CREAT | libc::O_RDWR;
        let file = files.open(At::Root, b"rust/file", flags, 0o644);
        Ok(Rust {
            file: file.map_err(said)?,
            files,
            store: Store::open(options, "rust-store").map_err(said)?,
            log: Log::open(log, "rust-log").map_err(said)?,
        })
    }
}

impl Face for Rust {
    #[inline]
    fn get(&self, key: &CStr, value: &mut [u8; VALUE_MAX]) -> Outcome<usize> {
        let got = self.store.get_into(key.to_bytes(), value);
        got.map_err(said)?.ok_or("no such key".to_owned())
    }
    #[inline]
    fn set(&self, key: &CStr, value: &[u8]) -> Outcome<()> {
        self.store.set(key.to_bytes(), value).map_err(said)
    }
    #[inline]
    fn pread(&self, value: &mut [u8], position: u64) -> Outcome<usize> {
        let read = self.files.read(self.file, value, Some(position));
        read.map_err(said)
    }
    #[inline]
    fn pwrite(&self, value: &[u8], position: u64) -> Outcome<usize> {
        let written = self.files.write(self.file, value, Some(position));
        written.map_err(said)
    }
    #[inline]
    fn open(&self, path: &CStr) -> Outcome<()> {
        let opened = self
            .files
            .open(At::Root, path.to_bytes(), libc::O_RDONLY, 0);
        self.files.close(opened.map_err(said)?);
        Ok(())
    }
    #[inline]
    fn append(&self, record: &[u8]) -> Outcome<()> {
        self.log.append(record).map(drop).map_err(said)
    }
    fn cut(&self) -> Outcome<()> {
        let cut = self.log.end().and_then(|end| self.log.cut(end));
        cut.map_err(said)
    }
}

/// As in `arck.h`.
#[repr(C)]
struct Wishes {
    size: usize,
    flags: u32,
    mode: u32,
    wait: i32,
    reserved: u32,
    group: *const c_char,
    fs: *const c_char,
    section: u64,
}

type OpenDirectory = unsafe extern "C" fn(*const c_char, *const c_char, *const Wishes) -> i64;

struct Library {
    connect: unsafe extern "C" fn(*const c_char, *const Wishes) -> i64,
    message: unsafe extern "C" fn() -> *const c_char,
    close: unsafe extern "C" fn(i64) -> c_int,
    mkdirat: unsafe extern "C" fn(i64, *const c_char, libc::mode_t) -> c_int,
    openat: unsafe extern "C" fn(i64, *const c_char, c_int, libc::mode_t) -> i64,
    pread: unsafe extern "C" fn(i64, *mut c_void, usize, i64) -> isize,
    pwrite: unsafe extern "C" fn(i64, *const c_void, usize, i64) -> isize,
    store_open: OpenDirectory,
    store_get: unsafe extern "C" fn(i64, *const c_void, usize, *mut c_void, usize) -> isize,
    store_set: unsafe extern "C" fn(i64, *const c_void, usize, *const c_void, usize) -> c_int,
    log_open: OpenDirectory,
    log_append: unsafe extern "C" fn(i64, *const c_void, usize, *mut u64) -> c_int,
    log_end: unsafe extern "C" fn(i64, *mut u64) -> c_int,
    log_cut: unsafe extern "C" fn(i64, u64) -> c_int,
}

impl Library {
    // Of what type each is the field says.
    #[allow(clippy::missing_transmute_annotations)]
    fn load(path: &Path) -> Outcome<Library> {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(said)?;
        // SAFETY: a name; the library has no constructors of its own.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            let hint = "build it: scripts/cargo build --release -p arck-c";
            return Err(format!("{}: cannot be loaded; {hint}", path.display()));
        }
        macro_rules! find {
            ($($name:ident: $symbol:literal,)*) => {
                Library { $($name: {
                    // SAFETY: a library that is loaded, and a name.
                    let found = unsafe { libc::dlsym(library, $symbol.as_ptr()) };
                    if found.is_null() {
                        return Err(format!("{}: no {:?}", path.display(), $symbol));
                    }
                    // SAFETY: `arck.h` declares it so.
                    unsafe { std::mem::transmute::<*mut c_void, _>(found) }
                },)* }
            };
        }
        Ok(find! {
            connect: c"arck_connect",
            message: c"arck_message",
            close: c"arck_close",
            mkdirat: c"arck_mkdirat",
            openat: c"arck_openat",
            pread: c"arck_pread",
            pwrite: c"arck_pwrite",
            store_open: c"arck_store_open",
            store_get: c"arck_store_get",
            store_set: c"arck_store_set",
            log_open: c"arck_log_open",
            log_append: c"arck_log_append",
            log_end: c"arck_log_end",
            log_cut: c"arck_log_cut",
        })
    }

    #[inline]
    fn checked(&self, value: i64) -> Outcome<i64> {
        match value {
            -1 => Err(self.said()),
            value => Ok(value),
        }
    }

    #[cold]
    fn said(&self) -> String {
        // SAFETY: a text that stays until this is called again.
        unsafe { CStr::from_ptr((self.message)()) }
            .to_string_lossy()
            .into_owned()
    }
}

struct C {
    library: Library,
    pool: i64,
    file: i64,
    store: i64,
    log: i64,
}

impl C {
    fn open(pool: &Path, library: &Path) -> Outcome<C> {
        let library = Library::load(library)?;
        let path = CString::new(pool.as_os_str().as_encoded_bytes()).map_err(said)?;
        let make = Wishes {
            size: size_of::<Wishes>(),
            flags: 1,
            mode: 0,
            wait: 0,
            reserved: 0,
            group: std::ptr::null(),
            fs: std::ptr::null(),
            section: 0,
        };
        // SAFETY: as `arck.h` has them, with texts and options that stay during each call.
        let (pool, file, store, log) = unsafe {
            let pool = library.checked((library.connect)(path.as_ptr(), std::ptr::null()))?;
            library.checked((library.mkdirat)(pool, c"c".as_ptr(), 0o755).into())?;
            let flags = libc::O_CREAT | libc::O_RDWR;
            (
                pool,
                library.checked((library.openat)(pool, c"c/file".as_ptr(), flags, 0o644))?,
                library.checked((library.store_open)(
                    path.as_ptr(),
                    c"c-store".as_ptr(),
                    &raw const make,
                ))?,
                library.checked((library.log_open)(
                    path.as_ptr(),
                    c"c-log".as_ptr(),
                    &raw const make,
                ))?,
            )
        };
        Ok(C {
            library,
            pool,
            file,
            store,
            log,
        })
    }
}

impl Drop for C {
    fn drop(&mut self) {
        for handle in [self.pool, self.store, self.log] {
            // SAFETY: a number.
            unsafe { (self.library.close)(handle) };
        }
    }
}

impl Face for C {
    #[inline]
    fn get(&self, key: &CStr, value: &mut [u8; VALUE_MAX]) -> Outcome<usize> {
        let (key, length) = (key.as_ptr().cast(), key.count_bytes());
        let room = value.as_mut_ptr().cast();
        // SAFETY: bytes of that length, here and below.
        let got = unsafe { (self.library.store_get)(self.store, key, length, room, VALUE_MAX) };
        Ok(self.library.checked(got as i64)? as usize)
    }
    #[inline]
    fn set(&self, key: &CStr, value: &[u8]) -> Outcome<()> {
        let (key, length) = (key.as_ptr().cast(), key.count_bytes());
        let (bytes, size) = (value.as_ptr().cast(), value.len());
        // SAFETY: as above.
        let set = unsafe { (self.library.store_set)(self.store, key, length, bytes, size) };
        self.library.checked(set.into()).map(drop)
    }
    #[inline]
    fn pread(&self, value: &mut [u8], position: u64) -> Outcome<usize> {
        let (room, size) = (value.as_mut_ptr().cast(), value.len());
        // SAFETY: as above.
        let read = unsafe { (self.library.pread)(self.file, room, size, position as i64) };
        Ok(self.library.checked(read as i64)? as usize)
    }
    #[inline]
    fn pwrite(&self, value: &[u8], position: u64) -> Outcome<usize> {
        let (bytes, size) = (value.as_ptr().cast(), value.len());
        // SAFETY: as above.
        let written = unsafe { (self.library.pwrite)(self.file, bytes, size, position as i64) };
        Ok(self.library.checked(written as i64)? as usize)
    }
    #[inline]
    fn open(&self, path: &CStr) -> Outcome<()> {
        // SAFETY: a text, and what was opened.
        let closed = unsafe {
            let opened = (self.library.openat)(self.pool, path.as_ptr(), libc::O_RDONLY, 0);
            (self.library.close)(self.library.checked(opened)?)
        };
        self.library.checked(closed.into()).map(drop)
    }
    #[inline]
    fn append(&self, record: &[u8]) -> Outcome<()> {
        let (bytes, size) = (record.as_ptr().cast(), record.len());
        let mut position = 0;
        // SAFETY: as above, and room for a position.
        let appended =
            unsafe { (self.library.log_append)(self.log, bytes, size, &raw mut position) };
        self.library.checked(appended.into()).map(drop)
    }
    fn cut(&self) -> Outcome<()> {
        let mut end = 0;
        // SAFETY: as above.
        let cut = unsafe {
            let told = (self.library.log_end)(self.log, &raw mut end);
            self.library.checked(told.into())?;
            (self.library.log_cut)(self.log, end)
        };
        self.library.checked(cut.into()).map(drop)
    }
}

pub fn main(arguments: &FacesArguments) -> Outcome<()> {
    let machine = Machine::look();
    let arck = arguments.output.command()?;
    let beside = || Some(arck.as_ref()?.with_file_name("libarck_c.so"));
    let library = arguments.library.clone().or_else(beside);
    let library = library.ok_or("which library? --library says it")?;
    let library = std::path::absolute(library).map_err(|error| error.to_string())?;
    let mut bench = Bench::start(POOL_SIZE, arguments.persist, arck.as_deref())?;
    let library = library.display().to_string();
    let rounds = arguments.rounds.to_string();
    let rows = bench.answer("faces", &["--rounds", &rounds, "--filter", &library])?;
    let told = Told {
        machine,
        persist: arguments.persist.to_string(),
        flushing: pool::policy_name(bench.policy).to_owned(),
        controller: bench.server().to_owned(),
        rounds: arguments.rounds,
        rows,
    };
    bench.stop()?;
    arguments.output.publish(&told)
}

impl Report for Told {
    fn write(&self, text: &mut String) -> std::fmt::Result {
        use std::fmt::Write;
        writeln!(
            text,
            "{}.\nlibarck.so beside the Rust API, by one thread, {KEYS} keys; `--persist {}` ({}); controller: {}. Nanoseconds of processor time a \
             call; medians of {} rounds on each side, alternating in one process; factor = C / Rust, median of the pairs.\n",
            self.machine, self.persist, self.flushing, self.controller, self.rounds
        )?;
        writeln!(text, "| call | Rust | C | factor |")?;
        writeln!(text, "| --- | ---: | ---: | ---: |")?;
        for row in &self.rows {
            let Row {
                call,
                rust,
                c,
                ratio,
            } = row;
            writeln!(text, "| {call} | {rust:.0} | {c:.0} | {ratio:.3} |")?;
        }
        Ok(())
    }
}

/// In the worker.
pub fn measure(pool: &Path, library: &Path, rounds: usize) -> Outcome<Vec<Row>> {
    let rust = Rust::open(pool)?;
    let c = C::open(pool, library)?;
    let sides: [&dyn Face; 2] = [&rust, &c];
    let keys: Vec<CString> = (0..KEYS)
        .map(|key| CString::new(format!("key-{key}")).unwrap_or_default())
        .collect();
    let mut rows = Vec::new();
    for (name, call, bytes, turns) in KINDS {
        let data = vec![7; bytes.max(1)];
        for side in sides {
            for key in &keys {
                side.set(key, &data)?;
            }
            side.pwrite(&vec![1; KEYS as usize * 4096], 0)?;
        }
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..=rounds {
            for turn in 0..2 {
                let side = (round + turn) % 2;
                let picks = Random(round as u64).below(KEYS, turns);
                let paths = [c"rust/file", c"c/file"];
                let time = one_round(sides[side], call, &keys, &picks, &data, paths[side])?;
                // The first is to warm up.
                if round > 0 {
                    times[side].push(time);
                }
            }
        }
        let [rust, c] = &times;
        rows.push(Row {
            call: name.to_owned(),
            rust: median(rust.iter().copied()),
            c: median(c.iter().copied()),
            ratio: median(rust.iter().zip(c).map(|(one, other)| other / one)),
        });
    }
    Ok(rows)
}

/// Nanoseconds a call.
fn one_round(
    face: &dyn Face,
    call: Call,
    keys: &[CString],
    picks: &[u64],
    data: &[u8],
    path: &CStr,
) -> Outcome<f64> {
    let mut value = Box::new([0; VALUE_MAX]);
    let sample = measure::timed(picks.len() as u64, || {
        for &pick in picks {
            let length = match call {
                Call::Get => face.get(&keys[pick as usize], &mut value)?,
                Call::Set => face.set(&keys[pick as usize], data).map(|()| data.len())?,
                Call::Pread => face.pread(&mut value[..data.len()], pick * 4096)?,
                Call::Pwrite => face.pwrite(data, pick * 4096)?,
                Call::Open => face.open(path).map(|()| data.len())?,
                Call::Append => face.append(data).map(|()| data.len())?,
            };
            if length != data.len() {
                return Err(format!("{length} bytes, not {}", data.len()));
            }
        }
        Ok(())
    })?;
    if call == Call::Append {
        face.cut()?;
    }
    Ok(sample.processor)
}
