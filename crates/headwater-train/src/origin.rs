//! Which graph a run was trained on: `dataset.json` in its folder.
//!
//! Who asks a run later should ask it about the same graph, or about another one of the same kind on purpose.

use std::fs;
use std::path::{Component, Path, PathBuf};

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
    /// The same as seen from the run's folder, for both of them moved together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from_run: Option<PathBuf>,
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
            from_run: None,
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
        let from = fs::canonicalize(run).unwrap_or_else(|_| run.to_owned());
        let from_run = if self.is_held() { None } else { Some(between(&from, &self.folder)) };
        let text = serde_json::to_vec_pretty(&Self { from_run, ..self.clone() }).unwrap_or_default();
        write_whole(&run.join(FILE), &text)
    }

    /// Whether the dataset was in memory alone.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.folder.as_os_str().is_empty()
    }

    /// Opens the dataset of a run: where it was, or as far from the run as it was then. Any other is refused.
    pub fn open(&self, run: &Path) -> Result<Dataset> {
        if self.is_held() {
            let why = "the dataset of the run was in memory, and must be named".to_owned();
            return Err(Error::RunFile { path: run.join(FILE), why });
        }
        let opened = |folder: &Path| {
            let dataset = Dataset::open(folder)?;
            self.check_same(&Self::of(&dataset))?;
            Ok(dataset)
        };
        opened(&self.folder).or_else(|why| match &self.from_run {
            // What was found where it should be says more than what is not there either.
            Some(from_run) => opened(&run.join(from_run)).map_err(|_| why),
            None => Err(why),
        })
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

/// The way from one absolute path to another.
fn between(from: &Path, to: &Path) -> PathBuf {
    let shared = from.components().zip(to.components()).take_while(|(own, other)| own == other).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    up.chain(to.components().skip(shared)).collect()
}

#[cfg(test)]
mod tests {
    use headwater_graph::Silent;
    use headwater_graph::generate::Planted;

    use super::*;

    #[test]
    fn ways_between_folders() {
        for (from, to, way) in [
            ("/a/runs/r", "/a/data", "../../data"),
            ("/a/r", "/a/r/dataset", "dataset"),
            ("/a", "/a", ""),
            ("/a/b", "/c", "../../c"),
        ] {
            assert_eq!(between(Path::new(from), Path::new(to)), Path::new(way), "{from} {to}");
        }
    }

    /// Found where it was and where it went with its run; anything else in either place is refused.
    #[test]
    fn the_dataset_of_a_run_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let make = |path: &Path, seed: u64| {
            let small = Planted { nodes: 60, edges_per_node: 2, classes: 2, features: 2, seed, ..Planted::default() };
            small.recipe().unwrap().write(path, &Silent).unwrap();
        };
        let (here, there) = (folder.path().join("here"), folder.path().join("there"));
        fs::create_dir_all(here.join("runs/r")).unwrap();
        make(&here.join("data"), 1);
        Origin::of(&Dataset::open(&here.join("data")).unwrap()).write(&here.join("runs/r")).unwrap();
        let open = |home: &Path| Origin::read(&home.join("runs/r")).unwrap().unwrap().open(&home.join("runs/r"));
        assert!(open(&here).unwrap().folder().ends_with("here/data"));
        fs::rename(&here, &there).unwrap();
        assert!(open(&there).unwrap().folder().starts_with(&there));
        // Another one of the same shape where it was does not hide it, and is not taken for it.
        make(&here.join("data"), 2);
        assert!(open(&there).unwrap().folder().starts_with(&there));
        fs::remove_dir_all(there.join("data")).unwrap();
        let said = open(&there).unwrap_err().to_string();
        assert!(said.contains("here/data is not the dataset of the run"), "{said}");
    }
}
