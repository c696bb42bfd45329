//! What only this crate sees: which uses of memory are noted, and which products are refused.

mod device;
mod device_recording;
