//! How gradients become better parameters.
//!
//! The rules are those of `torch.optim`, term by term, so that published settings mean the same here. Each is one pass
//! over the memory of a parameter, its gradient and its state, in pieces: the result does not depend on the
//! number of threads, because no number depends on another.
//!
//! A gradient of some rows changes those rows and what is remembered of them (`rows.rs`); all others stay.

mod adam;
pub mod device;
mod rows;
mod sgd;
#[cfg(test)]
mod tests;

use std::collections::HashMap;

use headwater_tensor::parallel;

pub use adam::Adam;
pub use sgd::Sgd;

use crate::array::{Array, check_length};
use crate::error::{Error, Result};
use crate::gradient::{Gradient, RowGradient};
use crate::parameter::{Parameter, Parameters};

/// Numbers that one thread updates at a time: their four arrays fit into its second cache.
const PIECE: usize = 1 << 14;
/// Below this many numbers, waking other threads takes longer than the work.
const ALONE: usize = 1 << 15;

/// How a step is taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Rule {
    /// Down the gradient, with or without momentum.
    Sgd(Sgd),
    /// Adam, whose decay is a part of the gradient.
    Adam(Adam),
    /// Adam whose decay shrinks the parameter by itself.
    AdamW(Adam),
}

impl Rule {
    /// The arrays that it keeps for each parameter.
    fn slots(&self) -> &'static [&'static str] {
        match self {
            Self::Sgd(sgd) if sgd.momentum == 0.0 => &[],
            Self::Sgd(_) => &["momentum"],
            Self::Adam(_) | Self::AdamW(_) => &["mean", "square"],
        }
    }

    fn at(&self, now: Now) -> Step {
        match self {
            Self::Sgd(sgd) if sgd.momentum == 0.0 => Step::Plain(sgd::Plain::new(now)),
            Self::Sgd(sgd) => Step::Momentum(sgd.at(now)),
            Self::Adam(adam) => Step::Adam(adam.at(now)),
            Self::AdamW(adam) => Step::Adam(adam.decoupled_at(now)),
        }
    }
}

/// What parameters of one group have in common.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Group {
    /// Weight decay.
    pub decay: f64,
}

/// A rule with its memory of the steps before.
#[derive(Debug, Clone, PartialEq)]
pub struct Optimiser {
    rule: Rule,
    /// For each parameter, its weight decay.
    decays: Vec<f64>,
    steps: u64,
    /// For each parameter, the arrays that the rule keeps.
    state: Vec<Vec<Array>>,
}

/// What a step of one parameter is told.
#[derive(Debug, Clone, Copy)]
struct Now {
    rate: f64,
    decay: f64,
    /// Number of the step, from 1.
    step: u64,
}

/// A step with everything worked out that is the same for all elements of a parameter.
#[derive(Debug, Clone, Copy)]
enum Step {
    Plain(sgd::Plain),
    Momentum(sgd::Step),
    Adam(adam::Step),
}

/// A part of a parameter, with what belongs to it.
struct Piece<'a> {
    step: Step,
    values: &'a mut [f32],
    slope: Slope<'a>,
    state: Vec<&'a mut [f32]>,
}

