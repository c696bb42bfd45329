//! `headwater compile`: what a layer becomes, and what that will cost.

mod request;
mod summary;
mod view;

use headwater::compile::pass::compile;

use crate::args::CompileArgs;
use crate::report;
use request::Request;
use summary::Summary;

/// Compiles a layer and shows it.
pub fn run(args: &CompileArgs) -> anyhow::Result<()> {
    let request = Request::of(args)?;
    let compiled = compile(&request.layer.program, &request.statistics, request.on)?;
    let summary = Summary::of(&request, &compiled, args.level)?;
    if args.json {
        return report::json(&summary);
    }
    view::show(&summary);
    Ok(())
}
