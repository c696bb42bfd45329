//! Training in two processes: a producer draws batches and gathers their features beside the trainer, which trains on them.
//!
//! Under CUDA's Multi-Process Service both share the SMs by fixed parts: a tenth is enough to gather, since the link is the
//! limit, and the rest trains undisturbed. The trainer makes two slots in GPU memory and the producer maps them: while one is
//! trained on, the other is filled. Everything else goes through one socket, a message of some 100 bytes a batch. Whoever dies
//! closes it, so the other one knows at once, and nothing has a name that could be left behind.
//!
//! | the question | the room |
//! | --- | --- |
//! | Who says what, and what comes next? | `protocol.rs`, without doing anything |
//! | Where in a slot does what lie? | `shelf.rs` |
//! | How do messages go? | `link.rs` |
//! | The trainer's end, and the process | `remote.rs` |
//! | The producer's end | `produce.rs` |
//! | Is there a service? | [`mps`] |
//!
//! Run on emulated devices, and under a real service on an H200: the same batches and weights as in one process.

mod link;
pub mod mps;
mod produce;
pub(crate) mod protocol;
mod remote;
pub(crate) mod shelf;
#[cfg(test)]
mod tests;

pub use produce::{serve, serve_stdin};
pub use remote::Beside;

pub(crate) use remote::Remote;
