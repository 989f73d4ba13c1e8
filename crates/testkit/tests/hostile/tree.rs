//! Attacks on the tree and on the rights in it: directories, owners and modes, names of others.

use super::attacker::{Attacker, errno_name, move_request, said};
use super::raw::{Client, ROOT};
use super::table::{Attack, case};
use arck_core_state::record::effect;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::Request;

/// A removal of a name in a directory, as the attacker tells it.
fn remove_name(a: &mut Attacker, directory: InodeNumber, path: &str, name: &[u8]) -> String {
    let target = a.find(path);
    let kind = a.inode(target).kind().expect("a kind");
    a.record_with(directory, (target, kind), name, |r| {
        r.state = effect::REMOVE_SOURCE;
        r.name = b"";
    });
    a.commit_of(directory)
}

pub const ATTACKS: &[Attack] = &[
    // ---- directories
    case(
        "tree",
        "removes a directory that is not empty",
        "I3 DirectoryEmpty",
        |a| {
            let directory = a.own("attacker");
            a.own("attacker/full");
            remove_name(a, directory, "attacker/full", b"full")
        },
    ),
    case(
        "tree",
        "removes a directory and fills it in the same step",
        "I3 DirectoryEmpty",
        |a| {
            let (directory, empty) = (a.own("attacker"), a.own("attacker/empty"));
            a.creation(empty, |_| {});
            remove_name(a, directory, "attacker/empty", b"empty")
        },
    ),
    case(
        "tree",
        "replaces a directory that is not empty",
        "I3 DirectoryEmpty",
        |a| {
            let directory = a.own("attacker");
            let full = a.own("attacker/full");
            a.record_with(directory, (full, FileKind::Directory), b"full", |r| {
                r.state = effect::REPLACE;
            });
            a.commit_of(directory)
        },
    ),
    case(
        "tree",
        "removes a directory that another session owns",
        "I2 Owned",
        |a| {
            let other = Attacker::connect(&a.pool);
            other.own("attacker/empty");
            let directory = a.own("attacker");
            remove_name(a, directory, "attacker/empty", b"empty")
        },
    ),
    case(
        "tree",
        "a second name of a directory",
        "I3 DirectoryOneName",
        |a| {
            let (directory, one) = (a.own("attacker"), a.own("attacker/one"));
            a.record_with(directory, (one, FileKind::Directory), b"again", |_| {});
            a.commit_of(directory)
        },
    ),
    case(
        "tree",
        "a second parent of a directory",
        "I3 DirectoryOneName",
        |a| {
            let (two, one) = (a.own("attacker/two"), a.own("attacker/one"));
            a.record_with(two, (one, FileKind::Directory), b"one", |_| {});
            a.commit_of(two)
        },
    ),
    case("tree", "a name of the root", "I3 DirectoryOneName", |a| {
        let directory = a.own("attacker");
        assert_eq!(a.acquisition(ROOT), errno_name(libc::EACCES));
        a.record_with(directory, (ROOT, FileKind::Directory), b"root", |_| {});
        a.commit_of(directory)
    })
    .for_users(),
    case(
        "tree",
        "moves a directory by records",
        "I3 DirectoryParent",
        |a| {
            let (directory, one, two) = (
                a.own("attacker"),
                a.own("attacker/one"),
                a.own("attacker/two"),
            );
            a.record_with(two, (one, FileKind::Directory), b"one", |_| {});
            a.add_partner(directory, two);
            remove_name(a, directory, "attacker/one", b"one")
        },
    ),
    case(
        "tree",
        "a new directory within itself",
        "I3 Connected",
        |a| {
            let number = a.number();
            a.record_with(number, (number, FileKind::Directory), b"self", |_| {});
            a.commit_of(number)
        },
    ),
    case(
        "tree",
        "two new directories within each other",
        "I3 Connected",
        |a| {
            let (one, two) = (a.number(), a.number());
            a.record_with(one, (two, FileKind::Directory), b"two", |_| {});
            a.record_with(two, (one, FileKind::Directory), b"one", |_| {});
            a.forge(one, |b| b.partners[0] = two)
        },
    ),
    case("tree", "moves a directory into itself", "EINVAL", |a| {
        let (directory, one) = (a.own("attacker"), a.own("attacker/one"));
        said(&a.ask(&move_request(directory, b"one", one)))
    }),
    case(
        "tree",
        "two sessions move two directories into each other",
        "EINVAL",
        |a| {
            let directory = a.find("attacker");
            let (one, two) = (a.find("attacker/one"), a.find("attacker/two"));
            let pool = a.pool.clone();
            let moves = [(&b"one"[..], two), (&b"two"[..], one)];
            let answers: Vec<String> = std::thread::scope(|scope| {
                let threads = moves.map(|(name, to)| {
                    let pool = pool.clone();
                    scope.spawn(move || {
                        let client = Client::connect(&pool);
                        // Whoever meets the other between its two steps tries again.
                        loop {
                            client.acquire(&[directory, to]);
                            let said = said(&client.ask(&move_request(directory, name, to)));
                            if said != "ESTALE" && said != "EAGAIN" {
                                return said;
                            }
                        }
                    })
                });
                threads
                    .map(|thread| thread.join().expect("a thread"))
                    .to_vec()
            });
            let moved = answers.iter().filter(|said| *said == "accepted").count();
            assert_eq!(moved, 1, "{answers:?}");
            answers
                .into_iter()
                .find(|said| said != "accepted")
                .expect("the other")
        },
    ),
    case("tree", "names in a file", "I3 Connected", |a| {
        let directory = a.own("attacker");
        let file = a.creation(directory, |_| {});
        let other = a.number();
        a.record_with(file, (other, FileKind::File), b"f", |_| {});
        a.commit_of(file)
    }),
    case("tree", "names in a verified file", "I1 FieldsOfKind", |a| {
        let file = a.own("attacker/file");
        let number = a.number();
        a.record_with(file, (number, FileKind::File), b"f", |_| {});
        a.commit_of(file)
    }),
    // ---- modes, owners
    case(
        "tree",
        "a new file of root's, set-user-id",
        "I4 CreationUser",
        |a| a.forge_creation(|r| (r.uid, r.mode) = (0, 0o4755)),
    )
    .for_users(),
    case(
        "tree",
        "a new file of the victim's",
        "I4 CreationUser",
        |a| a.forge_creation(|r| r.uid = super::world::VICTIM_USER.0),
    )
    .for_users(),
    case(
        "tree",
        "a new file of root's group",
        "I4 CreationGroup",
        |a| a.forge_creation(|r| r.gid = 0),
    )
    .for_users(),
    case(
        "tree",
        "a set-group-id file of a group it is not in",
        "I4 SetGroupId",
        |a| {
            let handing = a.own("handing");
            let gid = a.inode(handing).gid;
            a.creation(handing, |r| (r.gid, r.mode) = (gid, 0o2755));
            a.commit_of(handing)
        },
    )
    .for_users(),
    case("tree", "a block device", "I4 Device", |a| {
        let directory = a.own("attacker");
        let number = a.number();
        a.edit_branch(number, |branch| branch.parent = directory);
        a.record_with(directory, (number, FileKind::BlockDevice), b"disk", |r| {
            r.source = b"";
        });
        a.commit_of(directory)
    })
    .for_users(),
    case("tree", "a device by its number", "I4 Device", |a| {
        let directory = a.own("attacker");
        let number = a.number();
        a.edit_branch(number, |branch| {
            (branch.parent, branch.size) = (directory, 0x103);
        });
        a.record_with(
            directory,
            (number, FileKind::CharacterDevice),
            b"null",
            |r| {
                r.source = b"";
            },
        );
        a.commit_of(number)
    })
    .for_users(),
    case("tree", "a mode with bits of a type", "I1 Mode", |a| {
        a.forge_creation(|r| r.mode = 0o60_666)
    }),
    case(
        "tree",
        "a changed mode with bits of a type",
        "I1 Mode",
        |a| {
            let file = a.own("attacker/file");
            a.forge(file, |b| b.mode = 0o120_777)
        },
    ),
    case("tree", "another's mode", "I4 ModePermission", |a| {
        let file = a.own("sticky/theirs");
        a.forge(file, |b| b.mode = 0o4777)
    })
    .for_users(),
    case("tree", "chown of its own file to root", "EPERM", |a| {
        let inode = a.find("attacker/file");
        said(&a.ask(&Request::SetOwner {
            inode,
            uid: 0,
            gid: u32::MAX,
        }))
    })
    .for_users(),
    case("tree", "chown of another's file to itself", "EPERM", |a| {
        let inode = a.find("open/theirs");
        let uid = rustix::process::geteuid().as_raw();
        said(&a.ask(&Request::SetOwner {
            inode,
            uid,
            gid: u32::MAX,
        }))
    })
    .for_users(),
    case(
        "tree",
        "another's file, not writable, owned",
        "EACCES",
        |a| a.acquisition(a.find("open/theirs")),
    )
    .for_users(),
    case("tree", "another's directory owned", "EACCES", |a| {
        a.acquisition(a.find("victim"))
    })
    .for_users(),
    case(
        "tree",
        "another's file folded without owning it",
        "nothing folded",
        |a| {
            let theirs = a.find("open/theirs");
            let before = a.inode(theirs);
            let header = a.header(theirs);
            let mut branch = arck_core_state::branch::StoredBranch::unchanged(
                theirs,
                header.generation(),
                header.ownership().epoch(),
                header.fold(),
            );
            branch.mode = 0o777;
            // Every slot that the controller could take for that inode's.
            for slot in 0..64 {
                let offset = arck_core_state::arena::branch_offset(slot).expect("a slot");
                a.store(offset, zerocopy::IntoBytes::as_bytes(&branch));
            }
            assert_eq!(a.commit_of(theirs), "accepted");
            assert_eq!(a.inode(theirs), before);
            "nothing folded".into()
        },
    )
    .for_users(),
    // ---- names that one may not remove
    case(
        "tree",
        "removes a name that is not there",
        "I3 NameExists",
        |a| {
            let directory = a.own("attacker");
            remove_name(a, directory, "attacker/file", b"none")
        },
    ),
    case("tree", "removes a name twice", "I3 NameRemovedOnce", |a| {
        let directory = a.own("attacker");
        remove_name(a, directory, "attacker/second", b"second");
        let directory = a.own("attacker");
        a.record_with(
            directory,
            (a.find("attacker/file"), FileKind::File),
            b"file",
            |r| {
                r.state = effect::REMOVE_SOURCE;
                r.name = b"";
            },
        );
        remove_name(a, directory, "attacker/file", b"file")
    }),
    case(
        "tree",
        "removes another's name from a sticky directory",
        "I4 Sticky",
        |a| {
            let directory = a.own("sticky");
            a.own("sticky/theirs");
            remove_name(a, directory, "sticky/theirs", b"theirs")
        },
    )
    .for_users(),
    case(
        "tree",
        "renames over another's name in a sticky directory",
        "I4 Sticky",
        |a| {
            let directory = a.own("sticky");
            a.own("sticky/theirs");
            a.creation(directory, |r| {
                r.name = b"theirs";
                r.state = effect::ADD | effect::REPLACE;
            });
            a.commit_of(directory)
        },
    )
    .for_users(),
    case(
        "tree",
        "moves another's name out of a sticky directory",
        "I4 Sticky",
        |a| {
            let (sticky, directory) = (a.own("sticky"), a.own("attacker"));
            let theirs = a.own("sticky/theirs");
            a.add_partner(sticky, directory);
            a.add_partner(directory, sticky);
            a.record_with(directory, (theirs, FileKind::File), b"theirs", |r| {
                r.state = effect::ADD | effect::REMOVE_SOURCE;
                r.source_directory = sticky;
            });
            a.commit_of(directory)
        },
    )
    .for_users(),
    case(
        "tree",
        "moves another's directory out of a sticky one, by message",
        "EPERM",
        |a| {
            let (sticky, directory) = (a.own("sticky"), a.own("attacker"));
            said(&a.ask(&move_request(sticky, b"directory", directory)))
        },
    )
    .for_users(),
    case(
        "tree",
        "removes a name in a directory it may not write",
        "I2 InFoldSet",
        |a| {
            let (directory, locked) = (a.own("attacker"), a.find("locked"));
            assert_eq!(a.acquisition(locked), errno_name(libc::EACCES));
            let theirs = a.find("locked/theirs");
            a.record_with(directory, (theirs, FileKind::File), b"theirs", |r| {
                r.state = effect::REMOVE_SOURCE;
                r.name = b"";
                r.source_directory = locked;
            });
            a.commit_of(directory)
        },
    )
    .for_users(),
];
