//! What only a device can show. On a machine without one these say so and pass.

mod memory;
mod operators;
mod rows;
