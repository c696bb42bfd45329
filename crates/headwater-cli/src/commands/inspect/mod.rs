//! `headwater inspect`: what a dataset is, how its degrees are spread, and whether its files are those that were written.

mod summary;
mod view;

use headwater::graph::Dataset;

use crate::args::InspectArgs;
use crate::progress::Bar;
use crate::{picture, report};

/// Looks at a dataset. Files are verified first: figures of a damaged dataset mean nothing.
pub fn run(args: &InspectArgs) -> anyhow::Result<()> {
    if let Some(path) = &args.plot {
        picture::format_of(path)?;
    }
    let dataset = Dataset::open(&args.dataset)?;
    if !args.no_verify {
        dataset.verify(&Bar::new())?;
    }
    let summary = summary::Summary::of(&dataset, !args.no_verify)?;
    if args.json {
        report::json(&summary)?;
    } else {
        view::show(&summary);
    }
    if let Some(path) = &args.plot {
        picture::draw(path, &[view::chart(&summary)])?;
    }
    Ok(())
}
