//! How much host memory this process can still have.
//!
//! The system's own estimate is not enough: in a container or a batch job the kernel kills whoever passes the limit of a
//! control group, long before the machine runs out. So the estimate is capped by what every group above this process has
//! left, in both versions of control groups, and by the limit on its address space. Pages of files that nobody used lately
//! count as left: the kernel drops them before it kills anyone.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Host memory, free and in all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostMemory {
    /// What can be had without swapping and without being killed; zero where the system does not say.
    pub free_bytes: usize,
    /// What the machine has, or the smallest limit on this process.
    pub total_bytes: usize,
}

impl HostMemory {
    /// Looks at the machine and at this process's limits now.
    #[must_use]
    pub fn now() -> Self {
        /// Which groups a process is in changes so rarely that they are looked up once; their limits are read every time.
        static GROUPS: OnceLock<Vec<Group>> = OnceLock::new();
        let root = Path::new("/");
        let memory = Self::below(root, GROUPS.get_or_init(|| groups_below(root)));
        // What `ulimit -v` allows: beyond it every allocation fails.
        match rustix::process::getrlimit(rustix::process::Resource::As).current {
            Some(limit) => {
                memory.within(usize::try_from(limit).unwrap_or(usize::MAX), &read(&root.join("proc/self/status")))
            }
            None => memory,
        }
    }

    /// As much of it as a limit on the address space leaves, of which `status` says how much is taken.
    fn within(self, limit_bytes: usize, status: &str) -> Self {
        let taken = number_after(status, "VmSize:").unwrap_or(0).saturating_mul(1024);
        let (free_bytes, total_bytes) = (limit_bytes.saturating_sub(taken), limit_bytes);
        Self { free_bytes: self.free_bytes.min(free_bytes), total_bytes: self.total_bytes.min(total_bytes) }
    }

    /// What the files below `root` say, which is `/` but in tests.
    fn below(root: &Path, groups: &[Group]) -> Self {
        let machine = from_meminfo(&read(&root.join("proc/meminfo")));
        groups.iter().fold(machine, |memory, group| {
            // A limit that the machine cannot reach limits nothing, and the other files take longer to read.
            let limit = group.limit_bytes().filter(|limit| *limit < memory.total_bytes);
            limit.map_or(memory, |total_bytes| {
                let free_bytes = memory.free_bytes.min(total_bytes.saturating_sub(group.used_bytes()));
                Self { free_bytes, total_bytes }
            })
        })
    }
}

fn from_meminfo(text: &str) -> HostMemory {
    let bytes = |name| number_after(text, name).and_then(|kibibytes| kibibytes.checked_mul(1024)).unwrap_or(0);
    HostMemory { free_bytes: bytes("MemAvailable:"), total_bytes: bytes("MemTotal:") }
}

/// A control group that limits this process.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Group {
    folder: PathBuf,
    files: &'static Files,
}

/// What a version of control groups calls its files.
#[derive(Debug, PartialEq, Eq)]
struct Files {
    file_system: &'static str,
    limits: &'static [&'static str],
    usage: &'static str,
    /// The line of `memory.stat` with the pages of files that nobody used lately.
    reclaimable: &'static str,
}

static VERSION_1: Files = Files {
    file_system: "cgroup",
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    reclaimable: "total_inactive_file",
};

/// Beyond `memory.high` a process is not killed but slowed down until it stands still.
static VERSION_2: Files = Files {
    file_system: "cgroup2",
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    reclaimable: "inactive_file",
};

impl Group {
    /// The limit, `None` where there is none: its file says "max", or is not there.
    fn limit_bytes(&self) -> Option<usize> {
        let read = |name: &&str| read(&self.folder.join(name)).trim().parse().ok();
        self.files.limits.iter().filter_map(read).min()
    }

    /// What the group holds and cannot do without.
    fn used_bytes(&self) -> usize {
        let usage: usize = read(&self.folder.join(self.files.usage)).trim().parse().unwrap_or(0);
        let statistics = read(&self.folder.join("memory.stat"));
        usage.saturating_sub(number_after(&statistics, self.files.reclaimable).unwrap_or(0))
    }
}

