//! The same negatives through both.

/// What runs on a GPU, real or emulated.
mod device {
    use crate::random::Key;
    use crate::sample::negative::{Pairs, Sources};
    use crate::sample::tests::{damaged, lists, on_gpu, shapes, tangled};
    use crate::sample::{Negatives, Strictness, negative_edges};
    use crate::testing::stream;
    use crate::{Layout, Storage, Topology};

    const KINDS: [Strictness; 3] =
        [Strictness::Loose, Strictness::Strict { trials: 1 }, Strictness::Strict { trials: 7 }];

    /// Graphs of every shape, of two types, without gaps, and without pairs.
    fn graphs() -> Vec<Topology> {
        let full = lists(3, &vec![vec![0, 1, 2]; 3]);
        let dense = lists(4, &vec![vec![0, 2, 3]; 90]);
        let [without_rows, without_columns] = [tangled(0, 5, 1), tangled(5, 0, 1)];
        let wide = tangled(40, 7, 2);
        let by_source = Topology::new(Layout::Csr, 7, wide.offsets().clone(), wide.neighbours().clone()).unwrap();
        let some = [full, dense, without_rows, without_columns, wide, by_source];
        some.into_iter().chain(shapes(60)).chain(damaged()).collect()
    }

    #[test]
    fn negatives_agree_with_the_cpu() {
        let Some(stream) = stream() else { return };
        let mut unresolved = 0;
        for (at, topology) in graphs().into_iter().enumerate() {
            for storage in [Storage::Cuda, Storage::ZeroCopy] {
                let relation = on_gpu(&stream, &topology, storage);
                for (strictness, count) in KINDS.into_iter().flat_map(|kind| [0, 1, 2100].map(|count| (kind, count))) {
                    let cpu = negative_edges(&topology, count, strictness, Key::new(3)).unwrap();
                    let gpu = relation.negative_edges(&stream, count, strictness, Key::new(3)).unwrap();
                    let gpu = gpu.to_host(&stream).unwrap();
                    assert!(gpu == cpu, "graph {at} in {storage}, {count} {strictness:?}");
                    unresolved += u64::from(cpu.unresolved > 0 && cpu.unresolved < count);
                }
            }
        }
        assert!(unresolved > 0, "no case had gaps to close");
    }

    #[test]
    fn given_sources_keep_their_pairs() {
        let Some(stream) = stream() else { return };
        for topology in [lists(4, &vec![vec![0, 2, 3]; 90]), tangled(60, 60, 4)] {
            let relation = on_gpu(&stream, &topology, Storage::Cuda);
            // The last is no node, and no edge begins there.
            let of: Vec<u64> = (0..topology.columns()).chain([topology.columns()]).collect();
            for (strictness, pairs) in KINDS.into_iter().zip([2, 1, 5]) {
                let sources = Sources::Each { of: &of, pairs };
                let pairs = Pairs { topology: &topology, strictness, key: Key::new(6), sources };
                let count = of.len() as u64 * 5;
                let gpu: Negatives = relation.draw(&stream, &pairs, count).unwrap().0.to_host(&stream).unwrap();
                assert_eq!(gpu, pairs.draw(count).unwrap(), "{strictness:?}");
                assert_eq!(gpu.sources.len() as u64, count);
            }
        }
    }
}
