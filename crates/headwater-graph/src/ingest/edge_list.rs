//! Edge lists as text, of one relation or of many, into edges with dense ids.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::MOST_RELATIONS;
use super::collected::{Collected, Edges, Found, Nodes, Sink, begin, implied_count};
use super::compact::{Compacted, compact};
use super::edges::{EdgeList, GrowingIds};
use super::fault::{Fault, Place};
use super::idmap::{IdMap, resolve};
use super::options::{IdKind, IngestOptions, TypedFile};
use super::text::{Blocks, Dialect, IdsAre, Keys, Numbered, OddId, Parsed, RowPlan, Words, detect, parse_rows};
use crate::error::Result;

/// Reads one file, or several that are named in the options.
pub fn read(path: Option<&Path>, options: &IngestOptions, sink: &Sink<'_>) -> Result<Collected> {
    let plain = |path: &Path| TypedFile {
        source: "node".into(),
        relation: "to".into(),
        target: "node".into(),
        path: path.to_owned(),
    };
    let files: Vec<TypedFile> = path.map(plain).into_iter().chain(options.edges.iter().cloned()).collect();
    let dialects: Vec<Dialect> = files.iter().map(|file| dialect_of(&file.path, options)).collect::<Result<_>>()?;
    files.iter().zip(&dialects).for_each(|(file, dialect)| tell(file, dialect));
    let integer_ids = match options.ids {
        IdKind::Auto => are_numbers(&files, &dialects)?,
        IdKind::Dense | IdKind::Integer => true,
        IdKind::String => false,
    };
    if let (false, Some(file)) = (options.nodes.is_empty() || integer_ids, files.first()) {
        let why = "the number of nodes can be said where ids are whole numbers; here they are names".to_owned();
        return Err(Fault::Refused(why).of(&file.path));
    }
    // Whoever says how many nodes there are has numbered them.
    let numbered = options.ids == IdKind::Dense || (options.ids == IdKind::Auto && !options.nodes.is_empty());
    let kept = integer_ids && numbered;
    let path = files.first().map(|file| file.path.clone()).unwrap_or_default();
    let mut reader = Reader { options, kept, path, types: Vec::new(), relations: Vec::new(), known: HashMap::new() };
    for (file, dialect) in files.iter().zip(dialects) {
        reader.file(file, RowPlan { dialect, integer_ids }, sink)?;
    }
    reader.finish(integer_ids, sink)
}

/// Says what is guessed and what is left.
fn tell(file: &TypedFile, dialect: &Dialect) {
    let path = file.path.display();
    if let (Some(line), Some(header)) = (dialect.guessed_header, &dialect.header) {
        let (line, names) = (line + 1, header.join(", "));
        log::warn!("{path}: line {line} is taken for the names of columns ({names}); --no-header takes it for an edge");
    }
    if !dialect.unused.is_empty() {
        let columns: Vec<String> = dialect.unused.iter().map(|at| dialect.column(*at)).collect();
        log::warn!(
            "{path}: nothing is taken from column {}; --weight-column, --time-column and --relation-column take one",
            columns.join(", ")
        );
    }
}

/// Whether ids are numbers: those of all files are, or none.
fn are_numbers(files: &[TypedFile], dialects: &[Dialect]) -> Result<bool> {
    let mut named = None;
    for (file, dialect) in files.iter().zip(dialects) {
        let decided = dialect.ids.decide(|at| dialect.column(at));
        let are = decided.map_err(|(line, fault)| fault.at(&file.path, Place::Line(line + 1)))?;
        if let (IdsAre::Names, None, Some(odd)) = (are, &named, &dialect.ids.odd) {
            named = Some((file, odd));
        }
    }
    let Some((file, OddId { line, value, .. })) = named else { return Ok(true) };
    if dialects.iter().any(|dialect| dialect.ids.numbers > 0) {
        log::warn!(
            "{}: line {}: ids are names, also those that are numbers, because {value:?} is one; --ids integer makes that an \
             error, --ids string says that it is meant",
            file.path.display(),
            line + 1
        );
    }
    Ok(false)
}

fn dialect_of(path: &Path, options: &IngestOptions) -> Result<Dialect> {
    let first = Blocks::open(path)?.next_block()?;
    let text = first.map(|block| block.bytes).unwrap_or_default();
    detect(&text, &options.text).map_err(|(line, fault)| fault.at(path, Place::Line(line + 1)))
}

struct Reader<'o> {
    options: &'o IngestOptions,
    /// Whether ids are numbers that stay as they are.
    kept: bool,
    /// The first file, for what is wrong with all of them together.
    path: PathBuf,
    types: Vec<(String, IdMap)>,
    relations: Vec<Edges>,
    known: HashMap<[Vec<u8>; 3], usize>,
}

