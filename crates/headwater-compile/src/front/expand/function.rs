//! The functions of the language: what layers compute with, row by row.

use super::Expand;
use super::argument::arguments;
use super::meaning::{Meaning, Weight};
use crate::front::fault::{Outcome, Span};
use crate::front::known::OptionValue;
use crate::front::surface::Call;
use crate::inter::{Binary, Domain, Shape, Side, Unary, ValueId};

/// Every function with its parameters, and how many of those must be given. `concat` takes any number.
const FUNCTIONS: [(&str, &[&str], usize); 29] = [
    ("linear", &["x", "W"], 2),
    ("transpose", &["W"], 1),
    ("dot", &["x", "y"], 2),
    ("concat", &[], 0),
    ("exp", &["x"], 1),
    ("log", &["x"], 1),
    ("relu", &["x"], 1),
    ("leaky_relu", &["x", "slope"], 1),
    ("elu", &["x", "a"], 1),
    ("sigmoid", &["x"], 1),
    ("tanh", &["x"], 1),
    ("gelu", &["x"], 1),
    ("sqrt", &["x"], 1),
    ("rsqrt", &["x"], 1),
    ("abs", &["x"], 1),
    ("maximum", &["x", "y"], 2),
    ("minimum", &["x", "y"], 2),
    ("edge_softmax", &["v", "by"], 1),
    ("dropout", &["v", "p"], 2),
    ("reshape", &["v", "heads", "width"], 3),
    ("flatten", &["v"], 1),
    ("sum_heads", &["v"], 1),
    ("mean_heads", &["v"], 1),
    ("sum_width", &["v"], 1),
    ("mean_width", &["v"], 1),
    ("sum", &["v"], 1),
    ("mean", &["v"], 1),
    ("max", &["v"], 1),
    ("relation_mean", &["v"], 1),
];

/// What an argument means, and its place.
type Argument = (Meaning, Span);

/// A function of a number that is known.
type OfNumber = fn(f64) -> f64;

impl<'a> Expand<'a> {
    /// A call of a function that is not the text's.
    pub fn builtin_call(&mut self, name: &str, call: &'a Call, at: Span) -> Outcome<Meaning> {
        let Some((_, parameters, required)) = FUNCTIONS.iter().find(|(known, ..)| *known == name) else {
            let known: Vec<&str> = FUNCTIONS.iter().map(|(known, ..)| *known).collect();
            let why = format!("there is no function `{name}`; there are {}", known.join(", "));
            return Err(call.function.at.fault(why));
        };
        if name == "concat" {
            return self.concat(call, at);
        }
        let given = arguments(call, parameters, *required, at)?;
        if let (Some(how), [Some(each)]) = (super::aggregate::how(name), &given[..]) {
            return self.aggregate(how, each, at);
        }
        let mut meanings = Vec::with_capacity(given.len());
        for argument in given {
            meanings.push(argument.map(|e| Ok((self.expression(e)?, e.at))).transpose()?);
        }
        self.apply(name, &meanings, at)
    }

    /// One function. What must be given is there.
    fn apply(&mut self, name: &str, given: &[Option<Argument>], at: Span) -> Outcome<Meaning> {
        match (name, given) {
            ("linear", [Some(x), Some(w)]) => self.linear((&x.0, x.1), (&w.0, w.1), at),
            ("transpose", [Some((w, w_at))]) => {
                let weight = self.matrix(w, *w_at)?;
                Ok(Meaning::Weight(Weight { is_transposed: !weight.is_transposed, ..weight }))
            }
            ("dot", [Some(x), Some(y)]) => {
                let (x, y) = (self.rows(&x.0, x.1)?, self.rows(&y.0, y.1)?);
                let product = self.builder.dot(x, y);
                self.built(product, at).map(Meaning::Rows)
            }
            ("leaky_relu", [Some(x), slope]) => self.with_number(Unary::LeakyRelu, x, slope.as_ref(), 0.01),
            ("elu", [Some(x), a]) => self.with_number(Unary::Elu, x, a.as_ref(), 1.0),
            ("maximum", [Some(x), Some(y)]) => self.larger(Binary::Max, x, y, at),
            ("minimum", [Some(x), Some(y)]) => self.larger(Binary::Min, x, y, at),
            ("edge_softmax", [Some(v), by]) => self.edge_softmax(v, by.as_ref(), at),
            ("dropout", [Some(v), Some(p)]) => self.dropout(v, p),
            ("reshape", [Some(v), Some(heads), Some(width)]) => {
                let v = self.rows(&v.0, v.1)?;
                let (heads, width) = (self.size(&heads.0, heads.1)?, self.size(&width.0, width.1)?);
                self.reshape(v, heads, width, at)
            }
            ("flatten", [Some(v)]) => {
                let v = self.rows(&v.0, v.1)?;
                self.reshape(v, 1, self.shape(v).len(), at)
            }
            ("sum_heads" | "mean_heads" | "sum_width" | "mean_width", [Some(v)]) => {
                let v = self.rows(&v.0, v.1)?;
                self.over_elements(name, v, at)
            }
            (_, [Some(x)]) => self.elementwise(name, x, at),
            _ => Err(at.fault(format!("expected other arguments of `{name}`"))),
        }
    }

