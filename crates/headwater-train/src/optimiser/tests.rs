//! Against what torch 2.2 computes for the same gradients, and against itself: threads, pieces, states.

use super::*;

const START: [f32; 4] = [0.5, -1.25, 2.0, 0.0078125];
const GRADIENTS: [[f32; 4]; 4] =
    [[0.1, -0.2, 0.3, 1e-4], [0.05, 0.4, -0.3, 2e-4], [-1.0, 0.25, 0.0, -3e-4], [0.7, -0.6, 0.5, 1e-3]];
const RATES: [f64; 4] = [0.1, 0.1, 0.05, 0.02];

const MOMENTUM: Sgd = Sgd { momentum: 0.9, nesterov: false };
const NESTEROV: Sgd = Sgd { momentum: 0.9, nesterov: true };
const SLOW: Adam = Adam { beta1: 0.8, beta2: 0.95, epsilon: 1e-3 };

fn parameters(values: &[f32]) -> Parameters {
    let mut all = Parameters::new();
    let (name, shape) = ("w".to_owned(), vec![values.len()]);
    all.push(Parameter { name, shape, values: values.to_vec(), group: 0 }).unwrap();
    all
}

fn dense(values: &[f32]) -> Gradient {
    Gradient::Dense(values.to_vec())
}

fn optimiser(rule: Rule, decay: f64, parameters: &Parameters) -> Optimiser {
    Optimiser::new(rule, &[Group { decay }], parameters).unwrap()
}

/// The values after each of the four steps, printed by torch.
#[test]
#[rustfmt::skip]
fn every_rule_is_torchs() {
    let adam = Adam::default();
    let cases: [(Rule, f64, [[f64; 4]; 4]); 8] = [
        (Rule::Sgd(Sgd::default()), 0.0, [
            [0.490_000_01, -1.230_000_0, 1.970_000_0, 0.007_802_5],
            [0.485_000_01, -1.269_999_98, 2.0, 0.007_782_5],
            [0.535_000_03, -1.282_500_03, 2.0, 0.007_797_5],
            [0.521_000_03, -1.270_500_06, 1.990_000_01, 0.007_777_5],
        ]),
        (Rule::Sgd(Sgd::default()), 0.01, [
            [0.489_499_99, -1.228_749_99, 1.968_000_05, 0.007_794_687_5],
            [0.484_010_49, -1.267_521_26, 1.996_032_0, 0.007_766_892_7],
            [0.533_768_48, -1.279_387_47, 1.995_033_98, 0.007_778_009_4],
            [0.519_661_72, -1.267_131_57, 1.984_635, 0.007_756_453_9],
        ]),
        (Rule::Sgd(MOMENTUM), 0.01, [
            [0.489_499_99, -1.228_749_99, 1.968_000_05, 0.007_794_687_5],
            [0.474_560_5, -1.248_396_28, 1.967_232_11, 0.007_750_861_8],
            [0.517_600_42, -1.269_112_94, 1.965_902_92, 0.007_742_264_8],
            [0.518_991_29, -1.264_317_15, 1.955_031_28, 0.007_717_621_5],
        ]),
        (Rule::Sgd(NESTEROV), 0.01, [
            [0.480_05, -1.209_625_01, 1.939_200_04, 0.007_778_656_2],
            [0.461_132_91, -1.266_114_23, 1.966_595_53, 0.007_711_448_7],
            [0.549_648_17, -1.296_625_85, 1.964_427_83, 0.007_714_879_7],
            [0.536_787_81, -1.280_045_27, 1.944_254_99, 0.007_671_171_3],
        ]),
        (Rule::Adam(adam), 0.0, [
            [0.400_000_01, -1.149_999_98, 1.899_999_98, -0.092_177_495],
            [0.306_782_04, -1.186_610_34, 1.905_263_19, -0.188_689_6],
            [0.334_525_64, -1.214_552_28, 1.907_297_37, -0.185_359_81],
            [0.335_347_06, -1.211_652_04, 1.898_861_53, -0.195_863_98],
        ]),
        (Rule::Adam(adam), 0.01, [
            [0.400_000_01, -1.149_999_98, 1.899_999_98, -0.092_181_884],
            [0.306_372_37, -1.183_150_77, 1.898_776_53, -0.035_980_519],
            [0.333_839_45, -1.209_570_29, 1.896_880_27, 0.001_469_489_2],
            [0.334_537_74, -1.206_077_22, 1.887_500_41, 0.001_747_379_9],
        ]),
        (Rule::Adam(SLOW), 0.01, [
            [0.400_943_4, -1.150_468_35, 1.900_311_59, -0.007_306_862_6],
            [0.309_523_34, -1.188_848_26, 1.904_915_57, -0.020_277_616],
            [0.340_053_17, -1.217_868_21, 1.904_995_32, -0.015_827_129],
            [0.340_115_88, -1.213_145_61, 1.894_697_19, -0.018_560_698],
        ]),
        (Rule::AdamW(adam), 0.05, [
            [0.397_500_01, -1.143_749_95, 1.889_999_99, -0.092_216_559],
            [0.302_294_55, -1.174_641_61, 1.885_813_24, -0.188_267_59],
            [0.329_282_43, -1.199_646_95, 1.883_132_93, -0.184_467_12],
            [0.329_774_56, -1.195_547_1, 1.872_813_94, -0.194_786_83],
        ]),
    ];
    for (rule, decay, expected) in cases {
        let mut all = parameters(&START);
        let mut optimiser = optimiser(rule, decay, &all);
        for ((gradient, rate), expected) in GRADIENTS.iter().zip(RATES).zip(expected) {
            optimiser.step(&mut all, &[dense(gradient)], rate).unwrap();
            for (found, expected) in all.get("w").unwrap().values.iter().zip(expected) {
                let found = f64::from(*found);
                assert!((found - expected).abs() <= 3e-7 * (0.1 + expected.abs()), "{rule:?} {decay}: {found} {expected}");
            }
        }
        assert_eq!(optimiser.steps(), 4);
    }
}

