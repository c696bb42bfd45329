//! Edge lists and tables as text: CSV, TSV, spaces; plain or compressed; with or without a header.
//!
//! A thread reads (and unpacks) ahead and cuts the text at line ends into blocks; blocks are parsed in parallel and taken
//! in their order, so a fault has the right line number and the result does not depend on the number of threads.

mod blocks;
mod dialect;
mod fields;
mod heading;
mod matrix;
mod rows;
mod seen_ids;

pub use blocks::{Block, Blocks, Numbered};
pub use dialect::{Asked, ColumnName, Delimiter, Dialect, detect};
pub use fields::split;
pub use matrix::{Matrix, Number, integer_column, integer_rows, label_rows, read_matrix, small_table};
pub use rows::{Keys, Parsed, RowPlan, Words, parse_rows};
pub use seen_ids::{IdsAre, OddId, SeenIds};
