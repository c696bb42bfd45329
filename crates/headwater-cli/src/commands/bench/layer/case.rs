//! What is measured, one case after the other. Nothing is made here.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use headwater::compile::front::{self, Arguments, Layer, OptionValue, builtin};
use headwater::train::run_config::PrecisionName;
use serde::{Deserialize, Serialize};

use super::suite;
use crate::args::{BenchLayerArgs, LayerDirection, LayerVariant};

/// Models that see one relation.
const PLAIN: [&str; 4] = ["gcn", "sage", "gat", "gin"];
/// Models whose output has a row of the given size for every head.
const CONCATENATED: [&str; 2] = ["gat", "rgat"];
/// Models whose text has variants, and the one that its option takes where nothing is said.
const VARIED: [(&str, LayerVariant); 1] = [("hgt", LayerVariant::Pyg)];

/// What is run of a stack of layers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// Forward alone.
    Inference,
    /// A forward and a backward pass, with gradients of rows and weights.
    Training,
}

impl Direction {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Training => "training",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Case {
    /// The shape of the graph.
    pub like: String,
    /// Name of the built-in layer, such as `rgat`.
    pub model: String,
    /// The variant of its text: `pyg` or `hector`. None for models without.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    pub direction: Direction,
    /// Of products. A CPU has single precision.
    pub precision: PrecisionName,
    /// Attention heads; 1 for models without.
    pub heads: usize,
    /// Elements of a row that a layer reads or writes.
    pub width: usize,
    /// Layers one after the other.
    pub layers: usize,
    /// Optimisations that are left out, by the names of their switches.
    #[serde(default)]
    pub without: Vec<String>,
}

impl Case {
    /// One layer of 64 elements and one head, with all optimisations.
    pub fn new(like: &str, model: &str, variant: Option<LayerVariant>) -> Self {
        let variant = VARIED.into_iter().find(|(name, _)| *name == model).map(|(_, own)| {
            match variant.unwrap_or(own) {
                LayerVariant::Pyg => "pyg",
                LayerVariant::Hector => "hector",
            }
            .to_owned()
        });
        Self {
            like: like.to_owned(),
            model: model.to_owned(),
            variant,
            direction: Direction::Inference,
            precision: PrecisionName::F32,
            heads: 1,
            width: 64,
            layers: 1,
            without: Vec::new(),
        }
    }

    /// All cases, those of a shape beside each other.
    pub fn all(args: &BenchLayerArgs, precisions: &[PrecisionName]) -> Vec<Self> {
        let directions: &[Direction] = match args.direction {
            LayerDirection::Inference => &[Direction::Inference],
            LayerDirection::Training => &[Direction::Training],
            LayerDirection::Both => &[Direction::Inference, Direction::Training],
        };
        let mut all = Vec::new();
        for like in &args.like {
            all.extend(args.model.iter().map(|model| Self::new(like, model, args.variant)));
        }
        all.iter_mut().for_each(|case| case.without.clone_from(&args.without));
        all = times(all, &args.layers, |case, layers| Self { layers: *layers, ..case });
        all = times(all, &args.width, |case, width| Self { width: *width, ..case });
        all = times(all, &args.heads, |case, heads| Self { heads: if case.has_heads() { *heads } else { 1 }, ..case });
        all = times(all, precisions, |case, precision| Self { precision: *precision, ..case });
        all = times(all, directions, |case, direction| Self { direction: *direction, ..case });
        let mut found: Vec<Self> = Vec::new();
        all.into_iter().for_each(|case| {
            if !found.contains(&case) {
                found.push(case);
            }
        });
        found
    }

    /// Whether the model has attention heads.
    pub fn has_heads(&self) -> bool {
        ["gat", "rgat", "hgt"].contains(&self.model.as_str())
    }

    /// Whether the model's text has variants.
    pub fn has_variants(&self) -> bool {
        self.variant.is_some()
    }