#[test]
fn decay_goes_by_group() {
    let mut all = parameters(&[1.0]);
    all.push(Parameter { name: "b".to_owned(), shape: vec![1], values: vec![1.0], group: 1 }).unwrap();
    let groups = [Group { decay: 0.5 }, Group::default()];
    let mut optimiser = Optimiser::new(Rule::Sgd(Sgd::default()), &groups, &all).unwrap();
    optimiser.step(&mut all, &[dense(&[0.0]), dense(&[0.0])], 0.1).unwrap();
    assert_eq!((all.get("w").unwrap().values[0], all.get("b").unwrap().values[0]), (0.95, 1.0));
}

/// More than two pieces, on pools of different sizes, are equal to the bit and to one element after the other.
#[test]
fn threads_and_pieces_change_nothing() {
    let count = 2 * PIECE + 77;
    let start: Vec<f32> = (0..count).map(|i| (i % 1013) as f32 / 500.0 - 1.0).collect();
    let gradient: Vec<f32> = (0..count).map(|i| (i % 409) as f32 / 200.0 - 1.0).collect();
    for rule in [Rule::Sgd(Sgd::default()), Rule::Sgd(NESTEROV), Rule::Adam(SLOW), Rule::AdamW(SLOW)] {
        let run = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut all = parameters(&start);
            let mut optimiser = optimiser(rule, 0.01, &all);
            pool.install(|| (0..3).for_each(|_| optimiser.step(&mut all, &[dense(&gradient)], 0.05).unwrap()));
            (all, optimiser)
        };
        let (all, whole) = run(1);
        assert_eq!((&all, &whole), (&run(4).0, &run(3).1));
        for at in [0, PIECE - 1, PIECE, count - 1] {
            let mut one = parameters(&start[at..=at]);
            let mut optimiser = optimiser(rule, 0.01, &one);
            (0..3).for_each(|_| optimiser.step(&mut one, &[dense(&gradient[at..=at])], 0.05).unwrap());
            assert_eq!(one.get("w").unwrap().values[0], all.get("w").unwrap().values[at], "{rule:?} {at}");
        }
    }
}

