//! What outputs say as probabilities: what the loss made of them while they were learnt.

use headwater_tensor::parallel::{self, PIECE};

use super::Loss;
use super::exponential::exp_of_negative;
use crate::error::{Error, Result};

impl Loss {
    /// Puts probabilities in the place of outputs: of the classes of a row, or of a yes in each column.
    pub fn probabilities(self, outputs: &mut [f32], columns: usize) -> Result<()> {
        let columns = columns.max(1);
        match self {
            Self::CrossEntropy => {
                let rows = (PIECE / columns).max(1);
                parallel::for_parts(outputs, rows * columns, &|_, rows| rows.chunks_mut(columns).for_each(softmax));
            }
            Self::Nll => each(outputs, |output| exp_of_negative(output.min(0.0))),
            Self::Bce => each(outputs, sigmoid),
            Self::Mse => {
                let expected = "a loss of classes or of yes and no; outputs of mse are no probabilities".to_owned();
                return Err(Error::Setting { field: "loss", value: self.name().to_owned(), expected });
            }
        }
        Ok(())
    }
}

fn each(outputs: &mut [f32], probability: impl Fn(f32) -> f32 + Sync) {
    parallel::for_parts(outputs, PIECE, &|_, outputs| {
        outputs.iter_mut().for_each(|output| *output = probability(*output));
    });
}

fn softmax(row: &mut [f32]) {
    let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    row.iter_mut().for_each(|output| *output = exp_of_negative(*output - most));
    let sum: f32 = row.iter().sum();
    row.iter_mut().for_each(|share| *share /= sum);
}

fn sigmoid(output: f32) -> f32 {
    let small = exp_of_negative(-output.abs());
    (if output >= 0.0 { 1.0 } else { small }) / (1.0 + small)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_are_those_of_the_loss() {
        let cases = [
            (Loss::CrossEntropy, [0.0, 2f32.ln(), 100.0, 100.0], [1.0 / 3.0, 2.0 / 3.0, 0.5, 0.5]),
            (Loss::Nll, [0.25f32.ln(), 0.75f32.ln(), 0.0, -200.0], [0.25, 0.75, 1.0, 0.0]),
            (Loss::Bce, [0.0, -3f32.ln(), 3f32.ln(), 200.0], [0.5, 0.25, 0.75, 1.0]),
        ];
        for (loss, mut outputs, wanted) in cases {
            loss.probabilities(&mut outputs, 2).unwrap();
            assert!(outputs.iter().zip(wanted).all(|(found, wanted)| (found - wanted).abs() < 1e-6), "{outputs:?}");
        }
        assert!(Loss::Mse.probabilities(&mut [0.0], 1).is_err());
    }
}
