//! A share of the GPU for one kind of work.
//!
//! Two ways to keep a kernel from taking every SM. A cap on resident blocks needs nothing from the driver: a persistent
//! kernel started with few blocks stays on few SMs. A green context is enforced by the driver: streams made in it run on
//! its SMs only, whatever is launched there.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::stream::{GreenHandle, Stream};
use crate::types::{CU_DEV_RESOURCE_TYPE_SM, CUdevResource};

/// How much of the GPU a kernel may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SmShare {
    /// All of it.
    #[default]
    All,
    /// At most this many SMs.
    AtMost(u32),
}

impl SmShare {
    /// SMs to use on a GPU with `available`; never zero.
    #[must_use]
    pub fn sms(self, available: u32) -> u32 {
        match self {
            Self::All => available.max(1),
            Self::AtMost(cap) => cap.clamp(1, available.max(1)),
        }
    }
}

/// A partition of a GPU's SMs, enforced by the driver.
#[derive(Debug, Clone)]
pub struct GreenContext {
    handle: Arc<GreenHandle>,
    sms: u32,
}

impl GreenContext {
    /// Sets aside at least `sms` SMs. The driver rounds up to what the hardware can separate.
    pub fn new(gpu: &Gpu, sms: u32) -> Result<Self> {
        const FOR_DEFAULT_STREAM: u32 = 1;
        let driver = gpu.bind()?;
        let (Some(query), Some(split), Some(describe), Some(create)) = (
            driver.cuDeviceGetDevResource,
            driver.cuDevSmResourceSplitByCount,
            driver.cuDevResourceGenerateDesc,
            driver.cuGreenCtxCreate,
        ) else {
            return Err(unavailable(format!("driver {} has no green contexts", driver.version())));
        };
        let refused = |error: Error| unavailable(error.to_string());
        let (mut all, mut part) = (CUdevResource::EMPTY, CUdevResource::EMPTY);
        let (mut groups, mut description, mut raw) = (1, std::ptr::null_mut(), std::ptr::null_mut());
        let none = std::ptr::null_mut();
        // SAFETY: every pointer names a local that outlives the call; the device is open.
        unsafe {
            driver
                .check("cuDeviceGetDevResource", query(gpu.device(), &raw mut all, CU_DEV_RESOURCE_TYPE_SM))
                .map_err(refused)?;
            let code = split(&raw mut part, &raw mut groups, &raw const all, none, 0, sms);
            driver.check("cuDevSmResourceSplitByCount", code).map_err(refused)?;
            let code = describe(&raw mut description, &raw mut part, 1);
            driver.check("cuDevResourceGenerateDesc", code).map_err(refused)?;
            let code = create(&raw mut raw, description, gpu.device(), FOR_DEFAULT_STREAM);
            driver.check("cuGreenCtxCreate", code).map_err(refused)?;
        }
        Ok(Self { handle: Arc::new(GreenHandle { raw, gpu: gpu.clone() }), sms: part.smCount })
    }

    /// SMs set aside.
    #[must_use]
    pub fn sms(&self) -> u32 {
        self.sms
    }

    /// A stream whose kernels run on these SMs only.
    pub fn stream(&self) -> Result<Stream> {
        const NON_BLOCKING: u32 = 1;
        let driver = self.handle.gpu.bind()?;
        let Some(create) = driver.cuGreenCtxStreamCreate else {
            return Err(unavailable("the driver has no cuGreenCtxStreamCreate".into()));
        };
        Stream::of_green_context(self.handle.clone(), || {
            let mut raw = std::ptr::null_mut();
            // SAFETY: writes one handle; the green context is live.
            let code = unsafe { create(&raw mut raw, self.handle.raw, NON_BLOCKING, 0) };
            driver.check("cuGreenCtxStreamCreate", code)?;
            Ok(raw)
        })
    }
}

fn unavailable(why: String) -> Error {
    Error::Unsupported { what: "a green context", why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_never_empty_and_never_more_than_there_is() {
        assert_eq!(SmShare::All.sms(132), 132);
        assert_eq!(SmShare::AtMost(16).sms(132), 16);
        assert_eq!(SmShare::AtMost(500).sms(132), 132);
        assert_eq!(SmShare::AtMost(0).sms(132), 1);
    }
}
