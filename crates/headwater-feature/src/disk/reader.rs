//! One call's units: claimed, planned and read piece by piece, so that the disk never waits for a plan.
//!
//! Requests are in flight while the next units are claimed, and while units that are in the cache are copied. What lands is
//! copied into its slot and to whoever wants it. When nothing is left to read, all threads copy what is left of the cache's
//! units; not before: a thread of the pool may take on another call, which must not wait for a promise of this one.
//!
//! After a failure nothing more is submitted, what is in flight is still collected, and the units that did not come are
//! open to the next call.

use std::time::Instant;

use headwater_memory::io::{AlignedBuffer, AtEnd, Completion, Queue, Request};
use rayon::prelude::*;

use super::claims::{Claims, Found};
use super::counters::{Tally, count};
use super::pieces::Wanted;
use super::reads::{UnitRead, plan};
use super::rows::Table;
use crate::error::{Error, Result};

/// Units claimed at a time: enough to merge neighbours, few enough that nobody waits for the lock.
const CLAIM_UNITS: usize = 1024;

/// Units copied before the queue is looked at again: less time than the disk needs for its requests in flight.
const COPY_UNITS: usize = 16;
/// The least a thread of the pool is woken for.
const SHARE_UNITS: usize = 64;

/// One call's units.
pub(super) struct Reader<'t, 'p, 'o> {
    table: &'t Table,
    tally: &'t Tally,
    claims: Claims<'t>,
    queue: Queue<AlignedBuffer>,
    wanted: Vec<Wanted<'p, 'o>>,
    /// Positions in `wanted` of the units in the cache; the first `copied` are done.
    hits: Vec<usize>,
    copied: usize,
    /// Positions in `wanted` of all other units; the first `claimed` are claimed.
    others: Vec<usize>,
    claimed: usize,
    /// Positions in `wanted` of the units to read.
    missing: Vec<usize>,
    /// Requests for `missing`; the first `submitted` are on their way or done.
    reads: Vec<UnitRead>,
    submitted: usize,
    in_flight: usize,
    failure: Option<Error>,
}

impl<'t, 'p, 'o> Reader<'t, 'p, 'o> {
    /// For units in rising order, each once.
    pub(super) fn new(table: &'t Table, tally: &'t Tally, wanted: Vec<Wanted<'p, 'o>>) -> Result<Self> {
        let claims = Claims::look(&table.residents, wanted.iter().map(|wanted| wanted.unit));
        let is_hit = |at: &usize| matches!(claims.found()[*at], Found::Here(_));
        let (hits, others): (Vec<usize>, Vec<usize>) = (0..wanted.len()).partition(is_hit);
        count(&tally.hits, hits.len());
        Ok(Self {
            table,
            tally,
            queue: table.engine.queue(table.staging.most())?.with_timeout(table.timeout),
            claims,
            wanted,
            hits,
            copied: 0,
            others,
            claimed: 0,
            missing: Vec::new(),
            reads: Vec::new(),
            submitted: 0,
            in_flight: 0,
            failure: None,
        })
    }

