//! What hand-overs took and moved, as the controller measured it for whoever asked
//! ([`Call::Measure`](crate::socket::Call::Measure)).
//!
//! Invariant: all are sums since the last answer, except `received` and `answered`.

use crate::wire::{Malformed, Reader, Writer};

/// Times in nanoseconds, by CLOCK_MONOTONIC; counts of what was moved and looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandOvers {
    /// Requests to acquire, recall or commit that were answered.
    pub requests: u64,
    /// When the last of them was taken from its slot, and when it was answered; 0 = none was.
    pub received: u64,
    pub answered: u64,
    /// Waiting for leases, and for those who asked before.
    pub deferred: u64,
    /// Barriers, and operations in flight.
    pub wait: u64,
    pub copy: u64,
    /// Finding what must come along is part of it.
    pub verify: u64,
    /// Preparing the change, the journal entry, applying it.
    pub fold: u64,
    /// Storing the new owner.
    pub grant: u64,
    /// Folds, those included that found nothing.
    pub folds: u64,
    /// Bytes copied from arenas: branches and delta pages.
    pub bytes_copied: u64,
    /// Looks at pages of verified metadata, those of one page all counted.
    pub pages_read: u64,
    /// Names added and removed, pages of files, births, changes of links: what the verifier let
    /// pass.
    pub records: u64,
    /// Journal entries.
    pub bytes_journaled: u64,
}

/// Numbers in a message.
const FIELDS: usize = 14;

impl HandOvers {
    fn words(&mut self) -> [&mut u64; FIELDS] {
        [
            &mut self.requests,
            &mut self.received,
            &mut self.answered,
            &mut self.deferred,
            &mut self.wait,
            &mut self.copy,
            &mut self.verify,
            &mut self.fold,
            &mut self.grant,
            &mut self.folds,
            &mut self.bytes_copied,
            &mut self.pages_read,
            &mut self.records,
            &mut self.bytes_journaled,
        ]
    }

    pub(crate) fn encode(&self, writer: &mut Writer<'_>) -> Result<(), Malformed> {
        let mut copy = *self;
        copy.words()
            .into_iter()
            .try_for_each(|word| writer.u64(*word))
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<HandOvers, Malformed> {
        let mut all = HandOvers::default();
        for word in all.words() {
            *word = reader.u64()?;
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_has_its_place() {
        let mut all = HandOvers::default();
        for (value, word) in (1..).zip(all.words()) {
            *word = value;
        }
        let mut buffer = [0; 8 * FIELDS];
        let mut writer = Writer::new(&mut buffer);
        all.encode(&mut writer).unwrap();
        assert_eq!(writer.used(), size_of::<HandOvers>());
        assert_eq!(HandOvers::decode(&mut Reader::new(&buffer)), Ok(all));
        assert!(HandOvers::decode(&mut Reader::new(&buffer[1..])).is_err());
    }
}
