//! Where names lead.

use crate::finding::Rule;
use crate::inode::Link;
use crate::pool::Pool;
use arck_core_state::header::HeaderKind;
use arck_core_state::{FileKind, Inode};

/// Where a name leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Leads {
    Well,
    Nowhere,
    OtherGeneration,
    OtherKind,
    OtherParent,
}

impl Leads {
    pub(crate) fn told(self) -> Option<(Rule, &'static str)> {
        match self {
            Leads::Well => None,
            Leads::Nowhere => Some((Rule::Target, "which is not alive")),
            Leads::OtherGeneration => Some((Rule::Target, "which is of another generation")),
            Leads::OtherKind => Some((Rule::Target, "which is of another type")),
            Leads::OtherParent => Some((Rule::Parent, "which has another parent")),
        }
    }
}

/// Looks at the target of a name.
pub(crate) fn leads_to(pool: &Pool, link: &Link) -> Leads {
    let header = pool.header(link.target);
    let is_number = link.target != 0 && link.target < pool.geometry.inode_count;
    if !is_number || header.kind() != HeaderKind::Alive as u8 {
        return Leads::Nowhere;
    }
    if header.generation() != link.generation {
        return Leads::OtherGeneration;
    }
    if header.file_kind() != link.kind as u8 {
        return Leads::OtherKind;
    }
    if link.kind == FileKind::Directory {
        let inode = Inode::read(pool, header.inode);
        if inode.is_some_and(|inode| inode.parent != link.directory) {
            return Leads::OtherParent;
        }
    }
    Leads::Well
}