/// The gradient of a part of a parameter.
#[derive(Debug, Clone, Copy)]
enum Slope<'a> {
    /// Of every element.
    Dense(&'a [f32]),
    /// Of some rows; the part begins with this one.
    Rows(&'a RowGradient, u64),
}

impl Optimiser {
    /// One for these parameters that has taken no step.
    pub fn new(rule: Rule, groups: &[Group], parameters: &Parameters) -> Result<Self> {
        let decay_of = |parameter: &Parameter| {
            let why = || format!("is in group {}; there are {}", parameter.group, groups.len());
            let group = groups.get(parameter.group);
            group.map(|group| group.decay).ok_or_else(|| Error::Parameter { name: parameter.name.clone(), why: why() })
        };
        let slots_of = |parameter: &Parameter| -> Vec<Array> {
            let name = |slot| format!("{}/{slot}", parameter.name);
            rule.slots().iter().map(|slot| Array::zeros(name(slot), &parameter.shape)).collect()
        };
        let decays = parameters.iter().map(decay_of).collect::<Result<_>>()?;
        Ok(Self { rule, decays, steps: 0, state: parameters.iter().map(slots_of).collect() })
    }

    /// One step at the given learning rate. The gradients stand in the order of the parameters. Nothing is changed when
    /// they do not fit.
    pub fn step(&mut self, parameters: &mut Parameters, gradients: &[Gradient], rate: f64) -> Result<()> {
        self.check(parameters, gradients)?;
        self.steps += 1;
        let mut pieces = Vec::new();
        let memory = self.state.iter_mut().zip(&self.decays);
        for ((values, gradient), (state, &decay)) in parameters.values_mut().zip(gradients).zip(memory) {
            let step = self.rule.at(Now { rate, decay, step: self.steps });
            match gradient {
                Gradient::Dense(gradient) => pieces.extend(cut(step, values, gradient, state)),
                Gradient::Rows(rows) => pieces.extend(rows::cut(step, values, rows, state)),
            }
        }
        let elements: usize = gradients.iter().map(|gradient| gradient.values().len()).sum();
        if elements < ALONE {
            pieces.into_iter().for_each(Piece::take);
        } else {
            parallel::for_each(pieces.into_iter(), |_, piece| piece.take());
        }
        Ok(())
    }

    fn check(&self, parameters: &Parameters, gradients: &[Gradient]) -> Result<()> {
        check_length("the list of parameters", parameters.len(), self.state.len())?;
        check_length("the list of gradients", gradients.len(), self.state.len())?;
        for ((parameter, gradient), state) in parameters.iter().zip(gradients).zip(&self.state) {
            let (name, count) = (&parameter.name, parameter.values.len());
            match gradient {
                Gradient::Dense(values) => check_length(format!("the gradient of {name:?}"), values.len(), count)?,
                Gradient::Rows(rows) => rows::check(parameter, rows)?,
            }
            state.iter().try_for_each(|slot| check_length(format!("{:?}", slot.name), slot.values.len(), count))?;
        }
        Ok(())
    }

    /// Steps taken so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Says how many steps were taken by whoever took them elsewhere.
    pub(crate) fn set_steps(&mut self, steps: u64) {
        self.steps = steps;
    }

    /// All that it remembers besides the number of steps, by names of their own.
    pub fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.state.iter().flatten()
    }

    /// The weight decay of every parameter.
    pub(crate) fn decays(&self) -> &[f64] {
        &self.decays
    }

    /// Takes over what another one of the same rule and parameters remembered. Either all of it or nothing.
    pub fn restore(&mut self, steps: u64, arrays: Vec<Array>) -> Result<()> {
        let wrong = |why: String| Err(Error::OptimiserState { why });
        let mut saved: HashMap<String, Array> = arrays.into_iter().map(|array| (array.name.clone(), array)).collect();
        for slot in self.arrays() {
            match saved.get(&slot.name) {
                None => return wrong(format!("has no {:?}: it is of another optimiser or model", slot.name)),
                Some(array) if array.shape != slot.shape || array.values.len() != slot.values.len() => {
                    return wrong(format!("has {:?} of shape {:?}; expected {:?}", slot.name, array.shape, slot.shape));
                }
                Some(_) => {}
            }
        }
        if saved.len() != self.arrays().count() {
            return wrong(format!("has {} arrays; expected {}", saved.len(), self.arrays().count()));
        }
        for slot in self.state.iter_mut().flatten() {
            if let Some(array) = saved.remove(&slot.name) {
                *slot = array;
            }
        }
        self.steps = steps;
        Ok(())
    }
}

/// Cuts a parameter, its gradient and its state into pieces.
fn cut<'a>(
    step: Step,
    values: &'a mut [f32],
    gradient: &'a [f32],
    state: &'a mut [Array],
) -> impl Iterator<Item = Piece<'a>> {
    let mut state: Vec<_> = state.iter_mut().map(|slot| slot.values.chunks_mut(PIECE)).collect();
    values.chunks_mut(PIECE).zip(gradient.chunks(PIECE)).map(move |(values, gradient)| {
        let state = state.iter_mut().filter_map(Iterator::next).collect();
        Piece { step, values, slope: Slope::Dense(gradient), state }
    })
}

impl Piece<'_> {
    fn take(mut self) {
        match self.slope {
            Slope::Dense(gradient) => self.step.take(self.values, gradient, &mut self.state, 0),
            Slope::Rows(rows, first) => rows::take(self, rows, first),
        }
    }
}

impl Step {
    /// Steps of the elements from `at` on, as many as have gradients.
    fn take(self, values: &mut [f32], gradient: &[f32], state: &mut [&mut [f32]], at: usize) {
        let own = at..at + gradient.len();
        let values = &mut values[own.clone()];
        match (self, state) {
            (Self::Plain(step), _) => step.take(values, gradient),
            (Self::Momentum(step), [momentum]) => step.take(values, gradient, &mut momentum[own]),
            (Self::Adam(step), [mean, square]) => {
                step.take(values, gradient, &mut mean[own.clone()], &mut square[own]);
            }
            // The state has as many arrays as the rule asked for when it was made.
            _ => {}
        }
    }
}
