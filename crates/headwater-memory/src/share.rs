//! Memory shared between processes.
//!
//! Host memory is a memfd: each process maps it and registers it with its own driver, so there is one copy in the
//! machine. Device memory is an IPC handle of the driver's. Both travel over a Unix socket in one small message, and a
//! peer that dies shows up as an error of that socket; what it shared stays valid for those who mapped it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use headwater_cuda::{Allocation, Gpu, IpcHandle, Span};
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::registry::lay_over;

/// Host memory that several processes map.
#[derive(Debug)]
pub struct SharedHost {
    file: OwnedFd,
    mapping: Arc<Mapping>,
}

/// Length of a message: one kind byte, a length, and room for the driver's handle.
const MESSAGE_BYTES: usize = 1 + 8 + 64;
const KIND_HOST: u8 = 1;
const KIND_DEVICE: u8 = 2;

impl SharedHost {
    /// New zeroed shared memory.
    pub fn create(bytes: usize) -> Result<Self> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("headwater", flags).map_err(|error| failed("memfd_create", &error))?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(|error| failed("setting the length", &error))?;
        // A peer that shortened the file would turn reads into bus errors, so nobody may.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|error| failed("sealing the length", &error))?;
        Self::over(file, bytes)
    }

    /// Offers the memory to the process at the other end.
    pub fn send(&self, peer: &UnixStream) -> Result<()> {
        send(peer, KIND_HOST, self.mapping.bytes(), &[0; 64], Some(&self.file))
    }

    /// Maps what the process at the other end sent.
    pub fn receive(peer: &UnixStream) -> Result<Self> {
        let message = receive(peer)?;
        let (KIND_HOST, Some(file)) = (message.kind, message.file) else {
            return Err(failed("receiving host memory", &"the peer sent something else"));
        };
        let actual = rustix::fs::fstat(&file).map_err(|error| failed("fstat", &error))?.st_size;
        let sealed = rustix::fs::fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK));
        if usize::try_from(actual).ok() != Some(message.bytes) || !sealed {
            return Err(failed("receiving host memory", &"its length is not what was announced, or not sealed"));
        }
        Self::over(file, message.bytes)
    }

    /// Registers the memory with this process's driver. Every process does that for itself.
    pub fn map_into(&self, gpu: &Gpu) -> Result<Span> {
        // SAFETY: the mapping is held as the keeper.
        unsafe { lay_over(gpu, self.mapping.start(), self.mapping.bytes(), self.mapping.clone()) }
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Copies in, from `at` on. Ordering against other processes is theirs to arrange.
    pub fn write(&self, at: usize, from: &[u8]) -> Result<()> {
        self.check(at, from.len())?;
        // SAFETY: inside the mapping, by the check; no reference to shared memory exists anywhere.
        unsafe {
            self.mapping.start().add(at).copy_from_nonoverlapping(std::ptr::NonNull::from(from).cast(), from.len())
        };
        Ok(())
    }

    /// Copies out, from `at` on.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<()> {
        self.check(at, to.len())?;
        // SAFETY: as above.
        unsafe {
            self.mapping.start().add(at).copy_to_nonoverlapping(std::ptr::NonNull::from(&mut *to).cast(), to.len())
        };
        Ok(())
    }

    fn check(&self, at: usize, bytes: usize) -> Result<()> {
        let fits = at.checked_add(bytes).is_some_and(|end| end <= self.bytes());
        if fits { Ok(()) } else { Err(Error::Misfit { bytes, element_bytes: 1 }) }
    }

    fn over(file: OwnedFd, bytes: usize) -> Result<Self> {
        let mapping = Arc::new(Mapping::shared(file.as_fd(), bytes)?);
        Ok(Self { file, mapping })
    }
}

/// Offers device memory to the process at the other end. It must be [`Allocation::shareable`] and outlive the peer's use.
pub fn send_device(peer: &UnixStream, allocation: &Allocation) -> Result<()> {
    let handle = allocation.ipc_handle()?;
    send(peer, KIND_DEVICE, handle.length_bytes, &handle.bytes, None)
}

