//! A recipe brought to disk: one relation at a time, features by blocks, so that memory holds one relation at most.

use std::path::Path;

use serde::Serialize;

use super::Recipe;
use super::population::Population;
use crate::build::{BuildPlan, BuildSize, build_plan};
use crate::column::Ids;
use crate::dataset::{DatasetWriter, Description, NodeFiles, Splits};
use crate::error::Result;
use crate::order::LeaveOut;
use crate::progress::Progress;
use crate::topology::Layout;

/// What making a graph takes, known beforehand.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GeneratePlan {
    /// Nodes of all types.
    pub nodes: u64,
    /// Edges drawn for all relations.
    pub edges: u64,
    /// Bytes of all files together.
    pub disk_bytes: u64,
    /// The most bytes in memory at any time.
    pub peak_bytes: u64,
    /// The relation that takes the most.
    pub largest_build: Option<BuildPlan>,
}

/// Bytes each thread has on their way to the disk.
const WRITER_BYTES: u64 = 16 << 20;

impl Recipe {
    /// What making it will take.
    #[must_use]
    pub fn plan(&self) -> GeneratePlan {
        let builds: Vec<(BuildPlan, u64)> = (0..self.relations.len()).map(|at| self.build_plan(at)).collect();
        let largest = builds.iter().max_by_key(|(_, peak_bytes)| *peak_bytes);
        let node_bytes = self.schema.node_types().iter().zip(&self.nodes).map(|(node_type, recipe)| {
            let labels = if recipe.labelled { 8 } else { 0 };
            node_type.count * (recipe.features * 4 + labels) + recipe.splits.iter().sum::<u64>() * 4
        });
        let topology_bytes: u64 = builds.iter().map(|(build, _)| build.output_bytes).sum();
        let threads = rayon::current_num_threads() as u64;
        GeneratePlan {
            nodes: self.schema.node_types().iter().map(|node_type| node_type.count).sum(),
            edges: self.relations.iter().map(|relation| relation.edges).sum(),
            disk_bytes: topology_bytes + node_bytes.sum::<u64>(),
            peak_bytes: largest.map_or(0, |(_, peak_bytes)| *peak_bytes) + threads * WRITER_BYTES,
            largest_build: largest.map(|(build, _)| *build),
        }
    }

    /// The build of a relation, and the most bytes it and what follows take.
    fn build_plan(&self, at: usize) -> (BuildPlan, u64) {
        let (relation, recipe) = (&self.schema.relations()[at], &self.relations[at]);
        let [sources, targets] = [relation.source, relation.target].map(|end| self.schema.node_types()[end].count);
        let id_bytes = |count: u64| if count <= 1 << 32 { 4 } else { 8 };
        let (edges, edge_bytes) = (recipe.edges, id_bytes(sources));
        let input_bytes = edges * 2 * id_bytes(sources.max(targets));
        let threads = rayon::current_num_threads() as u64;
        let build = build_plan(&BuildSize { rows: targets, edges, input_bytes, edge_bytes, lanes: 1, threads });
        // Leaving out has the lists before, sorted and after, and two positions an edge.
        let leaving_bytes = match recipe.leave_out {
            LeaveOut { self_loops: false, repeats: false } => 0,
            _ => edges * (3 * edge_bytes + 8) + targets * 24,
        };
        (build, build.peak_bytes.max(leaving_bytes))
    }

    /// Makes it and writes it as a dataset.
    pub fn write(&self, dir: &Path, progress: &dyn Progress) -> Result<()> {
        self.check()?;
        let writer = DatasetWriter::create(dir)?;
        for at in 0..self.relations.len() {
            writer.relation(at, &self.topology(at, progress)?)?;
        }
        let types = 0..self.nodes.len();
        let nodes: Result<Vec<NodeFiles>> = types.map(|at| self.write_nodes(at, &writer, progress)).collect();
        let origin = format!("{}, seed {}", self.origin, self.seed);
        let described = Description::new(&self.name, self.schema.clone(), Layout::Csc, origin);
        writer.finish(Description { nodes: nodes?, ..described })
    }

    fn write_nodes(&self, at: usize, writer: &DatasetWriter, progress: &dyn Progress) -> Result<NodeFiles> {
        let population = self.population(at);
        let (count, recipe) = (population.count(), *population.recipe());
        let name = |what: &str| format!("{}.{what}", self.schema.node_types()[at].name);
        let mut files = NodeFiles::default();
        if recipe.features > 0 {
            files.features = Some(name("features"));
            let fill = |nodes, out: &mut [f32]| population.fill_features(nodes, out);
            writer.rows(&name("features"), &[count, recipe.features], fill, progress)?;
        }
        if recipe.labelled {
            (files.labels, files.classes) = (Some(name("labels")), Some(self.classes));
            writer.rows(
                &name("labels"),
                &[count],
                |nodes, out: &mut [i64]| labels(&population, nodes, out),
                progress,
            )?;
            files.splits = write_splits(&population, writer, name)?;
        }
        Ok(files)
    }
}

fn labels(population: &Population, nodes: std::ops::Range<u64>, out: &mut [i64]) {
    for (node, out) in nodes.zip(out) {
        *out = population.label(node).cast_signed();
    }
}

fn write_splits(population: &Population, writer: &DatasetWriter, name: impl Fn(&str) -> String) -> Result<Splits> {
    let write = |what: &str, ids: Ids| -> Result<Option<String>> {
        let shape = [ids.len() as u64];
        match ids {
            Ids::U32(ids) => writer.array(&name(what), &shape, &ids),
            Ids::U64(ids) => writer.array(&name(what), &shape, &ids),
        }?;
        Ok(Some(name(what)))
    };
    let [train, valid, test] = population.splits();
    Ok(Splits { train: write("train", train)?, valid: write("valid", valid)?, test: write("test", test)? })
}
