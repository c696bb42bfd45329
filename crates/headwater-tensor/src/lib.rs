//! What an array is, and who computes on it.
//!
//! An array here is elements of one [`DType`] under a [`Layout`], in a place named by a [`Device`]. The crate answers four
//! questions, each in its own room:
//!
//! * **What is this array?** [`dtype`] is the closed list of element types, [`layout`] turns positions into storage indices
//!   and proves that a view stays inside its storage, and [`npy`] reads and writes the headers of the files arrays are kept in.
//! * **Who computes, and where does the result go?** [`placement`] is the table of unified tensors as one pure function.
//!   A unified tensor lies in host memory that the GPU reads directly; its affinity says which side operators prefer.
//! * **Where are its bytes?** [`Tensor`] shares a storage with its views; it is made, moved, laid over memory somebody else
//!   owns, and read back, on every device.
//! * **How is it computed?** [`ops`] has one folder for each operator: contract in words, checks, the CPU path, the CUDA
//!   text, tests. The CPU paths take plain slices as [`View`]s and write packed slices; [`loops`] decides the order and
//!   [`parallel`] shares the work out to threads.
//!
//! ```
//! use headwater_tensor::ops::elementwise::{BinaryOp, cpu};
//! use headwater_tensor::{Affinity, Device, View};
//! use headwater_tensor::placement::{Operand, place};
//!
//! // A column and a row, added by broadcasting.
//! let (column, row) = ([10.0f32, 20.0], [1.0f32, 2.0, 3.0]);
//! let mut sums = [0.0; 6];
//! cpu::binary(BinaryOp::Add, View::contiguous(&column, &[2, 1])?, View::contiguous(&row, &[3])?, &mut sums)?;
//! assert_eq!(sums, [11.0, 12.0, 13.0, 21.0, 22.0, 23.0]);
//!
//! // A unified table read together with indices on GPU 1: computed there, and the result stays there.
//! let placement = place(&[Operand::Unified(Affinity::Gpu), Operand::Cuda(1)])?;
//! assert_eq!(placement.output, Device::Cuda(1));
//! # Ok::<(), headwater_tensor::Error>(())
//! ```
//!
//! Results do not depend on the number of threads, and where an operator's page says so, not on the device either. Nothing
//! given to this crate makes it panic, read outside a slice, or allocate more than its inputs and outputs call for. It
//! knows nothing of graphs.

mod advise;
mod create;
pub mod device;
mod display;
pub mod dtype;
mod eager;
pub mod error;
mod exec;
pub mod gather;
pub mod ids;
mod lay_over;
pub mod layout;
pub mod loops;
pub mod npy;
pub mod ops;
pub mod parallel;
pub mod placement;
mod read;
mod runtime;
mod storage;
mod tensor;
#[cfg(test)]
mod tests;
mod transfer;
pub mod view;

pub use advise::MemAdvice;
pub use device::{Affinity, Device};
pub use dtype::{Bool, DType, Element, Scalar};
pub use error::{Error, Result};
pub use half::{bf16, f16};
pub use layout::{Layout, MAX_DIMS, Shape, Slice};
pub use ops::kernel_builds;
pub use ops::reduce::KeepAxis;
pub use runtime::{current_gpu, set_current_gpu};
pub use tensor::Tensor;
pub use view::View;
