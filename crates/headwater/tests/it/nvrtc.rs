//! Every kernel text through the real compiler, which needs no GPU.

use headwater::cuda::{Defines, Source};

use crate::child::in_child;

/// With every change one in this many builds is compiled, the first of every text among them; in `make soak` all of them are.
const EVERY: usize = 16;

/// Every text with every set of defines it is used with, those of layers behind all others.
fn builds() -> (Vec<(&'static Source, Defines)>, usize) {
    let bandwidth = headwater::cuda::SOURCES.iter().map(|source| (*source, Defines::new().with("VECTOR_BYTES", 16)));
    let mut all: Vec<(&'static Source, Defines)> = bandwidth.collect();
    all.push((&crate::kernels::STEPS, Defines::new().with("STEP", 1)));
    all.push((&crate::device_random::DRAWS, Defines::new()));
    all.extend(headwater::tensor::kernel_builds());
    all.extend(headwater::graph::kernel_builds());
    all.extend(headwater::feature::kernel_builds());
    all.extend(headwater::offload::kernel_builds());
    all.extend(headwater::compile::cuda::kernel_builds());
    all.extend(headwater::train::device::kernel_builds());
    let others = all.len();
    all.extend(headwater::compile::cuda::layer_builds().unwrap());
    (all, others)
}

#[test]
fn every_kernel_compiles() {
    let Ok(compiler) = std::env::var("HEADWATER_REAL_NVRTC") else {
        return eprintln!("HEADWATER_REAL_NVRTC names no compiler: skipped");
    };
    // The compiler is not built for the sanitizers' allocator.
    let environment = [("HEADWATER_LIBNVRTC", compiler.as_str()), ("LD_PRELOAD", "")];
    in_child("nvrtc::every_kernel_compiles", &environment, || {
        let (major, minor) = headwater::compile::cuda::LEAST_CAPABILITY;
        let architectures = [format!("sm_{major}{minor}"), "sm_90a".to_owned()];
        let is_soak = std::env::var_os("HEADWATER_SOAK").is_some();
        let every = if is_soak { 1 } else { EVERY };
        let mut texts = std::collections::HashSet::new();
        let (builds, others) = builds();
        let mut chosen: Vec<_> = builds.into_iter().enumerate().collect();
        chosen.retain(|(at, (source, _))| texts.insert((source.name, source.text)) || at % every == 0);
        // Texts of layers are made of the same templates: each is compiled for one of the architectures. Forward and backward programs
        // follow each other, so these are taken in an order in which both directions have both.
        let (mut work, mut turn) = (Vec::new(), [0, 1, 1, 0].iter().cycle());
        for (at, build) in &chosen {
            if is_soak || *at < others {
                work.extend(architectures.iter().map(|arch| (build, arch)));
            } else {
                work.extend(turn.next().map(|number| (build, &architectures[*number])));
            }
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
                scope.spawn(|| {
                    while let Some(((source, defines), arch)) =
                        work.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed))
                    {
                        let image = source.compile(defines, arch).unwrap_or_else(|why| panic!("{defines:?}: {why}"));
                        assert_eq!(&image[1..4], b"ELF", "{}", source.name);
                    }
                });
            }
        });
        eprintln!("{} builds", work.len());
    });
}
