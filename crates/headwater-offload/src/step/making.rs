//! Plans of steps that were recorded, and others when steps are not what was expected.

use std::sync::Arc;

use super::basis::{Basis, Known, needed_rate};
use super::hindsight::{Drift, Finding, LOOK, PlannedStep, Promise, Trust, drift, judge, slow_disk};
use super::{CAPACITY, OffloadPolicy, StepReport, Steps, share};
use crate::error::Result;
use crate::lane::Lane;
use crate::plan::{LinkRates, OffloadRoom, TimeLimit, plan_if_worth, schedule};

/// Peaks that are lower by less than this share are not worth it.
const LEAST_SAVING: f64 = 0.2;
/// Steps after which faster rates lead to another plan, and after which rates are looked at though no step was seen to its end.
const SOME_STEPS: u64 = 16;

impl<M: Clone> Steps<M> {
    /// Makes schedules of steps that were recorded and are over, and others where steps are longer than was expected or bytes move at other
    /// rates.
    pub fn plan<L: Lane<Mark = M>>(
        &mut self,
        lane: &L,
        rates: impl FnOnce() -> Result<LinkRates>,
        room: &OffloadRoom,
    ) -> Result<()> {
        self.look_back(lane)?;
        let last = self.sizes.first().filter(|_| self.live == 0).and_then(|first| self.plans.get_mut(first));
        let is_due = |known: &&mut Known| known.seen >= LOOK || known.steps >= known.checked + SOME_STEPS;
        if let Some(known) = last.filter(is_due) {
            (known.checked, known.seen) = (known.steps, 0);
            self.plan_again(&rates()?, room);
            return Ok(());
        }
        let (Some((_, recorder)), Some(uses)) = (&self.timed, &self.uses) else { return Ok(()) };
        if !recorder.has_ended(lane)? {
            return Ok(());
        }
        let (found, base_bytes) = (recorder.trace(lane, uses)?, uses.first().map_or(0, |used| used.allocated));
        (self.timed, self.uses) = (None, None);
        if let Some(trace) = found
            && let Some(first) = trace.blocks.first().map(|block| block.bytes)
        {
            let basis = Basis { trace, base_bytes, trust: Trust::FULL, kept_s: None };
            self.adopt(first, basis, &rates()?, room);
        }
        Ok(())
    }

    /// Takes note of steps by plans that the device is done with.
    fn look_back<L: Lane<Mark = M>>(&mut self, lane: &L) -> Result<()> {
        for (which, took_s) in self.spans.over(lane)? {
            let stall_s = std::mem::take(&mut self.unseen_stall_s);
            // There is none if another was made since.
            let Some(known) = self.plans.values_mut().find(|known| known.made == which / 2) else { continue };
            if which % 2 == 1 {
                let kept_s = &mut known.basis.kept_s;
                *kept_s = Some(kept_s.map_or(took_s, |least| least.min(took_s)));
                continue;
            }
            if known.latest.len() == LOOK {
                known.latest.remove(0);
            }
            known.latest.push(PlannedStep { took_s, stall_s });
            known.seen += 1;
        }
        Ok(())
    }

    /// Holds the plan of the last step against steps by it.
    fn plan_again(&mut self, measured: &LinkRates, room: &OffloadRoom) {
        let (OffloadPolicy::Plan { slack, .. }, Some(first)) = (self.policy, self.sizes.first().copied()) else {
            return;
        };
        let Some(known) = self.plans.get(&first) else { return };
        let (mut basis, relied, steps) = (known.basis.clone(), known.rates, known.steps);
        let (expected, now) = (known.schedule.plan.forecast, measured.slower(basis.trust.caution));
        let drifted = drift(&relied, &now, &expected);
        let kept_s = basis.kept_s.unwrap_or(basis.trace.step_s);
        let promise = Promise { kept_s, expected, rates: relied, slack, is_wished: known.is_wished };
        let found = match drifted {
            // What is known to be slower is planned with first.
            Drift::Slower => Finding::InTime,
            _ => judge(&known.latest, &promise, basis.trust),
        };
        match found {
            Finding::Late(trust) => {
                log::debug!("steps take {:?}, and {kept_s} s if nothing leaves: {trust:?}", known.latest);
                basis.trust = trust;
                self.report.made_smaller += 1;
            }
            Finding::Stale => return self.record_again(first),
            Finding::InTime if drifted == Drift::Slower => self.say_slow(&relied, &now, expected.written_bytes),
            Finding::InTime if steps >= basis.trust.calm && !basis.trust.is_full() => basis.trust = basis.trust.more(),
            Finding::InTime if steps >= SOME_STEPS && drifted == Drift::Faster => {}
            Finding::InTime => return,
        }
        self.adopt(first, basis, measured, room);
    }

    /// Says once that a disk is slower than a plan relies on that uses it.
    fn say_slow(&mut self, relied: &LinkRates, now: &LinkRates, written_bytes: u64) {
        if self.report.slow_disk.is_none()
            && written_bytes > 0
            && let Some(said) = slow_disk(relied, now)
        {
            log::warn!("{said}");
            self.report.slow_disk = Some(said);
        }
    }

    /// Forgets a plan: the next step like it is recorded.
    pub(super) fn record_again(&mut self, first: u64) {
        self.plans.remove(&first);
        self.seen.insert(first, 1);
        self.forget_steps();
    }

    /// Steps from now on are of another plan.
    fn forget_steps(&mut self) {
        (self.report.planned_steps, self.report.planned_stall_s, self.followed) = (0, 0.0, 0);
        self.made += 1;
    }

    /// Makes a plan, which the next steps keep to that begin with a block of `first` bytes.
    fn adopt(&mut self, first: u64, basis: Basis, rates: &LinkRates, room: &OffloadRoom) {
        let OffloadPolicy::Plan { slack, most_bytes, device_bytes } = self.policy else { return };
        let Basis { trace, base_bytes, trust, .. } = &basis;
        let rates = rates.slower(trust.caution);
        let limit = TimeLimit { slack, per_byte_s: trust.per_byte_s };
        let mut room = OffloadRoom { gpu_bytes: most_bytes.map(|most| most.saturating_sub(*base_bytes)), ..*room };
        let mut made = plan_if_worth(trace, &rates, &room, &limit, LEAST_SAVING);
        let capacity = share(device_bytes, CAPACITY).saturating_sub(*base_bytes);
        let is_capped = room.gpu_bytes.is_none() && made.forecast.peak_bytes > capacity;
        if is_capped {
            room.gpu_bytes = Some(capacity);
            made = plan_if_worth(trace, &rates, &room, &limit, LEAST_SAVING);
        }
        let schedule = schedule(trace, made, &rates, &room);
        let made = &schedule.plan;
        self.report = StepReport {
            expected: Some(made.forecast),
            kept: Some(made.kept),
            limit: Some(made.limit),
            rates: Some(rates),
            needed_rate: needed_rate(trace),
            base_bytes: *base_bytes,
            ..std::mem::take(&mut self.report)
        };
        self.forget_steps();
        let is_wished = most_bytes.is_some() || is_capped;
        let (schedule, made) = (Arc::new(schedule), self.made);
        let known =
            Known { schedule, basis, made, rates, is_wished, steps: 0, checked: 0, seen: 0, latest: Vec::new() };
        self.plans.insert(first, known);
    }
}
