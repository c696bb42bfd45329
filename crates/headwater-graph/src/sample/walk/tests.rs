//! The same walks through both.

/// What runs on a GPU, real or emulated.
mod device {
    use crate::random::{Key, mix};
    use crate::sample::tests::{damaged, on_gpu, shapes, tangled};
    use crate::sample::{WalkOptions, random_walks};
    use crate::testing::stream;
    use crate::{Error, Storage};

    const PLAIN: WalkOptions = WalkOptions { length: 9, p: 1.0, q: 1.0 };

    #[test]
    fn walks_agree_with_the_cpu() {
        let Some(stream) = stream() else { return };
        let node2vec = WalkOptions { p: 0.25, q: 3.0, ..PLAIN };
        let far = WalkOptions { p: 4.0, q: 0.5, length: 1 };
        let options = [PLAIN, node2vec, far, WalkOptions { length: 0, ..PLAIN }];
        for (at, topology) in shapes(80).into_iter().chain(damaged()).enumerate() {
            let nodes = topology.rows();
            let starts: Vec<u64> = (0..300.min(nodes * 300)).map(|walk| mix(walk) % nodes).collect();
            for storage in [Storage::Cuda, Storage::ZeroCopy] {
                let relation = on_gpu(&stream, &topology, storage);
                for (options, starts) in
                    options.iter().zip([&starts[..], &starts, &starts, &starts[..starts.len() / 9]])
                {
                    let walks = relation.random_walks(&stream, starts, options, Key::new(5)).unwrap();
                    let cpu = random_walks(&topology, starts, options, Key::new(5)).unwrap();
                    assert!(walks.to_vec(&stream).unwrap() == cpu, "graph {at} in {storage}, {options:?}");
                }
            }
        }
    }

    #[test]
    fn bad_walks_are_the_same_errors() {
        let Some(stream) = stream() else { return };
        let relation = on_gpu(&stream, &tangled(10, 10, 1), Storage::Cuda);
        let run = |starts: &[u64], options| relation.random_walks(&stream, starts, &options, Key::new(1)).unwrap_err();
        let bad = run(&[3, 10], PLAIN);
        assert!(matches!(bad, Error::IdOutOfRange { name: "starts", position: 1, id: 10, limit: 10 }), "{bad}");
        assert!(matches!(run(&[3], WalkOptions { p: 0.0, ..PLAIN }), Error::Parameter { name: "p", .. }));
        let endless = run(&vec![3; 1 << 20], WalkOptions { length: u32::MAX, ..PLAIN });
        assert!(matches!(endless, Error::Cuda(_) | Error::Memory(_)), "{endless}");
    }
}
