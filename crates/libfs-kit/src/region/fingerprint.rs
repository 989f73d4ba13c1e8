//! Fingerprints of what processes share in a region: a member that was built otherwise finds that out before it looks
//! at anything, instead of taking one structure for another.
//!
//! Invariant: a fingerprint is of the sources of the structures, so any change of them makes another one. It may differ
//! where nothing has changed that matters; then a program starts with an error, and not with another one's memory.

/// Of these sources, in this order.
pub const fn of(sources: &[&[u8]]) -> u32 {
    // FNV-1a, with the length of each part.
    let mut hash: u32 = 0x811c_9dc5;
    let mut source = 0;
    while source < sources.len() {
        let bytes = sources[source];
        let mut at = 0;
        while at < bytes.len() {
            hash = (hash ^ bytes[at] as u32).wrapping_mul(0x0100_0193);
            at += 1;
        }
        hash = (hash ^ bytes.len() as u32).wrapping_mul(0x0100_0193);
        source += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::of;

    #[test]
    fn what_differs_has_another() {
        let all: &[&[&[u8]]] = &[
            &[],
            &[b""],
            &[b"a"],
            &[b"b"],
            &[b"ab"],
            &[b"a", b"b"],
            &[b"b", b"a"],
        ];
        for (place, one) in all.iter().enumerate() {
            assert_eq!(of(one), of(one));
            assert!(
                all[..place].iter().all(|other| of(other) != of(one)),
                "{one:?}"
            );
        }
    }
}
