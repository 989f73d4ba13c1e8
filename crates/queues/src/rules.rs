//! The rules that requests are ordered by, each with a name, so that tests can break it and see that it is missed.
//!
//! # Invariants
//! * All rules hold in what is built for use: [`Rules::hold`] is a constant there.

/// A rule. What is said is what holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A request waits for earlier ones that it overlaps, if one of both writes.
    WaitsForOverlapping,
    /// A write behind the file's end overlaps reads of what lies between.
    LengthensForReaders,
    /// A sync or an append waits for all earlier ones.
    BarrierWaits,
    /// All later ones wait for a sync or an append.
    LaterWaitForBarrier,
    /// When a barrier is taken back, whoever waits for barriers waits for the one before it.
    WaitsForBarrierBefore,
    /// And the next barrier waits for what that one had waited for.
    NextBarrierWaitsForMore,
    /// A write before a barrier is not covered by one behind it.
    CoversNothingBeforeBarrier,
    /// A write that somebody waits for is not covered, unless by a write that is covered as well.
    CoversWhatNobodyNeeds,
    /// A write that has begun is not covered.
    CoversOnlyQueued,
    /// A covered write is done after all when the covering one was not.
    DoesCoveredAfterAll,
    /// And what waits for the covering one waits for it.
    LaterWaitForUncovered,
    /// And where a part of that was written, only behind this part.
    KeepsWhatCoveringWrote,
    /// What is said to have been done in place of a covered write was done.
    NamesWhatWasDone,
    /// A covered write completes when the covering one does.
    CoveredCompletesLater,
    /// What a write that goes away while it is covered had covered, the covering one covers from then on.
    PassesCoveredOn,
    /// A read is served from the last write before it.
    ServesFromLast,
    /// A write that a read was served from is done, whoever wants to cancel it.
    KeepsWhatWasSeen,
    /// What runs is not cancelled.
    CancelsOnlyQueued,
    /// A write that is spooled is done, whoever wants to cancel it.
    KeepsWhatIsSpooled,
    /// And is not covered.
    CoversNothingSpooled,
    /// Whoever leaves work wakes one who sleeps.
    WakesWorkers,
    /// A thread that does what its queue has ready leaves that to workers when it sleeps or goes.
    LendsOnlyAwake,
    /// Whoever waits for completions is woken.
    WakesWaiting,
    /// Whoever has begun something looks after it until it has ended.
    LooksAfterBegun,
    /// A queue that is closed has nothing outstanding.
    CloseWaits,
}

/// Which rules hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    #[cfg(test)]
    broken: Option<Rule>,
}

impl Rules {
    #[cfg(test)]
    pub fn without(broken: Option<Rule>) -> Rules {
        Rules { broken }
    }

    #[cfg(test)]
    pub fn hold(self, rule: Rule) -> bool {
        self.broken != Some(rule)
    }

    #[cfg(not(test))]
    #[inline]
    pub const fn hold(self, _rule: Rule) -> bool {
        true
    }
}
