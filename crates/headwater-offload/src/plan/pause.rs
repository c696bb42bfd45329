//! Where SSDTrain stops to offload, as its authors do it: from the bytes and times of modules and the rate of a disk.

/// Which of the two forms of the rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PauseForm {
    /// A module is back when its backward pass begins, as the text says.
    Text,
    /// It is back when its backward pass ends, as the authors' program has it.
    Code,
}

/// The first module that is kept. Modules come in the order of the forward pass, each with bytes and seconds; the backward pass is taken
/// to last twice as long. Module i may leave if all before it can be written, and it written and read, by the time it is needed.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "lengths of memory")]
pub fn pause_point(modules: &[(u64, f64)], bytes_per_s: f64, form: PauseForm) -> usize {
    let forward: f64 = modules.iter().map(|(_, seconds)| seconds).sum();
    let (mut before, mut elapsed) = (0.0, 0.0);
    for (at, (bytes, seconds)) in modules.iter().enumerate() {
        let moved = before + 2.0 * *bytes as f64;
        let until = match form {
            PauseForm::Text => elapsed + seconds,
            PauseForm::Code => elapsed,
        };
        if moved > bytes_per_s * (3.0 * forward - 2.0 * until) {
            return at;
        }
        before += *bytes as f64;
        elapsed += seconds;
    }
    modules.len()
}
