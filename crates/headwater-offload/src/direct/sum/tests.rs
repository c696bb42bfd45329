//! The kernel against its twin, and what a sum tells apart.

use headwater_cuda::{Gpu, Stream};
use headwater_memory::{Buffer, Device};

use super::cpu::sum_of;
use super::cuda::DeviceSum;
use crate::tests::content;

mod device {
    use super::*;

    #[test]
    fn sums_on_the_device_are_those_of_the_host() {
        let Ok(gpu) = Gpu::open(0) else { return eprintln!("no GPU: skipped") };
        let stream = Stream::new(&gpu).unwrap();
        let sum = DeviceSum::new(&gpu).unwrap();
        let on_device = |bytes: &[u8]| {
            let memory = Buffer::<u8, Device>::from_slice(&stream, bytes).unwrap();
            stream.synchronize().unwrap();
            sum.of(memory.whole()).unwrap()
        };
        for length in (0..70).chain([4095, 4096, 65536 + 13, 1 << 20]) {
            let bytes = content(length, length);
            assert_eq!(on_device(&bytes), sum_of(&bytes), "{length} bytes");
        }
        let bytes = content(3, 999);
        let known = sum_of(&bytes);
        for bit in 0..8 * bytes.len() {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(sum_of(&other), known, "bit {bit}");
        }
        let mut swapped = bytes.clone();
        swapped.swap(4, 8);
        assert!(swapped != bytes && sum_of(&swapped) != known);
    }
}
