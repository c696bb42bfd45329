//! Every combination of operand kinds for one, two and three operands against a table written out in full.
//!
//! C is a CPU tensor, S a CPU scalar, 0 and 1 tensors on those GPUs, G and H unified tensors with GPU and host affinity.
//! The table holds each combination once; the test tries it in every order.

use std::collections::HashMap;

use super::*;

const KINDS: [(char, Operand); 6] = [
    ('C', Operand::Cpu),
    ('S', Operand::CpuScalar),
    ('0', Operand::Cuda(0)),
    ('1', Operand::Cuda(1)),
    ('G', Operand::Unified(Affinity::Gpu)),
    ('H', Operand::Unified(Affinity::Host)),
];

/// Operands, who computes, where the result goes; a dash with the reason where the operands do not go together.
#[rustfmt::skip]
const TABLE: &[(&str, &str, &str)] = &[
    ("C", "cpu", "cpu"),
    ("S", "cpu", "cpu"),
    ("0", "cuda:0", "cuda:0"),
    ("1", "cuda:1", "cuda:1"),
    ("G", "cuda:0", "cuda:0"),
    ("H", "cpu", "unified:host"),
    ("CC", "cpu", "cpu"),
    ("CS", "cpu", "cpu"),
    ("C0", "-", "mixed"),
    ("C1", "-", "mixed"),
    ("CG", "cuda:0", "unified:host"),
    ("CH", "cpu", "unified:host"),
    ("SS", "cpu", "cpu"),
    ("S0", "cuda:0", "cuda:0"),
    ("S1", "cuda:1", "cuda:1"),
    ("SG", "cuda:0", "cuda:0"),
    ("SH", "cpu", "unified:host"),
    ("00", "cuda:0", "cuda:0"),
    ("01", "-", "two gpus"),
    ("0G", "cuda:0", "cuda:0"),
    ("0H", "cuda:0", "unified:gpu"),
    ("11", "cuda:1", "cuda:1"),
    ("1G", "cuda:1", "cuda:1"),
    ("1H", "cuda:1", "unified:gpu"),
    ("GG", "cuda:0", "cuda:0"),
    ("GH", "cuda:0", "unified:host"),
    ("HH", "cpu", "unified:host"),
    ("CCC", "cpu", "cpu"),
    ("CCS", "cpu", "cpu"),
    ("CC0", "-", "mixed"),
    ("CC1", "-", "mixed"),
    ("CCG", "cuda:0", "unified:host"),
    ("CCH", "cpu", "unified:host"),
    ("CSS", "cpu", "cpu"),
    ("CS0", "-", "mixed"),
    ("CS1", "-", "mixed"),
    ("CSG", "cuda:0", "unified:host"),
    ("CSH", "cpu", "unified:host"),
    ("C00", "-", "mixed"),
    ("C01", "-", "two gpus"),
    ("C0G", "cuda:0", "unified:host"),
    ("C0H", "cuda:0", "unified:host"),
    ("C11", "-", "mixed"),
    ("C1G", "cuda:1", "unified:host"),
    ("C1H", "cuda:1", "unified:host"),
    ("CGG", "cuda:0", "unified:host"),
    ("CGH", "cuda:0", "unified:host"),
    ("CHH", "cpu", "unified:host"),
    ("SSS", "cpu", "cpu"),
    ("SS0", "cuda:0", "cuda:0"),
    ("SS1", "cuda:1", "cuda:1"),
    ("SSG", "cuda:0", "cuda:0"),
    ("SSH", "cpu", "unified:host"),
    ("S00", "cuda:0", "cuda:0"),
    ("S01", "-", "two gpus"),
    ("S0G", "cuda:0", "cuda:0"),
    ("S0H", "cuda:0", "unified:gpu"),
    ("S11", "cuda:1", "cuda:1"),
    ("S1G", "cuda:1", "cuda:1"),
    ("S1H", "cuda:1", "unified:gpu"),
    ("SGG", "cuda:0", "cuda:0"),
    ("SGH", "cuda:0", "unified:host"),
    ("SHH", "cpu", "unified:host"),
    ("000", "cuda:0", "cuda:0"),
    ("001", "-", "two gpus"),
    ("00G", "cuda:0", "cuda:0"),
    ("00H", "cuda:0", "unified:gpu"),
    ("011", "-", "two gpus"),
    ("01G", "-", "two gpus"),
    ("01H", "-", "two gpus"),
    ("0GG", "cuda:0", "cuda:0"),
    ("0GH", "cuda:0", "unified:gpu"),
    ("0HH", "cuda:0", "unified:gpu"),
    ("111", "cuda:1", "cuda:1"),
    ("11G", "cuda:1", "cuda:1"),
    ("11H", "cuda:1", "unified:gpu"),
    ("1GG", "cuda:1", "cuda:1"),
    ("1GH", "cuda:1", "unified:gpu"),
    ("1HH", "cuda:1", "unified:gpu"),
    ("GGG", "cuda:0", "cuda:0"),
    ("GGH", "cuda:0", "unified:host"),
    ("GHH", "cuda:0", "unified:host"),
    ("HHH", "cpu", "unified:host"),
];

