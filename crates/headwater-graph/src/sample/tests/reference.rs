//! The sampler again, as plainly as it can be written: maps, no memory kept, no prefetching, one row at a time.

use std::collections::HashMap;

use super::*;

/// What [`NeighbourSampler`] must return for a graph in CSC without times.
pub fn sample(graph: &Graph, options: &SampleOptions, seeds: Seeds<'_>, key: Key) -> Sample {
    let (types, relations) = (graph.schema().node_types().len(), graph.relations().len());
    let is_disjoint = options.trees == Trees::Disjoint;
    let mut nodes = vec![TypeNodes::default(); types];
    let mut edges = vec![RelationEdges::default(); relations];
    let mut numbers: Vec<HashMap<(u32, u64), u32>> = vec![HashMap::new(); types];
    // Nodes of a type with the tree each is in.
    let mut found: Vec<Vec<(u32, u64)>> = vec![Vec::new(); types];
    for (at, &seed) in seeds.nodes.iter().enumerate() {
        let tree = if is_disjoint { at as u32 } else { 0 };
        numbers[seeds.node_type].entry((tree, seed)).or_insert(at as u32);
        found[seeds.node_type].push((tree, seed));
    }
    let mut frontier: Vec<std::ops::Range<usize>> = found.iter().map(|nodes| 0..nodes.len()).collect();
    for (of_type, nodes) in nodes.iter_mut().enumerate() {
        nodes.per_hop.push(found[of_type].len());
    }
    for hop in 0..options.fanouts.len() {
        for (at, edges) in edges.iter_mut().enumerate() {
            let (topology, relation) = (graph.relation(at), &graph.schema().relations()[at]);
            let before = edges.row.len();
            for col in frontier[relation.target].clone() {
                let (tree, id) = found[relation.target][col];
                let row_key = key.of(hop as u64).of(at as u64).of(u64::from(tree) * topology.rows() + id);
                for position in positions(topology, options, options.fanout(hop, at), id, row_key) {
                    let neighbour = (tree, topology.neighbours().at(position));
                    let next = found[relation.source].len() as u32;
                    let row = *numbers[relation.source].entry(neighbour).or_insert(next);
                    if row == next {
                        found[relation.source].push(neighbour);
                    }
                    edges.row.push(row);
                    edges.col.push(col as u32);
                    edges.ids.get_or_insert_default().push(topology.edge_id(position));
                }
            }
            edges.per_hop.push(edges.row.len() - before);
        }
        for of_type in 0..types {
            frontier[of_type] = frontier[of_type].end..found[of_type].len();
            nodes[of_type].per_hop.push(frontier[of_type].len());
        }
    }
    for (nodes, found) in nodes.iter_mut().zip(found) {
        nodes.ids = found.iter().map(|node| node.1).collect();
        nodes.trees = is_disjoint.then(|| found.iter().map(|node| node.0).collect());
    }
    edges.iter_mut().for_each(|edges| edges.ids = Some(edges.ids.take().unwrap_or_default()));
    Sample { nodes, edges }
}

fn positions(topology: &Topology, options: &SampleOptions, fanout: Fanout, row: u64, key: Key) -> Vec<usize> {
    let (list, mut chosen) = (topology.list(row), Vec::new());
    let degree = list.len() as u64;
    match (fanout, options.replacement) {
        (Fanout::Most(most), Replacement::With) => {
            Chooser::with_replacement(key, degree, u64::from(most), &mut chosen);
        }
        _ => {
            // Floyd's method with a plain set.
            let wanted = fanout.of(degree);
            if wanted == degree {
                chosen.extend(0..degree);
            }
            for draw in 0..if wanted == degree { 0 } else { wanted } {
                let drawn = key.below(draw, degree - wanted + draw + 1);
                chosen.push(if chosen.contains(&drawn) { degree - wanted + draw } else { drawn });
            }
        }
    }
    chosen.into_iter().map(|position| list.start + usize::try_from(position).unwrap()).collect()
}
