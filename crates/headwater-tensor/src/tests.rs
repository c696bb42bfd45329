//! Tests of tensors: what each place does alone, and the same computations in all of them.

mod device;
mod places;
mod plain;
