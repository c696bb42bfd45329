//! Gather and scatter by row number, with tables, ids and sources in every mix of places.

use headwater_cuda::Gpu;

use super::super::places::*;
use crate::dtype::DType;
use crate::gather::{GatherError, GatherOptions, Variant};
use crate::layout::Slice;
use crate::placement::place;
use crate::{Device, Error, Tensor};

fn ids_of(list: &[i64], dtype: DType) -> Tensor {
    Tensor::from_slice(list, &[list.len()], Device::Cpu).unwrap().cast(dtype).unwrap()
}

/// Runs every mix of table and ids. A table in GPU memory also takes ids on the CPU, which the table of placements does not.
fn index_everywhere(table: &Tensor, ids: &Tensor, expected: &Tensor) {
    for at in PLACES {
        for ids_at in PLACES {
            let (table, ids) = (table.to(at).unwrap(), ids.to(ids_at).unwrap());
            let found = table.index(&ids);
            let output = match (at, ids_at) {
                (Device::Cuda(_), Device::Cpu) => Some(at),
                _ => place(&[table.operand(), ids.operand()]).ok().map(|placement| placement.output),
            };
            match (found, output) {
                (Ok(found), Some(output)) => {
                    assert_eq!(found.device(), output, "{at}[{ids_at}]");
                    assert_agree(&found, expected, Agree::Exactly, &format!("{at}[{ids_at}]"));
                }
                (Err(Error::Placement(_)), None) => {}
                (found, output) => panic!("{at}[{ids_at}]: {found:?}, {output:?}"),
            }
        }
    }
}

#[test]
fn rows_are_gathered_from_every_place() {
    let Some(_) = gpu() else { return };
    let list = [3i64, 0, 3, 10, 7, 1, 10];
    for (dtype, width) in [(DType::F32, 11), (DType::F16, 3), (DType::U8, 5), (DType::F64, 16)] {
        let table = numbers(1, &[11, width], dtype);
        let rows: Vec<Tensor> = list
            .iter()
            .map(|&id| usize::try_from(id).unwrap())
            .map(|start| table.slice(0, Slice { start, end: start + 1, step: 1 }).unwrap())
            .collect();
        let expected = Tensor::concat(&rows.iter().collect::<Vec<_>>(), 0).unwrap();
        for id_type in [DType::I32, DType::I64] {
            index_everywhere(&table, &ids_of(&list, id_type), &expected);
        }
    }
}

#[test]
fn shapes_of_tables_and_ids() {
    let Some(_) = gpu() else { return };
    let table = numbers(2, &[6, 2, 3], DType::F32);
    let ids = ids_of(&[5, 0, 1, 1], DType::I64).reshape(&[2, 2]).unwrap();
    let expected = table.index(&ids).unwrap();
    assert_eq!(expected.shape()[..], [2, 2, 2, 3]);
    index_everywhere(&table, &ids, &expected);
    let one = Tensor::from_slice(&[4i64], &[], Device::Cpu).unwrap();
    assert_eq!(table.to(UNIFIED_GPU).unwrap().index(&one.to(Device::Cuda(0)).unwrap()).unwrap().shape()[..], [2, 3]);
    index_everywhere(&table, &ids_of(&[], DType::I32), &Tensor::zeros(&[0, 2, 3], DType::F32, Device::Cpu).unwrap());
    for device in PLACES {
        // A view of rows is gathered in place, any other view is packed first.
        let placed = table.to(device).unwrap();
        let rows = placed.slice(0, Slice { start: 2, end: 6, step: 1 }).unwrap();
        let turned = placed.transpose(0, 2).unwrap();
        for (view, plain) in [
            (&rows, table.slice(0, Slice { start: 2, end: 6, step: 1 }).unwrap()),
            (&turned, table.transpose(0, 2).unwrap()),
        ] {
            let wanted = ids_of(&[2, 0, 2], DType::I32);
            let found = view.index(&wanted.to(device).unwrap()).unwrap();
            assert_agree(&found, &plain.index(&wanted).unwrap(), Agree::Exactly, "a view as table");
        }
    }
}

#[test]
fn every_way_to_gather() {
    let Some(_) = gpu() else { return };
    let (table, ids) = (numbers(3, &[50, 20], DType::F32), ids_of(&[49, 3, 3, 17, 0], DType::I64));
    let expected = table.index(&ids).unwrap();
    for variant in Variant::ALL {
        for device in [UNIFIED_GPU, UNIFIED_HOST, Device::Cuda(0)] {
            let options = GatherOptions { variant, cpu_threads: 2, ..GatherOptions::default() };
            let found = table.to(device).unwrap().index_with(&ids.to(Device::Cuda(0)).unwrap(), options);
            if device == Device::Cuda(0) && matches!(variant, Variant::Cpu | Variant::Hybrid) {
                assert!(matches!(found, Err(Error::Gather(GatherError::TableNotOnHost { .. }))));
            } else {
                assert_agree(&found.unwrap(), &expected, Agree::Exactly, variant.name());
            }
        }
    }
}

#[test]
fn a_bad_id_shows_when_the_result_is_read() {
    // In a process of its own: whoever next waits for the stream gets the fault, and other tests wait for it too.
    super::memory::in_child("a_bad_id_shows", "HEADWATER_TEST_ALONE", "1");
}

