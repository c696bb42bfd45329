//! On a GPU, or on the emulator.

use headwater_cuda::{Allocation, Gpu, Span};

use super::cuda::MOST_WORDS;
use super::{cpu, tell};

#[test]
fn device_memory_has_the_words_and_no_more() {
    let Ok(gpu) = Gpu::open(0) else { return };
    let stream = gpu.stream().unwrap();
    for count in [0, 1, MOST_WORDS, 2 * MOST_WORDS + 3] {
        let words: Vec<u64> = (0..count as u64).map(|at| at.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect();
        let to = Span::whole(Allocation::on_stream(stream, 8 * (count + 1)).unwrap());
        stream.fill(&to, 0xAB).unwrap();
        tell(stream, &words, &to).unwrap();
        let (mut found, mut wanted) = (vec![0u64; count + 1], vec![0xABAB_ABAB_ABAB_ABAB; count + 1]);
        stream.download(&to, bytemuck::cast_slice_mut(&mut found)).unwrap();
        cpu::tell(&words, &mut wanted);
        assert_eq!(found, wanted);
        assert!(count == 0 || tell(stream, &words, &to.part(0, 8 * (count - 1)).unwrap()).is_err());
    }
}
