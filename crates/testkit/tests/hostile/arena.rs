//! Attacks through the arena: what is stored there says what must not be.

use super::attacker::{Attacker, move_request, said};
use super::raw::ROOT;
use super::table::{Attack, case};
use arck_core_state::arena::DELTA_FIRST;
use arck_core_state::branch::UNCHANGED_TIME;
use arck_core_state::geometry::{FILE_SIZE_MAX, PATH_MAX};
use arck_core_state::index::IndexRoot;
use arck_core_state::record::effect;
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE, PagePtr};

/// Puts a page into the attacker's own file, and commits.
fn with_page(a: &mut Attacker, page: PagePtr) -> String {
    let file = a.own("attacker/file");
    a.write(file, 0, page);
    a.commit_of(file)
}

/// A page of one of the victim's files, in a segment of the victim's.
fn victims_page(a: &Attacker) -> PagePtr {
    let victim = a.find("victim");
    loop {
        // It renames them all the time.
        a.recall(&[victim]);
        if let Some(file) = a.verified(victim, b"file-0") {
            a.recall(&[file.inode]);
            let page = a.page_of(file.inode, 0);
            if !page.is_null() {
                return page;
            }
        }
    }
}

/// A record chain of the attacker's directory whose first page is edited.
fn with_chain(
    a: &mut Attacker,
    offset: u64,
    bytes: impl FnOnce(u32, InodeNumber) -> Vec<u8>,
) -> String {
    let directory = a.own("attacker");
    a.creation(directory, |_| {});
    let page = a.branch(directory).tails[0];
    let bytes = bytes(page, a.find("attacker/one"));
    a.scribble(page, offset, &bytes);
    a.commit_of(directory)
}

fn named(a: &mut Attacker, name: &[u8]) -> String {
    // The name is longer-lived than the record that borrows it.
    let name: &'static [u8] = name.to_vec().leak();
    a.forge_creation(|record| record.name = name)
}

