//! Random layers on random graphs, compiled for random statistics: every plan gives the numbers of the definition.

use headwater_graph::random::Key;

use crate::inter::{Program, evaluate};
use crate::pass::autodiff::{gradient_name, gradients};
use crate::pass::plans_test::{Back, Bounds, Case, ON_CPU, STEP, check_plans, difference};
use crate::pass::{Compiled, Optimisations, Statistics, compile};
use crate::random_layer::{Dice, random_layer};
use crate::testing::{Arrays, few_or_all, read};

/// A random layer on a random graph. Texts that mean nothing, such as weights of pairs on no edges, are drawn again.
fn case(dice: &mut Dice, seed: u64, is_smooth: bool) -> (String, Case) {
    let (text, recipe) = (random_layer(dice, is_smooth), dice.recipe());
    let layer = read("f", &text, &[], &[]);
    (text, Case::new(layer, recipe.graph(seed), seed))
}

/// Rows of every domain, anything from fewer than there are to millions; types are those of the graph.
fn statistics(dice: &mut Dice, case: &Case) -> Statistics {
    let mut rows = || [1.0, 30.0, 1e3, 1e5, 1e7][dice.below(5)];
    Statistics {
        sources: rows(),
        destinations: rows(),
        source_pairs: rows(),
        destination_pairs: rows(),
        edges: rows(),
        ..Statistics::of(&case.graph)
    }
}

/// A case out of a seed, and the dice that made it.
pub(crate) fn random_case(seed: u64) -> (String, Dice, Case) {
    let mut dice = Dice::new(seed);
    let (text, case) = case(&mut dice, seed, false);
    (text, dice, case)
}

/// Compiled for random statistics with random optimisations.
pub(crate) fn random_compiled(dice: &mut Dice, case: &Case) -> Compiled {
    let (statistics, on) = (statistics(dice, case), optimisations(dice));
    compile(&case.layer, &statistics, on).unwrap()
}

fn optimisations(dice: &mut Dice) -> Optimisations {
    let all = [Optimisations::ALL, Optimisations::ALL, Optimisations::CPU, Optimisations::NONE];
    let mut on = *dice.pick(&all);
    for switch in Optimisations::SWITCHES {
        if dice.chance(6) {
            on = on.with(switch, false);
        }
    }
    on
}

/// What a compiled layer gives beside what it should.
pub(crate) fn wrong(case: &Case, compiled: &Compiled, backs: &[(&Back<'_>, f64)]) -> Option<String> {
    backs.iter().find_map(|(back, far)| {
        let inferred = difference(&case.inferred, &back(&compiled.inference, &case.graph, &case.arrays), *far);
        let mut found: Arrays = back(&compiled.forward, &case.graph, &case.arrays);
        let mut arrays = case.arrays.clone();
        arrays.extend(found.clone());
        found.extend(back(&compiled.backward, &case.graph, &arrays));
        inferred.or_else(|| difference(&case.wanted, &found, *far))
    })
}

/// Runs a check for as many seeds as the environment says, or `usual`, and then says which of them failed.
fn for_seeds(usual: usize, check: impl Fn(u64) + std::panic::RefUnwindSafe) {
    let count =
        std::env::var("HEADWATER_RANDOM_LAYERS").ok().and_then(|count| count.parse().ok()).unwrap_or(usual as u64);
    let failed: Vec<u64> = (0..count).filter(|seed| std::panic::catch_unwind(|| check(*seed)).is_err()).collect();
    assert!(failed.is_empty(), "of {count} seeds these failed: {failed:?}");
}

#[test]
fn random_layers_give_the_numbers_of_their_definition() {
    for_seeds(few_or_all(30, 100), |seed| {
        let (text, mut dice, case) = random_case(seed);
        for _ in 0..2 {
            let compiled = random_compiled(&mut dice, &case);
            let wrong = wrong(&case, &compiled, &ON_CPU);
            assert!(wrong.is_none(), "{seed}: {wrong:?}\n{text}");
        }
    });
}

#[test]
fn all_plans_of_random_layers_give_the_numbers_of_their_definition() {
    for_seeds(few_or_all(6, 16), |seed| {
        let (_, case) = case(&mut Dice::new(1000 + seed), seed, false);
        check_plans(&case, &ON_CPU, Bounds { forward: 6, joint: 1 });
    });
}

/// The loss is the sum of `out` times its gradient.
fn loss(layer: &Program, case: &Case, arrays: &Arrays) -> f64 {
    let out = &evaluate(layer, &case.graph, Key::new(STEP), arrays).unwrap()["out"];
    out.iter().zip(&case.arrays[&gradient_name("out")]).map(|(y, w)| y * w).sum()
}

#[test]
fn gradients_of_random_layers_are_those_of_central_differences() {
    for_seeds(few_or_all(8, 24), |seed| {
        let mut dice = Dice::new(2000 + seed);
        let (text, case) = case(&mut dice, seed, true);
        let named = gradients(&case.layer, "out").unwrap().outputs;
        for output in named.iter().filter_map(|output| output.name.strip_prefix("d.")) {
            let gradient = &case.wanted[&gradient_name(output)];
            for _ in 0..gradient.len().min(3) {
                let (at, step) = (dice.below(gradient.len()), 1e-5);
                let moved = |by: f64| {
                    let mut arrays = case.arrays.clone();
                    arrays.get_mut(output).unwrap()[at] += by;
                    loss(&case.layer, &case, &arrays)
                };
                let wanted = (moved(step) - moved(-step)) / (2.0 * step);
                let is_close = (wanted - gradient[at]).abs() <= 1e-5 * (1.0 + wanted.abs());
                assert!(is_close, "{seed}: d.{output}[{at}] is {}, differences say {wanted}\n{text}", gradient[at]);
            }
        }
    });
}
