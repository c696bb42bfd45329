//! The lists of cases of Hector's evaluation. What a suite has stands in [`grid`] and nowhere else.

use headwater::compile::Optimisations;
use headwater::train::run_config::PrecisionName;

use super::case::{Case, Direction};
use crate::args::{LayerSuite, LayerVariant};

/// Shapes of the evaluation, those whose graphs have few edges first.
pub const SHAPES: [&str; 8] = ["aifb", "mutag", "bgs", "fb15k", "biokg", "am", "mag", "wikikg2"];
/// Models of the evaluation.
pub const MODELS: [&str; 3] = ["rgcn", "rgat", "hgt"];
/// Both directions.
pub const BOTH: [Direction; 2] = [Direction::Inference, Direction::Training];
/// A width of 64 and one head: the sizes of the evaluation.
const PUBLISHED: [Size; 1] = [Size { width: 64, heads: 1 }];
/// Switches that let linear operators change their order, which is Hector's linear operator reordering and more.
const REORDERING: [&str; 7] =
    ["linear_linear", "dot_linear", "bilinear", "aggregate_first", "heads_first", "flatten", "hoist"];
/// The switch of compact materialisation.
const COMPACTION: &str = "compact";

/// Elements of rows, and attention heads that share them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub width: usize,
    pub heads: usize,
}

/// What a suite measures: every choice with every other.
pub struct Grid {
    pub shapes: &'static [&'static str],
    pub models: &'static [&'static str],
    /// Models without heads have those of one head alone.
    pub sizes: &'static [Size],
    pub directions: &'static [Direction],
    plans: Plans,
}

/// Which optimisations are left out in turn.
enum Plans {
    /// None.
    All,
    /// None, then compaction.
    Compaction,
    /// Every list of [`plans`].
    Every,
}

/// The one list of what suites have.
pub fn grid(suite: LayerSuite) -> Grid {
    const LARGE: [&str; 4] = ["fb15k", "biokg", "am", "mag"];
    const SIZES: [Size; 5] = [
        Size { width: 32, heads: 1 },
        Size { width: 64, heads: 1 },
        Size { width: 128, heads: 1 },
        Size { width: 64, heads: 4 },
        Size { width: 64, heads: 8 },
    ];
    let published = Grid { shapes: &SHAPES, models: &MODELS, sizes: &PUBLISHED, directions: &BOTH, plans: Plans::All };
    match suite {
        LayerSuite::Systems | LayerSuite::Breakdown => published,
        LayerSuite::Optimisations => Grid { shapes: &LARGE, plans: Plans::Every, ..published },
        LayerSuite::Memory => Grid { directions: &[Direction::Training], plans: Plans::Compaction, ..published },
        LayerSuite::Width => Grid { shapes: &["biokg", "am"], sizes: &SIZES, ..published },
        LayerSuite::Kernels => Grid { shapes: &["am", "mag"], directions: &[Direction::Training], ..published },
    }
}

/// Optimisations that are left out together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// What is left, in a few words.
    pub label: String,
    /// Names of switches, in their order.
    pub without: Vec<String>,
}

/// Everything that the suite `optimisations` compares on a device where these are on: none, compaction, reordering, both, all,
/// and all but one of them.
pub fn plans(on: Optimisations) -> Vec<Plan> {
    let names = || Optimisations::SWITCHES.into_iter().filter(|switch| *(switch.1)(&mut on.clone())).map(|own| own.0);
    let plan = |label: String, is_out: &dyn Fn(&str) -> bool| Plan {
        label,
        without: names().filter(|name| is_out(name)).map(str::to_owned).collect(),
    };
    let is_compaction = |name: &str| name == COMPACTION;
    let is_reordering = |name: &str| REORDERING.contains(&name);
    let mut all = vec![
        plan("none".to_owned(), &|_| true),
        plan("compaction".to_owned(), &|name| !is_compaction(name)),
        plan("reordering".to_owned(), &|name| !is_reordering(name)),
        plan("compaction and reordering".to_owned(), &|name| !is_compaction(name) && !is_reordering(name)),
        plan("all".to_owned(), &|_| false),
    ];
    all.extend(names().map(|one| plan(format!("all but {one}"), &|name| name == one)));
    all
}

/// What a case without some optimisations is called.
pub fn label(without: &[String]) -> String {
    let known = [Optimisations::GPU, Optimisations::CPU].into_iter().flat_map(plans);
    let found = known.into_iter().find(|plan| plan.without == without);
    found.map_or_else(|| format!("without {}", without.join(", ")), |plan| plan.label)
}

