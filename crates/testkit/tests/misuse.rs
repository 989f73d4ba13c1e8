//! A LibFS that uses the kit as it must not: it leaves its operation without publishing, publishes twice, asks
//! the controller inside an operation. Nothing is lost by it: what was there stays, for this session and for
//! others, and the session goes on. What cannot be right is a panic where assertions are compiled in, and EIO
//! with a line on standard error elsewhere.

use arck_core_state::geometry::ROOT_INODE;
use arck_libfs_kit::engine::{Alone, Attempt, Context, Engine, Need, Way};
use arck_libfs_kit::names::creations::Creation;
use arck_libfs_kit::names::together::{Contents, Successor};
use arck_libfs_kit::views::Directory;
use arck_libfs_kit::{Session, ownership};
use arck_testkit::{Shorthand, TestPool};
use rustix::io::Errno;
use std::panic::{AssertUnwindSafe, catch_unwind};

const POOL: u64 = 64 << 20;

fn engine(pool: &TestPool) -> Engine<'static> {
    Engine::new(Session::connect(&pool.path()).expect("a session"), &Alone)
}

/// The root, owned.
fn root(context: &Context<'_>) -> Attempt<Directory> {
    let root = context.directory_at(b"", None)?;
    context.expect_own(root.inode())?;
    Ok(root)
}

fn successor(context: &Context<'_>, bytes: &[u8]) -> Attempt<Successor> {
    let creation = Creation::file(0o644);
    let contents = Contents::store(context, bytes)?;
    Ok(Successor { creation, contents })
}

fn set(engine: &Engine<'_>, name: &[u8], bytes: &[u8]) -> Result<(), Errno> {
    let mut stored = [None];
    engine.run(Way::Names, |context| {
        let root = root(context)?;
        if stored[0].is_none() {
            stored[0] = Some(successor(context, bytes)?);
        }
        let change = context.look_at(root, name)?;
        context.change_together(root, &mut [change], &mut stored)
    })
}

/// That a call is told to be wrong.
fn assert_is_misuse(call: impl FnOnce() -> Result<(), Errno>) {
    let told = catch_unwind(AssertUnwindSafe(call));
    if cfg!(debug_assertions) {
        let panic = told.expect_err("a panic");
        let line = panic.downcast_ref::<String>().expect("of the kit's");
        assert!(line.starts_with("arck: a LibFS "), "{line}");
    } else {
        assert_eq!(told.ok(), Some(Err(Errno::IO)));
    }
}

/// That session and pool go on: what was set before is there, for it and for others, who get the directory.
fn assert_goes_on(pool: &TestPool, engine: &Engine<'_>, names: &[(&str, &[u8])]) {
    let mut all: Vec<_> = names.iter().map(|(name, _)| (*name).to_owned()).collect();
    set(engine, b"after", b"it").expect("the session goes on");
    all.push("after".to_owned());
    let other = pool.session();
    for (name, bytes) in names {
        assert_eq!(other.get(name).expect(name), *bytes, "{name}");
    }
    other.put("of another", b"his").expect("the directory");
    all.push("of another".to_owned());
    all.sort();
    let mut there = other.names(".").expect("names");
    there.sort();
    assert_eq!(there, all);
    set(engine, b"after", b"him").expect("and back");
    assert_eq!(other.get("after").expect("after"), b"him");
}

#[test]
fn an_operation_that_publishes_nothing_changes_nothing() {
    let pool = TestPool::new(POOL);
    let engine = engine(&pool);
    set(&engine, b"before", b"there").expect("set");
    // More pages than the pool has, if they did not come back; so many operations as nobody may have in flight.
    let bytes = vec![7; 1 << 20];
    for turn in 0..200 {
        let mut stored = None;
        let left = || {
            engine.run(Way::Names, |context| {
                let root = root(context)?;
                let _locked = context.lock_now(root.inode())?;
                context.begin_change(&root)?;
                stored = Some(successor(context, &bytes)?);
                match turn % 3 {
                    0 => Ok(()),
                    1 => Err(Errno::PERM.into()),
                    _ => panic!("left"),
                }
            })
        };
        match (turn % 3, catch_unwind(AssertUnwindSafe(left))) {
            (0, Ok(Ok(()))) | (1, Ok(Err(Errno::PERM))) | (2, Err(_)) => {}
            (way, told) => panic!("{way}: {told:?}"),
        }
    }
    assert_goes_on(&pool, &engine, &[("before", b"there")]);
}

