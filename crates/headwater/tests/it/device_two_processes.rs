//! Memory shared by two real processes, and what is left when one of them is killed.

use std::io::Read;
use std::time::Duration;

use headwater::cuda::{Allocation, Gpu, Span, Stream};
use headwater::memory::{Error, RegistryUse, SharedHost, receive_device, registry_use, send_device};

use crate::child::role;
use crate::emulator;
use crate::kernels::{add, gpu, words};
use crate::socket::{connect, hear, say, start};

const BYTES: usize = 100_000;

fn everything_is_released() {
    assert_eq!(registry_use(), RegistryUse { chunks: 0, bytes: 0 });
    assert_eq!(emulator::live(c"ipc_mappings").unwrap_or(0), 0);
    assert_eq!(emulator::live(c"registrations").unwrap_or(0), 0);
}

#[test]
fn host_memory_is_one_memory() {
    if role().is_some() {
        return host_peer();
    }
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut peer) = start("device_two_processes::host_memory_is_one_memory", folder.path());
    let shared = SharedHost::create(BYTES).unwrap();
    let (span, stream) = (shared.map_into(&gpu).unwrap(), Stream::new(&gpu).unwrap());
    stream.fill(&span, 0).unwrap();
    add(&stream, &span, 40).unwrap();
    stream.synchronize().unwrap();
    shared.send(&peer).unwrap();
    hear(&mut peer);
    // The child's kernel has changed it; both the CPU and the GPU see that here.
    let mut word = [0; 4];
    shared.read(BYTES - 4, &mut word).unwrap();
    assert_eq!(u32::from_le_bytes(word), 42);
    assert!(words(&stream, &span).iter().all(|word| *word == 42));
    say(&mut peer);
    assert!(child.0.wait().unwrap().success());
    drop((span, shared));
}

fn host_peer() {
    let mut peer = connect();
    let gpu = Gpu::open(0).unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let span = SharedHost::receive(&peer).unwrap().map_into(&gpu).unwrap();
    assert!(words(&stream, &span).iter().all(|word| *word == 40));
    add(&stream, &span, 2).unwrap();
    stream.synchronize().unwrap();
    say(&mut peer);
    hear(&mut peer);
    drop(span);
    everything_is_released();
}

#[test]
fn device_memory_is_one_memory() {
    if role().is_some() {
        return device_peer();
    }
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (mut child, mut peer) = start("device_two_processes::device_memory_is_one_memory", folder.path());
    let (memory, stream) = (Allocation::shareable(&gpu, BYTES).unwrap(), Stream::new(&gpu).unwrap());
    let span = Span::whole(memory.clone());
    stream.fill(&span, 0).unwrap();
    add(&stream, &span, 40).unwrap();
    stream.synchronize().unwrap();
    send_device(&peer, &memory).unwrap();
    hear(&mut peer);
    assert!(words(&stream, &span).iter().all(|word| *word == 42));
    say(&mut peer);
    assert!(child.0.wait().unwrap().success());
    // Stream-ordered memory has no handle, and saying so sends nothing.
    assert!(matches!(send_device(&peer, &Allocation::on_stream(&stream, 64).unwrap()), Err(Error::Cuda(_))));
}

fn device_peer() {
    let mut peer = connect();
    let gpu = Gpu::open(0).unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let span = receive_device(&peer, &gpu).unwrap();
    assert_eq!(span.bytes(), BYTES);
    assert!(words(&stream, &span).iter().all(|word| *word == 40));
    add(&stream, &span, 2).unwrap();
    stream.synchronize().unwrap();
    drop(span);
    everything_is_released();
    say(&mut peer);
    hear(&mut peer);
}

#[test]
fn a_killed_peer_is_an_error_and_leaves_memory_valid() {
    if role().is_some() {
        return sharing_until_killed();
    }
    let Some(gpu) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let test = "device_two_processes::a_killed_peer_is_an_error_and_leaves_memory_valid";
    let (mut child, mut peer) = start(test, folder.path());
    let stream = Stream::new(&gpu).unwrap();
    let ours = SharedHost::create(BYTES).unwrap();
    ours.send(&peer).unwrap();
    let theirs = SharedHost::receive(&peer).unwrap();
    let spans = [ours.map_into(&gpu).unwrap(), theirs.map_into(&gpu).unwrap()];
    hear(&mut peer);
    child.0.kill().unwrap();
    child.0.wait().unwrap();
    // The end of the peer is the end of its socket: an error at once, not after the timeout.
    peer.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let why = SharedHost::receive(&peer).unwrap_err();
    assert!(matches!(&why, Error::Share { why, .. } if why.contains("closed the connection or died")), "{why}");
    assert!(matches!(ours.send(&peer), Err(Error::Share { .. })));
    for span in &spans {
        stream.fill(span, 0).unwrap();
        add(&stream, span, 7).unwrap();
        assert!(words(&stream, span).iter().all(|word| *word == 7));
    }
    drop((spans, ours, theirs));
    // In one process with other tests, theirs would be counted too.
    if std::env::var_os("NEXTEST").is_some() {
        everything_is_released();
    }
}

fn sharing_until_killed() {
    let mut peer = connect();
    let gpu = Gpu::open(0).unwrap();
    let stream = Stream::new(&gpu).unwrap();
    let theirs = SharedHost::receive(&peer).unwrap().map_into(&gpu).unwrap();
    let ours = SharedHost::create(BYTES).unwrap();
    let span = ours.map_into(&gpu).unwrap();
    ours.send(&peer).unwrap();
    stream.copy(&span, &theirs).unwrap();
    stream.synchronize().unwrap();
    say(&mut peer);
    // Killed while it waits here; a parent that ends first wakes it.
    let _ = peer.read(&mut [0]);
}
