//! The text form of a program: one value a line.
//!
//! ```text
//! program gat
//! %0 : node.src [1, 64] = input x gradient
//! %1 : const [1, 64, 8] = parameter W
//! %2 : node.src [1, 8] = linear %0 %1 ; z
//! output out = %2
//! ```
//!
//! What is written reads back as the same program.

mod print;
mod read;

pub use print::print;
pub(crate) use print::{binary as binary_name, op as op_text, reduce as reduce_name, unary as unary_name};
pub use read::read;

#[cfg(test)]
mod tests;
