//! How sequences of operations are drawn: few names, so that operations meet, and a little of what
//! is odd (long names, `..`, slashes at the end, wrong flags).
//!
//! # Invariant
//! What is drawn depends on the seed alone.

use super::operation::{ACTORS, Base, Operation, Place, SLOTS, Step, Subject, TimeChoice};
use crate::Random;

/// Draws `length` steps. `crashes`: among them restarts and kills.
pub fn sequence(seed: u64, length: usize, crashes: bool) -> Vec<Step> {
    let mut draw = Draw {
        random: Random::new(seed),
    };
    // A few directories to begin with.
    let mut steps: Vec<Step> = ["a", "b", "a/a", "b/a"]
        .iter()
        .map(|path| Step {
            actor: 0,
            operation: Operation::MakeDirectory {
                place: Place {
                    base: Base::Root,
                    path: path.as_bytes().to_vec(),
                },
                mode: 0o755,
            },
        })
        .collect();
    let mut actor = 0;
    while steps.len() < length {
        if draw.random.percent(30) {
            actor = draw.random.below(ACTORS as u64) as usize;
        }
        let operation = draw.operation(crashes);
        steps.push(Step { actor, operation });
    }
    steps
}

struct Draw {
    random: Random,
}

const DIRECTORIES: [&str; 3] = ["a", "b", "c"];
const FILES: [&str; 5] = ["d", "e", "f", "a file", "\u{e9}t\u{e9}"];
const LINKS: [&str; 3] = ["l", "m", "n"];
const ATTRIBUTES: [&str; 4] = ["user.a", "user.b", "user.c", "user.d.e"];

impl Draw {
    /// A path whose last name is likely one of `likely`.
    fn path(&mut self, likely: &[&str]) -> Vec<u8> {
        let mut path = Vec::new();
        let depth = *self.random.pick(&[0, 0, 0, 0, 1, 1, 1, 1, 2, 2]);
        for _ in 0..depth {
            let through = if self.random.percent(8) {
                *self.random.pick(&LINKS)
            } else if self.random.percent(3) {
                *self.random.pick(&FILES)
            } else {
                *self.random.pick(&DIRECTORIES)
            };
            path.extend_from_slice(through.as_bytes());
            path.push(b'/');
            if self.random.percent(1) {
                path.extend_from_slice(self.random.pick(&["/", "./", "../", "..//"]).as_bytes());
            }
        }
        let class = match self.random.below(100) {
            0..82 => likely,
            82..88 => &DIRECTORIES[..],
            88..94 => &FILES[..],
            _ => &LINKS[..],
        };
        path.extend_from_slice(self.random.pick(class).as_bytes());
        match self.random.below(200) {
            0..3 => path.push(b'/'),
            3 => path.extend_from_slice(b"/."),
            4 => path.extend_from_slice(b"/.."),
            5 => path.extend_from_slice(&[b'x'; 250]),
            6 => path.extend_from_slice(&[b'x'; 256]),
            7 => path = b".".to_vec(),
            8 => path.extend_from_slice(b"//"),
            9 => path = b"./".repeat(2050),
            10 => path.extend_from_slice(b"/./"),
            _ => {}
        }
        path
    }

    fn place(&mut self, likely: &[&str]) -> Place {
        let path = self.path(likely);
        if self.random.percent(10) {
            let empty = self.random.percent(5);
            return Place {
                base: Base::Slot(self.slot()),
                path: if empty { Vec::new() } else { path },
            };
        }
        Place {
            base: Base::Root,
            path,
        }
    }

    fn any(&mut self) -> Place {
        let likely = *self
            .random
            .pick(&[&DIRECTORIES[..], &FILES, &FILES, &LINKS]);
        self.place(likely)
    }

    fn slot(&mut self) -> usize {
        self.random.below(SLOTS as u64) as usize
    }

    fn length(&mut self) -> usize {
        match self.random.below(10) {
            0 => 0,
            1..5 => self.random.below(200) as usize,
            5..7 => 4096,
            7 | 8 => self.random.below(9000) as usize,
            _ => self.random.below(40_000) as usize,
        }
    }

    fn offset(&mut self) -> u64 {
        let page = self.random.below(8) * 4096;
        match self.random.below(24) {
            0..6 => self.random.below(300),
            6..12 => page,
            12..16 => page + self.random.below(4096),
            16..19 => (page + 4096).saturating_sub(self.random.below(20)),
            19 | 20 => 2 * 1024 * 1024 - 4096 + self.random.below(9000),
            21 => self.random.below(6 << 20),
            22 => (1 << 30) + self.random.below(10_000),
            _ => self.random.below(40_000),
        }
    }

