//! Where bytes are: transfers, the pool, registration, advice, and what happens when memory runs out.

use std::process::Command;
use std::sync::Arc;

use headwater_cuda::{Gpu, allocation_calls};
use headwater_memory::SharedHost;

use super::super::places::*;
use crate::dtype::DType;
use crate::layout::Slice;
use crate::{Affinity, Device, Error, MemAdvice, Tensor, set_current_gpu};

const CHILD: &str = "HEADWATER_TEST_CHILD";

/// Runs `child_<name>` in a process with a variable set.
pub(super) fn in_child(name: &str, variable: &str, value: &str) {
    let found =
        std::thread::current().name().map(|path| path.rsplit_once("::").map_or("", |(path, _)| path).to_owned());
    let test = format!("{}::child_{name}", found.unwrap());
    let run = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", &test, "--nocapture"])
        .envs([(CHILD, "1"), (variable, value)])
        .output()
        .unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&run.stdout), String::from_utf8_lossy(&run.stderr));
    assert!(run.status.success() && text.contains("1 passed"), "{test}: {text}");
}

pub(super) fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Other tests of this process may allocate in between, so one quiet round in many is enough.
fn allocates_nothing(mut round: impl FnMut()) -> bool {
    (0..50).any(|_| {
        let before = allocation_calls();
        round();
        allocation_calls() == before
    })
}

#[test]
fn tensors_go_from_anywhere_to_anywhere() {
    let Some(_) = gpu() else { return };
    for dtype in [DType::F32, DType::F16, DType::U8, DType::I64] {
        let whole = numbers(1, &[4, 6, 3], dtype);
        for from in PLACES {
            for to in PLACES {
                let placed = whole.to(from).unwrap();
                let views = [
                    placed.clone(),
                    placed.permute(&[2, 0, 1]).unwrap(),
                    placed.slice(1, Slice { start: 1, end: 6, step: 2 }).unwrap(),
                    placed.slice(0, Slice { start: 2, end: 3, step: 1 }).unwrap(),
                    placed.slice(0, Slice { start: 4, end: 4, step: 1 }).unwrap(),
                ];
                for view in views {
                    let moved = view.to(to).unwrap();
                    assert_eq!(moved.device(), to);
                    assert_agree(&moved, &view, Agree::Exactly, &format!("{from} to {to}"));
                }
            }
        }
    }
}

#[test]
fn the_pool_serves_unified_tensors_again_and_again() {
    let Some(_) = gpu() else { return };
    let round = || {
        for size in [1, 100, 3000, 70_000] {
            let made = Tensor::ones(&[size], DType::F32, UNIFIED_GPU).unwrap();
            assert_eq!(made.as_slice::<f32>().unwrap()[size - 1], 1.0);
        }
    };
    round();
    assert!(allocates_nothing(|| (0..20).for_each(|_| round())));
}

#[test]
fn switching_affinity_moves_nothing() {
    let Some(_) = gpu() else { return };
    let mut table = numbers(2, &[10, 3], DType::F32).to(UNIFIED_GPU).unwrap();
    let address = table.as_slice::<f32>().unwrap().as_ptr();
    let quiet = allocates_nothing(|| {
        for affinity in [Affinity::Host, Affinity::Gpu] {
            table.set_affinity(affinity).unwrap();
            assert_eq!(table.affinity().unwrap(), affinity);
            assert_eq!(table.as_slice::<f32>().unwrap().as_ptr(), address);
        }
        let other = table.to(UNIFIED_HOST).unwrap();
        assert_eq!(other.as_slice::<f32>().unwrap().as_ptr(), address);
    });
    assert!(quiet);
    assert_eq!(table.neg().unwrap().device(), Device::Cuda(0));
    table.set_affinity(Affinity::Host).unwrap();
    assert_eq!(table.neg().unwrap().device(), UNIFIED_HOST);
    let mut plain = table.to(Device::Cuda(0)).unwrap();
    assert!(matches!(plain.set_affinity(Affinity::Gpu), Err(Error::NotUnified { .. })));
}

