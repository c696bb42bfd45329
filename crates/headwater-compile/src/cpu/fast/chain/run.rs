//! Blocks of rows through all kernels of a chain, in parallel.

use std::ops::Range;

use rayon::prelude::*;

use super::super::fuse::Action;
use super::super::index::Index;
use super::super::registers::Memory;
use super::super::spare::Spare;
use super::super::{Context, Written};
use super::link::{Link, Locals};
use crate::error::Result;
use crate::intra::{BufferId, Kernel};

/// Numbers that all kernels should have in hand for a block together: most of the second-level cache.
const BLOCK_NUMBERS: usize = 320 << 10;
/// Parts of the rows whose sums are made apart, at most. Fixed, so that sums do not depend on the number of threads.
const MOST_PARTS: usize = 8;
/// Rows of a part, at least.
const PART_ROWS: usize = 256;
/// Sums that are added up at a time.
const SUM_CHUNK: usize = 8 << 10;

/// At most `most`, so that all parts are about as long.
fn even(count: usize, most: usize) -> usize {
    count.div_ceil(count.div_ceil(most).max(1)).max(1)
}

/// Kernels that run together, with what they read found.
pub(in super::super) struct Chain<'a> {
    context: &'a Context<'a>,
    links: Vec<Link<'a>>,
    /// Rows of a block.
    most: usize,
}

/// Buffers that outlive the chain, with the part of them that belongs to some rows, and how many numbers a row has.
type Outs<'w> = Vec<(BufferId, &'w mut [f32], usize)>;

impl<'a> Chain<'a> {
    /// Of some kernels; `None` where their rows cannot be cut into blocks.
    pub fn new(context: &'a Context<'a>, kernels: &'a [Kernel], actions: &'a [Vec<Action>]) -> Result<Option<Self>> {
        let mut links = Vec::with_capacity(kernels.len());
        for (kernel, actions) in kernels.iter().zip(actions) {
            let Some(link) = Link::new(context, kernel, actions)? else { return Ok(None) };
            links.push(link);
        }
        let per_row: usize = links.iter().map(|link| link.numbers(context)).sum();
        Ok(Some(Self { context, links, most: (BLOCK_NUMBERS / per_row.max(1)).clamp(32, 2048) }))
    }

    /// Runs them for all `count` rows. `written` is what outlives them; what sums of all rows go to comes last, in the
    /// kernels' order.
    pub fn run(&self, count: usize, written: &mut [Written]) -> Result<()> {
        let summing: Vec<(usize, &Link<'_>)> =
            self.links.iter().enumerate().filter(|(_, link)| link.sums() > 0).collect();
        let (rows, sums) = written.split_at_mut(written.len() - summing.len());
        let part_rows =
            if summing.is_empty() { even(count, self.most) } else { count.div_ceil(MOST_PARTS).max(PART_ROWS) };
        let tasks = tasks(count, part_rows, rows);
        let parts: Vec<Vec<Vec<f32>>> =
            tasks.into_par_iter().map(|(rows, outs)| self.part(rows, outs)).collect::<Result<_>>()?;
        for ((at, link), out) in summing.into_iter().zip(sums) {
            out.values.par_chunks_mut(SUM_CHUNK).enumerate().for_each(|(chunk, out)| {
                let own = chunk * SUM_CHUNK..chunk * SUM_CHUNK + out.len();
                out.fill(0.0);
                for (place, part) in parts.iter().enumerate() {
                    link.add(place == 0, &part[at][own.clone()], out);
                }
                link.finish(count, out);
            });
        }
        Ok(())
    }

    /// All blocks of some rows, one after the other. The sums of each kernel come back.
    fn part(&self, rows: Range<usize>, mut outs: Outs<'_>) -> Result<Vec<Vec<f32>>> {
        let mut sums: Vec<Vec<f32>> = self.links.iter().map(|link| vec![0.0; link.sums()]).collect();
        let step = even(rows.len(), self.most);
        let mut first = rows.start;
        while first < rows.end {
            let most = first..(first + step).min(rows.end);
            let end = self.links.iter().fold(most.end, |end, link| link.end(first..end)).max(first + 1);
            self.block(first..end, cut(&mut outs, end - first), (first == rows.start, &mut sums))?;
            first = end;
        }
        Ok(sums)
    }

    /// What products of a kernel are added to, if nothing else in it or after it reads that.
    fn last_use(&self, at: usize) -> Option<BufferId> {
        let id = self.links[at].adds_to()?;
        let reads = self.links[at..].iter().flat_map(|link| &link.reads).filter(|read| **read == id).count();
        (reads == 1).then_some(id)
    }

    fn block(&self, rows: Range<usize>, outs: Outs<'_>, (is_first, sums): (bool, &mut [Vec<f32>])) -> Result<()> {
        let mut outs: Vec<_> = outs.into_iter().map(|(id, out, _)| (id, Some(out))).collect();
        let all = self.links.iter().flat_map(|link| &link.writes);
        let mut ids = Vec::new();
        let mut made = Vec::new();
        for id in all {
            let out = outs.iter_mut().find(|(out, _)| out == id).and_then(|(_, out)| out.take());
            ids.push(*id);
            made.push(out.map_or_else(
                || Memory::Spare(Spare::new(rows.len() * self.context.program[*id].shape.len())),
                Memory::Out,
            ));
        }
        let mut first = 0;
        for (at, (link, sums)) in self.links.iter().zip(sums).enumerate() {
            let (before, own) = made.split_at_mut(first);
            let begun = self.last_use(at).and_then(|id| ids.iter().position(|other| *other == id)).and_then(|place| {
                let is_spare = matches!(before.get(place), Some(Memory::Spare(_)));
                let taken = is_spare.then(|| std::mem::replace(&mut before[place], Memory::Spare(Spare::new(0))));
                taken.and_then(Memory::into_spare)
            });
            let values = ids.iter().copied().zip(before.iter().map(|made| &made[..])).collect();
            let locals = Locals { after: Index::After(rows.start), made: values };
            link.block(self.context, rows.clone(), &locals, &mut own[..link.writes.len()], begun, (is_first, sums))?;
            first += link.writes.len();
        }
        Ok(())
    }
}

/// The part of every buffer that belongs to the next `rows` rows.
fn cut<'w>(rests: &mut Outs<'w>, rows: usize) -> Outs<'w> {
    let next = |(id, rest, len): &mut (BufferId, &'w mut [f32], usize)| {
        let (part, behind) = std::mem::take(rest).split_at_mut(rows * *len);
        *rest = behind;
        (*id, part, *len)
    };
    rests.iter_mut().map(next).collect()
}

/// All rows in parts, each with its part of what is written.
fn tasks<'w>(count: usize, part_rows: usize, written: &'w mut [Written]) -> Vec<(Range<usize>, Outs<'w>)> {
    let mut rests: Outs<'w> =
        written.iter_mut().map(|written| (written.id, &mut written.values[..], written.shape.len())).collect();
    let parts = (0..count).step_by(part_rows).map(|first| first..(first + part_rows).min(count));
    parts.map(|rows| (rows.clone(), cut(&mut rests, rows.len()))).collect()
}
