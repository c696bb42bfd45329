//! `bench gather` on a machine without a GPU: the CPU variant, host memory to host memory.

use std::time::Instant;

use headwater::memory::{Buffer, Host};
use headwater::tensor::gather::{IdSlice, gather_host};
use headwater::train::threads::bounded;

use super::gather_gpu::{distinct, fill_table, median_and_spread, random_ids};
use super::gather_steps::Step;
use super::gather_view::{Row, View};
use super::usage::cpu_seconds;
use crate::args::GatherArgs;

/// Runs every step once the table is made.
pub fn run(args: &GatherArgs, steps: &[Step], view: &mut View) -> anyhow::Result<()> {
    let most = steps.iter().map(|step| step.table_bytes).max().unwrap_or(0);
    let mut table = Buffer::<u8, Host>::new(usize::try_from(most)?)?;
    fill_table(table.as_mut_slice());
    let pool = rayon::ThreadPoolBuilder::new().num_threads(bounded(args.cpu_threads.unwrap_or(0))).build()?;
    for step in steps {
        let table = table.as_slice();
        let row = pool.install(|| measure(args, step, table))?;
        view.rows(vec![row])?;
    }
    Ok(())
}

fn measure(args: &GatherArgs, step: &Step, table: &[u8]) -> anyhow::Result<Row> {
    let width = usize::try_from(step.width_bytes)?;
    let table_rows = step.table_bytes / step.width_bytes;
    let table = &table[..usize::try_from(table_rows * step.width_bytes)?];
    let ids = random_ids(args.seed, step.rows, table_rows);
    let mut out = Buffer::<u8, Host>::new(ids.len() * width)?;
    let (mut times, begun, cpu) = (Vec::new(), Instant::now(), cpu_seconds());
    while times.len() < 3 || (begun.elapsed().as_millis() < u128::from(args.least_ms) && times.len() < 100) {
        let start = Instant::now();
        gather_host(table, width, IdSlice::U32(&ids), out.as_mut_slice())?;
        times.push(start.elapsed().as_secs_f64());
    }
    let repeats = times.len();
    let (cpu_used, wall): (f64, f64) = (cpu_seconds() - cpu, times.iter().sum());
    let (median, spread) = median_and_spread(&mut times);
    Ok(Row {
        suite: step.suite.into(),
        table_bytes: step.table_bytes,
        width_bytes: step.width_bytes,
        rows: step.rows,
        distinct_rows: Some(distinct(&ids)),
        variant: "cpu".into(),
        chosen: "cpu".into(),
        gb_per_s: (ids.len() * width) as f64 / median / 1e9,
        ideal_gb_per_s: None,
        share_of_ideal: None,
        spread,
        repeats,
        cpu_seconds: cpu_used / repeats as f64,
        cpu_cores: cpu_used / wall,
        joules: None,
        sms: None,
    })
}
