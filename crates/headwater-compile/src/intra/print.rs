//! A program of kernels as text, for people and golden files.

use std::fmt::Write;

use super::{Body, BufferId, Kernel, Library, Program, Read, Role, RowProduct, Step, StepOp};
use crate::inter::text::{binary_name, reduce_name, unary_name};
use crate::inter::{Domain, Path, Side};

/// The program: buffers, then kernels with their bodies.
#[must_use]
pub fn print(program: &Program) -> String {
    let mut text = format!("kernels {}\n", program.name);
    for (at, buffer) in program.buffers.iter().enumerate() {
        let role = match buffer.role {
            Role::Input => "input",
            Role::Parameter => "parameter",
            Role::Temporary => "temporary",
            Role::Output => "output",
        };
        let _ = writeln!(text, "b{at} : {} {} {role} {}", buffer.domain, buffer.shape, buffer.name);
    }
    for kernel in &program.kernels {
        print_kernel(&mut text, kernel);
    }
    text
}

/// The first line of a kernel: what it is, and over which rows.
#[must_use]
pub fn headline(kernel: &Kernel) -> String {
    let mut text = String::new();
    print_kernel(&mut text, kernel);
    text.lines().next().unwrap_or_default().to_owned()
}

fn print_kernel(text: &mut String, kernel: &Kernel) {
    match kernel {
        Kernel::Gemm(gemm) => {
            let to = gemm.scatter.map_or_else(String::new, |to| format!(" to {to}"));
            let _ = writeln!(text, "gemm over {}{to}: {}", gemm.product.rows, product(&gemm.product));
            print_body(text, &gemm.body);
        }
        Kernel::GemmSum(sum) => {
            let term = |term: &RowProduct| format!("{}: {}", term.rows, product(term));
            let terms: Vec<String> = sum.terms.iter().map(term).collect();
            let _ = writeln!(text, "sum over {} of products over {}", sum.to, terms.join(", "));
            print_body(text, &sum.body);
        }
        Kernel::Outer(outer) => {
            let (x, y) = (read(&outer.x), read(&outer.y));
            let _ = writeln!(text, "outer over {}: {} = {x} x {y}{}", outer.rows, buffer(outer.to), via(outer.path));
        }
        Kernel::Traverse(traverse) => {
            let nest: Vec<String> = traverse.nest.iter().map(Domain::to_string).collect();
            let _ = writeln!(text, "traverse over {}{}", nest.join(" > "), via(traverse.path));
            print_body(text, &traverse.body);
        }
        Kernel::Library(Library::Product { a, b, to }) => {
            let side =
                |(from, transposed): &(Read, bool)| format!("{}{}", read(from), if *transposed { "'" } else { "" });
            let _ = writeln!(text, "library: {} = product {} {}", buffer(*to), side(a), side(b));
        }
    }
}

fn product(RowProduct { x, scale, w, transposed, path, .. }: &RowProduct) -> String {
    let scale = scale.as_ref().map_or_else(String::new, |scale| format!(" scaled by {}", read(scale)));
    format!("{}{scale} x {}{}{}", read(x), buffer(*w), if *transposed { "'" } else { "" }, via(*path))
}

fn print_body(text: &mut String, body: &Body) {
    for (at, step) in body.steps.iter().enumerate() {
        let indent = "  ".repeat(step.level + 1);
        let _ = match &step.op {
            StepOp::Store(x, to) => writeln!(text, "{indent}{} = r{}", buffer(*to), x.at()),
            _ => writeln!(text, "{indent}r{at} {} = {}", step.shape, op(step)),
        };
    }
}

fn op(step: &Step) -> String {
    match &step.op {
        StepOp::Product => "product".to_owned(),
        StepOp::Load(from) => read(from),
        StepOp::Constant(number) => format!("{number:?}"),
        StepOp::Unary(f, x) => format!("{} r{}", unary_name(*f), x.at()),
        StepOp::Binary(f, x, y) => format!("{} r{} r{}", binary_name(*f), x.at(), y.at()),
        StepOp::Dot(x, y) => format!("dot r{} r{}", x.at(), y.at()),
        StepOp::Concat(x, y) => format!("concat r{} r{}", x.at(), y.at()),
        StepOp::Slice(x, from) => format!("slice r{} from {from}", x.at()),
        StepOp::Pad(x, from) => format!("pad r{} from {from}", x.at()),
        StepOp::Reshape(x) => format!("reshape r{}", x.at()),
        StepOp::Expand(x) => format!("expand r{}", x.at()),
        StepOp::SumHeads(x) => format!("sum_heads r{}", x.at()),
        StepOp::SumWidth(x) => format!("sum_width r{}", x.at()),
        StepOp::Dropout { x, probability, key } => format!("dropout r{} {probability:?} key {key}", x.at()),
        StepOp::Spread(x) => format!("spread r{}", x.at()),
        StepOp::Reduce(how, x) => format!("reduce {} r{}", reduce_name(*how), x.at()),
        StepOp::Softmax { x, over } => format!("softmax r{} over level {over}", x.at()),
        StepOp::Store(x, to) => format!("store r{} {}", x.at(), buffer(*to)),
    }
}

fn buffer(id: BufferId) -> String {
    format!("b{}", id.at())
}

fn read(read: &Read) -> String {
    let hops: Vec<String> = read.hops.iter().map(|hop| format!("{}{}", hop.to, via(hop.path))).collect();
    if hops.is_empty() { buffer(read.from) } else { format!("{}[{}]", buffer(read.from), hops.join("][")) }
}

fn via(path: Path) -> &'static str {
    match path {
        Path::Only => "",
        Path::By(Side::Src) => " via src",
        Path::By(Side::Dst) => " via dst",
    }
}
