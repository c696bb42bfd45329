//! What can be wrong with a layer, its programs, and what they are run on.

/// A result of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An array could not be handled.
    #[error(transparent)]
    Tensor(#[from] headwater_tensor::Error),
    /// The GPU could not be used.
    #[error(transparent)]
    Cuda(#[from] headwater_cuda::Error),
    /// A program that breaks a rule of its form. `at` names the value.
    #[error("{program}, {at}: {why}")]
    Malformed {
        /// The program's name.
        program: String,
        /// The value, as its text form has it.
        at: String,
        /// The rule that is broken.
        why: String,
    },
    /// The text form of a program that cannot be read.
    #[error("line {line}: {why}")]
    Unreadable {
        /// Counted from 1.
        line: usize,
        /// What was expected.
        why: String,
    },
    /// A graph that a layer cannot be run on.
    #[error("relation {relation}: {why}")]
    Graph {
        /// Which relation, counted from 0.
        relation: usize,
        /// What is wrong with it.
        why: String,
    },
    /// An array that has not as many numbers as a program reads.
    #[error("`{name}` has {found} numbers; expected {expected}")]
    Binding {
        /// The input or parameter.
        name: String,
        /// Rows of its domain times what a row holds.
        expected: usize,
        /// Numbers that were given.
        found: usize,
    },
    /// What a caller of a layer gives, and a layer cannot take.
    #[error("{name}: {why}")]
    Argument {
        /// The input, weight, option or size.
        name: String,
        /// What is wrong with it, and what was expected.
        why: String,
    },
    /// A layer text that cannot be read, or that says something that makes no sense.
    #[error("{name}:{line}:{column}: {why}\n{excerpt}")]
    Text {
        /// What the caller calls the text; a file, mostly.
        name: String,
        /// Counted from 1.
        line: usize,
        /// Characters, counted from 1.
        column: usize,
        /// What is wrong, and what was expected.
        why: String,
        /// The line, and below it what is meant.
        excerpt: String,
    },
}
