//! Messages between two processes on one socket: a length and JSON, a message of some 100 bytes a batch. No wait is without an
//! end, and the end of the other process is the end of the socket.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// How often somebody who waits looks up.
const LOOK: Duration = Duration::from_millis(200);
/// Whoever began a message ends it in this time.
const REST: Duration = Duration::from_secs(10);
/// No message is as long.
const MOST_BYTES: usize = 1 << 20;

/// One end.
#[derive(Debug)]
pub(crate) struct Link {
    socket: UnixStream,
}

/// Why there is no message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// The other process ended.
    Gone,
    /// It said nothing for so long.
    Silent(Duration),
    /// It said something that is no message, or the system failed.
    Broken(String),
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("it ended without a word"),
            Self::Silent(waited) => write!(f, "nothing was heard of it for {} s", waited.as_secs_f64()),
            Self::Broken(why) => f.write_str(why),
        }
    }
}

impl Link {
    pub fn new(socket: UnixStream) -> Result<Self, Lost> {
        socket.set_write_timeout(Some(REST)).map_err(|why| lost(&why))?;
        Ok(Self { socket })
    }

    /// The socket, over which memory is sent between messages.
    pub fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// Ends the talk. The other end hears it at once.
    pub fn close(&self) {
        // It may be closed already.
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }

    /// By way of a [`Value`], as which settings are read and written elsewhere: their code is there already.
    pub fn send<T: Serialize>(&self, message: &T) -> Result<(), Lost> {
        let message = serde_json::to_value(message).map_err(|why| Lost::Broken(why.to_string()))?;
        let text = message.to_string().into_bytes();
        let length = u32::try_from(text.len()).map_err(|why| Lost::Broken(why.to_string()))?;
        let whole = [&length.to_le_bytes()[..], &text].concat();
        (&self.socket).write_all(&whole).map_err(|why| lost(&why))
    }

    /// The next message, waited for so long, and no longer than `goes_on` says that it makes sense.
    pub fn receive<T: DeserializeOwned>(&self, most: Duration, goes_on: &mut dyn FnMut() -> bool) -> Result<T, Lost> {
        let mut length = [0; 4];
        self.first(&mut length, most, goes_on)?;
        self.patience(REST)?;
        (&self.socket).read_exact(&mut length[1..]).map_err(|why| lost(&why))?;
        let length = usize::try_from(u32::from_le_bytes(length)).unwrap_or(usize::MAX);
        if length > MOST_BYTES {
            return Err(Lost::Broken(format!("it announced a message of {length} bytes")));
        }
        let mut text = vec![0; length];
        (&self.socket).read_exact(&mut text).map_err(|why| lost(&why))?;
        let message = serde_json::from_slice::<Value>(&text).and_then(serde_json::from_value);
        message.map_err(|why| Lost::Broken(format!("it sent no message: {why}")))
    }

    /// Waits for the first byte of a message.
    fn first(&self, to: &mut [u8; 4], most: Duration, goes_on: &mut dyn FnMut() -> bool) -> Result<(), Lost> {
        let begun = Instant::now();
        self.patience(LOOK.min(most).max(Duration::from_millis(1)))?;
        loop {
            match (&self.socket).read(&mut to[..1]) {
                Ok(0) => return Err(Lost::Gone),
                Ok(_) => return Ok(()),
                Err(why) if is_early(&why) && !goes_on() => return Err(Lost::Gone),
                Err(why) if is_early(&why) && begun.elapsed() >= most => return Err(Lost::Silent(most)),
                Err(why) if is_early(&why) => {}
                Err(why) => return Err(lost(&why)),
            }
        }
    }

    fn patience(&self, most: Duration) -> Result<(), Lost> {
        self.socket.set_read_timeout(Some(most)).map_err(|why| lost(&why))
    }
}

fn is_early(why: &std::io::Error) -> bool {
    matches!(why.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

fn lost(why: &std::io::Error) -> Lost {
    match why.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof | ErrorKind::NotConnected => {
            Lost::Gone
        }
        _ if is_early(why) => Lost::Silent(REST),
        _ => Lost::Broken(why.to_string()),
    }
}
