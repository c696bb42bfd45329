//! What the device tests of this crate share.

use headwater_cuda::{Gpu, Stream};

/// A stream of the first GPU, or a word that there is none.
pub(crate) fn stream() -> Option<Stream> {
    let stream = Gpu::open(0).and_then(|gpu| Stream::new(&gpu));
    if let Err(why) = &stream {
        eprintln!("no GPU: skipped ({})", why.to_string().lines().next().unwrap_or_default());
    }
    stream.ok()
}
