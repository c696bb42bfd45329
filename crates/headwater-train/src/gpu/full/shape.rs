//! What a step over the whole graph touches, and when: numbers alone.

use headwater_offload::plan::{FixedBuffer, FixedStep};

use crate::gpu::step_memory::StepOp;

/// A buffer that the forward pass of a layer makes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct MadeShape {
    pub name: String,
    pub bytes: usize,
    /// Whether the backward pass of the layer reads it.
    pub is_read_back: bool,
    /// Whether it is read once more when the whole backward pass is over.
    pub is_read_last: bool,
}

/// Memory and time of one layer.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct LayerShape {
    pub made: Vec<MadeShape>,
    /// The gradient of what it makes.
    pub slope_bytes: usize,
    /// Whether its passes read what the layer below makes.
    pub reads_input: bool,
    pub reads_input_back: bool,
    pub forward_temporary_bytes: usize,
    pub backward_temporary_bytes: usize,
    pub forward_s: f64,
    pub backward_s: f64,
}

/// Which buffer of a step it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BufferKey {
    Made { layer: usize, name: String },
    Slope(usize),
    Temporaries,
}

/// The output that the layer above reads.
pub(crate) const OUT: &str = "out";
/// A program without temporary buffers is given these bytes all the same.
const LEAST_BYTES: usize = 16;

/// The operations of a step in which these layers are computed twice, the buffers that they touch, and which those are. Buffers below
/// `smallest` bytes never leave.
pub(crate) fn fixed_step(
    layers: &[LayerShape],
    recomputed: &[usize],
    smallest: usize,
) -> (Vec<StepOp>, Vec<BufferKey>, FixedStep) {
    let ops = StepOp::all(layers.len(), recomputed);
    let seconds = |op: &StepOp| match *op {
        StepOp::Forward(at) | StepOp::Recompute(at) => layers[at].forward_s,
        StepOp::Backward(at) => layers[at].backward_s,
        StepOp::Loss => 0.0,
    };
    let mut found = Buffers { ops: &ops, layers, smallest, keys: Vec::new(), all: Vec::new() };
    for (at, layer) in layers.iter().enumerate() {
        layer.made.iter().for_each(|made| found.made(at, made));
        found.slope(at, layer.slope_bytes);
    }
    found.temporaries();
    let (keys, buffers) = (found.keys, found.all);
    let step = FixedStep { op_s: ops.iter().map(seconds).collect(), buffers };
    (ops, keys, step)
}

struct Buffers<'a> {
    ops: &'a [StepOp],
    layers: &'a [LayerShape],
    smallest: usize,
    keys: Vec<BufferKey>,
    all: Vec<FixedBuffer>,
}

