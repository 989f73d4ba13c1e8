//! What runs in one execution of the model, and what must be true at its end.

use crate::controller::Controller;
use crate::ledger::Ledger;
use crate::libfs::{Auxiliary, Thread, Want};
use crate::memory::{Effect, Memory, Sizes};
use crate::service::{Channel, Rings};
use arck_core_state::InodeNumber;
use shuttle::sync::Mutex;
use std::collections::BTreeSet;
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
    // In the controller.
    DoesNotMark,
    /// And keeps no receipt.
    DoesNotWait,
    CopiesBeforeWaiting,
    KeepsFoldNumber,
    UnmarksBeforeFoldNumber,
    DropsReceiptWhenLeft,
    ReusesSlotAtOnce,
    KeepsSequenceEven,
    SleepsWithoutLooking,
}

/// What a thread does.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Operate(InodeNumber, Want),
    /// Inode, and whether to give it up.
    Commit(InodeNumber, bool),
    Look(InodeNumber),
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
            tail: 12,
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
            self.refusals,
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
                let mut thread = Thread {
                    memory: Arc::clone(&memory),
                    ledger: Arc::clone(&ledger),
                    channel: Arc::clone(&channel),
                    auxiliary: Arc::clone(&auxiliary),
                    session,
                    thread,
                    mutation: self.mutation,
                    tail: 0,
                };
                threads.push(shuttle::thread::spawn(move || {
                    for action in *script {
                        match *action {
                            Action::Operate(inode, want) => thread.operate(inode, want),
                            Action::Commit(inode, release) => thread.commit(inode, release),
                            Action::Look(inode) => thread.look(inode),
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
    for inode in memory.inodes() {
        let header = memory.header(inode);
        assert!(!header.ownership().is_marked(), "a mark is left behind");
        let of_inode = |set: &BTreeSet<(InodeNumber, Effect)>| -> BTreeSet<Effect> {
            let own = set.iter().filter(|(of, _)| *of == inode);
            own.map(|(_, effect)| *effect).collect()
        };
        let mut effects = of_inode(&notes.applied);
        if let Some(owner) = (header.ownership().session() as usize).checked_sub(1) {
            for (_, word) in memory.delta(owner, inode).into_iter().flatten() {
                if let Some(effect) = Effect::of(word) {
                    let is_new = effects.insert(effect);
                    assert!(
                        is_new,
                        "inode {inode}: {effect:?} is folded and in the delta"
                    );
                }
            }
        }
        let promised = of_inode(&notes.acknowledged);
        assert_eq!(
            effects, promised,
            "inode {inode}: what is there, what was promised"
        );

        let expected: Vec<usize> = (0..values)
            .filter(|&value| {
                notes.applied.contains(&(inode, Effect::Add(value)))
                    && !notes.applied.contains(&(inode, Effect::Remove(value)))
            })
            .collect();
        assert_eq!(memory.verified(inode).read(header), expected);
    }
}
