//! What a forger puts into a field: 0, the greatest, off by one, another inode's, another
//! session's, out of range, cyclic.

use super::fields::Kind;
use super::scene::*;
use arck_core_state::arena::{ARENA_PAGES, DELTA_FIRST};
use arck_core_state::branch::UNCHANGED_TIME;
use arck_core_state::extended;
use arck_core_state::geometry::{FILE_SIZE_MAX, PATH_MAX};
use arck_core_state::index::{HEIGHT_MAX, HOLE, IndexRoot};
use arck_core_state::record::{UNITS_PER_PAGE, effect};
use arck_core_state::{InodeNumber, PAGE_SIZE, ROOT_INODE};

/// What a forger finds in a scene.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// Delta pages that are used, and the first beyond what is allocated.
    pub pages: Vec<u32>,
    pub end: u32,
    /// Units and sequences of records.
    pub units: Vec<u32>,
    pub sequences: Vec<u32>,
    /// Fold numbers of branches.
    pub folds: Vec<u64>,
}

/// Inodes of every sort.
pub const INODES: [InodeNumber; 26] = [
    0,
    ROOT_INODE,
    HOME,
    WORK,
    EMPTY,
    FULL,
    STICKY,
    HANDING,
    LOCKED,
    ELSEWHERE,
    LENT,
    OLD,
    SECOND,
    SHARED,
    THEIRS,
    FOREIGN,
    LINK,
    TAGGED,
    OTHER,
    ORPHAN,
    FOREIGN_ORPHAN,
    FREE,
    NEW,
    NEW + 1,
    GRANTED_TO_OTHER,
    99_999,
];

/// Data pages of every sort: the session's own, free, in use and used by scenes; another
/// session's; metadata; outside the pool.
const DATA_PAGES: [u64; 12] = [
    1,
    PAGES - 1,
    PAGES,
    PAGES + 1,
    PAGES + 2,
    ATTRIBUTES,
    PAGES + 50,
    PAGES + 51,
    PAGES + 60,
    PAGES_OF_OTHER,
    PAGES_OF_OTHER + 9,
    1 << 50,
];

/// The values to try for a field of `width` bytes that holds `now`; without `now`, each once.
pub fn values(kind: Kind, width: u64, now: u64, known: &Known) -> Vec<u64> {
    let greatest = u64::MAX >> (64 - 8 * width);
    let near = [now.wrapping_sub(1), now.wrapping_add(1)];
    let mut values = vec![0, greatest];
    match kind {
        Kind::InodeNumber => {
            values.extend(near);
            values.extend(INODES.map(u64::from));
        }
        Kind::Generation | Kind::Epoch | Kind::Free => values.extend(near),
        Kind::FoldNumber => {
            values.extend(near);
            values.extend(&known.folds);
        }
        Kind::Size => {
            values.extend(near);
            values.extend([1, 5, PAGE_SIZE - 1, PAGE_SIZE, PAGE_SIZE + 1, 3 * PAGE_SIZE]);
            values.extend([PATH_MAX as u64, PATH_MAX as u64 + 1]);
            values.extend([FILE_SIZE_MAX, FILE_SIZE_MAX + 1, u64::MAX - 1, 1 << 63]);
        }
        Kind::IndexRoot => {
            let pointer = IndexRoot(now).pointer();
            for height in (0..=HEIGHT_MAX + 1).chain([255]) {
                values.push(IndexRoot::new(pointer, height).0);
                values.push(IndexRoot::new(known.end.into(), height).0);
                for &page in known.pages.iter().take(3) {
                    values.push(IndexRoot::new(page.into(), height).0);
                }
            }
            values.extend(DATA_PAGES.map(|page| IndexRoot::new(page, 0).0));
            values.push(IndexRoot::hole().0);
        }
        Kind::Leaf => values.extend(DATA_PAGES.into_iter().chain([HOLE, HOLE - 1])),
        Kind::Interior | Kind::ArenaPage => {
            values.extend(near);
            values.extend(known.pages.iter().take(6).map(|&page| u64::from(page)));
            let pages = [
                1,
                DELTA_FIRST - 1,
                known.end - 1,
                known.end,
                ARENA_PAGES - 1,
            ];
            values.extend(pages.map(u64::from));
            values.extend([u64::from(ARENA_PAGES), 1 << 40]);
        }
        Kind::AttributesPage => {
            values.extend(
                DATA_PAGES
                    .into_iter()
                    .chain([u64::from(extended::NONE) - 1]),
            );
        }
        Kind::Time => {
            values.extend(near);
            values.extend([UNCHANGED_TIME as u64, i64::MAX as u64]);
        }
        Kind::Limit => {
            let last = FILE_SIZE_MAX / PAGE_SIZE;
            values.extend([1, 2, 3, last, last + 1, u64::MAX - 1]);
        }
        Kind::Mode => {
            values.extend([0o644, 0o777, 0o1777, 0o2755, 0o4755, 0o7777]);
            values.extend([0o10_000, 0o100_644, 0o40_755, 1 << 31, 1 << 32]);
        }
        Kind::Checksum => values.extend(near),
        Kind::State => {
            values.extend(0..=u64::from(effect::ALL) + 1);
            values.extend([now | 1 << 31, now | 64]);
        }
        Kind::Sequence => {
            values.extend(near);
            values.extend(known.sequences.iter().map(|&number| u64::from(number)));
        }
        Kind::FileKind => values.extend([1, 2, 4, 6, 8, 10, 12]),
        Kind::NameLength => values.extend(near.into_iter().chain([1, 2, 64, 254])),
        Kind::User => values.extend([USER, OTHER_USER, 1].map(u64::from)),
        Kind::Group => {
            let groups = [USER, OWN_GROUP, OTHER_GROUP, OTHER_USER];
            values.extend(groups.map(u64::from));
        }
        Kind::Unit => {
            values.extend(near);
            values.extend(known.units.iter().map(|&unit| u64::from(unit)));
            let page = UNITS_PER_PAGE as u32;
            let places = [
                1,
                DELTA_FIRST * page,
                DELTA_FIRST * page + 1,
                known.end * page,
            ];
            values.extend(places.map(u64::from));
        }
    }
    for value in &mut values {
        *value &= greatest;
    }
    values.sort_unstable();
    values.dedup();
    values.retain(|&value| value != now);
    values
}