#[test]
fn advice_is_for_managed_memory() {
    let Some(_) = gpu() else { return };
    let plain = numbers(3, &[64, 5], DType::F32);
    for from in PLACES {
        let hints = [(MemAdvice::SetPreferredLocation, Device::Cpu), (MemAdvice::SetAccessedBy, Device::Cuda(0))];
        let managed = plain.to(from).unwrap().to_managed(Affinity::Gpu, &hints).unwrap();
        assert_eq!(managed.device(), UNIFIED_GPU);
        for advice in MemAdvice::ALL {
            for about in [Device::Cpu, Device::Cuda(0)] {
                managed.mem_advise(advice, about).unwrap();
            }
            assert!(matches!(managed.mem_advise(advice, UNIFIED_GPU), Err(Error::AdviceDevice { .. })));
        }
        assert_agree(&managed, &plain, Agree::Exactly, "managed");
        assert_agree(&managed.add(&plain).unwrap(), &plain.add(&plain).unwrap(), Agree::Exactly, "managed + cpu");
        let ids = Tensor::from_slice(&[63i32, 1], &[2], Device::Cuda(0)).unwrap();
        let rows = managed.index(&ids).unwrap();
        assert_eq!(rows.to_vec::<f32>().unwrap()[..5], plain.to_vec::<f32>().unwrap()[315..]);
    }
    for advice in MemAdvice::ALL {
        let refused = plain.to(UNIFIED_GPU).unwrap().mem_advise(advice, Device::Cpu).unwrap_err();
        assert!(matches!(refused, Error::NotManaged) && refused.to_string().contains("to_managed"), "{refused}");
        for device in [Device::Cpu, Device::Cuda(0)] {
            let refused = plain.to(device).unwrap().mem_advise(advice, Device::Cpu);
            assert!(matches!(refused, Err(Error::NotUnified { .. })));
        }
    }
}

#[test]
fn laid_over_memory_is_read_where_it_is() {
    let Some(_) = gpu() else { return };
    let elements: Vec<f32> = (0..3000u16).map(f32::from).collect();
    let address = elements.as_ptr();
    let calls = headwater_memory::registry_use().chunks;
    let laid = Tensor::lay_over(elements, &[1000, 3], Affinity::Gpu).unwrap();
    assert_eq!(laid.as_slice::<f32>().unwrap().as_ptr(), address);
    let span = laid.storage().span().unwrap();
    assert_eq!(span.host_pointer().unwrap().as_ptr().cast_const().cast(), address);
    assert!(headwater_memory::registry_use().chunks > 0 || calls > 0);
    let ids = Tensor::from_slice(&[999i64, 2], &[2], Device::Cuda(0)).unwrap();
    assert_eq!(laid.index(&ids).unwrap().to_vec::<f32>().unwrap(), [2997.0, 2998.0, 2999.0, 6.0, 7.0, 8.0]);
    let boxed: Box<[i64]> = vec![5, 6, 7].into();
    let sum = Tensor::lay_over(boxed, &[3], Affinity::Host).unwrap().sum(0).unwrap();
    assert_eq!((sum.device(), sum.item::<i64>().unwrap()), (UNIFIED_HOST, 18));
    // The same bytes twice, and an empty owner.
    let owner = Arc::new(vec![1u8; 64]);
    let twice = [0, 1].map(|_| Tensor::lay_over_bytes(owner.clone(), DType::U8, &[64], Affinity::Gpu).unwrap());
    assert_eq!(twice[0].add(&twice[1]).unwrap().to_vec::<u8>().unwrap(), [2; 64]);
    let empty = Tensor::lay_over(Vec::<f32>::new(), &[0, 4], Affinity::Gpu).unwrap();
    assert!(empty.exp().unwrap().to_vec::<f32>().unwrap().is_empty());
}

