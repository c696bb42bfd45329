//! Element types: a closed list, and the one place where a run-time type becomes a Rust type.
//!
//! The names and the promotion rule are torch's, because that is what users compare results with. `Element` is sealed:
//! a new type means a new `DType`, a new CUDA define and a new `.npy` description, so it has to be added here.

use std::fmt;

use bytemuck::{Pod, Zeroable};
use half::{bf16, f16};

/// The type of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DType {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// Upper half of an IEEE single.
    BF16,
    /// IEEE double precision.
    F64,
    /// Signed 8-bit integer.
    I8,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer.
    I64,
    /// Unsigned 8-bit integer.
    U8,
    /// One byte, true when not zero.
    Bool,
}

impl DType {
    /// Every type, in declaration order.
    pub const ALL: [DType; 9] =
        [DType::F32, DType::F16, DType::BF16, DType::F64, DType::I8, DType::I32, DType::I64, DType::U8, DType::Bool];

    /// Bytes of one element.
    pub const fn size_bytes(self) -> usize {
        match self {
            DType::F64 | DType::I64 => 8,
            DType::F32 | DType::I32 => 4,
            DType::F16 | DType::BF16 => 2,
            DType::I8 | DType::U8 | DType::Bool => 1,
        }
    }

    /// The name torch gives this type.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "float32",
            DType::F16 => "float16",
            DType::BF16 => "bfloat16",
            DType::F64 => "float64",
            DType::I8 => "int8",
            DType::I32 => "int32",
            DType::I64 => "int64",
            DType::U8 => "uint8",
            DType::Bool => "bool",
        }
    }

    /// The type with this torch name, if it is one of ours.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|dtype| dtype.name() == name)
    }

    /// The `descr` of a `.npy` header. NumPy has no bfloat16; `<V2` is what NumPy writes for the `ml_dtypes` type.
    pub const fn numpy_descr(self) -> &'static str {
        match self {
            DType::F32 => "<f4",
            DType::F16 => "<f2",
            DType::BF16 => "<V2",
            DType::F64 => "<f8",
            DType::I8 => "|i1",
            DType::I32 => "<i4",
            DType::I64 => "<i8",
            DType::U8 => "|u1",
            DType::Bool => "|b1",
        }
    }

    /// The type's name in the kernels, for their `HW_T` and `HW_S` defines.
    pub const fn cuda_name(self) -> &'static str {
        match self {
            DType::F32 => "float",
            DType::F16 => "hw_f16",
            DType::BF16 => "hw_bf16",
            DType::F64 => "double",
            DType::I8 => "i8",
            DType::I32 => "i32",
            DType::I64 => "i64",
            DType::U8 => "u8",
            DType::Bool => "hw_bool",
        }
    }

    /// Whether the type is a floating point type.
    pub const fn is_float(self) -> bool {
        matches!(self, DType::F32 | DType::F16 | DType::BF16 | DType::F64)
    }

    /// The type two operands are brought to, as `torch.promote_types` has it.
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        match (self.is_float(), other.is_float()) {
            (true, false) => self,
            (false, true) => other,
            (true, true) => promote_floats(self, other),
            (false, false) => promote_integers(self, other),
        }
    }

    /// The type arithmetic that leaves the integers gives: the type itself for floats, else `F32`, torch's default.
    pub const fn to_float(self) -> DType {
        if self.is_float() { self } else { DType::F32 }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Neither half type holds the other's values, so the two meet in single precision.
fn promote_floats(a: DType, b: DType) -> DType {
    if a == DType::F64 || b == DType::F64 { DType::F64 } else { DType::F32 }
}

/// No 16-bit integer is in the list, so torch's `int16` for uint8 with int8 becomes `int32`.
fn promote_integers(a: DType, b: DType) -> DType {
    let wide = |dtype: DType| a == dtype || b == dtype;
    if wide(DType::I64) {
        DType::I64
    } else if wide(DType::I32) || (wide(DType::I8) && wide(DType::U8)) {
        DType::I32
    } else if a == DType::Bool {
        b
    } else {
        a
    }
}

/// A value on its way from one element type to another; wide enough for every type in the list to pass exactly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scalar {
    /// A floating point value.
    Float(f64),
    /// An integer or a truth value.
    Int(i64),
}

/// A truth value in one byte. Any bit pattern is allowed, because the bytes may come from a file; not zero is true.
#[derive(Clone, Copy, Debug, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct Bool(pub u8);

