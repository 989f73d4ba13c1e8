//! What the code says.

use super::super::Fields;
use arck_controller_state::classes::StoredClass;
use arck_controller_state::header_runs::HeaderRun;
use arck_controller_state::journal::{EntryHeader, RecordHeader};
use arck_controller_state::kept_rights::KeptRight;
use arck_controller_state::segments::SegmentEntry;
use arck_controller_state::sessions::SessionEntry;
use arck_core_state::arena::{self, ArenaHeader};
use arck_core_state::branch::{self, StoredBranch};
use arck_core_state::directory::{self, Dentry, HashPage};
use arck_core_state::extended;
use arck_core_state::geometry;
use arck_core_state::header::{self, HeaderKind, LiveHeader};
use arck_core_state::index;
use arck_core_state::inode;
use arck_core_state::record::{self, DeltaPageHeader, RecordRef, StoredRecord, effect};
use arck_core_state::superblock::{self, Durability, StoredSuperblock};
use arck_core_state::{
    FileKind, Geometry, IndexRoot, Inode, Mediation, Ownership, PagePtr, PageWords, layout,
};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

type Structures = BTreeMap<String, (u64, Fields)>;

/// Offset and size of every field; a field that is not listed does not compile.
macro_rules! structure {
    ($map:ident, $name:ident { $($field:ident),* $(,)? }) => {{
        #[allow(dead_code)]
        fn every_field_is_listed(value: &$name) {
            let $name { $($field: _),* } = value;
        }
        fn size<T, F>(_: fn(&T) -> &F) -> u64 {
            size_of::<F>() as u64
        }
        let fields = [$((
            stringify!($field).to_owned(),
            (core::mem::offset_of!($name, $field) as u64, size(|value: &$name| &value.$field)),
        )),*];
        $map.insert(
            stringify!($name).to_owned(),
            (size_of::<$name>() as u64, Fields::from(fields)),
        );
    }};
}

/// Every stored structure that is private to the controller.
pub fn private() -> Structures {
    let mut map = Structures::new();
    structure!(
        map,
        SegmentEntry {
            kind,
            class,
            owner,
            uid,
            flags,
            file,
            generation,
            reserved
        }
    );
    structure!(
        map,
        StoredClass {
            checksum,
            number,
            count,
            reserved,
            conditions
        }
    );
    structure!(
        map,
        SessionEntry {
            session,
            group_count,
            uid,
            gid,
            branch_pages,
            delta_pages,
            secret,
            credits,
            done,
            fold_copies_lost,
            groups
        }
    );
    structure!(
        map,
        EntryHeader {
            magic,
            sequence,
            length,
            checksum,
            reserved0,
            reserved
        }
    );
    structure!(
        map,
        RecordHeader {
            target,
            length,
            offset
        }
    );
    structure!(
        map,
        HeaderRun {
            fold,
            session,
            first,
            count,
            generation,
            slot,
            reserved
        }
    );
    structure!(
        map,
        KeptRight {
            checksum,
            inode,
            generation,
            user,
            rights,
            reserved
        }
    );
    map
}

/// Every stored structure.
pub fn structures() -> Structures {
    let mut map = Structures::new();
    structure!(
        map,
        StoredSuperblock {
            magic,
            format_version,
            checksum,
            uuid,
            segment_size,
            segment_count,
            inode_count,
            durability,
            clean,
            created,
            hash_seed,
            boot,
            uid,
            reserved0,
            reserved,
        }
    );
    structure!(
        map,
        LiveHeader {
            sequence,
            inode,
            fold,
            ownership,
            identity,
            state,
            evicted,
            sealed,
        }
    );
    structure!(
        map,
        Inode {
            number,
            generation,
            mode,
            links,
            uid,
            gid,
            size,
            root,
            accessed,
            modified,
            changed,
            created,
            pages,
            parent,
            entries,
            mediation,
            reserved0,
            attributes,
            reserved,
        }
    );
    structure!(
        map,
        ArenaHeader {
            magic,
            session,
            reserved
        }
    );
    structure!(
        map,
        StoredBranch {
            number,
            generation,
            ownership_epoch,
            reserved0,
            fold,
            size,
            root,
            modified,
            changed,
            limit,
            fold_of_line_1,
            accessed,
            mode,
            tails,
            partners,
            parent,
            attributes,
        }
    );
    structure!(
        map,
        DeltaPageHeader {
            directory,
            next,
            fold,
            reserved
        }
    );
    structure!(
        map,
        StoredRecord {
            checksum,
            state,
            sequence,
            kind,
            name_length,
            source_length,
            timed,
            inode,
            generation,
            source_directory,
            mode,
            uid,
            gid,
            created,
            kills,
        }
    );
    structure!(map, RecordRef { unit, sequence });
    map
}

