//! What was asked for: a layer, a graph's rows, and which optimisations are on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use headwater::compile::front::{self, Arguments, BUILTIN, Layer, OptionValue};
use headwater::compile::pass::{Optimisations, Statistics};
use headwater::graph::Dataset;

use crate::args::{CompileArgs, Target};

/// Of a layer text; more than that is some other file.
const MOST_TEXT_BYTES: u64 = 1 << 20;
/// What a size is where nobody says.
const WIDTH: usize = 64;

/// What was asked for.
pub struct Request {
    /// The layer's text.
    pub text: String,
    /// What it means.
    pub layer: Layer,
    /// Sizes as they are in force.
    pub sizes: BTreeMap<String, usize>,
    /// Rows to compile for, and whose they are.
    pub statistics: Statistics,
    pub graph: String,
    /// What is switched on.
    pub on: Optimisations,
    /// Whether kernels are for a GPU, which runs each by a schedule.
    pub is_scheduled: bool,
}

impl Request {
    /// Reads the text and counts the graph's rows.
    pub fn of(args: &CompileArgs) -> anyhow::Result<Self> {
        let text = text(&args.model)?;
        let signature = front::signature(&args.model, &text)?;
        for (name, _) in &args.size {
            let known = signature.sizes.join(", ");
            ensure!(signature.sizes.contains(name), "--size {name}: {} has the sizes {known}", args.model);
        }
        let mut sizes: BTreeMap<String, usize> =
            signature.sizes.iter().map(|name| (name.clone(), if name == "heads" { 1 } else { WIDTH })).collect();
        sizes.extend(args.size.iter().cloned());
        let options = args.option.iter().map(|(name, value)| (name.clone(), option(value))).collect();
        let layer = front::read(&args.model, &text, &Arguments { sizes: sizes.clone(), options })?;
        let (statistics, graph) = statistics(args.graph.as_deref())?;
        let statistics = if layer.self_loops.adds() { statistics.with_self_loops() } else { statistics };
        let on = args.target.optimisations().without(&args.without)?;
        Ok(Self { text, layer, sizes, statistics, graph, on, is_scheduled: args.target == Target::Gpu })
    }
}

/// The text of a built-in layer, or of a file.
fn text(model: &str) -> anyhow::Result<String> {
    if let Some(text) = front::builtin(model) {
        return Ok(text.to_owned());
    }
    let known = BUILTIN.map(|(name, _)| name).join(", ");
    let path = Path::new(model);
    if !path.is_file() {
        bail!("there is no layer `{model}`: expected one of {known}, or the file of a layer text");
    }
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("opening {model}"))?;
    file.take(MOST_TEXT_BYTES + 1).read_to_string(&mut text).with_context(|| format!("reading {model}"))?;
    ensure!(text.len() as u64 <= MOST_TEXT_BYTES, "{model} is longer than a layer text: {MOST_TEXT_BYTES} bytes");
    Ok(text)
}

/// A value as it is typed. Whether it is one that the option takes, the text says.
fn option(value: &str) -> OptionValue {
    match (value, value.parse(), value.parse()) {
        ("True" | "true", ..) => OptionValue::Bool(true),
        ("False" | "false", ..) => OptionValue::Bool(false),
        (_, Ok(number), _) => OptionValue::Int(number),
        (_, _, Ok(number)) => OptionValue::Float(number),
        _ => OptionValue::Text(value.to_owned()),
    }
}

fn statistics(dataset: Option<&Path>) -> anyhow::Result<(Statistics, String)> {
    let Some(folder) = dataset else {
        return Ok((Statistics::FB15K_237, "FB15k-237 with inverse relations".to_owned()));
    };
    let dataset = Dataset::open(folder).with_context(|| format!("opening {}", folder.display()))?;
    Ok((Statistics::of_graph(&dataset.graph()?), folder.display().to_string()))
}
