//! Who will be able to read what, as a change leaves it, and so where its pages are allocated.

use crate::state::change::Change;
use crate::state::classes::{Class, Condition, Wish};
use arck_core_state::{FileKind, Inode, InodeNumber, PagePtr};

impl Change<'_> {
    /// The mode that an inode will have, whenever in this change it is set.
    pub fn set_final_mode(&mut self, number: InodeNumber, mode: u32) {
        let old = self.inode(number);
        if old.is_some_and(|old| old.kind() == Some(FileKind::Directory)) {
            self.searches.forget();
        }
        self.final_modes.insert(number, mode);
    }

    /// Who may search a directory and all above it, as the change leaves them.
    pub fn search_class(&self, directory: InodeNumber) -> Option<Class> {
        let inode = |number| {
            let mut inode = self.inode(number)?;
            if let Some(mode) = self.final_modes.get(&number) {
                inode.mode = inode.mode & !0o7777 | mode & 0o7777;
            }
            Some(inode)
        };
        let verified = |number| {
            let is_as_it_was = !self.says_inode(number);
            is_as_it_was.then(|| self.state.search_class(number))
        };
        self.searches.class(inode, verified, directory)
    }

    /// The label of the place where an inode is, as the change leaves it.
    pub fn label_of_inode(&self, number: InodeNumber) -> u32 {
        let address = match self.numbers.get(number).map_or(0, |said| said.place) {
            0 => self.state.header_copy(number).map_or(0, |copy| copy.inode),
            address => address,
        };
        self.state.space.label_of(PagePtr::of_address(address))
    }

    /// The class of those who may read what is in an inode: in the class of its place, and by its
    /// mode.
    pub fn read_class(&self, inode: &Inode) -> Option<Class> {
        let class = self.state.classes.get(self.label_of_inode(inode.number))?;
        let class = class.clone();
        if inode.kind() == Some(FileKind::Link) {
            return Some(class);
        }
        class.and(Condition::of(inode, Wish::Read))
    }

    /// Metadata pages are from now on allocated for what is in this inode.
    pub fn allocate_for(&mut self, inode: &Inode) {
        if self.state.space.shared {
            let class = self.read_class(inode);
            self.label = self.state.label(class.as_ref());
        }
    }

    /// Metadata pages are from now on allocated for readers of this class.
    pub fn allocate_for_class(&mut self, label: u32) {
        self.label = label;
    }
}
