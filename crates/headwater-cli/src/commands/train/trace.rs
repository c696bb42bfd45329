//! A run as a timeline that browsers show: `chrome://tracing`, Perfetto.

use std::path::Path;

use anyhow::Context;
use headwater::train::gpu::timeline::{Stage, Stretch};
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

/// Writes all stretches, a line for each stage.
pub fn write(path: &Path, stretches: &[Stretch]) -> anyhow::Result<()> {
    let trace = Trace { trace_events: stretches.iter().map(bar).collect(), display_time_unit: "ms" };
    let text = serde_json::to_string(&trace)?;
    headwater::train::whole_file::write_whole(path, text.as_bytes())
        .with_context(|| format!("writing the trace {}", path.display()))
}

fn bar(stretch: &Stretch) -> Bar {
    let (stage, line) = match stretch.stage {
        Stage::Sample => ("sample", 0),
        Stage::Gather => ("gather", 1),
        Stage::Train => ("train", 2),
    };
    Bar {
        name: format!("{stage} {}", stretch.batch),
        cat: stage,
        ph: "X",
        ts: 1e3 * stretch.begin_ms,
        dur: 1e3 * (stretch.end_ms - stretch.begin_ms),
        pid: 1,
        tid: line,
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
        write(&path, &[stretch(Stage::Sample, 1.0), stretch(Stage::Train, 2.0)]).unwrap();
        let read: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        let bars = read["traceEvents"].as_array().unwrap();
        assert_eq!((bars.len(), bars[0]["name"].as_str(), bars[0]["ts"].as_f64()), (2, Some("sample 7"), Some(1000.0)));
        assert_eq!((bars[1]["tid"].as_u64(), bars[1]["dur"].as_f64()), (Some(2), Some(500.0)));
    }
}
