//! Headwater trains graph neural networks on graphs that do not fit in GPU memory, as fast as if they did.
//!
//! This crate is the door: it re-exports the rooms and holds their integration tests. Today it offers the foundation.
//!
//! | the question | the room |
//! | --- | --- |
//! | How do we talk to the GPU? | [`cuda`] |
//! | Where do bytes live and how do they move? | [`memory`] |
//! | What is this array, and who computes on it? | [`tensor`] |
//! | Who is next to whom, and which neighbours today? | [`graph`] |
//! | Which rows are hot, and where do they lie? | [`feature`] |
//! | What does this layer compute, and as which kernels? | [`compile`] |
//! | What leaves the GPU between forward and backward? | [`offload`] |
//! | One epoch after the other? | [`train`] |

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

pub use headwater_compile as compile;
pub use headwater_cuda as cuda;
pub use headwater_feature as feature;
pub use headwater_graph as graph;
pub use headwater_memory as memory;
pub use headwater_offload as offload;
pub use headwater_tensor as tensor;
pub use headwater_train as train;
