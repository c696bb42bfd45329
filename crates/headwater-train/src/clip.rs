//! Gradients that are too long together are shortened together.

use headwater_tensor::parallel;

/// Numbers that one thread sums at a time. Sums of pieces are added in their order, whoever made them.
const PIECE: usize = 1 << 14;

/// Scales all gradients so that their common Euclidean norm is at most `most`, as `clip_grad_norm_` does, and returns the
/// norm that they had. Gradients whose norm is not finite are left as they are: the caller sees it and stops.
pub fn clip<G: AsRef<[f32]> + AsMut<[f32]>>(gradients: &mut [G], most: f64) -> f64 {
    let norm = global_norm(gradients);
    // Torch's guard against a norm of 0.
    let scale = most / (norm + 1e-6);
    if norm.is_finite() && scale < 1.0 {
        scale_all(gradients, scale);
    }
    norm
}

/// The Euclidean norm of all of them as one vector, summed in f64.
pub fn global_norm<G: AsRef<[f32]>>(gradients: &[G]) -> f64 {
    gradients.iter().map(|gradient| squares(gradient.as_ref())).sum::<f64>().sqrt()
}

fn squares(values: &[f32]) -> f64 {
    if values.len() <= PIECE {
        return squares_of_piece(values);
    }
    let pieces: Vec<&[f32]> = values.chunks(PIECE).collect();
    let sums = parallel::collect(pieces.len(), |at| squares_of_piece(pieces[at]));
    sums.iter().sum()
}

/// Eight sums side by side: none waits for the one before.
fn squares_of_piece(values: &[f32]) -> f64 {
    let (eights, rest) = values.as_chunks::<8>();
    let mut sums = [0.0; 8];
    for eight in eights {
        for (sum, &value) in sums.iter_mut().zip(eight) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    let rest: f64 = rest.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    sums.iter().sum::<f64>() + rest
}

#[expect(clippy::cast_possible_truncation, reason = "gradients are f32")]
fn scale_all<G: AsMut<[f32]>>(gradients: &mut [G], scale: f64) {
    for gradient in gradients {
        parallel::for_parts(gradient.as_mut(), PIECE, &|_, piece| {
            piece.iter_mut().for_each(|value| *value *= scale as f32);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_ones_are_shortened_as_torch_does() {
        let cases: [(f64, [&[f32]; 2]); 3] = [
            (6.5, [&[1.499_999_9, 1.999_999_9], &[5.999_999_5]]),
            (13.5, [&[3.0, 4.0], &[12.0]]),
            (0.0, [&[0.0, 0.0], &[0.0]]),
        ];
        for (most, expected) in cases {
            let mut gradients = vec![vec![3.0, 4.0], vec![12.0]];
            assert_eq!(clip(&mut gradients, most), 13.0);
            assert_eq!(gradients, expected);
        }
    }

    #[test]
    fn what_has_no_norm_stays_for_the_caller_to_see() {
        for (value, is_nan) in [(f32::NAN, true), (f32::INFINITY, false)] {
            let mut gradients = vec![vec![1.0], vec![value, 2.0]];
            let norm = clip(&mut gradients, 1.0);
            assert!(!norm.is_finite() && norm.is_nan() == is_nan && gradients[0] == [1.0] && gradients[1][1] == 2.0);
        }
        assert_eq!(clip::<Vec<f32>>(&mut [], 1.0), 0.0);
        // The squares of f32 do not fit f32; the norm does.
        assert!((global_norm(&[[1e30f32, 1e30]]) / (2f64.sqrt() * 1e30) - 1.0).abs() < 1e-6);
    }

    #[test]
    fn the_norm_does_not_depend_on_threads() {
        let long: Vec<f32> = (0..5 * PIECE + 3).map(|i| 1.0 / (i + 1) as f32).collect();
        let norms: Vec<f64> = [1, 2, 7]
            .iter()
            .map(|&threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap())
            .map(|pool| pool.install(|| global_norm(&[&long, &long])))
            .collect();
        assert!(norms.iter().all(|norm| norm.to_bits() == norms[0].to_bits()), "{norms:?}");
        // Twice the sum of 1/n^2.
        assert!((norms[0] * norms[0] - std::f64::consts::PI.powi(2) / 3.0).abs() < 1e-4);
    }
}
