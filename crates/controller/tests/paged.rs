//! A pool on an ordinary file system: what was synced survives the machine, what sessions had
//! not folded survives only their processes.
//!
//! It lies in memory here, and is told to count as such a pool: where the build is on tmpfs or on a file
//! system with reflink, a test of what the file system offers ended before it had looked at anything.

mod common;

use arck_controller::{Controller, MkfsOptions, Options, mkfs};
use arck_core_state::FileKind;
use arck_core_state::superblock::{Durability, Superblock};
use arck_pm::DurabilityMode;
use arck_protocol::{InodeList, Request};
use common::check::check;
use common::{Client, ROOT};
use std::path::Path;

fn boot_again(pool: &Path) {
    let file = pool.join("superblock");
    let mut superblock = Superblock::decode(&std::fs::read(&file).unwrap()).unwrap();
    superblock.boot = [0x5a; 16];
    std::fs::write(&file, superblock.encode()).unwrap();
}

#[test]
fn arenas_count_only_within_one_boot() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = directory.path().join("pool");
    let options = MkfsOptions {
        size: 16 << 20,
        mode: 0o755,
        force: false,
    };
    mkfs(&pool, &options, &mut |_, _| {}).unwrap();
    let options = Options {
        durability: Some(DurabilityMode::Paged),
        ..Options::default()
    };
    let serve = || {
        let controller = Controller::open(&pool, options.clone()).unwrap();
        controller.spawn().unwrap()
    };
    for (round, other_boot) in [true, false].into_iter().enumerate() {
        let controller = serve();
        let mut client = Client::connect(&pool);
        client.acquire(&[ROOT]);
        let synced = format!("synced {round}");
        let file = client.create(ROOT, synced.as_bytes(), FileKind::File);
        let page = client.data_page(round as u8 + 1).unwrap();
        client.write(file, 0, page);
        let inodes = InodeList::new(&[ROOT, file]).unwrap();
        client.done(&Request::Sync { inodes });
        client.forget_overlay();
        client.create(ROOT, format!("late {round}").as_bytes(), FileKind::File);
        controller.kill();
        drop(client);
        if other_boot {
            boot_again(&pool);
            // An opening that comes to nothing leaves it so.
            let (folder, away) = (pool.join("segments"), pool.join("segments.away"));
            std::fs::rename(&folder, &away).unwrap();
            assert!(Controller::open(&pool, options.clone()).is_err());
            std::fs::rename(&away, &folder).unwrap();
        }
        let controller = serve();
        let client = Client::connect(&pool);
        assert_eq!(client.welcome.durability, Durability::Paged as u32);
        assert_eq!(client.verified_byte(file, 0), Some(round as u8 + 1));
        client.goodbye();
        controller.stop().unwrap();
        let tree = check(&pool);
        assert!(tree.paths.contains_key(&format!("/{synced}")));
        assert_eq!(
            tree.paths.contains_key(&format!("/late {round}")),
            !other_boot
        );
        assert!(
            std::fs::read_dir(pool.join("arenas"))
                .unwrap()
                .next()
                .is_none()
        );
    }
}
