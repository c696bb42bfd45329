//! What only a device can show. On a machine without one these say so and pass.

use super::places::*;
use crate::dtype::DType;
use crate::ops::elementwise::UnaryOp;

#[test]
fn unary_operators_in_every_place() {
    let Some(_) = gpu() else { return };
    for (dtype, ops) in [(DType::F32, &UnaryOp::ALL[..])] {
        for &op in ops {
            let a = numbers(1, &[5, 7], dtype);
            everywhere(op.name(), &[a], ulps(dtype), |t| t[0].unary(op));
        }
    }
}
