//! What a raw client sees of the verified state.

use super::Client;
use arck_core_state::directory::{self, Dentry};
use arck_core_state::index;
use arck_core_state::{Inode, InodeNumber, LiveHeader, PAGE_SIZE, Pages};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

impl Client {
    pub fn header(&self, number: InodeNumber) -> &LiveHeader {
        assert!(number < self.welcome.geometry.inode_count);
        // SAFETY: inside the mapping, aligned to 64, nothing but atomics, lives with `self`.
        unsafe {
            &*self
                .headers
                .as_ptr()
                .cast::<LiveHeader>()
                .add(number as usize)
        }
    }

    pub fn is_alive(&self, number: InodeNumber) -> bool {
        self.header(number).kind() == arck_core_state::header::HeaderKind::Alive
    }

    /// A versioned read.
    fn read<T>(&self, number: InodeNumber, read: impl Fn(&Inode) -> Option<T>) -> Option<T> {
        let header = self.header(number);
        for _ in 0..1000 {
            let sequence = header.read_begin().unwrap();
            let inode = Inode::read(self, header.inode.load(Ordering::Acquire));
            let value = inode.as_ref().and_then(&read);
            if header.read_end(sequence) {
                return value;
            }
        }
        panic!("inode {number} never rests");
    }

    pub fn inode(&self, number: InodeNumber) -> Inode {
        self.read(number, |inode| Some(*inode))
            .unwrap_or_else(|| panic!("inode {number}"))
    }

    pub fn verified(&self, directory: InodeNumber, name: &[u8]) -> Option<Dentry> {
        let hash = directory::hash_name(self.welcome.hash_seed, name);
        self.read(directory, |inode| {
            let buckets = inode.size / PAGE_SIZE;
            directory::lookup(self, inode.root, buckets, hash, name).ok()
        })
        .unwrap()
        .map(|found| found.dentry)
    }

    /// All verified names.
    pub fn names(&self, directory: InodeNumber) -> BTreeMap<Vec<u8>, InodeNumber> {
        self.read(directory, |inode| {
            let mut names = BTreeMap::new();
            for bucket in 0..inode.size / PAGE_SIZE {
                directory::for_each_in_bucket(self, inode.root, bucket, |dentry, _, name, _, _| {
                    names.insert(name.as_bytes().to_vec(), dentry.inode);
                })
                .ok()?;
            }
            Some(names)
        })
        .unwrap()
    }

    /// First byte of a verified page of a file; `None` = a hole.
    pub fn verified_byte(&self, number: InodeNumber, page: u64) -> Option<u8> {
        let pointer = self
            .read(number, |inode| index::lookup(self, inode.root, page))
            .unwrap();
        if pointer.is_null() {
            return None;
        }
        Some(self.page(pointer).unwrap()[0].load(Ordering::Relaxed) as u8)
    }
}
