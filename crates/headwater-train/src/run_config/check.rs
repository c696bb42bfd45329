//! What fields may be. A field that is wrong is named, with its value and what would be right.

use std::fmt::Display;
use std::ops::RangeInclusive;

use headwater_compile::Optimisations;
use headwater_graph::score::{DAMPING, Score};

use super::{DeviceName, Features, Model, OptimiserName, ProducerName, RunConfig, SamplerName};
use crate::error::{Error, Result};
use crate::loss::Loss;

/// More layers see nothing new, and ask for memory without end.
pub(super) const MOST_LAYERS: usize = 100;
/// TOML's integers have a sign.
const MOST_COUNT: u64 = i64::MAX.unsigned_abs();
/// More memory than any machine has, in GB.
const MOST_GB: f64 = 1e9;

/// A field that cannot be followed, what it is, and what would do.
struct Asked {
    field: &'static str,
    value: String,
    without: &'static str,
}

impl RunConfig {
    /// Whether all fields can be what they are, wherever the run is.
    pub(super) fn check(&self) -> Result<()> {
        self.check_counts()?;
        self.check_numbers()?;
        self.check_fanout()?;
        self.check_paths()?;
        self.check_scores()?;
        self.check_without()?;
        let is_watched = self.evaluate_every > 0 || self.patience.unwrap_or(0) == 0;
        let expected = "0 where evaluate_every is 0: nothing is measured on the way";
        require(is_watched, "patience", self.patience.unwrap_or(0), expected)?;
        let is_raw = matches!(self.model, Model::Named(_)) && self.loss == Some(Loss::Nll);
        let expected = "cross_entropy, which takes the logarithm of the softmax first: nll wants outputs that are logarithms \
                        of probabilities already, and those of built-in models are not";
        require(!is_raw, "loss", "nll", expected)?;
        let looks_ahead = self.nesterov && self.optimiser == OptimiserName::Sgd;
        require(!looks_ahead || self.momentum > 0.0, "nesterov", true, "false where momentum is 0")
    }

    /// Whether everything that is left out is an optimisation.
    fn check_without(&self) -> Result<()> {
        let known = Optimisations::SWITCHES.map(|(name, _)| name);
        let unknown = self.without.iter().flatten().find(|name| !known.contains(&name.as_str()));
        let expected = format!("optimisations among {}", known.join(", "));
        unknown.map_or(Ok(()), |name| require(false, "without", name, &expected))
    }

    /// Whether the machine that was named can follow them.
    pub(super) fn check_machine(&self) -> Result<()> {
        match self.device {
            DeviceName::Cpu => self.check_without_gpu("a run on the CPU has no GPU for it")?,
            DeviceName::Cuda(_) => {
                let expected = "auto, dma, naive, zero-copy, tiered or all-gpu; a GPU does not read the dataset's files, and \
                                device cpu does";
                let is_read_here = matches!(self.features, Features::Memory | Features::Disk);
                require(!is_read_here, "features", self.features.name(), expected)?;
            }
            DeviceName::Auto => {}
        }
        let has_share = !self.gather_green || self.gather_sms > 0;
        require(has_share, "gather_green", true, "false where gather_sms is 0: there is nothing to set aside")
    }

    /// Refuses what only a GPU does, for a run that has none.
    pub(crate) fn check_without_gpu(&self, why: &str) -> Result<()> {
        let needs_gpu = self.features.needs_gpu().then(|| self.features.name().to_owned());
        let draws_there = (self.sampler == SamplerName::Gpu).then(|| "gpu".to_owned());
        let asked = [
            needs_gpu.map(|value| Asked { field: "features", value, without: "auto, memory, disk or tiered" }),
            draws_there.map(|value| Asked { field: "sampler", value, without: "auto or cpu" }),
        ];
        refuse(asked.into_iter().flatten().chain(self.asked_of_producers()), why)
    }

