//! Where files are mapped in a traced process, as its trace tells: for replays.
//!
//! Invariant: no two ranges overlap; a later mapping takes the place of what it covers of earlier
//! ones.

/// Mappings of files; `F` says which file.
#[derive(Debug, Clone)]
pub struct TracedMaps<F>(Vec<Range<F>>);

#[derive(Debug, Clone)]
struct Range<F> {
    address: u64,
    len: u64,
    file: F,
    /// Of its first byte, in the file.
    offset: u64,
}

impl<F> Default for TracedMaps<F> {
    fn default() -> TracedMaps<F> {
        TracedMaps(Vec::new())
    }
}

impl<F: Copy> TracedMaps<F> {
    /// `len` bytes from `address` on are a mapping of `file` from byte `offset` on.
    pub fn map(&mut self, address: u64, len: u64, file: F, offset: u64) {
        self.unmap(address, len);
        self.0.push(Range {
            address,
            len,
            file,
            offset,
        });
    }

    /// Nothing is mapped in `len` bytes from `address` on.
    pub fn unmap(&mut self, address: u64, len: u64) {
        let end = address.saturating_add(len);
        let cut = |range: Range<F>| {
            let range_end = range.address + range.len;
            let below = address.clamp(range.address, range_end);
            let above = end.clamp(range.address, range_end);
            let part = |from: u64, to: u64| Range {
                address: from,
                len: to - from,
                offset: range.offset + (from - range.address),
                ..range
            };
            let parts = [
                part(range.address, below),
                part(above.max(below), range_end),
            ];
            parts.into_iter().filter(|part| part.len != 0)
        };
        self.0 = std::mem::take(&mut self.0)
            .into_iter()
            .flat_map(cut)
            .collect();
    }

    /// The file that is mapped at an address, and which byte of it is there.
    pub fn locate(&self, address: u64) -> Option<(F, u64)> {
        let mut ranges = self.0.iter();
        let range =
            ranges.find(|range| range.address <= address && address - range.address < range.len)?;
        Some((range.file, range.offset + (address - range.address)))
    }

    /// Nothing is mapped.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_mappings_cut_earlier_ones() {
        let mut maps = TracedMaps::default();
        maps.map(100, 100, 'a', 1000);
        maps.map(140, 20, 'b', 0);
        let found = [99, 100, 139, 140, 159, 160, 199, 200].map(|at| maps.locate(at));
        let wanted = [
            None,
            Some(('a', 1000)),
            Some(('a', 1039)),
            Some(('b', 0)),
            Some(('b', 19)),
            Some(('a', 1060)),
            Some(('a', 1099)),
            None,
        ];
        assert_eq!(found, wanted);
        maps.unmap(0, 150);
        maps.unmap(190, u64::MAX);
        let found = [149, 150, 189, 190].map(|at| maps.locate(at));
        let wanted = [None, Some(('b', 10)), Some(('a', 1089)), None];
        assert_eq!(found, wanted);
        maps.clear();
        assert_eq!(maps.locate(150), None);
    }
}