#[test]
fn a_state_put_back_goes_on_as_if_nothing_had_been() {
    for rule in [Rule::Sgd(Sgd::default()), Rule::Sgd(MOMENTUM), Rule::Adam(Adam::default()), Rule::AdamW(SLOW)] {
        let mut all = parameters(&START);
        let mut straight = optimiser(rule, 0.01, &all);
        straight.step(&mut all, &[dense(&GRADIENTS[0])], 0.1).unwrap();
        let mut resumed_all = all.clone();
        let mut resumed = optimiser(rule, 0.01, &resumed_all);
        resumed.restore(straight.steps(), straight.arrays().cloned().collect()).unwrap();
        for (all, optimiser) in [(&mut all, &mut straight), (&mut resumed_all, &mut resumed)] {
            optimiser.step(all, &[dense(&GRADIENTS[1])], 0.1).unwrap();
        }
        assert_eq!((all, straight), (resumed_all, resumed));
    }
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    let mut all = parameters(&START);
    let mut adam = optimiser(Rule::Adam(Adam::default()), 0.0, &all);
    let before = (all.clone(), adam.clone());
    let short = adam.step(&mut all, &[dense(&START[..3])], 0.1).unwrap_err().to_string();
    assert!(short.contains("gradient of \"w\"") && short.contains('3') && short.contains('4'), "{short}");
    assert!(adam.step(&mut all, &[dense(&START), dense(&START)], 0.1).is_err());
    assert!(adam.step(&mut Parameters::new(), &[], 0.1).is_err());
    let momentum = optimiser(Rule::Sgd(MOMENTUM), 0.0, &all);
    for (arrays, word) in [
        (momentum.arrays().cloned().collect(), "\"w/mean\""),
        (vec![Array::zeros("w/mean".to_owned(), &[4]), Array::zeros("w/square".to_owned(), &[3])], "[3]"),
        (adam.arrays().chain(momentum.arrays()).cloned().collect(), "3 arrays"),
    ] {
        let said = adam.restore(9, arrays).unwrap_err().to_string();
        assert!(said.contains(word), "{said}");
    }
    assert_eq!((all, adam), before);
    let missing = Optimiser::new(Rule::Sgd(MOMENTUM), &[], &parameters(&START)).unwrap_err().to_string();
    assert!(missing.contains("group 0"), "{missing}");
}

/// Gradients of some rows at each of five steps; every row misses some steps.
const TOUCHED: [&[u64]; 5] = [&[2, 0], &[1], &[3, 2, 1], &[0], &[2, 3]];

fn table() -> Parameters {
    let mut all = Parameters::new();
    let values = (0..8).map(|at| at as f32 / 4.0 - 1.0).collect();
    all.push(Parameter { name: "table".to_owned(), shape: vec![4, 2], values, group: 0 }).unwrap();
    all
}

fn rows(step: usize) -> (Vec<f32>, Gradient) {
    let ids = TOUCHED[step];
    let values: Vec<f32> = (0..2 * ids.len()).map(|at| 0.3 * (at + step) as f32 - 0.5).collect();
    (values.clone(), Gradient::Rows(RowGradient::new(ids, values, 2).unwrap()))
}

