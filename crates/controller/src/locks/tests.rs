use super::*;
use proptest::prelude::*;

const BYTES: u64 = 24;

/// A session of a user of its own.
fn asker(session: SessionNumber) -> Asker {
    let user = 1000 + session;
    Asker { session, user }
}

/// How many locks there are, as they are counted: of each session, of its user, and of both.
fn counted(table: &LockTable) -> BTreeMap<SessionNumber, [usize; 4]> {
    let kept = table.counts.by_keeper.iter();
    kept.map(|(keeper, kept)| {
        let Keeper::Session(session) = *keeper else {
            panic!("{keeper:?}");
        };
        let user = asker(session).user;
        let of_both = table.counts.by_user_and_inode[&(user, 5)];
        let counts = [
            kept.total,
            kept.by_inode[&5],
            table.counts.by_user[&user],
            of_both,
        ];
        (session, counts)
    })
    .collect()
}

/// The same, as they are.
fn held(table: &LockTable) -> BTreeMap<SessionNumber, [usize; 4]> {
    let mut counts = BTreeMap::new();
    for (of, _) in table.all() {
        let [all, ..] = counts.entry(of.session).or_insert([0; 4]);
        *all += 1;
    }
    counts.values_mut().for_each(|all| *all = [all[0]; 4]);
    counts
}

/// The naive model: for each byte, who holds it how.
type Model = HashMap<(u32, u8, u64), [LockMode; BYTES as usize]>;

fn range(start: u64, end: u64, mode: LockMode, family: u8, owner: u64) -> LockRange {
    LockRange {
        inode: 5,
        mode,
        start,
        end,
        holder: LockHolder {
            family,
            owner,
            process: 1,
        },
    }
}

fn modes() -> impl Strategy<Value = LockMode> {
    prop_oneof![
        Just(LockMode::Unlock),
        Just(LockMode::Shared),
        Just(LockMode::Exclusive)
    ]
}

proptest! {
    #[test]
    fn equals_a_map_from_bytes(operations in prop::collection::vec(
        (1u32..3, 0u8..3, 0u64..2, 0..BYTES, 1..BYTES, modes(), 0u8..20), 1..80)) {
        let mut table = LockTable::default();
        let mut model = Model::new();
        for (session, family, owner, start, length, mode, special) in operations {
            if special == 0 {
                table.drop_session(session);
                model.retain(|key, _| key.0 != session);
                continue;
            }
            if special == 1 {
                let holder = LockHolder { family, owner, process: 1 };
                table.drop_holder(session, if start % 2 == 0 { 0 } else { 5 }, &holder);
                model.remove(&(session, family, owner));
                continue;
            }
            let end = (start + length).min(BYTES);
            let wanted = range(start, end, mode, family, owner);
            let key = (session, family, owner);
            let conflict = mode != LockMode::Unlock && model.iter().any(|(other, bytes)| {
                *other != key && (other.1 == 2) == (family == 2)
                    && bytes[start as usize..end as usize].iter().any(|&held| {
                        held == LockMode::Exclusive
                            || (held == LockMode::Shared && mode == LockMode::Exclusive)
                    })
            });
            prop_assert_eq!(table.test(session, &wanted).is_some(), conflict);
            prop_assert_eq!(table.set(asker(session), &wanted).is_err(), conflict);
            if !conflict {
                let bytes = model.entry(key).or_insert([LockMode::Unlock; BYTES as usize]);
                bytes[start as usize..end as usize].fill(mode);
            }
            // The table, byte by byte, is the model; and it is as short as can be.
            let mut seen = Model::new();
            for (holder, held) in table.by_inode.get(&5).into_iter().flat_map(OfInode::all) {
                let Keeper::Session(number) = holder.keeper else {
                    panic!("{held:?}");
                };
                let key = (number, held.range.holder.family, held.range.holder.owner);
                let bytes = seen.entry(key).or_insert([LockMode::Unlock; BYTES as usize]);
                for byte in held.range.start..held.range.end {
                    prop_assert_eq!(bytes[byte as usize], LockMode::Unlock);
                    bytes[byte as usize] = held.range.mode;
                }
                if held.range.start > 0 {
                    let joins = table.by_inode[&5].all().any(|(other, beside)| {
                        other == holder
                            && beside.range.end == held.range.start
                            && beside.range.mode == held.range.mode
                    });
                    prop_assert!(!joins);
                }
            }
            let unlocked = |bytes: &[LockMode]| bytes.iter().all(|&m| m == LockMode::Unlock);
            model.retain(|_, bytes| !unlocked(&bytes[..]));
            prop_assert_eq!(&seen, &model);
            prop_assert_eq!(&counted(&table), &held(&table));
        }
    }
}

