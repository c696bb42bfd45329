//! What is known when a text is read: options, sizes, numbers, and what is computed from those alone.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::surface::{Operator, Prefix};

/// A value of an option, and any other value that is known when a text is read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum OptionValue {
    /// `True` or `False`.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A number.
    Float(f64),
    /// A string.
    Text(String),
}

impl OptionValue {
    /// What kind of value it is, as annotations call it.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
        }
    }

    /// It as a number, where it is one.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a layer computes with floating point numbers")]
    pub fn number(&self) -> Option<f64> {
        match *self {
            Self::Int(number) => Some(number as f64),
            Self::Float(number) => Some(number),
            Self::Bool(_) | Self::Text(_) => None,
        }
    }
}

/// As a layer text would write it.
impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(true) => f.write_str("True"),
            Self::Bool(false) => f.write_str("False"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => write!(f, "{number:?}"),
            Self::Text(text) => write!(f, "{text:?}"),
        }
    }
}

/// `left f right`, or why there is no such thing.
pub fn operator(f: Operator, left: &OptionValue, right: &OptionValue) -> Result<OptionValue, String> {
    match (f, left, right) {
        (Operator::And, OptionValue::Bool(a), OptionValue::Bool(b)) => Ok(OptionValue::Bool(*a && *b)),
        (Operator::Or, OptionValue::Bool(a), OptionValue::Bool(b)) => Ok(OptionValue::Bool(*a || *b)),
        (Operator::And | Operator::Or, ..) => Err(format!("expected two of bool, found {}", kinds(left, right))),
        (Operator::Equal, ..) => equal(left, right).map(OptionValue::Bool),
        (Operator::NotEqual, ..) => equal(left, right).map(|same| OptionValue::Bool(!same)),
        (Operator::Less | Operator::AtMost | Operator::Greater | Operator::AtLeast, ..) => {
            let (a, b) = numbers(left, right)?;
            Ok(OptionValue::Bool(match f {
                Operator::Less => a < b,
                Operator::AtMost => a <= b,
                Operator::Greater => a > b,
                _ => a >= b,
            }))
        }
        (_, OptionValue::Int(a), OptionValue::Int(b)) if f != Operator::Div => whole(f, *a, *b).map(OptionValue::Int),
        _ => arithmetic(f, numbers(left, right)?).map(OptionValue::Float),
    }
}

/// `f operand`, or why there is no such thing.
pub fn prefix(f: Prefix, operand: &OptionValue) -> Result<OptionValue, String> {
    match (f, operand) {
        (Prefix::Not, OptionValue::Bool(holds)) => Ok(OptionValue::Bool(!holds)),
        (Prefix::Minus, OptionValue::Int(number)) => {
            number.checked_neg().map(OptionValue::Int).ok_or_else(|| TOO_LARGE.to_owned())
        }
        (Prefix::Minus, OptionValue::Float(number)) => Ok(OptionValue::Float(-number)),
        (Prefix::Not, _) => Err(format!("expected bool, found {}", operand.kind())),
        (Prefix::Minus, _) => Err(format!("expected a number, found {}", operand.kind())),
    }
}

const TOO_LARGE: &str = "the result is too large";

fn equal(left: &OptionValue, right: &OptionValue) -> Result<bool, String> {
    match (left, right) {
        (OptionValue::Bool(a), OptionValue::Bool(b)) => Ok(a == b),
        (OptionValue::Text(a), OptionValue::Text(b)) => Ok(a == b),
        _ => numbers(left, right).map(|(a, b)| a == b),
    }
}

fn whole(f: Operator, a: i64, b: i64) -> Result<i64, String> {
    let result = match f {
        Operator::Add => a.checked_add(b),
        Operator::Sub => a.checked_sub(b),
        Operator::Mul => a.checked_mul(b),
        Operator::FloorDiv if b == 0 => return Err("division by 0".to_owned()),
        // Python rounds down, also below 0.
        Operator::FloorDiv => a.checked_div(b).map(|q| if a % b != 0 && (a < 0) != (b < 0) { q - 1 } else { q }),
        _ => return Err("expected rows and a matrix, found two numbers".to_owned()),
    };
    result.ok_or_else(|| TOO_LARGE.to_owned())
}

fn arithmetic(f: Operator, (a, b): (f64, f64)) -> Result<f64, String> {
    let result = match f {
        Operator::Add => a + b,
        Operator::Sub => a - b,
        Operator::Mul => a * b,
        Operator::Div | Operator::FloorDiv if b == 0.0 => return Err("division by 0".to_owned()),
        Operator::Div => a / b,
        Operator::FloorDiv => (a / b).floor(),
        _ => return Err("expected rows and a matrix, found two numbers".to_owned()),
    };
    if result.is_finite() { Ok(result) } else { Err(TOO_LARGE.to_owned()) }
}

fn numbers(left: &OptionValue, right: &OptionValue) -> Result<(f64, f64), String> {
    let both = left.number().zip(right.number());
    both.ok_or_else(|| format!("expected two numbers, found {}", kinds(left, right)))
}

fn kinds(left: &OptionValue, right: &OptionValue) -> String {
    format!("{} and {}", left.kind(), right.kind())
}
