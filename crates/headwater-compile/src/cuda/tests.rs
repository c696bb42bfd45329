//! Emitted kernels against the CPU's: every model, both directions, on graphs of every kind.

mod device;
mod device_paths;
mod device_plans;
mod device_products;
mod device_sums;
