//! Losses on the device against losses on the host.

use headwater_cuda::{Error as CudaError, FAULT_ID_OUT_OF_RANGE, FAULT_TOO_MANY, Graph};

use super::super::{Rows, Targets};
use super::*;
use crate::device::testing::{download, stream, upload};

const LOSSES: [Loss; 4] = [Loss::CrossEntropy, Loss::Nll, Loss::Bce, Loss::Mse];
/// What lies in memory that must not be written.
const UNTOUCHED: f32 = 77.0;

/// Rows on the host.
struct Host {
    rows: usize,
    columns: usize,
    outputs: Vec<f32>,
    labels: Vec<i64>,
    values: Vec<f32>,
}

impl Host {
    /// Every seventh row has no label, every fifth output no target, and some outputs are large.
    fn new(rows: usize, columns: usize) -> Self {
        let count = rows * columns;
        let output = |i: usize| (i * 7919 % 997) as f32 / 60.0 - 8.0 + if i.is_multiple_of(101) { 300.0 } else { 0.0 };
        let label = |row: usize| if row % 7 == 3 { -1 } else { i64::try_from(row * 31 % columns).unwrap() };
        let value = |i: usize| if i % 5 == 4 { f32::NAN } else { (i % 3) as f32 / 2.0 };
        Self {
            rows,
            columns,
            outputs: (0..count).map(output).collect(),
            labels: (0..rows).map(label).collect(),
            values: (0..count).map(value).collect(),
        }
    }

    fn targets(&self, loss: Loss) -> Targets<'_> {
        match loss {
            Loss::CrossEntropy | Loss::Nll => Targets::Classes(&self.labels),
            Loss::Bce | Loss::Mse => Targets::Values(&self.values),
        }
    }
}

/// The same rows on the device, with room for some more.
struct There {
    outputs: Span,
    targets: Span,
    rows: Span,
    counted: Span,
    gradient: Span,
    by_class: bool,
}

impl There {
    fn new(stream: &Stream, host: &Host, loss: Loss, room: usize) -> Self {
        let padded = |values: &[f32], with: f32| {
            let mut padded = values.to_vec();
            padded.resize(room * host.columns, with);
            upload(stream, &padded)
        };
        let by_class = matches!(loss, Loss::CrossEntropy | Loss::Nll);
        let labels: Vec<i32> =
            host.labels.iter().map(|label| i32::try_from(*label).unwrap()).chain([9999; 50]).take(room).collect();
        let counted = match loss {
            Loss::CrossEntropy | Loss::Nll => host.labels.iter().filter(|label| **label >= 0).count(),
            Loss::Bce | Loss::Mse => host.values.iter().filter(|value| !value.is_nan()).count(),
        };
        Self {
            outputs: padded(&host.outputs, f32::NAN),
            targets: if by_class { upload(stream, &labels) } else { padded(&host.values, f32::INFINITY) },
            rows: upload(stream, &[u32::try_from(host.rows).unwrap()]),
            counted: upload(stream, &[u32::try_from(counted).unwrap()]),
            gradient: padded(&[], UNTOUCHED),
            by_class,
        }
    }

    fn lent(&self) -> DeviceRows<'_> {
        let targets =
            if self.by_class { DeviceTargets::Classes(&self.targets) } else { DeviceTargets::Values(&self.targets) };
        let Self { outputs, rows, counted, gradient, .. } = self;
        DeviceRows { outputs, targets, rows, counted, gradient }
    }
}

fn check(stream: &Stream, host: &Host, loss: Loss, weights: Option<&[f32]>, found: (&DeviceLoss, &There, usize)) {
    let (loss_there, there, room) = found;
    let mut wanted = vec![0.0; host.outputs.len()];
    let rows = Rows { outputs: &host.outputs, columns: host.columns, targets: host.targets(loss) };
    let mean = loss.weighted(rows, weights, &mut wanted).unwrap().mean;
    wanted.resize(room * host.columns, UNTOUCHED);
    let case = format!("{loss:?}, {} x {}", host.rows, host.columns);
    let found = download::<f64>(stream, loss_there.mean(), 1)[0];
    assert!((found - mean).abs() <= 1e-6 * (1e-3 + mean.abs()), "{case}: {found} {mean}");
    let largest = wanted[..host.outputs.len()].iter().fold(1e-12f32, |most, x| most.max(x.abs()));
    for (at, (found, wanted)) in download::<f32>(stream, &there.gradient, wanted.len()).iter().zip(&wanted).enumerate()
    {
        let most_apart = if *wanted == UNTOUCHED { 0.0 } else { 2e-6 * largest };
        assert!((found - wanted).abs() <= most_apart, "{case}, {at}: {found} {wanted}");
    }
}

