//! Where tests run: the devices of this machine, and operators with operands in every mix of them.

use headwater_cuda::Gpu;

use crate::dtype::{DType, Element, Scalar};
use crate::ops::testing::{Random, close, real};
use crate::placement::place;
use crate::{Affinity, Device, Result, Tensor};

pub(super) const UNIFIED_GPU: Device = Device::Unified { affinity: Affinity::Gpu };
pub(super) const UNIFIED_HOST: Device = Device::Unified { affinity: Affinity::Host };
pub(super) const PLACES: [Device; 4] = [Device::Cpu, Device::Cuda(0), UNIFIED_GPU, UNIFIED_HOST];

/// The GPU, or a word that there is none.
pub(super) fn gpu() -> Option<Gpu> {
    Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")).ok()
}

/// Small whole and half numbers, as exact as the type allows.
pub(super) fn numbers(seed: u64, shape: &[usize], dtype: DType) -> Tensor {
    let mut random = Random(seed);
    let count = shape.iter().product();
    crate::dispatch!(dtype, T => {
        let mut one = || match dtype {
            DType::Bool => Scalar::Int(i64::from(random.below(2) == 1)),
            _ => Scalar::Float(random.value() * 2.0),
        };
        let elements: Vec<T> = (0..count).map(|_| T::narrow(one())).collect();
        Tensor::from_slice(&elements, shape, Device::Cpu).unwrap()
    })
}

/// How far results of two devices may be apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Agree {
    /// To the bit, NaN payloads aside.
    Exactly,
    /// Relatively, for functions each side's mathematical library computes, and for products in another order.
    Within(f64),
}

/// Four units in the last place, which is what the operators' page promises.
pub(super) fn ulps(dtype: DType) -> Agree {
    Agree::Within(
        4.0 * match dtype {
            DType::F64 => f64::EPSILON,
            DType::F16 => 2f64.powi(-10),
            DType::BF16 => 2f64.powi(-7),
            _ => f64::from(f32::EPSILON),
        },
    )
}

pub(super) fn assert_agree(found: &Tensor, expected: &Tensor, agree: Agree, what: &str) {
    assert_eq!((found.dtype(), found.shape()), (expected.dtype(), expected.shape()), "{what}");
    let relative = match agree {
        Agree::Exactly => 0.0,
        Agree::Within(relative) => relative,
    };
    crate::dispatch!(found.dtype(), T => {
        let (found, expected) = (found.to_vec::<T>().unwrap(), expected.to_vec::<T>().unwrap());
        for (i, (f, e)) in found.iter().zip(&expected).enumerate() {
            assert!(close(real(*f), real(*e), relative), "{what}: element {i} is {f:?}, not {e:?}");
        }
    });
}

/// Runs an operator with its operands in every mix of places, and compares result and place with what they should be.
pub(super) fn everywhere(what: &str, operands: &[Tensor], agree: Agree, op: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let expected = op(operands).unwrap();
    for mix in 0..PLACES.len().pow(u32::try_from(operands.len()).unwrap()) {
        let (mut rest, mut placed, mut names) = (mix, Vec::new(), what.to_owned());
        for operand in operands {
            let device = PLACES[rest % PLACES.len()];
            rest /= PLACES.len();
            names += &format!(" {device}");
            placed.push(operand.to(device).unwrap());
        }
        let kinds: Vec<_> = placed.iter().map(Tensor::operand).collect();
        match (place(&kinds), op(&placed)) {
            (Ok(placement), Ok(found)) => {
                assert_eq!(found.device(), placement.output, "{names}");
                assert_agree(&found, &expected, agree, &names);
            }
            (Err(_), Err(crate::Error::Placement(_))) => {}
            (placement, found) => panic!("{names}: {placement:?}, {found:?}"),
        }
    }
}
