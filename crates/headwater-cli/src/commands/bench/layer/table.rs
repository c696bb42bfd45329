//! Tables as Markdown has them.

use std::fmt::{Display, Formatter, Result};

/// Stands where there is no figure.
pub const NOTHING: &str = "-";

/// Names of columns, and rows of as many cells. The first column has names, the others have figures.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Above the table, as a heading. Empty for none.
    pub heading: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(heading: &str, columns: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { heading: heading.to_owned(), columns: columns.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }
}

impl Display for Table {
    fn fmt(&self, to: &mut Formatter<'_>) -> Result {
        if !self.heading.is_empty() {
            writeln!(to, "## {}\n", self.heading)?;
        }
        // A bar would end the cell.
        let row = |cells: &[String]| {
            cells.iter().map(|cell| format!(" {} |", cell.replace('|', "\\|"))).collect::<String>().replace("  |", " |")
        };
        writeln!(to, "|{}", row(&self.columns))?;
        writeln!(to, "|{}", " --- |".repeat(self.columns.len()))?;
        self.rows.iter().try_for_each(|cells| writeln!(to, "|{}", row(cells)))
    }
}

/// A number with three digits that count.
pub fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        size if size >= 0.9995 => format!("{value:.2}"),
        size if size >= 0.09995 => format!("{value:.3}"),
        _ => format!("{value:.4}"),
    }
}

/// The geometric mean, which is what ratios have; none of none.
pub fn geometric_mean(ratios: &[f64]) -> Option<f64> {
    let sum: f64 = ratios.iter().map(|ratio| ratio.ln()).sum();
    (!ratios.is_empty()).then(|| (sum / ratios.len() as f64).exp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_markdown() {
        let mut table = Table::new("am", ["", "RGCN"]);
        table.rows.push(vec!["a | b".to_owned(), figure(1.234)]);
        assert_eq!(table.to_string(), "## am\n\n| | RGCN |\n| --- | --- |\n| a \\| b | 1.23 |\n");
        assert!(Table::new("", ["x"]).to_string().starts_with("| x |"));
    }

    #[test]
    fn figures_have_three_digits() {
        let shown = [1234.5, 123.4, 12.34, 9.999, 1.234, 0.1234, 0.01234].map(figure);
        assert_eq!(shown, ["1234", "123", "12.3", "10.0", "1.23", "0.123", "0.0123"]);
        assert_eq!(geometric_mean(&[2.0, 8.0]).map(figure), Some("4.00".to_owned()));
        assert_eq!(geometric_mean(&[]), None);
    }
}
