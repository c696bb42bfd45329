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
}

impl Fingerprint {
    /// That of a model with this text, these sizes and these parameters.
    #[must_use]
    pub fn new(text: &str, sizes: BTreeMap<String, u64>, parameters: &Parameters) -> Self {
        let text = blake3::hash(text.as_bytes()).to_hex().to_string();
        Self { text, sizes, parameters: parameters.iter().map(|p| (p.name.clone(), p.shape.clone())).collect() }
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