fn fields<const N: usize>(fields: [(&str, usize, usize); N]) -> Fields {
    fields
        .map(|(name, offset, size)| (name.to_owned(), (offset as u64, size as u64)))
        .into()
}

fn bytes(page: &HashPage<&PageWords>) -> Vec<u8> {
    let words = page.0.iter();
    words
        .flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes())
        .collect()
}

/// Where bytes that are `value` begin in a page on which everything else is zero.
fn find(page: &HashPage<&PageWords>, value: &[u8]) -> usize {
    let bytes = bytes(page);
    let at = bytes.windows(value.len()).position(|bytes| bytes == value);
    at.expect("a value that was stored")
}

/// Layouts that no structure holds: a hash page and a dentry, found out by writing one.
pub fn page_layouts() -> Structures {
    let (tags, units) = (directory::TAGS_OFFSET, directory::UNITS_OFFSET);
    let word = |index: usize| index * 8;
    let words = arck_core_state::zeroed_page();
    let page = HashPage(&*words);
    page.format(0xa1a2_a3a4, 0xb1b2_b3b4);
    let magic = find(&page, &directory::HASH_PAGE_MAGIC.to_le_bytes());
    let identity = find(&page, &0xb1b2_b3b4_a1a2_a3a4u64.to_le_bytes());
    assert_eq!(
        (magic, identity),
        (word(directory::WORD_MAGIC), word(directory::WORD_IDENTITY))
    );
    page.set_next(PagePtr(0xc1c2_c3c4_c5c6_c7c8));
    let next = find(&page, &0xc1c2_c3c4_c5c6_c7c8u64.to_le_bytes());
    let used = identity + 8;
    let hash_page = fields([
        ("magic", magic, 8),
        ("next", next, 8),
        ("identity", identity, 8),
        ("reserved", used, tags - used),
        ("tags", tags, directory::UNITS),
        (
            "reserved_1",
            tags + directory::UNITS,
            units - tags - directory::UNITS,
        ),
        ("units", units, directory::UNITS * directory::UNIT_SIZE),
    ]);

    let dentry = Dentry {
        inode: 0xd1d2_d3d4,
        generation: 0xe1e2_e3e4,
        kind: FileKind::Socket,
    };
    let name = b"sixteen letters!";
    let hash = 0xf1f2_f3f4_f5f6_f7f8;
    assert!(page.add(hash, name, dentry).is_some());
    assert_eq!(bytes(&page)[tags], directory::tag(hash));
    let place = |value: &[u8]| find(&page, value) - units;
    let length = place(&[name.len() as u8, FileKind::Socket as u8, 0, 0]);
    let dentry = fields([
        ("inode", place(&dentry.inode.to_le_bytes()), 4),
        ("generation", place(&dentry.generation.to_le_bytes()), 4),
        ("hash", place(&(hash as u32).to_le_bytes()), 4),
        ("name_length", length, 1),
        ("kind", length + 1, 1),
        ("reserved", length + 2, 2),
        ("name", place(name), directory::FIRST_NAME),
    ]);

    // Checked by computing a checksum with it.
    let seed = fields([("directory", 0, 4), ("fold", 4, 8), ("unit", 12, 4)]);
    let index = fields([("entries", 0, index::FANOUT as usize * 8)]);
    BTreeMap::from([
        ("HashPage".to_owned(), (4096, hash_page)),
        ("Dentry".to_owned(), (directory::UNIT_SIZE as u64, dentry)),
        ("RecordSeed".to_owned(), (16, seed)),
        ("IndexPage".to_owned(), (4096, index)),
    ])
}

