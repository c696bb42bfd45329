//! The same samples from the GPU and from the CPU.
#![allow(clippy::cast_possible_truncation, reason = "numbers in tests are small")]

mod device;
