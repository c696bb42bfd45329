//! What needs no GPU: making, viewing, reading and refusing. Unified tensors work on every machine.

use std::sync::Arc;

use headwater_cuda::Gpu;

use super::places::*;
use crate::dtype::{Bool, DType, Scalar};
use crate::layout::Slice;
use crate::{Affinity, Device, Error, MemAdvice, Tensor, kernel_builds};

fn counted(shape: &[usize]) -> Tensor {
    let count = i64::try_from(shape.iter().product::<usize>()).unwrap();
    let range = Tensor::arange(Scalar::Int(0), Scalar::Int(count), Scalar::Int(1), DType::I64, Device::Cpu);
    range.unwrap().reshape(shape).unwrap()
}

#[test]
fn views_share_their_storage() {
    let whole = counted(&[4, 6]);
    let rows = whole.slice(0, Slice { start: 1, end: 3, step: 1 }).unwrap();
    let address = whole.as_slice::<i64>().unwrap()[6..].as_ptr();
    assert_eq!(rows.as_slice::<i64>().unwrap().as_ptr(), address);
    assert_eq!(rows.reshape(&[12]).unwrap().as_slice::<i64>().unwrap().as_ptr(), address);
    let turned = rows.transpose(0, 1).unwrap();
    assert!(matches!(turned.as_slice::<i64>(), Err(Error::NotASlice { .. })));
    assert_eq!(turned.to_vec::<i64>().unwrap(), [6, 12, 7, 13, 8, 14, 9, 15, 10, 16, 11, 17]);
    assert_eq!(turned.reshape(&[12]).unwrap().to_vec::<i64>().unwrap(), turned.to_vec::<i64>().unwrap());
    assert_eq!(turned.strides(), [1, 6]);
    let repeated = whole.slice(0, Slice { start: 0, end: 1, step: 1 }).unwrap().broadcast_to(&[3, 6]).unwrap();
    assert_eq!(repeated.sum(0).unwrap().to_vec::<i64>().unwrap(), [0, 3, 6, 9, 12, 15]);
}

#[test]
fn elements_are_read_in_their_own_type() {
    let a = counted(&[3]);
    assert!(matches!(a.to_vec::<f32>(), Err(Error::WrongType { .. })));
    assert!(matches!(a.as_slice::<i32>(), Err(Error::WrongType { .. })));
    assert!(matches!(a.item::<i64>(), Err(Error::Shape { .. })));
    assert_eq!(a.slice(0, Slice { start: 2, end: 3, step: 1 }).unwrap().item::<i64>().unwrap(), 2);
    assert_eq!(a.cast(DType::F32).unwrap().to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0]);
}

#[test]
fn tensors_are_shown_with_their_first_elements() {
    assert_eq!(counted(&[2, 2]).to_string(), "Tensor([2, 2], int64, cpu: [0, 1, 2, 3])");
    assert_eq!(counted(&[100, 3]).to_string(), "Tensor([100, 3], int64, cpu: [0, 1, 2, 3, 4, 5, …])");
    assert_eq!(counted(&[2, 50]).to_string(), "Tensor([2, 50], int64, cpu: [0, 1, 2, 3, 4, 5, 6, 7, …])");
    assert_eq!(counted(&[0]).to_string(), "Tensor([0], int64, cpu: [])");
    let truth = Tensor::from_slice(&[Bool(1), Bool(0)], &[2], Device::Cpu).unwrap();
    assert_eq!(format!("{truth:?}"), "Tensor([2], bool, cpu: [true, false])");
}