    fn concat(&mut self, call: &'a Call, at: Span) -> Outcome<Meaning> {
        let ([first, rest @ ..], []) = (&call.arguments[..], &call.keywords[..]) else {
            return Err(at.fault("expected values to join: concat(a, b)"));
        };
        let mut joined = self.value(first)?;
        for part in rest {
            let part = self.value(part)?;
            let both = self.builder.concat(joined, part);
            joined = self.built(both, at)?;
        }
        Ok(Meaning::Rows(joined))
    }

    /// A function of every element. Of a number that is known, it is known too.
    fn elementwise(&mut self, name: &str, (x, x_at): &Argument, at: Span) -> Outcome<Meaning> {
        let (f, known): (Unary, Option<OfNumber>) = match name {
            "exp" => (Unary::Exp, Some(f64::exp)),
            "log" => (Unary::Log, Some(f64::ln)),
            "sqrt" => (Unary::Sqrt, Some(f64::sqrt)),
            "rsqrt" => (Unary::Rsqrt, Some(|x| 1.0 / x.sqrt())),
            "abs" => (Unary::Abs, Some(f64::abs)),
            "relu" => (Unary::Relu, None),
            "sigmoid" => (Unary::Sigmoid, None),
            "tanh" => (Unary::Tanh, None),
            "gelu" => (Unary::Gelu, None),
            _ => return Err(at.fault(format!("there is no function `{name}` of one value"))),
        };
        if let (Meaning::Known(_), Some(known)) = (x, known) {
            let number = known(self.number(x, *x_at)?);
            if !number.is_finite() {
                return Err(at.fault(format!("{} is no finite number", self.source.quote(at))));
            }
            return Ok(Meaning::Known(OptionValue::Float(number)));
        }
        let x = self.rows(x, *x_at)?;
        Ok(Meaning::Rows(self.builder.unary(f, x)))
    }

    /// A function of every element and of a number, which has a default.
    fn with_number(
        &mut self,
        f: fn(f64) -> Unary,
        x: &Argument,
        number: Option<&Argument>,
        default: f64,
    ) -> Outcome<Meaning> {
        let number = number.map(|(number, at)| self.number(number, *at)).transpose()?.unwrap_or(default);
        let x = self.rows(&x.0, x.1)?;
        Ok(Meaning::Rows(self.builder.unary(f(number), x)))
    }

    fn larger(&mut self, f: Binary, x: &Argument, y: &Argument, at: Span) -> Outcome<Meaning> {
        let (x, y) = (self.rows(&x.0, x.1)?, self.rows(&y.0, y.1)?);
        let value = self.builder.binary(f, x, y);
        self.built(value, at).map(Meaning::Rows)
    }

    /// Exponentials that add up to 1 over the edges into a node, or over those of one type into it.
    fn edge_softmax(&mut self, v: &Argument, by: Option<&Argument>, at: Span) -> Outcome<Meaning> {
        let by = match by {
            None => Domain::DST,
            Some((Meaning::Known(OptionValue::Text(word)), _)) if word == "dst" => Domain::DST,
            Some((Meaning::Known(OptionValue::Text(word)), _)) if word == "etype" => Domain::Pair(Side::Dst),
            Some((_, by_at)) => return Err(by_at.fault("expected by=\"dst\" or by=\"etype\"")),
        };
        if self.here != Domain::Edge {
            return Err(at.fault("edge_softmax is over edges; expected a loop over edges around it"));
        }
        let v = self.rows(&v.0, v.1)?;
        let v = self.lift_here(v, at)?;
        let softmax = self.builder.softmax(v, by);
        self.built(softmax, at).map(Meaning::Rows)
    }

    fn dropout(&mut self, v: &Argument, p: &Argument) -> Outcome<Meaning> {
        let probability = self.number(&p.0, p.1)?;
        if !(0.0..1.0).contains(&probability) {
            return Err(p.1.fault(format!("expected a probability from 0 to below 1, found {probability:?}")));
        }
        let v = self.rows(&v.0, v.1)?;
        if probability == 0.0 {
            return Ok(Meaning::Rows(v));
        }
        let key = self.dropouts;
        self.dropouts += 1;
        Ok(Meaning::Rows(self.builder.dropout(v, probability, key)))
    }

    fn reshape(&mut self, v: ValueId, heads: usize, width: usize, at: Span) -> Outcome<Meaning> {
        let found = self.shape(v);
        if !matches!(heads.checked_mul(width), Some(numbers) if numbers == found.len()) {
            return Err(at.fault(format!("{found} has not as many elements as [{heads}, {width}]")));
        }
        let value = self.builder.reshape(v, Shape::Row { heads, width });
        self.built(value, at).map(Meaning::Rows)
    }

    /// Sums and means over heads or over the elements of each.
    #[expect(clippy::cast_precision_loss, reason = "sizes are below 2^32")]
    fn over_elements(&mut self, name: &str, v: ValueId, at: Span) -> Outcome<Meaning> {
        let Shape::Row { heads, width } = self.shape(v) else { return Err(at.fault("expected a vector")) };
        let is_heads = name.ends_with("heads");
        let sum = if is_heads { self.builder.sum_heads(v) } else { self.builder.sum_width(v) };
        let sum = self.built(sum, at)?;
        let count = if is_heads { heads } else { width };
        if name.starts_with("sum") || count == 1 {
            return Ok(Meaning::Rows(sum));
        }
        let count = self.builder.constant(count as f64);
        let mean = self.builder.binary(Binary::Div, sum, count);
        self.built(mean, at).map(Meaning::Rows)
    }
}
