//! Moving tensors between places.

use headwater_cuda::Stream;

use crate::advise::{MemAdvice, advise};
use crate::device::{Affinity, Device};
use crate::error::Result;
use crate::exec::output_bytes;
use crate::ops::copy;
use crate::storage::Storage;
use crate::tensor::Tensor;

impl Tensor {
    /// This tensor on another device, packed. On its own device, and from one affinity to the other, nothing is copied.
    pub fn to(&self, device: Device) -> Result<Tensor> {
        if self.device() == device || (self.is_unified() && device.is_unified()) {
            return Ok(self.with_device(device));
        }
        self.copy_to(Storage::new(device, output_bytes(self.dtype(), self.shape())?)?, device)
    }

    /// A unified copy in managed memory, which the driver moves and which takes [`MemAdvice`]. The hints are given before
    /// the first byte is written, so that they also govern the copy.
    pub fn to_managed(&self, affinity: Affinity, hints: &[(MemAdvice, Device)]) -> Result<Tensor> {
        let storage = Storage::managed(output_bytes(self.dtype(), self.shape())?)?;
        for (advice, device) in hints {
            advise(&storage, *advice, *device)?;
        }
        self.copy_to(storage, Device::Unified { affinity })
    }

    /// The same elements in the same place, one after the other; copied only when they are not so already.
    pub fn contiguous(&self) -> Result<Tensor> {
        if self.is_contiguous() {
            return Ok(self.clone());
        }
        self.copy_to(Storage::new(self.device(), output_bytes(self.dtype(), self.shape())?)?, self.device())
    }

    fn copy_to(&self, mut storage: Storage, device: Device) -> Result<Tensor> {
        match storage.home().or(self.storage().home()).cloned() {
            Some(gpu) => self.copy_by(gpu.stream()?, &mut storage)?,
            None => {
                if let Some(to) = storage.host_mut()? {
                    copy::pack_on_host(self, to)?;
                }
            }
        }
        Tensor::packed(storage, self.shape(), self.dtype(), device)
    }

    /// Fills `storage` through a stream of the GPU it lies on, or, if it lies on none, of the GPU this tensor lies on.
    fn copy_by(&self, stream: &Stream, storage: &mut Storage) -> Result<()> {
        if self.count() == 0 {
            return Ok(());
        }
        let home = self.storage().home();
        if let Some(gpu) = home {
            stream.wait_for(gpu.stream()?)?;
        }
        // Kernels here need not reach the other GPU's memory; the copy engine does.
        if home.is_some_and(|gpu| gpu.ordinal() != stream.gpu().ordinal()) && !self.is_contiguous() {
            return self.contiguous()?.copy_by(stream, storage);
        }
        match (self.storage().span(), storage.span()) {
            (Some(_), Some(to)) => copy::pack_on_gpu(stream, &self.gpu_operand(stream, self.dtype())?, to),
            (None, Some(to)) => {
                let packed = self.contiguous()?;
                let operand = packed.host_operand(self.dtype())?;
                Ok(stream.upload(operand.packed_bytes()?.unwrap_or_default(), to)?)
            }
            (_, None) => {
                let from = self.packed_gpu_operand(stream, self.dtype())?.packed()?;
                if let (Some(from), Some(to)) = (from, storage.host_mut()?) {
                    stream.download(&from, to)?;
                }
                Ok(())
            }
        }
    }
}
