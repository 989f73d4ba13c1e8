//! Sources of real programs, which cases build: original tar files of Debian's source packages.
//!
//! # Invariant
//! They are fetched once, before anything is timed, and kept in the target directory. Whoever has
//! them there needs no network.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where they are kept, each under the name of its package.
pub fn kept() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("sources")
}

/// Makes sure that these are there.
pub fn fetch(packages: &[String]) -> Result<(), String> {
    if packages.is_empty() {
        return Ok(());
    }
    let mut fetch = script();
    fetch.arg(kept()).args(packages);
    // Its progress is shown.
    fetch.stdout(Stdio::inherit());
    said(&mut fetch).map(drop)
}

fn script() -> Command {
    Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/fetch-source"))
}

/// What it prints if it succeeds, otherwise its errors.
fn said(command: &mut Command) -> Result<String, String> {
    let output = command
        .output()
        .map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let errors = String::from_utf8_lossy(&output.stderr);
    Err(format!("{}\n{errors}", output.status))
}

/// The script with a mirror in a directory, which the system's lists name in each of their two forms.
pub fn fetches_from_lists_of_both_forms() -> Result<(), String> {
    let forms = [
        ("sources.list", "deb [trusted=yes] file:MIRROR ./\n"),
        (
            "sources.list.d/mirror.sources",
            "Types: deb\nURIs: file:MIRROR\nSuites: ./\nTrusted: yes\n",
        ),
    ];
    for (list, text) in forms {
        let place = tempfile::tempdir().map_err(|error| error.to_string())?;
        let make = Command::new("bash")
            .args(["-euc", MIRROR, "bash", list, text])
            .current_dir(place.path())
            .output()
            .map_err(|error| error.to_string())?;
        assert!(make.status.success(), "{make:?}");
        let kept = place.path().join("kept");
        let run = |packages: &[&str]| {
            let mut fetch = script();
            fetch.env("APT_CONFIG", place.path().join("apt.conf"));
            said(fetch.arg(&kept).args(packages))
        };
        let first = run(&["first"]).map_err(|errors| format!("{list}: {errors}"))?;
        assert!(first.contains("apt-get source first"), "{first}");
        let original = std::fs::read(place.path().join("mirror/first_1.orig.tar.gz")).unwrap();
        assert_eq!(std::fs::read(kept.join("first")).unwrap(), original);
        assert!(kept.join("first").symlink_metadata().unwrap().is_file());

        // One of which the mirror has something else than it says.
        let errors = run(&["first", "changed"]).unwrap_err();
        assert!(errors.contains("no source of changed"), "{errors}");
        assert!(errors.contains("Hash Sum mismatch"), "{errors}");
        let by_hand = kept.join("changed");
        assert!(errors.contains(by_hand.to_str().unwrap()), "{errors}");
        assert!(!by_hand.exists());

        // What is there needs no mirror, whoever put it there.
        std::fs::remove_dir_all(place.path().join("mirror")).unwrap();
        std::fs::write(&by_hand, "put there").unwrap();
        assert_eq!(run(&["first", "changed"]).unwrap(), "");
        assert_eq!(std::fs::read(&by_hand).unwrap(), b"put there");
    }
    Ok(())
}

/// Makes a mirror of two packages and the configuration of a system that gets its packages there:
/// in the list `$1` the text `$2`.
const MIRROR: &str = r#"
umask 022; chmod 755 .
mkdir -p mirror etc/sources.list.d state/lists/partial
for name in first changed; do
    echo "$name" | tar -czf "mirror/${name}_1.orig.tar.gz" --transform "s,.*,$name/file," /dev/stdin 2>/dev/null
    echo "Format: 3.0 (quilt)" >"mirror/${name}_1.dsc"
    printf 'Package: %s\nBinary: %s\nVersion: 1\nArchitecture: any\nDirectory: .\nChecksums-Sha256:\n' "$name" "$name"
    for file in "${name}_1.orig.tar.gz" "${name}_1.dsc"; do
        printf ' %s %s %s\n' "$(sha256sum "mirror/$file" | cut -d' ' -f1)" "$(stat -c %s "mirror/$file")" "$file"
    done
    echo
done >mirror/Sources
dd if=/dev/zero of=mirror/changed_1.orig.tar.gz bs=1 seek=20 count=4 conv=notrunc status=none
printf %s "${2//MIRROR/$PWD/mirror}" >"etc/$1"
echo "Dir::Etc \"$PWD/etc\";" >apt.conf
"#;
