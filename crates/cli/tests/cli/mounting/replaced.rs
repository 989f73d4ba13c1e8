//! Names that are replaced through a mount while others use them.

use super::mount::Mount;
use rustix::fs::XattrFlags;
use rustix::io::Errno;
use std::time::{Duration, Instant};

/// Who opens a name or looks at it, while others are put in its place, finds one of them: the kernel looks it up once more where the
/// one that it had found is gone, and tells so (ESTALE, or EIO where its number is another's) where that is gone, too.
#[test]
fn a_name_that_is_replaced_is_there() {
    let mount = Mount::made("64M");
    let [name, next] = ["name", "next"].map(|name| mount.path().join(name));
    std::fs::write(&name, "0").unwrap();
    let until = Instant::now() + Duration::from_secs(2);
    let looking = {
        let name = name.clone();
        std::thread::spawn(move || {
            let (mut looks, mut stale) = (0_u32, 0_u32);
            while Instant::now() < until {
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
                let none = rustix::fs::getxattr(&name, "user.none", &mut [0u8; 8]);
                let seen = [
                    std::fs::metadata(&name).map(|_| ()),
                    std::fs::File::open(&name).map(|_| ()),
                    std::fs::read(&name).map(|_| ()),
                    std::fs::set_permissions(&name, mode),
                    match none {
                        Err(Errno::NODATA) => Ok(()),
                        got => Err(got.expect_err("no such attribute").into()),
                    },
                    rustix::fs::setxattr(&name, "user.some", b"", XattrFlags::empty())
                        .map_err(Into::into),
                ];
                for (which, seen) in seen.into_iter().enumerate() {
                    looks += 1;
                    match seen.map_err(|error| error.raw_os_error()) {
                        Ok(()) => {}
                        Err(Some(libc::ESTALE | libc::EIO)) => stale += 1,
                        Err(error) => panic!("look {looks}, {which}: {error:?}"),
                    }
                }
            }
            (looks, stale)
        })
    };
    let mut replaced = 0_u32;
    while Instant::now() < until {
        std::fs::write(&next, replaced.to_string()).unwrap();
        std::fs::rename(&next, &name).unwrap();
        replaced += 1;
    }
    let (looks, stale) = looking.join().unwrap();
    println!("{stale} of {looks} looks, {replaced} replaced");
    assert!(
        stale <= looks / 20 + 1,
        "{stale} of {looks} looks, {replaced} replaced"
    );
    mount.unmount();
}
