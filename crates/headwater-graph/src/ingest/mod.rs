//! Datasets out of what others wrote.

pub mod arrays;
pub mod edges;
pub mod fault;
pub mod text;
pub mod zip;

#[cfg(test)]
mod testing;
