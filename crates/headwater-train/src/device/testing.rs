//! What the tests of device parts share.

use bytemuck::Pod;
use headwater_cuda::{Allocation, Gpu, Span, Stream};

/// A stream of the first GPU, or a word that there is none.
pub fn stream() -> Option<Stream> {
    let stream = Gpu::open(0).and_then(|gpu| Stream::new(&gpu));
    stream.inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

/// These elements in device memory, in exactly as many bytes.
pub fn upload<T: Pod>(stream: &Stream, elements: &[T]) -> Span {
    let span = Span::whole(Allocation::on_stream(stream, size_of_val(elements)).unwrap());
    stream.upload(bytemuck::cast_slice(elements), &span).unwrap();
    span
}

/// The first elements of a span.
pub fn download<T: Pod>(stream: &Stream, span: &Span, count: usize) -> Vec<T> {
    let mut found = vec![T::zeroed(); count];
    let own = span.part(0, count * size_of::<T>()).unwrap();
    stream.download(&own, bytemuck::cast_slice_mut(&mut found)).unwrap();
    found
}

/// Floats between them. Neighbours are 1 apart, and so are the two zeros.
pub fn ulps(a: f32, b: f32) -> u64 {
    let place = |x: f32| {
        let size = i64::from(x.to_bits() & 0x7fff_ffff);
        if x.is_sign_negative() { -size } else { size }
    };
    if a == b || (a.is_nan() && b.is_nan()) { 0 } else { place(a).abs_diff(place(b)) }
}