impl Bool {
    /// Whether the value is true.
    pub const fn get(self) -> bool {
        self.0 != 0
    }
}

impl From<bool> for Bool {
    fn from(value: bool) -> Bool {
        Bool(u8::from(value))
    }
}

impl PartialEq for Bool {
    fn eq(&self, other: &Bool) -> bool {
        self.get() == other.get()
    }
}

impl PartialOrd for Bool {
    fn partial_cmp(&self, other: &Bool) -> Option<std::cmp::Ordering> {
        self.get().partial_cmp(&other.get())
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust type that stands for one `DType`.
pub trait Element: sealed::Sealed + Pod + PartialOrd + Default + fmt::Debug + Send + Sync + 'static {
    /// The run-time name of this type.
    const DTYPE: DType;

    /// The value, without loss.
    fn widen(self) -> Scalar;

    /// The nearest value of this type: floats round to nearest even, floats to integers truncate toward zero and
    /// saturate (NaN gives 0), integers to integers wrap, and anything not zero is true.
    fn narrow(value: Scalar) -> Self;
}

macro_rules! float_element {
    ($type:ty, $dtype:ident, $to:expr, $from_float:expr, $from_int:expr) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn widen(self) -> Scalar {
                Scalar::Float($to(self))
            }
            #[inline(always)]
            fn narrow(value: Scalar) -> Self {
                match value {
                    Scalar::Float(x) => $from_float(x),
                    Scalar::Int(x) => $from_int(x),
                }
            }
        }
    };
}

// Wide values reach the 16-bit types through f32, as in torch and in the CUDA twin.
float_element!(f32, F32, f64::from, single, |x: i64| x as f32);
float_element!(f64, F64, |x| x, |x| x, |x: i64| x as f64);
float_element!(f16, F16, f16::to_f64, |x| f16::from_f32(single(x)), |x: i64| f16::from_f32(x as f32));
float_element!(bf16, BF16, bf16::to_f64, |x| bf16::from_f32(single(x)), |x: i64| bf16::from_f32(x as f32));

macro_rules! integer_element {
    ($type:ty, $dtype:ident) => {
        impl sealed::Sealed for $type {}
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
            #[inline(always)]
            fn widen(self) -> Scalar {
                Scalar::Int(i64::from(self))
            }
            #[inline(always)]
            #[allow(clippy::cast_possible_truncation, reason = "saturating and wrapping is what the cast promises")]
            #[allow(clippy::unnecessary_cast, reason = "the same text serves i64")]
            fn narrow(value: Scalar) -> Self {
                match value {
                    Scalar::Float(x) => x as $type,
                    Scalar::Int(x) => x as $type,
                }
            }
        }
    };
}

integer_element!(i8, I8);
integer_element!(i32, I32);
integer_element!(i64, I64);
integer_element!(u8, U8);

impl sealed::Sealed for Bool {}
impl Element for Bool {
    const DTYPE: DType = DType::Bool;
    #[inline(always)]
    fn widen(self) -> Scalar {
        Scalar::Int(i64::from(self.get()))
    }
    #[inline(always)]
    fn narrow(value: Scalar) -> Self {
        Bool::from(match value {
            Scalar::Float(x) => x != 0.0,
            Scalar::Int(x) => x != 0,
        })
    }
}

#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "rounding to nearest even is what the cast promises")]
fn single(x: f64) -> f32 {
    x as f32
}

/// Runs an expression with a type alias bound to the Rust type of a `DType`: `dispatch!(dtype, T => f::<T>(x))`.
#[macro_export]
macro_rules! dispatch {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => $crate::dispatch!(@arm $T, f32, $body),
            $crate::DType::F16 => $crate::dispatch!(@arm $T, $crate::f16, $body),
            $crate::DType::BF16 => $crate::dispatch!(@arm $T, $crate::bf16, $body),
            $crate::DType::F64 => $crate::dispatch!(@arm $T, f64, $body),
            $crate::DType::I8 => $crate::dispatch!(@arm $T, i8, $body),
            $crate::DType::I32 => $crate::dispatch!(@arm $T, i32, $body),
            $crate::DType::I64 => $crate::dispatch!(@arm $T, i64, $body),
            $crate::DType::U8 => $crate::dispatch!(@arm $T, u8, $body),
            $crate::DType::Bool => $crate::dispatch!(@arm $T, $crate::Bool, $body),
        }
    };
    (@arm $T:ident, $type:ty, $body:expr) => {{
        type $T = $type;
        $body
    }};
}

#[cfg(test)]
mod tests;
