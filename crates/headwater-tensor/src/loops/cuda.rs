//! How far a kernel can reach through `LoopsArg`.
#![allow(unsafe_code, reason = "the promise stands beside the struct it is about")]

use headwater_cuda::KernelStruct;

use super::LoopsArg;

// SAFETY: all fields are 64 bits wide, in the order of HwLoops in loops.cuh. `hw_locate` is called with numbers below
// `count` and forms, for operand n, its offset plus a position times a stride for each axis. Positions of the inner axes are
// below their sizes; the outermost position is below its size because `count` is the product, which `reach` checks. The
// last extent bounds the packed output, which is written at numbers below `count`.
unsafe impl<const N: usize> KernelStruct for LoopsArg<N> {
    fn extents(&self) -> Vec<u64> {
        (0..N).map(|operand| self.reach(operand)).chain([self.count]).collect()
    }
}
