//! The nodes of one type: their classes, features and splits, each a pure function of the node.
//!
//! A node's class is its slot modulo the number of classes, and its slot is computed from its name, so there is no table
//! of labels. Features are a centroid of the class plus noise. The noise is a sum of the four 16-bit parts of one draw:
//! bell-shaped, of variance 1, within 3.5 of the mean, and as cheap as the draw itself.

use std::ops::Range;

use headwater_tensor::parallel;
use rayon::prelude::*;

use super::bijection::Bijection;
use crate::column::{Id, Ids};
use crate::random::Key;
use crate::topology::index;

/// What the nodes of a type are like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NodeRecipe {
    /// Features a node; 0 for none.
    pub features: u64,
    /// Half the distance of two classes' centroids, in standard deviations of the noise.
    pub separation: f32,
    /// Whether labels and splits are written.
    pub labelled: bool,
    /// Nodes to learn from, to choose by and to report on.
    pub splits: [u64; 3],
    /// Whether names are given by rank or at random.
    pub names: Names,
}

/// How nodes are named.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Names {
    /// At random: hubs are everywhere.
    #[default]
    Shuffled,
    /// Hubs first, as R-MAT draws them.
    ByRank,
}

impl Default for NodeRecipe {
    fn default() -> Self {
        Self { features: 0, separation: 2.0, labelled: false, splits: [0; 3], names: Names::Shuffled }
    }
}

/// The nodes of one type.
#[derive(Debug, Clone)]
pub struct Population {
    count: u64,
    classes: u64,
    recipe: NodeRecipe,
    names: Bijection,
    split_order: Bijection,
    noise: Key,
    /// One row a class, already scaled.
    centroids: Vec<f32>,
}

const NAMES: u64 = 1;
const SPLITS: u64 = 2;
const NOISE: u64 = 3;
const CENTROIDS: u64 = 4;

impl Population {
    /// `count` nodes of `classes` classes. Classes of 0 count as one.
    #[must_use]
    pub fn new(key: Key, count: u64, classes: u64, recipe: NodeRecipe) -> Self {
        let classes = classes.max(1);
        let names = match recipe.names {
            Names::Shuffled => Bijection::new(key.of(NAMES), count),
            Names::ByRank => Bijection::identity(count),
        };
        let split_order = Bijection::new(key.of(SPLITS), count);
        let scale = recipe.separation * (2.0 / recipe.features.max(1) as f32).sqrt();
        let centroid = |at| gauss(key.of(CENTROIDS).draw(at)) * scale;
        let centroids = (0..classes * recipe.features).map(centroid).collect();
        Self { count, classes, recipe, names, split_order, noise: key.of(NOISE), centroids }
    }

    /// How many nodes there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// What they are like.
    #[must_use]
    pub fn recipe(&self) -> &NodeRecipe {
        &self.recipe
    }

    /// The class of a node.
    #[must_use]
    pub fn label(&self, node: u64) -> u64 {
        self.names.back(node) % self.classes
    }

    /// The features of some nodes, one row after the other.
    pub fn fill_features(&self, nodes: Range<u64>, out: &mut [f32]) {
        let width = index(self.recipe.features);
        if width == 0 {
            return;
        }
        for (node, row) in nodes.zip(out.chunks_exact_mut(width)) {
            let noise = self.noise.of(node);
            let centroid = &self.centroids[index(self.label(node)) * width..][..width];
            for (at, (out, centre)) in row.iter_mut().zip(centroid).enumerate() {
                *out = centre + gauss(noise.draw(at as u64));
            }
        }
    }

    /// The nodes of each split, ascending. Splits do not overlap.
    #[must_use]
    pub fn splits(&self) -> [Ids; 3] {
        let mut begin = 0;
        self.recipe.splits.map(|wanted| {
            let range = begin..(begin + wanted).min(self.count);
            begin = range.end;
            if self.count <= 1 << 32 { self.split::<u32>(range).into() } else { self.split::<u64>(range).into() }
        })
    }

    fn split<T: Id>(&self, range: Range<u64>) -> Vec<T> {
        let count = index(range.end - range.start);
        let node = |at: usize| T::narrow(self.split_order.forward(range.start + at as u64));
        let mut nodes: Vec<T> = parallel::tabulate(count, node);
        nodes.par_sort_unstable();
        nodes
    }

