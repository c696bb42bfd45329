//! Which model: one that is known by name, or a text.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::nearest::nearest;

/// The model of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Model {
    /// One that comes with the program.
    Named(Architecture),
    /// The text of its layers lies in this file.
    Text(PathBuf),
}

/// The models that come with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Graph convolution.
    Gcn,
    /// GraphSAGE with the mean.
    Sage,
    /// Graph attention.
    Gat,
    /// Graph isomorphism network.
    Gin,
    /// Relational graph convolution.
    Rgcn,
    /// Relational graph attention.
    Rgat,
    /// Heterogeneous graph transformer.
    Hgt,
    /// Features alone, to compare with.
    Mlp,
}

impl Architecture {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::Gcn, Self::Sage, Self::Gat, Self::Gin, Self::Rgcn, Self::Rgat, Self::Hgt, Self::Mlp];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Gcn => "gcn",
            Self::Sage => "sage",
            Self::Gat => "gat",
            Self::Gin => "gin",
            Self::Rgcn => "rgcn",
            Self::Rgat => "rgat",
            Self::Hgt => "hgt",
            Self::Mlp => "mlp",
        }
    }
}

impl FromStr for Model {
    type Err = String;

    /// A word is a name; what has a dot or a slash is a path.
    fn from_str(text: &str) -> Result<Self, String> {
        let word = text.to_ascii_lowercase();
        let named = Architecture::ALL.into_iter().find(|known| known.name() == word);
        match named.or((word == "graphsage").then_some(Architecture::Sage)) {
            Some(known) => Ok(Self::Named(known)),
            None if text.contains(['.', '/']) => Ok(Self::Text(text.into())),
            None => Err(unknown(text)),
        }
    }
}

fn unknown(text: &str) -> String {
    let names = Architecture::ALL.map(Architecture::name);
    let hint = nearest(text, &names).map_or_else(String::new, |name| format!("; did you mean {name:?}?"));
    format!("there is no model {text:?}; there are {}, or the path of a text{hint}", names.join(", "))
}

impl fmt::Display for Model {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(known) => f.write_str(known.name()),
            Self::Text(path) => path.display().fmt(f),
        }
    }
}

impl TryFrom<String> for Model {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Model> for String {
    fn from(model: Model) -> Self {
        model.to_string()
    }
}
