//! Programs rewritten, step by step, until they are kernels. Each pass is a file.

pub mod autodiff;
pub mod buffers;
pub mod domains;
mod rewrite;
pub mod select;
pub mod simplify;
pub mod split;
#[cfg(test)]
mod tests;