    /// Brings all units. Those come back that another call had promised and did not bring.
    pub(super) fn run(mut self) -> Result<Vec<Wanted<'p, 'o>>> {
        loop {
            if self.failure.is_none() {
                self.failure = self.top_up().err();
            }
            if self.in_flight == 0 {
                break;
            }
            match self.queue.poll() {
                Some(completion) => self.land(completion),
                None if self.copied < self.hits.len() && self.failure.is_none() => {
                    self.failure = self.copy_some().err();
                }
                None => self.wait_and_land()?,
            }
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.copy_rest()?;
        self.join()
    }

    fn wait_and_land(&mut self) -> Result<()> {
        let started = Instant::now();
        let next = self.queue.next();
        self.tally.waited(started.elapsed());
        match next {
            Ok(Some(completion)) => self.land(completion),
            // It holds nothing, whatever was counted.
            Ok(None) => self.table.staging.lose(std::mem::take(&mut self.in_flight)),
            Err(error) => return Err(self.failure.take().unwrap_or(error.into())),
        }
        Ok(())
    }

    /// Copies a few units that are in the cache.
    fn copy_some(&mut self) -> Result<()> {
        let end = self.hits.len().min(self.copied + COPY_UNITS);
        for &at in &self.hits[self.copied..end] {
            let Found::Here(slot) = self.claims.found()[at] else { continue };
            self.table.slots.read(slot, |bytes| self.wanted[at].fill(bytes))?;
        }
        self.copied = end;
        Ok(())
    }

    /// Copies all other units that are in the cache, on all threads. Nothing of this call is promised any more.
    fn copy_rest(&mut self) -> Result<()> {
        let Some(&first) = self.hits.get(self.copied) else { return Ok(()) };
        let rest = self.wanted[first..].par_iter_mut().zip(&self.claims.found()[first..]);
        rest.with_min_len(SHARE_UNITS).try_for_each(|(wanted, found)| match *found {
            Found::Here(slot) => self.table.slots.read(slot, |bytes| wanted.fill(bytes)),
            _ => Ok(()),
        })
    }

    /// Submits until no buffer is left, or nothing to read.
    fn top_up(&mut self) -> Result<()> {
        loop {
            while self.submitted == self.reads.len() {
                if self.claimed == self.others.len() {
                    return Ok(());
                }
                self.claim_more()?;
            }
            let Some(buffer) = self.buffer()? else { return Ok(()) };
            self.submit(buffer)?;
        }
    }

    /// Promises the next units that are nowhere, and plans how to read them.
    fn claim_more(&mut self) -> Result<()> {
        let end = self.others.len().min(self.claimed + CLAIM_UNITS);
        let positions = &self.others[self.claimed..end];
        self.claimed = end;
        self.claims.promise(positions, |at| self.wanted[at].unit);
        let first_missing = self.missing.len();
        for &at in positions {
            match self.claims.found()[at] {
                Found::Mine(_) | Found::Nowhere => self.missing.push(at),
                Found::Promised(_) => count(&self.tally.joined, 1),
                // It came since the call began.
                Found::Here(slot) => {
                    count(&self.tally.hits, 1);
                    self.table.slots.read(slot, |bytes| self.wanted[at].fill(bytes))?;
                }
            }
        }
        let missing = &self.missing[first_missing..];
        count(&self.tally.misses, missing.len());
        let units: Vec<u64> = missing.iter().map(|&at| self.wanted[at].unit).collect();
        self.reads.extend(plan(&units, &self.table.rules)?.into_iter().map(|read| {
            let units = read.units.start + first_missing..read.units.end + first_missing;
            UnitRead { units, ..read }
        }));
        Ok(())
    }

    /// A buffer to read into; none while this call has others in flight that it can wait for.
    fn buffer(&self) -> Result<Option<AlignedBuffer>> {
        let buffer = self.table.staging.try_take()?;
        if buffer.is_some() || self.in_flight > 0 {
            return Ok(buffer);
        }
        let started = Instant::now();
        let buffer = self.table.staging.take(self.table.engine.kind(), self.table.timeout);
        self.tally.waited(started.elapsed());
        buffer.map(Some)
    }

    fn submit(&mut self, buffer: AlignedBuffer) -> Result<()> {
        let read = &self.reads[self.submitted];
        let request = Request::read(&self.table.file, read.offset, buffer)
            .span(0..read.bytes)
            .at_end(AtEnd::Stop)
            .tag(self.submitted as u64);
        match self.queue.try_submit(request) {
            Ok(_) => {
                self.submitted += 1;
                self.in_flight += 1;
                Ok(())
            }
            Err(rejected) => {
                self.table.staging.put(rejected.request.buffer);
                Err(rejected.error.into())
            }
        }
    }

    fn land(&mut self, completion: Completion<AlignedBuffer>) {
        let Completion { tag, buffer, result, .. } = completion;
        self.in_flight -= 1;
        let at = usize::try_from(tag).unwrap_or(usize::MAX);
        let done = result.map_err(Error::from).and_then(|bytes| self.deliver(at, &buffer, bytes));
        self.table.staging.put(buffer);
        if let Err(error) = done {
            self.failure.get_or_insert(error);
        }
    }

    /// Takes what a read brought to the cache and to the output.
    fn deliver(&mut self, read: usize, buffer: &[u8], got_bytes: usize) -> Result<()> {
        let UnitRead { offset, bytes, units } = self.reads[read].clone();
        self.table.check_length(offset, bytes, got_bytes)?;
        self.table.check_sums(offset, &buffer[..got_bytes])?;
        let unit_bytes = self.table.rules.unit_bytes;
        self.table.counters.read(bytes / unit_bytes);
        count(&self.table.counters.read_bytes, got_bytes);
        let positions = &self.missing[units];
        for &at in positions {
            let wanted = &mut self.wanted[at];
            let start = usize::try_from(wanted.unit * unit_bytes as u64 - offset).unwrap_or(usize::MAX);
            let unit = &buffer[start..start + unit_bytes];
            if let Found::Mine(slot) = self.claims.found()[at] {
                self.table.slots.write(slot, unit)?;
            }
            wanted.fill(unit);
        }
        self.claims.keep(positions);
        Ok(())
    }

    /// Copies what others have brought.
    fn join(&mut self) -> Result<Vec<Wanted<'p, 'o>>> {
        let started = Instant::now();
        let mut again = Vec::new();
        for (at, mut wanted) in std::mem::take(&mut self.wanted).into_iter().enumerate() {
            if !matches!(self.claims.found()[at], Found::Promised(_)) {
                continue;
            }
            match self.claims.wait(at) {
                Some(slot) => self.table.slots.read(slot, |bytes| wanted.fill(bytes))?,
                None => again.push(wanted),
            }
        }
        self.tally.waited(started.elapsed());
        Ok(again)
    }
}

impl Drop for Reader<'_, '_, '_> {
    fn drop(&mut self) {
        if self.in_flight > 0 {
            self.table.staging.lose(self.in_flight);
        }
    }
}
