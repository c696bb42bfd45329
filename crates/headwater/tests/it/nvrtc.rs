//! Every kernel text through the real compiler, which needs no GPU.

use headwater::cuda::{Defines, Source};

use crate::child::in_child;

/// The defines a text is used with: names and values, one list a set.
type Sets = &'static [&'static [(&'static str, &'static str)]];

const GATHER: Sets = &[
    &[("ID", "u32"), ("ID_BYTES", "4"), ("UNIT", "u8"), ("UNIT_BYTES", "1"), ("LINE_UNITS", "128")],
    &[("ID", "i64"), ("ID_BYTES", "8"), ("UNIT", "u16"), ("UNIT_BYTES", "2"), ("LINE_UNITS", "64")],
    &[("ID", "u64"), ("ID_BYTES", "8"), ("UNIT", "u32"), ("UNIT_BYTES", "4"), ("LINE_UNITS", "32")],
    &LINES_4,
    &LINES_16,
    &LINES_BYTEWISE,
];
const LINES_4: [(&str, &str); 7] = [
    ("ID", "i32"),
    ("ID_BYTES", "4"),
    ("LANES", "8"),
    ("WORD_BYTES", "4"),
    ("DEPTH", "4"),
    ("BYTEWISE", "0"),
    ("PLACE_BYTES", "0"),
];
const LINES_16: [(&str, &str); 7] = [
    ("ID", "u64"),
    ("ID_BYTES", "8"),
    ("LANES", "32"),
    ("WORD_BYTES", "16"),
    ("DEPTH", "2"),
    ("BYTEWISE", "0"),
    ("PLACE_BYTES", "4"),
];
const LINES_BYTEWISE: [(&str, &str); 7] = [
    ("ID", "i64"),
    ("ID_BYTES", "8"),
    ("LANES", "16"),
    ("WORD_BYTES", "4"),
    ("DEPTH", "4"),
    ("BYTEWISE", "1"),
    ("PLACE_BYTES", "4"),
];
const ORDER: Sets = &[
    &[
        ("ID", "u32"),
        ("ID_BYTES", "4"),
        ("ROW", "u32"),
        ("ROW_BYTES", "4"),
        ("BUCKETS", "4096"),
        ("ITEMS", "16"),
        ("THREADS", "512"),
    ],
    &[
        ("ID", "i64"),
        ("ID_BYTES", "8"),
        ("ROW", "u64"),
        ("ROW_BYTES", "8"),
        ("BUCKETS", "4096"),
        ("ITEMS", "16"),
        ("THREADS", "512"),
    ],
];

fn sets(source: &Source) -> Sets {
    match source.name {
        "bandwidth.cu" => &[&[("VECTOR_BYTES", "16")]],
        "gather.cu" => GATHER,
        "order.cu" => ORDER,
        "steps.cu" => &[&[("STEP", "1")]],
        other => panic!("{other}: say here which defines it is used with"),
    }
}

#[test]
fn every_kernel_compiles() {
    let Ok(compiler) = std::env::var("HEADWATER_REAL_NVRTC") else {
        return eprintln!("HEADWATER_REAL_NVRTC names no compiler: skipped");
    };
    // The compiler is not built for the sanitizers' allocator.
    let environment = [("HEADWATER_LIBNVRTC", compiler.as_str()), ("LD_PRELOAD", "")];
    in_child("nvrtc::every_kernel_compiles", &environment, || {
        let ours: [&'static Source; 1] = [&crate::kernels::STEPS];
        let all = headwater::cuda::SOURCES.iter().chain(headwater::tensor::gather::SOURCES).copied().chain(ours);
        for source in all {
            for set in sets(source) {
                let defines = set.iter().fold(Defines::new(), |defines, (name, value)| defines.with(name, value));
                for arch in ["sm_80", "sm_90"] {
                    let image = source.compile(&defines, arch).unwrap_or_else(|why| panic!("{set:?}: {why}"));
                    assert_eq!(&image[1..4], b"ELF", "{}", source.name);
                }
            }
        }
    });
}
