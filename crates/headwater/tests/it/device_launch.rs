//! Launches: what fits the declaration runs, what does not is refused before anything runs.

use headwater::cuda::{Allocation, Defines, Element, Error, Grid, Launch, LaunchProblem, Span, Stream};

use crate::kernels::{ADD_STEP, BREAKS, Pair, SCALE, STORE_PAIR, UNKNOWN_TERM, add, gpu, grid, step, words};

fn floats(stream: &Stream, span: &Span) -> Vec<f32> {
    words(stream, span).into_iter().map(f32::from_bits).collect()
}

#[test]
fn every_kind_of_argument_arrives() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let count = 1000;
    let bytes: Vec<u8> = (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let [from, to] = [(); 2].map(|()| Span::whole(Allocation::on_stream(&stream, bytes.len()).unwrap()));
    stream.upload(&bytes, &from).unwrap();
    SCALE
        .on(&stream, &step(0), grid(count))
        .buffer(&from, Element::F32)
        .buffer(&to, Element::F32)
        .u64(count as u64)
        .f32(0.5)
        .f64(3.0)
        .go()
        .unwrap();
    let expected: Vec<f32> = (0..count).map(|i| i as f32 * 0.5 + 3.0).collect();
    assert_eq!(floats(&stream, &to), expected);
    let pair = to.part(0, 8).unwrap();
    STORE_PAIR.on(&stream, &step(0), grid(1)).structure(&Pair(7, 9)).buffer(&pair, Element::U32).go().unwrap();
    assert_eq!(words(&stream, &pair), [7, 9]);
}

#[test]
fn defines_reach_the_text() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let data = Span::whole(Allocation::on_stream(&stream, 40).unwrap());
    stream.fill(&data, 0).unwrap();
    for by in [1, 20, 300] {
        add(&stream, &data, by).unwrap();
    }
    assert_eq!(words(&stream, &data), [321; 10]);
}

fn problem(launch: Launch<'_>) -> LaunchProblem {
    match launch.go().unwrap_err() {
        Error::Launch { problem, .. } => problem,
        other => panic!("{other}"),
    }
}

#[test]
fn every_wrong_launch_is_named_and_nothing_runs() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let data = Span::whole(Allocation::on_stream(&stream, 100).unwrap());
    stream.fill(&data, 0).unwrap();
    let defines = step(1);
    let start = || ADD_STEP.on(&stream, &defines, grid(25));
    assert_eq!(problem(start()), LaunchProblem::Count { declared: 2, given: 0 });
    assert_eq!(
        problem(start().buffer(&data, Element::U32).u64(25).u64(1)),
        LaunchProblem::Count { declared: 2, given: 3 }
    );
    for wrong in [
        start().u64(25).buffer(&data, Element::U32),
        start().buffer(&data, Element::F32).u64(25),
        start().buffer(&data, Element::U32).u32(25),
        start().bytes(&data).u64(25),
        start().structure(&Pair(1, 2)).u64(25),
    ] {
        assert!(matches!(problem(wrong), LaunchProblem::Type { .. }));
    }
    assert_eq!(
        problem(start().buffer(&data, Element::U32).u64(26)),
        LaunchProblem::Length { name: "data", have_bytes: 100, need_bytes: 104 }
    );
    assert!(matches!(problem(start().buffer(&data, Element::U32).u64(u64::MAX)), LaunchProblem::Length { .. }));
    let odd = data.part(2, 40).unwrap();
    assert_eq!(
        problem(start().buffer(&odd, Element::U32).u64(10)),
        LaunchProblem::Alignment { name: "data", element_bytes: 4, off_bytes: 2 }
    );
    for (blocks, threads) in [(0, 128), (1, 0), (1, 1025), (u32::MAX, 32)] {
        let launch = ADD_STEP.on(&stream, &defines, Grid { blocks, threads, shared_bytes: 0 });
        assert_eq!(problem(launch.buffer(&data, Element::U32).u64(25)), LaunchProblem::Grid { blocks, threads });
    }
    assert_eq!(
        problem(UNKNOWN_TERM.on(&stream, &defines, grid(1)).buffer(&data, Element::U32)),
        LaunchProblem::UnknownTerm { name: "data", term: "NOWHERE" }
    );
    assert_eq!(words(&stream, &data), [0; 25]);
    add(&stream, &data, 1).unwrap();
    assert_eq!(words(&stream, &data), [1; 25]);
}

#[test]
fn a_text_that_does_not_compile_shows_where() {
    let Some(gpu) = gpu() else { return };
    let stream = Stream::new(&gpu).unwrap();
    let out = Span::whole(Allocation::on_stream(&stream, 4).unwrap());
    let defines = Defines::new();
    for _ in 0..2 {
        let why = BREAKS.on(&stream, &defines, grid(1)).buffer(&out, Element::U32).go().unwrap_err();
        let Error::Compile { source_name, arch, log } = &why else { panic!("{why}") };
        assert_eq!((source_name.as_str(), arch), ("broken.cu", &gpu.arch()));
        assert!(log.contains("no_such_name"), "{log}");
        // NVRTC writes broken.cu(3), g++ broken.cu:3.
        assert!(log.contains("broken.cu(3)") || log.contains("broken.cu:3"), "{log}");
    }
    // The kernel with a missing define does not compile either, and another set of defines does.
    let why = ADD_STEP.on(&stream, &defines, grid(1)).buffer(&out, Element::U32).u64(1).go().unwrap_err();
    assert!(matches!(why, Error::Compile { .. }), "{why}");
    stream.fill(&out, 0).unwrap();
    add(&stream, &out, 4).unwrap();
    assert_eq!(words(&stream, &out), [4]);
}

#[test]
fn launches_from_many_threads() {
    let Some(gpu) = gpu() else { return };
    std::thread::scope(|scope| {
        for by in 0..8u32 {
            let gpu = &gpu;
            scope.spawn(move || {
                let stream = Stream::new(gpu).unwrap();
                let data = Span::whole(Allocation::on_stream(&stream, 4000).unwrap());
                stream.fill(&data, 0).unwrap();
                (0..10).for_each(|_| add(&stream, &data, by % 3).unwrap());
                assert_eq!(words(&stream, &data), [by % 3 * 10; 1000]);
            });
        }
    });
}
