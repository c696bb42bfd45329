//! Whose checkpoint this is: what must be the same for its numbers to mean the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::parameter::Parameters;

/// A model as far as its parameters depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// Checksum of the text of its layers.
    pub text: String,
    /// Sizes by name: layers, widths, classes, node and edge types.
    pub sizes: BTreeMap<String, u64>,
    /// Names and shapes of the parameters, in their order.
    pub parameters: Vec<(String, Vec<usize>)>,
    /// Settings that stay as they are, by name. Checkpoints before had none, and may lack some that there are now.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub settings: BTreeMap<String, String>,
}

impl Fingerprint {
    /// That of a model with this text, these sizes and these parameters.
    #[must_use]
    pub fn new(text: &str, sizes: BTreeMap<String, u64>, parameters: &Parameters) -> Self {
        let text = blake3::hash(text.as_bytes()).to_hex().to_string();
        let parameters = parameters.iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
        Self { text, sizes, parameters, settings: BTreeMap::new() }
    }

    /// The same with the settings of a run.
    #[must_use]
    pub fn with_settings(self, settings: BTreeMap<String, String>) -> Self {
        Self { settings, ..self }
    }

    /// What first tells the run of this saved one from the one at hand.
    #[must_use]
    pub fn setting_difference(&self, run: &Self) -> Option<String> {
        let mut pairs = self.settings.iter().filter_map(|(name, was)| Some((name, was, run.settings.get(name)?)));
        let (name, was, is) = pairs.find(|(_, was, is)| was != is)?;
        Some(format!("{name} was {was}, and now is {is}"))
    }

    /// What first tells this saved one from that of the model at hand. Sizes come first: they are what people set.
    #[must_use]
    pub fn first_difference(&self, model: &Self) -> Option<String> {
        self.size_difference(model).or_else(|| self.parameter_difference(model)).or_else(|| {
            let differs = self.text != model.text;
            differs.then(|| "the text of its layers is not the same, though all sizes are".to_owned())
        })
    }

    fn size_difference(&self, model: &Self) -> Option<String> {
        let said = |size: Option<&u64>| size.map_or_else(|| "nothing".to_owned(), u64::to_string);
        let mut names = self.sizes.keys().chain(model.sizes.keys());
        let name = names.find(|name| self.sizes.get(*name) != model.sizes.get(*name))?;
        Some(format!("{name} was {}, and now is {}", said(self.sizes.get(name)), said(model.sizes.get(name))))
    }

    fn parameter_difference(&self, model: &Self) -> Option<String> {
        let pairs = self.parameters.iter().zip(&model.parameters);
        for ((saved, saved_shape), (name, shape)) in pairs {
            if saved != name {
                return Some(format!("it has parameter {saved:?} where the model has {name:?}"));
            }
            if saved_shape != shape {
                return Some(format!("parameter {name:?} had shape {saved_shape:?}, and now has {shape:?}"));
            }
        }
        let (found, expected) = (self.parameters.len(), model.parameters.len());
        (found != expected).then(|| format!("it has {found} parameters, the model has {expected}"))
    }
}
