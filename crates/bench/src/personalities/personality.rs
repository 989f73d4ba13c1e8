//! The names of the personalities, and what is wanted of them.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Personality {
    Varmail,
    Webproxy,
    Webserver,
    Fileserver,
}

/// What is done: a personality, in directories of its own shape, or with so many above each file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    pub personality: Personality,
    pub depth: Option<u64>,
}

impl Personality {
    pub fn name(self) -> &'static str {
        match self {
            Personality::Varmail => "varmail",
            Personality::Webproxy => "webproxy",
            Personality::Webserver => "webserver",
            Personality::Fileserver => "fileserver",
        }
    }

    pub fn wanted(self, threads: u64) -> f64 {
        match self {
            _ if threads >= 16 => 2.0,
            Personality::Varmail => 4.0,
            Personality::Webproxy | Personality::Webserver => 2.5,
            Personality::Fileserver => 3.0,
        }
    }
}
