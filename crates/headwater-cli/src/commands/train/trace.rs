//! A run as a timeline that browsers show: `chrome://tracing`, Perfetto.

use std::path::Path;

use anyhow::Context;
use headwater::train::gpu::timeline::{KernelStretch, Stage, Stretch};
use serde::Serialize;

/// One bar.
#[derive(Debug, Serialize)]
struct Bar {
    name: String,
    cat: &'static str,
    /// A bar with its length.
    ph: &'static str,
    /// Microseconds.
    ts: f64,
    dur: f64,
    pid: u32,
    tid: u32,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace {
    trace_events: Vec<Bar>,
    display_time_unit: &'static str,
}

/// Writes all stretches, a line for each stage, and kernels below them.
pub fn write(path: &Path, stretches: &[Stretch], kernels: &[KernelStretch]) -> anyhow::Result<()> {
    let stages = stretches.iter().map(|own| {
        let (stage, _) = line_of(own.stage);
        bar(own.stage, format!("{stage} {}", own.batch), own.begin_ms, own.end_ms)
    });
    let kernels = kernels.iter().map(|own| bar(own.stage, own.name.clone(), own.begin_ms, own.end_ms));
    let trace = Trace { trace_events: stages.chain(kernels).collect(), display_time_unit: "ms" };
    let text = serde_json::to_string(&trace)?;
    headwater::train::whole_file::write_whole(path, text.as_bytes())
        .with_context(|| format!("writing the trace {}", path.display()))
}

fn bar(stage: Stage, name: String, begin_ms: f64, end_ms: f64) -> Bar {
    let (cat, tid) = line_of(stage);
    Bar { name, cat, ph: "X", ts: 1e3 * begin_ms, dur: 1e3 * (end_ms - begin_ms), pid: 1, tid }
}

/// The name of a stage and its line. A bar inside another on the same line is shown below it.
fn line_of(stage: Stage) -> (&'static str, u32) {
    match stage {
        Stage::Sample => ("sample", 0),
        Stage::Blocks => ("blocks", 1),
        Stage::Gather => ("gather", 2),
        Stage::Train => ("train", 3),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_in_microseconds_and_a_line_a_stage() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.json");
        let stretch = |stage, begin_ms| Stretch { stage, batch: 7, begin_ms, end_ms: begin_ms + 0.5 };
        let kernel = KernelStretch { stage: Stage::Train, name: "loss".to_owned(), begin_ms: 2.1, end_ms: 2.2 };
        write(&path, &[stretch(Stage::Sample, 1.0), stretch(Stage::Train, 2.0)], &[kernel]).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let bars = read["traceEvents"].as_array().unwrap();
        assert_eq!((bars.len(), bars[0]["name"].as_str(), bars[0]["ts"].as_f64()), (3, Some("sample 7"), Some(1000.0)));
        assert_eq!((bars[1]["tid"].as_u64(), bars[1]["dur"].as_f64()), (Some(3), Some(500.0)));
        assert_eq!((bars[2]["tid"].as_u64(), bars[2]["name"].as_str()), (Some(3), Some("loss")));
    }
}
