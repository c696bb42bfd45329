//! Every kernel text through the real compiler, which needs no GPU.

use headwater::cuda::{Defines, Source};

use crate::child::in_child;

/// One in this many builds is compiled for the older architecture too; every text is among them.
const OLDER_EVERY: usize = 8;

/// Every text with every set of defines it is used with.
fn builds() -> Vec<(&'static Source, Defines)> {
    let bandwidth = headwater::cuda::SOURCES.iter().map(|source| (*source, Defines::new().with("VECTOR_BYTES", 16)));
    let mut all: Vec<(&'static Source, Defines)> = bandwidth.collect();
    all.push((&crate::kernels::STEPS, Defines::new().with("STEP", 1)));
    all.push((&crate::device_random::DRAWS, Defines::new()));
    all.extend(headwater::tensor::kernel_builds());
    all.extend(headwater::graph::kernel_builds());
    all.extend(headwater::feature::kernel_builds());
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
        let all = builds();
        let (major, minor) = headwater::compile::cuda::LEAST_CAPABILITY;
        let oldest = format!("sm_{major}{minor}");
        let mut last = "";
        let compile = |(source, defines): &(&'static Source, Defines), arch: &str| {
            let image = source.compile(defines, arch).unwrap_or_else(|why| panic!("{defines:?}: {why}"));
            assert_eq!(&image[1..4], b"ELF", "{}", source.name);
        };
        for (at, build) in all.iter().enumerate() {
            if at % OLDER_EVERY == 0 || build.0.name != last {
                compile(build, &oldest);
            }
            last = build.0.name;
        }
        let next = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while let Some(build) = all.get(next.fetch_add(1, std::sync::atomic::Ordering::Relaxed)) {
                        compile(build, "sm_90");
                    }
                });
            }
        });
    });
}
