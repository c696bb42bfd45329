//! A program with gradients, cut into what runs forward and what runs backward.
//!
//! Between the two lie values that the backward pass reads: each is saved, or computed again from what is there anyway. Again
//! is cheaper for elementwise operators over saved values and inputs: they cost a few instructions an element, and what is
//! saved costs memory for the whole step.

use crate::inter::{Op, Output, Program, Value, ValueId};
use crate::pass::autodiff::gradient_name;

/// Both directions. What `forward` gives beyond the layer's outputs are inputs of `backward` by the same names.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    /// From inputs to outputs and saved values.
    pub forward: Program,
    /// From inputs, saved values and the output's gradient to gradients.
    pub backward: Program,
}

/// Whether values are computed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recompute {
    /// Everything is saved.
    Off,
    /// What is cheap is computed again.
    On,
}

/// Cuts a program that has the outputs of the layer and their gradients.
pub fn split(joint: &Program, recompute: Recompute) -> Split {
    let is_gradient = |name: &str| name.starts_with(&gradient_name(""));
    let (gradients, own): (Vec<_>, Vec<_>) =
        joint.outputs.iter().cloned().partition(|output| is_gradient(&output.name));
    let joint = &Program { outputs: gradients, ..joint.clone() };
    let kept = kept(joint, &before_gradients(joint), recompute);
    let mut saved = Vec::new();
    for (id, _) in joint.iter().filter(|(id, _)| kept[id.at()] == Kept::Saved) {
        let known = own.iter().find(|output| output.value == id);
        let name = known.map_or_else(|| format!("saved.{}", id.at()), |output| output.name.clone());
        saved.push(Output { name, value: id });
    }
    let extra: Vec<Output> = saved.iter().filter(|output| !own.contains(output)).cloned().collect();
    let name = |direction: &str| format!("{} {direction}", joint.name);
    let outputs = own.into_iter().chain(extra).collect();
    let first = Program { name: name("forward"), outputs, ..joint.clone() }.without_unused();
    let second = Program { name: name("backward"), ..replaced(joint, &saved) }.without_unused();
    // A layer's inputs stay in its signature forward; backward has what it reads.
    let forward = only(&first, |name, is_read| is_read || !is_gradient(name));
    Split { forward, backward: only(&second, |_, is_read| is_read) }
}

/// Which values do not depend on a gradient.
fn before_gradients(joint: &Program) -> Vec<bool> {
    let mut found = Vec::with_capacity(joint.values.len());
    for value in &joint.values {
        let is_seed = matches!(&value.op, Op::Input { name, .. } if name.starts_with(&gradient_name("")));
        found.push(!is_seed && value.op.operands().iter().all(|operand| found[operand.at()]));
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    /// The backward pass does not read it.
    No,
    /// It is given, or computed again.
    Again,
    /// It is saved.
    Saved,
}

fn kept(joint: &Program, is_forward: &[bool], recompute: Recompute) -> Vec<Kept> {
    let mut is_read = vec![false; joint.values.len()];
    for output in &joint.outputs {
        is_read[output.value.at()] = true;
    }
    for (id, value) in joint.iter().rev() {
        let is_backward = is_read[id.at()] && !is_forward[id.at()];
        if is_backward {
            value.op.operands().iter().for_each(|operand| is_read[operand.at()] = true);
        }
    }
    // What has to be saved whatever happens; the rest of what is read may be computed from it.
    let must = |id: ValueId| is_read[id.at()] && !is_cheap(&joint[id].op, recompute);
    let mut kept = vec![Kept::No; joint.values.len()];
    let mut reachable = vec![false; joint.values.len()];
    for (id, value) in joint.iter().filter(|(id, _)| is_forward[id.at()]) {
        let is_given = matches!(value.op, Op::Input { .. } | Op::Parameter { .. } | Op::Constant(_));
        let from_there = is_cheap(&value.op, recompute) && value.op.operands().iter().all(|x| reachable[x.at()]);
        reachable[id.at()] = is_given || from_there || must(id);
        kept[id.at()] = match (is_given || from_there, is_read[id.at()]) {
            (_, false) => Kept::No,
            (true, true) => Kept::Again,
            (false, true) => Kept::Saved,
        };
        // A value that is saved after all may be computed from.
        reachable[id.at()] |= kept[id.at()] == Kept::Saved;
    }
    // A lift is never saved: what it lifts is.
    for (id, value) in joint.iter().rev().filter(|(id, _)| is_forward[id.at()]) {
        if let (Kept::Saved, Op::Lift { x, .. }) = (kept[id.at()], &value.op) {
            kept[id.at()] = Kept::Again;
            let is_given = matches!(joint[*x].op, Op::Input { .. } | Op::Parameter { .. } | Op::Constant(_));
            kept[x.at()] = if is_given { Kept::Again } else { Kept::Saved };
        }
    }
    kept
}

fn is_cheap(op: &Op, recompute: Recompute) -> bool {
    match op {
        Op::Lift { .. } | Op::Reshape { .. } => true,
        Op::Dot { .. } => false,
        op => recompute == Recompute::On && op.is_row_wise(),
    }
}

/// The program with saved values as inputs.
fn replaced(joint: &Program, saved: &[Output]) -> Program {
    let mut program = joint.clone();
    for output in saved {
        let op = Op::Input { name: output.name.clone(), wants_gradient: false };
        program.values[output.value.at()].op = op;
    }
    program
}

/// With the inputs and parameters that `keep` says, by their names and whether anything reads them.
fn only(program: &Program, keep: impl Fn(&str, bool) -> bool) -> Program {
    let uses = program.uses();
    let is_kept = |(id, value): &(ValueId, &Value)| match &value.op {
        Op::Input { name, .. } | Op::Parameter { name } => keep(name, uses[id.at()] > 0),
        _ => true,
    };
    program.of_values(program.iter().filter(is_kept).map(|(id, _)| id))
}
