//! Host memory by mmap: large pages asked for, every page touched by several threads.
//!
//! The first touch of a page is where the kernel does its work. Doing it in parallel, in huge pages, before registering
//! turns seven seconds for 16 GiB into less than one.

use std::num::NonZeroUsize;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::{Error, Result};
use crate::tier::host_bytes_available;

/// A page that two megabytes of address space share, when the kernel has one to give.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;

/// A mapped range, unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    start: NonNull<u8>,
    bytes: usize,
    /// What mmap returned, which may begin before `start` to let `start` fall on a huge page.
    mapped: (NonNull<u8>, usize),
    /// The only process that has it, where forked ones do not.
    only_of: Option<u32>,
}

// SAFETY: the range is owned by this value; access goes through its borrows or through owners built on it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed anonymous memory, resident when this returns.
    pub fn anonymous(bytes: usize) -> Result<Self> {
        let reach = bytes.max(1).checked_add(HUGE_PAGE_BYTES).ok_or(too_large(bytes))?;
        // SAFETY: a fresh anonymous mapping aliases nothing.
        let raw = unsafe {
            rustix::mm::mmap_anonymous(
                std::ptr::null_mut(),
                reach,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
            )
        };
        let raw = NonNull::new(raw.map_err(|error| refused(bytes, &error))?.cast::<u8>()).ok_or(too_large(bytes))?;
        let start = raw
            .map_addr(|address| NonZeroUsize::new(address.get().next_multiple_of(HUGE_PAGE_BYTES)).unwrap_or(address));
        let mapping = Self { start, bytes, mapped: (raw, reach), only_of: None };
        if bytes > host_bytes_available() {
            // Touching more than there is would wake the kernel's killer instead of returning an error.
            return Err(refused(bytes, &"more than the memory available"));
        }
        mapping.prefer_huge_pages();
        mapping.touch();
        Ok(mapping)
    }

    /// A shared mapping of `bytes` of a file or memfd.
    pub fn shared(file: BorrowedFd<'_>, bytes: usize) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping; that other processes may write it is what sharing means, and owners of a shared
        // mapping hand out no references to its content.
        let raw =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), bytes.max(1), protection, MapFlags::SHARED, file, 0) };
        let start = NonNull::new(raw.map_err(|error| refused(bytes, &error))?.cast::<u8>()).ok_or(too_large(bytes))?;
        Ok(Self { start, bytes, mapped: (start, bytes.max(1)), only_of: None })
    }

    /// Keeps the range out of processes that are forked from now on, for memory that devices write by DMA: of pinned pages `fork` makes
    /// copies at once (Linux 5.12 and later), or they are copied at the next write of either process, also of this one, whose device then
    /// has the old ones. `open(2)` says the same of direct I/O. Refused, it is as before.
    pub fn keep_from_forks(&mut self) {
        // SAFETY: advice about a range this value owns; that a forked process cannot reach it is what the caller asks for.
        let _ = unsafe { rustix::mm::madvise(self.mapped.0.as_ptr().cast(), self.mapped.1, Advice::LinuxDontFork) };
        self.only_of = Some(std::process::id());
    }

    /// Where it starts.
    #[must_use]
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Length.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Without huge pages everything works, only slower, so a refusal is not an error.
    fn prefer_huge_pages(&self) {
        // SAFETY: advice about a range this value owns.
        let _ = unsafe { rustix::mm::madvise(self.start.as_ptr().cast(), self.bytes, Advice::LinuxHugepage) };
    }

    fn touch(&self) {
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let share = self.bytes.div_ceil(threads).next_multiple_of(HUGE_PAGE_BYTES);
        if self.bytes <= share || threads == 1 {
            // SAFETY: the range is this mapping.
            return unsafe { touch_pages(self.start.as_ptr(), self.bytes) };
        }
        let start = self.start.as_ptr().expose_provenance();
        std::thread::scope(|scope| {
            for offset in (0..self.bytes).step_by(share) {
                let length = share.min(self.bytes - offset);
                // SAFETY: the parts are disjoint and inside this mapping, which outlives the scope.
                scope.spawn(move || unsafe {
                    touch_pages(std::ptr::with_exposed_provenance_mut(start + offset), length)
                });
            }
        });
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // In a forked process something else may lie there by now.
        if self.only_of.is_some_and(|owner| owner != std::process::id()) {
            return;
        }
        // SAFETY: exactly what mmap returned, unmapped once.
        let _ = unsafe { rustix::mm::munmap(self.mapped.0.as_ptr().cast(), self.mapped.1) };
    }
}

