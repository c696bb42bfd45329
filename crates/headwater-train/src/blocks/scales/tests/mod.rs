//! Scales made on the device against those made on the host.

mod device;