#[test]
fn locks_of_a_shared_description_end_with_it() {
    let mut table = LockTable::default();
    let exclusive = LockMode::Exclusive;
    let shared = |family, name| range(0, 10, exclusive, family, name);
    assert_eq!(table.set(asker(1), &shared(4, 77)), Err(Errno::BADF));
    // Taken before it was shared, by flock and by fcntl.
    table.set(asker(1), &range(0, 10, exclusive, 2, 9)).unwrap();
    table.set(asker(1), &range(0, 10, exclusive, 1, 9)).unwrap();
    table
        .set(asker(1), &range(20, 30, exclusive, 1, 8))
        .unwrap();
    table.share(1, 5, 77, 9).unwrap();
    assert_eq!(table.share(2, 6, 77, 0), Err(Errno::INVAL));
    assert_eq!(table.share(2, 5, 77, 9), Ok(()));
    // It is nobody's own any more, and everybody's who knows the name.
    assert_eq!(
        table.set(asker(1), &range(0, 10, exclusive, 2, 9)),
        Err(Errno::AGAIN)
    );
    assert_eq!(table.set(asker(2), &shared(4, 77)), Ok(()));
    assert_eq!(table.set(asker(3), &shared(3, 77)), Ok(()));
    table.drop_session(1);
    table.drop_session(2);
    let other = range(0, 10, exclusive, 2, 1);
    let found = table.test(4, &other).unwrap();
    assert_eq!((found.holder.family, found.holder.owner), (4, 77));
    assert_eq!(table.test(4, &range(25, 26, exclusive, 0, 1)), None);
    // Unlocked by another session than the one that locked.
    let unlock = range(0, 10, LockMode::Unlock, 4, 77);
    table.set(asker(3), &unlock).unwrap();
    assert_eq!(table.test(4, &other), None);
    assert!(table.test(4, &range(0, 1, exclusive, 0, 1)).is_some());
    table.closed(77);
    assert!(table.by_inode.is_empty() && table.shared.is_empty());
    assert_eq!(table.set(asker(3), &shared(4, 77)), Err(Errno::BADF));
    assert!(table.counts.by_keeper.is_empty() && table.counts.by_user.is_empty());
    assert!(table.counts.by_user_and_inode.is_empty());
}

#[test]
fn who_waits_in_a_circle_is_told() {
    let mut table = LockTable::default();
    let now = Instant::now();
    let lock = |at, mode, owner| range(at, at + 1, mode, 0, owner);
    let (exclusive, shared) = (LockMode::Exclusive, LockMode::Shared);
    for session in 1..5 {
        let at = u64::from(session);
        table.set(asker(session), &lock(at, exclusive, at)).unwrap();
    }
    let again = Err(Errno::AGAIN);
    // Four in a row, of whom the last would close the circle, however often it asks.
    assert_eq!(table.wait(asker(1), &lock(2, exclusive, 1), now), again);
    assert_eq!(table.wait(asker(2), &lock(3, shared, 2), now), again);
    assert_eq!(table.wait(asker(3), &lock(4, exclusive, 3), now), again);
    for _ in 0..2 {
        assert_eq!(
            table.wait(asker(4), &lock(1, exclusive, 4), now),
            Err(Errno::DEADLK)
        );
    }
    // Not if it does not wait, and not if one of the others has stopped or been away.
    assert_eq!(table.set(asker(4), &lock(1, exclusive, 4)), again);
    table.stop_waiting(2, &lock(3, shared, 2));
    assert_eq!(table.wait(asker(4), &lock(1, exclusive, 4), now), again);
    assert_eq!(
        table.wait(asker(2), &lock(3, shared, 2), now),
        Err(Errno::DEADLK)
    );
    let later = now + WAITING;
    assert_eq!(table.wait(asker(2), &lock(3, shared, 2), later), again);
    table.stop_waiting(2, &lock(3, shared, 2));
    assert_eq!(table.wait(asker(4), &lock(1, exclusive, 4), later), again);
    assert_eq!(table.wait(asker(3), &lock(4, exclusive, 3), later), again);
    assert_eq!(
        table.wait(asker(1), &lock(3, exclusive, 1), later),
        Err(Errno::DEADLK)
    );
    table.drop_session(4);
    assert_eq!(table.wait(asker(3), &lock(4, exclusive, 3), later), Ok(()));
    assert_eq!(table.wait(asker(1), &lock(3, exclusive, 1), later), again);
    // What a session says that it waits for takes no more room than this.
    for at in 0..2 * NOTED_MAX as u64 {
        let holder = LockHolder {
            family: 0,
            owner: 50 + at,
            process: 1,
        };
        let wanted = LockRange {
            holder,
            ..lock(2, exclusive, 0)
        };
        assert_eq!(table.wait(asker(5), &wanted, later), again);
    }
    assert!(table.waiting[&5].len() <= NOTED_MAX);
    table.drop_session(5);
    // A lock of a description is nobody's whom one could wait for in a circle.
    table.set(asker(2), &range(9, 10, exclusive, 1, 1)).unwrap();
    assert_eq!(table.wait(asker(3), &lock(9, exclusive, 3), later), again);
}

/// What a request looks at.
fn cost(table: &mut LockTable, request: impl FnOnce(&mut LockTable)) -> u64 {
    let before = table.looked.get();
    request(table);
    table.looked.get() - before
}