/// A call conceives a file, finds that another name has changed, and ends. (What a file on its way is to hold keeps
/// its number when the attempt is made again, so that no two branches lead to it: whoever drops it has to end the
/// branch, or the pages, used again, would be in two of them.)
#[test]
fn what_a_call_leaves_on_its_way_is_used_again() {
    let pool = TestPool::new(POOL);
    let engine = engine(&pool);
    set(&engine, b"before", b"there").expect("set");
    let used = || engine.session.state().arena.used();
    let before = used();
    let mut bytes = vec![0; 5 << 12];
    for turn in 0..500 {
        bytes.fill(turn as u8);
        let mut stored = [None, None];
        let mut attempts = 0;
        let left: Result<(), Errno> = engine.run(Way::Names, |context| {
            attempts += 1;
            if attempts == 3 {
                return Err(Errno::PERM.into());
            }
            let root = root(context)?;
            let changes = [b"never".as_slice(), b"before"];
            let mut changes = [
                context.look_at(root, changes[0])?,
                context.look_at(root, changes[1])?,
            ];
            if stored[0].is_none() {
                stored[0] = Some(successor(context, &bytes)?);
            }
            // What was looked at is no more so.
            let mut other = [Some(successor(context, b"there")?)];
            let change = context.look_at(root, b"before")?;
            context.change_together(root, &mut [change], &mut other)?;
            context.change_together(root, &mut changes, &mut stored)
        });
        assert_eq!((left, attempts), (Err(Errno::PERM), 3));
        drop(stored);
        // On pages that it gave back.
        set(&engine, b"five", &bytes).expect("set");
        if turn % 50 == 0 {
            engine.fold_all().expect("a fold");
        }
    }
    engine.fold_all().expect("a fold");
    assert!(used() <= before + 8, "{} pages of {before}", used());
    let there: [(&str, &[u8]); 2] = [("before", b"there"), ("five", &bytes)];
    assert_goes_on(&pool, &engine, &there);
}

#[test]
fn what_is_published_is_not_published_again() {
    let pool = TestPool::new(POOL);
    let engine = engine(&pool);
    set(&engine, b"before", b"there").expect("set");
    // A second time, the file would be created without what it holds, in the place of the first.
    assert_is_misuse(|| {
        let mut stored = [None];
        engine.run(Way::Names, |context| {
            let root = root(context)?;
            if stored[0].is_none() {
                stored[0] = Some(successor(context, b"once")?);
            }
            for _ in 0..2 {
                let change = context.look_at(root, b"twice")?;
                context.change_together(root, &mut [change], &mut stored)?;
            }
            Ok(())
        })
    });
    // Or in another attempt, which comes after one that has published and then lacked something.
    assert_is_misuse(|| {
        let mut stored = [None];
        engine.run(Way::Names, |context| {
            let root = root(context)?;
            if stored[0].is_none() {
                stored[0] = Some(successor(context, b"first")?);
            }
            let change = context.look_at(root, b"again")?;
            context.change_together(root, &mut [change], &mut stored)?;
            Err(Need::Again.into())
        })
    });
    let there: [(&str, &[u8]); 3] = [
        ("before", b"there"),
        ("twice", b"once"),
        ("again", b"first"),
    ];
    assert_goes_on(&pool, &engine, &there);
}

#[test]
fn the_controller_is_not_asked_inside_an_operation() {
    let pool = TestPool::new(POOL);
    let engine = engine(&pool);
    set(&engine, b"before", b"there").expect("set");
    assert_is_misuse(|| {
        engine.run(Way::Names, |context| {
            let root = root(context)?;
            let _locked = context.lock_now(root.inode())?;
            context.begin_change(&root)?;
            // It would wait for a fold, and the fold for it.
            ownership::commit(context.session, &[ROOT_INODE], false)?;
            Ok(())
        })
    });
    // Outside of one it may be.
    ownership::commit(engine.session, &[ROOT_INODE], false).expect("a fold");
    assert_goes_on(&pool, &engine, &[("before", b"there")]);
}
