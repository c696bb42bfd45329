//! Programs rewritten, step by step, until they are kernels. Each pass is a file.

pub mod autodiff;
pub mod domains;
mod rewrite;
pub mod select;
pub mod simplify;
#[cfg(test)]
mod tests;
