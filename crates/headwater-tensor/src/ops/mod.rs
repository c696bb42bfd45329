//! The eager operators, one folder each.
//!
//! A folder holds the contract in words, the checks and the one choice between devices (`mod.rs`), the CPU path (`cpu.rs`),
//! the launches (`cuda.rs`), the CUDA text (`<op>.cu`) and the tests. CPU kernels take slices seen through layouts and
//! write packed row-major outputs that the caller has made. Users meet the operators as methods of `Tensor`.

pub mod copy;
pub mod elementwise;
pub(crate) mod index;
pub(crate) mod launch;
mod map;
pub mod matmul;
pub mod random;
pub mod reduce;
pub mod scatter_add;

#[cfg(test)]
pub(crate) mod testing;

use headwater_cuda::{Defines, Source};

/// Every kernel text of this crate with every set of defines it is used with, for tests that compile all of them.
pub fn kernel_builds() -> Vec<(&'static Source, Defines)> {
    let folders = [
        copy::kernel_builds,
        elementwise::kernel_builds,
        matmul::kernel_builds,
        random::kernel_builds,
        reduce::kernel_builds,
    ];
    let mut builds: Vec<_> = folders.into_iter().flat_map(|folder| folder()).collect();
    builds.extend(scatter_add::kernel_builds());
    builds.extend(crate::gather::kernel_builds());
    builds
}
