//! The edges of a relation, each a pure function of its number, drawn by all threads straight into the arrays.

use headwater_tensor::parallel;

use super::population::Population;
use super::skew::{Quadrants, Skew};
use crate::build::Coo;
use crate::column::{Id, Ids};
use crate::order::LeaveOut;
use crate::progress::Progress;
use crate::random::Key;
use crate::topology::index;

/// Edges drawn before progress is told.
const PIECE: usize = 1 << 16;

/// How the edges of a relation are drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EdgeRecipe {
    /// How many are drawn.
    pub edges: u64,
    /// How they crowd at few nodes.
    pub skew: Skew,
    /// The part of them whose ends are made to be of one class.
    pub homophily: f64,
    /// Which way they go.
    pub ways: Ways,
    /// What is left out again. Then there are fewer than were drawn.
    pub leave_out: LeaveOut,
}

/// Which way edges go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ways {
    /// From source to target.
    One,
    /// Every second edge is the one before it, the other way. Both ends are of one type.
    Both,
    /// Every edge is one of another relation, the other way.
    ReverseOf(usize),
}

/// The edges of one relation.
pub(super) struct Drawing<'a> {
    pub(super) key: Key,
    pub(super) recipe: EdgeRecipe,
    pub(super) sources: &'a Population,
    pub(super) targets: &'a Population,
}

impl Drawing<'_> {
    /// Draws them all.
    pub(super) fn draw(&self, progress: &dyn Progress) -> Coo {
        let (sources, targets) = (self.sources.count(), self.targets.count());
        let (from, to) =
            if sources.max(targets) <= 1 << 32 { self.fill::<u32>(progress) } else { self.fill::<u64>(progress) };
        Coo::new(from, to, sources, targets)
    }

    fn fill<T: Id + Default>(&self, progress: &dyn Progress) -> (Ids, Ids)
    where
        Ids: From<Vec<T>>,
    {
        let edges = index(self.recipe.edges);
        let (mut from, mut to) = (vec![T::default(); edges], vec![T::default(); edges]);
        // A reversed relation draws the edges of the other and hands them over turned.
        let turned = matches!(self.recipe.ways, Ways::ReverseOf(_));
        let (near, far) = if turned { (self.targets, self.sources) } else { (self.sources, self.targets) };
        let ends = Ends { of: self, near, far, quadrants: Quadrants::new(self.recipe.skew, near.count(), far.count()) };
        progress.begin("drawing edges", self.recipe.edges);
        parallel::for_each(from.chunks_mut(PIECE).zip(to.chunks_mut(PIECE)), |piece, (from, to)| {
            let first = (piece * PIECE) as u64;
            for (edge, (from, to)) in (first..).zip(from.iter_mut().zip(to.iter_mut())) {
                let (near, far) = ends.at(edge);
                let (source, target) = if turned { (far, near) } else { (near, far) };
                (*from, *to) = (T::narrow(source), T::narrow(target));
            }
            progress.advance(from.len() as u64);
        });
        (from.into(), to.into())
    }
}

struct Ends<'a> {
    of: &'a Drawing<'a>,
    near: &'a Population,
    far: &'a Population,
    quadrants: Quadrants,
}

impl Ends<'_> {
    fn at(&self, edge: u64) -> (u64, u64) {
        let both = self.of.recipe.ways == Ways::Both;
        let number = if both { edge / 2 } else { edge };
        let (mut near, far) = self.quadrants.draw(self.of.key, number);
        let homophily = self.of.recipe.homophily;
        if homophily > 0.0 && self.of.key.of(1).unit(number) < homophily {
            near = self.near.slot_of_class(near, far);
        }
        let (near, far) = (self.near.name(near), self.far.name(far));
        if both && edge % 2 == 1 { (far, near) } else { (near, far) }
    }
}
