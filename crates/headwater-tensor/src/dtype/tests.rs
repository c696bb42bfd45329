//! The promotion table as `torch.promote_types` prints it, and the corners of conversion.

use super::*;

#[test]
fn promotion_is_torchs() {
    use DType::*;
    // Rows and columns in the order of `ALL`. The one entry torch has no room for here is u8 with i8 (int16 there).
    let table = [
        [F32, F32, F32, F64, F32, F32, F32, F32, F32],
        [F32, F16, F32, F64, F16, F16, F16, F16, F16],
        [F32, F32, BF16, F64, BF16, BF16, BF16, BF16, BF16],
        [F64, F64, F64, F64, F64, F64, F64, F64, F64],
        [F32, F16, BF16, F64, I8, I32, I64, I32, I8],
        [F32, F16, BF16, F64, I32, I32, I64, I32, I32],
        [F32, F16, BF16, F64, I64, I64, I64, I64, I64],
        [F32, F16, BF16, F64, I32, I32, I64, U8, U8],
        [F32, F16, BF16, F64, I8, I32, I64, U8, Bool],
    ];
    for (i, a) in DType::ALL.into_iter().enumerate() {
        for (j, b) in DType::ALL.into_iter().enumerate() {
            assert_eq!(a.promote(b), table[i][j], "{a} with {b}");
        }
    }
}

#[test]
fn names_sizes_and_dispatch_agree() {
    for dtype in DType::ALL {
        assert_eq!(DType::from_name(dtype.name()), Some(dtype));
        assert_eq!(crate::dispatch!(dtype, T => T::DTYPE), dtype);
        assert_eq!(crate::dispatch!(dtype, T => size_of::<T>()), dtype.size_bytes());
    }
    assert_eq!(DType::from_name("complex64"), None);
}

#[test]
fn float_to_integer_truncates_and_saturates() {
    for (x, want) in [(1.9, 1), (-1.9, -1), (1e9, 127), (-1e9, -128), (f64::NAN, 0), (f64::INFINITY, 127)] {
        assert_eq!(i8::narrow(Scalar::Float(x)), want, "{x}");
    }
    assert_eq!(u8::narrow(Scalar::Float(-1.0)), 0);
    assert_eq!(i64::narrow(Scalar::Float(1e300)), i64::MAX);
}

#[test]
fn integers_wrap_and_truth_is_not_zero() {
    assert_eq!(i8::narrow(Scalar::Int(200)), -56);
    assert_eq!(u8::narrow(Scalar::Int(-1)), 255);
    assert!(Bool::narrow(Scalar::Float(f64::NAN)).get());
    assert!(!Bool::narrow(Scalar::Float(-0.0)).get());
    assert_eq!(Bool(7).widen(), Scalar::Int(1));
    assert_eq!(Bool(7), Bool(1));
}

#[test]
fn halves_round_to_nearest_even() {
    let half = |x: f64| f16::narrow(Scalar::Float(x));
    assert_eq!(half(2049.0).to_f32(), 2048.0);
    assert_eq!(half(2051.0).to_f32(), 2052.0);
    assert_eq!(half(65520.0), f16::INFINITY);
    assert!(half(f64::NAN).is_nan());
    let brain = |x: f64| bf16::narrow(Scalar::Float(x));
    assert_eq!(brain(257.0).to_f32(), 256.0);
    assert_eq!(brain(259.0).to_f32(), 260.0);
    assert!(brain(f64::NAN).is_nan());
    assert_eq!(f16::narrow(Scalar::Int(2049)).to_f32(), 2048.0);
}