#[test]
fn memory_of_other_processes_is_read_through_the_gpu_and_by_copy() {
    let Some(_) = gpu() else { return };
    let mut shared = SharedHost::create(64).unwrap();
    let numbers: Vec<u8> = (0..16u8).flat_map(|i| f32::from(i).to_le_bytes()).collect();
    shared.write(0, &numbers).unwrap();
    let laid = Tensor::lay_over_shared(shared, DType::F32, &[4, 4], Affinity::Gpu).unwrap();
    assert!(matches!(laid.as_slice::<f32>(), Err(Error::NotASlice { .. })));
    assert_eq!(laid.sum(0).unwrap().to_vec::<f32>().unwrap(), [24.0, 28.0, 32.0, 36.0]);
    let turned = laid.with_device(UNIFIED_HOST).transpose(0, 1).unwrap().sum(0).unwrap();
    assert_eq!(turned.to_vec::<f32>().unwrap(), [6.0, 22.0, 38.0, 54.0]);
}

#[test]
fn out_of_device_memory_is_an_error_with_numbers() {
    let Some(gpu) = gpu() else { return };
    let asked_bytes = gpu.facts().memory_bytes.saturating_mul(4);
    let refused = Tensor::zeros(&[asked_bytes], DType::U8, Device::Cuda(0)).unwrap_err();
    let Error::Memory(memory) = &refused else { panic!("{refused}") };
    assert!(memory.is_out_of_memory() && refused.to_string().contains(&asked_bytes.to_string()), "{refused}");
    // Overflowing products are refused before anything is asked for.
    for device in PLACES {
        assert!(matches!(Tensor::zeros(&[usize::MAX, 2], DType::F32, device), Err(Error::TooLarge { .. })));
        assert!(Tensor::zeros(&[usize::MAX / 8], DType::F64, device).is_err());
    }
    let after = Tensor::ones(&[10], DType::F32, Device::Cuda(0)).unwrap();
    assert_eq!(after.sum(0).unwrap().item::<f32>().unwrap(), 10.0);
}

#[test]
fn tensors_are_shown_and_sliced_out_only_where_they_lie_packed() {
    let Some(_) = gpu() else { return };
    for device in PLACES {
        let shown = numbers(9, &[3, 4], DType::F32).to(device).unwrap();
        assert!(format!("{shown:?}").starts_with(&format!("Tensor([3, 4], float32, {device}: [")), "{shown:?}");
        assert_eq!(shown.as_slice::<f32>().is_ok(), device != Device::Cuda(0));
        let file = tempfile::NamedTempFile::new().unwrap();
        shown.transpose(0, 1).unwrap().write_npy(file.path()).unwrap();
        for to in PLACES {
            let read = Tensor::read_npy(file.path(), to).unwrap();
            assert_eq!(read.device(), to);
            assert_agree(&read, &shown.transpose(0, 1).unwrap(), Agree::Exactly, "npy");
        }
    }
}

/// Needs a process of its own: the emulator reads its number of devices when it is loaded.
#[test]
fn two_devices() {
    let Some(_) = gpu() else { return };
    in_child("two_devices", "HWEMU_DEVICES", "2");
}

#[test]
fn child_two_devices() {
    if !is_child() || Gpu::count().unwrap_or(0) < 2 {
        return;
    }
    let plain = numbers(4, &[6, 5], DType::F32);
    let (first, second) = (plain.to(Device::Cuda(0)).unwrap(), plain.to(Device::Cuda(1)).unwrap());
    assert_agree(&first.to(Device::Cuda(1)).unwrap(), &plain, Agree::Exactly, "peer copy");
    let turned = second.transpose(0, 1).unwrap();
    assert_agree(&turned.to(Device::Cuda(0)).unwrap(), &plain.transpose(0, 1).unwrap(), Agree::Exactly, "peer copy");
    assert!(matches!(first.add(&second), Err(Error::Placement(_))));
    // Pinned memory is mapped into both.
    let unified = plain.to(UNIFIED_GPU).unwrap();
    let sum = unified.add(&second).unwrap();
    assert_eq!(sum.device(), Device::Cuda(1));
    assert_agree(&sum, &plain.add(&plain).unwrap(), Agree::Exactly, "on the second");
    set_current_gpu(1);
    assert_eq!(unified.neg().unwrap().device(), Device::Cuda(1));
    set_current_gpu(2);
    assert!(matches!(unified.neg(), Err(Error::Cuda(_))));
    assert!(Tensor::zeros(&[1], DType::F32, UNIFIED_GPU).is_err());
    eprintln!("two devices: done");
}