/// The groups of this process and all above them, as far as they are mounted.
fn groups_below(root: &Path) -> Vec<Group> {
    let (own, mounts) = (read(&root.join("proc/self/cgroup")), read(&root.join("proc/self/mountinfo")));
    let mounts = mounts.lines().filter_map(Mount::parse);
    mounts
        .flat_map(|mount| {
            let folder = own.lines().find_map(|line| mount.folder_of(line)).unwrap_or_default();
            // Paths of mounts are absolute; below another root they are relative to it.
            let at = |path: &Path| root.join(path.strip_prefix("/").unwrap_or(path));
            let (first, top, files) = (at(&mount.point.join(folder)), at(&mount.point), mount.files);
            let above: Vec<PathBuf> = first.ancestors().map(Path::to_owned).collect();
            above.into_iter().filter(move |folder| folder.starts_with(&top)).map(move |folder| Group { folder, files })
        })
        .collect()
}

/// Where a hierarchy of groups can be seen.
struct Mount {
    /// The group that is seen at `point`.
    root: PathBuf,
    point: PathBuf,
    files: &'static Files,
}

impl Mount {
    /// A line of `mountinfo`, if it is a hierarchy that limits memory.
    fn parse(line: &str) -> Option<Self> {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3).map(unescaped);
        let (root, point) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (file_system, options) = (kind.next()?, kind.nth(1)?);
        let files = [&VERSION_1, &VERSION_2].into_iter().find(|files| files.file_system == file_system)?;
        let limits_memory = files == &VERSION_2 || options.split(',').any(|option| option == "memory");
        limits_memory.then(|| Self { root: root.into(), point: point.into(), files })
    }

    /// Where below this mount the group of a line of `/proc/self/cgroup` lies; `None` for a group of another hierarchy, and
    /// for one that cannot be seen here.
    fn folder_of(&self, line: &str) -> Option<PathBuf> {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_ours = match self.files {
            files if files == &VERSION_2 => controllers.is_empty(),
            _ => controllers.split(',').any(|controller| controller == "memory"),
        };
        let inside = Path::new(path).strip_prefix(&self.root).ok().filter(|_| is_ours)?;
        // A group outside of this process's namespace begins with "..".
        let is_below = inside.components().all(|part| matches!(part, std::path::Component::Normal(_)));
        is_below.then(|| inside.to_owned())
    }
}

/// `mountinfo` writes blanks and backslashes as three octal digits.
fn unescaped(path: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(path.to_owned(), |path, (escape, character)| path.replace(escape, character))
}

fn number_after(text: &str, name: &str) -> Option<usize> {
    let mut lines = text.lines().map(str::split_whitespace);
    lines.find_map(|mut words| (words.next() == Some(name)).then(|| words.next()?.parse().ok())?)
}

