//! Memory that devices write by themselves, and processes that are forked meanwhile.
#![allow(unsafe_code, reason = "a process is forked")]

use headwater_cuda::Gpu;
use headwater_memory::Mapping;
use libloading::os::unix::Library;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};

use crate::lane::{GpuLane, GpuSlot, Lane};

const BYTES: usize = 4 << 20;

/// What the kernel says of the mapping that an address lies in.
fn flags(address: usize) -> Vec<String> {
    let all = std::fs::read_to_string("/proc/self/smaps").unwrap();
    let mut is_inside = false;
    for line in all.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let bounds = first.split_once('-').map(|(from, to)| [from, to].map(|end| usize::from_str_radix(end, 16)));
        if let Some([Ok(from), Ok(to)]) = bounds {
            is_inside = (from..to).contains(&address);
        } else if is_inside && first == "VmFlags:" {
            return words.map(str::to_owned).collect();
        }
    }
    panic!("nothing is mapped at {address:#x}")
}

/// Pinned memory of a GPU's blocks is marked as not to be copied by `fork`.
#[test]
fn pinned_memory_of_blocks_is_not_in_forked_processes() {
    let Ok(gpu) = Gpu::open(0).inspect_err(|why| eprintln!("no GPU: skipped ({why})")) else { return };
    let slots = GpuLane::new(&gpu).unwrap().slots(4, 1 << 20).unwrap();
    for slot in &slots {
        let GpuSlot::Pinned(slot) = slot else { panic!("host memory was asked for") };
        let flags = flags(slot.whole().host_pointer().unwrap().addr().get());
        assert!(flags.contains(&"dc".to_owned()), "{flags:?}");
    }
}

/// A forked process that drops what it does not have leaves alone what lies there by then.
#[test]
fn a_forked_process_unmaps_nothing_of_its_own() {
    let mut mapping = Mapping::anonymous(BYTES).unwrap();
    mapping.keep_from_forks();
    let start = mapping.start().as_ptr();
    let system = Library::this();
    // SAFETY: as <unistd.h> and <sys/wait.h> declare them.
    let (fork, wait, exit) = unsafe {
        (
            system.get::<extern "C" fn() -> i32>(b"fork").unwrap(),
            system.get::<extern "C" fn(i32, *mut i32, i32) -> i32>(b"waitpid").unwrap(),
            system.get::<extern "C" fn(i32) -> !>(b"_exit").unwrap(),
        )
    };
    let child = fork();
    if child == 0 {
        // SAFETY: a new mapping, where there is room for one: only then does the kernel take the address.
        let own = unsafe { mmap_anonymous(start.cast(), BYTES, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE) };
        let Ok(own) = own.map(<*mut _>::cast::<u8>) else { exit(2) };
        if own != start {
            exit(3);
        }
        // SAFETY: it was mapped above.
        unsafe { own.write_volatile(7) };
        drop(mapping);
        // SAFETY: as above; a signal ends this process if it was unmapped.
        exit(if unsafe { own.read_volatile() } == 7 { 0 } else { 4 });
    }
    let mut status = -1;
    assert_eq!((wait(child, &raw mut status, 0), status), (child, 0));
    // SAFETY: it is mapped here as it was.
    unsafe { start.write_volatile(1) };
}