#[test]
fn child_a_bad_id_shows() {
    if !super::memory::is_child() {
        return;
    }
    let Some(gpu) = gpu() else { return };
    let table = numbers(4, &[9, 4], DType::F32);
    for bad in [9, -1, i64::MAX] {
        let ids = ids_of(&[0, bad], DType::I64);
        let text = |error: Error| {
            let text = error.to_string();
            assert!(text.contains(&bad.to_string()) && text.contains('9'), "{text}");
        };
        // On the CPU it shows at once.
        text(table.index(&ids).unwrap_err());
        text(table.to(UNIFIED_HOST).unwrap().index(&ids).unwrap_err());
        for (table_at, ids_at) in
            [(UNIFIED_GPU, Device::Cuda(0)), (Device::Cuda(0), Device::Cuda(0)), (UNIFIED_GPU, Device::Cpu)]
        {
            let rows = table.to(table_at).unwrap().index(&ids.to(ids_at).unwrap()).unwrap();
            text(rows.to_vec::<f32>().unwrap_err());
            // Reported once; the row it names is zero.
            assert_eq!(rows.to_vec::<f32>().unwrap()[4..], [0.0; 4]);
            table.to(table_at).unwrap().index(&ids.to(ids_at).unwrap()).unwrap();
            text(Error::from(gpu.stream().unwrap().synchronize().unwrap_err()));
        }
    }
}

#[test]
fn rows_are_added_in_every_place() {
    let Some(_) = gpu() else { return };
    for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bool) {
        let ids = ids_of(&[2, 0, 2, 2, 5, 0], if dtype == DType::F32 { DType::I32 } else { DType::I64 });
        let operands = [numbers(5, &[6, 3], dtype), ids, numbers(6, &[6, 3], dtype)];
        everywhere("scatter_add", &operands, Agree::Exactly, |t| t[0].scatter_add(&t[1], &t[2]));
    }
    // Sums in f32 whose value depends on the order, rows of several axes, and sources read through strides.
    let source: Vec<f32> = (0..64u16).map(|i| 1e7 / (0.3 + f32::from(i))).collect();
    let source = Tensor::from_slice(&source, &[2, 2, 16], Device::Cpu).unwrap().permute(&[2, 0, 1]).unwrap();
    let ids = ids_of(&[0, 1, 1, 0, 0, 0, 1, 0, 2, 0, 0, 0, 0, 1, 1, 0], DType::I64);
    let operands = [numbers(7, &[4, 2, 2], DType::F32), ids, source];
    everywhere("scatter_add of views", &operands, Agree::Exactly, |t| t[0].scatter_add(&t[1], &t[2]));
    let bad = operands[0].to(Device::Cuda(0)).unwrap();
    let ids = ids_of(&[4; 16], DType::I64).to(Device::Cuda(0)).unwrap();
    let source = operands[2].to(Device::Cuda(0)).unwrap();
    assert!(matches!(bad.scatter_add(&ids, &source), Err(Error::BadId { position: 0, id: 4, rows: 4 })));
}

/// Needs a process of its own: the emulator reads its limits when it is loaded.
#[test]
fn a_table_that_cannot_be_pinned_is_gathered_by_the_cpu() {
    let Some(_) = gpu() else { return };
    super::memory::in_child("a_table_that_cannot_be_pinned", "HWEMU_REGISTER_BYTES", "4096");
}

#[test]
fn child_a_table_that_cannot_be_pinned() {
    if !super::memory::is_child() {
        return;
    }
    let Ok(_) = Gpu::open(0) else { return };
    let elements: Vec<f32> = (0..20_000u16).map(f32::from).collect();
    let laid = Tensor::lay_over(elements.clone(), &[200, 100], crate::Affinity::Gpu).unwrap();
    if laid.storage().span().is_some() {
        eprintln!("this machine pins everything: skipped");
        return;
    }
    let plain = Tensor::from_slice(&elements, &[200, 100], Device::Cpu).unwrap();
    // Large enough to be pinned by registration.
    let large = Tensor::zeros(&[3 << 20], DType::F32, UNIFIED_GPU).unwrap();
    assert!(large.storage().span().is_none() && large.is_unified());
    assert_eq!(large.sum(0).unwrap().item::<f32>().unwrap(), 0.0);
    let ids = ids_of(&[199, 0, 7], DType::I64);
    let expected = plain.index(&ids).unwrap();
    for ids_at in PLACES {
        let rows = laid.index(&ids.to(ids_at).unwrap()).unwrap();
        assert_eq!(rows.device(), place(&[laid.operand(), ids.to(ids_at).unwrap().operand()]).unwrap().output);
        assert_agree(&rows, &expected, Agree::Exactly, "staged");
    }
    let bad = laid.index(&ids_of(&[0, 200], DType::I32).to(Device::Cuda(0)).unwrap()).unwrap_err();
    assert!(matches!(bad, Error::Gather(GatherError::IdOutOfRange { position: 1, id: 200, rows: 200 })), "{bad}");
    assert_agree(&laid.add(&plain).unwrap(), &plain.add(&plain).unwrap(), Agree::Exactly, "sum");
    eprintln!("not pinned: done");
}
