//! Which values share a kernel.
//!
//! Values are visited in order. Each joins the latest kernel that may take it, or begins one. A kernel may take a value if
//! the value's rows are a level of its nest, or can become one; if what it reads from inside the kernel lies on levels of
//! the nest; and if everything else it reads is made before. A matrix product takes values of its own rows.
//!
//! A product of a narrow value with a row that is read from elsewhere, made only to be added up, goes where it is added up:
//! there it needs no memory, elsewhere it would be the largest thing that the layer writes.

use std::collections::{BTreeMap, BTreeSet};

use super::product::{Product, products, taken_in};
use super::{Fusion, Source, is_map, nests, source, stay_in};
use crate::inter::{Binary, Domain, Op, Path, Program, Side, ValueId};

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
    /// Products that take in more than their rows and weights.
    pub products: BTreeMap<ValueId, Product>,
}

/// Groups the values of a program.
pub(super) fn group(program: &Program, fusion: Fusion) -> Groups {
    let products = if fusion == Fusion::Off { BTreeMap::new() } else { products(program) };
    let is_taken_in = taken_in(program, &products);
    let mut found = Groups { groups: Vec::new(), home: vec![None; program.values.len()], products };
    let uses = program.uses();
    let by_products: BTreeSet<ValueId> = found.products.values().map(|product| product.value).collect();
    let waits = |id: ValueId| {
        let is_free = fusion != Fusion::Off && uses[id.at()] == 1 && !by_products.contains(&id);
        is_free && is_summed_row(program, id)
    };
    let mut waiting = vec![false; program.values.len()];
    for (id, value) in program.iter() {
        let is_given = matches!(value.op, Op::Input { .. } | Op::Parameter { .. } | Op::Constant(_));
        if is_given || is_map(program, id) || is_taken_in[id.at()] {
            continue;
        }
        if waits(id) || found.products.get(&id).is_some_and(|product| product.value != id) {
            waiting[id.at()] = true;
            continue;
        }
        // What waited for this value comes with it.
        let with: Vec<ValueId> = value.op.operands().into_iter().filter(|operand| waiting[operand.at()]).collect();
        let is_product = with.iter().any(|id| matches!(program[*id].op, Op::Linear { .. }));
        let joined = match fusion {
            Fusion::Off => None,
            _ if is_product => None,
            _ => join(program, &found, (id, &with), fusion.most_levels()),
        };
        let at = match joined {
            Some((at, nest)) => {
                found.groups[at].nest = nest;
                at
            }
            None => {
                let mut group = begin(program, id, is_product.then_some(Kind::Gemm));
                let outer = shared_row(program, id, fusion).filter(|_| group.kind == Kind::Traverse);
                group.nest.splice(..0, outer);
                found.groups.push(group);
                found.groups.len() - 1
            }
        };
        for member in with.into_iter().chain([id]) {
            found.groups[at].members.push(member);
            found.home[member.at()] = Some(at);
        }
    }
    found
}

/// Whether a value is a row read from elsewhere, or one that a product leaves in memory anyway, times something narrower, made to be added up.
/// Over the rows of a type it may be a row of its own as well: sums of chunks read what they like.
fn is_summed_row(program: &Program, id: ValueId) -> bool {
    let Op::Binary { f: Binary::Mul, x, y } = program[id].op else { return false };
    let reader = program.values.iter().find(|value| value.op.operands().contains(&id));
    let Some(reader) = reader.filter(|reader| matches!(reader.op, Op::Reduce { .. })) else { return false };
    let is_narrow = |narrow: ValueId| program[narrow].shape.len() < program[id].shape.len();
    let is_given = |row: ValueId| reader.domain.is_type() && matches!(program[row].op, Op::Input { .. });
    let is_product = |row: ValueId| matches!(program[row].op, Op::Linear { .. });
    let is_read = |row: ValueId| is_map(program, row) || is_given(row) || is_product(row);
    (is_read(x) && is_narrow(y)) || (is_read(y) && is_narrow(x))
}

