//! A file whose last verified name goes with what is sealed, and that its owner names behind the seal.

use crate::common::{Client, PATIENCE, ROOT};
use crate::scene::{Gate, Scene, commit, paths, set_aside};
use arck_controller::read_log;
use arck_core_state::{FileKind, InodeNumber};
use arck_protocol::Request;
use std::sync::atomic::Ordering;

/// What else is done behind the seal.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Besides {
    Nothing,
    /// A file is created there, and renamed to where the other one is named.
    Creates,
    /// What the sealed delta has renamed is renamed there.
    Renames,
}

/// A directory to be sealed, of which a file goes, with contents that are not folded or without, and another directory.
fn begin(client: &mut Client, has_delta: bool) -> [InodeNumber; 2] {
    client.acquire(&[ROOT]);
    let [d, e] = [b"d", b"e"].map(|name| client.create(ROOT, name, FileKind::Directory));
    let gone = client.create(d, b"v0", FileKind::File);
    client.create(d, b"v1", FileKind::File);
    client.commit_all(false);
    if has_delta {
        let page = client.data_page(6).unwrap();
        client.write(gone, 0, page);
    }
    client.remove(d, b"v0");
    client.rename((d, b"v1"), (d, b"r1"));
    client.create(d, b"f", FileKind::File);
    [d, e]
}

/// # Regression
/// Who folded what was sealed once more, since the controller had died, looked at where the file is named now, and drew in
/// what its owner had done elsewhere behind the seal: that was refused, or half of it was folded.
#[test]
fn what_is_named_behind_a_seal_is_folded_behind_it() {
    let cases = [true, false].into_iter().flat_map(|has_delta| {
        let all = [Besides::Nothing, Besides::Creates, Besides::Renames];
        let all = all.into_iter();
        all.flat_map(move |besides| [true, false].map(|lives| (has_delta, besides, lives)))
    });
    for case @ (has_delta, besides, lives) in cases {
        let (gate, options) = Gate::new(Some(("sealed", 0)));
        let mut scene = Scene::new(options);
        let mut client = scene.client();
        let [d, e] = begin(&mut client, has_delta);
        let number = client.number();
        let gone = client.verified(d, b"v0").unwrap().inode;
        gate.armed.store(true, Ordering::SeqCst);
        let slot = client.submit(&commit(&[d])).unwrap();
        gate.sealed.recv_timeout(PATIENCE).unwrap();
        // To what is done now that is as good as verified.
        for entry in client.overlay.values_mut() {
            *entry = entry.map(|(dentry, _)| (dentry, None));
        }
        client.link(gone, FileKind::File, e, b"g");
        match besides {
            Besides::Nothing => {}
            Besides::Creates => {
                client.create_as(d, b"n", FileKind::File, number);
                client.rename((d, b"n"), (e, b"m"));
            }
            Besides::Renames => client.rename((d, b"r1"), (e, b"m")),
        }
        gate.goes_on.send(()).unwrap();
        assert!(scene.dies(&client, slot), "{case:?}");
        gate.armed.store(false, Ordering::SeqCst);
        if lives {
            scene.restart();
            client.resume(&scene.pool.path());
            client.finish(slot);
            client.done(&Request::CommitAll { release: true });
            client.goodbye();
        } else {
            drop(client);
            scene.restart();
        }
        let pool = scene.pool.path();
        assert_eq!(set_aside(&pool), 0, "{case:?}");
        assert_eq!(read_log(&pool).unwrap().0.len(), 0, "{case:?}");
        // Alive where the owner is, who has named it before he can know that it is to be freed.
        let mut expected = match besides {
            Besides::Nothing => vec!["/d", "/d/f", "/d/r1", "/e", "/e/g"],
            Besides::Creates => vec!["/d", "/d/f", "/d/r1", "/e", "/e/g", "/e/m"],
            Besides::Renames => vec!["/d", "/d/f", "/e", "/e/g", "/e/m"],
        };
        expected.sort_unstable();
        assert_eq!(paths(&scene.end()), expected, "{case:?}");
    }
}
