//! A pool on a pool: `arck` run by `arck run`, on a path below its mount.
//!
//! It cannot work: a pool's files are mapped by the controller and by every program, and the files
//! of a pool can be mapped only by programs that see that pool. So it is refused, before anything
//! is made.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// File name of the preload library.
pub const PRELOAD_LIBRARY: &str = "libarck_preload.so";

/// The pool that this process sees under that path, if it was started by `arck run`.
pub fn seen_at(mount: &Path) -> Option<PathBuf> {
    seen()
        .filter(|(seen, _)| seen == mount)
        .map(|(_, pool)| pool)
}

/// Where this process sees a pool, and which; `None` if it was not started by `arck run`.
fn seen() -> Option<(PathBuf, PathBuf)> {
    let preloaded = std::env::var_os("LD_PRELOAD")?;
    let library = PRELOAD_LIBRARY.as_bytes();
    preloaded
        .as_bytes()
        .split(|byte| matches!(byte, b':' | b' '))
        .any(|path| {
            Path::new(OsStr::from_bytes(path)).file_name() == Some(OsStr::from_bytes(library))
        })
        .then_some(())?;
    Some((
        PathBuf::from(std::env::var_os("ARCK_MOUNT")?),
        PathBuf::from(std::env::var_os("ARCK_POOL")?),
    ))
}

/// The path without links, as far as it exists, and without `.` and `..`.
fn resolved(path: &Path) -> PathBuf {
    let mut known = std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
    let mut rest = Vec::new();
    loop {
        if let Ok(real) = std::fs::canonicalize(&known) {
            known = real;
            break;
        }
        match known.components().next_back() {
            Some(component @ (Component::Normal(_) | Component::ParentDir)) => {
                rest.push(component.as_os_str().to_owned());
                known.pop();
            }
            _ => break,
        }
    }
    known.extend(rest.into_iter().rev());
    known
}

/// Refuses a path that lies on the pool that this process sees.
///
/// # Errors
/// One line that says what to do instead.
pub fn refuse(path: &Path) -> Result<(), String> {
    let Some((mount, pool)) = seen() else {
        return Ok(());
    };
    if !resolved(path).starts_with(&mount) {
        return Ok(());
    }
    Err(format!(
        "{} lies on the pool {} (seen under {}, by arck run), and a pool cannot lie on a pool; \
         choose a place outside {}, such as /dev/shm",
        path.display(),
        pool.display(),
        mount.display(),
        mount.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_as_far_as_they_exist() {
        assert_eq!(
            resolved(Path::new("/nonexistent/a/b")),
            Path::new("/nonexistent/a/b")
        );
        assert_eq!(
            resolved(Path::new("/proc/self/../none")),
            Path::new("/proc/none")
        );
        let here = std::env::current_dir().unwrap().canonicalize().unwrap();
        assert_eq!(resolved(Path::new("none")), here.join("none"));
        assert_eq!(resolved(Path::new("/")), Path::new("/"));
    }
}
