//! Products that are nothing else: every row of a domain times one matrix, stored as it is. Where the number of rows is known
//! beforehand, cuBLAS makes them if it is there.

use headwater_cuda::{Gemm, GemmOperand, GemmType, cublas_available};

use super::Precision;
use super::cuda::DeviceRows;
use super::graph::{DeviceGraph, map};
use super::lower::Work;
use crate::inter::{Domain, Path, Shape};
use crate::intra::{Buffer, BufferId, StepOp};

/// Such a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dense {
    rows: Domain,
    /// Where products go, if not to their own rows.
    scatter: Option<Domain>,
    /// The domain that has one matrix for each of its rows.
    matrices: Domain,
    x: BufferId,
    w: BufferId,
    out: BufferId,
    inner: usize,
    columns: usize,
    transposed: bool,
}

impl Dense {
    /// What a launch is, if it is one.
    pub(super) fn of(work: &Work, buffers: &[Buffer]) -> Option<Self> {
        let Work::Product(gemm) = work else { return None };
        let weights = &buffers[gemm.product.w.at()];
        let Shape::Matrix { heads: 1, rows, cols } = weights.shape else { return None };
        let [product, store] = &gemm.body.steps[..] else { return None };
        let (StepOp::Product, StepOp::Store(_, out)) = (&product.op, &store.op) else { return None };
        let (inner, columns) = if gemm.product.transposed { (cols, rows) } else { (rows, cols) };
        let x = &buffers[gemm.product.x.from.at()];
        let is_whole = gemm.product.x.hops.is_empty() && x.domain == gemm.product.rows && x.shape.len() == inner;
        let is_plain = is_whole && gemm.product.scale.is_none();
        is_plain.then_some(Self {
            rows: gemm.product.rows,
            scatter: gemm.scatter,
            matrices: weights.domain,
            x: gemm.product.x.from,
            w: gemm.product.w,
            out: *out,
            inner,
            columns,
            transposed: gemm.product.transposed,
        })
    }

    /// The call that makes it over a graph, where there is one as exact as products should be. `buffers` are all.
    pub(super) fn call(&self, graph: &DeviceGraph, precision: Precision, buffers: &[DeviceRows]) -> Option<Gemm> {
        let element = match precision {
            Precision::F32 => GemmType::F32,
            Precision::Tf32 => GemmType::Tf32,
            // cuBLAS has no products of these numbers that are as exact, or as fast.
            Precision::Tf32x3 | Precision::Bf16 => return None,
        };
        let rows = graph.room(self.rows);
        let is_one = graph.is_fixed && rows > 0 && graph.room(self.matrices) == 1;
        // Products that go to as many other rows, in order, lie as they are made.
        let is_in_order = |to: Domain| {
            let is_same = graph.maps.get(&(self.rows, to, Path::Only)).is_some_and(|map| map[0] == map::SAME);
            is_same && graph.room(to) == rows
        };
        let is_one = is_one && self.scatter.is_none_or(is_in_order);
        if !is_one || buffers[self.x.at()].rows.is_some() || cublas_available().is_err() {
            return None;
        }
        let operand = |buffer: BufferId, row_stride: usize, transposed: bool| GemmOperand {
            span: buffers[buffer.at()].data.clone(),
            row_stride,
            transposed,
            batch_stride: 0,
        };
        let Self { inner, columns, transposed, .. } = *self;
        let w_stride = if transposed { inner } else { columns };
        Some(Gemm {
            element,
            rows,
            columns,
            inner,
            batch: 1,
            a: operand(self.x, inner, false),
            b: operand(self.w, w_stride, transposed),
            c: operand(self.out, columns, false),
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::cuda::{Precision, emit};
    use crate::pass::{Optimisations, Statistics, compile};
    use crate::testing::{Recipe, layer};

    #[test]
    fn products_alone_are_found_in_both_passes() {
        let graph = Recipe::plain(30).graph(2);
        // A bias is added where the product is made, and so is what another product gave.
        for (model, expected) in [("gcn", [0, 1]), ("sage", [1, 1])] {
            let program = layer(model, &[("d_in", 6), ("d_out", 4)], &[]);
            let compiled = compile(&program, &Statistics::of(&graph), Optimisations::ALL).unwrap();
            let found = [&compiled.forward, &compiled.backward].map(|program| {
                let launches = emit(program, Precision::F32).launches;
                launches.iter().filter(|launch| launch.dense.is_some()).count()
            });
            assert_eq!(found, expected, "{model}");
        }
    }
}
