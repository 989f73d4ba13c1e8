//! Pools of each version of the format, as programs of that version left them (`tests/golden`, made by
//! `scripts/golden-image`): each is opened, shows what it showed then, and gets this version; others are
//! refused with one line that says what to do. Needs root: the images are of files of several users.

use crate::support::{Place, arck, refused, run, succeeded};
use arck_core_state::layout;
use arck_core_state::superblock::{FORMAT_VERSION, FORMAT_VERSION_OLDEST};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Byte offset of the version in a superblock.
const VERSION_AT: usize = 8;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// An image in a place of its own.
fn unpacked(version: u32, image: &str) -> Place {
    assert!(
        rustix::process::geteuid().is_root(),
        "the images have files of several users: run this as root (sudo -E cargo test)"
    );
    let place = Place::new();
    let archive = golden().join(format!("version-{version}/{image}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sparse", "-xzf"]).arg(&archive);
    succeeded(&tar.arg("-C").arg(place.path()).output().unwrap());
    place
}

fn version(pool: &Path) -> u32 {
    let bytes = std::fs::read(pool.join(layout::SUPERBLOCK)).unwrap();
    u32::from_le_bytes(bytes[VERSION_AT..VERSION_AT + 4].try_into().unwrap())
}

#[test]
fn pools_of_each_version_are_opened_and_show_what_they_showed() {
    for made_by in FORMAT_VERSION_OLDEST..=FORMAT_VERSION {
        let contents = golden().join(format!("version-{made_by}/contents"));
        let expected = std::fs::read_to_string(contents).unwrap();
        for image in ["closed", "failed"] {
            let place = unpacked(made_by, image);
            let pool = place.pool();
            assert_eq!(version(&pool), made_by, "{image}");
            // Looked at by itself, and not changed by that.
            succeeded(&arck().arg("check").arg(&pool).output().unwrap());
            assert_eq!(version(&pool), made_by, "{image}");
            let look = golden().join("look.sh");
            let seen = run(&pool, &[], &["bash", look.to_str().unwrap()]).output();
            let seen = succeeded(&seen.unwrap());
            assert_eq!(seen, expected, "{image} of version {made_by}");
            assert_eq!(version(&pool), FORMAT_VERSION, "{image} of {made_by}");
            let script =
                "echo more >/arck/plain/more && rm -r /arck/many && mv /arck/plain /arck/plainer";
            succeeded(&run(&pool, &[], &["sh", "-c", script]).output().unwrap());
            let names = run(&pool, &[], &["ls", "/arck", "/arck/plainer"]).output();
            let names = succeeded(&names.unwrap());
            assert!(
                names.contains("plainer") && names.contains("more"),
                "{names}"
            );
            succeeded(&arck().arg("check").arg(&pool).output().unwrap());
        }
    }
}

/// What another program means by the rest of such a pool nobody knows here.
#[test]
fn pools_of_other_versions_are_refused_with_what_to_do() {
    for other in [FORMAT_VERSION_OLDEST - 1, FORMAT_VERSION + 1, u32::MAX] {
        let place = unpacked(FORMAT_VERSION, "closed");
        let pool = place.pool();
        let superblock = pool.join(layout::SUPERBLOCK);
        let mut bytes = std::fs::read(&superblock).unwrap();
        bytes[VERSION_AT..VERSION_AT + 4].copy_from_slice(&other.to_le_bytes());
        std::fs::write(&superblock, &bytes).unwrap();
        let says = format!(
            "its format is version {other}, this program knows versions {FORMAT_VERSION_OLDEST} to \
             {FORMAT_VERSION}; use the program that made it"
        );
        let check = arck().arg("check").arg(&pool).output().unwrap();
        assert_eq!(check.status.code(), Some(2), "{check:?}");
        assert!(
            String::from_utf8_lossy(&check.stderr).contains(&says),
            "{check:?}"
        );
        refused(&arck().arg("serve").arg(&pool).output().unwrap(), &says);
        refused(&run(&pool, &[], &["true"]).output().unwrap(), &says);
        assert_eq!(
            std::fs::read(&superblock).unwrap(),
            bytes,
            "it is as it was"
        );
    }
}
