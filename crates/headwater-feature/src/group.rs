//! Which GPUs share a table.
//!
//! GPUs that read each other's memory over a fast link hold one copy together, spread row by row. Those that do not hold a
//! copy each. A group is a set in which everyone reads everyone; groups hold replicas of each other.

use serde::Serialize;

use crate::error::{Error, Result};

/// GPUs that read each other's memory, by ordinal. A member may be named twice: it then holds two shares.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceGroup {
    /// Ordinals.
    pub members: Vec<usize>,
}

/// Groups from how fast each GPU reads each other one, in GB/s; none where it cannot. A link that is no faster than the way
/// to host memory is no reason to share.
#[must_use]
pub fn device_groups(peer_gb_per_s: &[Vec<Option<f64>>], host_gb_per_s: f64) -> Vec<DeviceGroup> {
    let reads = |one: usize, other: usize| {
        let rate = peer_gb_per_s.get(one).and_then(|row| row.get(other)).copied().flatten();
        rate.is_some_and(|rate| rate > host_gb_per_s)
    };
    let mut groups: Vec<DeviceGroup> = Vec::new();
    for gpu in 0..peer_gb_per_s.len() {
        let knows_all = |group: &&mut DeviceGroup| group.members.iter().all(|&m| reads(gpu, m) && reads(m, gpu));
        match groups.iter_mut().find(knows_all) {
            Some(group) => group.members.push(gpu),
            None => groups.push(DeviceGroup { members: vec![gpu] }),
        }
    }
    groups
}

/// Checks groups that a user wrote, and finds the one that a GPU is in.
pub fn group_of(groups: &[DeviceGroup], gpus: usize, gpu: usize) -> Result<&DeviceGroup> {
    for (group, members) in groups.iter().enumerate() {
        for &ordinal in &members.members {
            if ordinal >= gpus {
                return Err(Error::Group { group, ordinal, why: "which is not there" });
            }
            if groups[..group].iter().any(|earlier| earlier.members.contains(&ordinal)) {
                return Err(Error::Group { group, ordinal, why: "which an earlier group has" });
            }
        }
    }
    let absent = Error::Group { group: groups.len(), ordinal: gpu, why: "which no group has" };
    groups.iter().find(|group| group.members.contains(&gpu)).ok_or(absent)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matrix(gpus: usize, rate: impl Fn(usize, usize) -> Option<f64>) -> Vec<Vec<Option<f64>>> {
        (0..gpus).map(|one| (0..gpus).map(|other| rate(one, other)).collect()).collect()
    }

    fn members(groups: &[DeviceGroup]) -> Vec<Vec<usize>> {
        groups.iter().map(|group| group.members.clone()).collect()
    }

    #[test]
    fn fast_links_make_groups() {
        let all = matrix(4, |_, _| Some(150.0));
        assert_eq!(members(&device_groups(&all, 50.0)), [vec![0, 1, 2, 3]]);
        let halves = matrix(8, |one, other| (one / 4 == other / 4).then_some(150.0));
        assert_eq!(members(&device_groups(&halves, 50.0)), [vec![0, 1, 2, 3], vec![4, 5, 6, 7]]);
        // 0 and 2 both read 1 but not each other.
        let chain = matrix(3, |one, other| (one.abs_diff(other) <= 1).then_some(150.0));
        assert_eq!(members(&device_groups(&chain, 50.0)), [vec![0, 1], vec![2]]);
        let slow = matrix(2, |_, _| Some(40.0));
        assert_eq!(members(&device_groups(&slow, 50.0)), [vec![0], vec![1]]);
        let one_way = matrix(2, |one, other| (one <= other).then_some(150.0));
        assert_eq!(members(&device_groups(&one_way, 50.0)), [vec![0], vec![1]]);
        assert!(device_groups(&[], 50.0).is_empty());
    }

    #[test]
    fn groups_that_a_user_wrote_are_checked() {
        let group = |members: &[usize]| DeviceGroup { members: members.to_vec() };
        let two = [group(&[0, 1]), group(&[2, 2])];
        assert_eq!(group_of(&two, 3, 2).unwrap(), &two[1]);
        assert!(matches!(group_of(&two, 2, 0), Err(Error::Group { group: 1, ordinal: 2, .. })));
        assert!(matches!(group_of(&[group(&[0]), group(&[0])], 3, 0), Err(Error::Group { group: 1, ordinal: 0, .. })));
        assert!(matches!(group_of(&two[..1], 3, 2), Err(Error::Group { ordinal: 2, .. })));
    }
}
