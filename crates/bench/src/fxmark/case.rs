//! The names of the cases, and what they mean.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
pub enum Case {
    Drbl,
    Drbm,
    Drbh,
    Dwol,
    Dwom,
    Dwal,
    Dwtl,
    Dwsl,
    Mrpl,
    Mrpm,
    Mrph,
    Mrdl,
    Mrdm,
    Mwcl,
    Mwcm,
    Mwul,
    Mwum,
    Mwrl,
    Mwrm,
}

impl Case {
    pub fn name(self) -> &'static str {
        self.meaning().0
    }

    /// Its name, and what each thread does.
    pub fn meaning(self) -> (&'static str, &'static str) {
        match self {
            Case::Drbl => ("DRBL", "read a block of a private file"),
            Case::Drbm => ("DRBM", "read a private block of a shared file"),
            Case::Drbh => ("DRBH", "read the same block of a shared file"),
            Case::Dwol => ("DWOL", "overwrite a block of a private file"),
            Case::Dwom => ("DWOM", "overwrite a private block of a shared file"),
            Case::Dwal => ("DWAL", "append a block to a private file"),
            Case::Dwtl => ("DWTL", "shorten a private file by a block"),
            Case::Dwsl => ("DWSL", "overwrite a block of a private file, fsync"),
            Case::Mrpl => ("MRPL", "open a private file, five deep"),
            Case::Mrpm => ("MRPM", "open any file of a shared directory, five deep"),
            Case::Mrph => ("MRPH", "open the same file, five deep"),
            Case::Mrdl => ("MRDL", "list a private directory, per entry"),
            Case::Mrdm => ("MRDM", "list a shared directory, per entry"),
            Case::Mwcl => ("MWCL", "create files in a private directory"),
            Case::Mwcm => ("MWCM", "create files in a shared directory"),
            Case::Mwul => ("MWUL", "unlink files of a private directory"),
            Case::Mwum => ("MWUM", "unlink files of a shared directory"),
            Case::Mwrl => ("MWRL", "rename files in a private directory"),
            Case::Mwrm => ("MWRM", "move private files to a shared directory"),
        }
    }

    pub fn wanted(self) -> f64 {
        match self {
            Case::Mwcl => 4.0,
            Case::Mwrm | Case::Dwal => 3.0,
            _ => 1.5,
        }
    }
}
