//! Fields that mean something only beside others. One that is given where it would be ignored is refused.

use headwater_compile::front;

use super::{
    Architecture, Course, DeviceName, Features, Model, OffloadTo, OptimiserName, ProducerName, RunConfig, RunFile,
    defaults,
};
use crate::error::{Error, Result};

impl RunConfig {
    /// Refuses what `given` says in vain: a value other than the model's own, of a field that this run does not read.
    pub fn check_given(&self, given: &RunFile) -> Result<()> {
        let own = serde_json::to_value(self.usual()).unwrap_or_default();
        let given = serde_json::to_value(given).unwrap_or_default();
        for (fields, is_read, expected) in self.conditions() {
            for field in fields.iter().filter(|_| !is_read) {
                let (value, own) = (&given[field], &own[field]);
                if !value.is_null() && value != own {
                    let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    let expected =
                        format!("{} {expected}", own.as_str().map_or_else(|| own.to_string(), str::to_owned));
                    return Err(Error::Setting { field, value, expected });
                }
            }
        }
        Ok(())
    }

    /// Refuses widths that no input has, for node types whose features have these.
    pub(crate) fn check_widths(&self, types: &[Option<usize>]) -> Result<()> {
        let has_all = types.iter().all(Option::is_some);
        let is_one = has_all && types.windows(2).all(|pair| pair[0] == pair[1]);
        for (field, value, is_read, expected) in [
            ("input_width", self.input_width, !is_one, "0, because features of all node types have one width already"),
            ("embedding", self.embedding, !has_all, "0, because every node type has features, and no row is learnt"),
        ] {
            if value > 0 && !is_read {
                return Err(Error::Setting { field, value: value.to_string(), expected: expected.to_owned() });
            }
        }
        let reads = if is_one { types.first().copied().flatten() } else { Some(self.input_widths().0) };
        let gives = self.hidden * if Takes::of(&self.model).heads { self.heads } else { 1 };
        let is_known = has_all && matches!(self.model, Model::Named(_));
        if self.residual && is_known && (self.layers < 2 || self.layers == 2 && reads != Some(gives)) {
            let expected = format!("false, because no layer but the last gives as many elements as it reads: {gives}");
            return Err(Error::Setting { field: "residual", value: true.to_string(), expected });
        }
        Ok(())
    }

    /// What the run would be if nobody had said more than which model, how many layers and which data.
    fn usual(&self) -> Self {
        let mut usual = defaults(&self.model, self.dataset.as_deref());
        let last = usual.fanout.last().copied().unwrap_or(-1);
        usual.fanout.resize(self.layers, last);
        usual
    }

    /// Which fields are read, and where they are not, why.
    fn conditions(&self) -> [(&'static [&'static str], bool, &'static str); 22] {
        let takes = Takes::of(&self.model);
        let leaves_for = self.offload_to();
        let goes = |to: OffloadTo| leaves_for.contains(&to);
        [
            (&["tune"], self.full_graph, "where full_graph is false: schedules are tuned for one graph"),
            (&["tune"], self.device != DeviceName::Cpu, "where device is cpu: its kernels have no schedules"),
            (&["offload"], self.full_graph, "where full_graph is false: activations of batches stay"),
            (&["offload"], self.device != DeviceName::Cpu, "where device is cpu: activations leave a GPU"),
            (
                &["offload_gpu_gb", "offload_slack"],
                !leaves_for.is_empty(),
                "where offload is not given: activations stay",
            ),
            (
                &["offload_host_gb"],
                goes(OffloadTo::Host) || goes(OffloadTo::Disk),
                "where offload names neither host nor disk",
            ),
            (&["offload_folder", "offload_disk_gb"], goes(OffloadTo::Disk), "where offload does not name disk"),
            (
                &["momentum", "nesterov"],
                self.optimiser == OptimiserName::Sgd,
                "where optimiser is not sgd: Adam's moments are its own",
            ),
            (&["decay_first_layer_only"], self.decay > 0.0, "where decay is 0: nothing decays"),
            (&["schedule_epochs", "schedule_gamma"], self.schedule == Course::Step, "where schedule is not step"),
            (&["schedule_floor"], self.schedule == Course::Cosine, "where schedule is not cosine"),
            (&["min_delta"], self.patience().is_some(), "where patience is 0: nothing stops early"),
            (&["producer_percent"], self.producer == ProducerName::Process, "where producer is not process"),
            (
                &["producer", "gather_sms", "gather_green", "gather_window"],
                self.device != DeviceName::Cpu,
                "where device is cpu: no GPU gathers",
            ),
            (&["hot_share"], self.features == Features::Tiered, "where features is not tiered: no row is hot"),
            (
                &["scores"],
                self.features == Features::Tiered || self.device != DeviceName::Cpu,
                "where features is not tiered: no row is put before another",
            ),
            (&["precision"], self.device != DeviceName::Cpu, "where device is cpu: it computes in single precision"),
            (&["fanout", "batch", "sampler"], !self.full_graph, "where full_graph is true: nothing is drawn"),
            (
                &["fanout", "sampler", "inverse_relations"],
                self.model != Model::Named(Architecture::Mlp),
                "where model is mlp: it reads no neighbours",
            ),
            (&["heads"], takes.heads, "for a model without attention heads"),
            (&["output_heads"], takes.output_heads, "for a model without heads of its own in the last layer"),
            (&["attention_dropout"], takes.attention_dropout, "for a model without attention"),
        ]
    }
}

