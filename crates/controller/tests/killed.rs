//! A controller that is killed at each store of a fold that seals, beside an owner who goes on: of the seal, of what is
//! verified and applied, and of what is stored behind that. Whoever comes next, with the owner there or gone, finds what
//! was acknowledged, once, and refuses nothing.
//!
//! A process of its own: all that it stores is recorded ([`arck_pm::record`]).

mod common;
#[path = "sealed/scene.rs"]
#[allow(dead_code)]
mod scene;

use arck_controller::read_log;
use arck_core_state::InodeNumber;
use arck_core_state::directory::Dentry;
use arck_pm::record::{EventKind, Recording};
use arck_protocol::Response;
use common::Client;
use scene::{BOTH, Gate, SEALED, Scene, begin, commit, go_on, paths, set_aside};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Stores of the controller since it was armed, and at which it dies.
static STORES: AtomicU64 = AtomicU64::new(0);
static LAST: AtomicU64 = AtomicU64::new(u64::MAX);
static ARMED: AtomicBool = AtomicBool::new(false);

fn watch(event: &EventKind) {
    let stores = matches!(
        event,
        EventKind::Store { .. } | EventKind::Stream { .. } | EventKind::File(_)
    );
    if stores
        && ARMED.load(Ordering::SeqCst)
        && std::thread::current().name() == Some("arck-controller")
        && STORES.fetch_add(1, Ordering::SeqCst) == LAST.load(Ordering::SeqCst)
    {
        ARMED.store(false, Ordering::SeqCst);
        panic!("here the controller dies");
    }
}

/// What an owner does beside what is sealed, by a number that is his, and what there is then.
#[derive(Clone, Copy)]
struct Beside {
    name: &'static str,
    does: fn(&mut Client, [InodeNumber; 2], InodeNumber),
    leaves: &'static [&'static str],
}

/// To what is done now that is as good as verified.
fn takes_for_verified(client: &mut Client) {
    for entry in client.overlay.values_mut() {
        *entry = entry.map(|(dentry, _): (Dentry, _)| (dentry, None));
    }
}

const BESIDE: [Beside; 4] = [
    Beside {
        name: "nothing",
        does: |_, _, _| {},
        leaves: SEALED,
    },
    Beside {
        name: "creates and removes",
        does: |client, [d, _], number| go_on(client, d, number),
        leaves: BOTH,
    },
    Beside {
        name: "moves within and over",
        does: |client, [d, _], _| {
            takes_for_verified(client);
            client.rename((d, b"r1"), (d, b"v3"));
            client.rename((d, b"v2"), (d, b"r1"));
        },
        leaves: &["/d", "/d/f", "/d/r1", "/d/v3", "/e"],
    },
    Beside {
        name: "moves to a directory that is not sealed, and back",
        does: |client, [d, e], number| {
            takes_for_verified(client);
            client.create_as(d, b"beside", arck_core_state::FileKind::File, number);
            client.rename((d, b"r1"), (e, b"m1"));
            client.rename((d, b"v2"), (e, b"m2"));
            client.rename((e, b"m2"), (d, b"v3"));
            client.rename((d, b"beside"), (e, b"m2"));
        },
        leaves: &["/d", "/d/f", "/d/v3", "/e", "/e/m1", "/e/m2"],
    },
];

/// Has a controller die at its store of this number; false if it has not so many.
fn dies_at(recording: &Recording, store: u64, beside: Beside, lives: bool) -> bool {
    let what = format!("{}, store {store}, lives {lives}", beside.name);
    recording.take();
    let (gate, options) = Gate::new(None);
    let mut scene = Scene::new(options);
    let mut client = scene.client();
    let directories = begin(&mut client);
    let [d, _] = directories;
    let number = client.number();
    STORES.store(0, Ordering::SeqCst);
    LAST.store(store, Ordering::SeqCst);
    gate.armed.store(true, Ordering::SeqCst);
    ARMED.store(true, Ordering::SeqCst);
    let slot = client.submit(&commit(&[d])).unwrap();
    let controller = scene.controller.as_ref().unwrap();
    let mut is_sealed = false;
    while !is_sealed && !controller.is_finished() {
        is_sealed = gate.sealed.recv_timeout(Duration::from_millis(1)).is_ok();
    }
    if is_sealed {
        (beside.does)(&mut client, directories, number);
        gate.goes_on.send(()).unwrap();
    }
    let died = scene.dies(&client, slot) || scene.controller.as_ref().unwrap().is_finished();
    ARMED.store(false, Ordering::SeqCst);
    gate.armed.store(false, Ordering::SeqCst);
    let mut expected = if is_sealed { beside.leaves } else { SEALED };
    let client = lives.then_some(client);
    if died {
        scene.restart();
    }
    if let Some(mut client) = client {
        if died {
            client.resume(&scene.pool.path());
        }
        assert_eq!(client.finish(slot), Response::Done, "{what}");
        assert_eq!(client.header(d).sealed(), 0, "{what}");
        if !is_sealed {
            client.overlay.clear();
            (beside.does)(&mut client, directories, number);
            expected = beside.leaves;
        }
        client.commit_all(true);
        client.goodbye();
    }
    let pool = scene.pool.path();
    let (log, _) = read_log(&pool).unwrap();
    assert!(log.is_empty(), "{what}: {log:?}");
    assert_eq!(set_aside(&pool), 0, "{what}");
    assert_eq!(paths(&scene.end()), expected, "{what}");
    died
}

#[test]
fn a_controller_dies_at_each_store_of_a_fold_that_seals() {
    let recording = Recording::start().unwrap();
    recording.watch(watch);
    let mut kills = 0;
    for beside in BESIDE {
        for lives in [false, true] {
            let stores = (0..).take_while(|&store| dies_at(&recording, store, beside, lives));
            let stores = stores.count();
            println!("{}, lives {lives}: {stores} stores", beside.name);
            assert!(stores > 30, "{}: only {stores} stores", beside.name);
            kills += stores;
        }
    }
    println!("{kills} kills");
}
