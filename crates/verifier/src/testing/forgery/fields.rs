//! The one table of what a session writes: every field of every stored structure of an arena.
//!
//! # Invariant
//! A structure's fields are named here by a pattern without `..`: a field that is new in the
//! format does not compile until somebody has said here what kind of value it holds.

use arck_core_state::arena::ArenaHeader;
use arck_core_state::branch::StoredBranch;
use arck_core_state::record::{DeltaPageHeader, RecordRef, StoredRecord};
use core::mem::{offset_of, size_of};

/// What a field holds; says which values a forger tries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    InodeNumber,
    Generation,
    Epoch,
    FoldNumber,
    /// Bytes of a file.
    Size,
    /// Root of a delta's index.
    IndexRoot,
    /// An entry of an index page above the last level, and one of the last.
    Interior,
    Leaf,
    Time,
    /// A page number of a file.
    Limit,
    Mode,
    ArenaPage,
    /// A page of extended attributes.
    AttributesPage,
    Checksum,
    State,
    Sequence,
    FileKind,
    NameLength,
    User,
    Group,
    /// The place of a record.
    Unit,
    /// Nobody looks at it.
    Free,
}

/// A field: where it stands in its structure, in bytes, and how it is divided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Field {
    pub structure: &'static str,
    pub name: &'static str,
    pub offset: u64,
    /// Bytes of the whole field, and of each of its elements.
    pub size: u64,
    pub width: u64,
    pub kind: Kind,
}

impl Field {
    /// Offset of each element.
    pub fn elements(&self) -> impl Iterator<Item = u64> + use<> {
        let (first, width) = (self.offset, self.width);
        (0..self.size / width).map(move |at| first + at * width)
    }
}

fn size_of_field<S, T>(_: fn(&S) -> &T) -> u64 {
    size_of::<T>() as u64
}

macro_rules! fields {
    ($structure:ident { $($name:ident: $kind:ident / $width:literal),* $(,)? }) => {{
        // Every field is named, or this does not compile.
        let _ = |$structure { $($name: _),* }: $structure| ();
        vec![$(Field {
            structure: stringify!($structure),
            name: stringify!($name),
            offset: offset_of!($structure, $name) as u64,
            size: size_of_field(|structure: &$structure| &structure.$name),
            width: $width,
            kind: Kind::$kind,
        }),*]
    }};
}

pub fn branch() -> Vec<Field> {
    fields!(StoredBranch {
        number: InodeNumber / 4,
        generation: Generation / 4,
        ownership_epoch: Epoch / 4,
        reserved0: Free / 4,
        fold: FoldNumber / 8,
        size: Size / 8,
        root: IndexRoot / 8,
        modified: Time / 8,
        changed: Time / 8,
        limit: Limit / 8,
        fold_of_line_1: FoldNumber / 8,
        accessed: Time / 8,
        mode: Mode / 8,
        tails: ArenaPage / 4,
        partners: InodeNumber / 4,
        parent: InodeNumber / 4,
        attributes: AttributesPage / 4,
    })
}

pub fn delta_page() -> Vec<Field> {
    fields!(DeltaPageHeader {
        directory: InodeNumber / 4,
        next: ArenaPage / 4,
        fold: FoldNumber / 8,
        reserved: Free / 8,
    })
}

/// Of a record, the two references with their own fields.
pub fn record() -> Vec<Field> {
    let mut fields = fields!(StoredRecord {
        checksum: Checksum / 4,
        state: State / 4,
        sequence: Sequence / 4,
        kind: FileKind / 1,
        name_length: NameLength / 1,
        source_length: NameLength / 1,
        timed: Free / 1,
        inode: InodeNumber / 4,
        generation: Generation / 4,
        source_directory: InodeNumber / 4,
        mode: Mode / 4,
        uid: User / 4,
        gid: Group / 4,
        created: Time / 8,
        kills: Free / 16,
    });
    let kills = fields.pop_if(|field| field.name == "kills");
    let reference = fields!(RecordRef {
        unit: Unit / 4,
        sequence: Sequence / 4,
    });
    for at in kills
        .iter()
        .flat_map(Field::elements)
        .flat_map(|kill| [kill, kill + 8])
    {
        fields.extend(reference.iter().map(|field| Field {
            offset: at + field.offset,
            ..*field
        }));
    }
    fields
}

pub fn arena() -> Vec<Field> {
    fields!(ArenaHeader {
        magic: Free / 8,
        session: Free / 4,
        reserved: Free / 4,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_fill_their_structures() {
        for (fields, size) in [
            (branch(), size_of::<StoredBranch>()),
            (delta_page(), size_of::<DeltaPageHeader>()),
            (record(), size_of::<StoredRecord>()),
            (arena(), size_of::<ArenaHeader>()),
        ] {
            let mut covered = vec![0; size];
            for field in &fields {
                assert!(field.size.is_multiple_of(field.width), "{field:?}");
                for element in field.elements() {
                    for byte in element..element + field.width {
                        covered[byte as usize] += 1;
                    }
                }
            }
            assert!(covered.iter().all(|&times| times == 1), "{fields:?}");
        }
    }
}
