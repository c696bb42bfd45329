//! Which of several disks gets the next piece, from what each has and how fast it is.

/// A disk as it is now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DiskLoad {
    /// Pieces that lie there.
    pub taken: u64,
    /// Pieces that it has room for.
    pub left: u64,
    /// Bytes a second that it takes; none as long as that is not known.
    pub rate: Option<f64>,
}

/// The disk with room that would first have taken all that it has and one piece more: all end at the same time, and a slower one has less. One
/// whose rate is not known is taken to be like the others.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "numbers of pieces")]
pub fn next_disk(disks: &[DiskLoad]) -> Option<usize> {
    let known: Vec<f64> = disks.iter().filter_map(|disk| disk.rate).filter(|rate| *rate > 0.0).collect();
    let usual = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
    let until = |disk: &DiskLoad| (disk.taken + 1) as f64 / disk.rate.filter(|rate| *rate > 0.0).unwrap_or(usual);
    let with_room = disks.iter().enumerate().filter(|(_, disk)| disk.left > 0);
    with_room.min_by(|(_, one), (_, other)| until(one).total_cmp(&until(other))).map(|(at, _)| at)
}