    /// The name of the node in a slot.
    pub(super) fn name(&self, slot: u64) -> u64 {
        self.names.forward(slot)
    }

    /// The slot nearest to `slot` whose node is of the same class as that of `other`, if there is one.
    pub(super) fn slot_of_class(&self, slot: u64, other: u64) -> u64 {
        let wanted = slot - slot % self.classes + other % self.classes;
        match (wanted < self.count, wanted.checked_sub(self.classes)) {
            (true, _) => wanted,
            (false, Some(before)) => before,
            (false, None) => slot,
        }
    }
}

/// The sum of a draw's four 16-bit parts, of mean 0 and variance 1.
fn gauss(draw: u64) -> f32 {
    const MEAN: i32 = 2 * 0xffff;
    /// A part has variance (2^32 - 1) / 12, four have a third of 2^32.
    const SCALE: f32 = 1.732_050_8 / 65_536.0;
    let part = |at: u32| (draw >> (16 * at) & 0xffff) as i32;
    (part(0) + part(1) + part(2) + part(3) - MEAN) as f32 * SCALE
}

#[cfg(test)]
mod tests {
    use super::*;

    fn people(count: u64, classes: u64) -> Population {
        let recipe = NodeRecipe { features: 32, labelled: true, splits: [300, 100, 50], ..Default::default() };
        Population::new(Key::new(3), count, classes, recipe)
    }

    #[test]
    fn classes_are_even_and_the_nearest_centroid_finds_them() {
        let (count, classes) = (2000, 7);
        let people = people(count, classes);
        let mut features = vec![0.0; 2000 * 32];
        people.fill_features(0..count, &mut features);
        let mut sizes = [0; 7];
        let mut right = 0;
        for (node, row) in features.chunks(32).enumerate() {
            let label = usize::try_from(people.label(node as u64)).unwrap();
            sizes[label] += 1;
            let distance = |class: &usize| -> f32 {
                people.centroids[class * 32..][..32].iter().zip(row).map(|(a, b)| (a - b).powi(2)).sum()
            };
            let nearest = (0..7).min_by(|a, b| distance(a).total_cmp(&distance(b))).unwrap();
            right += usize::from(nearest == label);
        }
        assert!(sizes.iter().all(|size| (285..=286).contains(size)), "{sizes:?}");
        // Better than chance, and something is left to learn from neighbours.
        assert!((1200..1990).contains(&right), "{right} of 2000");
        let mean = features.iter().map(|x| f64::from(*x)).sum::<f64>() / features.len() as f64;
        assert!(mean.abs() < 0.2, "{mean}");
    }

    #[test]
    fn a_block_of_features_does_not_depend_on_the_others() {
        let people = people(500, 3);
        let (mut all, mut part) = (vec![0.0; 500 * 32], vec![0.0; 10 * 32]);
        people.fill_features(0..500, &mut all);
        people.fill_features(250..260, &mut part);
        assert_eq!(all[250 * 32..260 * 32], part);
    }

    #[test]
    fn splits_are_disjoint_and_ascend() {
        let people = people(420, 3);
        let splits = people.splits().map(|ids| ids.iter().collect::<Vec<_>>());
        // The last is cut short: there are no more nodes.
        assert_eq!(splits.each_ref().map(Vec::len), [300, 100, 20]);
        assert!(splits.iter().all(|ids| ids.is_sorted()));
        let mut all = splits.concat();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..420));
    }

    #[test]
    fn noise_has_mean_zero_and_variance_one() {
        let draws: Vec<f64> = (0..100_000).map(|at| f64::from(gauss(Key::new(1).draw(at)))).collect();
        let mean = draws.iter().sum::<f64>() / 1e5;
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn slots_change_class_and_stay_inside() {
        let people = people(10, 4);
        for (slot, other) in (0..10).flat_map(|slot| (0..10).map(move |other| (slot, other))) {
            let near = people.slot_of_class(slot, other);
            assert!(near < 10 && near % 4 == other % 4 && near.abs_diff(slot) < 8, "{slot} {other} {near}");
        }
    }
}