/// The rows of the destinations' side of which a value reads a long one, where several of the value's rows read the same.
fn shared_row(program: &Program, id: ValueId, fusion: Fusion) -> Option<Domain> {
    let Fusion::Shallow(shared) = fusion else { return None };
    let value = &program[id];
    let reads = |outer: Domain| {
        value.op.operands().into_iter().any(|operand| {
            let Source { base, hops } = source(program, operand);
            program[base].shape.len() >= shared.least_numbers && hops.first().is_some_and(|hop| hop.to == outer)
        })
    };
    let (pairs, nodes) = (Domain::Pair(Side::Dst), Domain::Node(Side::Dst));
    let candidates = [
        (Domain::Edge, pairs, shared.pairs_by_edges),
        (Domain::Edge, nodes, shared.nodes_by_edges),
        (pairs, nodes, shared.nodes_by_pairs),
    ];
    let fits = |(rows, outer, is_shared): &(Domain, Domain, bool)| *is_shared && value.domain == *rows && reads(*outer);
    candidates.into_iter().find(|candidate| value.op.is_row_wise() && fits(candidate)).map(|(_, outer, _)| outer)
}

/// A kernel for one value, of the kind that its operator needs where none is given.
fn begin(program: &Program, id: ValueId, kind: Option<Kind>) -> Group {
    let value = &program[id];
    let (kind, nest) = match value.op {
        _ if kind == Some(Kind::Gemm) => (Kind::Gemm, vec![value.domain]),
        Op::Linear { .. } => (Kind::Gemm, vec![value.domain]),
        Op::Outer { x, .. } => (Kind::Outer, vec![program[x].domain]),
        Op::Product { .. } => (Kind::Product, vec![value.domain]),
        Op::Reduce { x, .. } => (Kind::Traverse, vec![value.domain, program[x].domain]),
        Op::Softmax { by, .. } => (Kind::Traverse, vec![by, value.domain]),
        _ => (Kind::Traverse, vec![value.domain]),
    };
    let path = match value.op {
        Op::Reduce { path, .. } if kind == Kind::Traverse => path,
        _ => Path::Only,
    };
    Group { kind, nest, path, members: Vec::new() }
}

/// The kernel that takes a value, with what waited for it, and its nest then: the one that made what it reads, else the latest.
fn join(
    program: &Program,
    groups: &Groups,
    (id, with): (ValueId, &[ValueId]),
    most_levels: usize,
) -> Option<(usize, Vec<Domain>)> {
    if !may_join(program, id) {
        return None;
    }
    let operands = with.iter().chain([&id]).flat_map(|id| program[*id].op.operands());
    let sources: Vec<_> = operands.map(|operand| (operand, source(program, operand))).collect();
    let home = |at: usize| groups.home[sources[at].1.base.at()];
    let latest = (0..sources.len()).filter_map(home).max().unwrap_or(0);
    let takes = |at: usize, needs: Needs| {
        let group = &groups.groups[at];
        let nest = nest_with(program, group, id).filter(|nest| nest.len() <= most_levels)?;
        let is_fed = (0..sources.len()).any(|source| home(source) == Some(at));
        let may_read = sources.iter().all(|(operand, source)| {
            groups.home[source.base.at()] != Some(at) || stay_in(&source.hops, program[*operand].domain, &nest)
        });
        let fits = match needs {
            Needs::Fed => is_fed,
            // Rows that are visited anyway are worth a second look; single rows are not, but those of types, which are few, and neither is
            // another order of rows.
            Needs::Rows => {
                let is_far = program[id].domain == Domain::Edge
                    && matches!(group.nest[0], Domain::Node(Side::Src) | Domain::Pair(Side::Src));
                let is_single = |id: &ValueId| is_single(&program[*id].op);
                let are_weights = nest[0].is_type() && group.members.iter().chain([&id]).all(is_single);
                group.kind == Kind::Traverse && (group.nest.len() > 1 || are_weights) && nest == group.nest && !is_far
            }
        };
        (may_read && fits).then_some((at, nest))
    };
    let all = || (latest..groups.groups.len()).rev();
    all().find_map(|at| takes(at, Needs::Fed)).or_else(|| all().find_map(|at| takes(at, Needs::Rows)))
}

/// What a value needs of a kernel that it joins.
#[derive(Debug, Clone, Copy)]
enum Needs {
    /// Something that it reads is made there.
    Fed,
    /// Its rows are visited there.
    Rows,
}

/// Whether every element of a value is made from single elements of others: then threads have elements, however long a row is.
fn is_single(op: &Op) -> bool {
    !matches!(op, Op::Dot { .. } | Op::SumHeads { .. } | Op::SumWidth { .. })
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
