//! The kernel cache under real processes: many writers, damage, and a folder that cannot be written.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use headwater::cuda::{Allocation, Gpu, Span, Stream};

use crate::child::{Killed, command, role};
use crate::kernels::{add, gpu, words};

fn compile_and_run() {
    let stream = Stream::new(&Gpu::open(0).unwrap()).unwrap();
    let data = Span::whole(Allocation::on_stream(&stream, 400).unwrap());
    stream.fill(&data, 0).unwrap();
    add(&stream, &data, 17).unwrap();
    assert_eq!(words(&stream, &data), [17; 100]);
}

/// Runs `count` processes at once with `cache` as their cache. The emulator's own cache is new too, so that all compile.
fn run_children(test: &str, cache: &Path, below: &Path, count: usize) {
    let start = |_| {
        let mut command = command(test, "compile");
        command.env("HEADWATER_CACHE", cache).env("HWEMU_CACHE", below.join("emulated")).stdout(Stdio::null());
        Killed::start(&mut command)
    };
    let mut children: Vec<Killed> = (0..count).map(start).collect();
    for child in &mut children {
        assert!(child.0.wait().unwrap().success());
    }
}

fn files(cache: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(cache).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[test]
fn processes_that_compile_at_once_all_get_it_right() {
    if role().is_some() {
        return compile_and_run();
    }
    let Some(_) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let cache = folder.path().join("new/cache");
    let test = "device_cache::processes_that_compile_at_once_all_get_it_right";
    run_children(test, &cache, folder.path(), 4);
    let kept = files(&cache);
    assert_eq!(kept.len(), 1, "one kernel and no temporary file: {kept:?}");
    let whole = std::fs::read(&kept[0]).unwrap();
    // Cut, changed, empty, or something else: each is compiled again and replaced.
    let mut changed = whole.clone();
    changed[whole.len() / 2] ^= 1;
    for damage in [&whole[..whole.len() / 2], &changed, b"", b"not a kernel at all"] {
        std::fs::write(&kept[0], damage).unwrap();
        run_children(test, &cache, folder.path(), 1);
        assert_eq!(std::fs::read(&kept[0]).unwrap().len(), whole.len());
    }
}

#[test]
fn a_cache_that_cannot_be_written_is_done_without() {
    if role().is_some() {
        return compile_and_run();
    }
    let Some(_) = gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, closed) = (folder.path().join("file"), folder.path().join("closed"));
    std::fs::write(&file, "a file where a folder is asked for").unwrap();
    std::fs::create_dir(&closed).unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o500)).unwrap();
    let test = "device_cache::a_cache_that_cannot_be_written_is_done_without";
    for cache in [file.clone(), closed.join("below"), PathBuf::from("/proc/headwater")] {
        run_children(test, &cache, folder.path(), 1);
    }
    assert!(file.is_file());
}
