//! The same keys through the loop and through the GPU.

use super::Unique;

#[test]
fn the_loop_counts_first_occurrences() {
    let mut unique = Unique::default();
    assert_eq!(unique.append(&[7u64, 3, 7]), [0, 1, 0]);
    assert_eq!(unique.append(&[5, 3, 5]), [2, 1, 2]);
    assert_eq!((unique.append(&[]), unique.nodes()), (vec![], &[7, 3, 5][..]));
}

/// What runs on a GPU, real or emulated.
mod device {
    use headwater_cuda::{Error as CudaError, FAULT_ID_OUT_OF_RANGE, FAULT_TOO_MANY, Stream};
    use headwater_memory::{Buffer, Device};
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::super::{GpuUnique, Hop};
    use super::*;
    use crate::column::Id;
    use crate::error::{Error, Result};
    use crate::testing::stream;
    use crate::width::IdWidth;

    /// A hop's keys, and how many places more there are than keys.
    type Keys<K> = (Vec<K>, usize);

    /// Local ids of each hop, and all nodes.
    fn run<K: Id>(stream: &Stream, width: IdWidth, hops: &[Keys<K>], room: usize) -> Result<(Vec<Vec<u32>>, Vec<K>)> {
        let unique = GpuUnique::new(stream, width, room as u64)?;
        let nodes = Buffer::<K, Device>::from_slice(stream, &vec![K::narrow(0x77); room])?;
        let counts = Buffer::<u64, Device>::from_slice(stream, &vec![0; hops.len() + 1])?;
        let mut numbers = Vec::new();
        for (at, (keys, spare)) in hops.iter().enumerate() {
            let mut padded = keys.clone();
            padded.resize(keys.len() + spare, K::narrow(3));
            let count = Buffer::<u64, Device>::from_slice(stream, &[keys.len() as u64])?;
            let local = Buffer::<u32, Device>::from_slice(stream, &vec![0x77; padded.len()])?;
            let padded = Buffer::<K, Device>::from_slice(stream, &padded)?;
            let [before, after] = [at, at + 1].map(|at| counts.part(at..at + 1).unwrap());
            let (keys, count, nodes) = (padded.whole(), count.whole(), nodes.whole());
            unique.append(&Hop { keys, count, nodes, before: &before, after: &after, local: local.whole() })?;
            numbers.push(local);
        }
        stream.synchronize()?;
        let of = |(local, (keys, _)): (&Buffer<u32, Device>, &Keys<K>)| {
            let all = local.to_vec(stream).unwrap();
            assert!(all[keys.len()..].iter().all(|id| *id == 0x77));
            all[..keys.len()].to_vec()
        };
        let numbers = numbers.iter().zip(hops).map(of).collect();
        let count = usize::try_from(*counts.to_vec(stream)?.last().unwrap()).unwrap();
        Ok((numbers, nodes.to_vec(stream)?[..count].to_vec()))
    }

    fn agrees<K: Id>(stream: &Stream, width: IdWidth, hops: &[Keys<K>]) {
        let mut twin = Unique::default();
        let want: Vec<Vec<u32>> = hops.iter().map(|(keys, _)| twin.append(keys)).collect();
        // Room for exactly the nodes there are.
        let (numbers, nodes) = run(stream, width, hops, twin.nodes().len()).unwrap();
        assert_eq!(nodes, twin.nodes());
        assert_eq!(numbers, want);
    }

    #[test]
    fn keys_of_any_kind_agree_with_the_loop() {
        let Some(stream) = stream() else { return };
        let different = |from: u64, count: u64| (from..from + count).map(|i| i * 0x1_0000_0001).collect::<Vec<u64>>();
        let mixed = |count: u64, limit: u64| (0..count).map(|i| crate::random::mix(i) % limit).collect::<Vec<u64>>();
        let cases: [Vec<Keys<u64>>; 7] = [
            vec![],
            vec![(vec![], 0), (vec![], 5)],
            vec![(vec![4; 5000], 0), (vec![4; 10], 3)],
            vec![(different(0, 5000), 0), (different(2000, 5000), 100)],
            vec![(mixed(9000, 700), 1), (mixed(100, 50), 0), (mixed(4097, 1 << 40), 2)],
            vec![(vec![u64::MAX - 1, 0, 1 << 63, 0], 0)],
            vec![(different(0, 64), 0), (different(0, 64).into_iter().rev().collect(), 0)],
        ];
        for case in cases {
            agrees(&stream, IdWidth::U64, &case);
        }
        agrees(&stream, IdWidth::U32, &[(vec![u32::MAX - 1, 0, 1 << 31, 0], 1), (vec![9; 4000], 0)]);
    }

    #[test]
    fn random_hops_agree_with_the_loop() {
        let Some(stream) = stream() else { return };
        let keys = (0u32..60, 1u32..5000)
            .prop_flat_map(|(count, limit)| (prop::collection::vec(0..limit, count as usize * 40), 0usize..50));
        let mut runner = TestRunner::new(Config { cases: 24, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&prop::collection::vec(keys, 1..4), |hops| {
            agrees(&stream, IdWidth::U32, &hops);
            Ok(())
        });
        outcome.unwrap();
    }

    #[test]
    fn what_does_not_fit_is_reported() {
        let Some(stream) = stream() else { return };
        let fault = |keys: Vec<u32>, room| match run(&stream, IdWidth::U32, &[(keys, 0)], room) {
            Err(Error::Cuda(CudaError::Fault { code, value, limit, .. })) => (code, value, limit),
            other => panic!("{other:?}"),
        };
        let bad = i64::from(u32::MAX);
        assert_eq!(fault(vec![1, u32::MAX], 2), (FAULT_ID_OUT_OF_RANGE, bad, u64::from(u32::MAX)));
        assert_eq!(fault(vec![1, 2, 3], 2), (FAULT_TOO_MANY, 3, 2));
        assert_eq!(fault((0..100).collect(), 2).0, FAULT_TOO_MANY);
        assert!(matches!(GpuUnique::new(&stream, IdWidth::U32, 1 << 40), Err(Error::Length { .. })));
    }
}