/// Which of a run's fields the text of a model asks for.
struct Takes {
    heads: bool,
    output_heads: bool,
    attention_dropout: bool,
}

impl Takes {
    /// A text of one's own is read when the run begins, and says then what is wrong.
    fn of(model: &Model) -> Self {
        let all = Self { heads: true, output_heads: true, attention_dropout: true };
        let Model::Named(named) = model else { return all };
        let signature = front::builtin(named.name()).and_then(|text| front::signature(named.name(), text).ok());
        signature.map_or(all, |signature| {
            let has = |name: &str| signature.options.iter().any(|option| option.name == name);
            let heads = signature.sizes.iter().any(|size| size == "heads");
            Self { heads, output_heads: has("concat_heads"), attention_dropout: has("attention_dropout") }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_field_that_nobody_reads_is_refused_by_its_name() {
        for (alone, beside) in [
            ("momentum = 0.5", "optimiser = 'sgd'"),
            ("nesterov = true", "optimiser = 'sgd'"),
            ("decay_first_layer_only = true", "decay = 0.1"),
            ("schedule_epochs = 3", "schedule = 'step'"),
            ("schedule_gamma = 0.25", "schedule = 'step'"),
            ("schedule_floor = 0.001", "schedule = 'cosine'"),
            ("min_delta = 0.1", "patience = 3"),
            ("producer_percent = 20", "producer = 'process'"),
            ("fanout = [3, 3]", "full_graph = false"),
            ("batch = 7", "full_graph = false"),
            ("hot_share = 0.5", "features = 'tiered'"),
            ("sampler = 'cpu'", "full_graph = false"),
            ("heads = 2", "model = 'gat'"),
            ("output_heads = 2", "model = 'gat'"),
            ("attention_dropout = 0.25", "model = 'gat'"),
        ] {
            let field = alone.split(' ').next().unwrap();
            let parse = |text: &str| RunFile::parse(text, Path::new("flags")).unwrap();
            let full = if beside.starts_with("full") { "full_graph = true\n" } else { "" };
            let refused = RunConfig::resolve(parse(&format!("{full}{alone}")), RunFile::default()).unwrap_err();
            assert!(refused.to_string().starts_with(&format!("{field} is ")), "{refused}");
            RunConfig::resolve(parse(&format!("{alone}\n{beside}")), RunFile::default()).unwrap();
            // A run's own description has every field, and is read back.
            RunConfig::resolve(RunFile::default(), parse(&format!("{full}{alone}"))).unwrap();
        }
    }

    #[test]
    fn a_model_that_reads_no_neighbours_is_told_nothing_about_them() {
        for alone in ["fanout = [3, 3]", "sampler = 'cpu'", "inverse_relations = true"] {
            let of = |model: &str| {
                let flags = RunFile::parse(&format!("model = '{model}'\n{alone}"), Path::new("flags")).unwrap();
                RunConfig::resolve(flags, RunFile::default())
            };
            let refused = of("mlp").unwrap_err().to_string();
            assert!(refused.ends_with("where model is mlp: it reads no neighbours"), "{refused}");
            of("sage").unwrap();
        }
    }
}