macro_rules! constants {
    ($($module:ident :: $($name:ident)::+),* $(,)?) => {
        BTreeMap::from([$((
            concat!(stringify!($module), $("::", stringify!($name)),+).to_owned(),
            $module::$($name)::+ as i128,
        )),*])
    };
}

/// Every public constant that is a number.
pub fn constants() -> BTreeMap<String, i128> {
    let mut map: BTreeMap<String, i128> = constants![
        superblock::MAGIC,
        superblock::FORMAT_VERSION,
        superblock::FORMAT_VERSION_OLDEST,
        superblock::SUPERBLOCK_SIZE,
        geometry::PAGE_SIZE,
        geometry::PAGE_BYTES,
        geometry::CACHE_LINE,
        geometry::NAME_MAX,
        geometry::PATH_MAX,
        geometry::FILE_SIZE_MAX,
        geometry::LINKS_MAX,
        geometry::ROOT_INODE,
        Geometry::POOL_SIZE_MIN,
        Geometry::POOL_SIZE_MAX,
        Geometry::SEGMENT_SIZE_MIN,
        Geometry::SEGMENT_SIZE_MAX,
        header::HEADER_SIZE,
        header::COUNTED_MAX,
        header::SEQUENCE_OFFSET,
        header::INODE_OFFSET,
        header::FOLD_OFFSET,
        header::OWNERSHIP_OFFSET,
        header::IDENTITY_OFFSET,
        header::STATE_OFFSET,
        header::SEALED_OFFSET,
        Ownership::EPOCH_MASK,
        inode::INODE_SIZE,
        inode::DEVICE_MAX,
        inode::TOGETHER,
        directory::UNITS,
        directory::UNIT_SIZE,
        directory::TAGS_OFFSET,
        directory::UNITS_OFFSET,
        directory::FIRST_NAME,
        directory::TAG_FREE,
        directory::TAG_CONTINUED,
        directory::HASH_PAGE_MAGIC,
        directory::WORD_MAGIC,
        directory::WORD_NEXT,
        directory::WORD_IDENTITY,
        directory::CHAIN_MAX,
        index::FANOUT,
        index::HEIGHT_MAX,
        index::HOLE,
        arena::MAGIC,
        arena::BRANCH_PAGES,
        arena::BRANCHES_PER_PAGE,
        arena::BRANCH_SLOTS,
        arena::DELTA_FIRST,
        arena::ARENA_SPAN,
        arena::ARENA_PAGES,
        branch::BRANCH_SIZE,
        branch::UNCHANGED_SIZE,
        branch::UNCHANGED_TIME,
        branch::UNCHANGED_MODE,
        branch::TAILS,
        branch::PARTNERS,
        branch::offset::IDENTITY,
        branch::offset::EPOCH,
        branch::offset::FOLD,
        branch::offset::SIZE,
        branch::offset::ROOT,
        branch::offset::MODIFIED,
        branch::offset::CHANGED,
        branch::offset::LIMIT,
        branch::offset::FOLD_OF_LINE_1,
        branch::offset::ACCESSED,
        branch::offset::MODE,
        branch::offset::TAILS,
        branch::offset::PARTNERS,
        branch::offset::PARENT,
        extended::NAME_MAX,
        extended::VALUE_MAX,
        extended::NONE,
        record::RECORD_UNIT,
        record::UNITS_PER_PAGE,
        record::RECORD_UNITS_MAX,
        record::NEXT_OFFSET,
        record::effect::ADD,
        record::effect::REMOVE_SOURCE,
        record::effect::REPLACE,
        record::effect::KILL_SOURCE,
        record::effect::KILL_TARGET,
        record::effect::ALL,
    ];
    // Constants of a type of one word.
    for (name, value) in [
        ("PagePtr::NULL", PagePtr::NULL.0),
        ("Ownership::SHARED", Ownership::SHARED.0),
        ("IndexRoot::EMPTY", IndexRoot::EMPTY.0),
    ] {
        map.insert(name.to_owned(), i128::from(value));
    }
    map
}