    fn subject(&mut self) -> Subject {
        if self.random.percent(40) {
            return Subject::Slot(self.slot());
        }
        let flags = *self.random.pick(&[0, 0, libc::AT_SYMLINK_NOFOLLOW]);
        Subject::Place(self.any(), flags)
    }

    /// The name of an attribute, most often one that can be.
    fn attribute(&mut self) -> Vec<u8> {
        match self.random.below(40) {
            0 => b"user.".to_vec(),
            1 => b"user".to_vec(),
            2 => b"system.x".to_vec(),
            3 => [&b"user."[..], &[b'n'; 250]].concat(),
            4 => [&b"user."[..], &[b'n'; 251]].concat(),
            5 => Vec::new(),
            _ => self.random.pick(&ATTRIBUTES).as_bytes().to_vec(),
        }
    }

    fn time(&mut self) -> TimeChoice {
        match self.random.below(10) {
            0 => None,
            1 | 2 => Some(None),
            _ => Some(Some((
                self.random.below(1_400_000_000) as i64,
                self.random.below(1_000_000_000) as u32,
            ))),
        }
    }

    fn open_flags(&mut self) -> i32 {
        let mut flags = *self.random.pick(&[
            libc::O_RDONLY,
            libc::O_WRONLY,
            libc::O_RDWR,
            libc::O_RDWR,
            libc::O_RDWR,
        ]);
        for (flag, percent) in [
            (libc::O_CREAT, 60),
            (libc::O_TRUNC, 15),
            (libc::O_APPEND, 15),
            (libc::O_DIRECTORY, 6),
            (libc::O_NOFOLLOW, 6),
            (libc::O_PATH, 4),
            (libc::O_CLOEXEC, 10),
            (libc::O_NONBLOCK, 2),
            (libc::O_NOATIME, 2),
            (libc::O_SYNC, 2),
        ] {
            if self.random.percent(percent) {
                flags |= flag;
            }
        }
        // Without O_CREAT, what O_EXCL does is undefined.
        if flags & libc::O_CREAT != 0 && self.random.percent(15) {
            flags |= libc::O_EXCL;
        }
        flags
    }

    fn mode(&mut self) -> u32 {
        *self
            .random
            .pick(&[0o644, 0o600, 0o755, 0o444, 0o4755, 0o2755, 0o1777, 0])
    }

