//! The line between a test and the process it started.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use crate::child::{Killed, command};

const SOCKET: &str = "HEADWATER_TEST_SOCKET";
/// Nothing here takes long; the bound only keeps a broken test from hanging.
const PATIENCE: Duration = Duration::from_secs(60);

fn patient(stream: UnixStream) -> UnixStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Starts this program again as the peer of the test named `test`, and waits until it has connected.
pub fn start(test: &str, folder: &Path) -> (Killed, UnixStream) {
    let path = folder.join("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let child = Killed::start(command(test, "peer").env(SOCKET, &path));
    (child, patient(listener.accept().unwrap().0))
}

/// The peer's end.
pub fn connect() -> UnixStream {
    patient(UnixStream::connect(std::env::var_os(SOCKET).unwrap()).unwrap())
}

/// Tells the other end to go on.
pub fn say(peer: &mut UnixStream) {
    peer.write_all(b".").unwrap();
}

/// Waits until the other end says so.
pub fn hear(peer: &mut UnixStream) {
    peer.read_exact(&mut [0]).unwrap();
}
