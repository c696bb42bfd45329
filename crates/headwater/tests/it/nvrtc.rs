//! Every kernel text through the real compiler, which needs no GPU.

use headwater::cuda::{Defines, Source};

use crate::child::in_child;

/// With every change one in this many builds is compiled, the first of every text among them; in `make soak` all of them are.
const EVERY: usize = 16;

/// Every text with every set of defines it is used with.
fn builds() -> Vec<(&'static Source, Defines)> {
    let bandwidth = headwater::cuda::SOURCES.iter().map(|source| (*source, Defines::new().with("VECTOR_BYTES", 16)));
    let mut all: Vec<(&'static Source, Defines)> = bandwidth.collect();
    all.push((&crate::kernels::STEPS, Defines::new().with("STEP", 1)));
    all.push((&crate::device_random::DRAWS, Defines::new()));
    all.extend(headwater::tensor::kernel_builds());
    all.extend(headwater::graph::kernel_builds());
    all.extend(headwater::feature::kernel_builds());
    all.extend(headwater::offload::kernel_builds());
    all.extend(headwater::compile::cuda::kernel_builds().unwrap());
    all.extend(headwater::train::device::kernel_builds());
    all
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
        let architectures = [format!("sm_{major}{minor}"), "sm_90".to_owned()];
        let every = if std::env::var_os("HEADWATER_SOAK").is_some() { 1 } else { EVERY };
        let mut texts = std::collections::HashSet::new();
        let mut chosen: Vec<_> = builds().into_iter().enumerate().collect();
        chosen.retain(|(at, (source, _))| texts.insert(source.name) || at % every == 0);
        let work: Vec<_> =
            chosen.iter().flat_map(|(_, build)| architectures.iter().map(move |arch| (build, arch))).collect();
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
