//! Memory shared between processes.
//!
//! Host memory is a memfd: each process maps it and registers it with its own driver, so there is one copy in the
//! machine. Device memory is an IPC handle of the driver's. Both travel over a Unix socket in one small message, and a
//! peer that dies shows up as an error of that socket; what it shared stays valid for those who mapped it.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use headwater_cuda::{Allocation, Gpu, IpcHandle, Span};
use rayon::prelude::*;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::retry_on_intr;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};

use crate::error::{Error, Result};
use crate::mapping::Mapping;
use crate::registry::lay_over;
use crate::tier::host_bytes_available;

/// Host memory that several processes map.
#[derive(Debug)]
pub struct SharedHost {
    file: OwnedFd,
    mapping: Arc<Mapping>,
    /// What GPUs of this process reach it through.
    spans: Mutex<Vec<Weak<Allocation>>>,
}

/// Length of a message: one kind byte, a length, and room for the driver's handle.
const MESSAGE_BYTES: usize = 1 + 8 + 64;
const KIND_HOST: u8 = 1;
const KIND_DEVICE: u8 = 2;

impl SharedHost {
    /// New zeroed shared memory.
    pub fn create(bytes: usize) -> Result<Self> {
        let free_bytes = host_bytes_available();
        if bytes > free_bytes {
            // Whoever writes it would be killed instead of getting an error.
            let why = "more than the memory available".to_owned();
            return Err(Error::Map { asked_bytes: bytes, free_bytes, why });
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create("headwater", flags).map_err(|error| failed("memfd_create", &error))?;
        rustix::fs::ftruncate(&file, bytes as u64).map_err(|error| failed("setting the length", &error))?;
        // A peer that shortened the file would turn reads into bus errors, so nobody may.
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(|error| failed("sealing the length", &error))?;
        Self::over(file, bytes)
    }

    /// New shared memory that is filled part by part on many threads, before anybody else has it. `write` is told where its part
    /// begins.
    pub fn filled<E: From<Error> + Send>(
        bytes: usize,
        part_bytes: usize,
        write: impl Fn(usize, &mut [u8]) -> Result<(), E> + Sync,
    ) -> Result<Self, E> {
        let made = Self::create(bytes)?;
        // SAFETY: so many bytes, zeroed by the kernel. No other process and no GPU has been given them yet, and this is the only
        // reference to them.
        let all = unsafe { std::slice::from_raw_parts_mut(made.mapping.start().as_ptr(), bytes) };
        let parts = all.par_chunks_mut(part_bytes.max(1)).enumerate();
        parts.try_for_each(|(at, part)| write(at * part_bytes.max(1), part))?;
        Ok(made)
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
        let span = unsafe { lay_over(gpu, self.mapping.start(), self.mapping.bytes(), self.mapping.clone()) }?;
        let mut spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        spans.retain(|known| known.strong_count() > 0);
        spans.push(Arc::downgrade(span.allocation()));
        Ok(span)
    }

    /// The CPU may touch the memory only when no queued work of this process's GPUs does.
    fn wait_until_unused(&self) -> Result<()> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let live: Vec<Arc<Allocation>> = spans.iter().filter_map(Weak::upgrade).collect();
        drop(spans);
        Ok(live.iter().try_for_each(|span| span.wait_until_unused())?)
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.bytes()
    }

    /// Copies in, from `at` on. Waits for queued GPU work of this process first; ordering against other processes is theirs to
    /// arrange.
    pub fn write(&mut self, at: usize, from: &[u8]) -> Result<()> {
        self.check(at, from.len())?;
        self.wait_until_unused()?;
        // SAFETY: inside the mapping, by the check; no reference to shared memory exists anywhere, and nobody else in this process
        // reads or writes it through this value.
        unsafe {
            self.mapping.start().add(at).copy_from_nonoverlapping(std::ptr::NonNull::from(from).cast(), from.len())
        };
        Ok(())
    }

    /// Copies out, from `at` on. Waits as [`write`](Self::write) does.
    pub fn read(&self, at: usize, to: &mut [u8]) -> Result<()> {
        self.check(at, to.len())?;
        self.wait_until_unused()?;
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
        Ok(Self { file, mapping, spans: Mutex::default() })
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
        let mut made = SharedHost::create(10_000).unwrap();
        made.write(9_990, b"headwater!").unwrap();
        made.send(&ours).unwrap();
        let mut got = SharedHost::receive(&theirs).unwrap();
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
    fn parts_are_filled_before_anybody_has_them() {
        let write = |at: usize, part: &mut [u8]| {
            part.fill(u8::try_from(at / 100).unwrap());
            if at == 700 { Err(Error::Misfit { bytes: at, element_bytes: 1 }) } else { Ok(()) }
        };
        let made = SharedHost::filled(650, 100, write).unwrap();
        let mut all = [9; 650];
        made.read(0, &mut all).unwrap();
        assert!(all.chunks(100).zip(0..).all(|(part, at)| part.iter().all(|byte| *byte == at)));
        assert!(matches!(SharedHost::filled(750, 100, write), Err(Error::Misfit { bytes: 700, .. })));
        assert_eq!(SharedHost::filled(0, 0, write).unwrap().bytes(), 0);
    }

    #[test]
    fn more_than_there_is_is_an_error() {
        let asked = host_bytes_available() * 2 + (1 << 30);
        assert!(matches!(SharedHost::create(asked), Err(Error::Map { asked_bytes, .. }) if asked_bytes == asked));
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
