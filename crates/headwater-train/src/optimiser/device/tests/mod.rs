//! Steps on the device against steps on the host.

use headwater_cuda::Graph;

use super::super::{Adam, Group, Optimiser, Rule, Sgd};
use super::*;
use crate::clip::clip;
use crate::device::testing::{download, stream, ulps, upload};
use crate::gradient::Gradient;
use crate::parameter::{Parameter, Parameters};

const RULES: [Rule; 5] = [
    Rule::Sgd(Sgd { momentum: 0.0, nesterov: false }),
    Rule::Sgd(Sgd { momentum: 0.9, nesterov: false }),
    Rule::Sgd(Sgd { momentum: 0.9, nesterov: true }),
    Rule::Adam(Adam { beta1: 0.8, beta2: 0.95, epsilon: 1e-6 }),
    Rule::AdamW(Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8 }),
];
/// Lengths of parameters, which decays alternate over. One is empty, one needs more blocks than one.
const LENGTHS: [usize; 5] = [3, 0, 1000, 1, 257];
const RATES: [f64; 5] = [0.1, 0.1, 0.05, 0.02, 0.3];

fn number(seed: usize, at: usize) -> f32 {
    ((at * 7919 + seed * 104_729) % 2003) as f32 / 500.0 - 2.0
}

/// The same parameters on both sides.
struct Both {
    host: Optimiser,
    parameters: Parameters,
    device: DeviceOptimiser,
    values: Span,
}

impl Both {
    fn new(stream: &Stream, rule: Rule, most_norm: Option<f64>) -> Self {
        let groups = [Group { decay: 0.01 }, Group::default(), Group { decay: 0.5 }];
        let (mut parameters, mut segments, mut start) = (Parameters::new(), Vec::new(), 0);
        for (at, length) in LENGTHS.into_iter().enumerate() {
            let values = (0..length).map(|i| number(at, i)).collect();
            let group = at % groups.len();
            parameters.push(Parameter { name: format!("p{at}"), shape: vec![length], values, group }).unwrap();
            segments.push(Segment { start: start as u64, decay: groups[group].decay });
            start += length;
        }
        let host = Optimiser::new(rule, &groups, &parameters).unwrap();
        let device = DeviceOptimiser::new(stream, Settings { rule, most_norm }, &segments, start).unwrap();
        let flat: Vec<f32> = parameters.iter().flat_map(|parameter| parameter.values.clone()).collect();
        Self { host, parameters, device, values: upload(stream, &flat) }
    }

    fn gradients(step: usize) -> Vec<Gradient> {
        let of = |(at, length): (usize, usize)| (0..length).map(|i| number(31 * step + at + 7, i)).collect();
        LENGTHS.into_iter().enumerate().map(of).map(Gradient::Dense).collect()
    }

    /// The largest distance between the two sides.
    fn apart(&self, stream: &Stream) -> u64 {
        let flat = self.parameters.iter().flat_map(|parameter| parameter.values.clone());
        let found = download::<f32>(stream, &self.values, LENGTHS.iter().sum());
        flat.zip(found).map(|(host, device)| ulps(host, device)).max().unwrap_or(0)
    }
}

fn flat(gradients: &[Gradient]) -> Vec<f32> {
    gradients.iter().flat_map(|gradient| gradient.values().to_vec()).collect()
}

#[test]
fn five_steps_of_every_rule_are_the_hosts() {
    let Some(stream) = stream() else { return };
    for rule in RULES {
        for most_norm in [None, Some(3.0), Some(1e6)] {
            let mut both = Both::new(&stream, rule, most_norm);
            for (step, rate) in RATES.into_iter().enumerate() {
                let mut gradients = Both::gradients(step);
                let gradient = upload(&stream, &flat(&gradients));
                both.device.announce(&stream, rate, step as u64 + 1).unwrap();
                both.device.step(&stream, Arrays { values: &both.values, gradient: &gradient }).unwrap();
                let norm = clip(&mut gradients, most_norm.unwrap_or(f64::INFINITY));
                both.host.step(&mut both.parameters, &gradients, rate).unwrap();
                let found = download::<f64>(&stream, both.device.norm(), 1)[0];
                assert!((found / norm - 1.0).abs() < 1e-12, "{rule:?}: {found} {norm}");
                let most_apart = if most_norm == Some(3.0) { 8 } else { 0 };
                let apart = both.apart(&stream);
                assert!(apart <= most_apart, "{rule:?} {most_norm:?}: {apart} ulps after step {step}");
            }
        }
    }
}

