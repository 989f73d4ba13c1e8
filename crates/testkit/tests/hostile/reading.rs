//! Attacks on what a user may not read: everything is asked for by number, as who guesses does.

use super::attacker::{Attacker, said};
use super::holding::lock_file;
use super::process::{BOUND, Role, become_user, tell, told};
use super::raw::{Client, ROOT};
use super::table::{Attack, Scene, case};
use super::world::{PUBLIC, SECRET, VICTIM_USER};
use arck_core_state::{FileKind, InodeNumber, PAGE_SIZE};
use arck_pm::{MapOptions, Mapping};
use arck_protocol::Request;
use arck_protocol::socket::{Access, Answer, Call, call};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// New files in a tree that is opened and closed.
const TREE: usize = 1500;

/// All that are alive, and not in the attacker's directory.
fn alive(a: &Attacker) -> Vec<InodeNumber> {
    (1..a.welcome.geometry.inode_count)
        .filter(|&number| a.is_alive(number))
        .collect()
}

/// Everything that the attacker is sent if it asks for every segment.
pub fn all_segments(a: &Attacker) -> Vec<Mapping> {
    segments_of(a)
}

fn segments_of(a: &Client) -> Vec<Mapping> {
    let size = a.welcome.geometry.segment_size as usize;
    let mut maps = Vec::new();
    for segment in 0..a.welcome.geometry.segment_count {
        let segments = vec![segment];
        let (answer, files) = call(&a.socket, &Call::MapSegments { segments }).expect("an answer");
        match answer {
            Answer::Segments(_) => {
                maps.push(Mapping::new(&files[0], 0, size, MapOptions::READ_ONLY).expect("a map"));
            }
            Answer::Error(libc::EACCES, _) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(!maps.is_empty());
    maps
}

/// Whether the secret is to be seen in any of them.
pub fn is_seen(maps: &[Mapping]) -> bool {
    holds(maps, SECRET)
}

/// What is said of that.
fn looked(maps: &[Mapping]) -> String {
    match is_seen(maps) {
        true => "seen".into(),
        false => "nothing seen".into(),
    }
}

fn holds(maps: &[Mapping], wanted: &[u8]) -> bool {
    let mut page = vec![0; PAGE_SIZE as usize];
    maps.iter().any(|map| {
        (0..map.len()).step_by(page.len()).any(|at| {
            // What was punched meanwhile is not there.
            map.bytes().try_copy_to(at, &mut page).is_ok()
                && page.windows(wanted.len()).any(|bytes| bytes == wanted)
        })
    })
}

pub fn looks_again(scene: &mut Scene, attacker: &mut Role) {
    for step in 0..3 {
        scene.victim_works();
        scene.third_works();
        assert_eq!(attacker.ask("look"), "nothing seen", "look {step}");
    }
}

/// What fills the pages of which a raw LibFS cuts all but a few bytes off: before anybody else had read
/// them, and after that.
const CUT_BEFORE: u8 = 0xb7;
const CUT_AFTER: u8 = 0xb9;
/// Bytes that are left.
const LEFT: u64 = 10;

/// A LibFS that zeroes nothing, of the victim's user: makes two files that all may read, cuts one, and when
/// it is told to the other.
pub fn cutter(pool: &Path) {
    become_user();
    let mut client = Client::connect(pool);
    let open = client.verified(ROOT, b"open").expect("a directory").inode;
    client.acquire(&[open]);
    let mut files = Vec::new();
    for (name, fill) in [(&b"before"[..], CUT_BEFORE), (b"after", CUT_AFTER)] {
        let file = client.create(open, name, FileKind::File);
        let page = client.data_page(fill).expect("a page");
        client.write(file, 0, page);
        files.push(file);
    }
    client.commit(&[open, files[0], files[1]], false);
    let mut cut = |file: InodeNumber| {
        // The page stays, with what is in it.
        client.truncate(file, LEFT, 1);
        client.commit(&[file], false);
    };
    cut(files[0]);
    tell("cut");
    while told().is_some() {
        cut(files[1]);
        tell("cut");
    }
}

/// Of which of the two what was cut off is to be seen, by who is let in to both.
fn looks_behind_the_ends(pool: &Path) -> String {
    let reader = Client::connect(pool);
    let open = reader.verified(ROOT, b"open").expect("a directory").inode;
    let mut seen = Vec::new();
    for (name, fill) in [("before", CUT_BEFORE), ("after", CUT_AFTER)] {
        let file = reader
            .verified(open, name.as_bytes())
            .expect("a file")
            .inode;
        reader.done(&Request::Admit {
            inode: file,
            contents: true,
        });
        let maps = segments_of(&reader);
        // It is let in, and sees what is before the end.
        assert!(holds(&maps, &[fill; LEFT as usize]), "{name}");
        if holds(&maps, &[fill; 64]) {
            seen.push(name);
        }
    }
    format!("seen: {}", seen.join(", "))
}

fn looks_before_and_after_a_cut(scene: &mut Scene, attacker: &mut Role) {
    let mut cutter = Role::start("cutter", VICTIM_USER, &[&scene.pool_text()]);
    assert_eq!(cutter.line(BOUND), "cut");
    // What has not been cut off may be read.
    assert_eq!(attacker.ask("look"), "seen: after");
    assert_eq!(cutter.ask("cut"), "cut");
    assert_eq!(attacker.ask("look"), "seen: ");
    cutter.end();
}

pub const ATTACKS: &[Attack] = &[
    case(
        "read",
        "looks behind the ends of files that were cut and not zeroed",
        "nothing seen",
        |a| {
            let pool = a.pool.clone();
            a.when_asked = Some(Box::new(move || looks_behind_the_ends(&pool)));
            "nothing seen".into()
        },
    )
    .and(looks_before_and_after_a_cut)
    .for_users(),
    case(
        "read",
        "asks for every segment, and looks for a secret",
        "nothing seen",
        |a| looked(&all_segments(a)),
    )
    .for_users(),
    case(
        "read",
        "asks to be let in to every inode",
        "nothing seen",
        |a| {
            let mut refused = 0;
            for inode in alive(a) {
                let admit = Request::Admit {
                    inode,
                    contents: true,
                };
                refused += usize::from(said(&a.ask(&admit)) == "EACCES");
            }
            // The secret, and the directory that it is in.
            assert!(refused >= 2, "{refused} refused");
            let maps = all_segments(a);
            // It is seen what may be.
            assert!(holds(&maps, PUBLIC));
            looked(&maps)
        },
    )
    .for_users(),
    case(
        "read",
        "keeps its maps while others write secrets",
        "nothing seen",
        |a| {
            let maps = all_segments(a);
            a.when_asked = Some(Box::new(move || looked(&maps)));
            "nothing seen".into()
        },
    )
    .and(looks_again)
    .for_users(),
    case(
        "read",
        "guesses names where it may not search",
        "EACCES",
        |a| {
            let home = a.find("victim");
            let closed = a.verified(home, b"home").expect("a directory").inode;
            let mut answers: Vec<String> = [&b"secret"[..], b"none", b""]
                .into_iter()
                .map(|name| {
                    let name = name.to_vec();
                    said(&a.ask(&Request::LookUp {
                        directory: closed,
                        name,
                    }))
                })
                .collect();
            answers.dedup();
            answers.join(", ")
        },
    )
    .for_users(),
    case(
        "read",
        "owns and locks what it cannot reach",
        "EACCES",
        |a| {
            // Of the victim's, by number; anybody may write it, who gets there.
            let own: Vec<InodeNumber> = alive(a)
                .into_iter()
                .filter(|&inode| {
                    let admit = Request::Admit {
                        inode,
                        contents: false,
                    };
                    said(&a.ask(&admit)) == "EACCES"
                })
                .collect();
            assert!(!own.is_empty());
            for inode in own {
                assert_eq!(a.acquisition(inode), "EACCES");
                // Nor is he told who has locks of it.
                for access in [Access::Read, Access::Write, Access::ReadWrite] {
                    let given = lock_file(a, inode, access).err();
                    assert_eq!(given, Some("EACCES".into()));
                }
            }
            "EACCES".into()
        },
    )
    .for_users(),
    case(
        "read",
        "opens and closes a large tree of its own",
        "a bounded wait",
        |a| {
            let directory = a.own("attacker/one");
            for at in 0..TREE {
                let name = format!("file-{at}");
                a.creation_with(directory, name.as_bytes(), |_| {});
            }
            assert_eq!(a.commit_of(directory), "accepted");
            let over = Arc::new(AtomicBool::new(false));
            let pool = a.pool.clone();
            let numbers: Vec<InodeNumber> = a.names(directory).into_values().collect();
            std::thread::spawn({
                let over = over.clone();
                move || {
                    // Another reader has it moved each time that it is open.
                    let reader = super::raw::Client::connect(&pool);
                    while !over.load(Ordering::Relaxed) {
                        for &inode in &numbers {
                            let _ = reader.try_ask(&Request::Admit {
                                inode,
                                contents: true,
                            });
                        }
                    }
                }
            });
            for round in 0..40 {
                let parent = a.own("attacker");
                let mode = if round % 2 == 0 { 0o700 } else { 0o755 };
                let said = a.forge(parent, |b| b.mode = mode);
                assert!(matches!(said.as_str(), "accepted" | "EAGAIN"), "{said}");
            }
            over.store(true, Ordering::Relaxed);
            "a bounded wait".into()
        },
    ),
];