/// A file that is not there says nothing.
fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: usize = 1 << 30;
    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal: 67108864 kB\nMemFree: 1 kB\nMemAvailable: 33554432 kB\n");
    const V2: (&str, &str) = ("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n");
    const V1: (&str, &str) = (
        "proc/self/mountinfo",
        "34 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
         35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n",
    );
    const OWN_V2: (&str, &str) = ("proc/self/cgroup", "0::/jobs/7\n");
    const OWN_V1: (&str, &str) = ("proc/self/cgroup", "4:memory:/jobs/7\n3:cpuset:/\n0::/\n");

    fn memory(files: &[(&str, &str)]) -> HostMemory {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        HostMemory::below(root.path(), &groups_below(root.path()))
    }

    #[test]
    fn a_limit_on_the_address_space_is_a_limit() {
        let memory = HostMemory { free_bytes: 8 << 30, total_bytes: 16 << 30 };
        let limited = memory.within(2 << 30, "Name:\theadwater\nVmSize:\t 1048576 kB\n");
        assert_eq!(limited, HostMemory { free_bytes: 1 << 30, total_bytes: 2 << 30 });
        assert_eq!(memory.within(32 << 30, ""), memory);
    }

    #[test]
    fn memory_is_what_the_machine_and_every_group_above_have_left() {
        let one = GIB.to_string();
        let stat = "anon 5\ninactive_file 1073741824\nactive_file 7\n";
        type Texts<'a> = [(&'a str, &'a str)];
        let cases: &[(&str, &Texts<'_>, usize, usize)] = &[
            ("no groups", &[MEMINFO], 32, 64),
            ("nothing at all", &[], 0, 0),
            ("no limit", &[MEMINFO, V2, OWN_V2, ("sys/fs/cgroup/jobs/7/memory.max", "max\n")], 32, 64),
            ("a limit and no usage", &[MEMINFO, V2, OWN_V2, ("sys/fs/cgroup/jobs/7/memory.max", &one)], 1, 1),
            (
                "usage without old pages of files",
                &[
                    MEMINFO,
                    V2,
                    OWN_V2,
                    ("sys/fs/cgroup/jobs/7/memory.max", "8589934592\n"),
                    ("sys/fs/cgroup/jobs/7/memory.current", "4294967296\n"),
                    ("sys/fs/cgroup/jobs/7/memory.stat", stat),
                ],
                5,
                8,
            ),
            (
                "a group above has less",
                &[
                    MEMINFO,
                    V2,
                    OWN_V2,
                    ("sys/fs/cgroup/jobs/7/memory.max", "8589934592\n"),
                    ("sys/fs/cgroup/jobs/memory.max", "4294967296\n"),
                    ("sys/fs/cgroup/jobs/memory.current", "3221225472\n"),
                ],
                1,
                4,
            ),
            (
                "slowed down before it is killed",
                &[
                    MEMINFO,
                    V2,
                    OWN_V2,
                    ("sys/fs/cgroup/jobs/7/memory.max", "max"),
                    ("sys/fs/cgroup/jobs/7/memory.high", "2147483648\n"),
                ],
                2,
                2,
            ),
            (
                "a group that is full",
                &[
                    MEMINFO,
                    V2,
                    OWN_V2,
                    ("sys/fs/cgroup/jobs/7/memory.max", &one),
                    ("sys/fs/cgroup/jobs/7/memory.current", "2147483648"),
                ],
                0,
                1,
            ),
            (
                "version 1, where no limit is a large number",
                &[
                    MEMINFO,
                    V1,
                    OWN_V1,
                    ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("sys/fs/cgroup/memory/jobs/7/memory.usage_in_bytes", "17179869184\n"),
                ],
                32,
                64,
            ),
            (
                "version 1, nested",
                &[
                    MEMINFO,
                    V1,
                    OWN_V1,
                    ("sys/fs/cgroup/memory/jobs/7/memory.limit_in_bytes", "9223372036854771712\n"),
                    ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "4294967296\n"),
                    ("sys/fs/cgroup/memory/jobs/memory.usage_in_bytes", "3221225472\n"),
                    ("sys/fs/cgroup/memory/jobs/memory.stat", "inactive_file 0\ntotal_inactive_file 1073741824\n"),
                ],
                2,
                4,
            ),
            (
                "a container that sees its own group at the mount",
                &[
                    MEMINFO,
                    (
                        "proc/self/mountinfo",
                        "35 31 0:32 /jobs/7 /sys/my\\040groups rw master:1 - cgroup cgroup rw,memory\n",
                    ),
                    OWN_V1,
                    ("sys/my groups/memory.limit_in_bytes", &one),
                ],
                1,
                1,
            ),
            (
                "a group outside of the namespace",
                &[MEMINFO, V2, ("proc/self/cgroup", "0::/../other\n"), ("sys/fs/cgroup/memory.max", &one)],
                1,
                1,
            ),
        ];
        for (what, files, free, total) in cases {
            let expected = HostMemory { free_bytes: free * GIB, total_bytes: total * GIB };
            assert_eq!(memory(files), expected, "{what}");
        }
    }

    #[test]
    fn this_machine_has_memory() {
        let memory = HostMemory::now();
        assert!(0 < memory.free_bytes && memory.free_bytes <= memory.total_bytes, "{memory:?}");
    }
}
