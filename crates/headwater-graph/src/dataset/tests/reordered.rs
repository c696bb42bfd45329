//! Datasets with their nodes renumbered, there and back.

use super::*;
use crate::reorder::Permutation;

/// Papers 2, 0, 3, 1 and authors 1, 2, 0 in their new order.
fn permutations() -> [Permutation; 2] {
    [vec![2u32, 0, 3, 1], vec![1, 2, 0]].map(|order| Permutation::from_old_of_new(order.into()).unwrap())
}

#[test]
fn everything_moves_along() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    write(&from).unwrap();
    let old = Dataset::open(&from).unwrap();
    reorder(&old, &permutations(), &to, "by a test", &Silent).unwrap();
    let new = Dataset::open(&to).unwrap();
    new.verify(&Silent).unwrap();
    assert_eq!(new.manifest().origin, "made by a test; nodes renumbered: by a test");

    let (graph, was) = (new.graph().unwrap(), old.graph().unwrap());
    for (at, (topology, was)) in graph.relations().iter().zip(was.relations()).enumerate() {
        let [papers, authors] = permutations();
        let columns = if at == 0 { &authors } else { &papers };
        for row in 0..4u32 {
            let old_row = papers.old_of_new().at(row as usize);
            let (list, old_list) = (topology.list(u64::from(row)), was.list(old_row));
            assert_eq!(list.len(), old_list.len());
            for (position, old_position) in list.zip(old_list) {
                let neighbour = columns.new_of_old().at(crate::topology::index(was.neighbours().at(old_position)));
                assert_eq!(topology.neighbours().at(position), neighbour);
                assert_eq!(topology.weights().map(|w| w[position]), was.weights().map(|w| w[old_position]));
                assert_eq!(topology.times().map(|t| t[position]), was.times().map(|t| t[old_position]));
                if at == 0 {
                    assert_eq!(topology.edge_id(position), was.edge_id(old_position));
                }
            }
        }
    }
    assert_eq!(new.features(0).unwrap().column::<f32>().unwrap()[..], [0.0, 2.0, 0.0, 0.0, 0.0, 3.0, 0.0, 1.0]);
    assert_eq!(new.labels(0).unwrap().column::<i64>().unwrap()[..], [2, 0, 1, -1]);
    let ids = |split| new.split(0, split).unwrap().map(|ids| ids.iter().collect::<Vec<_>>());
    assert_eq!([Split::Train, Split::Valid, Split::Test].map(ids), [Some(vec![2, 1]), None, Some(vec![0])]);
    let names: Vec<_> = (0..4).map(|node| new.original_id(0, node).unwrap().unwrap()).collect();
    assert_eq!(names, ["Größe", "Graphs", "x", ""]);
    assert_eq!(new.original_id(1, 2).unwrap().as_deref(), Some("-7"));
    assert_eq!(new.times(1).unwrap().column::<i64>().unwrap()[..], [2, 3, 1]);
    // Author 2 to paper 1 by the first relation.
    assert_eq!(new.array("links.test").unwrap().ids().unwrap().iter().collect::<Vec<_>>(), [1, 0, 3]);
    let edges = "author__writes__paper.features";
    assert!(new.array(edges).unwrap().data().as_slice() == old.array(edges).unwrap().data().as_slice());
}

#[test]
fn there_and_back_is_what_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to, back] = ["from", "to", "back"].map(|name| folder.path().join(name));
    write(&from).unwrap();
    reorder(&Dataset::open(&from).unwrap(), &permutations(), &to, "there", &Silent).unwrap();
    let inverses = permutations().map(|permutation| permutation.inverse());
    reorder(&Dataset::open(&to).unwrap(), &inverses, &back, "back", &Silent).unwrap();
    let [old, new] = [&from, &back].map(|path| Dataset::open(path).unwrap());
    for file in old.manifest().files.keys() {
        let [was, is] = [&old, &new].map(|dataset| dataset.array(file).unwrap().data().as_slice());
        let [old_kind, new_kind] = [&old, &new].map(|dataset| dataset.array(file).unwrap().kind());
        if old_kind == new_kind {
            assert!(was == is, "{file}");
        } else {
            // Ids come out unsigned.
            let [was, is] = [&old, &new].map(|dataset| dataset.array(file).unwrap().ids().unwrap());
            assert!(was.iter().eq(is.iter()), "{file}");
        }
    }
    let first = new.array(new.manifest().nodes[0].files.first_numbers.as_ref().unwrap()).unwrap();
    assert_eq!(first.ids().unwrap().iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
}

#[test]
fn a_permutation_for_every_type() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    write(&from).unwrap();
    let dataset = Dataset::open(&from).unwrap();
    let missing = reorder(&dataset, &permutations()[..1], &to, "", &Silent);
    assert!(matches!(missing, Err(Error::Length { name: "permutations", found: 1, expected: 2, .. })));
    let short = [permutations()[1].clone(), permutations()[1].clone()];
    assert!(reorder(&dataset, &short, &to, "", &Silent).is_err());
    assert!(!to.exists());
}

#[test]
fn labels_of_edges_ranked_links_and_shared_files() {
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from", "to"].map(|name| folder.path().join(name));
    let writer = DatasetWriter::create(&from).unwrap();
    fill(&writer).unwrap();
    // One a position of `cites`, whose lists are [], [0], [], [3, 2].
    writer.array("labels", &[3], &[10u8, 20, 30]).unwrap();
    writer.array("others", &[1, 2], &[0i64, 3]).unwrap();
    writer.array("scores", &[1], &[0.5f32]).unwrap();
    let mut described = describe();
    described.relations.push(EdgeFiles { labels: Some("labels".into()), ..EdgeFiles::default() });
    described.nodes[0].splits.valid = described.nodes[0].splits.train.clone();
    let links = described.links.test.as_mut().unwrap();
    (links.labels, links.other_targets) = (Some("scores".into()), Some("others".into()));
    writer.finish(described).unwrap();

    reorder(&Dataset::open(&from).unwrap(), &permutations(), &to, "by a test", &Silent).unwrap();
    let new = Dataset::open(&to).unwrap();
    // Papers 2, 0, 3, 1: the lists of 3 and 1 are the third and the fourth now.
    assert_eq!(new.topology(1).unwrap().offsets()[..], [0, 0, 0, 2, 3]);
    assert_eq!(new.array("labels").unwrap().column::<u8>().unwrap()[..], [20, 30, 10]);
    // Papers 0 and 3 are 1 and 2 now.
    assert_eq!(new.array("others").unwrap().ids().unwrap().iter().collect::<Vec<_>>(), [1, 2]);
    assert_eq!(new.array("scores").unwrap().column::<f32>().unwrap()[..], [0.5]);
    let ids = |split| new.split(0, split).unwrap().map(|ids| ids.iter().collect::<Vec<_>>());
    assert_eq!(ids(Split::Train), ids(Split::Valid));
}