/// What was recorded once takes every step, with the numbers that were announced.
#[test]
fn steps_can_be_recorded_and_their_memory_moves() {
    let Some(stream) = stream() else { return };
    for rule in RULES {
        let mut both = Both::new(&stream, rule, None);
        let gradient = upload(&stream, &flat(&Both::gradients(0)));
        let mut recorded: Option<Graph> = None;
        for (step, rate) in RATES.into_iter().enumerate() {
            let gradients = Both::gradients(step);
            stream.upload(bytemuck::cast_slice(&flat(&gradients)), &gradient).unwrap();
            both.device.announce(&stream, rate, step as u64 + 1).unwrap();
            let arrays = Arrays { values: &both.values, gradient: &gradient };
            match &mut recorded {
                Some(graph) => graph.launch(&stream).unwrap(),
                None => both.device.step(&stream, arrays).unwrap(),
            }
            let again = |stream: &Stream| both.device.step(stream, arrays);
            recorded = recorded.or_else(|| Some(Graph::capture(&stream, again).unwrap()));
            both.host.step(&mut both.parameters, &gradients, rate).unwrap();
            assert_eq!(both.apart(&stream), 0, "{rule:?} after step {step}");
        }
        let mut saved = Both::new(&stream, rule, None);
        both.device.save(&stream, &mut saved.host).unwrap();
        saved.host.set_steps(5);
        assert_eq!(saved.host, both.host, "{rule:?}");
        saved.device.load(&stream, &both.host).unwrap();
        let mut again = Both::new(&stream, rule, None).host;
        saved.device.save(&stream, &mut again).unwrap();
        again.set_steps(5);
        assert_eq!(again, both.host, "{rule:?}");
    }
}

#[test]
fn gradients_without_a_norm_change_nothing() {
    let Some(stream) = stream() else { return };
    for (rule, bad) in RULES.into_iter().zip([f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::INFINITY]) {
        let both = Both::new(&stream, rule, Some(1.0));
        let mut gradient = flat(&Both::gradients(0));
        gradient[500] = bad;
        let gradient = upload(&stream, &gradient);
        both.device.announce(&stream, 0.1, 1).unwrap();
        both.device.step(&stream, Arrays { values: &both.values, gradient: &gradient }).unwrap();
        assert_eq!(both.apart(&stream), 0);
        assert!(!download::<f64>(&stream, both.device.norm(), 1)[0].is_finite());
        let mut saved = both.host.clone();
        both.device.save(&stream, &mut saved).unwrap();
        assert!(saved.arrays().all(|array| array.values.iter().all(|value| *value == 0.0)));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(stream) = stream() else { return };
    let settings = Settings { rule: RULES[3], most_norm: None };
    let segment = |start| Segment { start, decay: 0.0 };
    for (segments, count) in [
        (vec![], 1),
        (vec![segment(1)], 4),
        (vec![segment(0), segment(3), segment(2)], 4),
        (vec![segment(0), segment(5)], 4),
    ] {
        let said = DeviceOptimiser::new(&stream, settings, &segments, count).unwrap_err().to_string();
        assert!(said.contains("segments is [") && said.contains(&format!("up to {count}")), "{said}");
    }
    let nothing = DeviceOptimiser::new(&stream, settings, &[], 0).unwrap();
    let empty = upload::<f32>(&stream, &[]);
    nothing.announce(&stream, 0.1, 1).unwrap();
    nothing.step(&stream, Arrays { values: &empty, gradient: &empty }).unwrap();
    assert_eq!(download::<f64>(&stream, nothing.norm(), 1), [0.0]);
    let short = DeviceOptimiser::new(&stream, settings, &[segment(0)], 4).unwrap();
    assert!(short.step(&stream, Arrays { values: &empty, gradient: &empty }).is_err());
    let mut other = Both::new(&stream, RULES[0], None);
    let said = short.save(&stream, &mut other.host).unwrap_err().to_string();
    assert!(said.contains("Sgd") && said.contains("Adam"), "{said}");
}
