//! Made graphs: the same for any number of threads, skewed or planted as asked for, and whole on disk.

use super::*;
use crate::column::Ids;
use crate::dataset::{Dataset, Split};
use crate::progress::Silent;

fn small_rmat() -> Rmat {
    Rmat { nodes_log2: 10, edges_per_node: 8, ..Default::default() }
}

fn all(graph: &Graph) -> Vec<(Vec<u64>, Vec<u64>)> {
    graph.relations().iter().map(|r| (r.offsets().to_vec(), r.neighbours().iter().collect())).collect()
}

#[test]
fn any_number_of_threads_makes_the_same_graph() {
    let aifb = Like { name: "aifb".into(), scale: 0.3, seed: 5 };
    let planted = Planted { nodes: 3000, ..Default::default() };
    for recipe in [small_rmat().recipe(), planted.recipe(), aifb.recipe()].map(Result::unwrap) {
        let with = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            all(&pool.install(|| recipe.graph(&Silent)).unwrap())
        };
        let one = with(1);
        assert!(with(2) == one && with(16) == one, "{}", recipe.name);
        let other = Recipe { seed: 99, ..recipe.clone() };
        assert!(all(&other.graph(&Silent).unwrap()) != one, "{}: the seed changes nothing", recipe.name);
    }
}

/// Made graphs stand in published results, so a seed means the same graph for ever.
#[test]
fn a_seed_means_the_same_graph_in_every_version() {
    let fold = |hash: u64, value: u64| crate::random::mix(hash ^ value).wrapping_add(hash);
    let hash = |recipe: Recipe| {
        let graph = recipe.graph(&Silent).unwrap();
        let ids = graph.relations().iter().flat_map(|r| r.offsets().to_vec().into_iter().chain(r.neighbours().iter()));
        let mut features = vec![0.0; 64 * 4];
        recipe.population(0).fill_features(0..4, &mut features);
        ids.chain(features.iter().map(|value| u64::from(value.to_bits()))).fold(0, fold)
    };
    let made = [
        small_rmat().recipe().unwrap(),
        Planted { nodes: 500, ..Default::default() }.recipe().unwrap(),
        Like { name: "aifb".into(), scale: 0.1, seed: 1 }.recipe().unwrap(),
    ];
    assert_eq!(made.map(hash), [6_361_295_312_983_596_476, 15_222_250_979_831_826_213, 5_829_153_051_395_339_786]);
}

#[test]
fn rmat_has_hubs_and_planted_graphs_have_communities() {
    let hub = |graph: &Graph| graph.relation(0).degrees().into_iter().max().unwrap();
    let skewed = small_rmat().recipe().unwrap().graph(&Silent).unwrap();
    let even = Rmat { skew: Skew::EVEN, ..small_rmat() }.recipe().unwrap().graph(&Silent).unwrap();
    assert_eq!((skewed.nodes(), skewed.edges()), (1024, 8192));
    assert!(hub(&skewed) > 100 && hub(&even) < 30, "{} {}", hub(&skewed), hub(&even));

    let recipe = Planted { nodes: 4000, classes: 5, homophily: 0.7, ..Default::default() }.recipe().unwrap();
    let coo = recipe.edges(0, &Silent).unwrap();
    let people = recipe.population(0);
    let pairs: Vec<(u64, u64)> = coo.sources.iter().zip(coo.targets.iter()).collect();
    let within = pairs.iter().filter(|(a, b)| people.label(*a) == people.label(*b)).count() as f64;
    // Seven tenths are drawn within; of the others a fifth falls there by chance.
    assert!((within / pairs.len() as f64 - 0.76).abs() < 0.02, "{within} of {}", pairs.len());
    assert!(pairs.chunks(2).all(|pair| pair[0] == (pair[1].1, pair[1].0)), "both directions are there");
}

