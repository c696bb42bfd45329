//! `headwater export`: a dataset's arrays for programs that know nothing of Headwater.

use headwater::graph::Dataset;
use headwater::graph::dataset::export_npy;

use crate::args::ExportArgs;
use crate::progress::Bar;
use crate::report;

/// Writes them.
pub fn run(args: &ExportArgs) -> anyhow::Result<()> {
    let dataset = Dataset::open(&args.dataset)?;
    export_npy(&dataset, &args.npy, &Bar::new())?;
    report::line(format!("wrote {}", args.npy.display()));
    Ok(())
}
