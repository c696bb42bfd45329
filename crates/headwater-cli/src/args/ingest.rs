//! What `ingest` takes.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args as Group, ValueEnum};
use headwater::graph::ingest::text::ColumnName;
use headwater::graph::ingest::{Format, NodeCount, TypedFile};

/// What `ingest` takes.
#[derive(Debug, Group)]
pub struct IngestArgs {
    /// A file or a folder; none with --edges.
    #[arg(required_unless_present = "edges")]
    pub source: Option<PathBuf>,
    /// The folder to make. It must not be there or be empty.
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// What the source is. Default: found out.
    #[arg(long, value_parser = format())]
    pub format: Option<Format>,
    /// What the dataset is called. Default: the folder's name.
    #[arg(long)]
    pub name: Option<String>,
    /// How neighbour lists are stored: by target (csc) or by source (csr).
    #[arg(long, value_enum, default_value = "csc")]
    pub layout: IngestLayout,
    /// Also let edges go the other way; between different types as a relation rev_NAME.
    #[arg(long)]
    pub reverse: bool,
    /// Number of nodes, COUNT or TYPE=COUNT; may be given several times. Ids are then kept as they are.
    #[arg(long, value_name = "COUNT")]
    pub nodes: Vec<NodeCount>,
    /// What becomes of sparse features.
    #[arg(long, value_enum, default_value = "dense")]
    pub sparse_features: SparseAs,
    /// What labels of nodes are.
    #[arg(long, value_enum, default_value = "auto")]
    pub labels: LabelsAre,
    /// An edge list of one relation; may be given several times.
    #[arg(long, value_name = "SOURCE:RELATION:TARGET=FILE", help_heading = "Edge lists")]
    pub edges: Vec<TypedFile>,
    /// What ids are.
    #[arg(long, value_enum, default_value = "auto", help_heading = "Edge lists")]
    pub ids: IngestIds,
    /// One character, or tab, comma, spaces. Default: found out.
    #[arg(long, value_name = "CHARACTER", help_heading = "Edge lists")]
    pub delimiter: Option<String>,
    /// The first line names the columns. Default: it does where a column is asked for by name, where it has known names for
    /// both ends (src, dst, from, to, ...), or no numbers or digits above columns of them, or only words as user, item or
    /// paper_id; and where none of its words is an id below.
    #[arg(long, conflicts_with = "no_header", help_heading = "Edge lists")]
    pub header: bool,
    /// The first line is an edge.
    #[arg(long, help_heading = "Edge lists")]
    pub no_header: bool,
    /// Column where edges begin, by name or by number from 0.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub source_column: Option<ColumnName>,
    /// Column where edges end.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub target_column: Option<ColumnName>,
    /// Column of weights.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub weight_column: Option<ColumnName>,
    /// Column of times, whole numbers.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub time_column: Option<ColumnName>,
    /// Column of relations.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub relation_column: Option<ColumnName>,
    /// Column of the types of nodes where edges begin.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub source_type_column: Option<ColumnName>,
    /// Column of the types of nodes where edges end.
    #[arg(long, value_name = "COLUMN", help_heading = "Edge lists")]
    pub target_type_column: Option<ColumnName>,
    /// One JSON object instead of text.
    #[arg(long)]
    pub json: bool,
}

/// How neighbour lists are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IngestLayout {
    /// A list has the sources of a target.
    Csc,
    /// A list has the targets of a source.
    Csr,
}

/// What ids in text are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum IngestIds {
    /// Whole numbers where all of the first 100 lines have them, names where most have others; between that an error.
    Auto,
    /// Whole numbers that are kept.
    Dense,
    /// Whole numbers that are numbered anew unless they are dense.
    Integer,
    /// Any text.
    String,
}

/// What labels of nodes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LabelsAre {
    /// Classes where they are whole, also as floats; several a node are yes or no; other floats are numbers to predict.
    Auto,
    /// Classes.
    Classes,
    /// Numbers to predict.
    Values,
}

/// What becomes of sparse features.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SparseAs {
    /// Rows of 32-bit floats.
    Dense,
    /// Rows of 16-bit floats.
    Half,
    /// They are left out.
    Skip,
}

/// Takes the library's names of formats.
fn format() -> impl TypedValueParser<Value = Format> {
    let by_name = |name: String| name.parse::<Format>();
    PossibleValuesParser::new(Format::ALL.map(Format::name)).try_map(by_name)
}