#[test]
fn graphs_of_different_kinds_have_different_names() {
    let leave_out = LeaveOut { self_loops: true, repeats: true };
    let kinds = [
        small_rmat(),
        Rmat { skew: Skew::EVEN, ..small_rmat() },
        Rmat { skew: Skew { a: 0.4, b: 0.2, c: 0.2, d: 0.2 }, ..small_rmat() },
        Rmat { names: Names::ByRank, leave_out, ..small_rmat() },
    ];
    let names = kinds.each_ref().map(|kind| kind.recipe().unwrap().name);
    assert_eq!(names, ["rmat-10", "rmat-even-10", "rmat-skewed-10", "rmat-ranked-simple-10"]);
    assert!(kinds[1].recipe().unwrap().origin.starts_with("R-MAT (even), 2^10 nodes"));
}

#[test]
fn names_by_rank_put_hubs_first() {
    let ranked = Rmat { names: Names::ByRank, ..small_rmat() }.recipe().unwrap();
    let degrees = ranked.topology(0, &Silent).unwrap().degrees();
    let early: u64 = degrees[..128].iter().sum();
    assert!(early > 8192 / 3, "{early} edges end at the first eighth");
    let shuffled = small_rmat().recipe().unwrap().topology(0, &Silent).unwrap().degrees();
    assert!(shuffled[..128].iter().sum::<u64>() < 8192 / 4);
}

#[test]
fn loops_and_repeats_are_left_out_when_asked() {
    let leave_out = LeaveOut { self_loops: true, repeats: true };
    let simple = Rmat { leave_out, ..small_rmat() }.recipe().unwrap().topology(0, &Silent).unwrap();
    assert!(simple.edges() < 8192 && simple.edges() > 4000, "{}", simple.edges());
    for row in 0..simple.rows() {
        let list: Vec<u64> = simple.list(row).map(|at| simple.neighbours().at(at)).collect();
        assert!(list.windows(2).all(|pair| pair[0] < pair[1]) && !list.contains(&row), "row {row}: {list:?}");
    }
}

#[test]
fn a_dataset_on_disk_is_what_the_recipe_says() {
    let folder = tempfile::tempdir().unwrap();
    let recipe = Rmat { features: 7, classes: 3, ..small_rmat() }.recipe().unwrap();
    let path = folder.path().join("made");
    recipe.write(&path, &Silent).unwrap();
    let dataset = Dataset::open(&path).unwrap();
    dataset.verify(&Silent).unwrap();
    assert_eq!(all(&dataset.graph().unwrap()), all(&recipe.graph(&Silent).unwrap()));
    let splits = [Split::Train, Split::Valid, Split::Test].map(|split| dataset.split(0, split).unwrap().unwrap());
    assert_eq!(splits.each_ref().map(Ids::len), [102; 3]);
    let written = std::fs::read_dir(&path).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum::<u64>();
    let plan = recipe.plan();
    // Headers and the manifest come on top: a page or so a file.
    assert!((plan.disk_bytes..plan.disk_bytes + 65_536).contains(&written), "{written} for {plan:?}");
}

#[test]
fn impossible_recipes_are_refused_with_the_setting() {
    let refused = |recipe: Result<Recipe>, words: &str| {
        let said = recipe.unwrap_err().to_string();
        assert!(said.contains(words), "{said} lacks {words}");
    };
    refused(Rmat { nodes_log2: 60, ..Default::default() }.recipe(), "nodes-log2 is 60");
    refused(Rmat { classes: 1 << 40, ..Default::default() }.recipe(), "classes");
    refused(Rmat { features: u64::MAX, ..Default::default() }.recipe(), "features");
    refused(Rmat { skew: Skew { a: f64::NAN, ..Skew::EVEN }, ..Default::default() }.recipe(), "skew");
    refused(Planted { classes: 0, ..Default::default() }.recipe(), "classes is 0");
    refused(Planted { homophily: 1.5, ..Default::default() }.recipe(), "homophily is 1.5");
    refused(Planted { nodes: u64::MAX, ..Default::default() }.recipe(), "edges-per-node");
    refused(Planted { separation: f32::INFINITY, ..Default::default() }.recipe(), "separation");
    let empty = Planted { nodes: 0, classes: 1, ..Default::default() }.recipe().unwrap();
    assert_eq!(empty.graph(&Silent).unwrap().edges(), 0);
}