#[test]
fn every_combination_is_in_the_table() {
    let table: HashMap<&str, (&str, &str)> = TABLE.iter().map(|row| (row.0, (row.1, row.2))).collect();
    assert_eq!(table.len(), 6 + 21 + 56);
    let mut tried = 0;
    for count in 1..=3 {
        for code in 0..6usize.pow(count) {
            let picks: Vec<usize> = (0..count).map(|digit| code / 6usize.pow(digit) % 6).collect();
            let operands: Vec<Operand> = picks.iter().map(|&k| KINDS[k].1).collect();
            let mut sorted = picks.clone();
            sorted.sort_unstable();
            let name: String = sorted.iter().map(|&k| KINDS[k].0).collect();
            let expected = table[name.as_str()];
            assert_eq!(in_words(place(&operands)), (expected.0.to_owned(), expected.1.to_owned()), "{operands:?}");
            tried += 1;
        }
    }
    assert_eq!(tried, 6 + 36 + 216);
}

#[test]
fn without_a_cuda_operand_the_current_gpu_is_meant() {
    let on = |operands: &[Operand]| in_words(place_on(operands, 3));
    let words = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(on(&[Operand::Unified(Affinity::Gpu)]), words("cuda:3", "cuda:3"));
    assert_eq!(on(&[Operand::Unified(Affinity::Gpu), Operand::Cuda(1)]), words("cuda:1", "cuda:1"));
    assert_eq!(on(&[Operand::Unified(Affinity::Gpu), Operand::Cpu]), words("cuda:3", "unified:host"));
}

#[test]
fn errors_name_the_operands() {
    assert_eq!(place(&[]), Err(PlacementError::NoOperands));
    let error = place(&[Operand::CpuScalar, Operand::Cuda(2), Operand::Cuda(5)]).unwrap_err();
    assert_eq!(error, PlacementError::TwoGpus { first: 1, first_gpu: 2, second: 2, second_gpu: 5 });
    let error = place(&[Operand::Cuda(2), Operand::Cpu]).unwrap_err();
    assert_eq!(error, PlacementError::CpuWithCuda { cpu: 1, gpu: 2 });
}

fn in_words(result: Result<Placement, PlacementError>) -> (String, String) {
    match result {
        Ok(Placement { compute: Compute::Cpu, output }) => ("cpu".to_owned(), output.to_string()),
        Ok(Placement { compute: Compute::Cuda(n), output }) => (format!("cuda:{n}"), output.to_string()),
        Err(PlacementError::TwoGpus { .. }) => ("-".to_owned(), "two gpus".to_owned()),
        Err(PlacementError::CpuWithCuda { .. }) => ("-".to_owned(), "mixed".to_owned()),
        Err(PlacementError::NoOperands) => ("-".to_owned(), "none".to_owned()),
    }
}
