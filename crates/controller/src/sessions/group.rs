//! What a session knows of its processes: see [`crate::sessions::members`].

use arck_protocol::control::{ControlMemory, MEMBERS};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

/// What a group has besides its session.
pub struct Group {
    pub name: Vec<u8>,
    /// Control memory and region, for those who join.
    pub control: OwnedFd,
    pub region: OwnedFd,
}

/// The processes of a session.
#[derive(Default)]
pub struct Members {
    /// `None`: there is only one, and nobody joins.
    pub group: Option<Group>,
    /// Process ids by member number.
    processes: BTreeMap<u16, u32>,
    /// Those who were connected to an earlier controller, and have not come back: a bit each.
    expected: [u64; MEMBERS / 64],
}

/// The word of a set of members, and the bit in it.
pub fn place(member: u16) -> (usize, u64) {
    (usize::from(member) / 64, 1 << (member % 64))
}

impl Members {
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// How many processes there are.
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    pub fn has(&self, member: u16) -> bool {
        self.processes.contains_key(&member)
    }

    /// Notes a process under a number that is free. EAGAIN if none is.
    pub fn add(&mut self, process: u32, control: &ControlMemory) -> Result<u16, Errno> {
        let member = self.free(control).ok_or(Errno::AGAIN)?;
        self.processes.insert(member, process);
        let (word, bit) = place(member);
        control.header.members[word].fetch_or(bit, Ordering::AcqRel);
        Ok(member)
    }

    /// Of a session that an earlier controller opened: whom that knew may come back.
    pub fn expect_back(&mut self, control: &ControlMemory) {
        self.expected = std::array::from_fn(|word| {
            let departed = control.header.departed[word].load(Ordering::Acquire);
            control.header.members[word].load(Ordering::Acquire) & !departed
        });
    }

    /// Whether any may come back.
    pub fn expects_any(&self) -> bool {
        self.expected.iter().any(|&word| word != 0)
    }

    /// Who may come back.
    pub fn expected(&self) -> impl Iterator<Item = u16> {
        numbers().filter(|&member| {
            let (word, bit) = place(member);
            self.expected[word] & bit != 0
        })
    }

    /// A number that is free.
    pub fn free(&self, control: &ControlMemory) -> Option<u16> {
        numbers().find(|member| {
            let (word, bit) = place(*member);
            let departed = control.header.departed[word].load(Ordering::Acquire);
            !self.has(*member) && (departed | self.expected[word]) & bit == 0
        })
    }

    /// Notes a process that had this number at an earlier controller. EBUSY if it is connected.
    pub fn come_back(&mut self, member: u16, process: u32) -> Result<(), Errno> {
        if self.has(member) {
            return Err(Errno::BUSY);
        }
        self.processes.insert(member, process);
        let (word, bit) = place(member);
        self.expected[word] &= !bit;
        Ok(())
    }

    /// Whether it was there, or waited for.
    pub fn remove(&mut self, member: u16, control: Option<&ControlMemory>) -> bool {
        let (word, bit) = place(member);
        if let Some(control) = control {
            control.header.members[word].fetch_and(!bit, Ordering::AcqRel);
        }
        let was_expected = self.expected[word] & bit != 0;
        self.expected[word] &= !bit;
        self.processes.remove(&member).is_some() || was_expected
    }

    pub fn is_named(&self, name: &[u8]) -> bool {
        self.group.as_ref().is_some_and(|group| group.name == name)
    }
}

/// All numbers of members but the first process's.
fn numbers() -> impl Iterator<Item = u16> {
    (1..).take(MEMBERS - 1)
}