    /// Why a run on a GPU does not draw its batches and gather their features there, where it does not.
    #[must_use]
    pub fn batches_by_cpu(&self, has_types: bool) -> Option<&'static str> {
        if self.full_graph {
            Some("every step sees the whole graph, and there are no batches")
        } else if has_types {
            Some("with several node types or relations the CPU draws batches and gathers their features")
        } else if self.normalises() {
            Some("rows that are divided by their sums (normalise_features) are gathered by the CPU")
        } else {
            None
        }
    }

    /// Refuses fields about how a GPU makes batches, for a run whose batches it does not make.
    pub(crate) fn check_on_gpu(&self, has_types: bool) -> Result<()> {
        let Some(why) = self.batches_by_cpu(has_types) else { return Ok(()) };
        let lies_there = (self.features != Features::Auto).then(|| self.features.name().to_owned());
        let draws = match self.sampler {
            SamplerName::Gpu => Some("gpu".to_owned()),
            SamplerName::Cpu if self.full_graph => Some("cpu".to_owned()),
            _ => None,
        };
        let asked = [
            lies_there.map(|value| Asked { field: "features", value, without: "auto" }),
            draws.map(|value| Asked { field: "sampler", value, without: "auto" }),
        ];
        refuse(asked.into_iter().flatten().chain(self.asked_of_producers()), why)
    }

    /// What is asked of whoever makes batches for a GPU.
    fn asked_of_producers(&self) -> impl Iterator<Item = Asked> {
        let Self { gather_sms, gather_green, gather_window, .. } = *self;
        let beside = self.producer == ProducerName::Process;
        [
            beside.then(|| Asked { field: "producer", value: "process".to_owned(), without: "thread" }),
            (gather_sms > 0).then(|| Asked { field: "gather_sms", value: gather_sms.to_string(), without: "0" }),
            gather_green.then(|| Asked { field: "gather_green", value: "true".to_owned(), without: "false" }),
            (gather_window > 0).then(|| Asked {
                field: "gather_window",
                value: gather_window.to_string(),
                without: "0",
            }),
        ]
        .into_iter()
        .flatten()
    }

    fn check_counts(&self) -> Result<()> {
        for (field, value, range) in [
            ("hidden", self.hidden, 1..=1 << 20),
            ("input_width", self.input_width, 0..=1 << 20),
            ("embedding", self.embedding, 0..=1 << 20),
            ("layers", self.layers, 1..=MOST_LAYERS),
            ("heads", self.heads, 1..=1 << 10),
            ("output_heads", self.output_heads, 1..=1 << 10),
            ("batch", self.batch, 1..=1 << 32),
            ("threads", self.threads, 0..=1 << 12),
            ("keep", self.keep, 1..=1 << 20),
        ] {
            within(field, value, range)?;
        }
        within("producer_percent", self.producer_percent, 1..=99)?;
        within("score_iterations", self.score_iterations, 0..=1000)?;
        for (field, value, least) in [
            ("epochs", self.epochs, 1),
            ("schedule_epochs", self.schedule_epochs, 1),
            ("warmup_steps", self.warmup_steps, 0),
            ("patience", self.patience.unwrap_or(0), 0),
            ("score_batches", self.score_batches, 0),
            ("seed", self.seed, 0),
            ("evaluate_every", self.evaluate_every, 0),
            ("checkpoint_every", self.checkpoint_every, 0),
        ] {
            within(field, value, least..=MOST_COUNT)?;
        }
        Ok(())
    }

    fn check_numbers(&self) -> Result<()> {
        // Parameters are f32: nothing larger has a meaning.
        let most = f64::from(f32::MAX);
        for (field, value) in [("rate", self.rate), ("schedule_gamma", self.schedule_gamma)] {
            require(value > 0.0 && value <= most, field, value, "more than 0")?;
        }
        for (field, value, range) in [
            ("decay", self.decay, 0.0..=most),
            ("hot_share", self.hot_share, 0.0..=1.0),
            ("score_damping", self.score_damping, 0.0..=1.0),
            ("schedule_floor", self.schedule_floor, 0.0..=self.rate),
            ("clip", self.clip, 0.0..=most),
            ("min_delta", self.min_delta, 0.0..=most),
            ("offload_slack", self.offload_slack(), 0.0..=10.0),
        ] {
            within(field, value, range)?;
        }
        for (field, value) in [
            ("offload_host_gb", self.offload_host_gb),
            ("offload_disk_gb", self.offload_disk_gb),
            ("offload_gpu_gb", self.offload_gpu_gb),
        ] {
            let value = value.unwrap_or(1.0);
            require(value > 0.0 && value <= MOST_GB, field, value, "more than 0 and at most 1000000000, in GB")?;
        }
        for (field, value) in
            [("dropout", self.dropout), ("attention_dropout", self.attention_dropout), ("momentum", self.momentum)]
        {
            require((0.0..1.0).contains(&value), field, value, "0 or more, and less than 1")?;
        }
        Ok(())
    }

    /// Whether what is said about scores says something: a score that nobody asks for is not ignored.
    fn check_scores(&self) -> Result<()> {
        let (usual, name) = (Score::Expected, self.scores.name());
        let places_rows = matches!(self.features, Features::Auto | Features::Tiered);
        let expected = "expected where features are neither auto nor tiered: no row is put before another";
        require(self.scores == usual || places_rows, "scores", name, expected)?;
        let expected = "expected where every step sees the whole graph: all rows are read alike";
        require(self.scores == usual || !self.full_graph, "scores", name, expected)?;
        let ranks = matches!(self.scores, Score::Pagerank | Score::WeightedPagerank);
        let expected = format!("{DAMPING} where scores is {name}: only a PageRank has it");
        require(ranks || self.score_damping == DAMPING, "score_damping", self.score_damping, &expected)?;
        let expected = format!("0 where scores is {name}: only a PageRank has it");
        require(ranks || self.score_iterations == 0, "score_iterations", self.score_iterations, &expected)?;
        let draws = self.scores == Score::Presampled;
        let expected = format!("0 where scores is {name}: only presampled draws batches");
        require(draws || self.score_batches == 0, "score_batches", self.score_batches, &expected)
    }

    /// A run's folder keeps paths as text.
    fn check_paths(&self) -> Result<()> {
        let model = match &self.model {
            Model::Text(path) => Some(path),
            Model::Named(_) => None,
        };
        for (field, path) in [
            ("dataset", self.dataset.as_ref()),
            ("out", self.out.as_ref()),
            ("offload_folder", self.offload_folder.as_ref()),
            ("model", model),
        ] {
            if let Some(path) = path.filter(|path| path.to_str().is_none()) {
                require(false, field, path.display(), "a path in UTF-8, as config.toml keeps it")?;
            }
        }
        Ok(())
    }

    fn check_fanout(&self) -> Result<()> {
        let shown = format!("{:?}", self.fanout);
        let counts = self.fanout.iter().all(|&count| count == -1 || count > 0);
        require(counts, "fanout", &shown, "counts, or -1 for all neighbours")?;
        let expected = format!("{} of them, one a layer", self.layers);
        require(self.fanout.len() == self.layers, "fanout", &shown, &expected)
    }
}

fn within<T: PartialOrd + Display>(field: &'static str, value: T, range: RangeInclusive<T>) -> Result<()> {
    let expected = format!("{} to {}", range.start(), range.end());
    require(range.contains(&value), field, value, &expected)
}

/// An error for the first of what was asked for in vain.
fn refuse(asked: impl Iterator<Item = Asked>, why: &str) -> Result<()> {
    let mut asked = asked;
    match asked.next() {
        None => Ok(()),
        Some(Asked { field, value, without }) => {
            Err(Error::Setting { field, value, expected: format!("{without}, because {why}") })
        }
    }
}

fn require(holds: bool, field: &'static str, value: impl Display, expected: &str) -> Result<()> {
    if holds {
        return Ok(());
    }
    Err(Error::Setting { field, value: value.to_string(), expected: expected.to_owned() })
}