/// The formulas of torch's `SparseAdam` and of SGD without momentum, in f64, one element after the other.
#[test]
fn rows_step_as_torchs_sparse_adam() {
    let rate = 0.05;
    for (rule, adam) in [
        (Rule::Adam(SLOW), Some(SLOW)),
        (Rule::AdamW(SLOW), Some(SLOW)),
        (Rule::Sgd(Sgd::default()), None),
        (Rule::Sgd(MOMENTUM), None),
    ] {
        let mut all = table();
        let mut optimiser = optimiser(rule, 0.1, &all);
        let mut wanted: Vec<f64> = all.get("table").unwrap().values.iter().map(|v| f64::from(*v)).collect();
        let (mut mean, mut square) = ([0.0f64; 8], [0.0f64; 8]);
        for (step, touched) in TOUCHED.iter().enumerate() {
            let (values, gradient) = rows(step);
            optimiser.step(&mut all, &[gradient], rate).unwrap();
            for (at, value) in values.iter().enumerate() {
                let (element, gradient) = (2 * usize::try_from(touched[at / 2]).unwrap() + at % 2, f64::from(*value));
                let Some(adam) = adam else {
                    wanted[element] -= rate * gradient;
                    continue;
                };
                mean[element] += (1.0 - adam.beta1) * (gradient - mean[element]);
                square[element] += (1.0 - adam.beta2) * (gradient * gradient - square[element]);
                let number = i32::try_from(step + 1).unwrap();
                let size = rate * (1.0 - adam.beta2.powi(number)).sqrt() / (1.0 - adam.beta1.powi(number));
                wanted[element] -= size * mean[element] / (square[element].sqrt() + adam.epsilon);
            }
            for (found, wanted) in all.get("table").unwrap().values.iter().zip(&wanted) {
                assert!((f64::from(*found) - wanted).abs() < 1e-6, "{rule:?} step {step}: {found} {wanted}");
            }
        }
    }
}

#[test]
fn rows_do_not_depend_on_threads_or_pieces() {
    let (count, width) = (3000, 33);
    let ids: Vec<u64> = (0..count).filter(|id| id % 3 != 1).map(|id| id * 7 % count).collect();
    let values: Vec<f32> = (0..ids.len() * width).map(|i| (i % 409) as f32 / 200.0 - 1.0).collect();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut all = Parameters::new();
        let shape = vec![usize::try_from(count).unwrap(), width];
        let begun = vec![0.5; shape.iter().product()];
        all.push(Parameter { name: "table".to_owned(), shape, values: begun, group: 0 }).unwrap();
        let mut optimiser = optimiser(Rule::Adam(SLOW), 0.0, &all);
        let gradient = [Gradient::Rows(RowGradient::new(&ids, values.clone(), width).unwrap())];
        pool.install(|| (0..3).for_each(|_| optimiser.step(&mut all, &gradient, 0.05).unwrap()));
        (all, optimiser)
    };
    let found = run(1);
    assert_eq!(found, run(4));
    let at = ids.iter().position(|id| *id == 2999).unwrap();
    let gradient = RowGradient::new(&[0], values[at * width..][..width].to_vec(), width).unwrap();
    let mut one = Parameters::new();
    one.push(Parameter { name: "w".to_owned(), shape: vec![1, width], values: vec![0.5; width], group: 0 }).unwrap();
    let mut alone = optimiser(Rule::Adam(SLOW), 0.0, &one);
    (0..3).for_each(|_| alone.step(&mut one, &[Gradient::Rows(gradient.clone())], 0.05).unwrap());
    assert_eq!(one.get("w").unwrap().values, found.0.get("table").unwrap().values[2999 * width..]);
}

#[test]
fn rows_that_a_table_does_not_have_are_refused() {
    let mut all = table();
    let mut optimiser = optimiser(Rule::Adam(SLOW), 0.0, &all);
    for (ids, width, words) in [(&[4u64][..], 2, "row 4"), (&[0], 3, "3 elements; expected 2")] {
        let gradient = Gradient::Rows(RowGradient::new(ids, vec![0.0; ids.len() * width], width).unwrap());
        let said = optimiser.step(&mut all, &[gradient], 0.1).unwrap_err().to_string();
        assert!(said.contains(words), "{said}");
    }
    assert_eq!((all, optimiser.steps()), (table(), 0));
}
