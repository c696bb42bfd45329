//! Which values share a kernel.
//!
//! Values are visited in order. Each joins the latest kernel that may take it, or begins one. A kernel may take a value if
//! the value's rows are a level of its nest, or can become one; if what it reads from inside the kernel lies on levels of
//! the nest; and if everything else it reads is made before. A matrix product takes values of its own rows.

use super::{Fusion, is_map, nests, source, stay_in};
use crate::inter::{Domain, Op, Path, Program, ValueId};

/// Values that share a kernel.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// What it is.
    pub kind: Kind,
    /// Domains, the coarsest first.
    pub nest: Vec<Domain>,
    /// The way from the second of them to the first.
    pub path: Path,
    /// Values in order.
    pub members: Vec<ValueId>,
}

/// What a kernel is built around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Rows times matrices: the first member.
    Gemm,
    /// Sums of outer products: the only member.
    Outer,
    /// A product of weights: the only member.
    Product,
    /// Nested rows.
    Traverse,
}

/// Kernels in the order they run, and where each value is made: `None` for what is given or read through.
#[derive(Debug, Clone)]
pub(super) struct Groups {
    pub groups: Vec<Group>,
    pub home: Vec<Option<usize>>,
}

/// Groups the values of a program.
pub(super) fn group(program: &Program, fusion: Fusion) -> Groups {
    let mut found = Groups { groups: Vec::new(), home: vec![None; program.values.len()] };
    for (id, value) in program.iter() {
        let is_given = matches!(value.op, Op::Input { .. } | Op::Parameter { .. } | Op::Constant(_));
        if is_given || is_map(program, id) {
            continue;
        }
        let joined = match fusion {
            Fusion::On => join(program, &found, id),
            Fusion::Off => None,
        };
        let at = match joined {
            Some((at, nest)) => {
                found.groups[at].nest = nest;
                found.groups[at].members.push(id);
                at
            }
            None => {
                found.groups.push(begin(program, id));
                found.groups.len() - 1
            }
        };
        found.home[id.at()] = Some(at);
    }
    found
}

/// A kernel of one value.
fn begin(program: &Program, id: ValueId) -> Group {
    let value = &program[id];
    let (kind, nest) = match value.op {
        Op::Linear { .. } => (Kind::Gemm, vec![value.domain]),
        Op::Outer { x, .. } => (Kind::Outer, vec![program[x].domain]),
        Op::Product { .. } => (Kind::Product, vec![value.domain]),
        Op::Reduce { x, .. } => (Kind::Traverse, vec![value.domain, program[x].domain]),
        Op::Softmax { by, .. } => (Kind::Traverse, vec![by, value.domain]),
        _ => (Kind::Traverse, vec![value.domain]),
    };
    let path = match value.op {
        Op::Reduce { path, .. } => path,
        _ => Path::Only,
    };
    Group { kind, nest, path, members: vec![id] }
}

/// The latest kernel that takes a value, and its nest then.
fn join(program: &Program, groups: &Groups, id: ValueId) -> Option<(usize, Vec<Domain>)> {
    if !may_join(program, id) {
        return None;
    }
    let sources: Vec<_> = program[id].op.operands().into_iter().map(|operand| source(program, operand)).collect();
    let latest = sources.iter().filter_map(|source| groups.home[source.base.at()]).max().unwrap_or(0);
    (latest..groups.groups.len()).rev().find_map(|at| {
        let group = &groups.groups[at];
        let nest = nest_with(program, group, id)?;
        let is_fed = sources.iter().any(|source| groups.home[source.base.at()] == Some(at));
        let may_read = sources.iter().zip(program[id].op.operands()).all(|(source, operand)| {
            groups.home[source.base.at()] != Some(at) || stay_in(&source.hops, program[operand].domain, &nest)
        });
        // Rows that are visited anyway are worth a second look; single rows are not.
        let is_beside = group.kind == Kind::Traverse && group.nest.len() > 1 && nest == group.nest;
        (may_read && (is_fed || is_beside)).then_some((at, nest))
    })
}

/// Whether a value is of a kind that shares kernels. What few rows make together is a kernel of its own: its rows are
/// visited in another way.
fn may_join(program: &Program, id: ValueId) -> bool {
    let value = &program[id];
    match value.op {
        Op::Reduce { .. } | Op::Softmax { .. } => !value.domain.is_type(),
        ref op => op.is_row_wise(),
    }
}

/// The nest of a kernel when it takes a value too; `None` if it cannot.
fn nest_with(program: &Program, group: &Group, id: ValueId) -> Option<Vec<Domain>> {
    let value = &program[id];
    match group.kind {
        Kind::Outer | Kind::Product => None,
        Kind::Gemm => (value.op.is_row_wise() && group.nest[0] == value.domain).then(|| group.nest.clone()),
        Kind::Traverse => {
            let mut wanted = vec![value.domain];
            match value.op {
                Op::Reduce { x, .. } => wanted.push(program[x].domain),
                Op::Softmax { by, .. } => wanted.push(by),
                _ => {}
            }
            // A kernel whose outermost rows are types is for one reduction.
            let nest = wanted.into_iter().try_fold(group.nest.clone(), insert)?;
            (nest.len() == 1 || !nest[0].is_type()).then_some(nest)
        }
    }
}

/// A nest with one more level where it belongs.
fn insert(mut nest: Vec<Domain>, level: Domain) -> Option<Vec<Domain>> {
    if nest.contains(&level) {
        return Some(nest);
    }
    let at = nest.iter().position(|other| nests(*other, level)).unwrap_or(nest.len());
    nest.insert(at, level);
    nest.windows(2).all(|pair| nests(pair[1], pair[0])).then_some(nest)
}