/// All cases of a suite on a device where these optimisations are on, those of a shape beside each other.
pub fn cases(
    suite: LayerSuite,
    on: Optimisations,
    precision: PrecisionName,
    variant: Option<LayerVariant>,
) -> Vec<Case> {
    let grid = grid(suite);
    let plans: Vec<Vec<String>> = match grid.plans {
        Plans::All => vec![Vec::new()],
        Plans::Compaction => vec![Vec::new(), vec![COMPACTION.to_owned()]],
        Plans::Every => plans(on).into_iter().map(|plan| plan.without).collect(),
    };
    let mut all = Vec::new();
    for like in grid.shapes {
        for model in grid.models {
            let case = Case::new(like, model, variant.or(Some(LayerVariant::Hector)));
            let has_heads = case.has_heads();
            for Size { width, heads } in grid.sizes.iter().copied().filter(|size| size.heads == 1 || has_heads) {
                for without in &plans {
                    all.extend(grid.directions.iter().map(|&direction| {
                        let without = without.clone();
                        Case { precision, width, heads, without, direction, ..case.clone() }
                    }));
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use headwater::graph::generate::Like;

    use super::*;

    fn of(suite: LayerSuite, on: Optimisations) -> Vec<Case> {
        cases(suite, on, PrecisionName::Tf32x3, None)
    }

    #[test]
    fn suites_have_the_cases_of_the_evaluation() {
        let count = |suite: LayerSuite| of(suite, Optimisations::GPU).len();
        assert_eq!(count(LayerSuite::Systems), 8 * 3 * 2);
        assert_eq!(count(LayerSuite::Breakdown), 8 * 3 * 2);
        assert_eq!(count(LayerSuite::Memory), 8 * 3 * 2);
        assert_eq!(count(LayerSuite::Width), 2 * 2 * (3 + 5 + 5));
        assert_eq!(count(LayerSuite::Kernels), 2 * 3);
        assert_eq!(count(LayerSuite::Optimisations), 4 * 3 * 2 * (5 + 15));
        assert_eq!(of(LayerSuite::Optimisations, Optimisations::CPU).len(), 4 * 3 * 2 * (5 + 10));
    }

    #[test]
    fn cases_are_different_known_and_in_the_order_of_shapes() {
        for suite in LayerSuite::value_variants() {
            let all = of(*suite, Optimisations::GPU);
            for (at, case) in all.iter().enumerate() {
                assert!(!all[..at].contains(case), "{}", case.words());
                assert!(Like::NAMES.contains(&case.like.as_str()), "{}", case.like);
                assert_eq!(case.variant.as_deref(), (case.model == "hgt").then_some("hector"));
                // One of each size is read: that takes a while in tests, which are not optimised.
                if case.like == grid(*suite).shapes[0] && case.without.is_empty() {
                    case.layer().unwrap();
                }
                Optimisations::GPU.without(&case.without).unwrap();
            }
            let mut shapes: Vec<&str> = all.iter().map(|case| case.like.as_str()).collect();
            shapes.dedup();
            assert_eq!(shapes, grid(*suite).shapes, "a graph is made once");
        }
        let asked = cases(LayerSuite::Systems, Optimisations::GPU, PrecisionName::F32, Some(LayerVariant::Pyg));
        assert!(asked.iter().any(|case| case.variant.as_deref() == Some("pyg")));
    }

    #[test]
    fn plans_begin_with_nothing_and_leave_out_one_of_all_in_the_end() {
        let plans = plans(Optimisations::GPU);
        let left = |at: usize| Optimisations::GPU.without(&plans[at].without).unwrap();
        assert_eq!(left(0), Optimisations::NONE);
        assert_eq!(left(1), Optimisations { compact: true, ..Optimisations::NONE });
        assert!(left(2).linear_linear && left(2).aggregate_first && !left(2).compact && !left(2).fuse);
        assert!(left(3).compact && left(3).hoist && !left(3).merge && !left(3).recompute);
        assert_eq!(left(4), Optimisations::GPU);
        assert_eq!(plans[5].label, "all but one_type");
        assert_eq!(left(5), Optimisations { one_type: false, ..Optimisations::GPU });
        assert!(plans.iter().all(|plan| !plan.without.contains(&"deep".to_owned())), "it is off on a GPU anyway");
        assert!(plans[5..].iter().all(|plan| plan.without.len() == 1));
    }

    #[test]
    fn what_is_left_out_has_a_name() {
        let words = |without: &[&str]| label(&without.iter().map(|&name| name.to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["fuse"]), "all but fuse");
        assert_eq!(words(&["fuse", "merge"]), "without fuse, merge");
        assert_eq!(words(&[]), "all");
        assert_eq!(label(&plans(Optimisations::CPU)[1].without), "compaction");
    }
}
