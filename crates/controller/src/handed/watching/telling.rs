//! What has happened, told step by step.
//!
//! # Invariants
//! * No turn takes longer than it may, but for its last step: a change may have many, which go on at the next turn.
//! * Of a node is told what was committed after it was made.

use super::host::Host;
use super::left::Telling;
use super::moves::Step;
use super::{DONE_WRITING, Watched};
use crate::state::watching::{Became, Named, Watching};
use arck_core_state::InodeNumber;
use std::time::Instant;

impl Watched {
    /// Tells what has happened, until then. Whether there was anything.
    pub fn tell(&mut self, watching: &mut Watching, until: Instant) -> bool {
        let mut any = false;
        loop {
            let next = self.telling.take();
            let Some(mut telling) = next.or_else(|| watching.take_next().map(Telling::new)) else {
                return any;
            };
            any = true;
            self.told = telling.number;
            while self.tell_one(&mut telling, watching) {
                if Instant::now() >= until {
                    self.telling = Some(telling);
                    return true;
                }
            }
        }
    }

    /// Nobody watches anything.
    pub fn tell_nothing(&mut self, watching: &mut Watching) {
        self.telling = None;
        self.written.clear();
        self.closing.clear();
        while watching.take_next().is_some() {}
    }

    /// Whether there is something left to be told.
    pub fn is_telling(&self, watching: &Watching) -> bool {
        self.telling.is_some() || watching.has_next()
    }

    /// Tells one thing of a change; false if there was none left.
    fn tell_one(&mut self, telling: &mut Telling, watching: &mut Watching) -> bool {
        if let Some(step) = telling.steps.next() {
            self.tell_step(&step, telling, watching);
        } else if let Some((number, became)) = telling.inodes.next() {
            self.tell_inode(number, became, watching);
        } else if let Some((number, to)) = telling.moved.pop() {
            let node = self.nodes.get_mut(&number);
            if let Some(node) = node.filter(|node| node.since <= telling.number) {
                watching.want_no_more(std::mem::replace(&mut node.parent, to));
                watching.want(to);
                self.move_itself(number);
            }
        } else {
            return false;
        }
        true
    }

    fn tell_step(&mut self, step: &Step<Named>, telling: &mut Telling, watching: &mut Watching) {
        match step {
            Step::Remove(named) => self.remove_name(named, watching),
            Step::Move(from, to) => {
                telling.moved.push((from.inode, to.directory));
                self.move_name(from, to, watching);
            }
            Step::Exchange([(one, other), (other_too, one_too)]) => {
                let both = [(one, other), (other_too, one_too)];
                let moved = both.map(|(from, to)| (from.inode, to.directory));
                telling.moved.extend(moved);
                self.exchange_names(both, watching);
            }
            Step::Leave(from) => self.leave(from, watching),
            Step::Arrive(to) => {
                telling.moved.push((to.inode, to.directory));
                self.arrive(to, watching);
            }
            Step::Make { named, replaces } => {
                match replaces {
                    true => self.arrive(named, watching),
                    false => self.make_name(named, watching),
                }
                self.tell_new(named, telling.became.get(&named.inode));
            }
        }
    }

    fn tell_inode(&mut self, number: InodeNumber, became: Became, watching: &mut Watching) {
        if became.is_gone {
            self.written.remove(&number);
            let node = self.nodes.get(&number);
            if node.is_some_and(|node| node.since <= self.told) {
                self.end(number, watching);
            }
            return;
        }
        if became.is_new {
            return;
        }
        if became.has_other_data {
            self.at_all_places(number, |host, path, _| host.modify(path));
            if became.is_file {
                self.written.insert(number, Instant::now());
            }
        }
        if became.has_other_attributes {
            self.at_all_places(number, Host::attribute);
        }
        if became.has_other_links {
            self.at_itself(number, Host::attribute);
        }
    }

    fn tell_new(&mut self, named: &Named, became: Option<&Became>) {
        let Some(became) = became.filter(|became| became.is_new) else {
            return;
        };
        if became.has_other_data
            && let Some(path) = self.path_of(named)
        {
            self.on_host(|host| host.modify(&path));
        }
        if became.is_file && self.places.contains_key(&named.inode) {
            self.written.insert(named.inode, Instant::now());
        }
    }

    /// Files that have been changed are looked at, whether somebody may still write them.
    pub fn begin_to_close(&mut self) {
        if self.closing.is_empty() {
            self.closing.extend(self.written.keys());
        }
    }

    /// Tells of files that have been changed, and that nobody has open any more, that they were closed, until then. Whether
    /// some are left.
    pub fn tell_closed(&mut self, is_open: impl Fn(InodeNumber) -> bool, until: Instant) -> bool {
        while let Some(number) = self.closing.pop() {
            let Some(since) = self.written.get(&number) else {
                continue;
            };
            if since.elapsed() > DONE_WRITING || !is_open(number) {
                self.written.remove(&number);
                self.at_all_places(number, |host, path, is_directory| match is_directory {
                    true => Ok(()),
                    false => host.close_written(path),
                });
            }
            if Instant::now() >= until {
                break;
            }
        }
        !self.closing.is_empty()
    }
}
