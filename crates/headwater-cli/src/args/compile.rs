//! What `compile` takes.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{ArgAction, Args as Group, ValueEnum};
use headwater::compile::pass::Optimisations;

/// What `compile` takes.
#[derive(Debug, Group)]
pub struct CompileArgs {
    /// gcn, sage, gat, gin, rgcn, rgat, hgt, or the file of a layer text.
    pub model: String,
    /// The folder of the dataset to compile for.
    #[arg(long, value_name = "DATASET")]
    pub graph: Option<PathBuf>,
    /// What one of the text's sizes is; may be given several times. Default: 64, and one head.
    #[arg(long, value_name = "NAME=NUMBER", value_parser = size)]
    pub size: Vec<(String, usize)>,
    /// What one of the text's options is; may be given several times.
    #[arg(long, value_name = "NAME=VALUE", value_parser = option)]
    pub option: Vec<(String, String)>,
    /// Where the kernels are to run. It decides which optimisations are on.
    #[arg(long, value_enum, default_value_t = Target::Cpu)]
    pub target: Target,
    /// What to show, as text and as JSON.
    #[arg(long, value_enum, default_value_t = Level::All)]
    pub level: Level,
    /// Optimisations to leave out.
    #[arg(long, value_delimiter = ',', action = ArgAction::Set, value_name = "NAMES", value_parser = switches())]
    pub without: Vec<String>,
    /// One JSON object instead of text, with what --level asks for.
    #[arg(long)]
    pub json: bool,
}

/// Where kernels run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// What training on a CPU uses: all optimisations but merge, heads_first, flatten, one_walk, pair_softmax and
    /// product_sums.
    Cpu,
    /// What a GPU uses: all optimisations but deep.
    Gpu,
}

impl Target {
    /// What is on where nothing is left out.
    pub fn optimisations(self) -> Optimisations {
        match self {
            Self::Cpu => Optimisations::CPU,
            Self::Gpu => Optimisations::GPU,
        }
    }
}

/// How far a layer has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Level {
    /// The text.
    Source,
    /// Values, forward and backward.
    Values,
    /// Kernels, forward and backward.
    Kernels,
    /// What was chosen, what it costs, and what each choice is worth.
    Plan,
    /// Everything.
    All,
}

impl Level {
    /// Whether something of a level is shown.
    pub fn shows(self, what: Self) -> bool {
        self == Self::All || self == what
    }
}

/// The names of optimisations.
pub(super) fn switches() -> PossibleValuesParser {
    PossibleValuesParser::new(Optimisations::SWITCHES.map(|(name, _)| name))
}

fn size(text: &str) -> Result<(String, usize), String> {
    let (name, value) = option(text)?;
    let size = value.parse().map_err(|_| format!("expected a whole number, found `{value}`"))?;
    Ok((name, size))
}

fn option(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("expected NAME=VALUE")?;
    Ok((name.trim().to_owned(), value.trim().to_owned()))
}