/// Maps the device memory that the process at the other end sent.
pub fn receive_device(peer: &UnixStream, gpu: &Gpu) -> Result<Span> {
    let message = receive(peer)?;
    if message.kind != KIND_DEVICE {
        return Err(failed("receiving device memory", &"the peer sent something else"));
    }
    let handle = IpcHandle { bytes: message.handle, length_bytes: message.bytes };
    Ok(Span::whole(Allocation::import(gpu, &handle)?))
}

struct Message {
    kind: u8,
    bytes: usize,
    handle: [u8; 64],
    file: Option<OwnedFd>,
}

fn send(peer: &UnixStream, kind: u8, bytes: usize, handle: &[u8; 64], file: Option<&OwnedFd>) -> Result<()> {
    let mut message = vec![kind];
    message.extend_from_slice(&(bytes as u64).to_le_bytes());
    message.extend_from_slice(handle);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let files: Vec<_> = file.iter().map(|file| file.as_fd()).collect();
    if !files.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&files));
    }
    let parts = [IoSlice::new(&message)];
    let sent = retry_on_intr(|| rustix::net::sendmsg(peer, &parts, &mut control, SendFlags::NOSIGNAL))
        .map_err(|error| failed("sending to the peer", &error))?;
    if sent == MESSAGE_BYTES { Ok(()) } else { Err(failed("sending to the peer", &"the message was cut short")) }
}

fn receive(peer: &UnixStream) -> Result<Message> {
    let mut bytes = [0u8; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut bytes)];
    let got = retry_on_intr(|| rustix::net::recvmsg(peer, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))
        .map_err(|error| failed("receiving from the peer", &error))?;
    if got.bytes == 0 {
        return Err(failed("receiving from the peer", &"it closed the connection or died"));
    }
    if got.bytes != MESSAGE_BYTES || got.flags.contains(ReturnFlags::CTRUNC) {
        return Err(failed("receiving from the peer", &"the message was cut short"));
    }
    let file = control.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut files) => files.next(),
        _ => None,
    });
    let (length, handle) = (bytes[1..9].try_into().unwrap_or([0; 8]), bytes[9..].try_into().unwrap_or([0; 64]));
    let length = usize::try_from(u64::from_le_bytes(length)).map_err(|error| failed("reading the length", &error))?;
    Ok(Message { kind: bytes[0], bytes: length, handle, file })
}

fn failed(what: &'static str, why: &dyn ToString) -> Error {
    Error::Share { what, why: why.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_see_one_memory() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let made = SharedHost::create(10_000).unwrap();
        made.write(9_990, b"headwater!").unwrap();
        made.send(&ours).unwrap();
        let got = SharedHost::receive(&theirs).unwrap();
        let mut text = [0; 10];
        got.read(9_990, &mut text).unwrap();
        assert_eq!(&text, b"headwater!");
        got.write(0, &[42]).unwrap();
        let mut byte = [0];
        made.read(0, &mut byte).unwrap();
        assert_eq!(byte, [42]);
        assert!(got.read(9_995, &mut text).is_err());
        assert!(got.write(usize::MAX, &[1]).is_err());
    }

    #[test]
    fn a_peer_that_is_gone_is_an_error() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        drop(theirs);
        assert!(matches!(SharedHost::receive(&ours), Err(Error::Share { .. })));
        assert!(matches!(SharedHost::create(4096).unwrap().send(&ours), Err(Error::Share { .. })));
    }

    #[test]
    fn an_unsealed_or_shorter_file_is_refused() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let file = rustix::fs::memfd_create("test", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 10).unwrap();
        send(&ours, KIND_HOST, 4096, &[0; 64], Some(&file)).unwrap();
        assert!(SharedHost::receive(&theirs).is_err());
        send(&ours, KIND_HOST, 10, &[0; 64], Some(&file)).unwrap();
        assert!(SharedHost::receive(&theirs).is_err());
    }
}
