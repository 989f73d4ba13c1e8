//! What runs in one execution of the model, and what must be true at its end.

use crate::controller::Controller;
use crate::ledger::Ledger;
use crate::libfs::{Auxiliary, Thread, Want};
use crate::memory::{Effect, Memory, Sizes};
use crate::service::{Channel, Rings};
use arck_core_state::InodeNumber;
use shuttle::sync::Mutex;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// One thing that is done wrong, to see that the checker notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mutation {
    #[default]
    None,
    // In a LibFS.
    NoFirstCheck,
    NoSecondCheck,
    /// Takes a fold that ends between the two loads of the check for none.
    LoadsFoldNumberFirst,
    EntersAfterCheck,
    LeavesBeforePublishing,
    DecidesByVerifiedState,
    /// Without looking whether the inode is still its own.
    TakesSlotFromHeader,
    /// What stands in one inode's delta although another inode of the operation was folded.
    LeavesHalfStanding,
    /// And leaves half an operation to a fold of the first inode that waits for it to be left.
    TakesBackOnlyWhatHolds,
    /// Also when it has come in once more, for which no fold has waited.
    TakesBackBeneathMarks,
    /// Takes "everything was folded" for an answer about what it has taken back.
    ForgetsTakingBack,
    // In the controller.
    DoesNotMark,
    /// And keeps no fold copy.
    DoesNotWait,
    CopiesBeforeWaiting,
    /// Of operations in flight, when it marks what must come along.
    KeepsStraddledCopies,
    /// Of an operation on two inodes.
    LeavesPartnersOut,
    KeepsFoldNumber,
    UnmarksBeforeFoldNumber,
    DropsFoldCopyWhenLeft,
    ReusesSlotAtOnce,
    KeepsSequenceEven,
    SleepsWithoutLooking,
    // Of what is sealed: in a LibFS.
    /// A record of the sealed delta is taken back in its place.
    EditsSealedInPlace,
    ReusesPagesOfSealed,
    /// Takes what is sealed for folded.
    DropsSealedEarly,
    // In the controller.
    /// The owner goes on under the number that is being sealed.
    UnmarksBeforeSeal,
    /// In more than one step: a failure between finds a new number and nothing sealed.
    SealsWithoutJournal,
    /// The slot of what is sealed is that of what comes next, too.
    SealsInPlace,
    /// Of an operation on two inodes; the other goes on under its number.
    SealsOneOfTwo,
    SealsWhatStraddles,
    UnsealsBeforeApplying,
    /// The next controller, of what another one has sealed that died.
    NextForgetsSealed,
    // In a recovery after a failure of the machine.
    RecoversActiveFirst,
    RecoveryForgetsSealed,
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Operate(InodeNumber, Want),
    /// Inode, and whether to give it up.
    Commit(InodeNumber, bool),
    Look(InodeNumber),
    /// By who owns it, of what he has done.
    LookAtOwn(InodeNumber),
}

/// A session's thread.
pub type Script = &'static [Action];

/// Who does what.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub inodes: usize,
    /// Of each session, its threads.
    pub sessions: &'static [&'static [Script]],
    /// Requests go through rings of so many slots.
    pub rings: Option<usize>,
    /// Folds that may be refused.
    pub refusals: u32,
    /// Folds may seal, and the machine may fail anywhere.
    pub seals: bool,
    pub mutation: Mutation,
}

impl Scenario {
    pub const fn with(self, mutation: Mutation) -> Scenario {
        Scenario { mutation, ..self }
    }

    fn sizes(&self) -> Sizes {
        let threads = self.sessions.iter().map(|threads| threads.len());
        let actions = self
            .sessions
            .iter()
            .flat_map(|threads| threads.iter())
            .flat_map(|s| s.iter());
        let operations = actions.filter(|a| matches!(a, Action::Operate(..))).count();
        Sizes {
            inodes: self.inodes,
            sessions: self.sessions.len(),
            threads: threads.max().unwrap_or(0),
            values: operations,
            fields: operations,
            // An attempt takes a place even if it is missed.
            tail: if self.inodes == 1 { 12 } else { 24 },
        }
    }