impl Reader<'_> {
    fn file(&mut self, file: &TypedFile, plan: RowPlan, sink: &Sink<'_>) -> Result<()> {
        begin(sink.progress, &format!("reading {}", file.path.display()), &file.path);
        let header = plan.dialect.header.clone();
        let mut blocks = Blocks::open(&file.path)?;
        if header.is_some() {
            blocks.skip_header()?;
        }
        let (path, columns) = (file.path.clone(), plan.dialect.kinds);
        let names = [&file.source, &file.relation, &file.target].map(|name| name.as_bytes().to_vec());
        let mut comments: Option<(u64, u64)> = None;
        blocks.for_each(
            sink.progress,
            |block| parse_rows(block, &plan),
            |batch| {
                for block in &batch {
                    if let Some((count, line)) = block.parsed.comments {
                        comments.get_or_insert((0, block.first_line + line)).0 += count;
                    }
                }
                let relations: Vec<RowRelations> = batch
                    .iter()
                    .map(|block| self.relations_of(&block.parsed, columns, &names))
                    .collect::<Result<_, Fault>>()
                    .map_err(|fault| fault.of(&path))?;
                self.take(&batch, &relations, &path)
            },
        )?;
        // One such line is what the columns are called.
        if let Some((count, line)) = comments.filter(|(count, _)| *count > 1) {
            log::warn!(
                "{}: {count} lines that begin with # or % are taken for comments, the first in line {line}; ids that begin so \
                 need quotes",
                path.display()
            );
        }
        Ok(())
    }

    /// Which relation each row of a block is of.
    fn relations_of(
        &mut self,
        block: &Parsed,
        columns: [Option<usize>; 3],
        names: &[Vec<u8>; 3],
    ) -> Result<RowRelations, Fault> {
        if columns.iter().all(Option::is_none) {
            return self.relation(names).map(RowRelations::All);
        }
        let mut each = Vec::with_capacity(block.len());
        let mut last: Option<([Vec<u8>; 3], usize)> = None;
        for row in 0..block.len() {
            let word = |kind: usize| columns[kind].map_or(names[kind].as_slice(), |_| block.kinds[kind].at(row));
            let same = |(of, _): &&([Vec<u8>; 3], usize)| (0..3).all(|kind| of[kind] == word(kind));
            let at = match last.as_ref().filter(same) {
                Some((_, at)) => *at,
                None => {
                    let of = [0, 1, 2].map(|kind| word(kind).to_vec());
                    let at = self.relation(&of)?;
                    last = Some((of, at));
                    at
                }
            };
            each.push(at);
        }
        Ok(RowRelations::Each(each))
    }

    /// The position of a relation, which may be new.
    fn relation(&mut self, names: &[Vec<u8>; 3]) -> Result<usize, Fault> {
        if let Some(at) = self.known.get(names) {
            return Ok(*at);
        }
        if self.relations.len() == MOST_RELATIONS {
            return Err(Fault::TooMany {
                what: "relations; is the relation column right?",
                limit: MOST_RELATIONS as u64,
            });
        }
        let [source, name, target] = names.clone().map(|name| String::from_utf8_lossy(&name).into_owned());
        let [source, target] = [source, target].map(|name| self.node_type(name));
        let edges = Found::List(EdgeList::default());
        self.relations.push(Edges::new(source, name, target, edges));
        self.known.insert(names.clone(), self.relations.len() - 1);
        Ok(self.relations.len() - 1)
    }

    fn node_type(&mut self, name: String) -> usize {
        let found = self.types.iter().position(|(of, _)| *of == name);
        found.unwrap_or_else(|| {
            self.types.push((name, IdMap::default()));
            self.types.len() - 1
        })
    }

    /// Takes the edges of blocks whose relations are known.
    fn take(&mut self, batch: &[Numbered<Parsed>], relations: &[RowRelations], path: &Path) -> Result<()> {
        let words: Vec<&Words> = batch.iter().filter_map(|block| block.parsed.ends.words()).collect();
        let ends: Vec<[usize; 2]> = self.relations.iter().map(|edges| [edges.source, edges.target]).collect();
        let map_of = |block: usize, at: usize| ends[relations[block].of(at / 2)][at % 2];
        let mut maps: Vec<IdMap> = self.types.iter_mut().map(|(_, map)| std::mem::take(map)).collect();
        let numbers = resolve(&mut maps, &words, map_of);
        self.types.iter_mut().zip(maps).for_each(|((_, map), back)| *map = back);
        let numbers = numbers?;
        for (at, block) in batch.iter().enumerate() {
            match &block.parsed.ends {
                Keys::Integers(ids) => {
                    self.check_declared(block, &relations[at], ids, path)?;
                    self.append(&block.parsed, &relations[at], |position| ids[position]);
                }
                Keys::Words(_) => self.append(&block.parsed, &relations[at], |position| numbers[at][position].into()),
            }
        }
        Ok(())
    }

    /// Kept ids are below the number of nodes, where that is known.
    fn check_declared(
        &self,
        block: &Numbered<Parsed>,
        relations: &RowRelations,
        ids: &[u64],
        path: &Path,
    ) -> Result<()> {
        if !self.kept || self.options.nodes.is_empty() {
            return Ok(());
        }
        let limits: Vec<u64> = self.types.iter().map(|(name, _)| self.declared(name).unwrap_or(u64::MAX)).collect();
        for (position, id) in ids.iter().enumerate() {
            let relation = &self.relations[relations.of(position / 2)];
            let node_type = [relation.source, relation.target][position % 2];
            if *id >= limits[node_type] {
                let fault =
                    Fault::IdOutOfRange { id: *id, limit: limits[node_type], of: self.types[node_type].0.clone() };
                return Err(fault.at(path, Place::Line(block.first_line + block.parsed.line_of(position / 2))));
            }
        }
        Ok(())
    }

    fn declared(&self, name: &str) -> Option<u64> {
        self.options.count_of(name, self.types.len() == 1)
    }

    fn append(&mut self, block: &Parsed, relations: &RowRelations, id: impl Fn(usize) -> u64) {
        for row in 0..block.len() {
            let Found::List(edges) = &mut self.relations[relations.of(row)].edges else { continue };
            edges.sources.push(id(2 * row));
            edges.targets.push(id(2 * row + 1));
            if let Some(weight) = block.weights.get(row) {
                edges.weights.get_or_insert_default().push(*weight);
            }
            if let Some(time) = block.times.get(row) {
                edges.times.get_or_insert_default().push(*time);
            }
        }
    }

    /// Gives ids their final numbers and writes down what they were.
    fn finish(mut self, integer_ids: bool, sink: &Sink<'_>) -> Result<Collected> {
        let mut nodes = Vec::new();
        let types = std::mem::take(&mut self.types);
        let only = types.len() == 1;
        for (at, (name, map)) in types.into_iter().enumerate() {
            let declared = self.options.count_of(&name, only);
            let mut columns = columns_of(&mut self.relations, at);
            nodes.push(match (integer_ids, self.kept) {
                (true, true) => {
                    let largest = columns.iter().filter_map(|ids| ids.max()).max();
                    let ends = columns.iter().map(|ids| ids.len() as u64).sum();
                    Nodes::new(name, declared.map_or_else(|| implied_count(largest, ends, &self.path), Ok)?)
                }
                (true, false) => compacted(name, &mut columns, sink)?,
                (false, _) => named(name, map, &mut columns, sink)?,
            });
        }
        let edges: u64 = self.relations.iter().map(|relation| relation.edges.len()).sum();
        if edges == 0 && self.options.nodes.is_empty() {
            return Err(Fault::Missing { what: "edge".into(), there: "a header or comments".into() }.of(&self.path));
        }
        Ok(Collected { nodes, relations: self.relations, ..Collected::default() })
    }
}

