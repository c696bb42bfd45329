//! Which graph a run was trained on: `dataset.json` in its folder.
//!
//! Who asks a run later should ask it about the same graph, or about another one of the same kind on purpose.

use std::fs;
use std::path::{Path, PathBuf};

use headwater_graph::Dataset;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::task::Task;
use crate::whole_file::write_whole;

const FILE: &str = "dataset.json";

/// A dataset, as far as a run depends on it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Its folder.
    pub folder: PathBuf,
    /// Checksum of the checksums of its files.
    pub files: String,
    /// Names of its node types.
    pub node_types: Vec<String>,
    /// Names of its relations, with both ends.
    pub relations: Vec<String>,
    /// What was learnt of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Asked>,
    /// How the graph was made, where the run made it itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub made: Option<Value>,
}

/// What a network is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// About nodes of which type.
    pub node_type: String,
    /// Which of how many classes they have.
    pub classes: usize,
}

impl Origin {
    /// That of an open dataset.
    #[must_use]
    pub fn of(dataset: &Dataset) -> Self {
        let schema = dataset.schema();
        // Paths are given from where somebody stands; that is another place the next time.
        let folder = fs::canonicalize(dataset.folder()).unwrap_or_else(|_| dataset.folder().to_owned());
        let files = serde_json::to_vec(&dataset.manifest().files).unwrap_or_default();
        Self {
            folder,
            files: blake3::hash(&files).to_hex().to_string(),
            node_types: schema.node_types().iter().map(|node_type| node_type.name.clone()).collect(),
            relations: (0..schema.relations().len()).map(|at| schema.relation_name(at)).collect(),
            asked: None,
            made: None,
        }
    }

    /// The same with what a task asks.
    #[must_use]
    pub fn asking(self, task: &Task) -> Self {
        let node_type = self.node_types.get(task.node_type).cloned().unwrap_or_default();
        Self { asked: Some(Asked { node_type, classes: task.classes }), ..self }
    }

    /// That of a run; nothing where its folder does not say.
    pub fn read(run: &Path) -> Result<Option<Self>> {
        let path = run.join(FILE);
        let text = match fs::read(&path) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(Error::io("read", &path))?,
        };
        let wrong = |why: serde_json::Error| Error::RunFile { path: path.clone(), why: why.to_string() };
        serde_json::from_slice(&text).map(Some).map_err(wrong)
    }

    /// Notes it in a run's folder.
    pub fn write(&self, run: &Path) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).unwrap_or_default();
        write_whole(&run.join(FILE), &text)
    }

    /// Refuses a dataset whose types are others.
    pub fn check_kind(&self, found: &Self) -> Result<()> {
        let lists =
            [("node types", &self.node_types, &found.node_types), ("relations", &self.relations, &found.relations)];
        match lists.into_iter().find(|(_, own, other)| own != other) {
            None => Ok(()),
            Some((what, own, other)) => Err(Error::OtherDataset {
                path: found.folder.clone(),
                why: format!("its {what} are {}; those of the run are {}", other.join(", "), own.join(", ")),
            }),
        }
    }

    /// Refuses any dataset but the same.
    pub fn check_same(&self, found: &Self) -> Result<()> {
        self.check_kind(found)?;
        if self.files == found.files {
            return Ok(());
        }
        let why = "its files are not what they were when the run was trained".to_owned();
        Err(Error::OtherDataset { path: found.folder.clone(), why })
    }
}
