//! Kinds of elements that cross between libraries, and their names in each protocol.

use headwater::tensor::DType;
use headwater::tensor::npy::NpyType;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// A kind of element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dtype {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F16,
    Bf16,
    F32,
    F64,
    C64,
    C128,
}

use Dtype::{Bf16, Bool, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};

/// Every kind: its bytes, its code and bits in DLPack, and its name in NumPy's interface, which has no bfloat16.
const ALL: [(Dtype, usize, u8, &str); 15] = [
    (Bool, 1, 6, "|b1"),
    (I8, 1, 0, "|i1"),
    (I16, 2, 0, "<i2"),
    (I32, 4, 0, "<i4"),
    (I64, 8, 0, "<i8"),
    (U8, 1, 1, "|u1"),
    (U16, 2, 1, "<u2"),
    (U32, 4, 1, "<u4"),
    (U64, 8, 1, "<u8"),
    (F16, 2, 2, "<f2"),
    (Bf16, 2, 4, "<V2"),
    (F32, 4, 2, "<f4"),
    (F64, 8, 2, "<f8"),
    (C64, 8, 5, "<c8"),
    (C128, 16, 5, "<c16"),
];

impl Dtype {
    fn row(self) -> (Self, usize, u8, &'static str) {
        ALL.into_iter().find(|(dtype, ..)| *dtype == self).unwrap_or(ALL[0])
    }

    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        self.row().1
    }

    /// Code and bits in DLPack.
    pub fn dlpack(self) -> (u8, u8) {
        let (_, bytes, code, _) = self.row();
        (code, u8::try_from(8 * bytes).unwrap_or(u8::MAX))
    }

    /// The name in NumPy's interface.
    pub fn typestr(self) -> &'static str {
        self.row().3
    }

    /// The kind that files of datasets have. Complex numbers are in none.
    pub fn in_files(self, name: &str) -> PyResult<NpyType> {
        Ok(match self {
            Bool => NpyType::Tensor(DType::Bool),
            I8 => NpyType::Tensor(DType::I8),
            I16 => NpyType::I16,
            I32 => NpyType::Tensor(DType::I32),
            I64 => NpyType::Tensor(DType::I64),
            U8 => NpyType::Tensor(DType::U8),
            U16 => NpyType::U16,
            U32 => NpyType::U32,
            U64 => NpyType::U64,
            F16 => NpyType::Tensor(DType::F16),
            Bf16 => NpyType::Tensor(DType::BF16),
            F32 => NpyType::Tensor(DType::F32),
            F64 => NpyType::Tensor(DType::F64),
            C64 | C128 => {
                let why = format!("{name} has complex elements; it should have whole numbers or floats");
                return Err(PyValueError::new_err(why));
            }
        })
    }

    pub fn of_dlpack(code: u8, bits: u8, lanes: u16, name: &str) -> PyResult<Self> {
        let found =
            ALL.into_iter().find(|(_, bytes, own, _)| *own == code && 8 * bytes == usize::from(bits) && lanes == 1);
        let unknown = || {
            PyValueError::new_err(format!(
                "{name} has elements of DLPack's kind {code} with {bits} bits, which are not read here"
            ))
        };
        found.map(|(dtype, ..)| dtype).ok_or_else(unknown)
    }

    pub fn of_typestr(typestr: &str, name: &str) -> PyResult<Self> {
        let unknown =
            || PyValueError::new_err(format!("{name} has elements of NumPy's kind {typestr}, which are not read here"));
        ALL.into_iter().find(|(.., own)| *own == typestr).map(|(dtype, ..)| dtype).ok_or_else(unknown)
    }
}
