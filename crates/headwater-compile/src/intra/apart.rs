//! Sums of products as other kernels make them: products of each term in memory, and a nest that adds them up. What runs no such sum, or not
//! for vectors of such a length, runs these.

use super::{
    Body, Buffer, BufferId, Gemm, GemmSum, Kernel, Program, Read, Register, Role, RowProduct, Step, StepOp, Traverse,
};
use crate::inter::{Binary, Domain, Path, Reduce, Shape};

/// Columns of sums that a warp makes; as `product_sum.cuh` has it.
const COLUMNS_OF_A_WARP: usize = 32;

impl Program {
    /// The program without sums of products.
    #[must_use]
    pub fn apart(mut self) -> Self {
        if !self.kernels.iter().any(|kernel| matches!(kernel, Kernel::GemmSum(_))) {
            return self;
        }
        let (kernels, schedules) = (std::mem::take(&mut self.kernels), std::mem::take(&mut self.schedules));
        for (at, kernel) in kernels.into_iter().enumerate() {
            match kernel {
                Kernel::GemmSum(sum) => {
                    let parts = sum.apart(&mut |domain, shape| {
                        let (name, role) = ("products".to_owned(), Role::Temporary);
                        self.buffers.push(Buffer { name, domain, shape, role });
                        BufferId::new(self.buffers.len() - 1)
                    });
                    let first = |kernel: &Kernel| super::KernelSchedule::all(kernel)[0];
                    self.schedules.extend(parts.iter().map(first));
                    self.kernels.extend(parts);
                }
                other => {
                    let usual = super::KernelSchedule::all(&other)[0];
                    self.schedules.push(schedules.get(at).copied().unwrap_or(usual));
                    self.kernels.push(other);
                }
            }
        }
        self
    }
}

impl GemmSum {
    /// The shape of a product, and of their sum.
    #[must_use]
    pub fn shape(&self) -> Shape {
        self.body.steps.first().map_or(Shape::SCALAR, |sum| sum.shape)
    }

    /// Columns of sums that a thread block of a GPU has at a time: those of two warps, or of one.
    #[must_use]
    pub fn columns(&self) -> usize {
        if self.width() > COLUMNS_OF_A_WARP { 2 * COLUMNS_OF_A_WARP } else { COLUMNS_OF_A_WARP }
    }

    /// Thread blocks that the same nodes take: all columns of all heads.
    #[must_use]
    pub fn slabs(&self) -> usize {
        self.shape().heads() * self.width().div_ceil(self.columns())
    }

    /// Elements of a head.
    fn width(&self) -> usize {
        self.shape().len() / self.shape().heads().max(1)
    }

    /// Kernels that do the same, with buffers that `temporary` makes.
    pub fn apart(&self, temporary: &mut dyn FnMut(Domain, Shape) -> BufferId) -> Vec<Kernel> {
        let shape = self.shape();
        let mut kernels = Vec::with_capacity(self.terms.len() + 1);
        let mut made = |product: &RowProduct| {
            let scatter = (product.rows != self.to && !matches!(product.rows, Domain::Pair(_))).then_some(self.to);
            let rows = scatter.unwrap_or(product.rows);
            let (to, mut body) = (temporary(rows, shape), Body::default());
            let own = body.push(0, shape, StepOp::Product);
            body.push(0, shape, StepOp::Store(own, to));
            kernels.push(Kernel::Gemm(Gemm { product: product.clone(), scatter, body }));
            (rows, Read { from: to, hops: Vec::new() })
        };
        let products: Vec<(Domain, Read)> = self.terms.iter().map(&mut made).collect();
        let inner = products.iter().map(|(rows, _)| *rows).find(|rows| *rows != self.to);
        let mut body = Body::default();
        let own = products.into_iter().map(|(rows, read)| match rows == self.to {
            true => body.push(0, shape, StepOp::Load(read)),
            false => {
                let product = body.push(1, shape, StepOp::Load(read));
                body.push(0, shape, StepOp::Reduce(Reduce::Sum, product))
            }
        });
        let own: Vec<Register> = own.collect();
        let add = |sum: Register, term: Register| body.push(0, shape, StepOp::Binary(Binary::Add, sum, term));
        let Some(sum) = own.into_iter().reduce(add) else { return kernels };
        let behind = |register: Register| if register.at() == 0 { sum } else { register.after(sum.0) };
        let rest = self.body.steps.iter().skip(1);
        body.steps.extend(rest.map(|step| Step { op: step.op.clone().with_registers(behind), ..step.clone() }));
        let nest = std::iter::once(self.to).chain(inner).collect();
        kernels.push(Kernel::Traverse(Traverse { nest, path: Path::Only, body }));
        kernels
    }
}
