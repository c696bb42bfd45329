//! What does this layer compute, and as which kernels?
//!
//! A layer is a short text ([`front`]) or is built by hand ([`inter::Builder`]). Either way it becomes a program of
//! [`inter`], whose values are rows of a domain: one a node, one an edge, one an edge type. There are no loops: they vanish
//! when a text is read and come back as schedules. [`pass`] rewrites such programs and derives their gradients, and selects
//! kernels: programs of [`intra`]. [`cpu`] runs those, and its plain interpreter defines what they mean. [`call`] is a layer for
//! somebody else's arrays and autograd.
//!
//! Ordinary networks are the case of one relation: there is no second engine. *It never* samples, and never allocates
//! outside its back ends.

pub mod adjacency;
pub mod call;
pub mod cpu;
pub mod cuda;
pub mod error;
#[cfg(test)]
mod formulas_test;
pub mod front;
#[cfg(test)]
mod golden_test;
pub mod inter;
pub mod intra;
#[cfg(test)]
mod models_test;
pub mod pass;
#[cfg(test)]
mod pyg_test;
#[cfg(test)]
mod random_layer;
#[cfg(test)]
mod random_test;
#[cfg(test)]
mod testing;

pub use error::{Error, Result};
pub use pass::Optimisations;
