//! Programs of kernels run on the CPU: [`reference`](mod@reference) says what they mean, [`fast`] is what ships.

pub mod dropout;
pub mod fast;
pub mod reference;
pub(crate) mod scalar;
