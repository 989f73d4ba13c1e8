//! Descriptions of media, in TOML: what memory that is not there would be like.
//!
//! Source: a file of the user's, or one of the crate's own (`media/*.toml`), which have the same form. What comes of it
//! is a [`arck_pm::medium::Model`], the numbers by which `arck-pm` waits; sessions get these alone, so that no text is
//! read in a program.
//!
//! Invariants: every table of a description says where its numbers come from; a description that is accepted makes a
//! model that is; what is wrong is told with the line.

mod description;

use arck_pm::medium::{Model, ModelError};
use std::path::Path;

/// The environment variable that names a medium where no option does.
pub const VARIABLE: &str = "ARCK_MEDIUM";

/// The one that says how many memory nodes it has, where no option does and the description is not meant.
pub const NODES_VARIABLE: &str = "ARCK_NODES";

/// The media that come with the crate.
const OWN: [(&str, &str); 3] = [
    ("optane", include_str!("../media/optane.toml")),
    ("cxl", include_str!("../media/cxl.toml")),
    ("dram", include_str!("../media/dram.toml")),
];

/// The name that stands for no medium: to have none where the variable names one.
const NONE: &str = "none";

/// Why there is no such medium; one line for the user.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MediumError {
    #[error("{file}: {why}; a medium is optane, cxl, dram, none, or a file")]
    Unreadable { file: String, why: String },
    #[error("{file}, line {line}: {what}")]
    Wrong {
        file: String,
        line: usize,
        what: String,
    },
    #[error("--nodes {0}: {1}")]
    Nodes(u32, ModelError),
    #[error("{NODES_VARIABLE}={0}: a number is wanted, such as 2")]
    NotANumber(String),
    #[error("--nodes {0} is for an emulated medium: name it with --medium")]
    NoMedium(u32),
}

/// A medium, as it is described.
#[derive(Debug, Clone, PartialEq)]
pub struct Medium {
    /// One of the crate's own, or the path of a file.
    pub name: String,
    /// What it is, in a few words.
    pub about: String,
    pub model: Model,
}

impl Medium {
    /// One of the crate's own, or what a file describes.
    ///
    /// # Errors
    /// [`MediumError`], with the file and, where it can be read, the line.
    pub fn load(name: &str) -> Result<Medium, MediumError> {
        if let Some((own, text)) = OWN.iter().find(|(own, _)| *own == name) {
            return Medium::parse(own, text);
        }
        let text = std::fs::read_to_string(name).map_err(|error| MediumError::Unreadable {
            file: name.to_owned(),
            why: match error.kind() {
                std::io::ErrorKind::NotFound => "no such file".to_owned(),
                _ => error.to_string(),
            },
        })?;
        Medium::parse(name, &text)
    }

    /// What a text describes; `name` is told with what is wrong.
    ///
    /// # Errors
    /// [`MediumError::Wrong`].
    pub fn parse(name: &str, text: &str) -> Result<Medium, MediumError> {
        let (about, model) = description::read(text).map_err(|wrong| MediumError::Wrong {
            file: name.to_owned(),
            line: wrong.line(text),
            what: wrong.what,
        })?;
        Ok(Medium {
            name: name.to_owned(),
            about,
            model,
        })
    }
}

/// The medium that an option names, or else the environment ([`VARIABLE`]); `None`: none. It has so many `nodes`, or as many
/// as the environment says ([`NODES_VARIABLE`]), in place of those of its description.
///
/// # Errors
/// As [`Medium::load`]; [`MediumError::Nodes`], [`MediumError::NotANumber`]; [`MediumError::NoMedium`]: `nodes` of none.
pub fn chosen(option: Option<&str>, nodes: Option<u32>) -> Result<Option<Medium>, MediumError> {
    let Some(name) = named(option) else {
        return nodes.map_or(Ok(None), |nodes| Err(MediumError::NoMedium(nodes)));
    };
    let mut medium = Medium::load(&name)?;
    if let Some(nodes) = nodes.map_or_else(nodes_of_environment, |nodes| Ok(Some(nodes)))? {
        medium.model.nodes = nodes;
        let checked = medium.model.check();
        checked.map_err(|error| MediumError::Nodes(nodes, error))?;
    }
    Ok(Some(medium))
}

fn nodes_of_environment() -> Result<Option<u32>, MediumError> {
    let text = std::env::var(NODES_VARIABLE).unwrap_or_default();
    match text.parse() {
        Ok(nodes) => Ok(Some(nodes)),
        Err(_) if text.is_empty() => Ok(None),
        Err(_) => Err(MediumError::NotANumber(text)),
    }
}

/// The name that [`chosen`] would load, with the path of a file made absolute: for who starts another program, in
/// another directory.
pub fn named(option: Option<&str>) -> Option<String> {
    let name = option
        .map(str::to_owned)
        .or_else(|| std::env::var(VARIABLE).ok())
        .filter(|name| !name.is_empty() && name != NONE)?;
    if OWN.iter().any(|(own, _)| *own == name) {
        return Some(name);
    }
    let absolute = std::path::absolute(Path::new(&name)).ok();
    let absolute = absolute.and_then(|path| path.into_os_string().into_string().ok());
    Some(absolute.unwrap_or(name))
}

#[cfg(test)]
mod tests;