type Bits = BTreeMap<String, (u64, u64)>;

/// The bits that are set in words made with all ones in one field: first and one past the last.
fn range(word: u64) -> (u64, u64) {
    let (first, end) = (word.trailing_zeros(), 64 - word.leading_zeros());
    assert_eq!(
        word.count_ones(),
        end - first,
        "{word:#x} is no run of bits"
    );
    (u64::from(first), u64::from(end))
}

fn bit_fields<const N: usize>(words: [(&str, u64); N]) -> Bits {
    words
        .map(|(name, word)| (name.to_owned(), range(word)))
        .into()
}

/// Words that are made of several fields.
pub fn bits() -> Vec<(&'static str, Bits)> {
    let mut state_bits = Bits::new();
    // Enumerations of one byte each.
    let kind = header::state_word(HeaderKind::Granted, None, 0).trailing_zeros();
    let file_kind = header::state_word(HeaderKind::Free, Some(FileKind::Pipe), 0).trailing_zeros();
    state_bits.insert("kind".into(), (u64::from(kind), u64::from(kind) + 8));
    state_bits.insert(
        "file_kind".into(),
        (u64::from(file_kind), u64::from(file_kind) + 8),
    );
    state_bits.insert(
        "sealed_slot".into(),
        range(header::state_word(HeaderKind::Free, None, u32::MAX)),
    );
    // A root's height takes all that the pointer leaves.
    let pointer = range(IndexRoot::new(u64::MAX, 0).0);
    let height = range(IndexRoot::new(0, u32::MAX).0);
    vec![
        (
            "Ownership",
            bit_fields([
                ("mark", Ownership::SHARED.marked().0),
                ("ownership_epoch", Ownership::new(0, u32::MAX).0),
                ("refused", Ownership::SHARED.refused().0),
                ("session", Ownership::new(u32::MAX, 0).0),
            ]),
        ),
        (
            "identity",
            bit_fields([
                ("generation", header::identity_word(u32::MAX, 0)),
                ("branch_slot", header::identity_word(0, u32::MAX)),
            ]),
        ),
        ("state", state_bits),
        (
            "IndexRoot",
            Bits::from([("pointer".into(), pointer), ("height".into(), height)]),
        ),
        (
            "effect",
            bit_fields([
                ("ADD", u64::from(effect::ADD)),
                ("REMOVE_SOURCE", u64::from(effect::REMOVE_SOURCE)),
                ("REPLACE", u64::from(effect::REPLACE)),
                ("KILL_SOURCE", u64::from(effect::KILL_SOURCE)),
                ("KILL_TARGET", u64::from(effect::KILL_TARGET)),
            ]),
        ),
    ]
}

/// Values by name, found by decoding every possible byte.
fn values<T: std::fmt::Debug>(decode: impl Fn(u8) -> Option<T>) -> BTreeMap<String, u64> {
    (0..=u8::MAX)
        .filter_map(|value| Some((format!("{:?}", decode(value)?), u64::from(value))))
        .collect()
}

/// Stored enumerations.
pub fn enumerations() -> BTreeMap<&'static str, BTreeMap<String, u64>> {
    BTreeMap::from([
        ("FileKind", values(FileKind::from_u8)),
        ("HeaderKind", values(HeaderKind::from_u8)),
        (
            "Mediation",
            values(|value| {
                let mediation = Mediation::from_stored(value.into());
                (mediation as u32 == u32::from(value)).then_some(mediation)
            }),
        ),
        (
            "Durability",
            values(|value| Durability::from_u32(value.into())),
        ),
    ])
}

/// Names in a pool's directory.
pub fn files() -> BTreeMap<String, ()> {
    [
        layout::SUPERBLOCK,
        layout::SUPERBLOCK_COPY,
        layout::HEADERS,
        layout::PAGE_BITMAP,
        layout::CLASSES,
        layout::SEGMENT_TABLE,
        layout::JOURNAL,
        layout::SESSION_TABLE,
        layout::SEGMENTS,
        layout::ARENAS,
        layout::SOCKET,
        layout::LOCK,
    ]
    .map(|name| (name.to_owned(), ()))
    .into()
}
