//! `mount -t arck POOL DIR`, also from fstab: mount(8) runs `mount.arck POOL DIR [-sfnv] [-o OPTIONS]`, which is this
//! command by another name.
//!
//! Invariant: an option that is not known is refused, by name: nothing that somebody has asked for is left out in silence.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// The name by which mount(8) knows it.
const NAME: &str = "mount.arck";

/// Options that mount(8) and fstab have for themselves, or that are so anyway.
const OF_OTHERS: [&str; 20] = [
    "rw",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "group",
    "owner",
    "_netdev",
    "nofail",
    "nosuid",
    "nodev",
    "exec",
    "async",
    "defaults",
    "relatime",
    "noatime",
    "diratime",
    "nodiratime",
    "allow_other",
];

/// Whether this was run as `mount.arck`.
pub fn is_helper(name: Option<&OsStr>) -> bool {
    name.is_some_and(|name| Path::new(name).file_name() == Some(OsStr::new(NAME)))
}

/// The arguments of `arck` that mean the same as those of `mount.arck`.
///
/// # Errors
/// One line.
pub fn arguments_of(words: impl IntoIterator<Item = OsString>) -> Result<Vec<OsString>, String> {
    let mut arguments: Vec<OsString> = vec!["arck".into(), "mount".into()];
    let mut places: Vec<OsString> = Vec::new();
    let mut words = words.into_iter();
    while let Some(word) = words.next() {
        match word.as_bytes() {
            b"-o" => {
                let options = words.next().ok_or("-o is followed by options")?;
                add(&mut arguments, options.as_bytes())?;
            }
            // A fake mount is none.
            b"-f" => return Err("a fake mount (-f) is none; leave it out".to_owned()),
            [b'-', b'o', options @ ..] => add(&mut arguments, options)?,
            [b'-', flags @ ..]
                if flags.iter().all(|flag| b"snvrw".contains(flag)) && !flags.is_empty() =>
            {
                if flags.contains(&b'r') {
                    arguments.push("--read-only".into());
                }
            }
            [b'-', ..] => return Err(format!("there is no option {}", word.display())),
            _ => places.push(word),
        }
    }
    if places.len() != 2 {
        return Err(
            "give the directory of a pool, and one to mount it at: mount -t arck POOL DIR"
                .to_owned(),
        );
    }
    arguments.push("--".into());
    arguments.extend(places);
    Ok(arguments)
}

fn add(arguments: &mut Vec<OsString>, options: &[u8]) -> Result<(), String> {
    for option in options.split(|&byte| byte == b',') {
        let option = OsString::from_vec(option.to_vec());
        let Some(text) = option.to_str() else {
            return Err(format!("there is no option {}", option.display()));
        };
        match text {
            "ro" => arguments.push("--read-only".into()),
            "nonempty" => arguments.push("--nonempty".into()),
            "" => {}
            text if OF_OTHERS.contains(&text)
                || text.starts_with("x-")
                || text.starts_with("comment=") => {}
            _ => {
                return Err(format!(
                    "there is no option {text}; there are ro and nonempty, and those of mount(8) that change nothing here"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> Result<Vec<OsString>, String> {
        arguments_of(words.iter().map(OsString::from))
    }

    #[test]
    fn words_of_mount_become_arguments() {
        let expected = |options: &[&str]| {
            let mut all = vec!["arck", "mount"];
            all.extend(options);
            all.extend(["--", "/p", "/d"]);
            Ok(all.into_iter().map(OsString::from).collect::<Vec<_>>())
        };
        assert_eq!(of(&["/p", "/d"]), expected(&[]));
        assert_eq!(
            of(&["/p", "/d", "-o", "rw,noauto,x-systemd.automount"]),
            expected(&[])
        );
        assert_eq!(
            of(&["/p", "/d", "-n", "-o", "ro,nonempty"]),
            expected(&["--read-only", "--nonempty"])
        );
        assert_eq!(of(&["-r", "/p", "/d"]), expected(&["--read-only"]));
    }

    #[test]
    fn what_is_not_known_is_refused_by_name() {
        for (words, says) in [
            (&["/p", "/d", "-o", "suid"][..], "suid"),
            (&["/p", "/d", "-o", "ro,size=1G"], "size=1G"),
            (&["/p", "/d", "--quick"], "--quick"),
            (&["/p", "/d", "-f"], "-f"),
            (&["/p"], "mount -t arck"),
            (&["/p", "/d", "/e"], "mount -t arck"),
            (&["/p", "/d", "-o"], "-o"),
        ] {
            let line = of(words).unwrap_err();
            assert!(line.contains(says) && !line.contains('\n'), "{line}");
        }
    }
}
