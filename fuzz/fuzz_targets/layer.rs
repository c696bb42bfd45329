//! Any text is a layer or an error, and one that is accepted becomes kernels in both directions, as text for a GPU too.

#![no_main]

use headwater_compile::adjacency::{Adjacency, RelationEdges};
use headwater_compile::cuda::{Precision, emit};
use headwater_compile::front::{Arguments, read};
use headwater_compile::pass::{Optimisations, Statistics, compile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let sizes = [("d_in", 6), ("d_out", 4), ("heads", 2), ("d_hidden", 3)].map(|(name, size)| (name.to_owned(), size));
    let arguments = Arguments { sizes: sizes.into(), ..Arguments::default() };
    let Ok(layer) = read("layer", text, &arguments) else { return };
    let lists = |dst| RelationEdges { src_type: 1 - dst, dst_type: dst, offsets: &[0, 1, 2], sources: &[0, 1] };
    let graph = Adjacency::new(&[2, 2], &[2, 2], &[lists(0), lists(1)]).expect("a small graph");
    let Ok(compiled) = compile(&layer.program, &Statistics::of(&graph), Optimisations::ALL) else { return };
    for program in [&compiled.forward, &compiled.backward, &compiled.inference] {
        assert!(!emit(program, Precision::default()).name.is_empty());
    }
});
