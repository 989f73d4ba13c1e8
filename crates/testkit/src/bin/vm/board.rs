//! The board: memory that the host and the virtual machine share, in which a worker says what it
//! is about to do and what has returned.
//!
//! # Invariants
//! * The board is no part of the persistent memory: it is a file of the host, which every machine
//!   maps as a device's memory, and survives the cut. A store to it needs no interrupt, no console
//!   and no time, so what it says when the machine is killed is what the worker had done.
//! * A worker stores `begun` before a step and `done` after it has returned, in program order, which
//!   is the order in which x86-64 shows stores. So at any instant `done <= begun <= done + 1`.
//! * Each word has one writer: the host those of the head while no machine runs, a worker its own.

use arck_pm::{MapOptions, Mapping};
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// Bytes of the board: the size of the device's memory, a power of two.
pub const SIZE: usize = 1 << 20;
/// Rounds and workers for which there is room.
pub const ROUNDS_MAX: u64 = 1000;
pub const WORKERS_MAX: u64 = 8;

const SEED: usize = 0;
const ROUND: usize = 8;
const FINAL: usize = 16;
const SLOTS: usize = 4096;
const SLOT_SIZE: usize = 32;

/// The board, mapped.
pub struct Board(Mapping);

impl Board {
    /// Makes a new one, of zeroes.
    pub fn create(path: &Path) -> Result<Board, String> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(path)
            .and_then(|file| file.set_len(SIZE as u64).map(|()| file));
        Board::map(&file.map_err(|error| format!("{}: {error}", path.display()))?)
    }

    /// Finds it in the virtual machine: the memory of the one device of its kind.
    pub fn find() -> Result<Board, String> {
        let devices = std::fs::read_dir("/sys/bus/pci/devices").map_err(|e| e.to_string())?;
        let is = |device: &Path, name: &str, value: &str| {
            std::fs::read_to_string(device.join(name)).is_ok_and(|text| text.trim() == value)
        };
        let device: PathBuf = devices
            .flatten()
            .map(|entry| entry.path())
            .find(|device| is(device, "vendor", "0x1af4") && is(device, "device", "0x1110"))
            .ok_or("the machine has no device with the board")?;
        let resource = device.join("resource2");
        let file = OpenOptions::new().read(true).write(true).open(&resource);
        Board::map(&file.map_err(|error| format!("{}: {error}", resource.display()))?)
    }

    fn map(file: &File) -> Result<Board, String> {
        Mapping::new(file, 0, SIZE, MapOptions::READ_WRITE)
            .map(Board)
            .map_err(|error| format!("cannot map the board: {error}"))
    }

    fn load(&self, offset: usize) -> u64 {
        let word = self.0.bytes().load_u64(offset, Ordering::SeqCst);
        word.expect("an offset within the board")
    }

    fn store(&self, offset: usize, value: u64) {
        let stored = self.0.bytes().store_u64(offset, value, Ordering::SeqCst);
        stored.expect("an offset within the board");
    }

    /// What all random choices of the run follow from.
    pub fn seed(&self) -> u64 {
        self.load(SEED)
    }
    pub fn set_seed(&self, seed: u64) {
        self.store(SEED, seed);
    }

    /// Number of this boot, from 0.
    pub fn round(&self) -> u64 {
        self.load(ROUND)
    }
    pub fn set_round(&self, round: u64) {
        self.store(ROUND, round);
    }

    /// Whether this boot checks and shuts down, and does no work.
    pub fn is_final(&self) -> bool {
        self.load(FINAL) != 0
    }
    pub fn set_final(&self) {
        self.store(FINAL, 1);
    }

    /// What a worker did in a round.
    pub fn slot(&self, round: u64, worker: u64) -> Slot<'_> {
        assert!(round < ROUNDS_MAX && worker < WORKERS_MAX);
        let index = usize::try_from(round * WORKERS_MAX + worker).expect("a small number");
        Slot {
            board: self,
            offset: SLOTS + index * SLOT_SIZE,
        }
    }
}

/// One worker's words of one round. Steps are numbered from 1.
pub struct Slot<'a> {
    board: &'a Board,
    offset: usize,
}

impl Slot<'_> {
    /// The last step that was begun; 0 before the first.
    pub fn begun(&self) -> u64 {
        self.board.load(self.offset)
    }
    pub fn begin(&self, step: u64) {
        self.board.store(self.offset, step);
    }

    /// The last step that has returned.
    pub fn done(&self) -> u64 {
        self.board.load(self.offset + 8)
    }
    pub fn finish(&self, step: u64) {
        self.board.store(self.offset + 8, step);
    }

    /// What was found after the cut, if somebody has looked: from then on it may not change.
    pub fn found(&self) -> Option<u64> {
        Some(self.board.load(self.offset + 16)).filter(|&digest| digest != 0)
    }
    pub fn set_found(&self, digest: u64) {
        self.board.store(self.offset + 16, digest.max(1));
    }
}
