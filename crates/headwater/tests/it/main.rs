//! The integration tests: one program, the same body on every device.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should say where")]

mod tidy;