/// The relations of a block's rows.
enum RowRelations {
    All(usize),
    Each(Vec<usize>),
}

impl RowRelations {
    fn of(&self, row: usize) -> usize {
        match self {
            Self::All(relation) => *relation,
            Self::Each(relations) => relations[row],
        }
    }
}

/// Every column that holds ids of a node type.
fn columns_of(relations: &mut [Edges], node_type: usize) -> Vec<&mut GrowingIds> {
    let mut columns = Vec::new();
    for relation in relations {
        if let Found::List(edges) = &mut relation.edges {
            if relation.source == node_type {
                columns.push(&mut edges.sources);
            }
            if relation.target == node_type {
                columns.push(&mut edges.targets);
            }
        }
    }
    columns
}

fn compacted(name: String, columns: &mut [&mut GrowingIds], sink: &Sink<'_>) -> Result<Nodes> {
    match compact(columns)? {
        Compacted::AsTheyWere(count) => Ok(Nodes::new(name, count)),
        Compacted::Originals(originals) => {
            let mut nodes = Nodes::new(name, originals.len() as u64);
            let array = format!("{}.original_ids", nodes.name);
            sink.writer.array(&array, &[nodes.count], &originals)?;
            nodes.files.original_ids = Some(array);
            Ok(nodes)
        }
    }
}

fn named(name: String, map: IdMap, columns: &mut [&mut GrowingIds], sink: &Sink<'_>) -> Result<Nodes> {
    let (words, ranks) = map.into_sorted_words();
    columns.iter_mut().for_each(|ids| ids.renumber(&ranks));
    let mut nodes = Nodes::new(name, words.len() as u64);
    let (bytes, ends) = words.parts();
    let offsets: Vec<u64> = std::iter::once(0).chain(ends.iter().copied()).collect();
    let array = |what: &str| format!("{}.{what}", nodes.name);
    let (ids, starts) = (array("original_ids"), array("original_id_offsets"));
    sink.writer.array(&ids, &[bytes.len() as u64], bytes)?;
    sink.writer.array(&starts, &[offsets.len() as u64], &offsets)?;
    nodes.files.original_ids = Some(ids);
    nodes.files.original_id_offsets = Some(starts);
    Ok(nodes)
}
