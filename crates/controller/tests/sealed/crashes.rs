//! What becomes of sealed deltas when the controller dies behind a seal.

use crate::scene::{BOTH, Gate, SEALED, Scene, begin, commit, go_on, paths, set_aside};
use arck_controller::read_log;
use arck_protocol::Response;
use std::sync::atomic::Ordering;
use std::time::Duration;

const POINTS: [&str; 5] = [
    "sealed",
    "fresh pages written",
    "journal written",
    "half applied",
    "applied",
];

/// Wherever it dies: all is there, and once.
#[test]
fn a_controller_dies_at_each_point_of_a_fold_that_seals() {
    let mut behind_the_seal = 0;
    for (lives, goes_on) in [(false, false), (false, true), (true, false), (true, true)] {
        for point in POINTS {
            for skipped in 0.. {
                let what = format!("{point} {skipped}, lives {lives}, goes on {goes_on}");
                let (gate, options) = Gate::new(Some((point, skipped)));
                let mut scene = Scene::new(options);
                let mut client = scene.client();
                let [d, _] = begin(&mut client);
                let number = client.number();
                gate.armed.store(true, Ordering::SeqCst);
                let slot = client.submit(&commit(&[d])).unwrap();
                let controller = scene.controller.as_ref().unwrap();
                let mut is_sealed = false;
                while !is_sealed && !controller.is_finished() {
                    is_sealed = gate.sealed.recv_timeout(Duration::from_millis(1)).is_ok();
                }
                let has_gone_on = is_sealed && goes_on;
                if has_gone_on {
                    go_on(&mut client, d, number);
                }
                if is_sealed {
                    gate.goes_on.send(()).unwrap();
                }
                let died = scene.dies(&client, slot);
                gate.armed.store(false, Ordering::SeqCst);
                let is_gone = died && !lives;
                let client = match is_gone {
                    true => {
                        drop(client);
                        None
                    }
                    false => Some(client),
                };
                if died {
                    behind_the_seal += u32::from(is_sealed);
                    scene.restart();
                }
                let mut expected = if has_gone_on { BOTH } else { SEALED };
                if let Some(mut client) = client {
                    if died {
                        client.resume(&scene.pool.path());
                    }
                    assert_eq!(client.finish(slot), Response::Done, "{what}");
                    assert_eq!(client.header(d).sealed(), 0, "{what}");
                    if goes_on && !has_gone_on {
                        client.overlay.clear();
                        go_on(&mut client, d, number);
                        expected = BOTH;
                    }
                    client.commit_all(true);
                    client.goodbye();
                }
                let pool = scene.pool.path();
                assert_eq!(set_aside(&pool), 0, "{what}");
                assert!(read_log(&pool).unwrap().0.is_empty(), "{what}");
                assert_eq!(paths(&scene.end()), expected, "{what}");
                if !died {
                    assert!(skipped > 0, "{what}");
                    break;
                }
            }
        }
    }
    assert!(behind_the_seal >= 16, "{behind_the_seal}");
}

/// # Regression
/// The end of a session looked for active deltas alone: where nothing else of a session was to be folded, names
/// that were only removed, or renamed, in what was sealed were as before.
#[test]
fn what_is_sealed_of_a_session_that_has_nothing_else_is_folded_when_it_ends() {
    let (gate, options) = Gate::new(Some(("sealed", 0)));
    gate.goes_on.send(()).unwrap();
    let mut scene = Scene::new(options);
    let mut client = scene.client();
    let [d, _] = begin(&mut client);
    client.commit_all(false);
    client.remove(d, b"f");
    client.rename((d, b"v2"), (d, b"r2"));
    gate.armed.store(true, Ordering::SeqCst);
    let slot = client.submit(&commit(&[d])).unwrap();
    assert!(scene.dies(&client, slot));
    drop(client);
    scene.restart();
    let expected = ["/d", "/d/r1", "/d/r2", "/d/v3", "/e"];
    assert_eq!(paths(&scene.end()), expected);
}
