//! On a GPU, or on the emulator.

use headwater_compile::adjacency::{Adjacency, RelationEdges};
use headwater_compile::cuda::block::{DeviceBlock, Lists, Room, Wants};
use headwater_cuda::{Error as CudaError, FAULT_ID_OUT_OF_RANGE};

use super::super::DeviceScales;
use crate::blocks::scales;
use crate::device::testing::{download, stream, upload};

const ROOM: Room = Room { src: 700, dst: 400, edges: 3000 };

/// Blocks of a graph whose node `i` has degree `1 + i % 13`. Every fourth target has no edges.
#[test]
fn they_are_the_hosts() {
    let Some(stream) = stream() else { return };
    let degrees: Vec<f32> = (0..1000).map(|node| 1.0 + (node % 13) as f32).collect();
    let degrees_there = upload(&stream, &degrees);
    let (block, found) =
        (DeviceBlock::new(&stream, ROOM, Wants::default()).unwrap(), DeviceScales::new(&stream, ROOM).unwrap());
    for (src, dst) in [(700u32, 400u32), (1, 1), (0, 0), (300, 3)] {
        let targets: Vec<u32> =
            (0..dst).filter(|target| target % 4 != 1).flat_map(|target| vec![target; target as usize % 6]).collect();
        let sources: Vec<u32> = (0u32..).zip(&targets).map(|(edge, _)| edge * 7 % src).collect();
        let offsets: Vec<usize> = (0..=dst).map(|target| targets.iter().filter(|own| **own < target).count()).collect();
        let relation = RelationEdges { src_type: 0, dst_type: 0, offsets: &offsets, sources: &sources };
        let graph = Adjacency::new(&[src as usize], &[dst as usize], &[relation]).unwrap();
        let ids: Vec<u64> = (0..u64::from(src)).map(|at| at * 37 % 1000).collect();
        let (sources, targets) = (upload(&stream, &sources), upload(&stream, &targets));
        let edges = u32::try_from(targets.bytes() / 4).unwrap();
        block.fill(&stream, &Lists { sources: &sources, targets: &targets, edges, src, dst }).unwrap();
        found.fill(&stream, &degrees_there, &upload(&stream, &ids), &block).unwrap();
        let of: Vec<f32> = ids.iter().map(|id| degrees[usize::try_from(*id).unwrap()]).collect();
        let wanted = scales(&of, &of[..dst as usize], &graph);
        for (name, span) in found.named() {
            assert_eq!(download::<f32>(&stream, span, wanted[name].len()), wanted[name], "{name} of {src} and {dst}");
        }
    }
}

#[test]
fn nodes_that_are_not_there_are_reported() {
    let Some(stream) = stream() else { return };
    let (block, found) =
        (DeviceBlock::new(&stream, ROOM, Wants::default()).unwrap(), DeviceScales::new(&stream, ROOM).unwrap());
    let none = upload::<u32>(&stream, &[]);
    block.fill(&stream, &Lists { sources: &none, targets: &none, edges: 0, src: 3, dst: 2 }).unwrap();
    let degrees = upload(&stream, &[1.0f32, 4.0]);
    found.fill(&stream, &degrees, &upload(&stream, &[1u64, 0, 2]), &block).unwrap();
    let fault = stream.synchronize().unwrap_err();
    assert!(
        matches!(fault, CudaError::Fault { code: FAULT_ID_OUT_OF_RANGE, position: 2, value: 2, limit: 2 }),
        "{fault}"
    );
    // Fewer ids than the block has nodes: those that are there count.
    found.fill(&stream, &degrees, &upload(&stream, &[1u64]), &block).unwrap();
    stream.synchronize().unwrap();
    assert_eq!(download::<f32>(&stream, found.named()[0].1, 1), [0.5]);
}