    /// One execution.
    pub fn run(&self) {
        let sizes = self.sizes();
        let memory = Arc::new(Memory::new(&sizes));
        let ledger = Arc::new(Ledger::default());
        let mut controller = Controller::new(
            Arc::clone(&memory),
            Arc::clone(&ledger),
            self.mutation,
            (self.refusals, self.seals),
        );
        let mut service = None;
        let channel = match self.rings {
            None => Arc::new(Channel::Direct(Mutex::new(controller))),
            Some(slots) => {
                let careless = self.mutation == Mutation::SleepsWithoutLooking;
                let rings = Rings::new(sizes.sessions, slots, careless);
                let channel = Arc::new(Channel::Rings(rings));
                let of_service = Arc::clone(&channel);
                service = Some(shuttle::thread::spawn(move || {
                    if let Channel::Rings(rings) = &*of_service {
                        rings.run(|session, request| controller.serve(session, request));
                    }
                }));
                channel
            }
        };
        let mut threads = Vec::new();
        for (session, scripts) in self.sessions.iter().enumerate() {
            let auxiliary = Arc::new(Auxiliary::new(sizes.inodes));
            for (thread, script) in scripts.iter().enumerate() {
                let thread = Thread {
                    memory: Arc::clone(&memory),
                    ledger: Arc::clone(&ledger),
                    channel: Arc::clone(&channel),
                    auxiliary: Arc::clone(&auxiliary),
                    session,
                    thread,
                    mutation: self.mutation,
                    tail: Cell::new(0),
                    used: RefCell::default(),
                    added: RefCell::default(),
                    seals: self.seals,
                };
                threads.push(shuttle::thread::spawn(move || {
                    for action in *script {
                        match *action {
                            Action::Operate(inode, want) => thread.operate(inode, want),
                            Action::Commit(inode, release) => thread.commit(inode, release),
                            Action::Look(inode) => thread.look(inode),
                            Action::LookAtOwn(inode) => thread.look_at_own(inode),
                        }
                    }
                }));
            }
        }
        for thread in threads {
            thread.join().expect("a thread of the model failed");
        }
        if let (Channel::Rings(rings), Some(service)) = (&*channel, service) {
            rings.end();
            service.join().expect("the controller failed");
        }
        check_end(&memory, &ledger, sizes.values);
    }
}

/// Every acknowledged effect is there exactly once, in the verified state or in the delta of the
/// owner; and nothing else is.
fn check_end(memory: &Memory, ledger: &Ledger, values: usize) {
    let notes = ledger.notes();
    let mut there = notes.applied.clone();
    for inode in memory.inodes() {
        let header = memory.header(inode);
        assert!(!header.ownership().is_marked(), "a mark is left behind");
        let sealed = header.sealed();
        assert_eq!(sealed, 0, "what is sealed was forgotten, what was promised");
        let Some(owner) = (header.ownership().session() as usize).checked_sub(1) else {
            continue;
        };
        let delta = memory.delta(owner, inode).into_iter().flatten();
        for part in delta.filter_map(|(_, word)| Effect::of(word)) {
            for (of, effect) in part.parts(inode) {
                let session = memory.header(of).ownership().session() as usize;
                assert_eq!(session, owner + 1, "{part:?} can never be folded");
                let is_new = there.insert((of, effect));
                assert!(is_new, "inode {of}: {effect:?} is folded and in the delta");
            }
        }
    }
    assert_eq!(
        there, notes.acknowledged,
        "what is there, what was promised"
    );

    for inode in memory.inodes() {
        let expected: Vec<usize> = (0..values)
            .filter(|&value| {
                notes.applied.contains(&(inode, Effect::Add(value)))
                    && !notes.applied.contains(&(inode, Effect::Remove(value)))
            })
            .collect();
        let values = memory.verified(inode).read(memory.header(inode));
        assert_eq!(values, expected, "inode {inode}");
    }
}