    /// Whether the model is for graphs of one relation alone.
    pub fn is_plain(&self) -> bool {
        PLAIN.contains(&self.model.as_str())
    }

    /// The layer with its sizes, which reads rows of the width and writes such rows.
    pub fn layer(&self) -> anyhow::Result<Layer> {
        let Self { heads, width, .. } = *self;
        let divides = heads > 0 && width.is_multiple_of(heads);
        ensure!(divides, "--heads is {heads}; expected a divisor of --width, which is {width}");
        let text = builtin(&self.model).with_context(|| format!("there is no layer `{}`", self.model))?;
        let is_concatenated = CONCATENATED.contains(&self.model.as_str());
        let size = |name: &str| match name {
            "heads" => heads,
            "d_out" if is_concatenated => width / heads,
            _ => width,
        };
        let names = front::signature(&self.model, text)?.sizes;
        let sizes: BTreeMap<String, usize> = names.iter().map(|name| (name.clone(), size(name))).collect();
        let options = self.variant.iter().map(|name| ("variant".to_owned(), OptionValue::Text(name.clone()))).collect();
        Ok(front::read(&self.model, text, &Arguments { sizes, options })?)
    }

    /// It in a few words.
    pub fn words(&self) -> String {
        let several = |count: usize, name: &str| format!(" {count} {name}{}", if count > 1 { "s" } else { "" });
        let heads = if self.has_heads() { several(self.heads, "head") } else { String::new() };
        let layers = if self.layers > 1 { several(self.layers, "layer") } else { String::new() };
        let precision = format!("{:?}", self.precision).to_lowercase();
        let plan = if self.without.is_empty() { String::new() } else { format!(", {}", suite::label(&self.without)) };
        let (like, direction, width) = (&self.like, self.direction.name(), self.width);
        format!("{like} {} {direction} {precision} {width}{heads}{layers}{plan}", self.name())
    }

    /// The model and, where that is not the text's own, its variant.
    pub fn name(&self) -> String {
        match self.variant.as_deref() {
            None | Some("pyg") => self.model.clone(),
            Some(variant) => format!("{} ({variant})", self.model),
        }
    }
}

/// Every case with every choice.
fn times<T>(cases: Vec<Case>, choices: &[T], with: impl Fn(Case, &T) -> Case) -> Vec<Case> {
    cases
        .into_iter()
        .flat_map(|case| choices.iter().map(|choice| with(case.clone(), choice)).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, BenchCommand, Command};

    fn cases(words: &str) -> Vec<Case> {
        let words = ["headwater", "bench", "layer"].into_iter().chain(words.split_whitespace());
        match Args::parse_from(words).command {
            Command::Bench(BenchCommand::Layer(args)) => Case::all(&args, &args.precision),
            _ => unreachable!("`bench layer` was asked for"),
        }
    }

    #[test]
    fn every_choice_meets_every_other_and_none_comes_twice() {
        assert_eq!(cases("").len(), 1);
        assert_eq!(cases("--model rgcn,rgat --heads 1,4 --direction both").len(), 2 + 4);
        assert_eq!(cases("--like aifb,hub --width 32,64 --layers 1,3 --precision f32,bf16").len(), 16);
        let shapes: Vec<String> = cases("--like aifb,hub --width 32,64").into_iter().map(|case| case.like).collect();
        assert_eq!(shapes, ["aifb", "aifb", "hub", "hub"], "a graph is made once");
    }

    #[test]
    fn layers_write_rows_as_wide_as_those_they_read() {
        for case in cases("--model rgcn,rgat,hgt,gcn,sage,gat,gin --heads 1,4 --width 32") {
            let program = case.layer().unwrap().program;
            let out = program.output("out").unwrap();
            assert_eq!(program[out].shape.len(), 32, "{}", case.words());
        }
        let why = cases("--model gat --heads 3 --width 32")[0].layer().unwrap_err().to_string();
        assert_eq!(why, "--heads is 3; expected a divisor of --width, which is 32");
    }
}