impl Buffers<'_> {
    fn place(&self, op: StepOp) -> usize {
        self.ops.iter().position(|own| *own == op).unwrap_or(self.ops.len() - 1)
    }

    /// A buffer lives from each operation that writes it to the last one that reads what was written.
    fn made(&mut self, at: usize, made: &MadeShape) {
        let above = self.layers.get(at + 1);
        let is_out = made.name == OUT;
        let touches = |op: &StepOp| match *op {
            StepOp::Forward(of) | StepOp::Recompute(of) if of == at => Some(true),
            StepOp::Forward(of) | StepOp::Recompute(of) if of == at + 1 => {
                (is_out && above.is_some_and(|above| above.reads_input)).then_some(false)
            }
            StepOp::Loss => (is_out && above.is_none()).then_some(false),
            _ if made.is_read_last && self.ops.last() == Some(op) => Some(false),
            StepOp::Backward(of) if of == at => made.is_read_back.then_some(false),
            StepOp::Backward(of) if of == at + 1 => {
                (is_out && above.is_some_and(|above| above.reads_input_back)).then_some(false)
            }
            _ => None,
        };
        let mut lives: Vec<Vec<usize>> = Vec::new();
        for (place, op) in self.ops.iter().enumerate() {
            match (touches(op), lives.last_mut()) {
                (Some(true), _) | (Some(false), None) => lives.push(vec![place]),
                (Some(false), Some(life)) => life.push(place),
                (None, _) => {}
            }
        }
        for life in lives {
            self.add(BufferKey::Made { layer: at, name: made.name.clone() }, made.bytes, &life, true);
        }
    }

    fn slope(&mut self, at: usize, bytes: usize) {
        let first = if at + 1 == self.layers.len() { StepOp::Loss } else { StepOp::Backward(at + 1) };
        let life = [self.place(first), self.place(StepOp::Backward(at))];
        self.add(BufferKey::Slope(at), bytes, &life, false);
    }

    fn temporaries(&mut self) {
        for place in 0..self.ops.len() {
            let Some(layer) = self.ops[place].layer().map(|at| &self.layers[at]) else { continue };
            let bytes = match self.ops[place] {
                StepOp::Backward(_) => layer.backward_temporary_bytes,
                _ => layer.forward_temporary_bytes,
            };
            self.add(BufferKey::Temporaries, bytes, &[place], false);
        }
    }

    fn add(&mut self, key: BufferKey, bytes: usize, touched: &[usize], may_leave: bool) {
        let (Some(first), Some(last)) = (touched.first(), touched.last()) else { return };
        let loss = self.place(StepOp::Loss);
        let longest = touched.windows(2).map(|two| (two[0], two[1])).max_by_key(|(before, after)| after - before);
        // What is not needed again in the forward pass has the backward pass to come back in.
        let has_time = |(before, after): &(usize, usize)| *after > loss && *after > before + 1;
        let gap = longest.filter(|gap| may_leave && bytes >= self.smallest && has_time(gap));
        self.keys.push(key);
        self.all.push(FixedBuffer { bytes: bytes.max(LEAST_BYTES) as u64, first: *first, last: *last, gap });
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub fn layer(saved: usize, out: usize, seconds: f64) -> LayerShape {
        let made = |name: &str, bytes| MadeShape {
            name: name.to_owned(),
            bytes,
            is_read_back: name != OUT,
            is_read_last: false,
        };
        LayerShape {
            made: vec![made("saved", saved), made(OUT, out)],
            slope_bytes: out,
            reads_input: true,
            reads_input_back: true,
            forward_temporary_bytes: 64,
            backward_temporary_bytes: 128,
            forward_s: seconds,
            backward_s: 2.0 * seconds,
        }
    }

    #[test]
    fn buffers_live_from_where_they_are_written_to_where_they_are_read() {
        let layers = vec![layer(1000, 100, 1.0); 3];
        let (ops, keys, step) = fixed_step(&layers, &[], 500);
        assert_eq!((ops.len(), step.op_s.iter().sum::<f64>()), (7, 9.0));
        let of = |layer: usize, name: &str| {
            let key = BufferKey::Made { layer, name: name.to_owned() };
            let at = keys.iter().position(|own| *own == key).unwrap();
            let FixedBuffer { first, last, gap, .. } = step.buffers[at];
            (first, last, gap)
        };
        assert_eq!(of(0, "saved"), (0, 6, Some((0, 6))));
        // Read by the layer above in both passes; too short to leave.
        assert_eq!(of(0, OUT), (0, 5, None));
        assert_eq!(of(2, OUT), (2, 3, None));
        let slope = keys.iter().position(|own| *own == BufferKey::Slope(1)).unwrap();
        assert_eq!((step.buffers[slope].first, step.buffers[slope].last), (4, 5));
    }

    #[test]
    fn what_is_read_behind_the_backward_pass_lives_until_then() {
        let mut layers = vec![layer(1000, 100, 1.0); 3];
        layers[2].made[0] = MadeShape { is_read_last: true, ..layers[2].made[0].clone() };
        let last = |recomputed: &[usize]| {
            let (ops, keys, step) = fixed_step(&layers, recomputed, 5000);
            let is_it = |key: &BufferKey| matches!(key, BufferKey::Made { layer: 2, name } if name == "saved");
            let lives = keys.iter().zip(&step.buffers).filter(|(key, _)| is_it(key));
            (ops.len() - 1, lives.map(|(_, own)| (own.first, own.last)).collect::<Vec<_>>())
        };
        assert_eq!(last(&[]), (6, vec![(2, 6)]));
        assert_eq!(last(&[2]), (7, vec![(2, 2), (4, 7)]), "as it was computed the second time");
    }

    #[test]
    fn what_is_computed_twice_lives_twice() {
        let layers = vec![layer(1000, 600, 1.0); 2];
        let (ops, keys, step) = fixed_step(&layers, &[0], 500);
        assert_eq!(ops[3..], [StepOp::Backward(1), StepOp::Recompute(0), StepOp::Backward(0)]);
        let of = |name: &str| {
            let key = BufferKey::Made { layer: 0, name: name.to_owned() };
            let own = keys.iter().zip(&step.buffers).filter(|(own, _)| **own == key);
            own.map(|(_, own)| (own.first, own.last, own.gap)).collect::<Vec<_>>()
        };
        assert_eq!(of("saved"), [(0, 0, None), (4, 5, None)]);
        assert_eq!(of(OUT), [(0, 3, Some((1, 3))), (4, 4, None)]);
    }
}