pub const ATTACKS: &[Attack] = &[
    // ---- pages
    case(
        "arena",
        "a page of a victim's file as its own",
        "I2 DataPageFree",
        |a| {
            let page = victims_page(a);
            with_page(a, page)
        },
    ),
    case(
        "arena",
        "a free page of another session's segment",
        "I2 DataPageOwned",
        |a| {
            let page = victims_page(a);
            let free = (1..).map(|i| PagePtr(page.0 + i)).find(|p| !a.is_used(*p));
            with_page(a, free.expect("a free page"))
        },
    ),
    case("arena", "a page out of range", "I2 DataPageOwned", |a| {
        with_page(a, PagePtr(1 << 50))
    }),
    case(
        "arena",
        "the last page there can be",
        "I2 DataPageOwned",
        |a| with_page(a, PagePtr(u64::MAX - 1)),
    ),
    case(
        "arena",
        "a page of verified metadata",
        "I2 DataPageFree",
        |a| {
            let inode = a
                .header(ROOT)
                .inode
                .load(std::sync::atomic::Ordering::Acquire);
            with_page(a, PagePtr(inode / PAGE_SIZE))
        },
    ),
    case(
        "arena",
        "a page of another of its own files",
        "I2 DataPageFree",
        |a| {
            let second = a.own("attacker/second");
            let page = a.data_page(1).expect("a page");
            a.write(second, 0, page);
            a.commit(&[second], false);
            with_page(a, page)
        },
    ),
    case(
        "arena",
        "a page twice in one file",
        "I2 DataPageOnce",
        |a| {
            let page = a.data_page(1).expect("a page");
            let file = a.own("attacker/file");
            a.write(file, 5, page);
            with_page(a, page)
        },
    ),
    case(
        "arena",
        "a page in two files folded together",
        "I2 DataPageOnce",
        |a| {
            let page = a.data_page(1).expect("a page");
            let second = a.own("attacker/second");
            a.write(second, 0, page);
            let file = a.own("attacker/file");
            a.add_partner(file, second);
            with_page(a, page)
        },
    ),
    case(
        "arena",
        "a page as contents and as extended attributes",
        "I2 DataPageOnce",
        |a| {
            let page = a.data_page(1).expect("a page");
            let file = a.own("attacker/file");
            a.edit_branch(file, |b| b.attributes = page.0 as u32);
            with_page(a, page)
        },
    ),
    case(
        "arena",
        "a victim's page as extended attributes",
        "I2 DataPageFree",
        |a| {
            let page = victims_page(a);
            let file = a.own("attacker/file");
            a.forge(file, |b| b.attributes = page.0 as u32)
        },
    ),
    // ---- index pages and chains
    case(
        "arena",
        "an index page outside the arena",
        "I1 PageInArena",
        |a| {
            let file = a.own("attacker/file");
            a.forge(file, |b| b.root = IndexRoot::new(1 << 40, 1))
        },
    ),
    case(
        "arena",
        "an index page that leads out of the arena",
        "I1 PageInArena",
        |a| {
            let (file, page) = (a.own("attacker/file"), a.allocate());
            a.scribble(page, 8, &[0xff; 8]);
            a.forge(file, |b| b.root = IndexRoot::new(u64::from(page), 2))
        },
    ),
    case(
        "arena",
        "an index page that leads to itself",
        "I1 PageVisitedOnce",
        |a| {
            let (file, page) = (a.own("attacker/file"), a.allocate());
            a.scribble(page, 0, &u64::from(page).to_le_bytes());
            a.forge(file, |b| b.root = IndexRoot::new(u64::from(page), 3))
        },
    ),
    case(
        "arena",
        "an index that is too high",
        "I1 IndexHeight",
        |a| {
            let file = a.own("attacker/file");
            a.forge(file, |b| b.root = IndexRoot::new(u64::from(DELTA_FIRST), 5))
        },
    ),
    case(
        "arena",
        "a chain of records that loops",
        "I1 PageVisitedOnce",
        |a| with_chain(a, 4, |page, _| page.to_le_bytes().to_vec()),
    ),
    case(
        "arena",
        "a chain that leads into the branch table",
        "I1 PageInArena",
        |a| with_chain(a, 4, |_, _| 2u32.to_le_bytes().to_vec()),
    ),
    case(
        "arena",
        "a chain that leads out of the arena",
        "I1 PageInArena",
        |a| with_chain(a, 4, |_, _| u32::MAX.to_le_bytes().to_vec()),
    ),
    case(
        "arena",
        "a chain into pages that nobody allocated",
        "I1 ArenaReadable",
        |a| with_chain(a, 4, |_, _| (DELTA_FIRST + 200_000).to_le_bytes().to_vec()),
    ),
    case(
        "arena",
        "a page of another directory's records",
        "I1 PageHeader",
        |a| with_chain(a, 0, |_, other| other.to_le_bytes().to_vec()),
    ),
    case(
        "arena",
        "a page of an earlier fold's records",
        "I1 PageHeader",
        |a| with_chain(a, 8, |_, _| 1u64.to_le_bytes().to_vec()),
    ),
    case(
        "arena",
        "one page as two tails",
        "I1 PageVisitedOnce",
        |a| {
            let directory = a.own("attacker");
            a.creation(directory, |_| {});
            a.forge(directory, |b| b.tails[1] = b.tails[0])
        },
    ),
    case(
        "arena",
        "records and an index in one page",
        "I1 PageVisitedOnce",
        |a| {
            let (directory, file) = (a.own("attacker"), a.own("attacker/file"));
            a.creation(directory, |_| {});
            let page = a.branch(directory).tails[0];
            a.forge(file, |b| {
                b.root = IndexRoot::new(u64::from(page), 1);
                b.partners[0] = directory;
            })
        },
    ),
    // ---- names
    case("arena", "an empty name", "I1 Name", |a| named(a, b"")),
    case("arena", "the name .", "I1 Name", |a| named(a, b".")),
    case("arena", "the name ..", "I1 Name", |a| named(a, b"..")),
    case("arena", "a name with a slash", "I1 Name", |a| {
        named(a, b"a/b")
    }),
    case("arena", "an absolute path as a name", "I1 Name", |a| {
        named(a, b"/etc/passwd")
    }),
    case("arena", "a name with a NUL", "I1 Name", |a| {
        named(a, b"a\0b")
    }),
    case(
        "arena",
        "a name that is there already",
        "I1 NameUnique",
        |a| named(a, b"file"),
    ),
    case("arena", "a new name twice", "I1 NameUnique", |a| {
        let directory = a.own("attacker");
        a.creation(directory, |_| {});
        a.creation(directory, |_| {});
        a.commit_of(directory)
    }),
    case(
        "arena",
        "a name longer than its record (too long)",
        "nothing added",
        |a| {
            // A length takes one byte: 255 bytes claimed that reach beyond the page end it.
            let directory = a.own("attacker");
            a.creation(directory, |_| {});
            let page = a.branch(directory).tails[0];
            a.scribble(page, 64 + 13, &[255]);
            let said = a.commit_of(directory);
            let names = a.names(directory);
            assert!(
                said == "accepted" && !names.contains_key(&b"new"[..]),
                "{said}"
            );
            "nothing added".into()
        },
    ),
    case("arena", "a name too long, by message", "EPROTO", |a| {
        let directory = a.own("attacker");
        said(&a.ask_with_long_name(directory))
    }),
    case("arena", "a name with a slash, by message", "EINVAL", |a| {
        let directory = a.own("attacker");
        said(&a.ask(&move_request(directory, b"a/b", directory)))
    }),
    // ---- inode numbers
    case("arena", "inode number 0", "I2 NumberGranted", |a| {
        a.forge_creation(|r| r.inode = 0)
    }),
    case(
        "arena",
        "the greatest inode number",
        "I2 NumberGranted",
        |a| a.forge_creation(|r| r.inode = u32::MAX),
    ),
    case("arena", "a free inode number", "I2 NumberGranted", |a| {
        let free = a.free_number();
        a.forge_creation(|r| r.inode = free)
    }),
    case(
        "arena",
        "an inode number granted to another session",
        "I2 NumberGranted",
        |a| {
            let mut other = Attacker::connect(&a.pool);
            let number = other.number();
            let generation = a.header(number).generation();
            a.forge_creation(|r| (r.inode, r.generation) = (number, generation))
        },
    ),
    case(
        "arena",
        "a victim's inode under a name of its own",
        "I2 Owned",
        |a| {
            let directory = a.own("attacker");
            let theirs = a.find("open/theirs");
            a.record_with(directory, (theirs, FileKind::File), b"stolen", |_| {});
            a.commit_of(directory)
        },
    ),
    case(
        "arena",
        "an earlier life of an inode",
        "I2 Generation",
        |a| a.forge_creation(|r| r.generation += 1),
    ),
    case(
        "arena",
        "one new inode as file and as directory",
        "I3 Kind",
        |a| {
            let directory = a.own("attacker");
            let file = a.creation(directory, |_| {});
            a.record_with(directory, (file, FileKind::Directory), b"too", |_| {});
            a.commit_of(directory)
        },
    ),
    // ---- sizes, times
    case("arena", "a size beyond all sizes", "I1 Size", |a| {
        let file = a.own("attacker/file");
        a.forge(file, |b| b.size = FILE_SIZE_MAX + 1)
    }),
    case(
        "arena",
        "a symbolic link beyond all paths",
        "I1 Size",
        |a| {
            let directory = a.own("attacker");
            let number = a.number();
            a.edit_branch(number, |b| b.parent = directory);
            a.record_with(directory, (number, FileKind::Link), b"l", |_| {});
            a.forge(number, |b| b.size = PATH_MAX as u64 + 1)
        },
    ),
    case("arena", "a limit beyond all files", "I1 Limit", |a| {
        let file = a.own("attacker/file");
        a.forge(file, |b| b.limit = FILE_SIZE_MAX / PAGE_SIZE + 1)
    }),
    case("arena", "a time that is none", "I1 Time", |a| {
        a.forge_creation(|r| r.created = UNCHANGED_TIME)
    }),
    // ---- records
    case("arena", "effects that there are not", "I1 StateBits", |a| {
        a.forge_creation(|r| r.state |= 1 << 31)
    }),
    case(
        "arena",
        "kills what is no record",
        "I1 KillReference",
        |a| {
            a.forge_creation(|r| {
                r.state |= effect::KILL_TARGET;
                r.kills[1].unit = 64;
            })
        },
    ),
    case("arena", "two records of one sequence", "I1 Sequence", |a| {
        let directory = a.own("attacker");
        a.creation(directory, |r| r.sequence = 9);
        a.creation(directory, |r| (r.sequence, r.name) = (9, b"m"));
        a.commit_of(directory)
    }),
];
