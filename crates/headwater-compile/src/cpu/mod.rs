//! Programs of kernels run on the CPU: [`reference`] says what they mean.

pub mod dropout;
pub mod reference;
pub(crate) mod scalar;