/// # Safety
/// `start..start + bytes` is writable and nobody else uses it.
unsafe fn touch_pages(start: *mut u8, bytes: usize) {
    for offset in (0..bytes).step_by(PAGE_BYTES) {
        // SAFETY: inside the range. Volatile, because a plain store of what is already there may be left out.
        unsafe { start.add(offset).write_volatile(0) };
    }
}

fn refused(asked_bytes: usize, why: &dyn ToString) -> Error {
    Error::Map { asked_bytes, free_bytes: host_bytes_available(), why: why.to_string() }
}

fn too_large(elements: usize) -> Error {
    Error::TooLarge { elements, element_bytes: 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_memory_is_zero_and_starts_on_a_huge_page() {
        let mapping = Mapping::anonymous(5 << 20).unwrap();
        assert_eq!(mapping.start().addr().get() % HUGE_PAGE_BYTES, 0);
        // SAFETY: the mapping is ours and initialised by the kernel.
        let bytes = unsafe { std::slice::from_raw_parts(mapping.start().as_ptr(), mapping.bytes()) };
        assert!(bytes.iter().all(|byte| *byte == 0));
    }

    /// Asking for more than a control group's limit would end in a kill, not in an error.
    #[test]
    fn more_than_a_control_group_has_is_an_error() {
        const VARIABLE: &str = "HEADWATER_TEST_IN_GROUP";
        if std::env::var_os(VARIABLE).is_some() {
            Mapping::anonymous(64 << 20).unwrap();
            let asked = 2 << 30;
            let error = Mapping::anonymous(asked).unwrap_err();
            assert!(matches!(error, Error::Map { asked_bytes, .. } if asked_bytes == asked), "{error}");
            return;
        }
        let Some(group) = Group::of(1 << 30) else { return eprintln!("no control group can be made here: skipped") };
        let test = "mapping::tests::more_than_a_control_group_has_is_an_error";
        let program = std::env::current_exe().unwrap();
        // The shell enters the group and becomes the test.
        let output = std::process::Command::new("sh")
            .args(["-c", "echo $$ > \"$0\"/cgroup.procs && exec \"$@\""])
            .arg(&group.0)
            .arg(program)
            .args(["--exact", test, "--nocapture"])
            .env(VARIABLE, "1")
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).join("\n");
        assert!(output.status.success() && text.contains("1 passed"), "{}:\n{text}", output.status);
    }

    /// A control group below this process's own, gone when dropped.
    struct Group(std::path::PathBuf);

    impl Group {
        fn of(limit_bytes: u64) -> Option<Self> {
            let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
            let path_of = |controllers: &str| {
                let mut lines = own.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
                lines.find(|(names, _)| names.split(',').any(|name| name == controllers)).map(|(_, path)| path)
            };
            [("memory", "/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("", "/sys/fs/cgroup", "memory.max")]
                .into_iter()
                .find_map(|(controllers, mount, limit)| {
                    let name = format!("{mount}{}/headwater-test-{}", path_of(controllers)?, std::process::id());
                    std::fs::create_dir(&name).ok()?;
                    let made = Self(name.into());
                    std::fs::write(made.0.join(limit), limit_bytes.to_string()).ok()?;
                    Some(made)
                })
        }
    }

    impl Drop for Group {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir(&self.0);
        }
    }

    #[test]
    fn more_than_there_is_is_an_error_with_the_numbers() {
        let asked = host_bytes_available() * 2 + (1 << 30);
        let error = Mapping::anonymous(asked).unwrap_err();
        assert!(matches!(error, Error::Map { asked_bytes, .. } if asked_bytes == asked), "{error}");
        assert!(matches!(Mapping::anonymous(usize::MAX), Err(Error::TooLarge { .. })));
    }
}
