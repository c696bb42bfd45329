//! A run that goes on: what may be said about it then.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Model, RunConfig, RunFile};
use crate::error::{Error, Result};

impl RunConfig {
    /// A run that goes on, as `kept` in its folder describes it. What is given goes before that where it may; a field that
    /// would make another run of it is refused.
    pub fn resume(given: RunFile, kept: RunFile) -> Result<Self> {
        // The first field and the last: a file that was cut would be completed by what was published for some model.
        if kept.model.is_none() || kept.keep.is_none() {
            let value = "missing in config.toml".to_owned();
            let field = if kept.model.is_none() { "model" } else { "keep" };
            return Err(Error::Setting { field, value, expected: "every field, as the run wrote it".to_owned() });
        }
        let (asked, known) = (fields(&given), fields(&kept));
        for (field, value) in asked.iter().filter(|(_, value)| !value.is_null()) {
            let was = &known[field.as_str()];
            if !is_place(field) && value != was && !RunFile::CHANGEABLE.contains(&field.as_str()) {
                let changeable = RunFile::CHANGEABLE.join(", ");
                let (field, was, given) = (field.clone(), said(was), said(value));
                return Err(Error::Unchangeable { field, was, given, changeable });
            }
        }
        Self::resolve(given, kept)
    }

    /// Fields that stay as they are as long as a run goes on, as texts. Those of layers that are a text are known by it.
    pub(crate) fn unchangeable(&self) -> BTreeMap<String, String> {
        let fields = serde_json::to_value(self).ok().and_then(|value| value.as_object().cloned()).unwrap_or_default();
        let stays = |field: &str| !is_place(field) && field != "model" && !RunFile::CHANGEABLE.contains(&field);
        let staying = fields.into_iter().filter(|(field, value)| stays(field) && !value.is_null());
        staying.map(|(field, value)| (field, said(&value))).collect()
    }
}

impl RunFile {
    /// The same with paths that mean the same in every current folder. What is not there stays as it is.
    #[must_use]
    pub fn anchored(self) -> Self {
        let anchor = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let model = self.model.map(|model| match model {
            Model::Text(path) => Model::Text(anchor(&path)),
            named @ Model::Named(_) => named,
        });
        Self { model, dataset: self.dataset.as_deref().map(anchor), ..self }
    }
}

/// Places are no part of what is learnt; whoever resumes has found them.
fn is_place(field: &str) -> bool {
    matches!(field, "dataset" | "out")
}

fn fields(file: &RunFile) -> serde_json::Map<String, Value> {
    match serde_json::to_value(file) {
        Ok(Value::Object(fields)) => fields,
        _ => serde_json::Map::new(),
    }
}

/// A value as people write it.
fn said(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a run of this text may go on with these fields.
    fn resumed(kept: &str, given: &str) -> Result<RunConfig> {
        let path = Path::new("config.toml");
        let kept = RunConfig::resolve(RunFile::default(), RunFile::parse(kept, path)?)?;
        RunConfig::resume(RunFile::parse(given, path)?, RunFile::parse(&kept.to_toml()?, path)?)
    }

    /// A value for every field, none of which is a default.
    const OTHERS: &str =
        "model = 'gin'\nhidden = 7\ninput_width = 7\nembedding = 7\nlayers = 3\nheads = 7\noutput_heads = 7
activation = 'elu'\nfanout = [7, 7]\nbatch = 7\nfull_graph = true\nepochs = 7\noptimiser = 'sgd'\nrate = 0.7
momentum = 0.7\nnesterov = true\ndecay = 0.7\ndecay_first_layer_only = true\nnormalise_features = true
inverse_relations = true\ndropout = 0.7\nattention_dropout = 0.7\nnorm = 'batch'\nresidual = true\nschedule = 'step'
schedule_epochs = 7\nschedule_gamma = 0.7\nschedule_floor = 0.0007\nwarmup_steps = 7\nclip = 0.7\npatience = 7
min_delta = 0.7\nwatch = 'loss'\nseed = 7\ndevice = 'cpu'\nsampler = 'cpu'\nprecision = 'f32'\nproducer = 'process'
producer_percent = 7\ngather_sms = 7\ngather_green = true\ngather_window = 7\nfeatures = 'zero-copy'\nhot_share = 0.7
threads = 1\nevaluate_every = 7\ncheckpoint_every = 7\nkeep = 7\nloss = 'nll'\nmetric = 'f1_micro'
offload = ['host']\noffload_folder = 'fast'\noffload_host_gb = 0.7\noffload_disk_gb = 0.7\noffload_gpu_gb = 0.7\noffload_slack = 0.7
without = ['merge']\ntune = 'measure'\nscores = 'pagerank'\nscore_damping = 0.7\nscore_iterations = 7\nscore_batches = 7";

    #[test]
    fn every_field_is_honoured_or_refused() {
        let all: toml::Table = OTHERS.parse().unwrap();
        assert_eq!(all.len(), RunFile::FIELDS.len() - 2, "all but the two places");
        for (field, value) in &all {
            let given = toml::Table::from_iter([(field.clone(), value.clone())]).to_string();
            match resumed("gather_sms = 8\nfeatures = 'tiered'", &given) {
                Ok(run) => {
                    assert!(RunFile::CHANGEABLE.contains(&field.as_str()), "{field}");
                    let kept: toml::Table = run.to_toml().unwrap().parse().unwrap();
                    assert_eq!(&kept[field], value, "{field} is honoured");
                }
                Err(why @ Error::Unchangeable { .. }) => {
                    let said = why.to_string();
                    assert!(!RunFile::CHANGEABLE.contains(&field.as_str()), "{said}");
                    assert!(said.starts_with(&format!("{field} cannot change")) && said.contains("epochs,"), "{said}");
                }
                // Some mean something only beside others, and SMs are a GPU's.
                Err(other) => assert!(field == "device" || other.to_string().starts_with(field.as_str()), "{other}"),
            }
        }
    }

    #[test]
    fn a_file_that_is_not_whole_is_refused() {
        let path = Path::new("config.toml");
        let whole = RunConfig::resolve(RunFile::default(), RunFile::default()).unwrap().to_toml().unwrap();
        assert!(RunConfig::resume(RunFile::default(), RunFile::parse(&whole, path).unwrap()).is_ok());
        for lines in 0..whole.lines().count() {
            let cut: String = whole.lines().take(lines).map(|line| format!("{line}\n")).collect();
            let said = RunConfig::resume(RunFile::default(), RunFile::parse(&cut, path).unwrap()).unwrap_err();
            assert!(said.to_string().contains("missing in config.toml"), "{said}");
        }
    }

    #[test]
    fn what_says_the_same_is_no_change() {
        let run =
            resumed("model = 'gat'\nhidden = 4\nrate = 0.25", "hidden = 4\nrate = 0.25\nepochs = 3\nmodel = 'gat'");
        assert_eq!(run.unwrap().epochs, 3);
        let said = resumed("hidden = 4", "hidden = 5").unwrap_err().to_string();
        assert!(said.starts_with("hidden cannot change in a run: it is 4, not 5; what can change is epochs"), "{said}");
    }
}