    fn operation(&mut self, crashes: bool) -> Operation {
        let slot = self.slot();
        match self.random.below(1060) {
            0..130 => {
                let place = self.place(&FILES);
                Operation::Open {
                    slot,
                    place,
                    flags: self.open_flags(),
                    mode: self.mode(),
                }
            }
            130..150 => Operation::Open {
                slot,
                place: self.place(&DIRECTORIES),
                flags: *self.random.pick(&[
                    libc::O_DIRECTORY,
                    libc::O_DIRECTORY | libc::O_PATH,
                    libc::O_RDONLY,
                ]),
                mode: 0,
            },
            150..180 => Operation::Close { slot },
            180..190 => Operation::Duplicate {
                from: slot,
                to: self.slot(),
            },
            190..260 => Operation::Read {
                slot,
                length: self.length(),
                position: self.random.percent(50).then(|| self.offset()),
            },
            260..370 => Operation::Write {
                slot,
                length: self.length(),
                position: self.random.percent(50).then(|| self.offset()),
                seed: self.random.next_word(),
            },
            370..400 => {
                let whence = *self.random.pick(&[
                    libc::SEEK_SET,
                    libc::SEEK_SET,
                    libc::SEEK_CUR,
                    libc::SEEK_END,
                    libc::SEEK_DATA,
                    libc::SEEK_HOLE,
                    9,
                ]);
                let mut offset = self.offset() as i64;
                if self.random.percent(20) {
                    offset = -offset;
                }
                Operation::Seek {
                    slot,
                    offset,
                    whence,
                }
            }
            400..430 => Operation::TruncateHandle {
                slot,
                size: self.offset(),
            },
            430..450 => Operation::Truncate {
                place: self.place(&FILES),
                size: self.offset(),
            },
            450..455 => Operation::Allocate {
                slot,
                offset: self.random.below(30_000),
                length: self.length() as u64,
            },
            455..490 => Operation::StatHandle { slot },
            490..540 => Operation::Stat {
                place: self.any(),
                flags: *self.random.pick(&[
                    0,
                    libc::AT_SYMLINK_NOFOLLOW,
                    libc::AT_SYMLINK_NOFOLLOW,
                    libc::AT_EMPTY_PATH,
                ]),
            },
            540..555 => Operation::Access {
                place: self.any(),
                mode: self.random.below(8) as u32,
            },
            555..575 => Operation::ChangeMode {
                place: self.any(),
                mode: self.mode(),
            },
            575..580 => Operation::ChangeModeHandle {
                slot,
                mode: self.mode(),
            },
            580..590 => Operation::ChangeOwner {
                place: self.any(),
                uid: *self.random.pick(&[0, 0, 1000, u32::MAX]),
                gid: *self.random.pick(&[0, 0, 1000, u32::MAX]),
                flags: *self.random.pick(&[0, libc::AT_SYMLINK_NOFOLLOW]),
            },
            590..615 => Operation::SetTimes {
                place: self.any(),
                accessed: self.time(),
                modified: self.time(),
                flags: *self.random.pick(&[0, libc::AT_SYMLINK_NOFOLLOW]),
            },
            615..625 => Operation::SetTimesHandle {
                slot,
                accessed: self.time(),
                modified: self.time(),
            },
            625..675 => Operation::MakeDirectory {
                place: self.place(&DIRECTORIES),
                mode: *self.random.pick(&[0o755, 0o700, 0o1777, 0o2775]),
            },
            675..680 => Operation::MakeNode {
                place: self.place(&FILES),
                mode: libc::S_IFREG | 0o640,
            },
            680..720 => {
                let likely = *self.random.pick(&[&FILES[..], &FILES, &LINKS]);
                Operation::Unlink {
                    place: self.place(likely),
                }
            }
            720..745 => Operation::RemoveDirectory {
                place: self.place(&DIRECTORIES),
            },
            745..815 => {
                let likely = *self
                    .random
                    .pick(&[&DIRECTORIES[..], &FILES, &FILES, &LINKS]);
                Operation::Rename {
                    from: self.place(likely),
                    to: self.place(likely),
                    flags: *self.random.pick(&[0, 0, 0, 0, 0, 0, 1, 2, 3, 8]),
                }
            }
            815..845 => Operation::Link {
                from: self.place(&FILES),
                to: self.place(&FILES),
                flags: *self.random.pick(&[0, 0, libc::AT_SYMLINK_FOLLOW]),
            },
            845..875 => {
                let target = match self.random.below(40) {
                    0 => vec![b't'; 4095],
                    1 => vec![b't'; 4096],
                    2 => Vec::new(),
                    3 => b".".to_vec(),
                    _ => self.any().path,
                };
                Operation::Symlink {
                    target,
                    place: self.place(&LINKS),
                }
            }
            875..890 => Operation::ReadLink {
                place: self.place(&LINKS),
                length: *self.random.pick(&[1, 5, 4096, 5000]),
            },
            890..920 => Operation::List {
                place: self.place(&DIRECTORIES),
                buffer: *self.random.pick(&[300, 1000, 32768]),
            },
            920..930 => Operation::ListHandle {
                slot,
                buffer: *self.random.pick(&[300, 1000, 32768]),
            },
            930..935 => Operation::Flags { slot },
            935..940 => Operation::SetFlags {
                slot,
                flags: *self.random.pick(&[0, libc::O_APPEND, libc::O_NONBLOCK]),
            },
            940..950 => Operation::PathOf { slot },
            950..955 => Operation::Sync { slot },
            955..970 => Operation::Content {
                place: self.place(&FILES),
            },
            970..990 => Operation::Fold {
                release: self.random.percent(50),
            },
            990..994 => Operation::Compare,
            994 if crashes => Operation::Restart,
            995 if crashes => Operation::Kill,
            1000..1025 => Operation::SetExtended {
                subject: self.subject(),
                name: self.attribute(),
                // All of them together fit in a page.
                length: match self.random.below(20) {
                    0 => 65_537,
                    1..4 => 0,
                    _ => self.random.below(500) as usize,
                },
                flags: *self.random.pick(&[0, 0, 0, 0, 1, 1, 2, 2, 3, 4]),
                seed: self.random.next_word(),
            },
            1025..1040 => Operation::GetExtended {
                subject: self.subject(),
                name: self.attribute(),
                buffer: *self.random.pick(&[0, 10, 500, 500, 70_000]),
            },
            1040..1048 => Operation::ListExtended {
                subject: self.subject(),
                buffer: *self.random.pick(&[0, 10, 1000]),
            },
            1048..1060 => Operation::RemoveExtended {
                subject: self.subject(),
                name: self.attribute(),
            },
            _ => Operation::Fold { release: false },
        }
    }
}