fn run(stream: &Stream, host: &Host, loss: Loss, weights: Option<&[f32]>) {
    let room = host.rows + [0, 5][host.columns % 2];
    let there = There::new(stream, host, loss, room);
    let on_device = DeviceLoss::new(stream, loss, host.columns, weights).unwrap();
    on_device.of(stream, there.lent()).unwrap();
    stream.synchronize().unwrap();
    check(stream, host, loss, weights, (&on_device, &there, room));
}

#[test]
fn losses_and_gradients_are_the_hosts() {
    let Some(stream) = stream() else { return };
    for (rows, columns) in [(0, 3), (1, 1), (1, 33), (4, 3), (70, 7), (130, 40)] {
        let host = Host::new(rows, columns);
        let weights: Vec<f32> = (0..columns).map(|column| 0.5 + column as f32).collect();
        LOSSES.into_iter().for_each(|loss| run(&stream, &host, loss, None));
        run(&stream, &host, Loss::Bce, Some(&weights));
    }
}

/// More rows than the first stage has warps, and more values than it has threads.
#[test]
fn many_rows_take_turns() {
    let Some(stream) = stream() else { return };
    run(&stream, &Host::new(2100, 3), Loss::CrossEntropy, None);
    run(&stream, &Host::new(660, 101), Loss::Mse, None);
}

/// What was recorded with some rows serves others.
#[test]
fn a_loss_can_be_recorded() {
    let Some(stream) = stream() else { return };
    for loss in LOSSES {
        let (first, second) = (Host::new(9, 5), Host::new(30, 5));
        let (there, other) = (There::new(&stream, &first, loss, 40), There::new(&stream, &second, loss, 40));
        let on_device = DeviceLoss::new(&stream, loss, 5, None).unwrap();
        let recorded = |stream: &Stream| on_device.of(stream, there.lent());
        recorded(&stream).unwrap();
        let mut graph = Graph::capture(&stream, recorded).unwrap();
        for (from, to) in [
            (&other.outputs, &there.outputs),
            (&other.targets, &there.targets),
            (&other.rows, &there.rows),
            (&other.counted, &there.counted),
        ] {
            stream.copy(from, to).unwrap();
        }
        graph.launch(&stream).unwrap();
        check(&stream, &second, loss, None, (&on_device, &there, 40));
    }
}

#[test]
fn what_is_wrong_is_seen() {
    let Some(stream) = stream() else { return };
    let host = Host::new(6, 4);
    let on_device = DeviceLoss::new(&stream, Loss::CrossEntropy, 4, None).unwrap();
    let fault = |there: &There| {
        on_device.of(&stream, there.lent()).unwrap();
        match stream.synchronize().unwrap_err() {
            CudaError::Fault { code, position, value, limit } => (code, position, value, limit),
            other => panic!("{other}"),
        }
    };
    for label in [4, -2, i32::MAX] {
        let mut there = There::new(&stream, &host, Loss::CrossEntropy, 6);
        there.targets = upload(&stream, &[0, 1, label, -1, 2, 3]);
        assert_eq!(fault(&there), (FAULT_ID_OUT_OF_RANGE, 2, i64::from(label), 4));
    }
    let mut there = There::new(&stream, &host, Loss::CrossEntropy, 6);
    there.rows = upload(&stream, &[7u32]);
    assert_eq!(fault(&there), (FAULT_TOO_MANY, 6, 7, 6));
    there.rows = upload(&stream, &[6u32]);
    there.outputs = upload(&stream, &[f32::NAN; 24]);
    on_device.of(&stream, there.lent()).unwrap();
    assert!(download::<f64>(&stream, on_device.mean(), 1)[0].is_nan());
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(stream) = stream() else { return };
    let host = Host::new(6, 4);
    let there = There::new(&stream, &host, Loss::Mse, 6);
    let said = |loss, columns: usize, weights: Option<&[f32]>, rows: DeviceRows<'_>| {
        DeviceLoss::new(&stream, loss, columns, weights)
            .and_then(|loss| loss.of(&stream, rows))
            .unwrap_err()
            .to_string()
    };
    let short = DeviceRows { gradient: &there.rows, ..there.lent() };
    let classes = DeviceRows { targets: DeviceTargets::Classes(&there.targets), ..there.lent() };
    for (said, word) in [
        (said(Loss::CrossEntropy, 4, None, there.lent()), "one class a row"),
        (said(Loss::Mse, 4, None, classes), "a number for each output"),
        (said(Loss::Mse, 0, None, there.lent()), "outputs a row is 0"),
        (said(Loss::Bce, 4, Some(&[1.0]), there.lent()), "expected 4"),
        (said(Loss::Mse, 4, None, short), "gradient"),
    ] {
        assert!(said.contains(word), "{said}");
    }
}
