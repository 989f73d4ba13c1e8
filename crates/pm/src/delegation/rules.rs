//! The rules that rings, slots and sleeping keep, each with a name, so that the model check can break it and see that it is missed.
//!
//! # Invariants
//! * All rules hold in what is built for use: [`Rules::hold`] is a constant there.

/// A rule. What is said is what holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// A slot is taken by an exchange.
    TakesSlotByExchange,
    /// What stands in a place is written before the place is ready.
    WritesBeforeReady,
    /// A piece is taken by an exchange of its place's state.
    TakesByExchange,
    /// A place is free when it has been read.
    ReadsBeforeFreeing,
    /// A piece is counted before it can be taken.
    CountsBeforeHandingOver,
    /// Whoever hands over changes the word first, and looks afterwards whether somebody sleeps on it.
    ChangesBeforeWakingDelegates,
    /// And a delegate does, of those who wait for what it has done.
    ChangesBeforeWakingAsker,
    /// A delegate looks at the word first, and for pieces afterwards.
    SeesBeforeLooking,
    /// A delegate says that it sleeps before it does.
    DelegateSaysThatItSleeps,
    /// And so does who waits.
    AskerSaysThatItSleeps,
    /// Who waits sleeps only on the number of pieces that it has seen before it said so.
    SleepsOnWhatWasSeen,
    /// Who waits for a place looks for one after it has seen how many pieces are left.
    LooksForPlaceAgain,
    /// What is written is durable before its slot is told.
    DurableBeforeTelling,
    /// What has failed is said before its slot is told.
    FailsBeforeTelling,
    /// All batches are over before the threads are told to end.
    BatchesBeforeEnd,
    /// That the threads are to end is said before they are woken.
    EndsBeforeWaking,
    /// All of them are woken then.
    WakesAllAtEnd,
    /// A place at a gate is taken by an exchange.
    TakesPlaceByExchange,
    /// Who waits at a gate says so.
    SaysThatItWaits,
    /// And that it is to be woken, whoever else was.
    AsksToBeWoken,
    /// It has seen the word on which it sleeps before that.
    SeesTurnBeforeAsking,
    /// And looks for a place after that.
    LooksBeforeWaiting,
    /// Who looks says that it does.
    SaysThatItLooks,
    /// Who has waited wakes the next one where there is another place.
    WakesNext,
    /// That not all want the same number there is known.
    KnowsThatSomeDiffer,
    /// Who leaves looks afterwards whether somebody sleeps.
    LeavesBeforeLooking,
}

/// Which rules hold.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rules {
    #[cfg(all(test, shuttle))]
    broken: Option<Rule>,
}

impl Rules {
    #[cfg(all(test, shuttle))]
    pub(super) fn without(broken: Option<Rule>) -> Rules {
        Rules { broken }
    }

    #[cfg(all(test, shuttle))]
    pub(super) fn hold(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    #[cfg(not(all(test, shuttle)))]
    #[inline(always)]
    pub(super) const fn hold(self, _rule: Rule) -> bool {
        true
    }
}