#[test]
fn mistakes_are_named() {
    let a = counted(&[2, 3]);
    assert!(matches!(a.add(&counted(&[4])), Err(Error::Broadcast { .. })));
    assert!(matches!(a.matmul(&a), Err(Error::Unsupported { .. })));
    let f = a.cast(DType::F32).unwrap();
    assert!(matches!(f.matmul(&f), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(a.mean(0), Err(Error::Unsupported { .. })));
    assert!(matches!(a.sum(2), Err(Error::NoSuchAxis { .. })));
    assert!(matches!(a.where_(&a, &a), Err(Error::WrongType { .. })));
    assert!(matches!(a.index(&f), Err(Error::IdType { .. })));
    assert!(matches!(a.index(&counted(&[3])), Err(Error::Gather(_))));
    assert!(matches!(counted(&[]).index(&counted(&[1])), Err(Error::Shape { .. })));
    assert!(matches!(a.scatter_add(&counted(&[2]), &f), Err(Error::WrongType { .. })));
    assert!(matches!(a.scatter_add(&counted(&[3]), &a), Err(Error::Length { .. })));
    assert!(matches!(a.scatter_add(&f.sum(1).unwrap(), &a), Err(Error::IdType { .. })));
    assert!(matches!(Tensor::concat(&[&a, &counted(&[3, 2])], 0), Err(Error::ShapeMismatch { .. })));
    assert!(matches!(Tensor::concat(&[], 0), Err(Error::Length { .. })));
    assert!(matches!(a.reshape(&[7]), Err(Error::Reshape { .. })));
    assert!(matches!(Tensor::from_slice(&[1f32], &[2], Device::Cpu), Err(Error::Length { .. })));
    assert!(matches!(Tensor::zeros(&[1; 9], DType::F32, Device::Cpu), Err(Error::TooManyDims { .. })));
    let half = (Scalar::Float(0.0), Scalar::Float(1.0), Scalar::Float(0.5));
    assert!(matches!(Tensor::arange(half.0, half.1, half.2, DType::I32, Device::Cpu), Err(Error::Unsupported { .. })));
    assert!(matches!(
        Tensor::arange(half.0, half.1, Scalar::Int(0), DType::F32, Device::Cpu),
        Err(Error::BadRange { .. })
    ));
}

#[test]
fn only_unified_tensors_answer_questions_about_affinity() {
    let mut plain = counted(&[2]);
    assert!(!plain.is_unified());
    assert!(matches!(plain.affinity(), Err(Error::NotUnified { .. })));
    assert!(matches!(plain.set_affinity(Affinity::Host), Err(Error::NotUnified { .. })));
    assert!(matches!(plain.mem_advise(MemAdvice::SetReadMostly, Device::Cpu), Err(Error::NotUnified { .. })));
    let unified = plain.to(UNIFIED_HOST).unwrap();
    assert_eq!((unified.is_unified(), unified.affinity().unwrap()), (true, Affinity::Host));
    assert!(matches!(unified.mem_advise(MemAdvice::SetReadMostly, Device::Cpu), Err(Error::NotManaged)));
}

#[test]
fn owners_lend_their_memory() {
    let elements = vec![1.5f32; 12];
    let address = elements.as_ptr();
    let laid = Tensor::lay_over(elements, &[3, 4], Affinity::Host).unwrap();
    assert_eq!(laid.as_slice::<f32>().unwrap().as_ptr(), address);
    assert_eq!(laid.sum(0).unwrap().to_vec::<f32>().unwrap(), [4.5; 4]);
    let bytes: Arc<Vec<u8>> = Arc::new(vec![0; 65]);
    let short = Tensor::lay_over_bytes(bytes.clone(), DType::F32, &[17], Affinity::Gpu);
    assert!(matches!(short, Err(Error::Length { expected: 68, found: 65, .. })));
    /// Bytes that begin at an odd address.
    struct Odd(Arc<Vec<u8>>);
    impl AsRef<[u8]> for Odd {
        fn as_ref(&self) -> &[u8] {
            &self.0[1..]
        }
    }
    let odd = Tensor::lay_over_bytes(Arc::new(Odd(bytes)), DType::F32, &[4], Affinity::Gpu);
    assert!(matches!(odd, Err(Error::Misaligned { .. })));
}

#[test]
fn machines_without_a_gpu_compute_on_the_cpu() {
    let Err(why) = Gpu::open(0) else { return };
    let refused = Tensor::zeros(&[1], DType::F32, Device::Cuda(0)).unwrap_err().to_string();
    assert_eq!(refused, why.to_string());
    assert!(numbers(1, &[2], DType::F32).to(Device::Cuda(0)).is_err());
    assert!(numbers(1, &[2], DType::F32).to_managed(Affinity::Gpu, &[]).is_err());
    let (plain, ids) = (numbers(2, &[5, 3], DType::F32), counted(&[4]));
    for device in [UNIFIED_GPU, UNIFIED_HOST] {
        let unified = plain.to(device).unwrap();
        assert_eq!((unified.device(), unified.to_vec::<f32>().unwrap()), (device, plain.to_vec::<f32>().unwrap()));
        assert_agree(&unified.index(&ids).unwrap(), &plain.index(&ids).unwrap(), Agree::Exactly, "index");
        assert_agree(&unified.add(&plain).unwrap(), &plain.add(&plain).unwrap(), Agree::Exactly, "unified + cpu");
        assert_eq!(unified.add(&plain).unwrap().device(), UNIFIED_HOST);
        assert_agree(&unified.sum(0).unwrap(), &plain.sum(0).unwrap(), Agree::Exactly, "sum");
    }
    assert_eq!(plain.to(UNIFIED_GPU).unwrap().neg().unwrap().device(), Device::Cpu);
}

#[test]
fn npy_files_keep_every_type_and_order() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for dtype in DType::ALL {
        let a = numbers(3, &[3, 4], dtype);
        a.transpose(0, 1).unwrap().write_npy(file.path()).unwrap();
        let read = Tensor::read_npy(file.path(), Device::Cpu).unwrap();
        assert_agree(&read, &a.transpose(0, 1).unwrap(), Agree::Exactly, "npy");
    }
    // Column-major: the bytes of the transpose under the header of the whole.
    let a = numbers(4, &[3, 4], DType::F32);
    a.transpose(0, 1).unwrap().write_npy(file.path()).unwrap();
    let text = std::fs::read(file.path()).unwrap();
    let at = text.windows(5).position(|w| w == b"False").unwrap();
    let mut fortran = text.clone();
    fortran[at..at + 5].copy_from_slice(b"True ");
    let shape = text.windows(6).position(|w| w == b"(4, 3)").unwrap();
    fortran[shape..shape + 6].copy_from_slice(b"(3, 4)");
    std::fs::write(file.path(), fortran).unwrap();
    let read = Tensor::read_npy(file.path(), Device::Cpu).unwrap();
    assert_agree(&read, &a, Agree::Exactly, "column-major");
    assert!(matches!(Tensor::read_npy("/nowhere.npy", Device::Cpu), Err(Error::Io { .. })));
    std::fs::write(file.path(), &text[..text.len() - 1]).unwrap();
    assert!(matches!(Tensor::read_npy(file.path(), Device::Cpu), Err(Error::NpyFile { .. })));
}

#[test]
fn every_text_is_listed_once_for_each_set_of_defines() {
    let builds = kernel_builds();
    let names: std::collections::BTreeSet<&str> = builds.iter().map(|(source, _)| source.name).collect();
    assert_eq!(
        names.into_iter().collect::<Vec<_>>(),
        [
            "copy.cu",
            "elements.cu",
            "elementwise.cu",
            "gather.cu",
            "matmul.cu",
            "order.cu",
            "random.cu",
            "reduce.cu",
            "scatter_add.cu"
        ]
    );
    for (i, (source, defines)) in builds.iter().enumerate() {
        assert!(
            !builds[..i].iter().any(|(s, d)| std::ptr::eq(*s, *source) && d == defines),
            "{} {defines:?}",
            source.name
        );
    }
}