fn shared_at(at: u64, owner: u64) -> LockRange {
    range(at, at + 1, LockMode::Shared, 0, owner)
}

#[test]
fn a_request_looks_at_what_overlaps_however_much_is_held_beside_it() {
    let mut table = LockTable::default();
    // One holder, as many as it gets, none beside another.
    let mut count = 0;
    let refused = loop {
        match table.set(asker(1), &shared_at(2 * count, 1)) {
            Ok(()) => count += 1,
            Err(errno) => break errno,
        }
    };
    assert_eq!((refused, count), (Errno::NOLCK, LOCKS_MAX as u64));
    let middle = LOCKS_MAX as u64;
    for at in [0, middle, 2 * middle, 1 << 40] {
        let exclusive = range(at + 1, at + 2, LockMode::Exclusive, 0, 7);
        for wanted in [exclusive, shared_at(at, 7), shared_at(at + 1, 7)] {
            assert!(
                cost(&mut table, |t| _ = t.test(2, &wanted)) <= 4,
                "{wanted:?}"
            );
            assert!(cost(&mut table, |t| t.set(asker(2), &wanted).unwrap()) <= 8);
            let unlock = LockRange {
                mode: LockMode::Unlock,
                ..wanted
            };
            assert!(cost(&mut table, |t| t.set(asker(2), &unlock).unwrap()) <= 8);
        }
        // The holder itself, who can split and join what it has.
        let unlock = range(at, at + 1, LockMode::Unlock, 0, 1);
        assert!(cost(&mut table, |t| t.set(asker(1), &unlock).unwrap()) <= 8);
    }
    // Who wants all of it may have to look at all of it, and at each once.
    let all = range(0, u64::MAX, LockMode::Shared, 0, 7);
    assert!(cost(&mut table, |t| t.set(asker(2), &all).unwrap()) <= 2 * LOCKS_MAX as u64);
}

#[test]
fn a_user_has_no_more_locks_of_an_inode_than_that_however_many_sessions() {
    let mut table = LockTable::default();
    let user = 7;
    let mut count = 0;
    let mut session = 1;
    loop {
        let asker = Asker { session, user };
        match table.set(asker, &shared_at(2 * count, 1)) {
            Ok(()) => count += 1,
            Err(Errno::NOLCK) if table.counts.by_user[&user] < INODE_MAX => session += 1,
            Err(errno) => break assert_eq!(errno, Errno::NOLCK),
        }
    }
    assert_eq!(count, INODE_MAX as u64);
    // Of other inodes it may have more, up to what a user may have at all.
    session += 1;
    let mut inode = 6;
    loop {
        let wanted = LockRange {
            inode,
            ..shared_at(2 * count, 1)
        };
        let full = table.counts.by_user_and_inode.get(&(user, inode)) == Some(&INODE_MAX);
        match table.set(Asker { session, user }, &wanted) {
            Ok(()) => count += 1,
            Err(Errno::NOLCK) if table.counts.by_user[&user] == USER_MAX => break,
            Err(Errno::NOLCK) if full => inode += 1,
            Err(Errno::NOLCK) => session += 1,
            Err(errno) => panic!("{errno}"),
        }
    }
    assert_eq!(count, USER_MAX as u64);
    // Others are none the worse for it.
    let other = Asker {
        session: 1000,
        user: 8,
    };
    let exclusive = range(0, 1, LockMode::Exclusive, 0, 1);
    assert_eq!(table.set(other, &shared_at(0, 1)), Ok(()));
    // It is told at once that it cannot have it: the first that is found is enough.
    assert!(
        cost(&mut table, |t| assert_eq!(
            t.set(other, &exclusive),
            Err(Errno::AGAIN)
        )) <= 8
    );
    assert!(cost(&mut table, |t| _ = t.test(1000, &exclusive)) <= 8);
}

#[test]
fn looking_for_a_circle_ends() {
    let mut table = LockTable::default();
    let now = Instant::now();
    let exclusive = |at, owner| range(at, at + 1, LockMode::Exclusive, 0, owner);
    // Everybody has a lock that all others wait for.
    let sessions = 1..=60u32;
    for session in sessions.clone() {
        for owner in 0..100 {
            table.set(asker(session), &shared_at(0, owner)).unwrap();
        }
    }
    let mut most = 0;
    for session in sessions {
        for owner in 0..100 {
            let spent = cost(&mut table, |t| {
                let _ = t.wait(asker(session), &exclusive(0, owner), now);
            });
            most = most.max(spent);
        }
    }
    let allowed = CIRCLE_MAX + 60 * 100;
    assert!((CIRCLE_MAX..allowed).contains(&most), "{most}, {allowed}");
    // Two who wait for each other elsewhere are found all the same.
    let (one, two) = (asker(101), asker(102));
    table.set(one, &exclusive(10, 1)).unwrap();
    table.set(two, &exclusive(20, 2)).unwrap();
    assert_eq!(table.wait(one, &exclusive(20, 1), now), Err(Errno::AGAIN));
    assert_eq!(table.wait(two, &exclusive(10, 2), now), Err(Errno::DEADLK));
}
