//! The workloads that are this program itself, under `arck run`: a log with checksums, and a storm
//! of names. Each line on standard output says what is about to be done, or was done.
//!
//! # Invariant
//! * A line that says that something was done is written after the call has returned; any error of
//!   a call ends the program with a status that is not 0.

use crate::tree::Tree;
use crate::{Random, hand};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

pub fn main(arguments: &[String]) {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["log", name, least] => log(name, least.parse().expect("a number")),
        ["read-log", name, least] => {
            let least = least.parse().expect("a number");
            println!("records {}", read_log(name, least).0);
        }
        ["storm", name, seed] => storm(name, seed.parse().expect("a seed")),
        ["list", name] => list(name),
        ["hand", name, seed, steps, ref others @ ..] => {
            let number = |text: &str| text.parse().expect("a number");
            hand::hand(name, number(seed), number(steps), others);
        }
        ["scan", name] => print!("{}", Tree::scan(name).text()),
        ["visitor"] => hand::visitor(false),
        ["changer"] => hand::visitor(true),
        _ => panic!("{words:?}"),
    }
}

fn path(name: &str) -> PathBuf {
    PathBuf::from("/arck").join(name)
}

/// One write, so that a line is whole or not there.
fn say(line: &str) {
    let written = std::io::stdout().write_all(format!("{line}\n").as_bytes());
    if written.is_err() {
        std::process::exit(0);
    }
    std::io::stdout().flush().expect("flush");
}

fn checksum(bytes: &[u8]) -> u32 {
    let step = |sum: u32, &byte: &u8| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

/// A record: number, length, contents, checksum.
fn record(number: u64) -> Vec<u8> {
    let length = ((number * 2_654_435_761) >> 8) % 6000;
    let mut record = Vec::new();
    record.extend(number.to_le_bytes());
    record.extend(length.to_le_bytes());
    record.extend((0..length).map(|at| (at ^ number) as u8));
    record.extend(checksum(&record).to_le_bytes());
    record
}

/// Records in one file; then the next one is begun, and an old one removed.
const RECORDS: u64 = 2048;
/// Files that are kept: who reads is not that slow.
const KEPT: u64 = 4;
/// Pause after a record, so that the log does not go on faster than it can be read.
const PAUSE: Duration = Duration::from_micros(100);

fn file_of(name: &str, number: u64) -> PathBuf {
    path(&format!("{name}.{}", number / RECORDS))
}

/// Whole records at the start of the file that begins with a record, and their bytes; `None`: there
/// is no such file.
fn read_file(name: &str, first: u64) -> Option<(u64, u64)> {
    let mut bytes = Vec::new();
    match File::open(file_of(name, first)) {
        Ok(mut file) => file.read_to_end(&mut bytes).map(drop).expect("read"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => panic!("{name}: {error}"),
    }
    let (mut count, mut at) = (0, 0);
    loop {
        let next = record(first + count);
        if bytes.get(at..at + next.len()) != Some(&next[..]) {
            break;
        }
        at += next.len();
        count += 1;
    }
    // At most one record is not whole: the one that was being written.
    let rest = bytes.len() - at;
    let most = record(first + count).len();
    assert!(rest <= most, "{name}: {rest} bytes behind {count} records");
    Some((count, at as u64))
}

/// Records of a log, of which at least `least` are there; bytes of the last file.
fn read_log(name: &str, least: u64) -> (u64, u64) {
    let mut first = least / RECORDS * RECORDS;
    // A log that goes on may be some files further by now.
    let mut ahead = (0..KEPT * 4).map(|file| first + file * RECORDS);
    let last = ahead.rfind(|&number| file_of(name, number).exists());
    first = last.unwrap_or(first);
    if let Some(before) = first.checked_sub(RECORDS) {
        let whole = read_file(name, before).is_none_or(|(count, _)| count == RECORDS);
        assert!(whole, "{name}: records are missing before {first}");
    }
    let (count, end) = read_file(name, first).unwrap_or((0, 0));
    (first + count, end)
}

fn log(name: &str, least: u64) {
    let (mut number, end) = read_log(name, least);
    let open = |number| {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        options.open(file_of(name, number)).expect("open")
    };
    let mut file = open(number);
    file.set_len(if number % RECORDS == 0 { 0 } else { end })
        .expect("truncate");
    say(&format!("done {number}"));
    loop {
        let next = record(number);
        let written = file.write(&next).expect("append");
        assert_eq!(written, next.len());
        number += 1;
        say(&format!("done {number}"));
        std::thread::sleep(PAUSE);
        if number % RECORDS == 0 {
            file = open(number);
            if let Some(old) = number.checked_sub(KEPT * RECORDS) {
                // It is gone already if this is done again.
                let removed = std::fs::remove_file(file_of(name, old));
                let is_gone = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
                assert!(
                    removed.as_ref().err().is_none_or(is_gone),
                    "{name}: {removed:?}"
                );
            }
        }
    }
}

/// What a file of the storm holds: which write of which file.
pub fn contents(write: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&write.to_le_bytes());
    bytes[8..].copy_from_slice(&(!write).to_le_bytes());
    bytes
}

fn storm(name: &str, seed: u64) {
    let top = path(name);
    std::fs::create_dir_all(top.join("x")).expect("mkdir");
    std::fs::create_dir_all(top.join("y")).expect("mkdir");
    let mut random = Random::new(seed);
    let mut write = seed << 32;
    let file = |random: &mut Random| {
        let directory = ["x", "y"][random.below(2) as usize];
        format!("{directory}/{}", random.below(30))
    };
    say("ready");
    loop {
        let (one, two) = (file(&mut random), file(&mut random));
        let (from, to) = (top.join(&one), top.join(&two));
        let is_there = from.exists();
        write += 1;
        let (line, done) = match random.below(6) {
            _ if !is_there => {
                say(&format!("begin create {one}"));
                let made = OpenOptions::new().write(true).create_new(true).open(&from);
                (format!("done create {one}"), made.map(drop))
            }
            0 => {
                say(&format!("begin unlink {one}"));
                (format!("done unlink {one}"), std::fs::remove_file(&from))
            }
            1 | 2 => {
                say(&format!("begin rename {one} {two}"));
                (
                    format!("done rename {one} {two}"),
                    std::fs::rename(&from, &to),
                )
            }
            _ => {
                say(&format!("begin write {one} {write}"));
                let file = OpenOptions::new().write(true).open(&from);
                let written = file.and_then(|file| file.write_all_at(&contents(write), 0));
                (format!("done write {one} {write}"), written)
            }
        };
        done.unwrap_or_else(|error| panic!("{name}: {line}: {error}"));
        say(&line);
    }
}

/// Prints what is in the storm's directories: name, and contents as two words.
fn list(name: &str) {
    for directory in ["x", "y"] {
        let Ok(entries) = std::fs::read_dir(path(name).join(directory)) else {
            continue;
        };
        for entry in entries {
            let entry = entry.expect("an entry");
            let bytes = match std::fs::read(entry.path()) {
                Ok(bytes) => bytes,
                // The storm goes on.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => panic!("{name}: {:?}: {error}", entry.path()),
            };
            let words = match bytes.len() {
                0 => "empty".to_owned(),
                16 => {
                    let words = bytes
                        .chunks(8)
                        .map(|w| u64::from_le_bytes(w.try_into().unwrap()));
                    let words: Vec<String> = words.map(|word| word.to_string()).collect();
                    words.join(" ")
                }
                length => format!("length {length}"),
            };
            println!(
                "file {directory}/{} {words}",
                entry.file_name().to_string_lossy()
            );
        }
    }
    println!("end");
}
