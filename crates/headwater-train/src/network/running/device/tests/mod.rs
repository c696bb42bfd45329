//! Moments on the device against moments on the host.

use super::super::Running;
use super::*;
use crate::device::testing::{download, stream, upload};

#[test]
fn they_are_the_hosts() {
    let Some(stream) = stream() else { return };
    for width in [0, 1, 7, 600] {
        let mut host = Running::new(0, width);
        let there = DeviceRunning::new(&stream, &host.mean.values, &host.variance.values).unwrap();
        for (batch, rows) in [5u32, 1, 1000, 0, 2].into_iter().enumerate() {
            let moments =
                |by: usize| (0..width).map(|at| ((at * 31 + batch * by) % 97) as f32 / 7.0).collect::<Vec<f32>>();
            let (mean, variance) = (moments(11), moments(5));
            let [mean_there, variance_there] = [&mean, &variance].map(|values| upload(&stream, values));
            let batch = BatchMoments { mean: &mean_there, variance: &variance_there, rows: &upload(&stream, &[rows]) };
            there.see(&stream, batch).unwrap();
            host.see(&mean, &variance, rows as usize).unwrap();
            assert_eq!(download::<f32>(&stream, there.mean(), width), host.mean.values, "{rows} rows of {width}");
            assert_eq!(
                download::<f32>(&stream, there.variance(), width),
                host.variance.values,
                "{rows} rows of {width}"
            );
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let Some(stream) = stream() else { return };
    assert!(DeviceRunning::new(&stream, &[0.0; 3], &[1.0; 2]).is_err());
    let there = DeviceRunning::new(&stream, &[0.0; 3], &[1.0; 3]).unwrap();
    let (short, rows) = (upload(&stream, &[0.0f32; 2]), upload(&stream, &[4u32]));
    let said =
        there.see(&stream, BatchMoments { mean: &short, variance: &short, rows: &rows }).unwrap_err().to_string();
    assert!(said.contains("batch_mean"), "{said}");
}
