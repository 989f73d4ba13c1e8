//! What a thread knows to be there: names of its own in some directories, and the files that they lead
//! to. Plain maps; a call that failed has changed nothing, one that succeeded all that it should.

use super::world::{Session, plain};
use arck_testkit::{Random, Shorthand};
use arckfs::{At, Errno, Subject};
use std::collections::{BTreeMap, BTreeSet};

/// Directory (its number) and name in it.
pub type Place = (usize, String);

#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct File {
    pub content: Vec<u8>,
    pub mode: u32,
    pub attribute: Option<Vec<u8>>,
}

/// The names of one thread.
#[derive(Default)]
pub struct Oracle {
    /// What all its names begin with.
    pub prefix: String,
    pub names: BTreeMap<Place, u64>,
    pub files: BTreeMap<u64, File>,
    pub directories: BTreeSet<Place>,
    pub next: u64,
    /// What was done, and what was told of it, in turn.
    pub history: Vec<String>,
}

pub const ATTRIBUTE: &[u8] = b"user.own";

/// Where a directory is while it can be reached.
pub fn path((directory, name): &Place) -> String {
    format!("/common/d{directory}/{name}")
}

impl Oracle {
    pub fn new(prefix: String) -> Oracle {
        Oracle {
            prefix,
            ..Oracle::default()
        }
    }

    pub fn free_place(&self, random: &mut Random, directories: usize) -> Place {
        loop {
            let number = random.below(1 << 20);
            let place = (
                random.below(directories as u64) as usize,
                format!("{}{number}", self.prefix),
            );
            if !self.names.contains_key(&place) && !self.directories.contains(&place) {
                return place;
            }
        }
    }

    pub fn some_name(&self, random: &mut Random) -> Option<Place> {
        let count = self.names.len() as u64;
        let at = count.checked_sub(1)?.min(random.below(count));
        self.names.keys().nth(at as usize).cloned()
    }

    pub fn file(&mut self, place: &Place) -> &mut File {
        let id = self.names[place];
        self.files.get_mut(&id).expect("a file")
    }

    pub fn links(&self, place: &Place) -> u32 {
        let id = self.names[place];
        self.names.values().filter(|&&other| other == id).count() as u32
    }

    pub fn remove(&mut self, place: &Place) {
        let id = self.names.remove(place).expect("a name");
        if !self.names.values().any(|&other| other == id) {
            self.files.remove(&id);
        }
    }

    /// What was done by a path.
    fn history_of(&self, path: &str) -> String {
        let lines = self.history.iter().filter(|line| line.contains(path));
        lines.map(|line| format!("\n  {line}")).collect()
    }

    /// Compares a file with what is known; an error that hides it is given to the caller, with the call
    /// that was told it.
    pub fn look(&mut self, session: &Session, place: &Place) -> Result<(), (&'static str, Errno)> {
        let path = path(place);
        let stat = session.stat(&path).map_err(|errno| ("stat", errno))?;
        let links = self.links(place);
        let file = self.file(place).clone();
        assert_eq!(
            (stat.mode & 0o7777, stat.links, stat.size),
            (file.mode, links, file.content.len() as u64),
            "mode, links, size of {path}; {}",
            self.history_of(&path)
        );
        let content = session.get(&path).map_err(|errno| ("reading", errno))?;
        if let Some(at) = (0..content.len()).find(|&at| content.get(at) != file.content.get(at)) {
            panic!(
                "{path} of {} bytes: byte {at} is {}, and should be {:?}; {}",
                content.len(),
                content[at],
                file.content.get(at),
                self.history_of(&path)
            );
        }
        assert_eq!(content.len(), file.content.len(), "{path}");
        let mut buffer = [0; 256];
        let subject = Subject::Path(At::Root, path.as_bytes(), 0);
        let attribute = match plain(session.0.get_extended(subject, ATTRIBUTE, &mut buffer)) {
            Ok(length) => Some(buffer[..length].to_vec()),
            Err(Errno::NODATA) => None,
            Err(errno) => return Err(("getxattr", errno)),
        };
        assert_eq!(attribute, file.attribute, "attribute of {path}");
        Ok(())
    }

    /// Exactly what is known is there; everything can be reached.
    pub fn look_at_all(&mut self, session: &Session, directories: usize) {
        for directory in 0..directories {
            let names = session.names(&format!("/common/d{directory}"));
            let mut names = names.unwrap_or_else(|errno| panic!("d{directory}: {errno}"));
            names.retain(|name| name.starts_with(&self.prefix));
            let known = self.names.keys().chain(&self.directories);
            let mut known: Vec<String> = known
                .filter(|place| place.0 == directory)
                .map(|place| place.1.clone())
                .collect();
            known.sort();
            assert_eq!(names, known, "names in d{directory}");
        }
        let places: Vec<Place> = self.names.keys().cloned().collect();
        for place in places {
            self.look(session, &place)
                .unwrap_or_else(|(call, errno)| panic!("{call} {}: {errno}", path(&place)));
        }
        for place in &self.directories {
            let path = path(place);
            let names = plain(session.0.names(&path));
            assert_eq!(names, Ok(Vec::new()), "{path}");
        }
    }
}
